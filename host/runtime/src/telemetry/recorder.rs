//! Where metrics are kept for whoever fetches them, in Prometheus' text form.
//!
//! Owns the process's recorder and the step from a board's [`Snapshot`] to metrics. Does not own HTTP.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use wasmill_core::time::Timestamp;

use super::board::{Phase, Snapshot};
use super::meter::{Reading, Role};
use super::metric::{self, Metric};

/// Upper bounds of the histograms' buckets, in seconds.
const SECONDS: [f64; 16] =
    [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// The process's metrics. A cheap clone shows the same.
#[derive(Debug, Clone)]
pub struct Recorder {
    handle: PrometheusHandle,
}

impl Recorder {
    /// The process's recorder, installed by the first call; what was counted before it is lost.
    #[must_use]
    pub fn of_process() -> Self {
        static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
        let handle = HANDLE.get_or_init(|| {
            let recorder = build();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another recorder of metrics was installed before: /metrics will be empty");
            }
            metric::ALL.iter().for_each(Metric::describe);
            handle
        });
        Self { handle: handle.clone() }
    }

    /// All metrics now, those of `board` included, in Prometheus' text form (version 0.0.4).
    #[must_use]
    pub fn render(&self, board: &Snapshot, now: Timestamp) -> String {
        show(board, now);
        self.handle.render()
    }
}

fn build() -> PrometheusRecorder {
    let builder = PrometheusBuilder::new();
    // Fails for an empty list of buckets alone.
    let builder = match builder.set_buckets_for_metric(Matcher::Prefix("wasmill_".to_owned()), &SECONDS) {
        Ok(builder) => builder,
        Err(_) => PrometheusBuilder::new(),
    };
    builder.build_recorder()
}

/// Brings the recorder up to what the board says.
fn show(board: &Snapshot, now: Timestamp) {
    let job = board.job.as_str();
    let job_labels = &[job];
    metric::ATTEMPT.set(job_labels, count(board.attempt.0));
    metric::READY.set(job_labels, if board.phase == Phase::Running { 1.0 } else { 0.0 });
    metric::RESTARTS.reach(job_labels, board.restarts);
    metric::CHECKPOINTS_COMPLETED.reach(job_labels, board.completed);
    metric::CHECKPOINTS_FAILED.reach(job_labels, board.failed);
    if let Some(checkpoint) = &board.checkpoint {
        metric::CHECKPOINT_ID.set(job_labels, count(checkpoint.checkpoint.0));
        metric::CHECKPOINT_DECIDED.set(job_labels, seconds(checkpoint.decided.as_millis()));
        metric::CHECKPOINT_SHARE.set(job_labels, checkpoint.share_of_interval);
        metric::CHECKPOINT_BYTES_NEW.set(job_labels, count(checkpoint.bytes_new));
        metric::CHECKPOINT_BYTES_REFERENCED.set(job_labels, count(checkpoint.bytes_referenced));
    }
    if let Some(restore) = &board.restore {
        metric::RESTORE_BYTES.set(job_labels, count(restore.bytes));
    }
    let (done, total) = board.restoring.map_or((0, 0), |restoring| (restoring.done, restoring.total));
    metric::RESTORING_DONE.set(job_labels, count(done));
    metric::RESTORING_TOTAL.set(job_labels, count(total));
    for (subtask, split) in &board.were_slowest {
        let is_it = board.slowest.as_ref().is_some_and(|(now, slowest)| (now, &slowest.split) == (subtask, split));
        let labels = [job, subtask.uid.as_str(), &subtask.index.to_string(), split];
        metric::SLOWEST_SPLIT.set(&labels, if is_it { 1.0 } else { 0.0 });
    }
    for reading in &board.subtasks {
        let mut totals = reading.clone();
        if let Some(earlier) = board.earlier.get(&reading.whose()) {
            totals.add(earlier);
        }
        show_subtask(job, &totals, now);
    }
}

fn show_subtask(job: &str, reading: &Reading, now: Timestamp) {
    let subtask = match reading.role {
        Role::Node => reading.id.index.to_string(),
        Role::Merging => "merge".to_owned(),
    };
    let (uid, subtask) = (reading.id.uid.as_str(), subtask.as_str());
    let labels = &[job, uid, subtask];
    metric::RECORDS_IN.reach(labels, reading.records_in);
    metric::RECORDS_OUT.reach(labels, reading.records_out);
    metric::BYTES_IN.reach(labels, reading.bytes_in);
    metric::BYTES_OUT.reach(labels, reading.bytes_out);
    let micros = |duration: std::time::Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    metric::BACKPRESSURED.reach(labels, micros(reading.backpressured));
    metric::IDLE.reach(labels, micros(reading.idle));
    metric::HELD.reach(labels, micros(reading.held));
    metric::LATE.reach(labels, reading.late);
    metric::CALLS.reach(labels, reading.calls);
    metric::CALLED.reach(labels, micros(reading.called));
    metric::CACHE_HITS.reach(labels, reading.cache.hits);
    metric::CACHE_MISSES.reach(labels, reading.cache.misses);
    metric::CACHE_BYTES.set(labels, count(reading.cache.bytes));
    metric::ROWS_BYTES.set(labels, count(reading.cache.rows));
    for (reason, records) in reading.dropped.iter().filter(|(_, records)| *records > 0) {
        metric::DROPPED.reach(&[job, uid, subtask, reason.as_str()], *records);
    }
    for (reason, records) in reading.dead_letters.iter().filter(|(_, records)| *records > 0) {
        metric::DEAD_LETTERS.reach(&[job, uid, subtask, reason.as_str()], *records);
    }
    for (reason, instances) in reading.renewals.iter().filter(|(_, instances)| *instances > 0) {
        metric::RENEWALS.reach(&[job, uid, subtask, reason.as_str()], *instances);
    }
    let rare = [
        (metric::ISOLATIONS, reading.isolations),
        (metric::RERUN_CALLS, reading.reruns),
        (metric::LOG_LINES_DROPPED, reading.log_lines_dropped),
    ];
    for (metric, count) in rare.iter().filter(|(_, count)| *count > 0) {
        metric.reach(labels, *count);
    }
    for state in &reading.states {
        let labels = &[job, uid, subtask, state.state.as_str()];
        metric::STATE_ENTRIES.set(labels, count(state.entries));
        metric::STATE_BYTES.set(labels, count(state.bytes));
    }
    if let Some(checkpoint) = reading.barrier {
        metric::BARRIER.set(labels, count(checkpoint.0));
    }
    if let Some(watermark) = reading.watermark.filter(|at| (Timestamp::MIN < *at) && (*at < Timestamp::MAX)) {
        metric::WATERMARK.set(labels, seconds(watermark.as_millis()));
        metric::WATERMARK_LAG.set(labels, seconds(now.as_millis() - watermark.as_millis()));
    }
}

/// A gauge is a floating-point number: exact up to 2^53, which no figure here comes near.
fn count(value: u64) -> f64 {
    value as f64
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests;
