//! `wasmill checkpoints show`: one checkpoint from its manifest.
//!
//! Owns the layout. Its JSON is part of wasmill's face. Reads and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wasmill_core::checkpoint::log::StoredCheckpoint;
use wasmill_core::checkpoint::manifest::{Manifest, Part};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::CheckpointId;

use super::{Job, age, took, total};
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// Shows a checkpoint; where none is named, the one that a restart restores.
pub(super) async fn show(
    job: &Job,
    checkpoint: Option<CheckpointId>,
    as_json: bool,
    screen: &Screen,
) -> Result<Exit, Fault> {
    let journal = job.journal().await?;
    let Some(id) = checkpoint.or(journal.state().in_force().current) else {
        let (name, store) = (&job.pipeline.job.name, &job.pipeline.checkpoint.store);
        return Err(Fault::new(FaultKind::User, format!("job {name} has no checkpoint in {store}")));
    };
    // Asked of the log first, so that one that is not there is told with what there is.
    let manifest = journal.read_manifest(id).await?;
    let Some(stored) = journal.state().checkpoint(id) else { return Ok(Exit::Done) };
    let text = if as_json { format!("{}\n", value(stored, &manifest)) } else { page(job, stored, &manifest) };
    Ok(show::print(&screen.mask(&text)))
}

/// The files of a part, and their bytes.
fn files(part: &Part) -> (usize, u64) {
    let files = part.state.iter().flat_map(|state| &state.files);
    (files.clone().count(), files.map(|file| file.length).sum())
}

fn value(stored: &StoredCheckpoint, manifest: &Manifest) -> Value {
    let operators = manifest.operators.iter().map(|(uid, operator)| {
        let totals = manifest.totals(uid);
        let states = totals
            .iter()
            .map(|(state, tally)| json!({ "state": state, "entries": tally.entries, "bytes": tally.bytes }));
        json!({ "uid": uid, "component": operator.component, "states": states.collect::<Vec<_>>() })
    });
    let subtasks = manifest.parts.iter().map(|part| {
        let (count, bytes) = files(part);
        let names = part.state.iter().flat_map(|state| &state.files).map(|file| {
            json!({ "name": file.name, "object": file.object, "offset": file.offset, "bytes": file.length, "sha256": file.sha256 })
        });
        json!({
            "uid": part.uid,
            "index": part.index,
            "key-groups": part.key_groups,
            "backend": part.state.as_ref().map(|state| &state.backend),
            "watermark": part.watermark,
            "splits": part.splits,
            "file-count": count,
            "file-bytes": bytes,
            "files": names.collect::<Vec<_>>(),
            "bytes-new": part.bytes_new,
            "bytes-referenced": part.bytes_referenced,
        })
    });
    json!({
        "checkpoint": stored.checkpoint,
        "attempt": stored.attempt,
        "decided": stored.decided,
        "created": manifest.created,
        "purpose": manifest.purpose,
        "wasmill": manifest.wasmill,
        "max-parallelism": manifest.max_parallelism,
        "duration-ms": took(manifest).as_micros() as f64 / 1000.0,
        "bytes-new": stored.bytes_new,
        "bytes-referenced": stored.bytes_referenced,
        "bytes-total": total(stored),
        "objects": manifest.objects(),
        "operators": operators.collect::<Vec<_>>(),
        "subtasks": subtasks.collect::<Vec<_>>(),
    })
}

fn page(job: &Job, stored: &StoredCheckpoint, manifest: &Manifest) -> String {
    let (name, store) = (&job.pipeline.job.name, &job.pipeline.checkpoint.store);
    let mut text = format!(
        "checkpoint {} of job {name} in {store}\n{} old, {}, taken by attempt {} with wasmill {}\n{} in {} objects, {} of them new\n",
        stored.checkpoint,
        show::duration(age(stored, job.clock.now())),
        if stored.decided { "decided" } else { "not decided" },
        stored.attempt,
        manifest.wasmill,
        show::bytes(total(stored)),
        manifest.objects().len(),
        show::bytes(stored.bytes_new),
    );
    let mut states = Vec::new();
    for uid in manifest.operators.keys() {
        for (state, tally) in manifest.totals(uid) {
            states.push(vec![uid.to_string(), state.to_string(), show::count(tally.entries), show::bytes(tally.bytes)]);
        }
    }
    if !states.is_empty() {
        text.push_str(&format!("\n{}", show::table(&["operator", "state", "entries", "bytes"], &states)));
    }
    let subtasks: Vec<_> = manifest.parts.iter().map(row).collect();
    let head = ["subtask", "key groups", "splits", "files", "bytes", "new", "watermark"];
    text.push_str(&format!("\n{}", show::table(&head, &subtasks)));
    let objects: BTreeSet<_> = manifest.objects();
    text.push_str(&format!("\nobjects below jobs/{name}\n"));
    objects.iter().for_each(|object| text.push_str(&format!("  {object}\n")));
    text
}

fn row(part: &Part) -> Vec<String> {
    let (count, bytes) = files(part);
    let groups = part.key_groups.map_or("-".to_owned(), |range| range.to_string());
    let watermark = part.watermark.as_millis();
    let watermark =
        if part.watermark <= wasmill_core::time::Timestamp::MIN { "-".to_owned() } else { watermark.to_string() };
    vec![
        part.subtask().to_string(),
        groups,
        part.splits.len().to_string(),
        count.to_string(),
        show::bytes(bytes),
        show::bytes(part.bytes_new),
        watermark,
    ]
}
