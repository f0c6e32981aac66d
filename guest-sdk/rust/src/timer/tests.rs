//! What timers promise: once, in order, in rounds, and the same with batches of any size.
//!
//! Owns no helper that others use.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};
use crate::types::FaultKind;

/// Sets and deletes the timers that a record names, and tells which fire.
#[derive(Operator)]
#[operator(key = String, timers(list))]
struct Timers {
    counted: Value<u32>,
    on_fire: Map<u32, Vec<Step>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
enum Step {
    Set(i64, u32),
    Delete(i64, u32),
    SetProcessing(i64, u32),
    DeleteProcessing(i64, u32),
    /// What to do when a timer with the tag fires.
    OnFire(u32, Vec<Step>),
    Count,
    Clear,
    List,
    Reject,
}

/// A timer or list of timers as told.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Told {
    Fired(bool, i64, u32, Option<u32>),
    Listed(Vec<(bool, i64, u32)>),
}

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

impl Timers {
    fn step(&mut self, step: Step, ctx: &mut Context<'_>) -> Result {
        match step {
            Step::Set(time, tag) => ctx.set_timer(at(time), tag),
            Step::Delete(time, tag) => ctx.delete_timer(at(time), tag),
            Step::SetProcessing(time, tag) => ctx.set_processing_timer(at(time), tag),
            Step::DeleteProcessing(time, tag) => ctx.delete_processing_timer(at(time), tag),
            Step::OnFire(tag, steps) => self.on_fire.insert(ctx, &tag, steps),
            Step::Count => self.counted.update(ctx, |count| *count += 1).map(drop),
            Step::Clear => self.counted.clear(ctx),
            Step::List => {
                let list = ctx.timers()?.into_iter();
                let list = list.map(|id| (id.domain == super::Domain::Processing, id.time.as_millis(), id.tag));
                ctx.emit(&Told::Listed(list.collect()))
            }
            Step::Reject => Err(Error::reject("as told")),
        }
    }
}

impl Process for Timers {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        record.value::<Vec<Step>>()?.into_iter().try_for_each(|step| self.step(step, ctx))
    }
}

impl OnTimer for Timers {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let processing = timer.domain() == super::Domain::Processing;
        let count = self.counted.get(ctx)?;
        ctx.emit(&Told::Fired(processing, timer.time().as_millis(), timer.tag(), count))?;
        let steps = self.on_fire.get(ctx, &timer.tag())?.unwrap_or_default();
        steps.into_iter().try_for_each(|step| self.step(step, ctx))
    }
}

fn harness() -> Harness<Timers> {
    Harness::new("{}").unwrap()
}

fn script(key: &str, steps: Vec<Step>) -> Input {
    Input::new(&steps).key(key)
}

fn told(emits: &[Emitted]) -> Vec<Told> {
    emits.iter().map(|emit| emit.value().unwrap()).collect()
}

/// The times of event timers that fired.
fn fired(emits: &[Emitted]) -> Vec<i64> {
    let time = |told| match told {
        Told::Fired(_, time, ..) => Some(time),
        Told::Listed(_) => None,
    };
    told(emits).into_iter().filter_map(time).collect()
}

#[test]
fn t1_past_timers_fire_once_at_the_next_advance_in_order_and_setting_thrice_is_one() {
    for size in [1, 1_024] {
        for step in [1, 10, 10_000] {
            let mut test = harness().batches_of(size);
            test.advance_watermark(at(10_000)).unwrap();
            let set = |time| Step::Set(time, 0);
            let sets = vec![set(9_999), set(10_000), set(10_001), set(20_000), set(20_000), set(20_000)];
            let delete = vec![Step::Delete(10_001, 0)];
            let both = sets.into_iter().chain(delete).collect();
            assert_eq!(test.process([script("a", both)]).unwrap(), [], "no timer fires within the call that sets it");
            assert_eq!(fired(&test.advance_watermark(at(10_000)).unwrap()), [0i64; 0], "nor without an advance");
            let mut all = Vec::new();
            let mut first_advance = None;
            for watermark in (10_000 + step..=20_000).step_by(step as usize) {
                let emits = test.advance_watermark(at(watermark)).unwrap();
                first_advance = first_advance.or(Some(fired(&emits).len()));
                all.extend(fired(&emits));
            }
            assert_eq!(all, [9_999, 10_000, 20_000]);
            assert!(first_advance >= Some(2), "both past ones fire at the next advance, whatever its step");
            assert_eq!(test.timer_count(), 0);
        }
    }
}

