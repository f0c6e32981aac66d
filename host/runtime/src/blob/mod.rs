//! The checkpoint store: objects by name in a folder, in memory, or in the store of a cloud.
//!
//! Owns retries, deadlines and the check of every byte that a checksum is known for (I13); the sole importer of `object_store`.
//! Does not own what the objects are called or mean. Files: `location` (which store), `retry`, `transfer` (files up and
//! down), `uploads` and `folder` (what dead writers leave behind), `error`.

mod error;
#[cfg(test)]
pub(crate) mod faulty;
mod folder;
mod location;
mod retry;
#[cfg(test)]
mod tests;
mod transfer;
mod uploads;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as Name;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

pub use self::error::{Damage, Error};
pub use self::retry::Retry;
pub use self::transfer::{Piece, hash_file};
use self::uploads::{Left, OpenUploads};

/// Whether a create-if-absent created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// The object was not there, and is now what was put.
    Created,
    /// An object was there. It may be what was put: a lost reply is answered so. Read it to know.
    Exists,
}

/// An object that a listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its full name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A handle on a store; clones are cheap and share it.
///
/// Every method retries what may be temporary, with jittered backoff, until the deadline of its [`Retry`].
#[derive(Debug, Clone)]
pub struct Blob {
    store: Arc<dyn ObjectStore>,
    prefix: Name,
    /// The folder, where the store is one.
    folder: Option<Arc<Path>>,
    /// What lists uploads that dead writers left open, where it takes that.
    uploads: Option<OpenUploads>,
    left: Left,
    /// For messages.
    location: Arc<str>,
    retry: Retry,
}

impl Blob {
    /// The store at `location`: a path (relative ones to `base`), or a URL with `file://`, `s3://`, `gs://`, `az://` or
    /// `memory:`. Nothing is read or made yet.
    ///
    /// `memory://NAME` is one store for the whole process, `memory:` a new one. S3 takes its region, endpoint and credentials
    /// from the `AWS_…` variables that every S3 tool reads, Google's store from `GOOGLE_…`, Azure's from `AZURE_…`.
    ///
    /// # Errors
    /// [`Error::Location`].
    ///
    /// ```
    /// use std::path::Path;
    /// use wasmill_runtime::blob::Blob;
    /// assert!(Blob::open("memory:", Path::new("/")).is_ok());
    /// assert!(Blob::open("ftp://host/x", Path::new("/")).is_err());
    /// ```
    pub fn open(location: &str, base: &Path) -> Result<Self, Error> {
        let opened = location::open(location, base)?;
        let folder = opened.folder.map(Arc::from);
        Ok(Self {
            store: opened.store,
            prefix: opened.prefix,
            folder,
            uploads: opened.uploads,
            left: Left::default(),
            location: location.into(),
            retry: Retry::default(),
        })
    }

    /// The same store with other patience.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    #[cfg(test)]
    pub(crate) fn of(store: Arc<dyn ObjectStore>) -> Self {
        let retry = Retry { first: std::time::Duration::ZERO, ..Retry::default() };
        let (uploads, left) = (None, Left::default());
        Self { store, prefix: Name::default(), folder: None, uploads, left, location: "memory:test".into(), retry }
    }

    /// The location as it was written.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Writes and removes a small object, so that a store that cannot be written is told at the start.
    ///
    /// # Errors
    /// What any write would fail with.
    pub async fn check_writable(&self) -> Result<(), Error> {
        let probe = format!("wasmill-probe-{:016x}", retry::random());
        self.put(&probe, Bytes::from_static(b"may be deleted\n")).await?;
        self.delete(&probe).await
    }

    /// The whole object.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none.
    pub async fn get(&self, name: &str) -> Result<Bytes, Error> {
        self.find(name)
            .await?
            .ok_or_else(|| Error::Missing { object: name.to_owned(), store: self.location.to_string() })
    }

    /// The whole object, or `None` where there is none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let path = self.path(name)?;
        self.retrying("read", name, || async {
            match self.store.get(&path).await {
                Ok(result) => {
                    let length = result.meta.size;
                    let bytes = result.bytes().await?;
                    transfer::whole(length, bytes).map(Some)
                }
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Whether there is such an object.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn exists(&self, name: &str) -> Result<bool, Error> {
        let path = self.path(name)?;
        self.retrying("look for", name, || async {
            match self.store.head(&path).await {
                Ok(_) => Ok(true),
                Err(StoreError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Writes the object, in place of one that may be there. Durable on return.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let path = self.path(name)?;
        self.retrying("write", name, || async {
            self.store.put(&path, PutPayload::from_bytes(bytes.clone())).await.map(drop)
        })
        .await
    }

    /// Writes the object unless there is one. Durable on return.
    ///
    /// # Errors
    /// When the store cannot be written; then the object may have been written nevertheless.
    pub async fn put_if_absent(&self, name: &str, bytes: Bytes) -> Result<Put, Error> {
        let path = self.path(name)?;
        self.retrying("create", name, || async {
            let options = PutOptions::from(PutMode::Create);
            match self.store.put_opts(&path, PutPayload::from_bytes(bytes.clone()), options).await {
                Ok(_) => Ok(Put::Created),
                // Some S3 servers answer a failed precondition so.
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(Put::Exists),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Removes the object; one that is not there is no error.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name)?;
        self.retrying("delete", name, || async {
            match self.store.delete(&path).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await?;
        self.remove_empty_folders(name).await;
        Ok(())
    }

    /// All objects below the folder `folder`, in no order. A listing may be stale: use it for cleaning, never to decide.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let path = self.path(folder)?;
        let metas: Vec<_> =
            self.retrying("list", folder, || async { self.store.list(Some(&path)).try_collect().await }).await?;
        let listed = metas.into_iter().filter_map(|meta| {
            let name = meta.location.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned());
            Some(Listed { name: name.collect::<Vec<_>>().join("/"), bytes: meta.size })
        });
        Ok(listed.collect())
    }

    fn path(&self, name: &str) -> Result<Name, Error> {
        let relative = Name::parse(name).map_err(|error| Error::Refused {
            doing: "name",
            object: name.to_owned(),
            store: self.location.to_string(),
            cause: error.to_string(),
        })?;
        Ok(self.prefix.parts().chain(relative.parts()).collect())
    }
}

/// A fresh random name of 32 hex digits, to tell one writer from another.
#[must_use]
pub fn random_id() -> String {
    format!("{:016x}{:016x}", retry::random(), retry::random())
}
