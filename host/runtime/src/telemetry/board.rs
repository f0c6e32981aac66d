//! The job's state for people: phase, attempt, meters, last checkpoint, last restore.
//!
//! Owns what the job tells of itself; whoever shows it takes a [`Snapshot`]. Does not own how it is shown.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmill_core::id::{Attempt, CheckpointId, JobId, SubtaskId};
use wasmill_core::time::Timestamp;

use super::meter::{Reading, Role, SlowestSplit, SubtaskMeter};
use super::metric;

/// Most splits that are remembered to have been the slowest.
const MOST_SLOWEST: usize = 1_000;

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Claiming its attempt, restoring.
    Starting,
    /// Records flow.
    Running,
    /// Waiting to start again after a failure.
    Restarting,
    /// Taking its last checkpoint.
    Stopping,
    /// Over.
    Ended,
}

impl Phase {
    /// In a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Restarting => "restarting",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }
}

/// A checkpoint that completed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CheckpointReport {
    /// Its number.
    pub checkpoint: CheckpointId,
    /// When it was decided.
    pub decided: Timestamp,
    /// From trigger to decision.
    pub total: Duration,
    /// The longest pause of a record path.
    pub pause: Duration,
    /// The longest alignment.
    pub alignment: Duration,
    /// The longest writing of a frozen layer.
    pub write: Duration,
    /// The longest local cut.
    pub cut: Duration,
    /// The longest upload.
    pub upload: Duration,
    /// Bytes uploaded.
    pub bytes_new: u64,
    /// Bytes that earlier checkpoints had uploaded.
    pub bytes_referenced: u64,
    /// `total` over the interval: at 1 the job can no longer keep its promise.
    pub share_of_interval: f64,
}

/// What a restore took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RestoreReport {
    /// The checkpoint restored; `None`: begun with nothing.
    pub checkpoint: Option<CheckpointId>,
    /// Downloading.
    pub download: Duration,
    /// Opening the state.
    pub open: Duration,
    /// From the start of the attempt until records flowed.
    pub total: Duration,
    /// Bytes downloaded.
    pub bytes: u64,
}

/// A restore on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restoring {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Bytes to download.
    pub total: u64,
    /// Bytes downloaded and checked so far.
    pub done: u64,
}

/// The job's state for people. A cheap clone writes on the same board.
#[derive(Debug, Clone)]
pub struct StatusBoard(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    job: JobId,
    phase: Phase,
    attempt: Attempt,
    started: Timestamp,
    restarts: u64,
    completed: u64,
    failed: u64,
    meters: Vec<Arc<SubtaskMeter>>,
    /// What the subtasks of earlier attempts counted, so that a counter never goes back.
    earlier: BTreeMap<(SubtaskId, Role), Reading>,
    were_slowest: BTreeSet<(SubtaskId, String)>,
    checkpoint: Option<CheckpointReport>,
    restore: Option<RestoreReport>,
    restoring: Option<Restoring>,
    failure: Option<String>,
}

/// The board at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The job.
    pub job: JobId,
    /// What it is doing.
    pub phase: Phase,
    /// Its attempt.
    pub attempt: Attempt,
    /// When the attempt began.
    pub started: Timestamp,
    /// Restarts since the process began.
    pub restarts: u64,
    /// Checkpoints that completed since the process began.
    pub completed: u64,
    /// Checkpoints that were given up since the process began.
    pub failed: u64,
    /// The subtasks' counters since the attempt began.
    pub subtasks: Vec<Reading>,
    /// What the subtasks of earlier attempts counted, added up; of weight are the counters alone.
    pub earlier: BTreeMap<(SubtaskId, Role), Reading>,
    /// Where more than one split is read: the one whose watermark is the least, which holds the job's back.
    pub slowest: Option<(SubtaskId, SlowestSplit)>,
    /// The splits that were it at some look, the present one included; no more than 1,000.
    pub were_slowest: BTreeSet<(SubtaskId, String)>,
    /// The last checkpoint that completed.
    pub checkpoint: Option<CheckpointReport>,
    /// The last restore.
    pub restore: Option<RestoreReport>,
    /// The restore that is on its way.
    pub restoring: Option<Restoring>,
    /// The last failure.
    pub failure: Option<String>,
}

