//! List state as the subtask uses it: a map from position to element, whose positions are counted from 0 without gaps.
//!
//! Owns positions. Does not own what lists have in common with maps ([`super::collection`]).
//!
//! The length stands in the head, so an append writes its elements and the head, and reads at most the head.

use std::ops::Bound;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::StateKind;
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::Column;

use super::collection::Place;
use super::error::Error;
use super::keyed::{KeyedState, MAX_PIECE};
use super::run::{Name, Value};
use super::runs::RunIndex;
use super::scan::{PAGE_ENTRIES, Page, Range};

impl KeyedState {
    /// Appends elements.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_append(
        &mut self,
        state: usize,
        key: &[u8],
        hash: KeyHash,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<(), Error> {
        let index = self.run(StateKind::List, (state, key, hash))?;
        for (position, value) in (self.elements(index)?..).zip(values) {
            if value.len() > MAX_PIECE {
                return Err(self.too_large(state, value.len()));
            }
            let name: Name = Name::from(position.to_be_bytes().as_slice());
            self.replace_entry(index, &name, None, Some(value));
        }
        Ok(())
    }

    /// Reads what is needed for appends to many lists at once.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_load<'a>(
        &mut self,
        state: usize,
        wanted: impl Iterator<Item = (&'a [u8], KeyHash)>,
    ) -> Result<(), Error> {
        self.relieve();
        self.wanted.clear();
        for (key, hash) in wanted {
            let index = self.run(StateKind::List, (state, key, hash))?;
            self.want(index, None)?;
        }
        self.fetch_wanted(state)
    }

    /// How many elements a list has.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_length(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<u64, Error> {
        self.relieve();
        let index = self.run(StateKind::List, (state, key, hash))?;
        self.elements(index)
    }

    /// How many elements a list has, and their bytes.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_head(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<Tally, Error> {
        let index = self.run(StateKind::List, (state, key, hash))?;
        self.head(index)
    }

    /// At most `limit` elements from `start` on; fewer where they are large or many. Only past the end there are none.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_page(&mut self, place: Place<'_>, start: u64, limit: usize) -> Result<Column, Error> {
        self.relieve();
        let index = self.run(StateKind::List, place)?;
        let count = self.elements(index)?.saturating_sub(start).min(limit.min(PAGE_ENTRIES) as u64);
        if count == 0 {
            return Ok(Column::default());
        }
        let (from, to) = (start.to_be_bytes(), (start + count).to_be_bytes());
        let range = Range { lower: Bound::Included(&from), upper: Bound::Excluded(&to), reverse: false };
        // There are no gaps: as many as there must be are all.
        let all_in_memory = self.runs.get(index).range(range.bounds()).count() as u64 == count;
        let mut page = Page::default();
        self.scan(index, range, (&mut page, limit), std::iter::empty(), all_in_memory)?;
        Ok(page.values)
    }

    /// Removes all elements; costs the same however many there are.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_clear(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<(), Error> {
        let index = self.run(StateKind::List, (state, key, hash))?;
        self.clear_all(index)
    }

    fn elements(&mut self, index: RunIndex) -> Result<u64, Error> {
        Ok(self.head(index)?.entries)
    }
}
