//! Time to live: what can be read when, in memory, in RocksDB and after compaction; what is removed, and what is counted.

use wasmill_core::contract::{Refresh, TimeDomain, Ttl, Visibility};
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::{Now, Stamp};

use super::*;

mod expired;

fn ttl(domain: TimeDomain, refresh: Refresh) -> Ttl {
    Ttl { milliseconds: 10_000, refresh, domain, visibility: Visibility::Strict, expired_output: None }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The states of [`mixed`], all with this TTL or without one.
fn living(ttl: Option<Ttl>) -> impl FnOnce(&Path) -> Options {
    move |dir| {
        let mut options = mixed(dir, all(), 1 << 20);
        options.states.iter_mut().for_each(|state| state.ttl = ttl);
        options
    }
}

impl Rig {
    fn set_now(&mut self, millis: i64) {
        self.state.set_now(Now { event: at(millis), processing: at(millis) });
    }

    /// What is stored of a value that is written on behalf of a record of this time.
    fn stored(&self, origin: i64, value: &[u8]) -> Value {
        match self.state.stamp(0, at(origin)) {
            Some(stamp) => stamped(stamp, value),
            None => value.into(),
        }
    }

    /// Writes a value, an entry and two elements of the key.
    fn write_all(&mut self, key: &[u8], origin: i64) {
        let value = self.stored(origin, key);
        self.state.set_value(0, key, KeyHash::of(key), &value).unwrap();
        self.state.map_put((MAP, key, KeyHash::of(key)), &b"name"[..].into(), value.clone()).unwrap();
        self.state.list_append(LIST, key, KeyHash::of(key), [value.clone(), value]).unwrap();
    }

    /// Reads them: by look-up of many and of one, by map key and by page, by length and by page.
    fn read_all(&mut self, key: &[u8]) -> [usize; 6] {
        let eager = load(&mut self.state, 0, &[key.to_vec()]).into_iter().flatten().collect::<Vec<_>>();
        let lazy = self.get(0, key);
        assert!(eager.iter().chain(&lazy).chain(&self.entry(key, b"name")).all(|value| value == key));
        let page = self.map(key, 10);
        let elements = self.list(key, 10);
        assert!(page.iter().map(|(_, value)| value).chain(&elements).all(|value| value == key));
        let entry = usize::from(self.entry(key, b"name").is_some());
        [eager.len(), usize::from(lazy.is_some()), entry, page.len(), self.length(key) as usize, elements.len()]
    }

    fn touch_all(&mut self, key: &[u8], origin: i64) {
        let Some(stamp) = self.state.stamp(0, at(origin)) else { return };
        let hash = KeyHash::of(key);
        self.state.touch((0, key, hash), None, stamp).unwrap();
        self.state.touch((MAP, key, hash), Some(&b"name"[..].into()), stamp).unwrap();
        self.state.touch((LIST, key, hash), None, stamp).unwrap();
    }

    fn total(&self) -> (u64, u64) {
        let total = self.state.counts().total();
        (total.entries, total.bytes)
    }
}

const ALL: [usize; 6] = [1, 1, 1, 1, 2, 2];
const NONE: [usize; 6] = [0; 6];

/// Where the rows are when they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    InMemory,
    Frozen,
    /// Restored, so that every read asks RocksDB.
    Restored,
    Compacted,
    /// Copied row by row, as at another parallelism.
    Copied,
}

const KEPT: [Kept; 5] = [Kept::InMemory, Kept::Frozen, Kept::Restored, Kept::Compacted, Kept::Copied];

/// The state goes on from where its rows are kept.
fn keep(mut rig: Rig, kept: Kept, options: impl FnOnce(&Path) -> Options) -> Rig {
    if kept == Kept::InMemory {
        return rig;
    }
    let cut = rig.cut();
    let dir = cut.dir.clone();
    let restore = match kept {
        Kept::InMemory | Kept::Frozen => return rig,
        Kept::Compacted => {
            rig.state.compact();
            return rig;
        }
        Kept::Restored => Restore::Same { dir, counts: cut.counts },
        Kept::Copied => Restore::Rows { dirs: vec![dir], counts: cut.counts },
    };
    Rig::open(options, restore)
}

#[test]
fn l1_what_can_be_read_at_expiry_is_the_same_wherever_it_lies() {
    for domain in [TimeDomain::Event, TimeDomain::Processing] {
        for kept in KEPT {
            let living = || living(Some(ttl(domain, Refresh::Write)));
            for (now, expected) in [(9_999, ALL), (10_000, NONE), (10_001, NONE)] {
                let mut rig = Rig::open(living(), Restore::Empty);
                rig.set_now(0);
                rig.write_all(b"key", 0);
                let mut rig = keep(rig, kept, living());
                rig.set_now(now);
                assert_eq!(rig.read_all(b"key"), expected, "{domain:?} {kept:?} {now}");
            }
        }
    }
}

