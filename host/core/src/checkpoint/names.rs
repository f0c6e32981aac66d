//! Names of all stored objects, in one place. A name once given out is never given another meaning.
//!
//! Owns the paths within a checkpoint store. Does not own what the objects hold.
//!
//! Manifests and log entries name objects **relative to the job's folder**, so that a job's folder can be copied to another
//! store or name and still restores.

use crate::checkpoint::log::Seq;
use crate::digest::Digest;
use crate::id::{Attempt, CheckpointId, JobId};

/// An object's name relative to the job's folder, such as `files/<sha256>-7-2`.
pub type ObjectName = String;

/// The full names of a job's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    folder: String,
}

impl Names {
    /// Of the job `job`.
    #[must_use]
    pub fn new(job: &JobId) -> Self {
        Self { folder: format!("jobs/{job}") }
    }

    /// The job's folder, without a slash at the end.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The full name of an object that a manifest or a log entry names.
    #[must_use]
    pub fn full(&self, object: &str) -> String {
        format!("{}/{object}", self.folder)
    }

    /// The reverse of [`Names::full`]; `None` for what lies outside the job's folder.
    #[must_use]
    pub fn relative<'a>(&self, full: &'a str) -> Option<&'a str> {
        full.strip_prefix(&self.folder)?.strip_prefix('/')
    }

    /// The log entry `seq`.
    #[must_use]
    pub fn log_entry(&self, seq: Seq) -> String {
        format!("{}/log/{:012}", self.folder, seq.0)
    }
}

/// A checkpoint's manifest. An id is used by one attempt only, so nobody else writes this object.
#[must_use]
pub fn manifest(checkpoint: CheckpointId) -> ObjectName {
    format!("checkpoints/{:012}/manifest.json", checkpoint.0)
}

/// The folder of all manifests, for cleaning.
pub const MANIFESTS: &str = "checkpoints";

/// The folder of all state files, for cleaning.
pub const FILES: &str = "files";

/// The folder of all components, for cleaning.
pub const COMPONENTS: &str = "components";

/// The checkpoint whose manifest `object` is.
#[must_use]
pub fn manifest_checkpoint(object: &str) -> Option<CheckpointId> {
    let id = object.strip_prefix("checkpoints/")?.strip_suffix("/manifest.json")?;
    number(id).map(CheckpointId)
}

/// A state file: what it holds, the checkpoint that uploaded it, the attempt that did.
///
/// The checkpoint stands in the name so that a file uploaded now never has the name of one that is just being deleted,
/// though it may have its content; the attempt, so that an old attempt's cleaner cannot mean a later attempt's file.
#[must_use]
pub fn file(content: Digest, checkpoint: CheckpointId, attempt: Attempt) -> ObjectName {
    format!("files/{content}-{checkpoint}-{attempt}")
}

/// The checkpoint and the attempt that uploaded the state file `object`.
#[must_use]
pub fn file_origin(object: &str) -> Option<(CheckpointId, Attempt)> {
    let mut parts = object.strip_prefix("files/")?.split('-');
    parts.next()?.parse::<Digest>().ok()?;
    let checkpoint = number(parts.next()?)?;
    let attempt = number(parts.next()?)?;
    parts.next().is_none().then_some((CheckpointId(checkpoint), Attempt(attempt)))
}

/// A component: its digest and the attempt that stored it, for the reason given at [`file`].
#[must_use]
pub fn component(digest: Digest, attempt: Attempt) -> ObjectName {
    format!("components/{digest}-{attempt}.wasm")
}

/// The attempt that stored the component `object`.
#[must_use]
pub fn component_attempt(object: &str) -> Option<Attempt> {
    let (digest, attempt) = object.strip_prefix("components/")?.strip_suffix(".wasm")?.split_once('-')?;
    digest.parse::<Digest>().ok()?;
    number(attempt).map(Attempt)
}

/// The checksum of the object's bytes that its name holds; a manifest's name holds none.
#[must_use]
pub fn digest(object: &str) -> Option<Digest> {
    let name = object.strip_prefix("files/").or_else(|| object.strip_prefix("components/"))?;
    name.split_once('-')?.0.parse().ok()
}

/// Whether `object` is a plain relative name: what a manifest names can never lead out of the job's folder.
#[must_use]
pub fn is_relative(object: &str) -> bool {
    let plain = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    object.len() <= 512 && object.split('/').all(plain)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned() {
        let names = Names::new(&JobId::new("flights").unwrap());
        let digest = Digest::of(b"");
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(names.log_entry(Seq(42)), "jobs/flights/log/000000000042");
        assert_eq!(manifest(CheckpointId(7)), "checkpoints/000000000007/manifest.json");
        assert_eq!(file(digest, CheckpointId(7), Attempt(2)), format!("files/{hex}-7-2"));
        assert_eq!(component(digest, Attempt(2)), format!("components/{hex}-2.wasm"));
        assert_eq!(names.full("files/x"), "jobs/flights/files/x");
        assert_eq!(names.relative("jobs/flights/files/x"), Some("files/x"));
        assert_eq!(names.relative("jobs/flights2/files/x"), None);
    }

    #[test]
    fn a_name_tells_where_it_came_from() {
        let digest = Digest::of(b"");
        let object = file(digest, CheckpointId(7), Attempt(2));
        assert_eq!(file_origin(&object), Some((CheckpointId(7), Attempt(2))));
        assert_eq!(component_attempt(&component(digest, Attempt(3))), Some(Attempt(3)));
        assert_eq!(super::digest(&object), Some(digest));
        assert_eq!(super::digest(&component(digest, Attempt(3))), Some(digest));
        assert_eq!(super::digest(&manifest(CheckpointId(1))), None);
        assert_eq!(manifest_checkpoint(&manifest(CheckpointId(u64::MAX))), Some(CheckpointId(u64::MAX)));
        for other in
            ["files/x-1-2", "files/-1-2", "checkpoints/+7/manifest.json", "components/x", &format!("{object}-1")]
        {
            assert_eq!(file_origin(other), None, "{other}");
            assert_eq!(component_attempt(other), None, "{other}");
            assert_eq!(manifest_checkpoint(other), None, "{other}");
        }
    }

    #[test]
    fn a_stored_name_cannot_leave_its_folder() {
        assert!(is_relative("files/abc-1-2"));
        for bad in ["", "/etc/passwd", "../x", "files/../../x", "files//x", "a b", "files/x#1", "é"] {
            assert!(!is_relative(bad), "{bad:?}");
        }
    }
}
