//! From the tree to types, by serde, with the place of whatever is wrong.
//!
//! Owns how serde's complaints become [`Error`]s. A value that a reference brought in stands in no message.

use std::fmt;
use std::ops::Range;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};

use super::document::{Entry, Lines, Node, Value};
use super::error::{Error, nearest};

/// Reads a `T` from a table, passing over the keys in `skip`. `path` names the table; `span` is where it begins.
pub(super) fn from_table<'de, T: serde::Deserialize<'de>>(
    table: Table<'de>,
    path: &[&str],
    lines: &Lines,
) -> Result<T, Error> {
    T::deserialize(MapAccessDeserializer::new(Entries::new(table.entries, table.skip)))
        .map_err(|failure| failure.into_error(&table, path, lines))
}

/// A table to be read.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) entries: &'a [Entry],
    /// Where it begins.
    pub(super) start: usize,
    /// Keys that are read elsewhere; they exist, as far as messages go.
    pub(super) skip: &'a [&'a str],
}

/// What serde complained about, as it makes its way out.
#[derive(Debug)]
pub(super) struct Failure {
    kind: Kind,
    span: Option<Range<usize>>,
    /// The keys from the table read down to the value, innermost first.
    path: Vec<String>,
}

#[derive(Debug)]
enum Kind {
    UnknownKey { key: String, known: Vec<String> },
    UnknownValue { value: String, known: Vec<String> },
    MissingKey { key: String },
    Unexpected { found: String, expected: String },
    Message(String),
}

impl Failure {
    fn new(kind: Kind) -> Self {
        Self { kind, span: None, path: Vec::new() }
    }

    /// The failure came from reading `node`.
    fn of(mut self, node: &Node) -> Self {
        if self.span.is_some() {
            return self;
        }
        self.span = Some(node.span.clone());
        if let Value::String { shown: Some(shown), .. } = &node.value {
            self.kind = match self.kind {
                Kind::UnknownValue { known, .. } => Kind::UnknownValue { value: shown.clone(), known },
                Kind::Unexpected { expected, .. } => Kind::Unexpected { found: format!("`{shown}`"), expected },
                _ => Kind::Message(format!("what `{shown}` stands for is not valid here")),
            };
        }
        self
    }

    fn within(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }

    fn into_error(self, table: &Table<'_>, path: &[&str], lines: &Lines) -> Error {
        let inner = !self.path.is_empty();
        let place = lines.place(self.span.map_or(table.start, |span| span.start));
        let full: Vec<String> = path.iter().map(|&part| part.to_owned()).chain(self.path.into_iter().rev()).collect();
        let shown_table = || if full.is_empty() { "the file".to_owned() } else { format!("[{}]", full.join(".")) };
        match self.kind {
            Kind::UnknownKey { key, mut known } => {
                if !inner {
                    known.splice(0..0, table.skip.iter().map(|&name| name.to_owned()));
                }
                let nearest = nearest(&key, known.iter().map(String::as_str));
                Error::UnknownKey { place, table: shown_table(), key, nearest, known }
            }
            Kind::MissingKey { key } => Error::MissingKey { place, table: shown_table(), key },
            Kind::UnknownValue { value, known } => unknown_value(place, full.join("."), value, known),
            Kind::Unexpected { found, expected } => {
                Error::Value { place, key: full.join("."), message: format!("expected {expected}, found {found}") }
            }
            Kind::Message(message) => Error::Value { place, key: full.join("."), message },
        }
    }
}

/// Values that are refused by name, with what to use instead.
static NOT_YET: &[(&str, &str, &str)] = &[
    ("mode", "unaligned", "use \"aligned\""),
    ("mode", "aligned-then-unaligned", "use \"aligned\""),
    ("exchange", "kafka", "use \"key\", \"rebalance\", \"forward\" or \"broadcast\""),
    ("connector", "kafka", "use \"file\""),
];

/// The error for a value that is not among `known`.
pub(super) fn unknown_value(place: super::error::Place, key: String, value: String, known: Vec<String>) -> Error {
    let last = key.rsplit('.').next().unwrap_or_default();
    if let Some((_, _, instead)) = NOT_YET.iter().find(|(name, refused, _)| *name == last && *refused == value) {
        return Error::NotYet { place, what: format!("`{last} = \"{value}\"`"), instead };
    }
    let nearest = nearest(&value, known.iter().map(String::as_str));
    Error::UnknownValue { place, key, value, nearest, known }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for Failure {}

impl serde::de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Kind::Message(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(Kind::Unexpected { found: found.to_string(), expected: in_words(&expected.to_string()) })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownKey { key: key.to_owned(), known: owned(known) })
    }

    fn unknown_variant(value: &str, known: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownValue { value: value.to_owned(), known: owned(known) })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Kind::MissingKey { key: key.to_owned() })
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// What serde expects, in the words of a TOML file.
fn in_words(expected: &str) -> String {
    match expected {
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        "a nonzero u8" | "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => {
            "a whole number from 1"
        }
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other if other.starts_with("enum ") => "a name in quotes",
        "path string" => "a path in quotes",
        other => other,
    }
    .to_owned()
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.value {
            Value::String { text, .. } => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter().enumerate() }),
            Value::Table(entries) => visitor.visit_map(Entries::new(entries, &[])),
        }
        .map_err(|failure| failure.of(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self).map_err(|failure| failure.of(self))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self).map_err(|failure| failure.of(self))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match &self.value {
            Value::String { text, .. } => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Table(entries) => {
                MapAccessDeserializer::new(Entries::new(entries, &[])).deserialize_enum(name, variants, visitor)
            }
            _ => return self.deserialize_any(visitor),
        }
        .map_err(|failure| failure.of(self))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|failure| failure.of(item).within(&index.to_string()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, Entry>,
    skip: &'de [&'de str],
    value: Option<&'de Entry>,
}

impl<'de> Entries<'de> {
    fn new(entries: &'de [Entry], skip: &'de [&'de str]) -> Self {
        Self { entries: entries.iter(), skip, value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let skip = self.skip;
        let Some(entry) = self.entries.find(|entry| !skip.contains(&entry.key.as_str())) else { return Ok(None) };
        self.value = Some(entry);
        seed.deserialize(StrDeserializer::new(&entry.key)).map(Some).map_err(|mut failure: Failure| {
            failure.span.get_or_insert(entry.span.clone());
            failure
        })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let entry = self.value.take().ok_or_else(|| serde::de::Error::custom("a value was read before its key"))?;
        seed.deserialize(&entry.node).map_err(|failure| failure.of(&entry.node).within(&entry.key))
    }
}
