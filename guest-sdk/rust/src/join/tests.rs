//! What joins promise: each pair once, nothing kept for longer than it can meet.
//!
//! Owns no helper that others use.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};
use crate::window::Sliding;

/// Emits (left, right) of what meets.
#[derive(Operator)]
#[operator(key = String, input("left"), input("right"), output("out"), output("late"), timers)]
struct Near {
    join: IntervalJoin<u32, u32>,
    #[config]
    lower: i64,
    #[config]
    upper: i64,
}

impl Process for Near {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let between = Between::millis(self.lower, self.upper);
        let pair = |ctx: &mut Context<'_>, left: &u32, right: &u32| ctx.emit(&(left, right));
        let arrival = match record.input() {
            0 => self.join.left(ctx, between, record.value()?, pair)?,
            _ => self.join.right(ctx, between, record.value()?, pair)?,
        };
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Near {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        self.join.fire(ctx, Between::millis(self.lower, self.upper), &timer)
    }
}

/// Emits (start, left, right) of what lies in one window.
#[derive(Operator)]
#[operator(key = String, input("left"), input("right"), timers)]
struct Together {
    join: WindowJoin<u32, u32>,
    #[config(default = 0)]
    lateness: u64,
}

impl Together {
    fn windows(&self) -> Sliding {
        let millis = Duration::from_millis;
        Sliding::of(millis(20), millis(10)).lateness(millis(self.lateness))
    }
}

impl Process for Together {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let windows = self.windows();
        let _ = match record.input() {
            0 => self.join.left(ctx, &windows, record.value()?)?,
            _ => self.join.right(ctx, &windows, record.value()?)?,
        };
        Ok(())
    }
}

impl OnTimer for Together {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let windows = self.windows();
        self.join.fire(ctx, &windows, &timer, |ctx, window, left, right| ctx.emit(&(window.start, left, right)))
    }
}

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

/// Records of side, key, time and number, none late, with watermarks between.
fn records(steps: &[(bool, u8, i64, i64)]) -> Vec<(Input, bool, u8, i64, u32)> {
    let mut newest = 0;
    let record = |(number, &(right, key, ahead, behind)): (usize, &(bool, u8, i64, i64))| {
        newest += ahead;
        let (time, number) = (newest - behind, number as u32);
        let input = Input::new(&number).key(&key.to_string()).at(at(time)).on(u16::from(right));
        (input.then_watermark(at(newest - 16)), right, key, time, number)
    };
    steps.iter().enumerate().map(record).collect()
}

fn steps() -> impl Strategy<Value = Vec<(bool, u8, i64, i64)>> {
    prop::collection::vec((any::<bool>(), 0..2u8, 0..10i64, 0..15i64), 1..40)
}

fn sorted<T: Ord + serde::de::DeserializeOwned>(emits: &[Emitted]) -> Vec<T> {
    let mut pairs: Vec<T> = emits.iter().map(|emit| emit.value().unwrap()).collect();
    pairs.sort();
    pairs
}

