//! What operators emit, written as sinks' formats want it.
//!
//! Owns the choice of format and where one record ends. Does not own files.

use super::cbor::MAX_DEPTH;
use crate::config::sink::SinkFormat;

mod csv;
mod json;

/// Why a value cannot be written in the sink's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// Not CBOR.
    #[error("the value is not CBOR ({reason}): let the operator emit CBOR, or use format = \"raw\"")]
    NotCbor {
        /// The reader's word.
        reason: String,
    },
    /// Bytes after the value.
    #[error("{0} bytes follow the CBOR value: let the operator emit one value a record, or use format = \"raw\"")]
    Trailing(usize),
    /// Nested too deep.
    #[error("the value is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A number where columns are needed.
    #[error("the value is neither a map nor an array, so it has no columns: use format = \"jsonl\"")]
    NoColumns,
    /// A column that the header does not have.
    #[error("the field `{0}` is not among the columns: name the columns with fields = [...]")]
    UnknownColumn(String),
    /// An array of another length.
    #[error("the value has {found} elements and there are {expected} columns")]
    Width {
        /// Its elements.
        found: usize,
        /// The columns.
        expected: usize,
    },
}

impl From<minicbor::decode::Error> for Unwritable {
    fn from(error: minicbor::decode::Error) -> Self {
        Self::NotCbor { reason: error.to_string() }
    }
}

/// What a sink says of its format.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The format.
    pub format: SinkFormat,
    /// The columns of CSV.
    pub fields: Option<Vec<String>>,
    /// Whether CSV begins with a line of column names.
    pub header: bool,
    /// Between the fields of CSV.
    pub delimiter: char,
    /// After each raw value.
    pub separator: String,
}

/// Why a sink's format settings cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting for another format.
    #[error("{setting} does not go with format = \"{format}\"")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The format.
        format: &'static str,
    },
    /// A delimiter of several bytes.
    #[error("delimiter is `{0}`: use one ASCII character other than a quote or a line break")]
    Delimiter(char),
    /// No columns, or one twice.
    #[error("fields is empty or names a column twice")]
    Fields,
}

/// Writes records one after the other.
#[derive(Debug)]
pub enum Encoder {
    /// One line of JSON a record.
    Jsonl,
    /// One line of CSV a record.
    Csv(Box<csv::CsvEncoder>),
    /// The bytes and a separator.
    Raw {
        /// The separator.
        separator: Vec<u8>,
    },
}

impl Encoder {
    /// For a sink's settings.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let Settings { format, fields, header, delimiter, separator } = settings;
        let named = match format {
            SinkFormat::Jsonl => "jsonl",
            SinkFormat::Csv => "csv",
            SinkFormat::Raw => "raw",
        };
        let (csv, raw) = (*format == SinkFormat::Csv, *format == SinkFormat::Raw);
        let given = [
            ("fields", !csv && fields.is_some()),
            ("header", !csv && !header),
            ("delimiter", !csv && *delimiter != ','),
            ("separator", !raw && separator != "\n"),
        ];
        if let Some((setting, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Error::Setting { setting, format: named });
        }
        Ok(match format {
            SinkFormat::Jsonl => Self::Jsonl,
            SinkFormat::Csv => Self::Csv(Box::new(csv::CsvEncoder::new(fields.clone(), *header, *delimiter)?)),
            SinkFormat::Raw => Self::Raw { separator: separator.clone().into_bytes() },
        })
    }

    /// The extension of files in this format.
    #[must_use]
    pub fn extension(&self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv(_) => "csv",
            Self::Raw { .. } => "raw",
        }
    }

    /// A new file begins.
    pub fn begin(&mut self) {
        if let Self::Csv(csv) = self {
            csv.begin();
        }
    }

    /// Appends a record. After an error `out` is as it was.
    ///
    /// # Errors
    /// See [`Unwritable`].
    pub fn encode(&mut self, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        let before = out.len();
        let written = match self {
            Self::Jsonl => json::push_line(value, out),
            Self::Csv(csv) => csv.push_line(value, out),
            Self::Raw { separator } => {
                out.extend_from_slice(value.unwrap_or_default());
                out.extend_from_slice(separator);
                Ok(())
            }
        };
        written.inspect_err(|_| out.truncate(before))
    }
}

/// Appends a CBOR value as a line of JSON.
///
/// # Errors
/// See [`Unwritable`].
pub fn push_json(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unwritable> {
    json::push_line(Some(value), out)
}

/// The beginning of a record's value, for a message: as JSON where it is CBOR.
#[must_use]
pub fn shown(value: Option<&[u8]>) -> String {
    let mut line = Vec::new();
    match json::push_line(value, &mut line) {
        Ok(()) => super::excerpt(line.trim_ascii_end()),
        Err(_) => super::excerpt(value.unwrap_or_default().escape_ascii().to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests;
