//! The map or list of one key as the cache has it: an ordered run of entries, the newest of each.
//!
//! Owns which entries may be forgotten. Does not own RocksDB, counts, or which runs there are.
//!
//! A run is the only place where the subtask looks: what was written and is on its way to RocksDB is in the run until it is
//! there, marked with the sequence of the changes that carry it. So what a run does not have is as RocksDB says, or absent where
//! the run is *complete*.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::key_group::KeyGroup;

use super::changes::{Changes, SHARED_BYTES};
use super::row::Head;

/// Memory of an entry beside its bytes: its place in the tree, which is two thirds full, and two allocations.
const ENTRY_BYTES: usize = (size_of::<Arc<[u8]>>() + size_of::<Entry>()) * 3 / 2 + 2 * SHARED_BYTES;

/// Absent entries that a scan may step over before it is worth dropping them.
const PRUNED: usize = 32;

/// A map key or list position.
pub type Name = Arc<[u8]>;
/// The bytes of an entry.
pub type Value = Arc<[u8]>;

/// The map or list of one key.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) hash: u64,
    pub(super) state: u16,
    pub(super) group: KeyGroup,
    pub(super) key: Arc<[u8]>,
    /// How many entries there are, and their bytes as they are counted; `None`: RocksDB must be asked. Always known of a run that
    /// has changes.
    head: Option<Tally>,
    /// Of a list, the position of the first element.
    first: u64,
    /// Bytes of the stamp before each value, which are not counted.
    stamp: u8,
    /// What is not in `entries` does not exist.
    complete: bool,
    /// RocksDB has rows of the key, or may get some from changes that are frozen.
    stored: bool,
    entries: BTreeMap<Name, Entry>,
    /// How many of them are known to be absent.
    absent: usize,
    /// The sequence of the changes that carry what was written last, and the key's place in them.
    written: u64,
    at: u32,
    bytes: usize,
    /// It was used since the last look at what may be forgotten.
    pub(super) used: bool,
    /// What was released, and how large the run was, when its entries were last looked through.
    swept: (u64, usize),
    /// What was released when absent entries were last dropped.
    pruned: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: known to be absent.
    value: Option<Value>,
    /// The sequence of the changes that carry it, and its place there; 0: RocksDB has it.
    written: u64,
    at: u32,
}

/// What a run knows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'a> {
    Value(&'a Value),
    Absent,
    /// RocksDB must be asked.
    Unknown,
}

