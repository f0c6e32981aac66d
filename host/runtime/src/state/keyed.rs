//! Keyed state as the subtask uses it: value state, and for all kinds maintain and freeze.
//!
//! Owns that every access is checked (declared state, own key group), that counts are exact, and when a layer is frozen or
//! waited for. Does not own layers, the thread or rows, nor the operations on maps ([`super::map`]) and lists ([`super::list`]).

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use wasmill_core::contract::StateKind;
use wasmill_core::key_group::{KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use wasmill_core::record::Column;
use wasmill_core::timer::TIMERS;

use super::backend::{Backend, Rows, Stored};
use super::cache::{Cache, Spot};
use super::changes::Changes;
use super::collection::Wanted;
use super::error::Error;
use super::layer::{EntryRef, Key};
use super::restore::{self, Begun};
use super::runs::Runs;
use super::timers::TimerStore;
use super::writer::{CutJob, Job, Tools, Writer};
use super::{Counts, Tally};
use super::{EagerOut, Gauges, OnCut, Options, Restore, StateSpec, row};
use crate::clock::SharedClock;

/// Entries settled in one [`KeyedState::maintain`], if there are any; more where more were written since the last.
const SETTLE: usize = 256;
/// Keys looked up together, so that their reads of memory overlap: few enough to stay in the processor's nearest cache.
const BLOCK: usize = 64;
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
    cache: Cache,
    pub(super) runs: Runs,
    /// What was written to runs since the last freeze.
    pub(super) changes: Changes,
    /// Changes that the background thread has not released, with their bytes.
    frozen_changes: VecDeque<(u64, usize)>,
    pub(super) wanted: Wanted,
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
    spots: Vec<Option<Spot>>,
    missing: Missing,
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

/// Keys of a batch that are not in the cache.
#[derive(Default)]
struct Missing {
    /// Their indexes in the batch, ascending, with their groups.
    slots: Vec<(usize, KeyGroup)>,
    rows: Rows,
}

/// What is known of a key without asking RocksDB.
enum Known {
    At(Spot),
    Absent,
    /// RocksDB must be asked.
    Unknown(KeyGroup),
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
            versions: states.iter().map(|state| state.version).collect(),
            shared,
            clock: Arc::clone(&clock),
            place: place.clone(),
        })?;
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
            _lock: lock,
        })
    }

    /// Appends the value of each of `keys` (distinct, with their `hashes`) to `out`, in order: one look-up each in the cache,
    /// then one read of RocksDB for all that are not there.
    ///
    /// # Errors
    /// A failure of RocksDB or of the background thread, a row that cannot be read, a key of another subtask.
    pub fn load_values(
        &mut self,
        state: usize,
        keys: &Column,
        hashes: &[KeyHash],
        mut out: EagerOut<'_>,
    ) -> Result<(), Error> {
        let id = self.check(state, StateKind::Value)?;
        if keys.len() != hashes.len() {
            return Err(self.misuse(format!("{} keys came with {} hashes", keys.len(), hashes.len())));
        }
        self.missing.slots.clear();
        self.missing.rows.clear();
        for start in (0..keys.len()).step_by(BLOCK) {
            let end = keys.len().min(start + BLOCK);
            self.cache.guess((start..end).map(|slot| Key::new(id, hashes[slot], keys.get(slot))), &mut self.spots);
            #[expect(clippy::needless_range_loop, reason = "the slot indexes keys and hashes alike")]
            for slot in start..end {
                let (bytes, hash) = (keys.get(slot), hashes[slot]);
                let key = Key::new(id, hash, bytes);
                let known = match self.spots[slot - start] {
                    Some(spot) if self.cache.holds(spot, &key) => Known::At(spot),
                    _ => self.known(&key, hash)?,
                };
                match known {
                    Known::Unknown(group) => {
                        self.missing.slots.push((slot, group));
                        self.missing.rows.push_with(|row| row::encode_key(group, bytes, row));
                    }
                    // Past the first missing key, values wait for their turn.
                    _ if !self.missing.slots.is_empty() => {}
                    Known::At(spot) => out.push(self.cache.value(spot)),
                    Known::Absent => out.push(None),
                }
            }
        }
        self.gauges.hits += (keys.len() - self.missing.slots.len()) as u64;
        if let Some(&(first, _)) = self.missing.slots.first() {
            self.fetch(id, keys, hashes)?;
            for (bytes, &hash) in keys.iter().zip(hashes).skip(first) {
                match self.known(&Key::new(id, hash, bytes), hash)? {
                    Known::At(spot) => out.push(self.cache.value(spot)),
                    Known::Absent => out.push(None),
                    Known::Unknown(_) => {
                        return Err(self.misuse("a key that was fetched is not in the cache".to_owned()));
                    }
                }
            }
        }
        if out.bytes.len() > MAX_PIECE { Err(self.too_large(state, out.bytes.len())) } else { Ok(()) }
    }

    /// The value of one key.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<Option<&[u8]>, Error> {
        let id = self.check(state, StateKind::Value)?;
        let key = Key::new(id, hash, key);
        let spot = match self.known(&key, hash)? {
            Known::Absent => {
                self.gauges.hits += 1;
                return Ok(None);
            }
            Known::At(spot) => {
                self.gauges.hits += 1;
                spot
            }
            Known::Unknown(group) => {
                self.gauges.misses += 1;
                let row = self.rows.get(state, group, key.bytes, &mut self.row_key)?;
                let value = row.as_deref().map(|row| self.rows.decode(state, row)).transpose()?;
                self.cache.insert_clean(EntryRef { key, group, value })
            }
        };
        Ok(self.cache.value(spot))
    }

    /// Sets the value of one key.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn set_value(&mut self, state: usize, key: &[u8], hash: KeyHash, value: &[u8]) -> Result<(), Error> {
        if key.len() > MAX_PIECE || value.len() > MAX_PIECE {
            return Err(self.too_large(state, key.len().max(value.len())));
        }
        self.write(state, key, hash, Some(value))
    }

    /// Removes the value of one key, if it has one.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn clear_value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<(), Error> {
        self.write(state, key, hash, None)
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
        self.send(Some(CutJob { dir: cut_dir, counts: self.counts.clone(), on_cut }))
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

    fn write(&mut self, state: usize, key: &[u8], hash: KeyHash, value: Option<&[u8]>) -> Result<(), Error> {
        let id = self.check(state, StateKind::Value)?;
        let id = Key::new(id, hash, key);
        let (group, previous) = if let Some(index) = self.cache.fresh.find(&id) {
            let shape = self.cache.fresh.shape(index);
            self.cache.fresh.overwrite(index, value);
            shape
        } else {
            let group = self.group(hash)?;
            let previous = self.length(state, &id, group)?;
            if previous.is_none() && value.is_none() {
                return Ok(());
            }
            self.cache.fresh.insert(EntryRef { key: id, group, value });
            (group, previous)
        };
        self.count(state, group, key.len(), previous, value.map(<[u8]>::len));
        Ok(())
    }

    /// The length of the value of a key that is not fresh.
    fn length(&mut self, state: usize, key: &Key<'_>, group: KeyGroup) -> Result<Option<usize>, Error> {
        if let Some(spot) = self.cache.find_as_it_is(key) {
            return Ok(self.cache.value(spot).map(<[u8]>::len));
        }
        if self.is_absent(usize::from(key.state), group) {
            return Ok(None);
        }
        self.gauges.misses += 1;
        let row = self.rows.get(state, group, key.bytes, &mut self.row_key)?;
        row.map(|row| self.rows.decode(state, &row).map(<[u8]>::len)).transpose()
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
        let Some(tally) = self.counts.tally_mut(state, group) else { return };
        if let Some(value) = before {
            tally.entries = tally.entries.saturating_sub(1);
            tally.bytes = tally.bytes.saturating_sub((key + value) as u64);
        }
        if let Some(value) = after {
            *tally += Tally { entries: 1, bytes: (key + value) as u64 };
        }
    }

    fn known(&mut self, key: &Key<'_>, hash: KeyHash) -> Result<Known, Error> {
        if let Some(spot) = self.cache.find(key) {
            // It was checked to be of this subtask when it came into the cache.
            return Ok(Known::At(spot));
        }
        let group = self.group(hash)?;
        if self.is_absent(usize::from(key.state), group) { Ok(Known::Absent) } else { Ok(Known::Unknown(group)) }
    }

    /// Whether a key of `group` that is in no layer cannot be in RocksDB either.
    fn is_absent(&mut self, state: usize, group: KeyGroup) -> bool {
        self.cache.is_complete() || self.has_none(state, group)
    }

    /// Whether a state has no entry of `group`.
    pub(super) fn has_none(&mut self, state: usize, group: KeyGroup) -> bool {
        self.counts.tally_mut(state, group).is_some_and(|tally| tally.entries == 0)
    }

    /// Reads the missing keys' rows and keeps what they hold in the cache.
    fn fetch(&mut self, state: u16, keys: &Column, hashes: &[KeyHash]) -> Result<(), Error> {
        let index = usize::from(state);
        self.gauges.misses += self.missing.slots.len() as u64;
        let rows = self.rows.backend.get_many(index, &self.missing.rows)?;
        for (&(slot, group), row) in self.missing.slots.iter().zip(&rows) {
            let value = row.as_deref().map(|row| self.rows.decode(index, row)).transpose()?;
            let key = Key::new(state, hashes[slot], keys.get(slot));
            self.cache.insert_clean(EntryRef { key, group, value });
        }
        Ok(())
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

impl RowReader {
    fn get(
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

    pub(super) fn decode<'a>(&self, state: usize, row: &'a [u8]) -> Result<&'a [u8], Error> {
        let (found, value) = row::decode_value(row).map_err(|reason| self.backend.bad_row(state, row, reason))?;
        let spec = &self.states[state];
        if found == spec.version { Ok(value) } else { Err(self.backend.other_version(spec, found)) }
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
