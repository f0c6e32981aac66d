//! Resolves the names of an edge's ends against what the components declare.
//!
//! Owns which output and input an edge means, and that keyed state has a keyed edge. Does not own the pipeline file.

use std::collections::BTreeMap;

use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Exchange, NodeKind};
use wasmill_core::id::OperatorUid;

use super::wire::Ports;
use crate::config::Pipeline;
use crate::config::input::Input;
use crate::config::source::{RecordShape, Source};

/// The ports of a pipeline's nodes.
pub(super) struct Resolver<'a> {
    pub pipeline: &'a Pipeline,
    pub contracts: &'a BTreeMap<OperatorUid, OperatorContract>,
}

/// Checks every edge.
///
/// # Errors
/// An edge that names a port which the component does not have; an input of the component that nothing feeds; an operator
/// with keyed state behind an edge that is not keyed.
pub(super) fn check(pipeline: &Pipeline, contracts: &BTreeMap<OperatorUid, OperatorContract>) -> Result<(), Fault> {
    let resolver = Resolver { pipeline, contracts };
    for node in pipeline.graph.nodes() {
        let mut fed = Vec::new();
        for edge in &node.edges {
            let place = || pipeline.place(&[table(node.kind), node.uid.as_str(), "input"]);
            resolver.output(&edge.from, edge.output.as_deref()).map_err(|fault| fault.at(place()))?;
            let input = resolver.input(&node.uid, edge.input).map_err(|fault| fault.at(place()))?;
            fed.push(input);
            let keyed_state = contracts.get(&node.uid).is_some_and(OperatorContract::has_keyed_state);
            if keyed_state && edge.exchange != Exchange::Key {
                return Err(Fault::new(
                    FaultKind::User,
                    format_args!(
                        "operator `{}` keeps state by key, so its input from `{}` needs exchange = \"key\"",
                        node.uid, edge.from
                    ),
                )
                .at(place()));
            }
        }
        if let Some(contract) = contracts.get(&node.uid) {
            let missing = (0u16..).zip(&contract.inputs).find(|(index, _)| !fed.contains(index));
            if let Some((_, port)) = missing {
                return Err(Fault::new(
                    FaultKind::User,
                    format_args!("nothing feeds the input `{}` of operator `{}`", port.name, node.uid),
                )
                .at(pipeline.place(&["operator", node.uid.as_str(), "input"])));
            }
        }
    }
    Ok(())
}

fn table(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Source => "source",
        NodeKind::Operator => "operator",
        NodeKind::Sink => "sink",
    }
}

impl Ports for Resolver<'_> {
    fn output(&self, from: &OperatorUid, output: Option<&str>) -> Result<usize, Fault> {
        let Some(name) = output else { return Ok(0) };
        let outputs = self.contracts.get(from).map(|contract| contract.outputs.as_slice()).unwrap_or_default();
        outputs.iter().position(|port| port.name == name).ok_or_else(|| {
            let known: Vec<_> = outputs.iter().map(|port| format!("`{}`", port.name)).collect();
            let known = if known.is_empty() { "no named outputs".to_owned() } else { known.join(", ") };
            Fault::new(FaultKind::User, format_args!("`{from}` has no output `{name}`; it has {known}"))
        })
    }

    fn input(&self, node: &OperatorUid, index: u16) -> Result<u16, Fault> {
        let Some(contract) = self.contracts.get(node) else { return Ok(0) };
        let port = self.declared(node, usize::from(index)).and_then(|input| input.port.as_deref());
        let known = || contract.inputs.iter().map(|port| format!("`{}`", port.name)).collect::<Vec<_>>().join(", ");
        match port {
            Some(name) => {
                (0u16..).zip(&contract.inputs).find(|(_, port)| port.name == name).map(|(at, _)| at).ok_or_else(|| {
                    Fault::new(FaultKind::User, format_args!("`{node}` has no input `{name}`; it has {}", known()))
                })
            }
            // A component with one input takes any number of edges into it.
            None if contract.inputs.len() <= 1 => Ok(0),
            None if usize::from(index) < contract.inputs.len() => Ok(index),
            None => Err(Fault::new(
                FaultKind::User,
                format_args!(
                    "`{node}` has {} inputs ({}), fewer than the pipeline feeds",
                    contract.inputs.len(),
                    known()
                ),
            )),
        }
    }

    fn outputs(&self, uid: &OperatorUid) -> usize {
        self.contracts.get(uid).map_or(1, |contract| contract.outputs.len().max(1))
    }

    fn declared<'a>(&'a self, node: &OperatorUid, edge: usize) -> Option<&'a Input> {
        self.pipeline.inputs(node).get(edge)
    }

    fn array_fields(&self, from: &OperatorUid) -> Option<Vec<String>> {
        match &self.pipeline.source(from)?.config {
            Source::File(file) if file.record == RecordShape::Array => file.fields.clone(),
            _ => None,
        }
    }
}
