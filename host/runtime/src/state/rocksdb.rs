//! The backend on local disk, RocksDB: options, reads, writes, the local cut.
//!
//! Owns every call of the library, and which files a cut has. Does not own what the rows are, which thread calls, nor what a
//! restore copies. What compaction drops is in `filter`.

mod filter;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::rocksdb::checkpoint::Checkpoint;
use ::rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBRawIteratorWithThreadMode, FlushOptions, Options, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use wasmill_core::key_group::KeyGroupRange;
use wasmill_core::ttl::Now;

use self::filter::{Filters, Horizon};
use super::backend::{Span, Stored, add_missing};
use super::error::Error;
use super::{LocalFile, StateSpec};

/// A value that lies in RocksDB's memory.
pub(super) use ::rocksdb::DBPinnableSlice as Pinned;

/// Memory that all RocksDBs of a process share: blocks read, indexes, filters and memtables. A cheap clone.
#[derive(Clone)]
pub(super) struct Blocks {
    blocks: Cache,
    buffers: WriteBufferManager,
}

impl Blocks {
    /// A budget of `bytes`, of which memtables take at most about a third.
    pub(super) fn new(bytes: usize) -> Self {
        let blocks = Cache::new_lru_cache(bytes);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(bytes / 3, false, blocks.clone());
        Self { blocks, buffers }
    }

    /// Bytes in use, memtables included.
    pub(super) fn used(&self) -> usize {
        self.blocks.get_usage()
    }
}

/// One subtask's RocksDB.
pub(super) struct Database {
    db: DB,
    /// The column families, by index: the declared states', then those that are there beside them.
    families: Vec<String>,
    horizon: Arc<Horizon>,
    place: String,
    dir: PathBuf,
}

impl Database {
    /// Opens (or makes) the database in `dir`, with the column families `families` and those that are there. Compaction drops what
    /// has expired of those that are among `states`.
    pub(super) fn open(
        dir: &Path,
        families: &[String],
        states: &[StateSpec],
        (shared, place): (&Blocks, &str),
    ) -> Result<Self, Error> {
        let mut families = families.to_vec();
        if Self::is_in(dir) {
            add_missing(&mut families, &families_of(dir, place)?);
        }
        let mut options = db_options(shared);
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let horizon = Arc::new(Horizon::default());
        let descriptors = families.iter().map(|name| {
            let mut options = family_options(shared);
            let spec = states.iter().find(|spec| spec.name.as_str() == name);
            if let Some(filters) = spec.and_then(|spec| Filters::of(spec, &horizon)) {
                options.set_compaction_filter_factory(filters);
            }
            ColumnFamilyDescriptor::new(name, options)
        });
        let db =
            DB::open_cf_descriptors(&options, dir, descriptors).map_err(|error| storage(place, "open", dir, &error))?;
        Ok(Self { db, families, horizon, place: place.to_owned(), dir: dir.to_owned() })
    }

    /// Opens the database in `dir` to be read only.
    pub(super) fn open_read_only(dir: &Path, shared: &Blocks, place: &str) -> Result<Self, Error> {
        let families = families_of(dir, place)?;
        let descriptors = families.iter().map(|name| ColumnFamilyDescriptor::new(name, family_options(shared)));
        let db = DB::open_cf_descriptors_read_only(&db_options(shared), dir, descriptors, false)
            .map_err(|error| storage(place, "open", dir, &error))?;
        Ok(Self { db, families, horizon: Arc::default(), place: place.to_owned(), dir: dir.to_owned() })
    }

    /// By which times compaction judges from now on what has expired.
    pub(super) fn passed(&self, now: Now) {
        self.horizon.pass(now);
    }

    /// What is there for as long as any compaction or its filter is.
    #[cfg(test)]
    pub(super) fn horizon(&self) -> std::sync::Weak<impl Sized + use<>> {
        Arc::downgrade(&self.horizon)
    }

    /// Whether there is a database in `dir`.
    pub(super) fn is_in(dir: &Path) -> bool {
        dir.join("CURRENT").exists()
    }

    /// Links a local cut's table files into `to` and copies the others, which RocksDB changes.
    pub(super) fn link(from: &Path, to: &Path, place: &str) -> Result<(), Error> {
        for entry in std::fs::read_dir(from).map_err(|error| Error::file(place, "list", from, &error))? {
            let entry = entry.map_err(|error| Error::file(place, "list", from, &error))?;
            let name = entry.file_name();
            let (source, target) = (entry.path(), to.join(&name));
            // Across file systems there are no links.
            let linked = is_table(&name.to_string_lossy()) && std::fs::hard_link(&source, &target).is_ok();
            if !linked {
                std::fs::copy(&source, &target).map_err(|error| Error::file(place, "copy", &source, &error))?;
            }
        }
        Ok(())
    }

    /// The column families, by index.
    pub(super) fn families(&self) -> &[String] {
        &self.families
    }

    /// The subtask and the folder, for errors.
    pub(super) fn place(&self) -> (&str, &Path) {
        (&self.place, &self.dir)
    }

