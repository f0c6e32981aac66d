//! The loop of a source's subtask: read, mark watermarks, emit; a barrier notes where every split is.
//!
//! Owns pacing by room and by the other sources, idleness, and the end of input: a source that has read all stays and serves
//! barriers until the job's last one. Does not own how records are read.

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::checkpoint::manifest::{Durations, Part, Split};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::Fault;
use wasmill_core::record::{Origin, RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::drift::Drift;
use super::watermark::{SourceWatermark, Strategy};
use super::{Context, IDLE_WAIT, micros};
use crate::control::{Command, Report};
use crate::exchange::route::Outputs;
use crate::format::dead_letter::{self, DeadLetter, Writer};
use crate::source::{ReadOutcome, SourceReader, SplitPosition, Undecodable};
use crate::telemetry::DropReason;

/// The output for dead letters.
const DEAD_LETTERS: usize = 1;
/// Most records of one read.
const READ_RECORDS: usize = 1024;

/// What a source's subtask is made with.
pub struct Options {
    /// From what watermarks are made.
    pub strategy: Strategy,
    /// After how long a split with nothing to read holds nothing back; `None`: never.
    pub idle_after: Option<Duration>,
    /// How far it may be ahead of the other sources; `None`: without limit.
    pub drift: Option<Drift>,
    /// Where the splits were at the restored checkpoint.
    pub restored: Vec<Split>,
    /// Whether the source has a second output, for dead letters.
    pub dead_letters: bool,
}

/// A source's subtask.
pub struct SourceSubtask {
    context: Context,
    strategy: Strategy,
    drift: Option<Drift>,
    restored: Vec<Split>,
    reader: Box<dyn SourceReader>,
    outputs: Outputs,
    watermark: SourceWatermark,
    /// Which of the open splits are too far ahead.
    held: Vec<bool>,
    undecodable: u64,
    /// The split read last.
    origin: Option<Arc<Origin>>,
    /// Writes dead letters, where the source has an output for them.
    letters: Option<Writer>,
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
        let watermark = SourceWatermark::new(options.strategy, options.idle_after);
        let mut subtask = Self {
            context,
            strategy: options.strategy,
            drift: options.drift,
            restored: options.restored,
            reader,
            outputs,
            watermark,
            held: Vec::new(),
            undecodable: 0,
            origin: None,
            letters: options.dead_letters.then(Writer::default),
            idle: false,
            phase: Phase::Reading,
        };
        // A barrier may come before the first read.
        subtask.open();
        subtask
    }

    /// Runs until the coordinator lets it finish.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn run(mut self) -> Result<(), Fault> {
        self.begin()?;
        while !self.serve()? {
            if self.phase != Phase::Reading {
                self.context.mailbox.bell().wait(IDLE_WAIT);
            } else if self.outputs.have_room() {
                self.read()?;
            } else {
                let begin = self.context.clock.monotonic();
                self.context.mailbox.bell().wait(IDLE_WAIT);
                let waited = self.context.clock.monotonic().saturating_sub(begin);
                self.watermark.paused(waited);
                self.context.meter.backpressured(waited);
            }
        }
        Ok(())
    }

    /// Says where a restored source's watermark was; one without watermarks is idle from the start.
    fn begin(&mut self) -> Result<(), Fault> {
        if self.strategy == Strategy::None {
            self.idle = true;
            self.outputs.send_idle();
        }
        let now = self.context.clock.monotonic();
        let restored = self.watermark.look_around(now);
        // Else all would wait for where none is any more.
        self.tell(now);
        self.advance(restored)
    }

    /// Takes up the splits that the reader has opened.
    fn open(&mut self) {
        let (reader, restored) = (&self.reader, &self.restored);
        self.watermark.open(reader.open_splits(), |split| {
            let name = reader.split_name(split);
            restored.iter().find(|restored| restored.split == name)
        });
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
        if self.hold() {
            self.context.mailbox.bell().wait(IDLE_WAIT);
            let waited = self.context.clock.monotonic().saturating_sub(begin);
            self.watermark.paused(waited);
            self.context.meter.held(waited);
            return Ok(());
        }
        let mut batch = RecordBatch::default();
        let outcome = self.reader.read(&mut batch, READ_RECORDS, self.context.clock.now())?;
        let counts = self.reader.counts();
        self.context.meter.dropped(DropReason::Undecodable, counts.undecodable - self.undecodable);
        self.undecodable = counts.undecodable;
        self.set_aside()?;
        match outcome {
            ReadOutcome::Read { split } => {
                self.wake();
                self.watermark.observe(split, &mut batch, begin);
                self.look_for_silence(begin);
                self.context.meter.received(batch.len() as u64, batch.payload_bytes() as u64);
                if !batch.positions.is_empty() {
                    batch.origin = Some(self.origin(split));
                }
                self.emit(batch)?;
            }
            ReadOutcome::SplitEnded { split } => {
                let advanced = self.watermark.end(split, begin);
                self.open();
                self.advance(advanced)?;
            }
            ReadOutcome::Wait(wait) => {
                self.look_for_silence(begin);
                self.wait(begin, wait)?;
            }
            ReadOutcome::End => {
                self.advance(Some(Timestamp::MAX))?;
                self.phase = Phase::Exhausted;
                self.context.report(Report::Exhausted(self.context.id.clone()));
            }
        }
        self.tell(begin);
        Ok(())
    }

    /// Holds the splits back that are too far ahead of the other sources; whether there is none left to read.
    fn hold(&mut self) -> bool {
        let Some(drift) = &self.drift else { return false };
        // Before the look at the others, so that no move of theirs is missed.
        drift.holds(true);
        self.held.clear();
        self.held.extend(self.watermark.ahead_of(drift.bound()));
        self.reader.hold(&self.held);
        drift.holds(self.held.contains(&true));
        !self.held.is_empty() && self.held.iter().all(|held| *held)
    }

    /// Asks which splits had nothing to read, also while others have.
    fn look_for_silence(&mut self, now: Duration) {
        let reader = &self.reader;
        self.watermark.waiting(now, |split| reader.is_waiting(split));
    }

    /// After silence: the watermark holds others back again, before the records that follow.
    fn wake(&mut self) {
        if self.idle && self.strategy != Strategy::None {
            self.idle = false;
            self.outputs.send_active();
        }
    }

    /// Tells the other sources and whoever watches which watermark is the least here.
    fn tell(&self, now: Duration) {
        let reading = self.phase == Phase::Reading;
        if let Some(drift) = &self.drift {
            drift.publish(self.watermark.least_to_read().filter(|_| reading));
        }
        let slowest = self.watermark.slowest(now).filter(|_| reading);
        let slowest = slowest.filter(|(split, _)| *split < self.reader.open_splits());
        let slowest = slowest.map(|(split, watermark)| (self.reader.split_name(split), watermark));
        self.context.meter.slowest(slowest, self.watermark.active(now));
    }

    fn wait(&mut self, now: Duration, wait: Duration) -> Result<(), Fault> {
        let advanced = self.watermark.look_around(now);
        self.advance(advanced)?;
        if !self.idle && self.watermark.all_idle(now) {
            self.idle = true;
            self.outputs.send_idle();
        }
        self.tell(now);
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
        if let (true, Some(&mark)) = (self.letters.is_some(), batch.marks.last()) {
            let mark = WatermarkMark { after: 0, ..mark };
            self.outputs.emit(DEAD_LETTERS, RecordBatch { marks: vec![mark], ..RecordBatch::default() })?;
        }
        self.outputs.emit(0, batch)
    }

    /// The split, named.
    fn origin(&mut self, split: usize) -> Arc<Origin> {
        let name = self.reader.split_name(split);
        match &self.origin {
            Some(origin) if origin.split == name => Arc::clone(origin),
            _ => {
                let source = self.context.id.uid.as_str().to_owned();
                let origin = Arc::new(Origin { source, split: name.to_owned() });
                Arc::clone(self.origin.insert(origin))
            }
        }
    }

    /// Emits what could not be decoded as dead letters.
    fn set_aside(&mut self) -> Result<(), Fault> {
        let Some(writer) = &mut self.letters else { return Ok(()) };
        let undecodable = self.reader.take_undecodable();
        if undecodable.is_empty() {
            return Ok(());
        }
        let mut batch = RecordBatch::default();
        let uid = self.context.id.uid.as_str();
        for Undecodable { split, position, bytes, reason } in &undecodable {
            let time = self.context.clock.now();
            let letter = DeadLetter {
                uid,
                subtask: self.context.id.index.0,
                component: None,
                input: None,
                kind: DropReason::Undecodable.as_str(),
                message: reason,
                tries: 1,
                place: Some(dead_letter::Place { source: uid, split, position: *position }),
                time,
                key: None,
                value: bytes.as_deref(),
                headers: &[],
                timer: None,
            };
            batch.keys.push(None);
            batch.times.push(time);
            batch.values.push_with(|out| writer.push(&letter, out));
        }
        self.context.meter.dead_lettered(DropReason::Undecodable, undecodable.len() as u64);
        self.context.meter.sent(batch.len() as u64, batch.payload_bytes() as u64);
        self.outputs.emit(DEAD_LETTERS, batch)
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
            merged_watermark: None,
            commits: Vec::new(),
            in_flight: Vec::new(),
            durations: Durations::default(),
            bytes_new: 0,
            bytes_referenced: 0,
        };
        self.outputs.send_barrier(barrier);
        self.context.meter.barrier(barrier.checkpoint);
        if barrier.purpose == Purpose::Stop {
            self.phase = Phase::Stopping;
        }
        let total_us = micros(self.context.clock.monotonic().saturating_sub(begin));
        let durations = Durations { pause_us: total_us, total_us, ..Durations::default() };
        self.context.acknowledge(barrier.checkpoint, Part { durations, ..part });
    }

    /// Where every split is, with its watermark; one that was not opened has the one that was restored.
    fn splits(&self) -> Vec<Split> {
        let open: Vec<&str> = (0..self.reader.open_splits()).map(|split| self.reader.split_name(split)).collect();
        let of_open = |name: &str| self.watermark.of_split(open.iter().position(|open| *open == name)?);
        let of_restored = |name: &str| {
            let restored = self.restored.iter().find(|restored| restored.split == name)?;
            Some((restored.watermark, restored.latest, restored.since))
        };
        let with_watermark = |at: SplitPosition| {
            let known = of_open(&at.split).or_else(|| of_restored(&at.split));
            let (watermark, latest, since) = known.unwrap_or((Timestamp::MIN, None, 0));
            Split { split: at.split, position: at.position, watermark, latest, since }
        };
        self.reader.positions().into_iter().map(with_watermark).collect()
    }
}

#[cfg(test)]
mod tests;
