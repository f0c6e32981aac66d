//! Two inputs, two outputs: counts the records of each key and input, and sends every third of `right` to a side output as well.
//!
//! What it emits depends on the order within an input and a key alone, so that its output is the same however the inputs mix.

use serde::Serialize;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String, input("left"), input("right"), output("counts"), output("thirds"))]
pub struct Ports {
    left: Value<u64>,
    right: Value<u64>,
}

#[derive(Serialize)]
struct Count<'a> {
    key: &'a str,
    input: &'a str,
    count: u64,
}

impl Process for Ports {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let key = record.key()?;
        if record.input() == 0 {
            let count = *self.left.update(ctx, |count| *count += 1)?;
            return ctx.emit(&Count { key, input: "left", count });
        }
        let count = *self.right.update(ctx, |count| *count += 1)?;
        let emitted = Count { key, input: "right", count };
        if count % 3 == 0 {
            ctx.to("thirds").emit(&emitted)?;
        }
        ctx.emit(&emitted)
    }
}

operator!(Ports);
