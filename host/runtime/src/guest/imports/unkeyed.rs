//! The imports for state that belongs to no key: broadcast and operator state.
//!
//! Owns that only records of a broadcast input write broadcast state. Does not own the state ([`StateAccess`] answers).

use parking_lot::MutexGuard;
use wasmill_core::contract::StateKind;
use wasmtime::Result;

use super::collections::{check_column, column, page_of, values_of};
use super::{Bounds, Page, misuse};
use crate::guest::StateAccess;
use crate::guest::bindings::wasmill::operator::types::Column;
use crate::guest::instance::{Calling, Data};

impl Data {
    pub(super) fn get_broadcast(&mut self, state: u16, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_key("broadcast-get", name)?;
        Ok(self.state_of("broadcast-get", state, StateKind::Broadcast)?.broadcast_get(state, name)?)
    }

    pub(super) fn put_broadcast(&mut self, state: u16, name: &[u8], value: &[u8]) -> Result<()> {
        self.check_key("broadcast-put", name)?;
        self.check_value("broadcast-put", value)?;
        Ok(self.written_broadcast("broadcast-put", state)?.broadcast_put(state, name, value)?)
    }

    pub(super) fn remove_broadcast(&mut self, state: u16, name: &[u8]) -> Result<()> {
        self.check_key("broadcast-remove", name)?;
        Ok(self.written_broadcast("broadcast-remove", state)?.broadcast_remove(state, name)?)
    }

    pub(super) fn page_of_broadcast(&mut self, state: u16, bounds: &Bounds) -> Result<Page> {
        let import = "broadcast-page";
        let range = self.range(import, bounds)?;
        let page = self.state_of(import, state, StateKind::Broadcast)?.broadcast_page(state, range, bounds.limit)?;
        Ok(page_of(&page))
    }

    pub(super) fn page_of_operator(&mut self, state: u16, start: u64, limit: u32) -> Result<Column> {
        let page = self.operator_state("operator-page", state)?.operator_page(state, start, limit)?;
        Ok(column(&page))
    }

    pub(super) fn replace_operator(&mut self, state: u16, values: &Column) -> Result<()> {
        let import = "operator-replace";
        check_column(import, "values", values, values.ends.len() / 4, self.limits.value())?;
        let mut access = self.operator_state(import, state)?;
        self.give(values_of(values), |some| access.operator_replace(state, some))
    }

    /// The state, once `state` is known to be broadcast state and the records those of a broadcast input.
    fn written_broadcast(&self, import: &str, state: u16) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        let name = &self.of_kind(import, state, StateKind::Broadcast)?.name;
        if self.broadcast_input().is_none() {
            let what = match self.calling {
                Calling::Timers { .. } => "timers".to_owned(),
                Calling::Batch { input, .. } => {
                    let inputs = self.access.as_ref().map_or(&[][..], |access| &access.contract.inputs);
                    let name = inputs.get(usize::from(input)).map_or("", |port| port.name.as_str());
                    format!("records of the input `{name}`, which is none")
                }
                Calling::Nothing => "no record".to_owned(),
            };
            return Err(misuse(format!(
                "{import}: broadcast state `{name}` is written on behalf of a broadcast input's record only, so that it is the same in every subtask; this call has {what}"
            )));
        }
        self.access(import)
    }

    /// The state, once `state` is known to be operator state.
    fn operator_state(&self, import: &str, state: u16) -> Result<MutexGuard<'_, dyn StateAccess + 'static>> {
        let contract = self.declared(import, state)?;
        if contract.kind.is_operator() {
            return self.access(import);
        }
        let name = &contract.name;
        Err(misuse(format!("{import}: state `{name}` is {} state, not operator state", contract.kind.name())))
    }
}
