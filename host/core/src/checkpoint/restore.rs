//! From a manifest and the pipeline of now to what each new subtask fetches.
//!
//! Owns which parts hold a subtask's key groups, and what refuses a restore: another max parallelism (I11), state that the
//! pipeline no longer has. Does not own contracts of states (`contract`), nor downloading.

use std::collections::BTreeMap;

use crate::checkpoint::counts::Tally;
use crate::checkpoint::elements;
use crate::checkpoint::manifest::{Manifest, Part, Split};
use crate::contract::OperatorContract;
use crate::graph::{Graph, NodeKind};
use crate::id::{OperatorUid, Parallelism, StateName, SubtaskId};
use crate::key_group::{KeyGroupRange, MaxParallelism};
use crate::time::Timestamp;
use crate::timer::TIMERS;

/// What is to run now.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The pipeline.
    pub graph: &'a Graph,
    /// Its number of key groups.
    pub max_parallelism: MaxParallelism,
    /// What its components declare.
    pub contracts: &'a BTreeMap<OperatorUid, OperatorContract>,
}

/// Where a subtask's state comes from. Parts are borrowed from the manifest.
#[derive(Debug, Clone, PartialEq)]
pub enum Share<'a> {
    /// There is none: the state begins empty.
    Nothing,
    /// Exactly this part's: its files are opened as they are.
    Same(&'a Part),
    /// The rows of key groups `range` out of these parts, which hold other rows too.
    Rows {
        /// The subtask's key groups.
        range: KeyGroupRange,
        /// The parts that hold some of them.
        parts: Vec<&'a Part>,
    },
}

/// A restore, planned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan<'a> {
    /// Where each operator subtask's state comes from.
    pub shares: BTreeMap<SubtaskId, Share<'a>>,
    /// For each operator whose subtasks must be told one another's elements of operator state: the parts that have some, by subtask.
    pub elements: BTreeMap<OperatorUid, Vec<&'a Part>>,
    /// The splits of each source, whichever subtask had them.
    pub splits: BTreeMap<OperatorUid, Vec<&'a Split>>,
    /// From where each node's watermark goes on (I9): the least of its subtasks'.
    pub watermarks: BTreeMap<OperatorUid, Timestamp>,
    /// From where the watermark of each operator's broadcast inputs goes on.
    pub merged_watermarks: BTreeMap<OperatorUid, Timestamp>,
}

/// State that the pipeline has no place for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The node it belonged to.
    pub uid: OperatorUid,
    /// The state; `None` for what is not keyed state.
    pub state: Option<StateName>,
    /// What it is, in words.
    pub what: String,
}

/// Why the checkpoint cannot be restored into this pipeline. Nothing has been touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// I11.
    #[error(
        "the checkpoint has max-parallelism {stored} and the pipeline {wanted}: it can never change for state that exists; set max-parallelism = {stored}, or begin anew with --fresh"
    )]
    MaxParallelism {
        /// The checkpoint's.
        stored: MaxParallelism,
        /// The pipeline's.
        wanted: MaxParallelism,
    },
    /// More subtasks than key groups.
    #[error("`{uid}` has parallelism {parallelism}, more than max-parallelism {max}: some subtasks would have no keys")]
    Parallelism {
        /// The operator.
        uid: OperatorUid,
        /// Its parallelism.
        parallelism: Parallelism,
        /// The number of key groups.
        max: MaxParallelism,
    },
    /// State would be lost.
    #[error(
        "the checkpoint has what the pipeline no longer has:{}\nkeep these uids and states, or begin anew with --fresh",
        lines(.0)
    )]
    Orphans(Vec<Orphan>),
    /// Elements that a barrier overtook.
    #[error("{0} has in-flight data, which this wasmill cannot restore: use the version that wrote the checkpoint")]
    InFlight(SubtaskId),
}

fn lines(orphans: &[Orphan]) -> String {
    let line = |orphan: &Orphan| match &orphan.state {
        Some(state) => format!("\n  state `{state}` of `{}`: {}", orphan.uid, orphan.what),
        None => format!("\n  `{}`: {}", orphan.uid, orphan.what),
    };
    orphans.iter().map(line).collect()
}

