//! Timers against a plain set, with few bytes for the queue, layers that are written late, and restores.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const GROUPS: MaxParallelism = MaxParallelism::DEFAULT;
/// Room for some ten timers.
const BUDGET: usize = 2_000;

#[derive(Default)]
struct Rows(BTreeSet<Vec<u8>>);

impl TimerRows for Rows {
    fn has(&self, row: &[u8]) -> Result<bool, Error> {
        Ok(self.0.contains(row))
    }

    fn read(&self, lower: &[u8], upper: &[u8], each: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Error> {
        for row in self.0.range(lower.to_vec()..upper.to_vec()) {
            if !each(row) {
                break;
            }
        }
        Ok(())
    }
}

impl Rows {
    /// Each change must change something: layers are exact differences.
    fn write(&mut self, layer: &TimerLayer) {
        for (row, set) in layer {
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            let changed = if *set { self.0.insert(bytes) } else { self.0.remove(&bytes) };
            assert!(changed, "{row:?} {set}");
        }
    }
}

fn all() -> KeyGroupRange {
    KeyGroupRange { start: 0, end: GROUPS.get() }
}

fn store(empty: bool) -> TimerStore {
    TimerStore::new(BUDGET, empty, all(), GROUPS)
}

fn group(key: &[u8]) -> KeyGroup {
    KeyHash::of(key).group(GROUPS)
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, i8, u8),
    Delete(u8, i8, u8),
    Due(i8, usize),
    Freeze,
    Written,
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..40, any::<i8>(), 0u8..2).prop_map(|(key, time, tag)| Step::Set(key, time, tag)),
        3 => (0u8..40, any::<i8>(), 0u8..2).prop_map(|(key, time, tag)| Step::Delete(key, time, tag)),
        2 => (any::<i8>(), 1usize..20).prop_map(|(until, limit)| Step::Due(until, limit)),
        1 => Just(Step::Freeze),
        1 => Just(Step::Written),
        1 => Just(Step::Restore),
    ]
}

type Model = BTreeSet<(i64, Vec<u8>, u32)>;

/// Of at most `limit` keys the earliest timer that is due, as far as the store gives them in one round.
fn check_round(model: &mut Model, due: &[TimerId], until: i64, limit: usize) {
    let mut keys = BTreeSet::new();
    for id in due {
        let timer = id.timer();
        let earliest = model.iter().find(|(_, key, _)| key == timer.key).unwrap().clone();
        assert_eq!((earliest.0, earliest.2), (timer.time.as_millis(), timer.tag), "the key's earliest");
        assert!(timer.time.as_millis() <= until && keys.insert(timer.key.to_vec()));
    }
    assert!(due.len() <= limit);
    assert_eq!(
        due.is_empty(),
        model.first().is_none_or(|(time, ..)| *time > until),
        "as long as some are due, some fire"
    );
    for id in due {
        let timer = id.timer();
        model.remove(&(timer.time.as_millis(), timer.key.to_vec(), timer.tag));
    }
}

