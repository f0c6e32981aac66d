//! Row files: what was written to rows in memory, one change after the other. A stored format (docs/formats.md, "Row files").
//!
//! Owns the format, its checksums, and the names of files. Does not own which files there are.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use wasmill_core::key_group::{KeyGroup, KeyGroupRange};
use xxhash_rust::xxh3::xxh3_64;

use crate::state::LocalFile;
use crate::state::error::Error;
use crate::state::row::{decode_varint, encode_varint};

/// What every row file begins with.
const MAGIC: &[u8; 8] = b"wasmrows";
/// The version that is written, and the only one there has been.
const VERSION: u32 = 1;
/// How the names of row files end.
const SUFFIX: &str = ".rows";
/// A frame is ended once it has so many bytes.
const FRAME_BYTES: usize = 64 << 10;
/// Length and checksum before a frame.
const FRAME_HEAD: usize = 12;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// A change of rows of one column family, by their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Key and value.
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    /// From the first up to but without the second.
    DeleteRange(&'a [u8], &'a [u8]),
}

/// A file that is written.
pub(super) struct FileWriter {
    name: String,
    path: PathBuf,
    out: BufWriter<File>,
    frame: Vec<u8>,
    family: String,
    frames: u64,
    bytes: u64,
    groups: Groups,
    place: String,
}

/// What was read of a file.
pub(super) struct FileRead {
    pub(super) bytes: u64,
    pub(super) key_groups: KeyGroupRange,
}

/// The key groups of what was seen.
#[derive(Default)]
struct Groups(Option<(u16, u16)>);

impl FileWriter {
    /// Begins the file with this number in `dir`.
    pub(super) fn new(dir: &Path, number: u64, place: &str) -> Result<Self, Error> {
        let name = format!("{number:06}{SUFFIX}");
        let path = dir.join(&name);
        let file = File::create_new(&path).map_err(|error| Error::file(place, "create", &path, &error))?;
        let mut writer = Self {
            name,
            path,
            out: BufWriter::new(file),
            frame: Vec::new(),
            family: String::new(),
            frames: 0,
            bytes: 0,
            groups: Groups::default(),
            place: place.to_owned(),
        };
        writer.write(MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        Ok(writer)
    }

    pub(super) fn append(&mut self, family: &str, change: &Change<'_>) -> Result<(), Error> {
        if self.family != family || self.frame.len() >= FRAME_BYTES {
            self.end_frame()?;
            family.clone_into(&mut self.family);
        }
        if self.frame.is_empty() {
            piece(family.as_bytes(), &mut self.frame);
        }
        let (tag, first, second) = change.parts();
        self.groups.add(first);
        self.frame.push(tag);
        piece(first, &mut self.frame);
        if let Some(second) = second {
            piece(second, &mut self.frame);
        }
        Ok(())
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.frame.len() as u64
    }

    /// Ends the file, which never changes again.
    pub(super) fn end(mut self) -> Result<LocalFile, Error> {
        self.end_frame()?;
        self.write(&[0; 4])?;
        self.write(&self.frames.to_le_bytes())?;
        self.out.flush().map_err(|error| Error::file(&self.place, "write", &self.path, &error))?;
        Ok(LocalFile { name: self.name, bytes: self.bytes, key_groups: Some(self.groups.range()) })
    }

    /// Gives up the file and says where it is.
    pub(super) fn abandon(self) -> PathBuf {
        self.path
    }

    fn end_frame(&mut self) -> Result<(), Error> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let frame = std::mem::take(&mut self.frame);
        self.write(&(frame.len() as u32).to_le_bytes())?;
        self.write(&xxh3_64(&frame).to_le_bytes())?;
        self.write(&frame)?;
        self.frames += 1;
        self.frame = frame;
        self.frame.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| Error::file(&self.place, "write", &self.path, &error))
    }
}

