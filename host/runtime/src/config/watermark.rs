//! A source's `watermark`: by what it makes watermarks, and when a silent split holds nothing back.
//!
//! Owns the setting's forms and which of its keys go together. Does not own how watermarks are made.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::source::Time;
use super::unit::Duration;

/// How a source's watermarks are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// From what.
    pub strategy: Strategy,
    /// After how long a split without records no longer holds back the others; `None`: never.
    pub idle: Option<Duration>,
}

/// From what watermarks are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// There are none: the source holds nothing back and lets nothing advance, but by its end.
    None,
    /// From the greatest time read, less by how much records may be out of order, less 1 ms.
    Times(Duration),
    /// From a field of the records.
    Field(Time),
}

/// `watermark` as a table. Watermark W says that no record with a time at or before W is expected any more. Each split of the
/// source (each file) has its own; the source's is the least of those that are not idle. A watermark that is made from times is
/// looked at after every 1024 records of the split, or sooner where it would advance by 100 ms.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "Watermark")]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WatermarkTable {
    /// By how much a record may be older than the newest before it without being late. Left out, and without `field`: `0s`,
    /// which is `"ascending"`.
    out_of_order: Option<Duration>,
    /// The field that says the split's watermark (`csv`, `json`), in place of `out-of-order`; it need not be among `fields`.
    /// It counts after its record. A record in which it is null, missing (`json`) or no later than before says nothing.
    field: Option<String>,
    /// How `field` is written: `unix-ms`, `unix-s`, `rfc3339`, or a pattern such as `%Y-%m-%d %H:%M:%S`.
    format: Option<String>,
    /// The time zone of a pattern without an offset, by its IANA name. Left out: `UTC`.
    zone: Option<String>,
    /// After how long with nothing to read a split no longer holds back the others. Time in which the source itself had to wait
    /// does not count. Left out: never, and `wasmill status` names the split that holds the job back.
    idle: Option<Duration>,
}

impl Default for Watermark {
    fn default() -> Self {
        Self { strategy: Strategy::Times(Duration::default()), idle: None }
    }
}

impl TryFrom<WatermarkTable> for Watermark {
    type Error = String;

    fn try_from(table: WatermarkTable) -> Result<Self, String> {
        let WatermarkTable { out_of_order, field, format, zone, idle } = table;
        let strategy = match (field, format) {
            (Some(_), _) if out_of_order.is_some() => {
                return Err("`out-of-order` and `field` are two ways to make watermarks: leave one out".to_owned());
            }
            (Some(field), Some(format)) => {
                Strategy::Field(Time { field, format, zone: zone.unwrap_or_else(super::source::default_zone) })
            }
            (Some(_), None) => return Err("`field` needs a `format`, such as \"unix-ms\"".to_owned()),
            (None, None) if zone.is_none() => Strategy::Times(out_of_order.unwrap_or_default()),
            (None, _) => {
                return Err("`format` and `zone` go with `field`: leave them out, or name the field".to_owned());
            }
        };
        Ok(Self { strategy, idle })
    }
}

impl<'de> Deserialize<'de> for Watermark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Watermark;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"ascending\", or a table such as { out-of-order = \"5s\", idle = \"30s\" }")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Watermark, E> {
                match name {
                    "none" => Ok(Watermark { strategy: Strategy::None, idle: None }),
                    "ascending" => Ok(Watermark::default()),
                    other => Err(E::unknown_variant(other, &["none", "ascending"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Watermark, A::Error> {
                WatermarkTable::deserialize(MapAccessDeserializer::new(map))?.try_into().map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Watermark {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("WatermarkForms")
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<WatermarkTable>();
        json_schema!({ "anyOf": [{ "enum": ["none", "ascending"] }, table] })
    }
}
