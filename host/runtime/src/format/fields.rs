//! Which fields of a record are kept, of what type, in what order: the pipeline's words, checked once per source.
//!
//! Owns the layout of the CBOR that decoders write and the conversion of text to a declared type. Does not own how fields are
//! found in a line.

use std::collections::BTreeMap;

use super::cbor;
use super::time::{self, TimeParser};
use super::{Undecodable, excerpt};
use crate::config::source::{ColumnType, FileSource, RecordShape};
use crate::config::watermark::Strategy;

/// Why a source's field settings cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `fields = []`.
    #[error("fields is empty: leave it out to keep all fields")]
    NoFields,
    /// A field twice.
    #[error("fields names `{0}` twice")]
    TwiceField(String),
    /// An array needs an order.
    #[error("record = \"array\" needs fields = [...]: they give the order")]
    ArrayWithoutFields,
    /// A type for a field that is not kept.
    #[error("types names `{0}`, which is not among fields")]
    TypeWithoutField(String),
    /// A time that cannot be read.
    #[error(transparent)]
    Time(#[from] time::Error),
    /// A watermark that cannot be read.
    #[error("watermark: {0}")]
    Watermark(time::Error),
}

/// The checked field settings of a source.
#[derive(Debug)]
pub struct Fields {
    /// The kept fields in the pipeline's order; `None`: all.
    pub declared: Option<Vec<Field>>,
    /// The order in which the declared fields are written, as indexes; empty without them.
    pub order: Vec<usize>,
    /// How they are written.
    pub shape: RecordShape,
    /// The declared types by name.
    pub types: BTreeMap<String, ColumnType>,
    /// Texts that mean null.
    pub null: Vec<Box<[u8]>>,
    /// The field that holds the event time.
    pub time: Option<(String, TimeParser)>,
    /// The field that says the split's watermark.
    pub watermark: Option<(String, TimeParser)>,
}

/// A kept field.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its name in CBOR; empty where records are arrays.
    pub key: Box<[u8]>,
    /// Its declared type.
    pub column_type: Option<ColumnType>,
}

impl Fields {
    /// Checks the settings.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(config: &FileSource) -> Result<Self, Error> {
        let shape = config.record;
        if shape == RecordShape::Array && config.fields.is_none() {
            return Err(Error::ArrayWithoutFields);
        }
        let declared = config.fields.as_deref().map(|names| declared(names, config)).transpose()?;
        let mut order: Vec<usize> = (0..declared.as_ref().map_or(0, Vec::len)).collect();
        if let (RecordShape::Map, Some(declared)) = (shape, &declared) {
            order.sort_by(|&a, &b| declared[a].key.cmp(&declared[b].key));
        }
        let time = match &config.time {
            Some(time) => Some((time.field.clone(), TimeParser::new(time)?)),
            None => None,
        };
        let watermark = match &config.watermark.strategy {
            Strategy::Field(time) => Some((time.field.clone(), TimeParser::new(time).map_err(Error::Watermark)?)),
            Strategy::None | Strategy::Times(_) => None,
        };
        let null = config.null.iter().map(|text| text.as_bytes().into()).collect();
        Ok(Self { declared, order, shape, types: config.types.clone(), null, time, watermark })
    }

    /// Whether the text means null.
    #[inline]
    #[must_use]
    pub fn is_null(&self, text: &[u8]) -> bool {
        self.null.iter().any(|null| **null == *text)
    }

    /// Appends the head of a record with `count` fields.
    pub fn push_head(&self, out: &mut Vec<u8>, count: usize) {
        let major = match self.shape {
            RecordShape::Map => cbor::MAP,
            RecordShape::Array => cbor::ARRAY,
        };
        cbor::push_head(out, major, count as u64);
    }
}

fn declared(names: &[String], config: &FileSource) -> Result<Vec<Field>, Error> {
    if names.is_empty() {
        return Err(Error::NoFields);
    }
    if let Some((_, twice)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
        return Err(Error::TwiceField(twice.clone()));
    }
    if let Some(name) = config.types.keys().find(|name| !names.contains(name)) {
        return Err(Error::TypeWithoutField(name.clone()));
    }
    let field = |name: &String| Field {
        name: name.clone(),
        key: match config.record {
            RecordShape::Map => encoded_key(name),
            RecordShape::Array => Box::default(),
        },
        column_type: config.types.get(name).copied(),
    };
    Ok(names.iter().map(field).collect())
}

/// A field's name as a CBOR map key.
#[must_use]
pub fn encoded_key(name: &str) -> Box<[u8]> {
    let mut key = Vec::with_capacity(name.len() + 3);
    cbor::push_text(&mut key, name);
    key.into_boxed_slice()
}

/// What a value of the type is, for a message.
#[must_use]
pub fn expected(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::I64 => "a whole number (i64)",
        ColumnType::U64 => "a whole number from 0 (u64)",
        ColumnType::F64 => "a number (f64)",
        ColumnType::Bool => "`true` or `false` (bool)",
        ColumnType::Text => "text",
    }
}

/// Appends a field's text as a value of the type.
///
/// # Errors
/// Where the text is no such value.
#[inline]
pub fn push_text_as(out: &mut Vec<u8>, name: &str, column_type: ColumnType, text: &[u8]) -> Result<(), Undecodable> {
    let Ok(utf8) = std::str::from_utf8(text) else {
        return Err(Undecodable::NotUtf8 { field: name.to_owned() });
    };
    let done = match column_type {
        ColumnType::Text => {
            cbor::push_text(out, utf8);
            return Ok(());
        }
        ColumnType::I64 => utf8.parse().map(|value| cbor::push_i64(out, value)).is_ok(),
        ColumnType::U64 => utf8.parse().map(|value| cbor::push_u64(out, value)).is_ok(),
        ColumnType::F64 => utf8.parse().map(|value| cbor::push_f64(out, value)).is_ok(),
        ColumnType::Bool => utf8.parse().map(|value| cbor::push_bool(out, value)).is_ok(),
    };
    if done { Ok(()) } else { Err(bad_value(name, text, column_type)) }
}

/// A value that its declared type does not have.
#[cold]
pub fn bad_value(name: &str, value: &[u8], column_type: ColumnType) -> Undecodable {
    Undecodable::BadValue { field: name.to_owned(), value: excerpt(value), expected: expected(column_type) }
}
