//! What a manifest promises: format 1 for ever, nothing believed that is damaged or does not add up.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::graph::{Edge, Exchange, Node};
use crate::id::Parallelism;
use crate::key_group::KeyGroup;

const GOLDEN: &[u8] = include_bytes!("../../../golden/manifest-1.json");

pub(crate) fn golden() -> Manifest {
    Manifest::decode(GOLDEN).unwrap().0
}

fn uid(name: &str) -> OperatorUid {
    OperatorUid::new(name).unwrap()
}

/// Format 1 as it was first written: it must be readable for ever.
#[test]
fn a_manifest_of_format_1_is_read_and_written_the_same() {
    let (manifest, checksum) = Manifest::decode(GOLDEN).unwrap();
    let sealed = manifest.encode().unwrap();
    assert_eq!(String::from_utf8(sealed.bytes).unwrap(), String::from_utf8(GOLDEN.to_vec()).unwrap());
    assert_eq!(sealed.checksum, checksum);
    assert_eq!(manifest.job.as_str(), "flights");
    let totals = manifest.totals(&uid("per-aircraft"));
    assert_eq!(totals.into_values().collect::<Vec<_>>(), [Tally { entries: 3_023, bytes: 181_380 }]);
    assert_eq!((manifest.bytes_new(), manifest.bytes_referenced()), (31, 8));
    assert_eq!(manifest.objects().len(), 4, "two files, one object of small files, one component");
}

#[test]
fn members_that_came_later_are_ignored() {
    let mut value: Value = serde_json::from_slice(GOLDEN).unwrap();
    let object = value.as_object_mut().unwrap();
    object.remove("sha256");
    object.insert("later".to_owned(), Value::from(1));
    assert_eq!(Manifest::decode(&sealed::seal(&value).unwrap().bytes).unwrap().0, golden());
}

#[test]
fn a_manifest_of_a_later_format_is_refused_in_words() {
    let mut value: Value = serde_json::from_slice(GOLDEN).unwrap();
    let object = value.as_object_mut().unwrap();
    object.remove("sha256");
    object.insert("format".to_owned(), Value::from(2));
    let error = Manifest::decode(&sealed::seal(&value).unwrap().bytes).unwrap_err();
    assert!(error.to_string().contains("format 2") && error.to_string().contains("newer"), "{error}");
}

fn groups(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange { start, end }
}

type Change = fn(&mut Manifest);

