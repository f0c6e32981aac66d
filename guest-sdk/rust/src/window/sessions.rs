//! Aggregates of sessions: windows that grow as long as records keep coming.
//!
//! Owns how sessions begin, grow and merge. Fires and drops them as other windows are.

use std::time::Duration;

use super::windows::fire_panes;
use super::{Pane, Window};
use crate::aggregate::Merge;
use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::context::Context;
use crate::error::Result;
use crate::library::{Arrival, cleaned, late, tag};
use crate::state::{Declaration, Field, State, Stored, Value};
use crate::timer::{Domain, Timer};

/// How far apart records of one session may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    gap: Duration,
    lateness: Duration,
}

impl Gap {
    /// Records less than this apart are of one session; less than a millisecond counts as a millisecond.
    #[must_use]
    pub const fn of(gap: Duration) -> Self {
        let shortest = Duration::from_millis(1);
        let gap = if gap.as_millis() == 0 { shortest } else { gap };
        Self { gap, lateness: Duration::ZERO }
    }

    /// Lets late records change a session for so long after it has fired.
    #[must_use]
    pub const fn lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }
}

/// An aggregate of type `A` for each open session of each key.
///
/// A session is the window from its first record's time to its last one's plus the gap. A record between two sessions, closer
/// than the gap to both, makes one of them: the later one's aggregate is merged into the earlier one's.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::aggregate::Count;
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
/// use wasmill_guest::window::{Gap, Sessions};
///
/// const HALF_AN_HOUR: Gap = Gap::of(Duration::from_mins(30));
///
/// #[derive(Operator)]
/// #[operator(key = String, timers)]
/// struct Visits {
///     clicks: Sessions<Count>,
/// }
///
/// impl Process for Visits {
///     fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let _ = self.clicks.update(ctx, &HALF_AN_HOUR, |clicks| clicks.add())?;
///         Ok(())
///     }
/// }
///
/// impl OnTimer for Visits {
///     fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
///         for (visit, clicks) in self.clicks.fire(ctx, &HALF_AN_HOUR, &timer)? {
///             ctx.emit(&(visit.start, clicks.get()))?;
///         }
///         Ok(())
///     }
/// }
///
/// let minute = |n: i64| Timestamp::from_millis(n * 60_000);
/// let mut test = Harness::<Visits>::new("{}")?;
/// test.process([0, 50, 25, 90].map(|n| Input::absent().key("ada").at(minute(n))))?;
/// let emits = test.end_of_input()?;
/// assert_eq!(emits[0].value::<(i64, u64)>()?, (0, 3));
/// assert_eq!(emits[1].value::<(i64, u64)>()?, (90 * 60_000, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sessions<A> {
    panes: Value<Vec<Pane<A>>>,
    /// Of timers at which sessions fire. They move with the sessions, so they are not those at which others are dropped.
    tag: u32,
    drop_tag: u32,
}

impl<A: Stored + Default + Merge> Sessions<A> {
    /// Changes the aggregate of the session that the record in hand belongs to. It is late where that session would be dropped
    /// already; a record that prolongs a session still kept is not. A session that has fired fires again, as it is then.
    ///
    /// # Errors
    /// Fatal when what is stored is of another type, or the operator declares no timers.
    pub fn update(&mut self, ctx: &mut Context<'_>, gap: &Gap, change: impl FnOnce(&mut A)) -> Result<Arrival> {
        let time = ctx.record_time();
        let mut session = Window { start: time, end: time.plus(gap.gap) };
        let mut panes = self.panes.get(ctx)?.unwrap_or_default();
        // Sessions do not overlap, so those that touch the new one stand together.
        let first = panes.partition_point(|pane| pane.1 <= session.start);
        let behind = first + panes[first..].iter().take_while(|pane| pane.0 < session.end).count();
        for pane in &panes[first..behind] {
            session.start = session.start.min(pane.0);
            session.end = session.end.max(pane.1);
        }
        if ctx.watermark() >= session.last().plus(gap.lateness) {
            return Ok(late());
        }
        let mut set = false;
        let mut total = None;
        for Pane(start, end, changed, part) in panes.drain(first..behind) {
            let last = Window { start, end }.last();
            if last == session.last() {
                set = changed;
            } else {
                // Whether it waits to fire or to be dropped: its time is no more.
                ctx.delete_timer(last, self.tag)?;
                ctx.delete_timer(last.plus(gap.lateness), self.drop_tag)?;
            }
            match &mut total {
                None => total = Some(part),
                Some(total) => Merge::merge(total, part),
            }
        }
        let mut total = total.unwrap_or_default();
        change(&mut total);
        panes.insert(first, Pane(session.start, session.end, true, total));
        if !set {
            ctx.set_timer(session.last(), self.tag)?;
        }
        self.panes.set(ctx, panes)?;
        Ok(Arrival::OnTime)
    }

    /// The session that a timer fires, with its aggregate; none where the timer is another's. Those whose lateness is over
    /// are dropped.
    ///
    /// # Errors
    /// As [`Sessions::update`].
    pub fn fire(&mut self, ctx: &mut Context<'_>, gap: &Gap, timer: &Timer<'_>) -> Result<Vec<(Window, A)>> {
        if timer.domain() != Domain::Event || ![self.tag, self.drop_tag].contains(&timer.tag()) {
            return Ok(Vec::new());
        }
        let Some(panes) = self.panes.get(ctx)? else { return Ok(Vec::new()) };
        fire_panes(&mut self.panes, ctx, panes, timer.time(), gap.lateness, self.drop_tag)
    }

    /// The open sessions of the key in hand, ascending, with their aggregates so far.
    ///
    /// # Errors
    /// As [`Sessions::update`].
    pub fn open(&mut self, ctx: &mut Context<'_>) -> Result<Vec<(Window, A)>> {
        let panes = self.panes.get(ctx)?.unwrap_or_default();
        Ok(panes.into_iter().map(|pane| (pane.window(), pane.3)).collect())
    }
}

impl<A: Stored + Default + Merge> Field for Sessions<A> {
    const STATES: u16 = 1;

    fn open(first: u16, name: &'static str) -> Self {
        Self { panes: Field::open(first, name), tag: tag(name, ""), drop_tag: tag(name, ".drop") }
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.push(cleaned(<Value<Vec<Pane<A>>> as State>::describe(declaration)));
    }

    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(&mut self.panes);
    }
}
