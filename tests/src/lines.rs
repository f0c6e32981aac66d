//! Lines of a file, each a record as JSON, through one guest of the tests.

use serde_json::Value;

use crate::{Harness, Job, Pipeline};

/// Where [`job`] puts the lines.
const FILE: &str = "lines.jsonl";

/// Lines through the guest `wasmill_test_UID`, which has that uid; results in `out`. The time is the field `t`, the key the field `key`. The
/// texts go into the source's and into the operator's table.
#[must_use]
pub fn lines(uid: &str, source: &str, operator: &str) -> Pipeline {
    let guest = Harness::get().guest(&format!("wasmill_test_{uid}"));
    Pipeline::new(format!(
        r#"
[job]
name = "{uid}"

[checkpoint]
interval = "100ms"

[source.lines]
connector = "file"
path = "{FILE}"
format = "json"
time = {{ field = "t", format = "unix-ms" }}
{source}

[operator.{uid}]
component = "{}"
input = {{ from = "lines", exchange = "key", key = "key" }}
{operator}

[sink.out]
connector = "file"
input = "{uid}"
path = "out"
format = "jsonl"
"#,
        guest.display()
    ))
}

/// A job over these lines.
///
/// # Panics
/// Where they cannot be written.
#[must_use]
pub fn job(pipeline: &Pipeline, lines: &[Value]) -> Job {
    let job = Job::new(pipeline);
    write(&job, lines);
    job
}

/// Gives a job these lines, in place of those that it had.
///
/// # Panics
/// Where they cannot be written.
pub fn write(job: &Job, lines: &[Value]) {
    write_to(job, FILE, lines);
}

/// The same in a file of that name.
///
/// # Panics
/// Where they cannot be written.
pub fn write_to(job: &Job, name: &str, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(job.folder().join(name), text).expect("the lines can be written");
}
