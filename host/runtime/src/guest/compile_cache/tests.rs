//! Entries that hit, and entries that must not: damaged, not private. Owns no rule.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::guest::tests::module;
use crate::guest::{Engine, EngineOptions};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("made/by/cache")
    }

    fn engine(&self) -> Engine {
        Engine::new(EngineOptions { cache_dir: Some(self.path()) }).unwrap()
    }

    fn entry(&self) -> PathBuf {
        let mut entries: Vec<_> = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }

    /// Whether the one entry serves the module without compiling: loaded straight from the cache.
    fn hits(&self) -> bool {
        let engine = self.engine();
        let digest: [u8; 32] = Sha256::digest(module()).into();
        engine.cache().unwrap().load(engine.wasmtime(), &digest).is_some()
    }
}

#[test]
fn a_component_is_compiled_once_and_found_by_the_next_engine() {
    let folder = Folder::new();
    assert!(!folder.hits());
    folder.engine().load_bytes("op", &module()).unwrap();
    assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(folder.hits());
    let written = fs::metadata(folder.entry()).unwrap().ino();
    folder.engine().load_bytes("op", &module()).unwrap();
    assert_eq!(fs::metadata(folder.entry()).unwrap().ino(), written);
}

#[test]
fn a_damaged_entry_is_compiled_anew_and_replaced() {
    let folder = Folder::new();
    folder.engine().load_bytes("op", &module()).unwrap();
    let path = folder.entry();
    let good = fs::read(&path).unwrap();
    let damaged = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let payload = HEADER_BYTES + 1000;
    let mut entries = vec![vec![], good[..HEADER_BYTES - 1].to_vec(), good[..good.len() / 2].to_vec()];
    entries.extend([0, 8, 12, 44, 52, 60, payload].map(damaged));
    for bytes in entries {
        fs::write(&path, &bytes).unwrap();
        assert!(!folder.hits(), "{} bytes", bytes.len());
        folder.engine().load_bytes("op", &module()).unwrap();
        assert!(fs::read(folder.entry()).unwrap() == good);
    }
}

#[test]
fn an_entry_that_others_can_write_is_not_used() {
    let folder = Folder::new();
    folder.engine().load_bytes("op", &module()).unwrap();
    for path in [folder.entry(), folder.path()] {
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(before.mode() | 0o002)).unwrap();
        assert!(!folder.hits(), "{}", path.display());
        fs::set_permissions(&path, before).unwrap();
        assert!(folder.hits());
    }
}

#[test]
fn a_folder_that_cannot_be_used_does_not_keep_a_component_from_loading() {
    let folder = Folder::new();
    fs::write(folder.0.path().join("made"), "a file in the way").unwrap();
    folder.engine().load_bytes("op", &module()).unwrap();
}

#[test]
fn the_oldest_entries_make_room() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path()).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for index in 0..ENTRIES + 5 {
        fs::write(folder.path().join(format!("{index}.compiled")), "").unwrap();
    }
    folder.engine().load_bytes("op", &module()).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), ENTRIES);
    assert!(folder.hits());
}
