//! One attempt: claim, restore, build, run, tear down.
//!
//! Owns the order in which these happen, and that nothing of an attempt outlives it. What each step does is its module's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use wasmill_core::checkpoint::log::{Restored, StartFrom, state};
use wasmill_core::checkpoint::manifest::{Manifest, Operator, Split};
use wasmill_core::checkpoint::restore::{self as rules, Plan, Target};
use wasmill_core::commit;
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Exchange, Node, NodeKind};
use wasmill_core::id::{Attempt, OperatorUid, SubtaskId};
use wasmill_core::key_group::KeyGroupRange;
use wasmill_core::time::Timestamp;

use super::operator::{Seat, bytes};
use super::ports::Resolver;
use super::prepared::Prepared;
use super::restore::{self, Begin};
use super::wire::{self, Laid, MergeWires, Wires};
use super::{Ending, Start, store, time, unless_stopped};
use crate::clock::SharedClock;
use crate::config::Pipeline;
use crate::control::{Command, Mailbox, Reports};
use crate::coordinator::journal::{Journal, Started};
use crate::coordinator::retention::Retention;
use crate::coordinator::run::{self, Coordinator};
use crate::exchange::gate::Gate;
use crate::source::{Place, SplitPosition};
use crate::spawn::{self, Thread};
use crate::state::{Elements, Restore, SharedMemory};
use crate::subtask::Context;
use crate::subtask::drift::Drift;
use crate::subtask::operator::{self, OperatorSubtask};
use crate::subtask::sink::SinkSubtask;
use crate::subtask::source::{self, SourceSubtask};
use crate::subtask::upload::{Store, Uploads};
use crate::telemetry::{Phase, RestoreReport, StatusBoard};

/// The share of `state.memory` that the write-back caches get; the rest is RocksDB's.
const CACHE_SHARE: u64 = 2;

/// What an attempt starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// As the user asked.
    Start(Start),
    /// The lineage that the attempt before it began.
    Restart,
}

/// What an attempt is run with.
pub(super) struct Options<'a> {
    pub pipeline: &'a Arc<Pipeline>,
    pub prepared: &'a Prepared,
    pub clock: &'a SharedClock,
    pub board: &'a StatusBoard,
    pub stopping: watch::Receiver<bool>,
    pub runtime: &'a Handle,
    pub from: From,
}

/// An attempt that failed.
pub(super) struct Failed {
    /// Why.
    pub fault: Fault,
    /// Whether it stands in the log: the next one then goes on from there.
    pub claimed: bool,
}

/// Runs an attempt to its end.
pub(super) fn run(options: &Options<'_>) -> Result<Ending, Failed> {
    options.board.phase(Phase::Starting);
    let unclaimed = |fault| Failed { fault, claimed: false };
    let begin = options.clock.monotonic();
    let claim = unless_stopped(options.stopping.clone(), Claimed::claim(options));
    let Some(claimed) = options.runtime.block_on(claim) else { return Ok(Ending::Stopped) };
    let claimed = claimed.map_err(unclaimed)?;
    let failed = |fault| Failed { fault, claimed: true };
    claimed.run(options, begin).map_err(failed)
}

/// An attempt that the log knows.
struct Claimed {
    journal: Journal,
    attempt: Attempt,
    restored: Option<Manifest>,
    /// This attempt's own folder of local state.
    dir: PathBuf,
}

impl Claimed {
    async fn claim(options: &Options<'_>) -> Result<Self, Fault> {
        let Options { pipeline, clock, .. } = options;
        let mut journal = Journal::open(store::open(pipeline)?, pipeline.job.name.clone(), Arc::clone(clock)).await?;
        let from = match options.from {
            From::Start(Start::Fresh) => StartFrom::Fresh,
            From::Start(Start::Newest) | From::Restart => StartFrom::Newest,
            From::Start(Start::Checkpoint(checkpoint)) => StartFrom::Checkpoint(checkpoint),
        };
        // What would refuse the restore is found out before the attempt is claimed: a refused start leaves nothing behind.
        if let Some(checkpoint) = journal.state().would_restore(from) {
            let manifest = journal.read_manifest(checkpoint).await?;
            plan(&manifest, options)?;
        }
        let start = state::Start { from, pipeline: options.prepared.settings(pipeline) };
        let Started { attempt, restored, .. } = journal.start_attempt(&start).await?;
        let restored = match restored {
            Restored::Nothing => None,
            Restored::Checkpoint(checkpoint) => Some(journal.read_manifest(checkpoint).await?),
        };
        let dir = pipeline.state_dir.join(format!("attempt-{attempt}"));
        clear_attempts(&pipeline.state_dir)?;
        Ok(Self { journal, attempt, restored, dir })
    }