impl StatusBoard {
    /// For a job that starts.
    #[must_use]
    pub fn new(job: JobId, now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            job,
            phase: Phase::Starting,
            attempt: Attempt(0),
            started: now,
            restarts: 0,
            completed: 0,
            failed: 0,
            meters: Vec::new(),
            earlier: BTreeMap::new(),
            were_slowest: BTreeSet::new(),
            checkpoint: None,
            restore: None,
            restoring: None,
            failure: None,
        })))
    }

    /// The job's phase changed.
    pub fn phase(&self, phase: Phase) {
        self.0.lock().phase = phase;
    }

    /// An attempt began, with these subtasks.
    pub fn attempt(&self, attempt: Attempt, now: Timestamp, meters: Vec<Arc<SubtaskMeter>>) {
        let mut inner = self.0.lock();
        inner.attempt = attempt;
        inner.started = now;
        for meter in std::mem::replace(&mut inner.meters, meters) {
            let reading = meter.read();
            match inner.earlier.entry(reading.whose()) {
                Entry::Vacant(place) => drop(place.insert(reading)),
                Entry::Occupied(mut earlier) => earlier.get_mut().add(&reading),
            }
        }
    }

    /// An attempt failed and another will follow.
    pub fn restarting(&self, failure: String) {
        let mut inner = self.0.lock();
        inner.restarts += 1;
        inner.failure = Some(failure);
        inner.restoring = None;
        inner.phase = Phase::Restarting;
    }

    /// A checkpoint was decided.
    pub fn checkpoint_completed(&self, report: CheckpointReport) {
        let mut inner = self.0.lock();
        inner.completed += 1;
        metric::observe_checkpoint(&inner.job, &report);
        inner.checkpoint = Some(report);
    }

    /// A checkpoint was given up.
    pub fn checkpoint_failed(&self) {
        self.0.lock().failed += 1;
    }

    /// The download of a checkpoint begins: `total` bytes of files.
    pub fn restoring(&self, checkpoint: CheckpointId, total: u64) {
        self.0.lock().restoring = Some(Restoring { checkpoint, total, done: 0 });
    }

    /// So many bytes more were downloaded.
    pub fn downloaded(&self, bytes: u64) {
        if let Some(restoring) = &mut self.0.lock().restoring {
            restoring.done += bytes;
        }
    }

    /// An attempt restored its state.
    pub fn restored(&self, report: RestoreReport) {
        let mut inner = self.0.lock();
        inner.restoring = None;
        metric::observe_restore(&inner.job, &report);
        inner.restore = Some(report);
    }

    /// The board now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut inner = self.0.lock();
        let subtasks: Vec<_> = inner.meters.iter().map(|meter| meter.read()).collect();
        let slowest = slowest(&subtasks);
        if let Some((subtask, slowest)) = &slowest
            && inner.were_slowest.len() < MOST_SLOWEST
        {
            inner.were_slowest.insert((subtask.clone(), slowest.split.clone()));
        }
        Snapshot {
            job: inner.job.clone(),
            phase: inner.phase,
            attempt: inner.attempt,
            started: inner.started,
            restarts: inner.restarts,
            completed: inner.completed,
            failed: inner.failed,
            subtasks,
            earlier: inner.earlier.clone(),
            slowest,
            were_slowest: inner.were_slowest.clone(),
            checkpoint: inner.checkpoint.clone(),
            restore: inner.restore.clone(),
            restoring: inner.restoring,
            failure: inner.failure.clone(),
        }
    }
}

/// The slowest split of all, where there is more than one.
fn slowest(subtasks: &[Reading]) -> Option<(SubtaskId, SlowestSplit)> {
    let splits = subtasks.iter().filter_map(|reading| Some((&reading.id, reading.slowest.as_ref()?)));
    if splits.clone().map(|(_, slowest)| slowest.among).sum::<usize>() < 2 {
        return None;
    }
    let slowest = splits.min_by_key(|(_, slowest)| slowest.watermark);
    slowest.map(|(subtask, slowest)| (subtask.clone(), slowest.clone()))
}
