//! Value state as the subtask uses it.
//!
//! Owns the operations on values: many are looked up together, so that their reads of memory overlap. Does not own the cache
//! ([`super::cache`]), nor which values are readable ([`super::lifetime`]).

use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::{KeyGroup, KeyHash};
use wasmill_core::record::Column;
use wasmill_core::ttl::Stamp;

use super::backend::Rows;
use super::cache::Spot;
use super::collection::Place;
use super::error::Error;
use super::keyed::{KeyedState, MAX_PIECE};
use super::layer::{EntryRef, Key};
use super::lifetime::{Sight, split, stamp_into};
use super::{EagerOut, row};

/// Keys looked up together, so that their reads of memory overlap: few enough to stay in the processor's nearest cache.
const BLOCK: usize = 64;

/// Keys of a batch that are not in the cache.
#[derive(Default)]
pub(super) struct Missing {
    /// Their indexes in the batch, ascending, with their groups.
    slots: Vec<(usize, KeyGroup)>,
    rows: Rows,
    /// Keys whose values have expired, by index.
    expired: Vec<usize>,
}

/// What is known of a key without asking RocksDB.
enum Known {
    At(Spot),
    Absent,
    /// RocksDB must be asked.
    Unknown(KeyGroup),
}

impl KeyedState {
    /// Appends the value of each of `keys` (distinct, with their `hashes`) to `out`, in order: one look-up each in the cache,
    /// then one read of RocksDB for all that are not there.
    ///
    /// # Errors
    /// A failure of RocksDB or of the background thread, a row that cannot be read, a key of another subtask.
    pub fn load_values(
        &mut self,
        state: usize,
        keys: &Column,
        hashes: &[KeyHash],
        mut out: EagerOut<'_>,
    ) -> Result<(), Error> {
        let id = self.check(state, StateKind::Value)?;
        if keys.len() != hashes.len() {
            return Err(self.misuse(format!("{} keys came with {} hashes", keys.len(), hashes.len())));
        }
        self.missing.slots.clear();
        self.missing.rows.clear();
        let sight = self.sight(state);
        for start in (0..keys.len()).step_by(BLOCK) {
            let end = keys.len().min(start + BLOCK);
            self.cache.guess((start..end).map(|slot| Key::new(id, hashes[slot], keys.get(slot))), &mut self.spots);
            #[expect(clippy::needless_range_loop, reason = "the slot indexes keys and hashes alike")]
            for slot in start..end {
                let (bytes, hash) = (keys.get(slot), hashes[slot]);
                let key = Key::new(id, hash, bytes);
                let known = match self.spots[slot - start] {
                    Some(spot) if self.cache.holds(spot, &key) => Known::At(spot),
                    _ => self.known(&key, hash)?,
                };
                match known {
                    Known::Unknown(group) => {
                        self.missing.slots.push((slot, group));
                        self.missing.rows.push_with(|row| row::encode_key(group, bytes, row));
                    }
                    // Past the first missing key, values wait for their turn.
                    _ if !self.missing.slots.is_empty() => {}
                    Known::At(spot) => self.push_seen(sight, (slot, spot), &mut out),
                    Known::Absent => out.push(None),
                }
            }
        }
        self.gauges.hits += (keys.len() - self.missing.slots.len()) as u64;
        if let Some(&(first, _)) = self.missing.slots.first() {
            self.fetch(id, keys, hashes)?;
            for (slot, (bytes, &hash)) in keys.iter().zip(hashes).enumerate().skip(first) {
                match self.known(&Key::new(id, hash, bytes), hash)? {
                    Known::At(spot) => self.push_seen(sight, (slot, spot), &mut out),
                    Known::Absent => out.push(None),
                    Known::Unknown(_) => {
                        return Err(self.misuse("a key that was fetched is not in the cache".to_owned()));
                    }
                }
            }
        }
        self.drop_expired(state, keys, hashes)?;
        if out.bytes.len() > MAX_PIECE { Err(self.too_large(state, out.bytes.len())) } else { Ok(()) }
    }

