//! The loop of a source's subtask: read, mark watermarks, emit; a barrier notes where every split is.
//!
//! Owns pacing by room and the end of input: a source that has read all stays and serves barriers until the job's last one.
//! Does not own how records are read.

use std::time::Duration;

use wasmill_core::checkpoint::manifest::{Durations, Part, Split};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::Fault;
use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::watermark::SourceWatermark;
use super::{Context, IDLE_WAIT, micros};
use crate::control::{Command, Report};
use crate::exchange::route::Outputs;
use crate::source::{ReadOutcome, SourceReader};
use crate::telemetry::DropReason;

/// Most records of one read.
const READ_RECORDS: usize = 1024;

/// What a source's subtask is made with.
pub struct Options {
    /// How late records may be.
    pub out_of_order: Duration,
    /// After how long a silent split holds nothing back; `None`: never.
    pub idle_after: Option<Duration>,
    /// Where the splits were at the restored checkpoint.
    pub restored: Vec<Split>,
}

/// A source's subtask.
pub struct SourceSubtask {
    context: Context,
    restored: Vec<Split>,
    reader: Box<dyn SourceReader>,
    outputs: Outputs,
    watermark: SourceWatermark,
    undecodable: u64,
    idle: bool,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Reading,
    Exhausted,
    Stopping,
}

impl SourceSubtask {
    /// A subtask that reads `reader` and emits to `outputs`.
    #[must_use]
    pub fn new(context: Context, options: Options, reader: Box<dyn SourceReader>, outputs: Outputs) -> Self {
        let watermark = SourceWatermark::new(options.out_of_order, options.idle_after);
        Self {
            context,
            restored: options.restored,
            reader,
            outputs,
            watermark,
            undecodable: 0,
            idle: false,
            phase: Phase::Reading,
        }
    }

    /// Runs until the coordinator lets it finish.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn run(mut self) -> Result<(), Fault> {
        while !self.serve()? {
            if self.phase != Phase::Reading {
                self.context.mailbox.bell().wait(IDLE_WAIT);
            } else if self.outputs.have_room() {
                self.read()?;
            } else {
                let begin = self.context.clock.monotonic();
                self.context.mailbox.bell().wait(IDLE_WAIT);
                self.context.meter.backpressured(self.context.clock.monotonic().saturating_sub(begin));
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<bool, Fault> {
        while let Some(command) = self.context.mailbox.take() {
            match command {
                Command::Finish => return Ok(true),
                Command::Decided(_) | Command::GivenUp(_) => {}
                Command::Trigger(barrier) => self.snapshot(barrier),
            }
        }
        Ok(false)
    }

    fn read(&mut self) -> Result<(), Fault> {
        let begin = self.context.clock.monotonic();
        let mut batch = RecordBatch::default();
        let outcome = self.reader.read(&mut batch, READ_RECORDS, self.context.clock.now())?;
        let (reader, restored) = (&self.reader, &self.restored);
        self.watermark.open(self.reader.open_splits(), begin, |split| {
            let name = reader.split_name(split);
            restored.iter().find(|restored| restored.split == name).map(|restored| restored.watermark)
        });
        let counts = self.reader.counts();
        self.context.meter.dropped(DropReason::Undecodable, counts.undecodable - self.undecodable);
        self.undecodable = counts.undecodable;
        match outcome {
            ReadOutcome::Read { split } => {
                self.idle = false;
                self.watermark.observe(split, &mut batch, 0, begin);
                self.context.meter.received(batch.len() as u64, batch.payload_bytes() as u64);
                self.emit(batch)?;
            }
            ReadOutcome::SplitEnded { split } => {
                let advanced = self.watermark.end(split, begin);
                self.advance(advanced)?;
            }
            ReadOutcome::Wait(wait) => self.wait(begin, wait)?,
            ReadOutcome::End => {
                self.advance(Some(Timestamp::MAX))?;
                self.phase = Phase::Exhausted;
                self.context.report(Report::Exhausted(self.context.id.clone()));
            }
        }
        Ok(())
    }

    fn wait(&mut self, now: Duration, wait: Duration) -> Result<(), Fault> {
        let advanced = self.watermark.look_around(now);
        self.advance(advanced)?;
        if !self.idle && self.watermark.all_idle(now) {
            self.idle = true;
            self.outputs.send_idle();
        }
        self.context.mailbox.bell().wait(wait.min(IDLE_WAIT));
        self.context.meter.idled(self.context.clock.monotonic().saturating_sub(now));
        Ok(())
    }

    fn advance(&mut self, watermark: Option<Timestamp>) -> Result<(), Fault> {
        let Some(watermark) = watermark else { return Ok(()) };
        self.emit(RecordBatch { marks: vec![WatermarkMark { after: 0, watermark }], ..RecordBatch::default() })
    }

    fn emit(&mut self, batch: RecordBatch) -> Result<(), Fault> {
        if let Some(mark) = batch.marks.last() {
            self.context.meter.watermark(mark.watermark);
        }
        self.context.meter.sent(batch.len() as u64, batch.payload_bytes() as u64);
        self.outputs.emit(0, batch)
    }

    fn snapshot(&mut self, barrier: Barrier) {
        let begin = self.context.clock.monotonic();
        let part = Part {
            uid: self.context.id.uid.clone(),
            index: self.context.id.index,
            key_groups: None,
            state: None,
            splits: self.splits(),
            watermark: self.watermark.current(),
            commits: Vec::new(),
            in_flight: Vec::new(),
            durations: Durations::default(),
            bytes_new: 0,
            bytes_referenced: 0,
        };
        self.outputs.send_barrier(barrier);
        if barrier.purpose == Purpose::Stop {
            self.phase = Phase::Stopping;
        }
        let total_us = micros(self.context.clock.monotonic().saturating_sub(begin));
        let durations = Durations { pause_us: total_us, total_us, ..Durations::default() };
        self.context.acknowledge(barrier.checkpoint, Part { durations, ..part });
    }

    /// Where every split is, with its watermark; one that is not open has none.
    fn splits(&self) -> Vec<Split> {
        let open: Vec<&str> = (0..self.reader.open_splits()).map(|split| self.reader.split_name(split)).collect();
        self.reader
            .positions()
            .into_iter()
            .map(|at| {
                let watermark = match open.iter().position(|name| *name == at.split) {
                    Some(split) => self.watermark.of_split(split),
                    None => Timestamp::MIN,
                };
                Split { split: at.split, position: at.position, watermark }
            })
            .collect()
    }
}
