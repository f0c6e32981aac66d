//! From what the pipeline file says to a store.
//!
//! Owns the kinds of location. Does not read or write.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Name;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use parking_lot::Mutex;
use url::Url;

use super::Error;

/// A store and the folder in it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Name,
    /// The folder, where it is one.
    pub(super) folder: Option<PathBuf>,
}

/// The named stores in memory, for as long as the process lives.
static IN_MEMORY: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

pub(super) fn open(location: &str, base: &Path) -> Result<Opened, Error> {
    let refused = |reason: String| Error::Location { location: location.to_owned(), reason };
    // One letter before the colon would be a drive, and a path may hold colons further on.
    let scheme = location.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    match scheme {
        None if location.is_empty() => Err(refused("it is empty; name a path or a URL".to_owned())),
        None => folder(&base.join(location)).map_err(refused),
        Some("memory") => Ok(in_memory(location)),
        Some("file") => {
            let url = Url::parse(location).map_err(|error| refused(error.to_string()))?;
            let path = url.to_file_path().map_err(|()| refused("a file URL is file:///path".to_owned()))?;
            folder(&path).map_err(refused)
        }
        Some("s3" | "s3a") => s3(location).map_err(refused),
        Some(scheme @ ("gs" | "az" | "abfs" | "abfss")) => {
            Err(refused(format!("this wasmill is built without {scheme}://; use a path, file://, s3:// or memory:")))
        }
        Some(scheme) => Err(refused(format!("{scheme}: is no known kind; use a path, file://, s3:// or memory:"))),
    }
}

fn folder(path: &Path) -> Result<Opened, String> {
    let absolute = without_parents(&std::path::absolute(path).map_err(|error| error.to_string())?);
    if absolute.exists() && !absolute.is_dir() {
        return Err("it is a file and should be a folder".to_owned());
    }
    let prefix = Name::from_absolute_path(&absolute).map_err(|error| error.to_string())?;
    // Without fsync a power cut could keep a decision and lose what it names.
    let store = Arc::new(LocalFileSystem::new().with_fsync(true));
    Ok(Opened { store, prefix, folder: Some(absolute) })
}

/// The path without `..`, which names of objects cannot hold; a link before it is followed first, as the system would.
fn without_parents(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain = plain.canonicalize().unwrap_or(plain);
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}

fn in_memory(location: &str) -> Opened {
    let name = location.trim_start_matches("memory:").trim_matches('/');
    let store = if name.is_empty() {
        Arc::new(InMemory::new())
    } else {
        Arc::clone(IN_MEMORY.lock().entry(name.to_owned()).or_default())
    };
    Opened { store, prefix: Name::default(), folder: None }
}

fn s3(location: &str) -> Result<Opened, String> {
    let url = Url::parse(location).map_err(|error| error.to_string())?;
    let prefix = Name::from_url_path(url.path()).map_err(|error| error.to_string())?;
    // Short: the patient retries are this module's, which also cover a request that the store accepted and did not answer.
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(20) };
    let store =
        AmazonS3Builder::from_env().with_url(location).with_retry(retry).build().map_err(|error| error.to_string())?;
    Ok(Opened { store: Arc::new(store), prefix, folder: None })
}
