//! The decision log as stored: reading it, and appending what only its newest attempt may append.
//!
//! Owns the order of store requests by which the rules of `wasmill_core::checkpoint::log` hold (I5, I6). Does not own the rules, nor
//! what is deleted.

mod deletion;
mod error;
#[cfg(test)]
pub(super) mod tests;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use wasmill_core::checkpoint::log::entry::{Entry, Record, Restored, Settings, WriterId};
use wasmill_core::checkpoint::log::state::{LogState, Prepared, Start, StoredCheckpoint};
use wasmill_core::checkpoint::log::tail::{Probe, TailSearch};
use wasmill_core::checkpoint::log::{self, CommitPermit, CompletePermit, Decider, Seq};
use wasmill_core::checkpoint::manifest::Manifest;
use wasmill_core::checkpoint::names::{self, Names, ObjectName};
use wasmill_core::checkpoint::sealed::Sealed;
use wasmill_core::digest::Digest;
use wasmill_core::id::{Attempt, CheckpointId, JobId};
use wasmill_core::time::Timestamp;

pub use self::deletion::{Deleted, Deletion};
pub use self::error::Error;
use crate::blob::{Blob, Put};
use crate::clock::SharedClock;

/// Reads under way at once.
const READS_AT_ONCE: usize = 32;

/// How often a log that changes under the reader's hands is read anew.
const READS: u32 = 5;

/// A job's decision log, read up to its end, and the right of one attempt to go on with it.
pub struct Journal {
    blob: Blob,
    job: JobId,
    names: Names,
    clock: SharedClock,
    state: LogState,
    claim: Option<Claim>,
}

/// What [`Journal::start_attempt`] claimed.
struct Claim {
    attempt: Attempt,
    writer: WriterId,
    next_checkpoint: CheckpointId,
}

/// A new attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its number.
    pub attempt: Attempt,
    /// What it starts from.
    pub restored: Restored,
    /// What runs: the pipeline file's settings, or what a swap or rescale put in their place.
    pub running: Settings,
}

/// What a create found.
enum Created {
    /// The entry is in the log.
    Own,
    /// Another entry has the number.
    Taken(Box<Record>),
    /// The entry lies in a block that is over: the log went on without us.
    Overtaken,
}

impl Journal {
    /// Reads the log of `job`; of a job that never ran, an empty one. Writes nothing.
    ///
    /// # Errors
    /// A store that cannot be read, a log that is damaged, or none though there are checkpoints.
    pub async fn open(blob: Blob, job: JobId, clock: SharedClock) -> Result<Self, Error> {
        let names = Names::new(&job);
        let state = read(&blob, &names).await?;
        if state.next() == Seq(0) {
            refuse_orphans(&blob, &names).await?;
        }
        Ok(Self { blob, job, names, clock, state, claim: None })
    }

    /// What the log says, as far as it was read.
    #[must_use]
    pub fn state(&self) -> &LogState {
        &self.state
    }

    /// The time, by the clock that stamps the entries.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The store.
    #[must_use]
    pub fn blob(&self) -> &Blob {
        &self.blob
    }

    /// The full names of the job's objects.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The attempt that this journal started.
    #[must_use]
    pub fn attempt(&self) -> Option<Attempt> {
        self.claim.as_ref().map(|claim| claim.attempt)
    }

    /// The checkpoint that a restart restores.
    #[must_use]
    pub fn newest_decided(&self) -> Option<&StoredCheckpoint> {
        self.state.current()
    }

    /// The checkpoints that can be restored, oldest first.
    pub fn decided(&self) -> impl DoubleEndedIterator<Item = &StoredCheckpoint> {
        self.state.decided()
    }

    /// Claims the next number for a new attempt: from then on no earlier attempt can decide anything. To be called before
    /// anything is restored.
    ///
    /// # Errors
    /// A checkpoint to start from that is not there; a store that fails; a damaged log.
    pub async fn start_attempt(&mut self, start: &Start) -> Result<Started, Error> {
        let writer = WriterId(crate::blob::random_id());
        loop {
            // Anew each time: what another wrote meanwhile may be the checkpoint to start from.
            let (attempt, entry) = self.state.start(start).map_err(|source| self.out_of_order(source))?;
            let next_checkpoint = self.state.in_force().next_checkpoint;
            let record = self.record(attempt, &writer, entry)?;
            match self.create(&record).await? {
                Created::Own => {
                    self.apply(&record)?;
                    self.claim = Some(Claim { attempt, writer, next_checkpoint });
                    return Ok(started(attempt, record.entry));
                }
                Created::Taken(other) => self.apply(&other)?,
                Created::Overtaken => self.state = read(&self.blob, &self.names).await?,
            }
        }
    }

