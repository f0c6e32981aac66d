//! What every backend promises, as a table: each line is a test, run over each of them.
//!
//! Owns the table, and the promises that are about backends alone. The other tests stand in the files that the table names.

use std::collections::BTreeMap;

use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, Timer};

use super::*;

/// Makes of each promise a test over each backend, such as `conformance::memory::restore::a_cut_can_be_deleted`.
macro_rules! conformance {
    ($($file:ident: $($promise:ident),+;)+) => {
        mod rocksdb {
            $(mod $file {
                $(#[test]
                fn $promise() {
                    $crate::state::tests::with(crate::state::StateBackend::Rocksdb, $crate::state::tests::$file::$promise);
                })+
            })+
        }
        mod memory {
            $(mod $file {
                $(#[test]
                fn $promise() {
                    $crate::state::tests::with(crate::state::StateBackend::Memory, $crate::state::tests::$file::$promise);
                })+
            })+
        }
    };
}

conformance! {
    conformance:
        empty_is_not_absent_and_cleared_is,
        s4_a_map_changed_while_it_is_scanned_by_pages_follows_the_rule,
        what_is_written_while_a_cut_waits_is_not_in_it,
        rows_go_from_two_subtasks_to_three_and_back_and_none_comes_back,
        s8_every_key_counts_on_after_a_restore_at_three,
        a_cut_is_restored_into_the_other_backend,
        a_folder_without_a_cut_is_refused;
    collection:
        s2_a_key_of_all_ones_has_its_own_entries_only,
        s6_appends_never_read_and_all_is_read_back_in_order,
        what_is_in_the_cache_is_not_asked_of_the_backend,
        a_small_map_is_read_whole_when_it_is_asked_for_again,
        clearing_costs_the_same_however_many_entries_there_are,
        an_entry_written_and_removed_before_the_barrier_leaves_nothing,
        a_page_ends_by_bytes_and_an_entry_that_is_larger_is_a_page,
        bounds_that_cross_hold_nothing,
        removed_entries_do_not_pile_up_in_the_way_of_a_scan,
        a_state_whose_kind_has_changed_is_refused_at_its_first_row;
    freeze:
        nothing_newer_than_the_barrier_is_in_its_cut,
        two_snapshots_may_wait_for_their_cut_and_a_third_is_refused,
        the_subtask_waits_at_a_quarter_of_the_budget_and_measures_it,
        a_cut_names_its_files_with_their_sizes_and_key_groups,
        a_cut_shares_the_files_that_did_not_change,
        of_a_key_in_many_layers_the_newest_value_counts,
        a_state_that_fits_the_cache_never_asks_the_backend,
        what_is_forgotten_is_read_again;
    restore:
        a_restore_leaves_the_cut_as_it_was,
        a_cut_can_be_deleted_once_it_is_restored,
        what_an_earlier_attempt_left_in_the_folder_is_not_restored,
        a_state_that_is_no_longer_declared_is_kept,
        a_state_that_is_new_begins_empty,
        a_value_of_another_schema_version_is_refused_naming_both,
        a_damaged_cut_is_refused_naming_the_folder;
    failure:
        a_folder_in_use_is_refused_until_it_is_closed,
        s8_a_key_of_another_subtask_is_an_internal_error,
        a_failed_cut_is_told_and_the_state_takes_no_more_until_it_is_opened_again,
        a_panic_on_the_background_thread_is_returned_by_the_next_call,
        a_snapshot_that_waits_while_the_state_is_closed_is_told;
    timers:
        timers_survive_a_restore_of_the_same_range,
        timers_go_with_their_keys_to_other_ranges;
}

const BACKENDS: [StateBackend; 2] = [StateBackend::Rocksdb, StateBackend::Memory];

fn rig(cache_bytes: usize) -> Rig {
    Rig::open(|dir| mixed(dir, all(), cache_bytes), Restore::Empty)
}

fn same(cut: &LocalCut) -> Restore {
    Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() }
}

fn rows(cuts: &[&LocalCut]) -> Restore {
    let mut counts = Counts::default();
    cuts.iter().for_each(|cut| counts.merge(&cut.counts));
    Restore::Rows { dirs: cuts.iter().map(|cut| cut.dir.clone()).collect(), counts }
}

