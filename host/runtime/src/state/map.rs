//! Map state as the subtask uses it.
//!
//! Owns the operations on maps. Does not own what they have in common with lists ([`super::collection`]).

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::KeyHash;
use wasmill_core::ttl::Stamp;

use super::collection::Place;
use super::error::Error;
use super::keyed::KeyedState;
use super::run::{Known, Name, Value};
use super::scan::{Page, Range, Walk};

impl KeyedState {
    /// The value under a map key.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_get(&mut self, state: usize, key: &[u8], hash: KeyHash, name: &[u8]) -> Result<Option<&[u8]>, Error> {
        self.relieve();
        let index = self.run(StateKind::Map, (state, key, hash))?;
        if self.runs.get(index).get(name) == Known::Unknown {
            self.know(index, Some(name))?;
        } else {
            self.gauges.hits += 1;
        }
        let sight = self.sight(state);
        if matches!(self.runs.get(index).get(name), Known::Value(stored) if sight.of(stored).is_none()) {
            self.write_entry(index, &name.into(), None)?;
        }
        match self.runs.get(index).get(name) {
            Known::Value(stored) => Ok(sight.of(stored)),
            Known::Absent => Ok(None),
            Known::Unknown => Err(self.misuse("an entry that was fetched is not in the cache".to_owned())),
        }
    }

    /// The value of entry number `number` among those looked for last, as far as memory knows; `None`: it does not, or the value has
    /// expired, and [`KeyedState::map_get`] is to be asked after [`KeyedState::fetch_wanted`].
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_look(&mut self, state: usize, number: usize, name: &[u8]) -> Result<Option<Option<&[u8]>>, Error> {
        let (index, at) = self.guessed(number, name)?;
        if self.runs.get(index).known(at) == Known::Unknown {
            self.want(index, Some(name))?;
            return Ok(None);
        }
        self.gauges.hits += 1;
        let sight = self.sight(state);
        Ok(match self.runs.get(index).known(at) {
            Known::Value(stored) => sight.of(stored).map(Some),
            Known::Absent => Some(None),
            Known::Unknown => None,
        })
    }

    /// Writes entry number `number` among those looked for last if memory knows what it replaces, else it is wanted; whether it is
    /// written.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_write_known(&mut self, number: usize, name: &Name, value: Option<&Value>) -> Result<bool, Error> {
        let (index, at) = self.guessed(number, name)?;
        if self.write_known(index, (name, at), value.cloned())? {
            self.gauges.hits += 1;
            return Ok(true);
        }
        self.want(index, Some(name))?;
        Ok(false)
    }

    /// How many entries a map has, and their bytes.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_head(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<Tally, Error> {
        let index = self.run(StateKind::Map, (state, key, hash))?;
        self.head(index)
    }

    /// Reads what is not in the cache of `wanted` (keys with their hashes and map keys) at once, so that [`KeyedState::map_get`] and
    /// writes find it there.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_load<'a>(
        &mut self,
        state: usize,
        wanted: impl Iterator<Item = (&'a [u8], KeyHash, &'a [u8])>,
    ) -> Result<(), Error> {
        self.begin_wanted();
        for (key, hash, name) in wanted {
            let index = self.run(StateKind::Map, (state, key, hash))?;
            self.want(index, Some(name))?;
        }
        self.fetch_wanted()
    }

    /// Stamps an entry that was read anew, if it is alive.
    pub(super) fn map_touch(
        &mut self,
        place: Place<'_>,
        name: &Name,
        (ttl, stamp): (&Ttl, Stamp),
    ) -> Result<(), Error> {
        let index = self.run(StateKind::Map, place)?;
        self.know(index, Some(name))?;
        self.touch_entry(index, name, ttl, stamp)
    }

    /// Puts a value under a map key. In a state with a TTL it begins with its stamp ([`super::stamped`]).
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_put(&mut self, place: Place<'_>, name: &Name, value: Value) -> Result<(), Error> {
        self.map_write(place, name, Some(value))
    }

    /// Removes what is under a map key, if there is anything.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_remove(&mut self, place: Place<'_>, name: &Name) -> Result<(), Error> {
        self.map_write(place, name, None)
    }

    /// Removes all entries of a map; costs the same however many there are.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_clear(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<(), Error> {
        let index = self.run(StateKind::Map, (state, key, hash))?;
        self.clear_all(index)
    }

    /// At most `limit` entries within `range`. What `newer` says of an entry, `None` for removed, hides what the state says: it has
    /// entries within the range, each once, in order.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn map_page<'a>(
        &mut self,
        place: Place<'_>,
        range: Range<'_>,
        limit: usize,
        newer: impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<Page, Error> {
        let mut page = Page::default();
        self.relieve();
        let index = self.run(StateKind::Map, place)?;
        if range.is_empty() {
            return Ok(page);
        }
        self.know(index, None)?;
        if !self.runs.get(index).is_complete() && self.is_small(index) {
            self.gauges.misses += 1;
            self.load_all(index)?;
        }
        let released = self.writer.released();
        self.runs.with(index, |run| run.prune(released));
        let sight = self.scan_sight(index);
        self.scan((index, sight), range, (&mut page, limit), newer, false)?;
        Ok(page)
    }

    /// The same where what `own` says is all that the map has.
    ///
    /// # Errors
    /// None: what is in memory can be read.
    pub fn map_page_of<'a>(
        &self,
        state: usize,
        (range, limit): (Range<'_>, usize),
        own: impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<Page, Error> {
        let mut page = Page::default();
        page.fill(Walk::new(own, range.reverse), limit, self.sight(state))?;
        Ok(page)
    }

    fn map_write(&mut self, place: Place<'_>, name: &Name, value: Option<Value>) -> Result<(), Error> {
        let index = self.run(StateKind::Map, place)?;
        self.know(index, Some(name))?;
        self.write_entry(index, name, value)
    }
}
