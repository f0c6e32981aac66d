//! Joins records that lie in one window.
//!
//! Owns the records of both sides until their window is dropped, and which pairs of it were shown already. Windows fire and are
//! dropped as those of aggregates are.

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, Queue, cleaned, late, tag};
use crate::state::{Declaration, Field, Map, State, Stored, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};
use crate::window::{Assign, Window};

/// End and start of the window, and the number that keeps the order.
type Place = (Timestamp, Timestamp, u64);

/// Pairs of records of one key from two inputs, `L` on the left and `R` on the right, that lie in one window: each with each,
/// when the window fires. A record that comes within the lateness is paired with those that the window has, at the next advance of
/// the watermark; no pair is shown twice.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::join::WindowJoin;
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
/// use wasmill_guest::window::Tumbling;
///
/// const MINUTES: Tumbling = Tumbling::of(Duration::from_mins(1));
///
/// #[derive(Operator)]
/// #[operator(key = String, input("bids"), input("asks"), timers)]
/// struct Meet {
///     join: WindowJoin<u32, u32>,
/// }
///
/// impl Process for Meet {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let _ = match record.input() {
///             0 => self.join.left(ctx, &MINUTES, record.value()?)?,
///             _ => self.join.right(ctx, &MINUTES, record.value()?)?,
///         };
///         Ok(())
///     }
/// }
///
/// impl OnTimer for Meet {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         self.join.fire(ctx, &MINUTES, &timer, |ctx, window, bid, ask| ctx.emit(&(window.start, bid, ask)))
///     }
/// }
///
/// let mut test = Harness::<Meet>::new("{}")?;
/// test.process([Input::new(&10).key("a"), Input::new(&12).key("a").on(1)])?;
/// let emits = test.end_of_input()?;
/// assert_eq!(emits[0].value::<(i64, u32, u32)>()?, (0, 10, 12));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WindowJoin<L, R> {
    left: Map<Place, L>,
    right: Map<Place, R>,
    queue: Value<Queue>,
    /// Windows by their end that have fired and are kept for late records, and the number from which on theirs were not paired.
    fired: Map<Timestamp, u64>,
    tag: u32,
    drop_tag: u32,
}

impl<L: Stored, R: Stored> WindowJoin<L, R> {
    /// A record of the left side.
    ///
    /// # Errors
    /// Fatal when what is stored is of another type, or the operator declares no timers.
    pub fn left(&mut self, ctx: &mut Context<'_>, windows: &impl Assign, value: L) -> Result<Arrival> {
        keep(&mut self.left, &mut self.queue, ctx, windows, &value, self.tag)
    }

    /// A record of the right side.
    ///
    /// # Errors
    /// As [`WindowJoin::left`].
    pub fn right(&mut self, ctx: &mut Context<'_>, windows: &impl Assign, value: R) -> Result<Arrival> {
        keep(&mut self.right, &mut self.queue, ctx, windows, &value, self.tag)
    }

