//! What the pipeline file says of time, as the source subtasks use it.
//!
//! Owns the step from the settings to strategies and to the limit between sources. Does not own either of them.

use std::collections::BTreeMap;

use wasmill_core::id::SubtaskId;

use crate::config::watermark::Watermark;
use crate::config::{self, Pipeline};
use crate::control::Mailbox;
use crate::subtask::Strategy;
use crate::subtask::drift::Drift;

/// From what a source makes its watermarks.
pub(super) fn strategy(watermark: &Watermark) -> Strategy {
    match &watermark.strategy {
        config::watermark::Strategy::None => Strategy::None,
        config::watermark::Strategy::Times(out_of_order) => Strategy::Times(out_of_order.get()),
        config::watermark::Strategy::Field(_) => Strategy::Marks,
    }
}

/// What the source subtasks know of each other: keeps those together that make watermarks, where the pipeline says so.
pub(super) fn drifts(pipeline: &Pipeline, mailboxes: &BTreeMap<SubtaskId, Mailbox>) -> BTreeMap<SubtaskId, Drift> {
    let Some(limit) = pipeline.job.max_drift else { return BTreeMap::new() };
    let timed = |id: &SubtaskId| {
        pipeline.source(&id.uid).is_some_and(|source| strategy(source.config.watermark()) != Strategy::None)
    };
    let sources = mailboxes.iter().filter(|(id, _)| timed(id));
    Drift::among(sources.map(|(id, mailbox)| (id.clone(), mailbox.bell().clone())).collect(), limit.get())
}
