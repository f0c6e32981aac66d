//! One run of a case: its steps through an operator's subtask, with a clock that only they move.
//!
//! Owns what comes when: records gather into batches as in a job, but a step of the clock and the end of the input come behind all
//! that was done before. Does not own what should come of it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use wasmill_core::element::Element;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, OperatorUid, Parallelism, SubtaskId, SubtaskIndex};
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};
use wasmill_core::record::{Header, RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{self, Domain};

use super::file::Case;
use super::granted::Tried;
use super::line::Timer;
use super::script::{self, Move};
use super::value::{Bytes, Headers};
use crate::bell::Bell;
use crate::clock::{ManualClock, SharedClock};
use crate::config::operator::{Batch, OnFailure};
use crate::config::unit::ByteSize;
use crate::control::Mailbox;
use crate::exchange::channel::{Receiver, Sender, channel};
use crate::exchange::gate::{Gate, InputChannel, OnLate};
use crate::exchange::route::{OutEdge, Outputs, Routing};
use crate::job::operator::{Seat, bytes};
use crate::state::{Restore, SharedMemory, StateBackend};
use crate::subtask::operator::{Cut, OperatorSubtask, Options, Snapshots};
use crate::subtask::{CallState, Context};
use crate::telemetry::SubtaskMeter;

/// Memory for the state of a run; what does not fit lies on disk.
const STATE_BYTES: usize = 16 << 20;
/// The operator's uid, as messages name it.
const UID: &str = "test";

/// What came of a case, run by run.
#[derive(Debug)]
pub struct Runs {
    /// Step by step: in batches of one record.
    pub(super) stepwise: Ran,
    /// In other batches, by what is special about them.
    pub(super) others: Vec<(String, Ran)>,
    /// The component's outputs by name; the dead letters' comes behind them.
    pub(super) outputs: Vec<String>,
    /// The keys of the file's records as they are written.
    pub(super) keys: Vec<(Vec<u8>, Value)>,
}

/// What came of one run.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub seen: Vec<Seen>,
    /// The timers that were left, in order.
    pub timers: Vec<Timer>,
    pub failed: Option<Failed>,
}

/// A record that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// How many steps were done.
    pub steps: usize,
    /// Between which steps of the clock and which watermarks it came out.
    pub span: (usize, usize),
    pub output: usize,
    pub key: Bytes,
    pub time: Timestamp,
    pub value: Bytes,
    pub headers: Headers,
}

/// Why a run ended early, and with which step.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub steps: usize,
    pub message: String,
}

/// How a run cuts batches.
#[derive(Debug, Clone, Copy)]
struct Manner {
    records: u32,
    /// Each step is settled before the next.
    stepwise: bool,
    /// Each batch meets a new instance.
    renew: bool,
}

/// Runs the case in every manner.
pub(super) fn all(tried: &Tried, case: &Case, sizes: &[u32], scratch: &Path) -> Result<Runs, Fault> {
    let contract = tried.component.contract();
    let (moves, has_keys) = script::script(contract, case)?;
    let play = |number: usize, manner| {
        let scratch = scratch.join(number.to_string());
        play(tried, (case, has_keys), &moves, manner, &scratch)
    };
    // What a guest logs is told once, not for every run.
    let quiet = |number, manner| {
        let nobody = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(nobody, || play(number, manner))
    };
    let stepwise = play(0, Manner { records: 1, stepwise: true, renew: false })?;
    let mut others = Vec::new();
    for &records in sizes.iter().filter(|size| **size > 1) {
        let ran = quiet(others.len() + 1, Manner { records, stepwise: false, renew: false })?;
        others.push((format!("in batches of {records}"), ran));
    }
    // Not in the largest: they would often be one batch.
    let records = sizes.iter().copied().filter(|size| *size > 1).min().unwrap_or(1);
    let ran = quiet(others.len() + 1, Manner { records, stepwise: records == 1, renew: true })?;
    others.push((format!("in batches of {records}, each to a new instance"), ran));
    Ok(Runs { stepwise, others, outputs: script::outputs(contract), keys: script::keys(case) })
}

