//! Freezing: what is in a cut, how many may wait, when the subtask waits.

use std::time::Duration;

use super::*;
use crate::clock::Clock;

/// Holds the background thread at the end of a cut until the sender is dropped.
pub(super) fn hold(rig: &mut Rig) -> mpsc::Sender<()> {
    let (go_on, held) = mpsc::channel::<()>();
    let (reached, at_hold) = mpsc::channel();
    rig.taken += 1;
    let dir = rig.next_dir();
    let on_cut = move |cut: Result<LocalCut, Error>| {
        cut.unwrap();
        reached.send(()).unwrap();
        assert!(held.recv().is_err());
    };
    rig.state.freeze(dir, Box::new(on_cut)).unwrap();
    at_hold.recv().unwrap();
    go_on
}

fn model_of(pairs: &[(&[u8], &[u8])]) -> Model {
    pairs.iter().map(|(key, value)| ((0, key.to_vec()), value.to_vec())).collect()
}

/// I3, I4. Fails where anything is written past a queued cut: on another thread, or out of order.
pub(super) fn nothing_newer_than_the_barrier_is_in_its_cut() {
    let mut rig = Rig::new(64_000);
    rig.set(0, b"a", b"before");
    let go_on = hold(&mut rig);
    rig.set(0, b"b", b"before");
    rig.freeze().unwrap();
    // Past an eighth of the budget: a write-out is due, and must come after the cut that waits.
    rig.set(0, b"a", b"after");
    rig.set(0, b"c", &[7; 9_000]);
    for _ in 0..10 {
        rig.state.maintain().unwrap();
    }
    drop(go_on);
    let cut = rig.cuts.recv().unwrap().unwrap();
    let model = model_of(&[(b"a", b"before"), (b"b", b"before")]);
    let keys = [&b"a"[..], b"b", b"c"].map(<[u8]>::to_vec).into();
    let mut restored = Rig::restored(all(), 64_000, Restore::Same { dir: cut.dir, counts: cut.counts });
    assert_holds(&mut restored.state, all(), &model, &keys);
    let model = model_of(&[(b"a", b"after"), (b"b", b"before"), (b"c", &[7; 9_000])]);
    assert_holds(&mut rig.state, all(), &model, &keys);
    let cut = rig.cut();
    let mut restored = Rig::restored(all(), 64_000, Restore::Same { dir: cut.dir, counts: cut.counts });
    assert_holds(&mut restored.state, all(), &model, &keys);
}

pub(super) fn two_snapshots_may_wait_for_their_cut_and_a_third_is_refused() {
    let mut rig = Rig::new(64_000);
    let go_on = hold(&mut rig);
    assert!(rig.state.can_freeze());
    rig.set(0, b"a", b"1");
    rig.freeze().unwrap();
    assert!(rig.state.can_freeze());
    rig.set(0, b"a", b"2");
    rig.freeze().unwrap();
    assert!(!rig.state.can_freeze());
    assert_eq!(rig.freeze(), Err(Error::TooManyFrozen { place: "op/0".to_owned() }));
    assert_eq!(rig.get(0, b"a"), Some(b"2".to_vec()));
    drop(go_on);
    for value in [b"1", b"2"] {
        let cut = rig.cuts.recv().unwrap().unwrap();
        let mut restored = Rig::restored(all(), 0, Restore::Same { dir: cut.dir, counts: cut.counts });
        assert_eq!(restored.get(0, b"a"), Some(value.to_vec()));
    }
    // Who has been told the cut may freeze at once.
    assert!(rig.state.can_freeze());
    rig.cut();
}

/// Lets the background thread go on when it is asked for the time twice: before the wait, and then forward by a second.
struct LettingGo {
    go_on: parking_lot::Mutex<Option<mpsc::Sender<()>>>,
    asked: ManualClock,
}

impl Clock for LettingGo {
    fn now(&self) -> wasmill_core::time::Timestamp {
        self.asked.now()
    }
    fn monotonic(&self) -> Duration {
        drop(self.go_on.lock().take());
        self.asked.advance(Duration::from_secs(1));
        self.asked.monotonic()
    }
}

