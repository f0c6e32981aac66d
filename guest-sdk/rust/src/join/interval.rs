//! Joins records whose times lie near each other.
//!
//! Owns when a kept record can meet no other any more: then a timer removes it.

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, Queue, cleaned, is_late, late, tag};
use crate::state::{Declaration, Field, Map, State, Stored, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};

/// How far the right record's time may lie behind the left one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    lower: i64,
    upper: i64,
}

impl Between {
    /// From `lower` to `upper` milliseconds, both included; negative ones lie before. Where `upper` is less than `lower`, nothing
    /// meets.
    #[must_use]
    pub const fn millis(lower: i64, upper: i64) -> Self {
        Self { lower, upper }
    }
}

/// Pairs of records of one key from two inputs, `L` on the left and `R` on the right, whose times lie near each other: it keeps
/// each record until none that is not late can meet it.
///
/// ```
/// use wasmill_guest::join::{Between, IntervalJoin};
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// A payment within an hour of its order.
/// const WITHIN_AN_HOUR: Between = Between::millis(0, 3_600_000);
///
/// #[derive(Operator)]
/// #[operator(key = String, input("orders"), input("payments"), output("paid"), output("late"), timers)]
/// struct Paid {
///     join: IntervalJoin<String, u64>,
/// }
///
/// impl Process for Paid {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let paid = |ctx: &mut Context<'_>, order: &String, amount: &u64| ctx.emit(&(order, amount));
///         let arrival = match record.input() {
///             0 => self.join.left(ctx, WITHIN_AN_HOUR, record.value()?, paid)?,
///             _ => self.join.right(ctx, WITHIN_AN_HOUR, record.value()?, paid)?,
///         };
///         if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
///     }
/// }
///
/// impl OnTimer for Paid {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         self.join.fire(ctx, WITHIN_AN_HOUR, &timer)
///     }
/// }
///
/// let mut test = Harness::<Paid>::new("{}")?;
/// let order = Input::new("book").key("ada").at(Timestamp::from_millis(1_000));
/// let payment = Input::new(&30).key("ada").at(Timestamp::from_millis(5_000)).on(1);
/// let emits = test.process([payment, order])?;
/// assert_eq!(emits[0].value::<(String, u64)>()?, ("book".to_owned(), 30));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntervalJoin<L, R> {
    left: Map<(Timestamp, u64), L>,
    right: Map<(Timestamp, u64), R>,
    queue: Value<Queue>,
    left_tag: u32,
    right_tag: u32,
}

impl<L: Stored, R: Stored> IntervalJoin<L, R> {
    /// A record of the left side: calls `pair` for each of the right that it meets, in order of their times.
    ///
    /// # Errors
    /// What `pair` says; fatal when what is stored is of another type, or the operator declares no timers.
    pub fn left(
        &mut self,
        ctx: &mut Context<'_>,
        between: Between,
        value: L,
        mut pair: impl FnMut(&mut Context<'_>, &L, &R) -> Result,
    ) -> Result<Arrival> {
        if is_late(ctx) {
            return Ok(late());
        }
        let time = ctx.record_time();
        let mut met = self.right.range((shift(time, between.lower), 0)..=(shift(time, between.upper), u64::MAX));
        while let Some((_, right)) = self.right.next(ctx, &mut met)? {
            pair(ctx, &value, &right)?;
        }
        keep(&mut self.left, &mut self.queue, ctx, shift(time, between.upper), value, self.left_tag)
    }

    /// A record of the right side: calls `pair` for each of the left that it meets, in order of their times.
    ///
    /// # Errors
    /// As [`IntervalJoin::left`].
    pub fn right(
        &mut self,
        ctx: &mut Context<'_>,
        between: Between,
        value: R,
        mut pair: impl FnMut(&mut Context<'_>, &L, &R) -> Result,
    ) -> Result<Arrival> {
        if is_late(ctx) {
            return Ok(late());
        }
        let time = ctx.record_time();
        let mut met = self.left.range(
            (shift(time, between.upper.saturating_neg()), 0)..=(shift(time, between.lower.saturating_neg()), u64::MAX),
        );
        while let Some((_, left)) = self.left.next(ctx, &mut met)? {
            pair(ctx, &left, &value)?;
        }
        keep(&mut self.right, &mut self.queue, ctx, shift(time, between.lower.saturating_neg()), value, self.right_tag)
    }

    /// Removes what can meet nothing any more. A timer of another is left alone.
    ///
    /// # Errors
    /// As [`IntervalJoin::left`].
    pub fn fire(&mut self, ctx: &mut Context<'_>, between: Between, timer: &Timer<'_>) -> Result {
        if timer.domain() != Domain::Event {
            return Ok(());
        }
        if timer.tag() == self.left_tag {
            remove_met(&mut self.left, &mut self.queue, ctx, between.upper, timer)
        } else if timer.tag() == self.right_tag {
            remove_met(&mut self.right, &mut self.queue, ctx, between.lower.saturating_neg(), timer)
        } else {
            Ok(())
        }
    }
}

/// Keeps a record that can meet others until `until`.
fn keep<T: Stored>(
    side: &mut Map<(Timestamp, u64), T>,
    queue: &mut Value<Queue>,
    ctx: &mut Context<'_>,
    until: Timestamp,
    value: T,
    tag: u32,
) -> Result<Arrival> {
    if until > ctx.watermark() {
        let mut order = queue.get(ctx)?.unwrap_or_default();
        let number = order.enter();
        queue.set(ctx, order)?;
        let time = ctx.record_time();
        side.insert(ctx, &(time, number), value)?;
        ctx.set_timer(until, tag)?;
    }
    Ok(Arrival::OnTime)
}

/// Removes the records that have waited `wait` milliseconds of event time, and sees to it that the next one is removed in its time,
/// also where the bounds have changed since it came.
fn remove_met<T: Stored>(
    side: &mut Map<(Timestamp, u64), T>,
    queue: &mut Value<Queue>,
    ctx: &mut Context<'_>,
    wait: i64,
    timer: &Timer<'_>,
) -> Result {
    let mut all = side.iter();
    let mut removed = 0;
    while let Some((key, _)) = side.next(ctx, &mut all)? {
        let until = shift(key.0, wait);
        if until > timer.time() {
            ctx.set_timer(until, timer.tag())?;
            break;
        }
        side.remove(ctx, &key)?;
        removed += 1;
    }
    let mut order = queue.get(ctx)?.unwrap_or_default();
    order.leave(removed);
    if order.is_empty() { queue.clear(ctx) } else { queue.set(ctx, order) }
}

/// A time moved by milliseconds, saturating.
fn shift(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_add(millis))
}

impl<L: Stored, R: Stored> Field for IntervalJoin<L, R> {
    const STATES: u16 = 3;

    fn open(first: u16, name: &'static str) -> Self {
        Self {
            left: Field::open(first, name),
            right: Field::open(first + 1, name),
            queue: Field::open(first + 2, name),
            left_tag: tag(name, ".left"),
            right_tag: tag(name, ".right"),
        }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.extend([
            cleaned(Map::<(Timestamp, u64), L>::part("left", declaration)),
            cleaned(Map::<(Timestamp, u64), R>::part("right", declaration)),
            cleaned(Value::<Queue>::part("queue", declaration)),
        ]);
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.left);
        visit(&mut self.right);
        visit(&mut self.queue);
    }
}
