//! Timers: points in time at which a key is called again.
//!
//! Owns the changes of a call to timers, their undo, and whether one of them falls due within the batch. Does not own when
//! timers fire: that is the host's.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::bindings::wasmill::operator::state::Timers;
use crate::bindings::wasmill::operator::types::{Firing, TimerChanges};
use crate::columns::{Malformed, S64s, U32s};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::key::{self, FromKey};
use crate::record::Origins;
use crate::time::Timestamp;

const DELETE: u8 = 0;
const SET: u8 = 1;
const PAGE: u32 = 512;

/// The clock that a timer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Event time: the timer fires when the watermark next advances to or past its time.
    Event,
    /// Processing time: it fires between calls.
    Processing,
}

impl Domain {
    fn code(self) -> u8 {
        match self {
            Self::Event => 0,
            Self::Processing => 1,
        }
    }

    fn of(code: u8) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::Event),
            1 => Ok(Self::Processing),
            _ => Err(Malformed("a timer has a domain that there is not")),
        }
    }
}

/// What makes a timer of a key: setting one twice is one timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    /// The clock that it waits for.
    pub domain: Domain,
    /// When it fires.
    pub time: Timestamp,
    /// The operator's own number. Those from 2^31 are the library's.
    pub tag: u32,
}

/// A timer that fires, on behalf of its key.
#[derive(Debug, Clone, Copy)]
pub struct Timer<'a> {
    key: Option<&'a [u8]>,
    id: TimerId,
}

impl<'a> Timer<'a> {
    /// The key for which it was set, decoded; text and bytes are borrowed.
    ///
    /// # Errors
    /// Rejects the timer when the key is of another type.
    pub fn key<K: FromKey<'a>>(&self) -> Result<K> {
        Ok(K::from_key(self.key.ok_or(key::Error::Absent)?)?)
    }

    /// The key's bytes.
    #[must_use]
    pub fn key_bytes(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// The time for which it was set.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.id.time
    }

    /// The tag with which it was set.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.id.tag
    }

    /// The clock that it waited for.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.id.domain
    }

    /// Domain, time and tag.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id
    }
}

/// Whether an operator has timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerUse {
    /// None: setting one is a fatal fault.
    None,
    /// It sets and deletes them.
    Set,
    /// It lists them, too.
    List,
}

/// The timers of a call, checked.
pub(crate) struct Due<'a> {
    pub(crate) origins: Origins<'a>,
    domains: &'a [u8],
    tags: U32s<'a>,
}

impl<'a> Due<'a> {
    pub(crate) fn check(firing: &'a Firing) -> std::result::Result<Self, Malformed> {
        let Firing { keys, absent_key, slots, domains, times, tags } = firing;
        let origins = Origins::check(keys, *absent_key, slots, times)?;
        let tags = U32s::check(tags)?;
        let len = slots.len() / 4;
        if domains.len() != len || tags.len() != len || u32::try_from(len).is_err() {
            return Err(Malformed("a firing's columns have not one length"));
        }
        domains.iter().try_for_each(|&domain| Domain::of(domain).map(drop))?;
        Ok(Self { origins, domains, tags })
    }

    pub(crate) fn len(&self) -> u32 {
        // Checked above.
        self.domains.len() as u32
    }

    pub(crate) fn get(&self, index: u32) -> Timer<'a> {
        let at = index as usize;
        let domain = if self.domains.get(at) == Some(&1) { Domain::Processing } else { Domain::Event };
        let time = Timestamp::from_millis(self.origins.time(index));
        let tag = self.tags.get(at).unwrap_or_default();
        Timer { key: self.origins.key(index), id: TimerId { domain, time, tag } }
    }
}

/// The changes of a call, in order.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    origins: Vec<u8>,
    operations: Vec<u8>,
    domains: Vec<u8>,
    times: Vec<u8>,
    tags: Vec<u8>,
    /// The least time of an event timer that was set, perhaps deleted since.
    earliest: Option<Timestamp>,
}

