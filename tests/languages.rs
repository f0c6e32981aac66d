//! The contract is not Rust's alone: one operator in Rust with the SDK, in C and in JavaScript without one, over the same input.
//!
//! A guest whose tool cannot be had is left out and named; Rust's is always there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use wasmill_tests::{Harness, Job, Pipeline};

const ROWS: i64 = 3000;
const WINDOW_MS: i64 = 10_000;

/// The guests that there are, by language.
fn guests() -> Vec<(&'static str, PathBuf)> {
    let harness = Harness::get();
    let others = [("C", "probe_c"), ("JavaScript", "probe_js")];
    let others = others.into_iter().filter_map(|(language, name)| Some((language, harness.probe(name)?)));
    [("Rust", harness.guest("wasmill_test_probe_rust"))].into_iter().chain(others).collect()
}

/// The operator over `input.jsonl`; results in `out`, dead letters in `dead`. `more` goes into the operator's table.
fn pipeline(component: &Path, batch: u32, more: &str) -> Pipeline {
    Pipeline::new(format!(
        r#"
[job]
name = "languages"

[checkpoint]
interval = "50ms"

[restart]
attempts = 1
backoff-min = "10ms"

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
fields = ["key", "text"]
record = "array"
time = {{ field = "t", format = "unix-ms" }}

[operator.probe]
component = "{}"
input = {{ from = "lines", exchange = "key", key = "key" }}
batch = {{ records = {batch} }}
on-failure = "dead-letter"
{more}

[sink.out]
connector = "file"
input = "probe"
path = "out"

[sink.dead]
connector = "file"
input = "probe/dead-letter"
path = "dead"
"#,
        component.display()
    ))
}

fn slowly(pipeline: Pipeline) -> Pipeline {
    pipeline.with("record = \"array\"", "record = \"array\"\nrate = 5000")
}

/// Record `row`: its time, before 1970 and after and in steps for which the watermark advances each, its key and its text.
fn record(row: i64) -> (i64, String, String) {
    let text = if row % 97 == 0 { "reject".to_owned() } else { format!("wört{}", row * 31 % 17) };
    (row * 137 - 20_000, format!("k{}", row * 7919 % 13), text)
}

fn job(pipeline: &Pipeline) -> Job {
    let job = Job::new(pipeline);
    let mut lines = String::new();
    for row in 0..ROWS {
        let (t, key, text) = record(row);
        writeln!(lines, "{}", json!({ "t": t, "key": key, "text": text })).expect("a text takes everything");
    }
    std::fs::write(job.folder().join("input.jsonl"), lines).expect("the input can be written");
    job
}

/// What the operator has to emit, by an account of its own. A record comes before the watermark that it makes.
fn expected() -> Vec<String> {
    let mut lines = Vec::new();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut words = BTreeMap::<String, BTreeMap<String, u64>>::new();
    let mut timers = BTreeSet::new();
    for row in 0..=ROWS {
        let (t, key, text) = record(row);
        if row < ROWS && text != "reject" {
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            let seen = words.entry(key.clone()).or_default().entry(text.clone()).or_default();
            *seen += 1;
            timers.insert((t.div_euclid(WINDOW_MS) * WINDOW_MS + WINDOW_MS - 1, key.clone()));
            lines.push(json!({ "key": key, "seen": *seen, "text": text, "count": *count }).to_string());
        }
        let watermark = if row < ROWS { t - 1 } else { i64::MAX };
        while timers.first().is_some_and(|(at, _)| *at <= watermark) {
            let Some((at, key)) = timers.pop_first() else { break };
            let words: Vec<_> = words.remove(&key).unwrap_or_default().into_iter().collect();
            lines.push(json!({ "at": at, "key": key, "count": counts[&key], "words": words }).to_string());
        }
    }
    lines.sort();
    lines
}

fn sorted(job: &Job) -> Vec<String> {
    let mut lines = job.output("out").lines;
    lines.sort();
    lines
}

/// Kills the running job once something of it is visible that was not there before.
fn kill_midway(job: &Job) {
    let before = job.output("out").lines.len();
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("out").lines.len() > before), "it ended by itself:\n{}", running.stderr());
    assert!(running.kill());
}

