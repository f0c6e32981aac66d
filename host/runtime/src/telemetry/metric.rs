//! The metrics: their names, kinds, labels and meaning, in one table.
//!
//! Owns every name that `/metrics` shows, but for those that guests choose (`wasmill_guest_…`); docs/metrics.md is made from it.
//! Does not own where figures come from ([`super::board`]) nor how they are fetched.

use std::time::Duration;

use wasmill_core::id::JobId;

use super::board::{CheckpointReport, RestoreReport};

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, but for a restart of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What one of it is.
    pub unit: &'static str,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// What it means.
    pub meaning: &'static str,
}

const JOB: &[&str] = &["job"];
const JOB_PART: &[&str] = &["job", "part"];
const SUBTASK: &[&str] = &["job", "uid", "subtask"];
const SUBTASK_REASON: &[&str] = &["job", "uid", "subtask", "reason"];
const SUBTASK_SPLIT: &[&str] = &["job", "uid", "subtask", "split"];
const SUBTASK_STATE: &[&str] = &["job", "uid", "subtask", "state"];

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:ident, $unit:literal, $labels:ident, $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $name: Metric =
                Metric { name: $text, kind: Kind::$kind, unit: $unit, labels: $labels, meaning: $meaning };
        )*

        /// Every metric, in the order in which they are documented.
        pub const ALL: &[Metric] = &[$($name),*];
    };
}

metrics! {
    ATTEMPT = "wasmill_attempt", Gauge, "number", JOB,
        "The attempt that runs: one life of the job between restarts.";
    READY = "wasmill_ready", Gauge, "0 or 1", JOB,
        "1 while records flow, 0 while the job starts, restarts, stops or has ended.";
    RESTARTS = "wasmill_restarts_total", Counter, "restarts", JOB,
        "Restarts after a failure.";
    RECORDS_IN = "wasmill_records_in_total", Counter, "records", SUBTASK,
        "Records taken in; of a source, read.";
    RECORDS_OUT = "wasmill_records_out_total", Counter, "records", SUBTASK,
        "Records sent on; of a sink, none.";
    BYTES_IN = "wasmill_bytes_in_total", Counter, "bytes", SUBTASK,
        "Bytes of keys and values taken in.";
    BYTES_OUT = "wasmill_bytes_out_total", Counter, "bytes", SUBTASK,
        "Bytes of keys and values sent on.";
    DROPPED = "wasmill_records_dropped_total", Counter, "records", SUBTASK_REASON,
        "Records left out by a policy: `undecodable` (a source could not decode them), `missing-key` (a keyed input found no key), `rejected` (the component refused them), `late` (the watermark had passed them), and what the component's call failed with where they stood alone: `trap`, `time-limit`, `memory-limit`, `result-limit`, `state-limit`, `malformed` (effects that are not valid); of timers, `timer-at-end` (the input ended before their time).";
    DEAD_LETTERS = "wasmill_dead_letters_total", Counter, "records", SUBTASK_REASON,
        "Records set aside as dead letters, by the same reasons.";
    ISOLATIONS = "wasmill_isolations_total", Counter, "batches", SUBTASK,
        "Batches that were run again in pieces to find the records at fault.";
    RERUN_CALLS = "wasmill_rerun_calls_total", Counter, "calls", SUBTASK,
        "Calls of the component for pieces of such batches; among `wasmill_calls_total`.";
    RENEWALS = "wasmill_instance_renewals_total", Counter, "instances", SUBTASK_REASON,
        "Instances of the component that were replaced: after a `failure`, or because their `memory` had grown past `limits.renew-above`.";
    LOG_LINES_DROPPED = "wasmill_log_lines_dropped_total", Counter, "lines", SUBTASK,
        "Log lines of the component left out because there were more than `limits.log-lines` a second.";
    WATERMARK = "wasmill_watermark_seconds", Gauge, "seconds since 1970", SUBTASK,
        "The watermark: no record at or before it is expected. Missing before the first and after the end of input.";
    WATERMARK_LAG = "wasmill_watermark_lag_seconds", Gauge, "seconds", SUBTASK,
        "Processing time less the watermark.";
    BARRIER = "wasmill_barrier", Gauge, "number", SUBTASK,
        "The checkpoint whose barrier the subtask passed on last, or took in last where it is a sink's: while a checkpoint does not end, those with the one before are what it waits for. Missing before the first.";
    SLOWEST_SPLIT = "wasmill_slowest_split", Gauge, "0 or 1", SUBTASK_SPLIT,
        "1 for the source split whose watermark is the least of those that are neither idle nor ended: it holds the job's watermark back. 0 for one that did before. Only where more than one split is read; at most 1,000 splits.";
    LATE = "wasmill_records_late_total", Counter, "records", SUBTASK,
        "Records whose time was at or before the watermark in force when they came, whatever `on-late` made of them.";
    HELD = "wasmill_held_microseconds_total", Counter, "microseconds", SUBTASK,
        "Time in which a source was not read because it was ahead of another by more than `job.max-drift`.";
    BACKPRESSURED = "wasmill_backpressured_microseconds_total", Counter, "microseconds", SUBTASK,
        "Time waited for room in an output; its rate, over a million, is the share of time under backpressure.";
    IDLE = "wasmill_idle_microseconds_total", Counter, "microseconds", SUBTASK,
        "Time waited for input; what is neither idle nor backpressured is busy.";
    CALLS = "wasmill_calls_total", Counter, "calls", SUBTASK,
        "Calls of the component, a batch each.";
    CALLED = "wasmill_called_microseconds_total", Counter, "microseconds", SUBTASK,
        "Time spent in calls of the component.";
    STATE_ENTRIES = "wasmill_state_entries", Gauge, "entries", SUBTASK_STATE,
        "Entries of a state, as of the last barrier.";
    STATE_BYTES = "wasmill_state_bytes", Gauge, "bytes", SUBTASK_STATE,
        "Bytes of a state's keys and values, uncompressed, as of the last barrier.";
    CACHE_HITS = "wasmill_cache_hits_total", Counter, "look-ups", SUBTASK,
        "Look-ups of state that the cache answered, as of the last barrier.";
    CACHE_MISSES = "wasmill_cache_misses_total", Counter, "look-ups", SUBTASK,
        "Look-ups of state that went to the backend, as of the last barrier.";
    CACHE_BYTES = "wasmill_cache_bytes", Gauge, "bytes", SUBTASK,
        "Bytes in the cache in front of a subtask's state, as of the last barrier.";
    ROWS_BYTES = "wasmill_state_memory_bytes", Gauge, "bytes", SUBTASK,
        "Bytes of memory that hold a subtask's rows behind the cache with `state.backend = \"memory\"`, as of the last barrier; with `rocksdb` 0.";
    CHECKPOINTS_COMPLETED = "wasmill_checkpoints_completed_total", Counter, "checkpoints", JOB,
        "Checkpoints decided.";
    CHECKPOINTS_FAILED = "wasmill_checkpoints_failed_total", Counter, "checkpoints", JOB,
        "Checkpoints given up: declined, or longer than `checkpoint.timeout`.";
    CHECKPOINT_SECONDS = "wasmill_checkpoint_seconds", Histogram, "seconds", JOB_PART,
        "How long decided checkpoints took: `total` from trigger to decision; of the slowest subtask, `pause` (the record path stood still), `alignment` (an input waited for another's barrier), `write` (the frozen layer into the backend), `cut` (the local cut), `upload`.";
    CHECKPOINT_ID = "wasmill_checkpoint_id", Gauge, "number", JOB,
        "The last decided checkpoint.";
    CHECKPOINT_DECIDED = "wasmill_checkpoint_decided_seconds", Gauge, "seconds since 1970", JOB,
        "When the last checkpoint was decided.";
    CHECKPOINT_SHARE = "wasmill_checkpoint_share_of_interval", Gauge, "share", JOB,
        "The last checkpoint's total over `checkpoint.interval`; from 1 on, checkpoints come later than asked for.";
    CHECKPOINT_BYTES_NEW = "wasmill_checkpoint_bytes_new", Gauge, "bytes", JOB,
        "Bytes that the last checkpoint uploaded.";
    CHECKPOINT_BYTES_REFERENCED = "wasmill_checkpoint_bytes_referenced", Gauge, "bytes", JOB,
        "Bytes of the last checkpoint that earlier ones had uploaded.";
    RESTORE_SECONDS = "wasmill_restore_seconds", Histogram, "seconds", JOB_PART,
        "How long attempts took to begin: `download`, `open` (the state), `total` until records flowed.";
    RESTORE_BYTES = "wasmill_restore_bytes", Gauge, "bytes", JOB,
        "Bytes that the last restore downloaded.";
    RESTORING_DONE = "wasmill_restoring_bytes", Gauge, "bytes", JOB,
        "Bytes that the restore on its way has downloaded and checked; 0 where there is none.";
    RESTORING_TOTAL = "wasmill_restoring_bytes_of", Gauge, "bytes", JOB,
        "Bytes that it has to download.";
}

