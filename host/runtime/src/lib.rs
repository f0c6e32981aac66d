//! wasmill's acting half: reads, calls guests, keeps state, takes checkpoints, as `wasmill-core` decides.
//!
//! Each heavy library is imported by exactly one module; layers and arrows: docs/architecture.md.

pub mod admin;
pub mod bell;
pub mod blob;
pub mod clock;
pub mod config;
pub mod connector;
pub mod control;
pub mod coordinator;
pub mod exchange;
pub mod format;
pub mod guest;
pub mod job;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod spawn;
pub mod state;
pub mod subtask;
pub mod telemetry;
pub mod trial;
