//! Keyed state as a whole: against a model, across freezes, restores, failures; what does not depend on the backend alone over
//! each of them.

mod collection;
mod conformance;
mod elements;
mod failure;
mod freeze;
mod memory;
mod model;
mod restore;
mod timers;
mod ttl;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use tempfile::TempDir;
use wasmill_core::contract::StateKind;
use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use wasmill_core::record::Column;

use super::*;
use crate::clock::ManualClock;

thread_local! {
    static BACKEND: Cell<StateBackend> = const { Cell::new(StateBackend::Rocksdb) };
}

/// What the states of this thread are opened with.
fn backend() -> StateBackend {
    BACKEND.get()
}

/// Runs a test with states of this backend.
fn with(backend: StateBackend, test: impl FnOnce()) {
    BACKEND.set(backend);
    test();
    BACKEND.set(StateBackend::default());
}

/// State index and key to value.
type Model = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn max() -> MaxParallelism {
    MaxParallelism::new(16).unwrap()
}

fn all() -> KeyGroupRange {
    KeyGroupRange::all(max())
}

fn state_name(index: usize) -> StateName {
    StateName::new(["count", "last-seen", "visits", "log"][index]).unwrap()
}

/// The map state and the list state of [`mixed`].
const MAP: usize = 2;
const LIST: usize = 3;

/// With a map and a list beside the two value states. Each of the two halves of the cache has `cache_bytes`.
fn mixed(dir: &Path, range: KeyGroupRange, cache_bytes: usize) -> Options {
    let mut options = options(dir, range, 2 * cache_bytes);
    for (index, kind) in [(MAP, StateKind::Map), (LIST, StateKind::List)] {
        options.states.push(StateSpec { name: state_name(index), kind, version: 1, ttl: None });
    }
    options
}

fn options(dir: &Path, range: KeyGroupRange, cache_bytes: usize) -> Options {
    let states =
        (0..2).map(|index| StateSpec { name: state_name(index), kind: StateKind::Value, version: 1, ttl: None });
    Options {
        backend: backend(),
        dir: dir.to_owned(),
        states: states.collect(),
        range,
        max_parallelism: max(),
        cache_bytes,
        shared: SharedMemory::new(match backend() {
            StateBackend::Rocksdb => 8 << 20,
            StateBackend::Memory => 256 << 20,
        }),
        clock: Arc::new(ManualClock::default()),
        place: "op/0".to_owned(),
    }
}

/// A state in a folder of its own, with the folder beside it for local cuts.
struct Rig {
    root: TempDir,
    state: KeyedState,
    cuts: mpsc::Receiver<Result<LocalCut, Error>>,
    sender: mpsc::Sender<Result<LocalCut, Error>>,
    taken: usize,
}

impl Rig {
    fn new(cache_bytes: usize) -> Self {
        Self::restored(all(), cache_bytes, Restore::Empty)
    }

    fn restored(range: KeyGroupRange, cache_bytes: usize, restore: Restore) -> Self {
        Self::open(|dir| options(dir, range, cache_bytes), restore)
    }

    fn open(options: impl FnOnce(&Path) -> Options, restore: Restore) -> Self {
        let root = tempfile::tempdir().unwrap();
        let state = KeyedState::open(options(&root.path().join("state")), restore).unwrap();
        let (sender, cuts) = mpsc::channel();
        Self { root, state, cuts, sender, taken: 0 }
    }

    fn freeze(&mut self) -> Result<(), Error> {
        self.taken += 1;
        let dir = self.next_dir();
        let sender = self.sender.clone();
        self.state.freeze(dir, Box::new(move |cut| sender.send(cut).unwrap()))
    }

    fn next_dir(&self) -> PathBuf {
        self.root.path().join("cuts").join(self.taken.to_string())
    }

    /// Freezes and waits for the local cut.
    fn cut(&mut self) -> LocalCut {
        self.freeze().unwrap();
        self.cuts.recv().unwrap().unwrap()
    }

    fn set(&mut self, state: usize, key: &[u8], value: &[u8]) {
        self.state.set_value(state, key, KeyHash::of(key), value).unwrap();
    }

    fn get(&mut self, state: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.state.value(state, key, KeyHash::of(key)).unwrap().map(<[u8]>::to_vec)
    }

    fn put(&mut self, key: &[u8], name: &[u8], value: &[u8]) {
        self.state.map_put((MAP, key, KeyHash::of(key)), &name.into(), value.into()).unwrap();
    }

