//! The background sweep: removes expired entries that nobody reads, some rows at a time, between batches.
//!
//! Owns which rows are looked at next. What it finds it removes by the subtask's own writes, so nothing goes behind a cut's back,
//! and counts are exact. Does not own the rules (`core::ttl`), nor when it runs.

use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::KeyHash;
use wasmill_core::ttl::{Judge, Stamp};

use super::backend::Span;
use super::collection::Place;
use super::error::Error;
use super::keyed::KeyedState;
use super::lifetime::{find, split, stamped};
use super::row::RowError;
use super::run::{Known, Name};
use super::{row, stamp_into};

/// Where the sweep goes on.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    state: usize,
    /// The row looked at last; empty at the beginning of a state.
    after: Vec<u8>,
    /// Rows with something to do.
    found: Vec<Vec<u8>>,
    /// Only states whose expired entries are emitted are looked at.
    emitted: bool,
}

impl KeyedState {
    /// Looks at the next `limit` rows that were written out: removes what has expired, and stamps what has no stamp yet. True once
    /// all rows of all states with a TTL were looked at; then it begins anew.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn sweep(&mut self, limit: usize) -> Result<bool, Error> {
        let emitted = self.sweep.emitted;
        let looked_at = |ttl: &Ttl| !emitted || ttl.expired_output.is_some();
        let next = |state| {
            self.ttl(state).filter(looked_at).map(|ttl| (state, ttl, Sweep { state, emitted, ..Sweep::default() }))
        };
        let Some((state, ttl, fresh)) = (self.sweep.state..self.rows.states.len()).find_map(next) else {
            self.sweep = Sweep::default();
            return Ok(true);
        };
        if state != self.sweep.state {
            self.sweep = fresh;
        }
        let judge = self.lifetimes.judge(ttl);
        let more = self.look(&judge, limit)?;
        self.leaving.cleaning = true;
        let cleaned = std::mem::take(&mut self.sweep.found).iter().try_for_each(|row| self.clean(state, &judge, row));
        self.leaving.cleaning = false;
        cleaned?;
        if !more {
            self.sweep = Sweep { state: state + 1, emitted, ..Sweep::default() };
        }
        Ok(false)
    }

    /// Lets the sweep begin anew, over all that was written, with the states alone whose expired entries are emitted.
    ///
    /// # Errors
    /// As [`KeyedState::write_out`].
    pub fn sweep_emitted(&mut self) -> Result<(), Error> {
        self.sweep = Sweep { emitted: true, ..Sweep::default() };
        self.write_out()
    }

    /// Finds what is to be done among the next `limit` rows; whether there are more.
    fn look(&mut self, judge: &Judge, limit: usize) -> Result<bool, Error> {
        let Sweep { state, after, found, .. } = &mut self.sweep;
        let (state, mut left, mut bad) = (*state, limit, None);
        if after.is_empty() {
            after.extend_from_slice(&self.range.start.to_be_bytes());
        } else {
            // The next in the order of bytes.
            after.push(0);
        }
        let lower = after.clone();
        let (ttl, stored) = (Some(*judge.ttl()), &mut self.stored);
        let upper = self.range.end.to_be_bytes();
        let span = Span { lower: &lower, upper: &upper, reverse: false, again: false };
        let mut rows = self.rows.backend.cursor(state, &span)?;
        while let Some((key, value)) = rows.item().filter(|_| left > 0 && bad.is_none()) {
            left -= 1;
            after.clear();
            after.extend_from_slice(key);
            let at = row::decode_value(value).and_then(|found| find(found.entry, ttl, value.len(), stored));
            match at {
                Err(RowError::Head) => {}
                Ok(at) => {
                    let stamp = split(at.map_or(&stored[..], |at| &value[at..])).0;
                    if !judge.is_alive(stamp) || judge.lacks(stamp).is_some() {
                        found.push(key.to_vec());
                    }
                }
                Err(reason) => bad = Some((key.to_vec(), reason)),
            }
            rows.next();
        }
        rows.check()?;
        match bad {
            Some((key, reason)) => Err(self.rows.backend.bad_row(state, &key, reason)),
            None => Ok(left == 0),
        }
    }

    /// Removes or stamps what belongs to a row, as it is now.
    fn clean(&mut self, state: usize, judge: &Judge, row: &[u8]) -> Result<(), Error> {
        let bad = |reason| self.rows.backend.bad_row(state, row, reason);
        let (_, key, rest) = row::decode_key(row).map_err(bad)?;
        let hash = KeyHash::of(key);
        match self.rows.states[state].kind {
            StateKind::Value => self.clean_value((state, key, hash), judge),
            kind => {
                let name = Name::from(row::decode_entry(rest).map_err(bad)?);
                self.clean_entry((state, key, hash), kind, &name, judge)
            }
        }
    }

    fn clean_value(&mut self, (state, key, hash): Place<'_>, judge: &Judge) -> Result<(), Error> {
        let Some(spot) = self.stored_value(state, key, hash)? else { return Ok(()) };
        let Some((stamp, value)) = self.cache.value(spot).map(split) else { return Ok(()) };
        if !judge.is_alive(stamp) {
            return self.clear_value(state, key, hash);
        }
        let Some(stamp) = judge.lacks(stamp) else { return Ok(()) };
        let mut stored = Vec::new();
        stamp_into(stamp, value, &mut stored);
        self.set_value(state, key, hash, &stored)
    }

    fn clean_entry(&mut self, place: Place<'_>, kind: StateKind, name: &Name, judge: &Judge) -> Result<(), Error> {
        let index = self.run(kind, place)?;
        self.know(index, Some(name))?;
        let Known::Value(stored) = self.runs.get(index).get(name) else { return Ok(()) };
        let (stamp, value) = split(stored);
        if let Some(stamp) = judge.lacks(stamp) {
            // No write: what has expired leaves once.
            let (before, stored) = (stored.len(), stamped(stamp, value));
            let at = self.runs.get(index).find(name);
            self.replace_entry(index, (name, at), Some(before), Some(stored));
        }
        match kind {
            StateKind::List => self.drop_front(index, |stamp: Stamp| judge.is_alive(stamp)),
            _ if !judge.is_alive(stamp) => self.write_entry(index, name, None),
            _ => Ok(()),
        }
    }
}
