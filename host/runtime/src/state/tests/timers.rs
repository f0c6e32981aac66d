//! Timers in the backend: cut, restored as they are and by rows, counted.

use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, TIMERS, Timer};

use super::*;

/// Small enough that most timers lie in the backend alone.
const BUDGET: usize = 1 << 16;
const TIMES: i64 = 2_000;

fn timer(millis: i64, key: &[u8]) -> Timer<'_> {
    Timer { time: Timestamp::from_millis(millis), key, tag: 7 }
}

/// One timer at each time, of some keys in turn.
fn filled() -> Rig {
    let mut rig = Rig::new(BUDGET);
    for millis in (0..TIMES).rev() {
        let key = key_of(millis);
        rig.state.set_timer(Domain::Event, &timer(millis, &key), KeyHash::of(&key)).unwrap();
        rig.state.maintain().unwrap();
    }
    rig
}

fn key_of(millis: i64) -> Vec<u8> {
    format!("key {}", millis % 97).into_bytes()
}

fn all_due(state: &mut KeyedState) -> Vec<i64> {
    let mut times = Vec::new();
    loop {
        let due = state.take_timers(Domain::Event, Timestamp::from_millis(TIMES), 100).unwrap();
        if due.is_empty() {
            times.sort_unstable();
            return times;
        }
        for id in &due {
            let timer = id.timer();
            assert_eq!(timer.key, key_of(timer.time.as_millis()));
            times.push(timer.time.as_millis());
        }
    }
}

fn count(counts: &Counts) -> u64 {
    counts.states().find(|(state, _)| state.as_str() == TIMERS).map_or(0, |(_, tally)| tally.entries)
}

pub(super) fn timers_survive_a_restore_of_the_same_range() {
    let mut rig = filled();
    let key = key_of(3);
    rig.state.delete_timer(Domain::Event, &timer(3, &key), KeyHash::of(&key)).unwrap();
    let cut = rig.cut();
    assert_eq!(count(&cut.counts), TIMES as u64 - 1);
    let expected: Vec<i64> = (0..TIMES).filter(|millis| *millis != 3).collect();
    let mut restored = Rig::restored(all(), BUDGET, Restore::Same { dir: cut.dir, counts: cut.counts });
    assert_eq!(restored.state.next_timer(Domain::Event), Some(Timestamp::MIN), "not read yet: something may be due");
    assert_eq!(all_due(&mut restored.state), expected);
    assert_eq!(count(restored.state.counts()), 0);
    assert_eq!(all_due(&mut rig.state), expected, "and where it was taken they go on");
}

pub(super) fn timers_go_with_their_keys_to_other_ranges() {
    let mut rig = filled();
    let cut = rig.cut();
    let mut times = Vec::new();
    for range in [KeyGroupRange { start: 0, end: 5 }, KeyGroupRange { start: 5, end: 16 }] {
        let restore = Restore::Rows { dirs: vec![cut.dir.clone()], counts: cut.counts.restrict(range) };
        let mut part = Rig::restored(range, BUDGET, restore);
        let before = count(part.state.counts());
        let own = all_due(&mut part.state);
        assert_eq!(before, own.len() as u64);
        assert!(own.iter().all(|millis| range.contains(KeyGroup::of(&key_of(*millis), max()))));
        times.extend(own);
    }
    times.sort_unstable();
    assert_eq!(times, (0..TIMES).collect::<Vec<_>>());
}

#[test]
fn a_timer_of_another_subtasks_key_is_an_error() {
    let mut rig = Rig::restored(KeyGroupRange { start: 0, end: 0 }, BUDGET, Restore::Empty);
    let error = rig.state.set_timer(Domain::Event, &timer(1, b"k"), KeyHash::of(b"k")).unwrap_err();
    assert!(matches!(error, Error::OutsideRange { .. }), "{error}");
}
