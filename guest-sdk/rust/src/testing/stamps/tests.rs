//! What an operator under test sees of states with a TTL.

use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};
use crate::types::{Refresh, TimeDomain, Ttl, Visibility};

/// Says what there is of its key before it writes, on a record `true`.
#[derive(Operator)]
#[operator(key = String)]
struct Living {
    #[state(ttl = "10s", time = "event")]
    written: Value<u64>,
    #[state(ttl = "10s", time = "event", refresh = "read-write")]
    read: Value<u64>,
    #[state(ttl = "10s", time = "event", refresh = "read-write", lazy)]
    asked: Value<u64>,
    #[state(ttl = "10s", time = "event")]
    entries: Map<String, u64>,
    #[state(ttl = "10s", time = "event")]
    elements: List<u64>,
    #[state(ttl = "1h", time = "processing", visibility = "relaxed")]
    hour: Value<u64>,
}

impl Process for Living {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let elements = self.elements.len(ctx)?;
        let entry = self.entries.get(ctx, "name")?;
        let found = [self.written.get(ctx)?, self.read.get(ctx)?, self.asked.get(ctx)?, entry];
        ctx.emit(&(found.map(|value| value.is_some()), elements))?;
        if record.value()? {
            self.written.set(ctx, 1)?;
            self.read.set(ctx, 1)?;
            self.asked.set(ctx, 1)?;
            self.entries.insert(ctx, "name", 1)?;
            self.elements.append(ctx, &1)?;
            self.hour.set(ctx, 1)?;
        }
        Ok(())
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A record at the present watermark, which then goes on.
fn record(write: bool, time: i64, then: i64) -> Input {
    Input::new(&write).key("k").at(at(time)).then_watermark(at(then))
}

#[test]
fn l1_a_ttl_in_event_time_is_the_same_whatever_the_batches() {
    for batches in [1, 7, 1_024] {
        let mut test = Harness::<Living>::new("{}").unwrap().batches_of(batches);
        test.advance_watermark(at(0)).unwrap();
        let records = [
            record(true, 0, 6_000),
            record(false, 0, 9_999),
            record(false, 0, 10_000),
            record(false, 0, 19_999),
            record(false, 0, 29_999),
            record(false, 0, 30_000),
        ];
        let emitted = test.process(records).unwrap();
        let seen: Vec<([bool; 4], u64)> = emitted.iter().map(|emit| emit.value().unwrap()).collect();
        let read = |written, read, elements| ([written, read, read, written], elements);
        let expected = [
            read(false, false, 0),
            read(true, true, 1),
            read(true, true, 1),
            // Written at 0; read at 9,999, 10,000 and 19,999.
            read(false, true, 0),
            read(false, true, 0),
            read(false, false, 0),
        ];
        assert_eq!(seen, expected, "batches of {batches}");
    }
}

#[test]
fn a_record_ahead_of_the_watermark_stamps_with_its_own_time() {
    let mut test = Harness::<Living>::new("{}").unwrap();
    test.advance_watermark(at(0)).unwrap();
    test.process([record(true, 5_000, 14_999)]).unwrap();
    assert_eq!(test.state::<u64>("written", "k").unwrap(), Some(1));
    test.advance_watermark(at(15_000)).unwrap();
    assert_eq!(test.state::<u64>("written", "k").unwrap(), None);
    assert_eq!(test.state::<u64>("hour", "k").unwrap(), Some(1));
}

#[test]
fn the_ttl_is_declared_as_the_attributes_say() {
    let states = <Living as Operator>::describe().states;
    let ttl = |name: &str| states.iter().find(|state| state.name == name).and_then(|state| state.ttl);
    let Some(Ttl { milliseconds, refresh, domain, visibility, expired_output }) = ttl("read") else { panic!() };
    assert_eq!((milliseconds, expired_output), (10_000, None));
    assert!(refresh == Refresh::ReadAndWrite && domain == TimeDomain::Event && visibility == Visibility::Strict);
    let hour = ttl("hour").unwrap();
    assert_eq!(hour.milliseconds, 3_600_000);
    assert!(hour.domain == TimeDomain::Processing && hour.visibility == Visibility::Relaxed);
}

/// Counts, and says of what has expired what it was.
#[derive(Operator)]
#[operator(key = String, output("out"), output("gone"))]
struct Leaves {
    #[state(ttl = "10s", time = "event", expired = "gone")]
    count: Value<u64>,
    #[state(ttl = "5s", time = "processing", expired = "gone")]
    seen: Map<String, u64>,
    #[state(ttl = "10s", time = "event", expired = "gone")]
    log: List<u64>,
    #[state(ttl = "10s", time = "event")]
    silent: Value<u64>,
}

impl Process for Leaves {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let value: u64 = record.value()?;
        let known = self.count.get(ctx)?.is_some();
        ctx.emit(&known)?;
        self.count.set(ctx, value)?;
        self.seen.insert(ctx, "page", value)?;
        self.log.append(ctx, &value)?;
        self.silent.set(ctx, value)
    }
}

/// Of what went to the output `gone`: key, state, map key and value, with the time.
type Gone = (Option<String>, String, Option<String>, u64, i64);

fn gone(emitted: &[Emitted]) -> Vec<Gone> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Fields {
        key: Option<String>,
        state: String,
        map_key: Option<String>,
        value: u64,
        time: i64,
    }
    let gone = emitted.iter().filter(|emitted| emitted.output == "gone");
    let fields = gone.map(|emitted| {
        let Fields { key, state, map_key, value, time } = emitted.value().unwrap();
        assert_eq!((emitted.key::<String>(), emitted.time), (key.clone(), at(time)));
        (key, state, map_key, value, time)
    });
    fields.collect()
}

#[test]
fn what_has_expired_goes_to_the_output_once_with_its_key_state_value_and_time() {
    let of = |state: &str, map_key: Option<&str>, value, time| {
        (Some("k".to_owned()), state.to_owned(), map_key.map(str::to_owned), value, time)
    };
    for batches in [1, 7, 1_024] {
        let mut test = Harness::<Leaves>::new("{}").unwrap().batches_of(batches);
        test.advance_watermark(at(0)).unwrap();
        let record = |value: u64, time, then| Input::new(&value).key("k").at(at(time)).then_watermark(at(then));
        // Renewed at 6,000; behind the third record time has passed 16,000.
        let emitted = test.process([record(1, 0, 6_000), record(2, 6_000, 15_999), record(3, 0, 20_000)]).unwrap();
        assert_eq!(gone(&emitted), [of("log", None, 1, 10_000), of("log", None, 2, 16_000)]);
        assert_eq!(gone(&test.advance_processing_time(at(4_999)).unwrap()), []);
        let emitted = test.advance_processing_time(at(5_000)).unwrap();
        assert_eq!(gone(&emitted), [of("seen", Some("page"), 3, 5_000)]);
        let emitted = test.end_of_input().unwrap();
        assert_eq!(gone(&emitted), [of("count", None, 3, 25_999), of("log", None, 3, 25_999)]);
        assert_eq!(gone(&test.end_of_input().unwrap()), []);
    }
}
