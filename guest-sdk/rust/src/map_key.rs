//! Map keys as bytes whose order is the values' order.
//!
//! Owns the encoding of the keys within map and broadcast state: unsigned integers big-endian in their own width, signed ones
//! with the sign bit flipped, text as UTF-8, a truth value as one byte 0 or 1, bytes as they are, tuples one part after
//! another. It is stored, so it never changes. Does not own the keys of records: see [`crate::key`].
//!
//! ```
//! use wasmill_guest::map_key::MapKey;
//! let bytes = |key: &dyn Fn(&mut Vec<u8>)| { let mut out = Vec::new(); key(&mut out); out };
//! assert_eq!(bytes(&|out| 258u32.write(out)), [0, 0, 1, 2]);
//! assert_eq!(bytes(&|out| (-1i16).write(out)), [0x7f, 0xff]);
//! assert_eq!(bytes(&|out| (7u8, "ab").write(out)), [7, b'a', b'b']);
//! ```

use crate::time::Timestamp;

/// Bytes that are not the encoding of a map key of the type asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a map key of {len} bytes is not {expected}")]
pub struct Error {
    /// How many bytes there are.
    pub len: usize,
    /// What they should be.
    pub expected: &'static str,
}

/// A type that map keys have. Byte order is value order.
pub trait MapKey {
    /// Appends the key's bytes.
    fn write(&self, out: &mut Vec<u8>);
}

/// A type that map keys are read as, and that a state declares.
pub trait FromMapKey: MapKey + Sized {
    /// The key that `bytes` are the encoding of.
    ///
    /// # Errors
    /// When they are not of this type.
    fn read(bytes: &[u8]) -> Result<Self, Error>;

    /// The type as a JSON Schema, or `bytes`, as the declaration gives it.
    fn schema() -> String;
}

/// A map key whose encoding has one length, so that it can stand before another part of a tuple.
pub trait FixedMapKey: FromMapKey {
    /// The length of the encoding in bytes.
    const LEN: usize;
}

/// A value with the encoding of a map key of type `K`, by which an entry is asked for: `str` for `String`, `[u8]` for
/// `Vec<u8>`, else `K` itself.
pub trait KeyFor<K>: MapKey {}

/// What the encoding of a map key of type `K` may begin with: part of a text or of bytes, or the first parts of a tuple.
pub trait PrefixOf<K>: MapKey {}

impl<K, Q: KeyFor<K> + ?Sized> KeyFor<K> for &Q {}
impl PrefixOf<String> for &str {}
impl PrefixOf<Vec<u8>> for &[u8] {}
impl<A: FixedMapKey, B, Q: KeyFor<B>> KeyFor<(A, B)> for (A, Q) {}
impl<A: FixedMapKey, B: FixedMapKey, C, Q: KeyFor<C>> KeyFor<(A, B, C)> for (A, B, Q) {}
impl<A: FixedMapKey, B> PrefixOf<(A, B)> for A {}
impl<A: FixedMapKey, B: FixedMapKey, C> PrefixOf<(A, B, C)> for A {}
impl<A: FixedMapKey, B: FixedMapKey, C> PrefixOf<(A, B, C)> for (A, B) {}

macro_rules! asked_by {
    ($($asked:ty => $key:ty),*) => {$(impl KeyFor<$key> for $asked {})*};
}
asked_by!(str => String, String => String, [u8] => Vec<u8>, Vec<u8> => Vec<u8>, bool => bool, Timestamp => Timestamp);
asked_by!(u8 => u8, u16 => u16, u32 => u32, u64 => u64, i8 => i8, i16 => i16, i32 => i32, i64 => i64);

macro_rules! begins_with {
    ($($prefix:ty => $key:ty),*) => {$(impl PrefixOf<$key> for $prefix {})*};
}
begins_with!(str => String, String => String, [u8] => Vec<u8>, Vec<u8> => Vec<u8>);

impl<T: MapKey + ?Sized> MapKey for &T {
    fn write(&self, out: &mut Vec<u8>) {
        T::write(self, out);
    }
}

impl MapKey for str {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl MapKey for String {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_str().write(out);
    }
}

impl FromMapKey for String {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes).map_err(|_| Error { len: bytes.len(), expected: "text" })?;
        Ok(text.to_owned())
    }
    fn schema() -> String {
        r#"{"type":"string"}"#.to_owned()
    }
}

impl MapKey for [u8] {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl MapKey for Vec<u8> {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}

impl FromMapKey for Vec<u8> {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        Ok(bytes.to_vec())
    }
    fn schema() -> String {
        "bytes".to_owned()
    }
}

impl MapKey for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl FromMapKey for bool {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Error { len: bytes.len(), expected: "a truth value" }),
        }
    }
    fn schema() -> String {
        r#"{"type":"boolean"}"#.to_owned()
    }
}

impl FixedMapKey for bool {
    const LEN: usize = 1;
}

macro_rules! integers {
    ($($type:ident as $unsigned:ident, flip $flip:expr);* $(;)?) => {$(
        impl MapKey for $type {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as $unsigned ^ $flip).to_be_bytes());
            }
        }

        impl FromMapKey for $type {
            #[inline]
            fn read(bytes: &[u8]) -> Result<Self, Error> {
                match bytes.try_into() {
                    Ok(bytes) => Ok(($unsigned::from_be_bytes(bytes) ^ $flip) as $type),
                    Err(_) => Err(Error { len: bytes.len(), expected: concat!("of type ", stringify!($type)) }),
                }
            }
            fn schema() -> String {
                concat!(r#"{"format":""#, stringify!($type), r#"","type":"integer"}"#).to_owned()
            }
        }

        impl FixedMapKey for $type {
            const LEN: usize = size_of::<$type>();
        }
    )*};
}
integers! {
    u8 as u8, flip 0;
    u16 as u16, flip 0;
    u32 as u32, flip 0;
    u64 as u64, flip 0;
    i8 as u8, flip 1 << 7;
    i16 as u16, flip 1 << 15;
    i32 as u32, flip 1 << 31;
    i64 as u64, flip 1 << 63;
}

