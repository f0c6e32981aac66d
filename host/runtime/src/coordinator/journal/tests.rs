//! What the journal promises: fencing, lost replies, damage told by name, and a log that may grow.

use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;
use wasmill_core::checkpoint::log::StartFrom;
use wasmill_core::fault::FaultKind;

use super::*;
use crate::blob::faulty::{Fault, Faulty};
use crate::clock::ManualClock;

/// The golden manifest of format 1, as checkpoint `id` of `attempt`.
pub(crate) fn manifest(id: CheckpointId, attempt: Attempt) -> Manifest {
    let golden = include_bytes!("../../../../core/golden/manifest-1.json");
    Manifest { checkpoint: id, attempt, ..Manifest::decode(golden).unwrap().0 }
}

pub(crate) fn job() -> JobId {
    JobId::new("flights").unwrap()
}

pub(crate) async fn open(blob: &Blob) -> Journal {
    Journal::open(blob.clone(), job(), Arc::new(ManualClock::default())).await.unwrap()
}

fn start(from: StartFrom) -> Start {
    Start { from, pipeline: Settings::new() }
}

pub(crate) async fn newest(journal: &mut Journal) -> Started {
    journal.start_attempt(&start(StartFrom::Newest)).await.unwrap()
}

async fn prepare(journal: &mut Journal) -> Result<CheckpointId, Error> {
    let id = journal.next_checkpoint().await?;
    let attempt = journal.attempt().unwrap();
    journal.prepare(&manifest(id, attempt)).await?;
    Ok(id)
}

pub(crate) async fn complete(journal: &mut Journal) -> Result<CheckpointId, Error> {
    let id = prepare(journal).await?;
    assert_eq!(journal.decide(id).await?.checkpoint(), id);
    Ok(id)
}

fn memory() -> Blob {
    Blob::of(Faulty::new())
}

fn restored(started: &Started) -> Option<u64> {
    match started.restored {
        Restored::Nothing => None,
        Restored::Checkpoint(id) => Some(id.0),
    }
}

#[tokio::test]
async fn a_restart_finds_what_was_decided_and_commits_it_again() {
    let dir = TempDir::new().unwrap();
    let blob = Blob::open("store", dir.path()).unwrap();
    let mut first = open(&blob).await;
    assert_eq!(restored(&newest(&mut first).await), None);
    let one = complete(&mut first).await.unwrap();
    let two = complete(&mut first).await.unwrap();
    let three = prepare(&mut first).await.unwrap();
    drop(first);
    let mut second = open(&blob).await;
    assert_eq!(second.newest_decided().unwrap().checkpoint, two);
    let started = newest(&mut second).await;
    assert_eq!((started.attempt, restored(&started)), (Attempt(2), Some(two.0)));
    assert_eq!(second.commit_permit(two).unwrap().checkpoint(), two);
    assert!(matches!(second.commit_permit(three), Err(Error::Refused(log::permit::Refused::NotDecided(_)))));
    assert_eq!(second.read_manifest(one).await.unwrap(), manifest(one, Attempt(1)));
    assert_eq!(second.decided().map(|stored| stored.checkpoint).collect::<Vec<_>>(), [one, two]);
    assert!(second.next_checkpoint().await.unwrap() > three, "no id is used twice");
}

#[tokio::test]
async fn checkpoints_without_a_log_are_refused_rather_than_forgotten() {
    let dir = TempDir::new().unwrap();
    let blob = Blob::open("store", dir.path()).unwrap();
    let mut first = open(&blob).await;
    newest(&mut first).await;
    complete(&mut first).await.unwrap();
    std::fs::remove_dir_all(dir.path().join("store/jobs/flights/log")).unwrap();
    let error = Journal::open(blob, job(), Arc::new(ManualClock::default())).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::NoLog { .. }), "{error}");
    assert!(error.to_string().contains("jobs/flights/checkpoints/000000000001/manifest.json"), "{error}");
    assert_eq!(error.kind(), FaultKind::Refused);
    let error = complete(&mut first).await.unwrap_err();
    assert!(matches!(error, Error::Gap { .. }), "a job that runs notices it too: {error}");
    assert_eq!(error.kind(), FaultKind::Refused);
}

