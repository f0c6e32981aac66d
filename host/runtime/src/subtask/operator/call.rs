//! One call of the guest: load the state that rides along, call, apply the effects.
//!
//! Owns that a call's effects are applied whole or not at all. Does not own which records make a call, nor the state.

use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::time::Timestamp;

use super::{OnReject, OperatorSubtask, SHIP_BYTES, SHIP_RECORDS, fault_of_state};
use crate::guest::contract::{CLEAR, Eager, Effects, Now, OptionalColumn, SET};
use crate::guest::packed;
use crate::state::EagerOut;
use crate::subtask::access::CallState;
use crate::subtask::emit::{self, Origins};
use crate::telemetry::DropReason;

impl OperatorSubtask {
    /// Calls the guest with what is gathered and applies the effects.
    pub(super) fn call(&mut self) -> Result<(), Fault> {
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
                        CLEAR => keyed.clear_value(state, key, hash),
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
