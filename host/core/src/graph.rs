//! The user's pipeline as a graph, checked: nodes by uid, edges by exchange.
//!
//! Owns that uids are unique, that every edge has both ends, and that there is no cycle. Does not own connectors, components
//! or how the pipeline was written down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{OperatorUid, Parallelism};

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Reads records from outside.
    Source,
    /// Runs a component.
    Operator,
    /// Writes records to the outside.
    Sink,
}

/// How records of an edge find their subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// Subtask i to subtask i; both ends have the same parallelism.
    Forward,
    /// By the key's group.
    Key,
    /// Every record to every subtask.
    Broadcast,
    /// In turn.
    Rebalance,
}

/// An edge into a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Where the records come from.
    pub from: OperatorUid,
    /// The output of `from` by its name; `None`: its first.
    pub output: Option<String>,
    /// The index of the node's input that the edge feeds.
    pub input: u16,
    /// How records find their subtask.
    pub exchange: Exchange,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The stable name, by which state is found.
    pub uid: OperatorUid,
    /// What it does.
    pub kind: NodeKind,
    /// How many subtasks it has.
    pub parallelism: Parallelism,
    /// The edges into it, in order of input.
    pub edges: Vec<Edge>,
}

/// A checked graph. Nodes are in an order in which every edge points forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Graph {
    nodes: Vec<Node>,
}

/// Why a pipeline is no graph. Each names the uid at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No source.
    #[error("the pipeline has no source: add a table [source.NAME]")]
    NoSource,
    /// Two nodes with one name.
    #[error("two nodes have the uid `{0}`: rename one of them (state is found by uid)")]
    DuplicateUid(OperatorUid),
    /// An edge from nowhere.
    #[error("`{node}` takes its input from `{from}`, which does not exist{}", nearest.as_ref().map(|uid| format!("; did you mean `{uid}`?")).unwrap_or_default())]
    UnknownUpstream {
        /// The node.
        node: OperatorUid,
        /// What it names.
        from: OperatorUid,
        /// What it may have meant.
        nearest: Option<OperatorUid>,
    },
    /// An edge from a sink.
    #[error("`{node}` takes its input from the sink `{from}`, and a sink has no output")]
    FromSink {
        /// The node.
        node: OperatorUid,
        /// The sink.
        from: OperatorUid,
    },
    /// A source with an edge into it.
    #[error("the source `{0}` cannot have an input")]
    IntoSource(OperatorUid),
    /// An operator or sink without an edge.
    #[error("`{0}` has no input: add `input = \"UID\"`")]
    NoInput(OperatorUid),
    /// A loop.
    #[error("`{0}` feeds itself through a cycle: pipelines flow one way")]
    Cycle(OperatorUid),
    /// A forward edge between unequal parallelisms.
    #[error(
        "the forward edge from `{from}` ({from_parallelism}) to `{node}` ({parallelism}) needs the same parallelism on both ends: use exchange = \"rebalance\" or \"key\""
    )]
    UnequalForward {
        /// The edge's target.
        node: OperatorUid,
        /// Its parallelism.
        parallelism: Parallelism,
        /// The edge's origin.
        from: OperatorUid,
        /// Its parallelism.
        from_parallelism: Parallelism,
    },
}

impl Graph {
    /// Checks the nodes and brings them into order.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(nodes: Vec<Node>) -> Result<Self, Error> {
        let mut by_uid = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            if by_uid.insert(node.uid.clone(), index).is_some() {
                return Err(Error::DuplicateUid(node.uid.clone()));
            }
        }
        if !nodes.iter().any(|node| node.kind == NodeKind::Source) {
            return Err(Error::NoSource);
        }
        for node in &nodes {
            check_node(node, &nodes, &by_uid)?;
        }
        let order = in_order(&nodes, &by_uid)?;
        let mut slots: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        Ok(Self { nodes: order.into_iter().filter_map(|index| slots[index].take()).collect() })
    }

    /// The nodes; every edge comes from an earlier one.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of that uid.
    #[must_use]
    pub fn node(&self, uid: &OperatorUid) -> Option<&Node> {
        self.nodes.iter().find(|node| node.uid == *uid)
    }

    /// The edges out of `uid`, each with its target.
    pub fn edges_from<'a>(&'a self, uid: &'a OperatorUid) -> impl Iterator<Item = (&'a Node, &'a Edge)> {
        self.nodes
            .iter()
            .flat_map(move |node| node.edges.iter().filter(move |edge| edge.from == *uid).map(move |edge| (node, edge)))
    }
}

