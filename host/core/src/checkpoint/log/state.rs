//! What the log's entries add up to, and which entry may follow.
//!
//! Owns the fold and the rules of its order. Does not own the entries' stored form.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, FORMAT, Record, Restored, Settings, WriterId};
use super::{Seq, block_end, block_start};
use crate::checkpoint::names::ObjectName;
use crate::digest::Digest;
use crate::element::Purpose;
use crate::id::{Attempt, CheckpointId};
use crate::time::Timestamp;

/// How many checkpoint ids an attempt reserves ahead: at most this many are skipped at a restart.
const RESERVE: u64 = 8;

/// What is in force: the log in short, and what a block's last entry carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InForce {
    /// The newest attempt; 0 before the first.
    pub attempt: Attempt,
    /// No attempt so far may have used this checkpoint id or a higher one.
    pub next_checkpoint: CheckpointId,
    /// What a restart restores: the newest decided checkpoint of the running lineage, or what the attempt started from.
    pub current: Option<CheckpointId>,
    /// Checkpoints prepared and not retired, by id.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// What the pipeline file said when the newest attempt started.
    pub pipeline: Settings,
    /// What runs.
    pub running: Settings,
}

/// A checkpoint that is prepared and not retired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StoredCheckpoint {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The attempt that prepared it.
    pub attempt: Attempt,
    /// The entry that says so.
    pub prepared_seq: Seq,
    /// When that was.
    pub prepared_at: Timestamp,
    /// Why it was taken.
    pub purpose: Purpose,
    /// Its manifest.
    pub manifest: ObjectName,
    /// The manifest's checksum.
    pub sha256: Digest,
    /// Bytes it uploaded.
    pub bytes_new: u64,
    /// Bytes it shares with earlier checkpoints.
    pub bytes_referenced: u64,
    /// Whether it may be restored.
    pub decided: bool,
}

/// Why an entry cannot follow: the log is not one, or somebody wrote who had no right to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A gap or a repetition.
    #[error("entry {found} where entry {expected} was due")]
    OutOfOrder {
        /// The next number.
        expected: Seq,
        /// The entry's.
        found: Seq,
    },
    /// An attempt that was over, or that skipped numbers.
    #[error("entry {seq} was written by attempt {found} while attempt {newest} was in charge")]
    OtherAttempt {
        /// The entry.
        seq: Seq,
        /// Who wrote it.
        found: Attempt,
        /// Who was in charge.
        newest: Attempt,
    },
    /// A checkpoint prepared twice, or decided or retired without being prepared, or the current one retired.
    #[error("entry {seq} says `{entry}`, which cannot follow what the log says before it")]
    Impossible {
        /// The entry.
        seq: Seq,
        /// What it says.
        entry: String,
    },
    /// A block's last entry without its summary.
    #[error("entry {0} ends a block and does not say what is in force")]
    NoSummary(Seq),
    /// A checkpoint to start from that is not there.
    #[error("checkpoint {wanted} cannot be restored: {}", known(.decided))]
    NotDecided {
        /// What was asked for.
        wanted: CheckpointId,
        /// What could be.
        decided: Vec<CheckpointId>,
    },
}

fn known(decided: &[CheckpointId]) -> String {
    if decided.is_empty() {
        return "the job has no decided checkpoint".to_owned();
    }
    let ids: Vec<_> = decided.iter().map(ToString::to_string).collect();
    format!("the job's decided checkpoints are {}", ids.join(", "))
}

/// What a new attempt is asked to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// What a restart restores ([`InForce::current`]); nothing where there is nothing.
    Newest,
    /// Nothing, whatever there is. Earlier checkpoints stay until they are retired.
    Fresh,
    /// A decided checkpoint, also an older one.
    Checkpoint(CheckpointId),
}

/// A new attempt's wishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What to start from.
    pub from: StartFrom,
    /// What the pipeline file says.
    pub pipeline: Settings,
}

/// The fold of a log up to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    next: Seq,
    in_force: InForce,
}

impl Default for LogState {
    fn default() -> Self {
        Self::new()
    }
}

impl LogState {
    /// Of an empty log.
    #[must_use]
    pub fn new() -> Self {
        let in_force = InForce {
            attempt: Attempt(0),
            next_checkpoint: CheckpointId(1),
            current: None,
            checkpoints: Vec::new(),
            pipeline: Settings::new(),
            running: Settings::new(),
        };
        Self { next: Seq(0), in_force }
    }

    /// Up to a block's last entry, by that entry alone.
    ///
    /// # Errors
    /// [`Error::NoSummary`] where the record carries none.
    pub fn from_block_end(record: &Record) -> Result<Self, Error> {
        match &record.in_force {
            Some(in_force) if record.seq.is_block_end() => {
                Ok(Self { next: record.seq.next(), in_force: in_force.clone() })
            }
            _ => Err(Error::NoSummary(record.seq)),
        }
    }

