//! Rights to act, as values that only the fence check makes.
//!
//! Owns what must hold before a checkpoint is decided and before outside effects become visible (I6, I7). Does not act.

use super::state::LogState;
use crate::id::{Attempt, CheckpointId};

/// Who says that a checkpoint is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// The decision log.
    Log,
    /// An outside system in which the sink's commit is itself the decision.
    Sink,
}

/// Why there is no permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another attempt has started.
    #[error("attempt {attempt} is over: attempt {newest} has started")]
    Fenced {
        /// Who asked.
        attempt: Attempt,
        /// Who is in charge.
        newest: Attempt,
    },
    /// There is no such checkpoint, or it is retired.
    #[error("checkpoint {0} is not prepared, or was retired")]
    Unknown(CheckpointId),
    /// It cannot be decided twice (I6).
    #[error("checkpoint {0} is decided already")]
    DecidedAlready(CheckpointId),
    /// Its effects must wait (I7).
    #[error("checkpoint {0} is prepared but not decided")]
    NotDecided(CheckpointId),
}

/// The right to write that a checkpoint is decided: it is prepared, not decided, and no higher attempt was seen.
#[derive(Debug)]
pub struct CompletePermit {
    checkpoint: CheckpointId,
    attempt: Attempt,
}

impl CompletePermit {
    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The attempt that may decide it.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }
}

/// The right to make a checkpoint's outside effects visible, and those of all before it. Many sinks hold a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPermit {
    checkpoint: CheckpointId,
    attempt: Attempt,
}

impl CommitPermit {
    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The attempt that commits.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }
}

impl LogState {
    /// The fence check: whether `attempt` may still act.
    ///
    /// # Errors
    /// [`Refused::Fenced`].
    pub fn check_fence(&self, attempt: Attempt) -> Result<(), Refused> {
        let newest = self.in_force().attempt;
        if attempt == newest { Ok(()) } else { Err(Refused::Fenced { attempt, newest }) }
    }

    /// The right of `attempt` to decide `checkpoint`.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn complete_permit(&self, attempt: Attempt, checkpoint: CheckpointId) -> Result<CompletePermit, Refused> {
        self.check_fence(attempt)?;
        match self.checkpoint(checkpoint) {
            None => Err(Refused::Unknown(checkpoint)),
            Some(stored) if stored.decided => Err(Refused::DecidedAlready(checkpoint)),
            Some(_) => Ok(CompletePermit { checkpoint, attempt }),
        }
    }

    /// The right of `attempt` to make the effects of `checkpoint` visible.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn commit_permit(
        &self,
        attempt: Attempt,
        checkpoint: CheckpointId,
        decider: Decider,
    ) -> Result<CommitPermit, Refused> {
        self.check_fence(attempt)?;
        let stored = self.checkpoint(checkpoint).ok_or(Refused::Unknown(checkpoint))?;
        match decider {
            Decider::Log if !stored.decided => Err(Refused::NotDecided(checkpoint)),
            Decider::Log | Decider::Sink => Ok(CommitPermit { checkpoint, attempt }),
        }
    }
}
