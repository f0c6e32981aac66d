//! What holds the rows of a subtask's state below the cache.
//!
//! Owns what is asked of every backend, so that nothing above knows which one it has, and how layers become rows. Does not own how
//! a backend keeps rows ([`super::rocksdb`], [`super::memory`]), which thread calls, nor what a restore copies.
//!
//! Rows lie in column families, one for each state, in the order of their keys' bytes. One thread writes; others read meanwhile.

mod collection;

use std::ops::Deref;
use std::path::Path;

use wasmill_core::key_group::KeyGroupRange;
use wasmill_core::ttl::Now;

pub(super) use self::collection::Entries;
use super::error::Error;
use super::layer::Layer;
use super::memory::{self, Tables};
use super::rocksdb::{Batch as RocksDbBatch, Blocks, Cursor as RocksDbCursor, Database, Pinned};
use super::timers::TimerLayer;
use super::{LocalFile, StateSpec, row};
use crate::config::table::StateBackend;

/// Schema version of a timer's row.
const TIMER_VERSION: u32 = 1;

/// Bytes after which a batch of writes is handed over.
const BATCH_BYTES: usize = 1 << 20;

/// One subtask's rows.
pub(super) enum Backend {
    /// On local disk.
    RocksDb(Database),
    /// In memory.
    Memory(Box<Tables>),
}

/// Memory that the rows of all subtasks of a process share: with RocksDB blocks read, indexes, filters and memtables; with the
/// backend in memory the rows themselves, and no more.
///
/// A cheap clone. The caches of [`KeyedState`](super::KeyedState) come on top.
#[derive(Clone)]
pub struct SharedMemory {
    blocks: Blocks,
    rows: memory::Budget,
}

impl SharedMemory {
    /// A budget of `bytes`. Of RocksDB's, memtables take at most about a third. Rows in memory that outgrow it are an error.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { blocks: Blocks::new(bytes), rows: memory::Budget::new(bytes) }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.blocks.used() + self.rows.used()
    }
}

/// The value of a row, where it lies.
pub(super) enum Stored<'a> {
    RocksDb(Pinned<'a>),
    Memory(memory::Row),
}

/// Rows of one column family from `lower` up to but without `upper`.
pub(super) struct Span<'a> {
    pub(super) lower: &'a [u8],
    pub(super) upper: &'a [u8],
    /// From the last one down.
    pub(super) reverse: bool,
    /// Whether they are likely to be read again soon.
    pub(super) again: bool,
}

