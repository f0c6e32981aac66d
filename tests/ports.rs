//! Many inputs and outputs, end to end: two-input operators, unions, side outputs, fan-out, every kind of edge.

use wasmill_tests::{Harness, Job, Output, Pipeline};

/// Three sources into two inputs, two outputs into five sinks, beside them a stateless branch; `rate` goes into the sources.
fn pipeline(parallelism: u32, rate: &str) -> Pipeline {
    let harness = Harness::get();
    let source = |name: &str, seed: u32, parallelism: u32| {
        format!(
            "[source.{name}]\nconnector = \"generator\"\nrecords = 6000\nkeys = 40\nseed = {seed}\n\
             parallelism = {parallelism}\n{rate}\n"
        )
    };
    let sources = [source("a", 1, 1), source("b", 2, 2), source("c", 3, 1)].concat();
    Pipeline::new(format!(
        r#"
[job]
name = "ports"

[checkpoint]
interval = "100ms"

{sources}

[operator.ports]
component = "{ports}"
parallelism = {parallelism}
input = [
  {{ from = "b", exchange = "key", port = "right" }},
  {{ from = "a", exchange = "key", port = "left" }},
  {{ from = "c", exchange = "key", port = "right" }},
]

[operator.relay]
component = "{relay}"
parallelism = 3
input = {{ from = "a", exchange = "rebalance" }}

[sink.counts]
connector = "file"
input = "ports"
path = "counts"
format = "jsonl"

[sink.copy]
connector = "file"
input = {{ from = "ports", exchange = "rebalance" }}
parallelism = 2
path = "copy"
format = "jsonl"

[sink.thirds]
connector = "file"
input = {{ from = "ports/thirds", exchange = "forward" }}
parallelism = {parallelism}
path = "thirds"
format = "jsonl"

[sink.twice]
connector = "file"
input = {{ from = "ports/thirds", exchange = "broadcast" }}
parallelism = 2
path = "twice"
format = "jsonl"

[sink.relayed]
connector = "file"
input = "relay"
parallelism = 3
path = "relayed"
format = "jsonl"
"#,
        ports = harness.guest("wasmill_test_ports").display(),
        relay = harness.guest("wasmill_test_relay").display(),
    ))
}

fn sorted(output: &Output) -> Vec<String> {
    output.sorted_by("key", "count")
}

/// All that the job wrote, sorted.
fn written(job: &Job) -> Vec<Vec<String>> {
    let relayed = job.output("relayed").records().map(|record| record["seq"].to_string()).collect::<Vec<_>>();
    let mut outputs: Vec<_> =
        ["counts", "copy", "thirds", "twice"].map(|path| sorted(&job.output(path))).into_iter().collect();
    outputs.push(relayed);
    outputs.iter_mut().for_each(|lines| lines.sort());
    outputs
}

fn whole() -> Vec<Vec<String>> {
    let job = Job::new(&pipeline(1, ""));
    job.run(&[]).expect_code(0);
    written(&job)
}

#[test]
fn every_record_takes_every_edge_once_at_any_parallelism() {
    let outputs = whole();
    let [counts, copy, thirds, twice, relayed] = outputs.as_slice() else { panic!("five sinks") };
    assert_eq!(counts.len(), 18_000);
    assert_eq!(copy, counts, "a second consumer of one output");
    let side: Vec<_> = counts.iter().filter(|line| is_third(line)).cloned().collect();
    assert_eq!(*thirds, side, "the side output");
    let doubled: Vec<_> = side.iter().flat_map(|line| [line.clone(), line.clone()]).collect();
    assert_eq!(*twice, doubled, "each record to both subtasks of a broadcast edge");
    assert_eq!(relayed.len(), 6_000);
    for parallelism in [2, 3] {
        let job = Job::new(&pipeline(parallelism, ""));
        job.run(&[]).expect_code(0);
        assert!(written(&job) == outputs, "parallelism {parallelism} gave another output than 1");
    }
}

fn is_third(line: &str) -> bool {
    let record: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
    record["input"] == "right" && record["count"].as_u64().is_some_and(|count| count % 3 == 0)
}

#[test]
fn a_kill_with_several_sources_inputs_and_sinks_loses_and_repeats_nothing() {
    let outputs = whole();
    for parallelism in [1, 2, 3] {
        let job = Job::new(&pipeline(parallelism, "rate = 4000"));
        let mut running = job.start(&[]);
        assert!(running.wait_until(|| job.output("counts").lines.len() > 2_000), "the job ended before it was killed");
        assert!(running.kill(), "the job ended before it was killed");
        job.change(&pipeline(parallelism, ""));
        let ended = job.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("restored="), "{}", ended.stderr);
        assert!(written(&job) == outputs, "parallelism {parallelism}: another output after a kill");
    }
}

#[test]
fn an_output_that_nobody_has_and_a_late_output_that_nobody_takes_are_refused_by_line() {
    let job = Job::new(&pipeline(1, "").with("ports/thirds\", exchange = \"forward\"", "ports/third\""));
    let refused = job.command(&["check"], &[]).expect_code(2);
    assert!(refused.stderr.contains("no output `third`; did you mean `thirds`?"), "{}", refused.stderr);
    let with_late = pipeline(1, "").with("port = \"left\"", "port = \"left\", on-late = { output = \"tardy\" }");
    let job = Job::new(&with_late);
    let refused = job.command(&["check"], &[]).expect_code(2);
    assert!(refused.stderr.contains("nothing takes `ports/tardy`"), "{}", refused.stderr);
    assert!(refused.stderr.contains("pipeline.toml:"), "{}", refused.stderr);
    job.change(&with_late.with("input = \"relay\"", "input = [\"relay\", \"ports/tardy\"]"));
    job.command(&["check"], &[]).expect_code(0);
}
