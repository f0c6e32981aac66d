//! `wasmill checkpoints`: what a job could be restored from.
//!
//! Owns the layout. Reads the job's log and changes nothing.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wasmill_core::checkpoint::log::StoredCheckpoint;
use wasmill_core::checkpoint::manifest::Manifest;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::time::Timestamp;
use wasmill_runtime::blob::Blob;
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::config::Pipeline;
use wasmill_runtime::coordinator::journal::Journal;

use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// A checkpoint with what its manifest says.
struct Kept {
    stored: StoredCheckpoint,
    /// What the slowest subtask took, from barrier to acknowledgement.
    took: Duration,
    /// Bytes of all the files that it needs.
    total: u64,
}

/// Lists the checkpoints of the pipeline in `file`.
pub fn list(file: &Path, as_json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let pipeline = Pipeline::load(file)?;
    screen.mask_with(&pipeline.secrets);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(FaultKind::External, format!("cannot start: {error}")))?;
    let clock = SystemClock::shared();
    let now = clock.now();
    let kept = runtime.block_on(read(&pipeline, clock))?;
    let text = if as_json { lines(&kept, now) } else { page(&pipeline, &kept, now) };
    Ok(show::print(&screen.mask(&text)))
}

async fn read(pipeline: &Pipeline, clock: SharedClock) -> Result<Vec<Kept>, Fault> {
    let blob = Blob::open(&pipeline.checkpoint.store, &pipeline.base)
        .map_err(|error| Fault::new(error.kind(), error).at(pipeline.place(&["checkpoint", "store"])))?;
    let journal = Journal::open(blob, pipeline.job.name.clone(), clock).await?;
    let mut kept = Vec::new();
    for stored in &journal.state().in_force().checkpoints {
        let manifest = journal.read_manifest(stored.checkpoint).await?;
        kept.push(Kept {
            took: took(&manifest),
            total: stored.bytes_new + stored.bytes_referenced,
            stored: stored.clone(),
        });
    }
    Ok(kept)
}

fn took(manifest: &Manifest) -> Duration {
    Duration::from_micros(manifest.parts.iter().map(|part| part.durations.total_us).max().unwrap_or(0))
}

fn age(kept: &Kept, now: Timestamp) -> Duration {
    Duration::from_millis(now.as_millis().abs_diff(kept.stored.prepared_at.as_millis()))
}

/// One JSON object a line, the newest last.
fn lines(kept: &[Kept], now: Timestamp) -> String {
    let line = |kept: &Kept| -> Value {
        json!({
            "checkpoint": kept.stored.checkpoint,
            "attempt": kept.stored.attempt,
            "prepared-at": kept.stored.prepared_at,
            "age-ms": age(kept, now).as_millis() as u64,
            "decided": kept.stored.decided,
            "duration-ms": kept.took.as_micros() as f64 / 1000.0,
            "bytes-new": kept.stored.bytes_new,
            "bytes-referenced": kept.stored.bytes_referenced,
            "bytes-total": kept.total,
        })
    };
    kept.iter().map(|kept| format!("{}\n", line(kept))).collect()
}

fn page(pipeline: &Pipeline, kept: &[Kept], now: Timestamp) -> String {
    let (job, store) = (&pipeline.job.name, &pipeline.checkpoint.store);
    if kept.is_empty() {
        return format!("job {job} has no checkpoint in {store}\n");
    }
    let rows: Vec<_> = kept
        .iter()
        .map(|kept| {
            vec![
                kept.stored.checkpoint.to_string(),
                show::duration(age(kept, now)),
                if kept.stored.decided { "yes" } else { "no" }.to_owned(),
                show::millis(kept.took.as_micros() as f64 / 1000.0),
                show::bytes(kept.stored.bytes_new),
                show::bytes(kept.stored.bytes_referenced),
                show::bytes(kept.total),
            ]
        })
        .collect();
    let head = ["checkpoint", "age", "decided", "took", "new", "referenced", "total"];
    format!("job {job} in {store}\n\n{}", show::table(&head, &rows))
}
