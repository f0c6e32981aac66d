//! One layer of the cache: entries by (state, key) with the latest value of each, or the mark that there is none.
//!
//! Owns memory layout and look-up. Does not own which layer is asked first, nor what becomes of a layer.
//!
//! Keys and values lie in chunks of memory and are overwritten in place where they fit, so that a write allocates nothing
//! for itself; an emptied layer keeps its memory for the next use. A layer can be read by two threads, and drained from its
//! end while it is still read.

use hashbrown::HashTable;
use wasmill_core::key_group::{KeyGroup, KeyHash};

use super::row;

/// Room beside a new value, so that a number that grows by some bytes stays where it is.
const SLACK: usize = 8;

/// What is looked up: a key of a state, with its hash mixed beforehand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    tag: u32,
    pub(super) state: u16,
    pub(super) bytes: &'a [u8],
}

impl<'a> Key<'a> {
    pub(super) fn new(state: u16, hash: KeyHash, bytes: &'a [u8]) -> Self {
        // A subtask's keys share what the hash is modulo the number of key groups; the upper half of the product depends on
        // all lower bits, so the tags spread all the same.
        let mixed = (hash.0 ^ u64::from(state).wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { tag: (mixed >> 32) as u32, state, bytes }
    }
}

/// An entry as it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryRef<'a> {
    pub(super) key: Key<'a>,
    pub(super) group: KeyGroup,
    /// `None`: known to be absent.
    pub(super) value: Option<&'a [u8]>,
}

/// Where an entry of a layer is, until the layer is drained or cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryIndex(u32);

#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u32,
    index: u32,
}

impl Slot {
    fn hash(tag: u32) -> u64 {
        // hashbrown takes the bucket from the lower bits and seven more from the top.
        u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: At,
    tag: u32,
    key_len: u32,
    value_len: u32,
    room: u32,
    group: KeyGroup,
    state: u16,
    present: bool,
}

/// Entries by (state, key).
#[derive(Debug)]
pub(super) struct Layer {
    table: HashTable<Slot>,
    entries: Vec<Entry>,
    arena: Arena,
    moving: Vec<u8>,
}

impl Layer {
    /// An empty layer that takes memory in chunks of `chunk_bytes`.
    pub(super) fn new(chunk_bytes: usize) -> Self {
        Self { table: HashTable::new(), entries: Vec::new(), arena: Arena::new(chunk_bytes), moving: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes in use: keys, values with the room left for them, and the index.
    pub(super) fn bytes(&self) -> usize {
        // The table is between half and seven eighths full.
        self.arena.used + self.entries.len() * (size_of::<Entry>() + 2 * size_of::<Slot>())
    }

    pub(super) fn find(&self, key: &Key<'_>) -> Option<EntryIndex> {
        let slot =
            self.table.find(Slot::hash(key.tag), |slot| slot.tag == key.tag && self.holds(EntryIndex(slot.index), key));
        slot.map(|slot| EntryIndex(slot.index))
    }

    /// The entry whose key has the same mixed hash, which is almost always the key's: to be confirmed by [`Layer::holds`]. None
    /// where the key is surely not in the layer.
    pub(super) fn candidate(&self, key: &Key<'_>) -> Option<EntryIndex> {
        self.table.find(Slot::hash(key.tag), |slot| slot.tag == key.tag).map(|slot| EntryIndex(slot.index))
    }

    /// Reads a byte of the entry and returns it, so that the entry is at hand soon after.
    pub(super) fn touch(&self, index: EntryIndex) -> u8 {
        let entry = self.entries.get(index.0 as usize);
        entry.and_then(|entry| self.arena.byte(entry.at)).unwrap_or_default()
    }

    /// Whether the entry is that of `key`.
    pub(super) fn holds(&self, index: EntryIndex, key: &Key<'_>) -> bool {
        // Slots of drained entries stay behind and match nothing.
        self.entries
            .get(index.0 as usize)
            .is_some_and(|entry| entry.state == key.state && self.arena.get(entry.at, 0, entry.key_len) == key.bytes)
    }

    pub(super) fn value(&self, index: EntryIndex) -> Option<&[u8]> {
        let entry = &self.entries[index.0 as usize];
        entry.present.then(|| self.arena.get(entry.at, entry.key_len, entry.value_len))
    }

    pub(super) fn entry(&self, index: EntryIndex) -> EntryRef<'_> {
        let entry = &self.entries[index.0 as usize];
        let bytes = self.arena.get(entry.at, 0, entry.key_len);
        let key = Key { tag: entry.tag, state: entry.state, bytes };
        EntryRef { key, group: entry.group, value: self.value(index) }
    }

    /// The group of an entry and the length of its value.
    pub(super) fn shape(&self, index: EntryIndex) -> (KeyGroup, Option<usize>) {
        let entry = &self.entries[index.0 as usize];
        (entry.group, entry.present.then_some(entry.value_len as usize))
    }

    /// Adds an entry whose key is not in the layer.
    pub(super) fn insert(&mut self, entry: EntryRef<'_>) -> EntryIndex {
        let EntryRef { key, group, value } = entry;
        let present = value.is_some();
        let value = value.unwrap_or_default();
        let (at, room) = self.arena.add(key.bytes, value, SLACK);
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            at,
            tag: key.tag,
            key_len: key.bytes.len() as u32,
            value_len: value.len() as u32,
            room: room as u32,
            group,
            state: key.state,
            present,
        });
        self.table.insert_unique(Slot::hash(key.tag), Slot { tag: key.tag, index }, |slot| Slot::hash(slot.tag));
        EntryIndex(index)
    }

