//! What the fold promises, by case and by random logs.

use proptest::prelude::*;

use super::*;
use crate::checkpoint::log::{BLOCK, Decider, Setting, permit};
use crate::id::{OperatorUid, Parallelism};

/// A log in the hand: every record that was ever appended, and the fold of them.
struct Model {
    state: LogState,
    records: Vec<Record>,
}

impl Model {
    fn new() -> Self {
        Self { state: LogState::new(), records: Vec::new() }
    }

    fn append(&mut self, entry: Entry) -> Result<(), Error> {
        self.append_as(self.state.in_force().attempt, entry)
    }

    fn append_as(&mut self, attempt: Attempt, entry: Entry) -> Result<(), Error> {
        let record = self.state.record(attempt, &WriterId("w".to_owned()), Timestamp::from_millis(5), entry)?;
        self.state.apply(&record)?;
        self.records.push(record);
        Ok(())
    }

    fn start(&mut self, from: StartFrom) -> Result<Entry, Error> {
        let (attempt, entry) = self.state.start(&Start { from, pipeline: settings(1, 2) })?;
        self.append_as(attempt, entry.clone())?;
        Ok(entry)
    }

    fn prepare(&mut self, id: u64) -> Result<(), Error> {
        let of = Prepared { purpose: Purpose::Periodic, bytes_new: 1, bytes_referenced: 2 };
        let entry = self.state.prepared(CheckpointId(id), format!("checkpoints/{id}"), Digest::of(b"m"), of);
        self.append(entry)
    }

    fn decide(&mut self, id: u64) -> Result<(), Error> {
        self.append(Entry::Decided { checkpoint: CheckpointId(id) })
    }

    fn retire(&mut self, ids: &[u64]) -> Result<(), Error> {
        self.append(Entry::Retired { checkpoints: ids.iter().copied().map(CheckpointId).collect() })
    }

    fn complete(&mut self, id: u64) {
        self.prepare(id).unwrap();
        self.decide(id).unwrap();
    }

    fn next_checkpoint(&self) -> u64 {
        self.state.in_force().next_checkpoint.0
    }
}

fn settings(component: u8, parallelism: u32) -> Settings {
    let setting =
        Setting { component: Some(Digest::of(&[component])), parallelism: Parallelism::new(parallelism).unwrap() };
    Settings::from([(OperatorUid::new("count").unwrap(), setting)])
}

fn restored(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::AttemptStarted { restored: Restored::Checkpoint(id), .. } => Some(id.0),
        _ => None,
    }
}

#[test]
fn a_restart_restores_what_was_decided_last() {
    let mut log = Model::new();
    assert_eq!(restored(&log.start(StartFrom::Newest).unwrap()), None);
    log.complete(1);
    log.prepare(2).unwrap();
    assert_eq!(restored(&log.start(StartFrom::Newest).unwrap()), Some(1), "2 is prepared only");
}

#[test]
fn a_restart_after_going_back_does_not_jump_forward_again() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    log.complete(1);
    log.complete(2);
    assert_eq!(restored(&log.start(StartFrom::Checkpoint(CheckpointId(1))).unwrap()), Some(1));
    assert_eq!(restored(&log.start(StartFrom::Newest).unwrap()), Some(1), "2 belongs to the life that was left");
    log.start(StartFrom::Fresh).unwrap();
    assert_eq!(restored(&log.start(StartFrom::Newest).unwrap()), None, "fresh stays fresh");
    assert_eq!(log.state.decided().count(), 2, "and takes nothing away");
    let error = log.start(StartFrom::Checkpoint(CheckpointId(7))).unwrap_err();
    assert_eq!(error.to_string(), "checkpoint 7 cannot be restored: the job's decided checkpoints are 1, 2");
}

#[test]
fn no_checkpoint_id_is_used_by_two_attempts() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    let first = log.next_checkpoint();
    log.complete(1);
    log.complete(3);
    assert!(log.next_checkpoint() > first, "every prepared checkpoint reserves more");
    let used_below = log.next_checkpoint();
    log.start(StartFrom::Newest).unwrap();
    assert!(log.next_checkpoint() > used_below);
    assert!(matches!(log.prepare(log.next_checkpoint()), Err(Error::Impossible { .. })), "not reserved");
    log.append(log.state.reserved(CheckpointId(used_below + 20))).unwrap();
    log.prepare(used_below + 20).unwrap();
    assert!(matches!(log.prepare(used_below), Err(Error::Impossible { .. })), "ids rise");
}

#[test]
fn an_entry_that_cannot_follow_changes_nothing() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    log.complete(1);
    let before = log.state.clone();
    assert!(log.decide(1).is_err(), "decided twice");
    assert!(log.decide(2).is_err(), "never prepared");
    assert!(log.prepare(1).is_err(), "prepared twice");
    assert!(log.retire(&[1]).is_err(), "what a restart restores");
    assert!(log.retire(&[1, 9]).is_err(), "unknown");
    let entry = Entry::Decided { checkpoint: CheckpointId(1) };
    assert!(matches!(log.append_as(Attempt(0), entry.clone()), Err(Error::OtherAttempt { .. })), "an old attempt");
    let record = Record { seq: Seq(9), ..log.records[0].clone() };
    assert!(matches!(log.state.clone().apply(&record), Err(Error::OutOfOrder { .. })), "a gap");
    let skipping = Record { seq: log.state.next(), attempt: Attempt(9), ..log.records[0].clone() };
    assert!(matches!(log.state.clone().apply(&skipping), Err(Error::OtherAttempt { .. })), "an attempt left out");
    assert_eq!(log.state, before);
}

