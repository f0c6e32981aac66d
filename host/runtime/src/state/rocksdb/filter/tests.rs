//! Which rows the compaction filter rewrites, and what it keeps for that.

use wasmill_core::contract::{Refresh, Visibility};
use wasmill_core::id::StateName;
use wasmill_core::ttl::Stamp;

use super::*;
use crate::state::stamped;

fn ttl() -> Ttl {
    let (refresh, visibility) = (Refresh::Write, Visibility::Strict);
    Ttl { milliseconds: 10, refresh, domain: TimeDomain::Event, visibility, expired_output: None }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn filter(now: i64) -> Filter {
    let horizon = Horizon::default();
    horizon.pass(Now { event: at(now), processing: at(1_000) });
    Filter { ttl: ttl(), horizon: Arc::new(horizon), known: HashMap::new() }
}

fn row(domain: Option<TimeDomain>, stamp: i64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Form { version: 3, stamp: domain }.encode(&stamped(Stamp::at(at(stamp)), value), &mut out);
    out
}

#[test]
fn only_rows_that_have_expired_by_the_states_own_time_become_gone() {
    let event = row(Some(TimeDomain::Event), 5, b"twelve bytes");
    assert_eq!(filter(14).gone(&event), None);
    assert_eq!(filter(15).gone(&event), Some(&[0b1_0000, 3, 12][..]));
    let mut head = Vec::new();
    row::encode_head(row::Head::default(), &mut head);
    let kept = [
        row(Some(TimeDomain::Processing), 5, b"of the other time"),
        row(None, 5, b"without a stamp"),
        vec![0b1_0000, 3, 12],
        head,
        b"\xff\xff".to_vec(),
        Vec::new(),
    ];
    for row in kept {
        assert_eq!(filter(1_000).gone(&row), None, "{row:?}");
    }
}

#[test]
fn before_there_are_times_nothing_has_expired_and_the_end_of_time_is_none() {
    let horizon = Horizon::default();
    horizon.pass(Now { event: Timestamp::MAX, processing: at(7) });
    assert_eq!((horizon.of(TimeDomain::Event), horizon.of(TimeDomain::Processing)), (Timestamp::MIN, at(7)));
    horizon.pass(Now { event: at(9), processing: at(3) });
    horizon.pass(Now { event: at(8), processing: at(4) });
    assert_eq!((horizon.of(TimeDomain::Event), horizon.of(TimeDomain::Processing)), (at(9), at(7)));
}

#[test]
fn the_rows_that_are_kept_for_ever_are_bounded() {
    let mut gone = Gone::new();
    let rows: Vec<_> = (0..4).map(|bytes| kept(&mut gone, (1, bytes), 3)).collect();
    assert!(rows[..3].iter().all(Option::is_some) && rows[3].is_none());
    assert!(std::ptr::eq(kept(&mut gone, (1, 0), 3).unwrap(), rows[0].unwrap()));
}

#[test]
fn lists_and_states_whose_expired_entries_are_emitted_have_no_filter() {
    let spec = |kind, ttl| StateSpec { name: StateName::new("s").unwrap(), kind, version: 1, ttl };
    let has = |spec| Filters::of(&spec, &Arc::default()).is_some();
    let emitted = Ttl { expired_output: Some(0), ..ttl() };
    let cases = [StateKind::Value, StateKind::Map, StateKind::List].map(|kind| has(spec(kind, Some(ttl()))));
    assert_eq!(cases, [true, true, false]);
    assert!(!has(spec(StateKind::Value, Some(emitted))) && !has(spec(StateKind::Value, None)));
}
