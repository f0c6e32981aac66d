//! Timers that fall due fire in rounds, before anything later: each key's earliest, all keys of a round in one call.
//!
//! Owns the order of rounds, what a guest's timer changes do, and the end of timers that never end. Does not own which timers are
//! set (`state`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use wasmill_core::contract::RIDES_WITH_TIMERS;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::key_group::KeyHash;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, Timer, TimerId};
use wasmill_core::ttl;

use super::call::{enter, load_eager, write};
use super::failure::{Failure, reason};
use super::{OperatorSubtask, fault_of_state};
use crate::guest::CallError;
use crate::guest::contract::{Effects, Firing, Now, SET_TIMER, empty_column, push_value};
use crate::guest::packed;
use crate::subtask::access::CallState;
use crate::subtask::batcher::Apart;
use crate::subtask::emit::{self, Origins};
use crate::telemetry::{DropReason, Renewal};

/// How often a key may set a timer that is due already, in one advance of its time.
const MOST_REARMS: u32 = 1_000;

/// An advance of a domain's time.
pub(super) struct Advance {
    domain: Domain,
    until: Timestamp,
    /// Event time as it was reached so far: at first the watermark before the advance.
    reached: Timestamp,
    /// How often each key has set a timer that is due already.
    rearms: HashMap<Vec<u8>, u32>,
}

/// What came of a call with timers.
enum Fired {
    Applied,
    Failed(CallError),
    /// A timer was rejected without what was written for it being undone.
    Unclean(String),
}

impl OperatorSubtask {
    /// Whether a timer may be due at `now`.
    pub(super) fn is_due(&self, domain: Domain, now: Timestamp) -> bool {
        let call = self.call.lock();
        call.keyed.as_ref().and_then(|keyed| keyed.next_timer(domain)).is_some_and(|next| next <= now)
    }

    /// How long until a processing timer may be due, at most `most`.
    pub(super) fn until_due(&self, most: Duration) -> Duration {
        let next = self.call.lock().keyed.as_ref().and_then(|keyed| keyed.next_timer(Domain::Processing));
        let now = self.context.clock.now();
        next.map_or(most, |next| {
            let millis = next.as_millis().saturating_sub(now.as_millis());
            most.min(Duration::from_millis(u64::try_from(millis).unwrap_or_default()))
        })
    }

