//! What an operator is: the functions its author writes and the declaration that the derive makes.
//!
//! Owns the traits between an operator and the SDK. Does not own how they are called: see [`crate::instance`].

use crate::bindings::wasmill::operator::types::{Descriptor, Subtask};
use crate::config;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::record::{Cursor, Record, Records};
use crate::state::State;
use crate::timer::{Timer, TimerUse};

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

    /// Called before the first record of a batch, to look up in few calls what its records will ask for:
    /// [`crate::Map::prefetch`]. What it leaves out is looked up one by one; a record that it cannot read is refused in its turn.
    ///
    /// # Errors
    /// Any: the call fails.
    #[inline]
    fn look_ahead(&mut self, batch: &mut Ahead<'_, '_>) -> Result {
        let _ = batch;
        Ok(())
    }

    /// Called once, when the configuration has been read and before the first record: to check it and to prepare.
    ///
    /// # Errors
    /// Any: the job does not start.
    fn start(&mut self, subtask: Subtask) -> Result {
        let _ = subtask;
        Ok(())
    }
}

/// What an operator does when a timer fires; declared with `#[operator(timers)]`.
pub trait OnTimer: Process {
    /// Handles one timer, on behalf of its key, with all that [`Process::process`] may do. A key's timers fire in order of time and
    /// tag.
    ///
    /// # Errors
    /// As [`Process::process`]; a rejected timer is gone.
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result;
}

/// The records of a batch before they are handled one by one.
pub struct Ahead<'c, 'a> {
    pub(crate) records: &'c Records<'c>,
    pub(crate) input: u16,
    pub(crate) ctx: &'c mut Context<'a>,
}

impl<'c> Ahead<'c, '_> {
    /// The records in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'c>> + use<'c> {
        let (records, input) = (self.records, self.input);
        let mut cursor = Cursor::default();
        (0..records.len()).map(move |index| records.next(&mut cursor, index, input).0)
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
    /// The inputs, by index.
    const INPUTS: &'static [Port];

    /// Whether it sets or lists timers.
    const TIMERS: TimerUse = TimerUse::None;

    /// The outputs, by index.
    const OUTPUTS: &'static [Port];

    /// Name, version, types: everything that the host checks before the first record.
    fn describe() -> Descriptor;

    /// The operator with its configuration.
    ///
    /// # Errors
    /// When a required key is missing or a value is of another type.
    fn build(config: &mut config::Reader) -> Result<Self, config::Error>;

    /// What it does when a timer fires.
    ///
    /// # Errors
    /// What [`OnTimer::fire`] says; fatal where there are no timers.
    fn on_timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let _ = (timer, ctx);
        Err(Error::fatal(
            "the operator sets no timers, and one fired; write #[operator(timers)] and implement `OnTimer`",
        ))
    }

    /// Shows each state in the order of the declaration.
    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State));
}
