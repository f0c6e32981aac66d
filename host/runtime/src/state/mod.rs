//! State of one subtask: a write-back cache in front of a backend, frozen at barriers.
//!
//! Owns every byte of keyed state between two calls of the guest, its local cuts and its restore from them; the sole importer
//! of `rocksdb`. Does not own guests, uploads, manifests, or when a barrier comes. Files: `keyed`, `value`, `map`, `list`, `timer` (the
//! seam's methods), `elements` (state of no key); of values `cache` and `layer` (memory); of maps and lists `collection` (what they share),
//! `runs`, `run` and `changes` (memory), `scan`; `timers`; `lifetime` (stamps), `sweep`, `purge` and `expired` (what has expired);
//! `writer` (the background thread), `backend` (what holds the rows: `rocksdb` or `memory`), `restore`, `row` (stored rows).

mod backend;
mod cache;
mod changes;
mod collection;
mod elements;
mod entries;
mod error;
mod expired;
mod guess;
mod keyed;
mod layer;
mod lifetime;
mod list;
mod map;
mod memory;
mod purge;
mod restore;
mod rocksdb;
mod row;
mod run;
mod runs;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;
mod timer;
mod timers;
mod value;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use wasmill_core::contract::{StateContract, StateKind, Ttl};
use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};

pub use self::backend::SharedMemory;
pub use self::collection::Place;
pub use self::elements::{Elements, NO_KEY, read_elements};
pub use self::error::Error;
pub use self::expired::Expired;
pub use self::guess::BLOCK;
pub use self::keyed::KeyedState;
pub use self::lifetime::{split, stamp_into, stamped};
pub use self::row::RowError;
pub use self::run::{Name, Value};
pub use self::scan::{PAGE_BYTES, PAGE_ENTRIES, Page, Range};
use crate::clock::SharedClock;
pub use crate::config::table::StateBackend;
pub use wasmill_core::checkpoint::counts::{Counts, Tally};

/// One declared state; its index is that in `OperatorContract::states`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSpec {
    /// By which it is found in a snapshot.
    pub name: StateName,
    /// Its shape.
    pub kind: StateKind,
    /// The schema version of what is written.
    pub version: u32,
    /// How long its entries live; `None`: for ever.
    pub ttl: Option<Ttl>,
}

impl StateSpec {
    /// As a component declares it.
    #[must_use]
    pub fn of(state: &StateContract) -> Self {
        Self { name: state.name.clone(), kind: state.kind, version: state.version, ttl: state.ttl }
    }

    /// How its values are written.
    fn form(&self) -> row::Form {
        row::Form { version: self.version, stamp: self.ttl.map(|ttl| ttl.domain) }
    }

    /// Bytes of the stamp before each of its values in memory.
    fn stamp_bytes(&self) -> usize {
        if self.ttl.is_some() { row::STAMP_BYTES } else { 0 }
    }
}

/// What a subtask's state is opened with.
#[derive(Clone)]
pub struct Options {
    /// What holds the rows.
    pub backend: StateBackend,
    /// The subtask's own folder: made if it is missing, emptied if it is not; what counts lies in checkpoints. On one file
    /// system with the local cuts, which are hard links.
    pub dir: PathBuf,
    /// The declared states.
    pub states: Vec<StateSpec>,
    /// The subtask's key groups.
    pub range: KeyGroupRange,
    /// The job's number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Budget of the cache in bytes, at most 64 GiB: three quarters for what may be forgotten, a quarter for what is not
    /// yet frozen. Frozen layers (each at most a quarter, at most three) come on top. Where there is value state beside maps and
    /// lists, each of the two has half.
    pub cache_bytes: usize,
    /// The backends' memory.
    pub shared: SharedMemory,
    /// For durations.
    pub clock: SharedClock,
    /// The subtask as `uid/index`, for errors.
    pub place: String,
}

/// What a subtask's state begins with.
#[derive(Debug, Clone)]
pub enum Restore {
    /// Nothing.
    Empty,
    /// The local cut in `dir` (as it was, or downloaded), taken by a subtask of the same key groups: its files are linked in
    /// and opened as they are, or its rows copied where another backend took it. `dir` is only read and may be deleted afterwards.
    Same {
        /// The local cut.
        dir: PathBuf,
        /// Its counts.
        counts: Counts,
    },
    /// Local cuts, of any backend, of which the rows of the subtask's key groups are copied: a restore at another parallelism.
    Rows {
        /// The local cuts; those of other key groups are skipped over.
        dirs: Vec<PathBuf>,
        /// Their counts, merged.
        counts: Counts,
    },
}

/// The three parts of a guest's optional column, to be appended to; they begin empty for a column.
#[derive(Debug)]
pub struct EagerOut<'a> {
    /// 1 for a value, 0 for none.
    pub present: &'a mut Vec<u8>,
    /// The values end to end.
    pub bytes: &'a mut Vec<u8>,
    /// The end of each value in `bytes`, packed as little-endian `u32`.
    pub ends: &'a mut Vec<u8>,
}

impl EagerOut<'_> {
    fn push(&mut self, value: Option<&[u8]>) {
        self.present.push(u8::from(value.is_some()));
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
    }
}

/// What the background thread hands back for a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalCut {
    /// What took it.
    pub backend: StateBackend,
    /// The folder of links; whoever took it deletes it.
    pub dir: PathBuf,
    /// Its files by name.
    pub files: Vec<LocalFile>,
    /// Counts at the barrier.
    pub counts: Counts,
    /// How long the frozen layer took to be written and flushed.
    pub write: Duration,
    /// How long the links took.
    pub cut: Duration,
}

/// A file of a local cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// Its name within the folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Of a file of rows (which never changes), the key groups of its keys and range tombstones; else `None`.
    pub key_groups: Option<KeyGroupRange>,
}

/// Is told the local cut of a barrier, or why there is none, on the background thread. It must be short: the next layer waits
/// for it. Uploads go on elsewhere.
pub type OnCut = Box<dyn FnOnce(Result<LocalCut, Error>) + Send>;

/// Figures for metrics, since the state was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Bytes written and not frozen yet; those of maps and lists are counted among the clean ones too, with which they are shared.
    pub fresh_bytes: u64,
    /// Bytes frozen, or written out and not yet settled.
    pub frozen_bytes: u64,
    /// Bytes that the backend has too, and all of maps and lists that are in memory.
    pub clean_bytes: u64,
    /// Look-ups that the cache answered.
    pub hits: u64,
    /// Look-ups that asked the backend.
    pub misses: u64,
    /// Bytes of memory that hold the rows behind the cache, where the backend is in memory.
    pub rows_bytes: u64,
    /// Layers frozen without a barrier, because fresh had grown.
    pub write_outs: u64,
    /// How long the subtask waited for the background thread.
    pub waited: Duration,
}
