//! Maps and lists: what is asked of the backend, what is kept in memory, what clearing leaves.

use super::*;

fn rig(cache_bytes: usize) -> Rig {
    Rig::open(|dir| mixed(dir, all(), cache_bytes), Restore::Empty)
}

/// The same state over what a cut holds, with nothing in memory.
fn reopened(cut: &LocalCut, cache_bytes: usize) -> Rig {
    let restore = Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() };
    Rig::open(|dir| mixed(dir, all(), cache_bytes), restore)
}

fn name(n: usize) -> Vec<u8> {
    (n as u32).to_be_bytes().to_vec()
}

fn filled(rig: &mut Rig, key: &[u8], entries: usize) {
    for n in 0..entries {
        rig.put(key, &name(n), b"value");
    }
}

fn misses(rig: &Rig) -> u64 {
    rig.state.gauges().misses
}

pub(super) fn s2_a_key_of_all_ones_has_its_own_entries_only() {
    let keys: [&[u8]; 4] = [b"\xff", b"\xff\x00", b"\xff\xff", b"\xfe"];
    let names: [&[u8]; 3] = [b"\x00", b"\x7f", b"\xff"];
    // In the cache, and in the backend.
    for (budget, cuts) in [(64_000, false), (64_000, true), (0, true)] {
        let mut rig = rig(budget);
        for key in keys {
            for name in names {
                rig.put(key, name, key);
            }
        }
        if cuts {
            let cut = rig.cut();
            rig = reopened(&cut, budget);
        }
        let three = |key: &[u8]| names.map(|name| (name.to_vec(), key.to_vec())).to_vec();
        assert_eq!(rig.map(b"\xff", 2), three(b"\xff"));
        let up = Range { lower: Bound::Excluded(b"\x00"), upper: Bound::Included(b"\xff"), reverse: true };
        assert_eq!(rig.page(b"\xff", up, 9).names.iter().collect::<Vec<_>>(), [b"\xff", b"\x7f"]);
        rig.state.map_clear(MAP, b"\xff", KeyHash::of(b"\xff")).unwrap();
        let cut = rig.cut();
        for mut rig in [rig, reopened(&cut, budget)] {
            assert_eq!(rig.map(b"\xff", 2), []);
            for key in &keys[1..] {
                assert_eq!(rig.map(key, 2), three(key));
            }
            assert_eq!(rig.state.counts().total().entries, 9);
        }
    }
}

/// S6, with a cache a fifth of what is appended.
pub(super) fn s6_appends_never_read_and_all_is_read_back_in_order() {
    const COUNT: usize = 20_000;
    let budget = 4 << 20;
    let mut rig = rig(budget);
    let element = |n: usize| [&n.to_be_bytes()[..], &[7; 1016]].concat();
    let mut first = None;
    for n in 0..COUNT {
        rig.append(b"k", &[&element(n)]);
        if n % 100 == 99 {
            rig.state.maintain().unwrap();
            let Gauges { fresh_bytes, clean_bytes, .. } = rig.state.gauges();
            assert!(fresh_bytes <= budget as u64 / 2 && clean_bytes <= 2 * budget as u64);
        }
        if n == COUNT / 2 {
            first = Some(rig.cut());
        }
    }
    assert_eq!(misses(&rig), 0);
    rig.append(b"k", &[b"one more"]);
    assert_eq!(rig.length(b"k"), COUNT as u64 + 1);
    let cut = rig.cut();
    // After a restore the length is read once, and again nothing is.
    let mut again = reopened(&cut, budget);
    again.append(b"k", &[b"after"]);
    again.append(b"k", &[b"the restore"]);
    assert_eq!(misses(&again), 1);
    for (rig, tail) in [(&mut rig, 1), (&mut again, 3)] {
        let all = rig.list(b"k", 1_000);
        assert_eq!(all.len(), COUNT + tail);
        assert!((0..COUNT).all(|n| all[n] == element(n)));
        assert_eq!(all[COUNT], b"one more");
    }
    let mut middle = reopened(&first.unwrap(), budget);
    assert_eq!(middle.length(b"k"), COUNT as u64 / 2 + 1);
    assert_eq!(middle.elements(b"k", COUNT as u64 / 2, 9), [element(COUNT / 2)]);
}

