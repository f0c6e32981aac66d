//! What a restore promises: every key group comes from where it was, and nothing is lost in silence.

use proptest::prelude::*;

use super::*;
use crate::checkpoint::manifest::tests::golden;
use crate::graph::Node;
use crate::id::SubtaskIndex;
use crate::key_group::KeyGroup;

fn uid(name: &str) -> OperatorUid {
    OperatorUid::new(name).unwrap()
}

fn contracts(manifest: &Manifest) -> BTreeMap<OperatorUid, OperatorContract> {
    manifest.operators.iter().map(|(uid, operator)| (uid.clone(), operator.contract.clone())).collect()
}

/// The golden manifest's pipeline with another parallelism of its operator.
fn graph(manifest: &Manifest, parallelism: u32) -> Graph {
    let nodes = manifest.graph.nodes().iter().map(|node| match node.kind {
        NodeKind::Operator => Node { parallelism: Parallelism::new(parallelism).unwrap(), ..node.clone() },
        _ => node.clone(),
    });
    Graph::new(nodes.collect()).unwrap()
}

fn renamed(manifest: &Manifest, from: &str, to: &str) -> Graph {
    let mut nodes = manifest.graph.nodes().to_vec();
    for node in &mut nodes {
        if node.uid.as_str() == from {
            node.uid = uid(to);
        }
        for edge in node.edges.iter_mut().filter(|edge| edge.from.as_str() == from) {
            edge.from = uid(to);
        }
    }
    Graph::new(nodes).unwrap()
}

fn subtask(index: u32) -> SubtaskId {
    SubtaskId { uid: uid("per-aircraft"), index: SubtaskIndex(index) }
}

