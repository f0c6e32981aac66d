//! What deduplication promises: one record a horizon, whatever is remembered.
//!
//! Owns no helper that others use.

use proptest::prelude::*;

use super::*;
use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};

const HORIZON: Duration = Duration::from_secs(10);

#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), timers)]
struct Once {
    seen: Dedup,
}

impl Process for Once {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        match self.seen.check(ctx, HORIZON)? {
            Seen::First => ctx.to("out").forward(&record),
            Seen::Duplicate => Ok(()),
            Seen::Late => ctx.to("late").forward(&record),
        }
    }
}

impl OnTimer for Once {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        self.seen.fire(ctx, HORIZON, &timer)
    }
}

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

fn record(id: &str, time: i64) -> Input {
    Input::new(id).key(id).at(at(time))
}

fn out(emits: &[Emitted]) -> Vec<(String, i64)> {
    let mut out: Vec<(String, i64)> = emits
        .iter()
        .filter(|emit| emit.output == "out")
        .map(|emit| (emit.value().unwrap(), emit.time.as_millis()))
        .collect();
    out.sort();
    out
}

#[test]
fn e12_one_record_a_horizon_and_the_next_one_whether_or_not_the_row_is_still_there() {
    for size in [1, 1_024] {
        // The watermark is five seconds behind, or jumps over the horizon before the last record, which removes the row.
        for jump in [false, true] {
            let mut test = Harness::<Once>::new("{}").unwrap().batches_of(size);
            let follow = |id, time| record(id, time).then_watermark(at(time - 5_001));
            let mut emits = test.process([follow("x", 100_000), follow("x", 95_000), follow("x", 109_999)]).unwrap();
            if jump {
                emits.extend(test.advance_watermark(at(109_999)).unwrap());
            }
            assert_eq!(test.state_len("seen").unwrap(), usize::from(!jump));
            emits.extend(test.process([follow("x", 110_000)]).unwrap());
            let others: Vec<String> = (0..100_000).map(|n| format!("id-{n}")).collect();
            let many = others.iter().enumerate().map(|(n, id)| follow(id, 110_000 + n as i64 / 2));
            emits.extend(test.process(many).unwrap());
            let out = out(&emits);
            assert_eq!(out.len(), 100_002);
            assert_eq!(out[100_000..], [("x".to_owned(), 100_000), ("x".to_owned(), 110_000)]);
            test.advance_watermark(at(200_000)).unwrap();
            assert_eq!((test.state_len("seen").unwrap(), test.timer_count()), (0, 0));
        }
    }
}

#[test]
fn a_horizon_of_nothing_or_of_all_time_is_ordinary() {
    for (horizon, expected) in [(Duration::ZERO, 3), (Duration::MAX, 1)] {
        #[derive(Operator)]
        #[operator(timers)]
        struct With {
            seen: Dedup,
            #[config]
            horizon: Duration,
        }
        impl Process for With {
            fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result {
                let seen = self.seen.check(ctx, self.horizon)?;
                if seen == Seen::First { ctx.emit(&1) } else { Ok(()) }
            }
        }
        impl OnTimer for With {
            fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
                self.seen.fire(ctx, self.horizon, &timer)
            }
        }
        let config = serde_json::json!({ "horizon": horizon }).to_string();
        let mut test = Harness::<With>::new(&config).unwrap();
        let emits = test.process([5, 5, i64::MAX].map(|time| record("x", time))).unwrap();
        assert_eq!(emits.len(), expected);
        test.end_of_input().unwrap();
        assert_eq!((test.state_len("seen").unwrap(), test.timer_count()), (0, 0));
    }
}

proptest! {
    #[test]
    fn what_is_let_through_is_that_of_a_model(
        steps in prop::collection::vec((0..2u8, 0..9_000i64, 0..15_000i64), 1..40),
        behind in prop_oneof![Just(15_001i64), Just(40_000)],
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
    ) {
        let mut newest = 0;
        let mut last = [None::<i64>; 2];
        let (mut inputs, mut expected) = (Vec::new(), Vec::new());
        for (id, ahead, back) in steps {
            newest += ahead;
            let time = newest - back;
            inputs.push(record(&id.to_string(), time).then_watermark(at(newest - behind)));
            if last[usize::from(id)].is_none_or(|last| time >= last + 10_000) {
                last[usize::from(id)] = Some(time);
                expected.push((id.to_string(), time));
            }
        }
        expected.sort();
        let mut test = Harness::<Once>::new("{}").unwrap().batches_of(size);
        prop_assert_eq!(out(&test.process(inputs).unwrap()), expected);
    }
}
