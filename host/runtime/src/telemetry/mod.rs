//! What a job tells of itself: counters on the record path, a board for status, metrics.
//!
//! Owns what is counted and told. Does not own HTTP or the terminal.

pub mod board;
pub mod docs;
pub mod meter;
pub mod metric;
mod recorder;
pub mod status;

pub use board::{CheckpointReport, Phase, RestoreReport, Restoring, Snapshot, StatusBoard};
pub use meter::{CacheTally, DropReason, Reading, Renewal, Role, SlowestSplit, StateTally, SubtaskMeter};
pub use recorder::Recorder;
pub use status::{JobStatus, Monitor};
