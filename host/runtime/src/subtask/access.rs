//! A subtask's state as its guest sees it during one call.
//!
//! Owns that lazy writes go to an overlay until the call has succeeded, and the translation from origins to keys: a guest can
//! touch only the keys of its batch (I10). Does not own the state itself.

mod apply;
mod collections;
mod lifetime;
mod limits;
mod overlay;
#[cfg(test)]
mod tests;
mod view;

use wasmill_core::fault::Fault;
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::{Column, OptionalColumn};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::KeyTimer;
use wasmill_core::ttl::Now;

pub(in crate::subtask) use self::limits::Over;
pub use self::limits::StateLimits;
use self::overlay::{NO_SLOT, Overlay};
use crate::guest::{StateAccess, StateError};
use crate::state::{Error, KeyedState, Page, Range, Value, stamped};

/// The state and, during a call, the call's keys and lazy writes.
pub struct CallState {
    pub(super) keyed: Option<KeyedState>,
    pub(super) keys: Column,
    pub(super) hashes: Vec<KeyHash>,
    pub(super) slots: Vec<u32>,
    /// The event times of the call's origins, where stamps ask for them.
    times: Vec<Timestamp>,
    overlay: Overlay,
    limits: StateLimits,
}

impl CallState {
    /// Over the subtask's state; none for an operator that keeps none.
    #[must_use]
    pub fn new(keyed: Option<KeyedState>) -> Self {
        Self {
            keyed,
            keys: Column::default(),
            hashes: Vec::new(),
            slots: Vec::new(),
            times: Vec::new(),
            overlay: Overlay::default(),
            limits: StateLimits::default(),
        }
    }

    /// The state itself; none for an operator that keeps none.
    pub fn keyed(&mut self) -> Option<&mut KeyedState> {
        self.keyed.as_mut()
    }

    /// Says at which times the call reads and writes, and the event times of its origins, if they have any: before the state is
    /// asked for anything.
    pub(super) fn set_now(&mut self, now: Now, times: &[Timestamp]) {
        let Some(keyed) = self.keyed.as_mut().filter(|keyed| keyed.has_ttl()) else { return };
        keyed.set_now(now);
        self.times.clear();
        self.times.extend_from_slice(times);
    }

    /// Lets a call hold at most so many bytes of lazy writes; each counts 64 bytes beside its own.
    pub fn limit_writes(&mut self, bytes: usize) {
        self.overlay.limit(bytes);
    }

    /// Whether the call has lazy writes on behalf of one of these origins that it did not undo. Writes to what belongs to no key
    /// may be on behalf of any.
    pub(super) fn wrote_for(&self, origins: impl Iterator<Item = u32> + Clone) -> bool {
        self.overlay.wrote_for(origins)
    }

    /// Makes the call's lazy writes real, and its reads where they count, but for those of origins that are `rejected`.
    pub(super) fn apply(&mut self, rejected: impl Fn(u32) -> bool) -> Result<(), Error> {
        self.apply_writes()?;
        self.apply_touches(rejected)?;
        self.discard();
        Ok(())
    }

    /// Forgets the call's lazy writes.
    pub(super) fn discard(&mut self) {
        self.overlay.clear();
    }

    fn slot(&self, origin: u32) -> Result<u32, StateError> {
        let count = self.slots.len();
        self.slots
            .get(origin as usize)
            .copied()
            .ok_or_else(|| StateError::Misuse(format!("origin {origin} is none of this call's {count}")))
    }

    /// The slot of an origin on whose behalf something is written.
    fn written_slot(&mut self, origin: u32) -> Result<u32, StateError> {
        let slot = self.slot(origin)?;
        self.overlay.act_for(Some(origin));
        Ok(slot)
    }
}

impl StateAccess for CallState {
    fn value_get(&mut self, state: u16, origin: u32) -> Result<Option<Vec<u8>>, StateError> {
        let slot = self.slot(origin)?;
        self.read(state, slot, origin, None)?;
        if !self.overlay.is_empty()
            && let Some(written) = self.overlay.view().values.get(&(state, slot)).cloned()
        {
            return Ok(written.map(|stored| self.unstamped(state, &stored).to_vec()));
        }
        let Some(keyed) = &mut self.keyed else {
            return Err(StateError::Misuse("the operator keeps no state".to_owned()));
        };
        let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
        match keyed.value(usize::from(state), key, hash) {
            Ok(value) => Ok(value.map(<[u8]>::to_vec)),
            Err(error) => Err(failed(error)),
        }
    }