    /// An id for a new checkpoint, which no attempt has used and none will use again.
    ///
    /// # Errors
    /// [`Error::Fenced`]; a store that fails.
    pub async fn next_checkpoint(&mut self) -> Result<CheckpointId, Error> {
        let next = self.claim()?.next_checkpoint;
        // `>=`: only ids below the bound are reserved.
        if next >= self.state.in_force().next_checkpoint {
            self.append(self.state.reserved(next)).await?;
        }
        let claim = self.claim.as_mut().ok_or(Error::NotStarted)?;
        claim.next_checkpoint = CheckpointId(next.0.saturating_add(1));
        Ok(next)
    }

    /// The first id that [`Journal::next_checkpoint`] has not given out.
    ///
    /// # Errors
    /// [`Error::NotStarted`].
    pub fn upcoming_checkpoint(&self) -> Result<CheckpointId, Error> {
        Ok(self.claim()?.next_checkpoint)
    }

    /// Stores the manifest, then says in the log that it is prepared (I5).
    ///
    /// # Errors
    /// [`Error::Fenced`]; [`Error::Deletion`]; a manifest that does not add up; a store that fails.
    pub async fn prepare(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let attempt = self.claim()?.attempt;
        self.state.check_fence(attempt)?;
        let object = names::manifest(manifest.checkpoint);
        let full = self.names.full(&object);
        let Sealed { bytes, checksum } =
            manifest.encode().map_err(|source| Error::NoManifest { checkpoint: manifest.checkpoint, source })?;
        self.blob.put(&full, Bytes::from(bytes)).await?;
        let of = Prepared {
            purpose: manifest.purpose,
            bytes_new: manifest.bytes_new(),
            bytes_referenced: manifest.bytes_referenced(),
        };
        self.append(self.state.prepared(manifest.checkpoint, object, checksum, of)).await
    }

    /// Says in the log that the prepared checkpoint is decided. The permit lets sinks commit.
    ///
    /// # Errors
    /// [`Error::Fenced`]; a checkpoint that is not prepared or is decided already; a store that fails, after which nobody knows
    /// whether it is decided: the attempt must end, and the next one reads it from the log.
    pub async fn decide(&mut self, checkpoint: CheckpointId) -> Result<CommitPermit, Error> {
        let permit = self.state.complete_permit(self.claim()?.attempt, checkpoint)?;
        self.complete(permit).await
    }

    /// The right to commit again what the restored, decided `checkpoint` had prepared.
    ///
    /// # Errors
    /// [`Error::Fenced`]; a checkpoint that is not decided.
    pub fn commit_permit(&self, checkpoint: CheckpointId) -> Result<CommitPermit, Error> {
        Ok(self.state.commit_permit(self.claim()?.attempt, checkpoint, Decider::Log)?)
    }

    /// Says in the log that the checkpoints are neither restored nor referred to any more. Only then may their objects go.
    ///
    /// # Errors
    /// [`Error::Fenced`]; a checkpoint that was not there, or is what a restart restores; a store that fails.
    pub async fn retire(&mut self, checkpoints: Vec<CheckpointId>) -> Result<(), Error> {
        self.append(Entry::Retired { checkpoints }).await
    }

    /// The manifest of a checkpoint, checked against itself and against the log.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Damaged`] (it names the object and the way on), a store that fails.
    pub async fn read_manifest(&self, checkpoint: CheckpointId) -> Result<Manifest, Error> {
        let stored = self.state.checkpoint(checkpoint).ok_or_else(|| Error::Unknown {
            checkpoint,
            job: self.job.clone(),
            decided: self.decided_ids(),
        })?;
        let object = self.names.full(&stored.manifest);
        let damaged = |cause: String| self.damaged(checkpoint, &object, cause);
        let bytes = self.blob.find(&object).await?.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let (manifest, checksum) = Manifest::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
        if checksum != stored.sha256 {
            return Err(damaged(format!("it has the checksum {checksum}, and the log says {}", stored.sha256)));
        }
        if manifest.checkpoint != checkpoint {
            return Err(damaged(format!("it is the manifest of checkpoint {}", manifest.checkpoint)));
        }
        Ok(manifest)
    }

    /// Stores a component and returns the name by which manifests refer to it. One that `restored` names is not stored again.
    ///
    /// # Errors
    /// [`Error::NotStarted`]; a store that fails.
    pub async fn store_component(
        &self,
        wasm: Bytes,
        restored: Option<&Manifest>,
    ) -> Result<(Digest, ObjectName), Error> {
        let digest = Digest::of(&wasm);
        let known = restored.and_then(|manifest| manifest.operators.values().find(|op| op.component == digest));
        if let Some(operator) = known {
            return Ok((digest, operator.object.clone()));
        }
        let object = names::component(digest, self.claim()?.attempt);
        self.blob.put(&self.names.full(&object), wasm).await?;
        Ok((digest, object))
    }

