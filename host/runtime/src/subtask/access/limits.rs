//! How much state an operator may keep, held before anything of a call becomes real.
//!
//! Owns what a call would leave behind: bytes under one key, entries of the subtask. Does not own what becomes of a call that is over.
//! Nothing is counted where nothing is limited.

use std::collections::BTreeSet;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::timer::TIMERS;

use super::overlay::{NO_SLOT, Place};
use super::{CallState, collections};
use crate::guest::contract::{CLEAR, Effects, SET};
use crate::guest::packed;
use crate::state::{Error, KeyedState};

/// Bytes of a list's position, as it is counted.
const POSITION_BYTES: u64 = 8;

/// The most that may be kept; `None`: as much as there is room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateLimits {
    /// Bytes of one state under one key, counted as in checkpoints: keys, map keys or positions, values.
    pub key_bytes: Option<u64>,
    /// Entries of all states of a subtask together; an entry of a map and an element of a list is one, a timer is none.
    pub entries: Option<u64>,
}

/// What a call would leave beyond a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::subtask) struct Over {
    pub setting: &'static str,
    /// What is counted.
    pub unit: &'static str,
    pub would_be: u64,
    pub most: u64,
    /// The state's index, and the key under which it grows.
    pub state: u16,
    pub key: Vec<u8>,
}

/// What one state has under one key, before the call and after it.
struct Change {
    place: Place,
    before: Tally,
    after: Tally,
}

impl CallState {
    /// Sets how much state may be kept.
    pub fn limit_state(&mut self, limits: StateLimits) {
        self.limits = limits;
    }

    /// Where the call's writes, those of `effects` and those made through imports, would leave more than may be kept and more
    /// than there was.
    pub(in crate::subtask) fn over(&mut self, effects: &Effects) -> Result<Option<Over>, Error> {
        let StateLimits { key_bytes, entries } = self.limits;
        if key_bytes.is_none() && entries.is_none() {
            return Ok(None);
        }
        let changes = self.changes(effects)?;
        let grown = |change: &&Change| change.after.bytes > change.before.bytes;
        if let Some(most) = key_bytes
            && let Some(Change { place, after, .. }) =
                changes.iter().filter(grown).find(|change| change.after.bytes > most)
        {
            let over = ("limits.state-per-key", "bytes", after.bytes, most);
            return Ok(Some(self.name(over, *place)));
        }
        let Some((most, keyed)) = entries.zip(self.keyed.as_ref()) else { return Ok(None) };
        let states = keyed.counts().states().filter(|(state, _)| state.as_str() != TIMERS);
        let held: u64 = states.map(|(_, tally)| tally.entries).sum();
        let more: u64 = changes.iter().map(|change| change.after.entries).sum();
        let less: u64 = changes.iter().map(|change| change.before.entries).sum();
        let would_be = (held + more).saturating_sub(less);
        let grown = changes.iter().find(|change| change.after.entries > change.before.entries);
        let grown = grown.filter(|_| would_be > most && more > less);
        Ok(grown.map(|change| self.name(("limits.state-entries", "entries", would_be, most), change.place)))
    }

    fn name(&self, (setting, unit, would_be, most): (&'static str, &'static str, u64, u64), place: Place) -> Over {
        let (state, slot) = place;
        let key = if slot == NO_SLOT { Vec::new() } else { self.keys.get(slot as usize).to_vec() };
        Over { setting, unit, would_be, most, state, key }
    }

    /// Reads at once what the writes to maps and lists would replace.
    fn load_written(&mut self) -> Result<(), Error> {
        let Some(keyed) = &mut self.keyed else { return Ok(()) };
        let (keys, none) = ((&self.keys, &self.hashes[..]), keyed.no_key_hash());
        let of_slot = |slot: u32| collections::key_of(slot, keys, none);
        let view = self.overlay.view();
        for state in view.maps.keys().map(|(state, _)| *state).collect::<BTreeSet<_>>() {
            let written = view.maps.iter().filter(|((of, _), own)| *of == state && !own.cleared);
            let names = written.flat_map(|((_, slot), own)| own.entries.keys().map(|name| (*slot, &**name)));
            let wanted = names.map(|(slot, name)| (of_slot(slot).0, of_slot(slot).1, name));
            keyed.map_load(usize::from(state), wanted)?;
        }
        for state in view.lists.keys().map(|(state, _)| *state).collect::<BTreeSet<_>>() {
            let written = view.lists.keys().filter(|(of, _)| *of == state);
            keyed.list_load(usize::from(state), written.map(|(_, slot)| of_slot(*slot)))?;
        }
        Ok(())
    }

    fn changes(&mut self, effects: &Effects) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        self.load_written()?;
        let Some(keyed) = &mut self.keyed else { return Ok(changes) };
        let (keys, none) = ((&self.keys, &self.hashes[..]), keyed.no_key_hash());
        let of_slot = |slot: u32| collections::key_of(slot, keys, none);
        let mut value = |keyed: &mut KeyedState, place: Place, after: Option<u64>| -> Result<(), Error> {
            let (state, (key, hash)) = (usize::from(place.0), of_slot(place.1));
            let tally = |value: u64| Tally { entries: 1, bytes: key.len() as u64 + value };
            let before = keyed.value(state, key, hash)?.map(|value| value.len() as u64);
            let [before, after] = [before, after].map(|value| value.map(tally).unwrap_or_default());
            changes.push(Change { place, before, after });
            Ok(())
        };
        for writes in &effects.values {
            let origins = packed::u32s(&writes.origins).zip(&writes.operations);
            let mut start = 0;
            for ((origin, &operation), end) in origins.zip(packed::u32s(&writes.values.ends)) {
                let length = u64::from(end - std::mem::replace(&mut start, end));
                if matches!(operation, SET | CLEAR) {
                    let slot = self.slots[origin as usize];
                    value(keyed, (writes.state, slot), (operation == SET).then_some(length))?;
                }
            }
        }
        let view = self.overlay.view();
        for (place, written) in &view.values {
            let stamp = keyed.stamp_bytes(usize::from(place.0));
            value(keyed, *place, written.as_ref().map(|value| (value.len() - stamp) as u64))?;
        }
        for (place, written) in &view.maps {
            let (state, (key, hash)) = (usize::from(place.0), of_slot(place.1));
            let (before, stamp) = (keyed.map_head(state, key, hash)?, keyed.stamp_bytes(state));
            let mut after = if written.cleared { Tally::default() } else { before };
            for (name, value) in &written.entries {
                let tally = |value: usize| Tally { entries: 1, bytes: (key.len() + name.len() + value) as u64 };
                let old = if written.cleared { None } else { keyed.map_get(state, key, hash, name)?.map(<[u8]>::len) };
                let old = old.map(tally).unwrap_or_default();
                after.entries = after.entries.saturating_sub(old.entries);
                after.bytes = after.bytes.saturating_sub(old.bytes);
                after += value.as_ref().map(|value| tally(value.len() - stamp)).unwrap_or_default();
            }
            changes.push(Change { place: *place, before, after });
        }
        for (place, written) in &view.lists {
            let (state, (key, hash)) = (usize::from(place.0), of_slot(place.1));
            let (before, stamp) = (keyed.list_head(state, key, hash)?, keyed.stamp_bytes(state) as u64);
            let mut after = if written.cleared { Tally::default() } else { before };
            for value in &written.appended {
                after += Tally { entries: 1, bytes: key.len() as u64 + POSITION_BYTES + value.len() as u64 - stamp };
            }
            changes.push(Change { place: *place, before, after });
        }
        Ok(changes)
    }
}