pub(super) fn empty_is_not_absent_and_cleared_is() {
    for budget in [0, 64_000] {
        let mut rig = rig(budget);
        rig.set(0, b"", b"");
        rig.set(1, b"", b"x");
        rig.set(0, b"cleared", b"x");
        rig.put(b"", b"", b"");
        rig.put(b"", b"removed", b"");
        rig.put(b"cleared", b"a", b"x");
        rig.append(b"", &[b"", b""]);
        rig.append(b"cleared", &[b"x"]);
        let before = rig.cut();
        rig.state.clear_value(0, b"cleared", KeyHash::of(b"cleared")).unwrap();
        rig.remove(b"", b"removed");
        rig.state.map_clear(MAP, b"cleared", KeyHash::of(b"cleared")).unwrap();
        rig.state.list_clear(LIST, b"cleared", KeyHash::of(b"cleared")).unwrap();
        let cut = rig.cut();
        let open = |restore| Rig::open(|dir| mixed(dir, all(), budget), restore);
        let mut earlier = open(same(&before));
        for mut rig in [rig, open(same(&cut)), open(rows(&[&cut]))] {
            assert_eq!((rig.get(0, b""), rig.get(1, b"")), (Some(vec![]), Some(b"x".to_vec())));
            assert_eq!((rig.get(0, b"cleared"), rig.get(1, b"cleared")), (None, None));
            assert_eq!((rig.entry(b"", b""), rig.entry(b"", b"removed")), (Some(vec![]), None));
            assert_eq!(rig.map(b"", 9), [(vec![], vec![])]);
            assert_eq!((rig.map(b"cleared", 9).len(), rig.length(b"cleared")), (0, 0));
            assert_eq!(rig.list(b"", 9), [b"", b""]);
            assert_eq!(rig.state.counts().total().entries, 5);
        }
        assert_eq!((earlier.get(0, b"cleared"), earlier.length(b"cleared")), (Some(b"x".to_vec()), 1));
    }
}

fn name(n: usize) -> Vec<u8> {
    (n as u32).to_be_bytes().to_vec()
}

