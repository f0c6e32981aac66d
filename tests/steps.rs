//! Timers, maps and lists through the Rust SDK in running jobs. Cases of the field carry their number.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use wasmill_tests::lines::{job, lines};
use wasmill_tests::{Job, Pipeline};

/// Lines through the guest that does their steps. The texts go into the source and the operator's table.
fn steps(source: &str, operator: &str) -> Pipeline {
    lines("steps", source, operator).with("[checkpoint]", "[checkpoint]\nretain = 100")
}

const BY_FIELD: &str = "watermark = { field = \"wm\", format = \"unix-ms\" }";

/// A line of key `a`: its time, its steps, and the watermark behind it.
fn line(t: i64, steps: &[&str], wm: Option<i64>) -> Value {
    json!({"key": "a", "t": t, "steps": steps, "wm": wm})
}

/// What the guest told, in order.
fn told(job: &Job) -> Vec<String> {
    let output = job.output("out");
    output.records().map(|record| record["told"].as_str().unwrap_or_default().to_owned()).collect()
}

/// What it tells of the lines with batches of several sizes, which must not matter.
fn run(lines: &[Value]) -> Vec<String> {
    let [first, others @ ..] = [1_024, 1, 7].map(|batch| {
        let job = job(&steps(BY_FIELD, &format!("batch = {{ records = {batch} }}")), lines);
        job.run(&[]).expect_code(0);
        told(&job)
    });
    others.into_iter().for_each(|other| assert_eq!(other, first));
    first
}

#[test]
fn t1_timers_of_the_past_fire_once_in_order_at_the_next_advance() {
    let sets = ["set 9999", "set 10000", "set 10001", "set 20000", "set 20000", "set 20000", "delete 10001"];
    for next in [10_001, 20_000] {
        let lines = [
            line(10_000, &[], Some(10_000)),
            line(15_000, &sets, None),
            line(15_001, &["in 3600000"], Some(next)),
            line(20_001, &["count"], Some(20_000)),
            line(20_002, &["in 3600000"], None),
        ];
        let mut told = run_masked(&lines);
        let second_mark = told.pop();
        assert_eq!(second_mark.as_deref(), Some("set"));
        let counted = if next == 20_000 { "none" } else { "1" };
        let expected = [
            "set".to_owned(),
            "fired 9999, count none".into(),
            "fired 10000, count none".into(),
            format!("fired 20000, count {counted}"),
        ];
        assert_eq!(told, expected, "at the next advance, to {next}");
    }
}

/// As [`run`], without the times of the clock.
fn run_masked(lines: &[Value]) -> Vec<String> {
    let [first, others @ ..] = [1_024, 1, 7].map(|batch| {
        let job = job(&steps(BY_FIELD, &format!("batch = {{ records = {batch} }}")), lines);
        job.run(&[]).expect_code(0);
        let told = told(&job).into_iter();
        told.map(|told| if told.starts_with("set ") { "set".to_owned() } else { told }).collect::<Vec<_>>()
    });
    others.into_iter().for_each(|other| assert_eq!(other, first));
    first
}

#[test]
fn t5_a_timer_fires_over_state_that_is_gone_and_one_that_was_deleted_does_not() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["count", "set 60000"], &["fired 60000, count 1"]),
        (&["count", "set 60000", "clear"], &["fired 60000, count none"]),
        (&["count", "set 60000", "delete 60000", "set 60000"], &["fired 60000, count 1"]),
        (&["count", "set 60000", "delete 60000"], &[]),
    ];
    for (steps, expected) in cases {
        let lines =
            [line(1_000, steps, Some(50_000)), line(61_000, &[], Some(60_000)), line(61_001, &[], Some(61_000))];
        assert_eq!(run(&lines), expected, "{steps:?}");
    }
}

#[test]
fn t4_overdue_processing_timers_fire_once_in_order_after_a_restore_and_show_their_own_times() {
    let pipeline = steps("follow = true", "");
    let job = job(&pipeline, &[line(0, &["in 6000", "in 6300", "in 3600000"], None)]);
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| told(&job).len() == 3), "the timers are set");
    assert!(running.kill());
    let set: Vec<_> = told(&job).iter().filter_map(|told| told.strip_prefix("set ")?.parse::<u128>().ok()).collect();
    let cut = newest_checkpoint(&job);
    until(set[1]);
    let fired = [set[0], set[1]].map(|time| format!("fired {time}, count none"));
    // The same from the same checkpoint as often as one likes.
    for arguments in [vec![], vec!["--from", cut.as_str()]] {
        let before = told(&job).len();
        let mut running = job.start(&arguments);
        assert!(running.wait_until(|| told(&job).len() >= before + 2), "{}", running.stderr());
        running.signal("TERM");
        running.wait().expect_code(130);
        assert_eq!(told(&job)[before..], fired, "the third waits");
    }
}

fn newest_checkpoint(job: &Job) -> String {
    let listed = job.command(&["checkpoints", "list"], &["--json"]).expect_code(0);
    let kept = listed.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let decided = kept.filter(|checkpoint| checkpoint["decided"] == true);
    let newest = decided.filter_map(|checkpoint| checkpoint["checkpoint"].as_u64()).max();
    newest.unwrap_or_else(|| panic!("no checkpoint in {}", listed.stdout)).to_string()
}

/// Waits until the clock shows `millis`.
#[expect(clippy::disallowed_methods, reason = "timers of another process fall due by the machine's clock")]
fn until(millis: u128) {
    while SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() < millis {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn scans_and_walks_go_over_all_pages_whatever_ends_them() {
    let all =
        |what: &str, count: u64| format!("{what}: {count} entries, sum {}, in order true", count * (count - 1) / 2);
    // Pages that end at their number of entries, and pages that end at their bytes.
    for (count, size) in [(3_000, 8), (60, 200_000)] {
        let half = count / 2;
        let (put, more) = (format!("put 0 {half} {size}"), format!("put {half} {count} {size}"));
        let (append, rest) = (format!("append 0 {half} {size}"), format!("append {half} {count} {size}"));
        let lines = [
            line(0, &[&put, &append], None),
            // In a call of its own, over what is stored and what the call has written.
            line(1, &["set 1"], Some(1)),
            line(2, &[&more, "scan", "scan-back"], None),
            line(3, &[&rest, "walk"], None),
            line(4, &["set 4"], Some(4)),
            line(5, &["walk", "empty", "walk", "scan-remove"], None),
            line(6, &["scan"], None),
        ];
        let odd = format!("scan: {half} entries, sum {}, in order true", half * half);
        let told: Vec<_> = run(&lines).into_iter().filter(|told| !told.starts_with("fired")).collect();
        let expected = [
            all("scan", count),
            all("scan-back", count),
            format!("walk: {count} of {count} elements, in order true"),
            format!("walk: {count} of {count} elements, in order true"),
            "walk: 0 of 0 elements, in order true".to_owned(),
            all("scan-remove", count),
            odd,
        ];
        assert_eq!(told, expected, "{count} of {size} bytes");
    }
}
