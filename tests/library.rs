//! The Rust SDK's library in running jobs. Cases of the field carry their number.

use serde_json::{Value, json};
use wasmill_tests::lines::{job, lines, write};
use wasmill_tests::{Harness, Pipeline};

/// The parts that judge each record's lateness by itself.
const PARTS: [&str; 6] = ["windows", "sessions", "join", "window-join", "dedup", "pattern"];

/// Lines through the library guest, what is late in `late` and what was seen in `seen`. The texts go into the source and the operator's
/// table.
fn library(source: &str, operator: &str) -> Pipeline {
    let more = ["late", "seen"].map(|name| {
        format!(
            "[sink.{name}]\nconnector = \"file\"\ninput = \"library/{name}\"\npath = \"{name}\"\nformat = \"jsonl\"\n\n"
        )
    });
    lines("library", source, operator).with("[sink.out]", &format!("{}[sink.out]", more.concat()))
}

/// Runs the lines with batches of several sizes at several parallelisms. All must give the same in `out` and `late`, which is returned
/// sorted by `order`.
fn run<T: Ord + std::fmt::Debug>(
    source: &str,
    config: &str,
    lines: &[Value],
    order: impl Fn(&Value) -> T,
) -> (Vec<T>, Vec<T>) {
    let mut first = None;
    for (parallelism, batch) in [(1, 1), (1, 1_024), (2, 7)] {
        let operator = format!("parallelism = {parallelism}\nbatch = {{ records = {batch} }}\nconfig = {config}");
        let job = job(&library(source, &operator), lines);
        job.run(&[]).expect_code(0);
        let sorted = |path| {
            let mut found: Vec<_> = job.output(path).records().map(|record| order(&record)).collect();
            found.sort();
            found
        };
        let found = (sorted("out"), sorted("late"));
        let first = first.get_or_insert_with(|| (sorted("out"), sorted("late")));
        assert_eq!(&found, first, "parallelism {parallelism}, batches of {batch}");
    }
    first.expect("it ran")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn start_and_n(record: &Value) -> (i64, i64) {
    (record["start"].as_i64().expect("a start"), record["n"].as_i64().expect("a number"))
}

#[test]
fn e1_times_before_1970_lie_in_the_window_that_begins_at_or_before_them() {
    let lines = [-20_000, -10_001, -10_000, -1, 0, 9_999].map(|t| json!({"key": "k", "t": t}));
    let (out, late) = run("", "{ parts = [\"windows\"] }", &lines, start_and_n);
    assert_eq!(out, [(-20_000, 2), (-10_000, 2), (0, 2)]);
    assert_eq!(late, []);
}

#[test]
fn e7_every_part_finds_a_record_at_the_watermark_late_once_and_one_behind_it_not() {
    let lines = [
        json!({"key": "k", "t": 500, "wm": 999}),
        json!({"key": "k", "t": 998, "wm": null}),
        json!({"key": "k", "t": 999, "wm": null}),
        json!({"key": "k", "t": 1_000, "wm": null}),
    ];
    let parts = PARTS.map(|part| format!("\"{part}\"")).join(", ");
    let source = "watermark = { field = \"wm\", format = \"unix-ms\" }";
    // Sessions of a millisecond, so that no late record prolongs one that is open.
    for (span, parts) in [(1_000, parts.replace("\"sessions\", ", "")), (1, "\"sessions\"".to_owned())] {
        let config = format!("{{ parts = [{parts}], span = {span} }}");
        let (out, late) = run(source, &config, &lines, |record| (start_and_n(record), text(&record["part"])));
        let mut expected = Vec::new();
        for time in [998, 999] {
            expected
                .extend(PARTS.iter().filter(|part| parts.contains(**part)).map(|part| ((time, 1), (*part).to_owned())));
        }
        expected.sort();
        assert_eq!(late, expected);
        if span == 1_000 {
            let windows: Vec<_> = out.iter().filter(|(_, part)| part == "windows").map(|(told, _)| *told).collect();
            assert_eq!(windows, [(0, 1), (1_000, 1)], "a window that has fired does not fire again");
        }
    }
}

#[test]
fn e9_a_second_stage_takes_what_the_first_emits_at_the_watermark() {
    let guest = Harness::get().guest("wasmill_test_library");
    for (parallelism, batch) in [(1, 1_024), (2, 1), (2, 7)] {
        let operator = format!("parallelism = {parallelism}\nbatch = {{ records = {batch} }}");
        let second = format!(
            "[operator.sums]\ncomponent = \"{}\"\ninput = {{ from = \"library\", exchange = \"key\", key = \"key\" }}\n\
             {operator}\nconfig = {{ parts = [\"windows\"], span = 30000 }}\n\n[sink.summed]\nconnector = \"file\"\n\
             input = \"sums\"\npath = \"sums\"\nformat = \"jsonl\"\n\n[sink.tardy]\nconnector = \"file\"\n\
             input = \"sums/late\"\npath = \"tardy\"\nformat = \"jsonl\"\n\n[sink.out]",
            guest.display()
        );
        let config = format!("{operator}\nconfig = {{ parts = [\"windows\"] }}");
        let lines: Vec<_> = (0..60).map(|second| json!({"key": "k", "t": second * 1_000})).collect();
        let job = job(&library("", &config).with("[sink.out]", &second), &lines);
        job.run(&[]).expect_code(0);
        let found: Vec<_> = job.output("sums").records().map(|record| start_and_n(&record)).collect();
        assert_eq!(found, [(0, 30), (30_000, 30)]);
        assert_eq!(job.output("out").lines.len(), 6);
        assert!(job.output("late").is_empty() && job.output("tardy").is_empty(), "none is late in either stage");
    }
}

#[test]
fn e11_a_skip_rule_says_what_a_match_uses_up_and_ties_keep_their_order_over_a_restore() {
    let lines = [("a1", 1), ("a2", 1), ("b1", 1), ("b2", 2)]
        .map(|(name, second)| json!({"key": "k", "t": second * 1_000, "name": name}));
    let cases: [(&str, &[&str]); 3] =
        [("nothing", &["a1b1", "a2b1", "a1b2", "a2b2"]), ("past-last", &["a1b1"]), ("to-next", &["a1b1", "a2b1"])];
    for (number, (skip, expected)) in cases.into_iter().enumerate() {
        let config = format!("config = {{ parts = [\"pattern\"], skip = \"{skip}\" }}");
        let job = job(&library("follow = true", &config), &[]);
        // Killed behind each record, but for the last; every rule with another half of the places keeps the test short.
        for killed_behind in (1..lines.len()).filter(|place| number == 0 || place % 2 == number % 2) {
            write(&job, &lines[..killed_behind]);
            let mut running = job.start(&[]);
            assert!(running.wait_until(|| job.output("seen").lines.len() == killed_behind));
            assert!(running.kill());
        }
        write(&job, &lines);
        job.change(&library("", &config));
        let ended = job.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("restored="), "{}", ended.stderr);
        let found: Vec<_> = job.output("out").records().map(|record| text(&record["name"])).collect();
        assert_eq!(found, expected, "{skip}");
    }
}

