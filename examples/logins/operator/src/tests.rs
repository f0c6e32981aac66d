//! Alerts, by hand.
//!
//! Owns no helper that others use.

use wasmill_guest::testing::{Emitted, Harness, Input};

use super::*;

#[derive(Deserialize)]
struct Seen {
    first: i64,
    last: i64,
    from: Vec<String>,
}

/// An attempt in a second, and whether it succeeded.
fn attempt(second: i64, ok: bool) -> Input {
    let attempt = Attempt { ok, from: second.to_string() };
    Input::new(&attempt).key("ada").at(at(second))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

/// First and last second of each alert.
fn alerts(emits: &[Emitted]) -> Vec<(i64, i64)> {
    let alerts = emits.iter().map(|emit| emit.value::<Seen>().unwrap());
    alerts.inspect(|seen| assert_eq!(seen.from.len(), 3)).map(|seen| (seen.first / 1_000, seen.last / 1_000)).collect()
}

#[test]
fn three_failures_within_five_minutes_are_told_once_whatever_order_they_come_in() {
    type Case = (&'static [(i64, bool)], &'static [(i64, i64)]);
    let cases: [Case; 5] = [
        (&[(300, false), (0, false), (10, false)], &[(0, 300)]),
        (&[(301, false), (0, false), (10, false)], &[]),
        (&[(301, false), (0, false), (10, false), (302, false)], &[(10, 302)]),
        (&[(1, false), (2, false), (3, false), (4, false), (5, false)], &[(1, 3)]),
        (&[(1, false), (4, false), (2, false), (3, true), (5, false)], &[]),
    ];
    for (attempts, expected) in cases {
        for size in [1, 2, 1024] {
            let mut test = Harness::<Logins>::new("{}").unwrap().batches_of(size);
            test.process(attempts.iter().map(|&(second, ok)| attempt(second, ok))).unwrap();
            assert_eq!(alerts(&test.end_of_input().unwrap()), expected, "{attempts:?}");
            assert_eq!((test.row_count("attempts").unwrap(), test.state_len("arrived").unwrap()), (0, 0));
            assert_eq!(test.timer_count(), 0);
        }
    }
}

#[test]
fn failures_are_kept_no_longer_than_they_can_count() {
    let mut test = Harness::<Logins>::new("{}").unwrap();
    test.process([attempt(0, false), attempt(1, false)]).unwrap();
    for (second, rows) in [(299, 2), (300, 1), (301, 0)] {
        test.advance_watermark(at(second)).unwrap();
        assert_eq!(test.row_count("attempts").unwrap(), rows, "at second {second}");
    }
    assert_eq!(test.process([attempt(301, false)]).unwrap()[0].output, "late");
}
