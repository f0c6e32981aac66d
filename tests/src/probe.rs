//! The probe guest over lines of a file: it does what a line says.

use std::fmt::Write as _;

use crate::{Harness, Job, Pipeline};

/// Lines through the probe guest; results in `out`. The texts go into the source, into the operator, and behind all.
#[must_use]
pub fn probe(source: &str, operator: &str, rest: &str) -> Pipeline {
    let component = Harness::get().guest("wasmill_example_probe");
    Pipeline::new(format!(
        r#"
[job]
name = "probe"

[checkpoint]
interval = "100ms"

[restart]
attempts = 1
backoff-min = "10ms"

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
{source}

[operator.probe]
component = "{}"
input = {{ from = "lines", exchange = "key", key = "key", on-missing-key = "drop" }}
{operator}

[sink.out]
connector = "file"
input = "probe"
path = "out"
format = "jsonl"
{rest}
"#,
        component.display()
    ))
}

/// A job over lines `KEY:TEXT`.
///
/// # Panics
/// Where a line is none, or the input cannot be written.
#[must_use]
pub fn job(pipeline: &Pipeline, lines: &[&str]) -> Job {
    let job = Job::new(pipeline);
    let mut text = String::new();
    for line in lines {
        let (key, command) = line.split_once(':').expect("a line is KEY:TEXT");
        let record = serde_json::json!({ "key": key, "text": command });
        writeln!(text, "{record}").expect("a text takes everything");
    }
    std::fs::write(job.folder().join("input.jsonl"), text).expect("the input can be written");
    job
}
