//! Flights an hour and a day for each airport, by the clocks of its time zone, with flights that come late.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;
use wasmill_guest::aggregate::Count;
use wasmill_guest::prelude::*;
use wasmill_guest::types::Subtask;
use wasmill_guest::window::{Calendar, Tumbling, Windows};

const HOUR: Duration = Duration::from_hours(1);

/// The operator.
#[derive(Operator)]
#[operator(key = String, output("hours"), output("days"), output("late"), timers)]
pub struct Airports {
    hours: Windows<Count>,
    days: Windows<Count>,
    /// Whose days, by its IANA name.
    #[config]
    zone: String,
    /// For how many minutes late flights still change an hour or day that was emitted, which is then emitted again.
    #[config(default = 0)]
    lateness_minutes: u64,
    calendar: Calendar,
}

#[derive(Serialize)]
struct Flights<'a> {
    origin: &'a str,
    start: Timestamp,
    hours: i64,
    flights: u64,
}

impl Airports {
    fn hour(&self) -> Tumbling {
        Tumbling::of(HOUR).lateness(Duration::from_mins(self.lateness_minutes))
    }
}

impl Process for Airports {
    fn start(&mut self, _: Subtask) -> Result {
        self.calendar = Calendar::days(&self.zone)?.lateness(Duration::from_mins(self.lateness_minutes));
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let hour = self.hour();
        // A flight that is too late for its hour may be in time for its day.
        let _ = self.days.update(ctx, &self.calendar, Count::add)?;
        let arrival = self.hours.update(ctx, &hour, Count::add)?;
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Airports {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let hour = self.hour();
        let hours = self.hours.fire(ctx, &hour, &timer)?.into_iter().map(|fired| ("hours", fired));
        let days = self.days.fire(ctx, &self.calendar, &timer)?.into_iter().map(|fired| ("days", fired));
        for (output, (window, count)) in hours.chain(days) {
            let hours = (window.end.as_millis() - window.start.as_millis()) / HOUR.as_millis() as i64;
            let flights = Flights { origin: timer.key()?, start: window.start, hours, flights: count.get() };
            ctx.to(output).emit(&flights)?;
        }
        Ok(())
    }
}

operator!(Airports);
