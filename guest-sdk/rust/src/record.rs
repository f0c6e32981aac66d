//! A batch seen record by record.
//!
//! Owns the checks of a batch's shape and what an operator may ask of a record. Does not own effects.

use serde::Deserialize;

use crate::bindings::wasmill::operator::types::{Batch, Column, Headers, WatermarkRun};
use crate::cbor;
use crate::columns::{Malformed, S64s, Strings, U32s};
use crate::error::{Error, Result};
use crate::key::{self, FromKey};
use crate::time::Timestamp;

/// Who acts: the keys of a call, and the key and time of each of its records or timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origins<'a> {
    keys: Strings<'a>,
    absent_key: Option<u32>,
    slots: U32s<'a>,
    times: S64s<'a>,
}

impl<'a> Origins<'a> {
    pub(crate) fn check(
        keys: &'a Column,
        absent_key: Option<u32>,
        slots: &'a [u8],
        times: &'a [u8],
    ) -> std::result::Result<Self, Malformed> {
        let keys = Strings::check(keys)?;
        let origins = Self { keys, absent_key, slots: U32s::check(slots)?, times: S64s::check(times)? };
        if origins.slots.len() != origins.times.len() {
            return Err(Malformed("a batch has not as many slots as times"));
        }
        let keys = origins.keys.len();
        if origins.slots.iter().fold(false, |out, slot| out | (slot as usize >= keys)) {
            return Err(Malformed("a slot lies past the batch's keys"));
        }
        Ok(origins)
    }

    pub(crate) fn slots(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    pub(crate) fn slot(&self, origin: u32) -> u32 {
        self.slots.get(origin as usize).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn time(&self, origin: u32) -> i64 {
        self.times.get(origin as usize).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn key(&self, origin: u32) -> Option<&'a [u8]> {
        let slot = self.slot(origin);
        (self.absent_key != Some(slot)).then(|| self.keys.get(slot as usize))
    }
}

/// A checked batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    pub(crate) origins: Origins<'a>,
    values: Strings<'a>,
    absent_values: U32s<'a>,
    headers: Option<HeaderColumns<'a>>,
    watermarks: &'a [WatermarkRun],
}

#[derive(Debug, Clone, Copy)]
struct HeaderColumns<'a> {
    records: U32s<'a>,
    names: Strings<'a>,
    values: Strings<'a>,
}

impl<'a> HeaderColumns<'a> {
    fn check(headers: &'a Headers) -> std::result::Result<Self, Malformed> {
        let columns = Self {
            records: U32s::check(&headers.records)?,
            names: Strings::check(&headers.names)?,
            values: Strings::check(&headers.values)?,
        };
        let len = columns.records.len();
        if columns.names.len() != len || columns.values.len() != len {
            return Err(Malformed("a batch has not as many headers' records as names and values"));
        }
        Ok(columns)
    }
}

/// Where the walk over a batch is, in the columns that have no entry for every record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    absent: usize,
    header: usize,
    run: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn check(batch: &'a Batch) -> std::result::Result<Self, Malformed> {
        let records = Self {
            origins: Origins::check(&batch.keys, batch.absent_key, &batch.slots, &batch.times)?,
            values: Strings::check(&batch.values)?,
            absent_values: U32s::check(&batch.absent_values)?,
            headers: batch.headers.as_ref().map(HeaderColumns::check).transpose()?,
            watermarks: &batch.watermarks,
        };
        if records.values.len() != records.origins.slots.len() {
            return Err(Malformed("a batch has not as many values as slots"));
        }
        if u32::try_from(records.values.len()).is_err() {
            return Err(Malformed("a batch has more than 2^32 records"));
        }
        Ok(records)
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // Checked above.
        self.values.len() as u32
    }

    /// The next record of the walk and the watermark in force for it, if another than before.
    #[inline]
    pub(crate) fn next(&'a self, cursor: &mut Cursor, index: u32, input: u16) -> (Record<'a>, Option<Timestamp>) {
        let mut value = Some(self.values.get(index as usize));
        if self.absent_values.get(cursor.absent) == Some(index) {
            cursor.absent += 1;
            value = None;
        }
        let first = cursor.header;
        if let Some(columns) = &self.headers {
            while columns.records.get(cursor.header) == Some(index) {
                cursor.header += 1;
            }
        }
        let headers = RecordHeaders { columns: self.headers.as_ref(), next: first, end: cursor.header };
        let mut entered = index == 0;
        while self.watermarks.get(cursor.run).is_some_and(|run| run.until <= index) {
            cursor.run += 1;
            entered = true;
        }
        let run = if entered { self.watermarks.get(cursor.run) } else { None };
        let watermark = run.map(|run| Timestamp::from_millis(run.watermark));
        let time = Timestamp::from_millis(self.origins.time(index));
        (Record { key: self.origins.key(index), value, time, input, origin: index, headers }, watermark)
    }
}

/// One record: key, value, time and headers, borrowed from the batch.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    time: Timestamp,
    input: u16,
    pub(crate) origin: u32,
    headers: RecordHeaders<'a>,
}

impl<'a> Record<'a> {
    /// The key, decoded; text and bytes are borrowed.
    ///
    /// # Errors
    /// Rejects the record when it has no key or one of another type.
    #[inline]
    pub fn key<K: FromKey<'a>>(&self) -> Result<K> {
        Ok(K::from_key(self.key.ok_or(key::Error::Absent)?)?)
    }

    /// The key's bytes; `None` when the record has no key, which is not the same as an empty one.
    #[must_use]
    pub fn key_bytes(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// The value, decoded from CBOR: a struct from a map by names, or from an array by order.
    ///
    /// # Errors
    /// Rejects the record when it has no value or one of another type.
    #[inline]
    pub fn value<T: Deserialize<'a>>(&self) -> Result<T> {
        let Some(bytes) = self.value else { return Err(Error::reject("the record has no value")) };
        Ok(cbor::from_slice(bytes)?)
    }

    /// The value's bytes; `None` when it is absent (a tombstone), which is not the same as empty.
    #[must_use]
    pub fn value_bytes(&self) -> Option<&'a [u8]> {
        self.value
    }

    /// The event time.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// The index of the input that the record came by.
    #[must_use]
    pub fn input(&self) -> u16 {
        self.input
    }

    /// The headers as (name, value), in order. Empty unless the input declares headers.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.headers
    }
}

/// The headers of one record.
#[derive(Debug, Clone, Copy)]
struct RecordHeaders<'a> {
    columns: Option<&'a HeaderColumns<'a>>,
    next: usize,
    end: usize,
}

impl<'a> Iterator for RecordHeaders<'a> {
    type Item = (&'a [u8], &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next;
        if index >= self.end {
            return None;
        }
        self.next += 1;
        self.columns.map(|columns| (columns.names.get(index), columns.values.get(index)))
    }
}
