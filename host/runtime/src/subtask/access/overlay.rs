//! What a call wrote through the state imports and may still be undone: the overlay, with marks and rollback.
//!
//! Owns that a rollback undoes writes of every kind, and the bound on their bytes. Does not own what they are written over.

use std::collections::{BTreeMap, HashMap};

use crate::guest::StateError;
use crate::state::{Name, Value};

/// Bytes of lazy writes that a call may hold, what marks may bring back included.
const LIMIT: usize = 64 << 20;
/// What a write is counted for beside its bytes.
const WRITE_BYTES: usize = 64;

/// A state's index and a slot of the call.
pub(super) type Place = (u16, u32);

/// The writes of a call.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    pub(super) values: HashMap<Place, Option<Vec<u8>>>,
    pub(super) maps: HashMap<Place, MapWrites>,
    pub(super) lists: HashMap<Place, ListWrites>,
    /// How to undo each write of this call, with what it was counted for.
    undo: Vec<(Undo, usize)>,
    bytes: usize,
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
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.maps.is_empty() && self.lists.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.maps.clear();
        self.lists.clear();
        self.undo.clear();
        self.bytes = 0;
    }

    pub(super) fn write_value(&mut self, place: Place, value: Option<Vec<u8>>) -> Result<(), StateError> {
        let bytes = self.charge(value.as_ref().map_or(0, Vec::len))?;
        let before = self.values.insert(place, value);
        self.undo.push((Undo::Value { place, before }, bytes));
        Ok(())
    }

    pub(super) fn write_entry(&mut self, place: Place, name: &[u8], value: Option<&[u8]>) -> Result<(), StateError> {
        // Twice: the map key is kept for the undo too.
        let bytes = self.charge(2 * name.len() + value.map_or(0, <[u8]>::len))?;
        let name = Name::from(name);
        let entries = &mut self.maps.entry(place).or_default().entries;
        let before = entries.insert(Name::clone(&name), value.map(Value::from));
        self.undo.push((Undo::Entry { place, name, before }, bytes));
        Ok(())
    }

    pub(super) fn clear_map(&mut self, place: Place) -> Result<(), StateError> {
        let bytes = self.charge(0)?;
        let cleared = MapWrites { cleared: true, entries: BTreeMap::new() };
        let before = self.maps.insert(place, cleared).unwrap_or_default();
        self.undo.push((Undo::MapCleared { place, before }, bytes));
        Ok(())
    }

    pub(super) fn append(&mut self, place: Place, values: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError> {
        let before = self.lists.get(&place).map_or(0, |list| list.appended.len());
        self.undo.push((Undo::Appended { place, before }, 0));
        for value in values {
            let bytes = self.charge(value.len())?;
            if let Some((_, counted)) = self.undo.last_mut() {
                *counted += bytes;
            }
            self.lists.entry(place).or_default().appended.push(Value::from(value));
        }
        Ok(())
    }

    pub(super) fn clear_list(&mut self, place: Place) -> Result<(), StateError> {
        let bytes = self.charge(0)?;
        let cleared = ListWrites { cleared: true, appended: Vec::new() };
        let before = self.lists.insert(place, cleared).unwrap_or_default();
        self.undo.push((Undo::ListCleared { place, before }, bytes));
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
        for (undo, bytes) in self.undo.drain(mark as usize..).rev() {
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
        if self.bytes + bytes > LIMIT {
            return Err(StateError::Misuse(format!(
                "the call wrote more than {} MiB of state through the imports: make batches smaller",
                LIMIT >> 20
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
