//! Maps whose length and order are known only at their end.
//!
//! Owns the sorting of entries by their encoded keys, and that a key is there once.

use crate::format::cbor;

/// The entries of the maps being written, innermost last. Keeps its memory from record to record.
#[derive(Debug, Default)]
pub struct Maps {
    entries: Vec<Entry>,
    /// The order that sorted the last record: the next one's fields mostly stand alike.
    order: Vec<u32>,
    scratch: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    key_end: usize,
    end: usize,
}

/// A map being written.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    head: usize,
    first: usize,
}

impl Maps {
    /// A new record begins; one that could not be decoded may have left maps open.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Begins a map.
    pub fn begin(&self, out: &mut Vec<u8>) -> Open {
        Open { head: begin(out), first: self.entries.len() }
    }

    /// An entry was written.
    #[inline]
    pub fn entry(&mut self, start: usize, key_end: usize, end: usize) {
        self.entries.push(Entry { start, key_end, end });
    }

    /// Ends the map: sorts its entries and writes its head. `Err` is the key that is there twice.
    pub fn end(&mut self, out: &mut Vec<u8>, map: Open) -> Result<(), String> {
        let entries = &self.entries[map.first..];
        let count = entries.len();
        if !in_order(out, entries, 0..count as u32) {
            let known = self.order.len() == count && in_order(out, entries, self.order.iter().copied());
            if !known {
                let key = |index: &u32| key(out, &entries[*index as usize]);
                self.order.clear();
                self.order.extend(0..count as u32);
                self.order.sort_unstable_by(|a, b| key(a).cmp(key(b)));
                if let Some(pair) = self.order.windows(2).find(|pair| key(&pair[0]) == key(&pair[1])) {
                    return Err(text_of(key(&pair[0])));
                }
            }
            self.scratch.clear();
            for &index in &self.order {
                let Entry { start, end, .. } = entries[index as usize];
                self.scratch.extend_from_slice(&out[start..end]);
            }
            out.truncate(map.head + 1);
            out.extend_from_slice(&self.scratch);
        }
        self.entries.truncate(map.first);
        self.write_head(out, map.head, cbor::MAP, count);
        Ok(())
    }

    /// Ends an array of `count` that [began](begin) at `head`.
    pub fn end_array(&mut self, out: &mut Vec<u8>, head: usize, count: usize) {
        self.write_head(out, head, cbor::ARRAY, count);
    }

    /// One byte was left for the head.
    fn write_head(&mut self, out: &mut Vec<u8>, head: usize, major: u8, count: usize) {
        if count < 24 {
            out[head] = major << 5 | count as u8;
        } else {
            self.scratch.clear();
            cbor::push_head(&mut self.scratch, major, count as u64);
            out.splice(head..=head, self.scratch.iter().copied());
        }
    }
}

/// Leaves room for a head; returns where.
pub fn begin(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len() - 1
}

#[inline]
fn key<'a>(out: &'a [u8], entry: &Entry) -> &'a [u8] {
    &out[entry.start..entry.key_end]
}

/// Whether the entries' keys rise strictly in that order.
#[inline]
fn in_order(out: &[u8], entries: &[Entry], order: impl Iterator<Item = u32>) -> bool {
    let mut before: &[u8] = &[];
    for index in order {
        let key = key(out, &entries[index as usize]);
        if before >= key {
            return false;
        }
        before = key;
    }
    true
}

/// An encoded key's text.
pub fn text_of(key: &[u8]) -> String {
    minicbor::Decoder::new(key).str().unwrap_or_default().to_owned()
}
