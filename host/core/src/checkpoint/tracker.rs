//! From acknowledgements to a complete checkpoint, exactly once (I6).
//!
//! Owns which checkpoints are in progress, whose answer is missing and when it is too late. Does not own what a snapshot holds,
//! nor the decision.
//!
//! Checkpoints complete in the order of their ids: one whose last answer comes early waits until those before it are complete
//! or given up, so that sinks can commit strictly in order. Whatever answer comes after that is ignored, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::id::{CheckpointId, SubtaskId};

/// The answer to a wish for a new checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Send its barriers.
    Started,
    /// As many as allowed are in progress.
    Busy,
    /// Its id does not rise: a bug of the caller's.
    NotRising,
}

/// Why an answer changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The checkpoint is complete, given up or was never triggered.
    NotInProgress,
    /// No such subtask.
    UnknownSubtask,
    /// The subtask has answered before.
    Repeated,
}

/// Why a checkpoint was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A subtask could not take its snapshot.
    Declined {
        /// Who.
        subtask: SubtaskId,
        /// Why.
        reason: String,
    },
    /// Not all had answered in time.
    TimedOut {
        /// Whose answer was missing.
        missing: Vec<SubtaskId>,
    },
    /// The caller's wish.
    Aborted(String),
}

/// A checkpoint that is over without being complete: tell every subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Why.
    pub reason: Reason,
}

/// All answers of a checkpoint. Given out once; there is no other way to get one.
#[derive(Debug, PartialEq, Eq)]
pub struct Complete<A> {
    checkpoint: CheckpointId,
    triggered: Duration,
    acknowledgements: BTreeMap<SubtaskId, A>,
}

impl<A> Complete<A> {
    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// When it was triggered, as given to [`Tracker::trigger`].
    #[must_use]
    pub fn triggered(&self) -> Duration {
        self.triggered
    }

    /// The answers, by subtask.
    #[must_use]
    pub fn into_acknowledgements(self) -> BTreeMap<SubtaskId, A> {
        self.acknowledgements
    }
}

/// What an answer led to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<A> {
    /// Nothing, for this reason.
    Ignored(Ignored),
    /// What is complete now, in order, and what is given up. Both may be empty.
    Progress {
        /// Complete, by id.
        complete: Vec<Complete<A>>,
        /// Given up, by id.
        given_up: Vec<GivenUp>,
    },
}

#[derive(Debug)]
struct InProgress<A> {
    triggered: Duration,
    missing: BTreeSet<SubtaskId>,
    acknowledgements: BTreeMap<SubtaskId, A>,
}

/// Tracks the checkpoints in progress of one attempt. `A` is what a subtask answers with.
///
/// ```
/// use std::{num::NonZeroUsize, time::Duration};
/// use wasmill_core::checkpoint::tracker::{Outcome, Tracker, Trigger};
/// use wasmill_core::id::{CheckpointId, OperatorUid, SubtaskId, SubtaskIndex};
/// let subtask = SubtaskId { uid: OperatorUid::new("count")?, index: SubtaskIndex(0) };
/// let mut tracker = Tracker::new([subtask.clone()], NonZeroUsize::MIN, Duration::from_secs(600));
/// assert_eq!(tracker.trigger(CheckpointId(1), Duration::ZERO), Trigger::Started);
/// let Outcome::Progress { complete, .. } = tracker.acknowledge(CheckpointId(1), subtask, "files") else { panic!() };
/// assert_eq!(complete[0].checkpoint(), CheckpointId(1));
/// # Ok::<(), wasmill_core::id::NameError>(())
/// ```
#[derive(Debug)]
pub struct Tracker<A> {
    subtasks: BTreeSet<SubtaskId>,
    most: NonZeroUsize,
    timeout: Duration,
    in_progress: BTreeMap<CheckpointId, InProgress<A>>,
    newest: Option<CheckpointId>,
}

impl<A> Tracker<A> {
    /// For these subtasks, with at most `most` checkpoints in progress, each given up `timeout` after its trigger.
    #[must_use]
    pub fn new(subtasks: impl IntoIterator<Item = SubtaskId>, most: NonZeroUsize, timeout: Duration) -> Self {
        let subtasks = subtasks.into_iter().collect();
        Self { subtasks, most, timeout, in_progress: BTreeMap::new(), newest: None }
    }

