//! `wasmill checkpoints verify`: whether all that checkpoints name is there, byte for byte.
//!
//! Owns what is told of it. What is compared with what is the runtime's. Reads and changes nothing.

use std::cell::Cell;

use serde_json::json;
use wasmill_core::fault::Fault;
use wasmill_core::id::CheckpointId;
use wasmill_runtime::coordinator::verify::{Damage, Verified, Verifier};

use super::Job;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// Verifies one checkpoint, or all that are kept.
pub(super) async fn verify(
    job: &Job,
    only: Option<CheckpointId>,
    as_json: bool,
    screen: &Screen,
) -> Result<Exit, Fault> {
    let journal = job.journal().await?;
    let ids = match only {
        Some(id) => {
            // Asked of the log, so that one that is not there is told with what there is.
            if journal.state().checkpoint(id).is_none() {
                journal.read_manifest(id).await?;
            }
            vec![id]
        }
        None => journal.state().in_force().checkpoints.iter().map(|stored| stored.checkpoint).collect(),
    };
    let mut verifier = Verifier::default();
    let read = Cell::new(0);
    let mut text = String::new();
    let mut exit = Exit::Done;
    for id in ids {
        let progress = |bytes: u64| {
            read.set(read.get() + bytes);
            screen.progress(&format!("checkpoint {id} | {} read", show::bytes(read.get())));
        };
        let verified = match job.manifest(&journal, id).await? {
            None => continue,
            Some(Ok(manifest)) => verifier.verify(&journal, &manifest, progress).await?,
            Some(Err(cause)) => {
                damaged_manifest(&journal.names().full(&wasmill_core::checkpoint::names::manifest(id)), cause)
            }
        };
        // A job that runs may have deleted it meanwhile, which is no damage.
        if !verified.damaged.is_empty() && !job.is_kept(id).await? {
            continue;
        }
        if !verified.damaged.is_empty() {
            exit = Exit::Refused;
        }
        text.push_str(&if as_json { line(id, &verified) } else { page(id, &verified) });
    }
    screen.progress("");
    if text.is_empty() && !as_json {
        text = format!("job {} has no checkpoint in {}\n", job.pipeline.job.name, job.pipeline.checkpoint.store);
    }
    show::print(&screen.mask(&text));
    Ok(exit)
}

fn damaged_manifest(object: &str, cause: String) -> Verified {
    Verified { objects: 1, bytes: 0, damaged: vec![Damage { object: object.to_owned(), cause }] }
}

fn line(id: CheckpointId, verified: &Verified) -> String {
    let damaged: Vec<_> =
        verified.damaged.iter().map(|damage| json!({ "object": damage.object, "cause": damage.cause })).collect();
    let line = json!({
        "checkpoint": id,
        "whole": damaged.is_empty(),
        "objects": verified.objects,
        "bytes": verified.bytes,
        "damaged": damaged,
    });
    format!("{line}\n")
}

fn page(id: CheckpointId, verified: &Verified) -> String {
    let (objects, bytes) = (verified.objects, show::bytes(verified.bytes));
    if verified.damaged.is_empty() {
        return format!("checkpoint {id} is whole: {objects} objects, {bytes}\n");
    }
    let mut text = format!("checkpoint {id} is damaged: {} of {objects} objects\n", verified.damaged.len());
    for Damage { object, cause } in &verified.damaged {
        text.push_str(&format!("  {object}: {cause}\n"));
    }
    text
}
