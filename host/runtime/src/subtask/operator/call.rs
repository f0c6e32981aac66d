//! One call of the guest: load the state that rides along, call, apply the effects.
//!
//! Owns that a call's effects are applied whole or not at all. Does not own which records make a call, what becomes of those that
//! fail, nor the state.

use std::sync::Arc;

use wasmill_core::fault::Fault;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::Domain;
use wasmill_core::ttl;

use super::failure::Failure;
use super::fire::Advance;
use super::{Instances, OperatorSubtask, SHIP_BYTES, SHIP_RECORDS, fault_of_state, fire};
use crate::guest::contract::{CLEAR, Eager, Effects, Now, OptionalColumn, SET, TOUCHED};
use crate::guest::packed;
use crate::guest::{CallError, Guest};
use crate::state::{EagerOut, stamp_into};
use crate::subtask::Context;
use crate::subtask::access::CallState;
use crate::subtask::emit::{self, Origins};
use crate::telemetry::{DropReason, Renewal};

/// What came of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Its effects are applied; so many of its records are done.
    Applied(u32),
    /// It failed. Nothing of it is applied, and the instance is gone.
    Failed(CallError),
    /// A record set a timer that is due before a later record of the call: that record belongs to the next call. Nothing is applied.
    Split(usize),
    /// The guest rejected records and did not undo what it had written for them. Nothing of the call is applied, and the
    /// instance is gone, as it may hold what was not applied.
    Unclean {
        /// The rejected records.
        origins: Vec<usize>,
        /// Why, each.
        reasons: Vec<String>,
    },
}

impl OperatorSubtask {
    /// Calls the guest with what is gathered and applies the effects.
    pub(super) fn call(&mut self) -> Result<(), Fault> {
        if self.batcher.is_empty() {
            self.trail()?;
        } else {
            match self.attempt()? {
                Outcome::Applied(consumed) if consumed as usize >= self.batcher.len() => self.trail()?,
                outcome => self.in_pieces(outcome)?,
            }
            self.renew_if_grown();
        }
        self.batcher.clear();
        self.ship(SHIP_RECORDS, SHIP_BYTES)
    }

    /// Replaces an instance whose memory has passed its mark.
    pub(super) fn renew_if_grown(&mut self) {
        if self.instances.end_if_grown() {
            self.context.meter.renewed(Renewal::Memory);
        }
    }

    /// Fires and sends on what the watermarks behind the batch's last record ask for.
    pub(super) fn trail(&mut self) -> Result<(), Fault> {
        let watermarks = self.batcher.trail();
        watermarks.into_iter().try_for_each(|watermark| self.pass(watermark))
    }

    /// Fires and sends on what the watermarks before the batch's first record ask for.
    pub(super) fn lead(&mut self) -> Result<(), Fault> {
        let watermarks = self.batcher.lead();
        watermarks.into_iter().try_for_each(|watermark| self.pass(watermark))
    }

    /// After how many of the batch's records a timer falls due that is known by now; `None`: within the batch none does.
    pub(super) fn due_within(&self) -> Option<usize> {
        let within = |after: u32| 0 < after && (after as usize) < self.batcher.len();
        let mut advances = self.batcher.advances().iter().filter(|(after, _)| within(*after));
        let due = advances.find(|(_, watermark)| self.is_due(Domain::Event, *watermark));
        due.map(|(after, _)| *after as usize)
    }

    /// Makes one call with what is in the batch, after what the watermarks before its first record ask for.
    pub(super) fn attempt(&mut self) -> Result<Outcome, Fault> {
        self.lead()?;
        let port = self.options.contract.inputs.get(usize::from(self.input));
        let watermark = self.batcher.finish(port.is_some_and(|port| port.headers));
        let answer = self.guest_call(watermark);
        let shared = Arc::clone(&self.call);
        let mut call = shared.lock();
        let outcome = answer.and_then(|answer| match answer {
            Ok(effects) => self.take(&mut call, effects),
            Err(error) => Ok(Outcome::Failed(error)),
        });
        call.discard();
        self.batcher.lend(&mut call);
        drop(call);
        if !matches!(outcome, Ok(Outcome::Applied(_))) {
            self.instances.end();
            self.context.meter.renewed(Renewal::Failure);
        }
        outcome.map_err(|fault| self.here(fault))
    }

    /// The fault with the subtask before it.
    pub(super) fn here(&self, fault: Fault) -> Fault {
        fault.at(format_args!("operator {}", self.context.id))
    }

    fn take(&mut self, call: &mut CallState, effects: Effects) -> Result<Outcome, Fault> {
        let rejects = &effects.rejects;
        if !rejects.origins.is_empty() && call.wrote_for(packed::u32s(&rejects.origins)) {
            let origins = packed::u32s(&rejects.origins).map(|origin| origin as usize).collect();
            return Ok(Outcome::Unclean { origins, reasons: effects.rejects.reasons });
        }
        if let Some(at) = fire::split(&effects, self.batcher.advances()) {
            return Ok(Outcome::Split(at));
        }
        if let Some(error) = self.over_limit("process", call, &effects)? {
            return Ok(Outcome::Failed(error));
        }
        for (origin, reason) in packed::u32s(&rejects.origins).zip(&rejects.reasons) {
            let record = self.batcher.record(origin as usize, &call.keys, &call.slots);
            self.set_aside(&record, &Failure { reason: DropReason::Rejected, message: reason, tries: 1 })?;
        }
        self.apply(call, &effects)?;
        Ok(Outcome::Applied(effects.consumed))
    }

