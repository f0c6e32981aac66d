//! What patterns promise: matches in order of time, and what a skip rule leaves.
//!
//! Owns no helper that others use.

use super::*;
use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};

/// Emits "ab" for each a followed by b. An event's role is its first letter.
#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), timers)]
struct Follow {
    pattern: Pattern<String>,
    #[config(default = "nothing".to_owned())]
    skip: String,
    #[config(default = 10)]
    seconds: u64,
}

impl Process for Follow {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let event: String = record.value()?;
        let role = match event.as_bytes().first() {
            Some(b'a') => Role::First,
            Some(b'b') => Role::Second,
            _ => Role::Both,
        };
        if self.pattern.add(ctx, role, event)?.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Follow {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let skip = match self.skip.as_str() {
            "past-last" => Skip::PastLast,
            "to-next" => Skip::ToNext,
            _ => Skip::Nothing,
        };
        let pattern = Within::of(Duration::from_secs(self.seconds)).skip(skip);
        self.pattern.fire(ctx, pattern, &timer, |ctx, (_, first), (_, second)| ctx.emit(&format!("{first}{second}")))
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn event(what: &str, second: i64) -> Input {
    Input::new(what).key("k").at(at(second))
}

fn told(emits: &[Emitted]) -> Vec<String> {
    emits.iter().filter(|emit| emit.output == "out").map(|emit| emit.value().unwrap()).collect()
}

fn follow(skip: &str) -> Harness<Follow> {
    Harness::new(&serde_json::json!({ "skip": skip }).to_string()).unwrap()
}

#[test]
fn e11_a_skip_rule_says_what_a_match_uses_up_and_ties_stay_in_order_over_a_restore() {
    let cases = [
        ("nothing", vec!["a1b1", "a2b1", "a1b2", "a2b2"]),
        ("past-last", vec!["a1b1"]),
        ("to-next", vec!["a1b1", "a2b1"]),
    ];
    for (skip, expected) in cases {
        for size in [1, 1_024] {
            for restored_before in 0..4 {
                let mut test = follow(skip).batches_of(size);
                let mut emits = Vec::new();
                for (n, (what, second)) in [("a1", 1), ("a2", 1), ("b1", 1), ("b2", 2)].into_iter().enumerate() {
                    if n == restored_before {
                        test.renew().unwrap();
                    }
                    emits.extend(test.process([event(what, second)]).unwrap());
                }
                emits.extend(test.end_of_input().unwrap());
                assert_eq!(told(&emits), expected, "{skip}");
                assert_eq!(test.timer_count(), 0);
                for state in ["pattern.waiting", "pattern.queue", "pattern.open"] {
                    assert_eq!(test.row_count(state).unwrap(), 0);
                }
            }
        }
    }
}

#[test]
fn events_match_in_order_of_time_whatever_order_they_came_in() {
    for size in [1, 1_024] {
        let mut test = follow("nothing").batches_of(size);
        let events = [("b1", 20), ("b2", 5), ("a1", 10), ("b3", 21), ("a2", 4), ("b4", 4)];
        let mut emits = test.process(events.map(|(what, second)| event(what, second))).unwrap();
        emits.extend(test.end_of_input().unwrap());
        assert_eq!(told(&emits), ["a2b4", "a2b2", "a1b1"], "the second follows within ten seconds, the tenth included");
    }
}

#[test]
fn an_event_of_both_roles_is_not_matched_with_itself_and_begins_no_match_past_which_is_skipped() {
    let run = |skip: &str| {
        let mut test = follow(skip);
        let mut emits = test.process([1, 2, 3, 4].map(|second| event(&format!("x{second}"), second))).unwrap();
        emits.extend(test.end_of_input().unwrap());
        told(&emits)
    };
    assert_eq!(run("nothing"), ["x1x2", "x1x3", "x2x3", "x1x4", "x2x4", "x3x4"]);
    assert_eq!(run("to-next"), ["x1x2", "x2x3", "x3x4"]);
    assert_eq!(run("past-last"), ["x1x2", "x3x4"]);
}

#[test]
fn a_first_event_is_kept_no_longer_than_it_can_be_followed() {
    let mut test = follow("nothing");
    test.process([event("a1", 1)]).unwrap();
    test.advance_watermark(Timestamp::from_millis(10_999)).unwrap();
    assert_eq!(test.row_count("pattern.open").unwrap(), 1);
    test.advance_watermark(at(11)).unwrap();
    assert_eq!((test.row_count("pattern.open").unwrap(), test.timer_count()), (0, 0));
    let emits = test.process([event("b1", 11)]).unwrap();
    assert_eq!(emits[0].output, "late");
}

#[test]
fn a_first_event_goes_in_its_time_when_a_version_changed_the_time_within() {
    for (before, after) in [(10, 60), (60, 10)] {
        let mut test = Harness::<Follow>::new(&serde_json::json!({ "seconds": before }).to_string()).unwrap();
        test.process([event("a1", 1), event("a2", 5)]).unwrap();
        test.advance_watermark(at(6)).unwrap();
        test.reconfigure(&serde_json::json!({ "seconds": after }).to_string()).unwrap();
        test.advance_watermark(at(65)).unwrap();
        assert_eq!((test.row_count("pattern.open").unwrap(), test.timer_count()), (0, 0), "{before} to {after}");
    }
}
