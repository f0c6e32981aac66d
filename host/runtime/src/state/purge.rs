//! What had expired under a TTL that a state has no more, or has otherwise, is removed before anything is read: else it would
//! come back.
//!
//! Owns this one pass over a state's rows, right after a restore, when nothing is in the cache. Does not own the rules (`core::ttl`).

use std::collections::VecDeque;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::{KeyGroup, KeyGroupRange};
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::{Judge, Now, Stamp};

use super::backend::{Backend, Writes};
use super::error::Error;
use super::expired::Expired;
use super::keyed::KeyedState;
use super::lifetime::split;
use super::row::{self, FoundEntry, Head, RowError};
use super::{Counts, StateSpec};

/// The map or list whose entries are looked at.
struct Open {
    row: Vec<u8>,
    head: Head,
    /// Of a list: every element so far has expired.
    at_front: bool,
    changed: bool,
    /// When the last of those removed has expired.
    expired: Option<Timestamp>,
}

impl KeyedState {
    /// Removes what expired by `now` under the TTL `was`, which the restored rows of a state were written with and which it has no
    /// more, or has otherwise. Where the state now sends what expires to an output, that goes there. To be called before anything is
    /// read or written.
    ///
    /// # Errors
    /// A failure of the backend, or a row that cannot be read.
    pub fn purge(&mut self, state: usize, was: Ttl, now: Now) -> Result<(), Error> {
        let Some(spec) = self.rows.states.get(state) else { return Ok(()) };
        let judge = Judge::new(was, now.of(was.domain), None);
        let emits = spec.ttl.is_some_and(|ttl| ttl.expired_output.is_some());
        let leaving = emits.then_some(&mut self.leaving.queue);
        purge(&self.rows.backend, (state, spec), &judge, self.range, (&mut self.counts, leaving))
    }
}

/// Removes from the state with index `state` what is not alive for `judge`, which knows the TTL that the rows were written with.
fn purge(
    backend: &Backend,
    (state, spec): (usize, &StateSpec),
    judge: &Judge,
    range: KeyGroupRange,
    (counts, mut leaving): (&mut Counts, Option<&mut VecDeque<Expired>>),
) -> Result<(), Error> {
    let mut writes = backend.writes();
    let mut open: Option<Open> = None;
    backend.scan(state, range, |key, value| {
        let bad = |reason| backend.bad_row(state, key, reason);
        if row::is_head(value) {
            if let Some(done) = open.take() {
                done.write(state, &mut writes)?;
            }
            let head = row::decode_head(value).map_err(bad)?;
            open = Some(Open { row: key.to_vec(), head, at_front: true, changed: false, expired: None });
            return Ok(());
        }
        let entry = row::decode_value(value).map_err(bad)?.entry;
        let (group, name, rest) = row::decode_key(key).map_err(bad)?;
        let expired = !judge.is_alive(stamp(entry, judge));
        let leaves = match (&mut open, spec.kind) {
            (_, StateKind::Value) => expired,
            (Some(open), StateKind::List) => {
                open.at_front &= expired;
                open.at_front
            }
            (Some(_), _) => expired,
            (None, _) => return Err(bad(RowError::NoHead)),
        };
        if !leaves {
            return Ok(());
        }
        // Of a value nothing follows the key; of an entry one byte that says so, which does not count.
        let bytes = (name.len() + rest.len().saturating_sub(1) + entry.value_bytes()) as u64;
        lose(counts, state, group, bytes);
        if let (Some(leaving), FoundEntry::Stamped(_, stored)) = (&mut leaving, entry)
            && let (stamp, value) = split(stored)
            && let Some(time) = judge.expiry(stamp)
        {
            let map_key = (spec.kind == StateKind::Map).then(|| rest.get(1..).unwrap_or_default().to_vec());
            // Of a list, one lives at least as long as those before it.
            let before = open.as_ref().filter(|_| spec.kind == StateKind::List).and_then(|open| open.expired);
            let time = before.map_or(time, |before| before.max(time));
            leaving.push_back(Expired { state, key: name.to_vec(), map_key, value: value.to_vec(), time });
            if let Some(open) = &mut open {
                open.expired = Some(time);
            }
        }
        if let Some(open) = &mut open {
            open.lose(spec.kind, bytes);
        }
        writes.delete(state, key)
    })?;
    if let Some(done) = open {
        done.write(state, &mut writes)?;
    }
    writes.finish()
}

/// The stamp of an entry that was written under the TTL of `judge`.
fn stamp(entry: FoundEntry<'_>, judge: &Judge) -> Stamp {
    match entry {
        FoundEntry::Stamped(domain, stored) if domain == judge.ttl().domain => split(stored).0,
        FoundEntry::Gone(_) => Stamp::GONE,
        FoundEntry::Plain(_) | FoundEntry::Stamped(..) => Stamp::UNKNOWN,
    }
}

fn lose(counts: &mut Counts, state: usize, group: KeyGroup, bytes: u64) {
    if let Some(tally) = counts.tally_mut(state, group) {
        *tally = less(*tally, bytes);
    }
}

fn less(tally: Tally, bytes: u64) -> Tally {
    Tally { entries: tally.entries.saturating_sub(1), bytes: tally.bytes.saturating_sub(bytes) }
}

impl Open {
    fn lose(&mut self, kind: StateKind, bytes: u64) {
        self.changed = true;
        self.head.tally = less(self.head.tally, bytes);
        if kind == StateKind::List {
            self.head.first = self.head.first.saturating_add(1);
        }
    }

    /// Writes the head as it has become.
    fn write(self, state: usize, writes: &mut Writes<'_>) -> Result<(), Error> {
        if !self.changed {
            return Ok(());
        }
        if self.head.tally.entries == 0 {
            return writes.delete(state, &self.row);
        }
        let mut value = Vec::new();
        row::encode_head(self.head, &mut value);
        writes.put(state, &self.row, &value)
    }
}
