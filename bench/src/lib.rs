//! What the benchmarks share: a subtask driven by hand, figures, and an operator compiled into the host.
//!
//! Owns no measurement: each benchmark is a binary of its own.

pub mod drive;
pub mod figure;
pub mod native;
pub mod rocks;
