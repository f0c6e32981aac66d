//! What an operator is: the functions its author writes and the declaration that the derive makes.
//!
//! Owns the traits between an operator and the SDK. Does not own how they are called: see [`crate::instance`].

use crate::bindings::wasmill::operator::types::{Descriptor, Subtask};
use crate::config;
use crate::context::Context;
use crate::error::Result;
use crate::record::Record;
use crate::state::State;

/// The functions of an operator.
pub trait Process {
    /// Handles one record. What it writes and emits counts when it returns `Ok`; otherwise it is undone.
    ///
    /// Records of one key come in order. What is kept in the operator's fields outside state is a cache only: it is gone
    /// after a trap, a restore, a renewal or a swap, and holds other keys' traces.
    ///
    /// # Errors
    /// [`crate::Error::Reject`] refuses this record, the other kinds fail the call.
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result;

    /// Called once, when the configuration has been read and before the first record: to check it and to prepare.
    ///
    /// # Errors
    /// Any: the job does not start.
    fn start(&mut self, subtask: Subtask) -> Result {
        let _ = subtask;
        Ok(())
    }
}

/// An input or output as declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// By which the pipeline names it.
    pub name: &'static str,
    /// An input that every subtask gets whole.
    pub broadcast: bool,
    /// Whether headers cross.
    pub headers: bool,
}

/// What `#[derive(Operator)]` makes of a struct.
pub trait Operator: Process + Sized {
    /// The outputs, by index.
    const OUTPUTS: &'static [Port];

    /// Name, version, types: everything that the host checks before the first record.
    fn describe() -> Descriptor;

    /// The operator with its configuration.
    ///
    /// # Errors
    /// When a required key is missing or a value is of another type.
    fn build(config: &mut config::Reader) -> Result<Self, config::Error>;

    /// Shows each state in the order of the declaration.
    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State));
}
