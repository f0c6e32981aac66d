//! A call's maps and lists, those of no key among them: what it wrote over what the state has.
//!
//! Owns which of the two answers a read, and that a list's page runs on from the one into the other. Does not own the writes
//! ([`super::overlay`]) nor the state.

use std::collections::BTreeSet;

use wasmill_core::key_group::KeyHash;
use wasmill_core::record::{Column, OptionalColumn};

use super::overlay::{MapWrites, NO_SLOT, Place};
use super::{CallState, failed};
use crate::guest::{StateError, check_answer};
use crate::state::{Error, KeyedState, NO_KEY, PAGE_BYTES, PAGE_ENTRIES, Page, Range};

impl CallState {
    /// The entry that the call itself wrote or removed; `None`: the state must be asked.
    fn own_entry(&self, place: Place, name: &[u8]) -> Option<Option<&[u8]>> {
        let writes = self.overlay.maps.get(&place)?;
        match writes.entries.get(name) {
            Some(value) => Some(value.as_deref()),
            None if writes.cleared => Some(None),
            None => None,
        }
    }

    pub(super) fn entry(&mut self, state: u16, slot: u32, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        if let Some(own) = self.own_entry((state, slot), name) {
            return Ok(own.map(|stored| self.unstamped(state, stored).to_vec()));
        }
        let keyed = keyed(&mut self.keyed)?;
        let (key, hash) = place(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
        let value = keyed.map_get(usize::from(state), key, hash, name).map_err(failed)?;
        Ok(value.map(<[u8]>::to_vec))
    }

    /// Many entries, by slot and map key.
    pub(super) fn entries(&mut self, state: u16, wanted: &[(u32, &[u8])]) -> Result<OptionalColumn, StateError> {
        let (keys, hashes) = (&self.keys, &self.hashes);
        let index = usize::from(state);
        let of_slot = |slot: u32| (keys.get(slot as usize), hashes[slot as usize]);
        let asked: Vec<_> = wanted
            .iter()
            .filter(|(slot, name)| self.own_entry((state, *slot), name).is_none())
            .map(|&(slot, name)| (of_slot(slot).0, of_slot(slot).1, name))
            .collect();
        if !asked.is_empty() {
            keyed(&mut self.keyed)?.map_load(index, asked.into_iter()).map_err(failed)?;
        }
        let mut found = OptionalColumn::default();
        for &(slot, name) in wanted {
            let own = self.overlay.maps.get(&(state, slot)).map(|writes| (writes.cleared, writes.entries.get(name)));
            match own {
                Some((_, Some(stored))) => {
                    found.push(stored.as_deref().map(|stored| self.unstamped(state, stored)));
                }
                Some((true, None)) => found.push(None),
                _ => {
                    let (key, hash) = (self.keys.get(slot as usize), self.hashes[slot as usize]);
                    let keyed = keyed(&mut self.keyed)?;
                    found.push(keyed.map_get(index, key, hash, name).map_err(failed)?);
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
        let (key, hash) = place(slot, (&self.keys, &self.hashes), none);
        let place = (usize::from(state), key, hash);
        match self.overlay.maps.get(&(state, slot)) {
            Some(own) if own.cleared => {
                keyed(&mut self.keyed)?.map_page_of(place.0, (range, limit), own.range(range)).map_err(failed)
            }
            Some(own) => keyed(&mut self.keyed)?.map_page(place, range, limit, own.range(range)).map_err(failed),
            None => keyed(&mut self.keyed)?.map_page(place, range, limit, std::iter::empty()).map_err(failed),
        }
    }

    /// How many elements of the state's list count, and how many the call has appended.
    fn list_parts(&mut self, state: u16, slot: u32) -> Result<(u64, usize), StateError> {
        let own = self.overlay.lists.get(&(state, slot));
        let (cleared, appended) = own.map_or((false, 0), |own| (own.cleared, own.appended.len()));
        if cleared {
            return Ok((0, appended));
        }
        let keyed = keyed(&mut self.keyed)?;
        let (key, hash) = place(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
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
            let (key, hash) = place(slot, (&self.keys, &self.hashes), keyed.no_key_hash());
            page = keyed.list_page((usize::from(state), key, hash), start, limit).map_err(failed)?;
        }
        let next = start.saturating_add(page.len() as u64);
        let (Some(skip), Some(own)) = (next.checked_sub(stored), self.overlay.lists.get(&(state, slot))) else {
            return Ok(page);
        };
        for value in own.appended.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if page.len() >= limit || page.bytes().len() >= PAGE_BYTES {
                break;
            }
            page.push(self.unstamped(state, value));
        }
        Ok(page)
    }

    /// A page of what union state shows of all subtasks; `None`: it shows its own, as it was replaced.
    pub(super) fn union_page(&self, state: u16, start: u64, limit: usize) -> Option<Column> {
        let replaced = self.overlay.lists.get(&(state, NO_SLOT)).is_some_and(|own| own.cleared);
        let keyed = self.keyed.as_ref().filter(|_| !replaced)?;
        keyed.union_page(usize::from(state), start, limit)
    }

    /// Reads at once what is needed to write to maps and lists.
    pub(super) fn load_written(&mut self) -> Result<(), Error> {
        let Some(keyed) = &mut self.keyed else { return Ok(()) };
        let (keys, none) = ((&self.keys, &self.hashes[..]), keyed.no_key_hash());
        let of_slot = |slot: u32| place(slot, keys, none);
        let maps = &self.overlay.maps;
        for state in maps.keys().map(|(state, _)| *state).collect::<BTreeSet<_>>() {
            let written = maps.iter().filter(|((of, _), own)| *of == state && !own.cleared);
            let names = written.flat_map(|((_, slot), own)| own.entries.keys().map(|name| (*slot, &**name)));
            let wanted = names.map(|(slot, name)| (of_slot(slot).0, of_slot(slot).1, name));
            keyed.map_load(usize::from(state), wanted)?;
        }
        let lists = &self.overlay.lists;
        for state in lists.keys().map(|(state, _)| *state).collect::<BTreeSet<_>>() {
            let written = lists.keys().filter(|(of, _)| *of == state);
            keyed.list_load(usize::from(state), written.map(|(_, slot)| of_slot(*slot)))?;
        }
        Ok(())
    }

    /// Makes the writes to maps and lists real.
    pub(super) fn apply_collections(&mut self) -> Result<(), Error> {
        self.load_written()?;
        let Some(keyed) = &mut self.keyed else { return Ok(()) };
        let (keys, none) = ((&self.keys, &self.hashes[..]), keyed.no_key_hash());
        let of_slot = |slot: u32| place(slot, keys, none);
        for ((state, slot), own) in self.overlay.maps.drain() {
            let (state, (key, hash)) = (usize::from(state), of_slot(slot));
            if own.cleared {
                keyed.map_clear(state, key, hash)?;
            }
            for (name, value) in own.entries {
                match value {
                    Some(value) => keyed.map_put((state, key, hash), &name, value)?,
                    None => keyed.map_remove((state, key, hash), &name)?,
                }
            }
        }
        for ((state, slot), own) in self.overlay.lists.drain() {
            let (state, (key, hash)) = (usize::from(state), of_slot(slot));
            if own.cleared {
                keyed.list_clear(state, key, hash)?;
                keyed.forget_union(state);
            }
            keyed.list_append(state, key, hash, own.appended)?;
        }
        Ok(())
    }
}

impl MapWrites {
    /// What was written within a range that is not empty.
    fn range<'a>(
        &'a self,
        range: Range<'a>,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.entries.range::<[u8], _>(range.bounds()).map(|(name, value)| (&**name, value.as_deref()))
    }
}

/// The key and hash of a slot; `none` is the hash of what belongs to no key.
pub(super) fn place<'a>(slot: u32, (keys, hashes): (&'a Column, &[KeyHash]), none: KeyHash) -> (&'a [u8], KeyHash) {
    if slot == NO_SLOT { (NO_KEY, none) } else { (keys.get(slot as usize), hashes[slot as usize]) }
}

fn keyed(keyed: &mut Option<KeyedState>) -> Result<&mut KeyedState, StateError> {
    keyed.as_mut().ok_or_else(|| StateError::Misuse("the operator keeps no state".to_owned()))
}
