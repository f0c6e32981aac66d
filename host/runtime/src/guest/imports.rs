//! What guests may import: state that does not ride along, and diagnostics.
//!
//! Owns which imports are answered and the checks that need only the declaration and the call. Does not own the state
//! ([`StateAccess`] answers) nor what is said ([`super::diagnostics`]).

use parking_lot::MutexGuard;
use wasmill_core::contract::{StateContract, StateKind};
use wasmill_core::fault::{Fault, FaultKind};
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
        let limit = self.limits.value_bytes;
        let mut access = self.value_state("value-set", state)?;
        if value.len() > limit {
            return Err(misuse(format!("value-set: a value of {} bytes, and {limit} are allowed", value.len())));
        }
        Ok(access.value_set(state, origin, value)?)
    }

    fn value_clear(&mut self, state: u16, origin: u32) -> Result<()> {
        self.check_origin("value-clear", origin)?;
        Ok(self.value_state("value-clear", state)?.value_clear(state, origin)?)
    }

    fn value_get_many(&mut self, state: u16, origins: Vec<u8>) -> Result<OptionalColumn> {
        if !origins.len().is_multiple_of(4) {
            return Err(misuse(format!(
                "value-get-many: origins of {} bytes are no whole number of u32s",
                origins.len()
            )));
        }
        let origins: Vec<u32> = packed::u32s(&origins).collect();
        for &origin in &origins {
            self.check_origin("value-get-many", origin)?;
        }
        let values = self.value_state("value-get-many", state)?.value_get_many(state, &origins)?;
        let mut present = vec![1; values.len()];
        for &absent in values.absent() {
            if let Some(present) = present.get_mut(absent as usize) {
                *present = 0;
            }
        }
        let values = values.values();
        let values = Column { bytes: values.bytes().to_vec(), ends: packed::pack_u32s(values.ends()) };
        Ok(OptionalColumn { present, values })
    }

    fn mark(&mut self) -> Result<u32> {
        Ok(self.access("mark")?.mark())
    }

    fn rollback(&mut self, mark: u32) -> Result<()> {
        Ok(self.access("rollback")?.rollback(mark)?)
    }

    fn map_get(&mut self, _: u16, _: u32, _: Vec<u8>) -> Result<Option<Vec<u8>>> {
        unsupported("map-get")
    }

    fn map_put(&mut self, _: u16, _: u32, _: Vec<u8>, _: Vec<u8>) -> Result<()> {
        unsupported("map-put")
    }

    fn map_remove(&mut self, _: u16, _: u32, _: Vec<u8>) -> Result<()> {
        unsupported("map-remove")
    }

    fn map_clear(&mut self, _: u16, _: u32) -> Result<()> {
        unsupported("map-clear")
    }

    fn map_get_many(&mut self, _: u16, _: Vec<u8>, _: Column) -> Result<OptionalColumn> {
        unsupported("map-get-many")
    }

    fn map_put_many(&mut self, _: u16, _: Vec<u8>, _: Column, _: Column) -> Result<()> {
        unsupported("map-put-many")
    }

    fn map_remove_many(&mut self, _: u16, _: Vec<u8>, _: Column) -> Result<()> {
        unsupported("map-remove-many")
    }

    fn map_page(&mut self, _: u16, _: u32, _: Bounds) -> Result<Page> {
        unsupported("map-page")
    }

    fn list_append(&mut self, _: u16, _: u32, _: Column) -> Result<()> {
        unsupported("list-append")
    }

    fn list_append_many(&mut self, _: u16, _: Vec<u8>, _: Column) -> Result<()> {
        unsupported("list-append-many")
    }

    fn list_length(&mut self, _: u16, _: u32) -> Result<u64> {
        unsupported("list-length")
    }

    fn list_page(&mut self, _: u16, _: u32, _: u64, _: u32) -> Result<Column> {
        unsupported("list-page")
    }

    fn list_replace(&mut self, _: u16, _: u32, _: Column) -> Result<()> {
        unsupported("list-replace")
    }

    fn list_clear(&mut self, _: u16, _: u32) -> Result<()> {
        unsupported("list-clear")
    }

    fn broadcast_get(&mut self, _: u16, _: Vec<u8>) -> Result<Option<Vec<u8>>> {
        unsupported("broadcast-get")
    }

    fn broadcast_put(&mut self, _: u16, _: Vec<u8>, _: Vec<u8>) -> Result<()> {
        unsupported("broadcast-put")
    }

    fn broadcast_remove(&mut self, _: u16, _: Vec<u8>) -> Result<()> {
        unsupported("broadcast-remove")
    }

    fn broadcast_page(&mut self, _: u16, _: Bounds) -> Result<Page> {
        unsupported("broadcast-page")
    }

    fn operator_page(&mut self, _: u16, _: u64, _: u32) -> Result<Column> {
        unsupported("operator-page")
    }

    fn operator_replace(&mut self, _: u16, _: Column) -> Result<()> {
        unsupported("operator-replace")
    }

    fn timers_page(&mut self, _: u32, _: Option<(u8, i64, u32)>, _: u32) -> Result<Timers> {
        unsupported("timers-page")
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

    /// The state, once `state` is known to be value state that does not ride along with this call.
    fn value_state(&self, import: &str, state: u16) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        let contract = self.declared(import, state)?;
        if contract.kind != StateKind::Value {
            return Err(misuse(format!("{import}: state `{}` is not value state", contract.name)));
        }
        let rides = match self.calling {
            Calling::Nothing => false,
            Calling::Batch { input, .. } => contract.rides_with_input(input),
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

    fn declared(&self, import: &str, state: u16) -> Result<&StateContract> {
        let states = self.access.as_ref().map_or(&[][..], |access| &access.contract.states[..]);
        states.get(usize::from(state)).ok_or_else(|| {
            misuse(format!("{import}: state {state} is not declared; there are {}, counted from 0", states.len()))
        })
    }

    fn check_origin(&self, import: &str, origin: u32) -> Result<()> {
        let origins = match self.calling {
            Calling::Nothing => 0,
            Calling::Batch { records, .. } => records,
            Calling::Timers { timers } => timers,
        };
        if origin < origins {
            return Ok(());
        }
        Err(misuse(format!("{import}: origin {origin} is not of this call, which has {origins}")))
    }
}

fn misuse(message: String) -> wasmtime::Error {
    StateError::Misuse(message).into()
}

fn unsupported<T>(import: &str) -> Result<T> {
    Err(misuse(format!("not yet supported: {import}")))
}
