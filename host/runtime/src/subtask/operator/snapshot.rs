//! An operator's share of a checkpoint: at a barrier the state is frozen, the rest happens behind the records.
//!
//! Owns what stands in the share and the account of the pause. Does not own the upload.

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::checkpoint::manifest::{Durations, Part};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::Fault;
use wasmill_core::id::CheckpointId;
use wasmill_core::ttl::Now;

use super::{OperatorSubtask, fault_of_state};
use crate::state::{self, LocalCut};
use crate::subtask::{Context, micros};
use crate::telemetry::{CacheTally, StateTally};

/// A snapshot that has its local cut, or why it has none.
pub struct Cut {
    /// Whose it is.
    pub context: Context,
    /// Its checkpoint.
    pub checkpoint: CheckpointId,
    /// The subtask's share but for its state.
    pub part: Part,
    /// The state.
    pub local: Result<LocalCut, state::Error>,
    /// When the barrier had come through, by the monotonic clock.
    pub since: Duration,
}

/// Takes a subtask's snapshots on from their local cuts.
pub trait Snapshots: Send + Sync {
    /// Makes the cut durable and acknowledges it; called on the state's background thread.
    fn take(&self, cut: Cut);
    /// The checkpoint is decided.
    fn decided(&self, checkpoint: CheckpointId);
    /// The checkpoint will never be decided.
    fn given_up(&self, checkpoint: CheckpointId);
}

impl OperatorSubtask {
    pub(super) fn snapshot(&mut self, barrier: Barrier) -> Result<(), Fault> {
        let begin = self.context.clock.monotonic();
        self.outputs.send_barrier(barrier);
        self.context.meter.barrier(barrier.checkpoint);
        let alignment = self.gate.unblock(begin);
        let part = Part {
            uid: self.context.id.uid.clone(),
            index: self.context.id.index,
            key_groups: Some(self.options.key_groups),
            state: None,
            splits: Vec::new(),
            watermark: self.gate.watermark(),
            merged_watermark: (!self.options.merged_late.is_empty()).then_some(self.merged),
            commits: Vec::new(),
            in_flight: Vec::new(),
            durations: Durations { align_us: micros(alignment), ..Durations::default() },
            bytes_new: 0,
            bytes_referenced: 0,
        };
        self.stopping = barrier.purpose == Purpose::Stop;
        let mut call = self.call.lock();
        let Some(keyed) = &mut call.keyed else {
            self.context.acknowledge(barrier.checkpoint, part);
            return Ok(());
        };
        // By these times compaction judges once the cut is taken: no call after a restore of it is at an earlier one.
        keyed.set_now(Now { event: self.passed, processing: self.context.clock.now() });
        let (context, checkpoint) = (self.context.clone(), barrier.checkpoint);
        let snapshots = Arc::clone(&self.options.snapshots);
        // The pause is known only after the freeze, the cut perhaps before: they meet here.
        let pause = Arc::new(std::sync::OnceLock::new());
        let told = Arc::clone(&pause);
        let dir = self.options.cuts.join(format!("{}-{}-{checkpoint}", context.id.uid, context.id.index));
        keyed
            .freeze(
                dir,
                Box::new(move |local| {
                    let mut part = part;
                    part.durations.pause_us = told.get().copied().map_or(0, micros);
                    snapshots.take(Cut { context, checkpoint, part, local, since: begin });
                }),
            )
            .map_err(fault_of_state)?;
        let _ = pause.set(self.context.clock.monotonic().saturating_sub(begin));
        self.context.meter.holds(tallies(keyed.counts()), cache(&keyed.gauges()));
        Ok(())
    }
}

fn tallies(counts: &state::Counts) -> Vec<StateTally> {
    counts
        .states()
        .map(|(state, tally)| StateTally { state: state.clone(), entries: tally.entries, bytes: tally.bytes })
        .collect()
}

fn cache(gauges: &state::Gauges) -> CacheTally {
    let bytes = gauges.fresh_bytes + gauges.frozen_bytes + gauges.clean_bytes;
    CacheTally { hits: gauges.hits, misses: gauges.misses, bytes, rows: gauges.rows_bytes }
}
