//! What was written to maps and lists since the last freeze: for the background thread, never read by anyone else.
//!
//! Owns that each key and each entry of a key stands there once, with what was written last. Does not own what a map or list
//! holds ([`super::run`] does) nor how changes become rows.

use wasmill_core::key_group::KeyGroup;
use wasmill_core::slice::Slice;

use super::row::{self, Head};

/// Changes by key, frozen whole.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) keys: Vec<KeyChanges>,
    bytes: usize,
}

/// What was written to the map or list of one key.
#[derive(Debug)]
pub(super) struct KeyChanges {
    pub(super) state: u16,
    pub(super) group: KeyGroup,
    pub(super) key: Slice,
    /// All rows that RocksDB has of it go first.
    pub(super) cleared: bool,
    /// How many entries it has afterwards.
    pub(super) head: Head,
    pub(super) entries: Vec<Change>,
}

/// What was written to one entry; `None`: it was removed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) entry: Slice,
    pub(super) value: Option<Slice>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes in use, what is shared with runs counted whole.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins the changes of a key that has none yet, and returns their place.
    pub(super) fn begin(&mut self, state: u16, group: KeyGroup, key: Slice) -> u32 {
        self.bytes += size_of::<KeyChanges>() + key.apart();
        let cleared = false;
        self.keys.push(KeyChanges { state, group, key, cleared, head: Head::default(), entries: Vec::new() });
        (self.keys.len() - 1) as u32
    }

    /// Says how many entries the key at `at` has now.
    pub(super) fn set_head(&mut self, at: u32, head: Head) {
        self.keys[at as usize].head = head;
    }

    /// Adds a change of an entry that has none among those of the key at `at`, and returns its place there.
    pub(super) fn add(&mut self, at: u32, entry: &Slice, value: Option<&Slice>) -> u32 {
        let change = Change { entry: entry.clone(), value: value.cloned() };
        self.bytes += change.bytes();
        let entries = &mut self.keys[at as usize].entries;
        entries.push(change);
        (entries.len() - 1) as u32
    }

    /// Reads a byte of the change at `(at, index)`, so that it is at hand soon after.
    pub(super) fn touch(&self, at: u32, index: u32) -> bool {
        let key = self.keys.get(at as usize);
        key.and_then(|key| key.entries.get(index as usize)).is_some_and(|change| change.value.is_some())
    }

    /// Gives the change at `(at, index)` another value.
    pub(super) fn replace(&mut self, at: u32, index: u32, value: Option<&Slice>) {
        let change = &mut self.keys[at as usize].entries[index as usize];
        self.bytes -= change.bytes();
        change.value = value.cloned();
        self.bytes += change.bytes();
    }

    /// Forgets the changes of the key's entries; `stored`: RocksDB may have rows of it, which must go.
    pub(super) fn clear(&mut self, at: u32, stored: bool) {
        let key = &mut self.keys[at as usize];
        self.bytes -= key.entries.iter().map(Change::bytes).sum::<usize>();
        key.entries.clear();
        key.head = Head::default();
        key.cleared |= stored;
    }

    /// Brings keys and entries into the order of their rows.
    pub(super) fn sort(&mut self) {
        self.keys.sort_unstable_by(|a, b| {
            (a.state, a.group).cmp(&(b.state, b.group)).then_with(|| row::compare_keys(&a.key, &b.key))
        });
        for key in &mut self.keys {
            key.entries.sort_unstable_by(|a, b| a.entry.cmp(&b.entry));
        }
    }
}

impl Change {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.entry.apart() + self.value.as_ref().map_or(0, Slice::apart)
    }
}
