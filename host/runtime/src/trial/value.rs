//! Keys, values and times as a test file writes them.
//!
//! Owns both directions and when two values are the same. Does not own which field of a line holds which.

use serde_json::{Map, Value, json};
use wasmill_core::time::Timestamp;

use crate::format::{encode, json};

/// A value of a record, or that there is none.
pub(super) type Bytes = Option<Vec<u8>>;

/// Names and values of a record's headers, in order.
pub(super) type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads a key: text, a whole number or a truth value as a keyed edge would give it, `{"hex": "00ff"}`, or null for none.
pub(super) fn key(value: &Value) -> Result<Bytes, String> {
    let wrong =
        || format!("{value} is no key: write text, a whole number, true or false, {{\"hex\": \"00ff\"}}, or null");
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(truth) => vec![u8::from(*truth)],
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Number(number) => {
            let number = number.as_i64().ok_or_else(wrong)?;
            (number as u64 ^ (1 << 63)).to_be_bytes().to_vec()
        }
        Value::Object(fields) => match fields.iter().next() {
            Some((name, Value::String(text))) if name == "hex" && fields.len() == 1 => unhex(text).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        },
        Value::Array(_) => return Err(wrong()),
    }))
}

/// Writes a key; one of the file's own in its own words.
pub(super) fn show_key(key: Option<&[u8]>, known: &[(Vec<u8>, Value)]) -> Value {
    let Some(key) = key else { return Value::Null };
    if let Some((_, word)) = known.iter().find(|(bytes, _)| bytes == key) {
        return word.clone();
    }
    match printable(key) {
        Some(text) => json!(text),
        None => json!({ "hex": hex(key) }),
    }
}

/// How a value is written beside its field: as JSON of the CBOR, or as `as` says.
pub(super) fn value(written: &Value, form: Option<&str>) -> Result<Bytes, String> {
    let text = || written.as_str().ok_or_else(|| format!("{written} is no text, as \"as\": {} wants", json!(form)));
    match form {
        None => {
            let mut bytes = Vec::new();
            json::push_value(written, &mut bytes).map_err(|error| error.to_string())?;
            Ok(Some(bytes))
        }
        Some("text") => Ok(Some(text()?.as_bytes().to_vec())),
        Some("hex") => {
            let text = text()?;
            unhex(text).map(Some).ok_or_else(|| format!("`{text}` is no hexadecimal text of whole bytes"))
        }
        Some("absent") if written.is_null() => Ok(None),
        Some("absent") => Err("a value that is absent is written null".to_owned()),
        Some(other) => Err(format!("\"as\": \"{other}\" is none of \"text\", \"hex\" and \"absent\"")),
    }
}

/// The value as it is written, and the form where it is not CBOR.
pub(super) fn show_value(value: Option<&[u8]>) -> (Value, Option<&'static str>) {
    let Some(bytes) = value else { return (Value::Null, Some("absent")) };
    if let Some(value) = decoded(bytes) {
        return (value, None);
    }
    match printable(bytes) {
        Some(text) => (json!(text), Some("text")),
        None => (json!(hex(bytes)), Some("hex")),
    }
}

