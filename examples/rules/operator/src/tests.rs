//! Alerts, by hand.
//!
//! Owns no helper that others use.

use wasmill_guest::testing::{Emitted, Harness, Input};

use super::*;

/// A transaction of `ada` in a minute.
fn spend(minute: i64, cents: u64) -> Input {
    Input::new(&BTreeMap::from([("cents", cents)])).key("ada").at(at(minute))
}

/// What the rule `limit` says from a minute on.
fn rule(minute: i64, over: Option<u64>, minutes: u64) -> Input {
    #[derive(Serialize)]
    struct Told {
        rule: &'static str,
        over: Option<u64>,
        minutes: u64,
    }
    Input::new(&Told { rule: "limit", over, minutes }).at(at(minute)).on(RULES)
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(minute * 60_000)
}

/// Minute and cents of each alert.
fn alerts(emits: &[Emitted]) -> Vec<(i64, u64)> {
    #[derive(Deserialize)]
    struct Seen {
        at: i64,
        cents: u64,
    }
    let alerts = emits.iter().map(|emit| emit.value::<Seen>().unwrap());
    alerts.map(|seen| (seen.at / 60_000, seen.cents)).collect()
}

#[test]
fn a_transaction_is_held_against_what_the_rules_say_at_its_time_however_the_inputs_mix() {
    let rules = || [rule(10, Some(100), 5), rule(20, Some(50), 60), rule(30, None, 0)];
    let spends = || [(9, 500), (10, 1), (12, 100), (15, 60), (19, 70), (20, 1), (30, 999)].map(|(m, c)| spend(m, c));
    let expected = [(10, 501), (12, 601), (15, 160), (19, 130), (20, 732)];
    for size in [1, 2, 1024] {
        for rules_first in [true, false] {
            let mut test = Harness::<Rules>::new("{}").unwrap().batches_of(size);
            let (first, then): (Vec<_>, Vec<_>) = match rules_first {
                true => (rules().into(), spends().into()),
                false => (spends().into(), rules().into()),
            };
            test.process(first).unwrap();
            test.process(then).unwrap();
            assert_eq!(alerts(&test.advance_watermark(at(30)).unwrap()), expected, "batches of {size}");
        }
    }
}

#[test]
fn transactions_are_kept_no_longer_than_a_rule_looks_back() {
    let mut test = Harness::<Rules>::new("{}").unwrap();
    test.process([rule(0, Some(1), 10_000), spend(0, 2), spend(1, 2)]).unwrap();
    for (minute, rows) in [(59, 2), (60, 1), (61, 0)] {
        test.advance_watermark(at(minute)).unwrap();
        assert_eq!(test.row_count("spent").unwrap(), rows, "in minute {minute}");
    }
    assert_eq!((test.state_len("arrived").unwrap(), test.timer_count()), (0, 0));
    assert_eq!(test.process([spend(61, 2)]).unwrap()[0].output, "late");
}
