//! What can go wrong with the decision log.
//!
//! Owns the messages and whose fault each error is. Does not decide what is done about it.

use wasmill_core::checkpoint::{log, manifest};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::{Attempt, CheckpointId, JobId};

use crate::blob;

/// Each names the object, and the way on where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Blob(#[from] blob::Error),
    /// Another attempt has taken over. This one must stop and touch nothing more.
    #[error(
        "attempt {attempt} of job `{job}` is over: the decision log went on without it ({by}); another process runs the job, or has started it since"
    )]
    Fenced {
        /// The job.
        job: JobId,
        /// The attempt that is over.
        attempt: Attempt,
        /// What was found in its place.
        by: String,
    },
    /// A right that the log does not give.
    #[error(transparent)]
    Refused(#[from] log::permit::Refused),
    /// Nothing was claimed yet.
    #[error("the decision log was only read: an attempt must be started before anything is decided")]
    NotStarted,
    /// An entry that cannot be read.
    #[error(
        "the entry `{object}` of the decision log in {store} cannot be used: {source}. Nothing was changed. Bring the object back from the store's own copies, or run the job under another name"
    )]
    Entry {
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// Why.
        source: log::entry::Error,
    },
    /// An entry that contradicts those before it.
    #[error(
        "the decision log in {store} is broken at `{object}`: {source}. Nothing was changed. Bring the log back from the store's own copies, or run the job under another name"
    )]
    Broken {
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// Why.
        source: log::Error,
    },
    /// An entry that is not there, though later ones are.
    #[error(
        "the entry `{object}` of the decision log in {store} is missing, and later ones are there. Nothing was changed. Bring it back from the store's own copies, or run the job under another name"
    )]
    Gap {
        /// The object.
        object: String,
        /// The store.
        store: String,
    },
    /// Checkpoints without a log.
    #[error(
        "the decision log of `{folder}` in {store} is missing, though there are checkpoints (the newest is `{newest}`): without it nobody knows which of them count. Nothing was changed. Bring `{folder}/log` back from the store's own copies; or, to begin anew, move `{folder}` away"
    )]
    NoLog {
        /// The job's folder.
        folder: String,
        /// The store.
        store: String,
        /// The newest manifest.
        newest: String,
    },
    /// What was asked for cannot follow what the log says.
    #[error("the decision log of job `{job}` in {store}: {source}")]
    Order {
        /// The job.
        job: JobId,
        /// The store.
        store: String,
        /// Why.
        source: log::Error,
    },
    /// There is no such checkpoint.
    #[error("job `{job}` has no checkpoint {checkpoint}{}", way_on(decided))]
    Unknown {
        /// What was asked for.
        checkpoint: CheckpointId,
        /// The job.
        job: JobId,
        /// What there is.
        decided: Vec<CheckpointId>,
    },
    /// A checkpoint that cannot be believed.
    #[error(
        "checkpoint {checkpoint} is damaged: `{object}` in {store}: {cause}. Nothing was changed{}",
        way_on(others)
    )]
    Damaged {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The object.
        object: String,
        /// The store.
        store: String,
        /// Why.
        cause: String,
        /// What could be restored in its place.
        others: Vec<CheckpointId>,
    },
    /// It is what a restart restores.
    #[error(
        "checkpoint {checkpoint} is what a restart of job `{job}` restores, and stays. To delete it all the same, and let a restart restore the one before it, use --force"
    )]
    Current {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The job.
        job: JobId,
    },
    /// It may become the newest at any moment.
    #[error(
        "checkpoint {checkpoint} of job `{job}` is not decided yet, and may be at any moment: try again once the job has gone on, or has ended"
    )]
    InProgress {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The job.
        job: JobId,
    },
    /// Checkpoints were deleted by hand while this one was being prepared: what it refers to must be looked at again.
    #[error("checkpoints were deleted by hand while checkpoint {checkpoint} was prepared")]
    Deletion {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A manifest that must not be written.
    #[error("checkpoint {checkpoint} cannot be prepared: of its manifest, {source}")]
    NoManifest {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        source: manifest::Error,
    },
}

/// How to go on from another checkpoint, as the end of a sentence.
pub(super) fn way_on(others: &[CheckpointId]) -> String {
    match others {
        [] => "; there is no other one: bring the objects back, or begin anew with --fresh".to_owned(),
        [.., newest] => {
            let ids: Vec<_> = others.iter().map(ToString::to_string).collect();
            let ids = ids.join(", ");
            format!(
                "; to go on from another one, start with --from {newest} (there are {ids}): outputs since it come again"
            )
        }
    }
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Blob(error) => error.kind(),
            Self::Fenced { .. }
            | Self::Refused(log::permit::Refused::Fenced { .. })
            | Self::Entry { .. }
            | Self::Broken { .. }
            | Self::Gap { .. }
            | Self::NoLog { .. }
            | Self::Current { .. }
            | Self::InProgress { .. }
            | Self::Damaged { .. } => FaultKind::Refused,
            Self::Unknown { .. } | Self::Order { source: log::Error::NotDecided { .. }, .. } => FaultKind::User,
            Self::Order { .. }
            | Self::Refused(_)
            | Self::NotStarted
            | Self::Deletion { .. }
            | Self::NoManifest { .. } => FaultKind::Internal,
        }
    }

    /// Whether checkpoints were deleted by hand meanwhile: the same may be tried again.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deletion { .. })
    }

    /// Whether another attempt has taken over.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Refused(log::permit::Refused::Fenced { .. }))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
