//! A subtask's state to the checkpoint store and back.
//!
//! Owns how the files of a local cut become objects, and that every byte is checked on the way back (I13). Does not own
//! the state that makes the cut, what refers to what (`core`'s inventory), nor when anything is deleted.

mod error;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::Path;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use wasmill_core::checkpoint::inventory::{Inventory, Need};
use wasmill_core::checkpoint::manifest::{FileRef, PartState};
use wasmill_core::checkpoint::names::{self, Names};
use wasmill_core::digest::Digest;
use wasmill_core::id::{Attempt, CheckpointId};

pub use self::error::Error;
use crate::blob::{Blob, Piece, hash_file};
use crate::state::{LocalCut, LocalFile, StateBackend};

/// The version of the rows in them; see docs/formats.md.
pub const ROWS: u32 = 1;

/// New files up to this many bytes are put into one object with others: a request costs more than their bytes.
const SMALL: u64 = 128 * 1024;

/// No object of small files is begun anew before it has this many bytes.
const PACK: u64 = 4 * 1024 * 1024;

/// Files of one subtask under way at once.
const FILES_AT_ONCE: usize = 4;

/// For whom a snapshot is stored.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The store.
    pub blob: &'a Blob,
    /// The job's names.
    pub names: &'a Names,
    /// The attempt.
    pub attempt: Attempt,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

/// A stored snapshot, for the acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The state as the manifest names it.
    pub state: PartState,
    /// Bytes uploaded.
    pub bytes_new: u64,
    /// Bytes that earlier snapshots had stored.
    pub bytes_referenced: u64,
}

/// Stores what `inventory` says is not stored yet, and removes the cut's folder, also after a failure. Ends as soon as `given_up`
/// does.
///
/// # Errors
/// A store that fails; a local file that cannot be read; [`Error::GivenUp`]. What was uploaded until then is of no use and is
/// collected once a later checkpoint is decided.
pub async fn upload(
    cut: LocalCut,
    inventory: &Inventory,
    owner: Owner<'_>,
    given_up: impl Future<Output = ()>,
) -> Result<Stored, Error> {
    let stored = tokio::select! {
        stored = store(&cut, inventory, owner) => stored,
        () = given_up => Err(Error::GivenUp),
    };
    let removed = remove(&cut.dir).await;
    let stored = stored?;
    removed?;
    Ok(stored)
}

/// Removes a folder that is of no use any more; one that is not there is no error.
///
/// # Errors
/// When it cannot be removed.
pub async fn remove(dir: &Path) -> Result<(), Error> {
    let failed = |cause| Error::Folder { doing: "remove", dir: dir.to_owned(), cause };
    let path = dir.to_owned();
    match tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await {
        Ok(Err(cause)) if cause.kind() != std::io::ErrorKind::NotFound => Err(failed(cause)),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(std::io::Error::other(error))),
    }
}

/// Downloads the files of `state` into the folder `dir`, which is made anew: whatever was in it is gone. `done` is told the length
/// of each file that is there.
///
/// # Errors
/// Files of a kind that this version cannot read; a missing or damaged object, by its name; a store that fails. Nothing is
/// left in `dir` then.
pub async fn download(
    state: &PartState,
    dir: &Path,
    (blob, names): (&Blob, &Names),
    done: impl Fn(u64),
) -> Result<(), Error> {
    if StateBackend::named(&state.backend).is_none() || state.rows != ROWS {
        return Err(Error::Kind { backend: state.backend.clone(), rows: state.rows });
    }
    remove(dir).await?;
    let path = dir.to_owned();
    let made = tokio::task::spawn_blocking(move || std::fs::create_dir_all(path)).await;
    made.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|cause| Error::Folder {
        doing: "make",
        dir: dir.to_owned(),
        cause,
    })?;
    let result = stream::iter(&state.files)
        .map(|file| async move { fetch(file, dir, blob, names).await.map(|()| file.length) })
        .buffer_unordered(FILES_AT_ONCE)
        .try_for_each(|bytes| {
            done(bytes);
            std::future::ready(Ok(()))
        })
        .await;
    if result.is_err() {
        remove(dir).await?;
    }
    result
}

