//! Keeps something of each record in states of every kind; what has expired of them leaves by an output.

use serde::Deserialize;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String, output("out"), output("gone"))]
pub struct Leaving {
    #[state(ttl = "10s", time = "event", expired = "gone")]
    count: Value<u64>,
    #[state(ttl = "10s", time = "event", expired = "gone", lazy)]
    last: Value<u64>,
    #[state(ttl = "10s", time = "event", expired = "gone")]
    pages: Map<String, u64>,
    #[state(ttl = "10s", time = "event", expired = "gone")]
    log: List<u64>,
    #[state(ttl = "5s", time = "processing", expired = "gone")]
    seen: Value<u64>,
}

#[derive(Deserialize)]
struct Line {
    seq: u64,
    page: String,
    clear: bool,
}

impl Process for Leaving {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let Line { seq, page, clear } = record.value()?;
        let count = *self.count.update(ctx, |count| *count += 1)?;
        self.last.set(ctx, seq)?;
        let pages = self.pages.get(ctx, page.as_str())?.unwrap_or_default() + 1;
        self.pages.insert(ctx, page.as_str(), pages)?;
        self.log.append(ctx, &seq)?;
        self.seen.set(ctx, seq)?;
        if clear {
            self.count.clear(ctx)?;
            self.last.clear(ctx)?;
            self.pages.clear(ctx)?;
            self.log.clear(ctx)?;
        }
        ctx.emit(&(seq, count))
    }
}

operator!(Leaving);
