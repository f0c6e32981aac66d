//! State in memory, with the undo of a call and of a record.
//!
//! Owns what the host's state and overlay do for an operator under test. All kinds are rows: a value under an empty name, an
//! entry under its map key, an element under its position; what belongs to no key is kept under an absent one. Does not own
//! timers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::batch::{Actors, column};
use super::expired::{Expired, Leaving};
use super::stamps::Stamps;
use super::timers::Timers;
use crate::bindings::wasmill::operator::state::{Bounds, Page, Timers as TimerPage};
use crate::bindings::wasmill::operator::types::{
    Column, Eager, Fault, OptionalColumn, StateDescriptor, StateKind, ValueWrites,
};
use crate::columns::{Strings, U32s};
use crate::error::fatal;
use crate::state::{StateHost, TIMERS};

pub(crate) type Key = Option<Vec<u8>>;
pub(crate) type Group = (u16, Key);
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A row, what it held before and its stamp then.
type Replaced = (Group, Vec<u8>, Option<Vec<u8>>, Option<i64>);

/// All states of an operator.
pub(crate) struct Memory {
    states: Vec<StateDescriptor>,
    groups: BTreeMap<Group, Rows>,
    pub(super) timers: Timers,
    pub(super) stamps: Stamps,
    /// What has expired and is to be emitted.
    pub(super) leaving: Vec<Leaving>,
    /// The keys of the call's origins, and their times.
    origins: Vec<(Key, i64)>,
    /// Whether broadcast state may be written in this call.
    broadcast: bool,
    /// The states that ride along in this call.
    riding: BTreeSet<u16>,
    /// What the call's writes replaced, oldest first.
    log: Vec<Replaced>,
    /// Calls through the imports so far.
    pub(super) crossings: u64,
}

impl Memory {
    pub(super) fn of(states: &[StateDescriptor]) -> Self {
        Self {
            states: states.to_vec(),
            groups: BTreeMap::new(),
            timers: Timers::default(),
            stamps: Stamps::of(states),
            leaving: Vec::new(),
            origins: Vec::new(),
            broadcast: false,
            riding: BTreeSet::new(),
            log: Vec::new(),
            crossings: 0,
        }
    }

    pub(super) fn index(&self, name: &str) -> Result<u16, Fault> {
        match self.states.iter().position(|state| state.name == name) {
            Some(index) => Ok(index as u16),
            None => Err(fatal(format_args!("the operator declares no state `{name}`"))),
        }
    }

