//! What a source connector must offer.
//!
//! Owns the seam between a source subtask and a connector. Does not own watermarks (the subtask makes them from the records)
//! nor who reads which subtask's turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmill_core::fault::Fault;
use wasmill_core::id::{Parallelism, SubtaskIndex};
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;

/// Where one split (a file, a partition) is: what a restored reader goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPosition {
    /// The split's stable name.
    pub split: String,
    /// The connector's own position in it.
    pub position: serde_json::Value,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Records of one split were appended, at least one.
    Read {
        /// The split's index among the reader's open splits.
        split: usize,
    },
    /// The split at this index has ended; those behind it move up by one, and another may have been opened at the end.
    SplitEnded {
        /// The split's index among the reader's open splits.
        split: usize,
    },
    /// Nothing now; ask again after this long.
    Wait(Duration),
    /// Nothing will ever come.
    End,
}

/// Which share of a node's work a subtask has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The subtask.
    pub index: SubtaskIndex,
    /// Of how many.
    pub parallelism: Parallelism,
}

/// What a reader counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Records dropped because they could not be decoded (policy `drop`).
    pub undecodable: u64,
    /// Bytes read, before decompression.
    pub bytes: u64,
}

/// A record that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The split's name.
    pub split: String,
    /// The record's position in it: its line, counted from 1.
    pub position: u64,
    /// Its bytes, where they are kept: one that is too long is not.
    pub bytes: Option<Vec<u8>>,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads one subtask's splits. Called on the subtask's thread: a call returns soon and never waits for data.
pub trait SourceReader: Send {
    /// Appends up to `limit` records of one split to `batch` (keys, times, values, and positions where it knows them). A mark is
    /// what a record itself says of its split's watermark, whether or not it advances; its time may be anything.
    ///
    /// # Errors
    /// A record that cannot be decoded under policy `fail`, or an input that cannot be read; the message names file and line.
    fn read(&mut self, batch: &mut RecordBatch, limit: usize, now: Timestamp) -> Result<ReadOutcome, Fault>;

    /// The records that the reads since the last call could not decode (policy `dead-letter`), in order.
    fn take_undecodable(&mut self) -> Vec<Undecodable> {
        Vec::new()
    }

    /// How many splits are open: those that hold back the watermark. It may grow when a split ends (files are read one after
    /// the other).
    fn open_splits(&self) -> usize;

    /// Names of the open splits, by index.
    fn split_name(&self, split: usize) -> &str;

    /// Whether the split had nothing to read when it was last looked at.
    fn is_waiting(&self, split: usize) -> bool;

    /// From here on the open splits whose flag is true are passed over; the others are read again.
    fn hold(&mut self, held: &[bool]);

    /// Where every split of this reader is, ended ones included: all records returned so far lie before, none after.
    fn positions(&self) -> Vec<SplitPosition>;

    /// What was counted since the reader was opened.
    fn counts(&self) -> ReadCounts;
}

/// Makes the readers of one source.
pub trait SourceFactory: Send + Sync {
    /// Opens a subtask's reader. `restored` holds the positions of all the source's splits, whichever subtask had them;
    /// the reader takes those it owns.
    ///
    /// # Errors
    /// An input that does not exist or cannot be read, or a position that does not fit it.
    fn open(&self, place: Place, restored: &[SplitPosition]) -> Result<Box<dyn SourceReader>, Fault>;

    /// Checks what can be checked without reading records (files exist, pattern matches something).
    ///
    /// # Errors
    /// What would fail at [`SourceFactory::open`].
    fn check(&self) -> Result<(), Fault>;

    /// How many splits there are now, where that is known: more subtasks than splits idle.
    fn splits(&self) -> Option<usize>;
}
