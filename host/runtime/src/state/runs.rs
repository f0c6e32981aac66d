//! The runs of all maps and lists that are in memory, found by (state, key).
//!
//! Owns look-up and which runs are forgotten when there are too many: a hand goes round, gives what was used since it last
//! came by another round, and forgets of the rest what RocksDB has. Does not own what a run holds.

use hashbrown::HashTable;
use wasmill_core::key_group::{KeyGroup, KeyHash};

use super::run::Run;

/// Runs looked at in one [`Runs::forget`]; more where more came since the last.
const STEPS: usize = 256;
/// By how many bytes the runs must have grown before another look for some to forget, where the last left too many: about
/// what so many steps get rid of where they may.
const GROWTH: usize = 16 << 10;

/// Where a run is, until runs are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunIndex(u32);

/// Runs by (state, key).
#[derive(Debug)]
pub(super) struct Runs {
    runs: Vec<Run>,
    table: HashTable<u32>,
    bytes: usize,
    /// Most bytes before runs are forgotten.
    limit: usize,
    hand: usize,
    /// Runs made since runs were last forgotten.
    made: usize,
    /// What was released then, and how many bytes were left.
    left: (u64, usize),
    /// Nothing was ever forgotten that RocksDB has: what has no run is empty.
    complete: bool,
}

impl Runs {
    /// No runs; `complete`: RocksDB is empty too.
    pub(super) fn new(limit: usize, complete: bool) -> Self {
        Self { runs: Vec::new(), table: HashTable::new(), bytes: 0, limit, hand: 0, made: 0, left: (0, 0), complete }
    }

    /// Bytes in use, changes not counted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether runs should be forgotten even while a call goes on: there are far too many, and more may be forgotten than when
    /// the last look left them.
    pub(super) fn is_over(&self, released: u64) -> bool {
        let (before, left) = self.left;
        self.bytes > self.limit + self.limit / 4 && (self.bytes > left + GROWTH || released > before)
    }

    /// Whether what has no run is empty.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn find(&mut self, state: u16, hash: KeyHash, key: &[u8]) -> Option<RunIndex> {
        let mixed = mix(state, hash);
        let runs = &self.runs;
        let found = self.table.find(mixed, |&index| {
            let run = &runs[index as usize];
            run.hash == mixed && run.state == state && *run.key == *key
        });
        let index = *found?;
        self.runs[index as usize].used = true;
        Some(RunIndex(index))
    }

    /// Makes the run of a key that has none; `empty`: it is known to have no entries.
    /// Before each of its values are `stamp` bytes of a stamp.
    pub(super) fn make(
        &mut self,
        ((state, stamp), hash): ((u16, u8), KeyHash),
        group: KeyGroup,
        key: &[u8],
        empty: bool,
    ) -> RunIndex {
        let run = Run::new(mix(state, hash), (state, stamp), group, key, empty);
        let index = self.runs.len() as u32;
        self.bytes += run.bytes();
        self.made += 1;
        let runs = &self.runs;
        self.table.insert_unique(run.hash, index, |&index| runs[index as usize].hash);
        self.runs.push(run);
        RunIndex(index)
    }

    pub(super) fn get(&self, index: RunIndex) -> &Run {
        &self.runs[index.0 as usize]
    }

    /// Changes a run, and keeps account of its bytes.
    pub(super) fn with<T>(&mut self, index: RunIndex, change: impl FnOnce(&mut Run) -> T) -> T {
        let run = &mut self.runs[index.0 as usize];
        let before = run.bytes();
        let result = change(run);
        self.bytes = self.bytes + run.bytes() - before;
        result
    }

    /// Forgets what RocksDB has, which is what was written up to `released`, until there is little enough or enough was tried.
    /// Returns how many runs it looked at.
    pub(super) fn forget(&mut self, released: u64) -> usize {
        let most = STEPS + 2 * self.made;
        let mut steps = most;
        self.made = 0;
        while self.bytes > self.limit && steps > 0 && !self.runs.is_empty() {
            steps -= 1;
            if self.hand >= self.runs.len() {
                self.hand = 0;
            }
            let run = &mut self.runs[self.hand];
            if std::mem::take(&mut run.used) {
                self.hand += 1;
            } else if run.is_clean(released) {
                self.remove(self.hand);
            } else {
                self.with(RunIndex(self.hand as u32), |run| run.sweep(released));
                self.hand += 1;
            }
        }
        self.left = (released, self.bytes);
        most - steps
    }

    fn remove(&mut self, at: usize) {
        let run = &self.runs[at];
        // Of a run without entries RocksDB has nothing.
        self.complete &= run.head().is_some_and(|head| head.entries == 0);
        self.bytes -= run.bytes();
        if let Ok(entry) = self.table.find_entry(run.hash, |&index| index as usize == at) {
            entry.remove();
        }
        let last = self.runs.len() - 1;
        if last != at
            && let Some(index) = self.table.find_mut(self.runs[last].hash, |&index| index as usize == last)
        {
            *index = at as u32;
        }
        self.runs.swap_remove(at);
    }
}

fn mix(state: u16, hash: KeyHash) -> u64 {
    // A subtask's keys share what the hash is modulo the number of key groups, and the table takes the lower bits.
    let mixed = (hash.0 ^ u64::from(state).wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::super::changes::Changes;
    use super::*;

    /// A map of one key with an entry that was written as `sequence`.
    fn write(runs: &mut Runs, key: u32, sequence: u64, changes: &mut Changes) {
        let key = key.to_be_bytes();
        let index = runs.make(((0, 0), KeyHash::of(&key)), KeyGroup(0), &key, true);
        let value = [0; 100].as_slice().into();
        runs.with(index, |run| run.write((&b"name".as_slice().into(), None), None, Some(value), (changes, sequence)));
    }

    #[test]
    fn what_cannot_be_forgotten_yet_is_not_looked_for_at_every_read() {
        let (mut runs, mut changes) = (Runs::new(1 << 20, true), Changes::default());
        for key in 0..20_000 {
            write(&mut runs, key, 1, &mut changes);
        }
        assert!(runs.bytes() > 2 << 20);
        let mut looks = 0;
        let mut read = |runs: &mut Runs, released| {
            let looked = if runs.is_over(released) { runs.forget(released) } else { 0 };
            looks += looked;
            looked
        };
        assert!((0..10).map(|_| read(&mut runs, 0)).sum::<usize>() > 0, "looked for once");
        let held = runs.bytes();
        assert_eq!((0..100_000).map(|_| read(&mut runs, 0)).sum::<usize>(), 0, "unreleased, and no more than before");
        write(&mut runs, 20_000, 1, &mut changes);
        assert_eq!(read(&mut runs, 0), 0, "one more is no reason");
        (20_001..20_100).for_each(|key| write(&mut runs, key, 1, &mut changes));
        assert!(read(&mut runs, 0) > 0, "many are");
        // Once they are released, one look follows another while too much is there.
        assert!(read(&mut runs, 1) > 0);
        (20_100..60_000).for_each(|key| {
            write(&mut runs, key, 1, &mut changes);
            read(&mut runs, 1);
        });
        assert!(runs.bytes() < held && runs.bytes() < 3 << 19, "{} bytes", runs.bytes());
        assert!(looks < 600_000, "{looks} looks");
    }
}
