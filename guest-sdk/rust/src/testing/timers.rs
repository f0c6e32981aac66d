//! The timers of an operator under test.
//!
//! Owns which timer is due next for each key. Does not own the clocks, nor the calls that fire timers.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::Actors;
use super::memory::Key;
use crate::bindings::wasmill::operator::state::Timers as Page;
use crate::bindings::wasmill::operator::types::{Fault, TimerChanges};
use crate::columns::{S64s, U32s};
use crate::error::fatal;
use crate::time::Timestamp;
use crate::timer::{Domain, TimerId};

/// All timers that wait.
#[derive(Debug, Default)]
pub(super) struct Timers {
    of_keys: BTreeMap<Key, BTreeSet<TimerId>>,
    in_order: BTreeSet<(Domain, Timestamp, Key, u32)>,
}

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    pub(super) fn of(&self, key: &Key) -> Vec<TimerId> {
        self.of_keys.get(key).into_iter().flatten().copied().collect()
    }

    pub(super) fn set(&mut self, key: Key, id: TimerId) {
        self.in_order.insert((id.domain, id.time, key.clone(), id.tag));
        self.of_keys.entry(key).or_default().insert(id);
    }

    pub(super) fn delete(&mut self, key: &Key, id: TimerId) {
        self.in_order.remove(&(id.domain, id.time, key.clone(), id.tag));
        if let Some(of_key) = self.of_keys.get_mut(key) {
            of_key.remove(&id);
            if of_key.is_empty() {
                self.of_keys.remove(key);
            }
        }
    }

    /// Whether one is due.
    pub(super) fn is_due(&self, domain: Domain, by: Timestamp) -> bool {
        self.due(domain, by).next().is_some()
    }

    /// Takes each key's earliest that is due.
    pub(super) fn take_round(&mut self, domain: Domain, by: Timestamp) -> Vec<(Key, TimerId)> {
        let mut round: BTreeMap<&Key, TimerId> = BTreeMap::new();
        for (domain, time, key, tag) in self.due(domain, by) {
            round.entry(key).or_insert(TimerId { domain: *domain, time: *time, tag: *tag });
        }
        let mut round: Vec<(Key, TimerId)> = round.into_iter().map(|(key, id)| (key.clone(), id)).collect();
        round.sort_by_key(|(_, id)| *id);
        for (key, id) in &round {
            self.delete(key, *id);
        }
        round
    }

    /// Drops all of a domain and says how many they were.
    pub(super) fn drop_all(&mut self, domain: Domain) -> usize {
        let all: Vec<_> = self.due(domain, Timestamp::MAX).cloned().collect();
        for (domain, time, key, tag) in &all {
            self.delete(key, TimerId { domain: *domain, time: *time, tag: *tag });
        }
        all.len()
    }

    fn due(&self, domain: Domain, by: Timestamp) -> impl Iterator<Item = &(Domain, Timestamp, Key, u32)> {
        let first = (domain, Timestamp::MIN, None, 0);
        self.in_order.range(first..).take_while(move |(of, time, ..)| *of == domain && *time <= by)
    }

    pub(super) fn page(&self, key: &Key, after: Option<(u8, i64, u32)>, limit: usize) -> Page {
        let behind = |id: &&TimerId| {
            let place = (u8::from(id.domain == Domain::Processing), id.time.as_millis(), id.tag);
            after.is_none_or(|after| place > after)
        };
        let mut found: Vec<&TimerId> =
            self.of_keys.get(key).into_iter().flatten().filter(behind).take(limit + 1).collect();
        let more = found.len() > limit;
        found.truncate(limit);
        Page {
            domains: found.iter().map(|id| u8::from(id.domain == Domain::Processing)).collect(),
            times: found.iter().flat_map(|id| id.time.as_millis().to_le_bytes()).collect(),
            tags: found.iter().flat_map(|id| id.tag.to_le_bytes()).collect(),
            more,
        }
    }
}

/// A change of a call.
pub(super) struct Change {
    pub(super) origin: u32,
    pub(super) key: Key,
    pub(super) set: bool,
    pub(super) id: TimerId,
}

/// The changes of a call, in order.
pub(super) fn changes(actors: &Actors, changes: &TimerChanges) -> Result<Vec<Change>, Fault> {
    let TimerChanges { origins, operations, domains, times, tags } = changes;
    let (times, tags) = (S64s::check(times).map_err(fatal)?, U32s::check(tags).map_err(fatal)?);
    let origins = U32s::check(origins).map_err(fatal)?;
    let len = origins.len();
    if [operations.len(), domains.len(), times.len(), tags.len()].iter().any(|&other| other != len) {
        return Err(fatal("the timers' columns have not one length"));
    }
    let change = |(at, origin): (usize, u32)| {
        let domain = if domains[at] == 1 { Domain::Processing } else { Domain::Event };
        let time = Timestamp::from_millis(times.get(at).unwrap_or_default());
        let id = TimerId { domain, time, tag: tags.get(at).unwrap_or_default() };
        Ok(Change { origin, key: actors.key(origin)?.map(<[u8]>::to_vec), set: operations[at] == 1, id })
    };
    origins.iter().enumerate().map(change).collect()
}
