//! The stamps of entries in states with a TTL, and how their reads see them.
//!
//! Owns where a stamp stands: before the value, 8 bytes, in layers, runs, changes and in what is written (a *stored* value); and
//! by which times a call is judged. Does not own the rules (`core::ttl`), nor what removes an expired entry.
//!
//! In a state without a TTL a stored value is the value itself, and nothing here is asked.

use wasmill_core::contract::{TimeDomain, Ttl};
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::{Judge, Now, Stamp};

use super::StateSpec;
use super::row::{FoundEntry, RowError, STAMP_BYTES};
use super::run::Value;

/// The times of the call, and since when the states have their TTL.
#[derive(Debug)]
pub(super) struct Lifetimes {
    pub(super) now: Now,
    /// The first times given: what has no stamp counts from them. Of event time `None` until there is a watermark.
    since: (Option<Timestamp>, Option<Timestamp>),
    /// Some state has a TTL.
    any: bool,
}

/// How the values of one state are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sight {
    /// As they are.
    Plain,
    /// Stamped, and all of them readable: a list's, whose front says what has expired.
    Stamped,
    /// Stamped, and only while they are readable.
    Judged(Judge),
    /// Only once they are not, with their stamps.
    Unreadable(Judge),
}

impl Lifetimes {
    pub(super) fn new(states: &[StateSpec]) -> Self {
        let any = states.iter().any(|state| state.ttl.is_some());
        Self { now: Now::START, since: (None, None), any }
    }

    pub(super) fn any(&self) -> bool {
        self.any
    }

    pub(super) fn set_now(&mut self, now: Now) {
        self.now = now;
        let known = |since: &mut Option<Timestamp>, time| {
            if since.is_none() && time > Timestamp::MIN {
                *since = Some(time);
            }
        };
        known(&mut self.since.0, now.event);
        known(&mut self.since.1, now.processing);
    }

    /// Judges entries with `ttl` now.
    pub(super) fn judge(&self, ttl: Ttl) -> Judge {
        let since = match ttl.domain {
            TimeDomain::Event => self.since.0,
            TimeDomain::Processing => self.since.1,
        };
        Judge::new(ttl, self.now.of(ttl.domain), since)
    }
}

impl Sight {
    /// What a read sees of a stored value.
    pub(super) fn of<'a>(&self, stored: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Plain => Some(stored),
            Self::Stamped => Some(split(stored).1),
            Self::Judged(judge) => {
                let (stamp, value) = split(stored);
                judge.is_readable(stamp).then_some(value)
            }
            Self::Unreadable(judge) => (!judge.is_readable(split(stored).0)).then_some(stored),
        }
    }
}

/// Stamp and value of a stored value in a state with a TTL.
#[must_use]
pub fn split(stored: &[u8]) -> (Stamp, &[u8]) {
    match stored.split_first_chunk::<STAMP_BYTES>() {
        Some((stamp, value)) => (Stamp::from_raw(i64::from_be_bytes(*stamp)), value),
        None => (Stamp::UNKNOWN, stored),
    }
}

/// Replaces `out` by a value with its stamp.
pub fn stamp_into(stamp: Stamp, value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&stamp.as_raw().to_be_bytes());
    out.extend_from_slice(value);
}

/// A stored value that replaces one stamped `before`.
pub(super) fn restamped(ttl: &Ttl, before: Stamp, stored: Value) -> Value {
    let (stamp, value) = split(&stored);
    match ttl.restamped(before, stamp) {
        later if later != stamp => stamped(later, value),
        _ => stored,
    }
}

/// A value with its stamp.
#[must_use]
pub fn stamped(stamp: Stamp, value: &[u8]) -> Value {
    let mut out = Vec::with_capacity(STAMP_BYTES + value.len());
    stamp_into(stamp, value, &mut out);
    Value::from(out.as_slice())
}

/// Where the stored value begins in a row's value of `row` bytes, in a state with this TTL; `None`: it does not stand there as it
/// is, and was put together in `memory`.
pub(super) fn find(
    entry: FoundEntry<'_>,
    ttl: Option<Ttl>,
    row: usize,
    memory: &mut Vec<u8>,
) -> Result<Option<usize>, RowError> {
    let value = match (entry, ttl) {
        (FoundEntry::Plain(value), None) => return Ok(Some(row - value.len())),
        (FoundEntry::Stamped(domain, stored), Some(ttl)) if domain == ttl.domain => {
            return Ok(Some(row - stored.len()));
        }
        (FoundEntry::Stamped(_, stored), None) => return Ok(Some(row - stored.len() + STAMP_BYTES)),
        (FoundEntry::Gone(_), None) => return Err(RowError::Gone),
        (FoundEntry::Gone(bytes), Some(_)) => {
            stamp_into(Stamp::GONE, &[], memory);
            memory.resize(STAMP_BYTES + bytes as usize, 0);
            return Ok(None);
        }
        (FoundEntry::Stamped(_, stored), Some(_)) => &stored[STAMP_BYTES..],
        (FoundEntry::Plain(value), Some(_)) => value,
    };
    stamp_into(Stamp::UNKNOWN, value, memory);
    Ok(None)
}
