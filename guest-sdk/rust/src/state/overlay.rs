//! What a call knows of the entries of a map, and what it changed in them.
//!
//! Owns that reads see the call's writes, that a refused record's writes are undone, and that each entry is handed over at
//! most once, on behalf of the writing origin with the greatest time. All of it happens in guest memory: the host hears of
//! the writes at the call's end, so no mark is needed. Does not own the calls to the host.
//!
//! All entries lie end to end, found by a hash of slot and map key; those of one key hang together. A scan is the first to ask
//! for an order, and gets it for the key that it walks over.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::scan::Range;
use crate::context::Context;

/// Stands for no entry.
const NONE: u32 = u32::MAX;

/// What is known of an entry.
pub(super) enum Cell<V> {
    /// Nothing: what was written was taken back.
    Unknown,
    /// As the host has it.
    Clean(Option<V>),
    /// Not yet handed to the host; written on behalf of `origin`.
    Dirty { value: Option<V>, origin: u32 },
}

impl<V> Cell<V> {
    fn value(&self) -> Option<Option<&V>> {
        match self {
            Self::Unknown => None,
            Self::Clean(value) | Self::Dirty { value, .. } => Some(value.as_ref()),
        }
    }
}

struct Entry<V> {
    slot: u32,
    hash: u32,
    /// Where its map key lies.
    start: u32,
    end: u32,
    /// Another entry of the slot.
    next: u32,
    /// It counts while its slot has this life.
    life: u32,
    cell: Cell<V>,
}

/// The state of one key's map.
#[derive(Clone, Copy)]
struct Slot {
    /// One of its entries, which leads to the others.
    head: u32,
    /// Rises when all entries are removed.
    life: u32,
    /// The origin that removed all entries that the host has.
    cleared: Option<u32>,
}

const UNTOUCHED: Slot = Slot { head: NONE, life: 0, cleared: None };

/// How to take back one write.
enum Undo<V> {
    Entry { at: u32, life: u32, before: Cell<V> },
    Clear { slot: usize, life: u32, cleared: Option<u32> },
}

/// The known and changed entries of the call's keys.
pub(super) struct Overlay<V> {
    entries: Vec<Entry<V>>,
    /// Their map keys.
    keys: Vec<u8>,
    /// Their places by hash, by open addressing; at most half full.
    table: Vec<u32>,
    slots: Vec<Slot>,
    /// The entries of the slots that were scanned, in the order of their map keys.
    orders: BTreeMap<usize, Vec<u32>>,
    /// The writes of `undo_origin`, oldest first.
    undo: Vec<Undo<V>>,
    undo_origin: u32,
}

/// A change to hand to the host.
pub(super) enum Change<'a, V> {
    /// All entries of the origin's key are removed. Comes before the key's other changes.
    Clear {
        origin: u32,
    },
    Put {
        origin: u32,
        key: &'a [u8],
        value: V,
    },
    Remove {
        origin: u32,
        key: &'a [u8],
    },
}

