//! What windows promise: which ones a time lies in, when they fire, and when they are gone.
//!
//! Owns no helper that others use.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::aggregate::{Count, Sum};
use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};

/// Sums per window; what kind is said by configuration.
#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), timers)]
struct Sums {
    sums: Windows<(Count, Sum<i64>)>,
    #[config]
    size: u64,
    #[config]
    slide: Option<u64>,
    #[config(default = 0)]
    offset: i64,
    #[config(default = 0)]
    lateness: u64,
}

impl Sums {
    fn windows(&self) -> Sliding {
        let size = Duration::from_millis(self.size);
        let slide = Duration::from_millis(self.slide.unwrap_or(self.size));
        let lateness = Duration::from_millis(self.lateness);
        Sliding::of(size, slide).offset_millis(self.offset).lateness(lateness)
    }
}

impl Process for Sums {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let add: i64 = record.value()?;
        let windows = self.windows();
        let arrival = self.sums.update(ctx, &windows, |(count, sum)| {
            count.add();
            sum.add(add);
        })?;
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Sums {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let windows = self.windows();
        for (window, (count, sum)) in self.sums.fire(ctx, &windows, &timer)? {
            ctx.emit(&(window.start, window.end, count.get(), sum.get()))?;
        }
        Ok(())
    }
}

/// Start, end, count and sum.
type Told = (i64, i64, u64, i64);

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

fn record(time: i64) -> Input {
    Input::new(&1).key("k").at(at(time))
}

fn sums(config: &str) -> Harness<Sums> {
    Harness::new(config).unwrap()
}

fn told(emits: &[Emitted]) -> Vec<Told> {
    emits.iter().filter(|emit| emit.output == "out").map(|emit| emit.value().unwrap()).collect()
}

fn late(emits: &[Emitted]) -> usize {
    emits.iter().filter(|emit| emit.output == "late").count()
}

