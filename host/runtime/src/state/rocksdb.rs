//! RocksDB: options, reads, writes, the local cut.
//!
//! Owns every call of the library, and how a state becomes a column family. Does not own which thread calls, nor what a
//! restore copies.

mod collection;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ::rocksdb::checkpoint::Checkpoint;
use ::rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, FlushOptions, IteratorMode,
    Options, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use wasmill_core::key_group::KeyGroupRange;

use super::error::Error;
use super::layer::Layer;
use super::row;
use super::timers::TimerLayer;
use super::{LocalFile, StateSpec};

pub(super) use self::collection::Entries;
/// A value that lies in RocksDB's memory.
pub(super) use ::rocksdb::DBPinnableSlice as Pinned;

/// Schema version of a timer's row.
const TIMER_VERSION: u32 = 1;

/// Bytes after which a batch of writes is handed to RocksDB.
const BATCH_BYTES: usize = 1 << 20;

/// Memory that all subtasks' RocksDBs of a process share: blocks read, indexes, filters and memtables.
///
/// A cheap clone. The caches of [`KeyedState`](super::KeyedState) come on top.
#[derive(Clone)]
pub struct SharedMemory {
    blocks: Cache,
    buffers: WriteBufferManager,
}

impl SharedMemory {
    /// A budget of `bytes`, of which memtables take at most about a third.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let blocks = Cache::new_lru_cache(bytes);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(bytes / 3, false, blocks.clone());
        Self { blocks, buffers }
    }

    /// Bytes in use, memtables included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.blocks.get_usage()
    }
}

/// One subtask's RocksDB.
pub(super) struct Database {
    db: DB,
    /// The column families, by index: the declared states', then those that are there beside them.
    families: Vec<String>,
    place: String,
    dir: PathBuf,
}

impl Database {
    /// Opens (or makes) the database in `dir`, with the column families `families` and those that are there.
    pub(super) fn open(dir: &Path, families: &[String], shared: &SharedMemory, place: &str) -> Result<Self, Error> {
        let mut families = families.to_vec();
        if dir.join("CURRENT").exists() {
            add_missing(&mut families, &families_of(dir, place)?);
        }
        let mut options = db_options(shared);
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let descriptors = families.iter().map(|name| ColumnFamilyDescriptor::new(name, family_options(shared)));
        let db =
            DB::open_cf_descriptors(&options, dir, descriptors).map_err(|error| storage(place, "open", dir, &error))?;
        Ok(Self { db, families, place: place.to_owned(), dir: dir.to_owned() })
    }

    /// Opens the database in `dir` to be read only.
    pub(super) fn open_read_only(dir: &Path, shared: &SharedMemory, place: &str) -> Result<Self, Error> {
        let families = families_of(dir, place)?;
        let descriptors = families.iter().map(|name| ColumnFamilyDescriptor::new(name, family_options(shared)));
        let db = DB::open_cf_descriptors_read_only(&db_options(shared), dir, descriptors, false)
            .map_err(|error| storage(place, "open", dir, &error))?;
        Ok(Self { db, families, place: place.to_owned(), dir: dir.to_owned() })
    }

    /// The column families, by index.
    pub(super) fn families(&self) -> &[String] {
        &self.families
    }

