//! The counters of one subtask: a few atomic additions a batch on the record path.
//!
//! Owns what a subtask counts. Does not own names of metrics nor how status is shown; both read a meter's [`Reading`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{CheckpointId, OperatorUid, StateName, SubtaskId, SubtaskIndex};
use wasmill_core::time::Timestamp;

/// Why records were left out or set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// A source could not decode them.
    Undecodable,
    /// A keyed edge found no key in them.
    MissingKey,
    /// The guest rejected them.
    Rejected,
    /// The guest trapped on them.
    Trap,
    /// The guest took too long over them.
    TimeLimit,
    /// The guest asked for too much memory over them.
    MemoryLimit,
    /// The guest handed over too much for them.
    ResultLimit,
    /// The guest would have kept too much state for them.
    StateLimit,
    /// What the guest returned for them is not valid.
    Malformed,
    /// They came after the watermark had passed them.
    Late,
    /// Timers that the end of the input left without a time to fire.
    TimerAtEnd,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Undecodable,
        Self::MissingKey,
        Self::Rejected,
        Self::Trap,
        Self::TimeLimit,
        Self::MemoryLimit,
        Self::ResultLimit,
        Self::StateLimit,
        Self::Malformed,
        Self::Late,
        Self::TimerAtEnd,
    ];

    /// As a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::MissingKey => "missing-key",
            Self::Rejected => "rejected",
            Self::Late => "late",
            Self::Trap => "trap",
            Self::TimeLimit => "time-limit",
            Self::MemoryLimit => "memory-limit",
            Self::ResultLimit => "result-limit",
            Self::StateLimit => "state-limit",
            Self::Malformed => "malformed",
            Self::TimerAtEnd => "timer-at-end",
        }
    }
}

/// Why a guest's instance was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Renewal {
    /// It failed, or may hold what was undone.
    Failure,
    /// It had grown past the pipeline's mark.
    Memory,
}

impl Renewal {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::Failure, Self::Memory];

    /// As a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Memory => "memory",
        }
    }
}

/// What a state holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StateTally {
    /// The state.
    pub state: StateName,
    /// Its entries.
    pub entries: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// What the cache in front of a subtask's state did, and what lies in memory behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheTally {
    /// Look-ups that the cache answered.
    pub hits: u64,
    /// Look-ups that asked the backend.
    pub misses: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes of rows in memory behind it.
    pub rows: u64,
}

/// The split of a source subtask whose watermark is the least of those that are neither idle nor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowestSplit {
    /// Its name.
    pub split: String,
    /// Its watermark.
    pub watermark: Timestamp,
    /// How many of the subtask's splits are neither idle nor ended, this one included.
    pub among: usize,
}

/// Which of a node's subtasks a meter is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// One that does the node's work, by its index.
    #[default]
    Node,
    /// The one that merges the broadcast inputs of an operator; it keeps no state.
    Merging,
}

/// The counters of one subtask, since its attempt began.
#[derive(Debug)]
pub struct SubtaskMeter {
    id: SubtaskId,
    role: Role,
    kind: NodeKind,
    records_in: AtomicU64,
    records_out: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    calls: AtomicU64,
    called_nanos: AtomicU64,
    backpressured_nanos: AtomicU64,
    idle_nanos: AtomicU64,
    held_nanos: AtomicU64,
    late: AtomicU64,
    watermark: AtomicI64,
    barrier: AtomicU64,
    slowest: Mutex<Option<SlowestSplit>>,
    dropped: [AtomicU64; DropReason::ALL.len()],
    dead_letters: [AtomicU64; DropReason::ALL.len()],
    isolations: AtomicU64,
    reruns: AtomicU64,
    renewals: [AtomicU64; Renewal::ALL.len()],
    log_lines_dropped: AtomicU64,
    states: Mutex<(Vec<StateTally>, CacheTally)>,
}