#[test]
fn t5_a_timer_fires_over_state_that_is_gone() {
    // Clear the state before it fires; delete and set again; delete; delete its own time while it fires.
    let own_time = vec![Step::OnFire(1, vec![Step::Delete(60_000, 1)])];
    let cases: [(Vec<Step>, Vec<Told>); 4] = [
        (vec![Step::Clear], vec![Told::Fired(false, 60_000, 1, None)]),
        (vec![Step::Delete(60_000, 1), Step::Set(60_000, 1)], vec![Told::Fired(false, 60_000, 1, Some(1))]),
        (vec![Step::Delete(60_000, 1)], vec![]),
        (own_time, vec![Told::Fired(false, 60_000, 1, Some(1))]),
    ];
    for (steps, expected) in cases {
        for one_record in [false, true] {
            let mut test = harness();
            let begin = vec![Step::Count, Step::Set(60_000, 1)];
            if one_record {
                test.process([script("a", begin.into_iter().chain(steps.clone()).collect())]).unwrap();
            } else {
                test.process([script("a", begin)]).unwrap();
                test.renew().unwrap();
                test.process([script("a", steps.clone())]).unwrap();
            }
            assert_eq!(told(&test.advance_watermark(at(70_000)).unwrap()), expected);
            assert_eq!(test.timer_count(), 0);
        }
    }
}

#[test]
fn due_timers_fire_in_rounds_and_a_firing_may_delete_set_and_rearm() {
    for size in [1, 1_024] {
        let mut test = harness().batches_of(size);
        let on_first = vec![Step::Delete(20, 0), Step::Set(15, 2), Step::Set(99, 0), Step::Count];
        let steps = vec![Step::OnFire(1, on_first), Step::Set(30, 0), Step::Set(20, 0), Step::Set(10, 1)];
        test.process([script("a", steps), script("b", vec![Step::Set(12, 0)])]).unwrap();
        let emits = test.advance_watermark(at(50)).unwrap();
        let of = |key: &str| {
            let own: Vec<Emitted> = emits.iter().filter(|emit| emit.key::<&str>() == Some(key)).cloned().collect();
            told(&own)
        };
        assert_eq!(
            of("a"),
            [Told::Fired(false, 10, 1, None), Told::Fired(false, 15, 2, Some(1)), Told::Fired(false, 30, 0, Some(1)),]
        );
        assert_eq!(of("b"), [Told::Fired(false, 12, 0, None)]);
        assert_eq!(emits[0].time, at(10), "an emit has its timer's time");
        assert_eq!(test.timers("a").unwrap()[0].time, at(99));
    }
}

#[test]
fn processing_timers_fire_by_the_clock_and_are_dropped_at_the_end_of_input() {
    let mut test = harness();
    let steps = vec![
        Step::SetProcessing(5_000, 0),
        Step::SetProcessing(10_000, 0),
        Step::SetProcessing(7_000, 0),
        Step::DeleteProcessing(7_000, 0),
        Step::Set(5_000, 0),
    ];
    test.process([script("a", steps)]).unwrap();
    let emits = test.advance_processing_time(at(9_000)).unwrap();
    assert_eq!(told(&emits), [Told::Fired(true, 5_000, 0, None)]);
    assert_eq!(told(&test.end_of_input().unwrap()), [Told::Fired(false, 5_000, 0, None)]);
    assert_eq!((test.timer_count(), test.dropped_timers()), (0, 1));
}

#[test]
fn a_refused_records_timers_are_undone_and_a_refused_timer_is_gone() {
    for size in [1, 1_024] {
        let mut test = harness().batches_of(size);
        let refused = vec![Step::Set(10, 0), Step::Delete(20, 0), Step::Reject];
        let rejecting = vec![Step::OnFire(7, vec![Step::Set(40, 0), Step::Count, Step::Reject]), Step::Set(15, 7)];
        test.process([script("a", vec![Step::Set(20, 0)]), script("a", refused), script("a", rejecting)]).unwrap();
        assert_eq!(fired(&test.advance_watermark(at(30)).unwrap()), [20]);
        assert_eq!(test.timer_rejects()[0].timer.tag, 7);
        assert_eq!((test.timer_count(), test.state_len("counted").unwrap()), (0, 0));
    }
}

