//! Files to the store and back, with every byte checked on the way.
//!
//! Owns how large files are cut into parts, and that nothing with a wrong checksum stays on the disk. Does not own names.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Name;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, PutPayload,
};
use wasmill_core::digest::{Digest, Hasher};

use super::error::Damage;
use super::retry::Failure;
use super::uploads::Upload;
use super::{Blob, Error};

/// Files up to this length are written at once, larger ones in parts of this size.
const PART: u64 = 16 * 1024 * 1024;

/// Parts of one file under way at once.
const PARTS_AT_ONCE: usize = 4;

/// How much of a download is checked and written at once.
const WRITE: usize = 1024 * 1024;

/// How often a piece with a wrong checksum is read again: a wire may flip bits, a store seldom.
const DAMAGED_TRIES: u32 = 3;

/// A piece of an object, with its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The object's full name.
    pub object: &'a str,
    /// The bytes.
    pub range: Range<u64>,
    /// Their checksum.
    pub sha256: Digest,
}

/// The checksum and length of a file. Reads it whole, away from the async threads.
///
/// # Errors
/// [`Error::Local`].
pub async fn hash_file(path: &Path) -> Result<(Digest, u64), Error> {
    let path = path.to_owned();
    blocking(move || {
        let mut file = File::open(&path).map_err(|error| Error::local("open", &path, error))?;
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; WRITE];
        let mut length = 0;
        loop {
            match file.read(&mut buffer).map_err(|error| Error::local("read", &path, error))? {
                0 => return Ok((hasher.finish(), length)),
                count => {
                    hasher.update(&buffer[..count]);
                    length += count as u64;
                }
            }
        }
    })
    .await
}

/// `bytes`, if they are all that was announced: a body cut short is no error of every store's.
pub(super) fn whole(length: u64, bytes: Bytes) -> Result<Bytes, StoreError> {
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(cut_short(bytes.len() as u64, length)) }
}

fn cut_short(found: u64, expected: u64) -> StoreError {
    let source = format!("the body ended after {found} of {expected} bytes").into();
    StoreError::Generic { store: "checkpoint store", source }
}

impl Blob {
    /// Uploads the file `path`, whose checksum and length are known, as `object`. Durable on return; a failed upload leaves no
    /// object of that name.
    ///
    /// # Errors
    /// [`Error::Changed`] where the file is not what it was; [`Error::Unavailable`] and [`Error::Refused`].
    pub async fn upload(&self, path: &Path, sha256: Digest, length: u64, object: &str) -> Result<(), Error> {
        let name = self.path(object)?;
        self.retrying_for(self.patience(length), "write", object, || async {
            if length > PART {
                return self.upload_parts(&name, path, sha256, length).await;
            }
            let bytes = read_piece(path, 0, length).await?;
            if Digest::of(&bytes) != sha256 {
                return Err(Failure::Final(Error::Changed { path: path.to_owned() }));
            }
            self.store.put(&name, PutPayload::from_bytes(bytes)).await.map(drop).map_err(Failure::Store)
        })
        .await
    }

    /// The checksum and length of the whole object, of about `length` bytes; `None` where there is none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn digest(&self, object: &str, length: u64) -> Result<Option<(Digest, u64)>, Error> {
        let name = self.path(object)?;
        self.retrying_for(self.patience(length), "read", object, || async {
            let result = match self.store.get(&name).await {
                Ok(result) => result,
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let (expected, mut stream) = (result.meta.size, result.into_stream());
            let (mut hasher, mut found) = (Hasher::new(), 0);
            while let Some(chunk) = stream.try_next().await? {
                hasher.update(&chunk);
                found += chunk.len() as u64;
            }
            if found == expected { Ok(Some((hasher.finish(), found))) } else { Err(cut_short(found, expected)) }
        })
        .await
    }

    /// Downloads a piece into the new file `to`, which is removed again unless its checksum is right.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Damaged`] naming the object; [`Error::Local`] naming the file.
    pub async fn download(&self, piece: &Piece<'_>, to: &Path) -> Result<(), Error> {
        let result = self.download_checked(piece, to).await;
        if result.is_err() {
            let path = to.to_owned();
            blocking(move || {
                // There may be none.
                let _ = std::fs::remove_file(path);
                Ok(())
            })
            .await?;
        }
        result
    }

    async fn download_checked(&self, piece: &Piece<'_>, to: &Path) -> Result<(), Error> {
        let name = self.path(piece.object)?;
        let length = piece.range.end.saturating_sub(piece.range.start);
        let mut tries = 0;
        loop {
            tries += 1;
            let found = self
                .retrying_for(self.patience(length), "read", piece.object, || self.download_once(&name, piece, to))
                .await?;
            if found == piece.sha256 {
                return Ok(());
            }
            if tries == DAMAGED_TRIES {
                let damage = Damage { range: piece.range.clone(), expected: piece.sha256, found };
                let (object, store) = (piece.object.to_owned(), self.location.to_string());
                return Err(Error::Damaged { object, store, damage: Box::new(damage) });
            }
        }
    }

