//! What the backend in memory promises of its own: how much memory it takes, and how large its files grow.

use wasmill_core::fault::FaultKind;

use super::*;

/// A state in memory without a cache, whose rows may take so many bytes.
fn rig(shared: &SharedMemory) -> Rig {
    let options =
        |dir: &Path| Options { backend: StateBackend::Memory, shared: shared.clone(), ..options(dir, all(), 0) };
    Rig::open(options, Restore::Empty)
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

#[test]
fn rows_that_outgrow_their_memory_stop_the_state_and_the_error_says_what_to_do() {
    let shared = SharedMemory::new(100_000);
    let (mut one, mut other) = (rig(&shared), rig(&shared));
    for n in 0..300 {
        one.set(0, &key(n), &[7; 100]);
    }
    one.cut();
    for n in 0..300 {
        other.set(0, &key(n), &[7; 100]);
    }
    other.freeze().unwrap();
    let error = other.cuts.recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::Full { limit: 100_000, .. }), "{error}");
    assert_eq!(error.kind(), FaultKind::User, "a restart would come to the same");
    assert!(error.to_string().contains("state.memory") && error.to_string().contains("\"rocksdb\""), "{error}");
    assert_eq!(other.state.maintain(), Err(error));
    // What is written over takes no more, and what is there can be made smaller.
    for n in 0..300 {
        one.set(0, &key(n), &[8; 100]);
    }
    one.cut();
}

#[test]
fn memory_is_given_back_and_told() {
    let shared = SharedMemory::new(1 << 20);
    let idle = shared.used();
    let mut rig = rig(&shared);
    for n in 0..1_000 {
        rig.set(0, &key(n), &[7; 100]);
    }
    rig.cut();
    let rows = rig.state.gauges().rows_bytes;
    assert!((150_000..250_000).contains(&rows), "{rows}");
    assert_eq!(shared.used() - idle, rows as usize);
    for n in 0..990 {
        rig.state.clear_value(0, &key(n), KeyHash::of(&key(n))).unwrap();
    }
    rig.cut();
    assert_eq!(rig.state.gauges().rows_bytes, rows / 100);
    let Rig { root: _root, state, .. } = rig;
    drop(state);
    assert_eq!(shared.used(), idle);
}

#[test]
fn the_files_of_a_cut_stay_few_and_no_larger_than_twice_the_rows() {
    let mut rig = rig(&SharedMemory::new(64 << 20));
    for n in 0..1_000 {
        rig.set(0, &key(n), &[7; 100]);
    }
    let mut model = Model::new();
    for round in 0..100u32 {
        // Every value written over, so that all but the newest is of no use.
        for n in 0..1_000 {
            rig.set(0, &key(n), &round.to_be_bytes().repeat(30));
            model.insert((0, key(n).to_vec()), round.to_be_bytes().repeat(30));
        }
        let cut = rig.cut();
        let bytes: u64 = cut.files.iter().map(|file| file.bytes).sum();
        assert!(cut.files.len() <= 33 && bytes < 2 * 200_000 + (2 << 20), "{} files, {bytes} bytes", cut.files.len());
        let on_disk = std::fs::read_dir(rig.root.path().join("state/db")).unwrap().count();
        assert_eq!(on_disk, cut.files.len(), "what no cut needs is gone");
        if round % 40 == 39 {
            let restore = Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() };
            let shared = SharedMemory::new(64 << 20);
            let options = |dir: &Path| Options { backend: StateBackend::Memory, shared, ..options(dir, all(), 0) };
            let mut again = Rig::open(options, restore);
            assert_holds(&mut again.state, all(), &model, &(0..1_000).map(|n| key(n).to_vec()).collect());
            // It goes on with names that were not used.
            again.set(0, b"more", b"more");
            let next = again.cut();
            assert!(next.files.iter().any(|file| cut.files.iter().all(|before| before.name < file.name)));
        }
    }
}
