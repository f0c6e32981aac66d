//! A row in memory: key and value in one allocation that readers share.
//!
//! Owns the order of rows and what one takes. Does not own where rows lie.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// About the memory of a row beside its bytes: its place in a tree three quarters full, the counts of the allocation, the allocator's
/// share.
const ROW_BYTES: usize = 72;

/// A row. Equal and ordered by its key alone.
#[derive(Debug, Clone)]
pub(in crate::state) struct Row {
    /// The key's first bytes as a number: most comparisons need no more, and it is at hand.
    head: u64,
    key: u32,
    bytes: Arc<[u8]>,
}

impl Row {
    pub(super) fn new(key: &[u8], value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self { head: head(key), key: key.len() as u32, bytes: bytes.into() }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key as usize]
    }

    pub(in crate::state) fn value(&self) -> &[u8] {
        &self.bytes[self.key as usize..]
    }

    /// About the memory that it takes.
    pub(super) fn memory(&self) -> usize {
        ROW_BYTES + self.bytes.len()
    }
}

/// What rows are ordered and found by, so that a look-up needs no row.
pub(super) trait Keyed {
    fn order(&self) -> (u64, &[u8]);
}

/// A key to look up.
pub(super) struct Probe<'a> {
    head: u64,
    key: &'a [u8],
}

impl<'a> Probe<'a> {
    pub(super) fn new(key: &'a [u8]) -> Self {
        Self { head: head(key), key }
    }

    pub(super) fn keyed(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl Keyed for Probe<'_> {
    fn order(&self) -> (u64, &[u8]) {
        (self.head, self.key)
    }
}

impl Keyed for Row {
    fn order(&self) -> (u64, &[u8]) {
        (self.head, self.key())
    }
}

impl<'a> Borrow<dyn Keyed + 'a> for Row {
    fn borrow(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl Ord for dyn Keyed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for dyn Keyed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Keyed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Keyed + '_ {}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row {}

/// The first eight bytes, zeros behind a shorter key: where two differ, so do the keys, in the same order.
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_in_the_order_of_their_keys_bytes(
            a in proptest::collection::vec(0u8..3, 0..12),
            b in proptest::collection::vec(0u8..3, 0..12),
        ) {
            let (one, other) = (Row::new(&a, b"x"), Row::new(&b, b"y"));
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(Probe::new(&a).keyed().cmp(other.borrow()), a.cmp(&b));
        }
    }
}
