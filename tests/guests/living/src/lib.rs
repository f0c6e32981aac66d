//! Tells of states with a TTL which still have something of the record's key; then it writes them, where the record says so.

use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String)]
pub struct Living {
    #[state(ttl = "10s", time = "event")]
    written: Value<u64>,
    #[state(ttl = "10s", time = "event", refresh = "read-write")]
    read: Value<u64>,
    #[state(ttl = "10s", time = "event", refresh = "read-write", lazy)]
    asked: Value<u64>,
    #[state(ttl = "10s", time = "event")]
    entries: Map<String, u64>,
    #[state(ttl = "10s", time = "event")]
    elements: List<u64>,
}

#[derive(Deserialize)]
struct Line {
    seq: u64,
    write: bool,
}

#[derive(Serialize)]
struct Found {
    seq: u64,
    written: bool,
    read: bool,
    asked: bool,
    entry: bool,
    page: usize,
    elements: u64,
}

impl Process for Living {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let Line { seq, write } = record.value()?;
        let mut page = 0;
        let mut scan = self.entries.iter();
        while self.entries.next(ctx, &mut scan)?.is_some() {
            page += 1;
        }
        let found = Found {
            seq,
            written: self.written.get(ctx)?.is_some(),
            read: self.read.get(ctx)?.is_some(),
            asked: self.asked.get(ctx)?.is_some(),
            entry: self.entries.get(ctx, "name")?.is_some(),
            page,
            elements: self.elements.len(ctx)?,
        };
        ctx.emit(&found)?;
        if write {
            self.written.set(ctx, seq)?;
            self.read.set(ctx, seq)?;
            self.asked.set(ctx, seq)?;
            self.entries.insert(ctx, "name", seq)?;
            self.elements.append(ctx, &seq)?;
        }
        Ok(())
    }
}

operator!(Living);
