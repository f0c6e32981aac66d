//! The timers of a subtask: the earliest in memory, all of them in RocksDB, changes frozen at barriers with the rest of the state.
//!
//! Owns which timer is set, exactly, whatever their number: a queue of each domain up to its horizon, and layers of changes that
//! RocksDB does not have yet. Does not own when timers fire, nor how layers are written.
//!
//! A layer holds only what differs from what lies below it (frozen layers, then rows): a timer that is set and fires between two
//! barriers never reaches RocksDB.

#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use wasmill_core::key_group::{KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, KeyTimer, Known, Timer, TimerId, TimerQueue};

use super::error::Error;
use super::row;

/// Rows read of a key group in one refill, at least: with fewer the horizon would move in steps too small.
const LEAST_READ: usize = 16;
/// About the bytes of a timer in the queue, to guess how many fit.
const TYPICAL_BYTES: usize = size_of::<TimerId>() * 3 / 2;

/// What a change takes beside its id: its share of a tree that is two thirds full.
const CHANGE_BYTES: usize = size_of::<TimerRow>() - size_of::<TimerId>() + size_of::<TimerRow>() / 2;

/// Changes by row: true where the timer is set now and was not below, false where it was and is not.
pub(super) type TimerLayer = BTreeMap<TimerRow, bool>;

/// A timer's row, in the order of rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimerRow {
    group: u16,
    domain: Domain,
    id: TimerId,
}

impl TimerRow {
    fn new(group: KeyGroup, domain: Domain, id: TimerId) -> Self {
        Self { group: group.0, domain, id }
    }

    /// Of a row's bytes; none where it is no timer's.
    fn decode(row: &[u8]) -> Option<Self> {
        let (domain, id) = row::timer_of(row)?;
        let (group, _, _) = row::decode_key(row).ok()?;
        Some(Self::new(group, domain, TimerId::decode(id)?))
    }

    /// Replaces `out` by the row's bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        row::encode_timer_head(KeyGroup(self.group), self.domain, out);
        self.id.encode(out);
    }

    fn memory(&self) -> usize {
        self.id.memory() + CHANGE_BYTES
    }
}

/// Where timers lie that are in no layer.
pub(super) trait TimerRows {
    /// Whether there is such a row.
    fn has(&self, row: &[u8]) -> Result<bool, Error>;
    /// Calls `each` with the rows from `lower` up to but without `upper`, in order, until it answers false.
    fn read(&self, lower: &[u8], upper: &[u8], each: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Error>;
}

/// The timers of a subtask.
pub(super) struct TimerStore {
    queues: [TimerQueue; 2],
    fresh: TimerLayer,
    fresh_bytes: usize,
    frozen: VecDeque<(u64, Arc<TimerLayer>)>,
    range: KeyGroupRange,
    max_parallelism: MaxParallelism,
    scratch: Vec<u8>,
}

impl TimerStore {
    /// Timers over rows of `range`, of which there are some unless `empty`; their queues take about `budget` bytes.
    pub(super) fn new(budget: usize, empty: bool, range: KeyGroupRange, max_parallelism: MaxParallelism) -> Self {
        let queue = || if empty { TimerQueue::new(budget / 2) } else { TimerQueue::over_store(budget / 2) };
        Self {
            queues: [queue(), queue()],
            fresh: TimerLayer::new(),
            fresh_bytes: 0,
            frozen: VecDeque::new(),
            range,
            max_parallelism,
            scratch: Vec::new(),
        }
    }

    /// Sets a timer of a key of `group`; false where it was set already.
    pub(super) fn set(
        &mut self,
        domain: Domain,
        timer: &Timer<'_>,
        group: KeyGroup,
        rows: &impl TimerRows,
    ) -> Result<bool, Error> {
        let row = TimerRow::new(group, domain, TimerId::of(timer));
        let known = self.queues[domain as usize].insert(row.id.clone());
        if self.is_set(known, &row, rows)? {
            return Ok(false);
        }
        self.queues[domain as usize].shrink();
        self.change(row, true);
        Ok(true)
    }

    /// Deletes a timer; false where it was not set.
    pub(super) fn delete(
        &mut self,
        domain: Domain,
        timer: &Timer<'_>,
        group: KeyGroup,
        rows: &impl TimerRows,
    ) -> Result<bool, Error> {
        let row = TimerRow::new(group, domain, TimerId::of(timer));
        let known = self.queues[domain as usize].remove(&row.id);
        if !self.is_set(known, &row, rows)? {
            return Ok(false);
        }
        self.change(row, false);
        Ok(true)
    }

    /// Before this time nothing is due; exact unless many timers are set.
    pub(super) fn next(&self, domain: Domain) -> Option<Timestamp> {
        self.queues[domain as usize].next()
    }

    /// Takes timers that are due by `until`, of at most `limit` keys the earliest each, and deletes them.
    pub(super) fn take_due(
        &mut self,
        domain: Domain,
        until: Timestamp,
        limit: usize,
        rows: &impl TimerRows,
    ) -> Result<Vec<TimerId>, Error> {
        let mut due = Vec::new();
        while self.queues[domain as usize].must_refill(until) {
            self.refill(domain, rows)?;
        }
        self.queues[domain as usize].take_due(until, limit, &mut due);
        for id in &due {
            let group = KeyHash::of(id.timer().key).group(self.max_parallelism);
            self.change(TimerRow::new(group, domain, id.clone()), false);
        }
        Ok(due)
    }

