//! Finding the log's end by reads alone: a listing may be stale, a read is not.
//!
//! Owns the order of the questions. Does not ask them.
//!
//! Blocks' last entries stay for ever, so they exist exactly below the block that holds the end: gallop over them, then halve.
//! Within that block nothing was ever deleted, so the same holds for its entries. A log of n entries takes about
//! 2·log2(n/1024) + 10 questions.

use super::{BLOCK, Seq, block_end, block_start};

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Say by [`TailSearch::answer`] whether this entry exists.
    Exists(Seq),
    /// The first entry that does not exist.
    Found(Seq),
}

/// A search for the first entry that does not exist.
///
/// ```
/// use wasmill_core::checkpoint::log::Seq;
/// use wasmill_core::checkpoint::log::tail::{Probe, TailSearch};
/// let mut search = TailSearch::new();
/// let end = loop {
///     match search.next() {
///         Probe::Exists(seq) => search.answer(seq < Seq(5_000)),
///         Probe::Found(seq) => break seq,
///     }
/// };
/// assert_eq!(end, Seq(5_000));
/// ```
#[derive(Debug, Clone)]
pub struct TailSearch {
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The last entries of all blocks below `low` exist; the next step is `low + step - 1`.
    Gallop { low: u64, step: u64 },
    /// The end lies in a block of `low..=high`.
    Blocks { low: u64, high: u64 },
    /// The first missing entry is one of `low..=high`.
    Entries { low: u64, high: u64 },
}

impl TailSearch {
    /// A search from the beginning.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a search is begun, not defaulted")]
    pub fn new() -> Self {
        Self { phase: Phase::Gallop { low: 0, step: 1 } }
    }

    /// The next question, or the answer.
    #[must_use]
    pub fn next(&self) -> Probe {
        match self.phase {
            Phase::Gallop { low, step } => Probe::Exists(block_end(gallop(low, step))),
            Phase::Blocks { low, high } => Probe::Exists(block_end(middle(low, high))),
            Phase::Entries { low, high } if low == high => Probe::Found(Seq(low)),
            Phase::Entries { low, high } => Probe::Exists(Seq(middle(low, high))),
        }
    }

    /// Whether the entry that was asked for exists.
    pub fn answer(&mut self, exists: bool) {
        self.phase = match (self.phase, exists) {
            (Phase::Gallop { low, step }, true) => {
                Phase::Gallop { low: gallop(low, step).saturating_add(1), step: step.saturating_mul(2) }
            }
            (Phase::Gallop { low, step }, false) => blocks(low, gallop(low, step)),
            (Phase::Blocks { low, high }, true) => blocks(middle(low, high) + 1, high),
            (Phase::Blocks { low, high }, false) => blocks(low, middle(low, high)),
            (Phase::Entries { low, high }, _) if low == high => self.phase,
            (Phase::Entries { low, high }, true) => Phase::Entries { low: middle(low, high) + 1, high },
            (Phase::Entries { low, high }, false) => Phase::Entries { low, high: middle(low, high) },
        };
    }
}

fn gallop(low: u64, step: u64) -> u64 {
    // The last block whose entries all have a number.
    low.saturating_add(step - 1).min(u64::MAX / BLOCK - 1)
}

fn middle(low: u64, high: u64) -> u64 {
    low + (high - low) / 2
}

fn blocks(low: u64, high: u64) -> Phase {
    if low == high {
        Phase::Entries { low: block_start(low).0, high: block_end(low).0 }
    } else {
        Phase::Blocks { low, high }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches a log of `entries` entries of which the first `cleaned` blocks keep only their last one.
    fn search(entries: u64, cleaned: u64) -> (u64, u32) {
        let mut search = TailSearch::new();
        let mut questions = 0;
        loop {
            match search.next() {
                Probe::Exists(seq) => {
                    let there = seq.0 < entries && (seq.block() >= cleaned || seq.is_block_end());
                    search.answer(there);
                    questions += 1;
                }
                Probe::Found(seq) => return (seq.0, questions),
            }
        }
    }

    #[test]
    fn the_end_is_found_at_every_edge_of_a_block() {
        for block in [0, 1, 2, 3, 4, 7, 8, 1_000] {
            for (around, _) in [(0, ()), (1, ()), (2, ()), (1_022, ()), (1_023, ())] {
                let entries = block * BLOCK + around;
                assert_eq!(search(entries, block).0, entries);
            }
        }
    }

    proptest! {
        #[test]
        fn the_end_is_found_in_few_questions_whatever_was_cleaned(
            entries in prop_oneof![0u64..10_000, 0u64..10_000_000, 0u64..1 << 50],
            share in 0.0f64..=1.0,
        ) {
            let cleaned = ((entries / BLOCK) as f64 * share) as u64;
            let (found, questions) = search(entries, cleaned);
            prop_assert_eq!(found, entries);
            prop_assert!(f64::from(questions) <= 2.0 * ((entries / BLOCK + 2) as f64).log2() + 13.0, "{questions}");
        }
    }
}