impl Changes {
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Keeps the first `len` changes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.origins.truncate(4 * len);
        self.operations.truncate(len);
        self.domains.truncate(len);
        self.times.truncate(8 * len);
        self.tags.truncate(4 * len);
    }

    /// Whether a timer of this call may fall due once the watermark is `watermark`.
    #[inline]
    pub(crate) fn fall_due_by(&self, watermark: Timestamp) -> bool {
        self.earliest.is_some_and(|earliest| earliest <= watermark)
    }

    fn push(&mut self, origin: u32, operation: u8, id: TimerId) {
        self.origins.extend_from_slice(&origin.to_le_bytes());
        self.operations.push(operation);
        self.domains.push(id.domain.code());
        self.times.extend_from_slice(&id.time.as_millis().to_le_bytes());
        self.tags.extend_from_slice(&id.tag.to_le_bytes());
        if operation == SET && id.domain == Domain::Event {
            self.earliest = Some(self.earliest.map_or(id.time, |earliest| earliest.min(id.time)));
        }
    }

    /// Each change as (origin, whether set, timer).
    fn iter(&self) -> impl Iterator<Item = (u32, bool, TimerId)> + '_ {
        let origins = self.origins.as_chunks().0.iter().map(|&origin| u32::from_le_bytes(origin));
        let times = self.times.as_chunks().0.iter().map(|&time| Timestamp::from_millis(i64::from_le_bytes(time)));
        let tags = self.tags.as_chunks().0.iter().map(|&tag| u32::from_le_bytes(tag));
        let ids = self.domains.iter().zip(times).zip(tags).map(|((&domain, time), tag)| {
            let domain = if domain == 0 { Domain::Event } else { Domain::Processing };
            TimerId { domain, time, tag }
        });
        origins.zip(&self.operations).zip(ids).map(|((origin, &operation), id)| (origin, operation == SET, id))
    }

    pub(crate) fn finish(self) -> TimerChanges {
        let Self { origins, operations, domains, times, tags, earliest: _ } = self;
        TimerChanges { origins, operations, domains, times, tags }
    }
}

impl Context<'_> {
    /// Sets an event timer for the key in hand: `fire` is called when the watermark next advances to or past `time`, once.
    /// One at or before the present watermark fires at the next advance; one that a firing sets may fire in the same one.
    /// `tag` tells timers of one time apart; those from 2^31 are the library's.
    ///
    /// # Errors
    /// Fatal where the operator does not declare timers.
    pub fn set_timer(&mut self, time: Timestamp, tag: u32) -> Result {
        self.change_timer(SET, TimerId { domain: Domain::Event, time, tag })
    }

    /// Deletes an event timer of the key in hand; where there is none, nothing happens.
    ///
    /// # Errors
    /// As [`Context::set_timer`].
    pub fn delete_timer(&mut self, time: Timestamp, tag: u32) -> Result {
        self.change_timer(DELETE, TimerId { domain: Domain::Event, time, tag })
    }

    /// Sets a processing timer for the key in hand: `fire` is called once the clock has reached `time`. At the end of input
    /// the ones still waiting are dropped.
    ///
    /// # Errors
    /// As [`Context::set_timer`].
    pub fn set_processing_timer(&mut self, time: Timestamp, tag: u32) -> Result {
        self.change_timer(SET, TimerId { domain: Domain::Processing, time, tag })
    }

    /// Deletes a processing timer of the key in hand; where there is none, nothing happens.
    ///
    /// # Errors
    /// As [`Context::set_timer`].
    pub fn delete_processing_timer(&mut self, time: Timestamp, tag: u32) -> Result {
        self.change_timer(DELETE, TimerId { domain: Domain::Processing, time, tag })
    }

    /// The timers that the key in hand has, in order of domain, time and tag; what this call changed counts.
    ///
    /// # Errors
    /// Fatal where the operator does not declare that it lists them: `#[operator(timers(list))]`.
    pub fn timers(&mut self) -> Result<Vec<TimerId>> {
        if self.timer_use != TimerUse::List {
            return Err(Error::fatal(
                "the operator lists its timers and does not declare it; write #[operator(timers(list))]",
            ));
        }
        let origin = self.origin();
        let mut all = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.host().timers_page(origin, after, PAGE);
            let last = take_page(&page, &mut all).map_err(Malformed::fault)?;
            match last.filter(|_| page.more) {
                Some(last) => after = Some((last.domain.code(), last.time.as_millis(), last.tag)),
                None => break,
            }
        }
        if let Some(firing) = self.firing {
            all.remove(&firing);
        }
        let slot = self.origins.slot(origin);
        for (of, set, id) in self.timers.iter().filter(|(of, ..)| self.origins.slot(*of) == slot) {
            debug_assert!(of <= origin);
            if set {
                all.insert(id)
            } else {
                all.remove(&id)
            };
        }
        Ok(all.into_iter().collect())
    }

    fn change_timer(&mut self, operation: u8, id: TimerId) -> Result {
        if self.timer_use == TimerUse::None {
            return Err(Error::fatal(
                "the operator sets a timer and does not declare it; write #[operator(timers)] and implement `OnTimer`",
            ));
        }
        self.timers.push(self.origin(), operation, id);
        Ok(())
    }
}

/// Adds a page of the host's list and says which timer is its last.
fn take_page(page: &Timers, all: &mut BTreeSet<TimerId>) -> std::result::Result<Option<TimerId>, Malformed> {
    let (times, tags) = (S64s::check(&page.times)?, U32s::check(&page.tags)?);
    if times.len() != page.domains.len() || tags.len() != page.domains.len() {
        return Err(Malformed("a page of timers has columns of several lengths"));
    }
    let mut last = None;
    for (at, &domain) in page.domains.iter().enumerate() {
        let time = Timestamp::from_millis(times.get(at).unwrap_or_default());
        let id = TimerId { domain: Domain::of(domain)?, time, tag: tags.get(at).unwrap_or_default() };
        all.insert(id);
        last = Some(id);
    }
    Ok(last)
}
