//! Random operations on values, maps, lists and timers, over each backend, against plain ones.

use proptest::prelude::*;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, TIMERS, Timer};

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Load(usize, Vec<usize>),
    Value(usize, usize),
    Set(usize, usize, usize),
    Clear(usize, usize),
    Put(usize, usize, usize),
    /// Many entries, so that a map is not small.
    Fill(usize, usize),
    Remove(usize, usize),
    Entry(usize, usize),
    ClearMap(usize),
    Page {
        key: usize,
        bounds: [Option<(usize, bool)>; 2],
        reverse: bool,
        limit: usize,
    },
    Append(usize, usize, usize),
    Elements(usize, u64, usize),
    ClearList(usize),
    SetTimer(usize, i8),
    DeleteTimer(usize, i8),
    /// Takes what is due.
    Due(i8),
    Maintain,
    Freeze,
    /// Waits for the oldest cut that is under way.
    Cut,
    /// Goes on from the newest cut taken, as after a failure, in a backend.
    Reopen(StateBackend),
    /// The same, restored as two subtasks and again as one, each in a backend.
    Rescale(u16, [StateBackend; 3]),
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly few keys, so that one key's values are often in several layers at once.
    let key = prop_oneof![3 => 0..8usize, 1 => 0..some_keys().len()];
    let name = || 0..some_names().len();
    // Lengths that stay in place, that grow out of their place, and that get a chunk of their own.
    let len = || prop_oneof![0usize..20, 20usize..300, Just(5_000)];
    let bound = || proptest::option::of((0..some_names().len(), any::<bool>()));
    prop_oneof![
        4 => (0..2usize, proptest::sample::subsequence((0..some_keys().len()).collect::<Vec<_>>(), 1..20))
            .prop_map(|(state, keys)| Step::Load(state, keys)),
        2 => (0..2usize, key.clone()).prop_map(|(state, key)| Step::Value(state, key)),
        16 => (0..2usize, key.clone(), len()).prop_map(|(state, key, len)| Step::Set(state, key, len)),
        4 => (0..2usize, key.clone()).prop_map(|(state, key)| Step::Clear(state, key)),
        16 => (0..4usize, name(), len()).prop_map(|(key, name, len)| Step::Put(key, name, len)),
        2 => (0..4usize, prop_oneof![Just(150usize), Just(300)]).prop_map(|(key, count)| Step::Fill(key, count)),
        6 => (0..4usize, name()).prop_map(|(key, name)| Step::Remove(key, name)),
        4 => (key.clone(), name()).prop_map(|(key, name)| Step::Entry(key, name)),
        2 => (0..4usize).prop_map(Step::ClearMap),
        4 => (0..4usize, [bound(), bound()], any::<bool>(), prop_oneof![0..5usize, 100..500usize])
            .prop_map(|(key, bounds, reverse, limit)| Step::Page { key, bounds, reverse, limit }),
        8 => (0..4usize, 0..30usize, len()).prop_map(|(key, count, len)| Step::Append(key, count, len)),
        3 => (0..4usize, 0..40u64, 0..40usize).prop_map(|(key, start, limit)| Step::Elements(key, start, limit)),
        2 => key.prop_map(Step::ClearList),
        8 => (0..8usize, any::<i8>()).prop_map(|(key, millis)| Step::SetTimer(key, millis)),
        3 => (0..8usize, any::<i8>()).prop_map(|(key, millis)| Step::DeleteTimer(key, millis)),
        2 => any::<i8>().prop_map(Step::Due),
        8 => Just(Step::Maintain),
        3 => Just(Step::Freeze),
        2 => Just(Step::Cut),
        1 => a_backend().prop_map(Step::Reopen),
        1 => (0..=16u16, [a_backend(), a_backend(), a_backend()]).prop_map(|(at, backends)| Step::Rescale(at, backends)),
    ]
}

fn a_backend() -> impl Strategy<Value = StateBackend> {
    prop_oneof![Just(StateBackend::Rocksdb), Just(StateBackend::Memory)]
}

fn timer(millis: i8, key: &[u8]) -> Timer<'_> {
    Timer { time: Timestamp::from_millis(i64::from(millis)), key, tag: 0 }
}

fn some_names() -> Vec<Vec<u8>> {
    let mut names = vec![vec![], vec![0], vec![0x7f], vec![0xff], vec![0xff, 0], vec![0xff, 0xff], vec![1], vec![2]];
    names.extend((0..12u32).map(|n| (n * 20).to_be_bytes().to_vec()));
    names
}

/// What a state holds.
#[derive(Debug, Clone, Default)]
struct Contents {
    values: Model,
    maps: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    lists: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    timers: BTreeSet<(i8, Vec<u8>)>,
}

