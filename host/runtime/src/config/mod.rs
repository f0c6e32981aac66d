//! The pipeline file: what a user declares, read and checked before anything runs.
//!
//! Owns the file's keys, their defaults, limits and documentation. Does not own what connectors and components do with them.

pub mod sink;
pub mod source;
pub mod unit;