    fn remove(&mut self, key: &[u8], name: &[u8]) {
        self.state.map_remove((MAP, key, KeyHash::of(key)), &name.into()).unwrap();
    }

    fn entry(&mut self, key: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        self.state.map_get(MAP, key, KeyHash::of(key), name).unwrap().map(<[u8]>::to_vec)
    }

    fn page(&mut self, key: &[u8], range: Range<'_>, limit: usize) -> Page {
        self.state.map_page((MAP, key, KeyHash::of(key)), range, limit, std::iter::empty()).unwrap()
    }

    fn append(&mut self, key: &[u8], values: &[&[u8]]) {
        let values = values.iter().map(|value| Value::from(*value));
        self.state.list_append(LIST, key, KeyHash::of(key), values).unwrap();
    }

    fn length(&mut self, key: &[u8]) -> u64 {
        self.state.list_length(LIST, key, KeyHash::of(key)).unwrap()
    }

    fn elements(&mut self, key: &[u8], start: u64, limit: usize) -> Vec<Vec<u8>> {
        let page = self.state.list_page((LIST, key, KeyHash::of(key)), start, limit).unwrap();
        page.iter().map(<[u8]>::to_vec).collect()
    }

    /// All entries of a map, by pages of `limit`.
    fn map(&mut self, key: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let last = entries.last().map(|(name, _)| name.clone());
            let lower = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let page = self.page(key, Range { lower, ..Range::ALL }, limit);
            assert!(page.values.len() <= limit);
            entries.extend(page.names.iter().zip(page.values.iter()).map(|(n, v)| (n.to_vec(), v.to_vec())));
            if !page.more {
                return entries;
            }
        }
    }

    /// All elements of a list, by pages of `limit`.
    fn list(&mut self, key: &[u8], limit: usize) -> Vec<Vec<u8>> {
        let mut elements = Vec::new();
        loop {
            let page = self.elements(key, elements.len() as u64, limit);
            if page.is_empty() {
                return elements;
            }
            elements.extend(page);
        }
    }
}

/// The values of `keys`, as a guest would read them from its column.
fn load(state: &mut KeyedState, index: usize, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let column: Column = keys.iter().map(Vec::as_slice).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::of(key)).collect();
    let (mut present, mut bytes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let out = EagerOut { present: &mut present, bytes: &mut bytes, ends: &mut ends };
    state.load_values(index, &column, &hashes, out).unwrap();
    let mut start = 0;
    let mut values = Vec::new();
    for (present, end) in present.iter().zip(ends.chunks(4)) {
        let end = u32::from_le_bytes(end.try_into().unwrap()) as usize;
        let value = bytes[start..end].to_vec();
        assert!(*present == 1 || value.is_empty());
        values.push((*present == 1).then_some(value));
        start = end;
    }
    assert_eq!((values.len(), start), (keys.len(), bytes.len()));
    values
}

/// Asserts that `state` holds of the model exactly what lies in `range`, and counts it.
fn assert_holds(state: &mut KeyedState, range: KeyGroupRange, model: &Model, keys: &BTreeSet<Vec<u8>>) {
    let own = |key: &Vec<u8>| range.contains(KeyGroup::of(key, max()));
    let keys: Vec<Vec<u8>> = keys.iter().filter(|key| own(key)).cloned().collect();
    for index in 0..2 {
        let expected: Vec<_> = keys.iter().map(|key| model.get(&(index, key.clone())).cloned()).collect();
        assert_eq!(load(state, index, &keys), expected, "state {index}");
    }
    assert_eq!(*state.counts(), count(model, range));
}

/// What the counts of `model` within `range` are.
fn count(model: &Model, range: KeyGroupRange) -> Counts {
    let mut counts = Counts::new((0..2).map(state_name), range);
    for ((index, key), value) in model {
        if let Some(tally) = counts.tally_mut(*index, KeyGroup::of(key, max())) {
            tally.entries += 1;
            tally.bytes += (key.len() + value.len()) as u64;
        }
    }
    counts
}

/// Keys that have once been a problem somewhere (S2, S8), and ordinary ones.
fn some_keys() -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], vec![0xff], vec![0xff, 0], vec![0xff, 0xff], vec![0xfe], vec![0], vec![0; 65_536]];
    keys.extend((0..40u16).map(|n| format!("N{n}").into_bytes()));
    keys
}

#[test]
fn a_state_may_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<KeyedState>();
}