    /// The value of one key.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<Option<&[u8]>, Error> {
        let Some(spot) = self.stored_value(state, key, hash)? else { return Ok(None) };
        let sight = self.sight(state);
        if self.cache.value(spot).is_some_and(|stored| sight.of(stored).is_none()) {
            self.expire_value(state, key, hash)?;
            return Ok(None);
        }
        Ok(self.cache.value(spot).and_then(|stored| sight.of(stored)))
    }

    /// Where the stored value of one key is, if the key may have one; it is asked for if it is not in the cache.
    pub(super) fn stored_value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<Option<Spot>, Error> {
        let id = self.check(state, StateKind::Value)?;
        let key = Key::new(id, hash, key);
        Ok(match self.known(&key, hash)? {
            Known::Absent => {
                self.gauges.hits += 1;
                None
            }
            Known::At(spot) => {
                self.gauges.hits += 1;
                Some(spot)
            }
            Known::Unknown(group) => {
                self.gauges.misses += 1;
                let row = self.rows.get(state, group, key.bytes, &mut self.row_key)?;
                let value = match &row {
                    Some(row) => Some(self.rows.decode(state, row, &mut self.stored)?),
                    None => None,
                };
                Some(self.cache.insert_clean(EntryRef { key, group, value }))
            }
        })
    }

    /// Stamps a value that was read anew, if it is alive.
    pub(super) fn touch_value(
        &mut self,
        (state, key, hash): Place<'_>,
        (ttl, stamp): (&Ttl, Stamp),
    ) -> Result<(), Error> {
        let Some(spot) = self.stored_value(state, key, hash)? else { return Ok(()) };
        let Some((before, value)) = self.cache.value(spot).map(split) else { return Ok(()) };
        if !self.lifetimes.judge(*ttl).is_alive(before) || ttl.restamped(before, stamp) == before {
            return Ok(());
        }
        let mut stored = std::mem::take(&mut self.stored);
        stamp_into(ttl.restamped(before, stamp), value, &mut stored);
        let written = self.write(state, key, hash, Some(&stored));
        self.stored = stored;
        written
    }

    /// Sets the value of one key. In a state with a TTL, `value` begins with its stamp ([`stamp_into`]).
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn set_value(&mut self, state: usize, key: &[u8], hash: KeyHash, value: &[u8]) -> Result<(), Error> {
        if key.len() > MAX_PIECE || value.len() > MAX_PIECE {
            return Err(self.too_large(state, key.len().max(value.len())));
        }
        match self.ttl(state) {
            None => self.write(state, key, hash, Some(value)),
            Some(ttl) => self.write_stamped(ttl, (state, key, hash), value),
        }
    }

    /// Removes the value of one key, if it has one.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn clear_value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<(), Error> {
        self.value_leaves((state, key, hash))?;
        self.write(state, key, hash, None)
    }

    /// Sets a value whose stamp must not go back.
    fn write_stamped(
        &mut self,
        ttl: Ttl,
        (state, key, hash): (usize, &[u8], KeyHash),
        stored: &[u8],
    ) -> Result<(), Error> {
        self.value_leaves((state, key, hash))?;
        let before =
            self.stored_value(state, key, hash)?.and_then(|spot| self.cache.value(spot)).map(|was| split(was).0);
        let (stamp, value) = split(stored);
        match before.map(|before| ttl.restamped(before, stamp)) {
            Some(later) if later != stamp => {
                let mut memory = std::mem::take(&mut self.stored);
                stamp_into(later, value, &mut memory);
                let written = self.write(state, key, hash, Some(&memory));
                self.stored = memory;
                written
            }
            _ => self.write(state, key, hash, Some(stored)),
        }
    }

    /// Removes the values that a look-up found expired.
    fn drop_expired(&mut self, state: usize, keys: &Column, hashes: &[KeyHash]) -> Result<(), Error> {
        while let Some(slot) = self.missing.expired.pop() {
            self.expire_value(state, keys.get(slot), hashes[slot])?;
        }
        Ok(())
    }

    /// Removes a value that has expired.
    pub(super) fn expire_value(&mut self, state: usize, key: &[u8], hash: KeyHash) -> Result<(), Error> {
        self.value_leaves((state, key, hash))?;
        self.write(state, key, hash, None)
    }

    fn push_seen(&mut self, sight: Sight, (slot, spot): (usize, Spot), out: &mut EagerOut<'_>) {
        let stored = self.cache.value(spot);
        let seen = stored.and_then(|stored| sight.of(stored));
        if stored.is_some() && seen.is_none() {
            self.missing.expired.push(slot);
        }
        out.push(seen);
    }

    fn write(&mut self, state: usize, key: &[u8], hash: KeyHash, value: Option<&[u8]>) -> Result<(), Error> {
        let id = self.check(state, StateKind::Value)?;
        let id = Key::new(id, hash, key);
        let (group, previous) = if let Some(index) = self.cache.fresh.find(&id) {
            let shape = self.cache.fresh.shape(index);
            self.cache.fresh.overwrite(index, value);
            shape
        } else {
            let group = self.group(hash)?;
            let previous = self.length(state, &id, group)?;
            if previous.is_none() && value.is_none() {
                return Ok(());
            }
            self.cache.fresh.insert(EntryRef { key: id, group, value });
            (group, previous)
        };
        self.count(state, group, key.len(), previous, value.map(<[u8]>::len));
        Ok(())
    }

    /// The length of the value of a key that is not fresh.
    fn length(&mut self, state: usize, key: &Key<'_>, group: KeyGroup) -> Result<Option<usize>, Error> {
        if let Some(spot) = self.cache.find_as_it_is(key) {
            return Ok(self.cache.value(spot).map(<[u8]>::len));
        }
        if self.is_absent(usize::from(key.state), group) {
            return Ok(None);
        }
        self.gauges.misses += 1;
        let row = self.rows.get(state, group, key.bytes, &mut self.row_key)?;
        row.map(|row| self.rows.decode(state, &row, &mut self.stored).map(<[u8]>::len)).transpose()
    }

    fn known(&mut self, key: &Key<'_>, hash: KeyHash) -> Result<Known, Error> {
        if let Some(spot) = self.cache.find(key) {
            // It was checked to be of this subtask when it came into the cache.
            return Ok(Known::At(spot));
        }
        let group = self.group(hash)?;
        if self.is_absent(usize::from(key.state), group) { Ok(Known::Absent) } else { Ok(Known::Unknown(group)) }
    }

    /// Whether a key of `group` that is in no layer cannot be in RocksDB either.
    fn is_absent(&mut self, state: usize, group: KeyGroup) -> bool {
        self.cache.is_complete() || self.has_none(state, group)
    }

    /// Reads the missing keys' rows and keeps what they hold in the cache.
    fn fetch(&mut self, state: u16, keys: &Column, hashes: &[KeyHash]) -> Result<(), Error> {
        let index = usize::from(state);
        self.gauges.misses += self.missing.slots.len() as u64;
        let rows = self.rows.backend.get_many(index, &self.missing.rows)?;
        for (&(slot, group), row) in self.missing.slots.iter().zip(&rows) {
            let value = match row {
                Some(row) => Some(self.rows.decode(index, row, &mut self.stored)?),
                None => None,
            };
            let key = Key::new(state, hashes[slot], keys.get(slot));
            self.cache.insert_clean(EntryRef { key, group, value });
        }
        Ok(())
    }
}