    fn run(self, options: &Options<'_>, begin: Duration) -> Result<Ending, Fault> {
        let Options { pipeline, prepared, clock, board, runtime, .. } = options;
        let Self { journal, attempt, restored, dir } = self;
        let plan = restored.as_ref().map(|manifest| plan(manifest, options)).transpose()?;
        let store = Store { blob: journal.blob().clone(), names: journal.names().clone(), attempt };
        let from = (&store.blob, &store.names);
        let fetched = match restored.as_ref().map(|manifest| manifest.checkpoint).zip(plan.as_ref()) {
            None => None,
            Some(plan) => {
                let into = dir.join("restored");
                let fetch = restore::fetch(plan, from, &into, clock, board);
                match runtime.block_on(unless_stopped(options.stopping.clone(), fetch)) {
                    None => return Ok(Ending::Stopped),
                    Some(fetched) => Some(fetched.map_err(|fault| unrestored(fault, restored.as_ref(), &journal))?),
                }
            }
        };
        prepared.sinks.values().for_each(|sink| sink.begin(&pipeline.job.name, attempt));
        recover_sinks(options, &journal, restored.as_ref())?;
        let (download, bytes) = fetched.as_ref().map_or((Duration::ZERO, 0), |fetched| (fetched.took, fetched.bytes));

        let resolver = Resolver { pipeline, contracts: &prepared.contracts };
        let laid = wire::wire(&prepared.graph, pipeline.job.max_parallelism, &resolver)?;
        board.attempt(attempt, clock.now(), laid.meters());
        let Laid { subtasks: wires, merging } = laid;
        let mailboxes: BTreeMap<SubtaskId, Mailbox> =
            wires.iter().map(|(id, wires)| (id.clone(), wires.mailbox.clone())).collect();
        let (reports, mut inbox) = mpsc::unbounded_channel();
        let opening = clock.monotonic();
        let memory = SharedMemory::new(share(pipeline.state.memory.get(), 1));
        let elements = fetched.as_ref().map(|fetched| restore::elements(fetched, &prepared.contracts, &memory));
        let builder = Builder {
            options,
            elements: elements.transpose()?.unwrap_or_default(),
            attempt,
            reports,
            store,
            memory,
            cache_bytes: cache_bytes(pipeline),
            splits: plan.as_ref().map(|plan| owned_splits(plan)).unwrap_or_default(),
            merged_watermarks: plan.as_ref().map(|plan| plan.merged_watermarks.clone()).unwrap_or_default(),
            contracts: restored.as_ref().map(super::state::declared).unwrap_or_default(),
            watermarks: plan.map(|plan| plan.watermarks).unwrap_or_default(),
            drifts: time::drifts(pipeline, &mailboxes),
            dir: dir.clone(),
        };
        let ended: Vec<_> = mailboxes.values().chain(merging.iter().map(|wires| &wires.mailbox)).cloned().collect();
        let mergers: Vec<_> = merging.into_iter().map(|wires| builder.merging(wires)).collect();
        let bodies = builder.build(wires, fetched.map(|fetched| fetched.begins).unwrap_or_default())?;
        drop(builder);
        let coordinator = runtime.block_on(coordinator(options, journal, restored.as_ref(), &mailboxes))?;
        let _ = std::fs::remove_dir_all(dir.join("restored"));

        let mut threads = Threads { mailboxes: ended, threads: Vec::new() };
        let bodies = bodies.into_iter().map(|(id, body)| (id.to_string(), body));
        for (name, body) in bodies.chain(mergers) {
            threads.threads.push(spawn::thread(name, body)?);
        }
        let now = clock.monotonic();
        board.restored(RestoreReport {
            checkpoint: restored.as_ref().map(|manifest| manifest.checkpoint),
            download,
            open: now.saturating_sub(opening),
            total: now.saturating_sub(begin),
            bytes,
        });
        tracing::info!(%attempt, restored = restored.as_ref().map(|manifest| manifest.checkpoint.0), "records flow");
        board.phase(Phase::Running);
        let outcome = runtime.block_on(coordinator.run(&mut inbox, options.stopping.clone()));
        drop(threads);
        let _ = std::fs::remove_dir_all(&dir);
        outcome
    }
}