impl Contents {
    /// Asserts that these are the counts of what lies in `range`.
    fn assert_counted(&self, counted: &Counts, range: KeyGroupRange) {
        let mut counts = self.counts(range);
        // They are counted once there was one.
        let timers = StateName::new(TIMERS).unwrap();
        let some = self.timers.iter().any(|(_, key)| range.contains(KeyGroup::of(key, max())));
        if some || counted.states().any(|(state, _)| *state == timers) {
            let index = counts.cover(&timers, range);
            for (_, key) in &self.timers {
                if let Some(tally) = counts.tally_mut(index, KeyGroup::of(key, max())) {
                    *tally += Tally { entries: 1, bytes: (1 + 8 + 4 + key.len()) as u64 };
                }
            }
        }
        assert_eq!(*counted, counts);
    }

    /// Takes what is due from the state and from here, in rounds.
    fn take_due(&mut self, until: i8, range: KeyGroupRange, state: &mut KeyedState) {
        loop {
            let own = |key: &[u8]| range.contains(KeyGroup::of(key, max()));
            let mut expected: BTreeMap<Vec<u8>, i8> = BTreeMap::new();
            for (millis, key) in self.timers.iter().filter(|(millis, key)| *millis <= until && own(key)) {
                expected.entry(key.clone()).or_insert(*millis);
            }
            let due = state.take_timers(Domain::Event, timer(until, b"").time, usize::MAX).unwrap();
            let found = due.iter().map(|id| id.timer());
            let found: BTreeMap<Vec<u8>, i8> = found.map(|t| (t.key.to_vec(), t.time.as_millis() as i8)).collect();
            // Of each key its earliest, and none later than those that a further round takes.
            assert_eq!((found.len(), found.is_empty()), (due.len(), expected.is_empty()));
            assert!(found.iter().all(|(key, millis)| expected.get(key) == Some(millis)), "{found:?} of {expected:?}");
            let left = expected.iter().filter(|(key, _)| !found.contains_key(*key)).map(|(_, millis)| millis).min();
            assert!(left.is_none_or(|left| found.values().all(|millis| millis <= left)), "{found:?} before {left:?}");
            for (key, millis) in found {
                self.timers.remove(&(millis, key));
            }
            if due.is_empty() {
                return;
            }
        }
    }

    fn counts(&self, range: KeyGroupRange) -> Counts {
        let mut counts = Counts::new((0..4).map(state_name), range);
        let values = self.values.iter().map(|((state, key), value)| (*state, key, key.len() + value.len()));
        let maps = self.maps.iter().flat_map(|(key, map)| {
            map.iter().map(move |(name, value)| (MAP, key, key.len() + name.len() + value.len()))
        });
        let lists = self
            .lists
            .iter()
            .flat_map(|(key, list)| list.iter().map(move |value| (LIST, key, key.len() + 8 + value.len())));
        for (state, key, bytes) in values.chain(maps).chain(lists) {
            if let Some(tally) = counts.tally_mut(state, KeyGroup::of(key, max())) {
                *tally += Tally { entries: 1, bytes: bytes as u64 };
            }
        }
        counts
    }

    /// Asserts that a state holds exactly what lies in `range`, and counts it.
    fn assert_held(&self, rig: &mut Rig, range: KeyGroupRange) {
        let own = |key: &Vec<u8>| range.contains(KeyGroup::of(key, max()));
        let keys: Vec<Vec<u8>> = some_keys().into_iter().filter(own).collect();
        for state in 0..2 {
            let expected: Vec<_> = keys.iter().map(|key| self.values.get(&(state, key.clone())).cloned()).collect();
            assert_eq!(load(&mut rig.state, state, &keys), expected, "state {state}");
        }
        for key in &keys {
            let map: Vec<_> = self.maps.get(key).into_iter().flatten().map(|(n, v)| (n.clone(), v.clone())).collect();
            assert_eq!(rig.map(key, 70), map);
            let list = self.lists.get(key).cloned().unwrap_or_default();
            assert_eq!(rig.length(key), list.len() as u64);
            assert_eq!(rig.list(key, 7), list);
        }
        self.assert_counted(rig.state.counts(), range);
    }
}

/// The state under test, what it should hold, and what each cut under way or taken should hold.
struct Run {
    rig: Rig,
    budget: usize,
    model: Contents,
    pending: Vec<Contents>,
    newest: Option<(LocalCut, Contents)>,
    writes: usize,
    /// Folders of states that were left; cuts lie in them.
    left: Vec<TempDir>,
}