#[test]
fn e1_times_before_1970_lie_in_the_window_that_begins_at_or_before_them() {
    for size in [1, 7, 1_024] {
        let mut test = sums(r#"{"size":10000}"#).batches_of(size);
        test.process([-20_000, -10_001, -10_000, -1, 0, 9_999].map(record)).unwrap();
        let emits = test.end_of_input().unwrap();
        assert_eq!(told(&emits), [(-20_000, -10_000, 2, 2), (-10_000, 0, 2, 2), (0, 10_000, 2, 2)]);
        assert_eq!(emits[0].time, at(-10_001), "a window's output has its last time");
    }
}

#[test]
fn e9_a_second_stage_takes_what_the_first_emits_at_the_watermark() {
    let (mut first, mut second) = (sums(r#"{"size":10000}"#), sums(r#"{"size":30000}"#));
    let mut last = Vec::new();
    let mut stage = |emits: Vec<Emitted>, watermark: Timestamp| {
        assert_eq!(late(&emits), 0);
        let inputs =
            told(&emits).into_iter().zip(&emits).map(|((.., sum), emit)| Input::new(&sum).key("k").at(emit.time));
        let inputs: Vec<Input> = inputs.collect();
        let emits = second.process(inputs).unwrap();
        assert_eq!(late(&emits), 0);
        last.extend(told(&second.advance_watermark(watermark).unwrap()));
    };
    for second in 0..60 {
        let watermark = at(second * 1_000);
        let emits = first.process([record(second * 1_000).then_watermark(watermark)]).unwrap();
        stage(emits, watermark);
    }
    stage(first.end_of_input().unwrap(), Timestamp::MAX);
    assert_eq!(last, [(0, 30_000, 3, 30), (30_000, 60_000, 3, 30)]);
    assert_eq!(first.counter("late_records") + second.counter("late_records"), 0);
}

#[test]
fn a_window_fires_at_its_last_time_and_again_for_late_records_until_its_lateness_is_over() {
    let mut test = sums(r#"{"size":1000,"lateness":500}"#);
    test.process([record(10)]).unwrap();
    assert_eq!(told(&test.advance_watermark(at(998)).unwrap()), []);
    assert_eq!(told(&test.advance_watermark(at(999)).unwrap()), [(0, 1_000, 1, 1)]);
    assert_eq!(late(&test.process([record(20), record(30)]).unwrap()), 0);
    assert_eq!(told(&test.advance_watermark(at(1_200)).unwrap()), [(0, 1_000, 3, 3)], "both at the next advance");
    assert_eq!(told(&test.advance_watermark(at(1_400)).unwrap()), []);
    test.process([record(40)]).unwrap();
    let emits = test.advance_watermark(at(1_499)).unwrap();
    assert_eq!(told(&emits), [(0, 1_000, 4, 4)], "one that came in time fires though the window is dropped");
    assert_eq!((test.state_len("sums").unwrap(), test.timer_count()), (0, 0));
    assert_eq!(late(&test.process([record(50)]).unwrap()), 1);
    assert_eq!(told(&test.end_of_input().unwrap()), []);
}

#[test]
fn a_window_whose_lateness_grew_or_shrank_with_a_version_is_dropped_all_the_same() {
    for (before, after) in [(500, 2_000), (2_000, 500)] {
        let mut test = sums(&format!(r#"{{"size":1000,"lateness":{before}}}"#));
        test.process([record(10)]).unwrap();
        test.advance_watermark(at(999)).unwrap();
        test.reconfigure(&format!(r#"{{"size":1000,"lateness":{after}}}"#)).unwrap();
        test.advance_watermark(at(999 + before.max(after))).unwrap();
        assert_eq!((test.state_len("sums").unwrap(), test.timer_count()), (0, 0), "{before} to {after}");
    }
}

#[test]
fn windows_at_the_ends_of_time_neither_overflow_nor_stay() {
    let config = format!(r#"{{"size":{},"slide":{},"lateness":{}}}"#, u64::MAX, u64::MAX, u64::MAX);
    for config in [r#"{"size":10000}"#, r#"{"size":7,"slide":3,"offset":-9223372036854775808}"#, &config] {
        let mut test = sums(config);
        test.process([i64::MIN + 1, -1, i64::MAX].map(record)).unwrap();
        assert!(!told(&test.end_of_input().unwrap()).is_empty());
        assert_eq!((test.state_len("sums").unwrap(), test.timer_count()), (0, 0), "{config}");
    }
}

#[test]
fn sizes_of_nothing_count_as_a_millisecond() {
    let mut test = sums(r#"{"size":0,"slide":0}"#);
    test.process([record(5)]).unwrap();
    assert_eq!(told(&test.end_of_input().unwrap()), [(5, 6, 1, 1)]);
    let mut test = sums(r#"{"size":1,"slide":10}"#);
    assert_eq!(late(&test.process([record(5), record(10)]).unwrap()), 0, "a record in no window is not late");
    assert_eq!(told(&test.end_of_input().unwrap()), [(10, 11, 1, 1)]);
}

proptest! {
    #[test]
    fn every_time_lies_in_its_windows_and_they_are_all(
        time in -1_000..1_000i64, size in 1..50i64, slide in 1..50i64, offset in -100..100i64,
    ) {
        let millis = |n: i64| Duration::from_millis(n as u64);
        let mut found = Vec::new();
        Sliding::of(millis(size), millis(slide)).offset_millis(offset).each(at(time), &mut |window| found.push(window));
        let expected: Vec<Window> = (-60..=60)
            .map(|n| (time - (time - offset).rem_euclid(slide)) + n * slide)
            .map(|start| Window { start: at(start), end: at(start + size) })
            .filter(|window| window.contains(at(time)))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn sums_are_those_of_a_model_with_batches_of_any_size(
        records in prop::collection::vec((0..3u8, 0..40i64, 0..15i64), 1..40),
        slide in prop_oneof![Just(10i64), Just(5), Just(30)],
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
    ) {
        let mut newest = -100;
        let mut inputs = Vec::new();
        let mut model: BTreeMap<(i64, u8), u64> = BTreeMap::new();
        for &(key, ahead, behind) in &records {
            newest += ahead;
            let time = newest - behind;
            inputs.push(Input::new(&1).key(&key.to_string()).at(at(time)).then_watermark(at(newest - 16)));
            let first = time.div_euclid(slide) * slide;
            for start in (0..6).map(|n| first - n * slide).filter(|start| time < start + 20) {
                *model.entry((start, key)).or_default() += 1;
            }
        }
        let mut test = sums(&format!(r#"{{"size":20,"slide":{slide}}}"#)).batches_of(size);
        let mut emits = test.process(inputs).unwrap();
        emits.extend(test.end_of_input().unwrap());
        let told: BTreeMap<(i64, u8), u64> = emits
            .iter()
            .map(|emit| {
                let (start, _, count, _): Told = emit.value().unwrap();
                ((start, emit.key::<&str>().unwrap().parse().unwrap()), count)
            })
            .collect();
        prop_assert_eq!(told.len(), emits.len(), "each window fires once");
        prop_assert_eq!(told, model);
    }
}

/// Times of the records of each session.
#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), timers)]
struct Visits {
    visits: Sessions<Times>,
    #[config(default = 0)]
    lateness: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Times(Vec<i64>);

impl crate::aggregate::Merge for Times {
    fn merge(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl Visits {
    fn gap(&self) -> Gap {
        Gap::of(Duration::from_millis(10)).lateness(Duration::from_millis(self.lateness))
    }
}

impl Process for Visits {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let gap = self.gap();
        let time = record.time().as_millis();
        let arrival = self.visits.update(ctx, &gap, |times| times.0.push(time))?;
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Visits {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let gap = self.gap();
        for (window, mut times) in self.visits.fire(ctx, &gap, &timer)? {
            times.0.sort_unstable();
            ctx.emit(&(window.start, window.end, times))?;
        }
        Ok(())
    }
}

/// Start, end and times.
type Visit = (i64, i64, Vec<i64>);

fn visits(emits: &[Emitted]) -> Vec<Visit> {
    emits.iter().filter(|emit| emit.output == "out").map(|emit| emit.value().unwrap()).collect()
}

#[test]
fn a_record_between_two_sessions_makes_one_of_them() {
    for size in [1, 1_024] {
        let mut test = Harness::<Visits>::new("{}").unwrap().batches_of(size);
        test.process([0, 18, 9, 40, 50].map(record)).unwrap();
        let expected = [(0, 28, vec![0, 9, 18]), (40, 50, vec![40]), (50, 60, vec![50])];
        assert_eq!(visits(&test.end_of_input().unwrap()), expected, "records a gap apart are of two sessions");
        assert_eq!((test.state_len("visits").unwrap(), test.timer_count()), (0, 0));
    }
}

#[test]
fn a_session_that_has_fired_grows_within_its_lateness_and_fires_again() {
    let mut test = Harness::<Visits>::new(r#"{"lateness":20}"#).unwrap();
    test.process([record(0)]).unwrap();
    assert_eq!(visits(&test.advance_watermark(at(15)).unwrap()), [(0, 10, vec![0])]);
    assert_eq!(late(&test.process([record(5)]).unwrap()), 0);
    assert_eq!(visits(&test.advance_watermark(at(16)).unwrap()), [(0, 15, vec![0, 5])]);
    assert_eq!(visits(&test.advance_watermark(at(33)).unwrap()), []);
    assert_eq!(late(&test.process([record(4)]).unwrap()), 0, "kept until 34");
    assert_eq!(visits(&test.advance_watermark(at(34)).unwrap()), [(0, 15, vec![0, 4, 5])]);
    assert_eq!(late(&test.process([record(4)]).unwrap()), 1);
    assert_eq!((test.state_len("visits").unwrap(), test.timer_count()), (0, 0));
}

#[test]
fn a_session_that_grows_leaves_the_timer_of_another_at_which_it_would_have_been_dropped() {
    let mut test = Harness::<Visits>::new(r#"{"lateness":20}"#).unwrap();
    test.process([record(0).then_watermark(at(15)), record(20), record(5)]).unwrap();
    let fired = visits(&test.advance_watermark(at(29)).unwrap());
    assert_eq!(fired, [(0, 15, vec![0, 5]), (20, 30, vec![20])]);
    test.advance_watermark(at(49)).unwrap();
    assert_eq!((test.state_len("visits").unwrap(), test.timer_count()), (0, 0));
}

proptest! {
    #[test]
    fn sessions_are_those_of_a_model_whatever_the_order_of_records(
        records in prop::collection::vec((0..20i64, 0..25i64), 1..40),
        lateness in prop_oneof![Just(0), Just(3), Just(30)],
        size in prop_oneof![Just(1usize), Just(7), Just(1_024)],
        renewed in any::<bool>(),
    ) {
        let mut newest = 0;
        let mut times = Vec::new();
        let mut inputs = Vec::new();
        for &(ahead, behind) in &records {
            newest += ahead;
            times.push(newest - behind);
            inputs.push(record(newest - behind).then_watermark(at(newest - 26)));
        }
        times.sort_unstable();
        let mut model: Vec<Visit> = Vec::new();
        for time in times {
            match model.last_mut().filter(|(_, end, _)| time < *end) {
                Some((_, end, times)) => {
                    *end = time + 10;
                    times.push(time);
                }
                None => model.push((time, time + 10, vec![time])),
            }
        }
        let mut test = Harness::<Visits>::new(&format!(r#"{{"lateness":{lateness}}}"#)).unwrap().batches_of(size);
        let (first, second) = inputs.split_at(inputs.len() / 2);
        let mut emits = test.process(first.iter().cloned()).unwrap();
        if renewed {
            test.renew().unwrap();
        }
        emits.extend(test.process(second.iter().cloned()).unwrap());
        emits.extend(test.end_of_input().unwrap());
        prop_assert_eq!(visits(&emits), model);
        prop_assert_eq!((test.state_len("visits").unwrap(), test.timer_count()), (0, 0));
    }
}
