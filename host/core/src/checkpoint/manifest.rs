//! The manifest: the one object that makes a checkpoint real.
//!
//! Owns the stored form (format 1) and what a manifest must satisfy before it is written or believed. Does not own the
//! objects it names, nor what a restore makes of it.
//!
//! Nothing in it grows with the state: files are named, entries counted per state and key group. Unknown members are ignored, so that
//! informational ones may come; whatever a reader must not ignore raises [`FORMAT`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::counts::{Counts, Tally};
use crate::checkpoint::names::{self, ObjectName};
use crate::checkpoint::sealed::{self, Sealed};
use crate::contract::{OperatorContract, StateKind};
use crate::digest::Digest;
use crate::element::Purpose;
use crate::graph::{self, Graph, NodeKind};
use crate::id::{Attempt, CheckpointId, JobId, OperatorUid, StateName, SubtaskId, SubtaskIndex};
use crate::key_group::{KeyGroupRange, MaxParallelism};
use crate::time::Timestamp;

/// The format that is written, and the only one there has been.
pub const FORMAT: u32 = 1;

/// A checkpoint, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The wasmill that wrote it, for people.
    pub wasmill: String,
    /// The job.
    pub job: JobId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// When all acknowledgements were in, by the coordinator's clock.
    pub created: Timestamp,
    /// Why it was taken.
    pub purpose: Purpose,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The pipeline.
    pub graph: Graph,
    /// Contract and component of every node that runs one.
    pub operators: BTreeMap<OperatorUid, Operator>,
    /// One for every subtask of the graph.
    pub parts: Vec<Part>,
}

/// What ran as an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Operator {
    /// The component's digest.
    pub component: Digest,
    /// Where the component itself is kept.
    pub object: ObjectName,
    /// What it declared.
    pub contract: OperatorContract,
}

/// One subtask's share: its snapshot, and all that belongs to the same cut (I4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Part {
    /// The node.
    pub uid: OperatorUid,
    /// The subtask.
    pub index: SubtaskIndex,
    /// The key groups of an operator's subtask; sources and sinks have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_groups: Option<KeyGroupRange>,
    /// The state, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PartState>,
    /// Where a source's splits are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<Split>,
    /// The subtask's watermark at the cut.
    pub watermark: Timestamp,
    /// The watermark of the operator's broadcast inputs together, where it has some; the same in all its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_watermark: Option<Timestamp>,
    /// What a sink has prepared and must commit after the decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<Value>,
    /// Elements that the barrier overtook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlight>,
    /// What the snapshot took.
    #[serde(default)]
    pub durations: Durations,
    /// Bytes uploaded for this checkpoint.
    pub bytes_new: u64,
    /// Bytes shared with earlier checkpoints.
    pub bytes_referenced: u64,
}

/// A subtask's state as files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartState {
    /// What kind of files they are, such as `rocksdb`.
    pub backend: String,
    /// The version of the rows in them.
    pub rows: u32,
    /// The files.
    pub files: Vec<FileRef>,
    /// Entries and bytes at the barrier, by state and key group.
    pub counts: Counts,
}

/// A file of a snapshot: a piece of an object, so that small files of one subtask may lie in one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileRef {
    /// Its name within the snapshot.
    pub name: String,
    /// The object it lies in.
    pub object: ObjectName,
    /// Where in the object it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The checksum of these bytes.
    pub sha256: Digest,
    /// The key groups of all its keys and range deletions, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_groups: Option<KeyGroupRange>,
}

/// Where a split of a source is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Split {
    /// The split's stable name.
    pub split: String,
    /// The connector's own position.
    pub position: Value,
    /// The split's watermark.
    pub watermark: Timestamp,
    /// The greatest time read from the split, where its watermark is made from times: the next one follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Timestamp>,
    /// Records read from the split since its watermark last advanced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Elements of one channel that a barrier overtook: a piece of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InFlight {
    /// The input they had reached, by index.
    pub input: u16,
    /// The object they lie in.
    pub object: ObjectName,
    /// Where in the object they begin.
    pub offset: u64,
    /// Their length in bytes.
    pub length: u64,
    /// The checksum of these bytes.
    pub sha256: Digest,
}