impl Metric {
    /// Its labels with their values, in the order of the table.
    fn labelled(&self, values: &[&str]) -> Vec<metrics::Label> {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        self.labels.iter().zip(values).map(|(&name, &value)| metrics::Label::new(name, value.to_owned())).collect()
    }

    /// Sets a counter to what it has come to.
    pub(super) fn reach(&self, labels: &[&str], value: u64) {
        metrics::counter!(self.name, self.labelled(labels)).absolute(value);
    }

    /// Sets a gauge.
    pub(super) fn set(&self, labels: &[&str], value: f64) {
        metrics::gauge!(self.name, self.labelled(labels)).set(value);
    }

    fn observe(&self, labels: &[&str], value: Duration) {
        metrics::histogram!(self.name, self.labelled(labels)).record(value);
    }

    /// Tells the recorder its meaning.
    pub(super) fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.meaning),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.meaning),
            Kind::Histogram => metrics::describe_histogram!(self.name, self.meaning),
        }
    }
}

/// A checkpoint was decided.
pub(super) fn observe_checkpoint(job: &JobId, report: &CheckpointReport) {
    let parts = [
        ("total", report.total),
        ("pause", report.pause),
        ("alignment", report.alignment),
        ("write", report.write),
        ("cut", report.cut),
        ("upload", report.upload),
    ];
    for (part, took) in parts {
        CHECKPOINT_SECONDS.observe(&[job.as_str(), part], took);
    }
}

/// An attempt began.
pub(super) fn observe_restore(job: &JobId, report: &RestoreReport) {
    for (part, took) in [("download", report.download), ("open", report.open), ("total", report.total)] {
        RESTORE_SECONDS.observe(&[job.as_str(), part], took);
    }
}
