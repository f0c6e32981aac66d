//! What `wasmill status` and `GET /status` show, and the rates in it.
//!
//! Owns the shape and names of the status (its JSON is part of wasmill's face) and how rates come from two looks at the
//! counters. Does not own the counters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, JobId, OperatorUid, StateName, SubtaskId, SubtaskIndex};
use wasmill_core::time::Timestamp;

use super::board::{CheckpointReport, Phase, RestoreReport, Restoring, Snapshot, StatusBoard};
use super::meter::{DropReason, Reading, Role};
use crate::clock::SharedClock;

/// A job's status. Durations are in milliseconds, times in milliseconds since 1970, shares from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobStatus {
    /// The job.
    pub job: JobId,
    /// What it is doing.
    pub phase: Phase,
    /// The attempt.
    pub attempt: Attempt,
    /// When the attempt began.
    pub since: Timestamp,
    /// When this status was taken.
    pub now: Timestamp,
    /// Restarts since the process began.
    pub restarts: u64,
    /// The last failure that was followed by a restart.
    pub last_failure: Option<String>,
    /// The subtasks, in the order of the graph.
    pub subtasks: Vec<SubtaskStatus>,
    /// Where more than one split is read: the one that holds the job's watermark back.
    pub slowest_split: Option<SlowestSplitStatus>,
    /// The states, by operator and name.
    pub states: Vec<StateStatus>,
    /// Checkpoints decided since the process began.
    pub checkpoints_completed: u64,
    /// Checkpoints given up since the process began.
    pub checkpoints_failed: u64,
    /// The last decided checkpoint of this process.
    pub last_checkpoint: Option<CheckpointStatus>,
    /// How the attempt began.
    pub last_restore: Option<RestoreStatus>,
    /// The restore that is on its way.
    #[serde(default)]
    pub restoring: Option<RestoringStatus>,
}

/// A subtask's status. Counters are since its attempt began; rates and shares of the last ten seconds or so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SubtaskStatus {
    /// Its node.
    pub uid: OperatorUid,
    /// Which of the node's.
    pub index: SubtaskIndex,
    /// Whether it is that one, or merges the operator's broadcast inputs; then the index says nothing.
    #[serde(default)]
    pub role: Role,
    /// What the node does.
    pub kind: NodeKind,
    /// Records taken in.
    pub records_in: u64,
    /// Records sent on.
    pub records_out: u64,
    /// Records taken in a second.
    pub records_per_second: f64,
    /// Share of time waited for room in an output.
    pub backpressure: f64,
    /// Share of time waited for input.
    pub idle: f64,
    /// Share of time that a source was not read because it was ahead of the others.
    pub held: f64,
    /// Records that came after the watermark had passed them.
    pub late: u64,
    /// The watermark; none before the first and after the end of input.
    pub watermark: Option<Timestamp>,
    /// Processing time less the watermark.
    pub lag_ms: Option<i64>,
    /// The checkpoint whose barrier it passed on last, or as a sink took in last; none before the first.
    #[serde(default)]
    pub barrier: Option<CheckpointId>,
    /// Records left out, by reason; reasons without any are left out themselves.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Records set aside as dead letters, likewise.
    #[serde(default)]
    pub dead_letters: BTreeMap<DropReason, u64>,
}

/// The split of a source whose watermark is the least of all that are neither idle nor ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SlowestSplitStatus {
    /// Its source.
    pub uid: OperatorUid,
    /// The subtask that reads it.
    pub index: SubtaskIndex,
    /// Its name.
    pub split: String,
    /// Its watermark; none before the first.
    pub watermark: Option<Timestamp>,
}

