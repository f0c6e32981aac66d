//! A walk over the entries of a map, page by page.
//!
//! Owns the range that is left and the page in hand. Does not own entries: the handle of a state brings its own changes and
//! those of the host together.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::bindings::wasmill::operator::state::{Bounds, Page};
use crate::columns::{Malformed, Strings};
use crate::error::{Error, Result};
use crate::map_key::{MapKey, after_prefix};

/// Entries that a walk asks for at first; each further page is larger.
const FIRST_PAGE: u32 = 32;
const LARGEST_PAGE: u32 = 512;

/// A walk over the entries of a map, ascending by key, that a handle's `next` takes further.
///
/// It shows each entry as it stands when the walk comes to it: what is written or removed ahead of it is seen, what is
/// written behind it is not, and no entry is shown twice. It lasts as long as the record in hand.
#[derive(Debug, Clone)]
pub struct Scan<K> {
    range: Range,
    left: Option<u32>,
    page: Page,
    next_in_page: usize,
    /// The host has nothing left in the range but what is in the page.
    exhausted: bool,
    page_limit: u32,
    /// State, call and origin that it began with.
    began: Option<(u16, u32, u32)>,
    key: PhantomData<fn() -> K>,
}

/// Keys between two ends, and the direction to go.
#[derive(Debug, Clone, Default)]
pub(super) struct Range {
    lower: Option<Vec<u8>>,
    lower_open: bool,
    upper: Option<Vec<u8>>,
    upper_open: bool,
    reverse: bool,
}

impl Range {
    pub(super) fn is_reverse(&self) -> bool {
        self.reverse
    }

    pub(super) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) => lower > upper || (lower == upper && (self.lower_open || self.upper_open)),
            _ => false,
        }
    }

    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (bound(self.lower.as_deref(), self.lower_open), bound(self.upper.as_deref(), self.upper_open))
    }

    /// Leaves out everything up to `key`.
    fn pass(&mut self, key: &[u8]) {
        let (end, open) = if self.reverse {
            (&mut self.upper, &mut self.upper_open)
        } else {
            (&mut self.lower, &mut self.lower_open)
        };
        let end = end.get_or_insert_default();
        end.clear();
        end.extend_from_slice(key);
        *open = true;
    }
}

impl<K> Scan<K> {
    fn over(range: Range) -> Self {
        let none = || crate::types::Column { bytes: Vec::new(), ends: Vec::new() };
        Self {
            range,
            left: None,
            page: Page { keys: none(), values: none(), more: true },
            next_in_page: 0,
            exhausted: false,
            page_limit: FIRST_PAGE,
            began: None,
            key: PhantomData,
        }
    }

    pub(super) fn all() -> Self {
        Self::over(Range::default())
    }

    pub(super) fn range<Q: MapKey>(range: &impl RangeBounds<Q>) -> Self {
        let end = |bound: Bound<&Q>| match bound {
            Bound::Unbounded => (None, false),
            Bound::Included(key) => (Some(bytes(key)), false),
            Bound::Excluded(key) => (Some(bytes(key)), true),
        };
        let ((lower, lower_open), (upper, upper_open)) = (end(range.start_bound()), end(range.end_bound()));
        Self::over(Range { lower, lower_open, upper, upper_open, reverse: false })
    }

    pub(super) fn prefix(prefix: &(impl MapKey + ?Sized)) -> Self {
        let lower = bytes(prefix);
        let upper = after_prefix(&lower);
        Self::over(Range { lower: Some(lower), lower_open: false, upper, upper_open: true, reverse: false })
    }

    /// Descending by key.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.range.reverse = true;
        self
    }

    /// At most this many entries.
    #[must_use]
    pub fn limit(mut self, entries: u32) -> Self {
        self.left = Some(entries);
        self.page_limit = entries.clamp(1, LARGEST_PAGE);
        self
    }

    /// Begins with the first use; afterwards it must be the same state and record.
    pub(super) fn bind(&mut self, state: u16, call: u32, origin: u32) -> Result {
        match *self.began.get_or_insert((state, call, origin)) {
            began if began == (state, call, origin) => Ok(()),
            _ => Err(Error::fatal("a scan was used with another state or beyond the record that it began with")),
        }
    }

    /// Whether no entry may be shown any more.
    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0) || self.range.is_empty()
    }

    pub(super) fn left(&self) -> &Range {
        &self.range
    }

    /// What to ask the host for; `None` while the page in hand lasts, or where the host has no more.
    pub(super) fn asks(&mut self) -> Option<Bounds> {
        if self.exhausted || self.front().is_some() {
            return None;
        }
        let Range { lower, lower_open, upper, upper_open, reverse } = self.range.clone();
        let limit = self.page_limit;
        self.page_limit = limit.saturating_mul(4).min(LARGEST_PAGE);
        Some(Bounds { lower, lower_open, upper, upper_open, reverse, limit })
    }

    /// Takes the host's page.
    pub(super) fn turn(&mut self, page: Page) -> Result {
        let check = || {
            let (keys, values) = (Strings::check(&page.keys)?, Strings::check(&page.values)?);
            match (keys.len(), page.more) {
                (len, _) if len != values.len() => Err(Malformed("a page has not as many values as keys")),
                (0, true) => Err(Malformed("an empty page says that more follows")),
                _ => Ok(()),
            }
        };
        check().map_err(Malformed::fault)?;
        self.exhausted = !page.more;
        self.page = page;
        self.next_in_page = 0;
        Ok(())
    }

    /// Lets go of what the host has: it no longer counts.
    pub(super) fn drop_page(&mut self) {
        self.exhausted = true;
        self.next_in_page = usize::MAX;
    }

    /// The host's next entry.
    pub(super) fn front(&self) -> Option<(&[u8], &[u8])> {
        let keys = Strings::checked(&self.page.keys);
        (self.next_in_page < keys.len())
            .then(|| (keys.get(self.next_in_page), Strings::checked(&self.page.values).get(self.next_in_page)))
    }

    /// Moves past `key`, which counts where it is `shown`.
    pub(super) fn pass(&mut self, key: &[u8], shown: bool) {
        if self.front().is_some_and(|(front, _)| front == key) {
            self.next_in_page += 1;
        }
        self.range.pass(key);
        if shown && let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
    }
}

fn bytes(key: &(impl MapKey + ?Sized)) -> Vec<u8> {
    let mut out = Vec::new();
    key.write(&mut out);
    out
}

fn bound(end: Option<&[u8]>, open: bool) -> Bound<&[u8]> {
    match end {
        None => Bound::Unbounded,
        Some(key) if open => Bound::Excluded(key),
        Some(key) => Bound::Included(key),
    }
}
