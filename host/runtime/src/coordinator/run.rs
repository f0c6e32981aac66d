//! The life of an attempt's checkpoints: trigger, collect, prepare, decide, commit, retain; and how the job ends.
//!
//! Owns the order of these steps and when the next checkpoint is due. What an answer completes is decided in
//! `core::checkpoint::tracker`; who may decide, in the journal.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use wasmill_core::checkpoint::manifest::{self, Manifest, Operator, Part};
use wasmill_core::checkpoint::tracker::{Complete, GivenUp, Outcome, Reason, Tracker, Trigger};
use wasmill_core::element::{Barrier, Purpose};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::Graph;
use wasmill_core::id::{CheckpointId, JobId, OperatorUid, SubtaskId};
use wasmill_core::key_group::MaxParallelism;

use super::journal::Journal;
use super::retention::Retention;
use crate::clock::SharedClock;
use crate::control::{Command, Mailbox, Report};
use crate::telemetry::{CheckpointReport, Phase, StatusBoard};

/// Checkpoints in progress at once.
const CONCURRENT: NonZeroUsize = NonZeroUsize::MIN;

/// What a coordinator is made with.
pub struct Options {
    /// The job.
    pub job: JobId,
    /// The pipeline.
    pub graph: Graph,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// What runs as each operator.
    pub operators: BTreeMap<OperatorUid, Operator>,
    /// From one trigger to the next.
    pub interval: Duration,
    /// After which a checkpoint is given up.
    pub timeout: Duration,
    /// Every subtask's mailbox.
    pub mailboxes: BTreeMap<SubtaskId, Mailbox>,
    /// The sources among them.
    pub sources: Vec<SubtaskId>,
    /// Tells the time.
    pub clock: SharedClock,
    /// Where checkpoints are told.
    pub board: StatusBoard,
}

/// How an attempt ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All input was read.
    EndOfInput,
    /// It was asked to stop.
    Stopped,
}

/// Coordinates one attempt.
pub struct Coordinator {
    options: Options,
    journal: Journal,
    retention: Retention,
    tracker: Tracker<Part>,
    reading: usize,
    /// Why the last checkpoint is wanted, once it is.
    ending: Option<Ending>,
    last: Option<CheckpointId>,
    due: Duration,
}

impl Coordinator {
    /// For an attempt that `journal` has claimed.
    #[must_use]
    pub fn new(options: Options, journal: Journal, retention: Retention) -> Self {
        let tracker = Tracker::new(options.mailboxes.keys().cloned(), CONCURRENT, options.timeout);
        let due = options.clock.monotonic().saturating_add(options.interval);
        let reading = options.sources.len();
        Self { options, journal, retention, tracker, reading, ending: None, last: None, due }
    }

    /// Runs until the job's last checkpoint is decided and committed, or something fails. `stop` becomes true when the job
    /// is asked to stop.
    ///
    /// # Errors
    /// Whatever ends the attempt: a subtask's fault, the store, a newer attempt.
    pub async fn run(
        mut self,
        reports: &mut mpsc::UnboundedReceiver<Report>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Ending, Fault> {
        loop {
            if *stop.borrow_and_update() && self.ending.is_none() {
                self.end(Ending::Stopped);
            }
            self.trigger_if_due().await?;
            let wait = self.next_look();
            tokio::select! {
                report = reports.recv() => {
                    let Some(report) = report else {
                        return Err(Fault::new(FaultKind::Internal, "all subtasks are gone"));
                    };
                    if let Some(ending) = self.take(report).await? {
                        self.finish(reports).await?;
                        return Ok(ending);
                    }
                }
                Ok(()) = stop.changed() => {}
                () = tokio::time::sleep(wait) => {
                    let outcome = self.tracker.expire(self.options.clock.monotonic());
                    self.progress(outcome).await?;
                }
            }
        }
    }

    /// How long until something is due.
    fn next_look(&self) -> Duration {
        let due = (self.last.is_none() && self.tracker.is_free()).then_some(self.due);
        let next = due.into_iter().chain(self.tracker.deadline()).min();
        next.map_or(Duration::from_secs(1), |next| next.saturating_sub(self.options.clock.monotonic()))
    }

    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.options.board.phase(Phase::Stopping);
    }

