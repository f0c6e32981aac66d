//! Keeps the sources of a job together: a split that is too far ahead of the slowest is not read.
//!
//! Owns what the source subtasks know of each other: the least watermark of each, and whom to wake when one moves. Only splits that
//! have something to read are waited for, so the slowest of them is always read and nothing can stand still for good. Barriers
//! are served all the while by each subtask's own loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use wasmill_core::id::SubtaskId;
use wasmill_core::time::Timestamp;

use crate::bell::Bell;

/// A subtask that nobody waits for: idle, ended, or without anything to read.
const NOBODY: i64 = i64::MAX;

/// One source subtask's view of the others.
#[derive(Debug, Clone)]
pub struct Drift {
    group: Arc<Group>,
    own: usize,
}

#[derive(Debug)]
struct Group {
    limit: Duration,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    /// The least watermark of its splits, in milliseconds.
    least: AtomicI64,
    /// Whether it holds a split back and wants to be woken.
    holds: AtomicBool,
    bell: Bell,
}

impl Drift {
    /// A view for each of the source subtasks, which are woken by their bells. A split may be ahead by `limit`.
    #[must_use]
    pub fn among(subtasks: BTreeMap<SubtaskId, Bell>, limit: Duration) -> BTreeMap<SubtaskId, Self> {
        // Until it has said otherwise each is waited for: it may have old records.
        let member = |bell: &Bell| Member {
            least: AtomicI64::new(Timestamp::MIN.as_millis()),
            holds: AtomicBool::new(false),
            bell: bell.clone(),
        };
        let group = Arc::new(Group { limit, members: subtasks.values().map(member).collect() });
        let view = |(own, subtask)| (subtask, Self { group: Arc::clone(&group), own });
        subtasks.into_keys().enumerate().map(view).collect()
    }

    /// The subtask's least watermark is this; `None`: it has nothing that others should wait for.
    pub fn publish(&self, least: Option<Timestamp>) {
        let least = least.map_or(NOBODY, Timestamp::as_millis);
        if self.group.members[self.own].least.swap(least, Ordering::AcqRel) != least {
            let others = self.group.members.iter().enumerate().filter(|(member, _)| *member != self.own);
            for (_, other) in others.filter(|(_, other)| other.holds.load(Ordering::Acquire)) {
                other.bell.ring();
            }
        }
    }

    /// The greatest watermark of a split that may be read now; `None`: any.
    #[must_use]
    pub fn bound(&self) -> Option<Timestamp> {
        let least = self.group.members.iter().map(|member| member.least.load(Ordering::Acquire)).min();
        least.filter(|&least| least != NOBODY).map(|least| Timestamp::from_millis(least).plus(self.group.limit))
    }

    /// Whether the subtask holds a split back: then it is woken when another moves.
    pub fn holds(&self, holds: bool) {
        self.group.members[self.own].holds.store(holds, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmill_core::id::{OperatorUid, SubtaskIndex};

    use super::*;

    fn among(count: u32, limit: Duration) -> (Vec<Bell>, Vec<Drift>) {
        let id = |index| SubtaskId { uid: OperatorUid::new("s").unwrap(), index: SubtaskIndex(index) };
        let bells: BTreeMap<_, _> = (0..count).map(|index| (id(index), Bell::default())).collect();
        (bells.values().cloned().collect(), Drift::among(bells, limit).into_values().collect())
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn one_may_be_ahead_of_the_slowest_by_the_limit_and_no_more() {
        let (_, subtasks) = among(2, Duration::from_millis(100));
        assert_eq!(subtasks[0].bound(), Some(Timestamp::MIN.plus(Duration::from_millis(100))));
        subtasks[0].publish(Some(at(-500)));
        subtasks[1].publish(Some(at(0)));
        assert_eq!(subtasks[1].bound(), Some(at(-400)));
        subtasks[0].publish(Some(at(50)));
        assert_eq!(subtasks[1].bound(), Some(at(100)));
    }

    #[test]
    fn nobody_waits_for_one_without_anything_to_read() {
        let (_, subtasks) = among(2, Duration::from_millis(100));
        subtasks[0].publish(None);
        subtasks[1].publish(Some(at(5_000)));
        assert_eq!(subtasks[1].bound(), Some(at(5_100)));
        subtasks[1].publish(None);
        assert_eq!(subtasks[0].bound(), None);
    }

    #[test]
    fn one_that_holds_back_is_woken_when_another_moves() {
        let (bells, subtasks) = among(2, Duration::from_millis(100));
        subtasks[0].publish(Some(at(0)));
        subtasks[1].publish(Some(at(1_000)));
        subtasks[1].holds(true);
        subtasks[0].publish(Some(at(950)));
        bells[1].wait(Duration::from_secs(3600));
        assert_eq!(subtasks[1].bound(), Some(at(1_050)));
    }

    proptest! {
        /// Whatever the watermarks: somebody may go on.
        #[test]
        fn the_slowest_is_never_held(
            watermarks in prop::collection::vec(prop::option::of(any::<i64>()), 1..6),
            limit in any::<Duration>(),
        ) {
            let (_, subtasks) = among(watermarks.len() as u32, limit);
            for (subtask, watermark) in subtasks.iter().zip(&watermarks) {
                subtask.publish(watermark.map(at));
            }
            let free = subtasks.iter().zip(&watermarks).any(|(subtask, watermark)| {
                watermark.is_none_or(|watermark| subtask.bound().is_none_or(|bound| at(watermark) <= bound))
            });
            prop_assert!(free);
        }
    }
}
