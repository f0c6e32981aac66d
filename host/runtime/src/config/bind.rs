//! What components declare, held against what the file says of them.
//!
//! Owns inputs and outputs by name, late outputs among them, configuration keys, and that keyed state has keyed inputs. Does not
//! load components.

use std::collections::BTreeMap;

use wasmill_core::contract::{ConfigError, OperatorContract, Port};
use wasmill_core::graph::{Edge, Exchange, Graph, NodeKind};
use wasmill_core::id::OperatorUid;

use super::error::{Error, nearest};
use super::input::Input;
use super::late::OnLate;
use super::operator::DEAD_LETTER;
use super::pipeline::{OperatorNode, Pipeline};

impl Pipeline {
    /// Holds the components' declarations against the file, and returns the graph in which every edge names the index of the
    /// component's input that it feeds. `contracts` has every operator.
    ///
    /// # Errors
    /// An input or output that the component does not have or that nothing feeds, a configuration key that it lacks or does not
    /// know, an exchange that does not suit it. Each names file, line and uid.
    pub fn bind(&self, contracts: &BTreeMap<OperatorUid, OperatorContract>) -> Result<Graph, Error> {
        let mut nodes = self.graph.nodes().to_vec();
        for node in &mut nodes {
            let table = match node.kind {
                NodeKind::Source => continue,
                NodeKind::Operator => "operator",
                NodeKind::Sink => "sink",
            };
            for (index, edge) in node.edges.iter().enumerate() {
                self.check_output(table, &node.uid, index, edge, contracts)?;
            }
            if let (Some(operator), Some(contract)) = (self.operator(&node.uid), contracts.get(&node.uid)) {
                self.check_config(operator, contract)?;
                self.check_names(operator, contract)?;
                for (index, edge) in node.edges.iter_mut().enumerate() {
                    edge.input = self.port(operator, index, contract)?;
                }
                self.check_fed(operator, contract, &node.edges)?;
            }
        }
        // After every `from` has been checked: a misspelt one is named before a late output that nothing takes.
        for operator in &self.operators {
            contracts.get(&operator.uid).map_or(Ok(()), |contract| self.check_late(operator, contract))?;
        }
        Graph::new(nodes).map_err(|source| Error::Graph { place: self.place(&[]), source })
    }

    fn wrong_input(&self, table: &str, uid: &OperatorUid, index: usize, key: &str, message: String) -> Error {
        Error::Value {
            place: self.places.of_input(table, uid.as_str(), index, Some(key)),
            key: format!("{table}.{uid}.input.{key}"),
            message,
        }
    }

    fn check_output(
        &self,
        table: &str,
        uid: &OperatorUid,
        index: usize,
        edge: &Edge,
        contracts: &BTreeMap<OperatorUid, OperatorContract>,
    ) -> Result<(), Error> {
        let Some(contract) = contracts.get(&edge.from) else { return Ok(()) };
        let late = self.operator(&edge.from).map(OperatorNode::late_outputs).unwrap_or_default();
        let names = || contract.outputs.iter().map(|port| port.name.as_str()).chain(late.iter().copied());
        let message = match &edge.output {
            // Not the component's; that it is asked for was checked with the file.
            Some(output) if output == DEAD_LETTER => return Ok(()),
            Some(output) if !names().any(|name| name == output) => {
                format!("the component of `{}` has no output `{output}`{}", edge.from, among(output, names()))
            }
            None if contract.outputs.is_empty() => format!("the component of `{}` has no output", edge.from),
            _ => return Ok(()),
        };
        Err(self.wrong_input(table, uid, index, "from", message))
    }

    fn check_config(&self, operator: &OperatorNode, contract: &OperatorContract) -> Result<(), Error> {
        contract.check_config(&operator.config).map_err(|source| {
            let uid = operator.uid.as_str();
            let place = match &source {
                ConfigError::Unknown { key, .. } => self.place(&["operator", uid, "config", key]),
                ConfigError::Missing { .. } => self.place(&["operator", uid, "config"]),
            };
            Error::Config { place, uid: operator.uid.clone(), source: Box::new(source) }
        })
    }

