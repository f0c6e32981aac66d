//! Lays the channels between the subtasks of a graph.
//!
//! Owns which subtask's output reaches which subtask's gate. Does not start anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Edge, Exchange, Graph, Node};
use wasmill_core::id::{OperatorUid, SubtaskId};
use wasmill_core::key_group::MaxParallelism;

use crate::config::input::{Input, OnMissingKey};
use crate::control::Mailbox;
use crate::exchange::channel::channel;
use crate::exchange::gate::{InputChannel, OnLate};
use crate::exchange::key::KeyExtractor;
use crate::exchange::route::{KeyRouter, MissingKey, OutEdge, Outputs, Routing};
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
    /// Its counters.
    pub meter: Arc<SubtaskMeter>,
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
pub(super) fn wire(
    graph: &Graph,
    max_parallelism: MaxParallelism,
    ports: &dyn Ports,
) -> Result<BTreeMap<SubtaskId, Wires>, Fault> {
    let mut wires = BTreeMap::new();
    for node in graph.nodes() {
        for index in node.parallelism.subtasks() {
            let id = SubtaskId { uid: node.uid.clone(), index };
            let outputs = (0..ports.outputs(&node.uid)).map(|_| Vec::new()).collect();
            let dead_letters = ports.dead_letters(&node.uid);
            let meter = Arc::new(SubtaskMeter::new(id.clone(), node.kind));
            wires.insert(id, Wires { mailbox: Mailbox::default(), inputs: Vec::new(), outputs, dead_letters, meter });
        }
    }
    for node in graph.nodes() {
        for (at, edge) in node.edges.iter().enumerate() {
            let Some(from) = graph.node(&edge.from) else { continue };
            let Some(declared) = ports.declared(&node.uid, at) else { continue };
            let on_late = ports.on_late(&node.uid, at);
            let lay = Lay { from, node, edge, declared, on_late, max_parallelism };
            lay.all(&mut wires, ports)?;
        }
    }
    Ok(wires)
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
        let output = ports.output(&self.from.uid, self.edge.output.as_deref())?;
        let input = self.edge.input;
        for sender in self.from.parallelism.subtasks() {
            let sender = SubtaskId { uid: self.from.uid.clone(), index: sender };
            let lost = || Fault::new(FaultKind::Internal, format_args!("no wires for subtask {sender}"));
            let (bell, meter) = {
                let wires = wires.get(&sender).ok_or_else(lost)?;
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
            let edges = wires.get_mut(&sender).and_then(|wires| wires.outputs.get_mut(output)).ok_or_else(lost)?;
            edges.push(edge);
        }
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
