//! Checkpoints: from acknowledgements to a manifest, from the manifest to a decision, and back from there to a restore.
//!
//! Owns the protocol and the stored formats (docs/formats.md). Does not own storage: `wasmill-runtime` reads and writes.
//!
//! The path of one checkpoint: [`tracker`] collects the subtasks' acknowledgements until they are complete, [`manifest`]
//! makes them one stored object, [`log`] says that it is prepared and then decided, [`retention`] what may go. [`inventory`]
//! says which files a snapshot must upload, [`restore`] which files a new subtask fetches.

pub mod counts;
pub mod elements;
pub mod inventory;
pub mod log;
pub mod manifest;
pub mod names;
pub mod restore;
pub mod retention;
pub mod sealed;
pub mod tracker;
