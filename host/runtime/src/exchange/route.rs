//! The output side of a subtask: every record of an output goes to the subtasks that its edges name.
//!
//! Owns the exchanges (forward, key, broadcast, rebalance) and what becomes of a record without a key. Which subtask owns a
//! key is decided in `core::key_group` alone.

use std::sync::Arc;

use wasmill_core::element::{Barrier, Element};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::{OperatorUid, Parallelism};
use wasmill_core::key_group::{KeyGroup, KeyHash, MaxParallelism};
use wasmill_core::record::{Header, RecordBatch, WatermarkMark};

use super::channel::Sender;
use super::key::KeyExtractor;
use crate::format::encode;
use crate::telemetry::{DropReason, SubtaskMeter};

/// What becomes of a record that has no key at a keyed edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKey {
    /// It is left out and counted.
    Drop,
    /// The job fails.
    Fail,
}

/// A keyed edge: how it finds keys and who owns them.
#[derive(Debug)]
pub struct KeyRouter {
    extractor: KeyExtractor,
    missing: MissingKey,
    /// The subtask of each key group.
    owners: Vec<u32>,
    max_parallelism: MaxParallelism,
    /// From and to, for errors.
    edge: (OperatorUid, OperatorUid),
    meter: Arc<SubtaskMeter>,
    scratch: Vec<u8>,
    building: Vec<RecordBatch>,
}

impl KeyRouter {
    /// A router to `parallelism` subtasks of the operator `edge.1`. `meter` counts the records left out.
    #[must_use]
    pub fn new(
        extractor: KeyExtractor,
        missing: MissingKey,
        (max_parallelism, parallelism): (MaxParallelism, Parallelism),
        edge: (OperatorUid, OperatorUid),
        meter: Arc<SubtaskMeter>,
    ) -> Self {
        let owners =
            (0..max_parallelism.get()).map(|group| KeyGroup(group).owner(max_parallelism, parallelism).0).collect();
        let building = (0..parallelism.get()).map(|_| RecordBatch::default()).collect();
        Self { extractor, missing, owners, max_parallelism, edge, meter, scratch: Vec::new(), building }
    }

    /// Splits the batch by owner into `building`.
    fn split(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        let mut marks = batch.marks.iter().peekable();
        let mut headers = batch.headers.iter().peekable();
        for record in 0..batch.len() {
            while let Some(mark) = marks.next_if(|mark| mark.after as usize <= record) {
                self.mark(mark);
            }
            let value = batch.values.get(record);
            let key = match self.extractor.key(batch.keys.get(record), value, &mut self.scratch) {
                Ok(key) => key,
                Err(reason) if self.missing == MissingKey::Drop => {
                    tracing::trace!(%reason, from = %self.edge.0, to = %self.edge.1, "record without a key dropped");
                    self.meter.dropped(DropReason::MissingKey, 1);
                    while headers.next_if(|header| header.record as usize <= record).is_some() {}
                    continue;
                }
                Err(reason) => {
                    let (from, to) = &self.edge;
                    return Err(Fault::new(
                        FaultKind::User,
                        format_args!(
                            "the record {} of time {}{} on the edge from `{from}` to `{to}` has no key: {reason}; set on-missing-key = \"drop\" on the input of `{to}` to leave such records out",
                            encode::shown(value),
                            batch.times[record],
                            batch.place(record).map(|place| format!(" ({place})")).unwrap_or_default(),
                        ),
                    ));
                }
            };
            let hash = KeyHash::of(key);
            let target = &mut self.building[self.owners[usize::from(hash.group(self.max_parallelism).0)] as usize];
            while let Some(header) = headers.next_if(|header| header.record as usize <= record) {
                target.headers.push(Header { record: target.len() as u32, ..header.clone() });
            }
            target.push(Some(key), batch.times[record], value);
            target.hashes.push(hash);
            if let Some(&position) = batch.positions.get(record) {
                target.positions.push(position);
                if target.origin.is_none() {
                    target.origin.clone_from(&batch.origin);
                }
            }
        }
        for mark in marks {
            self.mark(mark);
        }
        Ok(())
    }