impl MapKey for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_millis().write(out);
    }
}

impl FromMapKey for Timestamp {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        i64::read(bytes).map(Self::from_millis)
    }
    fn schema() -> String {
        i64::schema()
    }
}

impl FixedMapKey for Timestamp {
    const LEN: usize = 8;
}

impl<A: FixedMapKey, B: MapKey> MapKey for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
}

impl<A: FixedMapKey, B: FromMapKey> FromMapKey for (A, B) {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (first, rest) = split::<A>(bytes)?;
        Ok((first, B::read(rest)?))
    }
    fn schema() -> String {
        tuple(&[A::schema(), B::schema()])
    }
}

impl<A: FixedMapKey, B: FixedMapKey> FixedMapKey for (A, B) {
    const LEN: usize = A::LEN + B::LEN;
}

impl<A: FixedMapKey, B: FixedMapKey, C: MapKey> MapKey for (A, B, C) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }
}

impl<A: FixedMapKey, B: FixedMapKey, C: FromMapKey> FromMapKey for (A, B, C) {
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (first, rest) = split::<A>(bytes)?;
        let (second, rest) = split::<B>(rest)?;
        Ok((first, second, C::read(rest)?))
    }
    fn schema() -> String {
        tuple(&[A::schema(), B::schema(), C::schema()])
    }
}

fn split<A: FixedMapKey>(bytes: &[u8]) -> Result<(A, &[u8]), Error> {
    let parts = bytes.split_at_checked(A::LEN).ok_or(Error { len: bytes.len(), expected: "a tuple of this type" })?;
    Ok((A::read(parts.0)?, parts.1))
}

/// The schema of a tuple; bytes within one are said as a format, since `bytes` alone is no JSON Schema.
fn tuple(parts: &[String]) -> String {
    let part = |part: &String| match part.as_str() {
        "bytes" => r#"{"format":"bytes"}"#.to_owned(),
        schema => schema.to_owned(),
    };
    let parts: Vec<String> = parts.iter().map(part).collect();
    format!(r#"{{"prefixItems":[{}],"type":"array"}}"#, parts.join(","))
}

/// The least byte string above all that begin with `prefix`; `None` where there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(key: &(impl MapKey + ?Sized)) -> Vec<u8> {
        let mut out = Vec::new();
        key.write(&mut out);
        out
    }

    fn same<K: FromMapKey + PartialEq + std::fmt::Debug>(key: &K) {
        assert_eq!(K::read(&bytes(key)).as_ref(), Ok(key));
    }

    #[test]
    fn map_keys_are_stored_as_they_always_were() {
        assert_eq!(bytes(&1u8), [1]);
        assert_eq!(bytes(&0x0102u16), [1, 2]);
        assert_eq!(bytes(&0x0102_0304u32), [1, 2, 3, 4]);
        assert_eq!(bytes(&u64::MAX), [0xff; 8]);
        assert_eq!(bytes(&-1i8), [0x7f]);
        assert_eq!(bytes(&0i16), [0x80, 0]);
        assert_eq!(bytes(&i32::MIN), [0; 4]);
        assert_eq!(bytes(&1i64), [0x80, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(bytes(&Timestamp::from_millis(-2)), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(bytes("né"), [b'n', 0xc3, 0xa9]);
        assert_eq!(bytes(&[0u8, 0xff][..]), [0, 0xff]);
        assert_eq!(bytes(&true), [1]);
        assert_eq!(bytes(&(1u16, 2u8, "x")), [0, 1, 2, b'x']);
    }

    #[test]
    fn the_types_of_map_keys_are_declared_as_they_always_were() {
        assert_eq!(u32::schema(), r#"{"format":"u32","type":"integer"}"#);
        assert_eq!(Vec::<u8>::schema(), "bytes");
        assert_eq!(
            <(i64, String)>::schema(),
            r#"{"prefixItems":[{"format":"i64","type":"integer"},{"type":"string"}],"type":"array"}"#
        );
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert!(u32::read(&[1, 2, 3]).is_err());
        assert!(bool::read(&[2]).is_err());
        assert!(String::read(&[0xff]).is_err());
        assert!(<(u32, u8)>::read(&[1]).is_err());
        assert!(<(u8, u8)>::read(&[1, 2, 3]).is_err());
    }

    #[test]
    fn a_prefix_of_ones_has_no_end() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff]), None);
        assert_eq!(after_prefix(&[]), None);
    }

    proptest! {
        #[test]
        fn map_keys_are_read_as_written_and_keep_their_order(
            a in any::<(i64, u32)>(), b in any::<(i64, u32)>(), s in any::<(i8, String)>(), t in any::<(i8, String)>(),
        ) {
            same(&a);
            same(&s);
            prop_assert_eq!(a.cmp(&b), bytes(&a).cmp(&bytes(&b)));
            prop_assert_eq!(s.cmp(&t), bytes(&s).cmp(&bytes(&t)));
        }

        #[test]
        fn no_bytes_make_a_map_key_panic(bytes in any::<Vec<u8>>()) {
            let _ = (i64::read(&bytes), <(u8, String)>::read(&bytes), <(u16, i8, bool)>::read(&bytes));
        }
    }
}
