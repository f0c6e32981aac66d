//! A call's writes over the state: seen at once, undone to the mark, real only once applied.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, mpsc};

use wasmill_core::contract::StateKind;
use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, Timer};

use super::*;
use crate::clock::ManualClock;
use crate::guest::contract;
use crate::state::{Options, Restore, SharedMemory, StateBackend, StateSpec};

fn call() -> CallState {
    let mut call = CallState::new(None);
    call.keys.push(b"a");
    call.hashes.push(KeyHash::of(b"a"));
    call.slots = vec![0, 0];
    call
}

#[test]
fn rollback_undoes_what_was_written_since_the_mark_and_no_more() {
    let mut call = call();
    call.value_set(0, 0, b"1".to_vec()).unwrap();
    let mark = call.mark();
    call.value_set(0, 1, b"2".to_vec()).unwrap();
    call.value_clear(0, 0).unwrap();
    assert_eq!(call.value_get(0, 0).unwrap(), None);
    assert!(call.wrote_for([1].into_iter()));
    call.rollback(mark).unwrap();
    assert!(call.wrote_for([0].into_iter()) && !call.wrote_for([1].into_iter()));
    assert_eq!(call.value_get(0, 1).unwrap(), Some(b"1".to_vec()));
    assert!(call.rollback(mark + 1).is_err());
}

#[test]
fn lazy_writes_are_bounded_and_the_setting_is_named() {
    let mut call = call();
    call.limit_writes(100);
    assert_eq!(call.value_set(0, 0, vec![0; 36]), Ok(()));
    let Err(StateError::Misuse(message)) = call.value_set(0, 0, Vec::new()) else { panic!("it was let through") };
    assert!(message.contains("limit of 100 bytes") && message.contains("limits.overlay"), "{message}");
}

#[test]
fn writes_of_nothing_are_bounded_too() {
    let mut call = call();
    call.limit_writes(100);
    assert_eq!(call.list_append(0, 0, &mut std::iter::empty()), Ok(()));
    assert!(matches!(call.list_append(0, 0, &mut std::iter::empty()), Err(StateError::Misuse(_))));
    call.rollback(0).unwrap();
    assert_eq!(call.map_clear(0, 0), Ok(()));
}

#[test]
fn a_value_that_is_asked_for_a_million_times_is_no_answer_without_end() {
    let mut call = call();
    call.value_set(0, 0, vec![1; 1 << 20]).unwrap();
    assert_eq!(call.value_get_many(0, &[0; 64]).map(|values| values.len()), Ok(64));
    let Err(StateError::Misuse(message)) = call.value_get_many(0, &[0; 65]) else { panic!("it was let through") };
    assert!(message.contains("more than 64 MiB: ask for fewer"), "{message}");
}

#[test]
fn an_origin_outside_the_call_is_the_guests_fault() {
    assert!(matches!(call().value_get(0, 2), Err(StateError::Misuse(_))));
    assert!(matches!(call().value_set(0, u32::MAX, Vec::new()), Err(StateError::Misuse(_))));
}

/// A call over a state with the value state 0, the map state 1, the list state 2, the broadcast state 3 and the operator state 4, all in RocksDB where the cache has no bytes.
fn call_over_state(cache_bytes: usize) -> (tempfile::TempDir, CallState) {
    let root = tempfile::tempdir().unwrap();
    let state = |name: &str, kind| StateSpec { name: StateName::new(name).unwrap(), kind, version: 1, ttl: None };
    let max_parallelism = MaxParallelism::new(16).unwrap();
    let options = Options {
        dir: root.path().join("state"),
        states: vec![
            state("v", StateKind::Value),
            state("m", StateKind::Map),
            state("l", StateKind::List),
            state("b", StateKind::Broadcast),
            state("s", StateKind::OperatorSplit),
        ],
        range: KeyGroupRange::all(max_parallelism),
        max_parallelism,
        cache_bytes,
        backend: StateBackend::Rocksdb,
        shared: SharedMemory::new(8 << 20),
        clock: Arc::new(ManualClock::default()),
        place: "op/0".to_owned(),
    };
    let mut call = CallState::new(Some(KeyedState::open(options, Restore::Empty).unwrap()));
    for key in [b"a", b"b"] {
        call.keys.push(key);
        call.hashes.push(KeyHash::of(key));
    }
    call.slots = vec![0, 1, 0];
    (root, call)
}