    /// A new checkpoint is wanted; `now` is monotonic time.
    pub fn trigger(&mut self, checkpoint: CheckpointId, now: Duration) -> Trigger {
        if self.newest.is_some_and(|newest| checkpoint <= newest) {
            return Trigger::NotRising;
        }
        if self.in_progress.len() >= self.most.get() {
            return Trigger::Busy;
        }
        self.newest = Some(checkpoint);
        let missing = self.subtasks.clone();
        self.in_progress.insert(checkpoint, InProgress { triggered: now, missing, acknowledgements: BTreeMap::new() });
        Trigger::Started
    }

    /// Whether a new checkpoint may be triggered.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.in_progress.len() < self.most.get()
    }

    /// The oldest checkpoint in progress: what it may refer to must not be deleted yet.
    #[must_use]
    pub fn oldest(&self) -> Option<CheckpointId> {
        self.in_progress.keys().next().copied()
    }

    /// The checkpoints in progress, each with the subtasks whose answer is missing.
    pub fn in_progress(&self) -> impl Iterator<Item = (CheckpointId, &BTreeSet<SubtaskId>)> {
        self.in_progress.iter().map(|(&id, progress)| (id, &progress.missing))
    }

    /// The time at which [`Tracker::expire`] will next give something up.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.in_progress.values().map(|progress| progress.triggered.saturating_add(self.timeout)).min()
    }

    /// `subtask` has stored its snapshot of `checkpoint`.
    pub fn acknowledge(&mut self, checkpoint: CheckpointId, subtask: SubtaskId, answer: A) -> Outcome<A> {
        let Some(progress) = self.in_progress.get_mut(&checkpoint) else {
            return Outcome::Ignored(Ignored::NotInProgress);
        };
        if !self.subtasks.contains(&subtask) {
            return Outcome::Ignored(Ignored::UnknownSubtask);
        }
        if !progress.missing.remove(&subtask) {
            return Outcome::Ignored(Ignored::Repeated);
        }
        progress.acknowledgements.insert(subtask, answer);
        Outcome::Progress { complete: self.take_complete(), given_up: Vec::new() }
    }

    /// `subtask` could not take its snapshot.
    pub fn decline(&mut self, checkpoint: CheckpointId, subtask: SubtaskId, reason: String) -> Outcome<A> {
        if !self.in_progress.contains_key(&checkpoint) {
            return Outcome::Ignored(Ignored::NotInProgress);
        }
        if !self.subtasks.contains(&subtask) {
            return Outcome::Ignored(Ignored::UnknownSubtask);
        }
        self.give_up(checkpoint, Reason::Declined { subtask, reason })
    }

    /// The caller gives `checkpoint` up.
    pub fn abort(&mut self, checkpoint: CheckpointId, why: String) -> Outcome<A> {
        if self.in_progress.contains_key(&checkpoint) {
            self.give_up(checkpoint, Reason::Aborted(why))
        } else {
            Outcome::Ignored(Ignored::NotInProgress)
        }
    }

    /// Gives up what took too long; `now` is monotonic time.
    pub fn expire(&mut self, now: Duration) -> Outcome<A> {
        // `>=`: at the deadline it is too late.
        let late = |progress: &InProgress<A>| now >= progress.triggered.saturating_add(self.timeout);
        // What only waits for its turn has all its answers, and is not late.
        let expired: Vec<_> = self
            .in_progress
            .iter()
            .filter(|(_, progress)| !progress.missing.is_empty() && late(progress))
            .map(|(&id, _)| id)
            .collect();
        let mut given_up = Vec::with_capacity(expired.len());
        for checkpoint in expired {
            if let Some(progress) = self.in_progress.remove(&checkpoint) {
                let missing = progress.missing.into_iter().collect();
                given_up.push(GivenUp { checkpoint, reason: Reason::TimedOut { missing } });
            }
        }
        Outcome::Progress { complete: self.take_complete(), given_up }
    }

    fn give_up(&mut self, checkpoint: CheckpointId, reason: Reason) -> Outcome<A> {
        self.in_progress.remove(&checkpoint);
        Outcome::Progress { complete: self.take_complete(), given_up: vec![GivenUp { checkpoint, reason }] }
    }

    /// Removes and returns what is complete and has nothing older before it.
    fn take_complete(&mut self) -> Vec<Complete<A>> {
        let mut complete = Vec::new();
        while let Some(first) = self.in_progress.first_entry() {
            if !first.get().missing.is_empty() {
                break;
            }
            let (checkpoint, InProgress { triggered, acknowledgements, .. }) = first.remove_entry();
            complete.push(Complete { checkpoint, triggered, acknowledgements });
        }
        complete
    }
}

#[cfg(test)]
mod tests;
