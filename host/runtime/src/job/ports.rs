//! What the wiring asks of the pipeline file and of what the components declare.
//!
//! Owns which output an edge's name means. Does not check the names: binding the pipeline to the declarations has.

use std::collections::BTreeMap;

use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::OperatorUid;

use super::wire::Ports;
use crate::config::input::Input;
use crate::config::operator::DEAD_LETTER;
use crate::config::source::{RecordShape, Source};
use crate::config::{self, Pipeline};
use crate::exchange::gate::OnLate;

/// The ports of a pipeline's nodes.
pub(super) struct Resolver<'a> {
    pub pipeline: &'a Pipeline,
    pub contracts: &'a BTreeMap<OperatorUid, OperatorContract>,
}

impl Ports for Resolver<'_> {
    fn output(&self, from: &OperatorUid, output: Option<&str>) -> Result<usize, Fault> {
        let Some(name) = output else { return Ok(0) };
        let outputs = self.contracts.get(from).map(|contract| contract.outputs.as_slice()).unwrap_or_default();
        if let Some(output) = self.dead_letters(from).filter(|_| name == DEAD_LETTER) {
            return Ok(output);
        }
        if let Some(output) = outputs.iter().position(|port| port.name == name) {
            return Ok(output);
        }
        self.late_output(from, name).ok_or_else(|| {
            let known: Vec<_> = outputs.iter().map(|port| format!("`{}`", port.name)).collect();
            let known = if known.is_empty() { "no named outputs".to_owned() } else { known.join(", ") };
            Fault::new(FaultKind::User, format_args!("`{from}` has no output `{name}`; it has {known}"))
        })
    }

    fn outputs(&self, uid: &OperatorUid) -> usize {
        self.own_outputs(uid) + self.pipeline.operator(uid).map_or(0, |operator| operator.late_outputs().len())
    }

    fn dead_letters(&self, uid: &OperatorUid) -> Option<usize> {
        self.pipeline.makes_dead_letters(uid).then(|| self.declared_outputs(uid))
    }

    fn on_late(&self, node: &OperatorUid, edge: usize) -> OnLate {
        match self.pipeline.inputs(node).get(edge).map(|input| &input.on_late) {
            None | Some(config::late::OnLate::Pass) => OnLate::Pass,
            Some(config::late::OnLate::Drop) => OnLate::Drop,
            Some(config::late::OnLate::Output(name)) => {
                let output = self.late_output(node, name).map(|output| output - self.own_outputs(node));
                output.map_or(OnLate::Pass, OnLate::Output)
            }
        }
    }

    fn declared<'a>(&'a self, node: &OperatorUid, edge: usize) -> Option<&'a Input> {
        self.pipeline.inputs(node).get(edge)
    }

    fn array_fields(&self, from: &OperatorUid, output: Option<&str>) -> Option<Vec<String>> {
        if let (Some(operator), Some(name)) = (self.pipeline.operator(from), output) {
            // Late records go out as they came in.
            let late =
                operator.inputs.iter().filter(|input| input.on_late == config::late::OnLate::Output(name.into()));
            let mut fields = late.map(|input| self.array_fields(&input.from, input.output.as_deref()));
            let first = fields.next()?;
            return if fields.all(|other| other == first) { first } else { None };
        }
        match &self.pipeline.source(from)?.config {
            // What could not be decoded has no fields.
            _ if output.is_some() => None,
            Source::File(file) if file.record == RecordShape::Array => file.fields.clone(),
            _ => None,
        }
    }
}

impl Resolver<'_> {
    /// How many outputs the node has beside the late ones, which come after them.
    fn own_outputs(&self, uid: &OperatorUid) -> usize {
        self.declared_outputs(uid) + usize::from(self.pipeline.makes_dead_letters(uid))
    }

    /// How many outputs the component has, at least one; dead letters come next.
    fn declared_outputs(&self, uid: &OperatorUid) -> usize {
        self.contracts.get(uid).map_or(1, |contract| contract.outputs.len().max(1))
    }

    /// The index of a late output.
    fn late_output(&self, uid: &OperatorUid, name: &str) -> Option<usize> {
        let late = self.pipeline.operator(uid)?.late_outputs();
        late.iter().position(|late| *late == name).map(|late| self.own_outputs(uid) + late)
    }
}
