//! Records and timers into columns, and a call's emits out of them.
//!
//! Owns the host's side of the columns as far as a test needs it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Emitted;
use crate::bindings::wasmill::operator::types::{
    Batch, Column, Emits, Fault, Firing, Headers, OptionalColumn, WatermarkRun,
};
use crate::cbor;
use crate::columns::{Malformed, S64s, Strings, U32s};
use crate::error::fatal;
use crate::key::Key;
use crate::operator::Port;
use crate::time::Timestamp;
use crate::timer::{Domain, TimerId};

/// A record to feed to an operator.
#[derive(Debug, Clone, Default)]
pub struct Input {
    pub(super) input: u16,
    key: Option<Vec<u8>>,
    time: i64,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) then_watermark: Option<i64>,
}

impl Input {
    /// A record with `value` as CBOR, without a key, at time 0, on the first input.
    ///
    /// # Panics
    /// When the value does not encode.
    #[must_use]
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::bytes(&cbor::to_vec(value).expect("the value encodes"))
    }

    /// A record with these bytes as its value.
    #[must_use]
    pub fn bytes(value: &[u8]) -> Self {
        Self { value: Some(value.to_vec()), ..Self::default() }
    }

    /// A record without a value: a tombstone.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// With this key.
    ///
    /// # Panics
    /// For an integer past `i64`.
    #[must_use]
    pub fn key<K: Key + ?Sized>(mut self, key: &K) -> Self {
        let mut bytes = Vec::new();
        key.write(&mut bytes).expect("the key has bytes");
        self.key = Some(bytes);
        self
    }

    /// At this time.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = time.as_millis();
        self
    }

    /// On the input with this index.
    #[must_use]
    pub fn on(mut self, input: u16) -> Self {
        self.input = input;
        self
    }

    /// Followed by this watermark, unless it is ahead of it already.
    #[must_use]
    pub fn then_watermark(mut self, watermark: Timestamp) -> Self {
        self.then_watermark = Some(watermark.as_millis());
        self
    }

    /// With a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.as_bytes().to_vec(), value.to_vec()));
        self
    }
}

/// The distinct keys of a call by slot, and for each record or timer its slot and time.
pub(super) struct Actors {
    pub(super) keys: Vec<Option<Vec<u8>>>,
    slots: Vec<usize>,
    times: Vec<i64>,
}

impl Actors {
    fn of<'k>(each: impl Iterator<Item = (&'k Option<Vec<u8>>, i64)>) -> Self {
        let mut actors = Self { keys: Vec::new(), slots: Vec::new(), times: Vec::new() };
        let mut known: BTreeMap<&Option<Vec<u8>>, usize> = BTreeMap::new();
        for (key, time) in each {
            actors.slots.push(*known.entry(key).or_insert_with(|| {
                actors.keys.push(key.clone());
                actors.keys.len() - 1
            }));
            actors.times.push(time);
        }
        actors
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The time of an origin.
    pub(super) fn time(&self, origin: u32) -> i64 {
        self.times.get(origin as usize).copied().unwrap_or(i64::MIN)
    }

    /// The key that an origin stands for.
    pub(super) fn key(&self, origin: u32) -> Result<Option<&[u8]>, Fault> {
        match self.slots.get(origin as usize) {
            Some(&slot) => Ok(self.keys[slot].as_deref()),
            None => Err(fatal(format_args!("origin {origin} is not in the call"))),
        }
    }

    fn key_column(&self) -> Column {
        column(self.keys.iter().map(|key| key.as_deref().unwrap_or_default()))
    }

    fn absent_key(&self) -> Option<u32> {
        self.keys.iter().position(Option::is_none).map(|slot| slot as u32)
    }

    fn packed_slots(&self) -> Vec<u8> {
        self.slots.iter().flat_map(|&slot| (slot as u32).to_le_bytes()).collect()
    }

    fn packed_times(&self) -> Vec<u8> {
        self.times.iter().flat_map(|time| time.to_le_bytes()).collect()
    }
}

/// A batch as the contract has it.
pub(super) struct Formed {
    pub(super) input: u16,
    pub(super) batch: Batch,
    pub(super) actors: Actors,
}

impl Formed {
    /// Under one watermark.
    #[cfg(test)]
    pub(super) fn of(records: &[Input], watermark: i64) -> Self {
        Self::under(records, vec![WatermarkRun { until: records.len() as u32, watermark }])
    }

