//! Does what a record says, as far as a test file can see it: timers in both domains, a side output, refusals, crashes, and a
//! count in guest memory, which is no state and shows where instances were made anew.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use wasmill_guest::prelude::*;

/// Records that this instance has seen.
static REMEMBERED: AtomicU64 = AtomicU64::new(0);

/// The operator.
#[derive(Operator)]
#[operator(key = String, input("commands", headers), input("texts"), output("out", headers), output("side"), timers)]
pub struct Trial {
    seen: Value<u64>,
    /// What it calls itself.
    #[config]
    name: Option<String>,
}

#[derive(Serialize)]
struct Seen<'a> {
    text: &'a str,
    seen: u64,
    watermark: Option<i64>,
    clock: i64,
}

impl Process for Trial {
    fn start(&mut self, _: wasmill_guest::types::Subtask) -> Result {
        match self.name.as_deref() {
            Some("nobody") => Err(Error::fatal("nobody is no name")),
            _ => Ok(()),
        }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let text: &str = record.value()?;
        let seen = *self.seen.update(ctx, |seen| *seen += 1)?;
        let remembered = REMEMBERED.fetch_add(1, Ordering::Relaxed) + 1;
        if record.input() == 1 {
            return ctx.to("side").emit_bytes(text.as_bytes());
        }
        let (verb, argument) = text.split_once(' ').unwrap_or((text, ""));
        let number = || argument.parse::<i64>().map_err(|_| Error::reject("a command ends in a number"));
        match verb {
            "set" => ctx.set_timer(Timestamp::from_millis(number()?), 0),
            "after" => {
                let at = ctx.processing_time().as_millis().saturating_add(number()?);
                ctx.set_processing_timer(Timestamp::from_millis(at), 7)
            }
            "delete" => ctx.delete_timer(Timestamp::from_millis(number()?), 0),
            "memory" => ctx.emit(&remembered),
            "reject" => Err(Error::reject("told to reject")),
            "fatal" => Err(Error::fatal("told to fail")),
            "panic" => panic!("told to panic"),
            "headers" => {
                let mut emit = ctx.to("out");
                for (name, value) in record.headers() {
                    emit = emit.header(std::str::from_utf8(name)?, value);
                }
                emit.emit(&seen)
            }
            "absent" => ctx.to("out").emit_absent(),
            _ => {
                let watermark = Some(ctx.watermark()).filter(|watermark| *watermark > Timestamp::MIN);
                let watermark = watermark.map(Timestamp::as_millis);
                ctx.emit(&Seen { text, seen, watermark, clock: ctx.processing_time().as_millis() })
            }
        }
    }
}

impl OnTimer for Trial {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        ctx.emit(&("fired", timer.time().as_millis(), timer.tag()))
    }
}

operator!(Trial);