impl Run {
    fn step(&mut self, step: &Step, keys: &[Vec<u8>]) {
        match step {
            Step::Maintain => self.rig.state.maintain().unwrap(),
            Step::Freeze => {
                if self.pending.len() == 2 {
                    self.take();
                }
                self.rig.freeze().unwrap();
                self.pending.push(self.model.clone());
            }
            Step::Cut => self.take(),
            Step::Reopen(backend) => self.reopen(*backend, |_, restore| restore),
            Step::Rescale(at, [one, other, last]) => {
                self.reopen(*last, |run, restore| run.rescaled(restore, *at, [*one, *other]));
            }
            Step::SetTimer(key, millis) => {
                let key = &keys[*key];
                self.rig.state.set_timer(Domain::Event, &timer(*millis, key), KeyHash::of(key)).unwrap();
                self.model.timers.insert((*millis, key.clone()));
            }
            Step::DeleteTimer(key, millis) => {
                let key = &keys[*key];
                self.rig.state.delete_timer(Domain::Event, &timer(*millis, key), KeyHash::of(key)).unwrap();
                self.model.timers.remove(&(*millis, key.clone()));
            }
            Step::Due(until) => self.model.take_due(*until, all(), &mut self.rig.state),
            Step::Load(..) | Step::Value(..) | Step::Set(..) | Step::Clear(..) => self.value_step(step, keys),
            Step::Append(..) | Step::Elements(..) | Step::ClearList(..) => self.list_step(step, keys),
            _ => self.map_step(step, keys),
        }
        self.model.assert_counted(self.rig.state.counts(), all());
    }

    /// Bytes that no other write has.
    fn next(&mut self, len: usize) -> Vec<u8> {
        self.writes += 1;
        vec![self.writes as u8; len]
    }

    fn value_step(&mut self, step: &Step, keys: &[Vec<u8>]) {
        match step {
            Step::Load(state, chosen) => {
                let chosen: Vec<Vec<u8>> = chosen.iter().map(|&key| keys[key].clone()).collect();
                let values = &self.model.values;
                let expected: Vec<_> = chosen.iter().map(|key| values.get(&(*state, key.clone())).cloned()).collect();
                assert_eq!(load(&mut self.rig.state, *state, &chosen), expected);
            }
            Step::Value(state, key) => {
                let key = &keys[*key];
                assert_eq!(self.rig.get(*state, key), self.model.values.get(&(*state, key.clone())).cloned());
            }
            Step::Set(state, key, len) => {
                let value = self.next(*len);
                self.rig.set(*state, &keys[*key], &value);
                self.model.values.insert((*state, keys[*key].clone()), value);
            }
            Step::Clear(state, key) => {
                let key = &keys[*key];
                self.rig.state.clear_value(*state, key, KeyHash::of(key)).unwrap();
                self.model.values.remove(&(*state, key.clone()));
            }
            other => panic!("{other:?}"),
        }
    }

    fn map_step(&mut self, step: &Step, keys: &[Vec<u8>]) {
        let names = some_names();
        match step {
            Step::Put(key, name, len) => {
                let value = self.next(*len);
                self.rig.put(&keys[*key], &names[*name], &value);
                self.model.maps.entry(keys[*key].clone()).or_default().insert(names[*name].clone(), value);
            }
            Step::Fill(key, count) => {
                for n in 0..*count as u32 {
                    let (name, value) = (n.to_be_bytes().to_vec(), self.next(3));
                    self.rig.put(&keys[*key], &name, &value);
                    self.model.maps.entry(keys[*key].clone()).or_default().insert(name, value);
                }
            }
            Step::Remove(key, name) => {
                self.rig.remove(&keys[*key], &names[*name]);
                self.model.maps.entry(keys[*key].clone()).or_default().remove(&names[*name]);
            }
            Step::Entry(key, name) => {
                let expected = self.model.maps.get(&keys[*key]).and_then(|map| map.get(&names[*name])).cloned();
                assert_eq!(self.rig.entry(&keys[*key], &names[*name]), expected);
            }
            Step::ClearMap(key) => {
                self.rig.state.map_clear(MAP, &keys[*key], KeyHash::of(&keys[*key])).unwrap();
                self.model.maps.remove(&keys[*key]);
            }
            Step::Page { key, bounds, reverse, limit } => {
                let bound = |bound: Option<(usize, bool)>| match bound {
                    None => Bound::Unbounded,
                    Some((name, true)) => Bound::Excluded(&names[name][..]),
                    Some((name, false)) => Bound::Included(&names[name][..]),
                };
                let range = Range { lower: bound(bounds[0]), upper: bound(bounds[1]), reverse: *reverse };
                let page = self.rig.page(&keys[*key], range, *limit);
                let mut expected = Vec::new();
                if let Some(map) = self.model.maps.get(&keys[*key]).filter(|_| !range.is_empty()) {
                    expected.extend(map.range::<[u8], _>(range.bounds()).map(|(n, v)| (n.clone(), v.clone())));
                }
                if *reverse {
                    expected.reverse();
                }
                assert_eq!(page.more, expected.len() > *limit);
                expected.truncate(*limit);
                let found = page.names.iter().zip(page.values.iter()).map(|(n, v)| (n.to_vec(), v.to_vec()));
                assert_eq!(found.collect::<Vec<_>>(), expected);
            }
            other => panic!("{other:?}"),
        }
    }

