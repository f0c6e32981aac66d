//! Time to live, end to end: a component made with the SDK, the state in RocksDB, restarts. Cases of the field carry their number.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use wasmill_tests::lines::{job, lines};
use wasmill_tests::{Harness, Job, Pipeline};

/// Lines through the guest whose states live for ten seconds of event time.
fn living(operator: &str, rate: &str) -> Pipeline {
    lines("living", &format!("watermark = {{ field = \"wm\", format = \"unix-ms\" }}\n{rate}"), operator)
}

/// The records of the output in the order of their numbers.
fn found(job: &Job) -> Vec<Value> {
    let mut records: Vec<_> = job.output("out").records().collect();
    records.sort_by_key(|record| record["seq"].as_u64());
    records
}

#[test]
fn l1_what_a_component_can_read_at_expiry_does_not_depend_on_batches() {
    let line = |seq: u64, write: bool, wm: i64| json!({"seq": seq, "key": "k", "t": 0, "wm": wm, "write": write});
    let lines = [
        // Only makes the first watermark.
        json!({"seq": 0, "key": "other", "t": 0, "wm": 0, "write": false}),
        line(1, true, 6_000),
        line(2, false, 9_999),
        line(3, false, 10_000),
        line(4, false, 19_999),
        line(5, false, 29_999),
    ];
    let seen = |seq: u64, written: bool, read: bool| {
        let count = u8::from(written);
        json!({"seq": seq, "written": written, "read": read, "asked": read, "entry": written, "page": count, "elements": count})
    };
    let expected = [
        seen(0, false, false),
        seen(1, false, false),
        seen(2, true, true),
        seen(3, true, true),
        // Written at 0; read at 9,999, 10,000 and 19,999.
        seen(4, false, true),
        seen(5, false, true),
    ];
    for records in [1, 7, 1_024] {
        let job = job(&living(&format!("batch = {{ records = {records} }}"), ""), &lines);
        job.run(&[]).expect_code(0);
        assert_eq!(found(&job), expected, "batches of {records}");
    }
}

#[test]
fn a_killed_job_finds_the_same_entries_expired() {
    // A hundred keys, each written now and then, with gaps about as long as the entries live.
    let lines: Vec<Value> = (0..8_000i64)
        .map(|seq| {
            let (key, time) = (seq * 7_919 % 100, seq * 100);
            json!({"seq": seq, "key": format!("k{key}"), "t": time, "wm": time - 500, "write": seq % 3 == 0})
        })
        .collect();
    let whole = job(&living("parallelism = 2", ""), &lines);
    whole.run(&[]).expect_code(0);
    let expected = found(&whole);
    let expired = expected.iter().filter(|record| record["written"] == false).count();
    assert!((1_000..7_000).contains(&expired), "{expired} of {} read nothing", lines.len());

    let killed = job(&living("parallelism = 2", "rate = 8000"), &lines);
    for kill in [1_500, 4_000] {
        let mut running = killed.start(&[]);
        assert!(running.wait_until(|| killed.output("out").lines.len() > kill), "ended before it was killed");
        assert!(running.kill());
    }
    killed.change(&living("parallelism = 2", ""));
    killed.run(&[]).expect_code(0);
    assert!(found(&killed) == expected, "a restart changed what had expired");
}

/// How long everything lives in the guest whose expired state goes to an output.
const LIVES: i64 = 10_000;

/// Lines through that guest; what has expired goes to `gone`.
fn leaving((backend, parallelism): (&str, u32), rate: &str) -> Pipeline {
    let source = format!("watermark = {{ field = \"wm\", format = \"unix-ms\" }}\n{rate}");
    let sink = "[sink.gone]\nconnector = \"file\"\ninput = \"leaving/gone\"\npath = \"gone\"\nformat = \"jsonl\"\n\n";
    let state = format!("[state]\nbackend = \"{backend}\"\n\n");
    lines("leaving", &source, &format!("parallelism = {parallelism}"))
        .with("[sink.out]", &format!("{sink}{state}[sink.out]"))
}

/// What a key has in states that live by event time.
#[derive(Default)]
struct Kept {
    /// By state and map key, the value and when it expires; of a list each element.
    entries: BTreeMap<Entry, Vec<(u64, i64)>>,
}

