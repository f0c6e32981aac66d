//! Restores, and what must not be restored.

use super::*;

fn filled() -> (Rig, LocalCut, Model) {
    let mut rig = Rig::new(64_000);
    let mut model = Model::new();
    for (n, key) in some_keys().into_iter().enumerate() {
        rig.set(n % 2, &key, &[n as u8]);
        model.insert((n % 2, key), vec![n as u8]);
    }
    let cut = rig.cut();
    (rig, cut, model)
}

pub(super) fn a_restore_leaves_the_cut_as_it_was() {
    let (_rig, cut, model) = filled();
    let names = |dir: &Path| -> BTreeSet<(String, u64)> {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
    };
    let before = names(&cut.dir);
    let keys: BTreeSet<Vec<u8>> = some_keys().into_iter().collect();
    for _ in 0..2 {
        let mut restored =
            Rig::restored(all(), 1_000, Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() });
        assert_holds(&mut restored.state, all(), &model, &keys);
        restored.set(0, b"more", b"more");
        restored.cut();
        assert_eq!(names(&cut.dir), before);
    }
}

pub(super) fn a_cut_can_be_deleted_once_it_is_restored() {
    let (rig, cut, model) = filled();
    let mut restored = Rig::restored(all(), 0, Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() });
    std::fs::remove_dir_all(&cut.dir).unwrap();
    drop(rig);
    assert_holds(&mut restored.state, all(), &model, &some_keys().into_iter().collect());
    let cut = restored.cut();
    let mut again = Rig::restored(all(), 0, Restore::Same { dir: cut.dir, counts: cut.counts });
    assert_holds(&mut again.state, all(), &model, &some_keys().into_iter().collect());
}

pub(super) fn what_an_earlier_attempt_left_in_the_folder_is_not_restored() {
    let (rig, _, _) = filled();
    let Rig { root, state, .. } = rig;
    drop(state);
    let mut state = KeyedState::open(options(&root.path().join("state"), all(), 0), Restore::Empty).unwrap();
    assert_holds(&mut state, all(), &Model::new(), &some_keys().into_iter().collect());
}

pub(super) fn a_state_that_is_no_longer_declared_is_kept() {
    let (_rig, cut, model) = filled();
    let counts = cut.counts.clone();
    for restore in [
        Restore::Same { dir: cut.dir.clone(), counts: counts.clone() },
        Restore::Rows { dirs: vec![cut.dir.clone()], counts: counts.clone() },
    ] {
        let root = tempfile::tempdir().unwrap();
        let mut fewer = options(&root.path().join("state"), all(), 0);
        fewer.states.remove(0);
        let mut state = KeyedState::open(fewer, restore).unwrap();
        let (sender, cuts) = mpsc::channel();
        state.freeze(root.path().join("cut"), Box::new(move |cut| sender.send(cut).unwrap())).unwrap();
        let cut = cuts.recv().unwrap().unwrap();
        assert_eq!(cut.counts.total(), counts.total());
        let mut again = Rig::restored(all(), 0, Restore::Same { dir: cut.dir, counts: cut.counts });
        assert_holds(&mut again.state, all(), &model, &some_keys().into_iter().collect());
    }
}

pub(super) fn a_state_that_is_new_begins_empty() {
    let (_rig, cut, _) = filled();
    let root = tempfile::tempdir().unwrap();
    let mut more = options(&root.path().join("state"), all(), 0);
    more.states
        .insert(0, StateSpec { name: StateName::new("new").unwrap(), kind: StateKind::Value, version: 1, ttl: None });
    let mut state = KeyedState::open(more, Restore::Same { dir: cut.dir, counts: cut.counts.clone() }).unwrap();
    assert_eq!(load(&mut state, 0, &some_keys()), vec![None; some_keys().len()]);
    assert_eq!(load(&mut state, 1, &[vec![]]), [Some(vec![0])]);
    assert_eq!(state.counts().total(), cut.counts.total());
}

pub(super) fn a_value_of_another_schema_version_is_refused_naming_both() {
    let (_rig, cut, _) = filled();
    let root = tempfile::tempdir().unwrap();
    let mut newer = options(&root.path().join("state"), all(), 0);
    newer.states[0].version = 2;
    let mut state = KeyedState::open(newer, Restore::Same { dir: cut.dir, counts: cut.counts }).unwrap();
    let error = state.value(0, b"", KeyHash::of(b"")).unwrap_err();
    assert_eq!(error, Error::Version { place: "op/0".to_owned(), state: state_name(0), found: 1, declared: 2 });
}

pub(super) fn a_damaged_cut_is_refused_naming_the_folder() {
    let (_rig, cut, _) = filled();
    for file in &cut.files {
        std::fs::write(cut.dir.join(&file.name), b"damaged").unwrap();
    }
    for restore in [
        Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() },
        Restore::Rows { dirs: vec![cut.dir.clone()], counts: cut.counts.clone() },
    ] {
        let root = tempfile::tempdir().unwrap();
        let error = KeyedState::open(options(root.path(), all(), 0), restore).err().unwrap();
        let begin = match backend() {
            StateBackend::Rocksdb => "op/0: RocksDB cannot open in `/",
            StateBackend::Memory => "op/0: the row file `/",
        };
        assert!(error.to_string().starts_with(begin), "{error}");
    }
}
