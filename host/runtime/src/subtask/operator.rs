//! The loop of an operator's subtask: gather a batch, load state, call the guest, apply the effects, emit; freeze at barriers.
//!
//! Owns the order of these steps, and that a call's effects are applied whole or not at all. Does not own the state, the guest
//! or the upload of a snapshot.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmill_core::checkpoint::manifest::{Durations, Part};
use wasmill_core::contract::{OperatorContract, StateKind};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::CheckpointId;
use wasmill_core::key_group::KeyGroupRange;
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;

use super::access::CallState;
use super::batcher::Batcher;
use super::emit::{self, Origins};
use super::late::Late;
use super::{Context, IDLE_WAIT};
use crate::control::Command;
use crate::exchange::gate::{Event, Gate};
use crate::exchange::route::Outputs;
use crate::guest::contract::{Eager, Effects, Now, OptionalColumn, SET, empty_column};
use crate::guest::{Guest, packed};
use crate::state::{self, EagerOut, LocalCut};
use crate::telemetry::{CacheTally, DropReason, StateTally, SubtaskMeter};

/// Records that gather in an output before they are sent on while more input is there.
const SHIP_RECORDS: usize = 1024;
/// Bytes that gather in an output before they are sent on while more input is there.
const SHIP_BYTES: usize = 256 << 10;

/// What becomes of a record that the guest rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReject {
    /// The job fails.
    Fail,
    /// It is left out and counted.
    Drop,
}

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
    /// What becomes of a record that the guest rejects.
    pub on_reject: OnReject,
    /// How many late outputs there are; they come after the component's.
    pub late_outputs: usize,
    /// Where local cuts are made.
    pub cuts: PathBuf,
    /// Takes snapshots on from their local cuts.
    pub snapshots: Arc<dyn Snapshots>,
}

/// A snapshot that has its local cut, or why it has none.
pub struct Cut {
    /// Whose it is.
    pub context: Context,
    /// Its checkpoint.
    pub checkpoint: CheckpointId,
    /// The subtask's share but for its state.
    pub part: Part,
    /// The state.
    pub local: Result<LocalCut, state::Error>,
    /// When the barrier had come through, by the monotonic clock.
    pub since: Duration,
}

/// Takes a subtask's snapshots on from their local cuts.
pub trait Snapshots: Send + Sync {
    /// Makes the cut durable and acknowledges it; called on the state's background thread.
    fn take(&self, cut: Cut);
    /// The checkpoint is decided.
    fn decided(&self, checkpoint: CheckpointId);
    /// The checkpoint will never be decided.
    fn given_up(&self, checkpoint: CheckpointId);
}

/// An operator's subtask.
pub struct OperatorSubtask {
    context: Context,
    options: Options,
    gate: Gate,
    outputs: Outputs,
    guest: Box<dyn Guest>,
    call: Arc<Mutex<CallState>>,
    batcher: Batcher,
    /// The input whose records are gathered.
    input: u16,
    /// The states that ride along, by input.
    eager: Vec<Vec<Eager>>,
    /// Emits that are not sent on yet, by output.
    emitted: Vec<RecordBatch>,
    late: Late,
    stopping: bool,
}

impl OperatorSubtask {
    /// A subtask that reads `gate`, calls `guest` over the state in `call` and emits to `outputs`.
    #[must_use]
    pub fn new(
        context: Context,
        options: Options,
        (gate, outputs): (Gate, Outputs),
        guest: Box<dyn Guest>,
        call: Arc<Mutex<CallState>>,
    ) -> Self {
        let eager = (0..options.contract.inputs.len().max(1)).map(|input| riding(&options.contract, input)).collect();
        let emitted = vec![RecordBatch::default(); options.contract.outputs.len().max(1)];
        let mut batcher = Batcher::new(options.batch_records, options.batch_bytes);
        let mut late = Late::new(options.late_outputs);
        if gate.watermark() > Timestamp::MIN {
            // Restored: in force for the first records, and said again to those that follow.
            batcher.advance(gate.watermark());
            late.mark(gate.watermark());
            context.meter.watermark(gate.watermark());
        }
        Self { context, options, gate, outputs, guest, call, batcher, input: 0, eager, emitted, late, stopping: false }
    }