/// Applies the call, and has what it wrote go to RocksDB and from the cache as far as the budget says.
fn applied(root: &tempfile::TempDir, call: &mut CallState, cut: usize) {
    call.apply(|_| false).unwrap();
    let (told, cuts) = mpsc::channel();
    let keyed = call.keyed().unwrap();
    keyed.freeze(root.path().join(cut.to_string()), Box::new(move |cut| told.send(cut).unwrap())).unwrap();
    cuts.recv().unwrap().unwrap();
    keyed.maintain().unwrap();
    keyed.maintain().unwrap();
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn page(call: &mut CallState, lower: Option<&[u8]>, limit: u32) -> (Entries, bool) {
    let range = Range { lower: lower.map_or(Bound::Unbounded, Bound::Excluded), ..Range::ALL };
    let page = call.map_page(1, 0, range, limit).unwrap();
    let entries = page.names.iter().zip(page.values.iter()).map(|(name, value)| (name.to_vec(), value.to_vec()));
    (entries.collect(), page.more)
}

fn all_entries(call: &mut CallState) -> Entries {
    let (mut all, mut more) = page(call, None, 1_000);
    while more {
        let last = all.last().unwrap().0.clone();
        let (next, left) = page(call, Some(&last), 1_000);
        all.extend(next);
        more = left;
    }
    all
}

/// S4: a map changed while it is scanned by pages, in one call, held against the rule of docs/guarantees.md.
#[test]
fn s4_a_scan_by_pages_sees_at_each_page_what_is_written_by_then() {
    for (cache_bytes, entries) in
        [0, 64 << 20].into_iter().flat_map(|bytes| [1, 127, 128, 129, 10_000].map(|n| (bytes, n)))
    {
        let (root, mut call) = call_over_state(cache_bytes);
        // Even numbers, so that there is room between.
        let name = |n: u32| (2 * n).to_be_bytes().to_vec();
        let between = |n: u32| (2 * n + 1).to_be_bytes().to_vec();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = (0..entries).map(|n| (name(n), b"old".to_vec())).collect();
        for name in model.keys() {
            call.map_put(1, 0, name, b"old").unwrap();
        }
        applied(&root, &mut call, 0);
        let (mut seen, mut last) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let left = model.range::<[u8], _>((after, Bound::Unbounded));
            let expected: Entries = left.clone().take(64).map(|(name, value)| (name.clone(), value.clone())).collect();
            let more = left.count() > 64;
            assert_eq!(page(&mut call, last.as_deref(), 64), (expected.clone(), more));
            for (at, (found, _)) in expected.iter().enumerate() {
                let n = u32::from_be_bytes(found.as_slice().try_into().unwrap()) / 2;
                if n.is_multiple_of(2) {
                    call.map_remove(1, 0, found).unwrap();
                    model.remove(found);
                }
                if at == 0 {
                    // Before and behind where the scan is, the next of this page, and one far ahead.
                    for new in (0..100).map(|step| between(n.saturating_sub(50) + step)) {
                        call.map_put(1, 2, &new, b"new").unwrap();
                        model.insert(new, b"new".to_vec());
                    }
                    call.map_put(1, 0, &name(n + 1), b"over").unwrap();
                    model.insert(name(n + 1), b"over".to_vec());
                    call.map_remove(1, 0, &name(n + 70)).unwrap();
                    model.remove(&name(n + 70));
                }
            }
            seen.extend(expected.iter().map(|(name, _)| name.clone()));
            last = expected.last().map(|(name, _)| name.clone());
            if !more {
                break;
            }
        }
        assert!(seen.is_sorted() && seen.windows(2).all(|pair| pair[0] != pair[1]));
        let model: Entries = model.into_iter().collect();
        assert_eq!(all_entries(&mut call), model);
        applied(&root, &mut call, 1);
        assert_eq!(all_entries(&mut call), model, "{entries} entries, {cache_bytes} bytes of cache");
    }
}

#[test]
fn rollback_undoes_writes_to_maps_and_lists() {
    for cache_bytes in [0, 1 << 20] {
        let (root, mut call) = call_over_state(cache_bytes);
        call.map_put(1, 0, b"kept", b"1").unwrap();
        call.list_append(2, 0, &mut [&b"0"[..], b"1"].into_iter()).unwrap();
        applied(&root, &mut call, 0);
        call.map_put(1, 0, b"before", b"2").unwrap();
        call.list_append(2, 0, &mut [&b"2"[..]].into_iter()).unwrap();
        let mark = call.mark();
        call.map_put(1, 2, b"before", b"3").unwrap();
        call.map_remove(1, 0, b"kept").unwrap();
        call.list_append(2, 0, &mut [&b"3"[..]].into_iter()).unwrap();
        call.map_clear(1, 0).unwrap();
        call.list_clear(2, 0).unwrap();
        call.map_put(1, 0, b"after", b"4").unwrap();
        call.list_append(2, 0, &mut [&b"4"[..]].into_iter()).unwrap();
        assert_eq!(all_entries(&mut call), [(b"after".to_vec(), b"4".to_vec())]);
        assert_eq!(call.map_get(1, 0, b"kept").unwrap(), None);
        assert_eq!((call.list_length(2, 2).unwrap(), call.list_page(2, 0, 0, 9).unwrap().get(0)), (1, &b"4"[..]));
        call.rollback(mark).unwrap();
        for cut in 1..3 {
            assert_eq!(
                all_entries(&mut call),
                [(b"before".to_vec(), b"2".to_vec()), (b"kept".to_vec(), b"1".to_vec())]
            );
            assert_eq!(call.list_length(2, 0).unwrap(), 3);
            let list = call.list_page(2, 0, 1, 9).unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), [b"1", b"2"]);
            applied(&root, &mut call, cut);
        }
    }
}

