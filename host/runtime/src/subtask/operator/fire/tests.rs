//! When timers fire, in which order, and what becomes of those that fail or never end. Owns no rule.

use super::*;
use crate::config::operator::OnFailure;
use crate::subtask::operator::failure::tests::{
    AGAIN, BATCHES, DELETE_NEXT, HOURLY, PANIC, REJECT, Ran, run as run_script, with,
};

/// Runs the records with batches of several sizes, which must not matter but to the order across keys within a round.
fn run_as(policy: OnFailure, records: &[&str]) -> Ran {
    let mut runs = BATCHES.map(|batch| run_script(&with(policy, batch), records)).into_iter();
    let first = runs.next().unwrap();
    for other in runs {
        assert_eq!(by_key(&other.out), by_key(&first.out));
        assert_eq!(other.result.is_ok(), first.result.is_ok());
    }
    first
}

/// What came between two watermarks, by key.
fn by_key(out: &[String]) -> Vec<Vec<&String>> {
    let between = out.split_inclusive(|line| line.starts_with('@'));
    between
        .map(|lines| {
            let mut lines: Vec<_> = lines.iter().collect();
            lines.sort_by_key(|line| line.as_bytes()[0]);
            lines
        })
        .collect()
}

fn run(records: &[&str]) -> Vec<String> {
    let ran = run_as(OnFailure::Fail, records);
    ran.result.unwrap();
    ran.out
}

#[test]
fn t1_a_timer_in_the_past_fires_at_the_next_advance_and_one_set_twice_fires_once() {
    let sets = "a:set 9999 0,set 10000 0,set 10001 0,set 20000 0,set 20000 0,set 20000 0,del 10001 0";
    for next in [10_001, 20_000] {
        let (steps, mut fired) = ([format!("@{next}"), "@20000".to_owned()], Vec::new());
        let out = run(&["@10000", sets, "b:x", &steps[0], &steps[1]]);
        fired.extend(out.iter().filter(|line| line.contains('!')).cloned());
        let expected = ["a!9999", "a!10000", "a!20000"].map(|timer| timer.to_owned());
        assert_eq!(fired.iter().map(|line| line.split('@').next().unwrap().to_owned()).collect::<Vec<_>>(), expected);
        assert!(fired[0].ends_with(&format!("@{next}")), "at the next advance, whatever its step: {fired:?}");
    }
}

#[test]
fn what_a_timer_emits_comes_before_later_records_and_before_the_watermark_that_made_it_due() {
    let out = run(&["@10", "a:set 50 0", "@40", "b:x", "@100", "c:x", "a:x", "@200"]);
    let expected = ["@10", "a=1@10", "@40", "b=1@40", "a!50@100", "@100", "c=1@100", "a=2@100", "@200"];
    assert_eq!(out, expected);
}

#[test]
fn a_record_may_set_a_timer_that_is_due_before_the_next_record() {
    let out = run(&["a:set 1 0", "@5", "a:set 6 0", "@6", "a:set 2 0", "@7", "b:x"]);
    assert_eq!(out[1..], ["a!1@5", "@5", "a=2@5", "a!6@6", "@6", "a=3@6", "a!2@7", "@7", "b=1@7"]);
}

#[test]
fn a_timer_set_before_a_batch_was_split_fires_before_the_later_records_that_follow_its_time() {
    let out = run(&["a:set 50 0", "b:set 5 0", "@5", "c:x", "@40", "b:x", "@50", "a:x", "@60"]);
    let expected = ["b!5@5", "@5", "c=1@5", "@40", "b=2@40", "a!50@50", "@50", "a=2@50", "@60"];
    assert_eq!(out[2..], expected);
}

