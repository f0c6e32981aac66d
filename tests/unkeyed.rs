//! State of no key, end to end: broadcast inputs and state, operator state, across kills and other parallelisms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wasmill_tests::{Harness, Job, Pipeline};

/// Two broadcast sources and a keyed one; `rate` goes into the broadcast ones, `rest` into the operator.
fn pipeline(parallelism: u32, rate: &str, rest: &str) -> Pipeline {
    let source = |name: &str, subtasks: u32, more: &str| {
        format!(
            "[source.{name}]\nconnector = \"file\"\npath = \"{name}*.jsonl\"\nformat = \"json\"\nparallelism = {subtasks}\n\
             time = {{ field = \"t\", format = \"unix-ms\" }}\n{more}\n\n"
        )
    };
    let sink = |name: &str| {
        format!("[sink.{name}]\nconnector = \"file\"\ninput = \"op/{name}\"\npath = \"{name}\"\nformat = \"jsonl\"\n\n")
    };
    let sources = [source("events", 1, rate), source("rules", 2, rate), source("rates", 1, rate)].concat();
    let sinks = ["checked", "seen", "shown"].map(sink).concat();
    let component = Harness::get().guest("wasmill_test_unkeyed");
    Pipeline::new(format!(
        r#"
[job]
name = "unkeyed"

[checkpoint]
interval = "100ms"

[restart]
attempts = 1
backoff-min = "10ms"

{sources}
[operator.op]
component = "{}"
parallelism = {parallelism}
input = [
  {{ from = "events", exchange = "key", key = "name" }},
  {{ from = "rules", exchange = "broadcast", port = "rules" }},
  {{ from = "rates", exchange = "broadcast", port = "rates" }},
]
{rest}

{sinks}"#,
        component.display()
    ))
}

