//! Leaves out readings that were sent twice: the first of an id within ten minutes is let through.

use std::time::Duration;

use wasmill_guest::dedup::{Dedup, Seen};
use wasmill_guest::prelude::*;

/// The operator. Its key is what is compared: route by it.
#[derive(Operator)]
#[operator(key = String, output("first"), output("late"), timers)]
pub struct Once {
    seen: Dedup,
    /// For how many minutes of event time an id is remembered.
    #[config(default = 10)]
    horizon_minutes: u64,
}

impl Once {
    fn horizon(&self) -> Duration {
        Duration::from_mins(self.horizon_minutes)
    }
}

impl Process for Once {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let horizon = self.horizon();
        match self.seen.check(ctx, horizon)? {
            Seen::First => ctx.to("first").forward(&record),
            Seen::Late => ctx.to("late").forward(&record),
            Seen::Duplicate => {
                metrics::counter("duplicates", 1);
                Ok(())
            }
        }
    }
}

impl OnTimer for Once {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let horizon = self.horizon();
        self.seen.fire(ctx, horizon, &timer)
    }
}

operator!(Once);

#[cfg(test)]
mod tests {
    use wasmill_guest::testing::{Harness, Input};

    use super::*;

    #[test]
    fn one_reading_an_id_and_horizon_is_let_through() {
        let minute = |n: i64| Timestamp::from_millis(n * 60_000);
        let reading = |id: &str, n| Input::new(id).key(id).at(minute(n));
        for size in [1, 2, 1024] {
            let mut test = Harness::<Once>::new("{}").unwrap().batches_of(size);
            let readings = [reading("x", -5), reading("x", -6), reading("y", 0), reading("x", 4), reading("x", 5)];
            let emits = test.process(readings).unwrap();
            let first: Vec<(String, i64)> =
                emits.iter().map(|emit| (emit.value().unwrap(), emit.time.as_millis() / 60_000)).collect();
            assert_eq!(first, [("x", -5), ("y", 0), ("x", 5)].map(|(id, n)| (id.to_owned(), n)));
            assert_eq!(test.counter("duplicates"), 2);
            test.advance_watermark(minute(15)).unwrap();
            assert_eq!(test.state_len("seen").unwrap(), 0);
            assert_eq!(test.process([reading("x", 15)]).unwrap()[0].output, "late");
        }
    }
}
