//! Fetches what each subtask begins with.
//!
//! Owns the downloads of a restore and what they took, and what subtasks are told of one another. Which parts a subtask needs
//! is decided in `core::checkpoint::restore`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use wasmill_core::checkpoint::counts::Counts;
use wasmill_core::checkpoint::inventory::Inventory;
use wasmill_core::checkpoint::manifest::Part;
use wasmill_core::checkpoint::names::Names;
use wasmill_core::checkpoint::restore::{Plan, Share};
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::id::{CheckpointId, OperatorUid, SubtaskId};

use super::operator::specs;
use crate::blob::Blob;
use crate::clock::SharedClock;
use crate::snapshot;
use crate::state::{self, Elements, Restore, SharedMemory};
use crate::telemetry::StatusBoard;

/// Parts that are downloaded at once.
const AT_ONCE: usize = 4;

/// What a subtask begins with.
pub(super) struct Begin {
    /// Its state.
    pub state: Restore,
    /// What of it is stored already.
    pub inventory: Inventory,
}

/// What all subtasks begin with.
pub(super) struct Fetched {
    /// By subtask; one that is missing begins with nothing.
    pub begins: BTreeMap<SubtaskId, Begin>,
    /// For each operator whose subtasks must be told one another's elements: the local cuts that hold them, by subtask.
    pub elements: BTreeMap<OperatorUid, Vec<PathBuf>>,
    /// Bytes downloaded.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Downloads every share of `plan` below `dir`; `board` shows how far it has come.
///
/// # Errors
/// An object that is missing or damaged, a full disk, a store that does not answer.
pub(super) async fn fetch(
    (checkpoint, plan): (CheckpointId, &Plan<'_>),
    (blob, names): (&Blob, &Names),
    dir: &Path,
    clock: &SharedClock,
    board: &StatusBoard,
) -> Result<Fetched, Fault> {
    let begin = clock.monotonic();
    let mut folders: BTreeMap<SubtaskId, (PathBuf, &Part)> = BTreeMap::new();
    let shared = plan.shares.values().flat_map(|share| match share {
        Share::Nothing => &[],
        Share::Same(part) => std::slice::from_ref(part),
        Share::Rows { parts, .. } => parts.as_slice(),
    });
    for part in shared.chain(plan.elements.values().flatten()) {
        let subtask = part.subtask();
        let folder = dir.join(format!("{}-{}", subtask.uid, subtask.index));
        folders.insert(subtask, (folder, part));
    }
    let downloads = folders.values().filter_map(|(folder, part)| part.state.as_ref().map(|state| (folder, state)));
    let bytes = downloads.clone().flat_map(|(_, state)| &state.files).map(|file| file.length).sum();
    board.restoring(checkpoint, bytes);
    stream::iter(downloads)
        .map(|(folder, state)| snapshot::download(state, folder, (blob, names), |bytes| board.downloaded(bytes)))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let begins = plan.shares.iter().map(|(subtask, share)| (subtask.clone(), begins_with(share, &folders))).collect();
    let folder = |part: &&Part| folders.get(&part.subtask()).map(|(folder, _)| folder.clone());
    let elements = plan.elements.iter().map(|(uid, parts)| (uid.clone(), parts.iter().filter_map(folder).collect()));
    let elements = elements.collect();
    Ok(Fetched { begins, elements, bytes, took: clock.monotonic().saturating_sub(begin) })
}

/// Reads the elements that the subtasks of operators must be told.
///
/// # Errors
/// A local cut that cannot be read; elements of another schema version than is declared.
pub(super) fn elements(
    fetched: &Fetched,
    contracts: &BTreeMap<OperatorUid, OperatorContract>,
    memory: &SharedMemory,
) -> Result<BTreeMap<OperatorUid, Elements>, Fault> {
    let mut read = BTreeMap::new();
    for (uid, dirs) in &fetched.elements {
        let states = contracts.get(uid).map(specs).unwrap_or_default();
        let elements = state::read_elements(dirs, &states, memory, uid.as_str());
        read.insert(uid.clone(), elements.map_err(|error| Fault::new(error.kind(), error))?);
    }
    Ok(read)
}

fn begins_with(share: &Share<'_>, folders: &BTreeMap<SubtaskId, (PathBuf, &Part)>) -> Begin {
    let folder = |part: &Part| folders.get(&part.subtask()).map(|(folder, _)| folder.clone()).unwrap_or_default();
    match share {
        Share::Nothing => Begin { state: Restore::Empty, inventory: Inventory::new() },
        Share::Same(part) => Begin {
            state: Restore::Same { dir: folder(part), counts: counts([*part]) },
            inventory: part.state.as_ref().map_or_else(Inventory::new, Inventory::restored),
        },
        Share::Rows { range, parts } => Begin {
            state: Restore::Rows {
                dirs: parts.iter().map(|part| folder(part)).collect(),
                counts: counts(parts.iter().copied()).restrict(*range),
            },
            inventory: Inventory::new(),
        },
    }
}

fn counts<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Counts {
    let mut all = Counts::default();
    for state in parts.into_iter().filter_map(|part| part.state.as_ref()) {
        all.merge(&state.counts);
    }
    all
}
