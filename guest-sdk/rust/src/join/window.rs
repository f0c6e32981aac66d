//! Joins records that lie in one window.
//!
//! Owns the records of both sides until their window fires. There is no lateness: a window that has fired is gone.

use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, Queue, late, tag};
use crate::state::{Declaration, Field, Map, State, Stored, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};
use crate::window::{Assign, Window};

/// End and start of the window, and the number that keeps the order.
type Place = (Timestamp, Timestamp, u64);

/// Pairs of records of one key from two inputs, `L` on the left and `R` on the right, that lie in one window: each with each,
/// when the window fires. A window's lateness does not count.
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
///         self.join.fire(ctx, &timer, |ctx, window, bid, ask| ctx.emit(&(window.start, bid, ask)))
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
    tag: u32,
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

    /// Calls `pair` for each pair of the window that the timer fires, in the order in which the left and then the right ones
    /// came, and forgets the window. A timer of another is left alone. The window's right side is held in memory.
    ///
    /// # Errors
    /// What `pair` says; else as [`WindowJoin::left`].
    pub fn fire(
        &mut self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        mut pair: impl FnMut(&mut Context<'_>, Window, &L, &R) -> Result,
    ) -> Result {
        if timer.domain() != Domain::Event || timer.tag() != self.tag {
            return Ok(());
        }
        let end = Timestamp::from_millis(timer.time().as_millis() + 1);
        let right = self.right.collect(ctx, self.right.prefix(&end))?;
        let mut gone = right.len() as u64;
        let mut walk = self.left.prefix(&end);
        while let Some((place, left)) = self.left.next(ctx, &mut walk)? {
            let window = Window { start: place.1, end };
            for (_, right) in right.iter().filter(|(other, _)| other.1 == window.start) {
                pair(ctx, window, &left, right)?;
            }
            self.left.remove(ctx, &place)?;
            gone += 1;
        }
        for (place, _) in &right {
            self.right.remove(ctx, place)?;
        }
        let mut order = self.queue.get(ctx)?.unwrap_or_default();
        order.leave(gone);
        if order.is_empty() { self.queue.clear(ctx) } else { self.queue.set(ctx, order) }
    }
}

/// Keeps a record for each of its windows that has not fired.
fn keep<T: Stored>(
    side: &mut Map<Place, T>,
    queue: &mut Value<Queue>,
    ctx: &mut Context<'_>,
    windows: &impl Assign,
    value: &T,
    tag: u32,
) -> Result<Arrival> {
    let mut found = Vec::new();
    windows.each(ctx.record_time(), &mut |window| found.push(window));
    let assigned = found.len();
    found.retain(|window| window.last() > ctx.watermark());
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
    const STATES: u16 = 3;

    fn open(first: u16, name: &'static str) -> Self {
        Self {
            left: Field::open(first, name),
            right: Field::open(first + 1, name),
            queue: Field::open(first + 2, name),
            tag: tag(name, ""),
        }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.extend([
            Map::<Place, L>::part("left", declaration),
            Map::<Place, R>::part("right", declaration),
            Value::<Queue>::part("queue", declaration),
        ]);
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.left);
        visit(&mut self.right);
        visit(&mut self.queue);
    }
}
