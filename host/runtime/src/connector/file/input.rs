//! The bytes of one file, decompressed, or of standard input.
//!
//! Owns opening, the compressed forms, going to an offset, and noticing that a followed file was cut or replaced. Does not own
//! records.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// How standard input is named in a pipeline.
pub const STDIN: &str = "-";

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Its word.
        error: io::Error,
    },
    /// A damaged archive.
    #[error("{path}: the compressed data are damaged or cut short ({error}): mend or replace the file")]
    Damaged {
        /// The file.
        path: String,
        /// The decompressor's word.
        error: io::Error,
    },
    /// A folder, a socket.
    #[error("{0}: is not a plain file")]
    NotAFile(String),
    /// `follow` reads what is appended, and archives are not appended to.
    #[error("{0}: a compressed file cannot be followed: set follow = false")]
    FollowCompressed(String),
    /// A position past the end.
    #[error(
        "{path}: has {len} bytes, and {offset} were read before: it was cut or replaced; put the former file back, or start with --fresh"
    )]
    Shorter {
        /// The file.
        path: String,
        /// The bytes it has, decompressed.
        len: u64,
        /// The position.
        offset: u64,
    },
    /// A followed file is another now.
    #[error(
        "{0}: was replaced or removed while it was followed: put the former file back, or start with --fresh (files are followed by appending only)"
    )]
    Replaced(String),
    /// Standard input was read from before.
    #[error(
        "standard input cannot be read again: {0} bytes of it were read before the restart; start with --fresh, or read from a file"
    )]
    StdinTwice(u64),
}

/// What [`Input::fill`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// So many bytes.
    Bytes(usize),
    /// None now, perhaps later.
    NotNow,
    /// None will come.
    End,
}

/// An open input.
pub struct Input {
    path: PathBuf,
    shown: String,
    kind: Kind,
    /// Bytes given out, from the start of the file.
    offset: u64,
}

enum Kind {
    Plain { file: Counted, follow: bool },
    Compressed(Box<dyn Read + Send>),
    Stdin { chunks: Chunks, bytes: Arc<AtomicU64> },
}

/// What the thread sends that reads standard input.
struct Chunks {
    receiver: Receiver<io::Result<Vec<u8>>>,
    pending: Vec<u8>,
    taken: usize,
    /// The end is told as often as it is asked for: the first answer may have gone with bytes before it.
    ended: bool,
}

