//! Reads CBOR that may come from anywhere: a serde deserializer over a slice.
//!
//! Owns the checks that keep any input from panicking, from nesting without end and from making large allocations. Does not
//! own writing.

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::float::half;
use super::{Error, MAX_DEPTH};

const BREAK: u8 = 0xff;

/// The first bytes of a value: its major type, and its argument (`None`: of indefinite length).
struct Head {
    major: u8,
    argument: Option<u64>,
    info: u8,
    at: usize,
}

/// Reads one value after another from a slice.
pub(super) struct Decoder<'de> {
    input: &'de [u8],
    at: usize,
    depth: u8,
}

impl<'de> Decoder<'de> {
    pub(super) fn new(input: &'de [u8]) -> Self {
        Self { input, at: 0, depth: 0 }
    }

    /// That nothing follows.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.at == self.input.len() { Ok(()) } else { Err(Error::Trailing { at: self.at }) }
    }

    #[inline]
    fn peek(&self) -> Result<u8, Error> {
        self.input.get(self.at).copied().ok_or(Error::Truncated { at: self.at })
    }

    #[inline]
    fn take(&mut self, len: u64) -> Result<&'de [u8], Error> {
        let rest = &self.input[self.at..];
        match usize::try_from(len) {
            Ok(len) if len <= rest.len() => {
                self.at += len;
                Ok(&rest[..len])
            }
            _ => Err(Error::Truncated { at: self.input.len() }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64)?);
        Ok(bytes)
    }

    #[inline]
    fn head(&mut self) -> Result<Head, Error> {
        let at = self.at;
        let [first] = self.array()?;
        let (major, info) = (first >> 5, first & 0x1f);
        let argument = match info {
            0..=23 => Some(u64::from(info)),
            24 => Some(u64::from(self.array::<1>()?[0])),
            25 => Some(u64::from(u16::from_be_bytes(self.array()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.array()?))),
            27 => Some(u64::from_be_bytes(self.array()?)),
            31 if matches!(major, 2..=5) => None,
            31 if major == 7 => {
                return Err(Error::Malformed { at, what: "a break outside a value of indefinite length" });
            }
            _ => return Err(Error::Malformed { at, what: "a reserved length" }),
        };
        Ok(Head { major, argument, info, at })
    }

    /// The head of the value behind any tags.
    #[inline]
    fn untagged_head(&mut self) -> Result<Head, Error> {
        let mut tags = self.depth;
        loop {
            let head = self.head()?;
            if head.major != 6 {
                return Ok(head);
            }
            tags += 1;
            if tags > MAX_DEPTH {
                return Err(Error::TooDeep);
            }
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let result = read(self)?;
        self.depth -= 1;
        Ok(result)
    }

    /// The pieces of a string of indefinite length, put together.
    fn pieces(&mut self, major: u8) -> Result<Vec<u8>, Error> {
        let mut whole = Vec::new();
        while self.peek()? != BREAK {
            let head = self.head()?;
            match head.argument {
                Some(len) if head.major == major => {
                    let piece = self.take(len)?;
                    if major == 3 {
                        text(piece, head.at)?;
                    }
                    whole.extend_from_slice(piece);
                }
                _ => return Err(Error::Malformed { at: head.at, what: "a piece of another type within a string" }),
            }
        }
        self.at += 1;
        Ok(whole)
    }

    /// Passes over one value.
    fn skip(&mut self) -> Result<(), Error> {
        let head = self.untagged_head()?;
        match (head.major, head.argument) {
            (2 | 3, Some(len)) => self.take(len).map(drop),
            (2 | 3, None) => self.pieces(head.major).map(drop),
            (4 | 5, argument) => self.nested(|decoder| {
                let mut items = Items::new(decoder, argument);
                while items.next()? {
                    items.decoder.skip()?;
                    if head.major == 5 {
                        items.decoder.skip()?;
                    }
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn simple<V: Visitor<'de>>(&mut self, head: &Head, visitor: V) -> Result<V::Value, Error> {
        let argument = head.argument.unwrap_or_default();
        match head.info {
            20 => visitor.visit_bool(false),
            21 => visitor.visit_bool(true),
            22 | 23 => visitor.visit_unit(),
            25 => visitor.visit_f64(half(argument as u16)),
            26 => visitor.visit_f64(f64::from(f32::from_bits(argument as u32))),
            27 => visitor.visit_f64(f64::from_bits(argument)),
            _ => Err(Error::Malformed { at: head.at, what: "a simple value that is not used" }),
        }
    }
}

#[inline]
fn text(bytes: &[u8], at: usize) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Malformed { at, what: "text that is not UTF-8" })
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let head = self.untagged_head()?;
        match (head.major, head.argument) {
            (0, Some(value)) => visitor.visit_u64(value),
            (1, Some(value)) => match i64::try_from(value) {
                Ok(value) => visitor.visit_i64(!value),
                Err(_) => Err(Error::Malformed { at: head.at, what: "an integer below those of 64 bits" }),
            },
            (2, Some(len)) => visitor.visit_borrowed_bytes(self.take(len)?),
            (2, None) => visitor.visit_byte_buf(self.pieces(2)?),
            (3, Some(len)) => visitor.visit_borrowed_str(text(self.take(len)?, head.at)?),
            (3, None) => match String::from_utf8(self.pieces(3)?) {
                Ok(whole) => visitor.visit_string(whole),
                Err(_) => Err(Error::Malformed { at: head.at, what: "text that is not UTF-8" }),
            },
            (4, argument) => self.nested(|decoder| {
                let mut items = Items::new(decoder, argument);
                let value = visitor.visit_seq(&mut items)?;
                items.finish(head.at, "an array with more items than its type has")?;
                Ok(value)
            }),
            (5, argument) => self.nested(|decoder| {
                let mut items = Items::new(decoder, argument);
                let value = visitor.visit_map(&mut items)?;
                items.finish(head.at, "a map with more entries than its type has")?;
                Ok(value)
            }),
            _ => self.simple(&head, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.peek()?, 0xf6 | 0xf7) {
            self.at += 1;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let head = self.untagged_head()?;
        match (head.major, head.argument) {
            (3, Some(len)) => visitor.visit_enum(text(self.take(len)?, head.at)?.into_deserializer()),
            (5, Some(1)) => self.nested(|decoder| visitor.visit_enum(Variant(decoder))),
            _ => Err(Error::Malformed { at: head.at, what: "neither a variant's name nor a map of one entry" }),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The items of an array or the entries of a map; `left` is `None` where a break ends them.
struct Items<'d, 'de> {
    decoder: &'d mut Decoder<'de>,
    left: Option<u64>,
    ended: bool,
}

impl<'d, 'de> Items<'d, 'de> {
    fn new(decoder: &'d mut Decoder<'de>, left: Option<u64>) -> Self {
        Self { decoder, left, ended: false }
    }

    /// Whether another item begins here.
    #[inline]
    fn next(&mut self) -> Result<bool, Error> {
        match &mut self.left {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None if self.ended => Ok(false),
            None if self.decoder.peek()? == BREAK => {
                self.decoder.at += 1;
                self.ended = true;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn finish(&mut self, at: usize, what: &'static str) -> Result<(), Error> {
        if self.next()? { Err(Error::Malformed { at, what }) } else { Ok(()) }
    }

    /// Each item takes a byte at least, so that a length that lies reserves no memory.
    fn hint(&self) -> Option<usize> {
        let most = self.decoder.input.len() - self.decoder.at;
        self.left.map(|left| usize::try_from(left).map_or(most, |left| left.min(most)))
    }
}

impl<'de> de::SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;
    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.next()? { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }
    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> de::MapAccess<'de> for Items<'_, 'de> {
    type Error = Error;
    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.next()? { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }
    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.decoder)
    }
    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

/// A variant with data, at its name.
struct Variant<'d, 'de>(&'d mut Decoder<'de>);

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name = seed.deserialize(&mut *self.0)?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    fn unit_variant(self) -> Result<(), Error> {
        de::Deserialize::deserialize(self.0)
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.0)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self.0, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self.0, visitor)
    }
}
