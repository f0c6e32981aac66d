//! Components' files that change while their job runs.
//!
//! Owns when a file counts as changed: its content is another one, and it has stopped changing.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use wasmill_core::digest::Digest;
use wasmill_runtime::config::Pipeline;

/// How often files are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Looks after the components of a pipeline.
pub struct Watch {
    files: Vec<Watched>,
    looked: Duration,
}

struct Watched {
    path: PathBuf,
    /// As of the last look.
    stamp: Option<Stamp>,
    /// Of the content that was last taken for current.
    digest: Option<Digest>,
    /// Whether the stamp changed at the last look.
    settling: bool,
}

type Stamp = (SystemTime, u64);

impl Watch {
    /// Takes the files as they are for current. `now` is any monotonic time.
    pub fn new(pipeline: &Pipeline, now: Duration) -> Self {
        let paths = pipeline.operators.iter().map(|operator| operator.component.clone());
        Self { files: paths.map(Watched::new).collect(), looked: now }
    }

    /// The first file that has changed since, if it is time to look.
    pub fn changed(&mut self, now: Duration) -> Option<PathBuf> {
        if now.saturating_sub(self.looked) < EVERY {
            return None;
        }
        self.looked = now;
        self.files.iter_mut().find_map(|file| file.changed().then(|| file.path.clone()))
    }
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        let mut file = Self { path, stamp: None, digest: None, settling: false };
        file.stamp = file.stamp_now();
        file.digest = file.digest_now();
        file
    }

    /// Whether the content is another one, and was written before the last look: a file that is still being written waits.
    fn changed(&mut self) -> bool {
        let stamp = self.stamp_now();
        if stamp != self.stamp {
            self.stamp = stamp;
            self.settling = true;
            return false;
        }
        if !std::mem::take(&mut self.settling) {
            return false;
        }
        match self.digest_now() {
            Some(digest) if self.digest != Some(digest) => {
                self.digest = Some(digest);
                true
            }
            _ => false,
        }
    }

    fn stamp_now(&self) -> Option<Stamp> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    fn digest_now(&self) -> Option<Digest> {
        std::fs::read(&self.path).ok().map(|bytes| Digest::of(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_once_its_new_content_stands_still() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("op.wasm");
        std::fs::write(&path, "one").unwrap();
        let mut file = Watched::new(path.clone());
        assert!(!file.changed());
        std::fs::write(&path, "three").unwrap();
        assert!(!file.changed(), "it may still be being written");
        assert!(file.changed());
        assert!(!file.changed(), "it is told once");
        std::fs::remove_file(&path).unwrap();
        assert!(!file.changed() && !file.changed(), "a file that is gone is about to be written");
        std::fs::write(&path, "three").unwrap();
        assert!(!file.changed() && !file.changed(), "the same content is no change");
    }
}