/// Counts what is read of a file, for the source's figures.
struct Counted {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Whether a file's name says that it is compressed.
#[must_use]
pub fn is_compressed(path: &Path) -> bool {
    matches!(path.extension().and_then(|extension| extension.to_str()), Some("gz" | "zst"))
}

impl Input {
    /// Opens a file at its start. `bytes` counts what is read of it.
    ///
    /// # Errors
    /// Where it cannot be opened, is no plain file, or is compressed and to be followed.
    pub fn open(path: &Path, shown: &str, follow: bool, bytes: &Arc<AtomicU64>) -> Result<Self, Error> {
        let io = |error| Error::Io { path: shown.to_owned(), error };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::NotAFile(shown.to_owned()));
        }
        if follow && is_compressed(path) {
            return Err(Error::FollowCompressed(shown.to_owned()));
        }
        let file = Counted { file, bytes: Arc::clone(bytes) };
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => {
                let buffered = io::BufReader::with_capacity(1 << 16, file);
                Kind::Compressed(Box::new(flate2::bufread::MultiGzDecoder::new(buffered)))
            }
            Some("zst") => Kind::Compressed(Box::new(zstd::stream::read::Decoder::new(file).map_err(io)?)),
            _ => Kind::Plain { file, follow },
        };
        Ok(Self { path: path.to_owned(), shown: shown.to_owned(), kind, offset: 0 })
    }

    /// Takes standard input, once in the life of the process. `bytes` counts what is read of it.
    ///
    /// # Errors
    /// Where something was read from it before.
    pub fn stdin(bytes: &Arc<AtomicU64>) -> Result<Self, Error> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        static READ: AtomicU64 = AtomicU64::new(0);
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(Error::StdinTwice(READ.load(Ordering::SeqCst)));
        }
        let (sender, receiver) = sync_channel(4);
        let shown = "standard input".to_owned();
        // Its reads wait for whoever writes, which a subtask's thread must not. It ends with the input or the process.
        crate::spawn::thread("stdin", move || pump(&mut io::stdin().lock(), &sender, &READ))
            .map_err(|error| Error::Io { path: shown.clone(), error: io::Error::other(error) })?;
        let kind = Kind::Stdin { chunks: Chunks::new(receiver), bytes: Arc::clone(bytes) };
        Ok(Self { path: PathBuf::from(STDIN), shown, kind, offset: 0 })
    }

    /// Reads as much as `buffer` holds, as far as it is there.
    ///
    /// # Errors
    /// Where the system or the decompressor says no, or a followed file was cut or replaced.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<Fill, Error> {
        let mut filled = 0;
        let mut empty = Fill::End;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let found = match &mut self.kind {
                Kind::Plain { file, follow } => match retried(file, rest) {
                    Ok(0) if *follow => Ok(Fill::NotNow),
                    other => other.map(|read| if read == 0 { Fill::End } else { Fill::Bytes(read) }),
                },
                Kind::Compressed(reader) => match retried(reader, rest) {
                    Ok(0) => Ok(Fill::End),
                    other => other.map(Fill::Bytes),
                },
                Kind::Stdin { chunks, bytes } => chunks.next(rest).inspect(|fill| {
                    if let Fill::Bytes(read) = fill {
                        bytes.fetch_add(*read as u64, Ordering::Relaxed);
                    }
                }),
            };
            match found.map_err(|error| self.error(error))? {
                Fill::Bytes(read) => filled += read,
                other => {
                    empty = other;
                    break;
                }
            }
        }
        self.offset += filled as u64;
        if filled == 0 && empty == Fill::NotNow {
            self.check_followed()?;
        }
        Ok(if filled > 0 { Fill::Bytes(filled) } else { empty })
    }

    /// Goes on to `offset`, at or after what was given out so far.
    ///
    /// # Errors
    /// Where the file is shorter.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), Error> {
        let shorter = |len| Error::Shorter { path: self.shown.clone(), len, offset };
        match &mut self.kind {
            Kind::Plain { file: Counted { file, .. }, .. } => {
                let io = |error| Error::Io { path: self.shown.clone(), error };
                let len = file.metadata().map_err(io)?.len();
                if len < offset {
                    return Err(shorter(len));
                }
                file.seek(SeekFrom::Start(offset)).map_err(io)?;
            }
            Kind::Compressed(reader) => {
                let skip = offset.saturating_sub(self.offset);
                let skipped = io::copy(&mut reader.take(skip), &mut io::sink());
                let skipped = skipped.map_err(|error| damaged_or_io(&self.shown, error))?;
                if skipped < skip {
                    return Err(shorter(self.offset + skipped));
                }
            }
            Kind::Stdin { .. } => return Err(Error::StdinTwice(offset)),
        }
        self.offset = offset;
        Ok(())
    }

    /// Nothing was there: is it still the file that was opened, and as long as before?
    fn check_followed(&self) -> Result<(), Error> {
        let Kind::Plain { file: Counted { file, .. }, .. } = &self.kind else { return Ok(()) };
        let io = |error| Error::Io { path: self.shown.clone(), error };
        let opened = file.metadata().map_err(io)?;
        if opened.len() < self.offset {
            return Err(Error::Shorter { path: self.shown.clone(), len: opened.len(), offset: self.offset });
        }
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match std::fs::metadata(&self.path) {
            Ok(named) if identity(&named) == identity(&opened) => Ok(()),
            Ok(_) => Err(Error::Replaced(self.shown.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Replaced(self.shown.clone())),
            Err(error) => Err(io(error)),
        }
    }

    fn error(&self, error: io::Error) -> Error {
        match self.kind {
            Kind::Compressed(_) => damaged_or_io(&self.shown, error),
            Kind::Plain { .. } | Kind::Stdin { .. } => Error::Io { path: self.shown.clone(), error },
        }
    }
}

