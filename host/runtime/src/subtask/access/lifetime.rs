//! A call and the time to live of what it reads and writes.
//!
//! Owns which stamp a write gets, and that reads which refresh count only once the call has succeeded. Does not own the rules
//! (`core::ttl`) nor the stamps in the state.

use wasmill_core::time::Timestamp;
use wasmill_core::ttl::Stamp;

use super::CallState;
use crate::guest::StateError;
use crate::state::{Error, Name, Value, stamped};

/// A read that refreshes.
#[derive(Debug)]
pub(super) struct Touch {
    state: u16,
    slot: u32,
    origin: u32,
    /// The map key; none of a value or list.
    name: Option<Name>,
}

impl Touch {
    /// Bytes of its map key.
    pub(super) fn bytes(&self) -> usize {
        self.name.as_ref().map_or(0, |name| name.len())
    }
}

impl CallState {
    /// The stamp of what is written on behalf of an origin; `None`: the state has no TTL.
    pub(in crate::subtask) fn stamp(&self, state: u16, origin: u32) -> Option<Stamp> {
        let time = self.times.get(origin as usize).copied().unwrap_or(Timestamp::MIN);
        self.keyed.as_ref()?.stamp(usize::from(state), time)
    }

    /// A value as it is stored, with its stamp where the state has a TTL.
    pub(super) fn stored(&self, state: u16, origin: u32, value: &[u8]) -> Value {
        self.stamp(state, origin).map_or_else(|| Value::from(value), |stamp| stamped(stamp, value))
    }

    /// What a stored value that the call itself wrote holds.
    pub(super) fn unstamped<'a>(&self, state: u16, stored: &'a [u8]) -> &'a [u8] {
        self.keyed.as_ref().map_or(stored, |keyed| keyed.unstamped(usize::from(state), stored))
    }

    /// A value, an entry or a list was read: where reads refresh, that is kept until the call has succeeded.
    pub(super) fn read(&mut self, state: u16, slot: u32, origin: u32, name: Option<&[u8]>) -> Result<(), StateError> {
        let ttl = self.keyed.as_ref().and_then(|keyed| keyed.ttl(usize::from(state)));
        if !ttl.is_some_and(|ttl| ttl.is_refreshed_by_reads()) {
            return Ok(());
        }
        self.overlay.touch(Touch { state, slot, origin, name: name.map(Name::from) })
    }

    /// Makes the reads that refresh real, but for those of origins that are `rejected`.
    pub(super) fn apply_touches(&mut self, rejected: impl Fn(u32) -> bool) -> Result<(), Error> {
        for touch in std::mem::take(&mut self.overlay.touches) {
            let Some(stamp) = self.stamp(touch.state, touch.origin).filter(|_| !rejected(touch.origin)) else {
                continue;
            };
            let Some(keyed) = &mut self.keyed else { continue };
            let (key, hash) = (self.keys.get(touch.slot as usize), self.hashes[touch.slot as usize]);
            keyed.touch((usize::from(touch.state), key, hash), touch.name.as_ref(), stamp)?;
        }
        Ok(())
    }
}