    /// Fires processing timers that are due, after what was gathered.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn tick(&mut self) -> Result<(), Fault> {
        let now = self.context.clock.now();
        if self.is_due(Domain::Processing, now) {
            self.call()?;
            self.fire(Domain::Processing, now, self.gate.watermark())?;
        }
        if self.options.expires_at_once { self.expire_all(self.passed) } else { Ok(()) }
    }

    /// Fires event timers that the watermark makes due, then sends the watermark on. At the end of time, processing timers will
    /// never be due any more.
    pub(super) fn pass(&mut self, watermark: Timestamp) -> Result<(), Fault> {
        // A piece that is run again begins with watermarks that were sent on.
        if watermark <= self.passed {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.passed, watermark);
        if watermark > self.restored && self.is_due(Domain::Event, watermark) {
            self.fire(Domain::Event, watermark, before)?;
        }
        if watermark == Timestamp::MAX {
            let dropped = match &mut self.call.lock().keyed {
                Some(keyed) => keyed.drop_timers(Domain::Processing).map_err(fault_of_state)?,
                None => 0,
            };
            self.context.meter.dropped(DropReason::TimerAtEnd, dropped);
        }
        if watermark == Timestamp::MAX || self.options.expires_at_once {
            self.expire_all(watermark)?;
        }
        emit::mark(&mut self.emitted, watermark);
        Ok(())
    }

    /// Fires all timers of a domain that are due by `until`, and those that they set in turn; event time was at `reached` before.
    fn fire(&mut self, domain: Domain, until: Timestamp, reached: Timestamp) -> Result<(), Fault> {
        let mut advance = Advance { domain, until, reached, rearms: HashMap::new() };
        // No input's rules hold for timers.
        let input = std::mem::replace(&mut self.input, RIDES_WITH_TIMERS);
        while let Some(until) = self.next_step(&mut advance) {
            let due = match &mut self.call.lock().keyed {
                Some(keyed) => keyed.take_timers(domain, until, self.options.batch_records).map_err(fault_of_state)?,
                None => Vec::new(),
            };
            if !due.is_empty() {
                self.round(&due, &mut advance).map_err(|fault| self.here(fault))?;
            } else if until == advance.until {
                break;
            }
        }
        self.input = input;
        Ok(())
    }

    /// By when the timers of the next round are due; `None`: none is left. Where entries live by event time, the timers of a
    /// round have one time, so that all it reads is read at that.
    fn next_step(&self, advance: &mut Advance) -> Option<Timestamp> {
        if advance.domain != Domain::Event || !self.lives_by_event_time {
            return Some(advance.until);
        }
        let next = self.call.lock().keyed.as_ref()?.next_timer(Domain::Event)?;
        if next > advance.until {
            return None;
        }
        advance.reached = advance.reached.max(next);
        Some(advance.reached)
    }

    /// One call for all of `due`; where that fails, one for each.
    fn round(&mut self, due: &[TimerId], advance: &mut Advance) -> Result<(), Fault> {
        let Some(failed) = self.attempt_round(due, advance)? else { return Ok(()) };
        self.context.meter.isolating();
        if let [id] = due {
            return self.set_timer_aside((advance.domain, id), &failed, 1);
        }
        for id in due {
            self.context.meter.rerun();
            if let Some(failed) = self.attempt_round(std::slice::from_ref(id), advance)? {
                self.set_timer_aside((advance.domain, id), &failed, 2)?;
            }
        }
        Ok(())
    }

    /// One call for all of `due`. Why it failed and is undone; `None`: it is applied.
    fn attempt_round(&mut self, due: &[TimerId], advance: &mut Advance) -> Result<Option<(DropReason, String)>, Fault> {
        let failed = match self.fire_call(due, advance)? {
            Fired::Applied => {
                self.renew_if_grown();
                return Ok(None);
            }
            Fired::Unclean(message) => (DropReason::Rejected, message),
            Fired::Failed(error) => match reason(&error) {
                Some(reason) => (reason, error.to_string()),
                None => return Err(error.into()),
            },
        };
        self.instances.end();
        self.context.meter.renewed(Renewal::Failure);
        Ok(Some(failed))
    }

    fn set_timer_aside(
        &mut self,
        (domain, id): (Domain, &TimerId),
        (reason, message): &(DropReason, String),
        tries: u32,
    ) -> Result<(), Fault> {
        self.set_aside(&apart(domain, &id.timer()), &Failure { reason: *reason, message, tries })
    }

    fn fire_call(&mut self, due: &[TimerId], advance: &mut Advance) -> Result<Fired, Fault> {
        let (firing, times) = self.lend_timers(due, advance.domain);
        let (event, now) = (advance.domain == Domain::Event, self.context.clock.now());
        let now = Now {
            watermark: if event { advance.until } else { self.gate.watermark() }.as_millis(),
            processing_time: if event { now } else { advance.until }.as_millis(),
        };
        let lives = ttl::Now { event: advance.reached, processing: Timestamp::from_millis(now.processing_time) };
        {
            let mut call = self.call.lock();
            call.set_now(lives, if event { &times } else { &[] });
            load_eager(&mut call, &mut self.eager_timers)?;
        }
        let eager = &self.eager_timers;
        let answer = enter(&mut self.instances, &self.context, |guest| guest.fire(now, &firing, eager))?;
        let shared = Arc::clone(&self.call);
        let mut call = shared.lock();
        let fired = match answer {
            Ok(effects) => self.take_fired(&mut call, &effects, (due, &times), advance),
            Err(error) => Ok(Fired::Failed(error)),
        };
        call.discard();
        call.keys.clear();
        call.hashes.clear();
        call.slots.clear();
        fired
    }

    /// Lends the timers' keys to the call.
    fn lend_timers(&self, due: &[TimerId], domain: Domain) -> (Firing, Vec<Timestamp>) {
        let mut call = self.call.lock();
        let mut firing = Firing {
            keys: empty_column(),
            absent_key: None,
            slots: Vec::with_capacity(due.len() * 4),
            domains: vec![domain as u8; due.len()],
            times: Vec::with_capacity(due.len() * 8),
            tags: Vec::with_capacity(due.len() * 4),
        };
        let timers = due.iter().map(TimerId::timer);
        let times = timers.zip(0u32..).map(|(timer, slot)| {
            call.keys.push(timer.key);
            call.hashes.push(KeyHash::of(timer.key));
            call.slots.push(slot);
            push_value(&mut firing.keys, timer.key);
            packed::push_u32(&mut firing.slots, slot);
            packed::push_s64(&mut firing.times, timer.time.as_millis());
            packed::push_u32(&mut firing.tags, timer.tag);
            timer.time
        });
        let times = times.collect();
        (firing, times)
    }

    fn take_fired(
        &mut self,
        call: &mut CallState,
        effects: &Effects,
        (due, times): (&[TimerId], &[Timestamp]),
        advance: &mut Advance,
    ) -> Result<Fired, Fault> {
        let rejects = &effects.rejects;
        if call.wrote_for(packed::u32s(&rejects.origins)) {
            return Ok(Fired::Unclean(rejects.reasons.first().cloned().unwrap_or_default()));
        }
        if let Some(error) = self.over_limit("fire", call, effects)? {
            return Ok(Fired::Failed(error));
        }
        for (origin, message) in packed::u32s(&rejects.origins).zip(&rejects.reasons) {
            let Some(timer) = due.get(origin as usize).map(TimerId::timer) else { continue };
            let timer = apart(advance.domain, &timer);
            self.set_aside(&timer, &Failure { reason: DropReason::Rejected, message, tries: 1 })?;
        }
        let dropped = write(call, effects, Some(advance))?;
        self.context.meter.dropped(DropReason::TimerAtEnd, dropped);
        emit::emit(&effects.emits, &Origins { call, times, absent_key: None }, &[], &mut self.emitted);
        Ok(Fired::Applied)
    }
}

