//! What a call knows of the entries of a map, and what it changed in them.
//!
//! Owns that reads see the call's writes, that a refused record's writes are undone, and that each entry is handed over at
//! most once, on behalf of the writing origin with the greatest time. All of it happens in guest memory: the host hears of
//! the writes at the call's end, so no mark is needed. Does not own the calls to the host.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::scan::Range;
use crate::context::Context;

/// What is known of an entry.
pub(super) enum Cell<V> {
    /// As the host has it.
    Clean(Option<V>),
    /// Not yet handed to the host; written on behalf of `origin`.
    Dirty { value: Option<V>, origin: u32 },
}

impl<V> Cell<V> {
    fn value(&self) -> Option<&V> {
        match self {
            Self::Clean(value) | Self::Dirty { value, .. } => value.as_ref(),
        }
    }
}

/// The known entries of one key.
struct Entries<V> {
    cells: BTreeMap<Vec<u8>, Cell<V>>,
    /// The origin that removed all entries that the host has.
    cleared: Option<u32>,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self { cells: BTreeMap::new(), cleared: None }
    }
}

impl<V> Entries<V> {
    fn is_untouched(&self) -> bool {
        self.cells.is_empty() && self.cleared.is_none()
    }
}

/// How to take back one write.
enum Undo<V> {
    Entry { slot: usize, key: Vec<u8>, before: Option<Cell<V>> },
    Clear { slot: usize, before: Entries<V> },
}

/// The known and changed entries of the call's keys.
pub(super) struct Overlay<V> {
    slots: Vec<Entries<V>>,
    /// Slots that are no longer untouched; some may stand here twice.
    touched: Vec<usize>,
    /// The writes of `undo_origin`, oldest first.
    undo: Vec<Undo<V>>,
    undo_origin: u32,
}

/// A change to hand to the host.
pub(super) enum Change<V> {
    /// All entries of the origin's key are removed. Comes before the key's other changes.
    Clear {
        origin: u32,
    },
    Put {
        origin: u32,
        key: Vec<u8>,
        value: V,
    },
    Remove {
        origin: u32,
        key: Vec<u8>,
    },
}

impl<V> Overlay<V> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), touched: Vec::new(), undo: Vec::new(), undo_origin: 0 }
    }

    /// Forgets the call before.
    pub(super) fn begin(&mut self, slots: usize) {
        self.undo.clear();
        if self.slots.len() == slots {
            for slot in self.touched.drain(..) {
                self.slots[slot] = Entries::default();
            }
        } else {
            self.touched.clear();
            self.slots.clear();
            self.slots.resize_with(slots, Entries::default);
        }
    }

    /// An entry, where it is known; `Some(None)` where it is known that there is none.
    #[inline]
    pub(super) fn known(&self, slot: usize, key: &[u8]) -> Option<Option<&V>> {
        let entries = self.slots.get(slot)?;
        match entries.cells.get(key) {
            Some(cell) => Some(cell.value()),
            None if entries.cleared.is_some() => Some(None),
            None => None,
        }
    }

    /// Whether nothing that the host has of this key counts any more.
    pub(super) fn is_cleared(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|entries| entries.cleared.is_some())
    }

    /// Takes in what the host says of an entry that was not known.
    pub(super) fn learn(&mut self, slot: usize, key: Vec<u8>, value: Option<V>) {
        self.touch(slot);
        if let Some(entries) = self.slots.get_mut(slot) {
            entries.cells.entry(key).or_insert(Cell::Clean(value));
        }
    }

    /// Sets or removes an entry of slot `slot` on behalf of the origin in hand.
    pub(super) fn write(&mut self, ctx: &Context<'_>, slot: usize, key: Vec<u8>, value: Option<V>) {
        self.touch(slot);
        let Some(entries) = self.slots.get_mut(slot) else { return };
        let mut origin = ctx.origin();
        if let Some(&Cell::Dirty { origin: before, .. }) = entries.cells.get(&key)
            && ctx.origins.time(before) > ctx.time()
        {
            origin = before;
        }
        let before = entries.cells.insert(key.clone(), Cell::Dirty { value, origin });
        self.remember(ctx.origin(), Undo::Entry { slot, key, before });
    }

    /// Removes all entries of slot `slot` on behalf of the origin in hand.
    pub(super) fn clear(&mut self, ctx: &Context<'_>, slot: usize) {
        self.touch(slot);
        let Some(entries) = self.slots.get_mut(slot) else { return };
        let after = Entries { cells: BTreeMap::new(), cleared: Some(ctx.origin()) };
        let before = std::mem::replace(entries, after);
        self.remember(ctx.origin(), Undo::Clear { slot, before });
    }

    /// Takes back what `origin`, the newest one, wrote.
    pub(super) fn undo(&mut self, origin: u32) {
        if self.undo_origin != origin {
            return;
        }
        for undo in self.undo.drain(..).rev() {
            match undo {
                Undo::Clear { slot, before } => self.slots[slot] = before,
                Undo::Entry { slot, key, before: Some(cell) } => drop(self.slots[slot].cells.insert(key, cell)),
                Undo::Entry { slot, key, before: None } => drop(self.slots[slot].cells.remove(&key)),
            }
        }
    }

    /// The first known entry of a range, from the end that its direction begins with.
    pub(super) fn first(&self, slot: usize, range: &Range) -> Option<(&[u8], Option<&V>)> {
        let cells = &self.slots.get(slot)?.cells;
        if cells.is_empty() || range.is_empty() {
            return None;
        }
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = range.bounds();
        let mut found = cells.range::<[u8], _>(bounds);
        let (key, cell) = if range.is_reverse() { found.next_back() } else { found.next() }?;
        Some((key, cell.value()))
    }

    /// Every change of the call, key by key; nothing is left behind.
    pub(super) fn take_changes(&mut self, mut take: impl FnMut(Change<V>)) {
        for slot in self.touched.drain(..) {
            let Entries { cells, cleared } = std::mem::take(&mut self.slots[slot]);
            if let Some(origin) = cleared {
                take(Change::Clear { origin });
            }
            for (key, cell) in cells {
                match cell {
                    Cell::Clean(_) => {}
                    Cell::Dirty { value: Some(value), origin } => take(Change::Put { origin, key, value }),
                    Cell::Dirty { value: None, origin } => take(Change::Remove { origin, key }),
                }
            }
        }
    }

    #[inline]
    fn touch(&mut self, slot: usize) {
        if self.slots.get(slot).is_some_and(Entries::is_untouched) {
            self.touched.push(slot);
        }
    }

    fn remember(&mut self, origin: u32, undo: Undo<V>) {
        if self.undo_origin != origin {
            self.undo_origin = origin;
            self.undo.clear();
        }
        self.undo.push(undo);
    }
}
