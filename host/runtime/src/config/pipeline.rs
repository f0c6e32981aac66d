//! The whole pipeline: every table read, every uid known, the graph checked.
//!
//! Owns the order of the checks and how the file's nodes become a graph. Does not load components (`bind` holds their
//! declarations against the file) and opens no connector.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use wasmill_core::graph::{self, Edge, Graph, Node, NodeKind};
use wasmill_core::id::{OperatorUid, Parallelism};

use super::check;
use super::document::{Document, Entry, Places, Value};
use super::error::{Error, Place, nearest};
use super::grants::{Grant, Wasi};
use super::input::{Input, OnMissingKey};
use super::late::OnLate;
use super::operator::{Batch, Limits, OnFailure};
use super::sink::Sink;
use super::source::Source;
use super::store;
use super::substitute::{Environment, Secrets, process_environment};
use super::table::{Admin, Checkpoint, Job, Restart, State};
use super::{de, node};

/// A pipeline file, read and checked. Paths are resolved against the file's folder.
#[derive(Clone)]
pub struct Pipeline {
    /// The file as it was named.
    pub file: PathBuf,
    /// Its folder, absolute: what relative paths are relative to.
    pub base: PathBuf,
    /// `[job]`.
    pub job: Job,
    /// `[checkpoint]`; the store is a URL or an absolute path.
    pub checkpoint: Checkpoint,
    /// `[state]`; see `state_dir` for the folder.
    pub state: State,
    /// The folder of this job's local state, absolute.
    pub state_dir: PathBuf,
    /// `[restart]`.
    pub restart: Restart,
    /// `[admin]`.
    pub admin: Admin,
    /// `[source.…]`, in the order of the file.
    pub sources: Vec<SourceNode>,
    /// `[operator.…]`, in the order of the file.
    pub operators: Vec<OperatorNode>,
    /// `[sink.…]`, in the order of the file.
    pub sinks: Vec<SinkNode>,
    /// The graph as declared: the edges of a node are its `inputs` in their order, numbered by place. [`Pipeline::bind`] gives
    /// the graph in which each edge has the index of the component's input that it feeds.
    pub graph: Graph,
    /// What `${…}` brought in: mask whatever text of this pipeline is shown.
    pub secrets: Secrets,
    pub(super) places: Places,
}

/// A source of the pipeline.
#[derive(Debug, Clone)]
pub struct SourceNode {
    /// Its stable name.
    pub uid: OperatorUid,
    /// How many subtasks read.
    pub parallelism: Parallelism,
    /// What its connector was told.
    pub config: Source,
}

/// An operator of the pipeline.
#[derive(Debug, Clone)]
pub struct OperatorNode {
    /// Its stable name, by which its state is found.
    pub uid: OperatorUid,
    /// The `.wasm` file, absolute.
    pub component: PathBuf,
    /// How many subtasks run it.
    pub parallelism: Parallelism,
    /// Where its records come from.
    pub inputs: Vec<Input>,
    /// What the component is told.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What the component may use.
    pub limits: Limits,
    /// What it may import beside the contract.
    pub grants: BTreeSet<Grant>,
    /// What becomes of its other imports of WASI.
    pub wasi: Wasi,
    /// How many records cross at once.
    pub batch: Batch,
    /// What happens to a record on which the component fails.
    pub on_failure: OnFailure,
    /// Why its state may grow without end; `None`: nobody says.
    pub unbounded: Option<String>,
}

impl OperatorNode {
    /// The names of its late outputs, each once, in the order of the inputs that name them. They come after the component's.
    #[must_use]
    pub fn late_outputs(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for input in &self.inputs {
            if let OnLate::Output(name) = &input.on_late
                && !names.contains(&name.as_str())
            {
                names.push(name.as_str());
            }
        }
        names
    }
}

/// A sink of the pipeline.
#[derive(Debug, Clone)]
pub struct SinkNode {
    /// Its stable name.
    pub uid: OperatorUid,
    /// How many subtasks write.
    pub parallelism: Parallelism,
    /// Where its records come from; all feed its one input.
    pub inputs: Vec<Input>,
    /// What its connector is told.
    pub config: Sink,
}

/// The tables there are.
pub(super) const TABLES: [&str; 8] = ["job", "checkpoint", "state", "restart", "admin", "source", "operator", "sink"];