#[test]
fn a_manifest_that_does_not_add_up_is_neither_written_nor_read() {
    let cases: [(&str, Change); 13] = [
        ("no part of subtask per-aircraft/1", |m| drop(m.parts.remove(2))),
        ("two parts of subtask flights/0", |m| m.parts.push(m.parts[0].clone())),
        ("a part of subtask totals/4", |m| m.parts[3].index = SubtaskIndex(4)),
        ("group 2 is where the next part must begin", |m| m.parts[2].key_groups = Some(groups(1, 4))),
        ("group 2 is where", |m| m.parts[2].key_groups = Some(groups(3, 4))),
        ("there are 4 groups", |m| m.parts[2].key_groups = None),
        ("which component ran as `per-aircraft`", |m| m.operators.clear()),
        ("which component ran as `totals`", |m| {
            let operator = m.operators.values().next().unwrap().clone();
            m.operators.insert(uid("totals"), operator);
        }),
        ("the counts of state `totals` of per-aircraft/0 are not those of its key groups [0, 2)", |m| {
            m.parts[1].state.as_mut().unwrap().counts.cover(&StateName::new("totals").unwrap(), groups(1, 3));
        }),
        ("the counts of state `totals` of per-aircraft/0", |m| {
            let twice =
                r#"[{"state":"totals","first-group":0,"groups":[]},{"state":"totals","first-group":0,"groups":[]}]"#;
            m.parts[1].state.as_mut().unwrap().counts = serde_json::from_str(twice).unwrap();
        }),
        ("names `../x`", |m| m.parts[1].state.as_mut().unwrap().files[0].object = "../x".to_owned()),
        ("names `a/b`", |m| m.parts[1].state.as_mut().unwrap().files[0].name = "a/b".to_owned()),
        ("names `CURRENT`", |m| m.parts[1].state.as_mut().unwrap().files[0].name = "CURRENT".to_owned()),
    ];
    for (message, change) in cases {
        let mut manifest = golden();
        change(&mut manifest);
        let error = manifest.encode().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        let stored = sealed::seal(&manifest).unwrap().bytes;
        assert_eq!(Manifest::decode(&stored).unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn a_manifest_whose_pipeline_is_none_is_refused() {
    let mut value: Value = serde_json::from_slice(GOLDEN).unwrap();
    value["graph"][1]["edges"][0]["from"] = Value::from("nobody");
    value.as_object_mut().unwrap().remove("sha256");
    let error = Manifest::decode(&sealed::seal(&value).unwrap().bytes).unwrap_err();
    assert!(matches!(error, Error::Graph(_)), "{error}");
}

/// Counts of two states, one of them counted for some of the groups only.
fn counts(range: KeyGroupRange) -> impl Strategy<Value = Counts> {
    let tallies = prop::collection::vec((any::<u64>(), any::<u64>()), usize::from(range.end - range.start));
    tallies.prop_map(move |tallies| {
        let mut counts = Counts::new([StateName::new("s").unwrap()], range);
        for (group, tally) in (range.start..).zip(tallies) {
            *counts.tally_mut(0, KeyGroup(group)).unwrap() = tally.into();
        }
        counts.cover(&StateName::new("t").unwrap(), groups(range.start, range.start.midpoint(range.end)));
        counts
    })
}

fn file(index: usize) -> impl Strategy<Value = FileRef> {
    (any::<[u8; 4]>(), any::<u64>(), any::<u64>(), any::<Option<(u16, u16)>>()).prop_map(
        move |(content, offset, length, groups)| {
            let sha256 = Digest::of(&content);
            let object = names::file(sha256, CheckpointId(offset), Attempt(length));
            let key_groups = groups.map(|(start, end)| KeyGroupRange { start, end });
            FileRef { name: format!("{index:06}.sst"), object, offset, length, sha256, key_groups }
        },
    )
}

/// Any manifest of a source and an operator of 1 to 5 subtasks, over 1 to 40 key groups.
fn manifest() -> impl Strategy<Value = Manifest> {
    (1u32..6, 1u64..40).prop_flat_map(|(parallelism, max)| {
        let max = MaxParallelism::new(max).unwrap();
        let parallelism = Parallelism(NonZeroU32::new(parallelism).unwrap());
        let parts: Vec<_> = parallelism
            .subtasks()
            .map(|index| {
                let range = KeyGroupRange::of(index, max, parallelism);
                let files: Vec<_> = (0..index.0 as usize).map(file).collect();
                let counts = counts(range);
                (files, counts, any::<i64>(), ".{0,9}").prop_map(move |(files, counts, time, text)| Part {
                    uid: uid("op"),
                    index,
                    key_groups: Some(range),
                    state: Some(PartState { backend: "rocksdb".to_owned(), rows: 1, files, counts }),
                    splits: vec![],
                    watermark: Timestamp::from_millis(time),
                    merged_watermark: (time % 2 == 0).then_some(Timestamp::from_millis(time)),
                    commits: vec![Value::from(text)],
                    in_flight: vec![],
                    durations: Durations::default(),
                    bytes_new: 1,
                    bytes_referenced: 2,
                })
            })
            .collect();
        parts.prop_map(move |mut parts| {
            let mut manifest = golden();
            let edges = vec![Edge { from: uid("flights"), output: None, input: 0, exchange: Exchange::Key }];
            let mut nodes = vec![manifest.graph.nodes()[0].clone()];
            nodes.push(Node { uid: uid("op"), kind: NodeKind::Operator, parallelism, edges });
            manifest.graph = Graph::new(nodes).unwrap();
            parts.push(manifest.parts[0].clone());
            manifest.operators = manifest.operators.into_values().map(|operator| (uid("op"), operator)).collect();
            Manifest { max_parallelism: max, parts, ..manifest }
        })
    })
}

proptest! {
    #[test]
    fn a_manifest_is_read_back_as_it_was_written(manifest in manifest()) {
        let sealed = manifest.encode().unwrap();
        prop_assert_eq!(Manifest::decode(&sealed.bytes).unwrap(), (manifest, sealed.checksum));
    }

    #[test]
    fn any_flipped_bit_is_detected(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = GOLDEN.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(matches!(Manifest::decode(&bytes), Err(Error::Sealed(_))));
    }
}

#[test]
fn broadcast_state_counts_once_however_many_subtasks_have_it() {
    let mut manifest = golden();
    let one = manifest.totals(&uid("per-aircraft"));
    manifest.parts[2].state = manifest.parts[1].state.clone();
    let two = manifest.totals(&uid("per-aircraft"));
    assert!(one != two);
    for operator in manifest.operators.values_mut() {
        operator.contract.states.iter_mut().for_each(|state| state.kind = StateKind::Broadcast);
    }
    assert_eq!(manifest.totals(&uid("per-aircraft")), one);
}
