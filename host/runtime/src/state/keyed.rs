//! Keyed state as the subtask uses it, for all kinds: open, maintain and freeze.
//!
//! Owns that every access is checked (declared state, own key group), that counts are exact, and when a layer is frozen or
//! waited for. Does not own layers, the thread or rows, nor the operations on values ([`super::value`]), maps ([`super::map`])
//! and lists ([`super::list`]).

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::{KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use wasmill_core::record::Column;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::TIMERS;
use wasmill_core::ttl::{Now, Stamp};

use super::backend::{Backend, Stored};
use super::cache::{Cache, Spot};
use super::changes::Changes;
use super::collection::{Place, Wanted};
use super::error::Error;
use super::expired::Leaving;
use super::guess::Guess;
use super::lifetime::{self, Lifetimes, Sight, split};
use super::restore::{self, Begun};
use super::run::Name;
use super::runs::Runs;
use super::sweep::Sweep;
use super::timers::TimerStore;
use super::value::Missing;
use super::writer::{CutJob, Job, Tools, Writer};
use super::{Counts, Tally};
use super::{Gauges, OnCut, Options, Restore, StateSpec, row};
use crate::clock::SharedClock;

/// Entries settled in one [`KeyedState::maintain`], if there are any; more where more were written since the last.
const SETTLE: usize = 256;
/// Snapshots that may wait for their local cut.
const MAX_PENDING_CUTS: usize = 2;
/// Most that a cache may have: an index within a layer is a `u32`.
const MAX_CACHE_BYTES: usize = 64 << 30;
/// The share of the cache's budget that the earliest timers get in memory, on top of it.
const TIMERS_SHARE: usize = 4;
/// Largest key, value or column in bytes; the contract's limits lie far below.
pub(super) const MAX_PIECE: usize = 1 << 30;

/// The keyed state of one subtask. `Send`, used by one thread at a time.
///
/// Dropping it ends the background thread and closes RocksDB; snapshots without a local cut are told [`Error::Closed`].
pub struct KeyedState {
    // Dropped first: it is the last user of the database beside this.
    pub(super) writer: Writer,
    pub(super) rows: RowReader,
    /// Memory for the key of the row that is read.
    pub(super) row_key: Vec<u8>,
    pub(super) cache: Cache,
    pub(super) runs: Runs,
    /// What was written to runs since the last freeze.
    pub(super) changes: Changes,
    /// Changes that the background thread has not released, with their bytes.
    frozen_changes: VecDeque<(u64, usize)>,
    pub(super) wanted: Wanted,
    pub(super) guesses: Vec<Option<Guess>>,
    pub(super) timers: TimerStore,
    pub(super) counts: Counts,
    /// The index of the timers in `counts`, once there was one.
    pub(super) timer_counts: Option<usize>,
    /// What union state shows of all subtasks, by state.
    pub(super) unions: HashMap<usize, Vec<Arc<Column>>>,
    pub(super) range: KeyGroupRange,
    pub(super) max_parallelism: MaxParallelism,
    budget: Budget,
    clock: SharedClock,
    /// The sequence of the layer frozen last.
    pub(super) sequence: u64,
    pub(super) gauges: Gauges,
    /// Memory for where a block's keys are.
    pub(super) spots: Vec<Option<Spot>>,
    pub(super) missing: Missing,
    pub(super) lifetimes: Lifetimes,
    pub(super) sweep: Sweep,
    pub(super) leaving: Leaving,
    /// Memory for a stored value that is put together.
    pub(super) stored: Vec<u8>,
    _lock: File,
}

/// The bytes of the cache: half each where there is value state beside maps and lists.
struct Budget {
    values: usize,
    runs: usize,
}

/// Reads rows that are in no layer.
pub(super) struct RowReader {
    pub(super) backend: Arc<Backend>,
    pub(super) states: Vec<StateSpec>,
    place: String,
}

impl KeyedState {
    /// Locks and empties the folder, restores into it and starts the background thread.
    ///
    /// # Errors
    /// The folder is in use or cannot be written, or what is to be restored cannot be read.
    pub fn open(options: Options, restore: Restore) -> Result<Self, Error> {
        let complete = matches!(restore, Restore::Empty);
        let Begun { backend, counts, lock } = restore::begin(&options, restore)?;
        let no_timers = counts.states().all(|(state, tally)| state.as_str() != TIMERS || tally.entries == 0);
        let Options { backend: _, dir: _, states, range, max_parallelism, cache_bytes, shared, clock, place } = options;
        let backend = Arc::new(backend);
        let writer = Writer::start(Tools {
            backend: Arc::clone(&backend),
            timers: states.len(),
            forms: states.iter().map(StateSpec::form).collect(),
            shared,
            clock: Arc::clone(&clock),
            place: place.clone(),
        })?;
        let lifetimes = Lifetimes::new(&states);
        let budget = Budget::of(cache_bytes.min(MAX_CACHE_BYTES), &states);
        Ok(Self {
            writer,
            rows: RowReader { backend, states, place },
            row_key: Vec::new(),
            cache: Cache::new(budget.values, complete),
            // A quarter is for changes.
            runs: Runs::new(budget.runs - budget.runs / 4, complete),
            changes: Changes::default(),
            frozen_changes: VecDeque::new(),
            wanted: Wanted::default(),
            guesses: Vec::new(),
            timers: TimerStore::new(cache_bytes / TIMERS_SHARE, no_timers, range, max_parallelism),
            counts,
            timer_counts: None,
            unions: HashMap::new(),
            range,
            max_parallelism,
            budget,
            clock,
            sequence: 0,
            gauges: Gauges::default(),
            spots: Vec::new(),
            missing: Missing::default(),
            lifetimes,
            sweep: Sweep::default(),
            leaving: Leaving::default(),
            stored: Vec::new(),
            _lock: lock,
        })
    }

    /// To be called between calls of the guest, after each batch: moves a bounded number of entries of released layers to
    /// where they may be forgotten, starts to write fresh out once it has an eighth of the budget, and waits (measured)
    /// where it has a quarter and the background thread is behind.
    ///
    /// # Errors
    /// A failure of the background thread.
    pub fn maintain(&mut self) -> Result<(), Error> {
        self.writer.check()?;
        self.release();
        self.cache.settle(SETTLE);
        self.runs.forget(self.writer.released());
        if !self.has_fresh(8) {
            return Ok(());
        }
        while let Some(oldest) = self.cache.oldest_frozen() {
            if !self.has_fresh(4) {
                return Ok(());
            }
            let start = self.clock.monotonic();
            self.writer.wait(oldest)?;
            self.gauges.waited += self.clock.monotonic().saturating_sub(start);
            self.release();
        }
        self.gauges.write_outs += 1;
        self.send(None)
    }

    /// Writes out all that was written so far, and waits (measured) until it is. For a look at all entries that must miss none.
    ///
    /// # Errors
    /// A failure of the background thread.
    pub fn write_out(&mut self) -> Result<(), Error> {
        self.gauges.write_outs += 1;
        self.send(None)?;
        let start = self.clock.monotonic();
        self.writer.wait(self.sequence)?;
        self.gauges.waited += self.clock.monotonic().saturating_sub(start);
        self.release();
        Ok(())
    }

    /// Whether [`KeyedState::freeze`] may be called: fewer than two snapshots wait for their local cut.
    #[must_use]
    pub fn can_freeze(&self) -> bool {
        self.cache.pending_cuts(self.writer.released()) < MAX_PENDING_CUTS
    }

    /// At a barrier: what was written so far goes, as one cut, to the background thread, which writes it, links RocksDB's
    /// files into `cut_dir` (which must not exist) and calls `on_cut`. Costs the swap of a pointer and a copy of the counts.
    ///
    /// # Errors
    /// A third snapshot before the first has its local cut, or a failure of the background thread. `on_cut` is not called then.
    pub fn freeze(&mut self, cut_dir: PathBuf, on_cut: OnCut) -> Result<(), Error> {
        self.writer.check()?;
        if !self.can_freeze() {
            return Err(Error::TooManyFrozen { place: self.rows.place.clone() });
        }
        self.release();
        self.send(Some(CutJob { dir: cut_dir, counts: self.counts.clone(), now: self.lifetimes.now, on_cut }))
    }

    /// Bytes of the stamp before each of a state's stored values.
    pub(crate) fn stamp_bytes(&self, state: usize) -> usize {
        self.rows.states.get(state).map_or(0, StateSpec::stamp_bytes)
    }

    /// What a stored value of a state holds.
    #[must_use]
    pub fn unstamped<'a>(&self, state: usize, stored: &'a [u8]) -> &'a [u8] {
        if self.ttl(state).is_some() { split(stored).1 } else { stored }
    }

    /// Entries and bytes per state and key group, exact after each write.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Figures for metrics.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let (fresh, frozen, clean) = self.cache.bytes();
        let changed: usize = self.frozen_changes.iter().map(|(_, bytes)| bytes).sum();
        Gauges {
            fresh_bytes: (fresh + self.changes.bytes()) as u64,
            frozen_bytes: (frozen + changed) as u64,
            clean_bytes: (clean + self.runs.bytes()) as u64,
            rows_bytes: self.rows.backend.used() as u64,
            ..self.gauges
        }
    }

    /// Whether what is not frozen has a part of its budget: of the values or of the changes, one of so many parts.
    fn has_fresh(&self, parts: usize) -> bool {
        let Budget { values, runs } = self.budget;
        (self.cache.fresh.bytes() >= values / parts && !self.cache.fresh.is_empty())
            || (self.changes.bytes() >= runs / parts && !self.changes.is_empty())
            || (self.timers.fresh_bytes() >= (values + runs) / parts && self.timers.fresh_bytes() > 0)
    }

    /// Takes back what the background thread has written.
    fn release(&mut self) {
        let released = self.writer.released();
        self.cache.release(released);
        self.timers.release(released);
        while self.frozen_changes.pop_front_if(|(sequence, _)| *sequence <= released).is_some() {}
    }

    fn send(&mut self, cut: Option<CutJob>) -> Result<(), Error> {
        self.sequence += 1;
        let layer = self.cache.freeze(self.sequence, cut.is_some());
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            self.frozen_changes.push_back((self.sequence, changes.bytes()));
        }
        let timers = self.timers.freeze(self.sequence);
        self.writer.send(Job { sequence: self.sequence, layer, changes, timers, cut })
    }

    /// Says at which times the state is read from now on. What was written before a state had a TTL counts from the first ones.
    pub fn set_now(&mut self, now: Now) {
        self.lifetimes.set_now(now);
    }

    /// Whether any state has a TTL.
    #[must_use]
    pub fn has_ttl(&self) -> bool {
        self.lifetimes.any()
    }

    /// How long the entries of a state live.
    #[must_use]
    pub fn ttl(&self, state: usize) -> Option<Ttl> {
        self.rows.states.get(state).and_then(|spec| spec.ttl)
    }

    /// The stamp of what is written now on behalf of a record or timer of time `origin`; `None`: the state has no TTL.
    #[must_use]
    pub fn stamp(&self, state: usize, origin: Timestamp) -> Option<Stamp> {
        self.ttl(state).map(|ttl| ttl.stamp(self.lifetimes.now, origin))
    }

    /// A value, a list or (with `name`) an entry of a map was read: where reads refresh, it is stamped anew if it is alive.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn touch(&mut self, place: Place<'_>, name: Option<&Name>, stamp: Stamp) -> Result<(), Error> {
        let (state, key, hash) = place;
        let Some(ttl) = self.ttl(state).filter(Ttl::is_refreshed_by_reads) else { return Ok(()) };
        match (name, self.rows.states[state].kind) {
            (Some(name), StateKind::Map) => self.map_touch(place, name, (&ttl, stamp)),
            (None, StateKind::List) => self.list_touch(place, (&ttl, stamp)),
            _ => self.touch_value((state, key, hash), (&ttl, stamp)),
        }
    }

    /// How the values of a state are read now.
    pub(super) fn sight(&self, state: usize) -> Sight {
        self.ttl(state).map_or(Sight::Plain, |ttl| Sight::Judged(self.lifetimes.judge(ttl)))
    }

    /// Counts an entry that had a value of `before` bytes and has one of `after`, with `key` bytes that name it.
    pub(super) fn count(
        &mut self,
        state: usize,
        group: KeyGroup,
        key: usize,
        before: Option<usize>,
        after: Option<usize>,
    ) {
        if before == after {
            return;
        }
        // What is counted of a value is what the guest wrote.
        let stamp = self.stamp_bytes(state);
        let Some(tally) = self.counts.tally_mut(state, group) else { return };
        if let Some(value) = before {
            tally.entries = tally.entries.saturating_sub(1);
            tally.bytes = tally.bytes.saturating_sub((key + value - stamp) as u64);
        }
        if let Some(value) = after {
            *tally += Tally { entries: 1, bytes: (key + value - stamp) as u64 };
        }
    }

    /// Whether a state has no entry of `group`.
    pub(super) fn has_none(&mut self, state: usize, group: KeyGroup) -> bool {
        self.counts.tally_mut(state, group).is_some_and(|tally| tally.entries == 0)
    }

    pub(super) fn group(&self, hash: KeyHash) -> Result<KeyGroup, Error> {
        let group = hash.group(self.max_parallelism);
        if self.range.contains(group) {
            return Ok(group);
        }
        Err(Error::OutsideRange { place: self.rows.place.clone(), group, range: self.range })
    }

    pub(super) fn check(&self, state: usize, kind: StateKind) -> Result<u16, Error> {
        self.writer.check()?;
        match (u16::try_from(state), self.rows.states.get(state)) {
            (Ok(id), Some(spec)) if spec.kind.kept_as() == kind => Ok(id),
            (_, Some(spec)) => Err(self.misuse(format!("state `{}` was used as one of another kind", spec.name))),
            _ => Err(self.misuse(format!("there is no state with index {state}"))),
        }
    }

    pub(super) fn too_large(&self, state: usize, bytes: usize) -> Error {
        match self.rows.states.get(state) {
            Some(spec) => Error::TooLarge { place: self.rows.place.clone(), state: spec.name.clone(), bytes },
            None => self.misuse(format!("there is no state with index {state}")),
        }
    }

    pub(super) fn misuse(&self, message: String) -> Error {
        Error::Misuse { place: self.rows.place.clone(), message }
    }
}