impl Pipeline {
    /// Reads and checks a pipeline file. Nothing that it names is opened, but for what `${file:…}` refers to.
    ///
    /// # Errors
    /// See [`Error`]; each names file, line and key.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(file).map_err(|source| Error::Unreadable { file: file.to_owned(), source })?;
        Self::parse(file, &text, &process_environment)
    }

    /// Checks `text` as the pipeline file `file`, with another environment than the process's.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn parse(file: &Path, text: &str, environment: Environment<'_>) -> Result<Self, Error> {
        let document = Document::parse(file, text, environment)?;
        let places = document.places();
        refuse_unknown_tables(&document)?;
        let base = std::path::absolute(file)
            .map_err(|source| Error::Unreadable { file: file.to_owned(), source })?
            .parent()
            .map_or_else(|| PathBuf::from("/"), Path::to_owned);

        let job: Job = single(&document, "job")?.ok_or_else(|| Error::MissingKey {
            place: places.of(&[]),
            table: "the file".to_owned(),
            key: "job.name".to_owned(),
        })?;
        let mut checkpoint: Checkpoint = single(&document, "checkpoint")?.unwrap_or_default();
        checkpoint.store = store::resolve(&base, &checkpoint.store);
        let mut secrets = document.secrets.clone();
        for name in store::secret_variables(&checkpoint.store) {
            secrets.remember(&environment(name).unwrap_or_default(), &format!("${{env:{name}}}"));
        }
        let state: State = single(&document, "state")?.unwrap_or_default();
        let default_dir = || Path::new("state").join(job.name.as_str());
        let state_dir = resolve(&base, &state.dir.clone().unwrap_or_else(default_dir));

        let restart: Restart = single(&document, "restart")?.unwrap_or_default();
        let admin: Admin = single(&document, "admin")?.unwrap_or_default();

        let mut nodes = node::Reader::new(&document, &places, &base);
        let (sources, operators, sinks) = (nodes.sources()?, nodes.operators()?, nodes.sinks()?);
        let graph = graph(&sources, &operators, &sinks, &places)?;
        let pipeline = Self {
            file: file.to_owned(),
            base,
            job,
            checkpoint,
            state,
            state_dir,
            restart,
            admin,
            sources,
            operators,
            sinks,
            graph,
            secrets,
            places,
        };
        check::limits(&pipeline)?;
        Ok(pipeline)
    }

    /// The operator of that uid.
    #[must_use]
    pub fn operator(&self, uid: &OperatorUid) -> Option<&OperatorNode> {
        self.operators.iter().find(|operator| operator.uid == *uid)
    }

    /// The source of that uid.
    #[must_use]
    pub fn source(&self, uid: &OperatorUid) -> Option<&SourceNode> {
        self.sources.iter().find(|source| source.uid == *uid)
    }

    /// The sink of that uid.
    #[must_use]
    pub fn sink(&self, uid: &OperatorUid) -> Option<&SinkNode> {
        self.sinks.iter().find(|sink| sink.uid == *uid)
    }

    /// The inputs of an operator or sink, one for each of its edges in the graph and in the same order; of another uid, none.
    #[must_use]
    pub fn inputs(&self, uid: &OperatorUid) -> &[Input] {
        let of_sink = || self.sink(uid).map(|sink| sink.inputs.as_slice());
        self.operator(uid).map(|operator| operator.inputs.as_slice()).or_else(of_sink).unwrap_or_default()
    }

    /// Whether the node has an output for dead letters: its own, or of records that lack the key of an edge out of it.
    #[must_use]
    pub fn makes_dead_letters(&self, uid: &OperatorUid) -> bool {
        self.operator(uid).is_some_and(|operator| operator.on_failure == OnFailure::DeadLetter)
            || self.source(uid).is_some_and(|source| source.config.makes_dead_letters())
            || self
                .all_inputs()
                .any(|(_, _, _, input)| input.from == *uid && input.on_missing_key == OnMissingKey::DeadLetter)
    }

    /// Every input, with the table and uid of its node and its place among the node's.
    pub(super) fn all_inputs(&self) -> impl Iterator<Item = (&'static str, &OperatorUid, usize, &Input)> {
        let operators = self.operators.iter().map(|node| ("operator", &node.uid, &node.inputs));
        let nodes = operators.chain(self.sinks.iter().map(|node| ("sink", &node.uid, &node.inputs)));
        nodes.flat_map(|(table, uid, inputs)| {
            inputs.iter().enumerate().map(move |(index, input)| (table, uid, index, input))
        })
    }

    /// Where a key stands, such as `["operator", UID, "component"]`; where it is left out, the innermost table around it.
    #[must_use]
    pub fn place(&self, path: &[&str]) -> Place {
        self.places.of(path)
    }
}