#[tokio::test]
async fn an_attempt_that_is_over_can_decide_prepare_and_retire_nothing() {
    let blob = memory();
    let mut old = open(&blob).await;
    newest(&mut old).await;
    let one = complete(&mut old).await.unwrap();
    let two = prepare(&mut old).await.unwrap();
    let three = old.next_checkpoint().await.unwrap();
    let mut new = open(&blob).await;
    assert_eq!(restored(&newest(&mut new).await), Some(one.0));
    // The old one has read nothing of it yet.
    let error = old.decide(two).await.unwrap_err();
    assert!(error.is_fenced() && error.to_string().contains("attempt started, checkpoint 1 restored"), "{error}");
    assert_eq!(error.kind(), FaultKind::Refused, "it must not restart by itself");
    for error in [
        old.prepare(&manifest(three, Attempt(1))).await.unwrap_err(),
        old.retire(vec![one]).await.unwrap_err(),
        old.commit_permit(one).unwrap_err(),
    ] {
        assert!(error.is_fenced(), "{error}");
    }
    assert_ne!(complete(&mut new).await.unwrap(), three);
}

#[tokio::test]
async fn an_attempt_that_starts_takes_what_was_decided_under_its_hands() {
    let blob = memory();
    let mut old = open(&blob).await;
    newest(&mut old).await;
    complete(&mut old).await.unwrap();
    let mut new = open(&blob).await;
    let two = complete(&mut old).await.unwrap();
    assert_eq!(restored(&newest(&mut new).await), Some(two.0), "2 was decided after the log was read");
    let mut third = open(&blob).await;
    newest(&mut third).await;
    assert!(new.next_checkpoint().await.is_ok(), "reserved before");
    assert!(complete(&mut new).await.unwrap_err().is_fenced());
}

