//! The write-back cache in front of RocksDB: fresh, frozen, settling and clean layers.
//!
//! Owns in which order layers are asked and how entries move between them. Does not own RocksDB, the thread that writes
//! frozen layers to it, or counts.
//!
//! An entry is written to *fresh*. Fresh is frozen whole (at a barrier, or when it has grown), written by the background
//! thread, released, and then *settled* some entries at a time into the *clean* generations, from which entries may be
//! forgotten because RocksDB has them. Look-ups ask from the newest to the oldest, so a clean entry may be behind the times
//! exactly as long as a newer layer holds its key.

use std::collections::VecDeque;
use std::sync::Arc;

use super::layer::{EntryIndex, EntryRef, Key, Layer};

/// Emptied layers kept for their memory: one to become fresh, one for the settled to come.
const SPARES: usize = 2;

/// What became of the subtask's entries, newest first.
pub(super) struct Cache {
    pub(super) fresh: Layer,
    frozen: VecDeque<Frozen>,
    settling: VecDeque<Layer>,
    young: Layer,
    old: Layer,
    spares: Vec<Layer>,
    budget: usize,
    chunk_bytes: usize,
    /// Nothing was ever forgotten that RocksDB has: what is in no layer does not exist.
    complete: bool,
    /// Length of fresh when entries were last settled.
    settled_at: usize,
}

/// A layer that the background thread writes.
struct Frozen {
    sequence: u64,
    layer: Arc<Layer>,
    for_cut: bool,
}

/// Where a look-up found an entry; valid until the cache changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot {
    Fresh(EntryIndex),
    Frozen(usize, EntryIndex),
    Settling(usize, EntryIndex),
    Young(EntryIndex),
    Old(EntryIndex),
}

impl Cache {
    /// An empty cache of `budget` bytes. `complete`: RocksDB is empty too.
    pub(super) fn new(budget: usize, complete: bool) -> Self {
        let chunk_bytes = (budget / 64).clamp(1 << 12, 1 << 20);
        let layer = || Layer::new(chunk_bytes);
        Self {
            fresh: layer(),
            frozen: VecDeque::new(),
            settling: VecDeque::new(),
            young: layer(),
            old: layer(),
            spares: Vec::new(),
            budget,
            chunk_bytes,
            complete,
            settled_at: 0,
        }
    }

    /// Where the newest entry of `key` is, with those of the older clean generation moved to the younger.
    pub(super) fn find(&mut self, key: &Key<'_>) -> Option<Spot> {
        match self.find_as_it_is(key)? {
            Spot::Old(index) => Some(Spot::Young(self.young.insert(self.old.entry(index)))),
            spot => Some(spot),
        }
    }

    /// The same without moving anything.
    pub(super) fn find_as_it_is(&self, key: &Key<'_>) -> Option<Spot> {
        if let Some(index) = self.fresh.find(key) {
            return Some(Spot::Fresh(index));
        }
        for (at, frozen) in self.frozen.iter().enumerate().rev() {
            if let Some(index) = frozen.layer.find(key) {
                return Some(Spot::Frozen(at, index));
            }
        }
        for (at, layer) in self.settling.iter().enumerate().rev() {
            if let Some(index) = layer.find(key) {
                return Some(Spot::Settling(at, index));
            }
        }
        self.young.find(key).map(Spot::Young).or_else(|| self.old.find(key).map(Spot::Old))
    }