    /// A stored component.
    ///
    /// # Errors
    /// [`Error::Damaged`] where it is not what its digest says, or missing; a store that fails.
    pub async fn read_component(&self, manifest: &Manifest, digest: Digest, object: &str) -> Result<Bytes, Error> {
        let object = self.names.full(object);
        let damaged = |cause: String| self.damaged(manifest.checkpoint, &object, cause);
        let bytes = self.blob.find(&object).await?.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let found = Digest::of(&bytes);
        if found == digest {
            Ok(bytes)
        } else {
            Err(damaged(format!("it has the checksum {found}, expected {digest}")))
        }
    }

    fn claim(&self) -> Result<&Claim, Error> {
        self.claim.as_ref().ok_or(Error::NotStarted)
    }

    async fn complete(&mut self, permit: CompletePermit) -> Result<CommitPermit, Error> {
        self.append(Entry::Decided { checkpoint: permit.checkpoint() }).await?;
        self.commit_permit(permit.checkpoint())
    }

    /// Appends `entry` as this journal's attempt, or learns that the attempt is over.
    async fn append(&mut self, mut entry: Entry) -> Result<(), Error> {
        loop {
            let (attempt, writer) = self.claim().map(|claim| (claim.attempt, claim.writer.clone()))?;
            self.state.check_fence(attempt)?;
            let record = self.record(attempt, &writer, entry.clone())?;
            match self.create(&record).await? {
                Created::Own => return self.apply(&record),
                // Somebody deleted checkpoints by hand, which ends no attempt.
                Created::Taken(other)
                    if other.attempt == attempt && other.writer != writer && other.entry.is_retired() =>
                {
                    self.apply(&other)?;
                    match &mut entry {
                        // What it refers to may be gone.
                        Entry::Prepared { checkpoint, .. } => return Err(Error::Deletion { checkpoint: *checkpoint }),
                        Entry::Retired { checkpoints } => {
                            checkpoints.retain(|id| self.state.checkpoint(*id).is_some());
                            if checkpoints.is_empty() {
                                return Ok(());
                            }
                        }
                        _ => {}
                    }
                }
                // An earlier entry of ours, of which the store said that it failed.
                Created::Taken(other) if other.writer == writer => {
                    self.apply(&other)?;
                    if other.entry == entry {
                        return Ok(());
                    }
                }
                Created::Taken(other) => {
                    self.apply(&other)?;
                    let by = format!("{}, written by attempt {}", other.entry, other.attempt);
                    return Err(Error::Fenced { job: self.job.clone(), attempt, by });
                }
                Created::Overtaken => {
                    let by = "a block of the log that has been closed since".to_owned();
                    return Err(Error::Fenced { job: self.job.clone(), attempt, by });
                }
            }
        }
    }

    /// Writes the record under its number unless that is taken.
    async fn create(&self, record: &Record) -> Result<Created, Error> {
        let object = self.names.log_entry(record.seq);
        let bytes = Bytes::from(record.encode().map_err(|source| self.bad_entry(record.seq, source.into()))?.bytes);
        if self.blob.put_if_absent(&object, bytes.clone()).await? == Put::Exists {
            match self.blob.find(&object).await? {
                // The reply to the create that made it was lost.
                Some(found) if found == bytes => {}
                Some(found) => {
                    let other =
                        Record::decode(record.seq, &found).map_err(|error| self.bad_entry(record.seq, error))?;
                    return Ok(Created::Taken(Box::new(other)));
                }
                None => return Ok(Created::Overtaken),
            }
        }
        // An entry counts only while its block is open, or if it is what closes it.
        if record.seq.is_block_end() {
            return Ok(Created::Own);
        }
        let end = self.names.log_entry(record.seq.block_end());
        let before = record.seq.0.checked_sub(1).map(|seq| self.names.log_entry(Seq(seq)));
        let (closed, follows) = tokio::try_join!(self.blob.exists(&end), async {
            match &before {
                Some(before) => self.blob.exists(before).await,
                None => Ok(true),
            }
        })?;
        match (closed, before) {
            (true, _) => Ok(Created::Overtaken),
            // Either the block was closed and cleaned between the two answers, or the log was deleted under our hands.
            (false, Some(before)) if !follows => match self.blob.exists(&end).await? {
                true => Ok(Created::Overtaken),
                false => Err(Error::Gap { object: before, store: self.blob.location().to_owned() }),
            },
            _ => Ok(Created::Own),
        }
    }

    fn record(&self, attempt: Attempt, writer: &WriterId, entry: Entry) -> Result<Record, Error> {
        self.state.record(attempt, writer, self.clock.now(), entry).map_err(|source| self.out_of_order(source))
    }

