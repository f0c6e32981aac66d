//! Writes deterministic CBOR: a serde serializer that appends to a byte vector.
//!
//! Owns heads, the order of map entries, and counts that turn out otherwise than announced. Does not own reading.

use serde::Serialize;
use serde::ser;

use super::float::{Shortest, shortest};
use super::{Error, MAX_DEPTH};

const UNSIGNED: u8 = 0 << 5;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const MAP: u8 = 5 << 5;

/// Where a map entry lies in the output.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    value: usize,
    end: usize,
}

/// Writes values one after another and keeps the memory it needs to sort maps, so that writing allocates nothing once it is
/// warm.
#[derive(Debug, Default)]
pub struct Encoder {
    entries: Vec<Entry>,
    scratch: Vec<u8>,
    depth: u8,
}

impl Encoder {
    /// An encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the encoding of `value` to `out`.
    ///
    /// # Errors
    /// As [`super::to_vec`]; `out` is then as it was.
    #[inline]
    pub fn encode<T: Serialize + ?Sized>(&mut self, value: &T, out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        self.entries.clear();
        self.depth = 0;
        let result = value.serialize(Serializer { out, encoder: self });
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn enter(&mut self) -> Result<(), Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }
}

/// Appends all nine bytes and takes back what the head does not need: copies of a fixed size are a store or two.
#[inline]
fn push_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let start = out.len();
    let (bytes, len) = head(major, argument);
    out.extend_from_slice(&bytes);
    out.truncate(start + len);
}

#[inline]
fn push_text(out: &mut Vec<u8>, text: &str) {
    push_head(out, TEXT, text.len() as u64);
    extend_short(out, text.as_bytes());
}

/// Appends bytes that are probably few: a copy of unknown length is a call in WebAssembly, and one out of it at that, so that
/// up to 16 bytes are copied by two pieces of a fixed size, which may overlap.
#[inline]
fn extend_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) if bytes.len() <= 16 => {
            out.extend_from_slice(first);
            out.extend_from_slice(&[0; 8]);
            out.truncate(start + bytes.len());
            if let Some(end) = out.last_chunk_mut() {
                *end = *last;
            }
        }
        (None, None) => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                out.extend_from_slice(first);
                out.extend_from_slice(&[0; 4]);
                out.truncate(start + bytes.len());
                if let Some(end) = out.last_chunk_mut() {
                    *end = *last;
                }
            }
            _ => bytes.iter().for_each(|&byte| out.push(byte)),
        },
        _ => out.extend_from_slice(bytes),
    }
}

#[inline]
fn head(major: u8, argument: u64) -> ([u8; 9], usize) {
    let mut bytes = [0; 9];
    let len = if argument < 24 {
        bytes[0] = major | argument as u8;
        1
    } else if argument <= 0xff {
        bytes[0] = major | 24;
        bytes[1] = argument as u8;
        2
    } else if argument <= 0xffff {
        bytes[0] = major | 25;
        bytes[1..3].copy_from_slice(&(argument as u16).to_be_bytes());
        3
    } else if argument <= 0xffff_ffff {
        bytes[0] = major | 26;
        bytes[1..5].copy_from_slice(&(argument as u32).to_be_bytes());
        5
    } else {
        bytes[0] = major | 27;
        bytes[1..9].copy_from_slice(&argument.to_be_bytes());
        9
    };
    (bytes, len)
}

struct Serializer<'e> {
    out: &'e mut Vec<u8>,
    encoder: &'e mut Encoder,
}

impl<'e> Serializer<'e> {
    #[inline]
    fn items(self, major: u8, announced: Option<usize>) -> Result<Items<'e>, Error> {
        self.encoder.enter()?;
        let start = self.out.len();
        if let Some(len) = announced {
            push_head(self.out, major, len as u64);
        }
        let first_entry = self.encoder.entries.len();
        let first_item = self.out.len();
        let Serializer { out, encoder } = self;
        Ok(Items { out, encoder, major, announced, start, first_item, first_entry, count: 0, closes_variant: false })
    }

    #[inline]
    fn fields(self, len: usize) -> Result<Fields<'e>, Error> {
        Ok(Fields { items: self.items(MAP, Some(len))?, before: "", sorted: true })
    }

    /// The head of a variant with data: a map of one entry.
    fn variant(self, name: &str) -> Result<Self, Error> {
        self.encoder.enter()?;
        push_head(self.out, MAP, 1);
        push_text(self.out, name);
        Ok(self)
    }
}

/// An array or a map that is being written.
struct Items<'e> {
    out: &'e mut Vec<u8>,
    encoder: &'e mut Encoder,
    major: u8,
    announced: Option<usize>,
    start: usize,
    first_item: usize,
    first_entry: usize,
    count: usize,
    closes_variant: bool,
}

impl Items<'_> {
    #[inline]
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.count += 1;
        value.serialize(Serializer { out: self.out, encoder: self.encoder })
    }

    /// The value of the entry whose key begins at `start`.
    #[inline]
    fn entry<T: Serialize + ?Sized>(&mut self, start: usize, value: &T) -> Result<(), Error> {
        let value_at = self.out.len();
        self.item(value)?;
        self.encoder.entries.push(Entry { start, value: value_at, end: self.out.len() });
        Ok(())
    }

    #[inline]
    fn close(self) {
        if self.announced != Some(self.count) {
            let (bytes, len) = head(self.major, self.count as u64);
            self.out.splice(self.start..self.first_item, bytes[..len].iter().copied());
        }
        self.encoder.depth -= 1 + u8::from(self.closes_variant);
    }

    /// Puts the map's entries in order.
    fn sort(&mut self) -> Result<(), Error> {
        let Encoder { entries, scratch, .. } = self.encoder;
        let (out, new) = (&mut *self.out, &mut entries[self.first_entry..]);
        let key = |entry: &Entry| &out[entry.start..entry.value];
        if !new.is_sorted_by(|a, b| key(a) < key(b)) {
            new.sort_unstable_by(|a, b| key(a).cmp(key(b)));
            if new.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
                return Err(Error::DuplicateKey);
            }
            scratch.clear();
            for entry in new.iter() {
                scratch.extend_from_slice(&out[entry.start..entry.end]);
            }
            out.truncate(self.first_item);
            out.extend_from_slice(scratch);
        }
        Ok(())
    }
}

