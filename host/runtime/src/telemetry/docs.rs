//! docs/metrics.md, made from the table of metrics.
//!
//! Owns the document's layout. Does not own what is said of a metric.

use std::fmt::Write;

use super::metric::{ALL, Kind};

const HEAD: &str = "\
# Metrics

<!-- Made by `wasmill docs metrics` from the table in host/runtime/src/telemetry/metric.rs; edit it there. -->

The admin endpoint of a running job (`[admin]` in the pipeline file; `wasmill status` finds it) shows these at `/metrics`, in
Prometheus' text form. Labels: `job` is the job's name, `uid` a node of the pipeline, `subtask` its index from 0, or `merge` for the
one that merges an operator's broadcast inputs for its subtasks. Counters go on over the job's restarts within a process and begin at
0 with the process.

";

const TAIL: &str = "
A component may count for itself through the `diagnostics` import: its metrics are called `wasmill_guest_NAME` and labelled `uid`
and `subtask`. At most 100 names a component; what goes beyond is dropped, with one warning in the log.
";

/// The whole document.
#[must_use]
pub fn markdown() -> String {
    let mut text = format!("{HEAD}| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "| `{}` | {kind} | {} | {labels} | {} |", metric.name, metric.unit, metric.meaning);
    }
    text + TAIL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_the_table_says() {
        let committed = include_str!("../../../../docs/metrics.md");
        assert!(committed == markdown(), "docs/metrics.md is not up to date: wasmill docs metrics >docs/metrics.md");
    }

    #[test]
    fn names_say_their_unit() {
        for metric in ALL {
            assert!(metric.name.starts_with("wasmill_"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            for (unit, word) in [("seconds", "seconds"), ("microseconds", "microseconds"), ("bytes", "bytes")] {
                assert!(metric.unit != unit || metric.name.contains(word), "{} is in {unit}", metric.name);
            }
        }
    }
}
