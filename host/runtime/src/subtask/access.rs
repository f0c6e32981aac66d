//! A subtask's state as its guest sees it during one call.
//!
//! Owns the overlay that lazy writes go to until the call has succeeded, with marks and rollback, and the translation from
//! origins to keys: a guest can touch only the keys of its batch (I10). Does not own the state itself.

use std::collections::HashMap;

use wasmill_core::fault::Fault;
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::Column;

use crate::guest::{StateAccess, StateError};
use crate::state::{Error, KeyedState};

/// Bytes of lazy writes that a call may hold, where nothing else is said.
const OVERLAY_LIMIT: usize = 64 << 20;

/// The state and, during a call, the call's keys and lazy writes.
pub struct CallState {
    pub(super) keyed: Option<KeyedState>,
    pub(super) keys: Column,
    pub(super) hashes: Vec<KeyHash>,
    pub(super) slots: Vec<u32>,
    overlay: HashMap<(u16, u32), Option<Vec<u8>>>,
    /// What each write of this call replaced in the overlay.
    undo: Vec<Undo>,
    bytes: usize,
    limit: usize,
}

struct Undo {
    origin: u32,
    state: u16,
    slot: u32,
    before: Option<Option<Vec<u8>>>,
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
            overlay: HashMap::new(),
            undo: Vec::new(),
            bytes: 0,
            limit: OVERLAY_LIMIT,
        }
    }

    /// The state itself; none for an operator that keeps none.
    pub fn keyed(&mut self) -> Option<&mut KeyedState> {
        self.keyed.as_mut()
    }

    /// Lets a call hold at most so many bytes of lazy writes; each counts 64 bytes beside its value.
    pub fn limit_writes(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Whether the call has lazy writes on behalf of such an origin that it did not undo.
    pub(super) fn wrote_for(&self, is_meant: impl Fn(u32) -> bool) -> bool {
        self.undo.iter().any(|undo| is_meant(undo.origin))
    }

    /// Makes the call's lazy writes real.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        if let Some(keyed) = &mut self.keyed {
            for ((state, slot), value) in self.overlay.drain() {
                let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
                match value {
                    Some(value) => keyed.set_value(usize::from(state), key, hash, &value)?,
                    None => keyed.clear_value(usize::from(state), key, hash)?,
                }
            }
        }
        self.discard();
        Ok(())
    }

    /// Forgets the call's lazy writes.
    pub(super) fn discard(&mut self) {
        self.overlay.clear();
        self.undo.clear();
        self.bytes = 0;
    }

    fn slot(&self, origin: u32) -> Result<u32, StateError> {
        let count = self.slots.len();
        self.slots
            .get(origin as usize)
            .copied()
            .ok_or_else(|| StateError::Misuse(format!("origin {origin} is none of this call's {count}")))
    }

    fn write(&mut self, state: u16, origin: u32, value: Option<Vec<u8>>) -> Result<(), StateError> {
        let slot = self.slot(origin)?;
        self.bytes += value.as_ref().map_or(0, Vec::len) + 64;
        if self.bytes > self.limit {
            let limit = self.limit;
            return Err(StateError::Misuse(format!(
                "the call wrote more than its limit of {limit} bytes of lazy state: raise `limits.overlay`, or write less in one call"
            )));
        }
        let before = self.overlay.insert((state, slot), value);
        self.undo.push(Undo { origin, state, slot, before });
        Ok(())
    }
}

impl StateAccess for CallState {
    fn value_get(&mut self, state: u16, origin: u32) -> Result<Option<Vec<u8>>, StateError> {
        let slot = self.slot(origin)?;
        if let Some(written) = self.overlay.get(&(state, slot)) {
            return Ok(written.clone());
        }
        let Some(keyed) = &mut self.keyed else {
            return Err(StateError::Misuse("the operator keeps no state".to_owned()));
        };
        let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
        match keyed.value(usize::from(state), key, hash) {
            Ok(value) => Ok(value.map(<[u8]>::to_vec)),
            Err(error) => Err(StateError::Failed(Fault::new(error.kind(), error))),
        }
    }

    fn value_set(&mut self, state: u16, origin: u32, value: Vec<u8>) -> Result<(), StateError> {
        self.write(state, origin, Some(value))
    }

    fn value_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        self.write(state, origin, None)
    }

    fn mark(&mut self) -> u32 {
        u32::try_from(self.undo.len()).unwrap_or(u32::MAX)
    }

    fn rollback(&mut self, mark: u32) -> Result<(), StateError> {
        if mark as usize > self.undo.len() {
            return Err(StateError::Misuse(format!(
                "mark {mark} was not given in this call, or was rolled back before"
            )));
        }
        for Undo { state, slot, before, .. } in self.undo.drain(mark as usize..).rev() {
            match before {
                Some(value) => self.overlay.insert((state, slot), value),
                None => self.overlay.remove(&(state, slot)),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> CallState {
        let mut call = CallState::new(None);
        call.keys.push(b"a");
        call.hashes.push(KeyHash::of(b"a"));
        call.slots = vec![0, 0];
        call
    }

    #[test]
    fn rollback_undoes_what_was_written_since_the_mark_and_no_more() {
        let mut call = call();
        call.value_set(0, 0, b"1".to_vec()).unwrap();
        let mark = call.mark();
        call.value_set(0, 1, b"2".to_vec()).unwrap();
        call.value_clear(0, 0).unwrap();
        assert_eq!(call.value_get(0, 0).unwrap(), None);
        assert!(call.wrote_for(|origin| origin == 1));
        call.rollback(mark).unwrap();
        assert!(call.wrote_for(|origin| origin == 0) && !call.wrote_for(|origin| origin == 1));
        assert_eq!(call.value_get(0, 1).unwrap(), Some(b"1".to_vec()));
        assert!(call.rollback(mark + 1).is_err());
    }

    #[test]
    fn an_origin_outside_the_call_is_the_guests_fault() {
        assert!(matches!(call().value_get(0, 2), Err(StateError::Misuse(_))));
        assert!(matches!(call().value_set(0, u32::MAX, Vec::new()), Err(StateError::Misuse(_))));
    }

    #[test]
    fn lazy_writes_are_bounded_and_the_setting_is_named() {
        let mut call = call();
        call.limit_writes(100);
        assert_eq!(call.value_set(0, 0, vec![0; 36]), Ok(()));
        let Err(StateError::Misuse(message)) = call.value_set(0, 0, Vec::new()) else { panic!("it was let through") };
        assert!(message.contains("limit of 100 bytes") && message.contains("limits.overlay"), "{message}");
    }
}
