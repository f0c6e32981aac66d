//! One decoder per split of a file source, whatever its format.
//!
//! Owns where a record ends in a stream of bytes and that blank lines are none. Does not own the buffer or the file.

use std::sync::Arc;

use wasmill_core::time::Timestamp;

use super::csv::CsvDecoder;
use super::fields::Fields;
use super::json::JsonDecoder;
use super::{Undecodable, dead_letter};
use crate::config::source::{FileSource, SourceFormat};

/// Decodes the records of one split, in order.
#[derive(Debug)]
pub enum Decoder {
    /// Lines as they are.
    Raw,
    /// Lines of JSON.
    Json(Box<JsonDecoder>),
    /// CSV records.
    Csv(Box<CsvDecoder>),
    /// Lines of JSON that hold dead letters; they have a key too, so that they are read by the reader itself.
    DeadLetter(Box<dead_letter::Reader>),
}

/// The next record in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// One record, or a blank line.
    Record {
        /// How many bytes it and its end take.
        consumed: usize,
        /// How many of them are its content.
        content: usize,
        /// How many lines they are.
        lines: u64,
        /// Whether it is a blank line, which is no record.
        blank: bool,
    },
    /// The buffer holds no whole record.
    More,
}

impl Decoder {
    /// For a split of a source with that configuration.
    #[must_use]
    pub fn new(config: &FileSource, fields: &Arc<Fields>) -> Self {
        match config.format {
            SourceFormat::Raw => Self::Raw,
            SourceFormat::Json => Self::Json(Box::new(JsonDecoder::new(Arc::clone(fields)))),
            SourceFormat::Csv => Self::Csv(Box::new(CsvDecoder::new(config, Arc::clone(fields)))),
            SourceFormat::DeadLetter => Self::DeadLetter(Box::default()),
        }
    }

    /// Finds the record at the start of `input`. `ended`: nothing follows `input`, so that its rest is a record even without a
    /// line break. Only the bytes from `seen` on are new since the last call for the same record.
    pub fn frame(&mut self, input: &[u8], seen: usize, ended: bool) -> Frame {
        match self {
            Self::Raw => line(input, seen, ended, false),
            Self::Json(_) | Self::DeadLetter(_) => line(input, seen, ended, true),
            Self::Csv(csv) => csv.frame(input, seen, ended),
        }
    }

    /// Appends the value of the record that was just framed and returns its event time, if the source has a time field. After an
    /// error what was appended is to be cut off again.
    ///
    /// # Errors
    /// See [`Undecodable`].
    pub fn decode(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, Undecodable> {
        match self {
            Self::Raw => {
                out.extend_from_slice(record);
                Ok(None)
            }
            Self::Json(json) => json.decode(record, out),
            Self::Csv(csv) => csv.decode(record, out),
            Self::DeadLetter(reader) => {
                let record = reader.read(record)?;
                out.extend_from_slice(record.value.as_deref().unwrap_or_default());
                Ok(Some(record.time))
            }
        }
    }
}

impl Decoder {
    /// What the record that was decoded last says of its split's watermark.
    #[must_use]
    pub fn watermark(&self) -> Option<Timestamp> {
        match self {
            Self::Raw | Self::DeadLetter(_) => None,
            Self::Json(json) => json.watermark(),
            Self::Csv(csv) => csv.watermark(),
        }
    }
}

/// Frames one line.
pub fn line(input: &[u8], seen: usize, ended: bool, skip_blank: bool) -> Frame {
    let found = memchr::memchr(b'\n', &input[seen.min(input.len())..]).map(|at| at + seen);
    let (consumed, lines, mut content) = match found {
        Some(at) => (at + 1, 1, at),
        None if ended && !input.is_empty() => (input.len(), 1, input.len()),
        None => return Frame::More,
    };
    if found.is_some() && content > 0 && input[content - 1] == b'\r' {
        content -= 1;
    }
    let blank = skip_blank && input[..content].trim_ascii().is_empty();
    Frame::Record { consumed, content, lines, blank }
}
