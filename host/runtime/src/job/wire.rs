//! Lays the channels between the subtasks of a graph.
//!
//! Owns which subtask's output reaches which subtask's gate, through a merging subtask where `core::merge` says so. Does not start
//! anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Edge, Exchange, Graph, Node};
use wasmill_core::id::{OperatorUid, SubtaskId};
use wasmill_core::key_group::MaxParallelism;
use wasmill_core::merge;
use wasmill_core::time::Timestamp;

use crate::clock::SharedClock;
use crate::config::input::{Input, OnMissingKey};
use crate::control::{Mailbox, Reports};
use crate::exchange::channel::channel;
use crate::exchange::gate::{Gate, InputChannel, OnLate};
use crate::exchange::key::KeyExtractor;
use crate::exchange::route::{KeyRouter, MissingKey, OutEdge, Outputs, Routing};
use crate::subtask::merge::{MergingSubtask, Options};
use crate::telemetry::SubtaskMeter;

/// What a subtask is connected to.
#[derive(Debug)]
pub(super) struct Wires {
    /// Where its commands arrive.
    pub mailbox: Mailbox,
    /// Its channels in.
    pub inputs: Vec<InputChannel>,
    /// Its edges out, by output.
    pub outputs: Vec<Vec<OutEdge>>,
    /// Which of them takes dead letters.
    pub dead_letters: Option<usize>,
    /// What becomes of late records, by merged edge.
    pub merged_late: Vec<OnLate>,
    /// Its counters.
    pub meter: Arc<SubtaskMeter>,
}

/// What the merging subtask of an operator is connected to.
#[derive(Debug)]
pub(super) struct MergeWires {
    /// The operator.
    pub uid: OperatorUid,
    /// Where its commands arrive.
    pub mailbox: Mailbox,
    /// Its channels in; the input of each is the number of its edge among the merged ones.
    pub inputs: Vec<InputChannel>,
    /// The operator's input that each merged edge feeds.
    pub feeds: Vec<u16>,
    /// The operator's subtasks.
    pub outputs: Outputs,
    /// Its counters.
    pub meter: Arc<SubtaskMeter>,
}

impl MergeWires {
    /// The merging subtask itself, whose watermark goes on from `watermark`.
    pub(super) fn subtask(self, watermark: Timestamp, reports: Reports, clock: SharedClock) -> MergingSubtask {
        let Self { uid, mailbox, inputs, feeds, outputs, meter } = self;
        let options = Options { uid, mailbox, reports, clock, meter, feeds };
        MergingSubtask::new(options, Gate::new(inputs, watermark), outputs)
    }
}

/// All that was laid.
#[derive(Debug, Default)]
pub(super) struct Laid {
    /// By subtask.
    pub subtasks: BTreeMap<SubtaskId, Wires>,
    /// One for each operator with broadcast inputs.
    pub merging: Vec<MergeWires>,
}

impl Laid {
    /// The counters of all, those that merge behind their operator's.
    pub(super) fn meters(&self) -> Vec<Arc<SubtaskMeter>> {
        let merging = self.merging.iter().map(|wires| Arc::clone(&wires.meter));
        let mut meters: Vec<_> = self.subtasks.values().map(|wires| Arc::clone(&wires.meter)).chain(merging).collect();
        meters.sort_by(|one, other| one.id().uid.cmp(&other.id().uid));
        meters
    }
}

impl Wires {
    /// The edges out as the subtask uses them.
    pub(super) fn take_outputs(&mut self) -> Outputs {
        Outputs::new(std::mem::take(&mut self.outputs)).with_dead_letters(self.dead_letters)
    }
}

