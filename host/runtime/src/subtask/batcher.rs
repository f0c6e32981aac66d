//! Makes the batch of a guest call from records: distinct keys, a slot for each record, runs of watermarks.
//!
//! Owns the shape of a call on the way in. All its memory is reused from call to call. Does not own the state that rides along.

use std::ops::Range;
use std::sync::Arc;

use wasmill_core::key_group::KeyHash;
use wasmill_core::record::{Column, Header, Origin, Place, RecordBatch};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::Domain;

use super::access::CallState;
use crate::guest::contract::{self, Batch, WatermarkRun};
use crate::guest::packed;

/// Records gathered for one call.
#[derive(Debug)]
pub struct Batcher {
    batch: Batch,
    /// Distinct keys by slot, and their hashes.
    keys: Column,
    hashes: Vec<KeyHash>,
    /// The slot of each record.
    slots: Vec<u32>,
    /// Each record's position in its source; what it is without an origin is of no weight.
    positions: Vec<u64>,
    /// From which record on the records are of which origin.
    origins: Vec<(u32, Option<Arc<Origin>>)>,
    /// The records' headers, whether or not the guest gets them.
    headers: Vec<Header>,
    header_bytes: usize,
    pub(super) times: Vec<Timestamp>,
    table: SlotTable,
    /// Watermarks that advanced between the records: after how many, and to what.
    advances: Vec<(u32, Timestamp)>,
    first_watermark: Timestamp,
    watermark: Timestamp,
    /// What the guest is told instead of the watermark in force.
    stamped: Option<Timestamp>,
    limit: usize,
    byte_limit: usize,
}

/// Records of a call, apart from the batch, and the watermarks between them.
#[derive(Debug)]
pub struct Gathered {
    /// The records.
    pub records: RecordBatch,
    places: Vec<Option<Place>>,
    advances: Vec<(u32, Timestamp)>,
    first_watermark: Timestamp,
}

/// One record, apart from its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Apart {
    pub key: Option<Vec<u8>>,
    pub time: Timestamp,
    pub value: Option<Vec<u8>>,
    pub place: Option<Place>,
    pub headers: Vec<Header>,
    /// Of a timer, its domain and tag.
    pub timer: Option<(Domain, u32)>,
}

impl Gathered {
    /// One of the records.
    pub(super) fn record(&self, record: usize) -> Apart {
        Apart {
            key: self.records.keys.get(record).map(<[u8]>::to_vec),
            time: self.records.times[record],
            value: self.records.values.get(record).map(<[u8]>::to_vec),
            place: self.places.get(record).cloned().flatten(),
            headers: self.records.headers_of(record).to_vec(),
            timer: None,
        }
    }
}

impl Batcher {
    /// For calls of at most `limit` records and about `byte_limit` bytes of keys and values.
    #[must_use]
    pub fn new(limit: usize, byte_limit: usize) -> Self {
        Self {
            batch: Batch {
                keys: contract::empty_column(),
                absent_key: None,
                slots: Vec::new(),
                times: Vec::new(),
                values: contract::empty_column(),
                absent_values: Vec::new(),
                headers: None,
                watermarks: Vec::new(),
            },
            keys: Column::default(),
            hashes: Vec::new(),
            slots: Vec::with_capacity(limit),
            positions: Vec::with_capacity(limit),
            origins: Vec::new(),
            headers: Vec::new(),
            header_bytes: 0,
            times: Vec::with_capacity(limit),
            table: SlotTable::new(limit),
            advances: Vec::new(),
            first_watermark: Timestamp::MIN,
            watermark: Timestamp::MIN,
            stamped: None,
            limit,
            byte_limit,
        }
    }

