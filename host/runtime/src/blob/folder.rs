//! What a store in a folder leaves behind that an object store would not: empty folders, and files half written when the
//! process died.
//!
//! Owns their removal. Does not touch objects. Everything here is best effort: what stays is in nobody's way.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Blob;

impl Blob {
    /// Removes what writers that died have left unfinished below `folder`. A writer that is alive writes again.
    pub async fn remove_unfinished(&self, folder: &str) {
        self.take_back_all_uploads(folder).await;
        let Some(root) = self.folder.as_ref().map(|root| root.join(folder)) else { return };
        // Whoever panics in there has removed nothing that is needed.
        let _ = tokio::task::spawn_blocking(move || unfinished(&root, 0)).await;
    }

    /// Removes the folders above the deleted object `name` that are empty now, within the store.
    pub(super) async fn remove_empty_folders(&self, name: &str) {
        let Some(root) = self.folder.clone() else { return };
        let object = root.join(name);
        let _ = tokio::task::spawn_blocking(move || empty_folders(&root, object)).await;
    }
}

fn empty_folders(root: &Path, mut path: PathBuf) {
    // Only an empty folder can be removed so, and whoever writes into one makes it again.
    while path.pop() && path != root && path.starts_with(root) && std::fs::remove_dir(&path).is_ok() {}
}

fn unfinished(folder: &Path, depth: u32) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 8 => unfinished(&entry.path(), depth + 1),
            Ok(kind) if kind.is_file() && is_unfinished(&entry.file_name()) => {
                if let Err(error) = std::fs::remove_file(entry.path()) {
                    tracing::debug!(path = %entry.path().display(), %error, "an unfinished file stays for now");
                }
            }
            _ => {}
        }
    }
}

/// The names under which `object_store` writes: `NAME#NUMBER`. No object has such a name.
fn is_unfinished(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.rsplit_once('#')).map(|(_, digits)| digits);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn deleted_objects_leave_no_empty_folders_and_dead_writers_no_files() {
        let dir = TempDir::new().unwrap();
        let blob = Blob::open("store", dir.path()).unwrap();
        for name in ["jobs/a/checkpoints/1/manifest.json", "jobs/a/log/0"] {
            blob.put(name, Bytes::from_static(b"x")).await.unwrap();
        }
        blob.delete("jobs/a/checkpoints/1/manifest.json").await.unwrap();
        let job = dir.path().join("store/jobs/a");
        assert!(!job.join("checkpoints").exists() && job.join("log/0").exists());
        for name in ["0#1", "0#", "#x", "0#12"] {
            std::fs::write(job.join("log").join(name), "x").unwrap();
        }
        blob.remove_unfinished("jobs/a").await;
        let mut left: Vec<_> = std::fs::read_dir(job.join("log")).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["#x", "0", "0#"]);
        blob.delete("jobs/a/log/0").await.unwrap();
        assert!(dir.path().join("store").exists(), "the store's own folder stays");
    }
}