    /// Where each of `keys` almost surely is, to be confirmed by [`Cache::holds`]; `None` where that is not known.
    ///
    /// An entry out of the processor's caches takes several reads of memory, one after the other. Here the first reads of
    /// all keys are made before the second ones, and so on, so that they overlap.
    pub(super) fn guess<'a>(&self, keys: impl Iterator<Item = Key<'a>>, spots: &mut Vec<Option<Spot>>) {
        spots.clear();
        spots.extend(keys.map(|key| {
            let fresh = self.fresh.candidate(&key).map(Spot::Fresh);
            fresh.or_else(|| self.guess_behind(&key))
        }));
        let mut touched = 0;
        for spot in spots.iter().flatten() {
            let (layer, index) = self.place(*spot);
            touched ^= layer.touch(index);
        }
        // The bytes mean nothing, but they must be read.
        std::hint::black_box(touched);
    }

    fn guess_behind(&self, key: &Key<'_>) -> Option<Spot> {
        for (at, frozen) in self.frozen.iter().enumerate().rev() {
            if let Some(index) = frozen.layer.candidate(key) {
                return Some(Spot::Frozen(at, index));
            }
        }
        for (at, layer) in self.settling.iter().enumerate().rev() {
            if let Some(index) = layer.candidate(key) {
                return Some(Spot::Settling(at, index));
            }
        }
        self.young.candidate(key).map(Spot::Young)
    }

    /// Whether the entry at `spot` is that of `key`.
    pub(super) fn holds(&self, spot: Spot, key: &Key<'_>) -> bool {
        let (layer, index) = self.place(spot);
        layer.holds(index, key)
    }

    /// The value at a spot; `None`: known to be absent.
    pub(super) fn value(&self, spot: Spot) -> Option<&[u8]> {
        let (layer, index) = self.place(spot);
        layer.value(index)
    }

    fn place(&self, spot: Spot) -> (&Layer, EntryIndex) {
        match spot {
            Spot::Fresh(index) => (&self.fresh, index),
            Spot::Frozen(at, index) => (&*self.frozen[at].layer, index),
            Spot::Settling(at, index) => (&self.settling[at], index),
            Spot::Young(index) => (&self.young, index),
            Spot::Old(index) => (&self.old, index),
        }
    }

    /// Keeps what RocksDB was found to hold for a key that is in no layer.
    pub(super) fn insert_clean(&mut self, entry: EntryRef<'_>) -> Spot {
        Spot::Young(self.young.insert(entry))
    }

    /// Whether what is in no layer does not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Freezes fresh as `sequence` and returns it for the background thread.
    pub(super) fn freeze(&mut self, sequence: u64, for_cut: bool) -> Arc<Layer> {
        let empty = self.spares.pop().unwrap_or_else(|| Layer::new(self.chunk_bytes));
        let layer = Arc::new(std::mem::replace(&mut self.fresh, empty));
        self.frozen.push_back(Frozen { sequence, layer: Arc::clone(&layer), for_cut });
        self.settled_at = 0;
        layer
    }

    /// The background thread has written the layers up to `sequence`, and holds them no more.
    pub(super) fn release(&mut self, sequence: u64) {
        while let Some(front) = self.frozen.pop_front_if(|frozen| frozen.sequence <= sequence) {
            match Arc::try_unwrap(front.layer) {
                Ok(layer) => self.settling.push_back(layer),
                Err(layer) => {
                    self.frozen.push_front(Frozen { layer, ..front });
                    return;
                }
            }
        }
    }

    /// Settles at least `least` entries, and twice as many as fresh has grown by, so that layers settle faster than they come.
    pub(super) fn settle(&mut self, least: usize) {
        let grown = self.fresh.len().saturating_sub(self.settled_at);
        self.settled_at = self.fresh.len();
        let mut left = least.max(2 * grown);
        // What settles more slowly than it comes is settled at once: layers must not pile up.
        if self.settling.len() > SPARES {
            left = self.settling.iter().take(self.settling.len() - SPARES).map(Layer::len).sum::<usize>().max(left);
        }
        while let Some(layer) = self.settling.front_mut() {
            while left > 0 {
                let Some(entry) = layer.last() else { break };
                self.young.set(entry);
                layer.pop();
                left -= 1;
            }
            if !layer.is_empty() {
                break;
            }
            if let Some(layer) = self.settling.pop_front() {
                self.recycle(layer);
            }
        }
        self.rotate();
    }

    /// Forgets the older clean generation when the younger has half of the clean budget.
    fn rotate(&mut self) {
        // A quarter of the budget is fresh's.
        let clean = self.budget - self.budget / 4;
        if self.young.bytes() <= clean / 2 {
            return;
        }
        if !self.old.is_empty() {
            self.complete = false;
        }
        self.old.clear();
        std::mem::swap(&mut self.young, &mut self.old);
    }

    fn recycle(&mut self, mut layer: Layer) {
        if self.spares.len() < SPARES {
            layer.clear();
            self.spares.push(layer);
        }
    }

    /// The oldest layer that is not released.
    pub(super) fn oldest_frozen(&self) -> Option<u64> {
        self.frozen.front().map(|frozen| frozen.sequence)
    }

    /// How many frozen layers wait for a local cut, of those after `released`.
    pub(super) fn pending_cuts(&self, released: u64) -> usize {
        self.frozen.iter().filter(|frozen| frozen.for_cut && frozen.sequence > released).count()
    }

    /// Bytes of fresh; of the frozen and settling layers; of the clean generations.
    pub(super) fn bytes(&self) -> (usize, usize, usize) {
        let frozen: usize = self.frozen.iter().map(|frozen| frozen.layer.bytes()).sum();
        let settling: usize = self.settling.iter().map(Layer::bytes).sum();
        (self.fresh.bytes(), frozen + settling, self.young.bytes() + self.old.bytes())
    }
}