    /// The key's timers behind `after` in their order, at most `limit`. Reads all timers of the key's group that lie before them.
    pub(super) fn of_key(
        &self,
        (key, group): (&[u8], KeyGroup),
        after: Option<KeyTimer>,
        limit: usize,
        rows: &impl TimerRows,
    ) -> Result<Vec<KeyTimer>, Error> {
        let mut found = BTreeSet::new();
        let domains = Domain::ALL.into_iter().filter(|domain| after.is_none_or(|after| *domain >= after.domain));
        for domain in domains {
            let (mut lower, upper) = row::timer_bounds(group, domain);
            let mut first = Bound::Included(TimerRow::new(group, domain, TimerId::first()));
            if let Some(KeyTimer { time, tag, .. }) = after.filter(|after| after.domain == domain) {
                let row = TimerRow::new(group, domain, TimerId::of(&Timer { time, key, tag }));
                row.encode(&mut lower);
                // No row is this one and a byte more but those of later timers.
                lower.push(0);
                first = Bound::Excluded(row);
            }
            let of_key = |row: &TimerRow| {
                let Timer { time, key: of, tag } = row.id.timer();
                (of == key).then_some(KeyTimer { domain, time, tag })
            };
            let mut taken = 0;
            rows.read(&lower, &upper, &mut |row| {
                if taken < limit
                    && let Some(row) = TimerRow::decode(row)
                    && let Some(timer) = of_key(&row)
                    && self.layered(&row).is_none()
                {
                    taken += 1;
                    found.insert(timer);
                }
                taken < limit
            })?;
            for layer in self.frozen.iter().map(|(_, layer)| &**layer).chain([&self.fresh]) {
                let rows = layer.range((first.as_ref(), Bound::Unbounded));
                let rows = rows.take_while(|(row, _)| row.group == group.0 && row.domain == domain);
                let set = rows.filter(|(row, set)| **set && self.layered(row) == Some(true));
                found.extend(set.filter_map(|(row, _)| of_key(row)).take(limit));
            }
            if found.len() >= limit {
                break;
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// Bytes of changes that are not frozen yet.
    pub(super) fn fresh_bytes(&self) -> usize {
        self.fresh_bytes
    }

    /// Freezes the changes as `sequence`, for the background thread.
    pub(super) fn freeze(&mut self, sequence: u64) -> Arc<TimerLayer> {
        let layer = Arc::new(std::mem::take(&mut self.fresh));
        self.fresh_bytes = 0;
        if !layer.is_empty() {
            self.frozen.push_back((sequence, Arc::clone(&layer)));
        }
        layer
    }

    /// The rows have the layers up to `sequence`.
    pub(super) fn release(&mut self, sequence: u64) {
        while self.frozen.pop_front_if(|(frozen, _)| *frozen <= sequence).is_some() {}
    }

    /// Whether a timer is set of which the queue knew `known`.
    fn is_set(&mut self, known: Known, row: &TimerRow, rows: &impl TimerRows) -> Result<bool, Error> {
        match (known, if known == Known::Behind { self.layered(row) } else { None }) {
            (Known::Set, _) => Ok(true),
            (Known::Absent, _) => Ok(false),
            (Known::Behind, Some(set)) => Ok(set),
            (Known::Behind, None) => {
                row.encode(&mut self.scratch);
                rows.has(&self.scratch)
            }
        }
    }

    /// What the newest layer that knows the row says.
    fn layered(&self, row: &TimerRow) -> Option<bool> {
        let frozen = || self.frozen.iter().rev().find_map(|(_, layer)| layer.get(row));
        self.fresh.get(row).or_else(frozen).copied()
    }

    fn change(&mut self, row: TimerRow, set: bool) {
        let bytes = row.memory();
        match self.fresh.entry(row) {
            // The opposite change before it: together they are none.
            Entry::Occupied(opposite) => {
                opposite.remove();
                self.fresh_bytes = self.fresh_bytes.saturating_sub(bytes);
            }
            Entry::Vacant(free) => {
                free.insert(set);
                self.fresh_bytes += bytes;
            }
        }
    }

    /// Moves the horizon on by as much as the budget holds.
    fn refill(&mut self, domain: Domain, rows: &impl TimerRows) -> Result<(), Error> {
        let queue = &self.queues[domain as usize];
        let Some(from) = queue.horizon().cloned() else { return Ok(()) };
        let fit = queue.budget() / 2 / TYPICAL_BYTES;
        let most = (fit / usize::from(self.range.end - self.range.start).max(1)).max(LEAST_READ);
        let mut read: Vec<TimerId> = Vec::new();
        let mut horizon: Option<TimerId> = None;
        for group in self.range.start..self.range.end {
            let (mut lower, upper) = row::timer_bounds(KeyGroup(group), domain);
            from.encode(&mut lower);
            let mut taken = 0;
            rows.read(&lower, &upper, &mut |row| {
                let Some(row) = TimerRow::decode(row) else { return true };
                if self.layered(&row).is_some() {
                    return true;
                }
                if horizon.as_ref().is_some_and(|horizon| row.id >= *horizon) {
                    return false;
                }
                if taken == most {
                    horizon = Some(row.id);
                    return false;
                }
                taken += 1;
                read.push(row.id);
                true
            })?;
        }
        let before = |id: &TimerId| horizon.as_ref().is_none_or(|horizon| id < horizon);
        read.retain(|id| before(id));
        let layers = self.frozen.iter().map(|(_, layer)| &**layer).chain([&self.fresh]);
        for (row, set) in layers.flatten() {
            let TimerRow { domain: of, id, .. } = row;
            if *set && *of == domain && *id >= from && before(id) && self.layered(row) == Some(true) {
                read.push(id.clone());
            }
        }
        let queue = &mut self.queues[domain as usize];
        queue.refill(read, horizon);
        queue.shrink();
        Ok(())
    }
}