    /// The values of `rows` of a state, in order.
    pub(super) fn get_many<'a>(
        &self,
        state: usize,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<Option<Stored<'_>>>, Error> {
        let found = self.db.batched_multi_get_cf(self.family(state)?, rows, false).into_iter();
        let read = found.map(|value| value.map_err(|error| self.storage("read", &error)));
        read.map(|value| Ok(value?.map(Stored::RocksDb))).collect()
    }

    /// The value of one row of a state.
    pub(super) fn get(&self, state: usize, row: &[u8]) -> Result<Option<Pinned<'_>>, Error> {
        self.db.get_pinned_cf(self.family(state)?, row).map_err(|error| self.storage("read", &error))
    }

    /// The rows of a state within `span`.
    pub(super) fn cursor(&self, state: usize, span: &Span<'_>) -> Result<Cursor<'_>, Error> {
        let mut options = ReadOptions::default();
        options.fill_cache(span.again);
        options.set_iterate_lower_bound(span.lower);
        options.set_iterate_upper_bound(span.upper);
        let mut rows = self.db.raw_iterator_cf_opt(self.family(state)?, options);
        if span.reverse {
            rows.seek_to_last();
        } else {
            rows.seek_to_first();
        }
        Ok(Cursor { database: self, rows, reverse: span.reverse })
    }

    /// Writes to be sent together, without RocksDB's log.
    pub(super) fn batch(&self) -> Batch<'_> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        options.set_memtable_insert_hint_per_batch(true);
        Batch { database: self, batch: WriteBatch::default(), options }
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
    pub(super) fn cut(&self, dir: &Path, shared: &Blocks) -> Result<Vec<LocalFile>, Error> {
        let mut bounds = self.file_bounds()?;
        let take = || Checkpoint::new(&self.db)?.create_checkpoint(dir);
        take().map_err(|error| storage(&self.place, "take a local cut", dir, &error))?;
        bounds.extend(self.file_bounds()?);
        let files = list_files(dir, &bounds, &self.place)?;
        if files.iter().all(|file| file.key_groups.is_some() || !is_table(&file.name)) {
            return Ok(files);
        }
        // A file that compaction made and replaced around the cut: only the cut itself knows it.
        let bounds = Self::open_read_only(dir, shared, &self.place)?.file_bounds()?;
        list_files(dir, &bounds, &self.place)
    }

    /// The key groups of each live table file, by its name; of a file without keys an empty range.
    fn file_bounds(&self) -> Result<HashMap<String, KeyGroupRange>, Error> {
        let files = self.db.live_files().map_err(|error| self.storage("list its files", &error))?;
        Ok(files
            .into_iter()
            .map(|file| {
                let bounds = group_bounds(file.start_key.as_deref(), file.end_key.as_deref());
                (file.name.trim_start_matches('/').to_owned(), bounds)
            })
            .collect())
    }

    /// Compacts every column family whole.
    #[cfg(test)]
    pub(super) fn compact(&self) {
        for family in self.families.iter().filter_map(|name| self.db.cf_handle(name)) {
            self.db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        }
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

/// A cursor over rows.
pub(super) struct Cursor<'a> {
    database: &'a Database,
    rows: DBRawIteratorWithThreadMode<'a, DB>,
    reverse: bool,
}

impl Cursor<'_> {
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.rows.item()
    }

    pub(super) fn next(&mut self) {
        if self.reverse {
            self.rows.prev();
        } else {
            self.rows.next();
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.rows.status().map_err(|error| self.database.storage("read", &error))
    }
}

/// Writes to be sent together.
pub(super) struct Batch<'a> {
    database: &'a Database,
    batch: WriteBatch,
    options: WriteOptions,
}

impl Batch<'_> {
    pub(super) fn put(&mut self, state: usize, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.batch.put_cf(self.database.family(state)?, key, value);
        Ok(())
    }

    pub(super) fn delete(&mut self, state: usize, key: &[u8]) -> Result<(), Error> {
        self.batch.delete_cf(self.database.family(state)?, key);
        Ok(())
    }

    pub(super) fn delete_range(&mut self, state: usize, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.batch.delete_range_cf(self.database.family(state)?, from, to);
        Ok(())
    }

    pub(super) fn send(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        self.database.db.write_opt(batch, &self.options).map_err(|error| self.database.storage("write", &error))
    }
}

/// Files of a local cut with their sizes and bounds, by name.
fn list_files(dir: &Path, bounds: &HashMap<String, KeyGroupRange>, place: &str) -> Result<Vec<LocalFile>, Error> {
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
fn is_table(name: &str) -> bool {
    name.ends_with(".sst")
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

fn db_options(shared: &Blocks) -> Options {
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

fn family_options(shared: &Blocks) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&shared.blocks);
    table.set_block_size(8 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // A whole file's filter is megabytes: more than a shard of the cache takes, so that each look-up would read it again.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(8 << 10);
    table.set_pin_top_level_index_and_filter(true);
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
