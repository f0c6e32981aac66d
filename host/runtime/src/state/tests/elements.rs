//! State of no key across restores at other parallelisms: broadcast state whole everywhere, operator state given out.

use wasmill_core::id::{Parallelism, SubtaskIndex};

use super::*;

const BROADCAST: usize = 1;
const SPLIT: usize = 2;
const UNION: usize = 3;
/// With which elements are told apart from rows of another schema version.
const VERSION: u32 = 1;

/// The subtask's options, with a keyed value state and one of each kind without keys.
fn unkeyed(dir: &Path, range: KeyGroupRange) -> Options {
    let mut options = options(dir, range, 0);
    options.states.truncate(1);
    for (name, kind) in [("b", StateKind::Broadcast), ("s", StateKind::OperatorSplit), ("u", StateKind::OperatorUnion)]
    {
        options.states.push(StateSpec { name: StateName::new(name).unwrap(), kind, version: VERSION, ttl: None });
    }
    options
}

fn ranges(parallelism: u32) -> Vec<KeyGroupRange> {
    let parallelism = Parallelism::new(parallelism).unwrap();
    parallelism.subtasks().map(|index| KeyGroupRange::of(index, max(), parallelism)).collect()
}

fn replace(rig: &mut Rig, state: usize, elements: &[String]) {
    let hash = rig.state.no_key_hash();
    rig.state.list_clear(state, NO_KEY, hash).unwrap();
    rig.state.forget_union(state);
    let values = elements.iter().map(|element| Value::from(element.as_bytes()));
    rig.state.list_append(state, NO_KEY, hash, values).unwrap();
}

fn texts(column: &Column) -> Vec<String> {
    column.iter().map(|element| String::from_utf8(element.to_vec()).unwrap()).collect()
}

fn own(rig: &mut Rig, state: usize) -> Vec<String> {
    let hash = rig.state.no_key_hash();
    texts(&rig.state.list_page((state, NO_KEY, hash), 0, 100).unwrap())
}