    /// How many records are gathered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no record is gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the call should be made before another record is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes = self.keys.bytes().len() + self.batch.values.bytes.len() + self.header_bytes;
        self.slots.len() >= self.limit || bytes >= self.byte_limit
    }

    /// Adds record `record` of `from`.
    pub fn push(&mut self, from: &RecordBatch, record: usize) {
        let position = from.positions.get(record).copied();
        self.push_from(from, record, from.origin.as_ref().filter(|_| position.is_some()), position.unwrap_or_default());
    }

    fn push_from(&mut self, from: &RecordBatch, record: usize, origin: Option<&Arc<Origin>>, position: u64) {
        let known = self.origins.last().map(|(_, origin)| origin.as_ref().map(Arc::as_ptr));
        if known != Some(origin.map(Arc::as_ptr)) {
            self.origins.push((self.slots.len() as u32, origin.cloned()));
        }
        self.positions.push(position);
        let slot = match from.keys.get(record) {
            Some(key) => {
                let hash = from.hashes.get(record).copied().unwrap_or_else(|| KeyHash::of(key));
                self.table.slot(key, hash, &mut self.keys, &mut self.hashes)
            }
            None => self.absent_slot(),
        };
        if !from.headers.is_empty() {
            let record_here = self.slots.len() as u32;
            for Header { name, value, .. } in from.headers_of(record) {
                self.header_bytes += name.len() + value.len();
                self.headers.push(Header { record: record_here, name: name.clone(), value: value.clone() });
            }
        }
        self.slots.push(slot);
        self.times.push(from.times[record]);
        let values = &mut self.batch.values;
        values.bytes.extend_from_slice(from.values.values().get(record));
        // Full long before 4 GiB.
        packed::push_u32(&mut values.ends, values.bytes.len() as u32);
        if from.values.get(record).is_none() {
            packed::push_u32(&mut self.batch.absent_values, (self.slots.len() - 1) as u32);
        }
    }

    /// The watermark became `watermark` after the records so far.
    pub fn advance(&mut self, watermark: Timestamp) {
        self.watermark = watermark;
        self.advances.push((self.slots.len() as u32, watermark));
    }

    /// From now on the guest is told this watermark for all records of a batch, until it is told the one in force again.
    pub(super) fn stamp(&mut self, watermark: Option<Timestamp>) {
        self.stamped = watermark;
    }

    /// Completes the batch for the guest, with headers where its input carries them, and returns the watermark of its first run.
    pub fn finish(&mut self, carries_headers: bool) -> Timestamp {
        let batch = &mut self.batch;
        batch.headers = carries_headers.then(|| packed_headers(&self.headers));
        batch.keys.bytes.extend_from_slice(self.keys.bytes());
        extend_packed(&mut batch.keys.ends, self.keys.ends());
        extend_packed(&mut batch.slots, &self.slots);
        for time in &self.times {
            packed::push_s64(&mut batch.times, time.as_millis());
        }
        let records = self.slots.len() as u32;
        if let Some(watermark) = self.stamped {
            batch.watermarks.push(WatermarkRun { until: records, watermark: watermark.as_millis() });
            return watermark;
        }
        let mut current = self.first_watermark;
        let mut first = None;
        for &(after, watermark) in &self.advances {
            let ended = batch.watermarks.last().map_or(0, |run| run.until);
            if after > ended {
                first.get_or_insert(current);
                batch.watermarks.push(WatermarkRun { until: after, watermark: current.as_millis() });
            }
            current = watermark;
        }
        if batch.watermarks.last().map_or(0, |run| run.until) < records {
            first.get_or_insert(current);
            batch.watermarks.push(WatermarkRun { until: records, watermark: current.as_millis() });
        }
        first.unwrap_or(current)
    }

    /// The batch that [`Batcher::finish`] completed.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The watermarks that advanced between the records of the batch: after how many records, and to what.
    #[must_use]
    pub fn advances(&self) -> &[(u32, Timestamp)] {
        &self.advances
    }

    /// Takes out the watermarks before the first record; they are in force from now on.
    pub(super) fn lead(&mut self) -> Vec<Timestamp> {
        let count = self.advances.partition_point(|(after, _)| *after == 0);
        let lead: Vec<_> = self.advances.drain(..count).map(|(_, watermark)| watermark).collect();
        self.first_watermark = lead.last().copied().unwrap_or(self.first_watermark);
        lead
    }

    /// The watermarks behind the last record; of an empty batch, all.
    pub(super) fn trail(&self) -> Vec<Timestamp> {
        let records = self.slots.len() as u32;
        self.advances.iter().filter(|(after, _)| *after >= records).map(|(_, watermark)| *watermark).collect()
    }

    /// The slot that stands for records without a key.
    #[must_use]
    pub fn absent_key(&self) -> Option<u32> {
        self.batch.absent_key
    }

    /// Exchanges the batch's keys and slots with those of `call`: lent for a call, taken back after it.
    pub(super) fn lend(&mut self, call: &mut CallState) {
        std::mem::swap(&mut self.keys, &mut call.keys);
        std::mem::swap(&mut self.hashes, &mut call.hashes);
        std::mem::swap(&mut self.slots, &mut call.slots);
    }

    /// A record of the batch, apart from it; its key stands in `keys`, which are lent to the call or the batch's own.
    pub(super) fn record(&self, record: usize, keys: &Column, slots: &[u32]) -> Apart {
        let slot = slots.get(record).copied().unwrap_or_default();
        let absent = self.batch.absent_key == Some(slot) || slot as usize >= keys.len();
        let gap = packed::u32s(&self.batch.absent_values).any(|index| index as usize == record);
        Apart {
            key: (!absent).then(|| keys.get(slot as usize).to_vec()),
            time: self.times.get(record).copied().unwrap_or(Timestamp::MIN),
            value: contract::value_at(&self.batch.values, record).filter(|_| !gap).map(<[u8]>::to_vec),
            place: self.place(record),
            headers: self.headers.iter().filter(|header| header.record as usize == record).cloned().collect(),
            timer: None,
        }
    }

    /// Where a record stood in its source.
    fn place(&self, record: usize) -> Option<Place> {
        let run = self.origins.partition_point(|(start, _)| *start as usize <= record);
        let (_, origin) = self.origins.get(run.checked_sub(1)?)?;
        Some(Place { origin: Arc::clone(origin.as_ref()?), position: *self.positions.get(record)? })
    }

    /// All that is gathered, apart from the batch.
    #[must_use]
    pub fn take(&self) -> Gathered {
        let mut records = RecordBatch::default();
        let mut absent_values = packed::u32s(&self.batch.absent_values).peekable();
        for (record, &slot) in self.slots.iter().enumerate() {
            let key = (self.batch.absent_key != Some(slot)).then(|| self.keys.get(slot as usize));
            let absent = absent_values.next_if_eq(&(record as u32)).is_some();
            let value = contract::value_at(&self.batch.values, record).filter(|_| !absent);
            records.push(key, self.times[record], value);
            records.hashes.push(self.hashes[slot as usize]);
        }
        records.headers.clone_from(&self.headers);
        let places = (0..self.slots.len()).map(|record| self.place(record)).collect();
        Gathered { records, places, advances: self.advances.clone(), first_watermark: self.first_watermark }
    }

    /// Holds a piece of what was gathered instead, without those of its records that are `left_out`, and the watermarks from
    /// its begin on.
    pub fn load(&mut self, from: &Gathered, piece: Range<usize>, left_out: &[bool]) {
        let before = from.advances.iter().rev().find(|(after, _)| (*after as usize) < piece.start);
        self.watermark = before.map_or(from.first_watermark, |(_, watermark)| *watermark);
        self.clear();
        let is_last = piece.end >= from.records.len();
        let mut advances = from
            .advances
            .iter()
            .filter(|(after, _)| *after as usize >= piece.start && (is_last || (*after as usize) < piece.end))
            .peekable();
        for record in piece.clone() {
            while let Some((_, watermark)) = advances.next_if(|(after, _)| *after as usize <= record) {
                self.advance(*watermark);
            }
            if !left_out.get(record).copied().unwrap_or_default() {
                let place = from.places.get(record).and_then(Option::as_ref);
                let position = place.map_or(0, |place| place.position);
                self.push_from(&from.records, record, place.map(|place| &place.origin), position);
            }
        }
        for (_, watermark) in advances {
            self.advance(*watermark);
        }
    }

    /// Empties it for the next call and keeps its memory.
    pub fn clear(&mut self) {
        let Batch { keys, absent_key, slots, times, values, absent_values, headers, watermarks } = &mut self.batch;
        for bytes in [&mut keys.bytes, &mut keys.ends, slots, times, &mut values.bytes, &mut values.ends, absent_values]
        {
            bytes.clear();
        }
        *absent_key = None;
        *headers = None;
        watermarks.clear();
        self.keys.clear();
        self.hashes.clear();
        self.slots.clear();
        self.positions.clear();
        self.origins.clear();
        self.headers.clear();
        self.header_bytes = 0;
        self.times.clear();
        self.table.clear();
        self.advances.clear();
        self.first_watermark = self.watermark;
    }

    fn absent_slot(&mut self) -> u32 {
        *self.batch.absent_key.get_or_insert_with(|| {
            let slot = self.keys.len() as u32;
            self.keys.push(&[]);
            self.hashes.push(KeyHash(0));
            slot
        })
    }
}

