//! Any JSON value to CBOR.
//!
//! Owns the conversion of values and their types. Does not own which fields of a record are kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Work, map};
use crate::config::source::ColumnType;
use crate::format::fields::{bad_value, push_text_as};
use crate::format::{Undecodable, cbor};

/// Any value; `column_type` and `null` are the pipeline's for a field of the record, and nothing for nested values.
pub struct Value<'a> {
    pub out: &'a mut Vec<u8>,
    pub work: &'a mut Work,
    pub null: &'a [Box<[u8]>],
    pub column_type: Option<ColumnType>,
}

impl Value<'_> {
    fn nested<'b>(out: &'b mut Vec<u8>, work: &'b mut Work) -> Value<'b> {
        Value { out, work, null: &[], column_type: None }
    }

    /// A value that the field's type does not have.
    #[cold]
    fn mismatch<E: serde::de::Error>(self, value: fmt::Arguments<'_>) -> E {
        let column_type = self.column_type.unwrap_or(ColumnType::Text);
        // The field's name is known one level up, which puts it in.
        self.work.fail(bad_value("", value.to_string().as_bytes(), column_type))
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.push(cbor::NULL);
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.column_type {
            None | Some(ColumnType::Bool) => cbor::push_bool(self.out, value),
            Some(_) => return Err(self.mismatch(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match self.column_type {
            None | Some(ColumnType::U64) => cbor::push_u64(self.out, value),
            Some(ColumnType::I64) if i64::try_from(value).is_ok() => cbor::push_u64(self.out, value),
            Some(ColumnType::F64) => cbor::push_f64(self.out, value as f64),
            Some(_) => return Err(self.mismatch(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        match self.column_type {
            None | Some(ColumnType::I64) => cbor::push_i64(self.out, value),
            Some(ColumnType::F64) => cbor::push_f64(self.out, value as f64),
            Some(_) => return Err(self.mismatch(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.column_type {
            None | Some(ColumnType::F64) => cbor::push_f64(self.out, value),
            Some(_) => return Err(self.mismatch(format_args!("{value}"))),
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if self.null.iter().any(|null| **null == *text.as_bytes()) {
            self.out.push(cbor::NULL);
            return Ok(());
        }
        match self.column_type {
            None | Some(ColumnType::Text) => cbor::push_text(self.out, text),
            Some(column_type) => {
                push_text_as(self.out, "", column_type, text.as_bytes()).map_err(|error| self.work.fail(error))?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.column_type.is_some() {
            return Err(self.mismatch(format_args!("an array")));
        }
        let head = map::begin(self.out);
        let mut count = 0;
        while seq.next_element_seed(Value::nested(self.out, self.work))?.is_some() {
            count += 1;
        }
        self.work.maps.end_array(self.out, head, count);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        if self.column_type.is_some() {
            return Err(self.mismatch(format_args!("an object")));
        }
        let Self { out, work, .. } = self;
        let open = work.maps.begin(out);
        let mut start = out.len();
        while access.next_key_seed(NestedName { out })?.is_some() {
            let key_end = out.len();
            access.next_value_seed(Value::nested(out, work))?;
            work.maps.entry(start, key_end, out.len());
            start = out.len();
        }
        let ended = work.maps.end(out, open);
        ended.map_err(|field| work.fail(Undecodable::TwiceField { field }))
    }
}

/// A key of a nested object.
struct NestedName<'a> {
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for NestedName<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NestedName<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        cbor::push_text(self.out, name);
        Ok(())
    }
}
