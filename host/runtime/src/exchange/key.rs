//! A record's key at a keyed edge.
//!
//! Owns where the key stands (the record's own, a field, a JSON pointer into the CBOR value) and its bytes: text as UTF-8, byte
//! strings as they are, integers as 8 bytes big-endian with the sign bit flipped, booleans as one byte. Does not own which
//! subtask a key belongs to, nor what happens to a record without one.

use crate::config::input::KeySpec;
use crate::format::cbor::{self, Head, Malformed, Walk};

/// Longest key in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// Why an edge's key cannot be found in any record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The records are arrays and have no such place.
    #[error("key `{key}` is not among the source's fields: {fields}")]
    UnknownField {
        /// The key.
        key: String,
        /// The fields there are.
        fields: String,
    },
}

/// Why a record has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoKey {
    /// The record has no key of its own.
    #[error("the record has no key")]
    NoRecordKey,
    /// The record has no value to find it in.
    #[error("the record has no value")]
    AbsentValue,
    /// The value is not CBOR.
    #[error("the value is not CBOR")]
    NotCbor,
    /// The place does not exist.
    #[error("it is missing")]
    Missing,
    /// It is null.
    #[error("it is null")]
    Null,
    /// It is a float: two encodings of one number would be two keys.
    #[error("it is a floating-point number")]
    Float,
    /// It is an array.
    #[error("it is an array")]
    Array,
    /// It is a map.
    #[error("it is a map")]
    Map,
    /// An integer outside i64.
    #[error("it is a whole number outside -2^63..2^63-1")]
    Unrepresentable,
    /// Longer than [`MAX_KEY_BYTES`].
    #[error("it is longer than 64KiB")]
    TooLong,
}

impl From<Malformed> for NoKey {
    fn from(_: Malformed) -> Self {
        Self::NotCbor
    }
}

/// Finds the keys of an edge's records. Allocates nothing per record.
///
/// ```
/// use wasmill_runtime::config::input::KeySpec;
/// use wasmill_runtime::exchange::key::KeyExtractor;
/// let extractor = KeyExtractor::new(&KeySpec::Field("id".to_owned()), None)?;
/// let mut scratch = Vec::new();
/// let value = b"\xa2\x62id\x63abc\x61n\x01"; // {"id": "abc", "n": 1}
/// assert_eq!(extractor.key(None, Some(value), &mut scratch), Ok(&b"abc"[..]));
/// # Ok::<(), wasmill_runtime::exchange::key::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KeyExtractor {
    /// One a level; none for the record's own key.
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
struct Step {
    /// The key in a map.
    name: Box<[u8]>,
    /// The place in an array.
    index: Option<u64>,
}

impl KeyExtractor {
    /// For one edge. `fields` are the names by place where the records are arrays.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(spec: &KeySpec, fields: Option<&[String]>) -> Result<Self, Error> {
        let mut steps: Vec<Step> = match spec {
            KeySpec::Record => return Ok(Self { steps: Vec::new() }),
            KeySpec::Field(name) => vec![Step { name: name.as_bytes().into(), index: None }],
            KeySpec::Pointer(tokens) => tokens.iter().map(|token| step(token)).collect(),
        };
        if let (Some(fields), Some(first)) = (fields, steps.first_mut()) {
            let place = fields.iter().position(|field| *field.as_bytes() == *first.name);
            first.index = place.map(|place| place as u64).or(first.index.filter(|&index| index < fields.len() as u64));
            if first.index.is_none() {
                let key = String::from_utf8_lossy(&first.name).into_owned();
                return Err(Error::UnknownField { key, fields: fields.join(", ") });
            }
        }
        Ok(Self { steps })
    }

    /// The record's key, in the record's own bytes or in `scratch`.
    ///
    /// # Errors
    /// Where it has none; see [`NoKey`].
    #[inline]
    pub fn key<'a>(
        &self,
        record_key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], NoKey> {
        let key = if self.steps.is_empty() {
            record_key.ok_or(NoKey::NoRecordKey)?
        } else {
            let mut walk = Walk::new(value.ok_or(NoKey::AbsentValue)?);
            for step in &self.steps {
                descend(&mut walk, step)?;
            }
            key_bytes(&mut walk, scratch)?
        };
        if key.len() > MAX_KEY_BYTES { Err(NoKey::TooLong) } else { Ok(key) }
    }
}