pub(super) fn what_is_in_the_cache_is_not_asked_of_the_backend() {
    let mut rig = rig(1 << 20);
    filled(&mut rig, b"k", 1_000);
    rig.append(b"k", &[b"0", b"1", b"2"]);
    let cut = rig.cut();
    rig.state.maintain().unwrap();
    // What the state itself wrote: it knows that there is nothing else.
    assert_eq!(rig.entry(b"k", &name(5)), Some(b"value".to_vec()));
    assert_eq!(rig.entry(b"k", b"no such"), None);
    assert_eq!(rig.map(b"k", 100).len(), 1_000);
    assert_eq!(rig.list(b"k", 2).len(), 3);
    rig.put(b"new", b"a", b"1");
    assert_eq!(misses(&rig), 0);
    // What was read once, be it absent.
    let mut rig = reopened(&cut, 1 << 20);
    for _ in 0..2 {
        assert_eq!(rig.entry(b"k", &name(5)), Some(b"value".to_vec()));
        assert_eq!(rig.entry(b"k", b"no such"), None);
        rig.put(b"k", &name(5), b"value");
        rig.remove(b"k", b"no such");
        assert_eq!(misses(&rig), 2);
    }
    // Many at once.
    let wanted: Vec<Vec<u8>> = (0..50).map(name).collect();
    rig.state.map_load(MAP, wanted.iter().map(|name| (&b"k"[..], KeyHash::of(b"k"), &name[..]))).unwrap();
    let asked = misses(&rig);
    assert!(wanted.iter().all(|name| rig.entry(b"k", name).is_some()));
    assert_eq!(misses(&rig), asked);
}

pub(super) fn a_small_map_is_read_whole_when_it_is_asked_for_again() {
    let mut rig = rig(1 << 20);
    filled(&mut rig, b"k", 100);
    let cut = rig.cut();
    let mut rig = reopened(&cut, 1 << 20);
    for n in 0..100 {
        assert!(rig.entry(b"k", &name(n)).is_some());
    }
    assert_eq!(rig.map(b"k", 1_000).len(), 100);
    assert_eq!(misses(&rig), 2);
}

pub(super) fn clearing_costs_the_same_however_many_entries_there_are() {
    for entries in [1, 256, 257, 5_000] {
        let mut rig = rig(1 << 20);
        filled(&mut rig, b"k", entries);
        filled(&mut rig, b"other", 3);
        let cut = rig.cut();
        let mut rig = reopened(&cut, 1 << 20);
        rig.state.map_clear(MAP, b"k", KeyHash::of(b"k")).unwrap();
        // The head, and nothing else.
        assert_eq!(misses(&rig), 1);
        assert_eq!(rig.state.counts().total().entries, 3);
        rig.put(b"k", &name(1), b"again");
        let cut = rig.cut();
        for mut rig in [rig, reopened(&cut, 0)] {
            assert_eq!(rig.map(b"k", 100), [(name(1), b"again".to_vec())]);
            assert_eq!(rig.map(b"other", 100).len(), 3);
        }
    }
}

pub(super) fn an_entry_written_and_removed_before_the_barrier_leaves_nothing() {
    let mut rig = rig(1 << 20);
    rig.put(b"k", b"a", b"1");
    rig.remove(b"k", b"a");
    rig.append(b"k", &[b"1"]);
    rig.state.list_clear(LIST, b"k", KeyHash::of(b"k")).unwrap();
    let cut = rig.cut();
    assert_eq!(cut.counts.total(), Tally::default());
    let rows = Restore::Rows { dirs: vec![cut.dir], counts: cut.counts };
    let mut again = Rig::open(|dir| mixed(dir, all(), 0), rows);
    assert_eq!((again.map(b"k", 9).len(), again.length(b"k")), (0, 0));
    assert_eq!(again.state.counts().total(), Tally::default());
}

