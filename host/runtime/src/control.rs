//! What a coordinator and the subtasks say to each other. They meet nowhere else.
//!
//! Owns the messages and a subtask's mailbox. Does not own what either side does with them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmill_core::checkpoint::manifest::Part;
use wasmill_core::element::Barrier;
use wasmill_core::fault::Fault;
use wasmill_core::id::{CheckpointId, SubtaskId};

use crate::bell::Bell;

/// From the coordinator to a subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// To a source: send this barrier now.
    Trigger(Barrier),
    /// The checkpoint is decided: what was prepared for it may become visible.
    Decided(CheckpointId),
    /// The checkpoint will never be decided; what belongs to it comes with a later one.
    GivenUp(CheckpointId),
    /// End now; nothing more is expected.
    Finish,
}

/// From a subtask to the coordinator.
#[derive(Debug)]
pub enum Report {
    /// The source has read all its input and serves only barriers from here on.
    Exhausted(SubtaskId),
    /// The subtask's share of the checkpoint is durable.
    Acknowledged {
        /// Who.
        subtask: SubtaskId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The share, with what it cost.
        part: Box<Part>,
    },
    /// The checkpoint cannot complete at this subtask.
    Declined {
        /// Who.
        subtask: SubtaskId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// The subtask failed; the attempt is over.
    Failed {
        /// Who.
        subtask: SubtaskId,
        /// Why.
        fault: Fault,
    },
    /// The subtask ended after [`Command::Finish`] or the last barrier.
    Finished(SubtaskId),
}

/// Where reports go.
pub type Reports = mpsc::UnboundedSender<Report>;

/// A subtask's mailbox. A cheap clone is the same mailbox.
#[derive(Debug, Clone, Default)]
pub struct Mailbox {
    commands: Arc<Mutex<VecDeque<Command>>>,
    bell: Bell,
}

impl Mailbox {
    /// Puts the command in and wakes the subtask.
    pub fn send(&self, command: Command) {
        self.commands.lock().push_back(command);
        self.bell.ring();
    }

    /// The oldest command.
    #[must_use]
    pub fn take(&self) -> Option<Command> {
        self.commands.lock().pop_front()
    }

    /// The bell that wakes the subtask, for its channels to ring too.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}
