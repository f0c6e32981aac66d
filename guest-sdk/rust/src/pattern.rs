//! Finds one event followed by another within a time.
//!
//! Owns the order of events: by time, and of one time as they came. So each event waits until the watermark reaches its time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, Queue, cleaned, is_late, late, tag};
use crate::state::{Declaration, Field, Map, State, Stored, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};

/// Which further matches an event of a match may take part in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Skip {
    /// All: each second event with each first one before it.
    #[default]
    Nothing,
    /// A first event begins one match: every one that is open is matched with the next second event, and is then over.
    ToNext,
    /// After a match, of the first event that is open longest, every event up to its last one is over.
    PastLast,
}

/// The pattern: how soon the second event must follow, and what is over after a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within {
    within: Duration,
    skip: Skip,
}

impl Within {
    /// The second event's time is at most so much behind the first one's; of one time, it came later.
    #[must_use]
    pub const fn of(within: Duration) -> Self {
        Self { within, skip: Skip::Nothing }
    }

    /// What is over after a match.
    #[must_use]
    pub const fn skip(mut self, skip: Skip) -> Self {
        self.skip = skip;
        self
    }
}

/// What an event may be in the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// The one that comes first.
    First,
    /// The one that follows.
    Second,
    /// Either.
    Both,
}

/// Finds, for each key, an event followed by another within a time.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::pattern::{Pattern, Role, Within};
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// A withdrawal within a minute of a change of the password.
/// const SOON: Within = Within::of(Duration::from_mins(1));
///
/// #[derive(Operator)]
/// #[operator(key = String, timers)]
/// struct Suspicious {
///     soon: Pattern<String>,
/// }
///
/// impl Process for Suspicious {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let event: String = record.value()?;
///         let role = match event.as_str() {
///             "password" => Role::First,
///             "withdrawal" => Role::Second,
///             _ => return Ok(()),
///         };
///         let _ = self.soon.add(ctx, role, event)?;
///         Ok(())
///     }
/// }
///
/// impl OnTimer for Suspicious {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         self.soon.fire(ctx, SOON, &timer, |ctx, (at, _), (then, _)| ctx.emit(&(at, then)))
///     }
/// }
///
/// let second = |n: i64| Timestamp::from_millis(n * 1_000);
/// let mut test = Harness::<Suspicious>::new("{}")?;
/// let event = |what: &str, n| Input::new(what).key("ada").at(second(n));
/// test.process([event("withdrawal", 30), event("password", 10), event("withdrawal", 80)])?;
/// let emits = test.end_of_input()?;
/// assert_eq!(emits.len(), 1);
/// assert_eq!(emits[0].value::<(i64, i64)>()?, (10_000, 30_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pattern<E> {
    /// Events that wait for the watermark.
    waiting: Map<(Timestamp, u64), Event<E>>,
    queue: Value<Queue>,
    /// First events that may still be followed, in order.
    open: Value<Vec<Open<E>>>,
    tag: u32,
}

/// An event that waits, as stored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Event<E>(Role, E);

/// A first event, as stored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Open<E>(Timestamp, E);

impl<E: Stored> Pattern<E> {
    /// Takes the record in hand as an event. It is late where its time is at or before the watermark.
    ///
    /// # Errors
    /// Fatal when what is stored is of another type, or the operator declares no timers.
    pub fn add(&mut self, ctx: &mut Context<'_>, role: Role, event: E) -> Result<Arrival> {
        if is_late(ctx) {
            return Ok(late());
        }
        let mut queue = self.queue.get(ctx)?.unwrap_or_default();
        let time = ctx.record_time();
        self.waiting.insert(ctx, &(time, queue.enter()), Event(role, event))?;
        self.queue.set(ctx, queue)?;
        ctx.set_timer(time, self.tag)?;
        Ok(Arrival::OnTime)
    }

    /// Takes the events up to the timer's time in order, and calls `matched` with the time and event of each match. A timer of
    /// another is left alone.
    ///
    /// # Errors
    /// What `matched` says; else as [`Pattern::add`].
    pub fn fire(
        &mut self,
        ctx: &mut Context<'_>,
        pattern: Within,
        timer: &Timer<'_>,
        mut matched: impl FnMut(&mut Context<'_>, (Timestamp, &E), (Timestamp, &E)) -> Result,
    ) -> Result {
        if timer.domain() != Domain::Event || timer.tag() != self.tag {
            return Ok(());
        }
        let now = timer.time();
        let mut open = self.open.get(ctx)?.unwrap_or_default();
        let mut due = self.waiting.range(..=(now, u64::MAX));
        let mut taken = 0;
        while let Some((place, Event(role, event))) = self.waiting.next(ctx, &mut due)? {
            self.waiting.remove(ctx, &place)?;
            taken += 1;
            let time = place.0;
            open.retain(|Open(first, _)| time <= first.plus(pattern.within));
            let mut over = false;
            if role != Role::First && !open.is_empty() {
                match pattern.skip {
                    Skip::PastLast => {
                        let Open(first, earliest) = &open[0];
                        matched(ctx, (*first, earliest), (time, &event))?;
                        over = true;
                    }
                    Skip::Nothing | Skip::ToNext => {
                        for Open(first, earlier) in &open {
                            matched(ctx, (*first, earlier), (time, &event))?;
                        }
                    }
                }
                if pattern.skip != Skip::Nothing {
                    open.clear();
                }
            }
            if role != Role::Second && !over {
                open.push(Open(time, event));
            }
        }
        // Every event up to now was taken, so what could be followed until now only is over.
        open.retain(|Open(first, _)| now < first.plus(pattern.within));
        if let Some(Open(first, _)) = open.first() {
            ctx.set_timer(first.plus(pattern.within), self.tag)?;
        }
        let mut queue = self.queue.get(ctx)?.unwrap_or_default();
        queue.leave(taken);
        if queue.is_empty() {
            self.queue.clear(ctx)?
        } else {
            self.queue.set(ctx, queue)?
        }
        if open.is_empty() { self.open.clear(ctx) } else { self.open.set(ctx, open) }
    }
}

impl<E: Stored> Field for Pattern<E> {
    const STATES: u16 = 3;

    fn open(first: u16, name: &'static str) -> Self {
        Self {
            waiting: Field::open(first, name),
            queue: Field::open(first + 1, name),
            open: Field::open(first + 2, name),
            tag: tag(name, ""),
        }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.extend([
            cleaned(Map::<(Timestamp, u64), Event<E>>::part("waiting", declaration)),
            cleaned(Value::<Queue>::part("queue", declaration)),
            cleaned(Value::<Vec<Open<E>>>::part("open", declaration)),
        ]);
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.waiting);
        visit(&mut self.queue);
        visit(&mut self.open);
    }
}