impl Run {
    /// A run that knows nothing; `empty`: that it has no entries.
    pub(super) fn new(hash: u64, (state, stamp): (u16, u8), group: KeyGroup, key: &[u8], empty: bool) -> Self {
        Self {
            hash,
            state,
            group,
            key: key.into(),
            head: empty.then(Tally::default),
            first: 0,
            stamp,
            complete: empty,
            stored: false,
            entries: BTreeMap::new(),
            absent: 0,
            written: 0,
            at: 0,
            bytes: 0,
            used: true,
            swept: (0, 0),
            pruned: 0,
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + SHARED_BYTES + self.key.len() + self.bytes
    }

    pub(super) fn head(&self) -> Option<Tally> {
        self.head
    }

    /// Of a list, the position of the first element.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The list begins at another position from the next write on.
    pub(super) fn begin_at(&mut self, first: u64) {
        self.first = first;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether it has any entry in memory.
    pub(super) fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    pub(super) fn get(&self, name: &[u8]) -> Known<'_> {
        match self.entries.get(name) {
            Some(Entry { value: Some(value), .. }) => Known::Value(value),
            Some(_) => Known::Absent,
            None if self.complete => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// Takes over what RocksDB says of the head.
    pub(super) fn learn_head(&mut self, Head { tally, first }: Head) {
        if self.head.is_some() {
            return;
        }
        (self.head, self.first) = (Some(tally), first);
        self.stored = tally.entries > 0;
        self.complete = tally.entries == 0;
    }

    /// Takes over what RocksDB says of an entry that the run does not have.
    pub(super) fn learn(&mut self, name: &[u8], value: Option<&[u8]>) {
        if !self.complete && !self.entries.contains_key(name) {
            self.bytes += entry_bytes(name.len(), value.map(<[u8]>::len));
            self.absent += usize::from(value.is_none());
            self.entries.insert(name.into(), Entry { value: value.map(Into::into), written: 0, at: 0 });
        }
    }

    /// All entries that RocksDB has were learned.
    pub(super) fn learned_all(&mut self) {
        self.complete = true;
    }

    /// Gives an entry another value, or removes it; `before` is the length of the value that it had. Changes are those that
    /// `sequence` will freeze. Returns how many entries there are afterwards.
    pub(super) fn write(
        &mut self,
        name: &Name,
        before: Option<usize>,
        value: Option<Value>,
        (changes, sequence): (&mut Changes, u64),
    ) -> Tally {
        let mut head = self.head.unwrap_or_default();
        if let Some(before) = before {
            head.entries = head.entries.saturating_sub(1);
            head.bytes = head.bytes.saturating_sub(self.counted(name, before));
        }
        if let Some(value) = &value {
            head += Tally { entries: 1, bytes: self.counted(name, value.len()) };
        }
        let at = self.begin(changes, sequence, head);
        let size = entry_bytes(name.len(), value.as_ref().map(|value| value.len()));
        self.absent += usize::from(value.is_none());
        match self.entries.get_mut(&**name) {
            Some(entry) => {
                self.absent -= usize::from(entry.value.is_none());
                self.bytes += size;
                self.bytes -= entry_bytes(name.len(), entry.value.as_ref().map(|value| value.len()));
                if entry.written == sequence {
                    changes.replace(at, entry.at, value.as_ref());
                } else {
                    (entry.at, entry.written) = (changes.add(at, name, value.as_ref()), sequence);
                }
                entry.value = value;
            }
            None => {
                self.bytes += size;
                let at = changes.add(at, name, value.as_ref());
                self.entries.insert(Arc::clone(name), Entry { value, written: sequence, at });
            }
        }
        head
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self, changes: &mut Changes, sequence: u64) {
        let at = self.begin(changes, sequence, Tally::default());
        changes.clear(at, self.stored);
        self.entries.clear();
        (self.bytes, self.absent) = (0, 0);
        self.complete = true;
    }

    /// What an entry counts for: its key, its name, its value.
    pub(super) fn counted(&self, name: &[u8], value: usize) -> u64 {
        (self.key.len() + name.len() + value - usize::from(self.stamp)) as u64
    }

    /// The entries within bounds that the run knows of, in order; `None`: known to be absent. The bounds must not cross.
    pub(super) fn range<'a>(
        &'a self,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.entries.range::<[u8], _>(bounds).map(|(name, entry)| (&**name, entry.value.as_deref()))
    }

    /// Whether the whole run may be forgotten, since RocksDB has what was written up to `released`.
    pub(super) fn is_clean(&self, released: u64) -> bool {
        self.written <= released
    }

    /// Forgets the entries that RocksDB has.
    pub(super) fn sweep(&mut self, released: u64) {
        // Looked through before to no avail, unless much was learned since.
        if self.swept.0 == released && self.bytes < 2 * self.swept.1 {
            return;
        }
        self.drop_entries(|entry| entry.written > released);
        self.swept = (released, self.bytes.max(ENTRY_BYTES));
    }

    /// Drops the mark of what was removed, where that is most of a complete run and RocksDB has it too: a scan would have to
    /// step over all of them.
    pub(super) fn prune(&mut self, released: u64) {
        if self.complete && self.pruned < released && self.absent > PRUNED && self.absent * 2 > self.entries.len() {
            self.drop_entries(|entry| entry.value.is_some() || entry.written > released);
            self.pruned = released;
        }
    }

    fn drop_entries(&mut self, keep: impl Fn(&Entry) -> bool) {
        let (mut bytes, mut absent, mut complete) = (0, 0, self.complete);
        self.entries.retain(|name, entry| {
            let keep = keep(entry);
            if keep {
                bytes += entry_bytes(name.len(), entry.value.as_ref().map(|value| value.len()));
                absent += usize::from(entry.value.is_none());
            } else {
                // What is absent in a complete run is absent without its mark, too.
                complete &= entry.value.is_none();
            }
            keep
        });
        (self.bytes, self.absent, self.complete) = (bytes, absent, complete);
    }

    /// The key's place in the changes, with its new head there.
    fn begin(&mut self, changes: &mut Changes, sequence: u64, head: Tally) -> u32 {
        if self.written != sequence {
            // What was frozen before is in RocksDB or will be.
            self.stored |= self.written != 0;
            self.at = changes.begin(self.state, self.group, Arc::clone(&self.key));
            self.written = sequence;
        }
        if head.entries == 0 {
            self.first = 0;
        }
        self.head = Some(head);
        changes.set_head(self.at, Head { tally: head, first: self.first });
        self.at
    }
}

fn entry_bytes(name: usize, value: Option<usize>) -> usize {
    ENTRY_BYTES + name + value.unwrap_or_default()
}
