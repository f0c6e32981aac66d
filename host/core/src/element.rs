//! What flows on a channel between two subtasks.
//!
//! Owns the kinds of element. Does not own the channel or who may read it when.

use serde::{Deserialize, Serialize};

use crate::id::CheckpointId;
use crate::record::RecordBatch;
use crate::time::Timestamp;

/// One element of a channel, in order.
#[derive(Debug, Clone)]
pub enum Element {
    /// Records with the watermarks between them.
    Records(RecordBatch),
    /// Records of a broadcast input, from the operator's merging subtask.
    Merged {
        /// The index of the operator's input.
        input: u16,
        /// The times that are the same on all subtasks.
        stamp: Stamp,
        /// The records; between them stand the watermarks of all broadcast inputs together.
        records: RecordBatch,
    },
    /// What came before belongs to the checkpoint, what follows does not (I3).
    Barrier(Barrier),
    /// The sender expects nothing for a while; its watermark does not hold others back until it sends again.
    Idle,
    /// After [`Element::Idle`]: the sender's watermark counts again.
    Active,
}

/// What the merging subtask says of records, to all subtasks alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// By which of the operator's merged edges they came, counted from 0.
    pub edge: u16,
    /// The watermark of all broadcast inputs together, in force for the first of the records.
    pub watermark: Timestamp,
    /// When they were merged.
    pub processing_time: Timestamp,
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
