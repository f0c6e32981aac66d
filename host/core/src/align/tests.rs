//! What alignment promises, by case and by random interleavings.

use proptest::prelude::*;

use super::*;
use crate::element::Purpose;

fn barrier(id: u64) -> Barrier {
    Barrier { checkpoint: CheckpointId(id), purpose: Purpose::Periodic }
}

fn block(channel: usize) -> Step {
    Step::Block { channel, superseded: None }
}

fn complete(id: u64) -> Step {
    Step::Complete { barrier: barrier(id), superseded: None }
}

#[test]
fn one_channel_completes_at_once_and_stays_blocked_until_the_state_is_frozen() {
    let mut alignment = Alignment::new(1);
    assert_eq!(alignment.on_barrier(0, barrier(1)), complete(1));
    assert!(alignment.is_blocked(0));
    alignment.unblock();
    assert!(!alignment.is_blocked(0));
}

#[test]
fn an_ended_channel_counts_as_having_delivered_every_barrier() {
    let mut alignment = Alignment::new(3);
    assert_eq!(alignment.on_end(0), None);
    assert_eq!(alignment.on_barrier(1, barrier(1)), block(1));
    assert_eq!(alignment.on_end(2), Some(complete(1)));
    alignment.unblock();
    assert_eq!(alignment.on_barrier(1, barrier(2)), complete(2));
    alignment.unblock();
    assert_eq!(alignment.on_end(1), None);
    assert!(alignment.all_ended());
}

#[test]
fn a_newer_barrier_ends_the_older_alignment_and_frees_its_channels() {
    let mut alignment = Alignment::new(3);
    assert_eq!(alignment.on_barrier(0, barrier(1)), block(0));
    let superseded = Some(CheckpointId(1));
    assert_eq!(alignment.on_barrier(1, barrier(2)), Step::Block { channel: 1, superseded });
    assert!(!alignment.is_blocked(0) && alignment.is_blocked(1));
    // The third channel still brings the old one: too late.
    assert_eq!(alignment.on_barrier(2, barrier(1)), Step::Stale(barrier(1)));
    assert!(!alignment.is_blocked(2));
    assert_eq!(alignment.on_barrier(2, barrier(2)), block(2));
    assert_eq!(alignment.on_barrier(0, barrier(2)), complete(2));
}

#[test]
fn an_aborted_alignment_does_not_begin_again() {
    let mut alignment = Alignment::new(2);
    assert_eq!(alignment.on_barrier(0, barrier(4)), block(0));
    alignment.abort(CheckpointId(3));
    assert!(alignment.is_blocked(0));
    alignment.abort(CheckpointId(4));
    assert!(!alignment.is_blocked(0));
    assert_eq!(alignment.on_barrier(1, barrier(4)), Step::Stale(barrier(4)));
    assert_eq!(alignment.on_barrier(1, barrier(5)), block(1));
    assert_eq!(alignment.on_barrier(0, barrier(5)), complete(5));
}

#[test]
fn a_broken_protocol_is_named() {
    let stop = Barrier { checkpoint: CheckpointId(2), purpose: Purpose::Stop };
    let at = |channel| move |checkpoint| (channel, CheckpointId(checkpoint));
    let mut alignment = Alignment::new(2);
    let violation = Violation::NoChannel { channel: 7, channels: 2 };
    assert_eq!(alignment.on_barrier(7, barrier(1)), Step::Violation(violation.clone()));
    assert_eq!(alignment.on_end(7), Some(Step::Violation(violation)));
    assert_eq!(alignment.on_barrier(0, barrier(2)), block(0));
    let (channel, checkpoint) = at(0)(2);
    let violation = Violation::ReadWhileBlocked { channel, checkpoint };
    assert_eq!(alignment.on_barrier(0, barrier(3)), Step::Violation(violation.clone()));
    assert_eq!(alignment.on_end(0), Some(Step::Violation(violation)));
    let (channel, checkpoint) = at(1)(2);
    assert_eq!(alignment.on_barrier(1, stop), Step::Violation(Violation::OtherPurpose { channel, checkpoint }));
    assert_eq!(alignment.on_barrier(1, barrier(2)), complete(2));
    assert_eq!(
        alignment.on_barrier(1, barrier(3)),
        Step::Violation(Violation::ReadWhileBlocked { channel, checkpoint }),
    );
    alignment.unblock();
    assert_eq!(
        alignment.on_barrier(1, barrier(2)),
        Step::Violation(Violation::NotRising { channel, checkpoint, last: checkpoint })
    );
    assert_eq!(alignment.on_end(1), None);
    let (channel, checkpoint) = at(1)(3);
    assert_eq!(alignment.on_barrier(1, barrier(3)), Step::Violation(Violation::AfterEnd { channel, checkpoint }));
}

