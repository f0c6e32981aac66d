//! Records into a batch, and a call's emits out of their columns.
//!
//! Owns the host's side of the columns as far as a test needs it.

use serde::Serialize;

use super::Emitted;
use crate::bindings::wasmill::operator::types::{Batch, Column, Emits, Fault, Headers, OptionalColumn, WatermarkRun};
use crate::cbor;
use crate::columns::{Malformed, S64s, Strings, U32s};
use crate::error::fatal;
use crate::key::Key;
use crate::operator::Port;
use crate::time::Timestamp;

/// A record to feed to an operator.
#[derive(Debug, Clone, Default)]
pub struct Input {
    pub(super) input: u16,
    key: Option<Vec<u8>>,
    time: i64,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
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

    /// With a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.as_bytes().to_vec(), value.to_vec()));
        self
    }
}

/// A batch, and its distinct keys by slot.
pub(super) struct Formed {
    pub(super) input: u16,
    pub(super) batch: Batch,
    pub(super) keys: Vec<Option<Vec<u8>>>,
    slots: Vec<usize>,
    times: Vec<i64>,
}

impl Formed {
    pub(super) fn of(records: &[Input], watermark: i64) -> Self {
        let mut keys: Vec<Option<Vec<u8>>> = Vec::new();
        let mut slots = Vec::new();
        for record in records {
            let known = keys.iter().position(|key| *key == record.key);
            slots.push(known.unwrap_or_else(|| {
                keys.push(record.key.clone());
                keys.len() - 1
            }));
        }
        let times: Vec<i64> = records.iter().map(|record| record.time).collect();
        let absent = |index: usize| records[index].value.is_none();
        let batch = Batch {
            keys: column(keys.iter().map(|key| key.as_deref().unwrap_or_default())),
            absent_key: keys.iter().position(Option::is_none).map(|slot| slot as u32),
            slots: slots.iter().flat_map(|&slot| (slot as u32).to_le_bytes()).collect(),
            times: times.iter().flat_map(|time| time.to_le_bytes()).collect(),
            values: column(records.iter().map(|record| record.value.as_deref().unwrap_or_default())),
            absent_values: (0..records.len()).filter(|&r| absent(r)).flat_map(|r| (r as u32).to_le_bytes()).collect(),
            headers: headers(records),
            watermarks: vec![WatermarkRun { until: records.len() as u32, watermark }],
        };
        Self { input: records.first().map_or(0, |record| record.input), batch, keys, slots, times }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The key that an origin stands for.
    pub(super) fn key(&self, origin: u32) -> Result<Option<&[u8]>, Fault> {
        match self.slots.get(origin as usize) {
            Some(&slot) => Ok(self.keys[slot].as_deref()),
            None => Err(fatal(format_args!("record {origin} is not in the batch"))),
        }
    }
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
pub(super) fn emitted(formed: &Formed, emits: &Emits, ports: &[Port]) -> Result<Vec<Emitted>, Fault> {
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
            None => formed.key(origin)?.map(<[u8]>::to_vec),
        };
        let own = times.and_then(|times| times.get(index));
        let time = own.or_else(|| formed.times.get(origin as usize).copied()).unwrap_or_default();
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
