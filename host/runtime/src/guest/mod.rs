//! Operators as WebAssembly components: loads them, calls them, holds them to their limits.
//!
//! The sole importer of wasmtime and wit-component. Owns the seam ([`GuestFactory`], [`Guest`], [`StateAccess`]) against which
//! a subtask is written. Does not own state, channels, the policy for a failed call, or the pieces into which a failed batch is
//! split: those are the subtask's.
//!
//! A component goes `bytes -> [load] -> Component -> instantiate -> Guest -> process / fire -> Effects` (checked by
//! [`effects`]). Any failed call leaves the instance dead; a new one costs 0.01 to 0.7 ms.

mod bindings;
mod compile_cache;
pub mod contract;
mod describe;
mod diagnostics;
pub mod effects;
mod engine;
mod grants;
mod imports;
mod instance;
pub mod limits;
mod load;
pub mod packed;
mod parse;
#[cfg(test)]
mod tests;
mod trap;
mod wasi;

use std::sync::Arc;

use parking_lot::Mutex;
pub use wasmill_core::contract::ConfigError;
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::id::{Attempt, OperatorUid, Parallelism, SubtaskIndex};
use wasmill_core::record;
use wasmill_core::timer::KeyTimer;

pub use self::contract::WIT;
use self::contract::{Batch, Eager, Effects, Firing, Now};
pub use self::engine::{Engine, EngineOptions};
pub use self::grants::{Access, Grants};
pub use self::limits::Limits;
pub use self::load::{Component, Error, Import};
pub use self::trap::{CallError, Crash};
use crate::state::{Page, Range};

/// Bytes of values that one import answers with at most.
const ANSWER_BYTES: usize = 64 << 20;

/// Makes the instances of one operator: a component's, or in a bench the same operator compiled into the host.
pub trait GuestFactory: Send + Sync {
    /// What the operator declares.
    fn contract(&self) -> &OperatorContract;

    /// SHA-256 of the component's file, in hex.
    fn digest(&self) -> &str;

    /// Makes an instance and configures it.
    ///
    /// # Errors
    /// As a call's: a trap, a limit, or a fault that `configure` answered with.
    fn instantiate(&self, options: &InstanceOptions, state: SharedState) -> Result<Box<dyn Guest>, CallError>;
}

/// Where an instance stands and what it may use.
#[derive(Debug, Clone)]
pub struct InstanceOptions {
    /// The operator's uid in the pipeline.
    pub uid: OperatorUid,
    /// Which subtask it is.
    pub subtask: SubtaskIndex,
    /// Of how many.
    pub parallelism: Parallelism,
    /// Of which attempt.
    pub attempt: Attempt,
    /// The pipeline's `config` table as a JSON object; checked by [`OperatorContract::check_config`] before.
    pub config: String,
    /// What the instance may use.
    pub limits: Limits,
}

/// An instance of an operator. After any error it is dead, and every further call is [`CallError::Dead`].
pub trait Guest: Send {
    /// Processes a batch of `input`. The effects are checked against the batch, the declaration and the limits.
    /// `eager` holds the values of each state that rides with the input, one entry a state.
    ///
    /// # Errors
    /// See [`CallError`]; nothing of the call may then be applied.
    fn process(&mut self, input: u16, now: Now, batch: &Batch, eager: &[Eager]) -> Result<Effects, CallError>;

    /// Fires due timers. The effects are checked as those of [`Guest::process`].
    ///
    /// # Errors
    /// See [`CallError`]; nothing of the call may then be applied.
    fn fire(&mut self, now: Now, timers: &Firing, eager: &[Eager]) -> Result<Effects, CallError>;

    /// How many of its log lines were left out since it was asked last.
    fn take_log_lines_dropped(&mut self) -> u64 {
        0
    }

    /// Bytes of linear memory that the instance holds: past a mark of its own choice, the subtask renews the instance.
    fn memory_bytes(&self) -> u64;
}

/// The state of one subtask as its guest sees it. It is locked for each import alone: whoever holds it must not be calling
/// the guest.
pub type SharedState = Arc<Mutex<dyn StateAccess>>;

/// Answers a guest's state imports during a call. Before it is asked, the state is known to be declared, of a fitting kind and
/// not riding along, the origin to be of the call, a map key or value to be within its limit, and broadcast state to be written
/// on behalf of a broadcast input's records only.
///
/// `origin` is the record or timer of the current call on whose behalf the guest acts; it stands for its key.
pub trait StateAccess: Send {
    /// The value of the origin's key; `None` where there is none.
    ///
    /// # Errors
    /// See [`StateError`].
    fn value_get(&mut self, state: u16, origin: u32) -> Result<Option<Vec<u8>>, StateError>;

    /// Replaces the value of the origin's key.
    ///
    /// # Errors
    /// See [`StateError`].
    fn value_set(&mut self, state: u16, origin: u32, value: Vec<u8>) -> Result<(), StateError>;

    /// Removes the value of the origin's key.
    ///
    /// # Errors
    /// See [`StateError`].
    fn value_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError>;