/// What a snapshot took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Durations {
    /// From the barrier's first arrival to its last.
    pub align_us: u64,
    /// How long the record path stood still.
    pub pause_us: u64,
    /// Writing the frozen layer.
    pub write_us: u64,
    /// Taking the local cut.
    pub cut_us: u64,
    /// Uploading it.
    pub upload_us: u64,
    /// From the barrier's last arrival to the acknowledgement.
    pub total_us: u64,
}

/// Why a manifest cannot be written or believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Damaged, cut, or of a later format.
    #[error(transparent)]
    Sealed(#[from] sealed::Error),
    /// The pipeline in it is none.
    #[error("its pipeline is not valid: {0}")]
    Graph(#[from] graph::Error),
    /// No share of a subtask.
    #[error("it has no part of subtask {0}")]
    MissingPart(SubtaskId),
    /// Two shares of a subtask.
    #[error("it has two parts of subtask {0}")]
    DuplicatePart(SubtaskId),
    /// A share of a subtask that the pipeline has not.
    #[error("it has a part of subtask {0}, which its pipeline does not have")]
    UnknownSubtask(SubtaskId),
    /// Key groups that belong to nobody, or to two.
    #[error(
        "the key groups of `{uid}` are not covered once: group {group} is where the next part must begin, and {found}"
    )]
    Ranges {
        /// The operator.
        uid: OperatorUid,
        /// The first group without an owner.
        group: u16,
        /// What there is.
        found: String,
    },
    /// An operator without contract, or the reverse.
    #[error("it does not say which component ran as `{0}`, or says so of a node that runs none")]
    Operator(OperatorUid),
    /// Counts of key groups that the part does not have, or two of one state.
    #[error("the counts of state `{state}` of {subtask} are not those of its key groups {groups}, once")]
    Counts {
        /// The subtask.
        subtask: SubtaskId,
        /// The state.
        state: StateName,
        /// Its key groups.
        groups: KeyGroupRange,
    },
    /// A name that could lead elsewhere, or two files of one name.
    #[error("{subtask} names `{name}`, which is not a name of its own within the checkpoint")]
    Name {
        /// The subtask.
        subtask: SubtaskId,
        /// The name.
        name: String,
    },
}

impl Part {
    /// Whose share it is.
    #[must_use]
    pub fn subtask(&self) -> SubtaskId {
        SubtaskId { uid: self.uid.clone(), index: self.index }
    }

    /// The objects it names.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        let files = self.state.iter().flat_map(|state| &state.files).map(|file| file.object.as_str());
        files.chain(self.in_flight.iter().map(|data| data.object.as_str()))
    }
}