/// A key's timers, whole and by pages of two.
fn check_listed(store: &TimerStore, rows: &Rows, model: &Model) {
    for key in [&[3][..], &[30]] {
        let of_key = model.iter().filter(|(_, of, _)| of == key);
        let timer = |(time, _, tag): &(i64, Vec<u8>, u32)| KeyTimer {
            domain: Domain::Event,
            time: Timestamp::from_millis(*time),
            tag: *tag,
        };
        let expected: Vec<_> = of_key.map(timer).collect();
        assert_eq!(store.of_key((key, group(key)), None, usize::MAX, rows).unwrap(), expected);
        let mut paged: Vec<KeyTimer> = Vec::new();
        loop {
            let page = store.of_key((key, group(key)), paged.last().copied(), 2, rows).unwrap();
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn timers_equal_a_set_whatever_is_in_memory(steps in proptest::collection::vec(step(), 0..400)) {
        let (mut store, mut rows, mut model) = (store(true), Rows::default(), Model::new());
        let mut sequence = 0;
        for step in steps {
            match step {
                Step::Set(key, time, tag) => {
                    let timer = Timer { time: Timestamp::from_millis(time.into()), key: &[key], tag: tag.into() };
                    let new = store.set(Domain::Event, &timer, group(&[key]), &rows).unwrap();
                    prop_assert_eq!(new, model.insert((time.into(), vec![key], tag.into())));
                }
                Step::Delete(key, time, tag) => {
                    let timer = Timer { time: Timestamp::from_millis(time.into()), key: &[key], tag: tag.into() };
                    let was = store.delete(Domain::Event, &timer, group(&[key]), &rows).unwrap();
                    prop_assert_eq!(was, model.remove(&(time.into(), vec![key], tag.into())));
                }
                Step::Due(until, limit) => {
                    let until = Timestamp::from_millis(until.into());
                    let due = store.take_due(Domain::Event, until, limit, &rows).unwrap();
                    check_round(&mut model, &due, until.as_millis(), limit);
                }
                Step::Freeze => {
                    sequence += 1;
                    store.freeze(sequence);
                }
                // The background thread writes a layer; the subtask learns of it later.
                Step::Written => if let Some((written, layer)) = store.frozen.front().cloned() {
                    rows.write(&layer);
                    store.release(written);
                },
                Step::Restore => {
                    sequence += 1;
                    store.freeze(sequence);
                    for (_, layer) in &store.frozen {
                        rows.write(layer);
                    }
                    store = self::store(false);
                }
            }
            check_listed(&store, &rows, &model);
            let next = store.next(Domain::Event);
            prop_assert!(model.first().is_none_or(|(time, ..)| next.is_some_and(|next| next.as_millis() <= *time)));
            prop_assert!(store.queues[0].bytes() <= BUDGET);
        }
        while !model.is_empty() {
            let due = store.take_due(Domain::Event, Timestamp::MAX, 1_000, &rows).unwrap();
            check_round(&mut model, &due, i64::MAX, 1_000);
        }
    }
}

#[test]
fn a_timer_that_lives_between_two_barriers_is_never_written() {
    let (mut store, rows) = (store(true), Rows::default());
    let timer = Timer { time: Timestamp::from_millis(5), key: b"k", tag: 0 };
    assert!(store.set(Domain::Event, &timer, group(b"k"), &rows).unwrap());
    assert!(!store.set(Domain::Event, &timer, group(b"k"), &rows).unwrap(), "setting one twice is one timer");
    assert_eq!(store.take_due(Domain::Event, Timestamp::from_millis(5), 9, &rows).unwrap().len(), 1);
    assert!(store.freeze(1).is_empty());
    assert_eq!(store.fresh_bytes(), 0);
}

#[test]
fn the_domains_do_not_mix() {
    let (mut store, mut rows) = (store(true), Rows::default());
    let timer = Timer { time: Timestamp::from_millis(5), key: b"k", tag: 0 };
    assert!(store.set(Domain::Processing, &timer, group(b"k"), &rows).unwrap());
    assert!(store.take_due(Domain::Event, Timestamp::MAX, 9, &rows).unwrap().is_empty());
    assert!(store.set(Domain::Event, &timer, group(b"k"), &rows).unwrap());
    let [event, processing] = Domain::ALL.map(|domain| KeyTimer { domain, time: timer.time, tag: 0 });
    let listed = |after| store.of_key((b"k", group(b"k")), after, 9, &rows).unwrap();
    assert_eq!((listed(None), listed(Some(event))), (vec![event, processing], vec![processing]));
    assert!(store.delete(Domain::Event, &timer, group(b"k"), &rows).unwrap());
    rows.write(&store.freeze(1));
    let mut store = self::store(false);
    assert!(store.take_due(Domain::Event, Timestamp::MAX, 9, &rows).unwrap().is_empty());
    assert_eq!(store.take_due(Domain::Processing, Timestamp::MAX, 9, &rows).unwrap().len(), 1);
}
