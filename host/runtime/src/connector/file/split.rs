//! One file being read: its buffer, its records, and where it is.
//!
//! Owns positions within a file. Does not own which files there are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};
use wasmill_core::record::{Header, RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::input::{self, Fill, Input, STDIN};
use crate::config::source::{FileSource, OnUndecodable};
use crate::format::Undecodable;
use crate::format::decode::{Decoder, Frame};
use crate::format::fields::Fields;
use crate::format::{csv, dead_letter};
use crate::source;

/// The buffer's length at first; it grows to hold the longest record.
const BUFFER: usize = 1 << 18;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// After so many bytes a read returns, with records or without.
const READ_BYTES: usize = 1 << 20;

/// Where a file is; stored in checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes (decompressed) before the next record.
    pub offset: u64,
    /// Lines before the next record.
    pub line: u64,
    /// Whether nothing follows.
    #[serde(default)]
    pub ended: bool,
    /// Whether the bytes before it can be read again; false for standard input.
    #[serde(default = "yes")]
    pub replayable: bool,
}

fn yes() -> bool {
    true
}

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file itself.
    #[error(transparent)]
    Input(#[from] input::Error),
    /// A header that does not fit the pipeline.
    #[error("{shown}:1: {error}")]
    Header {
        /// The file.
        shown: String,
        /// What does not fit.
        error: csv::Error,
    },
    /// A record under the policy `fail`.
    #[error("{shown}:{line}: {error}; mend it, or set on-undecodable = \"drop\" or \"dead-letter\"")]
    Record {
        /// The file.
        shown: String,
        /// The line at which the record begins.
        line: u64,
        /// What is wrong with it.
        error: Undecodable,
    },
}

/// What a read of one file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// At least one record.
    Records,
    /// Bytes, but no record that is kept.
    Nothing,
    /// Nothing now, perhaps later.
    NotNow,
    /// Nothing will come.
    End,
}

/// What could not be decoded.
#[derive(Debug, Default)]
pub struct NotDecoded {
    /// How many records were dropped.
    pub dropped: u64,
    /// The records that were set aside.
    pub set_aside: Vec<source::Undecodable>,
}

/// What the files of a source have in common.
#[derive(Debug)]
pub struct Settings {
    /// The pipeline's words.
    pub config: FileSource,
    /// The checked fields.
    pub fields: Arc<Fields>,
}

/// A file and where to begin.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its stable name: the path as the pipeline would write it, or `-`.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Where to begin.
    pub position: Position,
}

/// A file being read.
pub struct Split {
    /// Its stable name.
    pub name: String,
    input: Input,
    decoder: Decoder,
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// How much of what follows `start` is known to hold no end of the record.
    seen: usize,
    ended: bool,
    /// Where `start` is.
    position: Position,
    /// Within a line that was too long; `position` stays before it until its end is found.
    skipped: Option<u64>,
    /// Whether there was nothing to read when it was last looked at.
    pub is_waiting: bool,
    /// Whether it is passed over for now.
    pub is_held: bool,
}

impl Split {
    /// Opens the file and goes to the position.
    ///
    /// # Errors
    /// Where it cannot be read, is shorter than the position, or its header does not fit.
    pub fn open(origin: &Origin, settings: &Settings, bytes: &Arc<AtomicU64>) -> Result<Self, Error> {
        let Settings { config, fields } = settings;
        let input = if origin.name == STDIN {
            if origin.position.offset > 0 {
                return Err(input::Error::StdinTwice(origin.position.offset).into());
            }
            Input::stdin(bytes)?
        } else {
            Input::open(&origin.path, &origin.name, config.follow, bytes)?
        };
        let mut split = Self {
            name: origin.name.clone(),
            input,
            decoder: Decoder::new(config, fields),
            buffer: vec![0; BUFFER],
            start: 0,
            filled: 0,
            seen: 0,
            ended: false,
            position: Position { replayable: origin.name != STDIN, ..Position::default() },
            skipped: None,
            is_waiting: false,
            is_held: false,
        };
        if origin.position.offset > 0 {
            split.restore(origin.position)?;
        }
        Ok(split)
    }