fn check_node(node: &Node, nodes: &[Node], by_uid: &BTreeMap<OperatorUid, usize>) -> Result<(), Error> {
    match (node.kind, node.edges.is_empty()) {
        (NodeKind::Source, false) => return Err(Error::IntoSource(node.uid.clone())),
        (NodeKind::Operator | NodeKind::Sink, true) => return Err(Error::NoInput(node.uid.clone())),
        _ => {}
    }
    for edge in &node.edges {
        let Some(from) = by_uid.get(&edge.from).map(|&index| &nodes[index]) else {
            return Err(Error::UnknownUpstream {
                node: node.uid.clone(),
                from: edge.from.clone(),
                nearest: nearest(&edge.from, by_uid.keys()),
            });
        };
        if from.kind == NodeKind::Sink {
            return Err(Error::FromSink { node: node.uid.clone(), from: edge.from.clone() });
        }
        if edge.exchange == Exchange::Forward && from.parallelism != node.parallelism {
            return Err(Error::UnequalForward {
                node: node.uid.clone(),
                parallelism: node.parallelism,
                from: edge.from.clone(),
                from_parallelism: from.parallelism,
            });
        }
    }
    Ok(())
}

fn nearest<'a>(wanted: &OperatorUid, known: impl Iterator<Item = &'a OperatorUid>) -> Option<OperatorUid> {
    known
        .map(|uid| (strsim::damerau_levenshtein(wanted.as_str(), uid.as_str()), uid))
        .filter(|(distance, uid)| *distance <= 2.max(uid.as_str().len() / 3))
        .min()
        .map(|(_, uid)| uid.clone())
}

/// Kahn's algorithm; among nodes that are ready, the one declared first.
fn in_order(nodes: &[Node], by_uid: &BTreeMap<OperatorUid, usize>) -> Result<Vec<usize>, Error> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut placed = vec![false; nodes.len()];
    while order.len() < nodes.len() {
        let ready = |node: &Node| node.edges.iter().all(|edge| placed[by_uid[&edge.from]]);
        match (0..nodes.len()).find(|&index| !placed[index] && ready(&nodes[index])) {
            Some(index) => {
                placed[index] = true;
                order.push(index);
            }
            None => {
                let stuck = (0..nodes.len()).find(|&index| !placed[index]).unwrap_or_default();
                return Err(Error::Cycle(nodes[stuck].uid.clone()));
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(name: &str) -> OperatorUid {
        OperatorUid::new(name).unwrap()
    }

    fn node(name: &str, kind: NodeKind, from: &[&str]) -> Node {
        let edges = from
            .iter()
            .map(|from| Edge { from: uid(from), output: None, input: 0, exchange: Exchange::Rebalance })
            .collect();
        Node { uid: uid(name), kind, parallelism: Parallelism::ONE, edges }
    }

    #[test]
    fn nodes_come_in_an_order_in_which_edges_point_forward() {
        let graph = Graph::new(vec![
            node("out", NodeKind::Sink, &["b"]),
            node("b", NodeKind::Operator, &["a", "in"]),
            node("a", NodeKind::Operator, &["in"]),
            node("in", NodeKind::Source, &[]),
        ])
        .unwrap();
        let names: Vec<_> = graph.nodes().iter().map(|node| node.uid.as_str()).collect();
        assert_eq!(names, ["in", "a", "b", "out"]);
    }

    #[test]
    fn a_broken_pipeline_is_refused_with_the_uid_at_fault() {
        use NodeKind::{Operator, Sink, Source};
        let cases = [
            (vec![node("a", Source, &[]), node("a", Sink, &["a"])], Error::DuplicateUid(uid("a"))),
            (
                vec![node("out", Sink, &["flight"]), node("flights", Source, &[])],
                Error::UnknownUpstream { node: uid("out"), from: uid("flight"), nearest: Some(uid("flights")) },
            ),
            (
                vec![node("in", Source, &[]), node("a", Operator, &["b"]), node("b", Operator, &["a"])],
                Error::Cycle(uid("a")),
            ),
            (
                vec![node("in", Source, &[]), node("s", Sink, &["in"]), node("a", Operator, &["s"])],
                Error::FromSink { node: uid("a"), from: uid("s") },
            ),
            (vec![node("in", Source, &[]), node("a", Operator, &[])], Error::NoInput(uid("a"))),
            (vec![node("a", Sink, &["a"])], Error::NoSource),
        ];
        for (nodes, error) in cases {
            assert_eq!(Graph::new(nodes).unwrap_err(), error);
        }
    }
}
