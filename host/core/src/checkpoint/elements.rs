//! Which elements of operator state go to which subtask after a restore.
//!
//! Owns the redistribution: none is lost, none doubled, the same each time. Elements are counted through in the order of the
//! subtasks that had them and, of each, of their positions. Does not own where they lie, nor what union state shows beside a subtask's own.

use std::ops::Range;

use crate::contract::{OperatorContract, StateKind};
use crate::id::{Parallelism, SubtaskIndex};

/// Whether an operator's subtasks must be told the elements of the others: always where it has union state, and for split state where
/// `before` subtasks become another number.
#[must_use]
pub fn are_needed(contract: &OperatorContract, before: usize, now: Parallelism) -> bool {
    contract.states.iter().any(|state| match state.kind {
        StateKind::OperatorUnion => true,
        StateKind::OperatorSplit => before != now.get() as usize,
        StateKind::Value | StateKind::List | StateKind::Map | StateKind::Broadcast => false,
    })
}

/// The elements that are `subtask`'s own, where the subtasks before had `counts` of them. As many subtasks as before keep what they
/// had; else each gets a run of them, and the lengths of these differ by at most one.
#[must_use]
pub fn own(counts: &[u64], subtask: SubtaskIndex, now: Parallelism) -> Range<u64> {
    let before = |index: usize| counts.iter().take(index).fold(0u64, |sum, count| sum.saturating_add(*count));
    let index = subtask.0 as usize;
    if counts.len() == now.get() as usize {
        return before(index)..before(index.saturating_add(1));
    }
    let (all, now) = (u128::from(before(counts.len())), u128::from(now.get()));
    // The quotient is at most `all` up to the last subtask, so it fits.
    let first = |index: u128| (all * index.min(now) / now) as u64;
    let index = u128::from(subtask.0);
    first(index)..first(index + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owns(counts: &[u64], now: u32) -> Vec<Range<u64>> {
        let now = Parallelism::new(now).unwrap();
        now.subtasks().map(|subtask| own(counts, subtask, now)).collect()
    }

    #[test]
    fn as_many_subtasks_keep_what_they_had_and_others_share_evenly_in_order() {
        assert_eq!(owns(&[3, 0, 1], 3), [0..3, 3..3, 3..4]);
        assert_eq!(owns(&[3, 1], 3), [0..1, 1..2, 2..4]);
        assert_eq!(owns(&[1, 1, 2], 1), std::slice::from_ref(&(0..4)));
        assert_eq!(owns(&[2], 3), [0..0, 0..1, 1..2]);
        assert_eq!(owns(&[], 2), [0..0, 0..0]);
    }

    proptest! {
        #[test]
        fn every_element_goes_to_one_subtask_and_each_gets_about_as_many(
            counts in prop::collection::vec(prop_oneof![0u64..9, Just(u64::MAX / 16)], 0..9),
            now in 1u32..20,
        ) {
            let owns = owns(&counts, now);
            let mut next = 0;
            for range in &owns {
                prop_assert_eq!(range.start, next);
                next = range.end;
            }
            prop_assert_eq!(next, counts.iter().sum::<u64>());
            if counts.len() != now as usize {
                let lengths = || owns.iter().map(|range| range.end - range.start);
                prop_assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
            }
        }
    }
}
