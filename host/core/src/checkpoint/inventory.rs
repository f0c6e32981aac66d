//! Which files of a local cut a snapshot must upload, and which an earlier one has stored already.
//!
//! Owns that a snapshot refers only to files of this subtask's newest *decided* snapshot: a decided checkpoint that is
//! the newest is never retired, so what it names is there. Does not own the files.
//!
//! A file is known again by its name and length, which is sound for names that a database never uses twice and for files that it
//! never changes: [`is_immutable`]. Everything else (a database's own manifest and options) is stored each time.

use std::collections::BTreeMap;

use crate::checkpoint::manifest::{FileRef, PartState};
use crate::id::CheckpointId;

/// What one subtask's earlier snapshots have stored.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The files of the newest decided snapshot, by local name.
    base: BTreeMap<String, FileRef>,
    /// Snapshots stored and not decided yet.
    stored: BTreeMap<CheckpointId, Vec<FileRef>>,
}

/// What to do with one file of a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// It must be uploaded.
    Upload,
    /// It is stored already, here.
    Refer(FileRef),
}

/// Whether a file of this name never changes and its name is never used for another within the life of a state folder.
#[must_use]
pub fn is_immutable(name: &str) -> bool {
    [".sst", ".blob", ".rows"].iter().any(|kind| name.ends_with(kind))
}

impl Inventory {
    /// Nothing is stored: the next snapshot is full.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// After a restore that opened the files of `state` as they are, under their names.
    #[must_use]
    pub fn restored(state: &PartState) -> Self {
        Self { base: by_name(&state.files), stored: BTreeMap::new() }
    }

    /// What to do with the local file `name` of `bytes` bytes.
    #[must_use]
    pub fn need(&self, name: &str, bytes: u64) -> Need {
        match self.base.get(name) {
            Some(file) if is_immutable(name) && file.length == bytes => Need::Refer(file.clone()),
            _ => Need::Upload,
        }
    }

    /// The snapshot of `checkpoint` is stored as `files`.
    pub fn stored(&mut self, checkpoint: CheckpointId, files: &[FileRef]) {
        self.stored.insert(checkpoint, files.to_vec());
    }

    /// `checkpoint` is decided: later snapshots may refer to its files, and no longer to those of earlier ones.
    pub fn decided(&mut self, checkpoint: CheckpointId) {
        let later = self.stored.split_off(&CheckpointId(checkpoint.0.saturating_add(1)));
        let passed = std::mem::replace(&mut self.stored, later);
        // Where the decided checkpoint is not this subtask's own, what was stored before it is of no use either.
        if let Some((_, files)) = passed.into_iter().next_back().filter(|(id, _)| *id == checkpoint) {
            self.base = by_name(&files);
        }
    }

    /// `checkpoint` was given up: nothing of it may be referred to.
    pub fn given_up(&mut self, checkpoint: CheckpointId) {
        self.stored.remove(&checkpoint);
    }
}

fn by_name(files: &[FileRef]) -> BTreeMap<String, FileRef> {
    files.iter().filter(|file| is_immutable(&file.name)).map(|file| (file.name.clone(), file.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn file(name: &str, checkpoint: u64) -> FileRef {
        let object = format!("files/{name}-{checkpoint}");
        let (offset, length) = (0, 10);
        FileRef { name: name.to_owned(), object, offset, length, sha256: Digest::of(b"x"), key_groups: None }
    }

    fn refers(inventory: &Inventory, name: &str) -> bool {
        matches!(inventory.need(name, 10), Need::Refer(_))
    }

    #[test]
    fn only_files_of_the_newest_decided_snapshot_are_referred_to() {
        let mut inventory = Inventory::new();
        inventory.stored(CheckpointId(1), &[file("1.sst", 1), file("CURRENT", 1)]);
        assert!(!refers(&inventory, "1.sst"), "not decided yet");
        inventory.decided(CheckpointId(1));
        assert_eq!(inventory.need("1.sst", 10), Need::Refer(file("1.sst", 1)));
        inventory.stored(CheckpointId(2), &[file("2.sst", 2)]);
        inventory.stored(CheckpointId(3), &[file("2.sst", 3), file("3.sst", 3)]);
        inventory.given_up(CheckpointId(2));
        inventory.decided(CheckpointId(2));
        assert!(!refers(&inventory, "2.sst"), "given up");
        inventory.decided(CheckpointId(3));
        assert!(refers(&inventory, "2.sst") && refers(&inventory, "3.sst"));
        assert!(!refers(&inventory, "1.sst"), "no longer in the newest");
    }

    #[test]
    fn a_file_that_may_change_is_always_uploaded() {
        let mut inventory = Inventory::new();
        inventory.stored(CheckpointId(1), &[file("MANIFEST-000004", 1), file("CURRENT", 1), file("7.sst", 1)]);
        inventory.decided(CheckpointId(1));
        assert_eq!(inventory.need("CURRENT", 10), Need::Upload);
        assert_eq!(inventory.need("MANIFEST-000004", 10), Need::Upload);
        assert_eq!(inventory.need("7.sst", 11), Need::Upload, "another length is another file");
    }
}
