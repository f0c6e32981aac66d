//! What an operator under test left behind: state, timers, refusals, logs and metrics.
//!
//! Owns reading and preparing them. Does not own how they come about.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Harness, Rejected, RejectedTimer};
use crate::bindings::wasmill::operator::types::Fault;
use crate::cbor;
use crate::diagnostics::Level;
use crate::error::fatal;
use crate::key::Key;
use crate::map_key::FromMapKey;
use crate::operator::Operator;
use crate::timer::TimerId;

impl<O: Operator> Harness<O> {
    /// The records that the last call of [`Harness::process`] refused.
    #[must_use]
    pub fn rejects(&self) -> &[Rejected] {
        &self.rejects
    }

    /// All timers that were refused so far.
    #[must_use]
    pub fn timer_rejects(&self) -> &[RejectedTimer] {
        &self.timer_rejects
    }

    /// A key's value in a value state, decoded from CBOR.
    ///
    /// # Errors
    /// When the operator declares no such state, or the value is another type's.
    pub fn state<T: DeserializeOwned>(&self, state: &str, key: &(impl Key + ?Sized)) -> Result<Option<T>, Fault> {
        let bytes = self.state_bytes(state, key)?;
        bytes.map(|bytes| cbor::from_slice(bytes).map_err(fatal)).transpose()
    }

    /// The bytes of a key's value in a value state.
    ///
    /// # Errors
    /// When the operator declares no such state.
    pub fn state_bytes(&self, state: &str, key: &(impl Key + ?Sized)) -> Result<Option<&[u8]>, Fault> {
        Ok(self.memory.get(self.memory.index(state)?, Some(&key_bytes(key)?)))
    }

    /// Puts a key's value into a value state, as if it had been restored.
    ///
    /// # Errors
    /// When the operator declares no such state, or the value does not encode.
    pub fn put_state<T: Serialize + ?Sized>(
        &mut self,
        state: &str,
        key: &(impl Key + ?Sized),
        value: &T,
    ) -> Result<(), Fault> {
        let index = self.memory.index(state)?;
        self.memory.put(index, Some(key_bytes(key)?), Vec::new(), cbor::to_vec(value).map_err(fatal)?);
        Ok(())
    }

    /// A key's entries in a map state, ascending.
    ///
    /// # Errors
    /// When the operator declares no such state, or an entry is of other types.
    pub fn map<K: FromMapKey, V: DeserializeOwned>(
        &self,
        state: &str,
        key: &(impl Key + ?Sized),
    ) -> Result<Vec<(K, V)>, Fault> {
        self.entries(state, Some(&key_bytes(key)?))
    }

    /// The entries of a broadcast state, ascending.
    ///
    /// # Errors
    /// As [`Harness::map`].
    pub fn broadcast<K: FromMapKey, V: DeserializeOwned>(&self, state: &str) -> Result<Vec<(K, V)>, Fault> {
        self.entries(state, None)
    }

    /// A key's elements in a list state.
    ///
    /// # Errors
    /// When the operator declares no such state, or an element is another type's.
    pub fn list<T: DeserializeOwned>(&self, state: &str, key: &(impl Key + ?Sized)) -> Result<Vec<T>, Fault> {
        let rows = self.memory.rows(self.memory.index(state)?, Some(&key_bytes(key)?));
        rows.map(|(_, value)| cbor::from_slice(value).map_err(fatal)).collect()
    }

    /// The elements of an operator state.
    ///
    /// # Errors
    /// As [`Harness::list`].
    pub fn elements<T: DeserializeOwned>(&self, state: &str) -> Result<Vec<T>, Fault> {
        let rows = self.memory.rows(self.memory.index(state)?, None);
        rows.map(|(_, value)| cbor::from_slice(value).map_err(fatal)).collect()
    }

    /// How many keys have anything in a state.
    ///
    /// # Errors
    /// When the operator declares no such state.
    pub fn state_len(&self, state: &str) -> Result<usize, Fault> {
        Ok(self.memory.keys(self.memory.index(state)?))
    }

    /// How many rows a state has: values, map entries or list elements of all keys.
    ///
    /// # Errors
    /// When the operator declares no such state.
    pub fn row_count(&self, state: &str) -> Result<usize, Fault> {
        Ok(self.memory.row_count(self.memory.index(state)?))
    }

    /// The timers that a key has, in order.
    ///
    /// # Errors
    /// When the key has no encoding.
    pub fn timers(&self, key: &(impl Key + ?Sized)) -> Result<Vec<TimerId>, Fault> {
        Ok(self.memory.timers.of(&Some(key_bytes(key)?)))
    }

    /// How many timers wait.
    #[must_use]
    pub fn timer_count(&self) -> usize {
        self.memory.timers.len()
    }

    /// How many timers were dropped: processing timers at the end of input, and what a key set there over and over.
    #[must_use]
    pub fn dropped_timers(&self) -> usize {
        self.dropped_timers
    }

    /// How many calls to the host's state there were so far, marks not counted.
    #[must_use]
    pub fn crossings(&self) -> u64 {
        self.memory.crossings
    }

    /// What was logged so far.
    #[must_use]
    pub fn logs(&self) -> Vec<(Level, String)> {
        self.recorder.logs()
    }

    /// A counter's sum so far.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.recorder.counter(name)
    }

    /// A gauge's newest value.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.recorder.gauge(name)
    }

    /// The values that a histogram got so far.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Vec<f64> {
        self.recorder.histogram(name)
    }

    /// The rows themselves.
    #[cfg(test)]
    pub(crate) fn memory(&mut self) -> &mut super::memory::Memory {
        &mut self.memory
    }

    fn entries<K: FromMapKey, V: DeserializeOwned>(
        &self,
        state: &str,
        key: Option<&[u8]>,
    ) -> Result<Vec<(K, V)>, Fault> {
        let rows = self.memory.rows(self.memory.index(state)?, key);
        rows.map(|(key, value)| Ok((K::read(key).map_err(fatal)?, cbor::from_slice(value).map_err(fatal)?))).collect()
    }
}

fn key_bytes(key: &(impl Key + ?Sized)) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    key.write(&mut bytes).map_err(fatal)?;
    Ok(bytes)
}
