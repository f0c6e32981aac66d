//! What flows on a channel between two subtasks.
//!
//! Owns the kinds of element. Does not own the channel or who may read it when.

use serde::{Deserialize, Serialize};

use crate::id::CheckpointId;
use crate::record::RecordBatch;

/// One element of a channel, in order.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every element is a batch: a box would be one more allocation for each"
)]
pub enum Element {
    /// Records with the watermarks between them.
    Records(RecordBatch),
    /// What came before belongs to the checkpoint, what follows does not (I3).
    Barrier(Barrier),
    /// The sender expects nothing for a while; its watermark does not hold others back until it sends again.
    Idle,
    /// After [`Element::Idle`]: the sender's watermark counts again.
    Active,
}

/// The mark that cuts a stream into checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// Whether records follow it.
    pub purpose: Purpose,
}

/// Why a checkpoint is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The job goes on.
    Periodic,
    /// The job stops after it; no record follows the barrier.
    Stop,
}