proptest! {
    #[test]
    fn an_interval_join_is_that_of_a_model_and_leaves_nothing(
        steps in steps(),
        lower in -30..30i64,
        width in 0..30i64,
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
        renewed in any::<bool>(),
    ) {
        let upper = lower + width;
        let records = records(&steps);
        let mut expected = Vec::new();
        for (_, _, key, time, left) in records.iter().filter(|(_, right, ..)| !right) {
            for (_, _, other_key, other, right) in records.iter().filter(|(_, right, ..)| *right) {
                if key == other_key && (time + lower..=time + upper).contains(other) {
                    expected.push((*left, *right));
                }
            }
        }
        expected.sort_unstable();
        let mut test = Harness::<Near>::new(&format!(r#"{{"lower":{lower},"upper":{upper}}}"#)).unwrap().batches_of(size);
        let inputs: Vec<Input> = records.into_iter().map(|(input, ..)| input).collect();
        let (first, second) = inputs.split_at(inputs.len() / 2);
        let mut emits = test.process(first.iter().cloned()).unwrap();
        if renewed {
            test.renew().unwrap();
        }
        emits.extend(test.process(second.iter().cloned()).unwrap());
        prop_assert_eq!(sorted::<(u32, u32)>(&emits), expected);
        test.end_of_input().unwrap();
        for state in ["join.left", "join.right", "join.queue"] {
            prop_assert_eq!(test.row_count(state).unwrap(), 0, "{}", state);
        }
        prop_assert_eq!(test.timer_count(), 0);
    }

    #[test]
    fn a_window_join_is_that_of_a_model_and_leaves_nothing(
        steps in steps(),
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
    ) {
        let records = records(&steps);
        let mut expected = Vec::new();
        for (_, _, key, time, left) in records.iter().filter(|(_, right, ..)| !right) {
            for (_, _, other_key, other, right) in records.iter().filter(|(_, right, ..)| *right) {
                let newest = time.max(other).div_euclid(10) * 10;
                let starts = [newest - 10, newest].into_iter();
                let shared = starts.filter(|start| (*start..start + 20).contains(time) && (*start..start + 20).contains(other));
                expected.extend(shared.filter(|_| key == other_key).map(|start| (start, *left, *right)));
            }
        }
        expected.sort_unstable();
        let mut test = Harness::<Together>::new("{}").unwrap().batches_of(size);
        let mut emits = test.process(records.into_iter().map(|(input, ..)| input)).unwrap();
        emits.extend(test.end_of_input().unwrap());
        prop_assert_eq!(sorted::<(i64, u32, u32)>(&emits), expected);
        for state in WINDOW_JOIN {
            prop_assert_eq!(test.row_count(state).unwrap(), 0, "{}", state);
        }
        prop_assert_eq!(test.timer_count(), 0);
    }

    #[test]
    fn a_window_join_shows_each_pair_within_the_lateness_once_and_leaves_nothing(
        steps in steps(),
        lateness in 0..40i64,
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
        renewed in any::<bool>(),
    ) {
        // With watermarks close behind, many come late; those within the lateness count.
        let mut records = records(&steps);
        let mut watermark = i64::MIN;
        let mut newest = i64::MIN;
        let mut kept = Vec::new();
        for (input, right, key, time, number) in &mut records {
            for start in [time.div_euclid(10) * 10 - 10, time.div_euclid(10) * 10] {
                if watermark < start + 19 + lateness {
                    kept.push((start, *right, *key, *number));
                }
            }
            newest = newest.max(*time);
            watermark = watermark.max(newest - 2);
            *input = input.clone().then_watermark(at(watermark));
        }
        let mut expected = Vec::new();
        for (start, _, key, left) in kept.iter().filter(|(_, right, ..)| !right) {
            let same = kept.iter().filter(|(other, right, other_key, _)| *right && other == start && other_key == key);
            expected.extend(same.map(|(.., right)| (*start, *left, *right)));
        }
        expected.sort_unstable();
        let mut test = Harness::<Together>::new(&format!(r#"{{"lateness":{lateness}}}"#)).unwrap().batches_of(size);
        let inputs: Vec<Input> = records.into_iter().map(|(input, ..)| input).collect();
        let (first, second) = inputs.split_at(inputs.len() / 2);
        let mut emits = test.process(first.iter().cloned()).unwrap();
        if renewed {
            test.renew().unwrap();
        }
        emits.extend(test.process(second.iter().cloned()).unwrap());
        emits.extend(test.end_of_input().unwrap());
        prop_assert_eq!(sorted::<(i64, u32, u32)>(&emits), expected);
        for state in WINDOW_JOIN {
            prop_assert_eq!(test.row_count(state).unwrap(), 0, "{}", state);
        }
        prop_assert_eq!(test.timer_count(), 0);
    }
}

const WINDOW_JOIN: [&str; 4] = ["join.left", "join.right", "join.queue", "join.fired"];

#[test]
fn a_window_of_a_join_goes_in_its_time_when_a_version_changed_the_lateness() {
    for (before, after) in [(10, 60), (60, 10), (60, 0)] {
        let config = |lateness: i64| format!(r#"{{"lateness":{lateness}}}"#);
        let mut test = Harness::<Together>::new(&config(before)).unwrap();
        test.process([Input::new(&1).key("k").at(at(5)), Input::new(&2).key("k").at(at(5)).on(1)]).unwrap();
        test.advance_watermark(at(19)).unwrap();
        test.reconfigure(&config(after)).unwrap();
        test.advance_watermark(at(80)).unwrap();
        for state in WINDOW_JOIN {
            assert_eq!(test.row_count(state).unwrap(), 0, "{before} to {after}: {state}");
        }
    }
}

#[test]
fn a_kept_record_is_removed_when_none_that_is_not_late_can_meet_it() {
    let mut test = Harness::<Near>::new(r#"{"lower":-5,"upper":10}"#).unwrap();
    let one = |time, input| Input::new(&1).key("k").at(at(time)).on(input);
    test.process([one(100, 0), one(100, 1)]).unwrap();
    let rows = |test: &Harness<Near>| (test.row_count("join.left").unwrap(), test.row_count("join.right").unwrap());
    test.advance_watermark(at(104)).unwrap();
    assert_eq!(rows(&test), (1, 1));
    test.advance_watermark(at(105)).unwrap();
    assert_eq!(rows(&test), (1, 0), "the right at 100 meets the left up to 105");
    test.advance_watermark(at(109)).unwrap();
    assert_eq!(test.process([one(110, 1)]).unwrap().len(), 1, "the left at 100 meets the right up to 110");
    test.advance_watermark(at(110)).unwrap();
    assert_eq!(rows(&test).0, 0);
}

#[test]
fn a_kept_record_goes_in_its_time_when_a_version_changed_the_bounds() {
    for (before, after) in [(10, 60), (60, 10)] {
        let config = |bound: i64| format!(r#"{{"lower":-{bound},"upper":{bound}}}"#);
        let mut test = Harness::<Near>::new(&config(before)).unwrap();
        let one = |time, input| Input::new(&1).key("k").at(at(time)).on(input);
        test.process([one(1, 0), one(2, 1), one(7, 0)]).unwrap();
        test.reconfigure(&config(after)).unwrap();
        test.advance_watermark(at(67)).unwrap();
        for state in ["join.left", "join.right", "join.queue"] {
            assert_eq!(test.row_count(state).unwrap(), 0, "{before} to {after}: `{state}`");
        }
        assert_eq!(test.timer_count(), 0);
    }
}

#[test]
fn bounds_at_the_ends_of_time_do_not_overflow() {
    let config = format!(r#"{{"lower":{},"upper":{}}}"#, i64::MIN, i64::MAX);
    let mut test = Harness::<Near>::new(&config).unwrap();
    let inputs = [(0, i64::MAX), (1, i64::MIN + 1), (0, -5), (1, 7)];
    let emits = test.process(inputs.map(|(input, time)| Input::new(&1).key("k").at(at(time)).on(input))).unwrap();
    assert_eq!(emits.iter().filter(|emit| emit.output == "out").count(), 2, "all but the one at the beginning of time");
    test.end_of_input().unwrap();
    assert_eq!(test.timer_count(), 0);
}
