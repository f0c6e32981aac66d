//! The pipeline's checkpoint store.
//!
//! Owns opening it and the probe that it can be written. Does not own what lies in it.

use wasmill_core::fault::Fault;

use crate::blob::{Blob, Error};
use crate::config::Pipeline;

/// The store that the pipeline names. Touches nothing.
pub(super) fn open(pipeline: &Pipeline) -> Result<Blob, Fault> {
    Blob::open(&pipeline.checkpoint.store, &pipeline.base).map_err(|error| fault(pipeline, error))
}

/// Writes and removes an object. A store that does not answer is waited for as long as any request waits.
///
/// # Errors
/// A store that cannot be used, with the place in the pipeline file.
pub async fn check_store(pipeline: &Pipeline) -> Result<(), Fault> {
    open(pipeline)?.check_writable().await.map_err(|error| fault(pipeline, error))
}

/// As [`check_store`], but a store that may yet answer is no error: attempts are there to wait for it.
pub(super) async fn check_usable(pipeline: &Pipeline) -> Result<(), Fault> {
    match open(pipeline)?.check_writable().await {
        Ok(()) => Ok(()),
        Err(error @ Error::Unavailable { .. }) => {
            tracing::warn!(%error, "the checkpoint store does not answer");
            Ok(())
        }
        Err(error) => Err(fault(pipeline, error)),
    }
}

fn fault(pipeline: &Pipeline, error: Error) -> Fault {
    Fault::from(error).at(pipeline.place(&["checkpoint", "store"]))
}
