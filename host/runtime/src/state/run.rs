//! The map or list of one key as the cache has it: an ordered run of entries, the newest of each.
//!
//! Owns which entries may be forgotten. Does not own RocksDB, counts, or which runs there are.
//!
//! A run is the only place where the subtask looks: what was written and is on its way to RocksDB is in the run until it is
//! there, marked with the sequence of the changes that carry it. So what a run does not have is as RocksDB says, or absent where
//! the run is *complete*.

use std::ops::Bound;

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::key_group::KeyGroup;
use wasmill_core::slice::Slice;

use super::changes::Changes;
use super::entries::{Entries, Entry, EntryAt, NameHash};
use super::row::Head;

/// Absent entries that a scan may step over before it is worth dropping them.
const PRUNED: usize = 32;

/// Bytes of entries below which a run counts as having so many, when it is judged whether it has grown.
const LEAST: usize = 128;

/// A map key or list position.
pub type Name = Slice;
/// The bytes of an entry.
pub type Value = Slice;

/// The map or list of one key.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) hash: u64,
    pub(super) state: u16,
    pub(super) group: KeyGroup,
    pub(super) key: Slice,
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
    entries: Entries,
    /// The sequence of the changes that carry what was written last, and the key's place in them.
    written: u64,
    at: u32,
    /// It was used since the last look at what may be forgotten.
    pub(super) used: bool,
    /// What was released, and how large the run was, when its entries were last looked through.
    swept: (u64, usize),
    /// What was released when absent entries were last dropped.
    pruned: u64,
}

/// What a run knows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'a> {
    Value(&'a Value),
    /// There is none.
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
            entries: Entries::default(),
            written: 0,
            at: 0,
            used: true,
            swept: (0, 0),
            pruned: 0,
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.apart() + self.entries.bytes()
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
        self.known(self.find(name))
    }

    /// Where an entry is, if it is in memory.
    pub(super) fn find(&self, name: &[u8]) -> Option<EntryAt> {
        self.entries.find(name)
    }

    /// The hash of a name, for [`Run::guess`].
    pub(super) fn hash_of(&self, name: &[u8]) -> NameHash {
        self.entries.hash(name)
    }

    /// Where an entry almost surely is, to be confirmed by [`Run::find_at`].
    pub(super) fn guess(&self, hash: NameHash) -> Option<EntryAt> {
        self.entries.candidate(hash)
    }

    /// Reads of an entry, so that it is at hand soon after, where it stands in the changes that `sequence` will freeze, if it does.
    pub(super) fn touch(&self, at: EntryAt, sequence: u64) -> Option<(u32, u32)> {
        let entry = self.entries.get(at);
        (entry.written == sequence).then_some((self.at, entry.at))
    }

    /// Where an entry is, which may be where it was guessed.
    pub(super) fn find_at(&self, guess: Option<EntryAt>, name: &[u8]) -> Option<EntryAt> {
        guess.filter(|at| self.entries.holds(*at, name)).or_else(|| self.entries.find(name))
    }

    /// What is known of an entry that is at `at`, or that is not in memory.
    pub(super) fn known(&self, at: Option<EntryAt>) -> Known<'_> {
        match at.map(|at| self.entries.get(at)) {
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
        if !self.complete && self.entries.find(name).is_none() {
            self.entries.insert(name.into(), value.map(Into::into), (0, 0));
        }
    }

    /// All entries that RocksDB has were learned.
    pub(super) fn learned_all(&mut self) {
        self.complete = true;
    }

    /// Gives the entry `name`, which is at `at` if it is in memory, another value, or removes it; `before` is the length of the
    /// value that it had. Changes are those that `sequence` will freeze.
    pub(super) fn write(
        &mut self,
        (name, at): (&Name, Option<EntryAt>),
        before: Option<usize>,
        value: Option<Value>,
        (changes, sequence): (&mut Changes, u64),
    ) {
        let mut head = self.head.unwrap_or_default();
        if let Some(before) = before {
            head.entries = head.entries.saturating_sub(1);
            head.bytes = head.bytes.saturating_sub(self.counted(name, before));
        }
        if let Some(value) = &value {
            head += Tally { entries: 1, bytes: self.counted(name, value.len()) };
        }
        let key = self.begin(changes, sequence, head);
        match at {
            Some(at) => {
                let entry = self.entries.get(at);
                let change = if entry.written == sequence {
                    changes.replace(key, entry.at, value.as_ref());
                    entry.at
                } else {
                    changes.add(key, name, value.as_ref())
                };
                self.entries.replace(at, value, (change, sequence));
            }
            None => {
                let change = changes.add(key, name, value.as_ref());
                self.entries.insert(name.clone(), value, (change, sequence));
            }
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self, changes: &mut Changes, sequence: u64) {
        let at = self.begin(changes, sequence, Tally::default());
        changes.clear(at, self.stored);
        self.entries = Entries::default();
        self.complete = true;
    }

    /// What an entry counts for: its key, its name, its value.
    pub(super) fn counted(&self, name: &[u8], value: usize) -> u64 {
        (self.key.len() + name.len() + value - usize::from(self.stamp)) as u64
    }

    /// Brings the entries into order, for [`Run::range`].
    pub(super) fn put_in_order(&mut self) {
        self.entries.put_in_order();
    }

    /// The entries within bounds that the run knows of, in order; `None`: known to be absent. The bounds must not cross, and the
    /// entries must have been put in order.
    pub(super) fn range<'a>(
        &'a self,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.entries.range(bounds).map(|entry| (&*entry.name, entry.value.as_deref()))
    }

    /// Whether the whole run may be forgotten, since RocksDB has what was written up to `released`.
    pub(super) fn is_clean(&self, released: u64) -> bool {
        self.written <= released
    }

    /// Forgets the entries that RocksDB has.
    pub(super) fn sweep(&mut self, released: u64) {
        // Looked through before to no avail, unless much was learned since.
        if self.swept.0 == released && self.entries.bytes() < 2 * self.swept.1 {
            return;
        }
        self.drop_entries(|entry| entry.written > released);
        self.swept = (released, self.entries.bytes().max(LEAST));
    }

    /// Drops the mark of what was removed, where that is most of a complete run and RocksDB has it too: a scan would have to
    /// step over all of them.
    pub(super) fn prune(&mut self, released: u64) {
        let absent = self.entries.absent();
        if self.complete && self.pruned < released && absent > PRUNED && absent * 2 > self.entries.len() {
            self.drop_entries(|entry| entry.value.is_some() || entry.written > released);
            self.pruned = released;
        }
    }

    fn drop_entries(&mut self, keep: impl Fn(&Entry) -> bool) {
        let mut complete = self.complete;
        self.entries.retain(|entry| {
            let keep = keep(entry);
            // What is absent in a complete run is absent without its mark, too.
            complete &= keep || entry.value.is_none();
            keep
        });
        self.complete = complete;
    }

    /// The key's place in the changes, with its new head there.
    fn begin(&mut self, changes: &mut Changes, sequence: u64, head: Tally) -> u32 {
        if self.written != sequence {
            // What was frozen before is in RocksDB or will be.
            self.stored |= self.written != 0;
            self.at = changes.begin(self.state, self.group, self.key.clone());
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
