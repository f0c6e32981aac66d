//! Time to live, end to end: a component made with the SDK, the state in RocksDB, restarts. Cases of the field carry their number.

use serde_json::{Value, json};
use wasmill_tests::lines::{job, lines};
use wasmill_tests::{Job, Pipeline};

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