    fn mark(&mut self, mark: &WatermarkMark) {
        for target in &mut self.building {
            target.marks.push(WatermarkMark { after: target.len() as u32, watermark: mark.watermark });
        }
    }
}

/// How an edge's records find their subtask.
#[derive(Debug)]
pub enum Routing {
    /// To the one subtask with the sender's index.
    Forward,
    /// To each.
    Broadcast,
    /// A batch to each in turn.
    Rebalance {
        /// Whose turn it is.
        next: usize,
    },
    /// By the owner of the key.
    Key(Box<KeyRouter>),
}

/// One edge out of a subtask.
#[derive(Debug)]
pub struct OutEdge {
    /// How records find their subtask.
    pub routing: Routing,
    /// The channels to the target's subtasks, by index; of a forward edge, the one.
    pub targets: Vec<Sender>,
}

impl OutEdge {
    /// Whether every target has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.targets.iter().all(Sender::has_room)
    }

    fn emit(&mut self, batch: RecordBatch) -> Result<(), Fault> {
        match &mut self.routing {
            Routing::Forward => self.targets[0].send(Element::Records(batch)),
            Routing::Broadcast => self.send_to_all(&Element::Records(batch)),
            Routing::Rebalance { next } => {
                let chosen = *next;
                *next = (chosen + 1) % self.targets.len();
                if !batch.marks.is_empty() {
                    // A watermark concerns all targets; the records go to one.
                    let marks: Vec<_> = batch.marks.iter().map(|mark| WatermarkMark { after: 0, ..*mark }).collect();
                    for (index, target) in self.targets.iter().enumerate() {
                        if index != chosen {
                            target
                                .send(Element::Records(RecordBatch { marks: marks.clone(), ..RecordBatch::default() }));
                        }
                    }
                }
                self.targets[chosen].send(Element::Records(batch));
            }
            Routing::Key(router) => {
                router.split(&batch)?;
                for (target, building) in self.targets.iter().zip(&mut router.building) {
                    if !building.is_empty() || !building.marks.is_empty() {
                        target.send(Element::Records(std::mem::take(building)));
                    }
                }
            }
        }
        Ok(())
    }

    fn send_to_all(&self, element: &Element) {
        for target in &self.targets {
            target.send(element.clone());
        }
    }
}

/// All edges out of a subtask, by output.
#[derive(Debug, Default)]
pub struct Outputs {
    by_output: Vec<Vec<OutEdge>>,
}

impl Outputs {
    /// The edges of each output, by the output's index.
    #[must_use]
    pub fn new(by_output: Vec<Vec<OutEdge>>) -> Self {
        Self { by_output }
    }

    /// How many outputs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_output.len()
    }

    /// Whether there is no output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_output.is_empty()
    }

    /// Whether every output has room, so that more input may be taken.
    #[must_use]
    pub fn have_room(&self) -> bool {
        self.by_output.iter().flatten().all(OutEdge::has_room)
    }

    /// Sends the batch over every edge of the output.
    ///
    /// # Errors
    /// A record without a key where that fails the job.
    pub fn emit(&mut self, output: usize, batch: RecordBatch) -> Result<(), Fault> {
        let Some((last, others)) = self.by_output.get_mut(output).and_then(|edges| edges.split_last_mut()) else {
            return Ok(());
        };
        for edge in others {
            edge.emit(batch.clone())?;
        }
        last.emit(batch)
    }

    /// Sends the barrier behind everything sent so far, on every channel.
    pub fn send_barrier(&self, barrier: Barrier) {
        for edge in self.by_output.iter().flatten() {
            edge.send_to_all(&Element::Barrier(barrier));
        }
    }

    /// Tells every channel that nothing comes for a while.
    pub fn send_idle(&self) {
        for edge in self.by_output.iter().flatten() {
            edge.send_to_all(&Element::Idle);
        }
    }

    /// Tells every channel that the watermark counts again.
    pub fn send_active(&self) {
        for edge in self.by_output.iter().flatten() {
            edge.send_to_all(&Element::Active);
        }
    }
}