/// A state's status over all subtasks, as of the last barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StateStatus {
    /// Its operator.
    pub uid: OperatorUid,
    /// Its name.
    pub state: StateName,
    /// Its entries.
    pub entries: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// A checkpoint's status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CheckpointStatus {
    /// Its number.
    pub id: CheckpointId,
    /// When it was decided.
    pub decided: Timestamp,
    /// From trigger to decision.
    pub duration_ms: f64,
    /// The longest pause of a record path.
    pub pause_ms: f64,
    /// The longest alignment.
    pub alignment_ms: f64,
    /// The longest writing of a frozen layer.
    pub write_ms: f64,
    /// The longest local cut.
    pub cut_ms: f64,
    /// The longest upload.
    pub upload_ms: f64,
    /// Bytes uploaded.
    pub bytes_new: u64,
    /// Bytes that earlier checkpoints had uploaded.
    pub bytes_referenced: u64,
    /// Its duration over the interval.
    pub share_of_interval: f64,
}

/// A restore's status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RestoreStatus {
    /// The checkpoint; none where the attempt began with nothing.
    pub checkpoint: Option<CheckpointId>,
    /// Downloading.
    pub download_ms: f64,
    /// Opening the state.
    pub open_ms: f64,
    /// Until records flowed.
    pub total_ms: f64,
    /// Bytes downloaded.
    pub bytes: u64,
}

/// A restore on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RestoringStatus {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Bytes downloaded and checked so far.
    pub bytes: u64,
    /// Bytes to download.
    pub bytes_total: u64,
}

/// Takes a job's status, again and again. A cheap clone looks at the same job.
#[derive(Clone)]
pub struct Monitor {
    board: StatusBoard,
    clock: SharedClock,
    looks: Arc<Mutex<Looks>>,
}

/// Earlier looks at the counters, the newest last.
#[derive(Default)]
struct Looks {
    attempt: Option<Attempt>,
    looks: VecDeque<Look>,
}

struct Look {
    at: Duration,
    subtasks: BTreeMap<(SubtaskId, Role), Reading>,
}

/// Rates are over about this time, where somebody looked then.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks that come sooner after another are not kept.
const APART: Duration = Duration::from_millis(500);

impl Monitor {
    /// Of the job that writes on `board`.
    #[must_use]
    pub fn new(board: StatusBoard, clock: SharedClock) -> Self {
        Self { board, clock, looks: Arc::default() }
    }

    /// The status now. Rates are from the look about ten seconds ago, or else from the one before this, or else from the
    /// attempt's beginning.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        let (board, now, at) = (self.board.snapshot(), self.clock.now(), self.clock.monotonic());
        let mut looks = self.looks.lock();
        if looks.attempt != Some(board.attempt) {
            *looks = Looks { attempt: Some(board.attempt), looks: VecDeque::new() };
        }
        let earlier = looks.looks.front();
        let since_start = Duration::from_millis(now.as_millis().abs_diff(board.started.as_millis()));
        let window = earlier.map_or(since_start, |look| at.saturating_sub(look.at));
        let subtasks = board.subtasks.iter().map(|reading| {
            let before = earlier.and_then(|look| look.subtasks.get(&reading.whose()));
            subtask(reading, before, window, now)
        });
        let status = status(&board, subtasks.collect(), now);
        looks.keep(at, &board);
        status
    }

    /// What the job is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.board.snapshot().phase
    }

    /// All metrics now, in Prometheus' text form.
    #[must_use]
    pub fn metrics(&self, recorder: &super::Recorder) -> String {
        recorder.render(&self.board.snapshot(), self.clock.now())
    }
}

impl Looks {
    fn keep(&mut self, at: Duration, board: &Snapshot) {
        if self.looks.back().is_some_and(|last| at.saturating_sub(last.at) < APART) {
            return;
        }
        let subtasks = board.subtasks.iter().map(|reading| (reading.whose(), reading.clone())).collect();
        self.looks.push_back(Look { at, subtasks });
        while self.looks.len() > 1 && at.saturating_sub(self.looks[0].at) > WINDOW {
            self.looks.pop_front();
        }
    }
}

