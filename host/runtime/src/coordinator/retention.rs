//! Deletes what nobody can need any more (I8).
//!
//! Owns the order: the log says retired, then data objects go, the manifest last. Does not own what may go:
//! `wasmill_core::checkpoint::retention`.
//!
//! A deletion that fails is tried again after the next decision and fails no job. While the manifest of a retained
//! checkpoint cannot be read nothing is deleted, since nobody knows what it names.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use futures::{StreamExt, stream};
use wasmill_core::checkpoint::log::{self, state};
use wasmill_core::checkpoint::manifest::{Manifest, Part};
use wasmill_core::checkpoint::names::{self, ObjectName};
use wasmill_core::checkpoint::retention::{self as rules, Doomed, Keep};
use wasmill_core::id::{CheckpointId, SubtaskId};

use super::journal::{Error, Journal};

/// Deletions under way at once.
const DELETES_AT_ONCE: usize = 16;

/// What one attempt retains.
#[derive(Debug)]
pub struct Retention {
    keep: NonZeroU32,
    /// Those that are younger are kept too.
    keep_for: Option<Duration>,
    /// What the running pipeline uses: its components.
    in_use: BTreeSet<ObjectName>,
    /// What each retained checkpoint names.
    retained: BTreeMap<CheckpointId, BTreeSet<ObjectName>>,
    /// Retained checkpoints whose manifest could not be read.
    unreadable: BTreeSet<CheckpointId>,
    doomed: Vec<Doomed>,
    /// Checkpoints of this attempt that were given up, whose uploads are to be collected.
    given_up: BTreeSet<CheckpointId>,
    /// Blocks of the log below this one are clean.
    clean_blocks: u64,
}