    async fn trigger_if_due(&mut self) -> Result<(), Fault> {
        let now = self.options.clock.monotonic();
        if self.last.is_some() || !self.tracker.is_free() || (now < self.due && self.ending.is_none()) {
            return Ok(());
        }
        let checkpoint = self.journal.next_checkpoint().await?;
        if self.tracker.trigger(checkpoint, now) != Trigger::Started {
            return Err(Fault::new(
                FaultKind::Internal,
                format_args!("checkpoint {checkpoint} could not be triggered"),
            ));
        }
        self.due = now.saturating_add(self.options.interval);
        let purpose = if self.ending.is_some() {
            self.last = Some(checkpoint);
            Purpose::Stop
        } else {
            Purpose::Periodic
        };
        tracing::debug!(%checkpoint, ?purpose, "checkpoint triggered");
        for source in &self.options.sources {
            if let Some(mailbox) = self.options.mailboxes.get(source) {
                mailbox.send(Command::Trigger(Barrier { checkpoint, purpose }));
            }
        }
        Ok(())
    }

    /// Takes a report; the ending, once the last checkpoint is decided.
    async fn take(&mut self, report: Report) -> Result<Option<Ending>, Fault> {
        match report {
            Report::Exhausted(subtask) => {
                tracing::debug!(%subtask, "all input read");
                self.reading = self.reading.saturating_sub(1);
                if self.reading == 0 && self.ending.is_none() {
                    self.end(Ending::EndOfInput);
                }
            }
            Report::Acknowledged { subtask, checkpoint, part } => {
                let outcome = self.tracker.acknowledge(checkpoint, subtask, *part);
                self.progress(outcome).await?;
            }
            Report::Declined { subtask, checkpoint, reason } => {
                let outcome = self.tracker.decline(checkpoint, subtask, reason);
                self.progress(outcome).await?;
            }
            Report::Failed { fault, .. } => return Err(fault),
            Report::Finished(subtask) => {
                return Err(Fault::new(FaultKind::Internal, format_args!("subtask {subtask} ended by itself")));
            }
        }
        let decided = self.last.is_some() && self.tracker.oldest().is_none();
        Ok(if decided { self.ending } else { None })
    }

    async fn progress(&mut self, outcome: Outcome<Part>) -> Result<(), Fault> {
        match outcome {
            Outcome::Ignored(why) => tracing::debug!(?why, "late answer ignored"),
            Outcome::Progress { complete, given_up } => {
                for GivenUp { checkpoint, reason } in given_up {
                    self.give_up(checkpoint, &reason)?;
                }
                for complete in complete {
                    self.complete(complete).await?;
                }
            }
        }
        Ok(())
    }

