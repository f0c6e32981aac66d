//! CBOR with the core deterministic encoding of RFC 8949, section 4.2.1, as serde formats.
//!
//! Owns the bytes of values: one value has one encoding, in every language. Integers, floats and lengths are as short as
//! they can be without losing anything, lengths are definite, the entries of maps and the fields of structs ascend by the
//! bytes of their encoded keys. Does not own what a value means, nor keys (see [`crate::key`]).
//!
//! Reading is more lenient than writing: every well-formed CBOR is read, tags are passed over, and a struct is read from a
//! map by its fields' names or from an array by their declared order. No input makes it panic; nesting is limited to
//! [`MAX_DEPTH`].
//!
//! Structs are maps, tuples arrays, unit and `None` null; of an enum, a variant without data is its name, one with data a
//! map of one entry. Types that have a form for people (addresses, times) are written in it, as in JSON.

mod decode;
mod encode;
mod float;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;
use serde::de::Deserialize;

pub use encode::Encoder;

/// Deepest nesting of arrays, maps and tags that is written and read.
pub const MAX_DEPTH: u8 = 128;

/// A value that cannot be written, or bytes that are not such a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end within a value.
    #[error("CBOR ends within a value at byte {at}")]
    Truncated {
        /// Where more bytes were needed.
        at: usize,
    },
    /// Bytes follow the value.
    #[error("CBOR value ends at byte {at} and more bytes follow")]
    Trailing {
        /// Where the value ends.
        at: usize,
    },
    /// Bytes that RFC 8949 does not allow, or a simple value that has no meaning here.
    #[error("CBOR at byte {at}: {what}")]
    Malformed {
        /// Where they lie.
        at: usize,
        /// What is wrong with them.
        what: &'static str,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("CBOR is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Two entries of a map with the same key.
    #[error("a map to be written as CBOR has the same key twice")]
    DuplicateKey,
    /// The bytes are another type's, or the type refuses the value.
    #[error("{0}")]
    Mismatch(String),
}

impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Mismatch(message.to_string())
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Mismatch(message.to_string())
    }
}

/// The encoding of `value`. On a hot path keep an [`Encoder`].
///
/// # Errors
/// When the type's own serialisation fails, a map has a key twice, or it nests deeper than [`MAX_DEPTH`].
///
/// ```
/// let bytes = wasmill_guest::cbor::to_vec(&("a", 1.5))?;
/// assert_eq!(bytes, [0x82, 0x61, b'a', 0xf9, 0x3e, 0x00]);
/// # Ok::<(), wasmill_guest::cbor::Error>(())
/// ```
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    Encoder::new().encode(value, &mut bytes)?;
    Ok(bytes)
}

/// The value that `bytes` are the encoding of. Text and byte strings may be borrowed from `bytes`.
///
/// # Errors
/// When they are not one whole CBOR value, or not one of this type.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    let mut decoder = decode::Decoder::new(bytes);
    let value = T::deserialize(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}
