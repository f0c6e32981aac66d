//! The totals, by hand.
//!
//! Owns no helper that others use.

use wasmill_guest::testing::{Emitted, Harness, Input};

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct Seen {
    tailnum: String,
    flights: u64,
    distance: u64,
    last_seen: Option<String>,
    known_delays: u32,
    mean_arr_delay: Option<f64>,
}

/// A flight as `fields` sends it.
fn flight(tailnum: &str, distance: u64, arr_delay: Option<i64>, time_hour: Option<&str>) -> Input {
    Input::new(&(tailnum, distance, arr_delay, time_hour)).key(tailnum)
}

fn seen(emits: &[Emitted]) -> Vec<Seen> {
    emits.iter().map(|emit| emit.value().unwrap()).collect()
}

#[test]
fn every_flight_brings_the_totals_up_to_it() {
    for size in [1, 2, 1024] {
        let mut test = Harness::<PerAircraft>::new("{}").unwrap().batches_of(size);
        let emits = test.process([
            flight("N1", 100, Some(10), Some("2013-01-01T10:00:00Z")),
            flight("N2", 7, None, None),
            flight("N1", 50, None, Some("2013-01-03T10:00:00Z")),
            flight("N1", 1, Some(-5), Some("2013-01-02T10:00:00Z")),
        ]);
        let seen = seen(&emits.unwrap());
        assert_eq!(
            seen[3],
            Seen {
                tailnum: "N1".to_owned(),
                flights: 3,
                distance: 151,
                last_seen: Some("2013-01-03T10:00:00Z".to_owned()),
                known_delays: 2,
                mean_arr_delay: Some(2.5),
            }
        );
        assert_eq!((seen[1].flights, seen[1].mean_arr_delay, &seen[1].last_seen), (1, None, &None));
        assert_eq!(test.state_len("totals").unwrap(), 2);
    }
}

#[test]
fn a_flight_is_read_from_a_map_too() {
    #[derive(Serialize)]
    struct Row {
        arr_delay: Option<i64>,
        distance: u64,
        origin: &'static str,
        tailnum: &'static str,
    }
    let row = Row { arr_delay: None, distance: 3, origin: "JFK", tailnum: "N1" };
    let mut test = Harness::<PerAircraft>::new("{}").unwrap();
    assert_eq!(seen(&test.process([Input::new(&row).key("N1")]).unwrap())[0].distance, 3);
}

#[test]
fn a_row_of_another_shape_is_rejected_alone() {
    let mut test = Harness::<PerAircraft>::new("{}").unwrap();
    let emits = test.process([Input::new("no flight").key("N1"), flight("N1", 1, None, None)]).unwrap();
    assert_eq!(seen(&emits)[0].flights, 1);
    assert_eq!(test.rejects().len(), 1);
}