/// Each page holds the entries that are there when it is asked for, from behind the last one of the page before.
pub(super) fn s4_a_map_changed_while_it_is_scanned_by_pages_follows_the_rule() {
    const PAGE: usize = 128;
    for (budget, entries) in [(0, 1), (0, 127), (0, 128), (0, 129), (64_000, 129), (0, 10_000), (4 << 20, 10_000)] {
        let mut rig = rig(budget);
        let mut model = BTreeMap::new();
        for n in 0..entries {
            rig.put(b"k", &name(2 * n), b"old");
            model.insert(name(2 * n), b"old".to_vec());
        }
        rig.cut();
        let (mut last, mut round): (Option<Vec<u8>>, usize) = (None, 0);
        loop {
            let lower = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let range = Range { lower, ..Range::ALL };
            let page = rig.page(b"k", range, PAGE);
            let ahead = || model.range::<[u8], _>(range.bounds());
            let expected: Vec<_> = ahead().take(PAGE).map(|(name, value)| (name.clone(), value.clone())).collect();
            let found = page.names.iter().zip(page.values.iter()).map(|(n, v)| (n.to_vec(), v.to_vec()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{entries} entries, page {round}");
            assert_eq!(page.more, ahead().count() > PAGE);
            let Some((seen, _)) = expected.last() else { break };
            // Every other entry seen is removed, the page's last among them.
            for (name, _) in expected.iter().rev().step_by(2) {
                rig.remove(b"k", name);
                model.remove(name);
            }
            let at = usize::try_from(u32::from_be_bytes(seen.as_slice().try_into().unwrap())).unwrap();
            // Ahead: the next one overwritten, a new one, one that goes before it is reached; behind: a new one.
            for (n, value) in
                [(at + 2, Some(&b"new"[..])), (at + 3, Some(b"added")), (at + 4, None), (1, Some(b"behind"))]
            {
                match value {
                    Some(value) if n < 2 * entries => {
                        rig.put(b"k", &name(n), value);
                        model.insert(name(n), value.to_vec());
                    }
                    Some(_) => {}
                    None => {
                        rig.remove(b"k", &name(n));
                        model.remove(&name(n));
                    }
                }
            }
            if round % 3 == 0 {
                rig.cut();
                rig.state.maintain().unwrap();
            }
            last = Some(seen.clone());
            round += 1;
        }
        assert_eq!(rig.map(b"k", PAGE), model.into_iter().collect::<Vec<_>>());
    }
}

pub(super) fn what_is_written_while_a_cut_waits_is_not_in_it() {
    let mut rig = rig(64_000);
    let write = |rig: &mut Rig, round: u8| {
        rig.set(0, b"k", &[round]);
        rig.put(b"k", &[round], &[round]);
        rig.append(b"k", &[&[round]]);
        let timer = Timer { time: Timestamp::from_millis(i64::from(round)), key: b"k", tag: 0 };
        rig.state.set_timer(Domain::Event, &timer, KeyHash::of(b"k")).unwrap();
    };
    // Held, frozen behind it, and fresh.
    write(&mut rig, 0);
    let go_on = freeze::hold(&mut rig);
    write(&mut rig, 1);
    rig.freeze().unwrap();
    write(&mut rig, 2);
    assert_eq!((rig.get(0, b"k"), rig.map(b"k", 9).len(), rig.length(b"k")), (Some(vec![2]), 3, 3));
    drop(go_on);
    let cut = rig.cuts.recv().unwrap().unwrap();
    let mut restored = Rig::open(|dir| mixed(dir, all(), 64_000), same(&cut));
    assert_eq!((restored.get(0, b"k"), restored.length(b"k")), (Some(vec![1]), 2));
    assert_eq!(restored.map(b"k", 9), [(vec![0], vec![0]), (vec![1], vec![1])]);
    assert_eq!(restored.state.drop_timers(Domain::Event).unwrap(), 2);
}

fn ranges(parallelism: u16) -> Vec<KeyGroupRange> {
    let end = |n: u16| 16 * n / parallelism;
    (0..parallelism).map(|n| KeyGroupRange { start: end(n), end: end(n + 1) }).collect()
}

/// What each of the states holds of a key: its round.
fn write_round(rigs: &mut [(KeyGroupRange, Rig)], keys: &[Vec<u8>], round: u8) {
    for (range, rig) in rigs {
        for (n, key) in keys.iter().enumerate().filter(|(_, key)| range.contains(KeyGroup::of(key, max()))) {
            let hash = KeyHash::of(key);
            // A third of the keys goes away in each round, another third each time.
            if n % 3 == usize::from(round) % 3 {
                rig.state.clear_value(0, key, hash).unwrap();
                rig.state.map_clear(MAP, key, hash).unwrap();
                rig.state.list_clear(LIST, key, hash).unwrap();
                let timer = |round| Timer { time: Timestamp::from_millis(round), key, tag: 0 };
                for set in 0..i64::from(round) {
                    rig.state.delete_timer(Domain::Event, &timer(set), hash).unwrap();
                }
                continue;
            }
            rig.set(0, key, &[round]);
            rig.put(key, &[round], &[round]);
            rig.append(key, &[&[round]]);
            let timer = Timer { time: Timestamp::from_millis(i64::from(round)), key, tag: 0 };
            rig.state.set_timer(Domain::Event, &timer, hash).unwrap();
        }
    }
}

/// The rounds that a key has after `round`: those since it last went away.
fn rounds(n: usize, round: u8) -> Vec<u8> {
    let gone = (0..=round).rev().find(|round| usize::from(*round) % 3 == n % 3);
    (gone.map_or(0, |gone| gone + 1)..=round).collect()
}

/// No compaction comes between: rows that one subtask left to another and that are gone there must not come back.
pub(super) fn rows_go_from_two_subtasks_to_three_and_back_and_none_comes_back() {
    let keys: Vec<Vec<u8>> = some_keys().into_iter().chain((0..200u16).map(|n| n.to_be_bytes().to_vec())).collect();
    let mut cuts: Vec<LocalCut> = Vec::new();
    let mut left = Vec::new();
    for (round, parallelism) in (0u8..).zip([2, 3, 2, 3, 1]) {
        let restore = || if cuts.is_empty() { Restore::Empty } else { rows(&cuts.iter().collect::<Vec<_>>()) };
        let open = |range| (range, Rig::open(|dir| mixed(dir, range, 3_000), restore()));
        let mut rigs: Vec<_> = ranges(parallelism).into_iter().map(open).collect();
        write_round(&mut rigs, &keys, round);
        cuts = rigs.iter_mut().map(|(_, rig)| rig.cut()).collect();
        let mut entries = 0;
        for (range, rig) in &mut rigs {
            for (n, key) in keys.iter().enumerate().filter(|(_, key)| range.contains(KeyGroup::of(key, max()))) {
                let held = rounds(n, round);
                entries += (3 * held.len() + usize::from(!held.is_empty())) as u64;
                assert_eq!(rig.get(0, key), held.last().map(|round| vec![*round]), "round {round}");
                let map: Vec<_> = held.iter().map(|round| (vec![*round], vec![*round])).collect();
                assert_eq!(rig.map(key, 2), map, "round {round}");
                assert_eq!(rig.list(key, 2), held.iter().map(|round| vec![*round]).collect::<Vec<_>>());
            }
        }
        let counted: u64 = cuts.iter().map(|cut| cut.counts.total().entries).sum();
        assert_eq!(counted, entries, "timers are counted, too");
        left.extend(rigs);
    }
    let mut all_of_it = Rig::open(|dir| mixed(dir, all(), 3_000), rows(&cuts.iter().collect::<Vec<_>>()));
    let timers: usize = (0..keys.len()).map(|n| rounds(n, 4).len()).sum();
    assert_eq!(all_of_it.state.drop_timers(Domain::Event).unwrap(), timers as u64);
}

pub(super) fn s8_every_key_counts_on_after_a_restore_at_three() {
    let mut keys: Vec<Vec<u8>> = (0..996u32).map(|n| n.to_le_bytes().to_vec()).collect();
    keys.extend([vec![], vec![7], vec![0; 65_536], vec![0xc3, 0x28]]);
    let count = |rig: &mut Rig, range: KeyGroupRange| {
        let own: Vec<&Vec<u8>> = keys.iter().filter(|key| range.contains(KeyGroup::of(key, max()))).collect();
        for key in &own {
            let count = rig.get(0, key).map_or(0, |count| count[0]) + 1;
            rig.set(0, key, &[count]);
        }
        own.iter().map(|key| rig.get(0, key).unwrap()[0]).collect::<Vec<u8>>()
    };
    let mut one = rig(3_000);
    assert_eq!(count(&mut one, all()), vec![1; 1_000]);
    let cut = one.cut();
    let mut counts = Vec::new();
    for range in ranges(3) {
        let mut part = Rig::open(|dir| mixed(dir, range, 3_000), rows(&[&cut]));
        counts.extend(count(&mut part, range));
    }
    assert_eq!(counts, vec![2; 1_000]);
}

pub(super) fn a_cut_is_restored_into_the_other_backend() {
    let taker = backend();
    for taken_by in BACKENDS {
        for restore in [same as fn(&LocalCut) -> Restore, |cut| rows(&[cut])] {
            BACKEND.set(taker);
            let mut rig = rig(0);
            rig.set(0, b"k", b"value");
            rig.put(b"k", b"a", b"1");
            rig.append(b"k", &[b"0", b"1"]);
            let cut = rig.cut();
            assert_eq!(cut.backend, taker);
            BACKEND.set(taken_by);
            let mut other = Rig::open(|dir| mixed(dir, all(), 0), restore(&cut));
            assert_eq!((other.get(0, b"k"), other.entry(b"k", b"a")), (Some(b"value".to_vec()), Some(b"1".to_vec())));
            assert_eq!((other.length(b"k"), other.state.counts()), (2, &cut.counts));
            other.append(b"k", &[b"2"]);
            let again = other.cut();
            assert_eq!(again.backend, taken_by);
            BACKEND.set(taker);
            let mut back = Rig::open(|dir| mixed(dir, all(), 0), restore(&again));
            assert_eq!(back.list(b"k", 9), [b"0", b"1", b"2"]);
        }
    }
}

pub(super) fn a_folder_without_a_cut_is_refused() {
    let nothing = tempfile::tempdir().unwrap();
    let dir = nothing.path().to_owned();
    for restore in [
        Restore::Same { dir: dir.clone(), counts: Counts::default() },
        Restore::Rows { dirs: vec![dir.clone()], counts: Counts::default() },
    ] {
        let root = tempfile::tempdir().unwrap();
        let error = KeyedState::open(options(root.path(), all(), 0), restore).err().unwrap();
        assert_eq!(error, Error::NoCut { place: "op/0".to_owned(), dir: dir.clone() });
    }
}
