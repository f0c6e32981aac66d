//! Aggregates of tumbling and sliding windows.
//!
//! Owns the open windows of each key as one value that rides along, so that a record costs no call to the host, and the timers
//! at which they fire and are dropped. Thousands of open windows a key are too many for it.

use std::time::Duration;

use super::{Assign, Pane, Window};
use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, cleaned, late, tag};
use crate::state::{Declaration, Field, State, Stored, Value};
use crate::time::Timestamp;
use crate::timer::{Domain, Timer};

/// An aggregate of type `A` for each open window of each key.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::aggregate::Count;
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
/// use wasmill_guest::window::{Tumbling, Windows};
///
/// const TEN_SECONDS: Tumbling = Tumbling::of(Duration::from_secs(10));
///
/// #[derive(Operator)]
/// #[operator(key = String, output("counts"), output("late"), timers)]
/// struct PerTenSeconds {
///     counts: Windows<Count>,
/// }
///
/// impl Process for PerTenSeconds {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         if self.counts.update(ctx, &TEN_SECONDS, |count| count.add())?.is_late() {
///             ctx.to("late").forward(&record)?;
///         }
///         Ok(())
///     }
/// }
///
/// impl OnTimer for PerTenSeconds {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         for (window, count) in self.counts.fire(ctx, &TEN_SECONDS, &timer)? {
///             ctx.emit(&(timer.key::<&str>()?, window.start, count.get()))?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut test = Harness::<PerTenSeconds>::new("{}")?;
/// test.process([1_000, 9_999, 10_000].map(|time| Input::absent().key("a").at(Timestamp::from_millis(time))))?;
/// let emits = test.advance_watermark(Timestamp::from_millis(9_999))?;
/// assert_eq!(emits[0].value::<(String, i64, u64)>()?, ("a".to_owned(), 0, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Windows<A> {
    panes: Value<Vec<Pane<A>>>,
    tag: u32,
}

impl<A: Stored + Default> Windows<A> {
    /// Changes the aggregates of the windows that the record in hand lies in, as far as they are not dropped. A window that
    /// has fired fires again at the next advance of the watermark.
    ///
    /// # Errors
    /// Fatal when what is stored is of another type, or the operator declares no timers.
    pub fn update(
        &mut self,
        ctx: &mut Context<'_>,
        windows: &impl Assign,
        mut change: impl FnMut(&mut A),
    ) -> Result<Arrival> {
        let time = ctx.record_time();
        let (watermark, lateness) = (ctx.watermark(), windows.lateness());
        let mut found = Vec::new();
        windows.each(time, &mut |window| found.push(window));
        let assigned = found.len();
        found.retain(|window| watermark < window.last().plus(lateness));
        if found.is_empty() {
            return Ok(if assigned > 0 { late() } else { Arrival::OnTime });
        }
        let mut panes = self.panes.get(ctx)?.unwrap_or_default();
        for window in found {
            let at = panes.partition_point(|pane| pane.window() < window);
            if panes.get(at).is_none_or(|pane| pane.window() != window) {
                panes.insert(at, Pane(window.start, window.end, false, A::default()));
            }
            let Pane(_, _, changed, total) = &mut panes[at];
            change(total);
            if !std::mem::replace(changed, true) {
                ctx.set_timer(window.last(), self.tag)?;
            }
        }
        self.panes.set(ctx, panes).map(|()| Arrival::OnTime)
    }

    /// The windows that a timer fires, ascending by start, with their aggregates; none where the timer is another's. Those
    /// whose lateness is over are dropped.
    ///
    /// # Errors
    /// As [`Windows::update`].
    pub fn fire(
        &mut self,
        ctx: &mut Context<'_>,
        windows: &impl Assign,
        timer: &Timer<'_>,
    ) -> Result<Vec<(Window, A)>> {
        if timer.domain() != Domain::Event || timer.tag() != self.tag {
            return Ok(Vec::new());
        }
        let Some(panes) = self.panes.get(ctx)? else { return Ok(Vec::new()) };
        fire_panes(&mut self.panes, ctx, panes, timer.time(), windows.lateness(), self.tag)
    }

    /// The open windows of the key in hand, ascending by start, with their aggregates so far.
    ///
    /// # Errors
    /// As [`Windows::update`].
    pub fn open(&mut self, ctx: &mut Context<'_>) -> Result<Vec<(Window, A)>> {
        let panes = self.panes.get(ctx)?.unwrap_or_default();
        Ok(panes.into_iter().map(|pane| (pane.window(), pane.3)).collect())
    }
}

/// Fires the panes whose last time is `now`, the time of a timer, drops those whose lateness is over, and sees to it that each one kept is
/// dropped in its time.
pub(super) fn fire_panes<A: Stored>(
    state: &mut Value<Vec<Pane<A>>>,
    ctx: &mut Context<'_>,
    panes: Vec<Pane<A>>,
    now: Timestamp,
    lateness: Duration,
    drop_tag: u32,
) -> Result<Vec<(Window, A)>> {
    let (mut fired, mut kept) = (Vec::new(), Vec::with_capacity(panes.len()));
    let mut touched = false;
    for mut pane in panes {
        let window = pane.window();
        let dropped_at = window.last().plus(lateness);
        if window.last() > now {
            kept.push(pane);
            continue;
        }
        touched = true;
        if pane.2 && window.last() == now {
            pane.2 = false;
            fired.push((window, pane.3.clone()));
        }
        // One that was changed after it fired waits for its own timer, even where that is set for a time gone by.
        if dropped_at > now || pane.2 {
            if !pane.2 {
                ctx.set_timer(dropped_at, drop_tag)?;
            }
            kept.push(pane);
        }
    }
    if kept.is_empty() {
        state.clear(ctx)?;
    } else if touched {
        state.set(ctx, kept)?;
    }
    Ok(fired)
}

impl<A: Stored + Default> Field for Windows<A> {
    const STATES: u16 = 1;

    fn open(first: u16, name: &'static str) -> Self {
        Self { panes: Field::open(first, name), tag: tag(name, "") }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.push(cleaned(<Value<Vec<Pane<A>>> as State>::describe(declaration)));
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.panes);
    }
}