impl Retention {
    /// For an attempt that has started, keeping `keep` decided checkpoints and those younger than `keep_for`. Reads the manifests of
    /// what is retained.
    pub async fn new(
        journal: &Journal,
        (keep, keep_for): (NonZeroU32, Option<Duration>),
        in_use: BTreeSet<ObjectName>,
    ) -> Self {
        let (mut retained, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
        for stored in &journal.state().in_force().checkpoints {
            let checkpoint = stored.checkpoint;
            match journal.read_manifest(checkpoint).await {
                Ok(manifest) => drop(retained.insert(checkpoint, rules::objects(&manifest))),
                Err(error) => {
                    tracing::warn!(%checkpoint, %error, "nothing is deleted while this checkpoint is retained");
                    unreadable.insert(checkpoint);
                }
            }
        }
        let (doomed, given_up) = (Vec::new(), BTreeSet::new());
        Self { keep, keep_for, in_use, retained, unreadable, doomed, given_up, clean_blocks: 0 }
    }

    /// The components of the running pipeline changed.
    pub fn set_in_use(&mut self, in_use: BTreeSet<ObjectName>) {
        self.in_use = in_use;
    }

    /// An object that a part of the coming manifest refers to and that may be gone: such a checkpoint must be given up.
    #[must_use]
    pub fn dangling(&self, checkpoint: CheckpointId, parts: &[Part]) -> Option<(SubtaskId, ObjectName)> {
        rules::dangling(checkpoint, parts, &self.retained)
    }

    /// Checkpoints were deleted by hand, with what they alone named.
    pub fn deleted(&mut self, journal: &Journal) {
        self.retained.retain(|id, _| journal.state().checkpoint(*id).is_some());
        self.unreadable.retain(|id| journal.state().checkpoint(*id).is_some());
    }

    /// A checkpoint of this attempt was given up: what it had uploaded is of no use.
    pub fn given_up(&mut self, checkpoint: CheckpointId) {
        self.given_up.insert(checkpoint);
    }

    /// A manifest was prepared.
    pub fn prepared(&mut self, manifest: &Manifest) {
        self.retained.insert(manifest.checkpoint, rules::objects(manifest));
    }

    /// After a decision, or whenever a checkpoint in progress has ended: retires what is no longer kept and deletes what nobody
    /// can refer to any more. `oldest` is the oldest checkpoint in progress.
    ///
    /// # Errors
    /// [`Error::Fenced`]; a log that cannot be written. Failed deletions are only logged.
    pub async fn collect(&mut self, journal: &mut Journal, oldest: Option<CheckpointId>) -> Result<(), Error> {
        self.deleted(journal);
        let now = journal.now();
        let since = self.keep_for.map(|keep_for| now.minus(keep_for));
        let retiring = rules::to_retire(journal.state(), Keep { newest: self.keep, since });
        if !retiring.is_empty() {
            let before = journal.upcoming_checkpoint()?;
            journal.retire(retiring.clone()).await?;
            for checkpoint in retiring {
                self.unreadable.remove(&checkpoint);
                let objects = self.retained.remove(&checkpoint).unwrap_or_default();
                self.doomed.push(Doomed { checkpoint, before, objects });
            }
        }
        if self.unreadable.is_empty() {
            self.delete_due(journal, oldest).await;
            self.collect_given_up(journal, oldest).await;
        }
        self.clean_log(journal).await;
        Ok(())
    }

    /// Deletes what dead attempts left behind: uploads no manifest names, and manifests that were never prepared or whose
    /// deletion was cut short. To be called once, after the attempt has started and before its first checkpoint.
    pub async fn collect_orphans(&self, journal: &Journal) {
        let (Some(attempt), Ok(first)) = (journal.attempt(), journal.upcoming_checkpoint()) else { return };
        journal.blob().remove_unfinished(journal.names().folder()).await;
        if !self.unreadable.is_empty() {
            return;
        }
        let mut orphans = Vec::new();
        for folder in [names::FILES, names::COMPONENTS, names::MANIFESTS] {
            let listed = match journal.blob().list(&journal.names().full(folder)).await {
                Ok(listed) => listed,
                Err(error) => return tracing::warn!(folder, %error, "what dead attempts left behind stays for now"),
            };
            for object in listed {
                let Some(name) = journal.names().relative(&object.name) else { continue };
                let file = names::file_origin(name).map(|(_, attempt)| attempt);
                let dead = file.or(names::component_attempt(name)).is_some_and(|by| by < attempt)
                    || names::manifest_checkpoint(name).is_some_and(|id| id < first);
                if dead && !self.is_needed(journal, name) {
                    orphans.push(name.to_owned());
                }
            }
        }
        let left = delete(journal, orphans.iter().map(String::as_str)).await;
        tracing::debug!(found = orphans.len(), left, "objects of dead attempts were deleted");
    }

    /// Deletes what given up checkpoints uploaded. A subtask's uploads follow one another: once a later checkpoint is decided, none is
    /// under way any more.
    async fn collect_given_up(&mut self, journal: &Journal, oldest: Option<CheckpointId>) {
        let decided = journal.newest_decided().map(|stored| stored.checkpoint);
        let over = |id: &CheckpointId| {
            decided.is_some_and(|decided| *id < decided) && oldest.is_none_or(|oldest| *id < oldest)
        };
        let over: BTreeSet<_> = self.given_up.iter().copied().filter(over).collect();
        if over.is_empty() {
            return;
        }
        journal.blob().take_back_uploads().await;
        let listed = match journal.blob().list(&journal.names().full(names::FILES)).await {
            Ok(listed) => listed,
            Err(error) => return tracing::warn!(%error, "what given up checkpoints uploaded stays for now"),
        };
        let found = listed.iter().filter_map(|object| journal.names().relative(&object.name));
        let orphans = found.filter(|name| {
            let own =
                names::file_origin(name).is_some_and(|(id, by)| over.contains(&id) && Some(by) == journal.attempt());
            own && !self.is_needed(journal, name)
        });
        let left = delete(journal, orphans).await;
        if left == 0 {
            self.given_up.retain(|id| !over.contains(id));
        }
        tracing::debug!(checkpoints = over.len(), left, "what given up checkpoints uploaded was deleted");
    }

    fn is_needed(&self, journal: &Journal, object: &str) -> bool {
        let manifest = names::manifest_checkpoint(object).is_some_and(|id| journal.state().checkpoint(id).is_some());
        manifest || self.in_use.contains(object) || self.retained.values().any(|objects| objects.contains(object))
    }

    async fn delete_due(&mut self, journal: &Journal, oldest: Option<CheckpointId>) {
        let (due, mut waiting): (Vec<_>, Vec<_>) = self.doomed.drain(..).partition(|doomed| doomed.is_due(oldest));
        // What one that is not due names too goes with that one: something in progress may refer to it.
        let pending: BTreeSet<_> = waiting.iter().flat_map(|doomed| doomed.objects.iter().cloned()).collect();
        for doomed in due {
            let objects = rules::deletable(&doomed.objects, &self.retained, &self.in_use);
            let objects = objects.into_iter().filter(|object| !pending.contains(*object));
            let left = delete(journal, objects).await;
            let manifest = names::manifest(doomed.checkpoint);
            if left > 0 || delete(journal, [manifest.as_str()]).await > 0 {
                waiting.push(doomed);
            }
        }
        self.doomed = waiting;
    }

    /// Deletes the entries of closed blocks that lie below every retained checkpoint, newest block first, until one that is clean.
    async fn clean_log(&mut self, journal: &Journal) {
        let blocks = journal.state().cleanable_blocks();
        for block in (self.clean_blocks..blocks.end).rev() {
            let full_name = |seq| journal.names().log_entry(seq);
            // Entries go in order, so the last one goes last.
            let last = state::deletable_entries(block).next_back().map(full_name);
            let clean = match &last {
                Some(last) => journal.blob().exists(last).await.map(|exists| !exists),
                None => Ok(true),
            };
            match clean {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => return tracing::debug!(block, %error, "the log's old entries stay for now"),
            }
            let (last, rest) = (last.into_iter(), state::deletable_entries(block).map(full_name));
            let rest: Vec<_> = rest.take(usize::try_from(log::BLOCK).unwrap_or(usize::MAX) - 2).collect();
            if delete_full(journal, rest).await > 0 || delete_full(journal, last.collect()).await > 0 {
                return;
            }
        }
        self.clean_blocks = blocks.end;
    }
}

/// Deletes objects of the job; returns how many are left.
async fn delete<'a>(journal: &Journal, objects: impl IntoIterator<Item = &'a str>) -> usize {
    delete_full(journal, objects.into_iter().map(|object| journal.names().full(object)).collect()).await
}

async fn delete_full(journal: &Journal, objects: Vec<String>) -> usize {
    stream::iter(objects)
        .map(|object| async move {
            let deleted = journal.blob().delete(&object).await;
            deleted.inspect_err(|error| tracing::warn!(%error, "an object that is of no use stays for now")).is_err()
        })
        .buffer_unordered(DELETES_AT_ONCE)
        .filter(|failed| std::future::ready(*failed))
        .count()
        .await
}