#[test]
fn each_keys_timers_fire_in_their_order() {
    let out = run(&["a:set 3 0,set 1 0,set 2 9,set 2 1", "b:set 2 0", "@9"]);
    let of = |key: &str| {
        let fired = out.iter().filter(|line| line.starts_with(&format!("{key}!")));
        fired.map(|line| line[2..3].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((of("a"), of("b")), (vec!["1".to_owned(), "2".into(), "2".into(), "3".into()], vec!["2".to_owned()]));
}

#[test]
fn t5_a_firing_may_delete_a_later_timer_of_its_key_that_is_due_too() {
    let sets = format!("a:set 5 {DELETE_NEXT},set 6 0,set 7 0");
    let out = run(&[&sets, "@9"]);
    let fired: Vec<_> = out.iter().filter(|line| line.contains('!')).collect();
    assert_eq!(fired, ["a!5@9", "a!7@9"]);
}

#[test]
fn t5_a_timer_deleted_and_set_again_in_one_call_fires_once() {
    let out = run(&["a:set 5 0", "a:del 5 0,set 5 0", "@9", "@10"]);
    assert_eq!(out.iter().filter(|line| line.contains('!')).collect::<Vec<_>>(), ["a!5@9"]);
}

#[test]
fn a_timer_that_sets_itself_without_an_end_is_a_fault() {
    let again = format!("a:set 5 {AGAIN}");
    let ran = run_as(OnFailure::Drop, &["b:x", &again, "@9"]);
    let fault = ran.result.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Guest);
    assert!(fault.message.contains("the timer with key `a`") && fault.message.contains("1000 times"), "{fault}");
}

#[test]
fn an_hourly_timer_ends_with_the_input() {
    let hourly = format!("a:set 0 {HOURLY}");
    let end = format!("@{}", Timestamp::MAX.as_millis());
    let ran = run_as(OnFailure::Fail, &[&hourly, "@3600000", &end]);
    ran.result.as_ref().unwrap();
    let fired = ran.out.iter().filter(|line| line.contains('!')).count();
    assert_eq!(fired, 2 + 1_001);
    assert_eq!(ran.out.last(), Some(&end));
    assert_eq!(ran.of(&ran.meter.dropped, DropReason::TimerAtEnd), 1);
}

#[test]
fn a_timer_at_fault_is_dropped_alone() {
    for (tag, reason) in [(PANIC, DropReason::Trap), (REJECT, DropReason::Rejected)] {
        let bad = format!("b:set 5 {tag}");
        let records = ["a:set 5 0", &bad, "c:set 5 0", "@9"];
        let ran = run_as(OnFailure::Drop, &records);
        ran.result.as_ref().unwrap();
        let fired: Vec<_> = ran.out.iter().filter(|line| line.contains('!')).collect();
        assert_eq!(fired, ["a!5@9", "c!5@9"]);
        assert_eq!(ran.of(&ran.meter.dropped, reason), 1);
        let fault = run_as(OnFailure::Fail, &records).result.unwrap_err();
        assert!(fault.message.contains("key `b`"), "{fault}");
    }
}

#[test]
fn a_search_for_a_timer_at_fault_is_counted_with_its_calls() {
    let bad = format!("b:set 5 {PANIC}");
    let counted = |records: &[&str]| {
        let meter = run_script(&with(OnFailure::Drop, 1024), records).meter;
        (meter.isolations, meter.reruns, meter.calls)
    };
    assert_eq!(counted(&["a:set 5 0", &bad, "c:set 5 0", "@9"]), (1, 3, 1 + 1 + 3));
    assert_eq!(counted(&[&bad, "@9"]), (1, 0, 2), "one that stands alone is not called again");
    assert_eq!(counted(&["a:set 5 0", "c:set 5 0", "@9"]), (0, 0, 2));
}

#[test]
fn an_instance_past_the_mark_is_replaced_between_rounds_too() {
    let mut setting = with(OnFailure::Fail, 1024);
    setting.renew_above = Some(3);
    let sets = "a:pset 1 0,pset 2 0,pset 3 0,pset 4 0,pset 5 0,pset 6 0";
    // One record and three timers pass the mark, then three timers more leave it as it is.
    assert_eq!(run_script(&setting, &[sets]).meter.renewals, [(Renewal::Failure, 0), (Renewal::Memory, 1)]);
}

#[test]
fn processing_timers_fire_by_the_clock_and_end_with_the_input() {
    let soon = "a:pset 5 0,pset 3 0";
    let out = run(&[soon, "@7", "b:x"]);
    assert_eq!(out[3..], ["a!3@7", "a!5@7"], "after what was gathered, in order: {out:?}");
    let later = format!("a:pset {} 0", Timestamp::MAX.as_millis() - 1);
    let end = format!("@{}", Timestamp::MAX.as_millis());
    let ran = run_as(OnFailure::Fail, &[&later, &end]);
    ran.result.as_ref().unwrap();
    assert_eq!(ran.of(&ran.meter.dropped, DropReason::TimerAtEnd), 1);
}