/// A subtask's counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Who; of a merging subtask, the operator's first.
    pub id: SubtaskId,
    /// Which of the node's it is.
    pub role: Role,
    /// What it does.
    pub kind: NodeKind,
    /// Records taken in; of a source, read.
    pub records_in: u64,
    /// Records sent on.
    pub records_out: u64,
    /// Bytes of keys and values taken in.
    pub bytes_in: u64,
    /// Bytes of keys and values sent on.
    pub bytes_out: u64,
    /// Guest calls.
    pub calls: u64,
    /// Time in guest calls.
    pub called: Duration,
    /// Time waited for room in an output.
    pub backpressured: Duration,
    /// Time waited for input.
    pub idle: Duration,
    /// Time a source was not read because it was ahead of the others.
    pub held: Duration,
    /// Records that came after the watermark had passed them.
    pub late: u64,
    /// The watermark; `None` before the first.
    pub watermark: Option<Timestamp>,
    /// The checkpoint whose barrier it sent on last; `None` before the first.
    pub barrier: Option<CheckpointId>,
    /// Of a source that reads: its slowest split.
    pub slowest: Option<SlowestSplit>,
    /// Records left out, by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Records set aside as dead letters, by reason.
    pub dead_letters: Vec<(DropReason, u64)>,
    /// Batches that were run again in pieces.
    pub isolations: u64,
    /// Calls made for that.
    pub reruns: u64,
    /// Instances replaced, by reason.
    pub renewals: Vec<(Renewal, u64)>,
    /// Log lines of the guest that were left out.
    pub log_lines_dropped: u64,
    /// Entries and bytes of its states, as of the last barrier.
    pub states: Vec<StateTally>,
    /// The cache, as of the last barrier.
    pub cache: CacheTally,
}

impl SubtaskMeter {
    /// All at zero.
    #[must_use]
    pub fn new(id: SubtaskId, kind: NodeKind) -> Self {
        Self {
            id,
            role: Role::Node,
            kind,
            records_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            called_nanos: AtomicU64::new(0),
            backpressured_nanos: AtomicU64::new(0),
            idle_nanos: AtomicU64::new(0),
            held_nanos: AtomicU64::new(0),
            late: AtomicU64::new(0),
            watermark: AtomicI64::new(i64::MIN),
            barrier: AtomicU64::new(0),
            slowest: Mutex::default(),
            dropped: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            dead_letters: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            isolations: AtomicU64::new(0),
            reruns: AtomicU64::new(0),
            renewals: [const { AtomicU64::new(0) }; Renewal::ALL.len()],
            log_lines_dropped: AtomicU64::new(0),
            states: Mutex::default(),
        }
    }

    /// All at zero, for the merging subtask of an operator.
    #[must_use]
    pub fn merging(uid: OperatorUid) -> Self {
        let id = SubtaskId { uid, index: SubtaskIndex(0) };
        Self { role: Role::Merging, ..Self::new(id, NodeKind::Operator) }
    }

    /// Whose counters these are.
    #[must_use]
    pub fn id(&self) -> &SubtaskId {
        &self.id
    }

