//! What map, list, broadcast and operator state promise, held against models.
//!
//! Owns no helper that others use.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Ahead;
use crate::prelude::*;
use crate::testing::{Harness, Input};
use crate::types::{FaultKind, StateKind};

/// Does what a record's words say.
#[derive(Operator)]
#[operator(input("in"), input("rules", broadcast))]
struct Script {
    map: Map<i16, String>,
    list: List<u32>,
    rules: Broadcast<String, u32>,
    own: OperatorState<u32>,
    #[state(renamed_from("was"))]
    shared: OperatorState<u32, Union>,
    bytes: Map<Vec<u8>, Vec<u8>, Raw>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    Put(i16, String),
    Remove(i16),
    Clear,
    Get(i16),
    Many(Vec<i16>),
    Scan {
        from: i16,
        to: i16,
        reverse: bool,
        limit: Option<u32>,
    },
    Append(Vec<u32>),
    Replace(Vec<u32>),
    Elements,
    Rule(String, Option<u32>),
    Rules,
    Own(Vec<u32>),
    /// Walks the map, removing even map keys, putting entries ahead and behind, and overwriting the next.
    Mutate,
    PutMany(i16),
    Raw(Vec<u8>),
    ClearPrefix(Vec<u8>),
    Prefix(Vec<u8>),
    Reject,
}

impl Script {
    fn step(&mut self, step: Step, ctx: &mut Context<'_>) -> Result {
        match step {
            Step::Put(key, value) => self.map.insert(ctx, &key, value),
            Step::Remove(key) => self.map.remove(ctx, &key),
            Step::Clear => self.map.clear(ctx),
            Step::Get(key) => {
                let (value, there) = (self.map.get(ctx, &key)?, self.map.contains(ctx, &key)?);
                ctx.emit(&(value, there))
            }
            Step::Many(keys) => {
                let values = self.map.get_many(ctx, keys)?;
                ctx.emit(&values)
            }
            Step::Scan { from, to, reverse, limit } => {
                let scan = self.map.range(from..to);
                let scan = if reverse { scan.reverse() } else { scan };
                let scan = if let Some(limit) = limit { scan.limit(limit) } else { scan };
                let entries = self.map.collect(ctx, scan)?;
                ctx.emit(&entries)
            }
            Step::Append(elements) => self.list.extend(ctx, &elements),
            Step::Replace(elements) => self.list.replace(ctx, &elements),
            Step::Elements => {
                let (len, all) = (self.list.len(ctx)?, self.list.collect(ctx)?);
                assert_eq!(len, all.len() as u64);
                ctx.emit(&all)
            }
            Step::Rule(name, Some(rule)) => self.rules.insert(ctx, &name, rule),
            Step::Rule(name, None) => self.rules.remove(ctx, &name),
            Step::Rules => {
                let all = self.rules.all(ctx)?;
                let mut walk = self.rules.prefix("a");
                let mut some = Vec::new();
                while let Some((name, _)) = self.rules.next(ctx, &mut walk)? {
                    some.push(name);
                }
                ctx.emit(&(all, some))
            }
            Step::Own(elements) => {
                let before = self.own.read(ctx)?.to_vec();
                self.own.replace(ctx, elements)?;
                let shared = self.shared.read(ctx)?.len();
                ctx.emit(&(before, shared))
            }
            Step::Mutate => self.mutate(ctx),
            Step::PutMany(count) => (0..count).try_for_each(|n| self.map.insert(ctx, &(4 * n), n.to_string())),
            Step::Raw(key) => self.bytes.insert(ctx, &key, key.clone()),
            Step::ClearPrefix(prefix) => {
                let mut walk = self.bytes.prefix(&prefix);
                while let Some((key, _)) = self.bytes.next(ctx, &mut walk)? {
                    self.bytes.remove(ctx, &key)?;
                }
                Ok(())
            }
            Step::Prefix(prefix) => {
                let entries = self.bytes.collect(ctx, self.bytes.prefix(&prefix))?;
                ctx.emit(&entries.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
            }
            Step::Reject => Err(Error::reject("as told")),
        }
    }

    fn mutate(&mut self, ctx: &mut Context<'_>) -> Result {
        let mut walk = self.map.iter();
        let mut seen = Vec::new();
        while let Some((key, value)) = self.map.next(ctx, &mut walk)? {
            seen.push((key, value));
            match key % 4 {
                0 if key % 8 == 0 => self.map.remove(ctx, &key)?,
                0 => {
                    self.map.insert(ctx, &(key + 1), "ahead".to_owned())?;
                    self.map.insert(ctx, &(key - 1), "behind".to_owned())?;
                    self.map.insert(ctx, &(key + 4), "overwritten".to_owned())?;
                    self.map.remove(ctx, &(key + 8))?;
                }
                _ => {}
            }
        }
        ctx.emit(&seen)
    }
}

impl Process for Script {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        record.value::<Vec<Step>>()?.into_iter().try_for_each(|step| self.step(step, ctx))
    }
}