    /// The rows of a key in a state.
    pub(super) fn rows<'a>(
        &'a self,
        state: u16,
        key: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> + use<'a> {
        self.groups.get(&(state, key.map(<[u8]>::to_vec))).into_iter().flatten()
    }

    pub(super) fn get(&self, state: u16, key: Option<&[u8]>) -> Option<&[u8]> {
        self.groups.get(&(state, key.map(<[u8]>::to_vec)))?.get(&[][..]).map(Vec::as_slice)
    }

    pub(crate) fn put(&mut self, state: u16, key: Key, row: Vec<u8>, value: Vec<u8>) {
        let group = (state, key);
        self.stamps.wrote(&group, &row, true);
        self.groups.entry(group).or_default().insert(row, value);
    }

    /// How many keys have something in a state.
    pub(super) fn keys(&self, state: u16) -> usize {
        self.groups.keys().filter(|(of, _)| *of == state).count()
    }

    /// How many rows a state has.
    pub(super) fn row_count(&self, state: u16) -> usize {
        self.groups.iter().filter(|((of, _), _)| *of == state).map(|(_, rows)| rows.len()).sum()
    }

    /// Begins a call of an input, or of timers, and returns what rides along.
    pub(super) fn begin(&mut self, actors: &Actors, input: Option<u16>, broadcast: bool) -> Vec<Eager> {
        self.log.clear();
        self.broadcast = broadcast;
        let key = |origin| actors.key(origin).ok().flatten().map(<[u8]>::to_vec);
        self.origins = (0..actors.len() as u32).map(|origin| (key(origin), actors.time(origin))).collect();
        self.expire();
        let input = input.unwrap_or(TIMERS);
        let rides = |state: &StateDescriptor| {
            // A key belongs to one subtask, and a broadcast record comes to all.
            !broadcast
                && state.kind == StateKind::ValueState
                && !state.lazy
                && (state.rides_with.is_empty() || state.rides_with.contains(&input))
        };
        self.riding = (0..).zip(&self.states).filter(|(_, state)| rides(state)).map(|(index, _)| index).collect();
        let eager = |&state: &u16| {
            let values: Vec<Option<&[u8]>> = actors.keys.iter().map(|key| self.get(state, key.as_deref())).collect();
            Eager { state, values: optional(&values) }
        };
        self.riding.iter().map(eager).collect()
    }

    /// Makes the value writes of a call real.
    pub(super) fn apply(&mut self, actors: &Actors, writes: &[ValueWrites]) -> Result<(), Fault> {
        for ValueWrites { state, origins, operations, values } in writes {
            let values = Strings::check(values).map_err(fatal)?;
            let mut written = BTreeSet::new();
            for (index, origin) in U32s::check(origins).map_err(fatal)?.iter().enumerate() {
                let key = actors.key(origin)?.map(<[u8]>::to_vec);
                self.stamps.act_for(actors.time(origin));
                let of = self.states.get(usize::from(*state));
                let fits = !self.broadcast && of.is_some_and(|of| of.kind == StateKind::ValueState);
                if !fits || !written.insert(key.clone()) {
                    return Err(fatal(format_args!(
                        "the effects write state {state} twice, or it is no value state of the call's keys"
                    )));
                }
                match operations.get(index) {
                    Some(0) => self.replace((*state, key), Vec::new(), None),
                    Some(1) => self.replace((*state, key), Vec::new(), Some(values.get(index).to_vec())),
                    Some(2) => self.touch((*state, key)),
                    _ => return Err(fatal("the effects hold an operation that there is not")),
                }
            }
        }
        Ok(())
    }

    /// Undoes what the call wrote.
    pub(super) fn undo(&mut self) {
        self.undo_to(0);
    }

    fn undo_to(&mut self, mark: usize) {
        for (group, row, before, stamp) in self.log.split_off(mark).into_iter().rev() {
            self.exchange(group.clone(), row.clone(), before);
            self.stamps.put_back(group, row, stamp);
        }
    }

    fn replace(&mut self, group: Group, row: Vec<u8>, value: Option<Vec<u8>>) {
        let stamp = self.stamps.wrote(&group, &row, value.is_some());
        let before = self.exchange(group.clone(), row.clone(), value);
        self.log.push((group, row, before, stamp));
    }

    /// A value was read.
    fn touch(&mut self, group: Group) {
        let value = self.groups.get(&group).and_then(|rows| rows.get(&[][..])).cloned();
        if let Some(value) = value.filter(|_| self.stamps.is_refreshed_by_reads(group.0)) {
            self.replace(group, Vec::new(), Some(value));
        }
    }

    /// Removes what has expired.
    pub(super) fn expire(&mut self) {
        let expired = self.stamps.expired();
        for (group, row, time) in &expired {
            self.stamps.wrote(group, row, false);
            if let Some(value) = self.exchange(group.clone(), row.clone(), None) {
                self.leaves(group, row, &value, *time);
            }
        }
        let lists: BTreeSet<&Group> =
            expired.iter().map(|(group, ..)| group).filter(|group| self.stamps.is_list(group)).collect();
        for group in lists {
            // The elements that are left have their places counted from 0 again.
            for (position, (row, value)) in (0u64..).zip(self.groups.remove(group).unwrap_or_default()) {
                let stamp = self.stamps.wrote(group, &row, false);
                let place = position.to_be_bytes().to_vec();
                self.stamps.put_back(group.clone(), place.clone(), stamp);
                self.groups.entry(group.clone()).or_default().insert(place, value);
            }
        }
    }

    /// Keeps the record of an entry that has expired, where its state sends it to an output.
    fn leaves(&mut self, group: &Group, row: &[u8], value: &[u8], time: i64) {
        let state = &self.states[usize::from(group.0)];
        let Some(output) = state.ttl.and_then(|ttl| ttl.expired_output) else { return };
        let map_key = (state.kind == StateKind::MapState).then_some(row);
        let key = group.1.as_deref().unwrap_or_default();
        let expired = Expired { state: &state.name, codec: state.codec, key, map_key, value, time };
        if let Ok(bytes) = expired.record() {
            self.leaving.push(Leaving { output, key: Some(key.to_vec()), time, bytes });
        }
    }

    fn exchange(&mut self, group: Group, row: Vec<u8>, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let rows = self.groups.entry(group.clone()).or_default();
        let before = match value {
            Some(value) => rows.insert(row, value),
            None => rows.remove(&row),
        };
        if rows.is_empty() {
            self.groups.remove(&group);
        }
        before
    }

    fn clear(&mut self, group: &Group) {
        let rows: Vec<Vec<u8>> = self.groups.get(group).into_iter().flat_map(|rows| rows.keys().cloned()).collect();
        for row in rows {
            self.replace(group.clone(), row, None);
        }
    }

    fn append(&mut self, group: Group, values: &Column) {
        let values = strings(values);
        let last = self.groups.get(&group).and_then(|rows| rows.last_key_value());
        let start = last.map_or(0, |(position, _)| position_of(position) + 1);
        for at in 0..values.len() {
            let position = (start + at as u64).to_be_bytes().to_vec();
            self.replace(group.clone(), position, Some(values.get(at).to_vec()));
        }
    }

    /// The rows of the origin's key.
    ///
    /// # Panics
    /// Where the host traps: a broadcast input's record, an origin outside the call, an undeclared state, one of another kind or that
    /// rides along.
    fn group(&mut self, state: u16, origin: u32, kind: StateKind) -> Group {
        assert!(!self.broadcast, "a broadcast input's record has no keyed state: a key belongs to one subtask");
        assert!(!self.riding.contains(&state), "state {state} rides along and is not to be asked for");
        let acting = self.origins.get(origin as usize);
        let (key, time) = acting.unwrap_or_else(|| panic!("origin {origin} is not in the call")).clone();
        self.stamps.act_for(time);
        self.check_kind(state, &[kind]);
        (state, key)
    }

    fn check_kind(&mut self, state: u16, kinds: &[StateKind]) {
        self.crossings += 1;
        let declared = self.states.get(usize::from(state)).unwrap_or_else(|| panic!("state {state} is not declared"));
        assert!(kinds.contains(&declared.kind), "state `{}` is of another kind", declared.name);
    }

    fn broadcast_group(&mut self, state: u16) -> Group {
        self.check_kind(state, &[StateKind::BroadcastState]);
        (state, None)
    }

    fn written_broadcast_group(&mut self, state: u16) -> Group {
        assert!(self.broadcast, "state {state} is written on behalf of a broadcast input's record only");
        self.broadcast_group(state)
    }

    fn operator_group(&mut self, state: u16) -> Group {
        self.check_kind(state, &[StateKind::OperatorSplit, StateKind::OperatorUnion]);
        (state, None)
    }

    fn page(&self, group: &Group, bounds: &Bounds) -> Page {
        let end = |end: &Option<Vec<u8>>, open: bool| match end {
            None => Bound::Unbounded,
            Some(key) if open => Bound::Excluded(key.clone()),
            Some(key) => Bound::Included(key.clone()),
        };
        let (lower, upper) = (end(&bounds.lower, bounds.lower_open), end(&bounds.upper, bounds.upper_open));
        let none = Rows::new();
        let rows = self.groups.get(group).unwrap_or(&none).range((lower, upper));
        let limit = bounds.limit as usize;
        let mut found: Vec<_> =
            if bounds.reverse { rows.rev().take(limit + 1).collect() } else { rows.take(limit + 1).collect() };
        let more = found.len() > limit;
        found.truncate(limit);
        Page {
            keys: column(found.iter().map(|(key, _)| key.as_slice())),
            values: column(found.iter().map(|(_, value)| value.as_slice())),
            more,
        }
    }

    fn elements(&self, group: &Group, start: u64, limit: u32) -> Column {
        let rows = self.groups.get(group).into_iter().flat_map(|rows| rows.range(start.to_be_bytes().to_vec()..));
        column(rows.take(limit as usize).map(|(_, value)| value.as_slice()))
    }
}

