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
use crate::format::dead_letter::{self, DeadLetter, Writer};
use crate::format::encode;
use crate::telemetry::{DropReason, SubtaskMeter};

/// What becomes of a record that has no key at a keyed edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKey {
    /// It is left out and counted.
    Drop,
    /// The job fails.
    Fail,
    /// It goes to the sender's output for dead letters.
    DeadLetter,
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
    /// Dead letters that are not sent on yet.
    letters: RecordBatch,
    writer: Writer,
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
        Self {
            extractor,
            missing,
            owners,
            max_parallelism,
            edge,
            meter,
            scratch: Vec::new(),
            building,
            letters: RecordBatch::default(),
            writer: Writer::default(),
        }
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
                Err(reason) if self.missing != MissingKey::Fail => {
                    tracing::trace!(%reason, from = %self.edge.0, to = %self.edge.1, "record without a key left out");
                    while headers.next_if(|header| header.record as usize <= record).is_some() {}
                    if self.missing == MissingKey::DeadLetter {
                        let message = reason.to_string();
                        self.set_aside(batch, record, &message);
                    } else {
                        self.meter.dropped(DropReason::MissingKey, 1);
                    }
                    continue;
                }
                Err(reason) => {
                    let (from, to) = &self.edge;
                    return Err(Fault::new(
                        FaultKind::User,
                        format_args!(
                            "the record {} of time {}{} on the edge from `{from}` to `{to}` has no key: {reason}; set on-missing-key = \"drop\" on the input of `{to}` to leave such records out, or \"dead-letter\" to set them aside",
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

    /// Makes a dead letter of a record.
    fn set_aside(&mut self, batch: &RecordBatch, record: usize, reason: &str) {
        let (from, to) = &self.edge;
        let (key, value, time) = (batch.keys.get(record), batch.values.get(record), batch.times[record]);
        let place = batch.place(record);
        let letter = DeadLetter {
            uid: from.as_str(),
            subtask: self.meter.id().index.0,
            component: None,
            input: None,
            kind: DropReason::MissingKey.as_str(),
            message: &format!("no key for the edge to `{to}`: {reason}"),
            tries: 0,
            place: place.as_ref().map(dead_letter::Place::from),
            time,
            key,
            value,
            headers: batch.headers_of(record),
            timer: None,
        };
        self.letters.keys.push(key);
        self.letters.times.push(time);
        self.letters.values.push_with(|out| self.writer.push(&letter, out));
        self.meter.dead_lettered(DropReason::MissingKey, 1);
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
    dead_letters: Option<usize>,
}

impl Outputs {
    /// The edges of each output, by the output's index.
    #[must_use]
    pub fn new(by_output: Vec<Vec<OutEdge>>) -> Self {
        Self { by_output, dead_letters: None }
    }

    /// The same, with the output at that index taking the dead letters of the edges: records that lack their key.
    #[must_use]
    pub fn with_dead_letters(self, output: Option<usize>) -> Self {
        Self { dead_letters: output, ..self }
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
        last.emit(batch)?;
        self.set_aside(output)
    }

    /// Sends on the dead letters of an output's edges. Edges that take dead letters make none themselves.
    fn set_aside(&mut self, output: usize) -> Result<(), Fault> {
        let Some(dead_letters) = self.dead_letters.filter(|dead_letters| *dead_letters != output) else {
            return Ok(());
        };
        for edge in 0..self.by_output[output].len() {
            if let Routing::Key(router) = &mut self.by_output[output][edge].routing
                && !router.letters.is_empty()
            {
                let letters = std::mem::take(&mut router.letters);
                router.meter.sent(letters.len() as u64, letters.payload_bytes() as u64);
                self.emit(dead_letters, letters)?;
            }
        }
        Ok(())
    }

    /// Sends the barrier behind everything sent so far, on every channel.
    pub fn send_barrier(&self, barrier: Barrier) {
        self.send_to_all(&Element::Barrier(barrier));
    }

    /// Tells every channel that nothing comes for a while.
    pub fn send_idle(&self) {
        self.send_to_all(&Element::Idle);
    }

    /// Tells every channel that the watermark counts again.
    pub fn send_active(&self) {
        self.send_to_all(&Element::Active);
    }

    /// Sends the element on every channel.
    pub fn send_to_all(&self, element: &Element) {
        self.by_output.iter().flatten().for_each(|edge| edge.send_to_all(element));
    }
}
