//! Totals of each aircraft: its flights, their distance, when it was last seen, how late it arrives on average.
//!
//! Keyed by tail number. Emits the totals with every flight. The sums are integers, so that the average is the same to the
//! last bit however often the job was restarted.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String)]
pub struct PerAircraft {
    totals: Value<Totals>,
}

#[derive(Deserialize)]
struct Flight<'a> {
    tailnum: &'a str,
    distance: u64,
    arr_delay: Option<i64>,
    time_hour: Option<&'a str>,
}

/// What is kept of an aircraft.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Totals {
    flights: u64,
    distance: u64,
    last_seen: Option<String>,
    known_delays: u32,
    delay: i64,
}

#[derive(Serialize)]
struct Report<'a> {
    tailnum: &'a str,
    flights: u64,
    distance: u64,
    last_seen: Option<&'a str>,
    known_delays: u32,
    mean_arr_delay: Option<f64>,
}

impl Process for PerAircraft {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let flight: Flight<'_> = record.value()?;
        let totals = self.totals.update(ctx, |totals| totals.add(&flight))?;
        ctx.emit(&Report {
            tailnum: flight.tailnum,
            flights: totals.flights,
            distance: totals.distance,
            last_seen: totals.last_seen.as_deref(),
            known_delays: totals.known_delays,
            mean_arr_delay: totals.mean_arr_delay(),
        })
    }
}

impl Totals {
    fn add(&mut self, flight: &Flight<'_>) {
        self.flights += 1;
        self.distance += flight.distance;
        // Hours are written so that their texts are in the order of time.
        if self.last_seen.as_deref() < flight.time_hour {
            self.last_seen = flight.time_hour.map(str::to_owned);
        }
        if let Some(delay) = flight.arr_delay {
            self.known_delays += 1;
            self.delay += delay;
        }
    }

    /// Flights whose delay is not known are left out; `None` where none is known.
    fn mean_arr_delay(&self) -> Option<f64> {
        // Minutes of a year's flights: exact in an f64.
        (self.known_delays > 0).then(|| self.delay as f64 / f64::from(self.known_delays))
    }
}

operator!(PerAircraft);
