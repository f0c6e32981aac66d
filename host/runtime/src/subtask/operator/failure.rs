//! What becomes of records on which the guest fails: their batch is run again in pieces, and the policy is applied to those at
//! fault.
//!
//! Owns the policies. Does not own which pieces there are (`isolation`) nor the form of a dead letter (`format::dead_letter`).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use wasmill_core::contract::Port;
use wasmill_core::fault::{Fault, FaultKind};

use super::call::Outcome;
use super::isolation::Isolation;
use super::{OperatorSubtask, fault_of_state};
use crate::config::operator::OnFailure;
use crate::format::dead_letter::{DeadLetter, Place, Writer};
use crate::guest::CallError;
use crate::guest::contract::Effects;
use crate::subtask::access::{CallState, Over};
use crate::subtask::batcher::{Apart, Gathered};
use crate::telemetry::DropReason;

/// How long the record at fault is looked for where the attempt fails in any case: the search only serves the message.
const SEARCH: Duration = Duration::from_secs(10);

/// Why a record is set aside.
pub(super) struct Failure<'a> {
    pub reason: DropReason,
    pub message: &'a str,
    pub tries: u32,
}

/// Writes dead letters, and knows whether it was told that records are set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    writer: Writer,
    told: bool,
}

impl OperatorSubtask {
    /// Why a call whose effects would leave too much state has failed; `None`: they would not.
    pub(super) fn over_limit(
        &self,
        name: &'static str,
        call: &mut CallState,
        effects: &Effects,
    ) -> Result<Option<CallError>, Fault> {
        let over = call.over(effects).map_err(fault_of_state)?;
        Ok(over.map(|Over { setting, unit, would_be, most, state, key }| {
            let state = self.options.contract.states.get(usize::from(state)).map_or("", |state| state.name.as_str());
            let held = if unit == "bytes" { "it" } else { "the subtask" };
            let cause = format!(
                "state `{state}` grows for key {}, and {held} would hold {would_be} {unit} where {most} are allowed (`{setting}`): remove what is not needed any more, or raise it",
                Printable(&key)
            );
            CallError::StateLimit { call: name, cause }
        }))
    }

    /// Goes on after a call that did not do all of the batch: what is left is called again, and where the guest failed, in
    /// pieces until the records at fault stand alone.
    pub(super) fn in_pieces(&mut self, outcome: Outcome) -> Result<(), Fault> {
        let begin = self.context.clock.monotonic();
        let gathered = self.batcher.take();
        let mut isolation = Isolation::new(gathered.records.len());
        let mut first = Some(outcome);
        let mut searching = false;
        while let Some(piece) = isolation.next() {
            let outcome = match first.take() {
                Some(outcome) => outcome,
                None => self.piece(&gathered, piece.clone(), isolation.left_out(), searching)?,
            };
            let failed = !matches!(outcome, Outcome::Applied(_) | Outcome::Split(_));
            if failed && !std::mem::replace(&mut searching, true) {
                self.context.meter.isolating();
            }
            self.settle(&mut isolation, piece, (&gathered, begin), outcome).map_err(|fault| self.here(fault))?;
        }
        Ok(())
    }

    /// Calls the guest with a piece; one without records has its watermarks sent on. A piece ends where a timer falls due that an
    /// earlier one has set: when the records were gathered, it was not there.
    fn piece(
        &mut self,
        gathered: &Gathered,
        piece: Range<usize>,
        left_out: &[bool],
        searching: bool,
    ) -> Result<Outcome, Fault> {
        self.batcher.load(gathered, piece, left_out);
        if self.batcher.is_empty() {
            self.trail()?;
            return Ok(Outcome::Applied(0));
        }
        self.lead()?;
        if let Some(at) = self.due_within() {
            return Ok(Outcome::Split(at));
        }
        if searching {
            self.context.meter.rerun();
        }
        let outcome = self.attempt()?;
        if matches!(outcome, Outcome::Applied(consumed) if consumed as usize >= self.batcher.len()) {
            self.trail()?;
        }
        Ok(outcome)
    }

    fn settle(
        &mut self,
        isolation: &mut Isolation,
        piece: Range<usize>,
        (gathered, begin): (&Gathered, Duration),
        outcome: Outcome,
    ) -> Result<(), Fault> {
        let error = match outcome {
            Outcome::Applied(consumed) => {
                isolation.succeeded(piece, consumed as usize);
                return Ok(());
            }
            Outcome::Split(at) => {
                isolation.split(piece, at);
                return Ok(());
            }
            Outcome::Unclean { origins, reasons } => {
                let records = isolation.leave_out(piece, &origins);
                return records.into_iter().zip(&reasons).try_for_each(|(record, reason)| {
                    let tries = isolation.tries(record) + 1;
                    let failure = Failure { reason: DropReason::Rejected, message: reason, tries };
                    self.set_aside(&gathered.record(record), &failure)
                });
            }
            Outcome::Failed(error) => error,
        };
        let Some(reason) = reason(&error) else { return Err(error.into()) };
        match isolation.failed(piece.clone()) {
            Some(record) => {
                let failure = Failure { reason, message: &error.to_string(), tries: isolation.tries(record) };
                self.set_aside(&gathered.record(record), &failure)
            }
            None if self.policy() == OnFailure::Fail
                && self.context.clock.monotonic().saturating_sub(begin) > SEARCH =>
            {
                Err(Fault::new(
                    FaultKind::Guest,
                    format_args!(
                        "one of {} records, the first of them {}: {error}",
                        piece.len(),
                        gathered.record(piece.start)
                    ),
                ))
            }
            None => Ok(()),
        }
    }