    /// Runs until the coordinator lets it finish.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn run(mut self) -> Result<(), Fault> {
        while !self.serve()? {
            if self.stopping {
                self.context.mailbox.bell().wait(IDLE_WAIT);
            } else if !self.outputs.have_room() {
                self.wait(|meter, waited| meter.backpressured(waited));
            } else if !self.step()? {
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
            Some(Event::Records { channel, input, batch }) => self.gather(channel, input, &batch)?,
            Some(Event::Barrier(barrier)) => {
                self.flush()?;
                self.snapshot(barrier)?;
            }
            Some(Event::Declined(checkpoint)) => {
                self.context.decline(checkpoint, "a newer barrier overtook it");
            }
            Some(Event::Watermark(watermark)) => self.advance(watermark),
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
        self.context.mailbox.bell().wait(IDLE_WAIT);
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
                    self.advance(watermark);
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
                self.advance(watermark);
            }
        }
        if self.batcher.is_full() {
            self.call()?;
        }
        Ok(())
    }

    fn advance(&mut self, watermark: Timestamp) {
        self.batcher.advance(watermark);
        self.late.mark(watermark);
        self.context.meter.watermark(watermark);
    }

    /// Calls the guest with what is gathered and sends on all that was emitted.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn flush(&mut self) -> Result<(), Fault> {
        self.call()?;
        self.ship(0, 0)
    }

    /// Calls the guest with what is gathered and applies the effects.
    fn call(&mut self) -> Result<(), Fault> {
        while !self.batcher.is_empty() {
            let watermark = self.batcher.finish();
            let effects = self.guest_call(watermark);
            let shared = Arc::clone(&self.call);
            let mut call = shared.lock();
            let applied = effects.and_then(|effects| {
                self.apply(&mut call, &effects)?;
                Ok(effects)
            });
            call.discard();
            self.batcher.lend(&mut call);
            drop(call);
            let effects = applied.map_err(|fault| fault.at(format_args!("operator {}", self.context.id)))?;
            let consumed = effects.consumed as usize;
            if consumed >= self.batcher.len() {
                break;
            }
            let rest = self.batcher.rest(consumed);
            let advances: Vec<_> =
                self.batcher.advances().iter().filter(|(after, _)| *after as usize >= consumed).copied().collect();
            self.batcher.restart(&rest, consumed, &advances);
        }
        if self.batcher.is_empty() {
            for &(_, watermark) in self.batcher.advances() {
                emit::mark(&mut self.emitted, watermark);
            }
        }
        self.batcher.clear();
        self.ship(SHIP_RECORDS, SHIP_BYTES)
    }

    /// Loads the eager state and makes the call. The batch's keys stay lent to the call.
    fn guest_call(&mut self, watermark: Timestamp) -> Result<Effects, Fault> {
        let now = Now { watermark: watermark.as_millis(), processing_time: self.context.clock.now().as_millis() };
        let eager = &mut self.eager[usize::from(self.input)];
        {
            let mut call = self.call.lock();
            let call = &mut *call;
            self.batcher.lend(call);
            if let Some(keyed) = &mut call.keyed {
                for Eager { state, values } in eager.iter_mut() {
                    let OptionalColumn { present, values } = values;
                    for bytes in [&mut *present, &mut values.bytes, &mut values.ends] {
                        bytes.clear();
                    }
                    let out = EagerOut { present, bytes: &mut values.bytes, ends: &mut values.ends };
                    keyed.load_values(usize::from(*state), &call.keys, &call.hashes, out).map_err(fault_of_state)?;
                }
            }
        }
        let begin = self.context.clock.monotonic();
        let effects = self.guest.process(self.input, now, self.batcher.batch(), eager);
        self.context.meter.called(self.context.clock.monotonic().saturating_sub(begin));
        effects.map_err(Fault::from)
    }

    /// Applies the effects to the state and the outputs.
    fn apply(&mut self, call: &mut CallState, effects: &Effects) -> Result<(), Fault> {
        self.rejects(call, effects)?;
        if let Some(keyed) = &mut call.keyed {
            for writes in &effects.values {
                let state = usize::from(writes.state);
                let origins = packed::u32s(&writes.origins).zip(&writes.operations);
                let mut start = 0;
                for ((origin, &operation), end) in origins.zip(packed::u32s(&writes.values.ends)) {
                    let value = &writes.values.bytes[start as usize..end as usize];
                    start = end;
                    let slot = call.slots[origin as usize] as usize;
                    let (key, hash) = (call.keys.get(slot), call.hashes[slot]);
                    match operation {
                        SET => keyed.set_value(state, key, hash, value),
                        crate::guest::contract::CLEAR => keyed.clear_value(state, key, hash),
                        _ => Ok(()),
                    }
                    .map_err(fault_of_state)?;
                }
            }
        }
        call.apply().map_err(fault_of_state)?;
        if let Some(keyed) = &mut call.keyed {
            keyed.maintain().map_err(fault_of_state)?;
        }
        let origins = Origins { call, times: &self.batcher.times, absent_key: self.batcher.absent_key() };
        let done = effects.consumed;
        let whole = done as usize >= self.batcher.times.len();
        let advances = self.batcher.advances();
        let advances = if whole { advances } else { &advances[..advances.partition_point(|(after, _)| *after < done)] };
        emit::emit(&effects.emits, &origins, advances, &mut self.emitted);
        Ok(())
    }

    fn rejects(&self, call: &CallState, effects: &Effects) -> Result<(), Fault> {
        let rejects = &effects.rejects;
        let Some(origin) = packed::u32_at(&rejects.origins, 0) else { return Ok(()) };
        if call.has_unmarked_writes() {
            return Err(Fault::new(
                FaultKind::Guest,
                "the guest rejected a record after lazy writes without rolling them back: call mark before a record and rollback when it is rejected",
            ));
        }
        match self.options.on_reject {
            OnReject::Drop => {
                self.context.meter.dropped(DropReason::Rejected, rejects.reasons.len() as u64);
                Ok(())
            }
            OnReject::Fail => {
                let slot = call.slots.get(origin as usize).map_or(0, |slot| *slot as usize);
                let time = self.batcher.times.get(origin as usize).copied().unwrap_or(Timestamp::MIN);
                let reason = rejects.reasons.first().map_or("", String::as_str);
                Err(Fault::new(
                    FaultKind::Guest,
                    format_args!(
                        "the record with key {} and time {time} was rejected: {reason}; set on-failure = \"drop\" to leave such records out",
                        Printable(call.keys.get(slot))
                    ),
                ))
            }
        }
    }

    /// Sends on what was emitted, of each output with more than `records` records or `bytes` bytes.
    fn ship(&mut self, records: usize, bytes: usize) -> Result<(), Fault> {
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

    fn snapshot(&mut self, barrier: Barrier) -> Result<(), Fault> {
        let begin = self.context.clock.monotonic();
        self.outputs.send_barrier(barrier);
        let alignment = self.gate.unblock(begin);
        let part = Part {
            uid: self.context.id.uid.clone(),
            index: self.context.id.index,
            key_groups: Some(self.options.key_groups),
            state: None,
            splits: Vec::new(),
            watermark: self.gate.watermark(),
            commits: Vec::new(),
            in_flight: Vec::new(),
            durations: Durations { align_us: micros(alignment), ..Durations::default() },
            bytes_new: 0,
            bytes_referenced: 0,
        };
        self.stopping = barrier.purpose == Purpose::Stop;
        let mut call = self.call.lock();
        let Some(keyed) = &mut call.keyed else {
            self.context.acknowledge(barrier.checkpoint, part);
            return Ok(());
        };
        let (context, checkpoint) = (self.context.clone(), barrier.checkpoint);
        let snapshots = Arc::clone(&self.options.snapshots);
        // The pause is known only after the freeze, the cut perhaps before: they meet here.
        let pause = Arc::new(std::sync::OnceLock::new());
        let told = Arc::clone(&pause);
        let dir = self.options.cuts.join(format!("{}-{}-{checkpoint}", context.id.uid, context.id.index));
        keyed
            .freeze(
                dir,
                Box::new(move |local| {
                    let mut part = part;
                    part.durations.pause_us = told.get().copied().map_or(0, micros);
                    snapshots.take(Cut { context, checkpoint, part, local, since: begin });
                }),
            )
            .map_err(fault_of_state)?;
        let _ = pause.set(self.context.clock.monotonic().saturating_sub(begin));
        self.context.meter.holds(tallies(keyed.counts()), cache(&keyed.gauges()));
        Ok(())
    }
}

