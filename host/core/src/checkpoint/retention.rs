//! What may be deleted, and when (I8).
//!
//! Owns which checkpoints retire and which objects nobody can need any more. Does not delete.
//!
//! **When.** A checkpoint in progress may refer to files of any checkpoint that was retained when it was triggered. So the
//! objects of a retired checkpoint are deleted only once every checkpoint that was in progress at its retirement is over:
//! [`Doomed::is_due`]. Later ones cannot refer to it: [`dangling`] is asked before a manifest is written.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use crate::checkpoint::log::LogState;
use crate::checkpoint::manifest::{Manifest, Part};
use crate::checkpoint::names::{self, ObjectName};
use crate::id::{CheckpointId, SubtaskId};
use crate::time::Timestamp;

/// Most checkpoints that are kept for their age: each entry that ends a block of the log, and each cleaning, names all that are kept.
pub const MOST_BY_AGE: usize = 1_000;

/// Which decided checkpoints are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest, however old.
    pub newest: NonZeroU32,
    /// Also those that were prepared at this time or later, up to [`MOST_BY_AGE`].
    pub since: Option<Timestamp>,
}

/// The checkpoints to retire: decided ones that `keep` does not name, and prepared ones that a newer decision has passed. What
/// a restart restores always stays.
#[must_use]
pub fn to_retire(log: &LogState, keep: Keep) -> Vec<CheckpointId> {
    let newest = usize::try_from(keep.newest.get()).unwrap_or(usize::MAX);
    let current = log.in_force().current;
    let young =
        |place: usize, prepared: Timestamp| place < MOST_BY_AGE && keep.since.is_some_and(|since| prepared >= since);
    let by_rule = log.decided().rev().enumerate().filter(|(place, stored)| {
        // `<`: places are counted from 0.
        *place < newest || young(*place, stored.prepared_at)
    });
    let kept: BTreeSet<_> = by_rule.map(|(_, stored)| stored.checkpoint).chain(current).collect();
    let passed = |id: CheckpointId| current.is_some_and(|current| id < current);
    let retires = |stored: &&crate::checkpoint::log::StoredCheckpoint| {
        let id = stored.checkpoint;
        if stored.decided { !kept.contains(&id) } else { passed(id) }
    };
    log.in_force().checkpoints.iter().filter(retires).map(|stored| stored.checkpoint).collect()
}

/// A retired checkpoint whose objects are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The first checkpoint id that had not been triggered when it retired.
    pub before: CheckpointId,
    /// What its manifest names.
    pub objects: BTreeSet<ObjectName>,
}

impl Doomed {
    /// Whether every checkpoint that could refer to its objects is over; `oldest` is the oldest one in progress.
    #[must_use]
    pub fn is_due(&self, oldest: Option<CheckpointId>) -> bool {
        // `>=`: `before` itself was triggered after the retirement.
        oldest.is_none_or(|oldest| oldest >= self.before)
    }
}

/// The objects among `doomed` that nothing retained names and nothing running uses.
#[must_use]
pub fn deletable<'a>(
    doomed: &'a BTreeSet<ObjectName>,
    retained: &BTreeMap<CheckpointId, BTreeSet<ObjectName>>,
    in_use: &BTreeSet<ObjectName>,
) -> Vec<&'a str> {
    let needed =
        |object: &&ObjectName| in_use.contains(*object) || retained.values().any(|names| names.contains(*object));
    doomed.iter().filter(|object| !needed(object)).map(String::as_str).collect()
}

/// An object that a part refers to and no retained checkpoint names: such a checkpoint must be given up, for the object may
/// be gone. What the checkpoint uploaded itself is its own.
#[must_use]
pub fn dangling(
    checkpoint: CheckpointId,
    parts: &[Part],
    retained: &BTreeMap<CheckpointId, BTreeSet<ObjectName>>,
) -> Option<(SubtaskId, ObjectName)> {
    let own = |object: &str| names::file_origin(object).is_some_and(|(uploaded_by, _)| uploaded_by == checkpoint);
    let named = |object: &str| retained.values().any(|names| names.contains(object));
    parts.iter().find_map(|part| {
        let object = part.objects().find(|object| !own(object) && !named(object))?;
        Some((part.subtask(), object.to_owned()))
    })
}

/// The objects of a manifest, owned.
#[must_use]
pub fn objects(manifest: &Manifest) -> BTreeSet<ObjectName> {
    manifest.objects().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
