//! Compiled components on disk, so that a component is compiled once and loaded in a millisecond or so afterwards.
//!
//! Owns the folder, the entries' format and the one `unsafe` of wasmill: giving machine code from a file to wasmtime. Does not
//! own what is compiled.
//!
//! # Why that is sound
//!
//! wasmtime asks that the bytes be what it wrote itself, unchanged. The folder and the entry must belong to this process's user
//! and be writable by nobody else, so that only what could as well replace the `wasmill` binary can write an entry. Against
//! accidents each entry names the component's digest and the engine and configuration that made it, and carries the SHA-256 of
//! its payload, all checked before the payload is touched. An entry appears by a rename, whole or not at all.
//!
//! # Format, version 1
//!
//! File name `<digest>-<engine>.compiled`. Numbers are little-endian: magic `wasmillc` (8 bytes), version u32, SHA-256 of the
//! component (32), hash of engine and configuration u64, length of the payload u64, SHA-256 of the payload (32), payload.

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

/// Raised when the way in which components are compiled or entries are written changes.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"wasmillc";
const HEADER_BYTES: usize = 8 + 4 + 32 + 8 + 8 + 32;

/// Most entries that are kept; the oldest go first. The largest seen (CPython) has 60 MB, one in Rust 0.1.
const ENTRIES: usize = 64;

/// The folder of compiled components.
#[derive(Debug)]
pub(super) struct CompileCache {
    dir: PathBuf,
    engine_hash: u64,
    warned: AtomicBool,
}

/// Why an entry cannot be used. None of these fails a load.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is writable by other users")]
    NotPrivate,
    #[error("it is damaged or of another version")]
    Damaged,
    #[error("wasmtime refuses it: {0}")]
    Refused(String),
}

impl CompileCache {
    pub(super) fn new(dir: PathBuf, engine: &wasmtime::Engine) -> Self {
        // XXH3 and not std's hasher, whose results may differ between releases of Rust.
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        hasher.write_u32(VERSION);
        Self { dir, engine_hash: hasher.finish(), warned: AtomicBool::new(false) }
    }

    /// The compiled component of this digest; `None` where there is none that can be used.
    pub(super) fn load(&self, engine: &wasmtime::Engine, digest: &[u8; 32]) -> Option<wasmtime::component::Component> {
        let path = self.entry(digest);
        let loaded = self.read(&path, digest).and_then(|payload| deserialize(engine, &payload));
        match loaded {
            Ok(component) => Some(component),
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(reason) => {
                tracing::warn!(entry = %path.display(), %reason, "a compiled component cannot be used and is compiled anew");
                None
            }
        }
    }

    /// Keeps a compiled component. Where that fails it is said once, and the job goes on.
    pub(super) fn store(&self, digest: &[u8; 32], component: &wasmtime::component::Component) {
        let stored = component.serialize().map_err(io::Error::other).and_then(|payload| self.write(digest, &payload));
        if let Err(error) = stored
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            let dir = self.dir.display();
            tracing::warn!(%dir, %error, "compiled components cannot be kept: each start compiles them anew");
        }
    }

    fn entry(&self, digest: &[u8; 32]) -> PathBuf {
        self.dir.join(format!("{}-{:016x}.compiled", hex(digest), self.engine_hash))
    }

    fn read(&self, path: &Path, digest: &[u8; 32]) -> Result<Vec<u8>, Unusable> {
        let mut file = File::open(path)?;
        private(&fs::metadata(&self.dir)?)?;
        private(&file.metadata()?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let header = bytes.get(..HEADER_BYTES).ok_or(Unusable::Damaged)?;
        let payload = &bytes[HEADER_BYTES..];
        if *header != self.header(digest, payload) {
            return Err(Unusable::Damaged);
        }
        bytes.drain(..HEADER_BYTES);
        Ok(bytes)
    }

    fn write(&self, digest: &[u8; 32], payload: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        private(&fs::metadata(&self.dir)?).map_err(|_| io::Error::other("the folder is writable by other users"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(&self.header(digest, payload))?;
        file.write_all(payload)?;
        file.persist(self.entry(digest))?;
        self.forget_oldest()
    }

    fn header(&self, digest: &[u8; 32], payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let fields: [&[u8]; 6] = [
            MAGIC,
            &VERSION.to_le_bytes(),
            digest,
            &self.engine_hash.to_le_bytes(),
            &(payload.len() as u64).to_le_bytes(),
            &Sha256::digest(payload),
        ];
        let mut at = 0;
        for field in fields {
            header[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        header
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(&self.dir)?
            .filter_map(Result::ok)
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "compiled"))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES);
        for (_, path) in entries.drain(..surplus) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Whether only this process's user can have written it.
fn private(metadata: &Metadata) -> Result<(), Unusable> {
    let mine = metadata.uid() == rustix::process::geteuid().as_raw();
    if mine && metadata.mode() & 0o022 == 0 { Ok(()) } else { Err(Unusable::NotPrivate) }
}

#[expect(unsafe_code, reason = "machine code is taken from a file; the module's head says why that is sound")]
fn deserialize(engine: &wasmtime::Engine, payload: &[u8]) -> Result<wasmtime::component::Component, Unusable> {
    // SAFETY: the payload was written by `CompileCache::write` from `Component::serialize`, by this user, and its digest was
    // checked; wasmtime itself checks that the engine's version and settings are its own.
    unsafe { wasmtime::component::Component::deserialize(engine, payload) }
        .map_err(|error| Unusable::Refused(format!("{error:#}")))
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