impl Manifest {
    /// The bytes to store, after the same checks that a reader makes.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn encode(&self) -> Result<Sealed, Error> {
        self.validate()?;
        Ok(sealed::seal(self)?)
    }

    /// Reads a stored manifest: checksum first, then format, then everything it must satisfy. Also returns its checksum.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, Digest), Error> {
        let (mut manifest, checksum): (Self, _) = sealed::unseal(bytes, FORMAT)?;
        manifest.graph = Graph::new(manifest.graph.nodes().to_vec())?;
        manifest.validate()?;
        Ok((manifest, checksum))
    }

    /// All objects it names, each once: state files, in-flight data, components.
    #[must_use]
    pub fn objects(&self) -> BTreeSet<&str> {
        let components = self.operators.values().map(|operator| operator.object.as_str());
        self.parts.iter().flat_map(Part::objects).chain(components).collect()
    }

    /// The parts of `uid`, by subtask.
    pub fn parts_of<'a, 'u>(&'a self, uid: &'u OperatorUid) -> impl Iterator<Item = &'a Part> + use<'a, 'u> {
        self.parts.iter().filter(move |part| part.uid == *uid)
    }

    /// Entries and bytes of each state of `uid`; of broadcast state, which every subtask has, those of one.
    #[must_use]
    pub fn totals(&self, uid: &OperatorUid) -> BTreeMap<StateName, Tally> {
        let mut totals = BTreeMap::new();
        let states = self.parts_of(uid).filter_map(|part| part.state.as_ref()).flat_map(|state| state.counts.states());
        let contract = self.operators.get(uid).map(|operator| &operator.contract);
        let is_broadcast = |name: &StateName| {
            let mut declared = contract.into_iter().flat_map(|contract| &contract.states);
            declared.any(|state| state.name == *name && state.kind == StateKind::Broadcast)
        };
        for (name, tally) in states {
            let total: &mut Tally = totals.entry(name.clone()).or_default();
            if is_broadcast(name) {
                *total = tally;
            } else {
                *total += tally;
            }
        }
        totals
    }

    /// Bytes uploaded for this checkpoint.
    #[must_use]
    pub fn bytes_new(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes_new))
    }

    /// Bytes shared with earlier checkpoints.
    #[must_use]
    pub fn bytes_referenced(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes_referenced))
    }

    /// Checks all that a reader relies on.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn validate(&self) -> Result<(), Error> {
        self.check_subtasks()?;
        for node in self.graph.nodes() {
            let runs = node.kind == NodeKind::Operator;
            if runs != self.operators.contains_key(&node.uid) {
                return Err(Error::Operator(node.uid.clone()));
            }
            if runs {
                self.check_ranges(&node.uid)?;
            }
        }
        if let Some(uid) = self.operators.keys().find(|uid| self.graph.node(uid).is_none()) {
            return Err(Error::Operator(uid.clone()));
        }
        self.parts.iter().try_for_each(check_part)
    }

    fn check_subtasks(&self) -> Result<(), Error> {
        let subtasks = self
            .graph
            .nodes()
            .iter()
            .flat_map(|node| node.parallelism.subtasks().map(|index| SubtaskId { uid: node.uid.clone(), index }));
        let mut missing: BTreeSet<_> = subtasks.collect();
        let known = missing.clone();
        for part in &self.parts {
            let subtask = part.subtask();
            if !known.contains(&subtask) {
                return Err(Error::UnknownSubtask(subtask));
            }
            if !missing.remove(&subtask) {
                return Err(Error::DuplicatePart(subtask));
            }
        }
        missing.pop_first().map_or(Ok(()), |subtask| Err(Error::MissingPart(subtask)))
    }

    /// The parts' ranges of an operator cover every key group once (I2). Empty ranges may lie anywhere.
    fn check_ranges(&self, uid: &OperatorUid) -> Result<(), Error> {
        let mut ranges: Vec<_> =
            self.parts_of(uid).filter_map(|part| part.key_groups).filter(|r| !r.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let error = |group, found| Error::Ranges { uid: uid.clone(), group, found };
        let mut next = 0;
        for range in ranges {
            if range.start != next {
                return Err(error(next, format!("a part has {range}")));
            }
            next = range.end;
        }
        if next == self.max_parallelism.get() {
            Ok(())
        } else {
            Err(error(next, format!("there are {} groups", self.max_parallelism)))
        }
    }
}

fn check_part(part: &Part) -> Result<(), Error> {
    let subtask = part.subtask();
    let bad_name = |name: &str| Error::Name { subtask: part.subtask(), name: name.chars().take(80).collect() };
    if let Some(object) = part.objects().find(|object| !names::is_relative(object)) {
        return Err(bad_name(object));
    }
    let Some(state) = &part.state else { return Ok(()) };
    let mut seen = BTreeSet::new();
    for file in &state.files {
        if file.name.contains('/') || !names::is_relative(&file.name) || !seen.insert(file.name.as_str()) {
            return Err(bad_name(&file.name));
        }
    }
    let groups = part.key_groups.unwrap_or(KeyGroupRange { start: 0, end: 0 });
    let mut seen = BTreeSet::new();
    for (name, counted) in state.counts.ranges() {
        if !groups.covers(counted) || !seen.insert(name) {
            return Err(Error::Counts { subtask, state: name.clone(), groups });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