    /// Gives an entry another value.
    pub(super) fn overwrite(&mut self, index: EntryIndex, value: Option<&[u8]>) {
        let entry = &mut self.entries[index.0 as usize];
        let Some(value) = value else {
            entry.present = false;
            return;
        };
        entry.present = true;
        entry.value_len = value.len() as u32;
        if value.len() > entry.room as usize {
            self.moving.clear();
            self.moving.extend_from_slice(self.arena.get(entry.at, 0, entry.key_len));
            // A value that outgrew its room is likely to grow on.
            let (at, room) = self.arena.add(&self.moving, value, SLACK + value.len() / 2);
            entry.at = at;
            entry.room = room as u32;
        } else {
            self.arena.get_mut(entry.at, entry.key_len, entry.value_len).copy_from_slice(value);
        }
    }

    /// Adds the entry, or gives the one with its key another value.
    pub(super) fn set(&mut self, entry: EntryRef<'_>) {
        match self.find(&entry.key) {
            Some(index) => self.overwrite(index, entry.value),
            None => {
                self.insert(entry);
            }
        }
    }

    /// The entry that [`Layer::pop`] removes next.
    pub(super) fn last(&self) -> Option<EntryRef<'_>> {
        let index = self.entries.len().checked_sub(1)?;
        Some(self.entry(EntryIndex(index as u32)))
    }

    /// Removes the last entry; the layer takes no new one before it is cleared.
    pub(super) fn pop(&mut self) {
        self.entries.pop();
    }

    /// Empties the layer and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.entries.clear();
        self.arena.clear();
    }

    /// All entries, in the order of their rows: by state, key group, key.
    pub(super) fn sorted(&self) -> impl Iterator<Item = EntryRef<'_>> {
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        order.sort_unstable_by(|a, b| {
            let (a, b) = (&self.entries[*a as usize], &self.entries[*b as usize]);
            let by_group = (a.state, a.group).cmp(&(b.state, b.group));
            by_group
                .then_with(|| row::compare_keys(self.arena.get(a.at, 0, a.key_len), self.arena.get(b.at, 0, b.key_len)))
        });
        order.into_iter().map(|index| self.entry(EntryIndex(index)))
    }
}

/// A place in an [`Arena`].
#[derive(Debug, Clone, Copy)]
struct At {
    chunk: u32,
    offset: u32,
}

/// Bytes in chunks that never move.
#[derive(Debug)]
struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The chunk that is being filled.
    open: usize,
    /// Emptied chunks.
    spare: Vec<Vec<u8>>,
    chunk_bytes: usize,
    used: usize,
}

impl Arena {
    fn new(chunk_bytes: usize) -> Self {
        Self { chunks: Vec::new(), open: 0, spare: Vec::new(), chunk_bytes, used: 0 }
    }

    fn get(&self, at: At, skip: u32, len: u32) -> &[u8] {
        let start = at.offset as usize + skip as usize;
        &self.chunks[at.chunk as usize][start..start + len as usize]
    }

    fn byte(&self, at: At) -> Option<u8> {
        self.chunks.get(at.chunk as usize)?.get(at.offset as usize).copied()
    }

    fn get_mut(&mut self, at: At, skip: u32, len: u32) -> &mut [u8] {
        let start = at.offset as usize + skip as usize;
        &mut self.chunks[at.chunk as usize][start..start + len as usize]
    }

    /// Adds key and value; returns their place and the room for the value, at least `slack` more than it needs.
    fn add(&mut self, key: &[u8], value: &[u8], slack: usize) -> (At, usize) {
        let size = (key.len() + value.len() + slack).next_multiple_of(8);
        let chunk = self.chunk_for(size);
        let bytes = &mut self.chunks[chunk];
        let offset = bytes.len();
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        bytes.resize(offset + size, 0);
        self.used += size;
        (At { chunk: chunk as u32, offset: offset as u32 }, size - key.len())
    }

