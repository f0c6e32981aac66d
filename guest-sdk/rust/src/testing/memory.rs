//! Keyed state in a map, with the undo of a call and of a record.
//!
//! Owns what the host's state and overlay do for an operator under test.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{Formed, column};
use crate::bindings::wasmill::operator::types::{Eager, Fault, OptionalColumn, StateDescriptor, ValueWrites};
use crate::columns::{Strings, U32s};
use crate::error::fatal;
use crate::state::StateHost;

type Key = Option<Vec<u8>>;

/// All states of an operator.
pub(super) struct Memory {
    states: Vec<StateDescriptor>,
    values: BTreeMap<(u16, Key), Vec<u8>>,
    /// The keys of the call's origins.
    origins: Vec<Key>,
    /// The states that ride along in this call.
    riding: BTreeSet<u16>,
    /// What the call's writes replaced, oldest first.
    log: Vec<(u16, Key, Option<Vec<u8>>)>,
}

impl Memory {
    pub(super) fn of(states: &[StateDescriptor]) -> Self {
        Self {
            states: states.to_vec(),
            values: BTreeMap::new(),
            origins: Vec::new(),
            riding: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    pub(super) fn index(&self, name: &str) -> Result<u16, Fault> {
        match self.states.iter().position(|state| state.name == name) {
            Some(index) => Ok(index as u16),
            None => Err(fatal(format_args!("the operator declares no state `{name}`"))),
        }
    }

    pub(super) fn get(&self, state: u16, key: Option<&[u8]>) -> Option<&[u8]> {
        self.values.get(&(state, key.map(<[u8]>::to_vec))).map(Vec::as_slice)
    }

    pub(super) fn put(&mut self, state: u16, key: Key, value: Vec<u8>) {
        self.values.insert((state, key), value);
    }

    pub(super) fn len(&self, state: u16) -> usize {
        self.values.keys().filter(|(of, _)| *of == state).count()
    }

    /// Begins a call and returns what rides along.
    pub(super) fn begin(&mut self, formed: &Formed) -> Vec<Eager> {
        self.log.clear();
        self.origins = (0..formed.len()).map(|r| formed.key(r as u32).ok().flatten().map(<[u8]>::to_vec)).collect();
        let rides = |state: &StateDescriptor| {
            !state.lazy && (state.rides_with.is_empty() || state.rides_with.contains(&formed.input))
        };
        self.riding = (0..).zip(&self.states).filter(|(_, state)| rides(state)).map(|(index, _)| index).collect();
        let eager = |&state: &u16| {
            let values: Vec<Option<&[u8]>> = formed.keys.iter().map(|key| self.get(state, key.as_deref())).collect();
            Eager {
                state,
                values: OptionalColumn {
                    present: values.iter().map(|value| u8::from(value.is_some())).collect(),
                    values: column(values.iter().map(|value| value.unwrap_or_default())),
                },
            }
        };
        self.riding.iter().map(eager).collect()
    }

    /// Makes the writes of a call real.
    pub(super) fn apply(&mut self, formed: &Formed, writes: &[ValueWrites]) -> Result<(), Fault> {
        for ValueWrites { state, origins, operations, values } in writes {
            let values = Strings::check(values).map_err(fatal)?;
            let mut written = BTreeSet::new();
            for (index, origin) in U32s::check(origins).map_err(fatal)?.iter().enumerate() {
                let key = formed.key(origin)?.map(<[u8]>::to_vec);
                if !self.riding.contains(state) || !written.insert(key.clone()) {
                    return Err(fatal(format_args!(
                        "the effects write state {state} twice, or one that does not ride"
                    )));
                }
                match operations.get(index) {
                    Some(0) => drop(self.values.remove(&(*state, key))),
                    Some(1) => self.put(*state, key, values.get(index).to_vec()),
                    _ => return Err(fatal("the effects hold an operation that there is not")),
                }
            }
        }
        Ok(())
    }

    /// Undoes what the call wrote through the imports.
    pub(super) fn undo(&mut self) {
        self.rollback(0);
    }

    fn replace(&mut self, state: u16, origin: u32, value: Option<Vec<u8>>) {
        let key = self.key(state, origin);
        let before = match value {
            Some(value) => self.values.insert((state, key.clone()), value),
            None => self.values.remove(&(state, key.clone())),
        };
        self.log.push((state, key, before));
    }

    /// # Panics
    /// Where the host traps: an origin outside the call, an undeclared state, one that rides along.
    fn key(&self, state: u16, origin: u32) -> Key {
        assert!(usize::from(state) < self.states.len(), "state {state} is not declared");
        assert!(!self.riding.contains(&state), "state {state} rides along and is not to be asked for");
        self.origins[origin as usize].clone()
    }
}

impl StateHost for Memory {
    fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>> {
        self.values.get(&(state, self.key(state, origin))).cloned()
    }

    fn value_set(&mut self, state: u16, origin: u32, value: &[u8]) {
        self.replace(state, origin, Some(value.to_vec()));
    }

    fn value_clear(&mut self, state: u16, origin: u32) {
        self.replace(state, origin, None);
    }

    fn mark(&mut self) -> u32 {
        self.log.len() as u32
    }

    fn rollback(&mut self, mark: u32) {
        for (state, key, before) in self.log.drain(mark as usize..).rev() {
            match before {
                Some(value) => drop(self.values.insert((state, key), value)),
                None => drop(self.values.remove(&(state, key))),
            }
        }
    }
}
