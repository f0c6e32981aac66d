//! Visits: clicks of a user that follow each other within half an hour.

#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_guest::aggregate::Merge;
use wasmill_guest::prelude::*;
use wasmill_guest::window::{Gap, Sessions};

/// The operator.
#[derive(Operator)]
#[operator(key = String, output("visits"), output("late"), timers)]
pub struct Visits {
    visits: Sessions<Visit>,
    /// After how many minutes without a click a visit is over.
    #[config(default = 30)]
    gap_minutes: u64,
    /// For how many minutes a late click still changes a visit that was emitted, which is then emitted again.
    #[config(default = 0)]
    lateness_minutes: u64,
}

#[derive(Deserialize)]
struct Click {
    page: String,
}

/// What is kept of a visit: no clicks, only what they come to.
#[derive(Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Visit {
    clicks: u64,
    /// Time and page of the first click; of several at one time, of the one that came first.
    entry: Option<(Timestamp, String)>,
}

#[derive(Serialize)]
struct Report<'a> {
    user: &'a str,
    start: Timestamp,
    end: Timestamp,
    clicks: u64,
    entry: &'a str,
}

impl Visits {
    fn gap(&self) -> Gap {
        let minutes = Duration::from_mins;
        Gap::of(minutes(self.gap_minutes)).lateness(minutes(self.lateness_minutes))
    }
}

impl Process for Visits {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let Click { page } = record.value()?;
        let gap = self.gap();
        let arrival = self.visits.update(ctx, &gap, |visit| visit.add(record.time(), page))?;
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Visits {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let gap = self.gap();
        for (window, visit) in self.visits.fire(ctx, &gap, &timer)? {
            let entry = visit.entry.as_ref().map_or("", |(_, page)| page);
            let user = timer.key()?;
            ctx.emit(&Report { user, start: window.start, end: window.end, clicks: visit.clicks, entry })?;
        }
        Ok(())
    }
}

impl Visit {
    fn add(&mut self, time: Timestamp, page: String) {
        self.clicks += 1;
        if self.entry.as_ref().is_none_or(|(first, _)| time < *first) {
            self.entry = Some((time, page));
        }
    }
}

impl Merge for Visit {
    fn merge(&mut self, later: Self) {
        self.clicks += later.clicks;
    }
}

operator!(Visits);
