//! What a call wrote as its own reads see it: the newest of each value and entry, what was appended, what was cleared.
//!
//! Owns that it follows the log, forwards when something is read and backwards when something is rolled back. Does not own the log
//! ([`super::overlay`]).

use std::collections::BTreeMap;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::overlay::{Place, Step, Write};
use crate::state::{Name, Range, Value};

/// The writes of a call by place, as far as the log was taken in.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) values: HashMap<Place, Option<Value>, RandomState>,
    pub(super) maps: HashMap<Place, MapWrites, RandomState>,
    pub(super) lists: HashMap<Place, ListWrites, RandomState>,
    /// How to take back each step of the log that was taken in.
    undo: Vec<Undo>,
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

/// What there was before a step.
#[derive(Debug)]
enum Undo {
    Value(Option<Option<Value>>),
    Entry(Option<Option<Value>>),
    Map(MapWrites),
    Appended(usize),
    List(ListWrites),
}

impl View {
    /// Takes in what the log has more.
    pub(super) fn take_in(&mut self, log: &[Step], elements: &[Value]) {
        for Step { place, write, .. } in log.get(self.undo.len()..).unwrap_or_default() {
            let undo = match write {
                Write::Value(value) => Undo::Value(self.values.insert(*place, value.clone())),
                Write::Entry(name, value) => {
                    let entries = &mut self.maps.entry(*place).or_default().entries;
                    Undo::Entry(entries.insert(name.clone(), value.clone()))
                }
                Write::ClearMap => {
                    let cleared = MapWrites { cleared: true, entries: BTreeMap::new() };
                    Undo::Map(self.maps.insert(*place, cleared).unwrap_or_default())
                }
                Write::Append(start, end) => {
                    let appended = &mut self.lists.entry(*place).or_default().appended;
                    let before = appended.len();
                    appended.extend_from_slice(elements.get(*start..*end).unwrap_or_default());
                    Undo::Appended(before)
                }
                Write::ClearList => {
                    let cleared = ListWrites { cleared: true, appended: Vec::new() };
                    Undo::List(self.lists.insert(*place, cleared).unwrap_or_default())
                }
            };
            self.undo.push(undo);
        }
    }

    /// Takes back the log's last step, number `number`, if it was taken in.
    pub(super) fn give_back(&mut self, number: usize, Step { place, write, .. }: &Step) {
        if self.undo.len() <= number {
            return;
        }
        match (self.undo.pop(), write) {
            (Some(Undo::Value(Some(before))), _) => drop(self.values.insert(*place, before)),
            (Some(Undo::Value(None)), _) => drop(self.values.remove(place)),
            (Some(Undo::Entry(before)), Write::Entry(name, _)) => {
                let entries = &mut self.maps.entry(*place).or_default().entries;
                match before {
                    Some(value) => entries.insert(name.clone(), value),
                    None => entries.remove(name),
                };
            }
            (Some(Undo::Map(before)), _) => drop(self.maps.insert(*place, before)),
            (Some(Undo::Appended(before)), _) => {
                self.lists.entry(*place).or_default().appended.truncate(before);
            }
            (Some(Undo::List(before)), _) => drop(self.lists.insert(*place, before)),
            _ => {}
        }
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.maps.clear();
        self.lists.clear();
        self.undo.clear();
    }
}

impl MapWrites {
    /// What the call itself wrote or removed; `None`: the state must be asked.
    pub(super) fn get(&self, name: &[u8]) -> Option<Option<&Value>> {
        match self.entries.get(name) {
            Some(value) => Some(value.as_ref()),
            None if self.cleared => Some(None),
            None => None,
        }
    }

    /// What was written within a range that is not empty.
    pub(super) fn range<'a>(
        &'a self,
        range: Range<'a>,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.entries.range::<[u8], _>(range.bounds()).map(|(name, value)| (&**name, value.as_deref()))
    }
}