/// Where a batch must be split, as its records set timers that fall due at an advance of the watermark within it: the first
/// record behind that advance. `None`: nowhere.
pub(super) fn split(effects: &Effects, advances: &[(u32, Timestamp)]) -> Option<usize> {
    let timers = &effects.timers;
    let sets = packed::u32s(&timers.origins).zip(packed::times(&timers.times)).zip(&timers.operations);
    let event = sets
        .zip(&timers.domains)
        .filter(|((_, operation), domain)| **operation == SET_TIMER && **domain == Domain::Event as u8);
    // Both rise.
    let first = event.filter_map(|(((origin, time), _), _)| {
        let behind = advances.partition_point(|(after, watermark)| *after <= origin || *watermark < time);
        advances.get(behind).filter(|(after, _)| *after < effects.consumed)
    });
    first.map(|(after, _)| *after as usize).min()
}

/// Makes the timer changes of a call real; those of records whose key has none were refused before. Returns how many timers were
/// dropped, as they were set at the end of time for ever.
pub(super) fn change_timers(
    call: &mut CallState,
    effects: &Effects,
    mut advance: Option<&mut Advance>,
) -> Result<u64, Fault> {
    let timers = &effects.timers;
    if timers.origins.is_empty() {
        return Ok(0);
    }
    let Some(keyed) = &mut call.keyed else {
        return Err(Fault::new(
            FaultKind::User,
            "it sets timers, which belong to keys, and none of its inputs is keyed: set `key` on its input",
        ));
    };
    let mut dropped = 0;
    let changes = packed::u32s(&timers.origins).zip(packed::times(&timers.times)).zip(packed::u32s(&timers.tags));
    for (((origin, time), tag), (&operation, &domain)) in changes.zip(timers.operations.iter().zip(&timers.domains)) {
        let Some(domain) = Domain::from_number(domain) else { continue };
        let slot = call.slots[origin as usize] as usize;
        let (key, hash) = (call.keys.get(slot), call.hashes[slot]);
        let timer = Timer { time, key, tag };
        if operation != SET_TIMER {
            keyed.delete_timer(domain, &timer, hash).map_err(fault_of_state)?;
            continue;
        }
        if let Some(advance) = advance.as_deref_mut()
            && !advance.rearm(domain, &timer)?
        {
            dropped += 1;
            continue;
        }
        keyed.set_timer(domain, &timer, hash).map_err(fault_of_state)?;
    }
    Ok(dropped)
}

impl Advance {
    /// Whether a firing may set the timer: one that is due already fires in a later round of the same advance, and a key has
    /// only so many.
    fn rearm(&mut self, domain: Domain, timer: &Timer<'_>) -> Result<bool, Fault> {
        if domain != self.domain || timer.time > self.until {
            return Ok(true);
        }
        let rearms = match self.rearms.get_mut(timer.key) {
            Some(rearms) => rearms,
            None => self.rearms.entry(timer.key.to_vec()).or_default(),
        };
        *rearms += 1;
        if *rearms <= MOST_REARMS {
            return Ok(true);
        }
        if self.until == Timestamp::MAX {
            return Ok(false);
        }
        Err(Fault::new(
            FaultKind::Guest,
            format_args!(
                "{} sets timers without an end that are due already: at {}, {MOST_REARMS} times before its time went on; set them later than the time that is reached",
                apart(domain, timer),
                timer.time
            ),
        ))
    }
}

/// A timer in the place of a record.
fn apart(domain: Domain, timer: &Timer<'_>) -> Apart {
    Apart {
        key: Some(timer.key.to_vec()),
        time: timer.time,
        value: None,
        place: None,
        headers: Vec::new(),
        timer: Some((domain, timer.tag)),
    }
}

#[cfg(test)]
mod tests;