#[test]
fn what_a_call_wrote_is_gone_when_it_is_discarded() {
    let (_root, mut call) = call_over_state(1 << 20);
    call.map_put(1, 0, b"a", b"1").unwrap();
    call.list_append(2, 0, &mut [&b"0"[..]].into_iter()).unwrap();
    assert!(call.wrote_for(0..9));
    call.discard();
    assert!(!call.wrote_for(0..9));
    assert_eq!((all_entries(&mut call), call.list_length(2, 0).unwrap()), (Vec::new(), 0));
}

#[test]
fn many_reads_see_the_calls_writes_and_the_state_key_by_key() {
    let (root, mut call) = call_over_state(0);
    for origin in [0, 1] {
        for name in [b"x", b"y", b"z"] {
            call.map_put(1, origin, name, if origin == 0 { b"a" } else { b"b" }).unwrap();
        }
    }
    applied(&root, &mut call, 0);
    call.map_put(1, 0, b"x", b"new").unwrap();
    call.map_remove(1, 2, b"y").unwrap();
    call.map_clear(1, 1).unwrap();
    call.map_put(1, 1, b"z", b"after").unwrap();
    let wanted: [(u32, &[u8]); 7] = [(0, b"x"), (2, b"y"), (0, b"z"), (0, b"no"), (1, b"x"), (1, b"z"), (0, b"z")];
    let found = call.map_get_many(1, &wanted).unwrap();
    let expected: [Option<&[u8]>; 7] = [Some(b"new"), None, Some(b"a"), None, None, Some(b"after"), Some(b"a")];
    assert_eq!((0..7).map(|index| found.get(index)).collect::<Vec<_>>(), expected);
}

#[test]
fn the_writes_of_a_call_are_bounded_in_bytes_and_those_rolled_back_do_not_count() {
    let (_root, mut call) = call_over_state(0);
    let large = vec![0; 16 << 20];
    for _ in 0..10 {
        let mark = call.mark();
        for n in 0..3u8 {
            call.map_put(1, 0, &[n], &large).unwrap();
        }
        call.rollback(mark).unwrap();
    }
    let many = std::iter::repeat_n(&large[..], 4);
    let error = call.list_append(2, 0, &mut many.into_iter()).unwrap_err();
    assert!(matches!(&error, StateError::Misuse(message) if message.contains("limits.overlay")), "{error}");
}

/// What a call that wrote through imports alone would leave beyond its limits: setting, state, key and count.
fn over(call: &mut CallState) -> Option<(&'static str, u16, Vec<u8>, u64)> {
    let over = call.over(&contract::no_effects(3)).unwrap();
    over.map(|Over { setting, state, key, would_be, .. }| (setting, state, key, would_be))
}

#[test]
fn state_of_a_key_is_held_to_its_bytes_whatever_its_kind() {
    for cache in [0, 1 << 20] {
        let (root, mut call) = call_over_state(cache);
        call.limit_state(StateLimits { key_bytes: Some(30), entries: None });
        let found = |state, bytes| Some(("limits.state-per-key", state, b"b".to_vec(), bytes));
        // Key, map key or position, value.
        call.value_set(0, 1, vec![0; 29]).unwrap();
        call.map_put(1, 1, b"one", &[0; 11]).unwrap();
        call.map_put(1, 1, b"two", &[0; 11]).unwrap();
        call.list_append(2, 1, &mut [&[0; 6][..], &[]].into_iter()).unwrap();
        assert_eq!(over(&mut call), None);
        applied(&root, &mut call, 0);
        let mark = call.mark();
        call.value_set(0, 1, vec![0; 30]).unwrap();
        assert_eq!(over(&mut call), found(0, 31));
        call.rollback(mark).unwrap();
        call.map_put(1, 1, b"", b"").unwrap();
        assert_eq!(over(&mut call), found(1, 31));
        call.map_remove(1, 1, b"one").unwrap();
        assert_eq!(over(&mut call), None);
        call.map_clear(1, 1).unwrap();
        call.map_put(1, 1, b"three", &[0; 24]).unwrap();
        assert_eq!(over(&mut call), None);
        call.list_append(2, 1, &mut [&[][..]].into_iter()).unwrap();
        assert_eq!(over(&mut call), found(2, 33));
        call.rollback(mark).unwrap();
        // What was more before the limit came may become less.
        call.limit_state(StateLimits { key_bytes: Some(5), entries: None });
        call.value_set(0, 1, vec![0; 28]).unwrap();
        call.map_remove(1, 1, b"one").unwrap();
        assert_eq!(over(&mut call), None);
    }
}

