//! The flights example, whole: its answer is right, and the same however the records are cut and spread.

use std::process::Command;

use wasmill_tests::{Harness, Job, Pipeline};

/// The example over its committed sample of 34,506 flights.
fn flights() -> Pipeline {
    let harness = Harness::get();
    let sample = harness.root().join("examples/flights/sample.csv.gz");
    Pipeline::of_example("flights")
        .with("data/flights.csv.gz", &sample.to_string_lossy())
        .with("per_aircraft.wasm", &harness.guest("per_aircraft").to_string_lossy())
}

/// What the job writes, sorted by aircraft and sequence.
fn output_of(pipeline: &Pipeline) -> Vec<String> {
    let job = Job::new(pipeline);
    job.run(&[]).expect_code(0);
    job.output("run/out").sorted_by("tailnum", "flights")
}

#[test]
fn totals_equal_an_independent_recomputation() {
    let job = Job::new(&flights());
    job.run(&[]).expect_code(0);
    let example = Harness::get().root().join("examples/flights");
    let compared = Command::new("python3")
        .arg(example.join("recompute.py"))
        .arg(example.join("sample.csv.gz"))
        .arg("--against")
        .arg(job.folder().join("run/out"))
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success(), "{said}{}", String::from_utf8_lossy(&compared.stderr));
    let summary: serde_json::Value = serde_json::from_str(said.trim()).expect("a summary as JSON");
    let expected = serde_json::json!({
        "aircraft": 405, "records": 34_255, "mismatches": 0, "rows": 34_506, "without_tailnum": 251, "without_arr_delay": 1_070
    });
    assert_eq!(summary, expected);
}

#[test]
fn output_does_not_depend_on_the_batch_size() {
    let with_batches_of = |records: u32| {
        output_of(&flights().with("parallelism = 2", &format!("parallelism = 2\nbatch = {{ records = {records} }}")))
    };
    let large = with_batches_of(1_024);
    assert_eq!(large.len(), 34_255);
    for records in [1, 7] {
        assert!(with_batches_of(records) == large, "batches of {records} give another output");
    }
}

#[test]
fn output_does_not_depend_on_parallelism() {
    let with_subtasks = |count: u32| output_of(&flights().with("parallelism = 2", &format!("parallelism = {count}")));
    let one = with_subtasks(1);
    for count in [2, 4] {
        assert!(with_subtasks(count) == one, "{count} subtasks give another output");
    }
}