/// A struct that is being written: a map whose keys are mostly constants, so that the compiler knows their order.
struct Fields<'e> {
    items: Items<'e>,
    before: &'static str,
    sorted: bool,
}

impl Fields<'_> {
    #[inline(always)]
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        // The encoded keys are in this order: a shorter text has the lesser head.
        let ascends = self.before.len() < name.len() || (self.before.len() == name.len() && self.before < name);
        self.sorted &= ascends || self.items.count == 0;
        self.before = name;
        let start = self.items.out.len();
        push_head(self.items.out, TEXT, name.len() as u64);
        self.items.out.extend_from_slice(name.as_bytes());
        self.items.entry(start, value)
    }

    #[inline]
    fn end(mut self) -> Result<(), Error> {
        if !self.sorted {
            self.items.sort()?;
        }
        self.items.encoder.entries.truncate(self.items.first_entry);
        self.items.close();
        Ok(())
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty as $wide:ident),*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<(), Error> {
            self.$wide(value.into())
        }
    )*};
}

impl<'e> ser::Serializer for Serializer<'e> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Items<'e>;
    type SerializeTuple = Items<'e>;
    type SerializeTupleStruct = Items<'e>;
    type SerializeTupleVariant = Items<'e>;
    type SerializeMap = Map<'e>;
    type SerializeStruct = Fields<'e>;
    type SerializeStructVariant = Fields<'e>;

    integers!(
        serialize_u8: u8 as serialize_u64, serialize_u16: u16 as serialize_u64, serialize_u32: u32 as serialize_u64,
        serialize_i8: i8 as serialize_i64, serialize_i16: i16 as serialize_i64, serialize_i32: i32 as serialize_i64,
        serialize_f32: f32 as serialize_f64
    );

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.push(if value { 0xf5 } else { 0xf4 });
        Ok(())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        push_head(self.out, UNSIGNED, value);
        Ok(())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        if value >= 0 {
            push_head(self.out, UNSIGNED, value as u64);
        } else {
            // -1 - value, which is the complement.
            push_head(self.out, NEGATIVE, !value as u64);
        }
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        match shortest(value) {
            Shortest::Half(bits) => {
                self.out.push(0xf9);
                self.out.extend_from_slice(&bits.to_be_bytes());
            }
            Shortest::Single(bits) => {
                self.out.push(0xfa);
                self.out.extend_from_slice(&bits.to_be_bytes());
            }
            Shortest::Double(bits) => {
                self.out.push(0xfb);
                self.out.extend_from_slice(&bits.to_be_bytes());
            }
        }
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Error> {
        push_text(self.out, value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        push_head(self.out, BYTES, value.len() as u64);
        self.out.extend_from_slice(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.push(0xf6);
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let Serializer { out, encoder } = self.variant(variant)?;
        value.serialize(Serializer { out, encoder: &mut *encoder })?;
        encoder.depth -= 1;
        Ok(())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Items<'e>, Error> {
        self.items(ARRAY, len)
    }

    fn serialize_tuple(self, len: usize) -> Result<Items<'e>, Error> {
        self.items(ARRAY, Some(len))
    }

    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<Items<'e>, Error> {
        self.items(ARRAY, Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Items<'e>, Error> {
        Ok(Items { closes_variant: true, ..self.variant(variant)?.items(ARRAY, Some(len))? })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Map<'e>, Error> {
        Ok(Map { items: self.items(MAP, len)?, key: 0 })
    }

    #[inline]
    fn serialize_struct(self, _name: &'static str, len: usize) -> Result<Fields<'e>, Error> {
        self.fields(len)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Fields<'e>, Error> {
        let mut fields = self.variant(variant)?.fields(len)?;
        fields.items.closes_variant = true;
        Ok(fields)
    }
}

/// A map whose next value belongs to the key at `key`.
struct Map<'e> {
    items: Items<'e>,
    key: usize,
}

impl ser::SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = self.items.out.len();
        key.serialize(Serializer { out: self.items.out, encoder: self.items.encoder })
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.items.entry(self.key, value)
    }
    fn end(mut self) -> Result<(), Error> {
        self.items.sort()?;
        self.items.encoder.entries.truncate(self.items.first_entry);
        self.items.close();
        Ok(())
    }
}

macro_rules! arrays {
    ($($name:ident::$method:ident),*) => {$(
        impl ser::$name for Items<'_> {
            type Ok = ();
            type Error = Error;
            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }
            #[inline]
            fn end(self) -> Result<(), Error> {
                self.close();
                Ok(())
            }
        }
    )*};
}
arrays!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! maps {
    ($($name:ident),*) => {$(
        impl ser::$name for Fields<'_> {
            type Ok = ();
            type Error = Error;
            #[inline(always)]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.field(name, value)
            }
            #[inline]
            fn end(self) -> Result<(), Error> {
                Fields::end(self)
            }
        }
    )*};
}
maps!(SerializeStruct, SerializeStructVariant);
