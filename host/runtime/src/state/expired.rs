//! Entries that leave a state because their time to live has ended, where the state sends them to an output.
//!
//! Owns that each is handed over once, as it is removed: whoever takes them emits them before the next barrier, so that removal and
//! emission are of one cut. Does not own what removes them, nor the rules (`core::ttl`).
//!
//! Where reads may still see what has expired (relaxed), it leaves once it is cleaned: what the operator writes or removes until
//! then has not expired.

use std::collections::VecDeque;
use std::ops::Bound;

use wasmill_core::contract::StateKind;
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::Stamp;

use super::collection::Place;
use super::error::Error;
use super::keyed::KeyedState;
use super::lifetime::{Sight, split};
use super::run::Name;
use super::runs::RunIndex;
use super::scan::{PAGE_ENTRIES, Page, Range};

/// An entry that has expired and is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// The state's index.
    pub state: usize,
    /// The key.
    pub key: Vec<u8>,
    /// Of a map, the entry's map key.
    pub map_key: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
    /// The first time at which it was not alive.
    pub time: Timestamp,
}

/// What has left and was not taken yet.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) queue: VecDeque<Expired>,
    /// What removes entries is the cleaning, not the operator.
    pub(super) cleaning: bool,
    /// Of the list whose front is dropped, when the last element before expired: one lives at least as long as those before it.
    pub(super) front: Option<Timestamp>,
}

impl KeyedState {
    /// The next entry that has expired and is to be emitted to its state's output, in the order in which they were removed. To be
    /// asked after each call, [`KeyedState::sweep`] and [`KeyedState::purge`], until there is none.
    pub fn take_expired(&mut self) -> Option<Expired> {
        self.leaving.queue.pop_front()
    }

    /// Whether what expires of a state goes to an output.
    pub(super) fn emits_expired(&self, state: usize) -> bool {
        self.ttl(state).is_some_and(|ttl| ttl.expired_output.is_some())
    }

    /// When an entry with this stamp, which is about to be removed or replaced, has expired; `None`: it has not, or its value is
    /// gone.
    pub(super) fn leaves(&self, state: usize, stamp: Stamp) -> Option<Timestamp> {
        let judge = self.lifetimes.judge(self.ttl(state)?);
        let stays = if self.leaving.cleaning { judge.is_alive(stamp) } else { judge.is_readable(stamp) };
        if stays { None } else { judge.expiry(stamp) }
    }

    /// Hands over the value of a key, which is about to be removed or replaced, if it has expired.
    pub(super) fn value_leaves(&mut self, (state, key, hash): Place<'_>) -> Result<(), Error> {
        if !self.emits_expired(state) {
            return Ok(());
        }
        let Some(spot) = self.stored_value(state, key, hash)? else { return Ok(()) };
        let Some((stamp, value)) = self.cache.value(spot).map(split) else { return Ok(()) };
        if let Some(time) = self.leaves(state, stamp) {
            let (key, value) = (key.to_vec(), value.to_vec());
            self.leaving.queue.push_back(Expired { state, key, map_key: None, value, time });
        }
        Ok(())
    }

    /// The same of an entry or element with this stored value.
    pub(super) fn entry_leaves(&mut self, index: RunIndex, name: &[u8], stored: &[u8]) {
        let run = self.runs.get(index);
        let (state, (stamp, value)) = (usize::from(run.state), split(stored));
        let Some(time) = self.leaves(state, stamp) else { return };
        let time = self.leaving.front.map_or(time, |front| front.max(time));
        let map_key = (self.rows.states[state].kind == StateKind::Map).then(|| name.to_vec());
        self.leaving.queue.push_back(Expired { state, key: run.key.to_vec(), map_key, value: value.to_vec(), time });
    }

    /// The same of all entries of a map or list that is about to be cleared.
    pub(super) fn entries_leave(&mut self, index: RunIndex) -> Result<(), Error> {
        let state = usize::from(self.runs.get(index).state);
        let Some(ttl) = self.ttl(state).filter(|ttl| ttl.expired_output.is_some()) else { return Ok(()) };
        let judge = self.lifetimes.judge(ttl);
        if self.rows.states[state].kind == StateKind::List {
            return self.drop_front(index, |stamp| judge.is_readable(stamp));
        }
        let mut last: Option<Name> = None;
        loop {
            let lower = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (range, mut page) = (Range { lower, ..Range::ALL }, Page::default());
            let found = (&mut page, PAGE_ENTRIES);
            self.scan((index, Sight::Unreadable(judge)), range, found, std::iter::empty(), false)?;
            for (name, stored) in page.names.iter().zip(page.values.iter()) {
                self.entry_leaves(index, name, stored);
            }
            last = page.names.iter().last().map(Name::from);
            if !page.more {
                return Ok(());
            }
        }
    }
}