    /// Loads the eager state and makes the call. The batch's keys stay lent to the call. The inner error is the call's own.
    fn guest_call(&mut self, watermark: Timestamp) -> Result<Result<Effects, CallError>, Fault> {
        let processing = self.stamp.map_or_else(|| self.context.clock.now(), |stamp| stamp.processing_time);
        let now = Now { watermark: watermark.as_millis(), processing_time: processing.as_millis() };
        let eager = &mut self.eager[usize::from(self.input)];
        {
            let mut call = self.call.lock();
            let call = &mut *call;
            self.batcher.lend(call);
            call.set_now(ttl::Now { event: watermark, processing }, &self.batcher.times);
            load_eager(call, eager)?;
        }
        let (input, batch) = (self.input, self.batcher.batch());
        enter(&mut self.instances, &self.context, |guest| guest.process(input, now, batch, eager))
    }

    /// Applies the effects to the state and the outputs.
    fn apply(&mut self, call: &mut CallState, effects: &Effects) -> Result<(), Fault> {
        write(call, effects, None)?;
        let origins = Origins { call, times: &self.batcher.times, absent_key: self.batcher.absent_key() };
        // What follows the last record consumed waits for the timers that it may make due.
        let advances = self.batcher.advances();
        let advances = &advances[..advances.partition_point(|(after, _)| *after < effects.consumed)];
        emit::emit(&effects.emits, &origins, advances, &mut self.emitted);
        self.passed = advances.last().map_or(self.passed, |(_, watermark)| *watermark);
        Ok(())
    }
}

/// Loads the values that ride along for the call's keys.
pub(super) fn load_eager(call: &mut CallState, eager: &mut [Eager]) -> Result<(), Fault> {
    let Some(keyed) = &mut call.keyed else { return Ok(()) };
    for Eager { state, values } in eager {
        let OptionalColumn { present, values } = values;
        for bytes in [&mut *present, &mut values.bytes, &mut values.ends] {
            bytes.clear();
        }
        let out = EagerOut { present, bytes: &mut values.bytes, ends: &mut values.ends };
        keyed.load_values(usize::from(*state), &call.keys, &call.hashes, out).map_err(fault_of_state)?;
    }
    Ok(())
}

/// Enters the guest, on the meter.
pub(super) fn enter(
    instances: &mut Instances,
    context: &Context,
    call: impl FnOnce(&mut dyn Guest) -> Result<Effects, CallError>,
) -> Result<Result<Effects, CallError>, Fault> {
    let guest = instances.current()?;
    let begin = context.clock.monotonic();
    let answer = call(guest);
    context.meter.called(context.clock.monotonic().saturating_sub(begin));
    context.meter.log_lines_dropped(guest.take_log_lines_dropped());
    Ok(answer)
}

/// Makes what a call wrote real: values that ride along, timers, what went through imports. Returns how many timers were dropped,
/// as they were set at the end of time for ever.
pub(super) fn write(call: &mut CallState, effects: &Effects, advance: Option<&mut Advance>) -> Result<u64, Fault> {
    write_values(call, effects)?;
    let dropped = fire::change_timers(call, effects, advance)?;
    call.apply(|origin| packed::u32s(&effects.rejects.origins).any(|rejected| rejected == origin))
        .map_err(fault_of_state)?;
    if let Some(keyed) = &mut call.keyed {
        keyed.maintain().map_err(fault_of_state)?;
    }
    Ok(dropped)
}

/// Writes what the call wrote of the values that ride along.
fn write_values(call: &mut CallState, effects: &Effects) -> Result<(), Fault> {
    let mut stored = Vec::new();
    for writes in &effects.values {
        let state = usize::from(writes.state);
        let origins = packed::u32s(&writes.origins).zip(&writes.operations);
        let mut start = 0;
        for ((origin, &operation), end) in origins.zip(packed::u32s(&writes.values.ends)) {
            let value = &writes.values.bytes[start as usize..end as usize];
            start = end;
            let stamp = call.stamp(writes.state, origin);
            let Some(keyed) = &mut call.keyed else { return Ok(()) };
            let slot = call.slots[origin as usize] as usize;
            let (key, hash) = (call.keys.get(slot), call.hashes[slot]);
            match (operation, stamp) {
                (SET, None) => keyed.set_value(state, key, hash, value),
                (SET, Some(stamp)) => {
                    stamp_into(stamp, value, &mut stored);
                    keyed.set_value(state, key, hash, &stored)
                }
                (CLEAR, _) => keyed.clear_value(state, key, hash),
                (TOUCHED, Some(stamp)) => keyed.touch((state, key, hash), None, stamp),
                _ => Ok(()),
            }
            .map_err(fault_of_state)?;
        }
    }
    Ok(())
}