/// One level of a pointer: in a map the token is the key, in an array its number.
fn step(token: &str) -> Step {
    let is_index = token == "0" || (token.bytes().all(|byte| byte.is_ascii_digit()) && !token.starts_with('0'));
    let index = if is_index { token.parse().ok() } else { None };
    Step { name: token.as_bytes().into(), index }
}

/// The next item's head, tags passed over; numbers in tags (bignums) are none of our keys.
#[inline]
fn untagged(walk: &mut Walk<'_>) -> Result<Head, NoKey> {
    loop {
        let head = walk.head()?;
        match head {
            Head { major: cbor::TAG, argument: Some(2 | 3), .. } => return Err(NoKey::Unrepresentable),
            Head { major: cbor::TAG, .. } => {}
            other => return Ok(other),
        }
    }
}

/// Moves from a map or array to the item that the step names.
#[inline]
fn descend(walk: &mut Walk<'_>, step: &Step) -> Result<(), NoKey> {
    let head = untagged(walk)?;
    let mut left = head.argument;
    match head.major {
        cbor::MAP => {
            while walk.goes_on(&mut left)? {
                if is_name(walk, &step.name)? {
                    return Ok(());
                }
                walk.skip()?;
            }
            Err(NoKey::Missing)
        }
        cbor::ARRAY => {
            let mut before = step.index.ok_or(NoKey::Missing)?;
            while walk.goes_on(&mut left)? {
                if before == 0 {
                    return Ok(());
                }
                before -= 1;
                walk.skip()?;
            }
            Err(NoKey::Missing)
        }
        _ => Err(NoKey::Missing),
    }
}

/// Reads a map's key: is it this text?
#[inline]
fn is_name(walk: &mut Walk<'_>, name: &[u8]) -> Result<bool, NoKey> {
    let before = *walk;
    match walk.head()? {
        Head { major: cbor::TEXT, argument: Some(len), .. } => Ok(walk.take(len)? == name),
        _ => {
            *walk = before;
            walk.skip()?;
            Ok(false)
        }
    }
}

#[inline]
fn key_bytes<'a>(walk: &mut Walk<'a>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], NoKey> {
    let head = untagged(walk)?;
    match (head.major, head.argument) {
        (cbor::TEXT | cbor::BYTES, Some(len)) => Ok(walk.take(len)?),
        (cbor::TEXT | cbor::BYTES, None) => chunks(walk, head.major, scratch),
        (cbor::UNSIGNED, Some(number)) => {
            let number = i64::try_from(number).map_err(|_| NoKey::Unrepresentable)?;
            Ok(integer(number, scratch))
        }
        (cbor::NEGATIVE, Some(number)) => {
            let number = i64::try_from(number).map_err(|_| NoKey::Unrepresentable)?;
            Ok(integer(!number, scratch))
        }
        (cbor::ARRAY, _) => Err(NoKey::Array),
        (cbor::MAP, _) => Err(NoKey::Map),
        (_, Some(bool @ (20 | 21))) if head.info < 24 => {
            scratch.clear();
            scratch.push((bool - 20) as u8);
            Ok(scratch)
        }
        _ if matches!(head.info, 25..=27) => Err(NoKey::Float),
        _ => Err(NoKey::Null),
    }
}

fn integer(number: i64, scratch: &mut Vec<u8>) -> &[u8] {
    scratch.clear();
    scratch.extend_from_slice(&((number as u64) ^ (1 << 63)).to_be_bytes());
    scratch
}

