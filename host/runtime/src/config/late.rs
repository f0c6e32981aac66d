//! An input's `on-late`: what becomes of records that come after the watermark has passed them.
//!
//! Owns the setting's forms and what a late output may be called. Which record is late is said in `core::time`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What becomes of an input's late records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OnLate {
    /// The component gets them like any other and decides.
    #[default]
    Pass,
    /// They are dropped and counted.
    Drop,
    /// They go, as they came, to the operator's late output of this name.
    Output(String),
}

/// `on-late` as a table.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OnLate")]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct OnLateTable {
    /// A name that no output of the component has; several inputs of the operator may name the same. Whoever wants the late
    /// records takes them by `from = "OPERATOR/NAME"`, with the key, time and value that they came with.
    output: String,
}

impl<'de> Deserialize<'de> for OnLate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = OnLate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"pass\", \"drop\", or a table such as { output = \"late\" }")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<OnLate, E> {
                match name {
                    "pass" => Ok(OnLate::Pass),
                    "drop" => Ok(OnLate::Drop),
                    "output" => Err(E::custom("name the output: on-late = { output = \"late\" }")),
                    other => Err(E::unknown_variant(other, &["pass", "drop"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OnLate, A::Error> {
                let OnLateTable { output } = OnLateTable::deserialize(MapAccessDeserializer::new(map))?;
                if output.is_empty() || output.contains('/') || output.chars().any(char::is_control) {
                    return Err(A::Error::custom("an output's name is some text without `/`, such as \"late\""));
                }
                if output == "dead-letter" {
                    return Err(A::Error::custom("`dead-letter` is the name of another output: choose another"));
                }
                Ok(OnLate::Output(output))
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for OnLate {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("OnLateForms")
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<OnLateTable>();
        json_schema!({ "anyOf": [{ "enum": ["pass", "drop"] }, table] })
    }
}
