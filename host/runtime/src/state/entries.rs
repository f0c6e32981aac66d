//! The entries that the run of one key has in memory: found by their names at once, and in order once anyone asks for an order.
//!
//! Owns how they lie in memory, and what that takes. Does not own what an entry means to its run ([`super::run`]).
//!
//! Few entries are looked through, more of them hashed. The order is a tree beside them that a run gets with its first scan and
//! that is kept from then on: a map that is only looked up pays nothing for it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use wasmill_core::slice::Slice;

/// Entries up to which all are looked through.
const FEW: usize = 8;

/// Memory of an entry beside what lies apart: its place in a list that has room to grow, and in a table.
const ENTRY_BYTES: usize = size_of::<Entry>() * 3 / 2 + 2 * size_of::<Slot>();

/// What the order adds: a place in a tree that is two thirds full.
const ORDER_BYTES: usize = (size_of::<Slice>() + size_of::<u32>()) * 3 / 2;

/// One entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Slice,
    /// `None`: known to be absent.
    pub(super) value: Option<Slice>,
    hash: u32,
    /// Its place in the changes that carry it.
    pub(super) at: u32,
    /// The sequence of those changes; 0: RocksDB has it.
    pub(super) written: u64,
}

/// An entry's place in the table, with the hash of its name.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    index: u32,
}

/// The hash of a name in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameHash(u32);

/// Where an entry is, until entries are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryAt(u32);

/// Entries by name.
#[derive(Debug, Default)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// Their places, once they are more than a few.
    table: HashTable<Slot>,
    /// Their places by name, once they were asked for in order.
    order: Option<BTreeMap<Slice, u32>>,
    hasher: RandomState,
    /// How many are known to be absent.
    absent: usize,
    /// Bytes of names and values that lie apart.
    apart: usize,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many are known to be absent.
    pub(super) fn absent(&self) -> usize {
        self.absent
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        let order = if self.order.is_some() { ORDER_BYTES } else { 0 };
        self.apart + self.entries.len() * (ENTRY_BYTES + order)
    }

    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<EntryAt> {
        let hash = self.hash(name).0;
        if self.entries.len() <= FEW {
            let at = self.entries.iter().position(|entry| entry.hash == hash && *entry.name == *name);
            return at.map(|at| EntryAt(at as u32));
        }
        let is_it = |slot: &Slot| slot.hash == hash && *self.entries[slot.index as usize].name == *name;
        self.table.find(spread(hash), is_it).map(|slot| EntryAt(slot.index))
    }

    #[inline]
    pub(super) fn hash(&self, name: &[u8]) -> NameHash {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name);
        NameHash((hasher.finish() >> 32) as u32)
    }

    /// The entry whose name has this hash, which is almost always the one: to be confirmed by [`Entries::holds`].
    #[inline]
    pub(super) fn candidate(&self, NameHash(hash): NameHash) -> Option<EntryAt> {
        if self.entries.len() <= FEW {
            return self.entries.iter().position(|entry| entry.hash == hash).map(|at| EntryAt(at as u32));
        }
        self.table.find(spread(hash), |slot| slot.hash == hash).map(|slot| EntryAt(slot.index))
    }

    /// Whether the entry that may be at `at` is there, and has this name.
    #[inline]
    pub(super) fn holds(&self, at: EntryAt, name: &[u8]) -> bool {
        self.entries.get(at.0 as usize).is_some_and(|entry| *entry.name == *name)
    }

    #[inline]
    pub(super) fn get(&self, at: EntryAt) -> &Entry {
        &self.entries[at.0 as usize]
    }

    /// Adds an entry that is not here.
    pub(super) fn insert(&mut self, name: Slice, value: Option<Slice>, (at, written): (u32, u64)) {
        self.apart += name.apart() + value.as_ref().map_or(0, Slice::apart);
        self.absent += usize::from(value.is_none());
        let index = self.entries.len() as u32;
        if let Some(order) = &mut self.order {
            order.insert(name.clone(), index);
        }
        let NameHash(hash) = self.hash(&name);
        self.entries.push(Entry { name, value, hash, at, written });
        match self.entries.len() {
            ..=FEW => {}
            len if self.table.len() + 1 == len => self.place(index),
            _ => (0..=index).for_each(|index| self.place(index)),
        }
    }

    /// Gives an entry another value, which is the change at a place of changes; returns the one it had.
    pub(super) fn replace(&mut self, at: EntryAt, value: Option<Slice>, change: (u32, u64)) -> Option<Slice> {
        let entry = &mut self.entries[at.0 as usize];
        self.apart += value.as_ref().map_or(0, Slice::apart);
        self.absent += usize::from(value.is_none());
        (entry.at, entry.written) = change;
        let before = std::mem::replace(&mut entry.value, value);
        self.apart -= before.as_ref().map_or(0, Slice::apart);
        self.absent -= usize::from(before.is_none());
        before
    }

    /// Drops entries that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
        self.order = None;
        self.table.clear();
        let apart = |entry: &Entry| entry.name.apart() + entry.value.as_ref().map_or(0, Slice::apart);
        self.apart = self.entries.iter().map(apart).sum();
        self.absent = self.entries.iter().filter(|entry| entry.value.is_none()).count();
        if self.entries.len() > FEW {
            (0..self.entries.len() as u32).for_each(|index| self.place(index));
        }
        // What is left may be much less.
        self.entries.shrink_to(2 * self.entries.len());
        self.table.shrink_to(2 * self.table.len(), |slot| spread(slot.hash));
    }

    /// Brings the entries into order, for [`Entries::range`].
    pub(super) fn put_in_order(&mut self) {
        if self.order.is_none() {
            let names = self.entries.iter().map(|entry| entry.name.clone());
            self.order = Some(names.zip(0..).collect());
        }
    }

    /// The entries within bounds, which must not cross, in order; none before they were put in order.
    pub(super) fn range<'a>(
        &'a self,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> impl DoubleEndedIterator<Item = &'a Entry> {
        let within = self.order.iter().flat_map(move |order| order.range::<[u8], _>(bounds));
        within.map(|(_, &at)| &self.entries[at as usize])
    }

    fn place(&mut self, index: u32) {
        let hash = self.entries[index as usize].hash;
        self.table.insert_unique(spread(hash), Slot { hash, index }, |slot| spread(slot.hash));
    }
}