    fn value_set(&mut self, state: u16, origin: u32, value: Vec<u8>) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        let value = self.stored(state, origin, &value);
        self.overlay.write_value((state, slot), Some(value))
    }

    fn value_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        self.overlay.write_value((state, slot), None)
    }

    fn map_get(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let slot = self.slot(origin)?;
        self.read(state, slot, origin, Some(name))?;
        self.entry(state, slot, name)
    }

    fn map_put(&mut self, state: u16, origin: u32, name: &[u8], value: &[u8]) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        let value = self.stored(state, origin, value);
        self.overlay.write_entry((state, slot), name, Some(value))
    }

    fn map_remove(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        self.overlay.write_entry((state, slot), name, None)
    }

    fn map_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        self.overlay.clear_map((state, slot))
    }

    fn map_get_many(&mut self, state: u16, wanted: &[(u32, &[u8])]) -> Result<OptionalColumn, StateError> {
        for &(origin, name) in wanted {
            let slot = self.slot(origin)?;
            self.read(state, slot, origin, Some(name))?;
        }
        let by_slot = wanted.iter().map(|&(origin, name)| Ok((self.slot(origin)?, name)));
        let wanted = by_slot.collect::<Result<Vec<_>, StateError>>()?;
        self.entries(state, &wanted)
    }

    fn map_page(&mut self, state: u16, origin: u32, range: Range<'_>, limit: u32) -> Result<Page, StateError> {
        let slot = self.slot(origin)?;
        let page = self.page(state, slot, range, limit as usize)?;
        for name in page.names.iter() {
            self.read(state, slot, origin, Some(name))?;
        }
        Ok(page)
    }

    fn list_append(
        &mut self,
        state: u16,
        origin: u32,
        values: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        match self.stamp(state, origin) {
            Some(stamp) => self.overlay.append((state, slot), &mut values.map(|value| stamped(stamp, value))),
            None => self.overlay.append((state, slot), &mut values.map(Value::from)),
        }
    }

    fn list_length(&mut self, state: u16, origin: u32) -> Result<u64, StateError> {
        let slot = self.slot(origin)?;
        self.read(state, slot, origin, None)?;
        self.length(state, slot)
    }

    fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Result<Column, StateError> {
        let slot = self.slot(origin)?;
        self.read(state, slot, origin, None)?;
        self.elements(state, slot, start, limit as usize)
    }

    fn list_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        let slot = self.written_slot(origin)?;
        self.overlay.clear_list((state, slot))
    }

    fn timers_page(&mut self, origin: u32, after: Option<KeyTimer>, limit: usize) -> Result<Vec<KeyTimer>, StateError> {
        let slot = self.slot(origin)?;
        let Some(keyed) = &self.keyed else {
            return Err(StateError::Misuse("timers belong to keys, and the operator has no keyed input".to_owned()));
        };
        let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
        // What stands for no key; the empty key has another hash.
        if key.is_empty() && hash == KeyHash(0) {
            return Err(StateError::Misuse("timers belong to keys, and the record has none".to_owned()));
        }
        keyed.timers_of(key, hash, after, limit).map_err(failed)
    }

    fn broadcast_get(&mut self, state: u16, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.entry(state, NO_SLOT, name)
    }

    fn broadcast_put(&mut self, state: u16, name: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.overlay.act_for(None);
        self.overlay.write_entry((state, NO_SLOT), name, Some(Value::from(value)))
    }

    fn broadcast_remove(&mut self, state: u16, name: &[u8]) -> Result<(), StateError> {
        self.overlay.act_for(None);
        self.overlay.write_entry((state, NO_SLOT), name, None)
    }

    fn broadcast_page(&mut self, state: u16, range: Range<'_>, limit: u32) -> Result<Page, StateError> {
        self.page(state, NO_SLOT, range, limit as usize)
    }

    fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Result<Column, StateError> {
        match self.union_page(state, start, limit as usize) {
            Some(page) => Ok(page),
            None => self.elements(state, NO_SLOT, start, limit as usize),
        }
    }

    fn operator_replace(&mut self, state: u16, values: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError> {
        self.overlay.act_for(None);
        self.overlay.clear_list((state, NO_SLOT))?;
        self.overlay.append((state, NO_SLOT), &mut values.map(Value::from))
    }

    fn mark(&mut self) -> u32 {
        self.overlay.mark()
    }

    fn rollback(&mut self, mark: u32) -> Result<(), StateError> {
        self.overlay.rollback(mark)
    }
}

fn failed(error: Error) -> StateError {
    StateError::Failed(Fault::new(error.kind(), error))
}
