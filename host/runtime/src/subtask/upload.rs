//! Takes a subtask's snapshots from local cut to acknowledgement, beside the record path.
//!
//! Owns that one subtask's uploads follow one another, that a failed one declines its checkpoint, and that one whose checkpoint was
//! given up makes room for the next. Does not own how files are stored.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use wasmill_core::checkpoint::inventory::Inventory;
use wasmill_core::checkpoint::manifest::Part;
use wasmill_core::checkpoint::names::Names;
use wasmill_core::id::{Attempt, CheckpointId};

use super::micros;
use super::operator::{Cut, Snapshots};
use crate::blob::Blob;
use crate::snapshot::{self, Owner};
use crate::spawn;

/// The snapshots of one subtask.
pub struct Uploads {
    runtime: Handle,
    store: Store,
    inventory: Arc<Mutex<Inventory>>,
    /// What the inventory is to be told before the next upload.
    news: Arc<parking_lot::Mutex<Vec<News>>>,
    /// The newest checkpoint that was given up.
    given_up: watch::Sender<Option<CheckpointId>>,
}

/// What became of a checkpoint.
#[derive(Debug, Clone, Copy)]
enum News {
    Decided(CheckpointId),
    GivenUp(CheckpointId),
}

/// Where an attempt's snapshots go.
#[derive(Debug, Clone)]
pub struct Store {
    /// The checkpoint store.
    pub blob: Blob,
    /// The job's names in it.
    pub names: Names,
    /// The attempt.
    pub attempt: Attempt,
}

impl Uploads {
    /// Uploads to `store`; `inventory` says what is there already.
    #[must_use]
    pub fn new(runtime: Handle, store: Store, inventory: Inventory) -> Self {
        let (inventory, given_up) = (Arc::new(Mutex::new(inventory)), watch::Sender::new(None));
        Self { runtime, store, inventory, news: Arc::default(), given_up }
    }
}

impl Snapshots for Uploads {
    fn take(&self, cut: Cut) {
        let Cut { context, checkpoint, part, local, since } = cut;
        let local = match local {
            Ok(local) => local,
            Err(error) => return context.decline(checkpoint, &format!("no local cut: {error}")),
        };
        let (store, inventory, news) = (self.store.clone(), Arc::clone(&self.inventory), Arc::clone(&self.news));
        let mut over = self.given_up.subscribe();
        spawn::task(&self.runtime, async move {
            let mut inventory = inventory.lock().await;
            // Told at once and in order, not by a task that might run after this one.
            for news in std::mem::take(&mut *news.lock()) {
                match news {
                    News::Decided(checkpoint) => inventory.decided(checkpoint),
                    News::GivenUp(checkpoint) => inventory.given_up(checkpoint),
                }
            }
            let begin = context.clock.monotonic();
            let (write, cut) = (micros(local.write), micros(local.cut));
            let owner = Owner { blob: &store.blob, names: &store.names, attempt: store.attempt, checkpoint };
            let given_up = async {
                // Where a later one was, nobody waits for this one either. Without a sender the subtask is gone, and the upload may end.
                if over.wait_for(|newest| newest.is_some_and(|newest| newest >= checkpoint)).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            match snapshot::upload(local, &inventory, owner, given_up).await {
                Ok(stored) => {
                    inventory.stored(checkpoint, &stored.state.files);
                    let now = context.clock.monotonic();
                    let mut part = Part { state: Some(stored.state), ..part };
                    part.bytes_new = stored.bytes_new;
                    part.bytes_referenced = stored.bytes_referenced;
                    part.durations.write_us = write;
                    part.durations.cut_us = cut;
                    part.durations.upload_us = micros(now.saturating_sub(begin));
                    part.durations.total_us = micros(now.saturating_sub(since));
                    context.acknowledge(checkpoint, part);
                }
                Err(error) => context.decline(checkpoint, &error.to_string()),
            }
        });
    }

    fn decided(&self, checkpoint: CheckpointId) {
        self.news.lock().push(News::Decided(checkpoint));
    }

    fn given_up(&self, checkpoint: CheckpointId) {
        self.news.lock().push(News::GivenUp(checkpoint));
        self.given_up.send_replace(Some(checkpoint));
    }
}
