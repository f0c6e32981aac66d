//! Columns of records: the shape in which records cross channels and the guest's boundary.
//!
//! Owns how byte strings lie end to end and which of them are absent. Does not own what the bytes mean.

use std::fmt;
use std::sync::Arc;

use crate::key_group::KeyHash;
use crate::time::Timestamp;

/// Byte strings end to end: value `i` is `bytes[ends[i-1]..ends[i]]`, with `ends[-1] = 0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Column {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Value `index`.
    ///
    /// # Panics
    /// Past the end, as slices do.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// Appends a value.
    ///
    /// # Panics
    /// Past 4 GiB of bytes: batches are cut by bytes long before.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.end_value();
    }

    /// Appends a value that `write` appends to the bytes, without a copy.
    pub fn push_with<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let result = write(&mut self.bytes);
        self.end_value();
        result
    }

    /// Removes the values from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    /// Empties the column and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// All bytes, end to end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The end of each value.
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn end_value(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a column is cut before 4 GiB");
        self.ends.push(end);
    }
}

impl<'a> FromIterator<&'a [u8]> for Column {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(values: I) -> Self {
        let mut column = Self::default();
        for value in values {
            column.push(value);
        }
        column
    }
}

/// A column with gaps: absent is not empty (a Kafka tombstone, a null key).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionalColumn {
    values: Column,
    absent: Vec<u32>,
}

impl OptionalColumn {
    /// How many values there are, present or absent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is neither a value nor a gap.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Value `index`; `None` where it is absent.
    ///
    /// # Panics
    /// Past the end, as slices do.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        if !self.absent.is_empty() && self.absent.binary_search(&(index as u32)).is_ok() {
            return None;
        }
        Some(self.values.get(index))
    }

    /// Appends a value or a gap.
    pub fn push(&mut self, value: Option<&[u8]>) {
        if value.is_none() {
            self.absent.push(self.values.len() as u32);
        }
        self.values.push(value.unwrap_or_default());
    }

    /// Appends a present value that `write` appends to the bytes, without a copy.
    pub fn push_with<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.values.push_with(write)
    }

    /// Removes the values from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        let keep = self.absent.partition_point(|&index| (index as usize) < len);
        self.absent.truncate(keep);
    }

    /// Empties the column and keeps its memory.
    pub fn clear(&mut self) {
        self.values.clear();
        self.absent.clear();
    }

    /// The values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The values with the absent ones empty.
    #[must_use]
    pub fn values(&self) -> &Column {
        &self.values
    }

    /// The indexes of the absent values, ascending.
    #[must_use]
    pub fn absent(&self) -> &[u32] {
        &self.absent
    }
}

/// One header of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The record's index in its batch; headers ascend by it.
    pub record: u32,
    /// The header's name.
    pub name: Vec<u8>,
    /// The header's value.
    pub value: Vec<u8>,
}

/// The channel's watermark becomes `watermark` after the first `after` records of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkMark {
    /// How many records of the batch come before it.
    pub after: u32,
    /// No record at or before this time follows, but late ones.
    pub watermark: Timestamp,
}

/// The split of a source (a file, a partition) that records were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The source's uid.
    pub source: String,
    /// The split's name.
    pub split: String,
}

/// Where one record stood in its source, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The split.
    pub origin: Arc<Origin>,
    /// Its line in a file, counted from 1; elsewhere its number in the split.
    pub position: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} of source `{}`", self.origin.split, self.position, self.origin.source)
    }
}

/// Records in order, with the watermarks between them. A batch without records and with a mark is a watermark alone.
///
/// `keys`, `values` and `times` have one entry a record; `hashes` has one a record or none at all (not computed yet).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordBatch {
    /// Each record's key: the source's, or the one that the last keyed edge gave it.
    pub keys: OptionalColumn,
    /// The hash of each record's key, where a keyed edge computed it; of an absent key, anything.
    pub hashes: Vec<KeyHash>,
    /// Each record's event time.
    pub times: Vec<Timestamp>,
    /// Each record's value.
    pub values: OptionalColumn,
    /// The records' headers, ascending by record.
    pub headers: Vec<Header>,
    /// The watermarks, ascending by `after` and by time.
    pub marks: Vec<WatermarkMark>,
    /// The split that all the records were read from; `None` where an operator made them.
    pub origin: Option<Arc<Origin>>,
    /// Each record's position in that split, or none at all.
    pub positions: Vec<u64>,
}

impl RecordBatch {
    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is no record; there may be a watermark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Appends a record without headers.
    pub fn push(&mut self, key: Option<&[u8]>, time: Timestamp, value: Option<&[u8]>) {
        self.keys.push(key);
        self.times.push(time);
        self.values.push(value);
    }

    /// The headers of a record.
    #[must_use]
    pub fn headers_of(&self, record: usize) -> &[Header] {
        let from = self.headers.partition_point(|header| (header.record as usize) < record);
        let own = self.headers[from..].partition_point(|header| header.record as usize == record);
        &self.headers[from..from + own]
    }

    /// Where a record stood in its source, where that is known.
    #[must_use]
    pub fn place(&self, record: usize) -> Option<Place> {
        let (origin, position) = self.origin.as_ref().zip(self.positions.get(record))?;
        Some(Place { origin: Arc::clone(origin), position: *position })
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.keys.values().bytes().len() + self.values.values().bytes().len()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.hashes.clear();
        self.times.clear();
        self.values.clear();
        self.headers.clear();
        self.marks.clear();
        self.origin = None;
        self.positions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_not_empty() {
        let mut column = OptionalColumn::default();
        column.push(Some(b"a"));
        column.push(None);
        column.push(Some(b""));
        assert_eq!(column.iter().collect::<Vec<_>>(), [Some(&b"a"[..]), None, Some(&b""[..])]);
        column.truncate(1);
        column.push(Some(b"b"));
        assert_eq!(column.iter().collect::<Vec<_>>(), [Some(&b"a"[..]), Some(&b"b"[..])]);
    }

    #[test]
    fn a_truncated_column_goes_on_where_it_was_cut() {
        let mut column: Column = [&b"one"[..], b"two", b"three"].into_iter().collect();
        column.truncate(1);
        column.push(b"2");
        assert_eq!(column.iter().collect::<Vec<_>>(), [&b"one"[..], b"2"]);
    }
}
