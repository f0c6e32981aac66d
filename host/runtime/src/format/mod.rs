//! Between the outside's formats and the CBOR that operators see.
//!
//! Owns the bytes: CSV, JSON and raw lines to deterministic CBOR, and CBOR to JSON, CSV and raw lines. Does not own files, nor
//! what happens to a record that cannot be converted.

pub mod cbor;
pub mod csv;
pub mod dead_letter;
pub mod decode;
pub mod encode;
pub mod expired;
pub mod fields;
pub mod json;
pub mod time;

/// Why a record could not be decoded. The caller adds file and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// A declared field is not there.
    #[error("the field `{field}` is missing")]
    MissingField {
        /// The field.
        field: String,
    },
    /// A field is there twice.
    #[error("the field `{field}` is there twice")]
    TwiceField {
        /// The field.
        field: String,
    },
    /// A value that its declared type does not have.
    #[error("the field `{field}` is `{value}`, which is not {expected}")]
    BadValue {
        /// The field.
        field: String,
        /// The value, shortened.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("the field `{field}` is not UTF-8 text")]
    NotUtf8 {
        /// The field.
        field: String,
    },
    /// A CSV record of another width than the header.
    #[error("the record has {found} columns, {expected} were expected")]
    Width {
        /// Its columns.
        found: usize,
        /// The header's.
        expected: usize,
    },
    /// Not a JSON object.
    #[error("not a JSON object: {reason}")]
    Json {
        /// The parser's word, with the column.
        reason: String,
    },
    /// No event time.
    #[error("the time field `{field}` is {value}, expected {expected}")]
    BadTime {
        /// The field.
        field: String,
        /// Its value, shortened.
        value: String,
        /// How it should be written.
        expected: String,
    },
    /// Not a dead letter, or none that can be given back.
    #[error("not a dead letter that can be taken back: {reason}")]
    DeadLetter {
        /// What is wrong.
        reason: String,
    },
    /// Longer than the limit.
    #[error("the record is longer than {limit} (max-record)")]
    TooLong {
        /// The limit.
        limit: crate::config::unit::ByteSize,
    },
}

/// Most bytes of a value that a message shows.
const EXCERPT: usize = 60;

/// The beginning of a value, for a message.
fn excerpt(value: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&value[..value.len().min(EXCERPT)]).into_owned();
    if value.len() > EXCERPT { shown + "…" } else { shown }
}