    fn give_up(&mut self, checkpoint: CheckpointId, reason: &Reason) -> Result<(), Fault> {
        let reason = match reason {
            Reason::Declined { subtask, reason } => format!("{subtask}: {reason}"),
            Reason::TimedOut { missing } => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                format!("no answer within {:?} from {}", self.options.timeout, missing.join(", "))
            }
            Reason::Aborted(why) => why.clone(),
        };
        self.options.board.checkpoint_failed();
        self.retention.given_up(checkpoint);
        self.send_to_all(Command::GivenUp(checkpoint));
        if self.last == Some(checkpoint) {
            return Err(Fault::new(
                FaultKind::External,
                format_args!("the last checkpoint, {checkpoint}, could not be completed: {reason}"),
            ));
        }
        tracing::warn!(%checkpoint, %reason, "checkpoint given up; records flow on, the next is taken in its time");
        Ok(())
    }

    async fn complete(&mut self, complete: Complete<Part>) -> Result<(), Fault> {
        let (checkpoint, triggered) = (complete.checkpoint(), complete.triggered());
        let manifest = self.manifest(complete)?;
        loop {
            // A subtask that had not heard of the last decision yet may refer to what has been deleted since.
            if let Some((subtask, object)) = self.retention.dangling(checkpoint, &manifest.parts) {
                let why = format!("{subtask} refers to {object}, which no retained checkpoint has");
                return self.give_up(checkpoint, &Reason::Aborted(why));
            }
            match self.journal.prepare(&manifest).await {
                Err(error) if error.is_deletion() => self.retention.deleted(&self.journal),
                prepared => break prepared?,
            }
        }
        self.retention.prepared(&manifest);
        let permit = self.journal.decide(checkpoint).await?;
        self.send_to_all(Command::Decided(permit.checkpoint()));
        self.tell(&manifest, triggered);
        // The checkpoint stands whether or not the cleaning succeeds.
        if let Err(error) = self.retention.collect(&mut self.journal, self.tracker.oldest()).await {
            if error.is_fenced() {
                return Err(error.into());
            }
            tracing::warn!(%error, "old checkpoints could not be cleaned up; tried again after the next checkpoint");
        }
        Ok(())
    }

    fn manifest(&self, complete: Complete<Part>) -> Result<Manifest, Fault> {
        let checkpoint = complete.checkpoint();
        let attempt = self.journal.attempt().ok_or_else(|| Fault::new(FaultKind::Internal, "no attempt is claimed"))?;
        let purpose = if self.last == Some(checkpoint) { Purpose::Stop } else { Purpose::Periodic };
        Ok(Manifest {
            format: manifest::FORMAT,
            wasmill: env!("CARGO_PKG_VERSION").to_owned(),
            job: self.options.job.clone(),
            checkpoint,
            attempt,
            created: self.options.clock.now(),
            purpose,
            max_parallelism: self.options.max_parallelism,
            graph: self.options.graph.clone(),
            operators: self.options.operators.clone(),
            parts: complete.into_acknowledgements().into_values().collect(),
        })
    }

    fn tell(&self, manifest: &Manifest, triggered: Duration) {
        let total = self.options.clock.monotonic().saturating_sub(triggered);
        let longest = |phase: fn(&manifest::Durations) -> u64| {
            Duration::from_micros(manifest.parts.iter().map(|part| phase(&part.durations)).max().unwrap_or(0))
        };
        let report = CheckpointReport {
            checkpoint: manifest.checkpoint,
            decided: self.options.clock.now(),
            total,
            pause: longest(|durations| durations.pause_us),
            alignment: longest(|durations| durations.align_us),
            write: longest(|durations| durations.write_us),
            cut: longest(|durations| durations.cut_us),
            upload: longest(|durations| durations.upload_us),
            bytes_new: manifest.parts.iter().map(|part| part.bytes_new).sum(),
            bytes_referenced: manifest.parts.iter().map(|part| part.bytes_referenced).sum(),
            share_of_interval: total.as_secs_f64() / self.options.interval.as_secs_f64().max(0.001),
        };
        let (checkpoint, total_ms) = (report.checkpoint, total.as_millis() as u64);
        let (bytes_new, bytes_referenced) = (report.bytes_new, report.bytes_referenced);
        tracing::info!(%checkpoint, total_ms, bytes_new, bytes_referenced, "checkpoint decided");
        // The last checkpoint hurries nobody.
        if self.last.is_none() && report.share_of_interval >= 1.0 {
            tracing::error!(%checkpoint, total_ms, "the checkpoint took longer than the interval: lengthen checkpoint.interval");
        } else if self.last.is_none() && report.share_of_interval >= 0.5 {
            tracing::warn!(%checkpoint, total_ms, "the checkpoint took more than half of the interval");
        }
        self.options.board.checkpoint_completed(report);
    }

    /// Lets every subtask finish and waits until all have.
    async fn finish(&self, reports: &mut mpsc::UnboundedReceiver<Report>) -> Result<(), Fault> {
        self.send_to_all(Command::Finish);
        let mut left = self.options.mailboxes.len();
        while left > 0 {
            match reports.recv().await {
                Some(Report::Finished(_)) => left -= 1,
                Some(Report::Failed { fault, .. }) => return Err(fault),
                Some(_) => {}
                None => return Err(Fault::new(FaultKind::Internal, "a subtask ended without a word")),
            }
        }
        Ok(())
    }

    fn send_to_all(&self, command: Command) {
        self.options.mailboxes.values().for_each(|mailbox| mailbox.send(command));
    }
}
