//! How the values of a state are written.
//!
//! Owns the two codecs of the contract. Does not own CBOR itself.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::wasmill::operator::types::Codec as Kind;
use crate::cbor::{self, Encoder};
use crate::schema;

/// A way to write values of type `T`.
pub trait Codec<T> {
    /// As the declaration names it.
    const KIND: Kind;

    /// The type as the declaration gives it.
    fn value_type() -> String;

    /// Appends a value's bytes.
    ///
    /// # Errors
    /// When the value has none.
    fn encode(value: &T, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<(), cbor::Error>;

    /// The value that `bytes` stand for.
    ///
    /// # Errors
    /// When they stand for none.
    fn decode(bytes: &[u8]) -> Result<T, cbor::Error>;
}

/// A type that state may hold and hand out as a copy: any that derives `Serialize`, `Deserialize`, `JsonSchema` and `Clone`.
pub trait Stored: Serialize + DeserializeOwned + JsonSchema + Clone {}

impl<T: Serialize + DeserializeOwned + JsonSchema + Clone> Stored for T {}

/// Deterministic CBOR: an operator in any language reads it.
#[derive(Debug, Clone, Copy)]
pub struct Cbor;

impl<T: Serialize + DeserializeOwned + JsonSchema> Codec<T> for Cbor {
    const KIND: Kind = Kind::Cbor;

    fn value_type() -> String {
        schema::of::<T>()
    }

    #[inline]
    fn encode(value: &T, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<(), cbor::Error> {
        encoder.encode(value, out)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, cbor::Error> {
        cbor::from_slice(bytes)
    }
}

/// The operator's own bytes, as they are.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec<Vec<u8>> for Raw {
    const KIND: Kind = Kind::Bytes;

    fn value_type() -> String {
        "bytes".to_owned()
    }

    fn encode(value: &Vec<u8>, _encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<(), cbor::Error> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, cbor::Error> {
        Ok(bytes.to_vec())
    }
}
