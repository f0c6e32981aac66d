//! A dead letter: a record that was set aside, with what is known of why.
//!
//! Owns its fields, written as a CBOR map for sinks of any format, and reading them back from a line of JSON. A record that
//! comes back has the key, the time and the bytes that it had. Does not own who sets records aside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use wasmill_core::record::{self, Header};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::Domain;

use super::fields::{Field, Fields};
use super::json::JsonDecoder;
use super::{Undecodable, cbor, encode};
use crate::config::source::RecordShape;

/// The version of the fields.
const VERSION: u64 = 1;

/// What `kind` says of a record that its source could not decode.
pub const UNDECODABLE: &str = "undecodable";

/// Where a record stood in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The source's uid.
    pub source: &'a str,
    /// The file, or other split, by its name.
    pub split: &'a str,
    /// Its line in the file, counted from 1; elsewhere its number in the split.
    pub position: u64,
}

impl<'a> From<&'a record::Place> for Place<'a> {
    fn from(place: &'a record::Place) -> Self {
        Self { source: &place.origin.source, split: &place.origin.split, position: place.position }
    }
}

/// A record that was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// Who set it aside.
    pub uid: &'a str,
    /// Which subtask of it.
    pub subtask: u32,
    /// SHA-256 of the component's file, in hex.
    pub component: Option<&'a str>,
    /// The name of the component's input.
    pub input: Option<&'a str>,
    /// What kind of failure it was, as in the metrics.
    pub kind: &'a str,
    /// The failure.
    pub message: &'a str,
    /// How many calls failed with the record in them.
    pub tries: u32,
    /// Where the record stood, where that is known.
    pub place: Option<Place<'a>>,
    /// Its event time.
    pub time: Timestamp,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers; which record of which batch they say they are of is of no weight.
    pub headers: &'a [Header],
    /// Of a timer that failed, its domain and tag: it has no value and no headers.
    pub timer: Option<(Domain, u32)>,
}

/// Writes dead letters. Keeps its memory.
#[derive(Debug)]
pub struct Writer {
    nested: JsonDecoder,
    map: Vec<u8>,
    line: Vec<u8>,
    back: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { nested: nested(), map: Vec::new(), line: Vec::new(), back: Vec::new() }
    }
}

impl Writer {
    /// Appends the dead letter as a deterministic CBOR map, which always has all its fields.
    pub fn push(&mut self, letter: &DeadLetter<'_>, out: &mut Vec<u8>) {
        let DeadLetter {
            uid,
            subtask,
            component,
            input,
            kind,
            message,
            tries,
            place,
            time,
            key,
            value,
            headers,
            timer,
        } = *letter;
        let text = |out: &mut Vec<u8>, name: &str, value: Option<&str>| {
            cbor::push_text(out, name);
            match value {
                Some(value) => cbor::push_text(out, value),
                None => out.push(cbor::NULL),
            }
        };
        let bytes = |out: &mut Vec<u8>, name: &str, value: Option<&[u8]>| {
            cbor::push_text(out, name);
            match value {
                Some(value) => cbor::push_bytes(out, value),
                None => out.push(cbor::NULL),
            }
        };
        let number = |out: &mut Vec<u8>, name: &str, value: u64| {
            cbor::push_text(out, name);
            cbor::push_u64(out, value);
        };
        let key_text = key.and_then(|key| std::str::from_utf8(key).ok());
        // Bytes that no decoder took may look like CBOR and are none.
        let shown = value.filter(|value| kind != UNDECODABLE && self.comes_back(value));
        // In the order of the encoded names, which are sorted by length first.
        cbor::push_head(out, cbor::MAP, 18);
        text(out, "key", key_text);
        text(out, "uid", Some(uid));
        text(out, "kind", Some(kind));
        cbor::push_text(out, "time");
        cbor::push_i64(out, time.as_millis());
        text(out, "input", input);
        text(out, "split", place.map(|place| place.split));
        cbor::push_text(out, "timer");
        match timer {
            Some((domain, tag)) => {
                cbor::push_head(out, cbor::MAP, 2);
                number(out, "tag", u64::from(tag));
                text(out, "domain", Some(domain_name(domain)));
            }
            None => out.push(cbor::NULL),
        }
        number(out, "tries", u64::from(tries));
        cbor::push_text(out, "value");
        out.extend_from_slice(shown.unwrap_or(&[cbor::NULL]));
        text(out, "source", place.map(|place| place.source));
        cbor::push_text(out, "headers");
        cbor::push_head(out, cbor::ARRAY, headers.len() as u64);
        for Header { name, value, .. } in headers {
            let [name_text, value_text] = [name, value].map(|bytes| std::str::from_utf8(bytes).ok());
            cbor::push_head(out, cbor::MAP, 4);
            text(out, "name", name_text);
            text(out, "value", value_text);
            bytes(out, "name-bytes", Some(&name[..]).filter(|_| name_text.is_none()));
            bytes(out, "value-bytes", Some(&value[..]).filter(|_| value_text.is_none()));
        }
        text(out, "message", Some(message));
        number(out, "subtask", u64::from(subtask));
        match place {
            Some(place) => number(out, "position", place.position),
            None => text(out, "position", None),
        }
        text(out, "component", component);
        bytes(out, "key-bytes", key.filter(|_| key_text.is_none()));
        number(out, "dead-letter", VERSION);
        bytes(out, "value-bytes", value.filter(|_| shown.is_none()));
    }

