//! What a sink connector must offer.
//!
//! Owns the seam between a sink subtask and a connector: write, prepare at a barrier, commit after the decision (I7), recover
//! after a restart. Does not own who decides.

use wasmill_core::fault::Fault;
use wasmill_core::id::{Attempt, CheckpointId, JobId};
use wasmill_core::record::RecordBatch;

use crate::source::Place;

/// What a sink must make visible once its checkpoint is decided; stored in the checkpoint's manifest.
pub type PendingCommit = serde_json::Value;

/// Writes one subtask's records.
pub trait SinkWriter: Send {
    /// Takes the records; they are not visible outside yet (exactly-once) or may be (at-least-once).
    ///
    /// # Errors
    /// A record that cannot be written in the sink's format, or an output that cannot be written.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault>;

    /// Ends what belongs to `checkpoint` durably and returns everything that is prepared and not yet committed, earlier
    /// checkpoints' included.
    ///
    /// # Errors
    /// An output that cannot be written.
    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<PendingCommit>, Fault>;

    /// `checkpoint` is decided: makes visible what was prepared for it and for those before it. Repeating it is harmless.
    ///
    /// # Errors
    /// An output that cannot be written.
    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), Fault>;
}

/// Makes the writers of one sink.
pub trait SinkFactory: Send + Sync {
    /// An attempt of the job begins: what its writers leave undecided bears its number. Called before
    /// [`SinkFactory::recover`].
    fn begin(&self, job: &JobId, attempt: Attempt);

    /// Opens a subtask's writer. Called after [`SinkFactory::recover`].
    ///
    /// # Errors
    /// An output that cannot be written.
    fn open(&self, place: Place) -> Result<Box<dyn SinkWriter>, Fault>;

    /// After a restart, before any writer is opened: commits `pending` of the restored checkpoint again and removes whatever
    /// other attempts left behind undecided. With nothing restored, `pending` is empty.
    ///
    /// # Errors
    /// A prepared output that is neither visible nor there to be made visible: loss, so the job must not start.
    fn recover(&self, pending: &[PendingCommit]) -> Result<(), Fault>;

    /// Checks what can be checked without writing records.
    ///
    /// # Errors
    /// What would fail at [`SinkFactory::open`].
    fn check(&self) -> Result<(), Fault>;
}