    /// Calls `pair` for each pair of the window that the timer fires and that was not shown before, in the order in which the left
    /// and then the right ones came, and forgets the windows whose lateness is over. A timer of another is left alone. The
    /// window's right side is held in memory.
    ///
    /// # Errors
    /// What `pair` says; else as [`WindowJoin::left`].
    pub fn fire(
        &mut self,
        ctx: &mut Context<'_>,
        windows: &impl Assign,
        timer: &Timer<'_>,
        pair: impl FnMut(&mut Context<'_>, Window, &L, &R) -> Result,
    ) -> Result {
        if timer.domain() != Domain::Event {
            Ok(())
        } else if timer.tag() == self.tag {
            self.show(ctx, windows, timer.time(), pair)
        } else if timer.tag() == self.drop_tag {
            self.drop_fired(ctx, windows, timer.time())
        } else {
            Ok(())
        }
    }

    /// Shows the window whose last time is `last`.
    fn show(
        &mut self,
        ctx: &mut Context<'_>,
        windows: &impl Assign,
        last: Timestamp,
        mut pair: impl FnMut(&mut Context<'_>, Window, &L, &R) -> Result,
    ) -> Result {
        let end = Timestamp::from_millis(last.as_millis() + 1);
        let new = self.fired.get(ctx, &end)?.unwrap_or_default();
        let right = self.right.collect(ctx, self.right.prefix(&end))?;
        let mut walk = self.left.prefix(&end);
        while let Some(((_, start, number), left)) = self.left.next(ctx, &mut walk)? {
            let of_window = right.iter().filter(|((_, other, _), _)| *other == start);
            for (_, right) in of_window.filter(|((.., other), _)| number.max(*other) >= new) {
                pair(ctx, Window { start, end }, &left, right)?;
            }
        }
        let dropped_at = last.plus(windows.lateness());
        if dropped_at == last {
            return self.forget(ctx, end);
        }
        let order = self.queue.get(ctx)?.unwrap_or_default();
        self.fired.insert(ctx, &end, order.next())?;
        ctx.set_timer(dropped_at, self.drop_tag)
    }

    /// Forgets the windows that have fired and whose lateness is over, and sees to it that the next one is in its time, also where
    /// the lateness has changed since it fired.
    fn drop_fired(&mut self, ctx: &mut Context<'_>, windows: &impl Assign, now: Timestamp) -> Result {
        let mut fired = self.fired.iter();
        while let Some((end, _)) = self.fired.next(ctx, &mut fired)? {
            let last = Timestamp::from_millis(end.as_millis() - 1);
            let dropped_at = last.plus(windows.lateness());
            if dropped_at > now {
                return ctx.set_timer(dropped_at, self.drop_tag);
            }
            self.forget(ctx, end)?;
        }
        Ok(())
    }

    /// Removes all that is kept of the window that ends there.
    fn forget(&mut self, ctx: &mut Context<'_>, end: Timestamp) -> Result {
        let gone = remove(&mut self.left, ctx, end)? + remove(&mut self.right, ctx, end)?;
        self.fired.remove(ctx, &end)?;
        let mut order = self.queue.get(ctx)?.unwrap_or_default();
        order.leave(gone);
        if order.is_empty() { self.queue.clear(ctx) } else { self.queue.set(ctx, order) }
    }
}

/// Removes a side of a window; how many records it was.
fn remove<T: Stored>(side: &mut Map<Place, T>, ctx: &mut Context<'_>, end: Timestamp) -> Result<u64> {
    let mut walk = side.prefix(&end);
    let mut gone = 0;
    while let Some((place, _)) = side.next(ctx, &mut walk)? {
        side.remove(ctx, &place)?;
        gone += 1;
    }
    Ok(gone)
}

/// Keeps a record for each of its windows that is not dropped.
fn keep<T: Stored>(
    side: &mut Map<Place, T>,
    queue: &mut Value<Queue>,
    ctx: &mut Context<'_>,
    windows: &impl Assign,
    value: &T,
    tag: u32,
) -> Result<Arrival> {
    let mut found = Vec::new();
    let (watermark, lateness) = (ctx.watermark(), windows.lateness());
    windows.each(ctx.record_time(), &mut |window| found.push(window));
    let assigned = found.len();
    found.retain(|window| watermark < window.last().plus(lateness));
    if found.is_empty() {
        return Ok(if assigned > 0 { late() } else { Arrival::OnTime });
    }
    let mut order = queue.get(ctx)?.unwrap_or_default();
    for window in found {
        side.insert(ctx, &(window.end, window.start, order.enter()), value.clone())?;
        ctx.set_timer(window.last(), tag)?;
    }
    queue.set(ctx, order)?;
    Ok(Arrival::OnTime)
}

impl<L: Stored, R: Stored> Field for WindowJoin<L, R> {
    const STATES: u16 = 4;

    fn open(first: u16, name: &'static str) -> Self {
        Self {
            left: Field::open(first, name),
            right: Field::open(first + 1, name),
            queue: Field::open(first + 2, name),
            fired: Field::open(first + 3, name),
            tag: tag(name, ""),
            drop_tag: tag(name, ".drop"),
        }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.extend([
            cleaned(Map::<Place, L>::part("left", declaration)),
            cleaned(Map::<Place, R>::part("right", declaration)),
            cleaned(Value::<Queue>::part("queue", declaration)),
            cleaned(Map::<Timestamp, u64>::part("fired", declaration)),
        ]);
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.left);
        visit(&mut self.right);
        visit(&mut self.queue);
        visit(&mut self.fired);
    }
}
