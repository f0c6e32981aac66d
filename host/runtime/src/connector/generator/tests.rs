//! Tests of the generator's promises.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use wasmill_core::id::{Parallelism, SubtaskIndex};

use super::*;
use crate::clock::ManualClock;
use crate::config::source::Source;

fn factory(settings: &str) -> GeneratorFactory {
    factory_with(settings, Arc::new(ManualClock::default())).unwrap()
}

fn factory_with(settings: &str, clock: SharedClock) -> Result<GeneratorFactory, Error> {
    let config = format!("connector = \"generator\"\n{settings}");
    let Source::Generator(config) = toml::from_str(&config).unwrap() else { panic!("a generator") };
    GeneratorFactory::new(&config, clock)
}

fn place(index: u32, parallelism: u32) -> Place {
    Place { index: SubtaskIndex(index), parallelism: Parallelism::new(parallelism).unwrap() }
}

type Record = (Vec<u8>, i64, Vec<u8>);

fn records(batch: &RecordBatch) -> Vec<Record> {
    let record = |index: usize| {
        let bytes = |value: Option<&[u8]>| value.unwrap().to_vec();
        (bytes(batch.keys.get(index)), batch.times[index].as_millis(), bytes(batch.values.get(index)))
    };
    (0..batch.len()).map(record).collect()
}

fn read_all(reader: &mut dyn SourceReader, limit: usize) -> Vec<Record> {
    let mut batch = RecordBatch::default();
    while reader.read(&mut batch, limit, Timestamp::MIN).unwrap() != ReadOutcome::End {}
    records(&batch)
}

#[test]
fn the_same_seed_gives_the_same_records_at_any_parallelism() {
    let factory = factory("records = 1000\nkeys = 10\nseed = 7");
    let mut whole = read_all(&mut *factory.open(place(0, 1), &[]).unwrap(), 64);
    let mut parts = Vec::new();
    for index in 0..3 {
        parts.extend(read_all(&mut *factory.open(place(index, 3), &[]).unwrap(), 7));
    }
    assert_eq!(whole.len(), 1000);
    assert_ne!(
        whole,
        read_all(&mut *self::factory("records = 1000\nkeys = 10\nseed = 8").open(place(0, 1), &[]).unwrap(), 64)
    );
    whole.sort();
    parts.sort();
    assert_eq!(whole, parts);
}

#[test]
fn a_restored_reader_goes_on_with_the_next_record_even_at_another_parallelism() {
    let factory = factory("records = 100\nkeys = 10\npayload = \"20B\"");
    let mut whole = read_all(&mut *factory.open(place(0, 1), &[]).unwrap(), 64);
    let (mut seen, mut positions) = (RecordBatch::default(), Vec::new());
    for (index, count) in [(0, 10), (1, 34), (2, 0)] {
        let mut reader = factory.open(place(index, 3), &[]).unwrap();
        if count > 0 {
            reader.read(&mut seen, count, Timestamp::MIN).unwrap();
        }
        positions.extend(reader.positions());
    }
    let mut all = records(&seen);
    for index in 0..2 {
        all.extend(read_all(&mut *factory.open(place(index, 2), &positions).unwrap(), 5));
    }
    all.sort();
    whole.sort();
    assert_eq!(all, whole);
}

#[test]
fn a_record_is_a_deterministic_cbor_map_with_its_key_beside_it() {
    let factory = factory("records = 3\nkeys = 1\npayload = \"4B\"\nstart = \"2013-01-01T05:00:00Z\"\nstep = \"1s\"");
    let records = read_all(&mut *factory.open(place(0, 1), &[]).unwrap(), 10);
    let (key, time, value) = &records[2];
    assert_eq!((key.as_slice(), *time), (&b"key-000000"[..], 1_357_016_402_000));
    let payload = value[value.len() - 4..].to_vec();
    assert!(payload.iter().all(u8::is_ascii_lowercase));
    assert_eq!(*value, [&b"\xa3\x63key\x6akey-000000\x63seq\x02\x67payload\x64"[..], &payload].concat());
}

#[test]
fn keys_are_drawn_evenly_or_by_rank() {
    let count = |settings: &str| {
        let factory = factory(&format!("records = 20000\nkeys = 10\npayload = \"0B\"\nformat = \"raw\"\n{settings}"));
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        for (key, _, value) in read_all(&mut *factory.open(place(0, 1), &[]).unwrap(), 1000) {
            assert!(value.is_empty());
            *counts.entry(key).or_default() += 1;
        }
        let of = |key: usize| counts.get(format!("key-{key:06}").as_bytes()).copied().unwrap_or(0);
        (0..10).map(of).collect::<Vec<_>>()
    };
    assert!(count("").iter().all(|count| (1800..2200).contains(count)), "{:?}", count(""));
    // 1/k over the sum of 1/1..1/10, 2.929.
    let zipf = count("distribution = \"zipf\"");
    assert!(
        (6400..7250).contains(&zipf[0]) && (3200..3630).contains(&zipf[1]) && (600..770).contains(&zipf[9]),
        "{zipf:?}"
    );
}

#[test]
fn a_rate_is_kept_and_no_rate_is_flat_out() {
    let clock = Arc::new(ManualClock::default());
    let factory = factory_with("rate = 1000", clock.clone()).unwrap();
    let mut reader = factory.open(place(0, 1), &[]).unwrap();
    let mut batch = RecordBatch::default();
    for _ in 0..100 {
        while !matches!(reader.read(&mut batch, 1024, Timestamp::MIN).unwrap(), ReadOutcome::Wait(_)) {}
        clock.advance(Duration::from_millis(10));
    }
    assert!((990..=1000).contains(&batch.len()), "{}", batch.len());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let clock = || Arc::new(ManualClock::default());
    for bad in
        ["keys = 2000000000", "payload = \"2MiB\"", "distribution = \"zipf\"\nexponent = 0.0", "start = \"yesterday\""]
    {
        assert!(factory_with(bad, clock()).is_err(), "{bad}");
    }
    let refused = factory("").open(place(0, 1), &[SplitPosition { split: "0/1".to_owned(), position: 5.into() }]);
    assert_eq!(refused.err().unwrap().kind, FaultKind::Refused);
}
