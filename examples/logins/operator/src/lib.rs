//! Three failed logins of a user within five minutes, with no successful one between.
//!
//! Written on a map and timers alone: attempts wait in order of their times until the watermark has reached them, so that it
//! does not matter in which order they come.

#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

const WITHIN: Duration = Duration::from_mins(5);
const FAILURES: usize = 3;
/// The operator's only kind of timer.
const DUE: u32 = 0;

/// The operator.
#[derive(Operator)]
#[operator(key = String, output("alerts"), output("late"), timers)]
pub struct Logins {
    /// Attempts by time and number of arrival: those that wait for the watermark, and failures that may still count.
    attempts: Map<(Timestamp, u64), Attempt>,
    /// How many came since there was none: those of one time stay in the order in which they came.
    arrived: Value<u64>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Attempt {
    ok: bool,
    from: String,
}

#[derive(Serialize)]
struct Alert<'a> {
    user: &'a str,
    first: Timestamp,
    last: Timestamp,
    from: Vec<String>,
}

impl Process for Logins {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        if record.time() <= ctx.watermark() {
            return ctx.to("late").forward(&record);
        }
        let number = *self.arrived.update(ctx, |arrived| *arrived += 1)?;
        self.attempts.insert(ctx, &(record.time(), number), record.value()?)?;
        ctx.set_timer(record.time(), DUE)
    }
}

impl OnTimer for Logins {
    /// Takes the attempts up to the timer's time in order. Of those that count no more, nothing is left.
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let now = timer.time();
        let mut failures: Vec<((Timestamp, u64), Attempt)> = Vec::new();
        let mut due = self.attempts.range(..=(now, u64::MAX));
        while let Some((place, attempt)) = self.attempts.next(ctx, &mut due)? {
            if attempt.ok {
                self.attempts.remove(ctx, &place)?;
                self.forget(ctx, failures.drain(..))?;
                continue;
            }
            failures.push((place, attempt));
            let over = failures.iter().take_while(|((time, _), _)| time.plus(WITHIN) < place.0).count();
            self.forget(ctx, failures.drain(..over))?;
            if failures.len() == FAILURES {
                let from = failures.iter().map(|(_, attempt)| attempt.from.clone()).collect();
                ctx.emit(&Alert { user: timer.key()?, first: failures[0].0.0, last: place.0, from })?;
                self.forget(ctx, failures.drain(..))?;
            }
        }
        // All attempts up to now were seen: what could count until now only is over.
        let over = failures.iter().take_while(|((time, _), _)| time.plus(WITHIN) <= now).count();
        self.forget(ctx, failures.drain(..over))?;
        if let Some(((oldest, _), _)) = failures.first() {
            return ctx.set_timer(oldest.plus(WITHIN), DUE);
        }
        let mut later = self.attempts.iter().limit(1);
        if self.attempts.next(ctx, &mut later)?.is_none() { self.arrived.clear(ctx) } else { Ok(()) }
    }
}

impl Logins {
    fn forget(&mut self, ctx: &mut Context<'_>, attempts: impl Iterator<Item = ((Timestamp, u64), Attempt)>) -> Result {
        for (place, _) in attempts {
            self.attempts.remove(ctx, &place)?;
        }
        Ok(())
    }
}

operator!(Logins);
