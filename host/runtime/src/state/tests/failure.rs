//! Misuse and failures: each is an error that names its place, and none is lost.

use wasmill_core::fault::FaultKind;

use super::*;

pub(super) fn a_folder_in_use_is_refused_until_it_is_closed() {
    let rig = Rig::new(0);
    let dir = rig.root.path().join("state");
    let error = KeyedState::open(options(&dir, all(), 0), Restore::Empty).err().unwrap();
    assert_eq!(error, Error::InUse { place: "op/0".to_owned(), dir: dir.clone() });
    assert_eq!(error.kind(), FaultKind::Refused);
    let Rig { root: _root, state, .. } = rig;
    drop(state);
    KeyedState::open(options(&dir, all(), 0), Restore::Empty).unwrap();
}

/// S8.
pub(super) fn s8_a_key_of_another_subtask_is_an_internal_error() {
    let range = KeyGroupRange { start: 0, end: 8 };
    let mut rig = Rig::restored(range, 0, Restore::Empty);
    let foreign = some_keys().into_iter().find(|key| !range.contains(KeyGroup::of(key, max()))).unwrap();
    let hash = KeyHash::of(&foreign);
    let expected = Error::OutsideRange { place: "op/0".to_owned(), group: hash.group(max()), range };
    assert_eq!(rig.state.value(0, &foreign, hash), Err(expected.clone()));
    assert_eq!(rig.state.set_value(0, &foreign, hash, b"x"), Err(expected.clone()));
    assert_eq!(rig.state.clear_value(0, &foreign, hash), Err(expected.clone()));
    let (mut present, mut bytes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let out = EagerOut { present: &mut present, bytes: &mut bytes, ends: &mut ends };
    let keys: Column = [foreign.as_slice()].into_iter().collect();
    assert_eq!(rig.state.load_values(0, &keys, &[hash], out), Err(expected));
}

#[test]
fn an_undeclared_state_is_an_internal_error() {
    let mut rig = Rig::new(0);
    let error = rig.state.set_value(2, b"k", KeyHash::of(b"k"), b"v").unwrap_err();
    assert_eq!(error.kind(), FaultKind::Internal);
    assert_eq!(error.to_string(), "op/0: there is no state with index 2: a bug of wasmill, please report it");
}

/// R3: a cut that cannot be taken is an error to whoever waits for it and to the subtask; a restart goes on.
pub(super) fn a_failed_cut_is_told_and_the_state_takes_no_more_until_it_is_opened_again() {
    let mut rig = Rig::new(64_000);
    rig.set(0, b"a", b"1");
    let good = rig.cut();
    // The folder of the next cut is there already.
    rig.taken += 1;
    std::fs::create_dir_all(rig.next_dir()).unwrap();
    rig.taken -= 1;
    rig.set(0, b"a", b"2");
    rig.freeze().unwrap();
    let told = rig.cuts.recv().unwrap().unwrap_err();
    assert_eq!(told.kind(), FaultKind::External);
    assert_eq!(rig.state.value(0, b"a", KeyHash::of(b"a")), Err(told.clone()));
    assert_eq!(rig.state.set_value(0, b"a", KeyHash::of(b"a"), b"3"), Err(told.clone()));
    assert_eq!(rig.state.maintain(), Err(told.clone()));
    assert_eq!(rig.freeze(), Err(told));
    let Rig { root, state, .. } = rig;
    drop(state);
    let again = options(&root.path().join("state"), all(), 64_000);
    let mut state = KeyedState::open(again, Restore::Same { dir: good.dir, counts: good.counts }).unwrap();
    assert_eq!(load(&mut state, 0, &[b"a".to_vec()]), [Some(b"1".to_vec())]);
}

pub(super) fn a_panic_on_the_background_thread_is_returned_by_the_next_call() {
    let mut rig = Rig::new(64_000);
    rig.freeze().unwrap();
    rig.cuts.recv().unwrap().unwrap();
    let dir = rig.root.path().join("panics");
    rig.state.freeze(dir, Box::new(|_| panic!("no {}", "luck"))).unwrap();
    // Queued behind the panic: told it, too.
    let refused = rig.freeze().map_or_else(Err, |()| rig.cuts.recv().unwrap().map(drop)).unwrap_err();
    assert_eq!(refused, Error::Panicked { place: "op/0".to_owned(), message: "no luck".to_owned() });
    assert_eq!(rig.state.maintain(), Err(refused));
}

pub(super) fn a_snapshot_that_waits_while_the_state_is_closed_is_told() {
    let mut rig = Rig::new(64_000);
    let (go_on, held) = mpsc::channel::<()>();
    let dir = rig.root.path().join("held");
    rig.state.freeze(dir, Box::new(move |_| assert!(held.recv().is_err()))).unwrap();
    rig.freeze().unwrap();
    let Rig { root: _root, state, cuts, .. } = rig;
    // The thread is let go only once it is told to close, so the second cut cannot be taken before.
    let closing = std::thread::scope(|scope| {
        let closer = scope.spawn(move || drop(state));
        drop(go_on);
        closer.join()
    });
    closing.unwrap();
    match cuts.recv().unwrap() {
        Ok(_) => {}
        Err(error) => assert_eq!(error, Error::Closed { place: "op/0".to_owned() }),
    }
}
