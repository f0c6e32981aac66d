//! The rows of maps and lists: changes of keys written, rows of one key read in order.
//!
//! Owns how a key that was cleared loses its rows. Does not own what changed.

use std::ops::Bound;

use super::{Backend, RowCursor, Rows, Span, Writes};
use crate::state::StateSpec;
use crate::state::changes::{Changes, KeyChanges};
use crate::state::error::Error;
use crate::state::lifetime;
use crate::state::row;
use crate::state::scan::{Cursor, Range};

/// Rows of a cleared key that are deleted one by one. More get one range deletion: it costs each later read near it a little,
/// and a deletion for each row costs each later scan over them.
const DELETED_ONE_BY_ONE: usize = 256;

/// Where the entries of one key lie among the rows of a state, and which of them are meant.
pub(in crate::state) struct Entries<'a> {
    pub(in crate::state) state: usize,
    /// The row of the key's head.
    pub(in crate::state) head: &'a [u8],
    pub(in crate::state) range: Range<'a>,
    /// What is declared of the state: its version is what they must have.
    pub(in crate::state) spec: &'a StateSpec,
}

/// A cursor over entries. It sees what was written before it was made.
pub(in crate::state) struct EntryCursor<'a> {
    backend: &'a Backend,
    rows: RowCursor<'a>,
    state: usize,
    spec: &'a StateSpec,
    /// Bytes before the name in a row's key, and before the stored value in its value, where it stands there as it is.
    name_at: usize,
    value_at: Option<usize>,
    /// The stored value where it does not.
    stored: Vec<u8>,
}

impl Backend {
    /// The entries of one key that are stored.
    pub(in crate::state) fn entries<'a>(&'a self, entries: &Entries<'a>) -> Result<EntryCursor<'a>, Error> {
        let Entries { state, head, range, spec } = *entries;
        let (lower, upper) = bounds(head, range);
        let span = Span { lower: &lower, upper: &upper, reverse: range.reverse, again: true };
        let rows = self.cursor(state, &span)?;
        let name_at = head.len() + 1;
        let mut cursor = EntryCursor { backend: self, rows, state, spec, name_at, value_at: None, stored: Vec::new() };
        cursor.read()?;
        Ok(cursor)
    }

    /// Writes changes, in the order of their rows.
    pub(in crate::state) fn write_changes(&self, changes: &Changes, forms: &[row::Form]) -> Result<(), Error> {
        let mut writes = self.writes();
        let (mut row, mut value) = (Vec::new(), Vec::new());
        for key in &changes.keys {
            let state = usize::from(key.state);
            row.clear();
            row::encode_key(key.group, &key.key, &mut row);
            if key.cleared {
                self.clear(state, &row, &mut writes)?;
            }
            self.write_key(key, &mut row, &mut value, (&mut writes, forms[state]))?;
        }
        writes.finish()
    }

    fn write_key(
        &self,
        key: &KeyChanges,
        row: &mut Vec<u8>,
        value: &mut Vec<u8>,
        (writes, form): (&mut Writes<'_>, row::Form),
    ) -> Result<(), Error> {
        let state = usize::from(key.state);
        if key.head.tally.entries == 0 {
            writes.delete(state, row)?;
        } else {
            value.clear();
            row::encode_head(key.head, value);
            writes.put(state, row, value)?;
        }
        let head = row.len();
        for change in &key.entries {
            row.truncate(head);
            row::encode_entry(&change.entry, row);
            match &change.value {
                Some(bytes) => {
                    value.clear();
                    form.encode(bytes, value);
                    writes.put(state, row, value)?;
                }
                None => writes.delete(state, row)?,
            }
        }
        Ok(())
    }

    /// Deletes the entries of the key with this head, which earlier changes wrote.
    fn clear(&self, state: usize, head: &[u8], writes: &mut Writes<'_>) -> Result<(), Error> {
        let (lower, upper) = bounds(head, Range::ALL);
        let mut few = Rows::default();
        let mut rows = self.cursor(state, &Span { lower: &lower, upper: &upper, reverse: false, again: false })?;
        for _ in 0..DELETED_ONE_BY_ONE {
            let Some((row, _)) = rows.item() else { break };
            few.push_with(|key| key.extend_from_slice(row));
            rows.next();
        }
        let more = rows.item().is_some();
        rows.check()?;
        drop(rows);
        few.iter().try_for_each(|row| writes.delete(state, row))?;
        if more { writes.delete_range(state, &lower, &upper) } else { Ok(()) }
    }
}

impl EntryCursor<'_> {
    /// Finds the value in the row where the cursor stands.
    fn read(&mut self) -> Result<(), Error> {
        let Some((key, value)) = self.rows.item() else {
            return self.rows.check();
        };
        let found = row::decode_value(value).map_err(|reason| self.backend.bad_row(self.state, key, reason))?;
        if found.version != self.spec.version {
            return Err(self.backend.other_version(self.spec, found.version));
        }
        let at = lifetime::find(found.entry, self.spec.ttl, value.len(), &mut self.stored);
        self.value_at = at.map_err(|reason| self.backend.bad_row(self.state, key, reason))?;
        Ok(())
    }
}

impl Cursor for EntryCursor<'_> {
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let (key, value) = self.rows.item()?;
        let stored = self.value_at.map_or(&self.stored[..], |at| &value[at..]);
        Some((&key[self.name_at..], Some(stored)))
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.rows.next();
        self.read()
    }
}

/// The first row of a range of a key's entries, and the first behind it.
fn bounds(head: &[u8], range: Range<'_>) -> (Vec<u8>, Vec<u8>) {
    let row = |name: &[u8], behind: bool| {
        let mut row = head.to_vec();
        row::encode_entry(name, &mut row);
        if behind {
            // The next in the order of bytes.
            row.push(0);
        }
        row
    };
    let from = match range.lower {
        Bound::Unbounded => row(&[], false),
        Bound::Included(name) => row(name, false),
        Bound::Excluded(name) => row(name, true),
    };
    let to = match range.upper {
        Bound::Unbounded => {
            let mut end = head.to_vec();
            row::encode_entries_end(&mut end);
            end
        }
        Bound::Included(name) => row(name, true),
        Bound::Excluded(name) => row(name, false),
    };
    (from, to)
}
