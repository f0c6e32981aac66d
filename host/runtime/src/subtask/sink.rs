//! The loop of a sink's subtask: write; prepare at a barrier; commit once the checkpoint is decided (I7).
//!
//! Owns the order of these. Does not own how records are written.

use wasmill_core::checkpoint::manifest::{Durations, Part};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::{Fault, FaultKind};

use super::{Context, IDLE_WAIT, micros};
use crate::control::Command;
use crate::exchange::gate::{Event, Gate};
use crate::sink::SinkWriter;

/// A sink's subtask.
pub struct SinkSubtask {
    context: Context,
    gate: Gate,
    writer: Box<dyn SinkWriter>,
    stopping: bool,
}

impl SinkSubtask {
    /// A subtask that reads `gate` and writes to `writer`.
    #[must_use]
    pub fn new(context: Context, gate: Gate, writer: Box<dyn SinkWriter>) -> Self {
        Self { context, gate, writer, stopping: false }
    }

    /// Runs until the coordinator lets it finish.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn run(mut self) -> Result<(), Fault> {
        while !self.serve()? {
            if self.stopping {
                self.context.mailbox.bell().wait(IDLE_WAIT);
            } else if !self.step()? {
                let begin = self.context.clock.monotonic();
                self.context.mailbox.bell().wait(IDLE_WAIT);
                self.context.meter.idled(self.context.clock.monotonic().saturating_sub(begin));
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<bool, Fault> {
        while let Some(command) = self.context.mailbox.take() {
            match command {
                Command::Finish => return Ok(true),
                Command::Decided(checkpoint) => self.writer.commit(checkpoint)?,
                Command::GivenUp(_) => {}
                Command::Trigger(barrier) => {
                    return Err(Fault::new(
                        FaultKind::Internal,
                        format_args!(
                            "checkpoint {} was triggered at {}, which is no source",
                            barrier.checkpoint, self.context.id
                        ),
                    ));
                }
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<bool, Fault> {
        match self.gate.poll(&*self.context.clock)? {
            None => return Ok(false),
            Some(Event::Records { channel, batch, .. }) => {
                self.context.meter.received(batch.len() as u64, batch.payload_bytes() as u64);
                for mark in &batch.marks {
                    if let Some(watermark) = self.gate.advance(channel, mark.watermark) {
                        self.context.meter.watermark(watermark);
                    }
                }
                if !batch.is_empty() {
                    self.writer.write(&batch)?;
                }
            }
            Some(Event::Barrier(barrier)) => self.snapshot(barrier)?,
            Some(Event::Declined(checkpoint)) => self.context.decline(checkpoint, "a newer barrier overtook it"),
            Some(Event::Watermark(watermark)) => self.context.meter.watermark(watermark),
            Some(Event::Idle | Event::Active) => {}
        }
        Ok(true)
    }

    fn snapshot(&mut self, barrier: Barrier) -> Result<(), Fault> {
        let begin = self.context.clock.monotonic();
        let commits = self.writer.prepare(barrier.checkpoint)?;
        let now = self.context.clock.monotonic();
        let alignment = self.gate.unblock(begin);
        self.context.meter.barrier(barrier.checkpoint);
        self.stopping = barrier.purpose == Purpose::Stop;
        let took = micros(now.saturating_sub(begin));
        let part = Part {
            uid: self.context.id.uid.clone(),
            index: self.context.id.index,
            key_groups: None,
            state: None,
            splits: Vec::new(),
            watermark: self.gate.watermark(),
            merged_watermark: None,
            commits,
            in_flight: Vec::new(),
            durations: Durations {
                align_us: micros(alignment),
                pause_us: took,
                total_us: took,
                ..Durations::default()
            },
            bytes_new: 0,
            bytes_referenced: 0,
        };
        self.context.acknowledge(barrier.checkpoint, part);
        Ok(())
    }
}
