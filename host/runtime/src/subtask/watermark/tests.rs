//! What a source's watermarks promise, by case and by random times.

use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::*;

const ASCENDING: Strategy = Strategy::Times(Duration::ZERO);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn batch(times: impl IntoIterator<Item = i64>) -> RecordBatch {
    let mut batch = RecordBatch::default();
    times.into_iter().for_each(|time| batch.push(None, at(time), None));
    batch
}

fn marks(batch: &RecordBatch) -> Vec<(u32, i64)> {
    batch.marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect()
}

fn watermark(strategy: Strategy, idle: Option<Duration>, splits: usize) -> SourceWatermark {
    let mut watermark = SourceWatermark::new(strategy, idle);
    watermark.open(splits, |_| None);
    watermark
}

/// The marks of one split, by the number of records before them, when it is read in batches of `size`.
fn positions(strategy: Strategy, times: &[i64], said: &[(usize, i64)], size: usize) -> Vec<(u32, i64)> {
    let mut watermark = watermark(strategy, None, 1);
    let mut all = Vec::new();
    for (index, chunk) in times.chunks(size).enumerate() {
        let first = index * size;
        let mut batch = batch(chunk.iter().copied());
        let here = said.iter().filter(|(after, _)| (first + 1..=first + chunk.len()).contains(after));
        batch.marks =
            here.map(|&(after, to)| WatermarkMark { after: (after - first) as u32, watermark: at(to) }).collect();
        watermark.observe(0, &mut batch, Duration::ZERO);
        all.extend(marks(&batch).iter().map(|(after, mark)| (first as u32 + after, *mark)));
    }
    all
}

#[test]
fn marks_do_not_depend_on_where_batches_end() {
    let times: Vec<i64> = (0..5_000).map(|i| i * 7 % 4_001).collect();
    let said: Vec<_> = (1..5_000).step_by(37).map(|after| (after, after as i64 * 3 % 9_000)).collect();
    for strategy in [Strategy::Times(Duration::from_millis(10)), Strategy::Marks] {
        let positions = |size| positions(strategy, &times, &said, size);
        assert_eq!(positions(1), positions(5_000));
        assert_eq!(positions(7), positions(1024));
        assert!(positions(1).len() > 10);
    }
}

#[test]
fn a_record_says_the_watermark_that_follows_it_but_never_the_end_of_time() {
    let said = [(1, 999), (2, 500), (3, i64::MAX)];
    assert_eq!(positions(Strategy::Marks, &[5_000, 1, 2], &said, 3), [(1, 999), (3, Timestamp::MAX.as_millis() - 1)]);
    assert_eq!(positions(ASCENDING, &[1_000], &[(1, 7)], 1), [(1, 999)]);
    assert_eq!(positions(Strategy::None, &[1_000, 9_000], &[(1, 7)], 2), []);
}

#[test]
fn a_silent_split_holds_time_back_until_it_is_idle() {
    let mut watermark = watermark(ASCENDING, Some(secs(5)), 2);
    watermark.waiting(Duration::ZERO, |split| split == 1);
    let mut records = batch([1_000]);
    watermark.observe(0, &mut records, secs(4));
    assert_eq!(marks(&records), []);
    assert_eq!(watermark.slowest(secs(4)), Some((1, Timestamp::MIN)));
    watermark.waiting(secs(4), |_| true);
    assert_eq!(watermark.look_around(secs(5)), Some(at(999)));
    assert!(!watermark.all_idle(secs(8)));
    assert!(watermark.all_idle(secs(9)));
}

#[test]
fn without_an_idle_timeout_a_silent_split_is_named_for_ever() {
    let mut watermark = watermark(ASCENDING, None, 2);
    watermark.waiting(Duration::ZERO, |split| split == 1);
    watermark.observe(0, &mut batch([1_000]), Duration::ZERO);
    assert_eq!(watermark.look_around(secs(1_000_000)), None);
    assert_eq!(watermark.slowest(secs(1_000_000)), Some((1, Timestamp::MIN)));
}

#[test]
fn a_split_that_was_not_looked_at_while_the_source_waited_is_not_idle() {
    let mut watermark = watermark(ASCENDING, Some(secs(5)), 2);
    watermark.waiting(secs(1), |split| split == 1);
    watermark.paused(secs(60));
    assert_eq!(watermark.look_around(secs(61)), None);
    watermark.observe(0, &mut batch([1_000]), secs(61));
    assert_eq!(watermark.look_around(secs(65)), None);
    assert_eq!(watermark.look_around(secs(66)), Some(at(999)));
}

#[test]
fn a_restored_split_goes_on_as_if_it_had_not_stopped() {
    let times: Vec<i64> = (0..3_000).map(|i| i * 31 % 2_003).collect();
    let strategy = Strategy::Times(Duration::from_millis(50));
    let whole = positions(strategy, &times, &[], 100);
    for cut in [1, 333, 1_500, 2_999] {
        let mut before = watermark(strategy, None, 1);
        let mut first = batch(times[..cut].iter().copied());
        before.observe(0, &mut first, Duration::ZERO);
        let (watermark, latest, since) = before.of_split(0).unwrap();
        let position = serde_json::Value::Null;
        let stored = manifest::Split { split: "a".to_owned(), position, watermark, latest, since };
        let mut after = SourceWatermark::new(strategy, None);
        after.open(1, |_| Some(&stored));
        // What was sent before is said again, and nothing is late that was not.
        assert_eq!(after.look_around(Duration::ZERO), Some(watermark).filter(|at| *at > Timestamp::MIN));
        let mut second = batch(times[cut..].iter().copied());
        after.observe(0, &mut second, Duration::ZERO);
        let second = marks(&second).into_iter().map(|(after, mark)| (after + cut as u32, mark));
        assert_eq!(marks(&first).into_iter().chain(second).collect::<Vec<_>>(), whole, "cut at {cut}");
    }
}

proptest! {
    /// Any times, the ends of the range among them: marks rise, and by a bound no record breaks, no record is late.
    #[test]
    fn marks_rise_and_never_overtake_a_record_within_the_bound(
        times in prop::collection::vec(prop_oneof![any::<i64>(), -500i64..500, Just(i64::MIN), Just(i64::MAX)], 1..200),
        out_of_order in prop_oneof![any::<Duration>(), (0u64..300).prop_map(Duration::from_millis)],
    ) {
        let mut watermark = watermark(Strategy::Times(out_of_order), None, 1);
        let mut records = batch(times.iter().copied());
        watermark.observe(0, &mut records, Duration::ZERO);
        prop_assert!(records.marks.is_sorted_by(|a, b| a.watermark < b.watermark && a.after < b.after));
        prop_assert!(records.marks.iter().all(|mark| mark.watermark < Timestamp::MAX));
        let mut latest = Timestamp::MIN;
        for (index, &time) in records.times.iter().enumerate() {
            let before = records.marks.partition_point(|mark| mark.after as usize <= index);
            let in_force = records.marks[..before].last().map_or(Timestamp::MIN, |mark| mark.watermark);
            let within = time >= latest.minus(out_of_order);
            prop_assert!(!within || !time.is_late(in_force), "{time} is late at {in_force}");
            latest = latest.max(time);
        }
    }
}