/// Reads a file whole, and calls `each` with column family and change, in order.
pub(super) fn read(
    path: &Path,
    place: &str,
    mut each: impl FnMut(&str, Change<'_>) -> Result<(), Error>,
) -> Result<FileRead, Error> {
    let failed = |error: std::io::Error| Error::file(place, "read", path, &error);
    let damaged = |what: &'static str| Error::RowFile { place: place.to_owned(), path: path.to_owned(), what };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut left = bytes;
    let mut file = BufReader::new(file);
    // Never more than the file has, whatever it says.
    let mut take = |len: usize, into: &mut Vec<u8>| {
        left = left.checked_sub(len as u64).ok_or_else(|| damaged("it ends too early"))?;
        into.resize(len, 0);
        file.read_exact(into).map_err(failed)?;
        Ok(left)
    };
    let (mut head, mut frame, mut groups) = (Vec::new(), Vec::new(), Groups::default());
    take(MAGIC.len() + 4, &mut head)?;
    match head.split_at(MAGIC.len()) {
        (magic, _) if magic != MAGIC => return Err(damaged("it does not begin as a row file does")),
        (_, version) if version != VERSION.to_le_bytes() => {
            return Err(damaged("its version is not 1: a later wasmill wrote it"));
        }
        _ => {}
    }
    for frames in 0u64.. {
        let left = take(FRAME_HEAD, &mut head)?;
        let (Some((length, checksum)), true) = (head.split_first_chunk::<4>(), head.len() == FRAME_HEAD) else { break };
        let length = u32::from_le_bytes(*length);
        if length == 0 {
            if checksum != frames.to_le_bytes() || left > 0 {
                return Err(damaged("it does not end where it says"));
            }
            break;
        }
        take(length as usize, &mut frame)?;
        if checksum != xxh3_64(&frame).to_le_bytes() {
            return Err(damaged("its checksum is wrong"));
        }
        each_change(&frame, |family, change| {
            groups.add(change.parts().1);
            each(family, change)
        })
        .ok_or_else(|| damaged("it holds what this build does not know: a later wasmill wrote it"))??;
    }
    Ok(FileRead { bytes, key_groups: groups.range() })
}

/// Calls `each` with the changes of a frame until it fails; `None` where the frame is not one.
fn each_change(frame: &[u8], mut each: impl FnMut(&str, Change<'_>) -> Result<(), Error>) -> Option<Result<(), Error>> {
    let (family, mut rest) = split(frame)?;
    let family = std::str::from_utf8(family).ok()?;
    while let Some((&tag, after)) = rest.split_first() {
        let (first, after) = split(after)?;
        let change;
        (change, rest) = match tag {
            PUT => split(after).map(|(value, rest)| (Change::Put(first, value), rest))?,
            DELETE => (Change::Delete(first), after),
            DELETE_RANGE => split(after).map(|(to, rest)| (Change::DeleteRange(first, to), rest))?,
            _ => return None,
        };
        if let Err(error) = each(family, change) {
            return Some(Err(error));
        }
    }
    Some(Ok(()))
}

/// The names of the row files in `dir`, in the order in which they are read.
pub(in crate::state) fn names(dir: &Path, place: &str) -> Result<Vec<String>, Error> {
    let failed = |error: std::io::Error| Error::file(place, "list", dir, &error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if let Some(number) = number(&name) {
            names.push((number, name));
        }
    }
    names.sort();
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

/// The number in the name of a row file.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// The key group of a row.
pub(super) fn group(key: &[u8]) -> Option<KeyGroup> {
    key.first_chunk().map(|group| KeyGroup(u16::from_be_bytes(*group)))
}

/// Links a file, or copies it where file systems differ.
pub(super) fn link(from: &Path, to: &Path, place: &str) -> Result<(), Error> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).map_err(|error| Error::file(place, "copy", from, &error))?;
    }
    Ok(())
}

impl<'a> Change<'a> {
    fn parts(&self) -> (u8, &'a [u8], Option<&'a [u8]>) {
        match *self {
            Self::Put(key, value) => (PUT, key, Some(value)),
            Self::Delete(key) => (DELETE, key, None),
            Self::DeleteRange(from, to) => (DELETE_RANGE, from, Some(to)),
        }
    }
}

impl Groups {
    fn add(&mut self, key: &[u8]) {
        if let Some(KeyGroup(group)) = group(key) {
            let (first, last) = self.0.unwrap_or((group, group));
            self.0 = Some((first.min(group), last.max(group)));
        }
    }

    fn range(&self) -> KeyGroupRange {
        let (start, end) = self.0.map_or((0, 0), |(first, last)| (first, last.saturating_add(1)));
        KeyGroupRange { start, end }
    }
}

fn piece(bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(bytes.len() as u32, out);
    out.extend_from_slice(bytes);
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = decode_varint(bytes).ok()?;
    rest.split_at_checked(len as usize)
}