fn status(board: &Snapshot, subtasks: Vec<SubtaskStatus>, now: Timestamp) -> JobStatus {
    JobStatus {
        job: board.job.clone(),
        phase: board.phase,
        attempt: board.attempt,
        since: board.started,
        now,
        restarts: board.restarts,
        last_failure: board.failure.clone(),
        subtasks,
        slowest_split: board.slowest.as_ref().map(|(subtask, slowest)| SlowestSplitStatus {
            uid: subtask.uid.clone(),
            index: subtask.index,
            split: slowest.split.clone(),
            watermark: Some(slowest.watermark).filter(|at| *at > Timestamp::MIN),
        }),
        states: states(&board.subtasks),
        checkpoints_completed: board.completed,
        checkpoints_failed: board.failed,
        last_checkpoint: board.checkpoint.as_ref().map(CheckpointStatus::from),
        last_restore: board.restore.as_ref().map(RestoreStatus::from),
        restoring: board.restoring.map(RestoringStatus::from),
    }
}

fn subtask(reading: &Reading, before: Option<&Reading>, window: Duration, now: Timestamp) -> SubtaskStatus {
    let seconds = window.as_secs_f64();
    let share = |now: Duration, before: Option<Duration>| {
        if seconds > 0.0 {
            (now.saturating_sub(before.unwrap_or_default()).as_secs_f64() / seconds).min(1.0)
        } else {
            0.0
        }
    };
    let records = reading.records_in.saturating_sub(before.map_or(0, |before| before.records_in));
    let watermark = reading.watermark.filter(|at| Timestamp::MIN < *at && *at < Timestamp::MAX);
    SubtaskStatus {
        uid: reading.id.uid.clone(),
        index: reading.id.index,
        role: reading.role,
        kind: reading.kind,
        records_in: reading.records_in,
        records_out: reading.records_out,
        records_per_second: if seconds > 0.0 { records as f64 / seconds } else { 0.0 },
        backpressure: share(reading.backpressured, before.map(|before| before.backpressured)),
        idle: share(reading.idle, before.map(|before| before.idle)),
        held: share(reading.held, before.map(|before| before.held)),
        late: reading.late,
        watermark,
        lag_ms: watermark.map(|watermark| now.as_millis() - watermark.as_millis()),
        barrier: reading.barrier,
        dropped: reading.dropped.iter().copied().filter(|(_, records)| *records > 0).collect(),
        dead_letters: reading.dead_letters.iter().copied().filter(|(_, records)| *records > 0).collect(),
    }
}

fn states(subtasks: &[Reading]) -> Vec<StateStatus> {
    let mut states: BTreeMap<(OperatorUid, StateName), StateStatus> = BTreeMap::new();
    for reading in subtasks {
        for tally in &reading.states {
            let (uid, state) = (&reading.id.uid, &tally.state);
            let status = states.entry((uid.clone(), state.clone())).or_insert_with(|| StateStatus {
                uid: uid.clone(),
                state: state.clone(),
                entries: 0,
                bytes: 0,
            });
            status.entries += tally.entries;
            status.bytes += tally.bytes;
        }
    }
    states.into_values().collect()
}

fn millis(duration: Duration) -> f64 {
    // Microseconds are as fine as anybody asks.
    duration.as_micros() as f64 / 1000.0
}

impl From<&CheckpointReport> for CheckpointStatus {
    fn from(report: &CheckpointReport) -> Self {
        Self {
            id: report.checkpoint,
            decided: report.decided,
            duration_ms: millis(report.total),
            pause_ms: millis(report.pause),
            alignment_ms: millis(report.alignment),
            write_ms: millis(report.write),
            cut_ms: millis(report.cut),
            upload_ms: millis(report.upload),
            bytes_new: report.bytes_new,
            bytes_referenced: report.bytes_referenced,
            share_of_interval: report.share_of_interval,
        }
    }
}

impl From<&RestoreReport> for RestoreStatus {
    fn from(report: &RestoreReport) -> Self {
        Self {
            checkpoint: report.checkpoint,
            download_ms: millis(report.download),
            open_ms: millis(report.open),
            total_ms: millis(report.total),
            bytes: report.bytes,
        }
    }
}

impl From<Restoring> for RestoringStatus {
    fn from(Restoring { checkpoint, total, done }: Restoring) -> Self {
        Self { checkpoint, bytes: done, bytes_total: total }
    }
}

#[cfg(test)]
mod tests;