    /// The values of `rows` (keys end to end, with the end of each) of a state, in order.
    pub(super) fn get_many(&self, state: usize, rows: &Rows) -> Result<Vec<Option<Pinned<'_>>>, Error> {
        let found = self.db.batched_multi_get_cf(self.family(state)?, rows.iter(), false);
        found.into_iter().map(|value| value.map_err(|error| self.storage("read", &error))).collect()
    }

    /// The value of one row of a state.
    pub(super) fn get(&self, state: usize, row: &[u8]) -> Result<Option<Pinned<'_>>, Error> {
        self.db.get_pinned_cf(self.family(state)?, row).map_err(|error| self.storage("read", &error))
    }

    /// Writes a layer's entries, in the order of their rows.
    pub(super) fn write_layer(&self, layer: &Layer, versions: &[u32]) -> Result<(), Error> {
        let mut writes = Writes::new(self);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for entry in layer.sorted() {
            let state = usize::from(entry.key.state);
            key.clear();
            row::encode_key(entry.group, entry.key.bytes, &mut key);
            match entry.value {
                Some(bytes) => {
                    value.clear();
                    row::encode_value(versions[state], bytes, &mut value);
                    writes.put(state, &key, &value)?;
                }
                None => writes.delete(state, &key)?,
            }
        }
        writes.finish()
    }

    /// Writes a layer of timers, which is in the order of their rows.
    pub(super) fn write_timers(&self, family: usize, layer: &TimerLayer) -> Result<(), Error> {
        let mut writes = Writes::new(self);
        let mut value = Vec::new();
        row::encode_value(TIMER_VERSION, &[], &mut value);
        for (row, set) in layer {
            if *set { writes.put(family, row, &value)? } else { writes.delete(family, row)? }
        }
        writes.finish()
    }

    /// Whether a state has a row.
    pub(super) fn has(&self, state: usize, row: &[u8]) -> Result<bool, Error> {
        Ok(self.get(state, row)?.is_some())
    }

    /// Calls `each` with the rows of a state from `lower` up to but without `upper`, in order, until it answers false.
    pub(super) fn rows(
        &self,
        state: usize,
        (lower, upper): (&[u8], &[u8]),
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        let mut rows = self.db.raw_iterator_cf_opt(self.family(state)?, options);
        rows.seek_to_first();
        while let Some(row) = rows.key() {
            if !each(row) {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(|error| self.storage("read", &error))
    }

    /// Writes every memtable to files.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let families: Vec<&ColumnFamily> =
            (0..self.families.len()).map(|index| self.family(index)).collect::<Result<_, _>>()?;
        let mut options = FlushOptions::new();
        options.set_wait(true);
        self.db.flush_cfs_opt(&families, &options).map_err(|error| self.storage("write", &error))
    }

    /// Takes the local cut: hard links to all files, in `dir`, which must not exist.
    pub(super) fn cut(&self, dir: &Path) -> Result<(), Error> {
        let take = || Checkpoint::new(&self.db)?.create_checkpoint(dir);
        take().map_err(|error| storage(&self.place, "take a local cut", dir, &error))
    }

    /// The key groups of each live table file, by its name; of a file without keys an empty range.
    pub(super) fn file_bounds(&self) -> Result<HashMap<String, KeyGroupRange>, Error> {
        let files = self.db.live_files().map_err(|error| self.storage("list its files", &error))?;
        Ok(files
            .into_iter()
            .map(|file| {
                let bounds = group_bounds(file.start_key.as_deref(), file.end_key.as_deref());
                (file.name.trim_start_matches('/').to_owned(), bounds)
            })
            .collect())
    }

    /// Calls `each` with key and value of the rows of a state within `range`, in order.
    pub(super) fn scan(
        &self,
        state: usize,
        range: KeyGroupRange,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_verify_checksums(true);
        options.set_iterate_lower_bound(range.start.to_be_bytes());
        options.set_iterate_upper_bound(range.end.to_be_bytes());
        for row in self.db.iterator_cf_opt(self.family(state)?, options, IteratorMode::Start) {
            let (key, value) = row.map_err(|error| self.storage("read", &error))?;
            each(&key, &value)?;
        }
        Ok(())
    }

    /// A row of `state` that this build cannot read.
    pub(super) fn bad_row(&self, state: usize, row: &[u8], reason: row::RowError) -> Error {
        let head = row.iter().take(40).map(|byte| format!("{byte:02x}")).collect();
        let state = self.families.get(state).cloned().unwrap_or_default();
        Error::Row { place: self.place.clone(), state, row: head, dir: self.dir.clone(), reason }
    }

    /// A row of another schema version than the component's.
    pub(super) fn other_version(&self, spec: &StateSpec, found: u32) -> Error {
        let StateSpec { name, version, .. } = spec;
        Error::Version { place: self.place.clone(), state: name.clone(), found, declared: *version }
    }

    fn family(&self, state: usize) -> Result<&ColumnFamily, Error> {
        self.families.get(state).and_then(|name| self.db.cf_handle(name)).ok_or_else(|| Error::Misuse {
            place: self.place.clone(),
            message: format!("there is no state with index {state}"),
        })
    }

    fn storage(&self, doing: &'static str, error: &::rocksdb::Error) -> Error {
        storage(&self.place, doing, &self.dir, error)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // What is not part of a local cut is of no use to anyone: compactions are not waited for to end well.
        self.db.cancel_all_background_work(true);
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

/// Writes that go to RocksDB in batches, without its log.
pub(super) struct Writes<'a> {
    database: &'a Database,
    batch: WriteBatch,
    bytes: usize,
    options: WriteOptions,
}

impl<'a> Writes<'a> {
    pub(super) fn new(database: &'a Database) -> Self {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        options.set_memtable_insert_hint_per_batch(true);
        Self { database, batch: WriteBatch::default(), bytes: 0, options }
    }

    pub(super) fn put(&mut self, state: usize, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.batch.put_cf(self.database.family(state)?, key, value);
        self.added(key.len() + value.len())
    }

    pub(super) fn delete(&mut self, state: usize, key: &[u8]) -> Result<(), Error> {
        self.batch.delete_cf(self.database.family(state)?, key);
        self.added(key.len())
    }

    /// Deletes all rows from `from` up to `to`, that one not included.
    fn delete_range(&mut self, state: usize, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.batch.delete_range_cf(self.database.family(state)?, from, to);
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
        let batch = std::mem::take(&mut self.batch);
        self.database.db.write_opt(batch, &self.options).map_err(|error| self.database.storage("write", &error))
    }
}

/// Files of a local cut with their sizes and bounds, by name.
pub(super) fn list_files(
    dir: &Path,
    bounds: &HashMap<String, KeyGroupRange>,
    place: &str,
) -> Result<Vec<LocalFile>, Error> {
    let failed = |error: std::io::Error| Error::file(place, "list", dir, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // RocksDB's own log of what it does, and its lock.
        if name.starts_with("LO") {
            continue;
        }
        let bytes = entry.metadata().map_err(failed)?.len();
        let key_groups = bounds.get(&name).copied();
        files.push(LocalFile { name, bytes, key_groups });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Whether a file of a local cut is a table file: it has bounds and never changes.
pub(super) fn is_table(name: &str) -> bool {
    name.ends_with(".sst")
}

/// Appends what `families` does not have yet.
pub(super) fn add_missing(families: &mut Vec<String>, others: &[String]) {
    for name in others {
        if !families.contains(name) {
            families.push(name.clone());
        }
    }
}

fn families_of(dir: &Path, place: &str) -> Result<Vec<String>, Error> {
    DB::list_cf(&Options::default(), dir).map_err(|error| storage(place, "open", dir, &error))
}

fn group_bounds(start: Option<&[u8]>, end: Option<&[u8]>) -> KeyGroupRange {
    let group = |key: Option<&[u8]>| key.and_then(|key| key.first_chunk()).copied().map(u16::from_be_bytes);
    match (group(start), group(end)) {
        (Some(first), Some(last)) => KeyGroupRange { start: first, end: last.saturating_add(1) },
        _ => KeyGroupRange { start: 0, end: 0 },
    }
}

fn db_options(shared: &SharedMemory) -> Options {
    // What is in memory when the database is closed belongs to no local cut: writing it would only delay a restart. The
    // library has no setter for this one, and knows its name.
    let quick = Options::default().get_options_from_string("avoid_flush_during_shutdown=true");
    let mut options = quick.unwrap_or_default();
    options.set_write_buffer_manager(&shared.buffers);
    // One flush and one compaction at a time a subtask: its thread shares the machine with others'.
    options.set_max_background_jobs(2);
    options.set_max_open_files(512);
    options.set_skip_stats_update_on_db_open(true);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_log_level(::rocksdb::LogLevel::Warn);
    options
}

fn family_options(shared: &SharedMemory) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&shared.blocks);
    table.set_block_size(8 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    // Layers are flushed whole; the shared budget flushes earlier where many subtasks write.
    options.set_write_buffer_size(32 << 20);
    options
}

fn storage(place: &str, doing: &'static str, dir: &Path, error: &::rocksdb::Error) -> Error {
    Error::Storage { place: place.to_owned(), doing, dir: dir.to_owned(), message: error.as_ref().to_owned() }
}
