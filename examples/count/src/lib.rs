//! Counts the records of each key and emits the count with every record.
//!
//! The smallest stateful operator there is; the benches run it as a component and natively.

use serde::Serialize;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String)]
pub struct CountPerKey {
    count: Value<u64>,
}

#[derive(Serialize)]
struct Total<'a> {
    key: &'a str,
    count: u64,
}

impl Process for CountPerKey {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let count = self.count.get(ctx)?.unwrap_or(0) + 1;
        self.count.set(ctx, count)?;
        ctx.emit(&Total { key: record.key()?, count })
    }
}

operator!(CountPerKey);
