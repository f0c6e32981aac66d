//! Alignment: which of a subtask's channels are blocked until a barrier has come through all of them.
//!
//! Owns I3 (nothing behind a barrier is processed into that barrier's snapshot) and what a barrier of another checkpoint
//! means. Does not own the channels, nor the snapshot.
//!
//! The caller asks [`Alignment::is_blocked`] before it takes an element from a channel. On [`Step::Complete`] every channel
//! stays blocked until the caller has frozen the state and says so by [`Alignment::unblock`].
//!
//! **Barriers of several checkpoints.** Ids rise along a channel, but a channel may skip one (its sender aborted it). A
//! higher id than the one being aligned can only come from a channel that will never bring the lower one, so the lower
//! one is given up ([`Step::Block::superseded`]) and its channels go on. A lower id than one already seen elsewhere can no
//! longer be completed here: [`Step::Stale`]. The caller declines both.

use crate::element::Barrier;
use crate::id::CheckpointId;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The channel is blocked; others are waited for.
    Block {
        /// The channel.
        channel: usize,
        /// An older checkpoint whose alignment this barrier ended: decline it. Its channels are free again.
        superseded: Option<CheckpointId>,
    },
    /// All channels have delivered the barrier: freeze the state, forward the barrier, then [`Alignment::unblock`].
    Complete {
        /// The barrier.
        barrier: Barrier,
        /// As in [`Step::Block`].
        superseded: Option<CheckpointId>,
    },
    /// The barrier's checkpoint was passed by a newer one and cannot complete here: decline it. Nothing is blocked.
    Stale(Barrier),
    /// The sender broke the protocol: fail the job.
    Violation(Violation),
}

