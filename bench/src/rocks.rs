//! RocksDB as a program would use it that keeps nothing in front of it.
//!
//! Owns options like those of the host's state: no log, lz4, filters, blocks in one cache. Does not own what is measured.

use std::path::Path;

use anyhow::Result;
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, WriteBatch, WriteBufferManager, WriteOptions};

/// A database of counts.
pub struct Rocks {
    db: DB,
    writes: WriteOptions,
}

impl Rocks {
    /// A new database in `dir` with `bytes` of memory.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn open(dir: &Path, bytes: usize) -> Result<Self> {
        let blocks = Cache::new_lru_cache(bytes);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            bytes / 3,
            false,
            blocks.clone(),
        ));
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&blocks);
        tables.set_bloom_filter(10.0, false);
        tables.set_cache_index_and_filter_blocks(true);
        options.set_block_based_table_factory(&tables);
        let mut writes = WriteOptions::default();
        writes.disable_wal(true);
        Ok(Self { db: DB::open(&options, dir)?, writes })
    }

    /// Puts a count of one for each key.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn fill(&self, keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.put(&key, 1u64.to_le_bytes());
            if batch.size_in_bytes() > 1 << 20 {
                self.db.write_opt(std::mem::take(&mut batch), &self.writes)?;
            }
        }
        Ok(self.db.write_opt(batch, &self.writes)?)
    }

    /// Reads a key's count and writes it with one more.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn count(&self, key: &[u8]) -> Result<()> {
        let count = self.db.get_pinned(key)?;
        let count = count.and_then(|count| Some(u64::from_le_bytes(count.as_ref().try_into().ok()?))).unwrap_or(0);
        Ok(self.db.put_opt(key, (count + 1).to_le_bytes(), &self.writes)?)
    }
}