    async fn download_once(&self, name: &Name, piece: &Piece<'_>, to: &Path) -> Result<Digest, Failure> {
        let length = piece.range.end.saturating_sub(piece.range.start);
        let range = (length > 0).then(|| GetRange::Bounded(piece.range.clone()));
        let result = match self.store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
            Ok(result) => result,
            Err(StoreError::NotFound { .. }) => {
                let (object, store) = (piece.object.to_owned(), self.location.to_string());
                return Err(Failure::Final(Error::Missing { object, store }));
            }
            Err(error) => return Err(Failure::Store(error)),
        };
        if length == 0 {
            return copy_local(None, 0..0, to.to_owned()).await.map(|(digest, _)| digest);
        }
        let (digest, found) = write_out(result, to).await?;
        if found == length { Ok(digest) } else { Err(Failure::Store(cut_short(found, length))) }
    }

    async fn upload_parts(&self, name: &Name, path: &Path, sha256: Digest, length: u64) -> Result<(), Failure> {
        let mut upload = Upload::begin(self.store.as_ref(), name, &self.left).await?;
        if let Err(failure) = send_parts(&mut upload, path, sha256, length).await {
            upload.take_back().await;
            return Err(failure);
        }
        let found = self.store.head(name).await?.size;
        if found == length { Ok(()) } else { Err(Failure::Store(cut_short(found, length))) }
    }

    fn patience(&self, length: u64) -> Duration {
        self.retry.deadline.saturating_add(Duration::from_secs(length >> 20))
    }
}

async fn send_parts(upload: &mut Upload, path: &Path, sha256: Digest, length: u64) -> Result<(), Failure> {
    let mut hasher = Hasher::new();
    let mut under_way = FuturesUnordered::new();
    let mut start = 0;
    while start < length {
        let bytes = read_piece(path, start, PART.min(length - start)).await?;
        start += bytes.len() as u64;
        hasher.update(&bytes);
        under_way.extend(upload.put_part(PutPayload::from_bytes(bytes)));
        while under_way.len() >= PARTS_AT_ONCE {
            under_way.next().await.transpose()?;
        }
    }
    under_way.try_collect::<()>().await?;
    if hasher.finish() != sha256 {
        return Err(Failure::Final(Error::Changed { path: path.to_owned() }));
    }
    Ok(upload.complete().await?)
}

/// Exactly `length` bytes of the file from `start` on.
async fn read_piece(path: &Path, start: u64, length: u64) -> Result<Bytes, Error> {
    let path = path.to_owned();
    blocking(move || {
        let mut file = File::open(&path).map_err(|error| Error::local("open", &path, error))?;
        file.seek(SeekFrom::Start(start)).map_err(|error| Error::local("read", &path, error))?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(length).read_to_end(&mut bytes).map_err(|error| Error::local("read", &path, error))?;
        if bytes.len() as u64 == length { Ok(Bytes::from(bytes)) } else { Err(Error::Changed { path }) }
    })
    .await
}

/// Writes what the store gives into the file, and returns its checksum and length.
async fn write_out(result: GetResult, to: &Path) -> Result<(Digest, u64), Failure> {
    let range = result.range.clone();
    let mut stream = match result.payload {
        GetResultPayload::File(file, _) => return copy_local(Some(file), range, to.to_owned()).await,
        GetResultPayload::Stream(stream) => stream,
    };
    let mut sink = create(to).await?;
    let mut pending = Vec::new();
    let mut bytes = 0;
    while let Some(chunk) = stream.try_next().await? {
        bytes += chunk.len();
        pending.push(chunk);
        if bytes >= WRITE {
            sink = sink.write(std::mem::take(&mut pending)).await?;
            bytes = 0;
        }
    }
    let sink = sink.write(pending).await?;
    Ok((sink.hasher.finish(), sink.length))
}

/// A file being written, and the checksum of what it holds.
struct Sink {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    length: u64,
}

async fn create(path: &Path) -> Result<Sink, Error> {
    let path = path.to_owned();
    blocking(move || {
        let file = File::create(&path).map_err(|error| Error::local("create", &path, error))?;
        Ok(Sink { path, file, hasher: Hasher::new(), length: 0 })
    })
    .await
}

impl Sink {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| Error::local("write", &self.path, error))
    }

    async fn write(mut self, chunks: Vec<Bytes>) -> Result<Self, Error> {
        blocking(move || {
            chunks.iter().try_for_each(|chunk| self.append(chunk))?;
            Ok(self)
        })
        .await
    }
}

/// Copies a piece of a local store's file.
async fn copy_local(from: Option<File>, range: Range<u64>, to: PathBuf) -> Result<(Digest, u64), Failure> {
    let mut sink = create(&to).await?;
    let copied = blocking(move || {
        let Some(mut from) = from else { return Ok(Ok(sink)) };
        // A fault of the store's file is the store's: it is tried again.
        let store =
            |error| StoreError::Generic { store: "checkpoint store", source: Box::<std::io::Error>::new(error) };
        if let Err(error) = from.seek(SeekFrom::Start(range.start)) {
            return Ok(Err(store(error)));
        }
        let mut from = from.take(range.end.saturating_sub(range.start));
        let mut buffer = vec![0; WRITE];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(Ok(sink)),
                Ok(count) => sink.append(&buffer[..count])?,
                Err(error) => return Ok(Err(store(error))),
            }
        }
    })
    .await?;
    let sink = copied?;
    Ok((sink.hasher.finish(), sink.length))
}

/// Runs what blocks away from the async threads.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::local("use", Path::new("the local disk"), std::io::Error::other(error))),
        },
    }
}