/// Text or bytes of indefinite length.
fn chunks<'a>(walk: &mut Walk<'_>, major: u8, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], NoKey> {
    scratch.clear();
    while walk.goes_on(&mut None)? {
        match walk.head()? {
            Head { major: chunk, argument: Some(len), .. } if chunk == major => {
                scratch.extend_from_slice(walk.take(len)?);
            }
            _ => return Err(NoKey::NotCbor),
        }
    }
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn find(spec: &str, fields: Option<&[String]>, value: &str) -> Result<Vec<u8>, NoKey> {
        let extractor = KeyExtractor::new(&KeySpec::parse(spec).unwrap(), fields).unwrap();
        extractor.key(None, Some(&hex(value)), &mut Vec::new()).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_key_has_the_bytes_that_its_type_says() {
        // {"k": ...}
        let cases: [(&str, Result<&[u8], NoKey>); 20] = [
            ("7f616e623132ff", Ok(b"n12")),
            ("7f4101ff", Err(NoKey::NotCbor)),
            ("636e3132", Ok(b"n12")),
            ("60", Ok(b"")),
            ("420102", Ok(b"\x01\x02")),
            ("5f41014102ff", Ok(b"\x01\x02")),
            ("00", Ok(b"\x80\0\0\0\0\0\0\0")),
            ("20", Ok(b"\x7f\xff\xff\xff\xff\xff\xff\xff")),
            ("1b7fffffffffffffff", Ok(b"\xff\xff\xff\xff\xff\xff\xff\xff")),
            ("3b7fffffffffffffff", Ok(b"\0\0\0\0\0\0\0\0")),
            ("1b8000000000000000", Err(NoKey::Unrepresentable)),
            ("3b8000000000000000", Err(NoKey::Unrepresentable)),
            ("c24101", Err(NoKey::Unrepresentable)),
            ("c0617a", Ok(b"z")),
            ("f4", Ok(b"\0")),
            ("f5", Ok(b"\x01")),
            ("f6", Err(NoKey::Null)),
            ("f93c00", Err(NoKey::Float)),
            ("8101", Err(NoKey::Array)),
            ("a0", Err(NoKey::Map)),
        ];
        for (value, key) in cases {
            assert_eq!(find("k", None, &format!("a1616b{value}")), key.map(<[u8]>::to_vec), "{value}");
        }
    }

    #[test]
    fn a_field_is_found_wherever_it_stands() {
        let record = "a3616101616b6178626b6b820102"; // {"a": 1, "k": "x", "kk": [1, 2]}
        assert_eq!(find("k", None, record), Ok(b"x".to_vec()));
        assert_eq!(find("b", None, record), Err(NoKey::Missing));
        assert_eq!(find("/kk/1", None, record), Ok(b"\x80\0\0\0\0\0\0\x02".to_vec()));
        assert_eq!(find("/kk/2", None, record), Err(NoKey::Missing));
        assert_eq!(find("/k/x", None, record), Err(NoKey::Missing));
        assert_eq!(find("k", None, "bf01f5616b6178ff"), Ok(b"x".to_vec()));
        assert_eq!(find("/~1~0", None, "a1622f7e6178"), Ok(b"x".to_vec()));
        let fields = ["a".to_owned(), "k".to_owned()];
        assert_eq!(find("k", Some(&fields), "82016178"), Ok(b"x".to_vec()));
        assert_eq!(find("k", Some(&fields), "8101"), Err(NoKey::Missing));
        assert_eq!(find("k", None, "82016178"), Err(NoKey::Missing));
        assert_eq!(find("k", None, "01"), Err(NoKey::Missing));
    }

    #[test]
    fn a_key_that_no_record_can_have_is_refused_at_once() {
        let fields = ["a".to_owned()];
        assert!(KeyExtractor::new(&KeySpec::Field("b".to_owned()), Some(&fields)).is_err());
        assert!(KeyExtractor::new(&KeySpec::Pointer(vec!["b".to_owned(), "c".to_owned()]), Some(&fields)).is_err());
    }

    #[test]
    fn the_records_own_key_needs_no_value() {
        let extractor = KeyExtractor::new(&KeySpec::Record, None).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(extractor.key(Some(b"k"), None, &mut scratch), Ok(&b"k"[..]));
        assert_eq!(extractor.key(None, Some(b"\x01"), &mut scratch), Err(NoKey::NoRecordKey));
        let long = vec![0; MAX_KEY_BYTES + 1];
        assert_eq!(extractor.key(Some(&long), None, &mut scratch), Err(NoKey::TooLong));
    }

    #[test]
    fn integers_sort_as_their_keys() {
        let mut before = Vec::new();
        for number in [i64::MIN, -1000, -1, 0, 1, 1000, i64::MAX] {
            let mut scratch = Vec::new();
            let key = integer(number, &mut scratch).to_vec();
            assert!(before < key);
            before = key;
        }
    }

    proptest! {
        #[test]
        fn no_value_panics(value in proptest::collection::vec(any::<u8>(), 0..100)) {
            for spec in ["k", "/0/a", "/"] {
                let extractor = KeyExtractor::new(&KeySpec::parse(spec).unwrap(), None).unwrap();
                let _ = extractor.key(None, Some(&value), &mut Vec::new());
            }
        }
    }
}
