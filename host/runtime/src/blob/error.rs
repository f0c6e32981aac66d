//! What can go wrong with the checkpoint store.
//!
//! Owns the messages and whose fault each error is. Does not decide what is retried.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wasmill_core::digest::Digest;
use wasmill_core::fault::{Fault, FaultKind};

/// Each names the object and the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The location is none.
    #[error("the checkpoint store `{location}` cannot be used: {reason}")]
    Location {
        /// As written.
        location: String,
        /// Why.
        reason: String,
    },
    /// No such object.
    #[error("the checkpoint store {store} has no object `{object}`")]
    Missing {
        /// The object.
        object: String,
        /// The store.
        store: String,
    },
    /// Refused for good: retrying is of no use.
    #[error("cannot {doing} `{object}` in the checkpoint store {store}: {cause}")]
    Refused {
        /// What was tried.
        doing: &'static str,
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// What the store said.
        cause: String,
    },
    /// Failed again and again.
    #[error(
        "cannot {doing} `{object}` in the checkpoint store {store}: tried {tries} times in {} s; the last time: {cause}",
        waited.as_secs()
    )]
    Unavailable {
        /// What was tried.
        doing: &'static str,
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// How often.
        tries: u32,
        /// For how long.
        waited: Duration,
        /// What the store said last.
        cause: String,
    },
    /// The bytes are not those that were stored.
    #[error("the object `{object}` in the checkpoint store {store} is damaged: {damage}")]
    Damaged {
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// Where and how.
        damage: Box<Damage>,
    },
    /// The local file, not the store.
    #[error("cannot {doing} the file {}: {cause}", path.display())]
    Local {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// The local file is not what it was.
    #[error("the file {} changed while it was uploaded", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

/// A piece of an object that has another checksum than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The piece.
    pub range: Range<u64>,
    /// What its checksum should be.
    pub expected: Digest,
    /// What it is.
    pub found: Digest,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, expected, found } = self;
        write!(f, "bytes {} to {} have the checksum {found}, expected {expected}", range.start, range.end)
    }
}

impl Error {
    pub(super) fn local(doing: &'static str, path: &Path, cause: std::io::Error) -> Self {
        Self::Local { doing, path: path.to_owned(), cause }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Location { .. } => FaultKind::User,
            Self::Missing { .. } | Self::Damaged { .. } => FaultKind::Refused,
            Self::Unavailable { .. } | Self::Local { .. } | Self::Refused { .. } => FaultKind::External,
            Self::Changed { .. } => FaultKind::Internal,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