async fn fetch(file: &FileRef, dir: &Path, blob: &Blob, names: &Names) -> Result<(), Error> {
    let object = names.full(&file.object);
    let range = file.offset..file.offset.saturating_add(file.length);
    let piece = Piece { object: &object, range, sha256: file.sha256 };
    Ok(blob.download(&piece, &dir.join(&file.name)).await?)
}

async fn store(cut: &LocalCut, inventory: &Inventory, owner: Owner<'_>) -> Result<Stored, Error> {
    let (mut files, mut small, mut large) = (Vec::with_capacity(cut.files.len()), Vec::new(), Vec::new());
    for file in &cut.files {
        match inventory.need(&file.name, file.bytes) {
            Need::Refer(stored) => files.push(stored),
            Need::Upload if file.bytes <= SMALL => small.push(file),
            Need::Upload => large.push(file),
        }
    }
    let bytes_referenced = files.iter().map(|file| file.length).sum();
    // Made before they are streamed: a closure within the stream would not be `Send` for every lifetime.
    let packs: Vec<_> = packs(&small).into_iter().map(|pack| store_pack(cut, pack, owner)).collect();
    let packed: Vec<_> = stream::iter(packs).buffer_unordered(FILES_AT_ONCE).try_collect().await?;
    let whole: Vec<_> = large.into_iter().map(|file| store_file(cut, file, owner)).collect();
    let whole: Vec<_> = stream::iter(whole).buffer_unordered(FILES_AT_ONCE).try_collect().await?;
    let new: Vec<FileRef> = packed.into_iter().flatten().chain(whole).collect();
    let bytes_new = new.iter().map(|file| file.length).sum();
    files.extend(new);
    // By name, so that equal snapshots have equal manifests.
    files.sort_by(|one, other| one.name.cmp(&other.name));
    let state = PartState { backend: cut.backend.name().to_owned(), rows: ROWS, files, counts: cut.counts.clone() };
    Ok(Stored { state, bytes_new, bytes_referenced })
}

/// Small files, grouped into objects of about [`PACK`] bytes.
fn packs<'a>(small: &[&'a LocalFile]) -> Vec<Vec<&'a LocalFile>> {
    let mut packs: Vec<Vec<&LocalFile>> = Vec::new();
    let mut bytes = 0;
    for &file in small {
        match packs.last_mut() {
            Some(pack) if bytes < PACK => pack.push(file),
            _ => {
                packs.push(vec![file]);
                bytes = 0;
            }
        }
        bytes += file.bytes;
    }
    packs
}

async fn store_pack(cut: &LocalCut, pack: Vec<&LocalFile>, owner: Owner<'_>) -> Result<Vec<FileRef>, Error> {
    let paths: Vec<_> = pack.iter().map(|file| cut.dir.join(&file.name)).collect();
    let read = tokio::task::spawn_blocking(move || {
        let read = |path: std::path::PathBuf| std::fs::read(&path).map_err(|cause| Error::File { path, cause });
        paths.into_iter().map(read).collect::<Result<Vec<_>, _>>()
    });
    let contents = match read.await {
        Ok(contents) => contents?,
        Err(error) => return Err(Error::File { path: cut.dir.clone(), cause: std::io::Error::other(error) }),
    };
    let object = contents.concat();
    let name = names::file(Digest::of(&object), owner.checkpoint, owner.attempt);
    let mut offset = 0;
    let mut files = Vec::with_capacity(pack.len());
    for (file, content) in pack.into_iter().zip(&contents) {
        let length = content.len() as u64;
        let sha256 = Digest::of(content);
        let (object, key_groups) = (name.clone(), file.key_groups);
        files.push(FileRef { name: file.name.clone(), object, offset, length, sha256, key_groups });
        offset += length;
    }
    owner.blob.put(&owner.names.full(&name), Bytes::from(object)).await?;
    Ok(files)
}

async fn store_file(cut: &LocalCut, file: &LocalFile, owner: Owner<'_>) -> Result<FileRef, Error> {
    let path = cut.dir.join(&file.name);
    let (sha256, length) = hash_file(&path).await?;
    let object = names::file(sha256, owner.checkpoint, owner.attempt);
    owner.blob.upload(&path, sha256, length, &owner.names.full(&object)).await?;
    Ok(FileRef { name: file.name.clone(), object, offset: 0, length, sha256, key_groups: file.key_groups })
}