#[test]
fn l1_reads_refresh_where_they_are_declared_to() {
    for domain in [TimeDomain::Event, TimeDomain::Processing] {
        for kept in KEPT {
            for (refresh, first_absent) in [(Refresh::ReadAndWrite, 16_000), (Refresh::Write, 10_000)] {
                for (now, expected) in [(first_absent - 1, ALL), (first_absent, NONE)] {
                    let living = || living(Some(ttl(domain, refresh)));
                    let mut rig = Rig::open(living(), Restore::Empty);
                    rig.set_now(0);
                    rig.write_all(b"key", 0);
                    rig.set_now(6_000);
                    rig.touch_all(b"key", 0);
                    let mut rig = keep(rig, kept, living());
                    rig.set_now(now);
                    assert_eq!(rig.read_all(b"key"), expected, "{domain:?} {kept:?} {refresh:?} {now}");
                }
            }
        }
    }
}

#[test]
fn l1_what_has_expired_is_not_refreshed_by_a_read() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::ReadAndWrite))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.set_now(10_000);
    rig.touch_all(b"key", 10_000);
    assert_eq!(rig.read_all(b"key"), NONE);
}

#[test]
fn event_time_stamps_take_the_later_of_record_and_watermark_and_never_go_back() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::Write))), Restore::Empty);
    rig.set_now(5_000);
    for (key, origin) in [(b"late", 1_000), (b"soon", 8_000)] {
        rig.write_all(key, origin);
    }
    // A record behind the other's time does not take it back.
    rig.write_all(b"soon", 6_000);
    for (now, late, soon) in [(14_999, 1, 1), (15_000, 0, 1), (17_999, 0, 1), (18_000, 0, 0)] {
        rig.set_now(now);
        let read = |values: [usize; 6]| [values[0], values[2], values[3], values[4].min(1)];
        assert_eq!(read(rig.read_all(b"late")), [late; 4], "{now}");
        assert_eq!(read(rig.read_all(b"soon")), [soon; 4], "{now}");
    }
}

#[test]
fn what_is_found_expired_is_removed_and_counted_no_more() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::Write))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    // Keys, names and positions, and what the guest wrote: no stamps.
    assert_eq!(rig.total(), (4, 6 + (3 + 4 + 3) + 2 * (3 + 8 + 3)));
    rig.set_now(10_000);
    rig.read_all(b"key");
    assert_eq!(rig.total(), (0, 0));
    assert_eq!(rig.cut().counts.total().entries, 0);
}

#[test]
fn elements_leave_at_the_front_and_the_rest_keep_their_places() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::Write))), Restore::Empty);
    let hash = KeyHash::of(b"k");
    for index in 0..200u32 {
        rig.set_now(i64::from(index) * 100);
        let value = rig.stored(0, &index.to_be_bytes());
        rig.state.list_append(LIST, b"k", hash, [value]).unwrap();
    }
    for round in 0..3 {
        rig.set_now(15_000 + round);
        // Those stamped 0 to 5,000 have expired.
        assert_eq!(rig.length(b"k"), 149, "{round}");
        assert_eq!(rig.elements(b"k", 0, 1), [51u32.to_be_bytes()]);
        assert_eq!(rig.elements(b"k", 148, 9), [199u32.to_be_bytes()]);
        assert_eq!(rig.list(b"k", 40).len(), 149);
        if round == 0 {
            let value = rig.cut();
            rig = Rig::open(
                living(Some(ttl(TimeDomain::Event, Refresh::Write))),
                Restore::Same { dir: value.dir, counts: value.counts },
            );
        }
    }
    let value = rig.stored(0, b"last");
    rig.state.list_append(LIST, b"k", hash, [value]).unwrap();
    assert_eq!((rig.length(b"k"), rig.elements(b"k", 149, 1)), (150, vec![b"last".to_vec()]));
    rig.set_now(40_000);
    assert_eq!((rig.length(b"k"), rig.total()), (0, (0, 0)));
}