    /// Under these watermarks.
    pub(super) fn under(records: &[Input], watermarks: Vec<WatermarkRun>) -> Self {
        let actors = Actors::of(records.iter().map(|record| (&record.key, record.time)));
        let absent = |index: usize| records[index].value.is_none();
        let batch = Batch {
            keys: actors.key_column(),
            absent_key: actors.absent_key(),
            slots: actors.packed_slots(),
            times: actors.packed_times(),
            values: column(records.iter().map(|record| record.value.as_deref().unwrap_or_default())),
            absent_values: (0..records.len()).filter(|&r| absent(r)).flat_map(|r| (r as u32).to_le_bytes()).collect(),
            headers: headers(records),
            watermarks,
        };
        Self { input: records.first().map_or(0, |record| record.input), batch, actors }
    }
}

/// A round of timers as the contract has it.
pub(super) fn firing(due: &[(Option<Vec<u8>>, TimerId)]) -> (Firing, Actors) {
    let actors = Actors::of(due.iter().map(|(key, id)| (key, id.time.as_millis())));
    let firing = Firing {
        keys: actors.key_column(),
        absent_key: actors.absent_key(),
        slots: actors.packed_slots(),
        domains: due.iter().map(|(_, id)| u8::from(id.domain == Domain::Processing)).collect(),
        times: actors.packed_times(),
        tags: due.iter().flat_map(|(_, id)| id.tag.to_le_bytes()).collect(),
    };
    (firing, actors)
}

fn headers(records: &[Input]) -> Option<Headers> {
    let all = || records.iter().enumerate().flat_map(|(r, record)| record.headers.iter().map(move |pair| (r, pair)));
    all().next()?;
    Some(Headers {
        records: all().flat_map(|(record, _)| (record as u32).to_le_bytes()).collect(),
        names: column(all().map(|(_, (name, _))| name.as_slice())),
        values: column(all().map(|(_, (_, value))| value.as_slice())),
    })
}

/// Strings end to end.
pub(super) fn column<'a>(strings: impl Iterator<Item = &'a [u8]>) -> Column {
    let mut column = Column { bytes: Vec::new(), ends: Vec::new() };
    for string in strings {
        column.bytes.extend_from_slice(string);
        column.ends.extend_from_slice(&(column.bytes.len() as u32).to_le_bytes());
    }
    column
}

/// The emits of a call as records.
pub(super) fn emitted(actors: &Actors, emits: &Emits, ports: &[Port]) -> Result<Vec<Emitted>, Fault> {
    let values = Strings::check(&emits.values).map_err(fatal)?;
    let origins = U32s::check(&emits.origins).map_err(fatal)?;
    let absent: Vec<u32> = U32s::check(&emits.absent_values).map_err(fatal)?.iter().collect();
    let keys = emits.keys.as_ref().map(optional).transpose()?;
    let times = emits.times.as_deref().map(S64s::check).transpose().map_err(fatal)?;
    let outputs = emits.outputs.as_chunks().0;
    if outputs.len() != values.len() || origins.len() != values.len() {
        return Err(fatal(Malformed("the emits' columns have not one length")));
    }
    let mut records = Vec::with_capacity(values.len());
    for (index, (origin, output)) in origins.iter().zip(outputs).enumerate() {
        let output = ports.get(usize::from(u16::from_le_bytes(*output)));
        let key = match &keys {
            Some(keys) => keys.get(index).cloned().flatten(),
            None => actors.key(origin)?.map(<[u8]>::to_vec),
        };
        let own = times.and_then(|times| times.get(index));
        let time = own.or_else(|| actors.times.get(origin as usize).copied()).unwrap_or_default();
        records.push(Emitted {
            output: output.map_or_else(String::new, |port| port.name.to_owned()),
            key,
            time: Timestamp::from_millis(time),
            bytes: (!absent.contains(&(index as u32))).then(|| values.get(index).to_vec()),
            headers: Vec::new(),
        });
    }
    if let Some(headers) = &emits.headers {
        let names = Strings::check(&headers.names).map_err(fatal)?;
        let values = Strings::check(&headers.values).map_err(fatal)?;
        for (index, record) in U32s::check(&headers.records).map_err(fatal)?.iter().enumerate() {
            let Some(record) = records.get_mut(record as usize) else { continue };
            record.headers.push((names.get(index).to_vec(), values.get(index).to_vec()));
        }
    }
    Ok(records)
}

fn optional(column: &OptionalColumn) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    let values = Strings::check(&column.values).map_err(fatal)?;
    let present = column.present.iter().enumerate();
    Ok(present.map(|(index, &present)| (present != 0).then(|| values.get(index).to_vec())).collect())
}
