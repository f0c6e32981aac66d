//! An entry of state whose time to live has ended, as the output that its state names gets it.
//!
//! Owns its fields, written as a CBOR map for sinks of any format. Does not own when that is, nor the record's key and time.

use wasmill_core::time::Timestamp;

use super::cbor::{self, Walk};

/// The version of the fields.
const VERSION: u64 = 1;

/// An entry that has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired<'a> {
    /// The state's name.
    pub state: &'a str,
    /// The key.
    pub key: &'a [u8],
    /// Of a map, the entry's map key.
    pub map_key: Option<&'a [u8]>,
    /// The value.
    pub value: &'a [u8],
    /// Whether the state's values are CBOR.
    pub is_cbor: bool,
    /// The first time at which it was not alive.
    pub time: Timestamp,
}

/// Appends the entry as a deterministic CBOR map, which always has all its fields.
pub fn push(entry: &Expired<'_>, out: &mut Vec<u8>) {
    let Expired { state, key, map_key, value, is_cbor, time } = *entry;
    let shown = Some(value).filter(|value| is_cbor && is_one_item(value));
    let [key_text, map_key_text] = [Some(key), map_key].map(|key| key.and_then(|key| std::str::from_utf8(key).ok()));
    // In the order of the encoded names, which are sorted by length first.
    cbor::push_head(out, cbor::MAP, 9);
    text(out, "key", key_text);
    cbor::push_text(out, "time");
    cbor::push_i64(out, time.as_millis());
    text(out, "state", Some(state));
    cbor::push_text(out, "value");
    out.extend_from_slice(shown.unwrap_or(&[cbor::NULL]));
    cbor::push_text(out, "expired");
    cbor::push_u64(out, VERSION);
    text(out, "map-key", map_key_text);
    bytes(out, "key-bytes", Some(key).filter(|_| key_text.is_none()));
    bytes(out, "value-bytes", Some(value).filter(|_| shown.is_none()));
    bytes(out, "map-key-bytes", map_key.filter(|_| map_key_text.is_none()));
}

fn text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    cbor::push_text(out, name);
    match value {
        Some(value) => cbor::push_text(out, value),
        None => out.push(cbor::NULL),
    }
}

fn bytes(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    cbor::push_text(out, name);
    match value {
        Some(value) => cbor::push_bytes(out, value),
        None => out.push(cbor::NULL),
    }
}

fn is_one_item(value: &[u8]) -> bool {
    let mut reader = Walk::new(value);
    reader.skip().is_ok() && reader.rest().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same lines as a component's own tests make: `guest-sdk/rust/src/testing/expired.rs`.
    #[test]
    fn the_golden_records_are_written() {
        let whole = Expired {
            state: "seen",
            key: b"ada",
            map_key: None,
            value: &[0x83, 1, 2, 3],
            is_cbor: true,
            time: Timestamp::from_millis(10_000),
        };
        let entries = [
            whole,
            Expired { map_key: Some(b"page"), ..whole },
            Expired { map_key: Some(&[0xff]), key: &[0xfe], value: &[0x83, 1], ..whole },
            Expired { is_cbor: false, time: Timestamp::from_millis(-1), ..whole },
        ];
        let lines: String = entries.iter().map(|entry| format!("{}\n", hex(entry))).collect();
        assert_eq!(lines, include_str!("../../golden/expired-1.txt"));
    }

    fn hex(entry: &Expired<'_>) -> String {
        let mut out = Vec::new();
        push(entry, &mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
