//! Visits, by hand.
//!
//! Owns no helper that others use.

use wasmill_guest::testing::{Emitted, Harness, Input};

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct Seen {
    start: i64,
    end: i64,
    clicks: u64,
    entry: String,
}

/// A click of `ada` in a minute.
fn click(minute: i64, page: &str) -> Input {
    #[derive(Serialize)]
    struct Row<'a> {
        page: &'a str,
    }
    Input::new(&Row { page }).key("ada").at(at(minute))
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(minute * 60_000)
}

/// Start, end, clicks and entry of the visits, in minutes.
fn visits(emits: &[Emitted]) -> Vec<(i64, i64, u64, String)> {
    let visits = emits.iter().filter(|emit| emit.output == "visits").map(|emit| emit.value::<Seen>().unwrap());
    visits.map(|seen| (seen.start / 60_000, seen.end / 60_000, seen.clicks, seen.entry)).collect()
}

#[test]
fn a_click_between_two_visits_makes_them_one() {
    for size in [1, 2, 1024] {
        let mut test = Harness::<Visits>::new("{}").unwrap().batches_of(size);
        test.process([click(50, "b"), click(-10, "a"), click(21, "c"), click(80, "d")]).unwrap();
        let emits = test.end_of_input().unwrap();
        let expected = [(-10, 20, 1, "a".to_owned()), (21, 80, 2, "c".to_owned()), (80, 110, 1, "d".to_owned())];
        assert_eq!(visits(&emits), expected, "thirty minutes apart is another visit");
        assert_eq!(test.state_len("visits").unwrap(), 0);
    }
}

#[test]
fn a_late_click_is_set_aside_or_corrects_a_visit_within_the_lateness() {
    for (config, corrected) in [("{}", false), (r#"{"lateness-minutes": 60}"#, true)] {
        let mut test = Harness::<Visits>::new(config).unwrap();
        test.process([click(0, "a")]).unwrap();
        assert_eq!(visits(&test.advance_watermark(at(40)).unwrap()).len(), 1);
        let mut emits = test.process([click(5, "b")]).unwrap();
        assert_eq!(emits.iter().any(|emit| emit.output == "late"), !corrected);
        emits.extend(test.end_of_input().unwrap());
        let again = [(0, 35, 2, "a".to_owned())];
        assert_eq!(visits(&emits), if corrected { &again[..] } else { &[] });
    }
}
