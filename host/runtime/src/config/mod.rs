//! The pipeline file: what a user declares, read and checked before anything runs.
//!
//! Owns the file's keys, their defaults, limits and documentation. Does not own what connectors and components do with them.

mod bind;
mod check;
mod de;
pub mod docs;
mod document;
mod error;
mod grants;
pub mod input;
pub mod late;
mod node;
pub mod operator;
mod pipeline;
pub mod sink;
pub mod source;
mod store;
mod substitute;
pub mod table;
pub mod unit;
pub mod watermark;

#[cfg(test)]
mod tests;

pub(crate) use error::nearest;
pub use error::{Error, Place};
pub use grants::{Grant, Wasi};
pub use pipeline::{OperatorNode, Pipeline, SinkNode, SourceNode};
pub use substitute::{Environment, Secret, Secrets};
