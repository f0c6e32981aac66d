//! The merging subtask of an operator: its broadcast inputs become one stream, the same for all its subtasks.
//!
//! Owns the loop and its account. What the records are stamped with is decided in `core::merge`. It keeps no state and has no share in a
//! checkpoint: what it must go on from, its watermark, stands in the shares of the operator's subtasks. Barriers wait here as in
//! any subtask, so what is broadcast is cut at the same place for all.

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::element::{Element, Stamp};
use wasmill_core::fault::Fault;
use wasmill_core::id::{OperatorUid, SubtaskId, SubtaskIndex};
use wasmill_core::merge::Stamps;
use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::IDLE_WAIT;
use crate::clock::SharedClock;
use crate::control::{Command, Mailbox, Report, Reports};
use crate::exchange::gate::{Event, Gate};
use crate::exchange::route::Outputs;
use crate::telemetry::SubtaskMeter;

/// What a merging subtask is made with.
pub struct Options {
    /// The operator.
    pub uid: OperatorUid,
    /// Where its commands arrive.
    pub mailbox: Mailbox,
    /// Where its reports go.
    pub reports: Reports,
    /// Tells the time.
    pub clock: SharedClock,
    /// Its counters.
    pub meter: Arc<SubtaskMeter>,
    /// The operator's input that each merged edge feeds.
    pub feeds: Vec<u16>,
}

/// A merging subtask.
pub struct MergingSubtask {
    options: Options,
    gate: Gate,
    outputs: Outputs,
    stamps: Stamps,
}

impl MergingSubtask {
    /// A subtask that reads `gate`, in which each channel's input is the number of its merged edge, and sends to all of `outputs`.
    #[must_use]
    pub fn new(options: Options, gate: Gate, outputs: Outputs) -> Self {
        if gate.watermark() > Timestamp::MIN {
            options.meter.watermark(gate.watermark());
        }
        let stamps = Stamps::resumed(gate.watermark());
        Self { options, gate, outputs, stamps }
    }

    /// Runs until it is told to finish; reports only a failure.
    pub fn run(mut self) {
        if let Err(fault) = self.merge() {
            let fault = fault.at(format_args!("the merging of the broadcast inputs of `{}`", self.options.uid));
            self.report(Report::Failed { subtask: self.stands_for(), fault });
        }
    }

    fn merge(&mut self) -> Result<(), Fault> {
        loop {
            while let Some(command) = self.options.mailbox.take() {
                if command == Command::Finish {
                    return Ok(());
                }
            }
            if !self.outputs.have_room() {
                self.wait(SubtaskMeter::backpressured);
            } else if !self.step()? {
                self.wait(SubtaskMeter::idled);
            }
        }
    }

    fn wait(&self, account: impl FnOnce(&SubtaskMeter, Duration)) {
        let begin = self.options.clock.monotonic();
        self.options.mailbox.bell().wait(IDLE_WAIT);
        account(&self.options.meter, self.options.clock.monotonic().saturating_sub(begin));
    }

    fn step(&mut self) -> Result<bool, Fault> {
        let clock = Arc::clone(&self.options.clock);
        match self.gate.poll(&*clock)? {
            None => return Ok(false),
            Some(Event::Records { channel, input: edge, batch: mut records, .. }) => {
                self.options.meter.received(records.len() as u64, records.payload_bytes() as u64);
                let gate = &mut self.gate;
                let advance = |watermark| gate.advance(channel, watermark);
                let stamp = self.stamps.stamp(edge, &mut records, clock.now(), advance);
                self.send(stamp, records);
            }
            Some(Event::Watermark(watermark)) => {
                let mut records = RecordBatch::default();
                records.marks.push(WatermarkMark { after: 0, watermark });
                // The gate has it combined already.
                let stamp = self.stamps.stamp(0, &mut records, clock.now(), Some);
                self.send(stamp, records);
            }
            Some(Event::Barrier(barrier)) => {
                self.outputs.send_barrier(barrier);
                self.options.meter.barrier(barrier.checkpoint);
                self.gate.unblock(clock.monotonic());
            }
            Some(Event::Declined(checkpoint)) => {
                let reason = "a newer barrier overtook it at the broadcast inputs".to_owned();
                self.report(Report::Declined { subtask: self.stands_for(), checkpoint, reason });
            }
            Some(Event::Idle) => self.outputs.send_idle(),
            Some(Event::Active) => self.outputs.send_active(),
        }
        Ok(true)
    }

    fn send(&self, stamp: Stamp, records: RecordBatch) {
        if records.is_empty() && records.marks.is_empty() {
            return;
        }
        if let Some(mark) = records.marks.last() {
            self.options.meter.watermark(mark.watermark);
        }
        self.options.meter.sent(records.len() as u64, records.payload_bytes() as u64);
        let input = self.options.feeds.get(usize::from(stamp.edge)).copied().unwrap_or_default();
        self.outputs.send_to_all(&Element::Merged { input, stamp, records });
    }

    /// The subtask in whose name it reports: it is none of the coordinator's.
    fn stands_for(&self) -> SubtaskId {
        SubtaskId { uid: self.options.uid.clone(), index: SubtaskIndex(0) }
    }

    fn report(&self, report: Report) {
        // A coordinator that is gone has nothing more to learn.
        let _ = self.options.reports.send(report);
    }
}
