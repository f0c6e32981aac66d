//! Timers as the subtask uses them: set, delete, what is due next, take what is due.
//!
//! Owns that a timer is of the subtask's own key groups, and that timers are counted. Does not own the timers (`timers`).

use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroup, KeyHash};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, KeyTimer, TIMERS, Timer, TimerId};

use super::error::Error;
use super::keyed::{KeyedState, RowReader};
use super::row;
use super::timers::TimerRows;

impl KeyedState {
    /// Sets a timer of a key; one that is set already stays as it is.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn set_timer(&mut self, domain: Domain, timer: &Timer<'_>, hash: KeyHash) -> Result<(), Error> {
        let group = self.group(hash)?;
        if self.timers.set(domain, timer, group, &self.rows)? {
            self.count_timer(timer, group, true)?;
        }
        Ok(())
    }

    /// Deletes a timer of a key, if it is set.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn delete_timer(&mut self, domain: Domain, timer: &Timer<'_>, hash: KeyHash) -> Result<(), Error> {
        let group = self.group(hash)?;
        if self.timers.delete(domain, timer, group, &self.rows)? {
            self.count_timer(timer, group, false)?;
        }
        Ok(())
    }

    /// The key's timers behind `after`, in order, at most `limit`. Reads the timers of the key's group up to them, so it is for
    /// groups with thousands of timers, not millions.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn timers_of(
        &self,
        key: &[u8],
        hash: KeyHash,
        after: Option<KeyTimer>,
        limit: usize,
    ) -> Result<Vec<KeyTimer>, Error> {
        self.writer.check()?;
        self.timers.of_key((key, self.group(hash)?), after, limit, &self.rows)
    }

    /// Before this time no timer of the domain is due; `None`: none is set.
    #[must_use]
    pub fn next_timer(&self, domain: Domain) -> Option<Timestamp> {
        self.timers.next(domain)
    }

    /// Takes timers that are due by `until`, of at most `limit` keys the earliest each: from now on they are not set.
    ///
    /// # Errors
    /// A failure of RocksDB or of the background thread.
    pub fn take_timers(&mut self, domain: Domain, until: Timestamp, limit: usize) -> Result<Vec<TimerId>, Error> {
        self.writer.check()?;
        let due = self.timers.take_due(domain, until, limit, &self.rows)?;
        for id in &due {
            let timer = id.timer();
            self.count_timer(&timer, KeyHash::of(timer.key).group(self.max_parallelism), false)?;
        }
        Ok(due)
    }

    /// Drops every timer of a domain and says how many there were.
    ///
    /// # Errors
    /// As [`KeyedState::take_timers`].
    pub fn drop_timers(&mut self, domain: Domain) -> Result<u64, Error> {
        let mut dropped = 0;
        loop {
            let taken = self.take_timers(domain, Timestamp::MAX, usize::MAX)?;
            if taken.is_empty() {
                return Ok(dropped);
            }
            dropped += taken.len() as u64;
        }
    }

    fn count_timer(&mut self, timer: &Timer<'_>, group: KeyGroup, set: bool) -> Result<(), Error> {
        let index = match self.timer_counts {
            Some(index) => index,
            None => {
                let name = StateName::new(TIMERS).map_err(|error| self.misuse(error.to_string()))?;
                *self.timer_counts.insert(self.counts.cover(&name, self.range))
            }
        };
        let bytes = row::timer_bytes(timer.key.len());
        let (before, after) = if set { (None, Some(bytes)) } else { (Some(bytes), None) };
        self.count(index, group, 0, before, after);
        Ok(())
    }
}

impl TimerRows for RowReader {
    fn has(&self, row: &[u8]) -> Result<bool, Error> {
        self.backend.has(self.states.len(), row)
    }

    fn read(&self, lower: &[u8], upper: &[u8], each: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Error> {
        self.backend.rows(self.states.len(), (lower, upper), each)
    }
}