#[test]
fn relaxed_entries_are_read_until_they_are_cleaned() {
    let relaxed = Ttl { visibility: Visibility::Relaxed, ..ttl(TimeDomain::Event, Refresh::Write) };
    let mut rig = Rig::open(living(Some(relaxed)), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.set_now(50_000);
    assert_eq!(rig.read_all(b"key"), ALL);
}

#[test]
fn l6_the_largest_ttl_never_expires_and_a_clock_far_ahead_overflows_nothing() {
    for milliseconds in [i64::MAX as u64, 1 << 53] {
        let ttl = Ttl { milliseconds, ..ttl(TimeDomain::Processing, Refresh::ReadAndWrite) };
        let mut rig = Rig::open(living(Some(ttl)), Restore::Empty);
        rig.set_now(1_800_000_000_000);
        rig.write_all(b"key", 0);
        for now in [1_800_003_600_000, Timestamp::MAX.as_millis()] {
            rig.set_now(now);
            rig.touch_all(b"key", 0);
            assert_eq!(rig.read_all(b"key"), ALL, "{milliseconds} {now}");
        }
    }
}

#[test]
fn a_state_without_a_ttl_stores_no_byte_more() {
    let mut rig = Rig::open(living(None), Restore::Empty);
    rig.set_now(0);
    assert_eq!(rig.state.stamp(0, at(0)), None::<Stamp>);
    rig.write_all(b"key", 0);
    rig.cut();
    assert_eq!(rig.state.written_rows(0), [b"\x00\x01key".to_vec()]);
}

/// Goes on from a cut with other declarations, as a new version does.
fn upgrade(mut rig: Rig, copied: bool, options: impl FnOnce(&Path) -> Options) -> Rig {
    let LocalCut { dir, counts, .. } = rig.cut();
    let restore = if copied { Restore::Rows { dirs: vec![dir], counts } } else { Restore::Same { dir, counts } };
    Rig::open(options, restore)
}

#[test]
fn l4_a_ttl_may_come_and_go_and_values_stay_as_they_are() {
    let minute = Ttl { milliseconds: 60_000, ..ttl(TimeDomain::Processing, Refresh::ReadAndWrite) };
    let keys: Vec<Vec<u8>> = (0..1_000).map(|key| format!("key-{key}").into_bytes()).collect();
    for copied in [false, true] {
        let mut rig = Rig::open(living(None), Restore::Empty);
        rig.set_now(1_000_000);
        keys.iter().for_each(|key| rig.write_all(key, 0));
        let counted = rig.total();

        let mut rig = upgrade(rig, copied, living(Some(minute)));
        rig.set_now(2_000_000);
        while !rig.state.sweep(1_000).unwrap() {}
        assert!(keys.iter().all(|key| rig.read_all(key) == ALL));
        rig.set_now(2_030_000);
        keys.iter().step_by(2).for_each(|key| rig.touch_all(key, 0));
        rig.set_now(2_059_999);
        assert_eq!((rig.read_all(&keys[1]), rig.total()), (ALL, counted));
        rig.set_now(2_060_000);
        assert_eq!((rig.read_all(&keys[0]), rig.read_all(&keys[1])), (ALL, NONE));

        let mut rig = upgrade(rig, copied, living(None));
        for state in [0, MAP, LIST] {
            let now = Now { event: Timestamp::MIN, processing: at(2_060_000) };
            rig.state.purge(state, minute, now).unwrap();
        }
        rig.set_now(1_000_000_000);
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(rig.read_all(key), if index % 2 == 0 { ALL } else { NONE }, "{index}");
        }
        assert_eq!(rig.total().0, counted.0 / 2);
        let rig = upgrade(rig, true, living(None));
        assert_eq!(rig.total().0, counted.0 / 2, "the rows are as many as are counted");
    }
}

#[test]
fn the_sweep_removes_what_nobody_reads_and_nothing_else() {
    for domain in [TimeDomain::Event, TimeDomain::Processing] {
        let mut rig = Rig::open(living(Some(ttl(domain, Refresh::Write))), Restore::Empty);
        rig.set_now(0);
        (0..300u32).for_each(|key| rig.write_all(&key.to_be_bytes(), 0));
        rig.set_now(5_000);
        rig.write_all(b"alive", 0);
        rig.cut();
        rig.set_now(10_000);
        let mut steps = 0;
        while !rig.state.sweep(100).unwrap() {
            rig.state.maintain().unwrap();
            steps += 1;
        }
        // Of each key a value, a head and an entry, a head and two elements.
        assert!(steps >= 301 * 6 / 100, "{steps} steps of at most 100 rows");
        assert_eq!(rig.total().0, 4);
        rig.cut();
        assert_eq!([0, MAP, LIST].map(|state| rig.state.written_rows(state).len()), [1, 2, 3]);
        assert_eq!(rig.read_all(b"alive"), ALL);
    }
}

#[test]
fn the_sweep_goes_by_what_was_written_last_not_by_the_row() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::ReadAndWrite))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.cut();
    rig.set_now(9_000);
    rig.touch_all(b"key", 9_000);
    rig.set_now(12_000);
    while !rig.state.sweep(1).unwrap() {}
    assert_eq!(rig.read_all(b"key"), ALL);
}