#[test]
fn every_language_gives_the_same_output_whatever_the_batch_and_with_a_kill_in_between() {
    let expected = expected();
    for (language, component) in guests() {
        for batch in [1, 7, 1024] {
            let pipeline = pipeline(&component, batch, "");
            let job = job(&slowly(pipeline.clone()));
            kill_midway(&job);
            job.change(&pipeline);
            let ended = job.run(&[]).expect_code(0);
            assert!(ended.stderr.contains("restored="), "{language}, {batch}: {}", ended.stderr);
            assert!(
                sorted(&job) == expected,
                "{language}, batches of {batch}: {} lines",
                job.output("out").lines.len()
            );
            let dead = job.output("dead").records().collect::<Vec<_>>();
            assert_eq!(dead.len(), (0..ROWS).filter(|row| row % 97 == 0).count(), "{language}, batches of {batch}");
            assert!(dead.iter().all(|letter| letter["message"] == "told to reject"), "{language}: {dead:?}");
        }
    }
}

#[test]
fn a_job_goes_on_in_another_language_over_the_same_state() {
    let guests = guests();
    let (_, first) = &guests[guests.len() - 1];
    let job = job(&slowly(pipeline(first, 1024, "")));
    kill_midway(&job);
    for (_, component) in guests.iter().rev().skip(1) {
        job.change(&slowly(pipeline(component, 1024, "")));
        kill_midway(&job);
    }
    job.change(&pipeline(&guests[0].1, 1024, ""));
    job.run(&[]).expect_code(0);
    assert!(sorted(&job) == expected(), "{} lines", job.output("out").lines.len());
}

#[test]
fn a_crash_in_any_language_is_isolated_to_its_record_and_says_where_it_was() {
    let said = BTreeMap::from([
        ("Rust", vec!["told to crash", "Probe"]),
        ("C", vec!["in told_to_crash < "]),
        ("JavaScript", vec!["told to crash", "at toldToCrash (", "probe.js:"]),
    ]);
    for (language, component) in guests() {
        let job = Job::new(&pipeline(&component, 1024, ""));
        let line = |row: i64| json!({ "t": row, "key": "k", "text": if row == 17 { "crash" } else { "a" } });
        let lines: String = (0..40).map(|row| format!("{}\n", line(row))).collect();
        std::fs::write(job.folder().join("input.jsonl"), lines).expect("the input can be written");
        job.run(&[]).expect_code(0);
        let dead: Vec<_> = job.output("dead").records().collect();
        let [letter] = &dead[..] else { panic!("{language}: {dead:?}") };
        assert_eq!(
            (&letter["kind"], &letter["time"], &letter["value"]),
            (&json!("trap"), &json!(17), &json!(["k", "crash"]))
        );
        let message = letter["message"].as_str().expect("a message");
        for part in &said[language] {
            assert!(message.contains(part), "{language}: {part}: {message}");
        }
        let last = job.output("out").records().max_by_key(|record| record["count"].as_u64()).expect("records");
        assert_eq!((last["count"].as_u64(), job.output("out").lines.len()), (Some(39), 40), "{language}: {last}");
    }
}

#[test]
fn a_component_that_imports_the_whole_of_wasi_loads_where_that_is_denied() {
    let Some(component) = Harness::get().probe("probe_js_wasi") else { return };
    let job = job(&pipeline(&component, 1024, ""));
    let refused = job.command(&["check"], &[]).expect_code(2).stderr;
    for part in ["which is not granted", "`wasi:", "grants = [\"clock\", \"random\"]", "wasi = \"deny\""] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    job.change(&pipeline(&component, 1024, "wasi = \"deny\"\ngrants = [\"clock\"]"));
    let checked = job.command(&["check"], &[]).expect_code(0).stdout;
    assert!(checked.contains("granted clock, ") && checked.contains("interface(s) of WASI denied"), "{checked}");
    job.run(&[]).expect_code(0);
    assert!(sorted(&job) == expected());
    let cases = format!(
        "{}\n{}\n{}\n{{\"case\": \"a\"}}\n{{\"record\": [\"k\", \"word\"], \"key\": \"k\", \"time\": 0}}\n",
        json!({ "component": component }),
        json!({ "wasi": "deny" }),
        json!({ "grants": ["clock"] }),
    );
    let file = job.folder().join("probe.test.jsonl");
    std::fs::write(&file, cases).expect("the case can be written");
    let tried = std::process::Command::new(Harness::get().wasmill()).arg("test").arg(&file).arg("--bless").output();
    let told = String::from_utf8_lossy(&tried.expect("wasmill starts").stdout).into_owned();
    assert!(told.ends_with("1 case: 1 passed, 0 failed, 1 blessed\n"), "{told}");
}