    /// Where the next record begins.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Appends up to `limit` records to `batch`. `undecodable` takes what is not decoded.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(
        &mut self,
        settings: &Settings,
        batch: &mut RecordBatch,
        limit: usize,
        now: Timestamp,
        undecodable: &mut NotDecoded,
    ) -> Result<Found, Error> {
        let mut taken = 0;
        let mut bytes = 0;
        while taken < limit && bytes < READ_BYTES {
            match self.next(settings)? {
                Next::Record { content, consumed, lines } => {
                    bytes += consumed;
                    match self.decode(content, batch, now) {
                        Ok(()) => taken += 1,
                        Err(error) => self.undecodable(settings, error, Some(content), undecodable)?,
                    }
                    self.advance(consumed, lines);
                }
                Next::Blank { consumed, lines } => {
                    bytes += consumed;
                    self.advance(consumed, lines);
                }
                Next::TooLong => {
                    bytes += self.filled - self.start;
                    self.too_long(settings, undecodable)?;
                }
                Next::NotNow if taken > 0 => return Ok(Found::Records),
                Next::NotNow => return Ok(Found::NotNow),
                Next::End if taken > 0 => return Ok(Found::Records),
                Next::End => {
                    self.position.ended = true;
                    return Ok(Found::End);
                }
            }
        }
        Ok(if taken > 0 { Found::Records } else { Found::Nothing })
    }

    fn decode(&mut self, content: usize, batch: &mut RecordBatch, now: Timestamp) -> Result<(), Undecodable> {
        let record = &self.buffer[self.start..self.start + content];
        if let Decoder::DeadLetter(reader) = &mut self.decoder {
            let dead_letter::Record { key, time, value, headers } = reader.read(record)?;
            let record = batch.len() as u32;
            batch.headers.extend(headers.into_iter().map(|(name, value)| Header { record, name, value }));
            batch.push(key.as_deref(), time, value.as_deref());
            batch.positions.push(self.position.line + 1);
            return Ok(());
        }
        match batch.values.push_with(|out| self.decoder.decode(record, out)) {
            Ok(time) => {
                batch.keys.push(None);
                batch.times.push(time.unwrap_or(now));
                batch.positions.push(self.position.line + 1);
                if let Some(watermark) = self.decoder.watermark() {
                    batch.marks.push(WatermarkMark { after: batch.times.len() as u32, watermark });
                }
                Ok(())
            }
            Err(error) => {
                batch.values.truncate(batch.values.len() - 1);
                Err(error)
            }
        }
    }

    /// Skips the line; of a CSV record its first line, since a quote that is never closed makes it too long.
    fn too_long(&mut self, settings: &Settings, undecodable: &mut NotDecoded) -> Result<(), Error> {
        let error = Undecodable::TooLong { limit: settings.config.max_record };
        if self.needs_header() {
            return Err(Error::Record { shown: self.name.clone(), line: self.position.line + 1, error });
        }
        self.undecodable(settings, error, None, undecodable)?;
        self.skipped = Some(0);
        Ok(())
    }

    fn needs_header(&self) -> bool {
        matches!(&self.decoder, Decoder::Csv(csv) if csv.needs_header())
    }

    /// Applies the policy to a record, of which the first `content` bytes in the buffer are all or which is too long.
    fn undecodable(
        &self,
        settings: &Settings,
        error: Undecodable,
        content: Option<usize>,
        undecodable: &mut NotDecoded,
    ) -> Result<(), Error> {
        match settings.config.on_undecodable {
            OnUndecodable::Drop => {
                if undecodable.dropped == 0 {
                    let line = self.position.line + 1;
                    tracing::warn!(file = %self.name, line, %error, "undecodable record dropped; more are counted only");
                }
                undecodable.dropped += 1;
                Ok(())
            }
            OnUndecodable::DeadLetter => {
                undecodable.set_aside.push(source::Undecodable {
                    split: self.name.clone(),
                    position: self.position.line + 1,
                    bytes: content.map(|content| self.buffer[self.start..self.start + content].to_vec()),
                    reason: error.to_string(),
                });
                Ok(())
            }
            OnUndecodable::Fail => Err(Error::Record { shown: self.name.clone(), line: self.position.line + 1, error }),
        }
    }
}

/// What stands at `start`.
enum Next {
    Record { content: usize, consumed: usize, lines: u64 },
    Blank { consumed: usize, lines: u64 },
    TooLong,
    NotNow,
    End,
}