/// What a channel carries in the model: a record, or the barrier of a checkpoint, or nothing more.
#[derive(Debug, Clone, Copy)]
enum Item {
    Record,
    Barrier(u64),
}

/// A channel: some records before each barrier; a barrier may be skipped; the channel may end early.
fn channel() -> impl Strategy<Value = Vec<Item>> {
    let step = (0usize..4, prop::bool::weighted(0.85));
    (prop::collection::vec(step, 6), 0usize..30).prop_map(|(steps, cut)| {
        let mut items = Vec::new();
        for (id, (records, delivered)) in (1u64..).zip(steps) {
            items.extend(std::iter::repeat_n(Item::Record, records));
            if delivered {
                items.push(Item::Barrier(id));
            }
        }
        items.truncate(cut.max(1));
        items
    })
}

proptest! {
    /// I3: when a barrier completes, exactly the records before it have been taken from every channel.
    #[test]
    fn nothing_behind_a_barrier_is_processed_into_its_snapshot(
        channels in prop::collection::vec(channel(), 1..5),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 400),
    ) {
        let mut alignment = Alignment::new(channels.len());
        let mut next = vec![0; channels.len()];
        let mut ended = vec![false; channels.len()];
        let mut completed = 0;
        for turn in turns {
            let open: Vec<_> = (0..channels.len()).filter(|&c| !ended[c] && !alignment.is_blocked(c)).collect();
            if open.is_empty() {
                break;
            }
            let channel = open[turn.index(open.len())];
            let step = match channels[channel].get(next[channel]) {
                None => {
                    ended[channel] = true;
                    alignment.on_end(channel)
                }
                Some(Item::Record) => None,
                Some(Item::Barrier(id)) => Some(alignment.on_barrier(channel, barrier(*id))),
            };
            next[channel] += 1;
            match step {
                Some(Step::Complete { barrier: complete, .. }) => {
                    prop_assert!(complete.checkpoint.0 > completed, "completed once, in order");
                    completed = complete.checkpoint.0;
                    for (items, &next) in channels.iter().zip(&next) {
                        let behind = items[..next.min(items.len())].iter().rev().find_map(|item| match item {
                            Item::Barrier(id) => Some(*id),
                            Item::Record => None,
                        });
                        if next <= items.len() {
                            // Not ended: the last thing taken is this very barrier.
                            prop_assert!(matches!(items[next - 1], Item::Barrier(id) if id == completed));
                        }
                        prop_assert!(behind.is_none_or(|id| id <= completed));
                    }
                    prop_assert!((0..channels.len()).all(|c| alignment.is_blocked(c)));
                    alignment.unblock();
                }
                Some(Step::Violation(violation)) => prop_assert!(false, "{violation}"),
                Some(Step::Block { .. } | Step::Stale(_)) | None => {}
            }
        }
        // Nothing can be stuck: whatever is still open can be read.
        let open = (0..channels.len()).any(|c| !ended[c] && !alignment.is_blocked(c));
        prop_assert!(open || ended.iter().all(|&e| e));
    }
}
