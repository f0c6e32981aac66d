//! A line of JSON to deterministic CBOR, in one pass over the line.
//!
//! Owns which fields of the object are kept, in what order, and the event time. Numbers are integers where JSON writes them so and 64 bits hold them,
//! else floats. Types and nulls of the pipeline apply to the object's own fields, not to nested ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use wasmill_core::time::Timestamp;

use self::map::{Maps, text_of};
use self::value::Value;
use super::fields::Fields;
use super::time::TimeParser;
use super::{Undecodable, cbor, excerpt};
use crate::config::source::ColumnType;

mod map;
mod value;

/// Decodes the objects of one source.
#[derive(Debug)]
pub struct JsonDecoder {
    fields: Arc<Fields>,
    targets: Targets,
    time: Option<TimeParser>,
    watermark: Option<TimeParser>,
    /// The values of the declared fields, in the order of the line.
    values: Vec<u8>,
    work: Work,
}

/// What is done with a field of the object.
#[derive(Debug, Clone, Copy, Default)]
struct Target {
    /// Whether its value is decoded at all.
    read: bool,
    /// Its index among the declared fields.
    field: Option<usize>,
    column_type: Option<ColumnType>,
    is_time: bool,
    is_watermark: bool,
}

/// Finds a field's target: first where the same field stood in an earlier record, then by name.
#[derive(Debug)]
struct Targets {
    by_name: HashMap<Box<str>, Target>,
    other: Target,
    by_place: Vec<(Box<str>, Target)>,
}

/// Fields remembered by place.
const PLACES: usize = 256;

/// Memory that is kept from record to record.
#[derive(Debug, Default)]
struct Work {
    /// Where each declared field's value lies in `values`; empty: not there.
    spans: Vec<(usize, usize)>,
    maps: Maps,
    event_time: Option<Timestamp>,
    watermark: Option<Timestamp>,
    /// The precise reason behind the parser's error.
    error: Option<Undecodable>,
}

impl JsonDecoder {
    /// For a source's fields.
    #[must_use]
    pub fn new(fields: Arc<Fields>) -> Self {
        let time = fields.time.as_ref().map(|(_, parser)| parser.clone());
        let watermark = fields.watermark.as_ref().map(|(_, parser)| parser.clone());
        Self { targets: Targets::new(&fields), fields, time, watermark, values: Vec::new(), work: Work::default() }
    }

    /// What the record that was decoded last says of its split's watermark.
    #[must_use]
    pub fn watermark(&self) -> Option<Timestamp> {
        self.work.watermark
    }

    /// Appends the record's CBOR to `out` and returns its event time, if the source has a time field. After an error what was
    /// appended is to be cut off again.
    ///
    /// # Errors
    /// See [`Undecodable`].
    pub fn decode(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, Undecodable> {
        let Self { fields, targets, time, watermark, values, work } = self;
        work.start(fields.declared.as_ref().map_or(0, Vec::len));
        values.clear();
        let Ok(line) = std::str::from_utf8(line) else {
            return Err(Undecodable::Json { reason: "the line is not UTF-8 text".to_owned() });
        };
        let mut deserializer = serde_json::Deserializer::from_str(line);
        let into = if fields.declared.is_some() { &mut *values } else { &mut *out };
        let object = Object { fields, targets, times: Times { time, watermark }, work, out: into };
        let parsed = object.deserialize(&mut deserializer).and_then(|()| deserializer.end());
        if let Err(error) = parsed {
            return Err(work.error.take().unwrap_or_else(|| Undecodable::Json { reason: reason(&error) }));
        }
        if let Some(declared) = &fields.declared {
            fields.push_head(out, declared.len());
            for &index in &fields.order {
                let (start, end) = work.spans[index];
                if start == end {
                    return Err(Undecodable::MissingField { field: declared[index].name.clone() });
                }
                out.extend_from_slice(&declared[index].key);
                out.extend_from_slice(&values[start..end]);
            }
        }
        match (&fields.time, work.event_time) {
            (Some((name, _)), None) => Err(Undecodable::MissingField { field: name.clone() }),
            (_, event_time) => Ok(event_time),
        }
    }
}

/// Appends any JSON value, not only an object, as deterministic CBOR. After an error what was appended is to be cut off again.
///
/// # Errors
/// See [`Undecodable`].
pub fn push_value(value: &serde_json::Value, out: &mut Vec<u8>) -> Result<(), Undecodable> {
    let mut work = Work::default();
    let read = Value { out, work: &mut work, null: &[], column_type: None }.deserialize(value);
    read.map_err(|error| work.error.take().unwrap_or_else(|| Undecodable::Json { reason: error.to_string() }))
}

/// serde_json's message with the column alone: the line is the file's.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(message) => format!("{message} (column {})", error.column()),
        None => message,
    }
}