    /// Whether the value may stand in the letter as it is: written as JSON and read again, it must be the same. Null never is,
    /// since it stands for a value that is written as bytes or absent.
    fn comes_back(&mut self, value: &[u8]) -> bool {
        let Self { nested, map, line, back } = self;
        [&mut *map, &mut *line, &mut *back].into_iter().for_each(Vec::clear);
        cbor::push_head(map, cbor::MAP, 1);
        cbor::push_text(map, "value");
        map.extend_from_slice(value);
        value != [cbor::NULL]
            && encode::push_json(map, line).is_ok()
            && nested.decode(line, back).is_ok()
            && back.get(ARRAY_OF_ONE..) == Some(value)
    }
}

/// Bytes of the head of an array with one element.
const ARRAY_OF_ONE: usize = 1;

/// A record as a dead letter gives it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its event time.
    pub time: Timestamp,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers, by name and value.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads dead letters, one JSON object each.
#[derive(Debug)]
pub struct Reader {
    nested: JsonDecoder,
}

impl Default for Reader {
    fn default() -> Self {
        Self { nested: nested() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Line {
    dead_letter: u64,
    kind: String,
    time: i64,
    key: Option<String>,
    key_bytes: Option<String>,
    value_bytes: Option<String>,
    headers: Vec<HeaderFields>,
    timer: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct HeaderFields {
    name: Option<String>,
    name_bytes: Option<String>,
    value: Option<String>,
    value_bytes: Option<String>,
}

impl Reader {
    /// The record that the line holds.
    ///
    /// # Errors
    /// A line that is no dead letter, one of a timer, or one whose record never was decoded.
    pub fn read(&mut self, line: &[u8]) -> Result<Record, Undecodable> {
        let wrong = |reason: String| Undecodable::DeadLetter { reason };
        let Line { dead_letter, kind, time, key, key_bytes, value_bytes, headers, timer } =
            serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
        if dead_letter != VERSION {
            return Err(wrong(format!("its version is {dead_letter}, and this wasmill reads {VERSION}")));
        }
        if timer.is_some() {
            let reason = "it is of a timer, which is no record: have a record of its key set it again";
            return Err(wrong(reason.to_owned()));
        }
        if kind == UNDECODABLE {
            let reason = "its source could not decode the record: mend the line in `value-bytes` (base64) and give it to that source";
            return Err(wrong(reason.to_owned()));
        }
        let bytes = |name: &str, text: Option<String>| {
            let decoded = text.map(|text| STANDARD.decode(text)).transpose();
            decoded.map_err(|error| wrong(format!("`{name}` is not base64: {error}")))
        };
        let key_bytes = bytes("key-bytes", key_bytes)?;
        let mut all_headers = Vec::with_capacity(headers.len());
        for HeaderFields { name, name_bytes, value, value_bytes } in headers {
            let name = bytes("name-bytes", name_bytes)?.or(name.map(String::into_bytes)).unwrap_or_default();
            let value = bytes("value-bytes", value_bytes)?.or(value.map(String::into_bytes)).unwrap_or_default();
            all_headers.push((name, value));
        }
        let value = match bytes("value-bytes", value_bytes)? {
            Some(value) => Some(value),
            None => {
                let mut array = Vec::new();
                self.nested.decode(line, &mut array)?;
                array.drain(..ARRAY_OF_ONE);
                Some(array).filter(|value| *value != [cbor::NULL])
            }
        };
        let key = key_bytes.or(key.map(String::into_bytes));
        Ok(Record { key, time: Timestamp::from_millis(time), value, headers: all_headers })
    }
}

fn domain_name(domain: Domain) -> &'static str {
    match domain {
        Domain::Event => "event",
        Domain::Processing => "processing",
    }
}

/// Decodes the field `value` of a JSON object, as an array of that one element.
fn nested() -> JsonDecoder {
    let value = Field { name: "value".to_owned(), key: Box::default(), column_type: None };
    JsonDecoder::new(std::sync::Arc::new(Fields {
        declared: Some(vec![value]),
        order: vec![0],
        shape: RecordShape::Array,
        types: std::collections::BTreeMap::new(),
        null: Vec::new(),
        time: None,
        watermark: None,
    }))
}

#[cfg(test)]
mod tests;