/// hashbrown takes the bucket from the lower bits and seven more from the top.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a tree, with names that are short and long.
        #[test]
        fn entries_are_found_by_name_and_come_in_order(
            steps in proptest::collection::vec((0..60usize, proptest::option::of(0..40usize), 0..20u8), 0..200),
        ) {
            let (mut entries, mut tree) = (Entries::default(), BTreeMap::new());
            for (name, value, step) in steps {
                let name = vec![name as u8; name % 30 + 1];
                let value = value.map(|len| vec![len as u8; len]);
                let stored = value.as_deref().map(Slice::from);
                match entries.find(&name) {
                    Some(at) => drop(entries.replace(at, stored, (0, 0))),
                    None => entries.insert(Slice::from(&name[..]), stored, (0, 0)),
                }
                tree.insert(name, value);
                match step {
                    0 => {
                        entries.retain(|entry| entry.value.is_some());
                        tree.retain(|_, value| value.is_some());
                    }
                    1 => entries.put_in_order(),
                    _ => {}
                }
                prop_assert_eq!(entries.len(), tree.len());
                prop_assert_eq!(entries.absent(), tree.values().filter(|value| value.is_none()).count());
                let is_found = |name: &[u8], value: Option<&[u8]>| {
                    entries.find(name).is_some_and(|at| entries.get(at).value.as_deref() == value)
                };
                let all_found = tree.iter().all(|(name, value)| is_found(name, value.as_deref()));
                prop_assert!(all_found);
                prop_assert!(entries.find(b"\xff").is_none());
            }
            entries.put_in_order();
            let all = entries.range((Bound::Unbounded, Bound::Unbounded));
            prop_assert!(all.map(|entry| &*entry.name).eq(tree.keys().map(Vec::as_slice)));
            entries.retain(|_| false);
            prop_assert_eq!((entries.bytes(), entries.absent()), (0, 0));
        }
    }
}