    /// Records were taken in.
    pub fn received(&self, records: u64, bytes: u64) {
        self.records_in.fetch_add(records, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records were sent on.
    pub fn sent(&self, records: u64, bytes: u64) {
        self.records_out.fetch_add(records, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A guest call took this long.
    pub fn called(&self, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        add(&self.called_nanos, took);
    }

    /// Waited this long for room in an output.
    pub fn backpressured(&self, waited: Duration) {
        add(&self.backpressured_nanos, waited);
    }

    /// Waited this long for input.
    pub fn idled(&self, waited: Duration) {
        add(&self.idle_nanos, waited);
    }

    /// Waited this long for the other sources.
    pub fn held(&self, waited: Duration) {
        add(&self.held_nanos, waited);
    }

    /// A record came after the watermark had passed it.
    pub fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// The slowest of `among` splits and its watermark are these.
    pub fn slowest(&self, slowest: Option<(&str, Timestamp)>, among: usize) {
        let mut known = self.slowest.lock();
        match (&mut *known, slowest) {
            (Some(known), Some((split, watermark))) if known.split == split => {
                known.watermark = watermark;
                known.among = among;
            }
            (known, slowest) => {
                *known = slowest.map(|(split, watermark)| SlowestSplit { split: split.to_owned(), watermark, among });
            }
        }
    }

    /// The watermark became this.
    pub fn watermark(&self, watermark: Timestamp) {
        self.watermark.store(watermark.as_millis(), Ordering::Relaxed);
    }

    /// The barrier of a checkpoint was sent on, or had nowhere further to go.
    pub fn barrier(&self, checkpoint: CheckpointId) {
        self.barrier.store(checkpoint.0, Ordering::Relaxed);
    }

    /// Records were left out.
    pub fn dropped(&self, reason: DropReason, records: u64) {
        if records > 0 {
            self.dropped[reason as usize].fetch_add(records, Ordering::Relaxed);
        }
    }

    /// Records were set aside as dead letters.
    pub fn dead_lettered(&self, reason: DropReason, records: u64) {
        self.dead_letters[reason as usize].fetch_add(records, Ordering::Relaxed);
    }

    /// A batch is run again in pieces.
    pub fn isolating(&self) {
        self.isolations.fetch_add(1, Ordering::Relaxed);
    }

    /// A call is made for a piece of a batch that is run again.
    pub fn rerun(&self) {
        self.reruns.fetch_add(1, Ordering::Relaxed);
    }

    /// The instance is replaced.
    pub fn renewed(&self, reason: Renewal) {
        self.renewals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// So many log lines of the guest were left out.
    pub fn log_lines_dropped(&self, lines: u64) {
        if lines > 0 {
            self.log_lines_dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// What the states hold and the cache did.
    pub fn holds(&self, states: Vec<StateTally>, cache: CacheTally) {
        *self.states.lock() = (states, cache);
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let nanos = |counter: &AtomicU64| Duration::from_nanos(load(counter));
        let (states, cache) = self.states.lock().clone();
        let watermark = Some(self.watermark.load(Ordering::Relaxed)).filter(|&millis| millis != i64::MIN);
        Reading {
            id: self.id.clone(),
            role: self.role,
            kind: self.kind,
            records_in: load(&self.records_in),
            records_out: load(&self.records_out),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
            calls: load(&self.calls),
            called: nanos(&self.called_nanos),
            backpressured: nanos(&self.backpressured_nanos),
            idle: nanos(&self.idle_nanos),
            held: nanos(&self.held_nanos),
            late: load(&self.late),
            watermark: watermark.map(Timestamp::from_millis),
            barrier: Some(load(&self.barrier)).filter(|&checkpoint| checkpoint > 0).map(CheckpointId),
            slowest: self.slowest.lock().clone(),
            dropped: DropReason::ALL.map(|reason| (reason, load(&self.dropped[reason as usize]))).to_vec(),
            dead_letters: DropReason::ALL.map(|reason| (reason, load(&self.dead_letters[reason as usize]))).to_vec(),
            isolations: load(&self.isolations),
            reruns: load(&self.reruns),
            renewals: Renewal::ALL.map(|reason| (reason, load(&self.renewals[reason as usize]))).to_vec(),
            log_lines_dropped: load(&self.log_lines_dropped),
            states,
            cache,
        }
    }
}

impl Reading {
    /// Whose it is, among all of a job.
    #[must_use]
    pub fn whose(&self) -> (SubtaskId, Role) {
        (self.id.clone(), self.role)
    }

    /// Adds the counters of another reading of the same subtask.
    pub(super) fn add(&mut self, other: &Self) {
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.calls += other.calls;
        self.called += other.called;
        self.backpressured += other.backpressured;
        self.idle += other.idle;
        self.held += other.held;
        self.late += other.late;
        let dead_letters = self.dead_letters.iter_mut().zip(&other.dead_letters);
        for (mine, other) in self.dropped.iter_mut().zip(&other.dropped).chain(dead_letters) {
            mine.1 += other.1;
        }
        self.isolations += other.isolations;
        self.reruns += other.reruns;
        for (mine, other) in self.renewals.iter_mut().zip(&other.renewals) {
            mine.1 += other.1;
        }
        self.log_lines_dropped += other.log_lines_dropped;
        self.cache.hits += other.cache.hits;
        self.cache.misses += other.cache.misses;
    }
}

fn add(counter: &AtomicU64, by: Duration) {
    counter.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
