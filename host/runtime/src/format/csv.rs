//! CSV records to deterministic CBOR.
//!
//! Owns columns by name, quoting (csv-core where a record has a quote, a plain split where it has none) and that every record
//! is as wide as its header. Does not own the file.

use std::sync::Arc;

use csv_core::ReadRecordResult;
use wasmill_core::time::Timestamp;

use super::decode::{Frame, line};
use super::fields::{Fields, encoded_key, push_text_as};
use super::time::TimeParser;
use super::{Undecodable, cbor, excerpt};
use crate::config::source::{ColumnType, FileSource, RecordShape};

/// Why a header does not fit the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A column that the pipeline names is not there.
    #[error("there is no column `{column}`{}; the columns are: {columns}", nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default())]
    NoColumn {
        /// What the pipeline names.
        column: String,
        /// The column it may have meant.
        nearest: Option<String>,
        /// The columns there are.
        columns: String,
    },
    /// Two columns with one name.
    #[error("two columns are named `{0}`: rename one, or give `columns` with header = false")]
    TwiceColumn(String),
    /// A name that is not text.
    #[error("the column name `{0}` is not UTF-8 text")]
    NotUtf8(String),
    /// `header = false` without names.
    #[error("header = false needs columns = [...]")]
    NoNames,
    /// Names beside a header.
    #[error("columns = [...] is for files without a header line: set header = false")]
    NamesBesideHeader,
    /// A delimiter of several bytes.
    #[error("delimiter is `{0}`: use one ASCII character other than a quote or a line break")]
    Delimiter(char),
}

/// Decodes the records of one file.
#[derive(Debug)]
pub struct CsvDecoder {
    fields: Arc<Fields>,
    time: Option<TimeParser>,
    watermark: Option<TimeParser>,
    /// What the record that was decoded last says of the watermark.
    said: Option<Timestamp>,
    delimiter: u8,
    core: csv_core::Reader,
    columns: Option<Columns>,
    record: Record,
}

/// The record that was framed last.
#[derive(Debug, Default)]
struct Record {
    /// The end of each field, in the line or in `unquoted`.
    ends: Vec<usize>,
    unquoted: Vec<u8>,
    is_unquoted: bool,
}

/// What is made of which column.
#[derive(Debug)]
struct Columns {
    width: usize,
    outputs: Vec<Output>,
    time: Option<usize>,
    watermark: Option<usize>,
}

#[derive(Debug)]
struct Output {
    column: usize,
    name: String,
    key: Box<[u8]>,
    column_type: ColumnType,
}

/// Checks the settings that do not need a file.
///
/// # Errors
/// See [`Error`].
pub fn check(config: &FileSource, fields: &Fields) -> Result<(), Error> {
    let delimiter = config.delimiter;
    if !delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r') {
        return Err(Error::Delimiter(delimiter));
    }
    match (&config.columns, config.header) {
        (None, false) => Err(Error::NoNames),
        (Some(_), true) => Err(Error::NamesBesideHeader),
        (Some(names), false) => Columns::new(names, fields).map(|_| ()),
        (None, true) => Ok(()),
    }
}

impl CsvDecoder {
    /// For one file of a source whose settings were [checked](check).
    #[must_use]
    pub fn new(config: &FileSource, fields: Arc<Fields>) -> Self {
        let delimiter = u8::try_from(config.delimiter).unwrap_or(b',');
        let columns = config.columns.as_ref().and_then(|names| Columns::new(names, &fields).ok());
        Self {
            time: fields.time.as_ref().map(|(_, parser)| parser.clone()),
            watermark: fields.watermark.as_ref().map(|(_, parser)| parser.clone()),
            said: None,
            fields,
            delimiter,
            core: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            columns,
            record: Record::default(),
        }
    }

    /// Whether the next record is the header.
    #[must_use]
    pub fn needs_header(&self) -> bool {
        self.columns.is_none()
    }