    fn list_step(&mut self, step: &Step, keys: &[Vec<u8>]) {
        match step {
            Step::Append(key, count, len) => {
                let values: Vec<Vec<u8>> = (0..*count).map(|_| self.next(*len)).collect();
                self.rig.append(&keys[*key], &values.iter().map(Vec::as_slice).collect::<Vec<_>>());
                self.model.lists.entry(keys[*key].clone()).or_default().extend(values);
            }
            Step::Elements(key, start, limit) => {
                let list = self.model.lists.get(&keys[*key]).into_iter().flatten();
                let expected: Vec<_> = list.skip(*start as usize).take(*limit).cloned().collect();
                assert_eq!(self.rig.elements(&keys[*key], *start, *limit), expected);
            }
            Step::ClearList(key) => {
                self.rig.state.list_clear(LIST, &keys[*key], KeyHash::of(&keys[*key])).unwrap();
                self.model.lists.remove(&keys[*key]);
            }
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self) {
        if !self.pending.is_empty() {
            let cut = self.rig.cuts.recv().unwrap().unwrap();
            let model = self.pending.remove(0);
            model.assert_counted(&cut.counts, all());
            self.newest = Some((cut, model));
        }
    }

    fn reopen(&mut self, backend: StateBackend, with: impl FnOnce(&mut Self, Restore) -> Restore) {
        while !self.pending.is_empty() {
            self.take();
        }
        let Some((cut, model)) = self.newest.clone() else { return };
        let restore = with(self, Restore::Same { dir: cut.dir, counts: cut.counts });
        BACKEND.set(backend);
        let again = Rig::open(|dir| mixed(dir, all(), self.budget), restore);
        let before = std::mem::replace(&mut self.rig, again);
        self.left.push(before.root);
        self.model = model;
        self.model.assert_held(&mut self.rig, all());
    }

    /// Restores as two subtasks, checks what each has, and hands back their cuts for one.
    fn rescaled(&mut self, restore: Restore, at: u16, backends: [StateBackend; 2]) -> Restore {
        let Restore::Same { dir, counts } = restore else { panic!("a cut") };
        let (_, model) = self.newest.clone().unwrap();
        let mut merged = Counts::default();
        let mut dirs = Vec::new();
        let ranges = [KeyGroupRange { start: 0, end: at }, KeyGroupRange { start: at, end: 16 }];
        for (range, backend) in ranges.into_iter().zip(backends) {
            BACKEND.set(backend);
            let rows = Restore::Rows { dirs: vec![dir.clone()], counts: counts.clone() };
            let mut half = Rig::open(|dir| mixed(dir, range, self.budget), rows);
            model.assert_held(&mut half, range);
            let cut = half.cut();
            model.assert_counted(&cut.counts, range);
            model.clone().take_due(i8::MAX, range, &mut half.state);
            for file in cut.files.iter().filter_map(|file| file.key_groups) {
                assert!(range.covers(file), "{file} in {range}");
            }
            merged.merge(&cut.counts);
            dirs.push(cut.dir);
            self.left.push(half.root);
        }
        Restore::Rows { dirs, counts: merged }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn state_equals_plain_maps_and_each_cut_equals_them_at_its_barrier(
        backend in a_backend(),
        steps in proptest::collection::vec(step(), 1..160),
        budget in prop_oneof![Just(0usize), Just(3_000), Just(40_000), Just(400_000), Just(64 << 20)],
    ) {
        BACKEND.set(backend);
        let mut run = Run {
            rig: Rig::open(|dir| mixed(dir, all(), budget), Restore::Empty),
            budget,
            model: Contents::default(),
            pending: Vec::new(),
            newest: None,
            writes: 0,
            left: Vec::new(),
        };
        let keys = some_keys();
        for step in &steps {
            run.step(step, &keys);
        }
        run.reopen(backend, |_, restore| restore);
        run.model.take_due(i8::MAX, all(), &mut run.rig.state);
        run.model.assert_held(&mut run.rig, all());
    }
}