impl Targets {
    fn new(fields: &Fields) -> Self {
        let mut by_name: HashMap<Box<str>, Target> = HashMap::new();
        for (index, field) in fields.declared.iter().flatten().enumerate() {
            let target = Target { read: true, field: Some(index), column_type: field.column_type, ..Target::default() };
            by_name.insert(field.name.as_str().into(), target);
        }
        let other = Target { read: fields.declared.is_none(), ..Target::default() };
        for (name, &column_type) in &fields.types {
            by_name.entry(name.as_str().into()).or_insert(other).column_type = Some(column_type);
        }
        if let Some((name, _)) = &fields.time {
            let target = by_name.entry(name.as_str().into()).or_insert(other);
            target.read = true;
            target.is_time = true;
        }
        if let Some((name, _)) = &fields.watermark {
            let target = by_name.entry(name.as_str().into()).or_insert(other);
            target.read = true;
            target.is_watermark = true;
        }
        Self { by_name, other, by_place: Vec::new() }
    }

    #[inline]
    fn find(&mut self, place: usize, name: &str) -> Target {
        match self.by_place.get(place) {
            Some((known, target)) if **known == *name => *target,
            Some(_) => self.by_name.get(name).copied().unwrap_or(self.other),
            None => {
                let target = self.by_name.get(name).copied().unwrap_or(self.other);
                if place == self.by_place.len() && place < PLACES {
                    self.by_place.push((name.into(), target));
                }
                target
            }
        }
    }
}

impl Work {
    fn start(&mut self, fields: usize) {
        self.spans.clear();
        self.spans.resize(fields, (0, 0));
        self.maps.clear();
        self.event_time = None;
        self.watermark = None;
        self.error = None;
    }

    /// Names the field in an error that was made without knowing it.
    #[cold]
    fn name_error(&mut self, name: impl Fn() -> String) {
        if let Some(Undecodable::BadValue { field, .. } | Undecodable::NotUtf8 { field }) = &mut self.error {
            *field = name();
        }
    }

    /// Keeps the precise reason and gives the parser an error to unwind with.
    #[cold]
    fn fail<E: serde::de::Error>(&mut self, error: Undecodable) -> E {
        self.error = Some(error);
        E::custom("")
    }
}

/// The record itself.
struct Object<'a> {
    fields: &'a Fields,
    targets: &'a mut Targets,
    times: Times<'a>,
    work: &'a mut Work,
    out: &'a mut Vec<u8>,
}

/// What reads the fields that hold times.
struct Times<'a> {
    time: &'a mut Option<TimeParser>,
    watermark: &'a mut Option<TimeParser>,
}

impl Times<'_> {
    /// Takes what `target` asks for out of the field's encoded value.
    fn take(
        &mut self,
        target: Target,
        value: &[u8],
        work: &mut Work,
        name: impl Fn() -> String,
    ) -> Result<(), Undecodable> {
        if let (true, Some(parser)) = (target.is_time, self.time.as_mut()) {
            work.event_time = Some(read_time(parser, value, &name)?);
        }
        if let (true, Some(parser)) = (target.is_watermark && value != [cbor::NULL], self.watermark.as_mut()) {
            work.watermark = Some(read_time(parser, value, &name)?);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.fields.declared.is_some() { self.declared_fields(&mut map) } else { self.all_fields(&mut map) }
    }
}

