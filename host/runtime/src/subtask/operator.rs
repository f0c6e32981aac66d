//! The loop of an operator's subtask: gather a batch, load state, call the guest, apply the effects, emit; freeze at barriers.
//!
//! Owns the order of these steps. Does not own the call (`call`), what becomes of failures (`failure`), the snapshot (`snapshot`),
//! the state or the guest.

mod call;
mod expired;
mod failure;
mod fire;
mod instances;
mod isolation;
mod merged;
mod snapshot;
mod sweep;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmill_core::contract::{OperatorContract, RIDES_WITH_TIMERS, TimeDomain, Ttl};
use wasmill_core::element::Stamp;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::key_group::KeyGroupRange;
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::Domain;

use super::access::CallState;
use super::batcher::Batcher;
use super::late::Late;
use super::{Context, IDLE_WAIT};
use crate::config::operator::OnFailure;
use crate::control::Command;
use crate::exchange::gate::{Event, Gate, OnLate};
use crate::exchange::route::Outputs;
use crate::guest::contract::{Eager, OptionalColumn, empty_column};
use crate::state;
use crate::telemetry::SubtaskMeter;

use self::failure::Aside;
pub use self::instances::Instances;
pub use self::snapshot::{Cut, Snapshots};
use self::sweep::Sweeps;

/// Records that gather in an output before they are sent on while more input is there.
const SHIP_RECORDS: usize = 1024;
/// Bytes that gather in an output before they are sent on while more input is there.
const SHIP_BYTES: usize = 256 << 10;

/// What an operator's subtask is made with.
pub struct Options {
    /// What the component declares.
    pub contract: OperatorContract,
    /// The subtask's key groups.
    pub key_groups: KeyGroupRange,
    /// Most records of a call.
    pub batch_records: usize,
    /// About most bytes of keys and values of a call.
    pub batch_bytes: usize,
    /// What becomes of a record on which the guest fails. With `DeadLetter` the subtask has one output more than the contract,
    /// after the component's, for dead letters.
    pub on_failure: OnFailure,
    /// How many late outputs there are; they come after all others.
    pub late_outputs: usize,
    /// What becomes of late records, by merged edge; empty where there is no broadcast input.
    pub merged_late: Vec<OnLate>,
    /// The watermark of the broadcast inputs that was restored; [`Timestamp::MIN`] where there is none.
    pub merged_watermark: Timestamp,
    /// What expires of states that send it to an output is emitted as soon as event time or the clock reaches it, not when the
    /// background comes by: for trials, whose output must not depend on the machine's speed.
    pub expires_at_once: bool,
    /// Where local cuts are made.
    pub cuts: PathBuf,
    /// Takes snapshots on from their local cuts.
    pub snapshots: Arc<dyn Snapshots>,
}

/// An operator's subtask.
pub struct OperatorSubtask {
    context: Context,
    options: Options,
    gate: Gate,
    outputs: Outputs,
    instances: Instances,
    call: Arc<Mutex<CallState>>,
    aside: Aside,
    batcher: Batcher,
    /// The input whose records are gathered.
    input: u16,
    /// The times of the call where its records are broadcast.
    stamp: Option<Stamp>,
    /// The watermark of the broadcast inputs.
    merged: Timestamp,
    /// The states that ride along, by input.
    eager: Vec<Vec<Eager>>,
    /// The watermark that was restored: what is due by it fires at the next.
    restored: Timestamp,
    /// The watermark that was sent on last.
    passed: Timestamp,
    /// Entries of some state expire by the watermark: all records of a call have the same.
    lives_by_event_time: bool,
    sweeps: Option<Sweeps>,
    /// Expired entries of some state are emitted.
    emits_expired: bool,
    /// The states that ride along with timers.
    eager_timers: Vec<Eager>,
    /// Emits that are not sent on yet, by output.
    emitted: Vec<RecordBatch>,
    late: Late,
    stopping: bool,
}

impl OperatorSubtask {
    /// A subtask that reads `gate`, calls the guest over the state in `call` and emits to `outputs`.
    #[must_use]
    pub fn new(
        context: Context,
        options: Options,
        (gate, outputs): (Gate, Outputs),
        instances: Instances,
        call: Arc<Mutex<CallState>>,
    ) -> Self {
        let inputs = u16::try_from(options.contract.inputs.len()).unwrap_or(u16::MAX);
        let eager = (0..inputs.max(1)).map(|input| riding(&options.contract, input)).collect();
        let eager_timers = riding(&options.contract, RIDES_WITH_TIMERS);
        let by_event_time = |ttl: Ttl| ttl.domain == TimeDomain::Event;
        let lives_by_event_time = options.contract.states.iter().any(|state| state.ttl.is_some_and(by_event_time));
        let sweeps = Sweeps::of(&options.contract);
        let emitted = |ttl: Ttl| ttl.expired_output.is_some();
        let emits_expired = options.contract.states.iter().any(|state| state.ttl.is_some_and(emitted));
        // The late ones, which come last, have batches of their own.
        let emitted = vec![RecordBatch::default(); outputs.len().saturating_sub(options.late_outputs)];
        let mut batcher = Batcher::new(options.batch_records, options.batch_bytes);
        let mut late = Late::new(options.late_outputs);
        if gate.watermark() > Timestamp::MIN {
            // Restored: in force for the first records, and said again to those that follow.
            batcher.advance(gate.watermark());
            late.mark(gate.watermark());
            context.meter.watermark(gate.watermark());
        }
        Self {
            context,
            restored: gate.watermark(),
            stamp: None,
            merged: options.merged_watermark,
            options,
            gate,
            outputs,
            instances,
            call,
            aside: Aside::default(),
            batcher,
            input: 0,
            eager,
            passed: Timestamp::MIN,
            lives_by_event_time,
            sweeps,
            emits_expired,
            eager_timers,
            emitted,
            late,
            stopping: false,
        }
    }

