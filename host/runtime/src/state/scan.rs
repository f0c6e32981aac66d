//! A scan over the entries of one map or list: bounds, direction, and a page of what is found.
//!
//! Owns how what a newer place says of an entry hides what an older one says. Does not own the places: the writes of a call,
//! the run in the cache, the rows of RocksDB.

use std::ops::Bound;

use wasmill_core::record::Column;

use super::error::Error;
use super::lifetime::Sight;

/// Bytes of map keys and values after which a page ends; the entry that passes them is in it.
pub const PAGE_BYTES: usize = 4 << 20;

/// Entries that a page holds at most.
pub const PAGE_ENTRIES: usize = 16_384;

/// Entries within bounds, in the order of their names' bytes or against it.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// The lower bound.
    pub lower: Bound<&'a [u8]>,
    /// The upper bound.
    pub upper: Bound<&'a [u8]>,
    /// From the upper bound down.
    pub reverse: bool,
}

impl<'a> Range<'a> {
    /// All entries, in order.
    pub const ALL: Self = Self { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false };

    /// Whether no bytes can lie within.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (self.lower, self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
            _ => false,
        }
    }

    /// Both bounds.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
        (self.lower, self.upper)
    }
}

/// Entries found by a scan, up to a limit.
#[derive(Debug, Default)]
pub struct Page {
    /// Map keys; of a list nothing.
    pub names: Column,
    /// Their values.
    pub values: Column,
    /// The scan has more.
    pub more: bool,
}

/// Entries in the order of a scan.
pub(super) trait Cursor {
    /// The entry where the cursor stands: its name and its value, `None` where it is known to be absent; none at the end.
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)>;

    /// Goes on to the next entry.
    fn advance(&mut self) -> Result<(), Error>;
}

/// A cursor over entries in memory.
pub(super) struct Walk<'a, I> {
    entries: I,
    reverse: bool,
    at: Option<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a, I: DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)>> Walk<'a, I> {
    pub(super) fn new(mut entries: I, reverse: bool) -> Self {
        let at = if reverse { entries.next_back() } else { entries.next() };
        Self { entries, reverse, at }
    }
}

impl<'a, I: DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)>> Cursor for Walk<'a, I> {
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        self.at
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.at = if self.reverse { self.entries.next_back() } else { self.entries.next() };
        Ok(())
    }
}

/// Two cursors as one: what `newer` says of an entry hides what `older` says.
pub(super) struct Merged<A, B> {
    newer: A,
    older: B,
    reverse: bool,
    from: From,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Newer,
    Older,
    Both,
}

impl<A: Cursor, B: Cursor> Merged<A, B> {
    pub(super) fn new(newer: A, older: B, reverse: bool) -> Self {
        let mut merged = Self { newer, older, reverse, from: From::Newer };
        merged.choose();
        merged
    }

    fn choose(&mut self) {
        self.from = match (self.newer.entry(), self.older.entry()) {
            (Some((newer, _)), Some((older, _))) => match newer.cmp(older) {
                std::cmp::Ordering::Equal => From::Both,
                order if order.is_lt() != self.reverse => From::Newer,
                _ => From::Older,
            },
            (Some(_), None) => From::Newer,
            (None, _) => From::Older,
        };
    }
}

impl<A: Cursor, B: Cursor> Cursor for Merged<A, B> {
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        if self.from == From::Older { self.older.entry() } else { self.newer.entry() }
    }

    fn advance(&mut self) -> Result<(), Error> {
        if self.from != From::Older {
            self.newer.advance()?;
        }
        if self.from != From::Newer {
            self.older.advance()?;
        }
        self.choose();
        Ok(())
    }
}

impl Page {
    /// Takes entries that `sight` sees until the page has `limit` of them, [`PAGE_ENTRIES`] or [`PAGE_BYTES`].
    pub(super) fn fill(&mut self, mut cursor: impl Cursor, limit: usize, sight: Sight) -> Result<(), Error> {
        while let Some((name, value)) = cursor.entry() {
            if let Some(value) = value.and_then(|stored| sight.of(stored)) {
                if self.is_full(limit) {
                    self.more = true;
                    return Ok(());
                }
                self.names.push(name);
                self.values.push(value);
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Whether the page takes no more.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.values.len() >= limit.min(PAGE_ENTRIES)
            || self.names.bytes().len() + self.values.bytes().len() >= PAGE_BYTES
    }
}