impl Object<'_> {
    /// Writes the declared fields' values to `out` and remembers where each lies.
    fn declared_fields<'de, A: MapAccess<'de>>(self, map: &mut A) -> Result<(), A::Error> {
        let Self { fields, targets, mut times, work, out } = self;
        let mut place = 0;
        while let Some(target) = map.next_key_seed(Name { targets, place, out: None })? {
            place += 1;
            if !target.read {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let start = out.len();
            let name = || {
                let declared =
                    target.field.zip(fields.declared.as_ref()).map(|(field, declared)| &declared[field].name);
                let of_time = if target.is_time { &fields.time } else { &fields.watermark };
                declared.or(of_time.as_ref().map(|(name, _)| name)).cloned().unwrap_or_default()
            };
            let read = map.next_value_seed(Value { out, work, null: &fields.null, column_type: target.column_type });
            read.inspect_err(|_| work.name_error(name))?;
            if target.is_time || target.is_watermark {
                times.take(target, &out[start..], work, name).map_err(|error| work.fail(error))?;
            }
            if let Some(field) = target.field {
                if work.spans[field].1 != 0 {
                    return Err(work.fail(Undecodable::TwiceField { field: name() }));
                }
                work.spans[field] = (start, out.len());
            }
        }
        Ok(())
    }

    /// Writes the whole object to `out`.
    fn all_fields<'de, A: MapAccess<'de>>(self, map: &mut A) -> Result<(), A::Error> {
        let Self { fields, targets, mut times, work, out } = self;
        let open = work.maps.begin(out);
        let mut place = 0;
        let mut start = out.len();
        while let Some(target) = map.next_key_seed(Name { targets, place, out: Some(out) })? {
            place += 1;
            let key_end = out.len();
            let read = map.next_value_seed(Value { out, work, null: &fields.null, column_type: target.column_type });
            let name = || text_of(&out[start..key_end]);
            read.inspect_err(|_| work.name_error(name))?;
            if target.is_time || target.is_watermark {
                times.take(target, &out[key_end..], work, name).map_err(|error| work.fail(error))?;
            }
            work.maps.entry(start, key_end, out.len());
            start = out.len();
        }
        let ended = work.maps.end(out, open);
        ended.map_err(|field| work.fail(Undecodable::TwiceField { field }))
    }
}

/// Takes the event time from the field's encoded value.
fn read_time(parser: &mut TimeParser, value: &[u8], name: impl Fn() -> String) -> Result<Timestamp, Undecodable> {
    let mut walk = cbor::Walk::new(value);
    let integer = |number: u64| i64::try_from(number).ok();
    let time = match walk.head() {
        Ok(cbor::Head { major: cbor::TEXT, .. }) => parser.text(walk.rest()),
        Ok(cbor::Head { major: cbor::UNSIGNED, argument: Some(number), .. }) => {
            integer(number).and_then(|number| parser.integer(number))
        }
        Ok(cbor::Head { major: cbor::NEGATIVE, argument: Some(number), .. }) => {
            integer(number).and_then(|number| parser.integer(!number))
        }
        Ok(cbor::Head { major: cbor::SIMPLE, info: 25..=27, .. }) => {
            minicbor::Decoder::new(value).f64().ok().and_then(|number| parser.float(number))
        }
        _ => None,
    };
    time.ok_or_else(|| Undecodable::BadTime {
        field: name(),
        value: excerpt(minicbor::display(value).to_string().as_bytes()),
        expected: parser.expected(),
    })
}

/// A key of the record: finds its target, and appends the key where `out` is given.
struct Name<'a> {
    targets: &'a mut Targets,
    place: usize,
    out: Option<&'a mut Vec<u8>>,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Target;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Target, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Target, E> {
        if let Some(out) = self.out {
            cbor::push_text(out, name);
        }
        Ok(self.targets.find(self.place, name))
    }
}