    /// Runs until the coordinator lets it finish.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn run(mut self) -> Result<(), Fault> {
        while !self.serve()? {
            if !self.stopping && self.may_sweep() {
                self.sweep()?;
            }
            if self.stopping {
                self.context.mailbox.bell().wait(IDLE_WAIT);
            } else if !self.outputs.have_room() {
                self.wait(|meter, waited| meter.backpressured(waited));
            } else if self.tick().and_then(|()| self.step())? {
                // There may be more.
            } else {
                self.flush()?;
                self.wait(|meter, waited| meter.idled(waited));
            }
        }
        Ok(())
    }

    /// Takes one event from the gate; whether there was one.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn step(&mut self) -> Result<bool, Fault> {
        match self.gate.poll(&*self.context.clock)? {
            None => return Ok(false),
            Some(Event::Records { channel, input, stamp: None, batch }) => self.gather(channel, input, &batch)?,
            Some(Event::Records { channel, input, stamp: Some(stamp), batch }) => {
                self.gather_merged(channel, (input, stamp), &batch)?;
            }
            Some(Event::Barrier(barrier)) => {
                self.flush()?;
                self.snapshot(barrier)?;
            }
            Some(Event::Declined(checkpoint)) => {
                self.context.decline(checkpoint, "a newer barrier overtook it");
            }
            Some(Event::Watermark(watermark)) => self.advance(watermark)?,
            Some(Event::Idle) => {
                self.flush()?;
                self.outputs.send_idle();
            }
            Some(Event::Active) => {
                self.flush()?;
                self.outputs.send_active();
            }
        }
        Ok(true)
    }

    /// Whether the coordinator lets the subtask finish.
    fn serve(&self) -> Result<bool, Fault> {
        while let Some(command) = self.context.mailbox.take() {
            match command {
                Command::Finish => return Ok(true),
                Command::Decided(checkpoint) => self.options.snapshots.decided(checkpoint),
                Command::GivenUp(checkpoint) => self.options.snapshots.given_up(checkpoint),
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

    fn wait(&self, account: impl FnOnce(&SubtaskMeter, Duration)) {
        let begin = self.context.clock.monotonic();
        self.context.mailbox.bell().wait(self.until_sweep(self.until_due(IDLE_WAIT)));
        account(&self.context.meter, self.context.clock.monotonic().saturating_sub(begin));
    }

    fn gather(&mut self, channel: usize, input: u16, batch: &RecordBatch) -> Result<(), Fault> {
        if input != self.input {
            self.call()?;
            self.input = input;
        }
        self.context.meter.received(batch.len() as u64, batch.payload_bytes() as u64);
        let on_late = self.gate.on_late(channel);
        let mut marks = batch.marks.iter().peekable();
        for record in 0..batch.len() {
            while let Some(mark) = marks.next_if(|mark| mark.after as usize <= record) {
                if let Some(watermark) = self.gate.advance(channel, mark.watermark) {
                    self.advance(watermark)?;
                }
            }
            let late = batch.times[record].is_late(self.gate.watermark());
            if late && !self.late.passes(on_late, batch, record, &self.context.meter) {
                continue;
            }
            if self.batcher.is_full() {
                self.call()?;
            }
            self.batcher.push(batch, record);
        }
        for mark in marks {
            if let Some(watermark) = self.gate.advance(channel, mark.watermark) {
                self.advance(watermark)?;
            }
        }
        if self.batcher.is_full() {
            self.call()?;
        }
        Ok(())
    }

    /// The watermark advances behind what is gathered. Where it makes a timer due, or entries expire by it, what is gathered ends
    /// there.
    fn advance(&mut self, watermark: Timestamp) -> Result<(), Fault> {
        self.batcher.advance(watermark);
        self.late.mark(watermark);
        self.context.meter.watermark(watermark);
        if self.lives_by_event_time || self.is_due(Domain::Event, watermark) { self.call() } else { Ok(()) }
    }

    /// Calls the guest with what is gathered and sends on all that was emitted.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn flush(&mut self) -> Result<(), Fault> {
        self.call()?;
        self.ship(0, 0)
    }

    /// Sends on what was emitted, of each output with more than `records` records or `bytes` bytes.
    fn ship(&mut self, records: usize, bytes: usize) -> Result<(), Fault> {
        self.emit_expired()?;
        for (output, batch) in self.emitted.iter_mut().chain(self.late.outputs()).enumerate() {
            let empty = batch.is_empty() && batch.marks.is_empty();
            if empty || (records > 0 && batch.len() < records && batch.payload_bytes() < bytes) {
                continue;
            }
            self.context.meter.sent(batch.len() as u64, batch.payload_bytes() as u64);
            self.outputs.emit(output, std::mem::take(batch))?;
        }
        Ok(())
    }
}

/// The states that ride along with an input, with room for their values.
fn riding(contract: &OperatorContract, input: u16) -> Vec<Eager> {
    (0u16..)
        .zip(&contract.states)
        .filter(|(_, state)| contract.rides_with_input(state, input))
        .map(|(state, _)| Eager { state, values: OptionalColumn { present: Vec::new(), values: empty_column() } })
        .collect()
}

fn fault_of_state(error: state::Error) -> Fault {
    Fault::new(error.kind(), error)
}
