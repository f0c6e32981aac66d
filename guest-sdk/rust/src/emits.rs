//! The records that a call emits, as columns under construction.
//!
//! Owns that keys and times are sent only where an emit has its own, and the undo of a rejected record's emits. Does not
//! own what may be emitted: see [`crate::context`].

use crate::bindings::wasmill::operator::types::{Emits, Headers};
use crate::columns::{Builder, OptionalBuilder};
use crate::error::Error;
use crate::record::Origins;

/// What an emit says beside its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'e> {
    pub(crate) output: u16,
    pub(crate) origin: u32,
    /// An own key; `Some(None)` for none at all.
    pub(crate) key: Option<Option<&'e [u8]>>,
    /// An own time, in milliseconds.
    pub(crate) time: Option<i64>,
}

/// How much a call emitted: the next one begins with as much room.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    emits: usize,
    bytes: usize,
}

/// The emits of a call so far.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    len: u32,
    outputs: Vec<u8>,
    origins: Vec<u8>,
    keys: Option<OptionalBuilder>,
    times: Option<Vec<u8>>,
    values: Builder,
    absent_values: Vec<u8>,
    headers: Option<HeaderBuilder>,
}

#[derive(Debug, Default)]
struct HeaderBuilder {
    len: usize,
    records: Vec<u8>,
    names: Builder,
    values: Builder,
}

impl Buffer {
    pub(crate) fn with_room(room: Room) -> Self {
        Self {
            outputs: Vec::with_capacity(2 * room.emits),
            origins: Vec::with_capacity(4 * room.emits),
            values: Builder::with_capacity(room.emits, room.bytes),
            ..Self::default()
        }
    }

    pub(crate) fn room(&self) -> Room {
        Room { emits: self.len as usize, bytes: self.values.byte_len() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Appends an emit whose value `write` appends.
    #[inline]
    pub(crate) fn push(
        &mut self,
        envelope: Envelope<'_>,
        origins: &Origins<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.values.push_with(write)?;
        if (envelope.key.is_some() || self.keys.is_some())
            && let Err(error) = self.push_key(&envelope, origins)
        {
            self.values.truncate(self.len as usize);
            return Err(error);
        }
        if envelope.time.is_some() || self.times.is_some() {
            self.push_time(&envelope, origins);
        }
        self.outputs.extend_from_slice(&envelope.output.to_le_bytes());
        self.origins.extend_from_slice(&envelope.origin.to_le_bytes());
        self.len += 1;
        Ok(())
    }

    /// Appends an emit without a value.
    pub(crate) fn push_absent(&mut self, envelope: Envelope<'_>, origins: &Origins<'_>) -> Result<(), Error> {
        let index = self.len;
        self.push(envelope, origins, |_| Ok(()))?;
        self.absent_values.extend_from_slice(&index.to_le_bytes());
        Ok(())
    }

    /// Gives the newest emit a header.
    pub(crate) fn push_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let headers = self.headers.get_or_insert_default();
        headers.names.push(name)?;
        if let Err(error) = headers.values.push(value) {
            headers.names.truncate(headers.len);
            return Err(error);
        }
        headers.records.extend_from_slice(&(self.len - 1).to_le_bytes());
        headers.len += 1;
        Ok(())
    }

    /// Keeps the first `len` emits.
    pub(crate) fn truncate(&mut self, len: u32) {
        let keep = len as usize;
        self.len = len;
        self.outputs.truncate(2 * keep);
        self.origins.truncate(4 * keep);
        self.values.truncate(keep);
        keep_below(&mut self.absent_values, len);
        if let Some(keys) = &mut self.keys {
            keys.truncate(keep);
        }
        if let Some(times) = &mut self.times {
            times.truncate(8 * keep);
        }
        if let Some(headers) = &mut self.headers {
            headers.len = keep_below(&mut headers.records, len);
            headers.names.truncate(headers.len);
            headers.values.truncate(headers.len);
        }
    }

    pub(crate) fn finish(self) -> Emits {
        Emits {
            outputs: self.outputs,
            origins: self.origins,
            keys: self.keys.map(OptionalBuilder::finish),
            times: self.times,
            values: self.values.finish(),
            absent_values: self.absent_values,
            headers: self.headers.map(|headers| Headers {
                records: headers.records,
                names: headers.names.finish(),
                values: headers.values.finish(),
            }),
        }
    }

    /// Where one emit has an own key, all say theirs: those before it get their origins'.
    #[cold]
    fn push_key(&mut self, envelope: &Envelope<'_>, origins: &Origins<'_>) -> Result<(), Error> {
        let keys = match &mut self.keys {
            Some(keys) => keys,
            None => {
                let mut keys = OptionalBuilder::default();
                for &origin in self.origins.as_chunks().0 {
                    keys.push(origins.key(u32::from_le_bytes(origin)))?;
                }
                self.keys.insert(keys)
            }
        };
        keys.push(envelope.key.unwrap_or_else(|| origins.key(envelope.origin)))
    }

    fn push_time(&mut self, envelope: &Envelope<'_>, origins: &Origins<'_>) {
        let times = self.times.get_or_insert_with(|| {
            let before = self.origins.as_chunks().0.iter();
            before.flat_map(|&origin| origins.time(u32::from_le_bytes(origin)).to_le_bytes()).collect()
        });
        let time = envelope.time.unwrap_or_else(|| origins.time(envelope.origin));
        times.extend_from_slice(&time.to_le_bytes());
    }
}

/// Keeps the packed ascending integers below `limit` and says how many they are.
fn keep_below(integers: &mut Vec<u8>, limit: u32) -> usize {
    while integers.last_chunk().is_some_and(|&last| u32::from_le_bytes(last) >= limit) {
        integers.truncate(integers.len() - 4);
    }
    integers.len() / 4
}