fn packed_headers(headers: &[Header]) -> contract::Headers {
    let mut packed =
        contract::Headers { records: Vec::new(), names: contract::empty_column(), values: contract::empty_column() };
    for Header { record, name, value } in headers {
        packed::push_u32(&mut packed.records, *record);
        contract::push_value(&mut packed.names, name);
        contract::push_value(&mut packed.values, value);
    }
    packed
}

fn extend_packed(bytes: &mut Vec<u8>, values: &[u32]) {
    bytes.reserve(values.len() * 4);
    for &value in values {
        packed::push_u32(bytes, value);
    }
}

/// Finds the slot of a key in the batch: open addressing over hashes, emptied by a new round number.
#[derive(Debug)]
struct SlotTable {
    /// Round and slot of each place.
    places: Vec<(u32, u32)>,
    mask: usize,
    round: u32,
}

impl SlotTable {
    fn new(limit: usize) -> Self {
        let places = (limit.max(1) * 2).next_power_of_two();
        Self { places: vec![(0, 0); places], mask: places - 1, round: 1 }
    }

    fn slot(&mut self, key: &[u8], hash: KeyHash, keys: &mut Column, hashes: &mut Vec<KeyHash>) -> u32 {
        // The upper bits: the lower ones chose the key group, so within a subtask they vary less.
        let mut place = (hash.0 >> 32) as usize & self.mask;
        loop {
            let (round, slot) = self.places[place];
            if round != self.round {
                let slot = keys.len() as u32;
                keys.push(key);
                hashes.push(hash);
                self.places[place] = (self.round, slot);
                return slot;
            }
            if hashes[slot as usize] == hash && keys.get(slot as usize) == key {
                return slot;
            }
            place = (place + 1) & self.mask;
        }
    }

    fn clear(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.places.fill((0, 0));
            self.round = 1;
        }
    }
}

#[cfg(test)]
mod tests;