/// What the wiring asks of the pipeline about an edge.
pub(super) trait Ports {
    /// The index of the output that an edge names.
    fn output(&self, from: &OperatorUid, output: Option<&str>) -> Result<usize, Fault>;
    /// How many outputs a node has, late ones included.
    fn outputs(&self, uid: &OperatorUid) -> usize;
    /// Which of them takes dead letters.
    fn dead_letters(&self, uid: &OperatorUid) -> Option<usize>;
    /// The input as the pipeline file has it.
    fn declared<'a>(&'a self, node: &OperatorUid, edge: usize) -> Option<&'a Input>;
    /// What becomes of late records of a node's edge.
    fn on_late(&self, node: &OperatorUid, edge: usize) -> OnLate;
    /// The fields of the arrays that an output of a node emits, where it emits arrays.
    fn array_fields(&self, from: &OperatorUid, output: Option<&str>) -> Option<Vec<String>>;
}

/// Lays all channels of `graph`, whose edges name the inputs of the components.
///
/// # Errors
/// An edge that names an output which the component does not have.
pub(super) fn wire(graph: &Graph, max_parallelism: MaxParallelism, ports: &dyn Ports) -> Result<Laid, Fault> {
    let mut wires = BTreeMap::new();
    let mut merging = Vec::new();
    for node in graph.nodes() {
        for index in node.parallelism.subtasks() {
            let id = SubtaskId { uid: node.uid.clone(), index };
            let outputs = (0..ports.outputs(&node.uid)).map(|_| Vec::new()).collect();
            let dead_letters = ports.dead_letters(&node.uid);
            let meter = Arc::new(SubtaskMeter::new(id.clone(), node.kind));
            let mailbox = Mailbox::default();
            let (inputs, merged_late) = (Vec::new(), Vec::new());
            wires.insert(id, Wires { mailbox, inputs, outputs, dead_letters, merged_late, meter });
        }
    }
    for node in graph.nodes() {
        let merged: Vec<_> = merge::edges(node).map(|(at, _)| at).collect();
        let mut merger = (!merged.is_empty()).then(|| merger(node, &mut wires));
        for (at, edge) in node.edges.iter().enumerate() {
            let Some(from) = graph.node(&edge.from) else { continue };
            let Some(declared) = ports.declared(&node.uid, at) else { continue };
            let on_late = ports.on_late(&node.uid, at);
            let lay = Lay { from, node, edge, declared, on_late, max_parallelism };
            match &mut merger {
                Some(merger) if merged.contains(&at) => lay.merged(&mut wires, merger, ports)?,
                _ => lay.all(&mut wires, ports)?,
            }
        }
        merging.extend(merger);
    }
    Ok(Laid { subtasks: wires, merging })
}

/// A merging subtask for `node`, connected to the node's subtasks.
fn merger(node: &Node, wires: &mut BTreeMap<SubtaskId, Wires>) -> MergeWires {
    let mailbox = Mailbox::default();
    let mut targets = Vec::new();
    for index in node.parallelism.subtasks() {
        let Some(wires) = wires.get_mut(&SubtaskId { uid: node.uid.clone(), index }) else { continue };
        let (near, far) = channel(mailbox.bell().clone(), wires.mailbox.bell().clone());
        // Late records of a merged edge are the subtask's to judge: it knows the edge by the stamp.
        wires.inputs.push(InputChannel { input: 0, on_late: OnLate::Pass, receiver: far });
        targets.push(near);
    }
    let outputs = Outputs::new(vec![vec![OutEdge { routing: Routing::Broadcast, targets }]]);
    let meter = Arc::new(SubtaskMeter::merging(node.uid.clone()));
    MergeWires { uid: node.uid.clone(), mailbox, inputs: Vec::new(), feeds: Vec::new(), outputs, meter }
}

struct Lay<'a> {
    from: &'a Node,
    node: &'a Node,
    edge: &'a Edge,
    declared: &'a Input,
    on_late: OnLate,
    max_parallelism: MaxParallelism,
}

