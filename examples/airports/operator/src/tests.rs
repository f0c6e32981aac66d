//! Hours and days, by hand.
//!
//! Owns no helper that others use.

use serde::Deserialize;
use wasmill_guest::testing::{Emitted, Harness, Input};

use super::*;

#[derive(Deserialize)]
struct Seen {
    hours: i64,
    flights: u64,
}

/// The first of April 2024 in Berlin begins here; the clocks went forward the day before.
const APRIL: i64 = 1_711_922_400_000;

/// A flight so many hours after the first of April began, or before.
fn flight(hours: i64) -> Input {
    Input::absent().key("BER").at(at(hours))
}

fn at(hours: i64) -> Timestamp {
    Timestamp::from_millis(APRIL + hours * HOUR.as_millis() as i64)
}

/// Hours and flights of what an output got.
fn seen(emits: &[Emitted], output: &str) -> Vec<(i64, u64)> {
    let emits = emits.iter().filter(|emit| emit.output == output);
    emits.map(|emit| emit.value::<Seen>().unwrap()).map(|seen| (seen.hours, seen.flights)).collect()
}

#[test]
fn a_day_has_the_hours_that_the_clocks_give_it() {
    for size in [1, 2, 1024] {
        let mut test = Harness::<Airports>::new(r#"{"zone": "Europe/Berlin"}"#).unwrap().batches_of(size);
        test.process([-24, -23, -1, 0, 23, 24].map(flight)).unwrap();
        let emits = test.end_of_input().unwrap();
        assert_eq!(seen(&emits, "days"), [(24, 1), (23, 2), (24, 2), (24, 1)]);
        assert_eq!(seen(&emits, "hours"), [(1, 1); 6]);
        assert_eq!((test.state_len("hours").unwrap(), test.state_len("days").unwrap()), (0, 0));
    }
}

#[test]
fn a_flight_too_late_for_its_hour_counts_in_its_day() {
    let mut test = Harness::<Airports>::new(r#"{"zone": "Europe/Berlin", "lateness-minutes": 60}"#).unwrap();
    test.process([flight(0)]).unwrap();
    assert_eq!(seen(&test.advance_watermark(at(1)).unwrap(), "hours"), [(1, 1)]);
    assert_eq!(test.process([flight(0)]).unwrap(), [], "within the lateness");
    assert_eq!(seen(&test.advance_watermark(at(2)).unwrap(), "hours"), [(1, 2)]);
    assert_eq!(test.process([flight(0)]).unwrap()[0].output, "late");
    assert_eq!(seen(&test.end_of_input().unwrap(), "days"), [(24, 3)]);
}

#[test]
fn an_unknown_zone_is_told_before_the_first_record() {
    let error = Harness::<Airports>::new(r#"{"zone": "Europe/Atlantis"}"#).err().unwrap();
    assert!(error.message.contains("no time zone `Europe/Atlantis`"), "{}", error.message);
}
