//! Decides about checkpoints, by the rules in `wasmill_core::checkpoint`.
//!
//! Owns the journal (the decision log as stored) and what is deleted. Does not own subtasks: both sides meet in `control`.

pub mod journal;
pub mod retention;
pub mod run;
pub mod verify;
