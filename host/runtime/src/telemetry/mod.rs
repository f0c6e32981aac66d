//! What a job tells of itself: counters on the record path, a board for status.
//!
//! Owns what is counted and told. Does not own HTTP or the terminal.

pub mod board;
pub mod meter;

pub use board::{CheckpointReport, Phase, RestoreReport, Snapshot, StatusBoard};
pub use meter::{CacheTally, DropReason, Reading, StateTally, SubtaskMeter};