    fn check_names(&self, operator: &OperatorNode, contract: &OperatorContract) -> Result<(), Error> {
        if contract.outputs.iter().all(|port| port.name != DEAD_LETTER) {
            return Ok(());
        }
        Err(Error::Value {
            place: self.place(&["operator", operator.uid.as_str(), "component"]),
            key: format!("operator.{}.component", operator.uid),
            message: format!("the component has an output `{DEAD_LETTER}`, a name that is kept for dead letters"),
        })
    }

    /// The index of the component's input that input `index` of the file feeds.
    fn port(&self, operator: &OperatorNode, index: usize, contract: &OperatorContract) -> Result<u16, Error> {
        let Input { port, exchange, .. } = &operator.inputs[index];
        let names = || contract.inputs.iter().map(|port| port.name.as_str());
        let wrong = |key: &str, message: String| Err(self.wrong_input("operator", &operator.uid, index, key, message));
        let found = match port {
            Some(name) => names().position(|known| known == name),
            // A component with one input takes any number of upstreams into it.
            None if contract.inputs.len() == 1 => Some(0),
            None => (index < contract.inputs.len()).then_some(index),
        };
        let Some((found, Port { broadcast, name, .. })) = found.map(|found| (found, &contract.inputs[found])) else {
            return match port {
                Some(name) => wrong("port", format!("the component has no input `{name}`{}", among(name, names()))),
                None => wrong(
                    "from",
                    format!(
                        "the component has {} input(s), and this is number {}: name the one it feeds by `port`",
                        contract.inputs.len(),
                        index + 1
                    ),
                ),
            };
        };
        if *broadcast != (*exchange == Exchange::Broadcast) {
            let (is, want) = if *broadcast { ("a", "") } else { ("no", "another exchange than ") };
            let message = format!(
                "the component's input `{name}` is {is} broadcast input: it needs {want}exchange = \"broadcast\""
            );
            return wrong("exchange", message);
        }
        match contract.states.iter().find(|state| state.kind.is_keyed()) {
            Some(state) if !broadcast && *exchange != Exchange::Key => wrong(
                "exchange",
                format!(
                    "the component keeps state by key (`{}`): give the input a `key`, or exchange = \"key\"",
                    state.name
                ),
            ),
            _ => Ok(u16::try_from(found).unwrap_or(u16::MAX)),
        }
    }

    /// A late output has a name of its own, and somebody takes it.
    fn check_late(&self, operator: &OperatorNode, contract: &OperatorContract) -> Result<(), Error> {
        let uid = &operator.uid;
        for (index, input) in operator.inputs.iter().enumerate() {
            let OnLate::Output(name) = &input.on_late else { continue };
            let takes = |input: &Input| input.from == *uid && input.output.as_deref() == Some(name);
            let of_sinks = self.sinks.iter().flat_map(|sink| &sink.inputs);
            let message = if contract.outputs.iter().any(|port| port.name == *name) {
                format!("the component has an output `{name}` of its own: give the late output another name")
            } else if !self.operators.iter().flat_map(|node| &node.inputs).chain(of_sinks).any(takes) {
                format!(
                    "nothing takes `{uid}/{name}`: name it in the `from` of an input, or set on-late = \"drop\" to leave late records out"
                )
            } else {
                continue;
            };
            return Err(self.wrong_input("operator", uid, index, "on-late", message));
        }
        Ok(())
    }

    fn check_fed(&self, operator: &OperatorNode, contract: &OperatorContract, edges: &[Edge]) -> Result<(), Error> {
        let fed = |index: usize| edges.iter().any(|edge| usize::from(edge.input) == index);
        match contract.inputs.iter().enumerate().find(|(index, _)| !fed(*index)) {
            None => Ok(()),
            Some((_, port)) => Err(Error::Value {
                place: self.place(&["operator", operator.uid.as_str(), "input"]),
                key: format!("operator.{}.input", operator.uid),
                message: format!("nothing feeds the component's input `{}`", port.name),
            }),
        }
    }
}

fn among<'a>(wanted: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let known = names.clone().collect::<Vec<_>>().join(", ");
    let nearest = nearest(wanted, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("{nearest}; it has: {known}")
}
