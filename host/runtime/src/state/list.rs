//! List state as the subtask uses it: a map from position to element, whose positions have no gaps.
//!
//! Owns positions. Does not own what lists have in common with maps ([`super::collection`]).
//!
//! The length stands in the head, so an append writes its elements and the head, and reads at most the head.
//!
//! Where the state has a TTL, elements leave at the front alone: one lives at least as long as those before it. So what has
//! expired is found at the front, and a read that refreshes stamps the first element for all.

use std::ops::Bound;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::Column;
use wasmill_core::ttl::Stamp;

use super::collection::Place;
use super::error::Error;
use super::keyed::{KeyedState, MAX_PIECE};
use super::lifetime::{Sight, split};
use super::run::{Known, Name, Run, Value};
use super::runs::RunIndex;
use super::scan::{PAGE_ENTRIES, Page, Range};

/// Elements read together where the first is asked for.
const FRONT: usize = 64;

impl KeyedState {
    /// Appends elements. In a state with a TTL each begins with its stamp ([`super::stamped`]).
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
        self.know(index, None)?;
        self.append_to(index, values)
    }

    fn append_to(&mut self, index: RunIndex, values: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        let run = self.runs.get(index);
        let state = usize::from(run.state);
        let end = run.first().saturating_add(run.head().unwrap_or_default().entries);
        for (position, value) in (end..).zip(values) {
            if value.len() > MAX_PIECE {
                return Err(self.too_large(state, value.len()));
            }
            let name: Name = Name::from(position.to_be_bytes().as_slice());
            let at = self.runs.get(index).find(&name);
            self.replace_entry(index, (&name, at), None, Some(value));
        }
        Ok(())
    }

    /// Appends elements if memory knows how many there are, else that is wanted; whether they are appended.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn list_append_known(&mut self, place: Place<'_>, values: &[Value]) -> Result<bool, Error> {
        let index = self.run(StateKind::List, place)?;
        if self.runs.get(index).head().is_none() {
            self.want(index, None)?;
            return Ok(false);
        }
        self.gauges.hits += 1;
        self.append_to(index, values.iter().cloned())?;
        Ok(true)
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
        self.begin_wanted();
        for (key, hash) in wanted {
            let index = self.run(StateKind::List, (state, key, hash))?;
            self.want(index, None)?;
        }
        self.fetch_wanted()
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
        let start = start.saturating_add(self.runs.get(index).first());
        let (from, to) = (start.to_be_bytes(), start.saturating_add(count).to_be_bytes());
        let range = Range { lower: Bound::Included(&from), upper: Bound::Excluded(&to), reverse: false };
        // There are no gaps: as many as there must be are all.
        self.runs.with(index, Run::put_in_order);
        let all_in_memory = self.runs.get(index).range(range.bounds()).count() as u64 == count;
        let mut page = Page::default();
        let sight = self.scan_sight(index);
        self.scan((index, sight), range, (&mut page, limit), std::iter::empty(), all_in_memory)?;
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

    /// Stamps the elements that are alive anew.
    pub(super) fn list_touch(&mut self, place: Place<'_>, (ttl, stamp): (&Ttl, Stamp)) -> Result<(), Error> {
        let index = self.run(StateKind::List, place)?;
        if self.elements(index)? == 0 {
            return Ok(());
        }
        let first = Name::from(self.runs.get(index).first().to_be_bytes().as_slice());
        self.know(index, Some(&first))?;
        self.touch_entry(index, &first, ttl, stamp)
    }

    /// How many elements can be read; those that cannot any more are removed.
    fn elements(&mut self, index: RunIndex) -> Result<u64, Error> {
        self.know(index, None)?;
        if let Sight::Judged(judge) = self.sight(usize::from(self.runs.get(index).state)) {
            self.drop_front(index, |stamp| judge.is_readable(stamp))?;
        }
        Ok(self.head(index)?.entries)
    }

    /// Removes elements from the front up to the first that stays.
    pub(super) fn drop_front(&mut self, index: RunIndex, stays: impl Fn(Stamp) -> bool) -> Result<(), Error> {
        self.leaving.front = None;
        let dropped = self.drop_each(index, stays);
        self.leaving.front = None;
        dropped
    }

    fn drop_each(&mut self, index: RunIndex, stays: impl Fn(Stamp) -> bool) -> Result<(), Error> {
        loop {
            let run = self.runs.get(index);
            if run.head().unwrap_or_default().entries == 0 {
                return Ok(());
            }
            let first = run.first();
            let name = Name::from(first.to_be_bytes().as_slice());
            match run.get(&name) {
                Known::Value(stored) if stays(split(stored).0) => return Ok(()),
                Known::Value(stored) => {
                    let expired = self.leaves(usize::from(run.state), split(stored).0);
                    self.leaving.front = self.leaving.front.max(expired);
                    self.runs.with(index, |run| run.begin_at(first.saturating_add(1)));
                    self.write_entry(index, &name, None)?;
                }
                Known::Unknown => {
                    let range = Range { lower: Bound::Included(&name), ..Range::ALL };
                    self.load(index, range, FRONT)?;
                    if self.runs.get(index).get(&name) == Known::Unknown {
                        return Err(self.misuse(format!("the list has no element at its first position, {first}")));
                    }
                }
                Known::Absent => {
                    return Err(self.misuse(format!("the list has no element at its first position, {first}")));
                }
            }
        }
    }
}
