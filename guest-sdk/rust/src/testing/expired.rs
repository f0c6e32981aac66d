//! Expired entries of states that send them to an output, as the records that a host emits.
//!
//! Owns the records' form for an operator under test. Does not own what expires when.

use serde::de::IgnoredAny;
use serde::{Serialize, Serializer};

use super::memory::Key;
use crate::cbor;
use crate::types::Codec;

/// The version of the fields.
const VERSION: u64 = 1;

/// An entry that has expired.
pub(super) struct Expired<'a> {
    pub(super) state: &'a str,
    pub(super) codec: Codec,
    pub(super) key: &'a [u8],
    /// Of a map.
    pub(super) map_key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
    pub(super) time: i64,
}

/// The record of an entry, which waits to be emitted.
pub(super) struct Leaving {
    /// The output's index.
    pub(super) output: u16,
    pub(super) key: Key,
    pub(super) time: i64,
    pub(super) bytes: Vec<u8>,
}

impl Expired<'_> {
    /// The record's value.
    pub(super) fn record(&self) -> Result<Vec<u8>, cbor::Error> {
        let Self { state, codec, key, map_key, value, time } = *self;
        let shown = codec == Codec::Cbor && cbor::from_slice::<IgnoredAny>(value).is_ok();
        let [key_text, map_key_text] = [Some(key), map_key].map(|key| key.and_then(|key| str::from_utf8(key).ok()));
        let unless = |shown: bool, bytes| if shown { None } else { bytes };
        // A map of 9 fields, in the order of their encoded names, which are sorted by length first.
        let mut record = vec![0xa9];
        let mut field = |name: &str, item: Vec<u8>| -> Result<(), cbor::Error> {
            record.extend(cbor::to_vec(name)?);
            record.extend(item);
            Ok(())
        };
        field("key", cbor::to_vec(&key_text)?)?;
        field("time", cbor::to_vec(&time)?)?;
        field("state", cbor::to_vec(state)?)?;
        field("value", if shown { value.to_vec() } else { cbor::to_vec(&())? })?;
        field("expired", cbor::to_vec(&VERSION)?)?;
        field("map-key", cbor::to_vec(&map_key_text)?)?;
        field("key-bytes", cbor::to_vec(&unless(key_text.is_some(), Some(Bytes(key))))?)?;
        field("value-bytes", cbor::to_vec(&unless(shown, Some(Bytes(value))))?)?;
        field("map-key-bytes", cbor::to_vec(&unless(map_key_text.is_some(), map_key.map(Bytes)))?)?;
        Ok(record)
    }
}

/// A byte string.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_are_those_that_the_host_writes() {
        let whole = || Expired {
            state: "seen",
            codec: Codec::Cbor,
            key: b"ada",
            map_key: None,
            value: &[0x83, 1, 2, 3],
            time: 10_000,
        };
        let entries = [
            whole(),
            Expired { map_key: Some(b"page"), ..whole() },
            Expired { map_key: Some(&[0xff]), key: &[0xfe], value: &[0x83, 1], ..whole() },
            Expired { codec: Codec::Bytes, time: -1, ..whole() },
        ];
        let hex = |entry: &Expired<'_>| -> String {
            entry.record().unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let lines: String = entries.iter().map(|entry| hex(entry) + "\n").collect();
        assert_eq!(lines, include_str!("../../../../host/runtime/golden/expired-1.txt"));
    }
}