#[cfg(test)]
impl KeyedState {
    /// Is gone once nothing of the backend is left, compactions and what they filter by included; `None` in memory.
    pub(super) fn backend_alive(&self) -> Option<std::sync::Weak<impl Sized + use<>>> {
        match &*self.rows.backend {
            Backend::RocksDb(database) => Some(database.horizon()),
            Backend::Memory(_) => None,
        }
    }

    /// Compacts all that was written out.
    pub(super) fn compact(&self) {
        self.rows.backend.compact();
    }

    /// The values of a state's rows that were written out.
    pub(super) fn written_rows(&self, state: usize) -> Vec<Vec<u8>> {
        let mut rows = Vec::new();
        let keep = |_: &[u8], value: &[u8]| {
            rows.push(value.to_vec());
            Ok(())
        };
        self.rows.backend.scan(state, self.range, keep).map(|()| rows).unwrap_or_default()
    }
}

impl RowReader {
    pub(super) fn get(
        &self,
        state: usize,
        group: KeyGroup,
        key: &[u8],
        row_key: &mut Vec<u8>,
    ) -> Result<Option<Stored<'_>>, Error> {
        row_key.clear();
        row::encode_key(group, key, row_key);
        self.backend.get(state, row_key)
    }

    /// The stored value in a row, which may be put together in `stored`.
    pub(super) fn decode<'a>(&self, state: usize, row: &'a [u8], stored: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        let spec = &self.states[state];
        let found = row::decode_value(row).map_err(|reason| self.backend.bad_row(state, row, reason))?;
        if found.version != spec.version {
            return Err(self.backend.other_version(spec, found.version));
        }
        let at = lifetime::find(found.entry, spec.ttl, row.len(), stored);
        let at = at.map_err(|reason| self.backend.bad_row(state, row, reason))?;
        Ok(at.map_or(stored, |at| &row[at..]))
    }
}

impl Budget {
    fn of(bytes: usize, states: &[StateSpec]) -> Self {
        let has_values = states.iter().any(|state| state.kind == StateKind::Value);
        let has_runs = states.iter().any(|state| state.kind != StateKind::Value);
        match (has_values, has_runs) {
            (true, true) => Self { values: bytes / 2, runs: bytes / 2 },
            (false, true) => Self { values: 0, runs: bytes },
            _ => Self { values: bytes, runs: 0 },
        }
    }
}