/// Stands on one row after the other of a [`Span`]. It sees what was written before it was made. The thread that has one must
/// not write meanwhile: in memory, a write waits until it is gone.
pub(super) enum RowCursor<'a> {
    RocksDb(RocksDbCursor<'a>),
    Memory(memory::Cursor<'a>),
}

impl Backend {
    /// Opens (or makes) the rows in `dir`, with the column families `families` and those that are there. `states` says how long the
    /// entries of some of them live.
    pub(super) fn open(
        kind: StateBackend,
        dir: &Path,
        families: &[String],
        states: &[StateSpec],
        (shared, place): (&SharedMemory, &str),
    ) -> Result<Self, Error> {
        Ok(match kind {
            StateBackend::Rocksdb => Self::RocksDb(Database::open(dir, families, states, (&shared.blocks, place))?),
            StateBackend::Memory => Self::Memory(Box::new(Tables::open(dir, families, &shared.rows, place)?)),
        })
    }

    /// Opens the local cut in `dir`, of whatever backend, to read the rows of `range`.
    pub(super) fn open_read_only(
        dir: &Path,
        range: KeyGroupRange,
        (shared, place): (&SharedMemory, &str),
    ) -> Result<Self, Error> {
        Ok(match Self::of(dir, place)? {
            StateBackend::Rocksdb => Self::RocksDb(Database::open_read_only(dir, &shared.blocks, place)?),
            StateBackend::Memory => Self::Memory(Box::new(Tables::open_read_only(dir, range, place)?)),
        })
    }

    /// Which backend took the local cut in `dir`.
    pub(super) fn of(dir: &Path, place: &str) -> Result<StateBackend, Error> {
        if Database::is_in(dir) {
            Ok(StateBackend::Rocksdb)
        } else if memory::names(dir, place)?.is_empty() {
            Err(Error::NoCut { place: place.to_owned(), dir: dir.to_owned() })
        } else {
            Ok(StateBackend::Memory)
        }
    }

    /// Brings the files of the local cut `from` into `dir`, where they can be opened as they are.
    pub(super) fn link(kind: StateBackend, from: &Path, dir: &Path, place: &str) -> Result<(), Error> {
        match kind {
            StateBackend::Rocksdb => Database::link(from, dir, place),
            StateBackend::Memory => memory::link(from, dir, place),
        }
    }

    /// Which backend it is.
    pub(super) fn kind(&self) -> StateBackend {
        match self {
            Self::RocksDb(_) => StateBackend::Rocksdb,
            Self::Memory(_) => StateBackend::Memory,
        }
    }

    /// Bytes of memory that the rows take, where that is where they are.
    pub(super) fn used(&self) -> usize {
        match self {
            Self::RocksDb(_) => 0,
            Self::Memory(tables) => tables.used(),
        }
    }

    /// The column families, by index: the declared states', then those that are there beside them.
    pub(super) fn families(&self) -> &[String] {
        match self {
            Self::RocksDb(database) => database.families(),
            Self::Memory(tables) => tables.families(),
        }
    }

    /// The values of `rows` of a state, in order.
    pub(super) fn get_many(&self, state: usize, rows: &Rows) -> Result<Vec<Option<Stored<'_>>>, Error> {
        match self {
            Self::RocksDb(database) => database.get_many(state, rows.iter()),
            Self::Memory(tables) => tables.get_many(state, rows.iter()),
        }
    }

    /// The value of one row of a state.
    pub(super) fn get(&self, state: usize, row: &[u8]) -> Result<Option<Stored<'_>>, Error> {
        match self {
            Self::RocksDb(database) => Ok(database.get(state, row)?.map(Stored::RocksDb)),
            Self::Memory(tables) => Ok(tables.get(state, row)?.map(Stored::Memory)),
        }
    }

    /// A local cut was taken of all that was written up to these times: what has expired by them may be dropped unread.
    pub(super) fn passed(&self, now: Now) {
        match self {
            Self::RocksDb(database) => database.passed(now),
            // What is in memory is removed by the sweep alone.
            Self::Memory(_) => {}
        }
    }

    /// Whether a state has a row.
    pub(super) fn has(&self, state: usize, row: &[u8]) -> Result<bool, Error> {
        Ok(self.get(state, row)?.is_some())
    }

    /// Compacts all rows.
    #[cfg(test)]
    pub(super) fn compact(&self) {
        match self {
            Self::RocksDb(database) => database.compact(),
            // Rows in memory are what they are.
            Self::Memory(_) => {}
        }
    }

    /// The rows of a state within `span`.
    pub(super) fn cursor(&self, state: usize, span: &Span<'_>) -> Result<RowCursor<'_>, Error> {
        match self {
            Self::RocksDb(database) => Ok(RowCursor::RocksDb(database.cursor(state, span)?)),
            Self::Memory(tables) => Ok(RowCursor::Memory(tables.cursor(state, span)?)),
        }
    }

    /// Calls `each` with the keys of the rows of a state from `lower` up to but without `upper`, in order, until it answers false.
    pub(super) fn rows(
        &self,
        state: usize,
        (lower, upper): (&[u8], &[u8]),
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let mut rows = self.cursor(state, &Span { lower, upper, reverse: false, again: true })?;
        while let Some((row, _)) = rows.item() {
            if !each(row) {
                return Ok(());
            }
            rows.next();
        }
        rows.check()
    }

    /// Calls `each` with key and value of the rows of a state within `range`, in order.
    pub(super) fn scan(
        &self,
        state: usize,
        range: KeyGroupRange,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (lower, upper) = (&range.start.to_be_bytes(), &range.end.to_be_bytes());
        let mut rows = self.cursor(state, &Span { lower, upper, reverse: false, again: false })?;
        while let Some((key, value)) = rows.item() {
            each(key, value)?;
            rows.next();
        }
        rows.check()
    }

    /// Writes a layer's entries, in the order of their rows.
    pub(super) fn write_layer(&self, layer: &Layer, forms: &[row::Form]) -> Result<(), Error> {
        let mut writes = self.writes();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for entry in layer.sorted() {
            let state = usize::from(entry.key.state);
            key.clear();
            row::encode_key(entry.group, entry.key.bytes, &mut key);
            match entry.value {
                Some(bytes) => {
                    value.clear();
                    forms[state].encode(bytes, &mut value);
                    writes.put(state, &key, &value)?;
                }
                None => writes.delete(state, &key)?,
            }
        }
        writes.finish()
    }

    /// Writes a layer of timers, which is in the order of their rows.
    pub(super) fn write_timers(&self, family: usize, layer: &TimerLayer) -> Result<(), Error> {
        let mut writes = self.writes();
        let mut value = Vec::new();
        row::encode_value(TIMER_VERSION, &[], &mut value);
        let mut key = Vec::new();
        for (row, set) in layer {
            row.encode(&mut key);
            if *set { writes.put(family, &key, &value)? } else { writes.delete(family, &key)? }
        }
        writes.finish()
    }

    /// Writes, to be handed over in batches.
    pub(super) fn writes(&self) -> Writes<'_> {
        let batch = match self {
            Self::RocksDb(database) => Batch::RocksDb(database.batch()),
            Self::Memory(tables) => Batch::Memory(tables),
        };
        Writes { batch, bytes: 0 }
    }

    /// Writes everything to files.
    pub(super) fn flush(&self) -> Result<(), Error> {
        match self {
            Self::RocksDb(database) => database.flush(),
            Self::Memory(tables) => tables.flush(),
        }
    }

    /// Takes the local cut: all files of the last flush, in `dir`, which must not exist.
    pub(super) fn cut(&self, dir: &Path, shared: &SharedMemory) -> Result<Vec<LocalFile>, Error> {
        match self {
            Self::RocksDb(database) => database.cut(dir, &shared.blocks),
            Self::Memory(tables) => tables.cut(dir),
        }
    }

    /// A row of `state` that this build cannot read.
    pub(super) fn bad_row(&self, state: usize, row: &[u8], reason: row::RowError) -> Error {
        let (place, dir) = self.place();
        let head = row.iter().take(40).map(|byte| format!("{byte:02x}")).collect();
        let state = self.families().get(state).cloned().unwrap_or_default();
        Error::Row { place: place.to_owned(), state, row: head, dir: dir.to_owned(), reason }
    }

    /// A row of another schema version than the component's.
    pub(super) fn other_version(&self, spec: &StateSpec, found: u32) -> Error {
        let StateSpec { name, version, .. } = spec;
        Error::Version { place: self.place().0.to_owned(), state: name.clone(), found, declared: *version }
    }

    /// The subtask and the folder, for errors.
    fn place(&self) -> (&str, &Path) {
        match self {
            Self::RocksDb(database) => database.place(),
            Self::Memory(tables) => tables.place(),
        }
    }
}

