//! Random operations against a map.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Load(usize, Vec<usize>),
    Value(usize, usize),
    Set(usize, usize, usize),
    Clear(usize, usize),
    Maintain,
    Freeze,
    /// Waits for the oldest cut that is under way.
    Cut,
    /// Goes on from the newest cut taken, as after a failure.
    Reopen,
    /// The same, restored as two subtasks and again as one.
    Rescale(u16),
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly few keys, so that one key's values are often in several layers at once.
    let key = prop_oneof![3 => 0..8usize, 1 => 0..some_keys().len()];
    prop_oneof![
        4 => (0..2usize, proptest::sample::subsequence((0..some_keys().len()).collect::<Vec<_>>(), 1..20))
            .prop_map(|(state, keys)| Step::Load(state, keys)),
        2 => (0..2usize, key.clone()).prop_map(|(state, key)| Step::Value(state, key)),
        // Lengths that stay in place, that grow out of their place, and that get a chunk of their own.
        16 => (0..2usize, key.clone(), prop_oneof![0usize..20, 20usize..300, Just(5_000)])
            .prop_map(|(state, key, len)| Step::Set(state, key, len)),
        4 => (0..2usize, key).prop_map(|(state, key)| Step::Clear(state, key)),
        8 => Just(Step::Maintain),
        3 => Just(Step::Freeze),
        2 => Just(Step::Cut),
        1 => Just(Step::Reopen),
        1 => (0..=16u16).prop_map(Step::Rescale),
    ]
}

/// The state under test, what it should hold, and what each cut under way or taken should hold.
struct Run {
    rig: Rig,
    budget: usize,
    model: Model,
    pending: Vec<Model>,
    newest: Option<(LocalCut, Model)>,
    sets: usize,
    /// Folders of states that were left; cuts lie in them.
    left: Vec<TempDir>,
}

impl Run {
    fn step(&mut self, step: &Step, keys: &[Vec<u8>]) {
        match step {
            Step::Load(state, chosen) => {
                let chosen: Vec<Vec<u8>> = chosen.iter().map(|&key| keys[key].clone()).collect();
                let expected: Vec<_> =
                    chosen.iter().map(|key| self.model.get(&(*state, key.clone())).cloned()).collect();
                assert_eq!(load(&mut self.rig.state, *state, &chosen), expected);
            }
            Step::Value(state, key) => {
                let key = &keys[*key];
                assert_eq!(self.rig.get(*state, key), self.model.get(&(*state, key.clone())).cloned());
            }
            Step::Set(state, key, len) => {
                self.sets += 1;
                let value = vec![self.sets as u8; *len];
                self.rig.set(*state, &keys[*key], &value);
                self.model.insert((*state, keys[*key].clone()), value);
            }
            Step::Clear(state, key) => {
                let key = &keys[*key];
                self.rig.state.clear_value(*state, key, KeyHash::of(key)).unwrap();
                self.model.remove(&(*state, key.clone()));
            }
            Step::Maintain => self.rig.state.maintain().unwrap(),
            Step::Freeze => {
                if self.pending.len() == 2 {
                    self.take();
                }
                self.rig.freeze().unwrap();
                self.pending.push(self.model.clone());
            }
            Step::Cut => self.take(),
            Step::Reopen => self.reopen(|_, restore| restore),
            Step::Rescale(at) => self.reopen(|run, restore| run.rescaled(restore, *at)),
        }
        assert_eq!(*self.rig.state.counts(), count(&self.model, all()));
    }

    fn take(&mut self) {
        if !self.pending.is_empty() {
            let cut = self.rig.cuts.recv().unwrap().unwrap();
            let model = self.pending.remove(0);
            assert_eq!(cut.counts, count(&model, all()));
            self.newest = Some((cut, model));
        }
    }

    fn reopen(&mut self, with: impl FnOnce(&mut Self, Restore) -> Restore) {
        while !self.pending.is_empty() {
            self.take();
        }
        let Some((cut, model)) = self.newest.clone() else { return };
        let restore = with(self, Restore::Same { dir: cut.dir, counts: cut.counts });
        let before = std::mem::replace(&mut self.rig, Rig::restored(all(), self.budget, restore));
        self.left.push(before.root);
        self.model = model;
        let keys = some_keys().into_iter().collect();
        assert_holds(&mut self.rig.state, all(), &self.model, &keys);
    }

    /// Restores as two subtasks, checks what each has, and hands back their cuts for one.
    fn rescaled(&mut self, restore: Restore, at: u16) -> Restore {
        let Restore::Same { dir, counts } = restore else { panic!("a cut") };
        let (_, model) = self.newest.clone().unwrap();
        let keys = some_keys().into_iter().collect();
        let mut merged = Counts::default();
        let mut dirs = Vec::new();
        for range in [KeyGroupRange { start: 0, end: at }, KeyGroupRange { start: at, end: 16 }] {
            let rows = Restore::Rows { dirs: vec![dir.clone()], counts: counts.clone() };
            let mut half = Rig::restored(range, self.budget, rows);
            assert_holds(&mut half.state, range, &model, &keys);
            let cut = half.cut();
            assert_eq!(cut.counts, count(&model, range));
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
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn state_equals_a_map_and_each_cut_equals_the_map_at_its_barrier(
        steps in proptest::collection::vec(step(), 1..120),
        budget in prop_oneof![Just(0usize), Just(3_000), Just(40_000), Just(400_000), Just(64 << 20)],
    ) {
        let mut run = Run {
            rig: Rig::new(budget),
            budget,
            model: Model::new(),
            pending: Vec::new(),
            newest: None,
            sets: 0,
            left: Vec::new(),
        };
        let keys = some_keys();
        for step in &steps {
            run.step(step, &keys);
        }
        run.reopen(|_, restore| restore);
    }
}
