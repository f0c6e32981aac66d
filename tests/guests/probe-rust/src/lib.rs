//! A keyed count with a map and a timer: what the guests in C and JavaScript beside it do without an SDK.
//!
//! A record is the array `[key, text]`. Each is counted for its key and its text for the key, and both counts are emitted. At the
//! end of each ten seconds of event time in which a key had records, a timer emits its words with their counts and forgets them.
//! The texts `crash` and `reject` do what they say.

use serde::Serialize;
use wasmill_guest::prelude::*;

const WINDOW_MS: i64 = 10_000;

/// The operator.
#[derive(Operator)]
#[operator(key = String, timers)]
pub struct Probe {
    count: Value<u64>,
    words: Map<String, u64>,
}

#[derive(Serialize)]
struct Counted<'a> {
    key: &'a str,
    seen: u64,
    text: &'a str,
    count: u64,
}

#[derive(Serialize)]
struct Window<'a> {
    at: Timestamp,
    key: &'a str,
    count: u64,
    words: Vec<(String, u64)>,
}

impl Process for Probe {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let (key, text): (&str, &str) = record.value()?;
        if text == "reject" {
            return Err(Error::reject("told to reject"));
        }
        let count = *self.count.update(ctx, |count| *count += 1)?;
        let seen = *self.words.update(ctx, text, |seen| *seen += 1)?;
        assert!(text != "crash", "told to crash");
        ctx.emit(&Counted { key, seen, text, count })?;
        let window = record.time().as_millis().div_euclid(WINDOW_MS);
        ctx.set_timer(Timestamp::from_millis((window + 1) * WINDOW_MS - 1), 0)
    }
}

impl OnTimer for Probe {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let (key, count) = (timer.key()?, self.count.get(ctx)?.unwrap_or_default());
        let all = self.words.iter();
        let words = self.words.collect(ctx, all)?;
        self.words.clear(ctx)?;
        ctx.emit(&Window { at: timer.time(), key, count, words })
    }
}

operator!(Probe);