pub(super) fn a_page_ends_by_bytes_and_an_entry_that_is_larger_is_a_page() {
    let mut rig = rig(64 << 20);
    for n in 0..5 {
        rig.put(b"k", &name(n), &vec![n as u8; PAGE_BYTES / 2]);
        rig.append(b"k", &[&vec![n as u8; PAGE_BYTES / 2]]);
    }
    rig.put(b"k", &name(0), &vec![0; 2 * PAGE_BYTES]);
    assert_eq!(rig.page(b"k", Range::ALL, 100).values.len(), 1);
    assert_eq!(rig.map(b"k", 100).len(), 5);
    assert_eq!(rig.elements(b"k", 0, 100).len(), 2);
    assert_eq!(rig.list(b"k", 100).len(), 5);
}

pub(super) fn bounds_that_cross_hold_nothing() {
    let mut rig = rig(64_000);
    filled(&mut rig, b"k", 3);
    let (low, high) = (name(0), name(2));
    let cases = [
        (Bound::Included(&high[..]), Bound::Included(&low[..]), 0),
        (Bound::Excluded(&low[..]), Bound::Excluded(&low[..]), 0),
        (Bound::Included(&low[..]), Bound::Excluded(&low[..]), 0),
        (Bound::Included(&low[..]), Bound::Included(&low[..]), 1),
        (Bound::Included(&low[..]), Bound::Excluded(&high[..]), 2),
        (Bound::Excluded(&low[..]), Bound::Unbounded, 2),
    ];
    let cut = rig.cut();
    for mut rig in [rig, reopened(&cut, 0)] {
        for (lower, upper, expected) in cases {
            for reverse in [false, true] {
                assert_eq!(rig.page(b"k", Range { lower, upper, reverse }, 9).names.len(), expected);
            }
        }
        let none = rig.page(b"k", Range::ALL, 0);
        assert!(none.names.is_empty() && none.more);
        assert_eq!(rig.elements(b"k", 7, 9), Vec::<Vec<u8>>::new());
    }
}

pub(super) fn removed_entries_do_not_pile_up_in_the_way_of_a_scan() {
    let mut rig = rig(1 << 20);
    for round in 0..20 {
        for n in 0..500 {
            rig.put(b"k", &name(round * 500 + n), b"queued");
            rig.remove(b"k", &name(round * 500 + n));
        }
        rig.put(b"k", &name(0), b"stays");
        rig.cut();
        rig.state.maintain().unwrap();
        assert_eq!(rig.map(b"k", 10).len(), 1);
    }
    assert!(rig.state.gauges().clean_bytes < 1_000, "{:?}", rig.state.gauges());
}

#[test]
fn a_state_used_as_another_kind_is_an_error() {
    let mut rig = rig(0);
    let error = rig.state.map_get(LIST, b"k", KeyHash::of(b"k"), b"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "op/0: state `log` was used as one of another kind: a bug of wasmill, please report it"
    );
    assert!(rig.state.value(MAP, b"k", KeyHash::of(b"k")).is_err());
    assert!(rig.state.list_append(0, b"k", KeyHash::of(b"k"), []).is_err());
}

pub(super) fn a_state_whose_kind_has_changed_is_refused_at_its_first_row() {
    let mut rig = Rig::new(0);
    rig.set(0, b"k", b"value");
    let cut = rig.cut();
    let mut changed = Rig::open(
        |dir| {
            let mut options = mixed(dir, all(), 0);
            options.states[0].kind = StateKind::Map;
            options
        },
        Restore::Same { dir: cut.dir, counts: cut.counts },
    );
    let error = changed.state.map_get(0, b"k", KeyHash::of(b"k"), b"a").unwrap_err();
    assert!(matches!(error, Error::Row { reason: RowError::NoHead, .. }), "{error}");
}
