//! What the library's operators share: what is late, which timers are whose, and the order of ties.
//!
//! Owns no state. The library is written on the contract alone: an author could write each part of it.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::diagnostics::metrics;
use crate::time::Timestamp;

/// Whether a record came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a late record has no effect: send it to an output, or leave it"]
pub enum Arrival {
    /// It counts.
    OnTime,
    /// It came too late and has no effect. It is also counted in the metric `late_records`.
    Late,
}

impl Arrival {
    /// Whether it came too late.
    #[must_use]
    pub fn is_late(self) -> bool {
        self == Self::Late
    }
}

/// A late record, counted.
pub(crate) fn late() -> Arrival {
    metrics::counter("late_records", 1);
    Arrival::Late
}

/// Whether the record in hand is late: its time is at or before the watermark.
pub(crate) fn is_late(ctx: &Context<'_>) -> bool {
    Timestamp::from_millis(ctx.time()) <= ctx.watermark()
}

/// The tag of the timers of a part of the library: the highest bit, and 31 bits of the FNV-1a hash of its state's name. Timers
/// are stored, so it never changes; it does not depend on the order of an operator's fields.
pub(crate) fn tag(name: &str, part: &str) -> u32 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in name.bytes().chain(part.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash | 1 << 31
}

/// The declaration of a state whose entries the library's timers remove, which it says by a keyword in the type: `wasmill check`
/// does not name it among those that nothing bounds.
pub(crate) fn cleaned(mut described: StateDescriptor) -> StateDescriptor {
    let says = r#""x-wasmill-cleaned":"timers"}"#;
    let schema = described.value_type.strip_suffix('}').map(str::to_owned);
    match schema.as_deref() {
        Some("{") => described.value_type = format!("{{{says}"),
        Some(schema) => described.value_type = format!("{schema},{says}"),
        None if described.value_type == "true" => described.value_type = format!("{{{says}"),
        // Bytes, of which nothing can be said.
        None => {}
    }
    described
}

/// Numbers what is kept for a key, so that records of one time stay in the order in which they came. It begins again once
/// nothing is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Queue {
    next: u64,
    kept: u64,
}

impl Queue {
    /// The number of one more.
    pub(crate) fn enter(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.kept = self.kept.saturating_add(1);
        number
    }

    /// The number that the next one gets.
    pub(crate) fn next(self) -> u64 {
        self.next
    }

    /// So many are kept no longer.
    pub(crate) fn leave(&mut self, count: u64) {
        self.kept = self.kept.saturating_sub(count);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.kept == 0
    }
}