impl Lay<'_> {
    fn all(&self, wires: &mut BTreeMap<SubtaskId, Wires>, ports: &dyn Ports) -> Result<(), Fault> {
        let input = self.edge.input;
        for sender in self.senders() {
            let (bell, meter) = {
                let wires = wires.get(&sender).ok_or_else(|| no_wires(&sender))?;
                (wires.mailbox.bell().clone(), Arc::clone(&wires.meter))
            };
            let mut targets = Vec::new();
            for receiver in self.node.parallelism.subtasks() {
                if self.edge.exchange == Exchange::Forward && receiver != sender.index {
                    continue;
                }
                let receiver = SubtaskId { uid: self.node.uid.clone(), index: receiver };
                let Some(wires) = wires.get_mut(&receiver) else { continue };
                let (near, far) = channel(bell.clone(), wires.mailbox.bell().clone());
                wires.inputs.push(InputChannel { input, on_late: self.on_late, receiver: far });
                targets.push(near);
            }
            let edge = OutEdge { routing: self.routing(ports, meter)?, targets };
            self.leave(&sender, edge, wires, ports)?;
        }
        Ok(())
    }

    /// The edge passes through the merging subtask.
    fn merged(
        &self,
        wires: &mut BTreeMap<SubtaskId, Wires>,
        merger: &mut MergeWires,
        ports: &dyn Ports,
    ) -> Result<(), Fault> {
        let number = u16::try_from(merger.feeds.len()).unwrap_or(u16::MAX);
        merger.feeds.push(self.edge.input);
        for index in self.node.parallelism.subtasks() {
            if let Some(wires) = wires.get_mut(&SubtaskId { uid: self.node.uid.clone(), index }) {
                wires.merged_late.push(self.on_late);
            }
        }
        for sender in self.senders() {
            let bell = wires.get(&sender).ok_or_else(|| no_wires(&sender))?.mailbox.bell().clone();
            let (near, far) = channel(bell, merger.mailbox.bell().clone());
            merger.inputs.push(InputChannel { input: number, on_late: OnLate::Pass, receiver: far });
            self.leave(&sender, OutEdge { routing: Routing::Forward, targets: vec![near] }, wires, ports)?;
        }
        Ok(())
    }

    fn senders(&self) -> impl Iterator<Item = SubtaskId> {
        self.from.parallelism.subtasks().map(|index| SubtaskId { uid: self.from.uid.clone(), index })
    }

    /// Gives the sender its edge out.
    fn leave(
        &self,
        sender: &SubtaskId,
        edge: OutEdge,
        wires: &mut BTreeMap<SubtaskId, Wires>,
        ports: &dyn Ports,
    ) -> Result<(), Fault> {
        let output = ports.output(&self.from.uid, self.edge.output.as_deref())?;
        let edges = wires.get_mut(sender).and_then(|wires| wires.outputs.get_mut(output));
        edges.ok_or_else(|| no_wires(sender))?.push(edge);
        Ok(())
    }

    fn routing(&self, ports: &dyn Ports, meter: Arc<SubtaskMeter>) -> Result<Routing, Fault> {
        Ok(match self.edge.exchange {
            Exchange::Forward => Routing::Forward,
            Exchange::Broadcast => Routing::Broadcast,
            Exchange::Rebalance => Routing::Rebalance { next: 0 },
            Exchange::Key => {
                let fields = ports.array_fields(&self.from.uid, self.edge.output.as_deref());
                let policy = match self.declared.on_missing_key {
                    OnMissingKey::Fail => MissingKey::Fail,
                    OnMissingKey::Drop => MissingKey::Drop,
                    OnMissingKey::DeadLetter => MissingKey::DeadLetter,
                };
                let extractor = KeyExtractor::new(&self.declared.key, fields.as_deref()).map_err(|error| {
                    let (from, node) = (&self.from.uid, &self.node.uid);
                    Fault::new(FaultKind::User, error).at(format_args!("the edge from `{from}` to `{node}`"))
                })?;
                Routing::Key(Box::new(KeyRouter::new(
                    extractor,
                    policy,
                    (self.max_parallelism, self.node.parallelism),
                    (self.from.uid.clone(), self.node.uid.clone()),
                    meter,
                )))
            }
        })
    }
}

fn no_wires(subtask: &SubtaskId) -> Fault {
    Fault::new(FaultKind::Internal, format_args!("no wires for subtask {subtask}"))
}
