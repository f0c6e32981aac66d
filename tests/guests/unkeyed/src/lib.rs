//! State of no key: two broadcast inputs beside a keyed one, entries that both write, and elements of each subtask.
//!
//! Every broadcast record is emitted to `seen` with its number and times, by each subtask; a keyed one to `checked` with all
//! entries as they are then. By its name a broadcast record does something else beside: `panic`; `add` a value to the elements of the
//! subtask `to`; `show` the elements in `shown`. A keyed record `write` tries to write broadcast state.

use serde::{Deserialize, Serialize};
use wasmill_guest::Timestamp;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(
    key = String,
    input("events"),
    input("rules", broadcast),
    input("rates", broadcast),
    output("checked"),
    output("seen"),
    output("shown")
)]
pub struct Unkeyed {
    entries: Broadcast<String, String>,
    order: Broadcast<String, u64>,
    count: Value<u64>,
    split: OperatorState<String, Split>,
    union: OperatorState<String, Union>,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    value: Option<String>,
    to: Option<u32>,
}

#[derive(Serialize)]
struct Seen {
    number: u64,
    subtask: u32,
    parallelism: u32,
    input: u16,
    name: String,
    value: Option<String>,
    watermark: Timestamp,
    processing_time: Timestamp,
}

#[derive(Serialize)]
struct Checked {
    count: u64,
    number: u64,
    entries: String,
}

#[derive(Serialize)]
struct Shown {
    subtask: u32,
    value: Option<String>,
    split: Vec<String>,
    union: Vec<String>,
}

impl Process for Unkeyed {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let line: Line = record.value()?;
        if record.input() == 0 {
            return self.check(line, ctx);
        }
        let number = self.number(ctx)? + 1;
        self.order.insert(ctx, "number", number)?;
        let (subtask, parallelism) = (ctx.subtask().index, ctx.subtask().parallelism);
        match line.name.as_str() {
            "panic" => panic!("told to"),
            "add" if line.to == Some(subtask) => {
                let mut own = self.split.read(ctx)?.to_vec();
                own.extend(line.value.clone());
                self.union.replace(ctx, own.clone())?;
                self.split.replace(ctx, own)?;
            }
            "add" => {}
            "show" => {
                let (split, union) = (self.split.read(ctx)?.to_vec(), self.union.read(ctx)?.to_vec());
                ctx.to("shown").emit(&Shown { subtask, value: line.value.clone(), split, union })?;
            }
            name => self.entries.insert(ctx, name, line.value.clone().unwrap_or_default())?,
        }
        let (watermark, processing_time) = (ctx.watermark(), ctx.processing_time());
        let Line { name, value, .. } = line;
        let input = record.input();
        ctx.to("seen").emit(&Seen { number, subtask, parallelism, input, name, value, watermark, processing_time })
    }
}

impl Unkeyed {
    fn check(&mut self, line: Line, ctx: &mut Context<'_>) -> Result {
        if line.name == "write" {
            return self.entries.insert(ctx, "written", String::new());
        }
        let count = *self.count.update(ctx, |count| *count += 1)?;
        let number = self.number(ctx)?;
        let entries = self.entries.all(ctx)?;
        let entries = entries.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
        ctx.emit(&Checked { count, number, entries })
    }

    fn number(&mut self, ctx: &mut Context<'_>) -> Result<u64> {
        Ok(self.order.get(ctx, "number")?.unwrap_or_default())
    }
}

operator!(Unkeyed);