/// A state and, of a map, a map key.
type Entry = (&'static str, Option<String>);

impl Kept {
    /// Takes out what has expired by `now`, as it is to be found in the output.
    fn expire(&mut self, key: &str, now: i64, gone: &mut Vec<String>) {
        self.entries.retain(|(state, map_key), values| {
            values.retain(|(value, time)| {
                let leaves = *time <= now;
                if leaves {
                    gone.push(left(&json!(key), &json!(state), &json!(map_key), &json!(value), &json!(time)));
                }
                !leaves
            });
            !values.is_empty()
        });
    }

    fn set(&mut self, state: &'static str, map_key: Option<&str>, value: impl Fn(u64) -> u64, time: i64) {
        let entry = self.entries.entry((state, map_key.map(str::to_owned))).or_default();
        let before = entry.pop().map_or(0, |(value, _)| value);
        entry.push((value(before), time));
    }
}

fn left(key: &Value, state: &Value, map_key: &Value, value: &Value, time: &Value) -> String {
    format!("{key} {state} {map_key} {value} {time}")
}

/// What must leave, in order: worked out record by record.
fn must_leave(lines: &[Value]) -> Vec<String> {
    let (mut keys, mut gone, mut now) = (BTreeMap::<String, Kept>::new(), Vec::new(), i64::MIN);
    for line in lines {
        let number = |field: &str| line[field].as_i64().unwrap_or_default();
        let (key, seq) = (line["key"].as_str().unwrap_or_default(), number("seq").unsigned_abs());
        let kept = keys.entry(key.to_owned()).or_default();
        kept.expire(key, now, &mut gone);
        let time = number("t").max(now) + LIVES;
        kept.set("count", None, |count| count + 1, time);
        kept.set("last", None, |_| seq, time);
        kept.set("pages", line["page"].as_str(), |count| count + 1, time);
        kept.entries.entry(("log", None)).or_default().push((seq, time));
        if line["clear"] == true {
            kept.entries.clear();
        }
        now = now.max(number("wm"));
    }
    keys.iter_mut().for_each(|(key, kept)| kept.expire(key, i64::MAX, &mut gone));
    gone.sort();
    gone
}

/// What left of the states that live by event time, in order.
fn has_left(job: &Job) -> Vec<String> {
    let output = job.output("gone");
    let by_event_time = output.records().filter(|record| record["state"] != "seen");
    let mut gone: Vec<String> = by_event_time
        .map(|record| {
            assert!(record["expired"] == 1 && record["key-bytes"].is_null() && record["value-bytes"].is_null());
            left(&record["key"], &record["state"], &record["map-key"], &record["value"], &record["time"])
        })
        .collect();
    gone.sort();
    gone
}

/// Keys that come about as often as their state lives, are now and then removed, and in the end come no more.
fn visits() -> Vec<Value> {
    let visit = |seq: i64| {
        let (key, time) = (seq * 7_919 % 1_009 % 100, seq * 100);
        let (page, clear) = (format!("p{}", seq % 3), seq % 17 == 0);
        json!({"seq": seq, "key": format!("k{key}"), "t": time, "wm": time - 500, "page": page, "clear": clear})
    };
    (0..8_000).map(visit).collect()
}

#[test]
fn what_expires_leaves_exactly_once_however_often_the_job_is_killed() {
    let (lines, rate) = (visits(), "rate = 8000");
    let expected = must_leave(&lines);
    assert!(expected.len() > 8_000, "{} leave", expected.len());
    let job = job(&leaving(("rocksdb", 2), rate), &lines);
    // Each attempt restores what the one before it left, whichever backend took it and at whatever parallelism.
    for (kill, next) in [(1_500, ("memory", 3)), (4_000, ("rocksdb", 1)), (6_000, ("rocksdb", 2))] {
        let mut running = job.start(&[]);
        assert!(running.wait_until(|| job.output("out").lines.len() > kill), "ended before it was killed");
        assert!(running.kill());
        job.change(&leaving(next, rate));
    }
    job.run(&[]).expect_code(0);
    let found = has_left(&job);
    let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert!(found == expected, "{} left of {}; the first that differs: {first:?}", found.len(), expected.len());
}

#[test]
fn in_a_trial_what_expires_leaves_as_soon_as_time_reaches_it() {
    let gone = |state: &str, map_key: Value, value: u64, time: i64| {
        let record = json!({
            "expired": 1, "key": "a", "key-bytes": null, "map-key": map_key, "map-key-bytes": null,
            "state": state, "time": time, "value": value, "value-bytes": null,
        });
        json!({"emit": record, "output": "gone", "key": "a", "time": time}).to_string()
    };
    let record = |seq: u64, time: i64| {
        json!({"record": {"seq": seq, "page": "p", "clear": false}, "key": "a", "time": time}).to_string()
    };
    let cases = [
        json!({"case": "each leaves when its time has come"}).to_string(),
        record(1, 0),
        json!({"emit": [1, 1]}).to_string(),
        json!({"watermark": 9_999}).to_string(),
        record(2, 9_000),
        json!({"emit": [2, 2]}).to_string(),
        json!({"watermark": 12_000}).to_string(),
        gone("log", Value::Null, 1, 10_000),
        json!({"advance": "5s"}).to_string(),
        gone("seen", Value::Null, 2, 5_000),
        record(3, 12_000),
        json!({"emit": [3, 3]}).to_string(),
        json!({"end": true}).to_string(),
        gone("count", Value::Null, 3, 22_000),
        gone("last", Value::Null, 3, 22_000),
        gone("pages", json!("p"), 3, 22_000),
        gone("log", Value::Null, 2, 19_999),
        gone("log", Value::Null, 3, 22_000),
    ];
    let folder = tempfile::TempDir::new().expect("there is a folder for the test");
    let file = folder.path().join("leaving.test.jsonl");
    std::fs::write(&file, cases.join("\n")).expect("the folder can be written");
    let component = Harness::get().guest("wasmill_test_leaving");
    let ran = Command::new(Harness::get().wasmill())
        .args(["--log", "warn", "test"])
        .arg(&component)
        .arg("--cases")
        .arg(&file)
        .output()
        .expect("wasmill starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