    /// The number of the next entry.
    #[must_use]
    pub fn next(&self) -> Seq {
        self.next
    }

    /// What is in force.
    #[must_use]
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// A checkpoint that is prepared and not retired.
    #[must_use]
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&StoredCheckpoint> {
        self.in_force.checkpoints.iter().find(|stored| stored.checkpoint == id)
    }

    /// The decided checkpoints, oldest first.
    pub fn decided(&self) -> impl DoubleEndedIterator<Item = &StoredCheckpoint> {
        self.in_force.checkpoints.iter().filter(|stored| stored.decided)
    }

    /// The checkpoint that a restart restores.
    #[must_use]
    pub fn current(&self) -> Option<&StoredCheckpoint> {
        self.checkpoint(self.in_force.current?)
    }

    /// Takes the next entry. On an error nothing has changed.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn apply(&mut self, record: &Record) -> Result<(), Error> {
        if record.seq != self.next {
            return Err(Error::OutOfOrder { expected: self.next, found: record.seq });
        }
        if record.seq.is_block_end() && record.in_force.is_none() {
            return Err(Error::NoSummary(record.seq));
        }
        let newest = self.in_force.attempt;
        let due = match record.entry {
            Entry::AttemptStarted { .. } => Attempt(newest.0.saturating_add(1)),
            _ => newest,
        };
        if record.attempt != due {
            return Err(Error::OtherAttempt { seq: record.seq, found: record.attempt, newest });
        }
        let impossible = || Error::Impossible { seq: record.seq, entry: record.entry.to_string() };
        self.in_force.fold(record).then_some(()).ok_or_else(impossible)?;
        self.next = record.seq.next();
        Ok(())
    }

    /// The record by which `writer` appends `entry`, with the summary that a block's last entry carries.
    ///
    /// # Errors
    /// As [`LogState::apply`]: what could not be folded is not written.
    pub fn record(&self, attempt: Attempt, writer: &WriterId, at: Timestamp, entry: Entry) -> Result<Record, Error> {
        let seq = self.next;
        let summary = seq.is_block_end().then(|| self.in_force.clone());
        let mut record = Record { format: FORMAT, seq, attempt, writer: writer.clone(), at, entry, in_force: summary };
        let mut after = self.clone();
        after.apply(&record)?;
        if seq.is_block_end() {
            record.in_force = Some(after.in_force);
        }
        Ok(record)
    }

    /// The attempt and the entry by which a new attempt starts.
    ///
    /// # Errors
    /// [`Error::NotDecided`] for a checkpoint that is not there.
    pub fn start(&self, start: &Start) -> Result<(Attempt, Entry), Error> {
        let restored = match start.from {
            StartFrom::Fresh => Restored::Nothing,
            StartFrom::Newest => self.in_force.current.map_or(Restored::Nothing, Restored::Checkpoint),
            StartFrom::Checkpoint(wanted) => match self.checkpoint(wanted) {
                Some(stored) if stored.decided => Restored::Checkpoint(wanted),
                _ => {
                    let decided = self.decided().map(|stored| stored.checkpoint).collect();
                    return Err(Error::NotDecided { wanted, decided });
                }
            },
        };
        let entry = Entry::AttemptStarted {
            restored,
            pipeline: start.pipeline.clone(),
            running: self.running(&start.pipeline),
            checkpoints_below: reserve(self.in_force.next_checkpoint),
        };
        Ok((Attempt(self.in_force.attempt.0.saturating_add(1)), entry))
    }

    /// The entry that says a checkpoint is prepared; ids are reserved along with it.
    #[must_use]
    pub fn prepared(&self, checkpoint: CheckpointId, manifest: ObjectName, sha256: Digest, of: Prepared) -> Entry {
        let Prepared { purpose, bytes_new, bytes_referenced } = of;
        let checkpoints_below =
            reserve(CheckpointId(checkpoint.0.saturating_add(1))).max(self.in_force.next_checkpoint);
        Entry::Prepared { checkpoint, manifest, sha256, purpose, bytes_new, bytes_referenced, checkpoints_below }
    }

    /// The entry that reserves ids from `next` on.
    #[must_use]
    pub fn reserved(&self, next: CheckpointId) -> Entry {
        Entry::Reserved { checkpoints_below: reserve(next).max(self.in_force.next_checkpoint) }
    }

    /// The checkpoint that an attempt started `from` here would restore, where there is one.
    #[must_use]
    pub fn would_restore(&self, from: StartFrom) -> Option<CheckpointId> {
        match from {
            StartFrom::Fresh => None,
            StartFrom::Newest => self.in_force.current,
            StartFrom::Checkpoint(wanted) => Some(wanted),
        }
    }

    /// What runs: where the pipeline file still says what it said, what was in force stays; where it changed, the file wins.
    fn running(&self, pipeline: &Settings) -> Settings {
        let setting = |(uid, says): (&_, &super::Setting)| {
            let unchanged = self.in_force.pipeline.get(uid) == Some(says);
            let kept = self.in_force.running.get(uid).filter(|_| unchanged);
            (crate::id::OperatorUid::clone(uid), kept.unwrap_or(says).clone())
        };
        pipeline.iter().map(setting).collect()
    }

    /// The blocks whose entries may be deleted, all but each block's last: those that lie whole below every retained
    /// checkpoint's entry and below the block that holds the end.
    #[must_use]
    pub fn cleanable_blocks(&self) -> std::ops::Range<u64> {
        let oldest = self.in_force.checkpoints.iter().map(|stored| stored.prepared_seq).min();
        0..oldest.unwrap_or(self.next).block().min(self.next.block())
    }
}

