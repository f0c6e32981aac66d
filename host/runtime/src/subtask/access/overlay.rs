//! What a call wrote through the state imports and may still be undone: the overlay, with marks and rollback.
//!
//! Owns that a rollback undoes writes of every kind, and the bound on their bytes. Does not own what they are written over.

use std::collections::{BTreeMap, HashMap};

use super::lifetime::Touch;
use crate::guest::StateError;
use crate::state::{Name, Value};

/// Bytes of lazy writes that a call may hold, what marks may bring back included, where nothing else is said.
const LIMIT: usize = 64 << 20;
/// What a write is counted for beside its bytes.
const WRITE_BYTES: usize = 64;

/// A state's index and a slot of the call.
pub(super) type Place = (u16, u32);

/// The slot of state that belongs to no key.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// The writes of a call.
#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) values: HashMap<Place, Option<Vec<u8>>>,
    pub(super) maps: HashMap<Place, MapWrites>,
    pub(super) lists: HashMap<Place, ListWrites>,
    /// Reads that refresh, which no rollback undoes.
    pub(super) touches: Vec<Touch>,
    /// How to undo each write of this call.
    undo: Vec<Step>,
    bytes: usize,
    limit: usize,
    /// On whose behalf is written now; `None`: nobody says.
    origin: Option<u32>,
}

impl Default for Overlay {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            maps: HashMap::new(),
            lists: HashMap::new(),
            touches: Vec::new(),
            undo: Vec::new(),
            bytes: 0,
            limit: LIMIT,
            origin: None,
        }
    }
}

/// A write that can be undone.
#[derive(Debug)]
struct Step {
    undo: Undo,
    /// What it was counted for.
    bytes: usize,
    origin: Option<u32>,
}

/// What was written to the map of one key.
#[derive(Debug, Default)]
pub(super) struct MapWrites {
    /// Nothing of what the state has counts.
    pub(super) cleared: bool,
    /// `None`: removed.
    pub(super) entries: BTreeMap<Name, Option<Value>>,
}

/// What was written to the list of one key.
#[derive(Debug, Default)]
pub(super) struct ListWrites {
    /// Nothing of what the state has counts.
    pub(super) cleared: bool,
    pub(super) appended: Vec<Value>,
}

#[derive(Debug)]
enum Undo {
    Value { place: Place, before: Option<Option<Vec<u8>>> },
    Entry { place: Place, name: Name, before: Option<Option<Value>> },
    MapCleared { place: Place, before: MapWrites },
    Appended { place: Place, before: usize },
    ListCleared { place: Place, before: ListWrites },
}

impl Overlay {
    pub(super) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// What is written from now on is written on behalf of `origin`; `None`: of any.
    pub(super) fn act_for(&mut self, origin: Option<u32>) {
        self.origin = origin;
    }

    pub(super) fn wrote_for(&self, origins: impl Iterator<Item = u32> + Clone) -> bool {
        self.undo.iter().any(|step| origins.clone().any(|origin| step.origin.is_none_or(|own| own == origin)))
    }

    fn wrote(&mut self, undo: Undo, bytes: usize) {
        self.undo.push(Step { undo, bytes, origin: self.origin });
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.maps.clear();
        self.lists.clear();
        self.touches.clear();
        self.undo.clear();
        self.bytes = 0;
    }

    pub(super) fn write_value(&mut self, place: Place, value: Option<Vec<u8>>) -> Result<(), StateError> {
        let bytes = self.charge(value.as_ref().map_or(0, Vec::len))?;
        let before = self.values.insert(place, value);
        self.wrote(Undo::Value { place, before }, bytes);
        Ok(())
    }

    pub(super) fn write_entry(&mut self, place: Place, name: &[u8], value: Option<Value>) -> Result<(), StateError> {
        // Twice: the map key is kept for the undo too.
        let bytes = self.charge(2 * name.len() + value.as_ref().map_or(0, |value| value.len()))?;
        let name = Name::from(name);
        let entries = &mut self.maps.entry(place).or_default().entries;
        let before = entries.insert(Name::clone(&name), value);
        self.wrote(Undo::Entry { place, name, before }, bytes);
        Ok(())
    }

    pub(super) fn clear_map(&mut self, place: Place) -> Result<(), StateError> {
        let bytes = self.charge(0)?;
        let cleared = MapWrites { cleared: true, entries: BTreeMap::new() };
        let before = self.maps.insert(place, cleared).unwrap_or_default();
        self.wrote(Undo::MapCleared { place, before }, bytes);
        Ok(())
    }

    /// Keeps a read that refreshes; it counts as a write.
    pub(super) fn touch(&mut self, touch: Touch) -> Result<(), StateError> {
        self.charge(touch.bytes())?;
        self.touches.push(touch);
        Ok(())
    }

    pub(super) fn append(&mut self, place: Place, values: &mut dyn Iterator<Item = Value>) -> Result<(), StateError> {
        let bytes = self.charge(0)?;
        let before = self.lists.get(&place).map_or(0, |list| list.appended.len());
        self.wrote(Undo::Appended { place, before }, bytes);
        for value in values {
            let bytes = self.charge(value.len())?;
            if let Some(step) = self.undo.last_mut() {
                step.bytes += bytes;
            }
            self.lists.entry(place).or_default().appended.push(value);
        }
        Ok(())
    }

    pub(super) fn clear_list(&mut self, place: Place) -> Result<(), StateError> {
        let bytes = self.charge(0)?;
        let cleared = ListWrites { cleared: true, appended: Vec::new() };
        let before = self.lists.insert(place, cleared).unwrap_or_default();
        self.wrote(Undo::ListCleared { place, before }, bytes);
        Ok(())
    }

    pub(super) fn mark(&self) -> u32 {
        u32::try_from(self.undo.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn rollback(&mut self, mark: u32) -> Result<(), StateError> {
        if mark as usize > self.undo.len() {
            return Err(StateError::Misuse(format!(
                "mark {mark} was not given in this call, or was rolled back before"
            )));
        }
        for Step { undo, bytes, .. } in self.undo.drain(mark as usize..).rev() {
            self.bytes -= bytes;
            match undo {
                Undo::Value { place, before } => put_back(&mut self.values, place, before),
                Undo::Entry { place, name, before } => {
                    let entries = &mut self.maps.entry(place).or_default().entries;
                    match before {
                        Some(value) => entries.insert(name, value),
                        None => entries.remove(&name),
                    };
                }
                Undo::MapCleared { place, before } => put_back(&mut self.maps, place, Some(before)),
                Undo::Appended { place, before } => {
                    self.lists.entry(place).or_default().appended.truncate(before);
                }
                Undo::ListCleared { place, before } => put_back(&mut self.lists, place, Some(before)),
            }
        }
        Ok(())
    }

    /// Counts a write; returns for how much.
    fn charge(&mut self, bytes: usize) -> Result<usize, StateError> {
        let bytes = bytes + WRITE_BYTES;
        if self.bytes + bytes > self.limit {
            let limit = self.limit;
            return Err(StateError::Misuse(format!(
                "the call wrote more than its limit of {limit} bytes of lazy state: raise `limits.overlay`, or write less in one call"
            )));
        }
        self.bytes += bytes;
        Ok(bytes)
    }
}

fn put_back<T>(writes: &mut HashMap<Place, T>, place: Place, before: Option<T>) {
    match before {
        Some(before) => writes.insert(place, before),
        None => writes.remove(&place),
    };
}
