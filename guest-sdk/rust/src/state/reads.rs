//! Who read or wrote a key's value, where reads refresh its TTL.
//!
//! Owns that of several the one with the greatest time counts, and that a refused record's read does not. Does not own the
//! values.

/// The readers of a call, by slot.
#[derive(Default)]
pub(super) struct Reads {
    readers: Vec<Option<u32>>,
    /// Slots that were read, in the order of their first read.
    slots: Vec<u32>,
    /// What the newest origin's reads replaced.
    undo: Vec<(usize, Option<u32>)>,
    newest: u32,
}

impl Reads {
    /// Forgets the call before.
    pub(super) fn begin(&mut self, slots: usize) {
        self.readers.clear();
        self.readers.resize(slots, None);
        self.slots.clear();
        self.undo.clear();
    }

    /// `origin` reads or writes; `time` says the time of an origin.
    #[inline]
    pub(super) fn read(&mut self, slot: usize, origin: u32, time: impl Fn(u32) -> i64) {
        if self.newest != origin {
            self.undo.clear();
            self.newest = origin;
        }
        let Some(reader) = self.readers.get_mut(slot) else { return };
        if reader.is_some_and(|before| before == origin || time(before) > time(origin)) {
            return;
        }
        if reader.is_none() {
            self.slots.push(slot as u32);
        }
        self.undo.push((slot, reader.replace(origin)));
    }

    /// Forgets what `origin`, the newest one, read.
    pub(super) fn undo(&mut self, origin: u32) {
        if self.newest != origin {
            return;
        }
        for (slot, before) in self.undo.drain(..).rev() {
            self.readers[slot] = before;
        }
    }

    /// The slots that were read, some perhaps on behalf of nobody any more.
    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Who read the key.
    pub(super) fn reader(&self, slot: usize) -> Option<u32> {
        self.readers.get(slot).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_with_the_greatest_time_counts_and_a_refused_one_does_not() {
        let times = [100, 50, 200, 70];
        let time = |origin: u32| times[origin as usize];
        let mut reads = Reads::default();
        reads.begin(2);
        (0..3).for_each(|origin| reads.read(0, origin, time));
        assert_eq!((reads.reader(0), reads.reader(1)), (Some(2), None));
        reads.undo(2);
        assert_eq!(reads.reader(0), Some(0));
        reads.read(1, 3, time);
        reads.undo(3);
        assert_eq!((reads.reader(0), reads.reader(1), reads.slots()), (Some(0), None, &[0, 1][..]));
    }
}