fn harness() -> Harness<Script> {
    Harness::new("{}").unwrap()
}

fn script(key: &str, steps: Vec<Step>) -> Input {
    Input::new(&steps).key(key)
}

fn put(key: i16, value: &str) -> Step {
    Step::Put(key, value.to_owned())
}

/// What a script says over a plain map and list, emit by emit.
#[derive(Default, Clone)]
struct Model {
    map: BTreeMap<i16, String>,
    list: Vec<u32>,
}

impl Model {
    /// The emits of a record, or none where it is rejected, in which case nothing changes.
    fn record(&mut self, steps: &[Step]) -> Option<Vec<Vec<u8>>> {
        let mut next = self.clone();
        let mut emits = Vec::new();
        for step in steps {
            let emit = match step {
                Step::Put(key, value) => {
                    next.map.insert(*key, value.clone());
                    continue;
                }
                Step::Remove(key) => {
                    next.map.remove(key);
                    continue;
                }
                Step::Clear => {
                    next.map.clear();
                    continue;
                }
                Step::Append(elements) => {
                    next.list.extend(elements);
                    continue;
                }
                Step::Replace(elements) => {
                    next.list.clone_from(elements);
                    continue;
                }
                Step::Get(key) => crate::cbor::to_vec(&(next.map.get(key), next.map.contains_key(key))),
                Step::Many(keys) => crate::cbor::to_vec(&keys.iter().map(|key| next.map.get(key)).collect::<Vec<_>>()),
                Step::Scan { from, to, reverse, limit } => {
                    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
                    let (lower, upper) = (Bound::Included(*from), Bound::Excluded(*to.max(from)));
                    let found = if from >= to { vec![] } else { next.map.range((lower, upper)).collect::<Vec<_>>() };
                    let found: Vec<_> = match reverse {
                        true => found.into_iter().rev().take(limit).collect(),
                        false => found.into_iter().take(limit).collect(),
                    };
                    crate::cbor::to_vec(&found)
                }
                Step::Elements => crate::cbor::to_vec(&next.list),
                Step::Reject => return None,
                _ => unreachable!("not modelled"),
            };
            emits.push(emit.unwrap());
        }
        *self = next;
        Some(emits)
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = -6..6i16;
    prop_oneof![
        6 => (key.clone(), "[a-c]{0,2}").prop_map(|(key, value)| Step::Put(key, value)),
        3 => key.clone().prop_map(Step::Remove),
        1 => Just(Step::Clear),
        2 => key.clone().prop_map(Step::Get),
        1 => prop::collection::vec(key.clone(), 0..4).prop_map(Step::Many),
        3 => (key.clone(), key, any::<bool>(), prop::option::of(0..4u32))
            .prop_map(|(from, to, reverse, limit)| Step::Scan { from, to, reverse, limit }),
        2 => prop::collection::vec(0..9u32, 0..3).prop_map(Step::Append),
        1 => prop::collection::vec(0..9u32, 0..3).prop_map(Step::Replace),
        2 => Just(Step::Elements),
        1 => Just(Step::Reject),
    ]
}

proptest! {
    #[test]
    fn map_and_list_do_as_their_models_with_batches_of_any_size_and_after_refusals(
        records in prop::collection::vec((0..3u8, prop::collection::vec(step(), 1..6)), 1..30),
        size in prop_oneof![Just(1usize), Just(2), Just(7), Just(1024)],
        renewed in any::<bool>(),
    ) {
        let mut test = harness().batches_of(size);
        let mut models = [Model::default(), Model::default(), Model::default()];
        let expected: Vec<Vec<u8>> =
            records.iter().filter_map(|(key, steps)| models[usize::from(*key)].record(steps)).flatten().collect();
        let inputs: Vec<Input> = records.iter().map(|(key, steps)| script(&key.to_string(), steps.clone())).collect();
        let (first, second) = inputs.split_at(inputs.len() / 2);
        let mut emits = test.process(first.iter().cloned()).unwrap();
        if renewed {
            test.renew().unwrap();
        }
        emits.extend(test.process(second.iter().cloned()).unwrap());
        let told: Vec<Vec<u8>> = emits.into_iter().map(|emit| emit.bytes.unwrap()).collect();
        prop_assert_eq!(told, expected);
        for (key, model) in models.into_iter().enumerate() {
            let key = key.to_string();
            let stored = test.map::<i16, String>("map", key.as_str()).unwrap();
            prop_assert_eq!(stored, model.map.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(test.list::<u32>("list", key.as_str()).unwrap(), model.list);
        }
    }
}

#[test]
fn s4_a_walk_shows_each_entry_as_it_stands_when_the_walk_comes_to_it() {
    for count in [1, 127, 128, 129, 2_000] {
        for stored in [false, true] {
            let mut test = harness();
            let records = [script("a", vec![Step::PutMany(count)]), script("a", vec![Step::Mutate])];
            let emits = if stored {
                let [put, mutate] = records;
                test.process([put]).unwrap();
                test.process([mutate]).unwrap()
            } else {
                test.process(records).unwrap()
            };
            let seen: Vec<(i16, String)> = emits[0].value().unwrap();
            let mut model: BTreeMap<i16, String> = (0..count).map(|n| (4 * n, n.to_string())).collect();
            let mut shown = Vec::new();
            let mut at = i16::MIN;
            while let Some((key, value)) = model.range((Bound::Excluded(at), Bound::Unbounded)).next() {
                at = *key;
                shown.push((at, value.clone()));
                match at % 4 {
                    0 if at % 8 == 0 => drop(model.remove(&at)),
                    0 => {
                        model.insert(at + 1, "ahead".to_owned());
                        model.insert(at - 1, "behind".to_owned());
                        model.insert(at + 4, "overwritten".to_owned());
                        model.remove(&(at + 8));
                    }
                    _ => {}
                }
            }
            assert_eq!(seen, shown, "{count} entries");
            assert_eq!(test.map::<i16, String>("map", "a").unwrap(), model.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn s2_a_prefix_of_ones_finds_its_own_and_no_more() {
    let keys = [vec![0xff, 0], vec![0xff, 0x7f], vec![0xff, 0xff], vec![0xff, 0xff, 0], vec![0xfe, 1]];
    let mut test = harness();
    test.process([script("a", keys.iter().cloned().map(Step::Raw).collect())]).unwrap();
    let emits = test.process([script("a", vec![Step::Prefix(vec![0xff, 0xff]), Step::Prefix(vec![0xff])])]).unwrap();
    assert_eq!(emits[0].value::<Vec<Vec<u8>>>().unwrap(), keys[2..4]);
    assert_eq!(emits[1].value::<Vec<Vec<u8>>>().unwrap(), keys[..4]);
    test.process([script("a", vec![Step::ClearPrefix(vec![0xff, 0xff])])]).unwrap();
    assert_eq!(test.row_count("bytes").unwrap(), 3);
}

#[test]
fn a_batchs_look_ups_and_writes_cross_once() {
    let mut test = harness();
    let puts = |value: &'static str| (0..100).map(move |key| script("a", vec![put(key, value)]));
    test.process(puts("x")).unwrap();
    assert_eq!(test.crossings(), 1, "a hundred puts are one call");
    test.process([script("a", vec![Step::Many((0..100).collect()), Step::Get(5)])]).unwrap();
    assert_eq!(test.crossings(), 2, "a hundred gets are one call, and what is known is not asked for");
    test.process((0..100).map(|_| script("b", vec![Step::Append(vec![1])]))).unwrap();
    assert_eq!(test.crossings(), 3, "a hundred appends are one call");
}

#[test]
fn what_is_looked_up_ahead_is_one_call_for_the_batch() {
    #[derive(Operator)]
    struct Lookups {
        entries: Map<u32, u32>,
    }
    impl Process for Lookups {
        fn look_ahead(&mut self, batch: &mut Ahead<'_, '_>) -> Result {
            let asked = batch.records().filter_map(|record| Some((record, record.value::<u32>().ok()?)));
            self.entries.prefetch(batch, asked)
        }
        fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
            let count = *self.entries.update(ctx, &record.value::<u32>()?, |count| *count += 1)?;
            ctx.emit(&count)
        }
    }
    let mut test = Harness::<Lookups>::new("{}").unwrap();
    let input = |n: u32| Input::new(&(n / 2)).key(if n.is_multiple_of(2) { "a" } else { "b" });
    test.process((0..50).map(input)).unwrap();
    assert_eq!(test.crossings(), 2, "a look-up and a put");
    let emits = test.process((0..50).map(input).chain([Input::bytes(b"\xff").key("a")])).unwrap();
    assert_eq!(test.crossings(), 4);
    assert!(emits.iter().all(|emit| emit.value::<u32>().unwrap() == 2));
    assert_eq!(test.rejects().len(), 1);
}

#[test]
fn broadcast_state_is_written_by_broadcast_inputs_only_and_read_everywhere() {
    let rule = |name: &str, rule| Step::Rule(name.to_owned(), rule);
    for size in [1, 1024] {
        let mut test = harness().batches_of(size);
        let rules = [
            vec![rule("ab", Some(1)), rule("b", Some(2))],
            vec![rule("aa", Some(3)), Step::Reject],
            vec![rule("b", Some(4)), rule("ac", Some(5)), rule("gone", Some(6))],
            vec![rule("gone", None), Step::Rules],
        ];
        let emits = test.process(rules.map(|steps| Input::new(&steps).on(1))).unwrap();
        let expected = (
            vec![("ab".to_owned(), 1u32), ("ac".to_owned(), 5), ("b".to_owned(), 4)],
            vec!["ab".to_owned(), "ac".to_owned()],
        );
        assert_eq!(emits[0].value::<(Vec<(String, u32)>, Vec<String>)>().unwrap(), expected);
        assert_eq!(test.broadcast::<String, u32>("rules").unwrap(), expected.0);
        let crossings = test.crossings();
        let emits = test.process([script("a", vec![Step::Rules, Step::Rules])]).unwrap();
        assert_eq!(emits[1].value::<(Vec<(String, u32)>, Vec<String>)>().unwrap(), expected);
        assert_eq!(test.crossings(), crossings + 1, "the whole is fetched once a call");
        let fault = test.process([script("a", vec![rule("x", Some(1))])]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Fatal);
        assert!(fault.message.contains("`rules`"), "{}", fault.message);
    }
}

#[test]
fn operator_state_belongs_to_no_key_and_a_refusal_restores_it() {
    for size in [1, 1024] {
        let mut test = harness().batches_of(size);
        let records = [
            script("a", vec![Step::Own(vec![1, 2])]),
            script("b", vec![Step::Own(vec![9]), Step::Own(vec![8]), Step::Reject]),
            script("b", vec![Step::Own(vec![3])]),
        ];
        let emits = test.process(records).unwrap();
        assert_eq!(emits[1].value::<(Vec<u32>, usize)>().unwrap(), (vec![1, 2], 0));
        assert_eq!(test.elements::<u32>("own").unwrap(), [3]);
        assert_eq!(test.elements::<u32>("shared").unwrap(), [0u32; 0]);
    }
}

#[test]
fn a_long_list_is_read_in_pages_and_grows_meanwhile() {
    #[derive(Operator)]
    struct Pages {
        list: List<u32>,
    }
    impl Process for Pages {
        fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
            let mut walk = self.list.iter();
            let mut sum = 0u64;
            while let Some(element) = self.list.next(ctx, &mut walk)? {
                sum += u64::from(element);
                if element == 1_999 {
                    self.list.append(ctx, &1_000_000)?;
                }
            }
            self.list.extend(ctx, &record.value::<Vec<u32>>()?)?;
            ctx.emit(&sum)
        }
    }
    let mut test = Harness::<Pages>::new("{}").unwrap();
    let all: Vec<u32> = (0..2_000).collect();
    test.process([Input::new(&all).key("a")]).unwrap();
    let emits = test.process([Input::new::<[u32; 0]>(&[]).key("a")]).unwrap();
    assert_eq!(emits[0].value::<u64>().unwrap(), 1_999 * 1_000 + 1_000_000);
    assert_eq!(test.row_count("list").unwrap(), 2_001);
}

#[test]
fn every_kind_of_state_is_declared_with_its_types() {
    let told = Script::describe().states;
    let kinds: Vec<_> = told.iter().map(|state| (state.name.as_str(), state.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("map", StateKind::MapState),
            ("list", StateKind::ListState),
            ("rules", StateKind::BroadcastState),
            ("own", StateKind::OperatorSplit),
            ("shared", StateKind::OperatorUnion),
            ("bytes", StateKind::MapState),
        ]
    );
    assert_eq!(told[0].map_key_type.as_deref(), Some(r#"{"format":"i16","type":"integer"}"#));
    assert_eq!(told[0].value_type, r#"{"type":"string"}"#);
    assert_eq!(told[1].map_key_type, None);
    assert_eq!((told[5].map_key_type.as_deref(), told[5].value_type.as_str()), (Some("bytes"), "bytes"));
    assert_eq!(told[4].renamed_from, ["was"]);
    assert!(told.iter().all(|state| !state.lazy && state.rides_with.is_empty()));
}

#[test]
fn stored_entries_of_another_type_are_a_fatal_fault_that_names_the_state() {
    #[derive(Operator)]
    #[operator(name = "script")]
    struct Numbers {
        map: Map<u8, u32>,
    }
    impl Process for Numbers {
        fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
            let found = match record.value::<Option<u8>>()? {
                Some(key) => self.map.get(ctx, &key)?.into_iter().collect(),
                None => self.map.collect(ctx, self.map.iter())?.into_iter().map(|(_, value)| value).collect(),
            };
            ctx.emit::<Vec<u32>>(&found)
        }
    }
    let mut test = Harness::<Numbers>::new("{}").unwrap();
    test.memory().put(0, Some(b"a".to_vec()), vec![1], crate::cbor::to_vec("text").unwrap());
    test.memory().put(0, Some(b"b".to_vec()), vec![1, 2], crate::cbor::to_vec(&3).unwrap());
    for (key, asked) in [("a", Some(1u8)), ("a", None), ("b", None)] {
        let fault = test.process([Input::new(&asked).key(key)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Fatal);
        assert!(fault.message.starts_with("state `map`, the key of record 0: "), "{}", fault.message);
    }
}

#[test]
fn a_walk_ends_with_the_record_that_it_began_with() {
    #[derive(Operator)]
    struct Keeps {
        map: Map<u8, u32>,
        kept: Option<crate::state::Scan<u8>>,
    }
    impl Process for Keeps {
        fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result {
            let mut walk = self.kept.take().unwrap_or_else(|| self.map.iter());
            self.map.next(ctx, &mut walk)?;
            self.kept = Some(walk);
            Ok(())
        }
    }
    let mut test = Harness::<Keeps>::new("{}").unwrap();
    let fault = test.process([Input::absent().key("a"), Input::absent().key("a")]).unwrap_err();
    assert!(fault.message.contains("beyond the record"), "{}", fault.message);
}