/// Plans the restore of `manifest` into `target`, or refuses it whole.
///
/// # Errors
/// See [`Error`].
pub fn plan<'a>(manifest: &'a Manifest, target: &Target<'_>) -> Result<Plan<'a>, Error> {
    check(manifest, target)?;
    let mut plan = Plan::default();
    for node in target.graph.nodes() {
        let parts: Vec<_> = manifest.parts_of(&node.uid).collect();
        match node.kind {
            NodeKind::Source => {
                let splits = parts.iter().flat_map(|part| &part.splits).collect();
                plan.splits.insert(node.uid.clone(), splits);
            }
            NodeKind::Operator => {
                let contract = target.contracts.get(&node.uid);
                if contract.is_some_and(|contract| elements::are_needed(contract, parts.len(), node.parallelism)) {
                    let mut with_state: Vec<_> = parts.iter().filter(|part| has_files(part)).copied().collect();
                    with_state.sort_by_key(|part| part.index);
                    plan.elements.insert(node.uid.clone(), with_state);
                }
                for index in node.parallelism.subtasks() {
                    let range = KeyGroupRange::of(index, target.max_parallelism, node.parallelism);
                    let subtask = SubtaskId { uid: node.uid.clone(), index };
                    plan.shares.insert(subtask, share(&parts, range));
                }
            }
            NodeKind::Sink => {}
        }
        if let Some(watermark) = parts.iter().map(|part| part.watermark).min() {
            plan.watermarks.insert(node.uid.clone(), watermark);
        }
        if let Some(watermark) = parts.iter().filter_map(|part| part.merged_watermark).min() {
            plan.merged_watermarks.insert(node.uid.clone(), watermark);
        }
    }
    Ok(plan)
}

fn has_files(part: &Part) -> bool {
    part.state.as_ref().is_some_and(|state| !state.files.is_empty())
}

fn share<'a>(parts: &[&'a Part], range: KeyGroupRange) -> Share<'a> {
    let overlaps = |part: &&&Part| part.key_groups.is_some_and(|groups| groups.overlaps(range));
    let holding: Vec<_> = parts.iter().filter(|part| has_files(part)).filter(overlaps).copied().collect();
    match holding.as_slice() {
        [] => Share::Nothing,
        [part] if part.key_groups == Some(range) => Share::Same(part),
        _ => Share::Rows { range, parts: holding },
    }
}

fn check(manifest: &Manifest, target: &Target<'_>) -> Result<(), Error> {
    let max = target.max_parallelism;
    if manifest.max_parallelism != max {
        return Err(Error::MaxParallelism { stored: manifest.max_parallelism, wanted: max });
    }
    for node in target.graph.nodes() {
        if node.kind == NodeKind::Operator && node.parallelism.get() > u32::from(max.get()) {
            return Err(Error::Parallelism { uid: node.uid.clone(), parallelism: node.parallelism, max });
        }
    }
    if let Some(part) = manifest.parts.iter().find(|part| !part.in_flight.is_empty()) {
        return Err(Error::InFlight(part.subtask()));
    }
    let orphans: Vec<_> = manifest.graph.nodes().iter().flat_map(|node| orphans(manifest, target, &node.uid)).collect();
    if orphans.is_empty() { Ok(()) } else { Err(Error::Orphans(orphans)) }
}

/// What `uid` had in the checkpoint and has no place for now. A node without state may come and go.
fn orphans(manifest: &Manifest, target: &Target<'_>, uid: &OperatorUid) -> Vec<Orphan> {
    let now = target.graph.node(uid).map(|node| node.kind);
    let then = manifest.graph.node(uid).map(|node| node.kind);
    let mut orphans = Vec::new();
    let mut orphan = |state: Option<StateName>, what| orphans.push(Orphan { uid: uid.clone(), state, what });
    let contract = target.contracts.get(uid).filter(|_| now == Some(NodeKind::Operator));
    for (name, Tally { entries, bytes }) in manifest.totals(uid) {
        let declared =
            |state: &crate::contract::StateContract| state.name == name || state.renamed_from.contains(&name);
        let known = |contract: &OperatorContract| name.as_str() == TIMERS || contract.states.iter().any(declared);
        if entries > 0 && !contract.is_some_and(known) {
            orphan(Some(name), format!("{entries} entries, {bytes} bytes"));
        }
    }
    if now != then {
        let splits: usize = manifest.parts_of(uid).map(|part| part.splits.len()).sum();
        if splits > 0 {
            orphan(None, format!("positions of {splits} splits"));
        }
        let commits: usize = manifest.parts_of(uid).map(|part| part.commits.len()).sum();
        if commits > 0 {
            orphan(None, format!("{commits} outputs that are decided and not yet committed"));
        }
    }
    orphans
}

#[cfg(test)]
mod tests;
