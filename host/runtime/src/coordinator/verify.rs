//! Whether what a checkpoint names is there, byte for byte.
//!
//! Owns which bytes are compared with which checksum: an object's name holds that of the whole object, the manifest that of each
//! file. Reads and changes nothing. Does not own what is done about damage.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use wasmill_core::checkpoint::manifest::{FileRef, InFlight, Manifest};
use wasmill_core::checkpoint::names::{self, ObjectName};
use wasmill_core::digest::Digest;

use super::journal::{Error, Journal};
use crate::blob;

/// Objects that are read at once.
const AT_ONCE: usize = 8;

/// A piece of an object as a manifest describes it: where it begins, its length, its checksum.
type Piece = (u64, u64, Digest);

/// An object that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its full name.
    pub object: String,
    /// What is wrong with it.
    pub cause: String,
}

/// What was found of one checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects that it names.
    pub objects: usize,
    /// Their bytes, as far as they are there.
    pub bytes: u64,
    /// Those that are missing or damaged, by name.
    pub damaged: Vec<Damage>,
}

/// Reads the objects of checkpoints. What several name is read once.
#[derive(Default)]
pub struct Verifier {
    /// What was found of each object: its length, or what is wrong with it.
    known: BTreeMap<ObjectName, Result<u64, String>>,
}

impl Verifier {
    /// Reads every object that the manifest names and compares it with its checksums. `progress` is told of each that was read,
    /// with its bytes.
    ///
    /// # Errors
    /// A store that cannot be read. Damage is no error: it is what this is for.
    pub async fn verify(
        &mut self,
        journal: &Journal,
        manifest: &Manifest,
        progress: impl Fn(u64),
    ) -> Result<Verified, Error> {
        let mut wanted = pieces(manifest);
        wanted.retain(|object, _| !self.known.contains_key(object));
        let progress = &progress;
        let found: Vec<_> = stream::iter(wanted)
            .map(|(object, pieces)| async move {
                let found = read(journal, &object, &pieces).await?;
                progress(*found.as_ref().unwrap_or(&0));
                Ok::<_, blob::Error>((object, found))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        self.known.extend(found);
        let mut verified = Verified::default();
        for object in manifest.objects() {
            verified.objects += 1;
            match self.known.get(object) {
                Some(Ok(bytes)) => verified.bytes += bytes,
                Some(Err(cause)) => {
                    verified.damaged.push(Damage { object: journal.names().full(object), cause: cause.clone() });
                }
                None => {}
            }
        }
        Ok(verified)
    }
}

/// What the manifest says of each object; of a component nothing but its name.
fn pieces(manifest: &Manifest) -> BTreeMap<ObjectName, Vec<Piece>> {
    let mut pieces: BTreeMap<ObjectName, Vec<Piece>> = BTreeMap::new();
    for operator in manifest.operators.values() {
        pieces.entry(operator.object.clone()).or_default();
    }
    for part in &manifest.parts {
        for FileRef { object, offset, length, sha256, .. } in part.state.iter().flat_map(|state| &state.files) {
            pieces.entry(object.clone()).or_default().push((*offset, *length, *sha256));
        }
        for InFlight { object, offset, length, sha256, .. } in &part.in_flight {
            pieces.entry(object.clone()).or_default().push((*offset, *length, *sha256));
        }
    }
    pieces
}

/// The object's length, or what is wrong with it.
async fn read(journal: &Journal, object: &str, pieces: &[Piece]) -> Result<Result<u64, String>, blob::Error> {
    let full = journal.names().full(object);
    let end = pieces.iter().map(|(offset, length, _)| offset.saturating_add(*length)).max().unwrap_or(0);
    let Some((digest, length)) = journal.blob().digest(&full, end).await? else {
        return Ok(Err("it is missing".to_owned()));
    };
    if let Some(expected) = names::digest(object).filter(|expected| *expected != digest) {
        return Ok(Err(format!("it has the checksum {digest}, and its name says {expected} ({length} bytes)")));
    }
    if length < end {
        return Ok(Err(format!("it has {length} bytes, and the manifest names bytes up to {end}")));
    }
    let whole = |(offset, piece, sha256): &Piece| *offset == 0 && *piece == length && *sha256 == digest;
    if pieces.iter().all(whole) {
        return Ok(Ok(length));
    }
    // Of small files that lie in one object.
    let Some(bytes) = journal.blob().find(&full).await? else { return Ok(Err("it is missing".to_owned())) };
    let wrong = pieces.iter().find(|(offset, length, sha256)| {
        let range = usize::try_from(*offset).ok().zip(usize::try_from(offset.saturating_add(*length)).ok());
        range.and_then(|(start, end)| bytes.get(start..end)).is_none_or(|piece| Digest::of(piece) != *sha256)
    });
    Ok(match wrong {
        None => Ok(length),
        Some((offset, length, expected)) => {
            Err(format!("its {length} bytes from {offset} on do not have the checksum {expected} of the manifest"))
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wasmill_core::id::CheckpointId;

    use super::super::journal::tests::{complete, manifest, newest, open};
    use super::*;
    use crate::blob::Blob;

    /// The golden manifest with one file of `content` in the place of all that it names.
    async fn stored(journal: &Journal, id: CheckpointId, content: &[u8]) -> (Manifest, String) {
        let attempt = journal.attempt().unwrap();
        let mut manifest = manifest(id, attempt);
        let sha256 = Digest::of(content);
        let object = names::file(sha256, id, attempt);
        for operator in manifest.operators.values_mut() {
            operator.object = names::component(operator.component, attempt);
        }
        for part in &mut manifest.parts {
            part.in_flight.clear();
            for file in part.state.iter_mut().flat_map(|state| &mut state.files) {
                (file.object, file.offset, file.sha256) = (object.clone(), 0, sha256);
                file.length = content.len() as u64;
            }
        }
        journal.blob().put(&journal.names().full(&object), Bytes::copy_from_slice(content)).await.unwrap();
        (manifest, object)
    }

    #[tokio::test]
    async fn what_is_missing_cut_or_changed_is_named_and_what_is_whole_is_not() {
        let mut journal = open(&Blob::open("memory:", std::path::Path::new("/")).unwrap()).await;
        newest(&mut journal).await;
        let id = complete(&mut journal).await.unwrap();
        let (manifest, object) = stored(&journal, id, b"the state").await;
        let full = journal.names().full(&object);
        let of_file = async |journal: &Journal| {
            let verified = Verifier::default().verify(journal, &manifest, |_| {}).await.unwrap();
            verified.damaged.into_iter().find(|damage| damage.object == full).map(|damage| damage.cause)
        };
        assert_eq!(of_file(&journal).await, None);
        let verified = Verifier::default().verify(&journal, &manifest, |_| {}).await.unwrap();
        assert!(!verified.damaged.is_empty(), "the components are not stored");
        assert!(verified.damaged.iter().all(|damage| damage.cause == "it is missing"), "{verified:?}");
        for damaged in [&b"the stat"[..], b"the stote", b""] {
            journal.blob().put(&full, Bytes::copy_from_slice(damaged)).await.unwrap();
            assert!(of_file(&journal).await.unwrap().contains("its name says"));
        }
        journal.blob().delete(&full).await.unwrap();
        assert_eq!(of_file(&journal).await.unwrap(), "it is missing");
    }
}
