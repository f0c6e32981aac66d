//! The decision log of a job: who may decide, and what is decided.
//!
//! Owns the stored form of its entries ([`entry`]), what they add up to ([`state`]) and how its end is found ([`tail`]). Does not read or
//! write: the runtime's journal does.
//!
//! The log is dense: entry n+1 is written, create-if-absent, by one who has read entry n. A new attempt claims a number, and so
//! does everything an attempt decides; whoever finds a number taken by another's entry must stop. That alone fences.
//!
//! Entries are deleted only in whole blocks of [`BLOCK`] below every retained checkpoint, all but the block's last, which
//! carries the [`state::InForce`] of the whole log up to it. An entry counts only if, read after its creation, its block's last entry
//! is absent or is itself: so an old attempt that wakes up and writes into a cleaned gap learns that it is over.

use serde::{Deserialize, Serialize};

pub mod entry;
pub mod permit;
pub mod state;
pub mod tail;

pub use entry::{Entry, Record, Restored, Setting, Settings, WriterId};
pub use permit::{CommitPermit, CompletePermit, Decider};
pub use state::{Error, InForce, LogState, Start, StartFrom, StoredCheckpoint};

/// Entries in a block.
pub const BLOCK: u64 = 1_024;

/// The number of a log entry, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The entry after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The block it lies in.
    #[must_use]
    pub fn block(self) -> u64 {
        self.0 / BLOCK
    }

    /// Whether it is its block's last.
    #[must_use]
    pub fn is_block_end(self) -> bool {
        self.0 % BLOCK == BLOCK - 1
    }

    /// The last entry of its block.
    #[must_use]
    pub fn block_end(self) -> Self {
        block_end(self.block())
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The first entry of a block.
#[must_use]
pub fn block_start(block: u64) -> Seq {
    Seq(block.saturating_mul(BLOCK))
}

/// The last entry of a block.
#[must_use]
pub fn block_end(block: u64) -> Seq {
    Seq(block.saturating_mul(BLOCK).saturating_add(BLOCK - 1))
}
