//! A sink that writes to standard output, at least once: what was printed cannot be taken back.
//!
//! Owns that lines of several subtasks do not mix and that a closed pipe is a clean stop.

use std::io::{self, Write};

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::{Attempt, CheckpointId, JobId, OperatorUid};
use wasmill_core::record::RecordBatch;

use crate::config::sink::StdoutSink;
use crate::format::encode::{self, Encoder};
use crate::sink::{PendingCommit, SinkFactory, SinkWriter};
use crate::source::Place;

/// Makes the writers of a standard output sink.
pub struct StdoutFactory {
    uid: OperatorUid,
    format: encode::Settings,
}

struct StdoutWriter<W> {
    uid: OperatorUid,
    encoder: Encoder,
    buffer: Vec<u8>,
    output: W,
}

impl StdoutFactory {
    /// Checks the settings.
    ///
    /// # Errors
    /// Format settings that contradict each other.
    pub fn new(config: &StdoutSink, uid: &OperatorUid) -> Result<Self, encode::Error> {
        let format = encode::Settings {
            format: config.format,
            fields: config.fields.clone(),
            header: config.header,
            delimiter: config.delimiter,
            separator: config.separator.clone(),
        };
        Encoder::new(&format)?;
        Ok(Self { uid: uid.clone(), format })
    }
}

impl SinkFactory for StdoutFactory {
    fn begin(&self, _job: &JobId, _attempt: Attempt) {}

    fn open(&self, _place: Place) -> Result<Box<dyn SinkWriter>, Fault> {
        let encoder = Encoder::new(&self.format).map_err(|error| Fault::new(FaultKind::User, error))?;
        Ok(Box::new(StdoutWriter { uid: self.uid.clone(), encoder, buffer: Vec::new(), output: io::stdout() }))
    }

    fn recover(&self, _pending: &[PendingCommit]) -> Result<(), Fault> {
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

impl<W: Write + Send> SinkWriter for StdoutWriter<W> {
    /// Writes whole batches, so that lines of other subtasks stand between batches only.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        self.buffer.clear();
        for (index, value) in batch.values.iter().enumerate() {
            self.encoder.encode(value, &mut self.buffer).map_err(|error| {
                let key = batch.keys.get(index).unwrap_or_default().escape_ascii().to_string();
                Fault::new(FaultKind::Guest, format!("sink `{}`: the record with key `{key}`: {error}", self.uid))
            })?;
        }
        let written = self.output.write_all(&self.buffer).and_then(|()| self.output.flush());
        written.map_err(|error| match error.kind() {
            // Whoever read has seen enough; a restart would print for nobody.
            io::ErrorKind::BrokenPipe => Fault::new(
                FaultKind::User,
                format!("sink `{}`: standard output was closed by its reader: the job stops", self.uid),
            ),
            _ => Fault::new(FaultKind::External, format!("sink `{}`: standard output: {error}", self.uid)),
        })
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Vec<PendingCommit>, Fault> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sink::SinkFormat;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer<W>(output: W) -> StdoutWriter<W> {
        let format = encode::Settings {
            format: SinkFormat::Jsonl,
            fields: None,
            header: true,
            delimiter: ',',
            separator: "\n".to_owned(),
        };
        let encoder = Encoder::new(&format).unwrap();
        StdoutWriter { uid: OperatorUid::new("out").unwrap(), encoder, buffer: Vec::new(), output }
    }

    fn batch() -> RecordBatch {
        let mut batch = RecordBatch::default();
        batch.push(Some(b"k"), wasmill_core::time::Timestamp::MIN, Some(b"\x01"));
        batch.push(None, wasmill_core::time::Timestamp::MIN, None);
        batch
    }

    #[test]
    fn records_are_printed_as_lines() {
        let mut writer = writer(Vec::new());
        writer.write(&batch()).unwrap();
        assert_eq!(writer.output, b"1\nnull\n");
        assert_eq!(writer.prepare(CheckpointId(1)).unwrap(), Vec::<PendingCommit>::new());
    }

    #[test]
    fn a_closed_pipe_stops_the_job_and_is_not_retried() {
        let fault = writer(Closed).write(&batch()).unwrap_err();
        assert!(!fault.kind.may_restart());
        assert!(fault.message.contains("closed by its reader"), "{fault}");
    }

    #[test]
    fn what_is_not_cbor_names_sink_and_key() {
        let mut bad = RecordBatch::default();
        bad.push(Some(b"k1"), wasmill_core::time::Timestamp::MIN, Some(b"\xff"));
        let fault = writer(Vec::new()).write(&bad).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Guest);
        assert!(fault.message.contains("`out`") && fault.message.contains("`k1`"), "{fault}");
    }
}
