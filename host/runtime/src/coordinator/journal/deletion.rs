//! Deleting checkpoints by hand, also beside an attempt that runs.
//!
//! Owns what may be deleted, and the order by which nothing that a retained checkpoint names goes (I8): the log says retired first,
//! and what is named is read after that. Who runs meanwhile finds the entry and goes on without those checkpoints.

use std::collections::BTreeSet;

use wasmill_core::checkpoint::log::entry::{Entry, WriterId};
use wasmill_core::checkpoint::log::state::{Start, StartFrom};
use wasmill_core::checkpoint::names::{self, ObjectName};
use wasmill_core::checkpoint::retention::objects;
use wasmill_core::id::CheckpointId;

use super::{Created, Error, Journal, read};

/// What to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// A checkpoint that no restart restores.
    Older,
    /// Also the one that a restart restores. A restart then restores the newest decided one that is left, or begins with nothing; an
    /// attempt that runs is over.
    Forced,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Objects that are gone.
    pub objects: usize,
    /// Objects that could not be deleted: the next attempt tries again.
    pub left: usize,
    /// What a restart restores now.
    pub current: Option<CheckpointId>,
}

impl Journal {
    /// Deletes a checkpoint and every object that it alone names.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Current`]; [`Error::InProgress`]; a damaged manifest of a checkpoint that stays, since nobody knows
    /// then what it names; a store that fails.
    pub async fn delete(&mut self, checkpoint: CheckpointId, how: Deletion) -> Result<Deleted, Error> {
        self.check_deletable(checkpoint, how)?;
        // A damaged one may go: what it alone named is an orphan that the next attempt collects.
        let doomed = match self.read_manifest(checkpoint).await {
            Ok(manifest) => objects(&manifest),
            Err(Error::Damaged { .. }) => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        if self.state.in_force().current == Some(checkpoint) {
            let left = self.decided().rev().map(|stored| stored.checkpoint).find(|id| *id != checkpoint);
            let pipeline = self.state.in_force().pipeline.clone();
            let from = left.map_or(StartFrom::Fresh, StartFrom::Checkpoint);
            self.start_attempt(&Start { from, pipeline }).await?;
        }
        self.retire_beside(checkpoint, how).await?;
        let mut needed: BTreeSet<ObjectName> = BTreeSet::new();
        for id in self.state.in_force().checkpoints.iter().map(|stored| stored.checkpoint) {
            needed.extend(objects(&self.read_manifest(id).await?));
        }
        let manifest = names::manifest(checkpoint);
        // The manifest last: while it is there, what is left can be found.
        let doomed: Vec<_> = doomed
            .into_iter()
            .filter(|object| is_state(object) && !needed.contains(object))
            .chain([manifest])
            .collect();
        let mut left = 0;
        for object in &doomed {
            if let Err(error) = self.blob.delete(&self.names.full(object)).await {
                tracing::warn!(%error, "an object that is of no use stays for now");
                left += 1;
            }
        }
        Ok(Deleted { objects: doomed.len() - left, left, current: self.state.in_force().current })
    }

    fn check_deletable(&self, checkpoint: CheckpointId, how: Deletion) -> Result<(), Error> {
        let (job, current) = (|| self.job.clone(), self.state.in_force().current);
        match self.state.checkpoint(checkpoint) {
            None => Err(Error::Unknown { checkpoint, job: job(), decided: self.decided_ids() }),
            Some(_) if current == Some(checkpoint) && how == Deletion::Older => {
                Err(Error::Current { checkpoint, job: job() })
            }
            // A newer one may just be being decided by an attempt that runs.
            Some(stored) if !stored.decided && current.is_none_or(|current| checkpoint > current) => {
                Err(Error::InProgress { checkpoint, job: job() })
            }
            Some(_) => Ok(()),
        }
    }

    /// Says in the log that the checkpoint is retired, as nobody's attempt.
    async fn retire_beside(&mut self, checkpoint: CheckpointId, how: Deletion) -> Result<(), Error> {
        let writer = WriterId(crate::blob::random_id());
        loop {
            self.check_deletable(checkpoint, how)?;
            let attempt = self.state.in_force().attempt;
            let record = self.record(attempt, &writer, Entry::Retired { checkpoints: vec![checkpoint] })?;
            match self.create(&record).await? {
                Created::Own => return self.apply(&record),
                Created::Taken(other) => self.apply(&other)?,
                Created::Overtaken => self.state = read(&self.blob, &self.names).await?,
            }
        }
    }
}

/// Components are shared with whatever runs, which may be about to name them: the next attempt collects those that nothing names.
fn is_state(object: &str) -> bool {
    names::file_origin(object).is_some()
}

#[cfg(test)]
mod tests {
    use wasmill_core::fault::FaultKind;

    use super::super::tests::{complete, newest, open};
    use super::*;
    use crate::blob::Blob;

    fn memory() -> Blob {
        Blob::open("memory:", std::path::Path::new("/")).unwrap()
    }

    #[tokio::test]
    async fn a_checkpoint_that_is_deleted_beside_a_running_attempt_is_gone_and_the_attempt_goes_on() {
        let blob = memory();
        let mut running = open(&blob).await;
        newest(&mut running).await;
        let (one, two) = (complete(&mut running).await.unwrap(), complete(&mut running).await.unwrap());
        let deleted = open(&blob).await.delete(one, Deletion::Older).await.unwrap();
        assert_eq!((deleted.left, deleted.current), (0, Some(two)));
        assert!(!blob.exists(&running.names().full(&names::manifest(one))).await.unwrap());
        // The attempt finds the entry in the place of its own next one: once it is told, then it goes on.
        let three = running.next_checkpoint().await.unwrap();
        let attempt = running.attempt().unwrap();
        let manifest = super::super::tests::manifest(three, attempt);
        assert!(running.prepare(&manifest).await.unwrap_err().is_deletion());
        running.prepare(&manifest).await.unwrap();
        assert_eq!(running.decide(three).await.unwrap().checkpoint(), three);
        assert!(running.state().checkpoint(one).is_none());
        // What it would have retired itself is retired already.
        open(&blob).await.delete(two, Deletion::Older).await.unwrap();
        running.retire(vec![two]).await.unwrap();
        assert!(open(&blob).await.decided().map(|stored| stored.checkpoint).eq([three]));
    }

    #[tokio::test]
    async fn what_a_restart_restores_is_deleted_only_by_force_and_then_the_one_before_is_restored() {
        let blob = memory();
        let mut running = open(&blob).await;
        newest(&mut running).await;
        let (one, two) = (complete(&mut running).await.unwrap(), complete(&mut running).await.unwrap());
        let mut journal = open(&blob).await;
        let error = journal.delete(two, Deletion::Older).await.unwrap_err();
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(error.kind(), FaultKind::Refused);
        assert!(matches!(journal.delete(CheckpointId(99), Deletion::Forced).await, Err(Error::Unknown { .. })));
        assert_eq!(journal.delete(two, Deletion::Forced).await.unwrap().current, Some(one));
        assert!(complete(&mut running).await.unwrap_err().is_fenced(), "it went on from what is gone");
        assert_eq!(open(&blob).await.delete(one, Deletion::Forced).await.unwrap().current, None);
        let mut journal = open(&blob).await;
        newest(&mut journal).await;
        assert!(complete(&mut journal).await.unwrap() > two, "no id is used twice");
    }
}
