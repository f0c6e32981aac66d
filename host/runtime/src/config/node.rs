//! The tables `[source.…]`, `[operator.…]` and `[sink.…]`, one by one.
//!
//! Owns which table a connector's name stands for, uids that are unique across the three, and the exchange that is left out.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use wasmill_core::graph::Exchange;
use wasmill_core::id::{OperatorUid, Parallelism};

use super::de::{self, Table};
use super::document::{Document, Entry, Places, Value};
use super::error::Error;
use super::input::{Input, InputTable, KeySpec};
use super::late::OnLate;
use super::operator::{DEAD_LETTER, OperatorTable};
use super::pipeline::{OperatorNode, SinkNode, SourceNode, resolve, table_entries};
use super::sink::Sink;
use super::source::Source;

/// Reads the nodes: sources, then operators, then sinks.
pub(super) struct Reader<'a> {
    document: &'a Document,
    places: &'a Places,
    base: &'a Path,
    /// The nodes so far.
    known: BTreeMap<OperatorUid, Known>,
}

struct Known {
    table: &'static str,
    parallelism: Parallelism,
    line: u32,
}

/// The connectors of sources, by name.
pub(super) const SOURCES: [&str; 2] = ["file", "generator"];
/// The connectors of sinks, by name.
pub(super) const SINKS: [&str; 2] = ["file", "stdout"];

const CONNECTOR: &[&str] = &["connector"];

impl<'a> Reader<'a> {
    pub(super) fn new(document: &'a Document, places: &'a Places, base: &'a Path) -> Self {
        Self { document, places, base, known: BTreeMap::new() }
    }

    pub(super) fn sources(&mut self) -> Result<Vec<SourceNode>, Error> {
        let mut nodes = Vec::new();
        for (uid, table) in self.tables("source", CONNECTOR)? {
            let path = ["source", uid.as_str()];
            let config = match self.connector(&table, path, &SOURCES)? {
                "file" => Source::File(self.read(table, path)?),
                _ => Source::Generator(self.read(table, path)?),
            };
            let parallelism = self.note(&uid, "source", config.parallelism())?;
            nodes.push(SourceNode { uid, parallelism, config });
        }
        Ok(nodes)
    }

    pub(super) fn operators(&mut self) -> Result<Vec<OperatorNode>, Error> {
        let mut tables = Vec::new();
        for (uid, table) in self.tables("operator", &[])? {
            let table: OperatorTable = self.read(table, ["operator", uid.as_str()])?;
            let parallelism = self.note(&uid, "operator", Some(table.parallelism))?;
            tables.push((uid, parallelism, table));
        }
        let mut nodes = Vec::new();
        for (uid, parallelism, table) in tables {
            nodes.push(OperatorNode {
                inputs: self.inputs("operator", &uid, parallelism, &table.input.0)?,
                uid,
                component: resolve(self.base, &table.component),
                parallelism,
                config: table.config,
                limits: table.limits,
                grants: table.grants,
                wasi: table.wasi,
                batch: table.batch,
                on_failure: table.on_failure,
                unbounded: table.unbounded,
            });
        }
        Ok(nodes)
    }

    pub(super) fn sinks(&mut self) -> Result<Vec<SinkNode>, Error> {
        let mut nodes = Vec::new();
        for (uid, table) in self.tables("sink", CONNECTOR)? {
            let path = ["sink", uid.as_str()];
            let config = match self.connector(&table, path, &SINKS)? {
                "file" => Sink::File(self.read(table, path)?),
                _ => Sink::Stdout(self.read(table, path)?),
            };
            let parallelism = self.note(&uid, "sink", config.parallelism())?;
            let inputs = self.inputs("sink", &uid, parallelism, &config.input().0)?;
            nodes.push(SinkNode { uid, parallelism, inputs, config });
        }
        Ok(nodes)
    }

    /// The tables of one kind, each by its uid.
    fn tables(&self, kind: &'static str, skip: &'a [&'a str]) -> Result<Vec<(OperatorUid, Table<'a>)>, Error> {
        let Some(entry) = self.document.root.iter().find(|entry| entry.key == kind) else { return Ok(Vec::new()) };
        let mut tables = Vec::new();
        for entry in table_entries(self.document, entry, &[kind])? {
            let key = || format!("{kind}.{}", entry.key);
            let uid = OperatorUid::new(&entry.key).map_err(|error| self.at(entry, key(), error.to_string()))?;
            let Value::Table(entries) = &entry.node.value else {
                let message = format!("expected a table: each {kind} is a table [{kind}.NAME]");
                return Err(self.at(entry, key(), message));
            };
            tables.push((uid, Table { entries, start: entry.node.span.start, skip }));
        }
        Ok(tables)
    }

    fn at(&self, entry: &Entry, key: String, message: String) -> Error {
        Error::Value { place: self.document.lines.place(entry.span.start), key, message }
    }

    fn read<T: serde::Deserialize<'a>>(&self, table: Table<'a>, path: [&str; 2]) -> Result<T, Error> {
        de::from_table(table, &path, &self.document.lines)
    }