/// Every subtask's thread; none outlives this.
struct Threads {
    mailboxes: Vec<Mailbox>,
    threads: Vec<Thread<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(Command::Finish));
        for thread in self.threads.drain(..) {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Makes the subtasks.
struct Builder<'a> {
    options: &'a Options<'a>,
    attempt: Attempt,
    reports: Reports,
    store: Store,
    memory: SharedMemory,
    cache_bytes: usize,
    /// What subtasks are told of one another's operator state.
    elements: BTreeMap<OperatorUid, Elements>,
    splits: BTreeMap<OperatorUid, Vec<Split>>,
    /// What the components of the restored checkpoint declared.
    contracts: BTreeMap<OperatorUid, OperatorContract>,
    /// The watermarks of the restored checkpoint.
    watermarks: BTreeMap<OperatorUid, Timestamp>,
    /// Those of the operators' broadcast inputs.
    merged_watermarks: BTreeMap<OperatorUid, Timestamp>,
    /// What the sources know of each other, where they are kept together.
    drifts: BTreeMap<SubtaskId, Drift>,
    dir: PathBuf,
}

impl Builder<'_> {
    fn build(
        &self,
        mut wires: BTreeMap<SubtaskId, Wires>,
        mut begins: BTreeMap<SubtaskId, Begin>,
    ) -> Result<Vec<(SubtaskId, Body)>, Fault> {
        let mut bodies = Vec::new();
        for node in self.options.pipeline.graph.nodes() {
            for index in node.parallelism.subtasks() {
                let id = SubtaskId { uid: node.uid.clone(), index };
                let Some(wires) = wires.remove(&id) else { continue };
                let context = Context {
                    id: id.clone(),
                    mailbox: wires.mailbox.clone(),
                    reports: self.reports.clone(),
                    clock: Arc::clone(self.options.clock),
                    meter: Arc::clone(&wires.meter),
                };
                let body = match node.kind {
                    NodeKind::Source => self.source(node, context, wires)?,
                    NodeKind::Operator => {
                        let nothing = || Begin { state: Restore::Empty, inventory: Default::default() };
                        self.operator(node, context, wires, begins.remove(&id).unwrap_or_else(nothing))?
                    }
                    NodeKind::Sink => self.sink(node, context, wires)?,
                };
                bodies.push((id, body));
            }
        }
        Ok(bodies)
    }

    /// From where the watermark of the operator's broadcast inputs goes on.
    fn merged_watermark(&self, uid: &OperatorUid) -> Timestamp {
        self.merged_watermarks.get(uid).copied().unwrap_or(Timestamp::MIN)
    }

    /// A merging subtask, by the name of its thread.
    fn merging(&self, wires: MergeWires) -> (String, Body) {
        let (name, watermark) = (format!("{} merge", wires.uid), self.merged_watermark(&wires.uid));
        let subtask = wires.subtask(watermark, self.reports.clone(), Arc::clone(self.options.clock));
        (name, Box::new(move || subtask.run()))
    }

    /// From where the node's watermark goes on.
    fn watermark(&self, node: &Node) -> Timestamp {
        self.watermarks.get(&node.uid).copied().unwrap_or(Timestamp::MIN)
    }

    fn source(&self, node: &Node, context: Context, mut wires: Wires) -> Result<Body, Fault> {
        let factory = self.options.prepared.sources.get(&node.uid).ok_or_else(|| lost(&context.id))?;
        let declared = self.options.pipeline.source(&node.uid).ok_or_else(|| lost(&context.id))?;
        let watermark = declared.config.watermark();
        let splits = self.splits.get(&node.uid).cloned().unwrap_or_default();
        let positions: Vec<_> = splits
            .iter()
            .map(|split| SplitPosition { split: split.split.clone(), position: split.position.clone() })
            .collect();
        let place = Place { index: context.id.index, parallelism: node.parallelism };
        let reader =
            factory.open(place, &positions).map_err(|fault| fault.at(format_args!("source {}", context.id)))?;
        let options = source::Options {
            strategy: time::strategy(watermark),
            idle_after: watermark.idle.map(|idle| idle.get()),
            drift: self.drifts.get(&context.id).cloned(),
            restored: splits,
            dead_letters: self.options.pipeline.makes_dead_letters(&node.uid),
        };
        let subtask = SourceSubtask::new(context.clone(), options, reader, wires.take_outputs());
        Ok(Box::new(move || context.run(|_| subtask.run())))
    }

    fn sink(&self, node: &Node, context: Context, wires: Wires) -> Result<Body, Fault> {
        let factory = self.options.prepared.sinks.get(&node.uid).ok_or_else(|| lost(&context.id))?;
        let place = Place { index: context.id.index, parallelism: node.parallelism };
        let writer = factory.open(place).map_err(|fault| fault.at(format_args!("sink {}", context.id)))?;
        let subtask = SinkSubtask::new(context.clone(), Gate::new(wires.inputs, self.watermark(node)), writer);
        Ok(Box::new(move || context.run(|_| subtask.run())))
    }

    fn operator(&self, node: &Node, context: Context, mut wires: Wires, begin: Begin) -> Result<Body, Fault> {
        let Options { pipeline, prepared, clock, runtime, .. } = *self.options;
        let component = prepared.components.get(&node.uid).ok_or_else(|| lost(&context.id))?;
        let declared = pipeline.operator(&node.uid).ok_or_else(|| lost(&context.id))?;
        let contract = component.contract().clone();
        let key_groups = KeyGroupRange::of(context.id.index, pipeline.job.max_parallelism, node.parallelism);
        let seat = Seat {
            id: &context.id,
            clock,
            component,
            parallelism: node.parallelism,
            max_parallelism: pipeline.job.max_parallelism,
            key_groups,
            attempt: self.attempt,
            config: &declared.config,
            limits: &declared.limits,
            // A component does not declare whether it sets timers; where there are keys it may.
            has_keys: pipeline.inputs(&node.uid).iter().any(|input| input.exchange == Exchange::Key),
            backend: pipeline.state.backend,
            dir: self.dir.join(format!("{}-{}", node.uid, context.id.index)),
            cache_bytes: self.cache_bytes,
            memory: &self.memory,
            elements: self.elements.get(&node.uid),
            before: self.contracts.get(&node.uid),
            watermark: self.watermark(node),
        };
        let (call, instances) = seat.take(begin.state)?;
        let options = operator::Options {
            contract,
            key_groups,
            batch_records: declared.batch.records.get() as usize,
            batch_bytes: bytes(declared.batch.bytes.get()),
            on_failure: declared.on_failure,
            late_outputs: declared.late_outputs().len(),
            merged_late: std::mem::take(&mut wires.merged_late),
            merged_watermark: self.merged_watermark(&node.uid),
            expires_at_once: false,
            cuts: self.dir.join("cuts"),
            snapshots: Arc::new(Uploads::new(runtime.clone(), self.store.clone(), begin.inventory)),
        };
        let gate = Gate::new(std::mem::take(&mut wires.inputs), self.watermark(node));
        let ports = (gate, wires.take_outputs());
        let subtask = OperatorSubtask::new(context.clone(), options, ports, instances, call);
        Ok(Box::new(move || context.run(|_| subtask.run())))
    }
}