#[test]
fn e12_an_id_is_let_through_once_a_horizon_and_forgotten_behind_it() {
    let second = |key: &str, millis: i64| json!({"key": key, "t": millis});
    let mut lines = vec![second("x", 100_000), second("x", 95_000), second("x", 109_999)];
    // Whether the row of x is gone when its next one comes: the watermark is 109.499 or 109.999 then.
    for behind in [114_500, 115_000] {
        let mut lines = lines.clone();
        lines.extend([second("w", behind), second("x", 110_000)]);
        let (out, late) = run("watermark = { out-of-order = \"5s\" }", "{ parts = [\"dedup\"] }", &lines, |record| {
            (text(&record["key"]), record["start"].as_i64())
        });
        let expected = [("w", behind), ("x", 100_000), ("x", 110_000)].map(|(key, time)| (key.to_owned(), Some(time)));
        assert_eq!(out, expected);
        assert_eq!(late, []);
    }
    let others = 100_000;
    lines.extend((0..others).map(|id| second(&format!("id-{id}"), 110_000 + id * 79_000 / others)));
    lines.push(second("last", 205_001));
    let job = job(
        &library("follow = true\nwatermark = { out-of-order = \"5s\" }", "config = { parts = [\"dedup\"] }"),
        &lines,
    );
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("seen").lines.len() == lines.len()));
    running.signal("TERM");
    let ended = running.wait().expect_code(130);
    assert_eq!(job.output("out").lines.len() as i64, 1 + others + 1);
    let entries = ended.stderr.rsplit_once("state_entries=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let entries: u64 = entries.unwrap_or_else(|| panic!("{}", ended.stderr));
    assert!(entries <= 2, "{entries} entries: the last id and its timer, nothing of those whose horizons are over");
}
