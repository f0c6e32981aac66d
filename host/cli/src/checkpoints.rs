//! `wasmill checkpoints`: what a job could be restored from.
//!
//! Owns the list and how a job's log is opened; `show`, `verify` and `delete` are modules of their own. Of these only `delete`
//! changes anything.

mod delete;
mod page;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wasmill_core::checkpoint::log::StoredCheckpoint;
use wasmill_core::checkpoint::manifest::Manifest;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::CheckpointId;
use wasmill_core::time::Timestamp;
use wasmill_runtime::blob::Blob;
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::config::Pipeline;
use wasmill_runtime::coordinator::journal::{Error, Journal};

use crate::args::Checkpoints;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// A pipeline and where its checkpoints are.
struct Job {
    pipeline: Pipeline,
    clock: SharedClock,
}

/// A checkpoint with what its manifest says.
struct Kept {
    stored: StoredCheckpoint,
    /// Whether a restart restores it.
    current: bool,
    /// What the slowest subtask took, from barrier to acknowledgement; or why the manifest cannot be used.
    took: Result<Duration, String>,
}

/// Every piece of an object that some checkpoint names, by object and offset, with its length: what is shared counts once.
type Pieces = BTreeMap<(String, u64), u64>;

/// Executes a command on checkpoints.
pub fn execute(command: &Checkpoints, as_json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let (Checkpoints::List { pipeline: file }
    | Checkpoints::Show { pipeline: file, .. }
    | Checkpoints::Verify { pipeline: file, .. }
    | Checkpoints::Delete { pipeline: file, .. }) = command;
    let job = Job::load(file, screen)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(FaultKind::External, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            Checkpoints::List { .. } => list(&job, as_json, screen).await,
            Checkpoints::Show { checkpoint, .. } => page::show(&job, *checkpoint, as_json, screen).await,
            Checkpoints::Verify { checkpoint, .. } => verify::verify(&job, *checkpoint, as_json, screen).await,
            Checkpoints::Delete { checkpoint, force, .. } => {
                delete::delete(&job, *checkpoint, *force, as_json, screen).await
            }
        }
    })
}

impl Job {
    fn load(file: &Path, screen: &Screen) -> Result<Self, Fault> {
        let pipeline = Pipeline::load(file)?;
        screen.mask_with(&pipeline.secrets);
        Ok(Self { pipeline, clock: SystemClock::shared() })
    }

    /// The job's log as it is now.
    async fn journal(&self) -> Result<Journal, Fault> {
        let Pipeline { checkpoint, base, job, .. } = &self.pipeline;
        let blob = Blob::open(&checkpoint.store, base)
            .map_err(|error| Fault::new(error.kind(), error).at(self.pipeline.place(&["checkpoint", "store"])))?;
        Ok(Journal::open(blob, job.name.clone(), SharedClock::clone(&self.clock)).await?)
    }

    /// The manifest, its damage, or `None` where the checkpoint was deleted while it was being read: a job that runs goes on
    /// meanwhile.
    async fn manifest(
        &self,
        journal: &Journal,
        checkpoint: CheckpointId,
    ) -> Result<Option<Result<Manifest, String>>, Fault> {
        match journal.read_manifest(checkpoint).await {
            Ok(manifest) => Ok(Some(Ok(manifest))),
            Err(error @ Error::Damaged { .. }) => Ok(self.is_kept(checkpoint).await?.then(|| Err(error.to_string()))),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the log still has the checkpoint.
    async fn is_kept(&self, checkpoint: CheckpointId) -> Result<bool, Fault> {
        Ok(self.journal().await?.state().checkpoint(checkpoint).is_some())
    }
}

async fn list(job: &Job, as_json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let now = job.clock.now();
    let journal = job.journal().await?;
    let in_force = journal.state().in_force();
    let (mut kept, mut pieces) = (Vec::new(), Pieces::new());
    for stored in &in_force.checkpoints {
        let Some(manifest) = job.manifest(&journal, stored.checkpoint).await? else { continue };
        let took = manifest.map(|manifest| {
            let files = manifest.parts.iter().filter_map(|part| part.state.as_ref()).flat_map(|state| &state.files);
            pieces.extend(files.map(|file| ((file.object.clone(), file.offset), file.length)));
            took(&manifest)
        });
        kept.push(Kept { stored: stored.clone(), current: in_force.current == Some(stored.checkpoint), took });
    }
    let text = if as_json { lines(&kept, now) } else { table(&job.pipeline, &kept, pieces.values().sum(), now) };
    Ok(show::print(&screen.mask(&text)))
}

fn took(manifest: &Manifest) -> Duration {
    Duration::from_micros(manifest.parts.iter().map(|part| part.durations.total_us).max().unwrap_or(0))
}

fn age(stored: &StoredCheckpoint, now: Timestamp) -> Duration {
    Duration::from_millis(now.as_millis().abs_diff(stored.prepared_at.as_millis()))
}

fn total(stored: &StoredCheckpoint) -> u64 {
    stored.bytes_new + stored.bytes_referenced
}

/// One JSON object a line, the newest last.
fn lines(kept: &[Kept], now: Timestamp) -> String {
    let line = |Kept { stored, current, took }: &Kept| -> Value {
        json!({
            "checkpoint": stored.checkpoint,
            "attempt": stored.attempt,
            "prepared-at": stored.prepared_at,
            "age-ms": age(stored, now).as_millis() as u64,
            "decided": stored.decided,
            "current": current,
            "duration-ms": took.as_ref().ok().map(|took| took.as_micros() as f64 / 1000.0),
            "bytes-new": stored.bytes_new,
            "bytes-referenced": stored.bytes_referenced,
            "bytes-total": total(stored),
            "damage": took.as_ref().err(),
        })
    };
    kept.iter().map(|kept| format!("{}\n", line(kept))).collect()
}

fn table(pipeline: &Pipeline, kept: &[Kept], bytes: u64, now: Timestamp) -> String {
    let (job, store) = (&pipeline.job.name, &pipeline.checkpoint.store);
    if kept.is_empty() {
        return format!("job {job} has no checkpoint in {store}\n");
    }
    let rows: Vec<_> = kept
        .iter()
        .map(|Kept { stored, current, took }| {
            vec![
                stored.checkpoint.to_string(),
                show::duration(age(stored, now)),
                match (stored.decided, current) {
                    (true, true) => "current",
                    (true, false) => "yes",
                    (false, _) => "no",
                }
                .to_owned(),
                took.as_ref().map_or("damaged".to_owned(), |took| show::millis(took.as_micros() as f64 / 1000.0)),
                show::bytes(stored.bytes_new),
                show::bytes(stored.bytes_referenced),
                show::bytes(total(stored)),
            ]
        })
        .collect();
    let head = ["checkpoint", "age", "decided", "took", "new", "referenced", "total"];
    let damage: String =
        kept.iter().filter_map(|kept| kept.took.as_ref().err()).map(|why| format!("\n{why}\n")).collect();
    let bytes = show::bytes(bytes);
    format!("job {job} in {store}: {} checkpoints, {bytes} in all\n\n{}{damage}", kept.len(), show::table(&head, &rows))
}