/// What keeps a checkpoint from being restored, and where there is one, another checkpoint.
fn unrestored(fault: Fault, restored: Option<&Manifest>, journal: &Journal) -> Fault {
    let Some(checkpoint) = restored.map(|manifest| manifest.checkpoint) else { return fault };
    let Fault { kind, message } = fault;
    let way_on = if kind == FaultKind::Refused { journal.way_on_without(checkpoint) } else { String::new() };
    Fault::new(kind, format_args!("checkpoint {checkpoint} cannot be restored: {message}{way_on}"))
}

fn lost(id: &SubtaskId) -> Fault {
    Fault::new(FaultKind::Internal, format_args!("nothing was prepared for subtask {id}"))
}

fn plan<'a>(manifest: &'a Manifest, options: &Options<'_>) -> Result<Plan<'a>, Fault> {
    let target = Target {
        graph: &options.prepared.graph,
        max_parallelism: options.pipeline.job.max_parallelism,
        contracts: &options.prepared.contracts,
    };
    rules::plan(manifest, &target).map_err(|error| Fault::new(FaultKind::Refused, error))
}

fn owned_splits(plan: &Plan<'_>) -> BTreeMap<OperatorUid, Vec<Split>> {
    let owned = |splits: &Vec<&Split>| splits.iter().map(|&split| split.clone()).collect();
    plan.splits.iter().map(|(uid, splits)| (uid.clone(), owned(splits))).collect()
}