#[test]
fn the_same_ranges_open_the_files_as_they_are() {
    let manifest = golden();
    let contracts = contracts(&manifest);
    let graph = graph(&manifest, 2);
    let target = Target { graph: &graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    let plan = plan(&manifest, &target).unwrap();
    assert_eq!(plan.shares[&subtask(0)], Share::Same(&manifest.parts[1]));
    assert_eq!(plan.shares[&subtask(1)], Share::Nothing, "its part has no files");
    assert_eq!(plan.splits[&uid("flights")], [&manifest.parts[0].splits[0]]);
    assert_eq!(plan.watermarks[&uid("per-aircraft")], manifest.parts[1].watermark);
}

#[test]
fn other_ranges_take_their_rows_out_of_the_parts_that_hold_them() {
    let mut manifest = golden();
    manifest.parts[2].state = manifest.parts[1].state.clone();
    let contracts = contracts(&manifest);
    let at = |parallelism| graph(&manifest, parallelism);
    let (one, four) = (at(1), at(4));
    let target = |graph| Target { graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    let all =
        Share::Rows { range: KeyGroupRange { start: 0, end: 4 }, parts: vec![&manifest.parts[1], &manifest.parts[2]] };
    assert_eq!(plan(&manifest, &target(&one)).unwrap().shares[&subtask(0)], all);
    let last = Share::Rows { range: KeyGroupRange { start: 3, end: 4 }, parts: vec![&manifest.parts[2]] };
    assert_eq!(plan(&manifest, &target(&four)).unwrap().shares[&subtask(3)], last);
}

#[test]
fn v3_another_max_parallelism_or_too_many_subtasks_are_refused_naming_both_numbers() {
    let manifest = golden();
    let contracts = contracts(&manifest);
    let same = graph(&manifest, 2);
    let max = MaxParallelism::new(256).unwrap();
    let error = plan(&manifest, &Target { graph: &same, max_parallelism: max, contracts: &contracts }).unwrap_err();
    assert!(error.to_string().contains("max-parallelism 4") && error.to_string().contains("256"), "{error}");
    let five = graph(&manifest, 5);
    let target = Target { graph: &five, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    let error = plan(&manifest, &target).unwrap_err();
    assert!(error.to_string().contains("parallelism 5, more than max-parallelism 4"), "{error}");
}

#[test]
fn v1_state_that_the_pipeline_no_longer_has_is_refused_naming_uid_entries_and_bytes() {
    let manifest = golden();
    let all = contracts(&manifest);
    let refused = |graph: &Graph, contracts: &BTreeMap<_, _>| {
        let target = Target { graph, max_parallelism: manifest.max_parallelism, contracts };
        plan(&manifest, &target).unwrap_err().to_string()
    };
    let error = refused(&renamed(&manifest, "per-aircraft", "by-plane"), &all);
    assert!(error.contains("state `totals` of `per-aircraft`: 3023 entries, 181380 bytes"), "{error}");
    assert!(error.contains("--fresh"), "{error}");
    let error = refused(&renamed(&manifest, "flights", "planes"), &all);
    assert!(error.contains("`flights`: positions of 1 splits"), "{error}");
    let error = refused(&renamed(&manifest, "totals", "sums"), &all);
    assert!(error.contains("`totals`: 1 outputs that are decided and not yet committed"), "{error}");
    let mut without = all.clone();
    without.values_mut().for_each(|contract| contract.states.clear());
    assert!(refused(&graph(&manifest, 2), &without).contains("state `totals` of `per-aircraft`"));
    let mut renamed_state = all;
    for state in renamed_state.values_mut().flat_map(|contract| &mut contract.states) {
        state.renamed_from = vec![std::mem::replace(&mut state.name, StateName::new("sums").unwrap())];
    }
    let same = graph(&manifest, 2);
    let target = Target { graph: &same, max_parallelism: manifest.max_parallelism, contracts: &renamed_state };
    assert!(plan(&manifest, &target).is_ok(), "a declared rename is no loss");
}

#[test]
fn a_node_without_state_may_come_and_go() {
    let mut manifest = golden();
    manifest.parts[1].state = None;
    manifest.parts[3].commits.clear();
    let graph = renamed(&manifest, "totals", "sums");
    let contracts = BTreeMap::new();
    let target = Target { graph: &graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    assert!(plan(&manifest, &target).is_ok());
}

#[test]
fn in_flight_data_is_never_dropped_in_silence() {
    let mut manifest = golden();
    let sha256 = crate::digest::Digest::of(b"");
    let object = "files/x".to_owned();
    manifest.parts[1].in_flight =
        vec![crate::checkpoint::manifest::InFlight { input: 0, object, offset: 0, length: 1, sha256 }];
    let contracts = contracts(&manifest);
    let graph = graph(&manifest, 2);
    let target = Target { graph: &graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    assert_eq!(plan(&manifest, &target).unwrap_err(), Error::InFlight(subtask(0)));
}

proptest! {
    /// I2: whatever the parallelism then and now, each key group is restored by its owner, from the part that had it.
    #[test]
    fn every_key_group_is_restored_once_from_where_it_was(then in 1u32..9, now in 1u32..9, max in 9u64..200) {
        let mut manifest = golden();
        let max = MaxParallelism::new(max).unwrap();
        let state = manifest.parts[1].state.clone();
        let part = Part { state: state.map(|mut s| { s.counts = Default::default(); s }), ..manifest.parts[1].clone() };
        let (then, now) = (Parallelism::new(then).unwrap(), Parallelism::new(now).unwrap());
        manifest.max_parallelism = max;
        manifest.parts.retain(|part| part.uid.as_str() != "per-aircraft");
        manifest.parts.extend(then.subtasks().map(|index| Part {
            index,
            key_groups: Some(KeyGroupRange::of(index, max, then)),
            ..part.clone()
        }));
        manifest.graph = graph(&manifest, then.get());
        manifest.validate().unwrap();
        let contracts = contracts(&manifest);
        let graph = graph(&manifest, now.get());
        let plan = plan(&manifest, &Target { graph: &graph, max_parallelism: max, contracts: &contracts }).unwrap();
        for group in (0..max.get()).map(KeyGroup) {
            let owner = subtask(group.owner(max, now).0);
            let holds = |part: &&Part| part.key_groups.unwrap().contains(group);
            let sources = match &plan.shares[&owner] {
                Share::Nothing => 0,
                Share::Same(part) => usize::from(holds(part)),
                Share::Rows { range, parts } => {
                    prop_assert!(range.contains(group));
                    parts.iter().filter(|part| holds(part)).count()
                }
            };
            prop_assert_eq!(sources, 1);
        }
        if then == now {
            prop_assert!(plan.shares.values().all(|share| matches!(share, Share::Same(_))));
        }
    }
}

#[test]
fn subtasks_are_told_of_one_anothers_elements_where_they_must_be() {
    let mut manifest = golden();
    manifest.parts[2].state = manifest.parts[1].state.clone();
    manifest.parts.swap(1, 2);
    let told = |kind, parallelism| {
        let mut contracts = contracts(&manifest);
        contracts.get_mut(&uid("per-aircraft")).unwrap().states[0].kind = kind;
        let graph = graph(&manifest, parallelism);
        let target = Target { graph: &graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
        let plan = plan(&manifest, &target).unwrap();
        plan.elements.get(&uid("per-aircraft")).map(|parts| parts.iter().map(|part| part.index.0).collect::<Vec<_>>())
    };
    use crate::contract::StateKind::{Broadcast, OperatorSplit, OperatorUnion, Value};
    for (kind, at_2, at_3) in [(Value, false, false), (Broadcast, false, false), (OperatorSplit, false, true)] {
        assert_eq!((told(kind, 2).is_some(), told(kind, 3).is_some()), (at_2, at_3), "{kind:?}");
    }
    assert_eq!(told(OperatorUnion, 2), Some(vec![0, 1]), "in the order of the subtasks");
    assert_eq!(told(OperatorUnion, 1), Some(vec![0, 1]));
}

#[test]
fn the_watermark_of_broadcast_inputs_goes_on() {
    let mut manifest = golden();
    let at = Timestamp::from_millis(7);
    manifest.parts[1].merged_watermark = Some(at);
    manifest.parts[2].merged_watermark = Some(at);
    assert_eq!(serde_json::to_value(&manifest.parts[1]).unwrap()["merged-watermark"], 7);
    let contracts = contracts(&manifest);
    let graph = graph(&manifest, 3);
    let target = Target { graph: &graph, max_parallelism: manifest.max_parallelism, contracts: &contracts };
    let plan = plan(&manifest, &target).unwrap();
    assert_eq!(plan.merged_watermarks, BTreeMap::from([(uid("per-aircraft"), at)]));
}