/// A decompressor's errors have no number of the system's.
fn damaged_or_io(shown: &str, error: io::Error) -> Error {
    let path = shown.to_owned();
    if error.raw_os_error().is_none() { Error::Damaged { path, error } } else { Error::Io { path, error } }
}

fn retried(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Chunks {
    fn new(receiver: Receiver<io::Result<Vec<u8>>>) -> Self {
        Self { receiver, pending: Vec::new(), taken: 0, ended: false }
    }

    fn next(&mut self, buffer: &mut [u8]) -> io::Result<Fill> {
        if self.taken == self.pending.len() && !self.ended {
            match self.receiver.try_recv() {
                Ok(chunk) => {
                    (self.pending, self.taken) = (chunk?, 0);
                    self.ended = self.pending.is_empty();
                }
                Err(TryRecvError::Empty) => return Ok(Fill::NotNow),
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("the thread that reads it ended")),
            }
        }
        if self.ended {
            return Ok(Fill::End);
        }
        let copied = buffer.len().min(self.pending.len() - self.taken);
        buffer[..copied].copy_from_slice(&self.pending[self.taken..self.taken + copied]);
        self.taken += copied;
        Ok(Fill::Bytes(copied))
    }
}

/// Sends chunks until the input ends (the last one is empty), fails, or nobody listens.
fn pump(input: &mut impl Read, sender: &SyncSender<io::Result<Vec<u8>>>, read: &AtomicU64) {
    loop {
        let mut chunk = vec![0; 1 << 16];
        let sent = match retried(input, &mut chunk) {
            Ok(0) => {
                let _ = sender.send(Ok(Vec::new()));
                return;
            }
            Ok(len) => {
                read.fetch_add(len as u64, Ordering::SeqCst);
                chunk.truncate(len);
                sender.send(Ok(chunk))
            }
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_standard_input_arrive_in_order_and_end() {
        static READ: AtomicU64 = AtomicU64::new(0);
        let (sender, receiver) = sync_channel(4);
        let (mut chunks, mut buffer) = (Chunks::new(receiver), [0; 4]);
        let mut next = || {
            let fill = chunks.next(&mut buffer).unwrap();
            (fill, buffer)
        };
        assert_eq!(next().0, Fill::NotNow);
        pump(&mut &b"abcdef"[..], &sender, &READ);
        assert_eq!(READ.load(Ordering::SeqCst), 6);
        assert_eq!(next(), (Fill::Bytes(4), *b"abcd"));
        assert_eq!(next(), (Fill::Bytes(2), *b"efcd"));
        assert_eq!(next().0, Fill::End);
    }

    #[test]
    fn the_end_of_standard_input_is_not_lost_with_the_bytes_before_it() {
        static READ: AtomicU64 = AtomicU64::new(0);
        let (sender, receiver) = sync_channel(4);
        pump(&mut &b"abc"[..], &sender, &READ);
        drop(sender);
        let kind = Kind::Stdin { chunks: Chunks::new(receiver), bytes: Arc::default() };
        let mut input = Input { path: PathBuf::from(STDIN), shown: "standard input".to_owned(), kind, offset: 0 };
        let mut buffer = [0; 8];
        assert_eq!(input.fill(&mut buffer).unwrap(), Fill::Bytes(3));
        assert_eq!(input.fill(&mut buffer).unwrap(), Fill::End);
        assert_eq!(input.fill(&mut buffer).unwrap(), Fill::End);
    }

    #[test]
    fn a_reader_of_standard_input_that_dies_is_no_end() {
        let (sender, receiver) = sync_channel(4);
        drop(sender);
        assert!(Chunks::new(receiver).next(&mut [0]).is_err());
    }
}