#[tokio::test]
async fn two_that_start_at_once_get_two_attempts_and_the_later_one_wins() {
    let blob = memory();
    let (mut one, mut two) = (open(&blob).await, open(&blob).await);
    let (first, second) = (newest(&mut one).await.attempt, newest(&mut two).await.attempt);
    assert_eq!((first, second), (Attempt(1), Attempt(2)));
    assert!(complete(&mut one).await.unwrap_err().is_fenced());
    complete(&mut two).await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_is_no_loss_and_no_repetition() {
    let store = Faulty::new();
    let blob = Blob::of(store.clone());
    let mut journal = open(&blob).await;
    store.on_puts([Fault::After]);
    assert_eq!(newest(&mut journal).await.attempt, Attempt(1));
    // The manifest's put, its entry's, and the decision's each lose their reply.
    store.on_puts([Fault::After, Fault::None, Fault::After, Fault::After]);
    let one = complete(&mut journal).await.unwrap();
    assert_eq!(open(&blob).await.state(), journal.state());
    assert_eq!(journal.newest_decided().unwrap().checkpoint, one);
}

#[tokio::test]
async fn an_entry_whose_fate_is_unknown_is_found_by_its_own_attempt() {
    let store = Faulty::new();
    let blob = Blob::of(store.clone());
    let mut journal = open(&blob).await;
    newest(&mut journal).await;
    let one = prepare(&mut journal).await.unwrap();
    let patient = std::mem::replace(
        &mut journal.blob,
        blob.clone().with_retry(crate::blob::Retry { deadline: std::time::Duration::ZERO, ..Default::default() }),
    );
    store.on_puts([Fault::After]);
    assert!(matches!(journal.decide(one).await, Err(Error::Blob(_))));
    journal.blob = patient;
    assert_eq!(journal.decide(one).await.unwrap().checkpoint(), one, "it was written, and is found");
    let two = complete(&mut journal).await.unwrap();
    assert_eq!(open(&blob).await.newest_decided().unwrap().checkpoint, two);
}

#[tokio::test]
async fn a_job_begun_anew_or_from_an_older_checkpoint_stays_so_after_a_crash() {
    let blob = memory();
    let mut journal = open(&blob).await;
    newest(&mut journal).await;
    let one = complete(&mut journal).await.unwrap();
    complete(&mut journal).await.unwrap();
    let from = start(StartFrom::Checkpoint(one));
    assert_eq!(restored(&open(&blob).await.start_attempt(&from).await.unwrap()), Some(one.0));
    assert_eq!(restored(&newest(&mut open(&blob).await).await), Some(one.0));
    open(&blob).await.start_attempt(&start(StartFrom::Fresh)).await.unwrap();
    assert_eq!(restored(&newest(&mut open(&blob).await).await), None);
    let error = open(&blob).await.start_attempt(&start(StartFrom::Checkpoint(CheckpointId(99)))).await.unwrap_err();
    assert!(error.to_string().contains("checkpoint 99 cannot be restored"), "{error}");
    assert_eq!(error.kind(), FaultKind::User);
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_with_the_way_on_and_never_passed_over() {
    let blob = memory();
    let mut journal = open(&blob).await;
    newest(&mut journal).await;
    let one = complete(&mut journal).await.unwrap();
    let two = complete(&mut journal).await.unwrap();
    let object = journal.names().full(&names::manifest(two));
    let good = blob.get(&object).await.unwrap();
    let mut flipped = good.to_vec();
    flipped[100] ^= 1;
    let other = blob.get(&journal.names().full(&names::manifest(one))).await.unwrap();
    for (bytes, cause) in [
        (Some(Bytes::new()), "cut short"),
        (Some(good.slice(..good.len() / 2)), "cut short"),
        (Some(Bytes::from(flipped)), "its bytes have the checksum"),
        (Some(other), "and the log says"),
        (None, "it is missing"),
    ] {
        match bytes {
            Some(bytes) => blob.put(&object, bytes).await.unwrap(),
            None => blob.delete(&object).await.unwrap(),
        }
        let journal = open(&blob).await;
        assert_eq!(journal.newest_decided().unwrap().checkpoint, two, "never silently an older one");
        let error = journal.read_manifest(two).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(cause) && text.contains(&object) && text.contains("--from 1"), "{text}");
        assert_eq!(error.kind(), FaultKind::Refused);
    }
    assert!(journal.read_manifest(one).await.is_ok());
    assert!(matches!(journal.read_manifest(CheckpointId(50)).await.unwrap_err(), Error::Unknown { .. }));
}

#[tokio::test]
async fn a_damaged_or_missing_log_entry_stops_the_job_by_name() {
    let blob = memory();
    let mut journal = open(&blob).await;
    newest(&mut journal).await;
    complete(&mut journal).await.unwrap();
    let object = journal.names().log_entry(Seq(1));
    let good = blob.get(&object).await.unwrap();
    let reopen = async || Journal::open(blob.clone(), job(), Arc::new(ManualClock::default())).await.map(drop);
    blob.put(&object, good.slice(1..)).await.unwrap();
    let error = reopen().await.unwrap_err();
    assert!(matches!(error, Error::Entry { .. }) && error.to_string().contains(&object), "{error}");
    blob.put(&object, blob.get(&journal.names().log_entry(Seq(0))).await.unwrap()).await.unwrap();
    let error = reopen().await.unwrap_err();
    assert!(error.to_string().contains("it is entry 0, stored under the name of entry 1"), "{error}");
    blob.put(&object, good).await.unwrap();
    reopen().await.unwrap();
    assert_eq!(error.kind(), FaultKind::Refused);
}

/// Fills the log up to entry `end`.
async fn fill(journal: &mut Journal, end: u64) {
    while journal.state().next() < Seq(end) {
        journal.append(Entry::Reserved { checkpoints_below: CheckpointId(1) }).await.unwrap();
    }
}

#[tokio::test]
async fn an_old_attempt_that_writes_into_a_cleaned_gap_learns_that_it_is_over() {
    let blob = memory();
    let mut old = open(&blob).await;
    newest(&mut old).await;
    let two = prepare(&mut old).await.unwrap();
    let mut claiming = open(&blob).await;
    let mut new = open(&blob).await;
    newest(&mut new).await;
    fill(&mut new, 2 * log::BLOCK + 3).await;
    for seq in log::state::deletable_entries(0) {
        blob.delete(&new.names().log_entry(seq)).await.unwrap();
    }
    let error = old.decide(two).await.unwrap_err();
    assert!(error.is_fenced() && error.to_string().contains("closed since"), "{error}");
    assert!(open(&blob).await.newest_decided().is_none(), "what it wrote counts for nothing");
    // One that had not started yet reads the log again and starts.
    assert_eq!(newest(&mut claiming).await.attempt, Attempt(3));
    assert!(complete(&mut new).await.unwrap_err().is_fenced());
}

#[tokio::test]
async fn nothing_is_decided_by_one_who_only_read_the_log() {
    let blob = memory();
    let mut journal = open(&blob).await;
    assert!(matches!(journal.next_checkpoint().await, Err(Error::NotStarted)));
    assert!(matches!(journal.retire(vec![]).await, Err(Error::NotStarted)));
    assert!(!blob.exists(&journal.names().log_entry(Seq(0))).await.unwrap());
}

#[tokio::test]
async fn a_component_is_stored_once_and_checked_when_read() {
    let blob = memory();
    let mut journal = open(&blob).await;
    newest(&mut journal).await;
    let (digest, object) = journal.store_component(Bytes::from_static(b"wasm"), None).await.unwrap();
    let mut known = manifest(CheckpointId(1), Attempt(1));
    assert_eq!(journal.read_component(&known, digest, &object).await.unwrap(), "wasm");
    known.operators.values_mut().for_each(|operator| operator.component = digest);
    let named = known.operators.values().next().unwrap().object.clone();
    let again = journal.store_component(Bytes::from_static(b"wasm"), Some(&known)).await.unwrap();
    assert_eq!(again, (digest, named), "what the restored checkpoint names is there");
    blob.put(&journal.names().full(&object), Bytes::from_static(b"WASM")).await.unwrap();
    let error = journal.read_component(&known, digest, &object).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// One step of one of three processes that share a store.
#[derive(Debug, Clone, Copy)]
enum Step {
    Reopen,
    Start,
    Prepare,
    Decide,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// I6, whoever wakes up when and whatever reply is lost: all read one log, ids are used once, and a decision of an attempt that
    /// is over never counts.
    #[test]
    fn of_many_processes_one_decides(
        steps in prop::collection::vec((0usize..3, prop_oneof![
            1 => Just(Step::Reopen), 2 => Just(Step::Start), 6 => Just(Step::Prepare), 6 => Just(Step::Decide),
        ]), 1..60),
        faults in prop::collection::vec(prop_oneof![4 => Just(Fault::None), 1 => Just(Fault::Before), 1 => Just(Fault::After)], 60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Faulty::new();
            store.on_puts(faults);
            let blob = Blob::of(store.clone());
            let mut journals = [open(&blob).await, open(&blob).await, open(&blob).await];
            let mut prepared: Vec<Option<CheckpointId>> = vec![None; 3];
            let (mut in_charge, mut ids, mut decided) = (None, std::collections::BTreeSet::new(), Vec::new());
            for (who, step) in steps {
                let journal = &mut journals[who];
                match step {
                    Step::Reopen => {
                        *journal = open(&blob).await;
                        prepared[who] = None;
                    }
                    Step::Start => {
                        let started = newest(journal).await;
                        assert_eq!(restored(&started), decided.last().map(|id: &CheckpointId| id.0));
                        in_charge = Some(who);
                        prepared[who] = None;
                    }
                    Step::Prepare if journal.attempt().is_some() => match prepare(journal).await {
                        Ok(id) => {
                            assert_eq!(in_charge, Some(who));
                            assert!(ids.insert(id), "{id} was used twice");
                            prepared[who] = Some(id);
                        }
                        Err(error) => assert!(error.is_fenced() && in_charge != Some(who), "{error}"),
                    },
                    Step::Decide => if let Some(id) = prepared[who].take() {
                        match journal.decide(id).await {
                            Ok(_) => {
                                assert_eq!(in_charge, Some(who));
                                decided.push(id);
                            }
                            Err(error) => assert!(error.is_fenced() && in_charge != Some(who), "{error}"),
                        }
                    },
                    Step::Prepare => {}
                }
                if matches!(step, Step::Reopen) && in_charge == Some(who) {
                    in_charge = None;
                }
            }
            let log = open(&blob).await;
            assert_eq!(log.decided().map(|stored| stored.checkpoint).collect::<Vec<_>>(), decided);
        });
    }
}
