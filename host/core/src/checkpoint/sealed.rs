//! The envelope of stored JSON: one object whose last member is the SHA-256 of all bytes before that member.
//!
//! Owns how the checksum is written and checked (I13), and that a format of the future is refused in words. Does not own
//! any format.
//!
//! The text ends in `,"sha256":"<64 hex digits>"}` and a line break, exactly 78 bytes, and is plain JSON: `jq .` shows it,
//! `head -c -78 FILE | sha256sum` checks it. The envelope is part of every format to come.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

const BEFORE: &[u8] = br#","sha256":""#;
const AFTER: &[u8] = b"\"}\n";
const HEX: usize = 64;
const TRAILER: usize = BEFORE.len() + HEX + AFTER.len();

/// Why stored JSON cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cut short, empty, or something else altogether.
    #[error("it does not end in a checksum: cut short, or not written by wasmill ({bytes} bytes)")]
    NotSealed {
        /// How many bytes there were.
        bytes: usize,
    },
    /// Altered.
    #[error("it is damaged: its bytes have the checksum {found}, its last member says {expected}")]
    Damaged {
        /// What the object says of itself.
        expected: Digest,
        /// What its bytes give.
        found: Digest,
    },
    /// Of another version of wasmill.
    #[error(
        "it has format {found}, and this wasmill knows format {known}: use the version that wrote it, or a newer one"
    )]
    Format {
        /// What the object says.
        found: u32,
        /// The newest known.
        known: u32,
    },
    /// Intact, and yet not what it should be.
    #[error("it is intact but cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
}

/// Stored JSON and the checksum it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The object's bytes.
    pub bytes: Vec<u8>,
    /// The checksum in its last member.
    pub checksum: Digest,
}

/// Writes `value`, which must become a JSON object with at least one member.
///
/// # Errors
/// When it does not become one.
pub fn seal<T: Serialize>(value: &T) -> Result<Sealed, Error> {
    let mut bytes = serde_json::to_vec(value)?;
    let object = bytes.first() == Some(&b'{') && bytes.len() > 2 && bytes.pop() == Some(b'}');
    if !object {
        return Err(Error::NotSealed { bytes: bytes.len() });
    }
    let checksum = Digest::of(&bytes);
    bytes.extend_from_slice(BEFORE);
    bytes.extend_from_slice(checksum.to_string().as_bytes());
    bytes.extend_from_slice(AFTER);
    Ok(Sealed { bytes, checksum })
}

/// Checks the checksum and returns it.
///
/// # Errors
/// [`Error::NotSealed`] and [`Error::Damaged`].
pub fn check(bytes: &[u8]) -> Result<Digest, Error> {
    let not_sealed = || Error::NotSealed { bytes: bytes.len() };
    let (body, trailer) = bytes.len().checked_sub(TRAILER).map(|at| bytes.split_at(at)).ok_or_else(not_sealed)?;
    let hex = trailer.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER)).ok_or_else(not_sealed)?;
    let expected = std::str::from_utf8(hex).ok().and_then(|hex| hex.parse().ok()).ok_or_else(not_sealed)?;
    let found = Digest::of(body);
    if found == expected { Ok(found) } else { Err(Error::Damaged { expected, found }) }
}

/// Checks the checksum and the member `format`, which must be `known`, and reads the value.
///
/// # Errors
/// See [`Error`].
pub fn unseal<T: DeserializeOwned>(bytes: &[u8], known: u32) -> Result<(T, Digest), Error> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    let checksum = check(bytes)?;
    let Versioned { format } = serde_json::from_slice(bytes)?;
    if format != known {
        return Err(Error::Format { found: format, known });
    }
    Ok((serde_json::from_slice(bytes)?, checksum))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_envelope_is_pinned() {
        let sealed = seal(&json!({"format": 1, "a": "b"})).unwrap();
        let text = String::from_utf8(sealed.bytes).unwrap();
        let checksum = Digest::of(br#"{"format":1,"a":"b""#);
        assert_eq!(text, format!("{{\"format\":1,\"a\":\"b\",\"sha256\":\"{checksum}\"}}\n"));
        assert_eq!(sealed.checksum, checksum);
        assert_eq!(TRAILER, 78);
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "plain JSON");
    }

    #[test]
    fn what_is_no_object_cannot_be_sealed() {
        for value in [json!({}), json!([1]), json!(1), json!("}")] {
            assert!(matches!(seal(&value), Err(Error::NotSealed { .. })), "{value}");
        }
    }

    #[test]
    fn another_format_is_refused_by_number() {
        let sealed = seal(&json!({"format": 2, "new": true})).unwrap();
        let error = unseal::<Value>(&sealed.bytes, 1).unwrap_err();
        assert!(matches!(error, Error::Format { found: 2, known: 1 }), "{error}");
    }

    #[test]
    fn empty_and_cut_objects_are_refused() {
        let sealed = seal(&json!({"format": 1, "text": "abc"})).unwrap();
        for end in 0..sealed.bytes.len() {
            assert!(check(&sealed.bytes[..end]).is_err(), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_detected(text in ".{0,60}", at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let sealed = seal(&json!({"format": 1, "text": text})).unwrap();
            prop_assert_eq!(check(&sealed.bytes).unwrap(), sealed.checksum);
            let mut bytes = sealed.bytes;
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(check(&bytes).is_err());
        }
    }
}
