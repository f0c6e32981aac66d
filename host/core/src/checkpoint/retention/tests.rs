//! I8: nothing that a retained manifest names, or that a checkpoint in progress may refer to, is deleted.

use super::*;
use crate::checkpoint::log::state::Prepared;
use crate::checkpoint::log::{Entry, Start, StartFrom, WriterId};
use crate::checkpoint::manifest::tests::golden;
use crate::digest::Digest;
use crate::element::Purpose;
use crate::id::Attempt;
use crate::time::Timestamp;

/// A checkpoint is prepared at its number of seconds.
fn append(log: &mut LogState, attempt: Attempt, entry: Entry) {
    let at = match entry {
        Entry::Prepared { checkpoint, .. } => Timestamp::from_millis(checkpoint.0 as i64 * 1_000),
        _ => Timestamp::from_millis(0),
    };
    let record = log.record(attempt, &WriterId("w".to_owned()), at, entry).unwrap();
    log.apply(&record).unwrap();
}

/// A log in which `decided` are decided and `prepared` only prepared, by rising id.
fn log(all: &[(u64, bool)]) -> LogState {
    let mut log = LogState::new();
    let (attempt, entry) = log.start(&Start { from: StartFrom::Newest, pipeline: Default::default() }).unwrap();
    append(&mut log, attempt, entry);
    for &(id, decided) in all {
        let of = Prepared { purpose: Purpose::Periodic, bytes_new: 0, bytes_referenced: 0 };
        let entry = log.prepared(CheckpointId(id), names::manifest(CheckpointId(id)), Digest::of(b""), of);
        append(&mut log, attempt, entry);
        if decided {
            append(&mut log, attempt, Entry::Decided { checkpoint: CheckpointId(id) });
        }
    }
    log
}

fn retired(log: &LogState, keep: u32) -> Vec<u64> {
    retired_since(log, keep, None)
}

fn retired_since(log: &LogState, newest: u32, since: Option<i64>) -> Vec<u64> {
    let keep = Keep { newest: NonZeroU32::new(newest).unwrap(), since: since.map(Timestamp::from_millis) };
    to_retire(log, keep).into_iter().map(|id| id.0).collect()
}

fn set(names: &[&str]) -> BTreeSet<ObjectName> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn what_is_young_stays_beside_the_newest_and_age_never_takes_those() {
    let all = log(&[(1, true), (2, true), (3, false), (4, true), (5, true)]);
    assert_eq!(retired_since(&all, 1, Some(2_000)), [1, 3], "2 is just young enough, 3 was passed");
    assert_eq!(retired_since(&all, 1, Some(2_001)), [1, 2, 3]);
    assert_eq!(retired_since(&all, 1, Some(0)), [3]);
    assert_eq!(retired_since(&all, 2, Some(9_000)), [1, 2, 3], "all are old, two stay");
    let many: Vec<_> = (1..=1_005).map(|id| (id, true)).collect();
    assert_eq!(retired_since(&log(&many), 1, Some(0)), [1, 2, 3, 4, 5], "no more than a thousand for their age");
}

#[test]
fn the_newest_decided_stay_and_what_a_decision_has_passed_goes() {
    let all = [(1, true), (2, true), (3, false), (4, true), (5, false)];
    assert_eq!(retired(&log(&all), 1), [1, 2, 3], "5 may still be decided");
    assert_eq!(retired(&log(&all), 2), [1, 3]);
    assert_eq!(retired(&log(&all), 3), [3]);
    assert_eq!(retired(&log(&[(1, false)]), 1), [0; 0]);
}

#[test]
fn what_a_restart_restores_stays_however_old_it_is() {
    let mut log = log(&[(1, true), (2, true), (3, true)]);
    let from = StartFrom::Checkpoint(CheckpointId(1));
    let (attempt, entry) = log.start(&Start { from, pipeline: Default::default() }).unwrap();
    append(&mut log, attempt, entry);
    assert_eq!(retired(&log, 1), [2]);
}

#[test]
fn objects_that_something_retained_or_running_needs_stay() {
    let doomed = set(&["files/a", "files/b", "components/c", "components/d"]);
    let retained = BTreeMap::from([(CheckpointId(2), set(&["files/b", "files/e"]))]);
    assert_eq!(deletable(&doomed, &retained, &set(&["components/c"])), ["components/d", "files/a"]);
}

#[test]
fn nothing_goes_while_a_checkpoint_that_could_refer_to_it_is_in_progress() {
    let doomed = Doomed { checkpoint: CheckpointId(1), before: CheckpointId(4), objects: BTreeSet::new() };
    assert!(!doomed.is_due(Some(CheckpointId(3))), "3 was in progress at the retirement");
    assert!(doomed.is_due(Some(CheckpointId(4))), "4 came after it");
    assert!(doomed.is_due(None));
}

#[test]
fn a_reference_to_what_may_be_gone_is_found_before_the_manifest_is_written() {
    let manifest = golden();
    let mut retained = BTreeMap::from([(CheckpointId(1), objects(&manifest))]);
    assert_eq!(dangling(manifest.checkpoint, &manifest.parts, &retained), None);
    retained.clear();
    let (subtask, object) = dangling(manifest.checkpoint, &manifest.parts, &retained).unwrap();
    assert_eq!(subtask.to_string(), "per-aircraft/0");
    assert_eq!(names::file_origin(&object).unwrap().0, CheckpointId(1), "its own uploads are no references");
}