impl Split {
    /// Finds the next record, reading on where the buffer holds no whole one.
    fn next(&mut self, settings: &Settings) -> Result<Next, Error> {
        let max_record = settings.config.max_record.as_usize();
        loop {
            if let Some(next) = self.next_in_buffer(max_record)? {
                return Ok(next);
            }
            if self.ended {
                return Ok(Next::End);
            }
            match self.fill(max_record)? {
                Fill::Bytes(_) => {}
                Fill::NotNow => return Ok(Next::NotNow),
                Fill::End => self.ended = true,
            }
        }
    }

    /// `None`: more bytes are needed.
    fn next_in_buffer(&mut self, max_record: usize) -> Result<Option<Next>, Error> {
        if self.skipped.is_some() && !self.skip_rest_of_line() {
            return Ok(None);
        }
        if self.position.offset == 0 && !self.skip_byte_order_mark() {
            return Ok(None);
        }
        let input = &self.buffer[self.start..self.filled];
        let next = match self.decoder.frame(input, self.seen, self.ended) {
            Frame::More if input.len() > max_record => Next::TooLong,
            Frame::More => {
                self.seen = input.len();
                return Ok(None);
            }
            Frame::Record { consumed, lines, blank: true, .. } => Next::Blank { consumed, lines },
            Frame::Record { content, .. } if content > max_record => Next::TooLong,
            Frame::Record { consumed, content, lines, .. } => {
                let content_range = self.start..self.start + content;
                if let Decoder::Csv(csv) = &mut self.decoder
                    && csv.needs_header()
                {
                    let header = csv.header(&self.buffer[content_range]);
                    header.map_err(|error| Error::Header { shown: self.name.clone(), error })?;
                    Next::Blank { consumed, lines }
                } else {
                    Next::Record { content, consumed, lines }
                }
            }
        };
        Ok(Some(next))
    }

    /// Whether it is known that there is none, or it was skipped.
    fn skip_byte_order_mark(&mut self) -> bool {
        let input = &self.buffer[self.start..self.filled];
        if input.starts_with(BYTE_ORDER_MARK) {
            self.advance(BYTE_ORDER_MARK.len(), 0);
            return true;
        }
        self.ended || !BYTE_ORDER_MARK.starts_with(input)
    }

    /// Whether the end of the overlong line was found.
    fn skip_rest_of_line(&mut self) -> bool {
        let skipped = self.skipped.unwrap_or_default();
        let input = &self.buffer[self.start..self.filled];
        match memchr::memchr(b'\n', input) {
            Some(at) => {
                self.skipped = None;
                self.position.offset += skipped;
                self.advance(at + 1, 1);
                true
            }
            None if self.ended => {
                self.skipped = None;
                self.position.offset += skipped;
                self.advance(input.len(), 1);
                true
            }
            None => {
                self.skipped = Some(skipped + input.len() as u64);
                self.start = self.filled;
                false
            }
        }
    }

    fn advance(&mut self, bytes: usize, lines: u64) {
        self.start += bytes;
        self.seen = 0;
        self.position.offset += bytes as u64;
        self.position.line += lines;
    }

    /// Makes room and reads.
    fn fill(&mut self, max_record: usize) -> Result<Fill, Error> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        if self.filled == self.buffer.len() {
            // One byte more than the longest record and its end, so that a longer one shows.
            let len = (self.buffer.len() * 2).min(max_record.saturating_add(BUFFER));
            self.buffer.resize(len.max(self.buffer.len() + 1), 0);
        }
        let fill = self.input.fill(&mut self.buffer[self.filled..])?;
        if let Fill::Bytes(bytes) = fill {
            self.filled += bytes;
        }
        Ok(fill)
    }

    /// Goes to a position: past the header, which is read for its names.
    fn restore(&mut self, position: Position) -> Result<(), Error> {
        while self.needs_header() {
            match self.next_in_buffer(usize::MAX)? {
                Some(Next::Blank { consumed, lines }) => self.advance(consumed, lines),
                Some(_) => break,
                None if self.ended => break,
                None => {
                    if !matches!(self.fill(usize::MAX)?, Fill::Bytes(_)) {
                        self.ended = true;
                    }
                }
            }
        }
        let held = self.position.offset + (self.filled - self.start) as u64;
        if position.offset <= self.position.offset {
            // It was taken before the header was read.
            return Ok(());
        }
        if position.offset <= held {
            self.start += usize::try_from(position.offset - self.position.offset).unwrap_or_default();
        } else {
            self.input.skip_to(position.offset)?;
            self.start = self.filled;
            self.ended = false;
        }
        self.seen = 0;
        self.position = Position { ended: false, ..position };
        Ok(())
    }
}
