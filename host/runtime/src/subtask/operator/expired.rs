//! Entries that have expired, as records of the output that their state names.
//!
//! Owns that all which was removed is emitted before the next barrier, and that no entry whose time has come is left at the end of
//! event time. Does not own what is removed (the state does), nor the form of the records (`format::expired`).

use wasmill_core::contract::Codec;
use wasmill_core::fault::Fault;
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::Now;

use super::sweep::ROWS;
use super::{OperatorSubtask, SHIP_BYTES, fault_of_state};
use crate::format::expired::{self, Expired};

impl OperatorSubtask {
    /// Appends what has expired and was removed to the outputs; what has grown large is sent on.
    pub(super) fn emit_expired(&mut self) -> Result<(), Fault> {
        if !self.emits_expired {
            return Ok(());
        }
        let mut value = Vec::new();
        while let Some(entry) = self.call.lock().keyed.as_mut().and_then(|keyed| keyed.take_expired()) {
            let Some(state) = self.options.contract.states.get(entry.state) else { continue };
            let Some(output) = state.ttl.and_then(|ttl| ttl.expired_output).map(usize::from) else { continue };
            let Some(batch) = self.emitted.get_mut(output) else { continue };
            let written = Expired {
                state: state.name.as_str(),
                key: &entry.key,
                map_key: entry.map_key.as_deref(),
                value: &entry.value,
                is_cbor: state.codec == Codec::Cbor,
                time: entry.time,
            };
            value.clear();
            expired::push(&written, &mut value);
            batch.push(Some(&entry.key), entry.time, Some(&value));
            if batch.payload_bytes() >= SHIP_BYTES {
                self.context.meter.sent(batch.len() as u64, batch.payload_bytes() as u64);
                self.outputs.emit(output, std::mem::take(batch))?;
            }
        }
        Ok(())
    }

    /// Looks at all entries of the states whose expired ones are emitted, and emits what has expired by event time `event` and the
    /// clock. At the end of event time that is all that could ever expire by it.
    pub(super) fn expire_all(&mut self, event: Timestamp) -> Result<(), Fault> {
        if !self.emits_expired {
            return Ok(());
        }
        let now = Now { event, processing: self.context.clock.now() };
        let mut begun = false;
        loop {
            let ended = match &mut self.call.lock().keyed {
                None => return Ok(()),
                Some(keyed) => {
                    keyed.set_now(now);
                    if !std::mem::replace(&mut begun, true) {
                        keyed.sweep_emitted().map_err(fault_of_state)?;
                    }
                    let ended = keyed.sweep(ROWS).map_err(fault_of_state)?;
                    keyed.maintain().map_err(fault_of_state)?;
                    ended
                }
            };
            self.emit_expired()?;
            if ended {
                return Ok(());
            }
        }
    }
}
