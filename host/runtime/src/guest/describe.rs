//! What a component says of itself, asked once when it is loaded.
//!
//! Owns the scratch instance in which `describe` runs, with limits of its own and no state. Does not own the declaration's rules.

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::contract::OperatorContract;

use super::bindings::OperatorPre;
use super::contract::operator_contract;
use super::diagnostics::{Channel, Diagnostics};
use super::engine::Engine;
use super::instance::{Bare, Calling, Data};
use super::limits::Limits;
use super::load::Error;

/// A description is small and made without work; interpreted languages need their start-up time and memory.
fn limits() -> Limits {
    Limits { memory: 256 << 20, call_time: Duration::from_secs(10), result_bytes: 64 << 20, ..Limits::default() }
}

/// Asks a component for its declaration.
///
/// # Errors
/// A trap, a limit, or a declaration that breaks a rule.
pub(super) fn describe(
    engine: &Engine,
    pre: &OperatorPre<Data>,
    channel: &Arc<Channel>,
) -> Result<OperatorContract, Error> {
    let diagnostics = Diagnostics::new(Arc::clone(channel), "", ("describe", 0), limits().log_lines);
    let mut instance =
        Bare::start(engine, pre, &limits(), diagnostics, None).map_err(|error| Error::Describe(Box::new(error)))?;
    let descriptor = instance
        .call("describe", Calling::Nothing, |exports, store| exports.call_describe(store))
        .map_err(|error| Error::Describe(Box::new(error)))?;
    Ok(operator_contract(descriptor)?)
}