#[test]
fn l4_the_sweep_stamps_what_has_no_stamp_so_that_restarts_do_not_prolong_it() {
    let mut rig = Rig::open(living(None), Restore::Empty);
    rig.write_all(b"key", 0);
    let mut rig = upgrade(rig, false, living(Some(ttl(TimeDomain::Processing, Refresh::Write))));
    rig.set_now(1_000_000);
    while !rig.state.sweep(10).unwrap() {}
    let mut rig = upgrade(rig, false, living(Some(ttl(TimeDomain::Processing, Refresh::Write))));
    rig.set_now(1_009_999);
    assert_eq!(rig.read_all(b"key"), ALL);
    rig.set_now(1_010_000);
    assert_eq!(rig.read_all(b"key"), NONE);
}

#[test]
fn compaction_drops_the_values_of_what_nobody_reads_and_counts_stay_exact() {
    for domain in [TimeDomain::Event, TimeDomain::Processing] {
        let living = || living(Some(ttl(domain, Refresh::Write)));
        let mut rig = Rig::open(living(), Restore::Empty);
        rig.set_now(0);
        let keys: Vec<Vec<u8>> = (0..300).map(|key| format!("key-{key}-{}", "v".repeat(100)).into_bytes()).collect();
        keys.iter().for_each(|key| rig.write_all(key, 0));
        rig.set_now(5_000);
        rig.write_all(b"alive", 0);
        rig.cut();
        let counted = rig.state.counts().clone();

        rig.set_now(9_999);
        rig.cut();
        rig.set_now(10_000);
        rig.state.compact();
        let bytes = |rig: &Rig, state| rig.state.written_rows(state).iter().map(Vec::len).sum::<usize>();
        assert!(bytes(&rig, 0) > 300 * 100, "alive at the newest cut, and so in the next one taken from here");

        let cut = rig.cut();
        rig.state.compact();
        // Flags, version and length; of the map its heads too. Elements of a list leave at the front alone.
        assert!(bytes(&rig, 0) <= 300 * 4 + 20, "{} bytes of values", bytes(&rig, 0));
        assert!(bytes(&rig, MAP) <= 300 * 8 + 40, "{} bytes of entries", bytes(&rig, MAP));
        assert!(bytes(&rig, LIST) > 300 * 100);
        assert_eq!((rig.state.counts(), &cut.counts), (&counted, &counted));

        let copied = rig.cut();
        let mut copy = Rig::open(living(), Restore::Rows { dirs: vec![copied.dir], counts: copied.counts });
        assert_eq!(*copy.state.counts(), counted, "what is copied counts as before");
        for rig in [&mut rig, &mut copy] {
            rig.set_now(10_000);
            assert_eq!((rig.read_all(&keys[0]), rig.read_all(b"alive")), (NONE, ALL));
            // A map whose entry is put anew, and one that the sweep comes by.
            rig.write_all(&keys[1], 10_000);
            assert_eq!(rig.read_all(&keys[1]), ALL);
            while !rig.state.sweep(1_000).unwrap() {}
            assert_eq!(rig.total().0, 8);
            rig.cut();
            assert_eq!([0, MAP, LIST].map(|state| rig.state.written_rows(state).len()), [2, 4, 6]);
        }
    }
}

#[test]
fn a_longer_ttl_does_not_bring_back_what_compaction_dropped() {
    let mut rig = Rig::open(living(Some(ttl(TimeDomain::Processing, Refresh::Write))), Restore::Empty);
    rig.set_now(0);
    rig.write_all(b"key", 0);
    rig.set_now(10_000);
    rig.cut();
    rig.state.compact();
    let (was, hour) = (ttl(TimeDomain::Processing, Refresh::Write), 3_600_000);
    let mut rig = upgrade(rig, false, living(Some(Ttl { milliseconds: hour, ..was })));
    rig.set_now(10_000);
    let read = rig.read_all(b"key");
    assert_eq!(([read[0], read[1], read[2], read[3]], rig.total().0), ([0; 4], 2), "only the list is whole");
}

#[test]
fn r4_opening_and_closing_states_with_a_ttl_many_times_neither_crashes_nor_leaks() {
    for cycle in 0..20u32 {
        let mut rig = Rig::open(living(Some(ttl(TimeDomain::Event, Refresh::Write))), Restore::Empty);
        // Files enough that compaction begins by itself; it is closed at another point of it each time.
        for file in 0..8 + cycle % 5 {
            rig.set_now(i64::from(file) * 10_000);
            (0..200u32).for_each(|key| rig.write_all(&(key + file * 100).to_be_bytes(), 0));
            if file % 4 == cycle % 4 {
                rig.freeze().unwrap()
            } else {
                drop(rig.cut())
            }
            while !rig.state.can_freeze() {
                drop(rig.cuts.recv());
            }
        }
        if cycle % 2 == 0 {
            rig.state.compact();
        }
        let alive = rig.state.backend_alive();
        drop(rig);
        assert!(alive.is_none_or(|alive| alive.upgrade().is_none()), "a filter outlives its database");
    }
}