/// What a prepared entry tells of its checkpoint, besides the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// Why it was taken.
    pub purpose: Purpose,
    /// Bytes it uploaded.
    pub bytes_new: u64,
    /// Bytes it shares with earlier checkpoints.
    pub bytes_referenced: u64,
}

/// The entries of a cleanable block that may be deleted.
pub fn deletable_entries(block: u64) -> impl DoubleEndedIterator<Item = Seq> {
    (block_start(block).0..block_end(block).0).map(Seq)
}

fn reserve(next: CheckpointId) -> CheckpointId {
    CheckpointId(next.0.saturating_add(RESERVE))
}

impl InForce {
    /// Whether the entry can follow; if it can, it is taken.
    fn fold(&mut self, record: &Record) -> bool {
        match &record.entry {
            Entry::AttemptStarted { restored, pipeline, running, checkpoints_below } => {
                let current = match restored {
                    Restored::Nothing => None,
                    Restored::Checkpoint(id) if self.is_decided(*id) => Some(*id),
                    Restored::Checkpoint(_) => return false,
                };
                self.current = current;
                self.attempt = record.attempt;
                self.pipeline = pipeline.clone();
                self.running = running.clone();
                self.reserve(*checkpoints_below)
            }
            Entry::Reserved { checkpoints_below } => self.reserve(*checkpoints_below),
            Entry::Prepared {
                checkpoint,
                manifest,
                sha256,
                purpose,
                bytes_new,
                bytes_referenced,
                checkpoints_below,
            } => {
                // `>`: ids rise and are never used twice; `<`: only reserved ones are used.
                let rising = self.checkpoints.last().is_none_or(|last| *checkpoint > last.checkpoint);
                let fits = rising && *checkpoint < self.next_checkpoint;
                if fits {
                    self.checkpoints.push(StoredCheckpoint {
                        checkpoint: *checkpoint,
                        attempt: record.attempt,
                        prepared_seq: record.seq,
                        prepared_at: record.at,
                        purpose: *purpose,
                        manifest: manifest.clone(),
                        sha256: *sha256,
                        bytes_new: *bytes_new,
                        bytes_referenced: *bytes_referenced,
                        decided: false,
                    });
                }
                fits && self.reserve(*checkpoints_below)
            }
            Entry::Decided { checkpoint } => self.decide(*checkpoint),
            Entry::Retired { checkpoints } => self.retire(checkpoints),
        }
    }

    fn is_decided(&self, id: CheckpointId) -> bool {
        self.checkpoints.iter().any(|stored| stored.checkpoint == id && stored.decided)
    }

    fn reserve(&mut self, below: CheckpointId) -> bool {
        self.next_checkpoint = self.next_checkpoint.max(below);
        true
    }

    fn decide(&mut self, id: CheckpointId) -> bool {
        match self.checkpoints.iter_mut().find(|stored| stored.checkpoint == id && !stored.decided) {
            Some(stored) => {
                stored.decided = true;
                self.current = Some(id);
                true
            }
            None => false,
        }
    }

    fn retire(&mut self, ids: &[CheckpointId]) -> bool {
        let ids: BTreeSet<_> = ids.iter().copied().collect();
        let known = self.checkpoints.iter().filter(|stored| ids.contains(&stored.checkpoint)).count();
        // What a restart restores is never retired.
        let fits = known == ids.len() && !self.current.is_some_and(|current| ids.contains(&current));
        if fits {
            self.checkpoints.retain(|stored| !ids.contains(&stored.checkpoint));
        }
        fits
    }
}

#[cfg(test)]
mod tests;
