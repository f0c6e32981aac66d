//! A call's maps and lists, those of no key among them: what it wrote over what the state has.
//!
//! Owns which of the two answers a read, and that a list's page runs on from the one into the other. Does not own the writes
//! ([`super::overlay`]) nor the state.

use wasmill_core::key_group::KeyHash;
use wasmill_core::record::{Column, OptionalColumn};

use super::overlay::{NO_SLOT, Place};
use super::{CallState, failed};
use crate::guest::{StateError, check_answer};
use crate::state::{BLOCK, KeyedState, NO_KEY, PAGE_BYTES, PAGE_ENTRIES, Page, Range, Value};

impl CallState {
    pub(super) fn entry(&mut self, state: u16, slot: u32, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let place = (state, slot);
        if let Some(own) = self.own_entry(place, name) {
            return Ok(own.map(|stored| self.unstamped(state, &stored).to_vec()));
        }
        let keyed = keyed(&mut self.keyed)?;
        let (key, hash) = key_of(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
        let value = keyed.map_get(usize::from(state), key, hash, name).map_err(failed)?;
        Ok(value.map(<[u8]>::to_vec))
    }

    /// The entry that the call itself wrote or removed; `None`: the state must be asked.
    fn own_entry(&mut self, place: Place, name: &[u8]) -> Option<Option<Value>> {
        if self.overlay.is_empty() {
            return None;
        }
        Some(self.overlay.view().maps.get(&place)?.get(name)?.cloned())
    }

    /// Many entries, by slot and map key: each is looked for once, and what is not in memory is read together.
    pub(super) fn entries(&mut self, state: u16, wanted: &[(u32, &[u8])]) -> Result<OptionalColumn, StateError> {
        let index = usize::from(state);
        let mut found = OptionalColumn::default();
        keyed(&mut self.keyed)?.begin_wanted();
        // Where the answer cannot go on before what is not in memory was read.
        let mut first_missing = None;
        for (block, wanted) in wanted.chunks(BLOCK).enumerate() {
            let places = wanted
                .iter()
                .map(|&(slot, name)| Some(((index, self.keys.get(slot as usize), self.hashes[slot as usize]), name)));
            keyed(&mut self.keyed)?.guess_entries(places).map_err(failed)?;
            for (number, &(slot, name)) in wanted.iter().enumerate() {
                let own = self.own_entry((state, slot), name);
                let keyed = keyed(&mut self.keyed)?;
                let looked = match &own {
                    Some(own) => Some(own.as_ref().map(|stored| keyed.unstamped(index, stored))),
                    None => keyed.map_look(index, number, name).map_err(failed)?,
                };
                match looked {
                    Some(value) if first_missing.is_none() => {
                        found.push(value);
                        check_answer(&found)?;
                    }
                    Some(_) => {}
                    None => first_missing = first_missing.or(Some(block * BLOCK + number)),
                }
            }
        }
        let Some(first_missing) = first_missing else { return Ok(found) };
        keyed(&mut self.keyed)?.fetch_wanted().map_err(failed)?;
        for &(slot, name) in wanted.iter().skip(first_missing) {
            match self.own_entry((state, slot), name) {
                Some(own) => found.push(own.as_ref().map(|stored| self.unstamped(state, stored))),
                None => {
                    let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
                    found.push(keyed(&mut self.keyed)?.map_get(index, key, hash, name).map_err(failed)?);
                }
            }
            check_answer(&found)?;
        }
        Ok(found)
    }

    pub(super) fn page(&mut self, state: u16, slot: u32, range: Range<'_>, limit: usize) -> Result<Page, StateError> {
        if range.is_empty() {
            return Ok(Page::default());
        }
        let none = self.keyed.as_ref().map_or(KeyHash(0), KeyedState::no_key_hash);
        let (key, hash) = key_of(slot, (&self.keys, &self.hashes), none);
        let place = (usize::from(state), key, hash);
        match self.overlay.view().maps.get(&(state, slot)) {
            Some(own) if own.cleared => {
                keyed(&mut self.keyed)?.map_page_of(place.0, (range, limit), own.range(range)).map_err(failed)
            }
            Some(own) => keyed(&mut self.keyed)?.map_page(place, range, limit, own.range(range)).map_err(failed),
            None => keyed(&mut self.keyed)?.map_page(place, range, limit, std::iter::empty()).map_err(failed),
        }
    }

    /// How many elements of the state's list count, and how many the call has appended.
    fn list_parts(&mut self, state: u16, slot: u32) -> Result<(u64, usize), StateError> {
        let own = self.overlay.view().lists.get(&(state, slot));
        let (cleared, appended) = own.map_or((false, 0), |own| (own.cleared, own.appended.len()));
        if cleared {
            return Ok((0, appended));
        }
        let keyed = keyed(&mut self.keyed)?;
        let (key, hash) = key_of(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
        let stored = keyed.list_length(usize::from(state), key, hash).map_err(failed)?;
        Ok((stored, appended))
    }

    pub(super) fn length(&mut self, state: u16, slot: u32) -> Result<u64, StateError> {
        let (stored, appended) = self.list_parts(state, slot)?;
        Ok(stored + appended as u64)
    }

    pub(super) fn elements(&mut self, state: u16, slot: u32, start: u64, limit: usize) -> Result<Column, StateError> {
        let limit = limit.min(PAGE_ENTRIES);
        let (stored, _) = self.list_parts(state, slot)?;
        let mut page = Column::default();
        if start < stored {
            let keyed = keyed(&mut self.keyed)?;
            let (key, hash) = key_of(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
            page = keyed.list_page((usize::from(state), key, hash), start, limit).map_err(failed)?;
        }
        let next = start.saturating_add(page.len() as u64);
        let (Some(skip), Some(own)) = (next.checked_sub(stored), self.overlay.view().lists.get(&(state, slot))) else {
            return Ok(page);
        };
        for value in own.appended.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if page.len() >= limit || page.bytes().len() >= PAGE_BYTES {
                break;
            }
            page.push(self.keyed.as_ref().map_or(value, |keyed| keyed.unstamped(usize::from(state), value)));
        }
        Ok(page)
    }

    /// A page of what union state shows of all subtasks; `None`: it shows its own, as it was replaced.
    pub(super) fn union_page(&mut self, state: u16, start: u64, limit: usize) -> Option<Column> {
        let replaced = self.overlay.view().lists.get(&(state, NO_SLOT)).is_some_and(|own| own.cleared);
        let keyed = self.keyed.as_ref().filter(|_| !replaced)?;
        keyed.union_page(usize::from(state), start, limit)
    }
}

/// The key and hash of a slot; `none` is the hash of what belongs to no key.
pub(super) fn key_of<'a>(slot: u32, (keys, hashes): (&'a Column, &[KeyHash]), none: KeyHash) -> (&'a [u8], KeyHash) {
    if slot == NO_SLOT { (NO_KEY, none) } else { (keys.get(slot as usize), hashes[slot as usize]) }
}

fn keyed(keyed: &mut Option<KeyedState>) -> Result<&mut KeyedState, StateError> {
    keyed.as_mut().ok_or_else(|| StateError::Misuse("the operator keeps no state".to_owned()))
}
