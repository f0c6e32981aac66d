//! What guests may import: state that does not ride along, and diagnostics.
//!
//! Owns which imports are answered and the checks that need only the declaration and the call. Does not own the state
//! ([`StateAccess`] answers) nor what is said ([`super::diagnostics`]).

mod collections;
#[cfg(test)]
mod tests;
mod timed;
mod timers;
mod unkeyed;

use parking_lot::MutexGuard;
use wasmill_core::contract::{StateContract, StateKind};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::record;
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker};

use super::bindings::Operator;
use super::bindings::wasmill::operator::state::{Bounds, Page, Timers};
use super::bindings::wasmill::operator::{diagnostics, state, types};
use super::contract::{Column, OptionalColumn};
use super::instance::{Access, Calling, Data};
use super::{StateAccess, StateError, packed};

/// Gives the linker the imports.
pub(super) fn add_to(linker: &mut Linker<Data>) -> Result<()> {
    Operator::add_to_linker::<Data, HasSelf<Data>>(linker, |data| data)
}

impl types::Host for Data {}

impl diagnostics::Host for Data {
    fn log(&mut self, level: diagnostics::Level, message: String) -> Result<()> {
        self.diagnostics.log(level, &message);
        Ok(())
    }

    fn counter_add(&mut self, name: String, delta: u64) -> Result<()> {
        self.diagnostics.counter_add(&name, delta);
        Ok(())
    }

    fn gauge_set(&mut self, name: String, value: f64) -> Result<()> {
        self.diagnostics.gauge_set(&name, value);
        Ok(())
    }

    fn histogram_record(&mut self, name: String, value: f64) -> Result<()> {
        self.diagnostics.histogram_record(&name, value);
        Ok(())
    }
}

impl state::Host for Data {
    fn value_get(&mut self, state: u16, origin: u32) -> Result<Option<Vec<u8>>> {
        self.check_origin("value-get", origin)?;
        Ok(self.value_state("value-get", state)?.value_get(state, origin)?)
    }

    fn value_set(&mut self, state: u16, origin: u32, value: Vec<u8>) -> Result<()> {
        self.check_origin("value-set", origin)?;
        self.check_value("value-set", &value)?;
        Ok(self.value_state("value-set", state)?.value_set(state, origin, value)?)
    }

    fn value_clear(&mut self, state: u16, origin: u32) -> Result<()> {
        self.check_origin("value-clear", origin)?;
        Ok(self.value_state("value-clear", state)?.value_clear(state, origin)?)
    }

    fn value_get_many(&mut self, state: u16, origins: Vec<u8>) -> Result<OptionalColumn> {
        let origins = self.origins("value-get-many", &origins)?;
        let mut access = self.value_state("value-get-many", state)?;
        let values = self.ask(&origins, |some| access.value_get_many(state, some))?;
        Ok(optional_column(&values))
    }

    fn mark(&mut self) -> Result<u32> {
        Ok(self.access("mark")?.mark())
    }

    fn rollback(&mut self, mark: u32) -> Result<()> {
        Ok(self.access("rollback")?.rollback(mark)?)
    }

    fn map_get(&mut self, state: u16, origin: u32, key: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.get_entry(state, origin, &key)
    }

    fn map_put(&mut self, state: u16, origin: u32, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.put_entry(state, origin, &key, &value)
    }

    fn map_remove(&mut self, state: u16, origin: u32, key: Vec<u8>) -> Result<()> {
        self.remove_entry(state, origin, &key)
    }

    fn map_clear(&mut self, state: u16, origin: u32) -> Result<()> {
        self.clear_entries(state, origin)
    }

    fn map_get_many(&mut self, state: u16, origins: Vec<u8>, keys: Column) -> Result<OptionalColumn> {
        self.get_entries(state, &origins, &keys)
    }

    fn map_put_many(&mut self, state: u16, origins: Vec<u8>, keys: Column, values: Column) -> Result<()> {
        self.put_entries(state, &origins, &keys, &values)
    }

    fn map_remove_many(&mut self, state: u16, origins: Vec<u8>, keys: Column) -> Result<()> {
        self.remove_entries(state, &origins, &keys)
    }

    fn map_page(&mut self, state: u16, origin: u32, bounds: Bounds) -> Result<Page> {
        self.page_of_entries(state, origin, &bounds)
    }

    fn list_append(&mut self, state: u16, origin: u32, values: Column) -> Result<()> {
        self.append(state, origin, &values)
    }

    fn list_append_many(&mut self, state: u16, origins: Vec<u8>, values: Column) -> Result<()> {
        self.append_many(state, &origins, &values)
    }

    fn list_length(&mut self, state: u16, origin: u32) -> Result<u64> {
        self.length(state, origin)
    }

    fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Result<Column> {
        self.page_of_elements(state, origin, start, limit)
    }

    fn list_replace(&mut self, state: u16, origin: u32, values: Column) -> Result<()> {
        self.replace_elements(state, origin, &values)
    }

    fn list_clear(&mut self, state: u16, origin: u32) -> Result<()> {
        self.clear_elements(state, origin)
    }

    fn broadcast_get(&mut self, state: u16, key: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.get_broadcast(state, &key)
    }

    fn broadcast_put(&mut self, state: u16, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.put_broadcast(state, &key, &value)
    }