    /// Applies the policy to a record on which the guest failed, or which it rejected.
    pub(super) fn set_aside(&mut self, record: &Apart, failure: &Failure<'_>) -> Result<(), Fault> {
        let Failure { reason, message, tries } = *failure;
        match self.policy() {
            OnFailure::Fail => {
                let what = if reason == DropReason::Rejected { "was rejected" } else { "failed" };
                let inputs = &self.options.contract.inputs;
                let fault = match inputs.get(usize::from(self.input)).filter(|port| port.broadcast) {
                    Some(Port { name, .. }) => format!(
                        "{record} of the broadcast input `{name}` {what}: {message}; no subtask may leave out a record of a broadcast input, or they would differ"
                    ),
                    None => format!(
                        "{record} {what}: {message}; set on-failure = \"drop\" or \"dead-letter\" to go on without such records"
                    ),
                };
                return Err(Fault::new(FaultKind::Guest, fault));
            }
            OnFailure::Drop => {
                self.context.meter.dropped(reason, 1);
                self.tell(record, reason, "dropped", message);
            }
            OnFailure::DeadLetter => {
                self.context.meter.dead_lettered(reason, 1);
                self.tell(record, reason, "set aside", message);
                let inputs = &self.options.contract.inputs;
                let letter = DeadLetter {
                    uid: self.context.id.uid.as_str(),
                    subtask: self.context.id.index.0,
                    component: Some(self.instances.digest()),
                    input: inputs.get(usize::from(self.input)).map(|port| port.name.as_str()),
                    kind: reason.as_str(),
                    message,
                    tries,
                    place: record.place.as_ref().map(Place::from),
                    time: record.time,
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &record.headers,
                    timer: record.timer,
                };
                // The last output is theirs, where the policy asks for one.
                if let Some(batch) = self.emitted.last_mut() {
                    batch.keys.push(record.key.as_deref());
                    batch.times.push(record.time);
                    batch.values.push_with(|out| self.aside.writer.push(&letter, out));
                }
            }
        }
        Ok(())
    }

    /// Logs the first record of the attempt.
    fn tell(&mut self, record: &Apart, reason: DropReason, done: &str, message: &str) {
        if std::mem::replace(&mut self.aside.told, true) {
            return;
        }
        let id = &self.context.id;
        let kind = reason.as_str();
        tracing::warn!(uid = %id.uid, subtask = id.index.0, kind, "{record} was {done}: {message}; more are counted only");
    }

    /// The policy for records of the present input. A record that one subtask left out of a broadcast input would be in the
    /// state of the others.
    fn policy(&self) -> OnFailure {
        if self.is_broadcast() { OnFailure::Fail } else { self.options.on_failure }
    }

    fn is_broadcast(&self) -> bool {
        self.options.contract.is_broadcast(self.input)
    }
}

/// What a record is set aside for that failed alone with this error; `None`: the error is not the record's.
pub(super) fn reason(error: &CallError) -> Option<DropReason> {
    match error {
        CallError::Trap { .. } => Some(DropReason::Trap),
        CallError::TimedOut { .. } => Some(DropReason::TimeLimit),
        CallError::MemoryLimit { .. } => Some(DropReason::MemoryLimit),
        CallError::ResultLimit { .. } => Some(DropReason::ResultLimit),
        CallError::StateLimit { .. } => Some(DropReason::StateLimit),
        CallError::Malformed { .. } => Some(DropReason::Malformed),
        // The guest's own word that the job cannot go on, or not now.
        CallError::Fault { .. } | CallError::Host(_) | CallError::Dead => None,
    }
}

impl fmt::Display for Apart {
    /// For people: key, time, and place where it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.timer.is_some() { "timer" } else { "record" };
        match &self.key {
            Some(key) => write!(f, "the {what} with key {}", Printable(key))?,
            None => write!(f, "the {what} without a key")?,
        }
        write!(f, " and time {}", self.time)?;
        match &self.place {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

/// A key for people: text where it is text, else hex; cut where it is long.
struct Printable<'a>(&'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.chars().any(char::is_control) => {
                write!(f, "`{}`", text.chars().take(80).collect::<String>())
            }
            _ => {
                write!(f, "0x")?;
                self.0.iter().take(40).try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