/// A broken protocol between two subtasks: a bug, never an input's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No such channel.
    #[error("channel {channel} of {channels} does not exist")]
    NoChannel {
        /// The channel.
        channel: usize,
        /// How many there are.
        channels: usize,
    },
    /// An element after the end.
    #[error("channel {channel} delivered the barrier of checkpoint {checkpoint} after its end of input")]
    AfterEnd {
        /// The channel.
        channel: usize,
        /// The barrier's checkpoint.
        checkpoint: CheckpointId,
    },
    /// A channel that was to be left alone was read.
    #[error("channel {channel} was read while it was blocked for checkpoint {checkpoint}")]
    ReadWhileBlocked {
        /// The channel.
        channel: usize,
        /// What it was blocked for.
        checkpoint: CheckpointId,
    },
    /// Ids that fall or repeat.
    #[error("channel {channel} delivered the barrier of checkpoint {checkpoint} after that of {last}")]
    NotRising {
        /// The channel.
        channel: usize,
        /// The barrier's checkpoint.
        checkpoint: CheckpointId,
        /// What came before.
        last: CheckpointId,
    },
    /// Barriers of one checkpoint that disagree.
    #[error(
        "channel {channel} delivered the barrier of checkpoint {checkpoint} with another purpose than the others did"
    )]
    OtherPurpose {
        /// The channel.
        channel: usize,
        /// The barrier's checkpoint.
        checkpoint: CheckpointId,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Channel {
    /// The newest barrier it delivered.
    last: Option<CheckpointId>,
    blocked: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No barrier is waited for.
    Open,
    /// Some channels delivered it.
    Aligning(Barrier),
    /// All delivered it; the state is being frozen.
    Complete(Barrier),
}

/// The alignment of one subtask.
///
/// ```
/// use wasmill_core::align::{Alignment, Step};
/// use wasmill_core::element::{Barrier, Purpose};
/// use wasmill_core::id::CheckpointId;
/// let barrier = Barrier { checkpoint: CheckpointId(1), purpose: Purpose::Periodic };
/// let mut alignment = Alignment::new(2);
/// assert_eq!(alignment.on_barrier(0, barrier), Step::Block { channel: 0, superseded: None });
/// assert!(alignment.is_blocked(0) && !alignment.is_blocked(1));
/// assert_eq!(alignment.on_barrier(1, barrier), Step::Complete { barrier, superseded: None });
/// alignment.unblock();
/// assert!(!alignment.is_blocked(0));
/// ```
#[derive(Debug, Clone)]
pub struct Alignment {
    channels: Vec<Channel>,
    phase: Phase,
    /// The least checkpoint that can still be completed here.
    least: Option<CheckpointId>,
}

impl Alignment {
    /// For `channels` channels, all open.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        Self { channels: vec![Channel::default(); channels], phase: Phase::Open, least: None }
    }

    /// Whether nothing may be taken from `channel` now; true for one that does not exist.
    #[must_use]
    pub fn is_blocked(&self, channel: usize) -> bool {
        match self.phase {
            // While the state is being frozen nothing at all may be processed.
            Phase::Complete(_) => true,
            Phase::Open | Phase::Aligning(_) => self.channels.get(channel).is_none_or(|channel| channel.blocked),
        }
    }

    /// The barrier that some channels have delivered and others have not.
    #[must_use]
    pub fn aligning(&self) -> Option<Barrier> {
        match self.phase {
            Phase::Aligning(barrier) => Some(barrier),
            Phase::Open | Phase::Complete(_) => None,
        }
    }

    /// Whether every channel has ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.channels.iter().all(|channel| channel.ended)
    }

    /// `channel` delivered `barrier`.
    pub fn on_barrier(&mut self, channel: usize, barrier: Barrier) -> Step {
        if let Err(violation) = self.check(channel, barrier) {
            return Step::Violation(violation);
        }
        self.channels[channel].last = Some(barrier.checkpoint);
        // `<`: the least itself is the one being aligned.
        if self.least.is_some_and(|least| barrier.checkpoint < least) {
            return Step::Stale(barrier);
        }
        let superseded = match self.phase {
            Phase::Aligning(current) if current.checkpoint != barrier.checkpoint => {
                self.free_all();
                Some(current.checkpoint)
            }
            _ => None,
        };
        self.least = Some(barrier.checkpoint);
        self.phase = Phase::Aligning(barrier);
        self.channels[channel].blocked = true;
        if self.complete() { Step::Complete { barrier, superseded } } else { Step::Block { channel, superseded } }
    }

    /// `channel` has ended: it counts as having delivered every barrier to come. Says so if that completes an alignment.
    pub fn on_end(&mut self, channel: usize) -> Option<Step> {
        let count = self.channels.len();
        let Some(state) = self.channels.get_mut(channel) else {
            return Some(Step::Violation(Violation::NoChannel { channel, channels: count }));
        };
        if let (true, Phase::Aligning(barrier) | Phase::Complete(barrier)) = (state.blocked, self.phase) {
            let checkpoint = barrier.checkpoint;
            return Some(Step::Violation(Violation::ReadWhileBlocked { channel, checkpoint }));
        }
        state.ended = true;
        let Phase::Aligning(barrier) = self.phase else { return None };
        self.complete().then_some(Step::Complete { barrier, superseded: None })
    }

    /// The state is frozen and the barrier forwarded: all channels may be read again.
    pub fn unblock(&mut self) {
        self.free_all();
    }

    /// The coordinator gave `checkpoint` up: if it is being aligned, its channels may be read again.
    pub fn abort(&mut self, checkpoint: CheckpointId) {
        if matches!(self.phase, Phase::Aligning(barrier) if barrier.checkpoint == checkpoint) {
            self.free_all();
            // Its barriers that are still under way are stale: nothing may begin to align for it again.
            self.least = self.least.max(Some(CheckpointId(checkpoint.0.saturating_add(1))));
        }
    }

    fn check(&self, channel: usize, barrier: Barrier) -> Result<(), Violation> {
        let checkpoint = barrier.checkpoint;
        let Some(state) = self.channels.get(channel) else {
            return Err(Violation::NoChannel { channel, channels: self.channels.len() });
        };
        if state.ended {
            return Err(Violation::AfterEnd { channel, checkpoint });
        }
        match self.phase {
            Phase::Aligning(current) if state.blocked => {
                return Err(Violation::ReadWhileBlocked { channel, checkpoint: current.checkpoint });
            }
            Phase::Complete(current) => {
                return Err(Violation::ReadWhileBlocked { channel, checkpoint: current.checkpoint });
            }
            Phase::Aligning(Barrier { checkpoint: current, purpose }) if current == checkpoint => {
                if purpose != barrier.purpose {
                    return Err(Violation::OtherPurpose { channel, checkpoint });
                }
            }
            Phase::Open | Phase::Aligning(_) => {}
        }
        match state.last {
            // `<=`: a channel delivers each barrier once.
            Some(last) if checkpoint <= last => Err(Violation::NotRising { channel, checkpoint, last }),
            _ => Ok(()),
        }
    }

    /// Ends the alignment if every channel has delivered its barrier or ended.
    fn complete(&mut self) -> bool {
        let all = self.channels.iter().all(|channel| channel.blocked || channel.ended);
        if let (true, Phase::Aligning(barrier)) = (all, self.phase) {
            self.phase = Phase::Complete(barrier);
        }
        all
    }

    fn free_all(&mut self) {
        self.phase = Phase::Open;
        self.channels.iter_mut().for_each(|channel| channel.blocked = false);
    }
}

#[cfg(test)]
mod tests;
