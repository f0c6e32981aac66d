//! Packed columns: reading those of a call, building those of its effects.
//!
//! Owns the little-endian packing and the checks that let the rest index freely. Does not own what the bytes mean.

use crate::bindings::wasmill::operator::types::{Column, OptionalColumn};
use crate::error::Error;

/// A call that does not keep the contract: the host's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host broke the contract: {0}")]
pub struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// As the failure of the call.
    pub(crate) fn fault(self) -> Error {
        Error::fatal(self)
    }
}

/// Packed integers of 4 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct U32s<'a>(&'a [[u8; 4]]);

impl<'a> U32s<'a> {
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match bytes.as_chunks() {
            (chunks, []) => Ok(Self(chunks)),
            _ => Err(Malformed("a column of 32-bit integers ends within one")),
        }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<u32> {
        self.0.get(index).map(|&bytes| u32::from_le_bytes(bytes))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|&bytes| u32::from_le_bytes(bytes))
    }
}

/// Packed integers of 8 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct S64s<'a>(&'a [[u8; 8]]);

impl<'a> S64s<'a> {
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match bytes.as_chunks() {
            (chunks, []) => Ok(Self(chunks)),
            _ => Err(Malformed("a column of 64-bit integers ends within one")),
        }
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<i64> {
        self.0.get(index).map(|&bytes| i64::from_le_bytes(bytes))
    }
}

/// Byte strings end to end, checked: every end lies at or past the one before and within the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strings<'a> {
    bytes: &'a [u8],
    ends: U32s<'a>,
}

impl<'a> Strings<'a> {
    pub(crate) fn check(column: &'a Column) -> Result<Self, Malformed> {
        let ends = U32s::check(&column.ends)?;
        let mut before = 0;
        let mut ascending = true;
        for end in ends.iter() {
            ascending &= before <= end;
            before = end;
        }
        if !ascending || before as usize != column.bytes.len() {
            return Err(Malformed("the ends of a column do not fit its bytes"));
        }
        Ok(Self { bytes: &column.bytes, ends })
    }

    /// The view of a column that [`Strings::check`] accepted before.
    #[inline]
    pub(crate) fn checked(column: &'a Column) -> Self {
        Self { bytes: &column.bytes, ends: U32s(column.ends.as_chunks().0) }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.ends.len()
    }

    /// String `index`; empty past the end.
    #[inline]
    pub(crate) fn get(self, index: usize) -> &'a [u8] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).unwrap_or(0);
        let end = self.ends.get(index).unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// A column under construction.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    ends: Vec<u8>,
}

impl Builder {
    pub(crate) fn with_capacity(strings: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(4 * strings) }
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends what `write` appends, or nothing if that fails.
    #[inline]
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<(), Error> {
        let start = self.bytes.len();
        let written = write(&mut self.bytes);
        match (written, u32::try_from(self.bytes.len())) {
            (Ok(()), Ok(end)) => {
                self.ends.extend_from_slice(&end.to_le_bytes());
                Ok(())
            }
            (written, _) => {
                self.bytes.truncate(start);
                written.and(Err(Error::fatal("the effects of one call exceed 4 GiB")))
            }
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, string: &[u8]) -> Result<(), Error> {
        self.push_with(|out| {
            out.extend_from_slice(string);
            Ok(())
        })
    }

    /// String `index`; empty past the end.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        Strings { bytes: &self.bytes, ends: U32s(self.ends.as_chunks().0) }.get(index)
    }

    /// Keeps the first `len` strings.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(4 * len);
        let end = self.ends.last_chunk().map_or(0, |&end| u32::from_le_bytes(end));
        self.bytes.truncate(end as usize);
    }

    pub(crate) fn finish(self) -> Column {
        Column { bytes: self.bytes, ends: self.ends }
    }
}

/// A column with gaps under construction.
#[derive(Debug, Default)]
pub(crate) struct OptionalBuilder {
    present: Vec<u8>,
    values: Builder,
}

impl OptionalBuilder {
    pub(crate) fn push(&mut self, string: Option<&[u8]>) -> Result<(), Error> {
        self.values.push(string.unwrap_or_default())?;
        self.present.push(u8::from(string.is_some()));
        Ok(())
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.present.truncate(len);
        self.values.truncate(len);
    }

    pub(crate) fn finish(self) -> OptionalColumn {
        OptionalColumn { present: self.present, values: self.values.finish() }
    }
}
