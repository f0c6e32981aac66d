//! Inputs of operators and sinks: from where, by which exchange, with which key.
//!
//! Owns their forms in the file and the rules between `exchange` and `key`. Does not own how a key is taken out of a record.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use wasmill_core::graph;
use wasmill_core::id::OperatorUid;

use super::late::OnLate;

/// The inputs of a node as written: a text, a table, or an array of either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs(pub Vec<InputTable>);

/// One input of an operator, written as a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct InputTable {
    /// The uid of the node whose records these are, or `UID/OUTPUT` for another output than its first.
    pub from: String,
    /// How records find their subtask: `key`, `forward`, `broadcast` or `rebalance`. Left out: `key` where `key` is given, else
    /// `forward` where both ends have the same parallelism, else `rebalance`.
    pub exchange: Option<ExchangeName>,
    /// The key, for `exchange = "key"`: a field's name, or a JSON pointer where it begins with `/` (`/user/id`). Left out: the
    /// record keeps the key it has.
    pub key: Option<String>,
    /// What happens to a record without that key (no such field, or null): `fail`, `drop` (counted) or `dead-letter`. Default:
    /// `fail`.
    #[serde(default)]
    pub on_missing_key: OnMissingKey,
    /// What happens to a late record, one whose time is at or before the watermark that is in force when it comes: `"pass"` (the
    /// component gets it and decides), `"drop"` (counted), or `{ output = "NAME" }` (it goes to an output of that name, to be taken
    /// by `from = "OPERATOR/NAME"`). Late records are counted in any case. For operators only. Default: `"pass"`.
    #[serde(default)]
    pub on_late: OnLate,
    /// The component's input that this one feeds, by its name; several may feed the same. Left out: the component's only
    /// input, or of several the one at the same place, the first for the first.
    pub port: Option<String>,
}

/// How records find their subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeName {
    /// All records of one key to one subtask, in order. Operators with keyed state need it.
    Key,
    /// Subtask i to subtask i: both ends have the same parallelism.
    Forward,
    /// Every record to every subtask.
    Broadcast,
    /// In turn.
    Rebalance,
}

/// What happens to a record without the key that a keyed input wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnMissingKey {
    /// The job stops and names the record.
    #[default]
    Fail,
    /// The record is dropped and counted.
    Drop,
    /// The record goes to the output `dead-letter` of the node that it comes from; a sink takes it by
    /// `input = "NAME/dead-letter"`, NAME being that node, and one must.
    DeadLetter,
}

/// Which key a keyed input goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySpec {
    /// The key that the record has already: the source's, or the one it was emitted with.
    Record,
    /// A field of the record's value.
    Field(String),
    /// A value within the record's value, by the reference tokens of a JSON pointer (RFC 6901), unescaped, at least one.
    Pointer(Vec<String>),
}

/// An input as the pipeline uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Where the records come from.
    pub from: OperatorUid,
    /// The output of `from` by its name; `None`: its first.
    pub output: Option<String>,
    /// How records find their subtask.
    pub exchange: graph::Exchange,
    /// The key; of weight only where `exchange` is `Key`.
    pub key: KeySpec,
    /// What happens to a record without it.
    pub on_missing_key: OnMissingKey,
    /// What happens to a late record.
    pub on_late: OnLate,
    /// The component's input by its name; `None`: by place.
    pub port: Option<String>,
}

impl InputTable {
    /// An input with nothing but its origin.
    #[must_use]
    pub fn from(from: &str) -> Self {
        Self {
            from: from.to_owned(),
            exchange: None,
            key: None,
            on_missing_key: OnMissingKey::default(),
            on_late: OnLate::default(),
            port: None,
        }
    }
}

impl KeySpec {
    /// Reads the text form: a field's name, or a JSON pointer where it begins with `/`.
    ///
    /// # Errors
    /// An empty name, or a pointer with `~` before anything but `0` or `1`; the text says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(pointer) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Err("a key is a field's name or a JSON pointer such as \"/user/id\", not empty".to_owned())
            } else {
                Ok(Self::Field(text.to_owned()))
            };
        };
        pointer.split('/').map(unescape).collect::<Option<Vec<_>>>().map(Self::Pointer).ok_or_else(|| {
            format!("`{text}` is no JSON pointer: in it `~` is written `~0`, and `/` within a name `~1`")
        })
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut result = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) =
            if let Some(rest) = part.strip_prefix('0') { ('~', rest) } else { ('/', part.strip_prefix('1')?) };
        result.push(escaped);
        result.push_str(rest);
    }
    Some(result)
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record => f.write_str("the record's key"),
            Self::Field(name) => write!(f, "`{name}`"),
            Self::Pointer(tokens) => {
                f.write_str("`")?;
                for token in tokens {
                    write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
                }
                f.write_str("`")
            }
        }
    }
}

impl From<ExchangeName> for graph::Exchange {
    fn from(name: ExchangeName) -> Self {
        match name {
            ExchangeName::Key => Self::Key,
            ExchangeName::Forward => Self::Forward,
            ExchangeName::Broadcast => Self::Broadcast,
            ExchangeName::Rebalance => Self::Rebalance,
        }
    }
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Inputs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a uid such as \"flights\", a table such as { from = \"flights\", key = \"tailnum\" }, or an array of them")
            }

            fn visit_str<E: serde::de::Error>(self, from: &str) -> Result<Inputs, E> {
                Ok(Inputs(vec![InputTable::from(from)]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Inputs, A::Error> {
                InputTable::deserialize(MapAccessDeserializer::new(map)).map(|table| Inputs(vec![table]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
                let mut inputs = Vec::new();
                while let Some(Inputs(item)) = items.next_element()? {
                    inputs.extend(item);
                }
                Ok(Inputs(inputs))
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Inputs {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Inputs")
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<InputTable>();
        json_schema!({ "anyOf": [{ "type": "string" }, table, { "type": "array", "items": { "anyOf": [{ "type": "string" }, table] } }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_field_or_a_pointer() {
        let pointer = |tokens: &[&str]| Ok(KeySpec::Pointer(tokens.iter().map(|&token| token.to_owned()).collect()));
        assert_eq!(KeySpec::parse("tailnum"), Ok(KeySpec::Field("tailnum".to_owned())));
        assert_eq!(KeySpec::parse("/user/id"), pointer(&["user", "id"]));
        assert_eq!(KeySpec::parse("/a~1b/~01"), pointer(&["a/b", "~1"]));
        assert_eq!(KeySpec::parse("/"), pointer(&[""]));
        for bad in ["", "/~", "/a~2"] {
            assert!(KeySpec::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(KeySpec::parse("/a~1b/~01").unwrap().to_string(), "`/a~1b/~01`");
    }
}
