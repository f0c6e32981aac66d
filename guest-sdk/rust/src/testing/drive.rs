//! Records, watermarks and clock steps as calls of an operator under test.
//!
//! Owns where batches are cut and in which rounds timers fire, as the contract says. Does not own state.

use std::collections::BTreeMap;

use super::batch::{self, Actors, Formed, Input};
use super::expired::Leaving;
use super::memory::Key;
use super::timers::{self, Change};
use super::{Emitted, Harness, Rejected, RejectedTimer};
use crate::bindings::wasmill::operator::types::{Effects, Fault, Rejects, WatermarkRun};
use crate::error::fatal;
use crate::operator::Operator;
use crate::time::Timestamp;
use crate::timer::{Domain, TimerId};

/// Rounds of one advance in which a key may fire timers that it set in that advance.
const MOST_ROUNDS: u32 = 1_000;

/// A batch that is about to be processed.
struct Cut {
    records: usize,
    runs: Vec<WatermarkRun>,
    /// The watermark behind its last record.
    after: i64,
}

impl<O: Operator> Harness<O> {
    /// Feeds records, with the watermarks that follow them, and returns what was emitted on their behalf and by timers.
    ///
    /// # Errors
    /// The fault by which the operator gave up. The call it happened in left no trace, those before it stand.
    pub fn process(&mut self, records: impl IntoIterator<Item = Input>) -> Result<Vec<Emitted>, Fault> {
        let records: Vec<Input> = records.into_iter().collect();
        self.rejects.clear();
        let mut emitted = Vec::new();
        let mut first = 0;
        while first < records.len() {
            let rest = &records[first..];
            let cut = self.cut(rest);
            first += self.batch(&rest[..cut.records], &cut, first, &mut emitted)?;
        }
        Ok(emitted)
    }

    /// Lets event time go on: the timers up to `watermark` fire. A watermark never goes back.
    ///
    /// # Errors
    /// As [`Harness::process`], and where a key sets timers that are due over and over.
    pub fn advance_watermark(&mut self, watermark: Timestamp) -> Result<Vec<Emitted>, Fault> {
        let mut emitted = Vec::new();
        self.advance(Domain::Event, watermark, &mut emitted)?;
        Ok(emitted)
    }

    /// Lets the clock go on: processing timers up to `time` fire.
    ///
    /// # Errors
    /// As [`Harness::advance_watermark`].
    pub fn advance_processing_time(&mut self, time: Timestamp) -> Result<Vec<Emitted>, Fault> {
        let mut emitted = Vec::new();
        self.advance(Domain::Processing, time, &mut emitted)?;
        Ok(emitted)
    }

    /// Ends the input: the watermark goes to the end of time, and processing timers that still wait are dropped.
    ///
    /// # Errors
    /// As [`Harness::process`].
    pub fn end_of_input(&mut self) -> Result<Vec<Emitted>, Fault> {
        let emitted = self.advance_watermark(Timestamp::MAX)?;
        self.dropped_timers += self.memory.timers.drop_all(Domain::Processing);
        Ok(emitted)
    }

    /// How many records make the next batch: those of one input, up to where a timer that waits falls due, or where entries may
    /// expire.
    fn cut(&self, rest: &[Input]) -> Cut {
        let input = rest.first().map_or(0, |record| record.input);
        let mut cut = Cut { records: 0, runs: Vec::new(), after: self.now.watermark };
        for record in rest.iter().take(self.batch_size).take_while(|record| record.input == input) {
            cut.records += 1;
            let Some(next) = record.then_watermark.filter(|next| *next > cut.after) else { continue };
            cut.runs.push(WatermarkRun { until: cut.records as u32, watermark: cut.after });
            cut.after = next;
            let expires = self.memory.stamps.by_event_time();
            if expires || self.memory.timers.is_due(Domain::Event, Timestamp::from_millis(next)) {
                break;
            }
        }
        if cut.runs.last().is_none_or(|run| (run.until as usize) < cut.records) {
            cut.runs.push(WatermarkRun { until: cut.records as u32, watermark: cut.after });
        }
        cut
    }

    /// Processes a batch and lets time go on as far as it was processed, which is returned.
    fn batch(
        &mut self,
        records: &[Input],
        cut: &Cut,
        first: usize,
        emitted: &mut Vec<Emitted>,
    ) -> Result<usize, Fault> {
        let formed = Formed::under(records, cut.runs.clone());
        let broadcast = O::INPUTS.get(usize::from(formed.input)).is_some_and(|port| port.broadcast);
        self.memory.stamps.set_now(self.now.watermark, self.now.processing_time, true);
        let eager = self.memory.begin(&formed.actors, Some(formed.input), broadcast);
        let Self { instance, memory, recorder, now, .. } = self;
        let result = recorder.during(|| instance.process(memory, formed.input, *now, formed.batch, eager));
        let (consumed, rejects, changes) = self.take(&formed.actors, result, emitted)?;
        let last = cut.runs.iter().position(|run| run.until == consumed).ok_or_else(|| {
            fatal(format_args!("the operator stopped after {consumed} records, which is no end of a watermark's run"))
        })?;
        if let Some(late) = skipped(&changes, &cut.runs[..=last]) {
            return Err(fatal(format_args!(
                "the operator went on past the time {late}, at which a timer that it set is due"
            )));
        }
        for (origin, reason) in rejects {
            self.rejects.push(Rejected { record: first + origin as usize, reason });
        }
        let watermark = cut.runs.get(last + 1).map_or(cut.after, |run| run.watermark);
        self.advance(Domain::Event, Timestamp::from_millis(watermark), emitted)?;
        Ok(consumed as usize)
    }

