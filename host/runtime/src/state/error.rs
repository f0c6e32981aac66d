//! What can go wrong with keyed state, and whose fault it is.

use std::path::{Path, PathBuf};

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroup, KeyGroupRange};

use super::row::RowError;

/// What can go wrong with keyed state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process (or another attempt of this one) has the folder.
    #[error("{place}: the state folder `{}` is in use: stop the process that uses it, or give this job another folder", dir.display())]
    InUse {
        /// The subtask.
        place: String,
        /// The folder.
        dir: PathBuf,
    },
    /// A file or folder cannot be made, linked or read.
    #[error("{place}: cannot {doing} `{}`: {message}{}", path.display(), hint(message))]
    File {
        /// The subtask.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's message.
        message: String,
    },
    /// RocksDB failed; it takes no more writes until the job has restarted from its last checkpoint.
    #[error("{place}: RocksDB cannot {doing} in `{}`: {message}{}", dir.display(), hint(message))]
    Storage {
        /// The subtask.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// RocksDB's folder.
        dir: PathBuf,
        /// RocksDB's message.
        message: String,
    },
    /// The rows in memory have outgrown their budget. A restart would come to the same.
    #[error(
        "{place}: the rows in memory take {used} bytes, and the half of state.memory that is theirs has {limit}: raise it, or set \
         state.backend = \"rocksdb\", which restores the same checkpoints"
    )]
    Full {
        /// The subtask.
        place: String,
        /// Bytes of all subtasks' rows.
        used: usize,
        /// What they may have.
        limit: usize,
    },
    /// A damaged row file, or one of a later version.
    #[error("{place}: the row file `{}` cannot be read: {what}", path.display())]
    RowFile {
        /// The subtask.
        place: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A folder without a local cut.
    #[error("{place}: the folder `{}` holds the files of no state backend", dir.display())]
    NoCut {
        /// The subtask.
        place: String,
        /// The folder.
        dir: PathBuf,
    },
    /// A row that this build cannot read.
    #[error("{place}: state `{state}`, row {row} in `{}`: {reason}", dir.display())]
    Row {
        /// The subtask.
        place: String,
        /// The state.
        state: String,
        /// The head of the row's key, in hex.
        row: String,
        /// RocksDB's folder.
        dir: PathBuf,
        /// What is wrong with it.
        reason: RowError,
    },
    /// A row of another schema version than the component's.
    #[error(
        "{place}: state `{state}` holds a value of schema version {found}, but the component declares version {declared}: \
         run the component that wrote it, or one that declares version {found}"
    )]
    Version {
        /// The subtask.
        place: String,
        /// The state.
        state: StateName,
        /// The version in the row.
        found: u32,
        /// The component's version.
        declared: u32,
    },
    /// A value too large to be kept at all; the limits of the contract lie far below.
    #[error(
        "{place}: state `{state}`: {bytes} bytes are more than can be kept in one piece; lower the batch or value limit"
    )]
    TooLarge {
        /// The subtask.
        place: String,
        /// The state.
        state: StateName,
        /// Bytes of the key, the value or the column.
        bytes: usize,
    },
    /// A key that another subtask owns.
    #[error(
        "{place}: a key of group {group} came to the subtask of groups {range}: a bug of wasmill, please report it"
    )]
    OutsideRange {
        /// The subtask.
        place: String,
        /// The key's group.
        group: KeyGroup,
        /// The subtask's groups.
        range: KeyGroupRange,
    },
    /// A third barrier came before the first had its local cut.
    #[error(
        "{place}: a third snapshot was begun before the first had its local cut: a bug of wasmill, please report it"
    )]
    TooManyFrozen {
        /// The subtask.
        place: String,
    },
    /// A state's index or the hashes do not fit what was declared or given.
    #[error("{place}: {message}: a bug of wasmill, please report it")]
    Misuse {
        /// The subtask.
        place: String,
        /// What does not fit.
        message: String,
    },
    /// The background thread panicked.
    #[error("{place}: the state's background thread panicked: {message}: a bug of wasmill, please report it")]
    Panicked {
        /// The subtask.
        place: String,
        /// The panic's message.
        message: String,
    },
    /// The state was closed before the cut was taken.
    #[error("{place}: the state was closed before its local cut was taken")]
    Closed {
        /// The subtask.
        place: String,
    },
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::InUse { .. }
            | Self::Row { .. }
            | Self::Version { .. }
            | Self::RowFile { .. }
            | Self::NoCut { .. } => FaultKind::Refused,
            Self::File { .. } | Self::Storage { .. } | Self::Closed { .. } => FaultKind::External,
            Self::TooLarge { .. } => FaultKind::Guest,
            Self::Full { .. } => FaultKind::User,
            Self::OutsideRange { .. } | Self::TooManyFrozen { .. } | Self::Misuse { .. } | Self::Panicked { .. } => {
                FaultKind::Internal
            }
        }
    }

    pub(super) fn file(place: &str, doing: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::File { place: place.to_owned(), doing, path: path.to_owned(), message: error.to_string() }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

fn hint(message: &str) -> &'static str {
    // The text of ENOSPC, which RocksDB passes on within its own message.
    if message.contains("No space left on device") {
        "; free space there: the job goes on from its last checkpoint"
    } else {
        ""
    }
}