fn entries(rig: &mut Rig) -> Vec<(Vec<u8>, Vec<u8>)> {
    let hash = rig.state.no_key_hash();
    let page = rig.state.map_page((BROADCAST, NO_KEY, hash), Range::ALL, 100, std::iter::empty()).unwrap();
    page.names.iter().zip(page.values.iter()).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// The subtasks of a restore at `parallelism` from local cuts of others, in their order.
fn restored(cuts: &[(KeyGroupRange, LocalCut)], parallelism: u32) -> Vec<Rig> {
    let dirs: Vec<_> = cuts.iter().map(|(_, cut)| cut.dir.clone()).collect();
    let shared = SharedMemory::new(8 << 20);
    let states = unkeyed(Path::new("none"), all()).states;
    let elements = read_elements(&dirs, &states, &shared, "op").unwrap();
    let mut rigs = Vec::new();
    for (index, range) in ranges(parallelism).into_iter().enumerate() {
        let restore = match cuts.iter().find(|(before, _)| *before == range) {
            Some((_, cut)) => Restore::Same { dir: cut.dir.clone(), counts: cut.counts.clone() },
            None => {
                let mut counts = Counts::default();
                cuts.iter().for_each(|(_, cut)| counts.merge(&cut.counts));
                let holding = cuts.iter().filter(|(before, _)| before.overlaps(range));
                let dirs = holding.map(|(_, cut)| cut.dir.clone()).collect();
                Restore::Rows { dirs, counts: counts.restrict(range) }
            }
        };
        let mut rig = Rig::open(|dir| unkeyed(dir, range), restore);
        let (index, parallelism) = (SubtaskIndex(index as u32), Parallelism::new(parallelism).unwrap());
        rig.state.take_elements(&elements, index, parallelism).unwrap();
        rigs.push(rig);
    }
    rigs
}

fn cut(rigs: &mut [Rig]) -> Vec<(KeyGroupRange, LocalCut)> {
    let ranges = ranges(rigs.len() as u32);
    ranges.into_iter().zip(rigs).map(|(range, rig)| (range, rig.cut())).collect()
}

#[test]
fn what_belongs_to_no_key_survives_restores_at_other_parallelisms() {
    for backend in [StateBackend::Rocksdb, StateBackend::Memory] {
        with(backend, survives_restores_at_other_parallelisms);
    }
}

fn survives_restores_at_other_parallelisms() {
    let mut rigs: Vec<_> =
        ranges(2).into_iter().map(|range| Rig::open(|dir| unkeyed(dir, range), Restore::Empty)).collect();
    let rules = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())];
    for (index, rig) in rigs.iter_mut().enumerate() {
        let hash = rig.state.no_key_hash();
        for (name, value) in &rules {
            rig.state.map_put((BROADCAST, NO_KEY, hash), &name[..].into(), value[..].into()).unwrap();
        }
        let elements: Vec<_> = (0..=2 * index).map(|n| format!("{index}.{n}")).collect();
        replace(rig, SPLIT, &elements);
        replace(rig, UNION, &elements);
    }
    let keys: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n]).collect();
    for key in &keys {
        let group = KeyGroup::of(key, max());
        let at = ranges(2).iter().position(|range| range.contains(group)).unwrap();
        rigs[at].set(0, key, key);
    }
    let all_elements = ["0.0", "1.0", "1.1", "1.2"].map(str::to_owned);
    // Of 16 key groups the first of four subtasks and the first of five have the same.
    for parallelism in [2, 3, 1, 4, 5, 2] {
        let cuts = cut(&mut rigs);
        let before: Vec<_> = rigs.iter_mut().map(|rig| (own(rig, SPLIT), own(rig, UNION))).collect();
        let same = rigs.len() == parallelism as usize;
        rigs = restored(&cuts, parallelism);
        let mut split = Vec::new();
        for (index, (rig, range)) in rigs.iter_mut().zip(ranges(parallelism)).enumerate() {
            assert_eq!(entries(rig), rules, "the same everywhere");
            let union = rig.state.union_page(UNION, 0, 100).unwrap();
            assert_eq!(texts(&union), all_elements, "shown whole, in the order of the subtasks before");
            assert_eq!(texts(&rig.state.union_page(UNION, 3, 9).unwrap()), all_elements[3..]);
            let owns = (own(rig, SPLIT), own(rig, UNION));
            assert_eq!(owns.0, owns.1, "what is shown whole is owned as what is given out");
            assert!(!same || owns == before[index]);
            split.extend(owns.0);
            let counted = rig.state.counts().get(&StateName::new("b").unwrap(), KeyGroup(range.start));
            assert_eq!((counted.entries, counted.bytes), (2, 4));
            for key in keys.iter().filter(|key| range.contains(KeyGroup::of(key, max()))) {
                assert_eq!(rig.get(0, key).as_deref(), Some(&key[..]));
            }
        }
        assert_eq!(split, all_elements, "each once");
    }
    assert!(rigs[0].state.union_page(UNION, 0, 1).is_some());
    replace(&mut rigs[0], UNION, &["new".to_owned()]);
    assert_eq!((rigs[0].state.union_page(UNION, 0, 1), own(&mut rigs[0], UNION)), (None, vec!["new".to_owned()]));
}

#[test]
fn elements_of_another_schema_version_are_refused_naming_both() {
    let mut rig = Rig::open(|dir| unkeyed(dir, all()), Restore::Empty);
    replace(&mut rig, SPLIT, &["x".to_owned()]);
    let cut = rig.cut();
    let mut states = unkeyed(Path::new("none"), all()).states;
    states[SPLIT].version = VERSION + 1;
    let error = read_elements(&[cut.dir], &states, &SharedMemory::new(1 << 20), "op").unwrap_err();
    assert!(matches!(error, Error::Version { found: 1, declared: 2, .. }), "{error}");
}
