//! Why a snapshot cannot be stored or fetched.
//!
//! Owns the messages and whose fault each is.

use std::path::PathBuf;

use wasmill_core::fault::{Fault, FaultKind};

use crate::blob;

/// Each names the object, file or folder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store, or a damaged object.
    #[error(transparent)]
    Blob(#[from] blob::Error),
    /// Nobody waits for it any more.
    #[error("the checkpoint was given up while it was uploaded")]
    GivenUp,
    /// A folder in the state folder.
    #[error("cannot {doing} the folder {}: {cause}", dir.display())]
    Folder {
        /// What was tried.
        doing: &'static str,
        /// The folder.
        dir: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file of the local cut.
    #[error("cannot read the file {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Files of a kind that came later, or of another backend.
    #[error(
        "the checkpoint's state is of the kind `{backend}`, version {rows}, which this wasmill cannot read: use the version that wrote it, or a newer one"
    )]
    Kind {
        /// The kind.
        backend: String,
        /// Its version.
        rows: u32,
    },
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Blob(error) => error.kind(),
            Self::GivenUp | Self::Folder { .. } | Self::File { .. } => FaultKind::External,
            Self::Kind { .. } => FaultKind::Refused,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
