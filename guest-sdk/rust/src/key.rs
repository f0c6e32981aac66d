//! Keys as bytes whose order is the values' order.
//!
//! Owns the encoding that an edge of a pipeline gives to keys: text as UTF-8, every integer as 8 bytes big-endian with the
//! sign bit flipped, a truth value as one byte, bytes as they are. All integer types share one encoding, so that a key does
//! not depend on the width that a language chose; integers past `i64` are refused. Does not own key groups: no guest sees them.

/// Key bytes that are not of the type asked for, or a key that has no encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The record has no key.
    #[error("the record has no key")]
    Absent,
    /// The bytes are another type's.
    #[error("a key of {len} bytes is not {expected}")]
    Mismatch {
        /// How many bytes there are.
        len: usize,
        /// What they should be.
        expected: &'static str,
    },
    /// An integer outside the range of the type, or past `i64` when written.
    #[error("the key is an integer outside the range of {0}")]
    Range(&'static str),
}

/// A type that keys have.
pub trait Key {
    /// Appends the key's bytes.
    ///
    /// # Errors
    /// For an integer past `i64`.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error>;

    /// The type as a JSON Schema, or `bytes`.
    fn schema() -> &'static str;
}

/// A type that key bytes are read as, possibly borrowing from them.
pub trait FromKey<'a>: Sized {
    /// The key that `bytes` are the encoding of.
    ///
    /// # Errors
    /// When they are not of this type.
    fn from_key(bytes: &'a [u8]) -> Result<Self, Error>;
}

impl Key for str {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(self.as_bytes());
        Ok(())
    }
    fn schema() -> &'static str {
        r#"{"type":"string"}"#
    }
}

impl Key for [u8] {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(self);
        Ok(())
    }
    fn schema() -> &'static str {
        "bytes"
    }
}

impl Key for bool {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.push(u8::from(*self));
        Ok(())
    }
    fn schema() -> &'static str {
        r#"{"type":"boolean"}"#
    }
}

macro_rules! as_another {
    ($($type:ty => $other:ty),*) => {$(
        impl Key for $type {
            fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                <$other as Key>::write(self, out)
            }
            fn schema() -> &'static str {
                <$other as Key>::schema()
            }
        }
    )*};
}
as_another!(String => str, Vec<u8> => [u8]);

impl<T: Key + ?Sized> Key for &T {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        T::write(self, out)
    }
    fn schema() -> &'static str {
        T::schema()
    }
}

impl<'a> FromKey<'a> for &'a [u8] {
    fn from_key(bytes: &'a [u8]) -> Result<Self, Error> {
        Ok(bytes)
    }
}

impl FromKey<'_> for Vec<u8> {
    fn from_key(bytes: &[u8]) -> Result<Self, Error> {
        Ok(bytes.to_vec())
    }
}

impl<'a> FromKey<'a> for &'a str {
    #[inline]
    fn from_key(bytes: &'a [u8]) -> Result<Self, Error> {
        std::str::from_utf8(bytes).map_err(|_| Error::Mismatch { len: bytes.len(), expected: "text" })
    }
}

impl FromKey<'_> for String {
    fn from_key(bytes: &[u8]) -> Result<Self, Error> {
        <&str>::from_key(bytes).map(str::to_owned)
    }
}

impl FromKey<'_> for bool {
    fn from_key(bytes: &[u8]) -> Result<Self, Error> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Error::Mismatch { len: bytes.len(), expected: "a truth value" }),
        }
    }
}

const SIGN: u64 = 1 << 63;

macro_rules! integers {
    ($($type:ident),*) => {$(
        impl Key for $type {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                let wide = i64::try_from(*self).map_err(|_| Error::Range("i64"))?;
                out.extend_from_slice(&(wide as u64 ^ SIGN).to_be_bytes());
                Ok(())
            }
            fn schema() -> &'static str {
                concat!(r#"{"type":"integer","format":""#, stringify!($type), r#""}"#)
            }
        }

        impl FromKey<'_> for $type {
            #[inline]
            fn from_key(bytes: &[u8]) -> Result<Self, Error> {
                let Ok(bytes) = <[u8; 8]>::try_from(bytes) else {
                    return Err(Error::Mismatch { len: bytes.len(), expected: "an integer, which has 8" });
                };
                let wide = (u64::from_be_bytes(bytes) ^ SIGN) as i64;
                wide.try_into().map_err(|_| Error::Range(stringify!($type)))
            }
        }
    )*};
}
integers!(i64, i32, i16, i8, u64, u32, u16, u8);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(key: &(impl Key + ?Sized)) -> Vec<u8> {
        let mut out = Vec::new();
        key.write(&mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn keys_are_read_as_written_and_keep_their_order(a in any::<i64>(), b in any::<i64>(), text in any::<String>()) {
            prop_assert_eq!(i64::from_key(&bytes(&a)).unwrap(), a);
            prop_assert_eq!(a.cmp(&b), bytes(&a).cmp(&bytes(&b)));
            prop_assert_eq!(String::from_key(&bytes(&text)).unwrap(), text);
        }

        #[test]
        fn no_bytes_make_a_key_panic(bytes in any::<Vec<u8>>()) {
            let _ = (i64::from_key(&bytes), u8::from_key(&bytes), bool::from_key(&bytes), String::from_key(&bytes));
        }
    }

    #[test]
    fn all_integer_types_share_one_encoding() {
        assert_eq!(bytes(&7u8), bytes(&7i64));
        assert_eq!(bytes(&7u64), [0x80, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(bytes(&-1i32), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(u64::from_key(&bytes(&-1i64)), Err(Error::Range("u64")));
        assert_eq!(u64::MAX.write(&mut Vec::new()), Err(Error::Range("i64")));
    }
}
