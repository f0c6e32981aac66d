//! `wasmill checkpoints delete`: a checkpoint and what it alone needs.
//!
//! Owns what is told of it. What may go, and in which order, is the runtime's.

use serde_json::json;
use wasmill_core::fault::Fault;
use wasmill_core::id::CheckpointId;
use wasmill_runtime::coordinator::journal::{Deleted, Deletion};

use super::Job;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// Deletes a checkpoint.
pub(super) async fn delete(
    job: &Job,
    checkpoint: CheckpointId,
    force: bool,
    as_json: bool,
    screen: &Screen,
) -> Result<Exit, Fault> {
    let how = if force { Deletion::Forced } else { Deletion::Older };
    let Deleted { objects, left, current } = job.journal().await?.delete(checkpoint, how).await?;
    let text = if as_json {
        json!({ "deleted": checkpoint, "objects": objects, "left": left, "current": current }).to_string()
    } else {
        let left = if left > 0 { format!("; {left} objects stay until the job runs next") } else { String::new() };
        let next = current.map_or("begins with nothing".to_owned(), |current| format!("restores checkpoint {current}"));
        format!("checkpoint {checkpoint} is deleted, {objects} objects with it{left}; a restart {next}")
    };
    Ok(show::print(&screen.mask(&format!("{text}\n"))))
}