impl StateHost for Memory {
    fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>> {
        let group = self.group(state, origin, StateKind::ValueState);
        self.touch(group.clone());
        self.groups.get(&group)?.get(&[][..]).cloned()
    }

    fn mark(&mut self) -> u32 {
        self.log.len() as u32
    }
    fn rollback(&mut self, mark: u32) {
        self.undo_to(mark as usize);
    }

    fn map_get(&mut self, state: u16, origin: u32, key: &[u8]) -> Option<Vec<u8>> {
        let group = self.group(state, origin, StateKind::MapState);
        self.groups.get(&group)?.get(key).cloned()
    }
    fn map_clear(&mut self, state: u16, origin: u32) {
        let group = self.group(state, origin, StateKind::MapState);
        self.clear(&group);
    }
    fn map_get_many(&mut self, state: u16, origins: &[u8], keys: &Column) -> OptionalColumn {
        let crossings = self.crossings;
        let keys = strings(keys);
        let values: Vec<Option<Vec<u8>>> =
            u32s(origins).enumerate().map(|(at, origin)| self.map_get(state, origin, keys.get(at))).collect();
        self.crossings = crossings + 1;
        optional(&values.iter().map(Option::as_deref).collect::<Vec<_>>())
    }
    fn map_put_many(&mut self, state: u16, origins: &[u8], keys: &Column, values: &Column) {
        let crossings = self.crossings;
        let (keys, values) = (strings(keys), strings(values));
        for (at, origin) in u32s(origins).enumerate() {
            let group = self.group(state, origin, StateKind::MapState);
            self.replace(group, keys.get(at).to_vec(), Some(values.get(at).to_vec()));
        }
        self.crossings = crossings + 1;
    }
    fn map_remove_many(&mut self, state: u16, origins: &[u8], keys: &Column) {
        let crossings = self.crossings;
        let keys = strings(keys);
        for (at, origin) in u32s(origins).enumerate() {
            let group = self.group(state, origin, StateKind::MapState);
            self.replace(group, keys.get(at).to_vec(), None);
        }
        self.crossings = crossings + 1;
    }
    fn map_page(&mut self, state: u16, origin: u32, bounds: &Bounds) -> Page {
        let group = self.group(state, origin, StateKind::MapState);
        self.page(&group, bounds)
    }