    fn broadcast_remove(&mut self, state: u16, key: Vec<u8>) -> Result<()> {
        self.remove_broadcast(state, &key)
    }

    fn broadcast_page(&mut self, state: u16, bounds: Bounds) -> Result<Page> {
        self.page_of_broadcast(state, &bounds)
    }

    fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Result<Column> {
        self.page_of_operator(state, start, limit)
    }

    fn operator_replace(&mut self, state: u16, values: Column) -> Result<()> {
        self.replace_operator(state, &values)
    }

    fn timers_page(&mut self, origin: u32, after: Option<(u8, i64, u32)>, limit: u32) -> Result<Timers> {
        self.page_of_timers(origin, after, limit)
    }
}

impl Data {
    /// The state, while a record or timer is being worked on.
    fn access(&self, import: &str) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        match (&self.access, self.calling) {
            (None, _) | (_, Calling::Nothing) => {
                Err(misuse(format!("{import}: there is no state outside `process` and `fire`")))
            }
            // Waiting here would be for ever: this thread is the one that holds the lock.
            (Some(Access { state, .. }), _) => state.try_lock().ok_or_else(|| {
                let message = format!("{import}: the subtask holds its state while it calls the guest");
                StateError::Failed(Fault::new(FaultKind::Internal, message)).into()
            }),
        }
    }

    /// The state, once `state` is known to be of `kind`.
    fn state_of(&self, import: &str, state: u16, kind: StateKind) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        self.of_kind(import, state, kind)?;
        self.access(import)
    }

    /// The declaration of a state of `kind`.
    fn of_kind(&self, import: &str, state: u16, kind: StateKind) -> Result<&StateContract> {
        let contract = self.declared(import, state)?;
        if contract.kind == kind {
            return Ok(contract);
        }
        let (name, kind) = (&contract.name, kind.name());
        Err(misuse(format!("{import}: state `{name}` is not {kind} state")))
    }

    /// The state, once `state` is known to be value state that does not ride along with this call.
    fn value_state(&self, import: &str, state: u16) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        let contract = self.of_kind(import, state, StateKind::Value)?;
        let rides = match self.calling {
            Calling::Nothing => false,
            Calling::Batch { input, .. } => {
                self.access.as_ref().is_some_and(|access| access.contract.rides_with_input(contract, input))
            }
            Calling::Timers { .. } => contract.rides_with_timers(),
        };
        if rides {
            let name = &contract.name;
            return Err(misuse(format!(
                "{import}: state `{name}` rides along with this call: read and write it there"
            )));
        }
        self.access(import)
    }

    /// The name of the input whose records are being worked on, where it is a broadcast input.
    fn broadcast_input(&self) -> Option<&str> {
        let Calling::Batch { input, .. } = self.calling else { return None };
        let port = self.access.as_ref()?.contract.inputs.get(usize::from(input))?;
        port.broadcast.then_some(port.name.as_str())
    }

    fn declared(&self, import: &str, state: u16) -> Result<&StateContract> {
        let states = self.access.as_ref().map_or(&[][..], |access| &access.contract.states[..]);
        states.get(usize::from(state)).ok_or_else(|| {
            misuse(format!("{import}: state {state} is not declared; there are {}, counted from 0", states.len()))
        })
    }

    /// Origins of this call.
    fn origins(&self, import: &str, origins: &[u8]) -> Result<Vec<u32>> {
        if !origins.len().is_multiple_of(4) {
            let bytes = origins.len();
            return Err(misuse(format!("{import}: origins of {bytes} bytes are no whole number of u32s")));
        }
        let origins: Vec<u32> = packed::u32s(origins).collect();
        origins.iter().try_for_each(|&origin| self.check_origin(import, origin))?;
        Ok(origins)
    }

    fn check_value(&self, import: &str, value: &[u8]) -> Result<()> {
        let (bytes, limit) = (value.len(), self.limits.value_bytes);
        if bytes <= limit {
            return Ok(());
        }
        Err(misuse(format!("{import}: a value of {bytes} bytes, and {limit} are allowed (`limits.value`)")))
    }

    fn check_origin(&self, import: &str, origin: u32) -> Result<()> {
        let origins = match self.calling {
            Calling::Nothing => 0,
            Calling::Batch { records, .. } => records,
            Calling::Timers { timers } => timers,
        };
        if let Some(name) = self.broadcast_input() {
            return Err(misuse(format!(
                "{import}: this is a record of the broadcast input `{name}`, which every subtask gets: it has no keyed state, since a key belongs to one subtask"
            )));
        }
        if origin < origins {
            return Ok(());
        }
        Err(misuse(format!("{import}: origin {origin} is not of this call, which has {origins}")))
    }
}

fn optional_column(values: &record::OptionalColumn) -> OptionalColumn {
    let mut present = vec![1; values.len()];
    for &absent in values.absent() {
        if let Some(present) = present.get_mut(absent as usize) {
            *present = 0;
        }
    }
    let values = values.values();
    let values = Column { bytes: values.bytes().to_vec(), ends: packed::pack_u32s(values.ends()) };
    OptionalColumn { present, values }
}

/// Ends the call: the guest asked for what it may not have.
pub(super) fn misuse(message: String) -> wasmtime::Error {
    StateError::Misuse(message).into()
}
