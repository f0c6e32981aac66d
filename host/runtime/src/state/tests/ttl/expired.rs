//! What expires of states that send it to an output: handed over once, whatever removes it.

use super::*;

/// State, map key, value and time of what left.
type Left = (usize, Option<Vec<u8>>, Vec<u8>, i64);

/// With a TTL of ten seconds whose expired entries are emitted.
fn emitting(domain: TimeDomain, visibility: Visibility) -> Ttl {
    Ttl { visibility, expired_output: Some(0), ..ttl(domain, Refresh::Write) }
}

impl Rig {
    /// What has left since it was asked last.
    fn left(&mut self) -> Vec<Left> {
        std::iter::from_fn(|| self.state.take_expired())
            .map(|Expired { state, key, map_key, value, time }| {
                assert_eq!(key, b"key");
                (state, map_key, value, time.as_millis())
            })
            .collect()
    }

    /// Overwrites the value and the entry, and removes the list.
    fn overwrite_all(&mut self, key: &[u8]) {
        let (value, hash) = (self.stored(0, b"new"), KeyHash::of(key));
        self.state.set_value(0, key, hash, &value).unwrap();
        self.state.map_put((MAP, key, hash), &b"name"[..].into(), value).unwrap();
        self.state.list_clear(LIST, key, hash).unwrap();
    }

    fn remove_all(&mut self, key: &[u8]) {
        let hash = KeyHash::of(key);
        self.state.clear_value(0, key, hash).unwrap();
        self.state.map_clear(MAP, key, hash).unwrap();
        self.state.list_clear(LIST, key, hash).unwrap();
    }

    fn sweep_all(&mut self) {
        self.state.sweep_emitted().unwrap();
        while !self.state.sweep(3).unwrap() {}
    }
}

/// What [`Rig::write_all`] wrote, as it leaves.
fn written(value: &[u8], time: i64) -> Vec<Left> {
    let of = |state, map_key| (state, map_key, value.to_vec(), time);
    vec![of(0, None), of(MAP, Some(b"name".to_vec())), of(LIST, None), of(LIST, None)]
}

#[test]
fn what_has_expired_leaves_once_whatever_removes_it_and_wherever_it_lies() {
    type Remove = fn(&mut Rig);
    let removes: [Remove; 4] = [
        |rig| assert_eq!(rig.read_all(b"key"), NONE),
        |rig| rig.overwrite_all(b"key"),
        |rig| rig.remove_all(b"key"),
        Rig::sweep_all,
    ];
    for backend in [StateBackend::Rocksdb, StateBackend::Memory] {
        with(backend, || {
            for domain in [TimeDomain::Event, TimeDomain::Processing] {
                for kept in KEPT {
                    for (by, remove) in removes.iter().enumerate() {
                        let living = || living(Some(emitting(domain, Visibility::Strict)));
                        let mut rig = Rig::open(living(), Restore::Empty);
                        rig.set_now(0);
                        rig.write_all(b"key", 0);
                        let mut rig = keep(rig, kept, living());
                        rig.set_now(9_999);
                        rig.read_all(b"key");
                        rig.sweep_all();
                        assert_eq!(rig.left(), [], "alive");
                        rig.set_now(10_001);
                        remove(&mut rig);
                        let mut left = rig.left();
                        left.sort();
                        let place = format!("{backend:?} {domain:?} {kept:?} {by}");
                        assert!(left.iter().all(|(.., time)| *time == 10_000), "{place} {left:?}");
                        assert_eq!(left, written(b"key", 10_000), "{place}");
                        let rest = if by == 1 { 2 } else { 0 };
                        assert_eq!(rig.total().0, rest, "{place}");
                        rig.sweep_all();
                        assert_eq!(rig.left(), [], "{place}");
                    }
                }
            }
        });
    }
}

#[test]
fn what_the_operator_removes_or_renews_in_time_does_not_leave() {
    let mut rig = Rig::open(living(Some(emitting(TimeDomain::Event, Visibility::Strict))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.set_now(9_999);
    rig.overwrite_all(b"key");
    rig.remove_all(b"key");
    rig.set_now(50_000);
    rig.sweep_all();
    assert_eq!((rig.left(), rig.total().0), (Vec::new(), 0));
}

#[test]
fn what_relaxed_reads_still_see_leaves_only_once_it_is_cleaned() {
    let relaxed = || living(Some(emitting(TimeDomain::Event, Visibility::Relaxed)));
    for (renewed, time) in [(false, 10_000), (true, 30_000)] {
        let mut rig = Rig::open(relaxed(), Restore::Empty);
        rig.set_now(0);
        rig.write_all(b"key", 0);
        rig.set_now(20_000);
        assert_eq!(rig.read_all(b"key"), ALL);
        if renewed {
            rig.state.list_clear(LIST, b"key", KeyHash::of(b"key")).unwrap();
            rig.write_all(b"key", 0);
        }
        assert_eq!(rig.left(), []);
        rig.set_now(30_000);
        rig.sweep_all();
        assert_eq!((rig.left(), rig.read_all(b"key")), (written(b"key", time), NONE));
    }
}

#[test]
fn elements_leave_no_earlier_than_those_before_them() {
    let refreshed = Ttl { refresh: Refresh::ReadAndWrite, ..emitting(TimeDomain::Event, Visibility::Strict) };
    let mut rig = Rig::open(living(Some(refreshed)), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.set_now(9_000);
    let stamp = rig.state.stamp(LIST, at(9_000)).unwrap();
    rig.state.touch((LIST, b"key", KeyHash::of(b"key")), None, stamp).unwrap();
    rig.set_now(40_000);
    assert_eq!(rig.length(b"key"), 0);
    assert_eq!(rig.left(), [(LIST, None, b"key".to_vec(), 19_000), (LIST, None, b"key".to_vec(), 19_000)]);
}

#[test]
fn a_large_map_that_is_cleared_hands_over_what_has_expired_and_no_more() {
    let mut rig = Rig::open(living(Some(emitting(TimeDomain::Event, Visibility::Strict))), Restore::Empty);
    let hash = KeyHash::of(b"key");
    for name in 0..PAGE_ENTRIES as u32 + 100 {
        rig.set_now(if name % 100 == 0 { 5_000 } else { 0 });
        let value = rig.stored(0, b"v");
        rig.state.map_put((MAP, b"key", hash), &name.to_be_bytes()[..].into(), value).unwrap();
    }
    rig.cut();
    rig.set_now(10_000);
    rig.state.map_clear(MAP, b"key", hash).unwrap();
    let names: Vec<_> = rig.left().into_iter().filter_map(|(_, name, ..)| name).collect();
    let expired = (0..PAGE_ENTRIES as u32 + 100).filter(|name| name % 100 != 0).map(|name| name.to_be_bytes().to_vec());
    assert!(names == expired.collect::<Vec<_>>(), "{} left", names.len());
    assert_eq!(rig.total().0, 0);
}

#[test]
fn what_had_expired_under_another_ttl_leaves_at_the_restart() {
    let mut rig = Rig::open(living(Some(emitting(TimeDomain::Processing, Visibility::Strict))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    let hour = Ttl { milliseconds: 3_600_000, ..emitting(TimeDomain::Processing, Visibility::Strict) };
    let mut rig = upgrade(rig, false, living(Some(hour)));
    let (was, now) = (emitting(TimeDomain::Processing, Visibility::Strict), 10_000);
    for state in [0, MAP, LIST] {
        rig.state.purge(state, was, Now { event: Timestamp::MIN, processing: at(now) }).unwrap();
    }
    assert_eq!((rig.left(), rig.total().0), (written(b"key", 10_000), 0));
}
