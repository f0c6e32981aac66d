//! What the benchmarks share: figures, and an operator compiled into the host.
//!
//! Owns no measurement: each benchmark is a binary of its own.

pub mod figure;
pub mod native;