impl fmt::Debug for Pipeline {
    /// Without the tables: they may hold what `${…}` brought in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("file", &self.file).field("job", &self.job.name).finish_non_exhaustive()
    }
}

fn refuse_unknown_tables(document: &Document) -> Result<(), Error> {
    for entry in &document.root {
        let place = document.lines.place(entry.span.start);
        if entry.key == "dead-letter" {
            let instead = "use a sink with the input \"OPERATOR/dead-letter\"";
            return Err(Error::NotYet { place, what: "`[dead-letter]`".to_owned(), instead });
        }
        if !TABLES.contains(&entry.key.as_str()) {
            return Err(Error::UnknownKey {
                place,
                table: "the file".to_owned(),
                nearest: nearest(&entry.key, TABLES),
                key: entry.key.clone(),
                known: TABLES.iter().map(|&table| format!("[{table}]")).collect(),
            });
        }
    }
    Ok(())
}

fn single<'a, T: serde::Deserialize<'a>>(document: &'a Document, name: &str) -> Result<Option<T>, Error> {
    let Some(entry) = document.root.iter().find(|entry| entry.key == name) else { return Ok(None) };
    let table =
        de::Table { entries: table_entries(document, entry, &[name])?, start: entry.node.span.start, skip: &[] };
    de::from_table(table, &[name], &document.lines).map(Some)
}

/// What stands in `entry`, which must be a table.
pub(super) fn table_entries<'a>(document: &Document, entry: &'a Entry, path: &[&str]) -> Result<&'a [Entry], Error> {
    match &entry.node.value {
        Value::Table(entries) => Ok(entries),
        _ => Err(Error::Value {
            place: document.lines.place(entry.span.start),
            key: path.join("."),
            message: "expected a table".to_owned(),
        }),
    }
}

/// The path, absolute and without `.` in it.
pub(super) fn resolve(base: &Path, path: &Path) -> PathBuf {
    base.join(path).components().collect()
}

fn graph(
    sources: &[SourceNode],
    operators: &[OperatorNode],
    sinks: &[SinkNode],
    places: &Places,
) -> Result<Graph, Error> {
    let mut nodes = Vec::new();
    for source in sources {
        nodes.push(Node {
            uid: source.uid.clone(),
            kind: NodeKind::Source,
            parallelism: source.parallelism,
            edges: Vec::new(),
        });
    }
    for operator in operators {
        let edges = (0u16..).zip(&operator.inputs).map(|(index, input)| edge(input, index)).collect();
        nodes.push(Node {
            uid: operator.uid.clone(),
            kind: NodeKind::Operator,
            parallelism: operator.parallelism,
            edges,
        });
    }
    for sink in sinks {
        let edges = sink.inputs.iter().map(|input| edge(input, 0)).collect();
        nodes.push(Node { uid: sink.uid.clone(), kind: NodeKind::Sink, parallelism: sink.parallelism, edges });
    }
    Graph::new(nodes).map_err(|source| Error::Graph { place: place_of(&source, operators, sinks, places), source })
}

fn edge(input: &Input, index: u16) -> Edge {
    Edge { from: input.from.clone(), output: input.output.clone(), input: index, exchange: input.exchange }
}

fn place_of(error: &graph::Error, operators: &[OperatorNode], sinks: &[SinkNode], places: &Places) -> Place {
    use graph::Error as Graph;
    let (uid, from) = match error {
        Graph::NoSource => return places.of(&[]),
        Graph::DuplicateUid(uid) | Graph::IntoSource(uid) | Graph::NoInput(uid) | Graph::Cycle(uid) => (uid, None),
        Graph::UnknownUpstream { node, from, .. } | Graph::FromSink { node, from } => (node, Some(from)),
        Graph::UnequalForward { node, from, .. } => (node, Some(from)),
    };
    let operator =
        operators.iter().find(|operator| operator.uid == *uid).map(|operator| ("operator", &operator.inputs));
    let sink = || sinks.iter().find(|sink| sink.uid == *uid).map(|sink| ("sink", &sink.inputs));
    let Some((table, inputs)) = operator.or_else(sink) else { return places.of(&["source", uid.as_str()]) };
    let index = inputs.iter().position(|input| Some(&input.from) == from);
    match index {
        Some(index) => places.of_input(table, uid.as_str(), index, Some("from")),
        None => places.of(&[table, uid.as_str(), "input"]),
    }
}