/// Whether two values are the same: equal bytes, or CBOR of equal JSON. Numbers are equal by value, as a language may have no
/// other than floating-point ones; the order of a map's fields does not matter.
pub(super) fn same_value(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    one == other
        || one
            .zip(other)
            .is_some_and(|(one, other)| decoded(one).zip(decoded(other)).is_some_and(|(one, other)| same(&one, &other)))
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || ((one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| same(value, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}

/// Reads headers: an object of names and values, or an array of pairs of them, where a name may stand twice or is no text.
pub(super) fn headers(written: &Value) -> Result<Headers, String> {
    match written {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| Ok((name.as_bytes().to_vec(), bytes(value)?))).collect()
        }
        Value::Array(pairs) => pairs
            .iter()
            .map(|pair| match pair.as_array().map(Vec::as_slice) {
                Some([name, value]) => Ok((bytes(name)?, bytes(value)?)),
                _ => Err(format!("{pair} is no header: write [NAME, VALUE]")),
            })
            .collect(),
        other => Err(format!(
            "{other} is nothing that headers are written as: write {{\"NAME\": VALUE}}, or [[NAME, VALUE]] where a name stands twice"
        )),
    }
}

/// Writes headers: as an object where that says all.
pub(super) fn show_headers(headers: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let show = |bytes: &[u8]| printable(bytes).map_or_else(|| json!({ "hex": hex(bytes) }), |text| json!(text));
    let named = headers.iter().map(|(name, value)| Some((printable(name)?.to_owned(), show(value))));
    match named.collect::<Option<Map<_, _>>>().filter(|fields| fields.len() == headers.len()) {
        Some(fields) => Value::Object(fields),
        None => headers.iter().map(|(name, value)| json!([show(name), show(value)])).collect(),
    }
}

/// Reads bytes: text, or hexadecimal digits.
fn bytes(written: &Value) -> Result<Vec<u8>, String> {
    let read = match written {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Object(fields) if fields.len() == 1 => fields.get("hex").and_then(Value::as_str).and_then(unhex),
        _ => None,
    };
    read.ok_or_else(|| format!("{written} is neither text nor {{\"hex\": \"00ff\"}}"))
}

/// A time: milliseconds since 1970 UTC, or RFC 3339 text.
pub(super) fn time(value: &Value) -> Result<Timestamp, String> {
    let within = |millis: i64| Some(Timestamp::from_millis(millis)).filter(|time| time.as_millis() == millis);
    let time = match value {
        Value::Number(number) => number.as_i64().and_then(within),
        Value::String(text) => text.parse::<jiff::Timestamp>().ok().and_then(|time| within(time.as_millisecond())),
        _ => None,
    };
    time.ok_or_else(|| {
        format!("{value} is no time: write milliseconds since 1970 UTC, within ±(2^53-1), or \"2013-01-01T05:00:00Z\"")
    })
}

/// The JSON of one CBOR value; none of other bytes.
pub(super) fn decoded(bytes: &[u8]) -> Option<Value> {
    let mut json = Vec::new();
    encode::push_json(bytes, &mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

fn printable(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_an_edge_gives_it_and_shown_in_the_files_words() {
        for (written, bytes) in [
            (json!("a"), Some(b"a".to_vec())),
            (json!(""), Some(Vec::new())),
            (json!(1), Some(vec![0x80, 0, 0, 0, 0, 0, 0, 1])),
            (json!(-1), Some(vec![0x7f, 255, 255, 255, 255, 255, 255, 255])),
            (json!(true), Some(vec![1])),
            (json!({"hex": "ff00"}), Some(vec![255, 0])),
            (json!(null), None),
        ] {
            assert_eq!(key(&written), Ok(bytes.clone()), "{written}");
            let known: Vec<_> = bytes.clone().into_iter().map(|bytes| (bytes, written.clone())).collect();
            assert_eq!(show_key(bytes.as_deref(), &known), written);
        }
        assert_eq!(show_key(Some(&[255]), &[]), json!({"hex": "ff"}));
        for wrong in [json!(1.5), json!([]), json!({"hex": "f"}), json!({"hex": "zz"}), json!({"text": "a"})] {
            assert!(key(&wrong).unwrap_err().contains("is no key"), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [Some(&b"\xa1\x61n\x01"[..]), Some(b"\x01"), Some(b"plain text"), Some(b"\xff\xfe"), None] {
            let (written, form) = show_value(bytes);
            assert_eq!(value(&written, form).unwrap().as_deref(), bytes, "{written}");
        }
    }

    #[test]
    fn headers_are_shown_as_an_object_where_that_says_all_and_read_back() {
        let header = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        for (given, shown) in [
            (vec![], json!({})),
            (vec![header(b"b", b"x"), header(b"a", b"\xff")], json!({"b": "x", "a": {"hex": "ff"}})),
            (vec![header(b"a", b"x"), header(b"a", b"")], json!([["a", "x"], ["a", ""]])),
            (vec![header(b"\xff", b"x")], json!([[{"hex": "ff"}, "x"]])),
        ] {
            assert_eq!((show_headers(&given), headers(&shown)), (shown.clone(), Ok(given)));
        }
    }

    #[test]
    fn values_are_the_same_whatever_the_width_of_a_number_or_the_order_of_fields() {
        let (narrow, wide) = (b"\xa2\x61a\x01\x61b\x02", b"\xa2\x61b\x02\x61a\xfb\x3f\xf0\0\0\0\0\0\0");
        assert!(same_value(Some(narrow), Some(wide)));
        assert!(!same_value(Some(narrow), Some(b"\xa1\x61a\x01")));
        assert!(!same_value(None, Some(b"")));
        assert!(!same_value(Some(b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff"), Some(b"\x1b\xff\xff\xff\xff\xff\xff\0\0")));
    }

    #[test]
    fn times_are_milliseconds_or_rfc_3339() {
        assert_eq!(time(&json!(-5)).unwrap().as_millis(), -5);
        assert_eq!(time(&json!("1970-01-01T00:00:01.5Z")).unwrap().as_millis(), 1_500);
        for wrong in [json!("yesterday"), json!(1.5), json!(i64::MAX), json!(null)] {
            assert!(time(&wrong).unwrap_err().contains("is no time"), "{wrong}");
        }
    }
}