    /// Fires what is due, round by round.
    fn advance(&mut self, domain: Domain, to: Timestamp, emitted: &mut Vec<Emitted>) -> Result<(), Fault> {
        let clock = match domain {
            Domain::Event => self.now.watermark,
            Domain::Processing => self.now.processing_time,
        };
        if to.as_millis() <= clock {
            return Ok(());
        }
        let mut reached = self.now.watermark;
        let clock = match domain {
            Domain::Event => &mut self.now.watermark,
            Domain::Processing => &mut self.now.processing_time,
        };
        *clock = to.as_millis();
        let mut set_here: BTreeMap<Key, (Vec<TimerId>, u32)> = BTreeMap::new();
        loop {
            let mut round = self.memory.timers.take_round(domain, to);
            if round.is_empty() {
                self.memory.stamps.set_now(self.now.watermark, self.now.processing_time, true);
                self.memory.expire();
                self.emit_expired(emitted);
                return Ok(());
            }
            let mut over = None;
            round.retain(|(key, id)| match set_here.get_mut(key).filter(|(set, _)| set.contains(id)) {
                Some((_, rounds)) if *rounds >= MOST_ROUNDS => {
                    over = Some(*id);
                    self.dropped_timers += 1;
                    false
                }
                Some((_, rounds)) => {
                    *rounds += 1;
                    true
                }
                None => true,
            });
            match over {
                Some(id) if to < Timestamp::MAX => {
                    let time = id.time;
                    return Err(fatal(format_args!("a timer due at {time} was set again in {MOST_ROUNDS} rounds")));
                }
                _ => {}
            }
            let by_time = domain == Domain::Event && self.memory.stamps.by_event_time();
            if by_time {
                round.sort_by_key(|(_, id)| id.time);
            }
            for timers in round.chunks(if by_time { 1 } else { self.batch_size }) {
                if let Some((_, id)) = timers.first().filter(|_| by_time) {
                    reached = reached.max(id.time.as_millis());
                }
                self.memory.stamps.set_now(reached, self.now.processing_time, domain == Domain::Event);
                for change in self.fire(timers, emitted)?.into_iter().filter(|change| change.set) {
                    set_here.entry(change.key).or_default().0.push(change.id);
                }
            }
        }
    }

    fn fire(&mut self, due: &[(Key, TimerId)], emitted: &mut Vec<Emitted>) -> Result<Vec<Change>, Fault> {
        let (firing, actors) = batch::firing(due);
        let eager = self.memory.begin(&actors, None, false);
        let Self { instance, memory, recorder, now, .. } = self;
        let result = recorder.during(|| instance.fire(memory, *now, firing, eager));
        if result.is_err() {
            for (key, id) in due {
                self.memory.timers.set(key.clone(), *id);
            }
        }
        let (consumed, rejects, changes) = self.take(&actors, result, emitted)?;
        if consumed as usize != due.len() {
            return Err(fatal("the operator stopped within a round of timers"));
        }
        for (origin, reason) in rejects {
            if let Some((key, timer)) = due.get(origin as usize) {
                self.timer_rejects.push(RejectedTimer { key: key.clone(), timer: *timer, reason });
            }
        }
        Ok(changes)
    }

    /// Emits what has expired of states that send it to an output.
    fn emit_expired(&mut self, emitted: &mut Vec<Emitted>) {
        let leaving = std::mem::take(&mut self.memory.leaving).into_iter();
        emitted.extend(leaving.map(|Leaving { output, key, time, bytes }| Emitted {
            output: O::OUTPUTS.get(usize::from(output)).map_or_else(String::new, |port| port.name.to_owned()),
            key,
            time: Timestamp::from_millis(time),
            bytes: Some(bytes),
            headers: Vec::new(),
        }));
    }

    /// Makes the effects of a call real, or undoes what it did; returns what was consumed, refused and set.
    #[expect(clippy::type_complexity, reason = "three parts of the effects, taken apart at once")]
    fn take(
        &mut self,
        actors: &Actors,
        result: Result<Effects, Fault>,
        emitted: &mut Vec<Emitted>,
    ) -> Result<(u32, Vec<(u32, String)>, Vec<Change>), Fault> {
        let Effects { consumed, emits, values, timers, rejects } = match result {
            Ok(effects) => effects,
            Err(fault) => {
                self.memory.undo();
                return Err(fault);
            }
        };
        self.memory.apply(actors, &values)?;
        let changes = timers::changes(actors, &timers)?;
        for change in &changes {
            if change.set {
                self.memory.timers.set(change.key.clone(), change.id);
            } else {
                self.memory.timers.delete(&change.key, change.id);
            }
        }
        emitted.extend(batch::emitted(actors, &emits, O::OUTPUTS)?);
        self.emit_expired(emitted);
        let Rejects { origins, reasons } = rejects;
        let origins = origins.as_chunks().0.iter().map(|&origin| u32::from_le_bytes(origin));
        Ok((consumed, origins.zip(reasons).collect(), changes))
    }
}

/// The time of a timer that fell due within the processed runs and could not fire there.
fn skipped(changes: &[Change], runs: &[WatermarkRun]) -> Option<Timestamp> {
    let deleted_later = |at: usize, change: &Change| {
        changes[at + 1..].iter().any(|later| !later.set && later.key == change.key && later.id == change.id)
    };
    let sets = changes.iter().enumerate().filter(|(_, change)| change.set && change.id.domain == Domain::Event);
    let mut kept = sets.filter(|(at, change)| !deleted_later(*at, change)).map(|(_, change)| change);
    kept.find_map(|change| {
        let own = runs.iter().position(|run| change.origin < run.until)?;
        let due =
            |run: &WatermarkRun| run.watermark > runs[own].watermark && change.id.time.as_millis() <= run.watermark;
        runs[own + 1..].iter().any(due).then_some(change.id.time)
    })
}