impl Deref for Stored<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::RocksDb(value) => value,
            Self::Memory(row) => row.value(),
        }
    }
}

impl RowCursor<'_> {
    /// Key and value of the row where the cursor stands; none at the end.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Self::RocksDb(rows) => rows.item(),
            Self::Memory(rows) => rows.item(),
        }
    }

    /// Goes on to the next row.
    pub(super) fn next(&mut self) {
        match self {
            Self::RocksDb(rows) => rows.next(),
            Self::Memory(rows) => rows.next(),
        }
    }

    /// To be asked at the end: whether that is for a failure.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::RocksDb(rows) => rows.check(),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// Row keys end to end.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn push_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Writes that are handed over in batches of about [`BATCH_BYTES`], in order; in memory one by one.
pub(super) struct Writes<'a> {
    batch: Batch<'a>,
    bytes: usize,
}

enum Batch<'a> {
    RocksDb(RocksDbBatch<'a>),
    Memory(&'a Tables),
}

impl Writes<'_> {
    pub(super) fn put(&mut self, state: usize, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match &mut self.batch {
            Batch::RocksDb(batch) => batch.put(state, key, value)?,
            Batch::Memory(tables) => tables.put(state, key, value)?,
        }
        self.added(key.len() + value.len())
    }

    pub(super) fn delete(&mut self, state: usize, key: &[u8]) -> Result<(), Error> {
        match &mut self.batch {
            Batch::RocksDb(batch) => batch.delete(state, key)?,
            Batch::Memory(tables) => tables.delete(state, key)?,
        }
        self.added(key.len())
    }

    /// Deletes all rows from `from` up to `to`, that one not included.
    pub(super) fn delete_range(&mut self, state: usize, from: &[u8], to: &[u8]) -> Result<(), Error> {
        match &mut self.batch {
            Batch::RocksDb(batch) => batch.delete_range(state, from, to)?,
            Batch::Memory(tables) => tables.delete_range(state, from, to)?,
        }
        self.added(from.len() + to.len())
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.send()
    }

    fn added(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        match &mut self.batch {
            Batch::RocksDb(batch) => batch.send(),
            Batch::Memory(_) => Ok(()),
        }
    }
}

/// Appends what `families` does not have yet.
pub(super) fn add_missing(families: &mut Vec<String>, others: &[String]) {
    for name in others {
        if !families.contains(name) {
            families.push(name.clone());
        }
    }
}
