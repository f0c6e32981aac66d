//! From what the pipeline file says to a store.
//!
//! Owns the kinds of location, and how their servers are spoken to. Does not read or write.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Name;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use parking_lot::Mutex;
use url::Url;

use super::Error;
use super::uploads::OpenUploads;

/// What a location may be, for messages.
const KINDS: &str = "a path, file://, s3://, gs://, az:// or memory:";

/// A store and the folder in it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Name,
    /// The folder, where it is one.
    pub(super) folder: Option<PathBuf>,
    /// What finds uploads in parts that dead writers left open, where the store keeps them until somebody does.
    pub(super) uploads: Option<OpenUploads>,
}

impl Opened {
    fn at(store: Arc<dyn ObjectStore>, prefix: Name) -> Self {
        Self { store, prefix, folder: None, uploads: None }
    }
}

/// The named stores in memory, for as long as the process lives.
static IN_MEMORY: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

pub(super) fn open(location: &str, base: &Path) -> Result<Opened, Error> {
    let refused = |reason: String| Error::Location { location: without_user(location), reason };
    match scheme(location) {
        None if location.is_empty() => Err(refused("it is empty; name a path or a URL".to_owned())),
        None => folder(&base.join(location)).map_err(refused),
        Some("memory") => Ok(in_memory(location)),
        Some("file") => {
            let url = Url::parse(location).map_err(|error| refused(error.to_string()))?;
            let path = url.to_file_path().map_err(|()| refused("a file URL is file:///path".to_owned()))?;
            folder(&path).map_err(refused)
        }
        Some("s3" | "s3a") => s3(location).map_err(refused),
        Some("gs") => google(location).map_err(refused),
        Some("az" | "abfs" | "abfss") => azure(location).map_err(refused),
        Some(scheme) => Err(refused(format!("{scheme}: is no known kind; use {KINDS}"))),
    }
}

/// What stands before the first colon, where that is a scheme: one letter would be a drive, and a path may hold colons
/// further on.
fn scheme(location: &str) -> Option<&str> {
    location.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

/// The location without what may be a password.
fn without_user(location: &str) -> String {
    match Url::parse(location) {
        Ok(mut url) if url.password().is_some() || url.query().is_some() => {
            url.set_query(None);
            // Only a URL that can have no password refuses.
            let _ = url.set_password(None);
            url.to_string()
        }
        _ => location.to_owned(),
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
    Ok(Opened { folder: Some(absolute), ..Opened::at(store, prefix) })
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
    Opened::at(store, Name::default())
}

/// Of requests to a store behind HTTP. The library's own limit of 30 seconds for a whole request would cut off large objects on
/// slow lines: a request that stands still is given up, and the deadlines of `retry` bound the rest.
const CLIENT: [(ClientConfigKey, &str); 3] =
    [(ClientConfigKey::ConnectTimeout, "10s"), (ClientConfigKey::ReadTimeout, "60s"), (ClientConfigKey::Timeout, "1h")];

/// Short: the patient retries are this module's, which also cover a request that the store accepted and did not answer.
fn retry() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2.0 };
    RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(20) }
}

fn s3(location: &str) -> Result<Opened, String> {
    let prefix = prefix(location)?;
    let mut builder = AmazonS3Builder::from_env().with_url(location).with_retry(retry());
    for (key, value) in CLIENT {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    // The store then refuses bytes that are not those that were sent, part by part.
    if builder.get_config_value(&AmazonS3ConfigKey::Checksum).is_none() {
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    let store = Arc::new(builder.build().map_err(|error| error.to_string())?);
    let uploads = OpenUploads::new(Arc::clone(&store)).map_err(|error| error.to_string())?;
    Ok(Opened { uploads: Some(uploads), ..Opened::at(store, prefix) })
}

fn google(location: &str) -> Result<Opened, String> {
    let prefix = prefix(location)?;
    let mut builder = GoogleCloudStorageBuilder::from_env().with_url(location).with_retry(retry());
    for (key, value) in CLIENT {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    let store = builder.build().map_err(|error| error.to_string())?;
    Ok(Opened::at(Arc::new(store), prefix))
}

fn azure(location: &str) -> Result<Opened, String> {
    let prefix = prefix(location)?;
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(location).with_retry(retry());
    for (key, value) in CLIENT {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    let store = builder.build().map_err(|error| error.to_string())?;
    Ok(Opened::at(Arc::new(store), prefix))
}

/// The folder that a URL names within its bucket.
fn prefix(location: &str) -> Result<Name, String> {
    let url = Url::parse(location).map_err(|error| error.to_string())?;
    if url.password().is_some() || url.query().is_some() {
        return Err("a URL holds no credentials and no query: they come from the environment".to_owned());
    }
    Name::from_url_path(url.path()).map_err(|error| error.to_string())
}
