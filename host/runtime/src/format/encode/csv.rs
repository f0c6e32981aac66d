//! A CBOR map or array as a line of CSV.
//!
//! Owns the columns: those that the pipeline names, else the keys of the first record of each file. Null, missing and absent
//! are empty; values within values are JSON.

use csv_core::{WriteResult, Writer, WriterBuilder};
use minicbor::Decoder;
use minicbor::data::Type;

use super::json::{check_end, goes_on, push_value};
use super::{Error, Unwritable};

/// Writes lines of CSV.
#[derive(Debug)]
pub struct CsvEncoder {
    writer: Writer,
    /// Named by the pipeline.
    declared: Option<Vec<String>>,
    /// Of this file, once its first record was written.
    columns: Option<Vec<String>>,
    header: bool,
    /// Where each column's text of the current record lies in `cells`.
    spans: Vec<(usize, usize)>,
    cells: Vec<u8>,
}

impl CsvEncoder {
    /// With the columns that the pipeline names, if any.
    ///
    /// # Errors
    /// A column twice, none at all, or an impossible delimiter.
    pub fn new(declared: Option<Vec<String>>, header: bool, delimiter: char) -> Result<Self, Error> {
        if !delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r') {
            return Err(Error::Delimiter(delimiter));
        }
        if let Some(fields) = &declared {
            let twice = fields.iter().enumerate().any(|(index, field)| fields[..index].contains(field));
            if fields.is_empty() || twice {
                return Err(Error::Fields);
            }
        }
        let writer = WriterBuilder::new().delimiter(u8::try_from(delimiter).unwrap_or(b',')).build();
        Ok(Self { writer, declared, columns: None, header, spans: Vec::new(), cells: Vec::new() })
    }

    /// A new file begins.
    pub fn begin(&mut self) {
        self.columns = None;
    }

    /// Appends a record, before it the header where it is the file's first.
    ///
    /// # Errors
    /// See [`Unwritable`].
    pub fn push_line(&mut self, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        let begins = self.columns.is_none();
        let columns = match (self.columns.take(), &self.declared) {
            (Some(columns), _) => columns,
            (None, Some(declared)) => declared.clone(),
            (None, None) => columns_of(value)?,
        };
        let filled = self.fill(value, &columns);
        if filled.is_ok() {
            if begins && self.header && !columns.is_empty() {
                let names = columns.iter().map(String::as_bytes);
                push_cells(&mut self.writer, names, out);
            }
            let cells = self.spans.iter().map(|&(start, end)| &self.cells[start..end]);
            push_cells(&mut self.writer, cells, out);
        }
        if filled.is_ok() || !begins {
            self.columns = Some(columns);
        }
        filled
    }

    /// Finds each column's text.
    fn fill(&mut self, value: Option<&[u8]>, columns: &[String]) -> Result<(), Unwritable> {
        self.cells.clear();
        self.spans.clear();
        self.spans.resize(columns.len(), (0, 0));
        let Some(value) = value else { return Ok(()) };
        let mut decoder = Decoder::new(value);
        match decoder.datatype()? {
            Type::Map | Type::MapIndef => self.fill_map(&mut decoder, columns)?,
            Type::Array | Type::ArrayIndef => self.fill_array(&mut decoder, columns)?,
            _ => return Err(Unwritable::NoColumns),
        }
        check_end(&decoder)
    }

    fn fill_map(&mut self, decoder: &mut Decoder<'_>, columns: &[String]) -> Result<(), Unwritable> {
        let mut left = decoder.map()?;
        let mut entry = 0;
        while goes_on(decoder, &mut left)? {
            let key = key_text(decoder)?;
            // Records of one make have their keys in one order.
            let column = match columns.get(entry) {
                Some(column) if *column == key => Some(entry),
                _ => columns.iter().position(|column| *column == key),
            };
            entry += 1;
            match column {
                Some(column) => self.spans[column] = self.push_cell(decoder)?,
                None if self.declared.is_some() => decoder.skip()?,
                None => return Err(Unwritable::UnknownColumn(key)),
            }
        }
        Ok(())
    }

    fn fill_array(&mut self, decoder: &mut Decoder<'_>, columns: &[String]) -> Result<(), Unwritable> {
        let mut left = decoder.array()?;
        let mut found = 0;
        while goes_on(decoder, &mut left)? {
            let span = self.push_cell(decoder)?;
            match self.spans.get_mut(found) {
                Some(place) => *place = span,
                // Without names an array is as wide as it is.
                None if columns.is_empty() => self.spans.push(span),
                None => {}
            }
            found += 1;
        }
        if columns.is_empty() || found == columns.len() {
            Ok(())
        } else {
            Err(Unwritable::Width { found, expected: columns.len() })
        }
    }

    /// Appends the value's text to the cells.
    fn push_cell(&mut self, decoder: &mut Decoder<'_>) -> Result<(usize, usize), Unwritable> {
        let start = self.cells.len();
        match decoder.datatype()? {
            Type::Null | Type::Undefined => decoder.skip()?,
            Type::String => self.cells.extend_from_slice(decoder.str()?.as_bytes()),
            _ => {
                push_value(decoder, &mut self.cells, 1)?;
                // A JSON string here is base64, which needs no quotes.
                if self.cells[start..].starts_with(b"\"") {
                    self.cells.pop();
                    self.cells.remove(start);
                }
            }
        }
        Ok((start, self.cells.len()))
    }
}

/// The keys of a map; none for an array or an absent value.
fn columns_of(value: Option<&[u8]>) -> Result<Vec<String>, Unwritable> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let mut decoder = Decoder::new(value);
    let mut columns = Vec::new();
    if matches!(decoder.datatype()?, Type::Map | Type::MapIndef) {
        let mut left = decoder.map()?;
        while goes_on(&mut decoder, &mut left)? {
            columns.push(key_text(&mut decoder)?);
            decoder.skip()?;
        }
    }
    Ok(columns)
}

fn key_text(decoder: &mut Decoder<'_>) -> Result<String, Unwritable> {
    if decoder.datatype()? == Type::String {
        return Ok(decoder.str()?.to_owned());
    }
    let mut text = Vec::new();
    push_value(decoder, &mut text, 1)?;
    Ok(String::from_utf8_lossy(&text).trim_matches('"').to_owned())
}

fn push_cells<'a>(writer: &mut Writer, cells: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            push(out, 2, |room| writer.delimiter(room));
        }
        push(out, cell.len() * 2 + 2, |room| {
            let (result, _, written) = writer.field(cell, room);
            (result, written)
        });
    }
    push(out, 4, |room| writer.terminator(room));
}

/// Lets `write` write into as much room as it can need.
fn push(out: &mut Vec<u8>, room: usize, write: impl FnOnce(&mut [u8]) -> (WriteResult, usize)) {
    let start = out.len();
    out.resize(start + room, 0);
    let (result, written) = write(&mut out[start..]);
    debug_assert_eq!(result, WriteResult::InputEmpty, "there was room");
    out.truncate(start + written);
}