/// Before any writer opens: what the restored checkpoint has prepared becomes visible, what others left behind goes.
fn recover_sinks(options: &Options<'_>, journal: &Journal, restored: Option<&Manifest>) -> Result<(), Fault> {
    let permit = restored.map(|manifest| journal.commit_permit(manifest.checkpoint)).transpose()?;
    let mut pending = commit::after_restore(&options.pipeline.graph, restored.zip(permit.as_ref()));
    for (uid, factory) in &options.prepared.sinks {
        let pending = pending.remove(uid).unwrap_or_default();
        factory.recover(&pending).map_err(|fault| fault.at(format_args!("sink {uid}")))?;
    }
    Ok(())
}

async fn coordinator(
    options: &Options<'_>,
    journal: Journal,
    restored: Option<&Manifest>,
    mailboxes: &BTreeMap<SubtaskId, Mailbox>,
) -> Result<Coordinator, Fault> {
    let Options { pipeline, prepared, clock, board, .. } = options;
    let mut operators = BTreeMap::new();
    for (uid, component) in &prepared.components {
        let (digest, object) = journal.store_component(component.bytes().clone(), restored).await?;
        operators.insert(uid.clone(), Operator { component: digest, object, contract: component.contract().clone() });
    }
    let in_use: BTreeSet<_> = operators.values().map(|operator| operator.object.clone()).collect();
    let checkpoint = &pipeline.checkpoint;
    let retention =
        Retention::new(&journal, (checkpoint.retain, checkpoint.retain_for.map(|age| age.get())), in_use).await;
    retention.collect_orphans(&journal).await;
    let sources = pipeline.graph.nodes().iter().filter(|node| node.kind == NodeKind::Source);
    let options = run::Options {
        job: pipeline.job.name.clone(),
        graph: prepared.graph.clone(),
        max_parallelism: pipeline.job.max_parallelism,
        operators,
        interval: pipeline.checkpoint.interval.get(),
        timeout: pipeline.checkpoint.timeout.get(),
        mailboxes: mailboxes.clone(),
        sources: sources
            .flat_map(|node| node.parallelism.subtasks().map(|index| SubtaskId { uid: node.uid.clone(), index }))
            .collect(),
        clock: Arc::clone(clock),
        board: StatusBoard::clone(board),
    };
    Ok(Coordinator::new(options, journal, retention))
}

/// Removes the local state of attempts that are over: what counts lies in checkpoints.
fn clear_attempts(state_dir: &std::path::Path) -> Result<(), Fault> {
    let unusable = |error: std::io::Error| {
        Fault::new(
            FaultKind::External,
            format_args!("the state folder {} cannot be used: {error}", state_dir.display()),
        )
    };
    for entry in std::fs::read_dir(state_dir).map_err(unusable)? {
        let entry = entry.map_err(unusable)?;
        if entry.file_name().to_string_lossy().starts_with("attempt-") {
            std::fs::remove_dir_all(entry.path()).map_err(unusable)?;
        }
    }
    Ok(())
}

/// A subtask's part of `state.memory` for its cache.
fn cache_bytes(pipeline: &Pipeline) -> usize {
    let operators = pipeline.graph.nodes().iter().filter(|node| node.kind == NodeKind::Operator);
    let subtasks: u64 = operators.map(|node| u64::from(node.parallelism.get())).sum();
    share(pipeline.state.memory.get(), subtasks)
}

fn share(memory: u64, among: u64) -> usize {
    bytes(memory / CACHE_SHARE / among.max(1))
}
