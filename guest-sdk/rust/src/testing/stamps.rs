//! The time to live of rows in memory: when each was written last, and which have expired.
//!
//! Owns the rules of the contract for an operator under test. Does not own the rows.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::memory::{Group, Key};
use crate::bindings::wasmill::operator::types::{Refresh, StateDescriptor, StateKind, TimeDomain, Ttl};
use crate::time::Timestamp;

/// The stamps of the rows of states with a TTL.
pub(super) struct Stamps {
    ttls: Vec<Option<(Ttl, StateKind)>>,
    stamps: BTreeMap<(Group, Vec<u8>), i64>,
    /// Event time and processing time of the call, and the time of the origin that acts.
    event: i64,
    processing: i64,
    origin: i64,
    /// Whether the times of origins are event time.
    timed: bool,
}

impl Stamps {
    pub(super) fn of(states: &[StateDescriptor]) -> Self {
        let ttls = states.iter().map(|state| state.ttl.map(|ttl| (ttl, state.kind))).collect();
        let start = Timestamp::MIN.as_millis();
        Self { ttls, stamps: BTreeMap::new(), event: start, processing: 0, origin: start, timed: true }
    }

    /// Whether entries of some state expire by the watermark.
    pub(super) fn by_event_time(&self) -> bool {
        self.ttls.iter().flatten().any(|(ttl, _)| ttl.domain == TimeDomain::Event)
    }

    /// Event time and processing time from now on, and whether the times of origins are event time.
    pub(super) fn set_now(&mut self, event: i64, processing: i64, timed: bool) {
        (self.event, self.processing, self.timed) = (event, processing, timed);
    }

    /// What is written from now on is written on behalf of a record or timer of this time.
    pub(super) fn act_for(&mut self, time: i64) {
        self.origin = time;
    }

    /// A row was written or removed; returns its stamp before.
    pub(super) fn wrote(&mut self, group: &Group, row: &[u8], present: bool) -> Option<i64> {
        let (ttl, _) = self.ttl(group)?;
        let place = (group.clone(), row.to_vec());
        if !present {
            return self.stamps.remove(&place);
        }
        let before = self.stamps.get(&place).copied();
        let stamp = match ttl.domain {
            TimeDomain::Event => {
                let origin = if self.timed { self.origin } else { i64::MIN };
                self.event.max(origin).max(before.unwrap_or(i64::MIN))
            }
            TimeDomain::Processing => self.processing,
        };
        self.stamps.insert(place, stamp);
        before
    }

    /// Whether reads of the state refresh.
    pub(super) fn is_refreshed_by_reads(&self, state: u16) -> bool {
        self.ttls
            .get(usize::from(state))
            .is_some_and(|ttl| ttl.is_some_and(|(ttl, _)| ttl.refresh == Refresh::ReadAndWrite))
    }

    /// Gives a row the stamp that it had.
    pub(super) fn put_back(&mut self, group: Group, row: Vec<u8>, stamp: Option<i64>) {
        match stamp {
            Some(stamp) => self.stamps.insert((group, row), stamp),
            None => self.stamps.remove(&(group, row)),
        };
    }

    /// The rows that have expired, and when; of a list those at its front, each no earlier than the one before it.
    pub(super) fn expired(&self) -> Vec<(Group, Vec<u8>, i64)> {
        let mut expired: Vec<(Group, Vec<u8>, i64)> = Vec::new();
        let mut stays: Option<(u16, &Key)> = None;
        for ((group, row), stamp) in &self.stamps {
            let Some((ttl, kind)) = self.ttl(group) else { continue };
            let is_list = kind == StateKind::ListState;
            let now = if ttl.domain == TimeDomain::Event { self.event } else { self.processing };
            let end = stamp.saturating_add(i64::try_from(ttl.milliseconds).unwrap_or(i64::MAX));
            let alive = now < end || end >= Timestamp::MAX.as_millis();
            if !(alive || is_list && stays == Some((group.0, &group.1))) {
                let before =
                    expired.last().filter(|(last, ..)| is_list && last == group).map_or(i64::MIN, |last| last.2);
                expired.push((group.clone(), row.clone(), before.max(end)));
            } else if is_list {
                stays = Some((group.0, &group.1));
            }
        }
        expired
    }

    /// Whether a group's rows are a list's, whose positions are counted from 0.
    pub(super) fn is_list(&self, group: &Group) -> bool {
        self.ttl(group).is_some_and(|(_, kind)| kind == StateKind::ListState)
    }

    fn ttl(&self, group: &Group) -> Option<(Ttl, StateKind)> {
        self.ttls.get(usize::from(group.0)).copied().flatten()
    }
}