    /// The name of the table's connector, one of `known`.
    fn connector(&self, table: &Table<'a>, path: [&str; 2], known: &[&str]) -> Result<&'a str, Error> {
        let Some(entry) = table.entries.iter().find(|entry| entry.key == "connector") else {
            let place = self.document.lines.place(table.start);
            return Err(Error::MissingKey {
                place,
                table: format!("[{}]", path.join(".")),
                key: "connector".to_owned(),
            });
        };
        let key = format!("{}.connector", path.join("."));
        let Value::String { text, shown } = &entry.node.value else {
            return Err(self.at(entry, key, format!("expected one of {}", known.join(", "))));
        };
        if known.contains(&text.as_str()) {
            return Ok(text);
        }
        let place = self.document.lines.place(entry.node.span.start);
        let known = known.iter().map(|&name| name.to_owned()).collect();
        Err(de::unknown_value(place, key, shown.as_ref().unwrap_or(text).clone(), known))
    }

    /// Takes the uid, if it is free.
    fn note(
        &mut self,
        uid: &OperatorUid,
        table: &'static str,
        parallelism: Option<NonZeroU32>,
    ) -> Result<Parallelism, Error> {
        let place = self.places.of(&[table, uid.as_str()]);
        if let Some(first) = self.known.get(uid) {
            return Err(Error::DuplicateUid { place, uid: uid.to_string(), first: first.table, line: first.line });
        }
        let parallelism = parallelism.map_or(Parallelism::ONE, Parallelism);
        self.known.insert(uid.clone(), Known { table, parallelism, line: place.line });
        Ok(parallelism)
    }

    fn inputs(
        &self,
        kind: &'static str,
        uid: &OperatorUid,
        parallelism: Parallelism,
        tables: &[InputTable],
    ) -> Result<Vec<Input>, Error> {
        let mut inputs = Vec::with_capacity(tables.len());
        for (index, table) in tables.iter().enumerate() {
            let input = self.input(table, parallelism).map_err(|(key, message)| Error::Value {
                place: self.places.of_input(kind, uid.as_str(), index, Some(key)),
                key: format!("{kind}.{uid}.input.{key}"),
                message,
            })?;
            let not_for_sinks = if kind != "sink" {
                None
            } else if input.port.is_some() {
                Some(("port", "a sink has one input: leave `port` out"))
            } else if input.on_late != OnLate::Pass {
                Some(("on-late", "a sink writes whatever comes: set `on-late` on the input of an operator before it"))
            } else {
                None
            };
            if let Some((key, message)) = not_for_sinks {
                return Err(Error::Value {
                    place: self.places.of_input(kind, uid.as_str(), index, Some(key)),
                    key: format!("{kind}.{uid}.input.{key}"),
                    message: message.to_owned(),
                });
            }
            inputs.push(input);
        }
        Ok(inputs)
    }

    /// The input that the table stands for, or the key at fault and what is wrong with it.
    fn input(&self, table: &InputTable, parallelism: Parallelism) -> Result<Input, (&'static str, String)> {
        let (from, output) = match table.from.split_once('/') {
            Some((from, output)) => (from, Some(output.to_owned())),
            None => (table.from.as_str(), None),
        };
        if output.as_ref().is_some_and(String::is_empty) {
            return Err(("from", format!("`{}` names no output after the `/`", table.from)));
        }
        let from = OperatorUid::new(from).map_err(|error| ("from", error.to_string()))?;
        let origin = self.known.get(&from);
        let is_source = origin.is_some_and(|origin| origin.table == "source");
        if is_source && output.as_ref().is_some_and(|output| output != DEAD_LETTER) {
            return Err(("from", format!("the source `{from}` has one output: write `{from}`")));
        }
        let exchange = match (table.exchange, &table.key) {
            (Some(exchange), _) => exchange.into(),
            (None, Some(_)) => Exchange::Key,
            (None, None) if origin.is_none_or(|origin| origin.parallelism == parallelism) => Exchange::Forward,
            (None, None) => Exchange::Rebalance,
        };
        let key = match &table.key {
            Some(_) if exchange != Exchange::Key => {
                return Err(("key", "a key goes with exchange = \"key\" only: leave one of the two out".to_owned()));
            }
            Some(text) => KeySpec::parse(text).map_err(|message| ("key", message))?,
            None => KeySpec::Record,
        };
        let port = table.port.clone();
        let on_late = table.on_late.clone();
        Ok(Input { from, output, exchange, key, on_missing_key: table.on_missing_key, on_late, port })
    }
}