    /// The values of many origins' keys, one an origin.
    ///
    /// # Errors
    /// See [`StateError`].
    fn value_get_many(&mut self, state: u16, origins: &[u32]) -> Result<record::OptionalColumn, StateError> {
        let mut values = record::OptionalColumn::default();
        for &origin in origins {
            values.push(self.value_get(state, origin)?.as_deref());
            check_answer(&values)?;
        }
        Ok(values)
    }

    /// The value under a map key; `None` where there is none.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_get(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<Option<Vec<u8>>, StateError>;

    /// Puts a value under a map key.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_put(&mut self, state: u16, origin: u32, name: &[u8], value: &[u8]) -> Result<(), StateError>;

    /// Removes what is under a map key, if there is anything.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_remove(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<(), StateError>;

    /// Removes all entries of the origin's map.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError>;

    /// The values under many origins' map keys, one for each of `wanted`.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_get_many(&mut self, state: u16, wanted: &[(u32, &[u8])]) -> Result<record::OptionalColumn, StateError> {
        let mut values = record::OptionalColumn::default();
        for &(origin, name) in wanted {
            values.push(self.map_get(state, origin, name)?.as_deref());
            check_answer(&values)?;
        }
        Ok(values)
    }

    /// The first entries of the origin's map within a range: at most `limit`, fewer where they are large.
    ///
    /// # Errors
    /// See [`StateError`].
    fn map_page(&mut self, state: u16, origin: u32, range: Range<'_>, limit: u32) -> Result<Page, StateError>;

    /// Appends to the origin's list.
    ///
    /// # Errors
    /// See [`StateError`].
    fn list_append(
        &mut self,
        state: u16,
        origin: u32,
        values: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), StateError>;

    /// How many elements the origin's list has.
    ///
    /// # Errors
    /// See [`StateError`].
    fn list_length(&mut self, state: u16, origin: u32) -> Result<u64, StateError>;

    /// Elements of the origin's list from `start` on: at most `limit`, fewer where they are large; none past the end only.
    ///
    /// # Errors
    /// See [`StateError`].
    fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Result<record::Column, StateError>;

    /// Removes all elements of the origin's list.
    ///
    /// # Errors
    /// See [`StateError`].
    fn list_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError>;

    /// The timers that the origin's key had before this call, behind `after` in the order of domain, time and tag: at most
    /// `limit`, and fewer only where there are no more. Timers of the call's own round have fired: they are not among them.
    ///
    /// # Errors
    /// See [`StateError`].
    fn timers_page(&mut self, origin: u32, after: Option<KeyTimer>, limit: usize) -> Result<Vec<KeyTimer>, StateError>;

    /// The value under a map key of broadcast state; `None` where there is none.
    ///
    /// # Errors
    /// See [`StateError`].
    fn broadcast_get(&mut self, state: u16, name: &[u8]) -> Result<Option<Vec<u8>>, StateError>;

    /// Puts a value under a map key of broadcast state.
    ///
    /// # Errors
    /// See [`StateError`].
    fn broadcast_put(&mut self, state: u16, name: &[u8], value: &[u8]) -> Result<(), StateError>;

    /// Removes what is under a map key of broadcast state, if there is anything.
    ///
    /// # Errors
    /// See [`StateError`].
    fn broadcast_remove(&mut self, state: u16, name: &[u8]) -> Result<(), StateError>;

    /// The first entries of broadcast state within a range: at most `limit`, fewer where they are large.
    ///
    /// # Errors
    /// See [`StateError`].
    fn broadcast_page(&mut self, state: u16, range: Range<'_>, limit: u32) -> Result<Page, StateError>;

    /// Elements of operator state from `start` on: at most `limit`, fewer where they are large; none past the end only.
    ///
    /// # Errors
    /// See [`StateError`].
    fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Result<record::Column, StateError>;

    /// Puts these elements in the place of the subtask's own.
    ///
    /// # Errors
    /// See [`StateError`].
    fn operator_replace(&mut self, state: u16, values: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError>;

    /// A mark to roll back to, of this call.
    fn mark(&mut self) -> u32;

    /// Undoes what this call wrote through the imports since the mark.
    ///
    /// # Errors
    /// A mark that was not given in this call, or that was rolled back before.
    fn rollback(&mut self, mark: u32) -> Result<(), StateError>;
}

/// Whether an import may answer with so many values: a guest may ask for one value a million times.
pub(crate) fn check_answer(values: &record::OptionalColumn) -> Result<(), StateError> {
    if values.values().bytes().len() <= ANSWER_BYTES {
        return Ok(());
    }
    Err(StateError::Misuse(format!(
        "the values asked for have more than {} MiB: ask for fewer at once",
        ANSWER_BYTES >> 20
    )))
}

/// Why an import failed; it ends the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The guest asked for what it may not have: it traps with this message.
    #[error("{0}")]
    Misuse(String),
    /// The host could not answer: [`CallError::Host`], not the guest's fault.
    #[error("{0}")]
    Failed(Fault),
}
