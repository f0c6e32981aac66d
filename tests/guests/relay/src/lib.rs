//! Keeps no state: emits each record with its time and the watermark that was in force for it.
//!
//! A watermark before the first is left out.

use serde::{Deserialize, Serialize};
use wasmill_guest::Timestamp;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
pub struct Relay {}

#[derive(Deserialize)]
struct Line {
    seq: u64,
}

#[derive(Serialize)]
struct Relayed {
    seq: u64,
    time: Timestamp,
    watermark: Option<Timestamp>,
}

impl Process for Relay {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let Line { seq } = record.value()?;
        let watermark = Some(ctx.watermark()).filter(|watermark| *watermark > Timestamp::MIN);
        ctx.emit(&Relayed { seq, time: record.time(), watermark })
    }
}

operator!(Relay);
