//! Which records of a failed batch are run again in which pieces, until the one at fault stands alone.
//!
//! Decides and runs nothing. Halves what failed and keeps the order, so that n records of which one is at fault cost about
//! 2 log n calls, and 2n where all are. Does not own what becomes of the record found.

use std::ops::Range;

/// The records of one batch on their way through the pieces.
#[derive(Debug)]
pub(super) struct Isolation {
    left_out: Vec<bool>,
    tries: Vec<u32>,
    /// What is still to be run, the first at the end.
    todo: Vec<Piece>,
}

#[derive(Debug)]
struct Piece {
    range: Range<usize>,
    fault: Fault,
}

/// What is known of a piece before it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    Possible,
    /// It is within, where the other half before it goes well.
    Other,
    /// It is within: the piece is halved without being run whole.
    Within,
}

impl Isolation {
    /// Of a batch of `records`, all still to be run.
    pub(super) fn new(records: usize) -> Self {
        Self {
            left_out: vec![false; records],
            tries: vec![0; records],
            todo: vec![Piece { range: 0..records, fault: Fault::Possible }],
        }
    }

    /// The piece to run now; none of its records may be left.
    pub(super) fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let Piece { range, fault } = self.todo.pop()?;
            if fault != Fault::Within || self.count(&range) < 2 {
                return Some(range);
            }
            self.halve(range);
        }
    }

    /// By record: those that are not run any more.
    pub(super) fn left_out(&self) -> &[bool] {
        &self.left_out
    }

    /// How many calls failed that had the record in them.
    pub(super) fn tries(&self, record: usize) -> u32 {
        self.tries.get(record).copied().unwrap_or_default()
    }

    /// The piece's first `consumed` records are done.
    pub(super) fn succeeded(&mut self, range: Range<usize>, consumed: usize) {
        if consumed < self.count(&range) {
            let start = self.index(&range, consumed);
            self.todo.push(Piece { range: start..range.end, fault: Fault::Possible });
        } else if let Some(Piece { fault: fault @ Fault::Other, .. }) = self.todo.last_mut() {
            *fault = Fault::Within;
        }
    }

    /// The piece is to be run in two: its first `count` records, then the rest.
    pub(super) fn split(&mut self, range: Range<usize>, count: usize) {
        let middle = self.index(&range, count);
        self.todo.push(Piece { range: middle..range.end, fault: Fault::Possible });
        self.todo.push(Piece { range: range.start..middle, fault: Fault::Possible });
    }

    /// The piece failed. Returns the record at fault where it stood alone: it is left out from now on.
    pub(super) fn failed(&mut self, range: Range<usize>) -> Option<usize> {
        if let Some(Piece { fault: fault @ Fault::Other, .. }) = self.todo.last_mut() {
            *fault = Fault::Possible;
        }
        for record in range.clone().filter(|record| !self.left_out[*record]) {
            self.tries[record] += 1;
        }
        if self.count(&range) > 1 {
            self.halve(range);
            return None;
        }
        let alone = self.index(&range, 0);
        self.leave_out(range, &[0]);
        (alone < self.left_out.len()).then_some(alone)
    }

    /// The piece is to be run again without these of its records, counted among those that were run. Returns them counted
    /// among all.
    pub(super) fn leave_out(&mut self, range: Range<usize>, records: &[usize]) -> Vec<usize> {
        let found: Vec<_> = records.iter().map(|&record| self.index(&range, record)).collect();
        for &record in &found {
            if let Some(left_out) = self.left_out.get_mut(record) {
                *left_out = true;
            }
        }
        self.todo.push(Piece { range, fault: Fault::Possible });
        found
    }

    fn halve(&mut self, range: Range<usize>) {
        let middle = self.index(&range, self.count(&range) / 2);
        self.todo.push(Piece { range: middle..range.end, fault: Fault::Other });
        self.todo.push(Piece { range: range.start..middle, fault: Fault::Possible });
    }

    /// How many of the piece's records are run.
    fn count(&self, range: &Range<usize>) -> usize {
        range.clone().filter(|record| !self.left_out[*record]).count()
    }

    /// The place among all of the piece's record `nth`, counted among those that are run; its end where there is none.
    fn index(&self, range: &Range<usize>, nth: usize) -> usize {
        range.clone().filter(|record| !self.left_out[*record]).nth(nth).unwrap_or(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all, with a call that fails where a record of `poison` is in it. Returns the records done in order, the records at
    /// fault, the pieces that failed and how many ran.
    fn run(records: usize, poison: &[usize]) -> (Vec<usize>, Vec<usize>, usize, usize) {
        let mut isolation = Isolation::new(records);
        let (mut done, mut found, mut failures, mut calls) = (Vec::new(), Vec::new(), 0, 0);
        while let Some(range) = isolation.next() {
            let live: Vec<_> = range.clone().filter(|record| !isolation.left_out()[*record]).collect();
            if live.is_empty() {
                isolation.succeeded(range, 0);
                continue;
            }
            calls += 1;
            if live.iter().any(|record| poison.contains(record)) {
                failures += 1;
                found.extend(isolation.failed(range));
            } else {
                done.extend(&live);
                isolation.succeeded(range, live.len());
            }
        }
        (done, found, failures, calls)
    }

    #[test]
    fn the_record_at_fault_is_found_wherever_it_stands_and_the_rest_keeps_its_order() {
        for records in 1..40 {
            for poison in 0..records {
                let (done, found, failures, calls) = run(records, &[poison]);
                assert_eq!(found, [poison]);
                assert_eq!(done, (0..records).filter(|record| *record != poison).collect::<Vec<_>>());
                let log = records.next_power_of_two().trailing_zeros() as usize;
                assert!(failures <= log + 1 && calls <= 2 * log + 2, "{records} {poison}: {failures} of {calls}");
            }
        }
    }

    #[test]
    fn any_number_of_records_at_fault_costs_at_most_two_calls_a_record() {
        for mask in 0u32..1 << 10 {
            let poison: Vec<_> = (0..10).filter(|record| mask & (1 << record) != 0).collect();
            let (done, found, _, calls) = run(10, &poison);
            assert_eq!(found, poison);
            assert_eq!(done.len(), 10 - poison.len());
            assert!(calls < 20, "{mask:b}: {calls}");
        }
        assert_eq!(run(1024, &(0..1024).collect::<Vec<_>>()).3, 2047);
        assert!(run(1024, &[1023]).2 <= 2, "what must be in the other half is not run whole");
    }

    #[test]
    fn a_piece_that_fails_only_together_is_done_in_pieces() {
        let mut isolation = Isolation::new(8);
        let mut done = Vec::new();
        while let Some(range) = isolation.next() {
            if range.len() > 3 {
                assert_eq!(isolation.failed(range), None);
            } else {
                done.extend(range.clone());
                let count = range.len();
                isolation.succeeded(range, count);
            }
        }
        assert_eq!(done, (0..8).collect::<Vec<_>>());
        assert_eq!((isolation.tries(0), isolation.tries(7)), (2, 2));
    }

    #[test]
    fn what_a_call_leaves_unconsumed_comes_next() {
        let mut isolation = Isolation::new(5);
        assert_eq!(isolation.next(), Some(0..5));
        isolation.succeeded(0..5, 2);
        assert_eq!(isolation.next(), Some(2..5));
        assert_eq!(isolation.leave_out(2..5, &[1]), [3]);
        assert_eq!(isolation.next(), Some(2..5));
        isolation.succeeded(2..5, 1);
        assert_eq!(isolation.next(), Some(4..5));
        isolation.succeeded(4..5, 1);
        assert_eq!(isolation.next(), None);
    }
}