/// The states that ride along with an input, with room for their values.
fn riding(contract: &OperatorContract, input: usize) -> Vec<Eager> {
    (0u16..)
        .zip(&contract.states)
        .filter(|(_, state)| state.kind == StateKind::Value && !state.lazy)
        .filter(|(_, state)| {
            state.rides_with.is_empty() || state.rides_with.iter().any(|&with| usize::from(with) == input)
        })
        .map(|(state, _)| Eager { state, values: OptionalColumn { present: Vec::new(), values: empty_column() } })
        .collect()
}

fn fault_of_state(error: state::Error) -> Fault {
    Fault::new(error.kind(), error)
}

fn tallies(counts: &state::Counts) -> Vec<StateTally> {
    counts
        .states()
        .map(|(state, tally)| StateTally { state: state.clone(), entries: tally.entries, bytes: tally.bytes })
        .collect()
}

fn cache(gauges: &state::Gauges) -> CacheTally {
    let bytes = gauges.fresh_bytes + gauges.frozen_bytes + gauges.clean_bytes;
    CacheTally { hits: gauges.hits, misses: gauges.misses, bytes }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A key for people: text where it is text, else hex; cut where it is long.
struct Printable<'a>(&'a [u8]);

impl std::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.chars().any(char::is_control) => {
                write!(f, "`{}`", text.chars().take(80).collect::<String>())
            }
            _ => {
                write!(f, "0x")?;
                self.0.iter().take(40).try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}
