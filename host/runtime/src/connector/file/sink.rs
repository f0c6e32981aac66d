//! The file sink: part files that appear when their checkpoint is decided.
//!
//! Owns what belongs to which checkpoint. Does not own how one part is written and moved.

use std::path::Path;

use parking_lot::Mutex;
use serde::Deserialize;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::{Attempt, CheckpointId, JobId, OperatorUid, SubtaskIndex};
use wasmill_core::record::RecordBatch;

use super::part::{self, Folders, Part, Prepared, sync_folder};
use crate::config::sink::{Delivery, FileSink};
use crate::format::encode::{self, Encoder};
use crate::sink::{PendingCommit, SinkFactory, SinkWriter};
use crate::source::Place;

impl From<part::Error> for Fault {
    fn from(error: part::Error) -> Self {
        let kind = match error {
            part::Error::Io { .. } => FaultKind::External,
            part::Error::Lost { .. } | part::Error::Changed { .. } => FaultKind::Refused,
        };
        Self::new(kind, error)
    }
}

/// Makes the writers of a file sink.
pub struct FileSinkFactory {
    uid: OperatorUid,
    folders: Mutex<Folders>,
    format: encode::Settings,
    delivery: Delivery,
}

struct FileSinkWriter {
    uid: OperatorUid,
    subtask: SubtaskIndex,
    folders: Folders,
    delivery: Delivery,
    encoder: Encoder,
    /// What was written since the last barrier; none before the first record, so that no part is empty.
    part: Option<Part>,
    /// By checkpoint; those of an aborted one are made visible with the next.
    prepared: Vec<Prepared>,
}

impl FileSinkFactory {
    /// Checks the settings. `path` is relative to `base`.
    ///
    /// # Errors
    /// Format settings that contradict each other.
    pub fn new(config: &FileSink, uid: &OperatorUid, base: &Path) -> Result<Self, encode::Error> {
        let format = encode::Settings {
            format: config.format,
            fields: config.fields.clone(),
            header: config.header,
            delimiter: config.delimiter,
            separator: config.separator.clone(),
        };
        Encoder::new(&format)?;
        let folders = Mutex::new(Folders::new(&base.join(&config.path), uid));
        Ok(Self { uid: uid.clone(), folders, format, delivery: config.delivery })
    }

    fn folders(&self) -> Folders {
        self.folders.lock().clone()
    }

    fn fault(&self, error: part::Error) -> Fault {
        Fault::from(error).at(format_args!("sink `{}`", self.uid))
    }
}

impl SinkFactory for FileSinkFactory {
    fn begin(&self, job: &JobId, attempt: Attempt) {
        let mut folders = self.folders.lock();
        *folders = folders.of_attempt(job, &self.uid, attempt);
    }

    fn open(&self, place: Place) -> Result<Box<dyn SinkWriter>, Fault> {
        self.folders().make().map_err(|error| self.fault(error))?;
        Ok(Box::new(FileSinkWriter {
            uid: self.uid.clone(),
            subtask: place.index,
            folders: self.folders(),
            delivery: self.delivery,
            encoder: Encoder::new(&self.format).map_err(|error| Fault::new(FaultKind::User, error))?,
            part: None,
            prepared: Vec::new(),
        }))
    }

    fn recover(&self, pending: &[PendingCommit]) -> Result<(), Fault> {
        let folders = self.folders();
        let parts = pending.iter().map(|pending| {
            Prepared::deserialize(pending).map_err(|error| {
                Fault::new(FaultKind::Refused, format!("sink `{}`: a prepared part cannot be read: {error}", self.uid))
            })
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let visible = if parts.is_empty() { folders.visible_parts() } else { 0 };
        if visible > 0 {
            let folder = folders.visible.display();
            tracing::info!(sink = %self.uid, visible, %folder, "the folder holds parts already; new ones are added beside them");
        }
        for part in &parts {
            folders.commit_checked(part).map_err(|error| self.fault(error))?;
        }
        if !parts.is_empty() {
            folders.sync().map_err(|error| self.fault(error))?;
        }
        folders.remove_leftovers().map_err(|error| self.fault(error))
    }

    fn check(&self) -> Result<(), Fault> {
        self.folders().check().map_err(|error| self.fault(error))
    }
}

impl FileSinkWriter {
    fn end_part(&mut self, checkpoint: CheckpointId) -> Result<(), part::Error> {
        let Some(part) = self.part.take() else { return Ok(()) };
        let extension = self.encoder.extension();
        self.prepared.push(part.prepare(&self.folders, checkpoint, self.subtask, extension)?);
        sync_folder(&self.folders.hidden)
    }

    fn make_visible(&mut self, checkpoint: CheckpointId) -> Result<(), part::Error> {
        let mut any = false;
        // In order, each forgotten only once it is seen: a failed commit can be repeated.
        while let Some(part) = self.prepared.first().filter(|part| part.checkpoint <= checkpoint) {
            self.folders.commit(part)?;
            self.prepared.remove(0);
            any = true;
        }
        if any { self.folders.sync() } else { Ok(()) }
    }

    fn fault(&self, error: part::Error) -> Fault {
        Fault::from(error).at(format_args!("sink `{}`", self.uid))
    }

    fn write_batch(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        for (index, value) in batch.values.iter().enumerate() {
            let part = match &mut self.part {
                Some(part) => part,
                None => {
                    self.encoder.begin();
                    let part = Part::begin(&self.folders, self.subtask).map_err(|error| self.fault(error))?;
                    self.part.insert(part)
                }
            };
            self.encoder.encode(value, &mut part.buffer).map_err(|error| {
                let key = batch.keys.get(index).unwrap_or_default().escape_ascii().to_string();
                Fault::new(FaultKind::Guest, format!("sink `{}`: the record with key `{key}`: {error}", self.uid))
            })?;
            if let Err(error) = part.write_if_full() {
                return Err(self.fault(error));
            }
        }
        Ok(())
    }
}

impl SinkWriter for FileSinkWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        self.write_batch(batch)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<PendingCommit>, Fault> {
        self.end_part(checkpoint).map_err(|error| self.fault(error))?;
        if self.delivery == Delivery::AtLeastOnce {
            self.make_visible(checkpoint).map_err(|error| self.fault(error))?;
        }
        let stored = self.prepared.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
        stored.map_err(|error| Fault::new(FaultKind::Internal, error))
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), Fault> {
        self.make_visible(checkpoint).map_err(|error| self.fault(error))
    }
}

#[cfg(test)]
mod tests;