pub(super) fn the_subtask_waits_at_a_quarter_of_the_budget_and_measures_it() {
    let root = tempfile::tempdir().unwrap();
    let clock = Arc::new(LettingGo { go_on: parking_lot::Mutex::new(None), asked: ManualClock::default() });
    let options = Options { clock: clock.clone(), ..options(&root.path().join("state"), all(), 64_000) };
    let state = KeyedState::open(options, Restore::Empty).unwrap();
    let (sender, cuts) = mpsc::channel();
    let mut rig = Rig { root, state, cuts, sender, taken: 0 };
    let go_on = hold(&mut rig);
    rig.set(0, b"a", b"1");
    rig.freeze().unwrap();
    *clock.go_on.lock() = Some(go_on);
    rig.set(0, b"b", &[1; 15_000]);
    rig.state.maintain().unwrap();
    assert_eq!((rig.state.gauges().waited, rig.state.gauges().write_outs), (Duration::ZERO, 0));
    // The thread is held, so this returns only because the wait asks for the time first, and is written out then.
    rig.set(0, b"c", &[1; 15_000]);
    rig.state.maintain().unwrap();
    assert!(rig.state.gauges().waited >= Duration::from_secs(1));
    assert_eq!(rig.state.gauges().write_outs, 1);
    assert!(rig.state.gauges().fresh_bytes < 1_000);
}

pub(super) fn a_cut_names_its_files_with_their_sizes_and_key_groups() {
    let mut rig = Rig::new(64_000);
    let keys = some_keys();
    for key in &keys {
        rig.set(0, key, b"value");
    }
    let cut = rig.cut();
    let mut names: Vec<String> =
        std::fs::read_dir(&cut.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(cut.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), names);
    let tables: Vec<&LocalFile> = cut.files.iter().filter(|file| file.key_groups.is_some()).collect();
    assert_eq!(tables.len(), 1);
    let groups: BTreeSet<KeyGroup> = keys.iter().map(|key| KeyGroup::of(key, max())).collect();
    let (first, last) = (groups.first().unwrap().0, groups.last().unwrap().0);
    assert_eq!(tables[0].key_groups, Some(KeyGroupRange { start: first, end: last + 1 }));
    for file in &cut.files {
        assert_eq!(file.bytes, std::fs::metadata(cut.dir.join(&file.name)).unwrap().len());
    }
}

pub(super) fn a_cut_shares_the_files_that_did_not_change() {
    let mut rig = Rig::new(64_000);
    rig.set(0, b"a", b"1");
    let first = rig.cut();
    rig.set(0, b"b", b"2");
    let second = rig.cut();
    let tables = |cut: &LocalCut| -> BTreeSet<String> {
        cut.files.iter().filter(|file| file.key_groups.is_some()).map(|file| file.name.clone()).collect()
    };
    assert!(tables(&second).is_superset(&tables(&first)));
    assert_eq!(tables(&second).len(), tables(&first).len() + 1);
}

pub(super) fn of_a_key_in_many_layers_the_newest_value_counts() {
    let mut rig = Rig::new(64_000);
    for round in 0..5u8 {
        rig.set(0, b"a", &[round]);
        rig.set(0, b"b", &[round]);
        rig.cut();
        assert_eq!(rig.get(0, b"a"), Some(vec![round]), "frozen");
        rig.state.maintain().unwrap();
        assert_eq!(rig.get(0, b"a"), Some(vec![round]), "settled");
        rig.set(0, b"b", b"again");
        rig.state.clear_value(0, b"a", KeyHash::of(b"a")).unwrap();
        rig.cut();
        rig.state.maintain().unwrap();
        assert_eq!((rig.get(0, b"a"), rig.get(0, b"b")), (None, Some(b"again".to_vec())), "cleared");
    }
}

pub(super) fn a_state_that_fits_the_cache_never_asks_the_backend() {
    let mut rig = Rig::new(64 << 20);
    for round in 0..5u32 {
        for key in 0..2_000u32 {
            let key = key.to_be_bytes();
            assert_eq!(rig.get(0, &key).is_some(), round > 0);
            rig.set(0, &key, &round.to_le_bytes());
        }
        rig.state.maintain().unwrap();
        rig.cut();
    }
    assert_eq!(rig.state.gauges().misses, 0);
}

pub(super) fn what_is_forgotten_is_read_again() {
    let mut rig = Rig::new(20_000);
    let keys: Vec<Vec<u8>> = (0..5_000u32).map(|key| key.to_be_bytes().to_vec()).collect();
    for (n, key) in keys.iter().enumerate() {
        rig.set(0, key, &n.to_le_bytes());
        rig.state.maintain().unwrap();
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(rig.get(0, key), Some(n.to_le_bytes().to_vec()));
        rig.state.maintain().unwrap();
    }
    let gauges = rig.state.gauges();
    assert!(gauges.misses > 4_000, "{gauges:?}");
    assert!(gauges.clean_bytes < 20_000 && gauges.fresh_bytes < 5_000, "{gauges:?}");
}