fn play(
    tried: &Tried,
    (case, has_keys): (&Case, bool),
    moves: &[Move],
    manner: Manner,
    scratch: &Path,
) -> Result<Ran, Fault> {
    let mut ran = Ran::default();
    if let Err(error) = tried.component.contract().check_config(&case.settings.config) {
        ran.failed = Some(Failed { steps: 0, message: error.to_string() });
        return Ok(ran);
    }
    let (mut steps, ended) = match Stage::set(tried, (case, has_keys), manner, scratch) {
        Err(fault) => (0, Err(fault)),
        Ok(mut stage) => {
            let (steps, played) = stage.all(moves, &mut ran);
            stage.receive(steps, &mut ran);
            (steps, played.and_then(|()| stage.end(&mut ran)))
        }
    };
    if let Err(fault) = ended {
        if matches!(fault.kind, FaultKind::Internal | FaultKind::Refused) {
            return Err(fault);
        }
        steps = steps.min(moves.len());
        ran.failed = Some(Failed { steps, message: fault.message });
    }
    Ok(ran)
}

/// A subtask with nothing around it but the case.
struct Stage {
    subtask: OperatorSubtask,
    call: Arc<Mutex<CallState>>,
    clock: Arc<ManualClock>,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    stepwise: bool,
    /// The input whose records are not sent yet, and they.
    gathered: (usize, RecordBatch),
    /// Steps of the clock so far.
    periods: usize,
    /// Watermarks that came out of each output.
    marks: Vec<usize>,
}

impl Stage {
    fn set(tried: &Tried, (case, has_keys): (&Case, bool), manner: Manner, scratch: &Path) -> Result<Self, Fault> {
        let contract = tried.component.contract().clone();
        let manual = Arc::new(ManualClock::default());
        tried.clock.follow(&manual);
        let clock: SharedClock = Arc::clone(&manual) as SharedClock;
        let uid = OperatorUid::new(UID).map_err(|error| Fault::new(FaultKind::Internal, error))?;
        let id = SubtaskId { uid, index: SubtaskIndex(0) };
        let mut limits = case.settings.limits;
        if manner.renew {
            limits.renew_above = Some(ByteSize::new(0));
        }
        let key_groups = KeyGroupRange::all(MaxParallelism::DEFAULT);
        let memory = SharedMemory::new(STATE_BYTES);
        let parallelism = Parallelism::new(1).ok_or_else(|| Fault::new(FaultKind::Internal, "1 is a parallelism"))?;
        let seat = Seat {
            id: &id,
            clock: &clock,
            component: &tried.component,
            parallelism,
            max_parallelism: MaxParallelism::DEFAULT,
            key_groups,
            attempt: Attempt(1),
            config: &case.settings.config,
            limits: &limits,
            has_keys,
            backend: StateBackend::Rocksdb,
            dir: scratch.join("state"),
            cache_bytes: STATE_BYTES,
            memory: &memory,
            elements: None,
            before: None,
            watermark: Timestamp::MIN,
        };
        let (call, instances) = seat.take(Restore::Empty)?;
        let (inputs, outputs) = (contract.inputs.len().max(1), contract.outputs.len().max(1) + 1);
        let pair = |_| channel(Bell::default(), Bell::default());
        let (senders, ins): (Vec<_>, Vec<_>) = (0..inputs).map(pair).unzip();
        let (outs, receivers): (Vec<_>, Vec<_>) = (0..outputs).map(pair).unzip();
        let input = |(input, receiver)| InputChannel { input, on_late: OnLate::Pass, receiver };
        let gate = Gate::new((0u16..).zip(ins).map(input).collect(), Timestamp::MIN);
        let edge = |target| vec![OutEdge { routing: Routing::Forward, targets: vec![target] }];
        let context = Context {
            mailbox: Mailbox::default(),
            reports: mpsc::unbounded_channel().0,
            clock,
            meter: Arc::new(SubtaskMeter::new(id.clone(), NodeKind::Operator)),
            id,
        };
        let options = Options {
            contract,
            key_groups,
            batch_records: manner.records as usize,
            batch_bytes: bytes(Batch::default().bytes.get()),
            on_failure: OnFailure::DeadLetter,
            late_outputs: 0,
            merged_late: Vec::new(),
            merged_watermark: Timestamp::MIN,
            expires_at_once: true,
            cuts: scratch.join("cuts"),
            snapshots: Arc::new(NoSnapshots),
        };
        let ports = (gate, Outputs::new(outs.into_iter().map(edge).collect()));
        let subtask = OperatorSubtask::new(context, options, ports, instances, Arc::clone(&call));
        Ok(Self {
            subtask,
            call,
            clock: manual,
            senders,
            receivers,
            stepwise: manner.stepwise,
            gathered: (0, RecordBatch::default()),
            periods: 0,
            marks: vec![0; outputs],
        })
    }

    /// Makes all moves. Returns how many were begun.
    fn all(&mut self, moves: &[Move], ran: &mut Ran) -> (usize, Result<(), Fault>) {
        for (step, act) in moves.iter().enumerate() {
            if let Err(fault) = self.act(act, step, ran) {
                return (step + 1, Err(fault));
            }
        }
        (moves.len(), self.tick(moves.len(), ran))
    }