fn write(job: &Job, name: &str, lines: impl IntoIterator<Item = Value>) {
    let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(job.folder().join(name), text).expect("the lines can be written");
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What each subtask saw, by the number of the broadcast record: without the subtask itself it must be one and the same.
fn seen_alike(job: &Job) -> (BTreeMap<u64, Value>, BTreeSet<u64>) {
    let (mut content, mut subtasks) = (BTreeMap::new(), BTreeMap::<u64, BTreeSet<u64>>::new());
    let mut parallelisms = BTreeMap::new();
    for mut seen in job.output("seen").records() {
        let number = seen["number"].as_u64().expect("a number");
        let subtask = seen["subtask"].as_u64().expect("a subtask");
        parallelisms.insert(number, seen["parallelism"].as_u64().expect("a parallelism"));
        assert!(subtasks.entry(number).or_default().insert(subtask), "twice: {seen}");
        seen.as_object_mut().expect("an object").remove("subtask");
        let before = content.entry(number).or_insert_with(|| seen.clone());
        assert_eq!(*before, seen, "subtask {subtask} saw something else");
    }
    for (number, subtasks) in subtasks {
        let all: BTreeSet<u64> = (0..parallelisms[&number]).collect();
        assert_eq!(subtasks, all, "not every subtask saw number {number}");
    }
    (content, parallelisms.into_values().collect())
}

/// V6: one broadcast source ends long before the kills, and its records are still there, once.
#[test]
fn every_subtask_sees_the_same_broadcast_records_across_kills_and_other_parallelisms() {
    const EACH: u64 = 150;
    const RATES: u64 = 10;
    let rate = "rate = 25";
    let job = Job::new(&pipeline(1, rate, ""));
    let lines = |what: &'static str, count: u64| {
        (0..count).map(move |n| json!({ "name": format!("{what}{}", n % 7), "value": n.to_string(), "t": n * 1_000 }))
    };
    write(&job, "rules-1.jsonl", lines("a", EACH));
    write(&job, "rules-2.jsonl", lines("b", EACH));
    write(&job, "rates.jsonl", lines("a", RATES));
    write(&job, "events.jsonl", lines("key", EACH));
    let seen = || job.output("seen").lines.len();
    for (at, next) in [(1, 3), (3, 2)] {
        let before = seen();
        let mut running = job.start(&[]);
        assert!(running.wait_until(|| seen() > before), "parallelism {at}: the input ended:\n{}", running.stderr());
        running.kill();
        job.change(&pipeline(next, rate, ""));
    }
    job.change(&pipeline(2, "", ""));
    job.run(&[]).expect_code(0);

    let (content, parallelisms) = seen_alike(&job);
    assert_eq!(parallelisms, BTreeSet::from([1, 2, 3]));
    let numbers: Vec<_> = content.keys().copied().collect();
    assert_eq!(numbers, (1..=2 * EACH + RATES).collect::<Vec<_>>(), "each once, in order");
    let mut watermark = i64::MIN;
    let (mut entries, mut after) = (BTreeMap::new(), vec![String::new()]);
    for seen in content.values() {
        let stamped = seen["watermark"].as_i64().expect("a watermark");
        assert!(watermark <= stamped, "time goes back at {seen}");
        watermark = stamped;
        entries.insert(text(&seen["name"]), text(&seen["value"]));
        after.push(entries.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "));
    }
    assert!(watermark > 0, "the watermark of the broadcast inputs went on");
    let checked: Vec<Value> = job.output("checked").records().collect();
    assert_eq!(checked.len() as u64, EACH, "each keyed record once");
    for checked in checked {
        let number = checked["number"].as_u64().expect("a number") as usize;
        assert_eq!(text(&checked["entries"]), after[number], "the entries are those after record {number}");
    }
}

#[test]
fn what_merges_the_broadcast_inputs_is_told_beside_the_operators_subtasks() {
    let job = Job::new(&pipeline(2, "rate = 25", ""));
    for name in ["events", "rules-1", "rules-2", "rates"] {
        write(&job, &format!("{name}.jsonl"), (0..500).map(|n| json!({ "name": "a", "value": "b", "t": n * 1_000 })));
    }
    let mut running = job.start(&[]);
    let subtasks = || {
        let told = job.command(&["status"], &["--json"]).stdout;
        let status: Value = serde_json::from_str(told.trim()).unwrap_or_default();
        status["subtasks"].as_array().cloned().unwrap_or_default()
    };
    let mut told = Vec::new();
    let is_merging = |subtask: &&Value| subtask["role"] == "merging";
    assert!(running.wait_until(|| {
        told = subtasks();
        let merging = told.iter().find(is_merging).cloned().unwrap_or_default();
        merging["barrier"].as_u64() > Some(1) && merging["records-in"].as_u64() > Some(9)
    }));
    let names: Vec<_> =
        told.iter().map(|it| format!("{}/{}/{}", text(&it["uid"]), it["index"], text(&it["role"]))).collect();
    let op = names.iter().position(|name| name == "op/0/node").expect("the operator is told");
    assert_eq!(names[op..][..3], ["op/0/node", "op/1/node", "op/0/merging"]);
    let merging = &told[op + 2];
    assert_eq!(merging["records-in"], merging["records-out"]);
    assert!(merging["watermark"].as_i64() > Some(0), "{merging}");
    assert!(told.iter().all(|subtask| subtask["barrier"].as_u64() > Some(0)), "{told:?}");
    assert!(job.command(&["status"], &[]).expect_code(0).stdout.contains("op/merge"));
    assert!(running.kill());
}

/// A job whose last broadcast or keyed record is at fault.
fn failing(events: &[&str], rules: &[&str]) -> String {
    let job = Job::new(&pipeline(2, "", "on-failure = \"drop\""));
    let lines = |names: &[&str]| names.iter().map(|name| json!({ "name": name, "t": 1 })).collect::<Vec<_>>();
    write(&job, "events.jsonl", lines(events));
    write(&job, "rules.jsonl", lines(rules));
    write(&job, "rates.jsonl", lines(&["rate"]));
    job.run(&[]).expect_code(1).stderr
}

#[test]
fn a_trap_on_a_broadcast_input_fails_the_job_and_names_input_and_record() {
    let stderr = failing(&["a"], &["fine", "panic"]);
    assert!(stderr.contains("of the broadcast input `rules` failed") && stderr.contains("told to"), "{stderr}");
}

#[test]
fn a_keyed_record_that_writes_broadcast_state_is_refused() {
    let stderr = failing(&["a", "write"], &["fine"]);
    let expected = "state `entries` is written on behalf of a broadcast input's record only";
    assert!(stderr.contains(expected), "{stderr}");
}

/// What each subtask shows: its split elements, and what union state shows it.
fn shown(job: &Job, phase: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let texts = |value: &Value| value.as_array().expect("a list").iter().map(text).collect::<Vec<_>>();
    let mut shown: Vec<_> = job
        .output("shown")
        .records()
        .filter(|shown| shown["value"] == phase)
        .map(|shown| (shown["subtask"].as_u64(), (texts(&shown["split"]), texts(&shown["union"]))))
        .collect();
    shown.sort();
    shown.into_iter().map(|(_, elements)| elements).collect()
}

#[test]
fn operator_state_is_given_out_evenly_and_shown_whole_at_other_parallelisms() {
    let job = Job::new(&pipeline(2, "", ""));
    let add = |to: u32, value: &str| json!({ "name": "add", "to": to, "value": value, "t": 1 });
    let show = |phase: &str| json!({ "name": "show", "value": phase, "t": 1 });
    let elements = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
    let both = |split: &[&str], union: &[&str]| (elements(split), elements(union));
    write(&job, "events.jsonl", [json!({ "name": "a", "t": 1 })]);
    write(&job, "rates.jsonl", [json!({ "name": "a", "t": 1 })]);
    write(&job, "rules-1.jsonl", [add(0, "a1"), add(1, "b1"), add(1, "b2"), add(1, "b3"), show("one")]);
    job.run(&[]).expect_code(0);
    let b = ["b1", "b2", "b3"];
    assert_eq!(shown(&job, "one"), [both(&["a1"], &["a1"]), both(&b, &b)]);

    job.change(&pipeline(3, "", ""));
    write(&job, "rules-2.jsonl", [show("two"), add(1, "c1"), show("three")]);
    job.run(&[]).expect_code(0);
    let all = ["a1", "b1", "b2", "b3"];
    assert_eq!(shown(&job, "two"), [both(&["a1"], &all), both(&["b1"], &all), both(&["b2", "b3"], &all)]);
    let (own, last) = (["b1", "c1"], ["b2", "b3"]);
    assert_eq!(shown(&job, "three"), [both(&["a1"], &all), both(&own, &own), both(&last, &all)]);

    job.change(&pipeline(1, "", ""));
    write(&job, "rules-3.jsonl", [show("four")]);
    job.run(&[]).expect_code(0);
    let all = ["a1", "b1", "c1", "b2", "b3"];
    assert_eq!(shown(&job, "four"), [both(&all, &all)]);
}