    fn apply(&mut self, record: &Record) -> Result<(), Error> {
        self.state.apply(record).map_err(|source| self.out_of_order(source))
    }

    fn decided_ids(&self) -> Vec<CheckpointId> {
        self.decided().map(|stored| stored.checkpoint).collect()
    }

    fn out_of_order(&self, source: log::Error) -> Error {
        Error::Order { job: self.job.clone(), store: self.blob.location().to_owned(), source }
    }

    fn bad_entry(&self, seq: Seq, source: log::entry::Error) -> Error {
        bad_entry(&self.blob, &self.names, seq, source)
    }

    /// How to go on without the checkpoint, as the end of a sentence.
    #[must_use]
    pub fn way_on_without(&self, checkpoint: CheckpointId) -> String {
        error::way_on(&self.others(checkpoint))
    }

    fn others(&self, checkpoint: CheckpointId) -> Vec<CheckpointId> {
        self.decided_ids().into_iter().filter(|id| *id != checkpoint).collect()
    }

    fn damaged(&self, checkpoint: CheckpointId, object: &str, cause: String) -> Error {
        let others = self.others(checkpoint);
        let (object, store) = (object.to_owned(), self.blob.location().to_owned());
        Error::Damaged { checkpoint, object, store, cause, others }
    }
}

fn started(attempt: Attempt, entry: Entry) -> Started {
    match entry {
        Entry::AttemptStarted { restored, running, .. } => Started { attempt, restored, running },
        // `LogState::start` gives no other.
        _ => Started { attempt, restored: Restored::Nothing, running: Settings::new() },
    }
}

fn bad_entry(blob: &Blob, names: &Names, seq: Seq, source: log::entry::Error) -> Error {
    Error::Entry { object: names.log_entry(seq), store: blob.location().to_owned(), source }
}

/// Reads the log to its end: its last closed block's last entry, and the entries since.
async fn read(blob: &Blob, names: &Names) -> Result<LogState, Error> {
    let mut missing = Seq(0);
    for _ in 0..READS {
        let end = find_end(blob, names).await?;
        let block = end.block();
        let first = log::block_start(block);
        let before = if block == 0 { Vec::new() } else { vec![log::block_end(block - 1)] };
        let seqs = before.into_iter().chain((first.0..end.0).map(Seq));
        let records: Vec<_> = stream::iter(seqs)
            .map(|seq| async move { read_entry(blob, names, seq).await.map(|record| (seq, record)) })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        match fold(blob, names, block, records)? {
            Ok(state) => return Ok(state),
            // Closed and cleaned while it was read: there is a newer end.
            Err(seq) => missing = seq,
        }
    }
    Err(Error::Gap { object: names.log_entry(missing), store: blob.location().to_owned() })
}

/// The fold of these entries, or the number of one that is not there.
fn fold(
    blob: &Blob,
    names: &Names,
    block: u64,
    records: Vec<(Seq, Option<Record>)>,
) -> Result<Result<LogState, Seq>, Error> {
    let damaged =
        |seq, source| Error::Broken { object: names.log_entry(seq), store: blob.location().to_owned(), source };
    let mut state = LogState::new();
    for (index, (seq, record)) in records.into_iter().enumerate() {
        let Some(record) = record else { return Ok(Err(seq)) };
        if index == 0 && block > 0 {
            state = LogState::from_block_end(&record).map_err(|source| damaged(seq, source))?;
        } else {
            state.apply(&record).map_err(|source| damaged(seq, source))?;
        }
    }
    Ok(Ok(state))
}

/// A job without a log has no checkpoints: where some lie, the log was lost, and a start from nothing would count everything again.
async fn refuse_orphans(blob: &Blob, names: &Names) -> Result<(), Error> {
    let manifests = blob.list(&names.full(names::MANIFESTS)).await?;
    match manifests.into_iter().map(|listed| listed.name).max() {
        Some(newest) => {
            Err(Error::NoLog { folder: names.folder().to_owned(), store: blob.location().to_owned(), newest })
        }
        None => Ok(()),
    }
}

async fn read_entry(blob: &Blob, names: &Names, seq: Seq) -> Result<Option<Record>, Error> {
    let Some(bytes) = blob.find(&names.log_entry(seq)).await? else { return Ok(None) };
    Record::decode(seq, &bytes).map(Some).map_err(|source| bad_entry(blob, names, seq, source))
}

async fn find_end(blob: &Blob, names: &Names) -> Result<Seq, Error> {
    let mut search = TailSearch::new();
    loop {
        match search.next() {
            Probe::Exists(seq) => search.answer(blob.exists(&names.log_entry(seq)).await?),
            Probe::Found(end) => return Ok(end),
        }
    }
}