#[test]
fn the_list_of_timers_shows_those_before_the_call_and_the_calls_own() {
    for size in [1, 1_024] {
        let mut test = harness().batches_of(size);
        test.process([script("a", (0..1_500).map(|n| Step::Set(n, 0)).collect())]).unwrap();
        let records = [
            script("b", vec![Step::Set(1, 1)]),
            script("a", vec![Step::Delete(1_000, 0), Step::SetProcessing(3, 3), Step::Set(-5, 9), Step::List]),
        ];
        let emits = test.process(records).unwrap();
        let Told::Listed(list) = &told(&emits)[0] else { panic!("a list") };
        assert_eq!(list.len(), 1_501);
        assert_eq!((list[0], list[1_500]), ((false, -5, 9), (true, 3, 3)));
        assert!(!list.contains(&(false, 1_000, 0)));
        test.process([script("b", vec![Step::OnFire(1, vec![Step::Set(50, 0), Step::List])])]).unwrap();
        let emits: Vec<Emitted> =
            test.advance_watermark(at(1)).unwrap().into_iter().filter(|emit| emit.key::<&str>() == Some("b")).collect();
        assert_eq!(told(&emits)[1], Told::Listed(vec![(false, 50, 0)]), "what fires is gone");
    }
}

#[test]
fn a_timer_set_over_and_over_is_a_fault_but_at_the_end_of_time_is_dropped() {
    let again = || script("a", vec![Step::OnFire(0, vec![Step::Set(5, 0)]), Step::Set(5, 0)]);
    let mut test = harness();
    test.process([again()]).unwrap();
    let fault = test.advance_watermark(at(10)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Fatal);
    let mut test = harness();
    test.process([again(), script("b", vec![Step::Set(7, 0)])]).unwrap();
    let emits = test.end_of_input().unwrap();
    assert_eq!(emits.len(), 1_002);
    assert_eq!((test.timer_count(), test.dropped_timers()), (0, 1));
}

#[test]
fn timers_at_the_ends_of_time_are_ordinary() {
    let mut test = harness();
    let ends = [i64::MIN, i64::MAX, -1].map(|time| Step::Set(time, 0));
    test.process([script("a", ends.to_vec())]).unwrap();
    assert_eq!(fired(&test.advance_watermark(at(0)).unwrap()), [Timestamp::MIN.as_millis(), -1]);
    assert_eq!(fired(&test.end_of_input().unwrap()), [Timestamp::MAX.as_millis()]);
}

#[test]
fn timers_are_declared_or_refused() {
    #[derive(Operator)]
    struct Undeclared;
    impl Process for Undeclared {
        fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
            if record.value_bytes().is_some() { ctx.timers().map(drop) } else { ctx.set_timer(at(1), 0) }
        }
    }
    assert!(!Undeclared::describe().lists_timers && Timers::describe().lists_timers);
    let mut test = Harness::<Undeclared>::new("{}").unwrap();
    for (input, attribute) in [(Input::absent(), "timers"), (Input::new(&1), "timers(list)")] {
        let fault = test.process([input.key("a")]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Fatal);
        assert!(fault.message.contains(&format!("#[operator({attribute})]")), "{}", fault.message);
    }
}

proptest! {
    #[test]
    fn what_fires_does_not_depend_on_the_batch_size(
        records in prop::collection::vec((0..3u8, 0..4i64, 0..3i64, 0..20i64, 0..4u8), 1..40),
        size in 1..9usize,
    ) {
        let run = |size: usize| {
            let mut test = harness().batches_of(size);
            let mut newest = -10;
            // None is late: a late one's past timers fire at the next advance, which may lie in the batch or behind it.
            let inputs = records.iter().map(|&(key, ahead, behind, step, kind)| {
                newest += ahead;
                let time = newest - behind;
                let set = Step::Set(time + step, u32::from(kind) % 2);
                let steps = match kind {
                    0 => vec![Step::Count, set],
                    1 => vec![Step::OnFire(1, vec![Step::Set(time + 2 * step, 0), Step::Count]), set],
                    2 => vec![Step::Delete(time, 0), set, Step::List],
                    _ => vec![Step::Count, set, Step::Reject],
                };
                script(&key.to_string(), steps).at(at(time)).then_watermark(at(newest - 3))
            });
            let mut emits = test.process(inputs).unwrap();
            emits.extend(test.end_of_input().unwrap());
            // Across keys there is no order.
            emits.sort_by(|a, b| a.key.cmp(&b.key));
            emits
        };
        let whole = run(1_024);
        prop_assert_eq!(run(1), whole.clone());
        prop_assert_eq!(run(size), whole);
    }
}