    fn list_append_many(&mut self, state: u16, origins: &[u8], values: &Column) {
        let crossings = self.crossings;
        let values = strings(values);
        for (at, origin) in u32s(origins).enumerate() {
            let group = self.group(state, origin, StateKind::ListState);
            self.append(group, &column(std::iter::once(values.get(at))));
        }
        self.crossings = crossings + 1;
    }
    fn list_length(&mut self, state: u16, origin: u32) -> u64 {
        let group = self.group(state, origin, StateKind::ListState);
        self.groups.get(&group).and_then(|rows| rows.last_key_value()).map_or(0, |(last, _)| position_of(last) + 1)
    }
    fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Column {
        let group = self.group(state, origin, StateKind::ListState);
        self.elements(&group, start, limit)
    }
    fn list_replace(&mut self, state: u16, origin: u32, values: &Column) {
        let group = self.group(state, origin, StateKind::ListState);
        self.clear(&group);
        self.append(group, values);
    }
    fn list_clear(&mut self, state: u16, origin: u32) {
        let group = self.group(state, origin, StateKind::ListState);
        self.clear(&group);
    }

    fn broadcast_get(&mut self, state: u16, key: &[u8]) -> Option<Vec<u8>> {
        let group = self.broadcast_group(state);
        self.groups.get(&group)?.get(key).cloned()
    }
    fn broadcast_put(&mut self, state: u16, key: &[u8], value: &[u8]) {
        let group = self.written_broadcast_group(state);
        self.replace(group, key.to_vec(), Some(value.to_vec()));
    }
    fn broadcast_remove(&mut self, state: u16, key: &[u8]) {
        let group = self.written_broadcast_group(state);
        self.replace(group, key.to_vec(), None);
    }
    fn broadcast_page(&mut self, state: u16, bounds: &Bounds) -> Page {
        let group = self.broadcast_group(state);
        self.page(&group, bounds)
    }

    fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Column {
        let group = self.operator_group(state);
        self.elements(&group, start, limit)
    }
    fn operator_replace(&mut self, state: u16, values: &Column) {
        let group = self.operator_group(state);
        self.clear(&group);
        self.append(group, values);
    }

    fn timers_page(&mut self, origin: u32, after: Option<(u8, i64, u32)>, limit: u32) -> TimerPage {
        self.crossings += 1;
        let acting = self.origins.get(origin as usize);
        let (key, _) = acting.unwrap_or_else(|| panic!("origin {origin} is not in the call"));
        self.timers.page(key, after, limit as usize)
    }
}

/// # Panics
/// Where the host traps: a column whose ends do not fit.
fn strings(column: &Column) -> Strings<'_> {
    Strings::check(column).unwrap_or_else(|error| panic!("the guest broke the contract: {error}"))
}

/// # Panics
/// As [`strings`].
fn u32s(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    U32s::check(bytes).unwrap_or_else(|error| panic!("the guest broke the contract: {error}")).iter()
}

fn optional(values: &[Option<&[u8]>]) -> OptionalColumn {
    OptionalColumn {
        present: values.iter().map(|value| u8::from(value.is_some())).collect(),
        values: column(values.iter().map(|value| value.unwrap_or_default())),
    }
}

fn position_of(row: &[u8]) -> u64 {
    row.first_chunk().map_or(0, |&position| u64::from_be_bytes(position))
}