impl<V> Overlay<V> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            keys: Vec::new(),
            table: Vec::new(),
            slots: Vec::new(),
            orders: BTreeMap::new(),
            undo: Vec::new(),
            undo_origin: 0,
        }
    }

    /// Forgets the call before.
    pub(super) fn begin(&mut self, slots: usize) {
        self.forget();
        self.slots.clear();
        self.slots.resize(slots, UNTOUCHED);
    }

    /// An entry, where it is known; `Some(None)` where it is known that there is none.
    #[inline]
    pub(super) fn known(&self, slot: usize, key: &[u8]) -> Option<Option<&V>> {
        let state = self.slots.get(slot)?;
        let found = if state.head == NONE { None } else { self.find(slot as u32, key, hash(slot as u32, key)).ok() };
        let known = found.and_then(|at| self.seen(at));
        if known.is_none() && state.cleared.is_some() { Some(None) } else { known }
    }

    /// Whether nothing that the host has of this key counts any more.
    pub(super) fn is_cleared(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.cleared.is_some())
    }

    /// Takes in what the host says of an entry that was not known.
    pub(super) fn learn(&mut self, slot: usize, key: &[u8], value: Option<V>) {
        let Some(at) = self.entry(slot, key) else { return };
        if self.seen(at).is_none() {
            let life = self.slots[slot].life;
            let entry = &mut self.entries[at as usize];
            (entry.cell, entry.life) = (Cell::Clean(value), life);
        }
    }

    /// Sets or removes an entry of slot `slot` on behalf of the origin in hand.
    pub(super) fn write(&mut self, ctx: &Context<'_>, slot: usize, key: &[u8], value: Option<V>) {
        let Some(at) = self.entry(slot, key) else { return };
        let now = self.slots[slot].life;
        let entry = &mut self.entries[at as usize];
        let mut origin = ctx.origin();
        if let Cell::Dirty { origin: before, .. } = entry.cell
            && entry.life == now
            && ctx.origins.time(before) > ctx.time()
        {
            origin = before;
        }
        let before = std::mem::replace(&mut entry.cell, Cell::Dirty { value, origin });
        let life = std::mem::replace(&mut entry.life, now);
        self.remember(ctx.origin(), Undo::Entry { at, life, before });
    }

    /// Removes all entries of slot `slot` on behalf of the origin in hand.
    pub(super) fn clear(&mut self, ctx: &Context<'_>, slot: usize) {
        let Some(state) = self.slots.get_mut(slot) else { return };
        let undo = Undo::Clear { slot, life: state.life, cleared: state.cleared };
        (state.life, state.cleared) = (state.life.wrapping_add(1), Some(ctx.origin()));
        self.remember(ctx.origin(), undo);
    }

    /// Takes back what `origin`, the newest one, wrote.
    pub(super) fn undo(&mut self, origin: u32) {
        if self.undo_origin != origin {
            return;
        }
        for undo in self.undo.drain(..).rev() {
            match undo {
                Undo::Clear { slot, life, cleared } => {
                    let state = &mut self.slots[slot];
                    (state.life, state.cleared) = (life, cleared);
                }
                Undo::Entry { at, life, before } => {
                    let entry = &mut self.entries[at as usize];
                    (entry.life, entry.cell) = (life, before);
                }
            }
        }
    }

    /// The first known entry of a range, from the end that its direction begins with.
    pub(super) fn first(&mut self, slot: usize, range: &Range) -> Option<(&[u8], Option<&V>)> {
        if range.is_empty() || self.slots.get(slot)?.head == NONE {
            return None;
        }
        self.put_in_order(slot);
        let order = self.orders.get(&slot)?;
        let (lower, upper) = range.bounds();
        let start = order.partition_point(|&at| match lower {
            Bound::Included(lower) => self.key(at) < lower,
            Bound::Excluded(lower) => self.key(at) <= lower,
            Bound::Unbounded => false,
        });
        let end = order.partition_point(|&at| match upper {
            Bound::Included(upper) => self.key(at) <= upper,
            Bound::Excluded(upper) => self.key(at) < upper,
            Bound::Unbounded => true,
        });
        let known = |at: &u32| Some((self.key(*at), self.seen(*at)?));
        let mut within = order.get(start..end)?.iter();
        if range.is_reverse() { within.rev().find_map(known) } else { within.find_map(known) }
    }

    /// Every change of the call; nothing is left behind.
    pub(super) fn take_changes(&mut self, mut take: impl FnMut(Change<'_, V>)) {
        for origin in self.slots.iter().filter_map(|slot| slot.cleared) {
            take(Change::Clear { origin });
        }
        for entry in &mut self.entries {
            if self.slots[entry.slot as usize].life != entry.life {
                continue;
            }
            let key = &self.keys[entry.start as usize..entry.end as usize];
            match std::mem::replace(&mut entry.cell, Cell::Unknown) {
                Cell::Unknown | Cell::Clean(_) => {}
                Cell::Dirty { value: Some(value), origin } => take(Change::Put { origin, key, value }),
                Cell::Dirty { value: None, origin } => take(Change::Remove { origin, key }),
            }
        }
        self.forget();
        self.slots.fill(UNTOUCHED);
    }

    fn forget(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.keys.clear();
            self.table.fill(NONE);
            self.orders.clear();
        }
        self.undo.clear();
    }

    /// What is known of an entry that was found.
    #[inline]
    fn seen(&self, at: u32) -> Option<Option<&V>> {
        let entry = &self.entries[at as usize];
        if self.slots[entry.slot as usize].life == entry.life { entry.cell.value() } else { None }
    }

    #[inline]
    fn key(&self, at: u32) -> &[u8] {
        let Entry { start, end, .. } = self.entries[at as usize];
        &self.keys[start as usize..end as usize]
    }

    /// Where an entry is, else where in the table it belongs.
    #[inline]
    fn find(&self, slot: u32, key: &[u8], hash: u32) -> Result<u32, usize> {
        let mask = self.table.len().wrapping_sub(1);
        let mut place = hash as usize & mask;
        // An empty table has no place.
        while let Some(&at) = self.table.get(place) {
            if at == NONE {
                return Err(place);
            }
            let entry = &self.entries[at as usize];
            if entry.hash == hash && entry.slot == slot && self.key(at) == key {
                return Ok(at);
            }
            place = (place + 1) & mask;
        }
        Err(0)
    }

    /// Where an entry is, made if there is none; none where there is no such slot.
    fn entry(&mut self, slot: usize, key: &[u8]) -> Option<u32> {
        let next = self.slots.get(slot)?.head;
        let hash = hash(slot as u32, key);
        if self.table.len() < 2 * (self.entries.len() + 1) {
            self.grow();
        }
        let place = match self.find(slot as u32, key, hash) {
            Ok(at) => return Some(at),
            Err(place) => place,
        };
        let (at, start) = (self.entries.len() as u32, self.keys.len() as u32);
        self.keys.extend_from_slice(key);
        let (end, life) = (self.keys.len() as u32, self.slots[slot].life);
        self.entries.push(Entry { slot: slot as u32, hash, start, end, next, life, cell: Cell::Unknown });
        self.table[place] = at;
        self.slots[slot].head = at;
        if let Some(mut order) = self.orders.remove(&slot) {
            let place = order.partition_point(|&other| self.key(other) < key);
            order.insert(place, at);
            self.orders.insert(slot, order);
        }
        Some(at)
    }

    #[cold]
    fn grow(&mut self) {
        let places = (4 * (self.entries.len() + 1)).next_power_of_two().max(64);
        self.table.clear();
        self.table.resize(places, NONE);
        for (at, entry) in self.entries.iter().enumerate() {
            let mut place = entry.hash as usize & (places - 1);
            while self.table[place] != NONE {
                place = (place + 1) & (places - 1);
            }
            self.table[place] = at as u32;
        }
    }

    fn put_in_order(&mut self, slot: usize) {
        if self.orders.contains_key(&slot) {
            return;
        }
        let entries = &self.entries;
        let next = |at: &u32| Some(entries[*at as usize].next).filter(|next| *next != NONE);
        let mut order: Vec<u32> = std::iter::successors(Some(self.slots[slot].head), next).collect();
        order.sort_unstable_by(|a, b| self.key(*a).cmp(self.key(*b)));
        self.orders.insert(slot, order);
    }

    fn remember(&mut self, origin: u32, undo: Undo<V>) {
        if self.undo_origin != origin {
            self.undo_origin = origin;
            self.undo.clear();
        }
        self.undo.push(undo);
    }
}

/// By eight bytes at a time; the upper bits, which depend on all of them, come down.
#[inline]
fn hash(slot: u32, key: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = u64::from(slot) ^ (key.len() as u64) << 32;
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    (hash.wrapping_mul(FACTOR) >> 32) as u32
}