#[test]
fn only_the_newest_attempt_gets_a_permit_and_only_a_decided_checkpoint_is_committed() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    log.prepare(1).unwrap();
    let (one, id) = (Attempt(1), CheckpointId(1));
    assert_eq!(log.state.complete_permit(one, id).unwrap().checkpoint(), id);
    assert_eq!(log.state.commit_permit(one, id, Decider::Log).unwrap_err(), permit::Refused::NotDecided(id));
    assert!(log.state.commit_permit(one, id, Decider::Sink).is_ok());
    log.decide(1).unwrap();
    assert_eq!(log.state.complete_permit(one, id).unwrap_err(), permit::Refused::DecidedAlready(id));
    assert_eq!(log.state.commit_permit(one, id, Decider::Log).unwrap().checkpoint(), id);
    log.start(StartFrom::Newest).unwrap();
    let fenced = permit::Refused::Fenced { attempt: one, newest: Attempt(2) };
    assert_eq!(log.state.commit_permit(one, id, Decider::Log).unwrap_err(), fenced);
    assert_eq!(log.state.complete_permit(one, id).unwrap_err(), fenced);
    assert!(log.state.commit_permit(Attempt(2), id, Decider::Log).is_ok(), "the next attempt commits again");
}

#[test]
fn what_was_put_in_force_stays_until_the_file_changes() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    // A swap put another component in force than the file names.
    log.state.in_force.running = settings(9, 3);
    let running = |log: &Model, pipeline| match log.state.start(&Start { from: StartFrom::Newest, pipeline }).unwrap() {
        (_, Entry::AttemptStarted { running, .. }) => running,
        other => panic!("{other:?}"),
    };
    assert_eq!(running(&log, settings(1, 2)), settings(9, 3), "the file says what it said");
    assert_eq!(running(&log, settings(1, 4)), settings(1, 4), "the file changed and wins");
}

#[test]
fn blocks_are_cleaned_only_below_every_retained_checkpoint() {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    log.complete(1);
    while log.state.next().0 < 3 * BLOCK + 5 {
        log.append(Entry::Reserved { checkpoints_below: CheckpointId(1) }).unwrap();
    }
    assert_eq!(log.state.cleanable_blocks(), 0..0, "checkpoint 1 lies in block 0");
    log.complete(2);
    assert_eq!(log.state.cleanable_blocks(), 0..0);
    log.retire(&[1]).unwrap();
    assert_eq!(log.state.cleanable_blocks(), 0..3, "never the block with the end");
    let entries: Vec<_> = deletable_entries(1).collect();
    assert_eq!((entries[0], entries[entries.len() - 1], entries.len()), (Seq(1_024), Seq(2_046), 1_023));
}

/// Steps of a random life of a job.
#[derive(Debug, Clone)]
enum Step {
    Start(u8),
    Prepare,
    Decide(prop::sample::Index),
    Retire(prop::sample::Index),
    Fill(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => any::<u8>().prop_map(Step::Start),
        4 => Just(Step::Prepare),
        3 => any::<prop::sample::Index>().prop_map(Step::Decide),
        2 => any::<prop::sample::Index>().prop_map(Step::Retire),
        1 => (1u16..1_500).prop_map(Step::Fill),
    ]
}

fn live(steps: Vec<Step>) -> Model {
    let mut log = Model::new();
    log.start(StartFrom::Newest).unwrap();
    let mut next = 1;
    for step in steps {
        let ids: Vec<_> = log.state.in_force().checkpoints.iter().map(|stored| stored.checkpoint.0).collect();
        match step {
            Step::Start(how) => {
                next = log.next_checkpoint();
                let from = if how < 40 { StartFrom::Fresh } else { StartFrom::Newest };
                log.start(from).unwrap();
            }
            Step::Prepare => {
                if log.prepare(next).is_ok() {
                    next += 1;
                }
            }
            Step::Decide(at) if !ids.is_empty() => drop(log.decide(ids[at.index(ids.len())])),
            Step::Retire(at) if !ids.is_empty() => drop(log.retire(&[ids[at.index(ids.len())]])),
            Step::Fill(count) => {
                for _ in 0..count {
                    log.append(Entry::Reserved { checkpoints_below: CheckpointId(1) }).unwrap();
                }
            }
            Step::Decide(_) | Step::Retire(_) => {}
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reading from any block's last entry on gives what reading from the beginning gives.
    #[test]
    fn a_blocks_last_entry_stands_for_all_before_it(steps in prop::collection::vec(step(), 1..40)) {
        let log = live(steps);
        for end in log.records.iter().filter(|record| record.seq.is_block_end()) {
            let mut state = LogState::from_block_end(end).unwrap();
            for record in &log.records[end.seq.next().0 as usize..] {
                state.apply(record).unwrap();
            }
            prop_assert_eq!(&state, &log.state);
        }
        let summaries = log.records.iter().filter(|record| record.in_force.is_some()).count() as u64;
        prop_assert_eq!(summaries, log.state.next().block());
    }

    #[test]
    fn stored_entries_are_read_back_and_any_flipped_bit_is_detected(
        steps in prop::collection::vec(step(), 1..12),
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let log = live(steps);
        let record = &log.records[which.index(log.records.len())];
        let mut bytes = record.encode().unwrap().bytes;
        prop_assert_eq!(&Record::decode(record.seq, &bytes).unwrap(), record);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Record::decode(record.seq, &bytes).is_err());
    }
}