    /// Takes the record that was just framed as the header.
    ///
    /// # Errors
    /// Where the pipeline names a column that is not there, or a name is there twice.
    pub fn header(&mut self, record: &[u8]) -> Result<(), Error> {
        self.split(record);
        let mut names = Vec::with_capacity(self.record.ends.len());
        for column in 0..self.record.ends.len() {
            let name = self.record.field(record, column);
            let name = std::str::from_utf8(name).map_err(|_| Error::NotUtf8(excerpt(name)))?;
            names.push(name.to_owned());
        }
        self.columns = Some(Columns::new(&names, &self.fields)?);
        Ok(())
    }

    /// See [`super::decode::Decoder::frame`].
    pub fn frame(&mut self, input: &[u8], seen: usize, ended: bool) -> Frame {
        self.record.is_unquoted = false;
        // Without a quote before it, the first line break ends the record. A lone carriage return ends one too.
        let frame = line(input, seen, ended, true);
        let content = match frame {
            Frame::Record { blank: true, .. } => return frame,
            Frame::Record { content, .. } => content,
            Frame::More => return Frame::More,
        };
        if memchr::memchr2(b'"', b'\r', &input[..content]).is_none() {
            return frame;
        }
        self.frame_quoted(input, ended)
    }

    fn frame_quoted(&mut self, input: &[u8], ended: bool) -> Frame {
        let Record { ends, unquoted, is_unquoted } = &mut self.record;
        self.core.reset();
        ends.resize(ends.capacity().max(64), 0);
        unquoted.resize(unquoted.capacity().max(1024), 0);
        let (mut read, mut written, mut fields) = (0, 0, 0);
        loop {
            let rest = &input[read..];
            let (result, taken, put, found) =
                self.core.read_record(rest, &mut unquoted[written..], &mut ends[fields..]);
            read += taken;
            written += put;
            fields += found;
            match result {
                ReadRecordResult::InputEmpty if rest.is_empty() && !ended => return Frame::More,
                ReadRecordResult::InputEmpty if !ended => return Frame::More,
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => unquoted.resize(unquoted.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => ends.resize(ends.len() * 2, 0),
                ReadRecordResult::Record => break,
                ReadRecordResult::End => {
                    return Frame::Record { consumed: input.len(), content: 0, lines: 1, blank: true };
                }
            }
        }
        ends.truncate(fields);
        unquoted.truncate(written);
        *is_unquoted = true;
        if input[..read].ends_with(b"\r") {
            match input.get(read) {
                Some(b'\n') => read += 1,
                Some(_) => {}
                None if !ended => return Frame::More,
                None => {}
            }
        }
        let lines = memchr::memchr_iter(b'\n', &input[..read]).count() as u64;
        let lines = if read == input.len() && !input.ends_with(b"\n") { lines + 1 } else { lines };
        Frame::Record { consumed: read, content: read, lines, blank: false }
    }

    /// See [`super::decode::Decoder::decode`].
    ///
    /// # Errors
    /// See [`Undecodable`].
    pub fn decode(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, Undecodable> {
        self.split(record);
        let Self { fields, columns: Some(columns), record: split, time, watermark, said, .. } = self else {
            return Err(Undecodable::Width { found: 0, expected: 0 });
        };
        if split.ends.len() != columns.width {
            return Err(Undecodable::Width { found: split.ends.len(), expected: columns.width });
        }
        // Once for all: the splits lie at ASCII characters.
        let is_utf8 = std::str::from_utf8(split.bytes(record)).is_ok();
        fields.push_head(out, columns.outputs.len());
        for Output { column, name, key, column_type } in &columns.outputs {
            let text = split.field(record, *column);
            out.extend_from_slice(key);
            if fields.is_null(text) {
                out.push(cbor::NULL);
            } else if *column_type == ColumnType::Text && is_utf8 {
                cbor::push_head(out, cbor::TEXT, text.len() as u64);
                out.extend_from_slice(text);
            } else {
                push_text_as(out, name, *column_type, text)?;
            }
        }
        let bad_time = |field: &Option<(String, TimeParser)>, text: &[u8], parser: &TimeParser| Undecodable::BadTime {
            field: field.as_ref().map_or_else(String::new, |(name, _)| name.clone()),
            value: format!("`{}`", excerpt(text)),
            expected: parser.expected(),
        };
        *said = None;
        if let (Some(column), Some(parser)) = (columns.watermark, watermark) {
            let text = split.field(record, column);
            if !text.is_empty() && !fields.is_null(text) {
                *said = Some(parser.text(text).ok_or_else(|| bad_time(&fields.watermark, text, parser))?);
            }
        }
        let (Some(column), Some(parser)) = (columns.time, time) else { return Ok(None) };
        let text = split.field(record, column);
        let event_time = if fields.is_null(text) { None } else { parser.text(text) };
        event_time.map(Some).ok_or_else(|| bad_time(&fields.time, text, parser))
    }

    /// What the record that was decoded last says of its split's watermark.
    #[must_use]
    pub fn watermark(&self) -> Option<Timestamp> {
        self.said
    }

    /// Finds the fields of a record without quotes; of one with quotes they are known.
    fn split(&mut self, record: &[u8]) {
        if self.record.is_unquoted {
            return;
        }
        self.record.ends.clear();
        self.record.ends.extend(memchr::memchr_iter(self.delimiter, record));
        self.record.ends.push(record.len());
    }
}

impl Record {
    /// The bytes that the fields are cut out of.
    fn bytes<'a>(&'a self, record: &'a [u8]) -> &'a [u8] {
        if self.is_unquoted { &self.unquoted } else { record }
    }

    fn field<'a>(&'a self, record: &'a [u8], column: usize) -> &'a [u8] {
        let before = column.checked_sub(1).map(|before| self.ends[before]);
        if self.is_unquoted {
            &self.unquoted[before.unwrap_or(0)..self.ends[column]]
        } else {
            &record[before.map_or(0, |end| end + 1)..self.ends[column]]
        }
    }
}

impl Columns {
    fn new(names: &[String], fields: &Fields) -> Result<Self, Error> {
        let find = |name: &str| {
            let mut found = names.iter().enumerate().filter(|(_, column)| *column == name);
            match (found.next(), found.next()) {
                (Some((column, _)), None) => Ok(column),
                (Some(_), Some(_)) => Err(Error::TwiceColumn(name.to_owned())),
                (None, _) => Err(no_column(name, names)),
            }
        };
        for name in fields.types.keys() {
            find(name)?;
        }
        let text = |name: &str| fields.types.get(name).copied().unwrap_or(ColumnType::Text);
        let mut outputs = Vec::with_capacity(names.len());
        if let Some(declared) = &fields.declared {
            for &index in &fields.order {
                let name = &declared[index].name;
                let (column, key) = (find(name)?, declared[index].key.clone());
                outputs.push(Output { column, name: name.clone(), key, column_type: text(name) });
            }
        } else {
            for name in names {
                let (column, key) = (find(name)?, encoded_key(name));
                outputs.push(Output { column, name: name.clone(), key, column_type: text(name) });
            }
            debug_assert_eq!(fields.shape, RecordShape::Map, "an array needs declared fields");
            outputs.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let time = fields.time.as_ref().map(|(name, _)| find(name)).transpose()?;
        let watermark = fields.watermark.as_ref().map(|(name, _)| find(name)).transpose()?;
        Ok(Self { width: names.len(), outputs, time, watermark })
    }
}

fn no_column(name: &str, names: &[String]) -> Error {
    let close = |other: &&String| strsim::damerau_levenshtein(name, other) <= 2;
    let nearest = names.iter().filter(close).min_by_key(|other| strsim::damerau_levenshtein(name, other)).cloned();
    Error::NoColumn { column: name.to_owned(), nearest, columns: excerpt_list(names) }
}

fn excerpt_list(names: &[String]) -> String {
    const LIMIT: usize = 40;
    let shown = names.iter().take(LIMIT).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > LIMIT { format!("{shown}, … ({} in all)", names.len()) } else { shown }
}