/// All entries of the broadcast state, and all elements of the operator state.
fn unkeyed(call: &mut CallState) -> (Entries, Vec<Vec<u8>>) {
    let page = call.broadcast_page(3, Range::ALL, 100).unwrap();
    let entries = page.names.iter().zip(page.values.iter()).map(|(name, value)| (name.to_vec(), value.to_vec()));
    let elements = call.operator_page(4, 0, 100).unwrap();
    (entries.collect(), elements.iter().map(<[u8]>::to_vec).collect())
}

#[test]
fn what_belongs_to_no_key_is_seen_at_once_undone_to_the_mark_and_real_once_applied() {
    let entry = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    for cache_bytes in [0, 1 << 20] {
        let (root, mut call) = call_over_state(cache_bytes);
        call.broadcast_put(3, b"a", b"1").unwrap();
        call.broadcast_put(3, b"b", b"1").unwrap();
        call.operator_replace(4, &mut [&b"x"[..], b"y"].into_iter()).unwrap();
        // The keyed map under the empty key is another one.
        call.map_put(1, 0, b"a", b"keyed").unwrap();
        applied(&root, &mut call, 1);
        call.broadcast_put(3, b"a", b"2").unwrap();
        let mark = call.mark();
        call.broadcast_remove(3, b"b").unwrap();
        call.operator_replace(4, &mut [&b"z"[..]].into_iter()).unwrap();
        assert_eq!(call.broadcast_get(3, b"b").unwrap(), None);
        assert_eq!(unkeyed(&mut call), (vec![entry(b"a", b"2")], vec![b"z".to_vec()]));
        call.rollback(mark).unwrap();
        assert_eq!(call.broadcast_get(3, b"b").unwrap(), Some(b"1".to_vec()));
        let both = vec![entry(b"a", b"2"), entry(b"b", b"1")];
        let elements = vec![b"x".to_vec(), b"y".to_vec()];
        assert_eq!(unkeyed(&mut call), (both, elements.clone()));
        call.discard();
        assert_eq!(unkeyed(&mut call), (vec![entry(b"a", b"1"), entry(b"b", b"1")], elements));
        call.operator_replace(4, &mut std::iter::empty()).unwrap();
        applied(&root, &mut call, 2);
        assert_eq!(unkeyed(&mut call).1, Vec::<Vec<u8>>::new());
    }
}

#[test]
fn entries_of_a_subtask_are_counted_over_its_states_and_timers_are_none() {
    let (root, mut call) = call_over_state(0);
    call.limit_state(StateLimits { key_bytes: None, entries: Some(4) });
    call.value_set(0, 0, vec![1]).unwrap();
    call.map_put(1, 0, b"x", b"").unwrap();
    call.map_put(1, 1, b"x", b"").unwrap();
    call.list_append(2, 0, &mut [&[1][..]].into_iter()).unwrap();
    assert_eq!(over(&mut call), None);
    applied(&root, &mut call, 0);
    let timer = Timer { time: Timestamp::MIN, key: b"a", tag: 0 };
    call.keyed().unwrap().set_timer(Domain::Event, &timer, KeyHash::of(b"a")).unwrap();
    call.value_set(0, 0, vec![2]).unwrap();
    call.map_put(1, 0, b"x", b"again").unwrap();
    assert_eq!(over(&mut call), None);
    call.value_set(0, 1, vec![2]).unwrap();
    assert_eq!(over(&mut call), Some(("limits.state-entries", 0, b"b".to_vec(), 5)));
    call.list_clear(2, 0).unwrap();
    assert_eq!(over(&mut call), None);
}

#[test]
fn what_belongs_to_no_key_may_have_been_written_for_any_record_that_is_rejected() {
    let (_root, mut call) = call_over_state(0);
    call.operator_replace(4, &mut [&b"x"[..]].into_iter()).unwrap();
    assert!(call.wrote_for([7].into_iter()) && !call.wrote_for(std::iter::empty()));
}