    fn chunk_for(&mut self, size: usize) -> usize {
        if self.chunks.get(self.open).is_some_and(|chunk| chunk.capacity() - chunk.len() >= size) {
            return self.open;
        }
        // What would leave much of a chunk unused gets one of its own.
        if size > self.chunk_bytes / 4 {
            self.chunks.push(Vec::with_capacity(size));
            return self.chunks.len() - 1;
        }
        let chunk = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.chunk_bytes));
        self.chunks.push(chunk);
        self.open = self.chunks.len() - 1;
        self.open
    }

    fn clear(&mut self) {
        for mut chunk in self.chunks.drain(..) {
            if chunk.capacity() == self.chunk_bytes {
                chunk.clear();
                self.spare.push(chunk);
            }
        }
        self.open = 0;
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(state: u16, key: &'a [u8], value: Option<&'a [u8]>) -> EntryRef<'a> {
        EntryRef { key: Key::new(state, KeyHash::of(key), key), group: KeyGroup(key.len() as u16), value }
    }

    fn get<'a>(layer: &'a Layer, state: u16, key: &[u8]) -> Option<Option<&'a [u8]>> {
        layer.find(&Key::new(state, KeyHash::of(key), key)).map(|index| layer.value(index))
    }

    #[test]
    fn a_value_of_any_length_replaces_one_of_any_length() {
        let mut layer = Layer::new(256);
        let lengths = [0, 1, 9, 300, 8, 60_000, 2, 17];
        for round in 0..lengths.len() {
            for key in 0..20u8 {
                let len = lengths[(round + usize::from(key)) % lengths.len()];
                layer.set(entry(0, &[key], Some(&vec![key; len])));
                assert_eq!(get(&layer, 0, &[key]), Some(Some(&vec![key; len][..])));
            }
        }
        assert_eq!(layer.len(), 20);
    }

    #[test]
    fn the_same_key_in_two_states_is_two_entries() {
        let mut layer = Layer::new(256);
        layer.set(entry(0, b"k", Some(b"zero")));
        layer.set(entry(1, b"k", None));
        assert_eq!(get(&layer, 0, b"k"), Some(Some(&b"zero"[..])));
        assert_eq!(get(&layer, 1, b"k"), Some(None));
        assert_eq!(get(&layer, 2, b"k"), None);
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let mut layer = Layer::new(256);
        for byte in 0..100u8 {
            let key = Key::new(0, KeyHash(7), std::slice::from_ref(&byte)).bytes.to_vec();
            layer.insert(EntryRef { key: Key::new(0, KeyHash(7), &key), group: KeyGroup(7), value: Some(&key) });
        }
        for byte in 0..100u8 {
            let index = layer.find(&Key::new(0, KeyHash(7), &[byte])).unwrap();
            assert_eq!(layer.value(index), Some(&[byte][..]));
        }
    }

    #[test]
    fn what_is_not_yet_drained_is_still_found() {
        let mut layer = Layer::new(256);
        let keys: Vec<[u8; 4]> = (0..1_000u32).map(u32::to_be_bytes).collect();
        for key in &keys {
            layer.insert(entry(0, key, Some(key)));
        }
        for left in (0..keys.len()).rev() {
            assert_eq!(layer.last().unwrap().key.bytes, keys[left]);
            layer.pop();
            assert_eq!(get(&layer, 0, &keys[left]), None);
            assert!(left == 0 || get(&layer, 0, &keys[left - 1]).is_some());
        }
        layer.clear();
        assert_eq!(layer.bytes(), 0);
        layer.set(entry(0, &keys[3], None));
        assert_eq!(get(&layer, 0, &keys[3]), Some(None));
    }

    #[test]
    fn entries_are_sorted_as_their_rows_are() {
        let mut layer = Layer::new(256);
        for len in [300, 1, 128, 0, 127, 2] {
            layer.set(entry(1, &vec![9; len], None));
            layer.set(entry(0, &vec![len as u8; len], None));
            layer.set(entry(0, &vec![3; len], None));
        }
        let rows: Vec<(u16, Vec<u8>)> = layer
            .sorted()
            .map(|entry| {
                let mut row = Vec::new();
                row::encode_key(entry.group, entry.key.bytes, &mut row);
                (entry.key.state, row)
            })
            .collect();
        assert!(rows.is_sorted());
        assert_eq!(rows.len(), layer.len());
    }
}
