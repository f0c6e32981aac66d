//! What the tracker promises, by case and by random orders of answers.

use proptest::prelude::*;

use super::*;
use crate::id::{OperatorUid, SubtaskIndex};

const TIMEOUT: Duration = Duration::from_secs(10);

fn subtask(index: u32) -> SubtaskId {
    SubtaskId { uid: OperatorUid::new("op").unwrap(), index: SubtaskIndex(index) }
}

fn tracker(subtasks: u32, most: usize) -> Tracker<u32> {
    Tracker::new((0..subtasks).map(subtask), NonZeroUsize::new(most).unwrap(), TIMEOUT)
}

fn id(id: u64) -> CheckpointId {
    CheckpointId(id)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The ids that became complete and that were given up.
fn ids(outcome: &Outcome<u32>) -> (Vec<u64>, Vec<u64>) {
    match outcome {
        Outcome::Ignored(_) => (vec![], vec![]),
        Outcome::Progress { complete, given_up } => (
            complete.iter().map(|complete| complete.checkpoint().0).collect(),
            given_up.iter().map(|given_up| given_up.checkpoint.0).collect(),
        ),
    }
}

#[test]
fn the_last_answer_completes_a_checkpoint_and_a_late_one_changes_nothing() {
    let mut tracker = tracker(2, 1);
    assert_eq!(tracker.trigger(id(1), at(0)), Trigger::Started);
    assert_eq!(tracker.trigger(id(2), at(0)), Trigger::Busy);
    assert_eq!(ids(&tracker.acknowledge(id(1), subtask(0), 10)), (vec![], vec![]));
    assert_eq!(tracker.acknowledge(id(1), subtask(0), 11), Outcome::Ignored(Ignored::Repeated));
    assert_eq!(tracker.acknowledge(id(1), subtask(9), 11), Outcome::Ignored(Ignored::UnknownSubtask));
    let Outcome::Progress { mut complete, .. } = tracker.acknowledge(id(1), subtask(1), 20) else { panic!() };
    let answers = complete.remove(0).into_acknowledgements();
    assert_eq!(answers.into_values().collect::<Vec<_>>(), [10, 20], "the first answer counts");
    assert_eq!(tracker.acknowledge(id(1), subtask(1), 20), Outcome::Ignored(Ignored::NotInProgress));
    assert_eq!(tracker.trigger(id(1), at(1)), Trigger::NotRising);
    assert!(tracker.is_free());
}

#[test]
fn a_declined_checkpoint_is_over_for_all() {
    let mut tracker = tracker(2, 1);
    let _ = tracker.trigger(id(1), at(0));
    let Outcome::Progress { complete, given_up } = tracker.decline(id(1), subtask(1), "no disk".to_owned()) else {
        panic!()
    };
    assert!(complete.is_empty());
    let reason = Reason::Declined { subtask: subtask(1), reason: "no disk".to_owned() };
    assert_eq!(given_up, [GivenUp { checkpoint: id(1), reason }]);
    assert_eq!(tracker.acknowledge(id(1), subtask(0), 1), Outcome::Ignored(Ignored::NotInProgress));
    assert_eq!(tracker.decline(id(1), subtask(0), String::new()), Outcome::Ignored(Ignored::NotInProgress));
    assert_eq!(tracker.abort(id(1), String::new()), Outcome::Ignored(Ignored::NotInProgress));
    assert_eq!(tracker.trigger(id(2), at(1)), Trigger::Started);
}

#[test]
fn checkpoints_complete_in_order_whichever_is_answered_first() {
    let mut tracker = tracker(1, 3);
    for checkpoint in 1..=3 {
        let _ = tracker.trigger(id(checkpoint), at(0));
    }
    assert_eq!(ids(&tracker.acknowledge(id(3), subtask(0), 3)), (vec![], vec![]));
    assert_eq!(ids(&tracker.acknowledge(id(1), subtask(0), 1)), (vec![1], vec![]));
    assert_eq!(tracker.oldest(), Some(id(2)));
    assert_eq!(ids(&tracker.decline(id(2), subtask(0), String::new())), (vec![3], vec![2]));
    assert_eq!(tracker.oldest(), None);
}

#[test]
fn what_takes_too_long_is_given_up_at_its_deadline_naming_who_was_missing() {
    let mut tracker = tracker(2, 2);
    let _ = tracker.trigger(id(1), at(0));
    let _ = tracker.trigger(id(2), at(1));
    assert_eq!(tracker.deadline(), Some(TIMEOUT));
    let _ = tracker.acknowledge(id(1), subtask(0), 1);
    for subtask_index in 0..2 {
        let _ = tracker.acknowledge(id(2), subtask(subtask_index), 2);
    }
    assert_eq!(ids(&tracker.expire(TIMEOUT - Duration::from_nanos(1))), (vec![], vec![]));
    // At the deadline of both: 2 has all its answers and was only waiting for its turn.
    let outcome = tracker.expire(at(30));
    assert_eq!(ids(&outcome), (vec![2], vec![1]));
    let Outcome::Progress { given_up, .. } = outcome else { panic!() };
    assert_eq!(given_up[0].reason, Reason::TimedOut { missing: vec![subtask(1)] });
    assert_eq!(tracker.deadline(), None);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Trigger,
    Acknowledge(u64, u32),
    Decline(u64, u32),
    Expire,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Trigger),
        9 => (1u64..12, 0u32..4).prop_map(|(id, subtask)| Event::Acknowledge(id, subtask)),
        1 => (1u64..12, 0u32..4).prop_map(|(id, subtask)| Event::Decline(id, subtask)),
        1 => Just(Event::Expire),
    ]
}

proptest! {
    /// I6: complete at most once, in order, only with every answer, and never after being given up.
    #[test]
    fn a_checkpoint_ends_exactly_once(events in prop::collection::vec(event(), 0..200), most in 1usize..4) {
        let mut tracker = tracker(3, most);
        let (mut next, mut over, mut last, mut now) = (1, BTreeSet::new(), 0, 0);
        let mut answered: BTreeSet<(u64, u32)> = BTreeSet::new();
        for event in events {
            now += 1;
            let outcome = match event {
                Event::Trigger => {
                    if tracker.trigger(id(next), at(now)) == Trigger::Started {
                        next += 1;
                    }
                    continue;
                }
                Event::Acknowledge(checkpoint, index) => {
                    let outcome = tracker.acknowledge(id(checkpoint), subtask(index), index);
                    if !matches!(outcome, Outcome::Ignored(_)) {
                        prop_assert!(answered.insert((checkpoint, index)), "an answer counts once");
                    }
                    outcome
                }
                Event::Decline(checkpoint, index) => tracker.decline(id(checkpoint), subtask(index), String::new()),
                Event::Expire => tracker.expire(at(now)),
            };
            let (complete, given_up) = ids(&outcome);
            for id in complete {
                prop_assert!(id > last && over.insert(id));
                prop_assert!((0..3).all(|index| answered.contains(&(id, index))));
                last = id;
            }
            for id in given_up {
                prop_assert!(over.insert(id));
            }
            prop_assert!(tracker.in_progress().count() <= most);
        }
    }
}
