//! Leaves out what came before.
//!
//! Owns the rule, which does not depend on when what is remembered is removed: a record is a duplicate when its time is before
//! that of the last one let through plus the horizon. The key is what is compared: route by it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{cleaned, is_late, late, tag};
use crate::state::{Declaration, Field, State, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};

/// What a record is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// None like it came within the horizon: let it through.
    First,
    /// One like it came.
    Duplicate,
    /// It came at or behind the watermark, when what came before may be forgotten. Also counted in the metric `late_records`.
    Late,
}

/// Tells the first record of a key within a horizon of event time from those that repeat it.
///
/// A record is a duplicate when its time is before that of the last one let through plus the horizon, also where it is
/// earlier than that one. What is let through begins a new horizon; a duplicate does not prolong it. Each key is forgotten
/// when the watermark has passed its horizon.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::dedup::{Dedup, Seen};
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// const DAY: Duration = Duration::from_hours(24);
///
/// #[derive(Operator)]
/// #[operator(key = String, timers)]
/// struct Once {
///     seen: Dedup,
/// }
///
/// impl Process for Once {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         match self.seen.check(ctx, DAY)? {
///             Seen::First => ctx.to("out").forward(&record),
///             Seen::Duplicate | Seen::Late => Ok(()),
///         }
///     }
/// }
///
/// impl OnTimer for Once {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         self.seen.fire(ctx, DAY, &timer)
///     }
/// }
///
/// let mut test = Harness::<Once>::new("{}")?;
/// let emits = test.process(["x", "y", "x"].map(|id| Input::new(id).key(id)))?;
/// assert_eq!(emits.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Dedup {
    /// The time of the last one let through.
    first: Value<Timestamp>,
    tag: u32,
}

impl Dedup {
    /// What the record in hand is, which is remembered where it is the first.
    ///
    /// # Errors
    /// Fatal when what is stored is of another type, or the operator declares no timers.
    pub fn check(&mut self, ctx: &mut Context<'_>, horizon: Duration) -> Result<Seen> {
        if is_late(ctx) {
            let _ = late();
            return Ok(Seen::Late);
        }
        let time = ctx.record_time();
        // A sum that saturates never comes.
        let repeats = |end: Timestamp| time < end || end == Timestamp::MAX;
        if self.first.get(ctx)?.is_some_and(|first| repeats(first.plus(horizon))) {
            return Ok(Seen::Duplicate);
        }
        self.first.set(ctx, time)?;
        ctx.set_timer(last_of(time, horizon), self.tag)?;
        Ok(Seen::First)
    }

    /// Forgets the key whose horizon is over. A timer of another is left alone.
    ///
    /// # Errors
    /// As [`Dedup::check`].
    pub fn fire(&mut self, ctx: &mut Context<'_>, horizon: Duration, timer: &Timer<'_>) -> Result {
        if timer.domain() != Domain::Event || timer.tag() != self.tag {
            return Ok(());
        }
        match self.first.get(ctx)? {
            None => Ok(()),
            Some(first) if last_of(first, horizon) <= timer.time() => self.first.clear(ctx),
            // Another was let through since, or the horizon has grown.
            Some(first) => ctx.set_timer(last_of(first, horizon), self.tag),
        }
    }
}

/// The last time at which a record repeats the one at `first`: no record that is not late then repeats it any more.
fn last_of(first: Timestamp, horizon: Duration) -> Timestamp {
    Timestamp::from_millis(first.plus(horizon).as_millis() - 1).max(first)
}

impl Field for Dedup {
    const STATES: u16 = 1;

    fn open(first: u16, name: &'static str) -> Self {
        Self { first: Field::open(first, name), tag: tag(name, "") }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.push(cleaned(<Value<Timestamp> as State>::describe(declaration)));
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.first);
    }
}