    /// Makes one move, the one behind `done` others.
    fn act(&mut self, act: &Move, done: usize, ran: &mut Ran) -> Result<(), Fault> {
        match act {
            Move::Record { input, key, time, value, headers } => {
                self.turn_to(*input)?;
                let batch = &mut self.gathered.1;
                let record = batch.len() as u32;
                batch.push(key.as_deref(), *time, value.as_deref());
                let header =
                    |(name, value): &(Vec<u8>, Vec<u8>)| Header { record, name: name.clone(), value: value.clone() };
                batch.headers.extend(headers.iter().map(header));
            }
            Move::Watermark { inputs, time } => self.mark(inputs.iter().copied(), *time)?,
            Move::Clock(by) => {
                self.settle(done, ran)?;
                self.clock.advance(*by);
                self.periods += 1;
                self.tick(done + 1, ran)?;
            }
            Move::End => {
                self.tick(done, ran)?;
                self.mark(0..self.senders.len(), Timestamp::MAX)?;
                self.settle(done + 1, ran)?;
            }
        }
        if self.stepwise { self.settle(done + 1, ran) } else { Ok(()) }
    }

    fn mark(&mut self, inputs: impl Iterator<Item = usize>, watermark: Timestamp) -> Result<(), Fault> {
        for input in inputs {
            self.turn_to(input)?;
            let batch = &mut self.gathered.1;
            batch.marks.push(WatermarkMark { after: batch.len() as u32, watermark });
        }
        Ok(())
    }

    /// Sends what is gathered for another input.
    fn turn_to(&mut self, input: usize) -> Result<(), Fault> {
        if input != self.gathered.0 {
            self.send()?;
            self.gathered.0 = input;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Fault> {
        let (input, batch) = &mut self.gathered;
        if !(batch.is_empty() && batch.marks.is_empty())
            && let Some(sender) = self.senders.get(*input)
        {
            sender.send(Element::Records(std::mem::take(batch)));
        }
        while self.subtask.step()? {}
        Ok(())
    }

    /// Does all that was asked for so far and takes what came out.
    fn settle(&mut self, steps: usize, ran: &mut Ran) -> Result<(), Fault> {
        let done = self.send().and_then(|()| self.subtask.flush());
        self.receive(steps, ran);
        done
    }

    /// Fires the processing timers that are due.
    fn tick(&mut self, steps: usize, ran: &mut Ran) -> Result<(), Fault> {
        self.settle(steps, ran)?;
        self.subtask.tick()?;
        self.settle(steps, ran)
    }

    fn receive(&mut self, steps: usize, ran: &mut Ran) {
        for (output, receiver) in self.receivers.iter().enumerate() {
            while let Some(element) = receiver.receive() {
                let Element::Records(batch) = element else { continue };
                let mut marks = batch.marks.iter().peekable();
                for record in 0..batch.len() {
                    while marks.next_if(|mark| mark.after as usize <= record).is_some() {
                        self.marks[output] += 1;
                    }
                    ran.seen.push(Seen {
                        steps,
                        span: (self.periods, self.marks[output]),
                        output,
                        key: batch.keys.get(record).map(<[u8]>::to_vec),
                        time: batch.times[record],
                        value: batch.values.get(record).map(<[u8]>::to_vec),
                        headers: batch
                            .headers_of(record)
                            .iter()
                            .map(|it| (it.name.clone(), it.value.clone()))
                            .collect(),
                    });
                }
                self.marks[output] += marks.count();
            }
        }
    }

    /// The timers that are left.
    fn end(&self, ran: &mut Ran) -> Result<(), Fault> {
        let mut call = self.call.lock();
        let Some(keyed) = call.keyed() else { return Ok(()) };
        for domain in Domain::ALL {
            loop {
                let taken = keyed.take_timers(domain, Timestamp::MAX, usize::MAX);
                let taken = taken.map_err(|error| Fault::new(error.kind(), error))?;
                if taken.is_empty() {
                    break;
                }
                let timers = taken.iter().map(timer::TimerId::timer);
                let timers =
                    timers.map(|timer| Timer { time: timer.time, key: timer.key.to_vec(), tag: timer.tag, domain });
                ran.timers.extend(timers);
            }
        }
        ran.timers.sort();
        Ok(())
    }
}

/// A case takes no checkpoint.
struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn take(&self, _: Cut) {}
    fn decided(&self, _: CheckpointId) {}
    fn given_up(&self, _: CheckpointId) {}
}
