//! The operator's configuration: the pipeline's `config` table, as JSON.
//!
//! Owns that every key is known and of its type. Does not own what a value means: check that in [`crate::Process::start`].

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A configuration that the operator does not take.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a JSON object.
    #[error("the configuration is not a JSON object: {0}")]
    NotAnObject(serde_json::Error),
    /// A key that the operator does not know.
    #[error("unknown configuration key `{key}`; the operator knows {known}")]
    Unknown {
        /// The key.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// A required key is missing.
    #[error("configuration key `{0}` is missing")]
    Missing(&'static str),
    /// A value of another type.
    #[error("configuration key `{key}`: {source}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong with the value.
        source: serde_json::Error,
    },
}

/// Hands out the values of a configuration, key by key.
#[derive(Debug)]
pub struct Reader {
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Reader {
    /// Reads a JSON object; an empty text is an empty object.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let values =
            if json.trim().is_empty() { Map::new() } else { serde_json::from_str(json).map_err(Error::NotAnObject)? };
        Ok(Self { values, known: Vec::new() })
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn required<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<T, Error> {
        self.optional(key)?.ok_or(Error::Missing(key))
    }

    /// The value of a key that may be missing, or null.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn optional<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, Error> {
        self.known.push(key);
        match self.values.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|source| Error::Invalid { key, source }),
        }
    }

    /// That no key is left over.
    ///
    /// # Errors
    /// When one is.
    pub fn finish(self) -> Result<(), Error> {
        let Some(key) = self.values.keys().next() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "none".to_owned(),
            known => known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
        };
        Err(Error::Unknown { key: key.clone(), known })
    }
}
