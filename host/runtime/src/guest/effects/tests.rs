//! Effects that pass, and for each rule effects that break it. Owns no rule.

use wasmill_core::contract::{Codec, Port, StateContract, StateKind};
use wasmill_core::id::StateName;

use super::*;
use crate::guest::contract::{Headers, empty_column, no_effects, push_value};
use crate::guest::packed::{pack_s64s, pack_u16s, pack_u32s};

fn state(name: &str, rides_with: &[u16]) -> StateContract {
    StateContract {
        name: StateName::new(name).unwrap(),
        kind: StateKind::Value,
        version: 1,
        codec: Codec::Bytes,
        value_type: "bytes".to_owned(),
        map_key_type: None,
        lazy: false,
        rides_with: rides_with.to_vec(),
        ttl: None,
        renamed_from: vec![],
        migrates_from: vec![],
    }
}

fn checker() -> Checker {
    checker_with(false)
}

/// One of an operator whose inputs are broadcast, or not.
fn checker_with(broadcast: bool) -> Checker {
    let port = |name: &str, headers| Port { name: name.to_owned(), broadcast, headers };
    let contract = OperatorContract {
        name: "op".to_owned(),
        version: "1".to_owned(),
        key_type: None,
        inputs: vec![port("a", false), port("b", false)],
        outputs: vec![port("plain", false), port("headed", true)],
        config: vec![],
        states: vec![
            state("everywhere", &[]),
            state("with-b", &[1]),
            StateContract { lazy: true, ..state("lazy", &[]) },
            StateContract { kind: StateKind::Map, ..state("map", &[]) },
        ],
        lists_timers: false,
    };
    let limits = Limits { key_bytes: 8, value_bytes: 16, record_bytes: 20, ..Limits::default() };
    Checker::new(Arc::new(contract), limits)
}

/// Four records of three keys (the first has two), the third key absent; a run ends after the second record.
struct Call {
    slots: Vec<u8>,
    runs: [WatermarkRun; 1],
}

impl Call {
    fn new() -> Self {
        Self { slots: pack_u32s(&[0, 1, 0, 2]), runs: [WatermarkRun { until: 2, watermark: 7 }] }
    }

    fn shape(&self) -> Shape<'_> {
        Shape { input: Some(0), slots: &self.slots, keys: 3, absent_key: Some(2), runs: &self.runs }
    }
}

fn column(values: &[&[u8]]) -> Column {
    let mut column = empty_column();
    values.iter().for_each(|value| push_value(&mut column, value));
    column
}

/// Two emits, two writes, two timers, one reject: valid.
fn good() -> Effects {
    let mut effects = no_effects(4);
    effects.emits = Emits {
        outputs: pack_u16s(&[0, 1]),
        origins: pack_u32s(&[1, 0]),
        keys: Some(OptionalColumn { present: vec![1, 0], values: column(&[b"key", b""]) }),
        times: Some(pack_s64s(&[i64::MIN, 3])),
        values: column(&[b"value", b""]),
        absent_values: pack_u32s(&[1]),
        headers: Some(Headers {
            records: pack_u32s(&[1, 1]),
            names: column(&[b"h", b"h"]),
            values: column(&[b"x", b""]),
        }),
    };
    effects.values = vec![ValueWrites {
        state: 0,
        origins: pack_u32s(&[0, 1]),
        operations: vec![SET, contract::CLEAR],
        values: column(&[b"state", b""]),
    }];
    effects.timers = TimerChanges {
        origins: pack_u32s(&[0, 1]),
        operations: vec![0, contract::SET_TIMER],
        domains: vec![0, 1],
        times: pack_s64s(&[i64::MIN, i64::MAX]),
        tags: pack_u32s(&[0, u32::MAX]),
    };
    effects.rejects = Rejects { origins: pack_u32s(&[3]), reasons: vec!["no".to_owned()] };
    effects
}

type Change = fn(&mut Effects);

fn refused(cases: &[(Change, &str)]) {
    let call = Call::new();
    for (change, expected) in cases {
        let mut effects = good();
        change(&mut effects);
        let message = checker().check(&call.shape(), &effects).unwrap_err().to_string();
        assert!(message.starts_with(expected), "expected {expected:?}, got {message:?}");
    }
}

fn keys(effects: &mut Effects) -> &mut OptionalColumn {
    effects.emits.keys.as_mut().unwrap()
}

fn headers(effects: &mut Effects) -> &mut Headers {
    effects.emits.headers.as_mut().unwrap()
}

#[test]
fn valid_effects_pass_again_and_again() {
    let (call, mut checker) = (Call::new(), checker());
    for _ in 0..3 {
        assert_eq!(checker.check(&call.shape(), &good()), Ok(()));
    }
    let nothing = Shape { slots: &[], keys: 0, absent_key: None, ..call.shape() };
    assert_eq!(checker.check(&nothing, &no_effects(0)), Ok(()));
}

#[test]
fn consumed_is_all_or_a_runs_end_and_never_nothing() {
    let call = Call::new();
    let consumed: Vec<u32> =
        (0..7).filter(|&consumed| checker().check(&call.shape(), &no_effects(consumed)).is_ok()).collect();
    assert_eq!(consumed, [2, 4]);
    let timers = Shape { input: None, runs: &[], ..call.shape() };
    let consumed: Vec<u32> =
        (0..7).filter(|&consumed| checker().check(&timers, &no_effects(consumed)).is_ok()).collect();
    assert_eq!(consumed, [4]);
}

#[test]
fn emits_that_contradict_themselves_or_the_declaration_are_refused_by_field_and_index() {
    refused(&[
        (|e| e.emits.origins.truncate(7), "emits.origins: 7 bytes are no whole number"),
        (|e| e.emits.outputs.truncate(2), "emits.outputs: 2 bytes"),
        (|e| e.emits.outputs = pack_u16s(&[0, 2]), "emits.outputs[1]: output 2 of 2"),
        (|e| e.emits.origins = pack_u32s(&[4, 0]), "emits.origins[0]: record 4 is not among the 4 consumed"),
        (|e| e.emits.times = Some(vec![0; 8]), "emits.times: 8 bytes"),
        (|e| e.emits.values.ends = pack_u32s(&[5]), "emits.values: 4 bytes"),
        (|e| e.emits.values.ends = pack_u32s(&[5, 4]), "emits.values[1]: it ends at 4"),
        (|e| e.emits.values.ends = pack_u32s(&[4, 4]), "emits.values: the last value ends at 4 of 5"),
        (|e| e.emits.values.ends = pack_u32s(&[5, 6]), "emits.values: the last value ends at 6 of 5"),
        (|e| e.emits.values = column(&[&[0; 17], b""]), "emits.values[0]: 17 bytes, and 16 are allowed"),
        (|e| e.emits.absent_values = pack_u32s(&[0]), "emits.absent-values[0]: value 0 is absent and has bytes"),
        (|e| e.emits.absent_values = pack_u32s(&[2]), "emits.absent-values[0]: value 2"),
        (|e| e.emits.absent_values = pack_u32s(&[1, 1]), "emits.absent-values[1]: value 1"),
        (|e| e.emits.absent_values = vec![1], "emits.absent-values: 1 bytes"),
    ]);
}

#[test]
fn keys_and_headers_of_emits_are_checked_too() {
    refused(&[
        (|e| keys(e).present = vec![1], "emits.keys: 1 bytes"),
        (|e| keys(e).present = vec![2, 0], "emits.keys[0]: present is 2"),
        (|e| keys(e).present = vec![0, 0], "emits.keys[0]: an absent value with bytes"),
        (|e| keys(e).values = column(&[&[0; 9], b""]), "emits.keys[0]: 9 bytes, and 8 are allowed"),
        (|e| headers(e).records = pack_u32s(&[1]), "emits.headers.names: 8 bytes"),
        (|e| headers(e).records = pack_u32s(&[1, 0]), "emits.headers.records[1]: record 0 after 1"),
        (|e| headers(e).records = pack_u32s(&[1, 2]), "emits.headers.records[1]: record 2"),
        (|e| headers(e).records = pack_u32s(&[0, 1]), "emits.headers.records[0]: output `plain` is not declared"),
        (|e| headers(e).values = column(&[&[0; 20], b""]), "emits[1]: a record of 22 bytes, and 20 are allowed"),
        (
            |e| {
                e.emits.values = column(&[&[0; 16], b""]);
                keys(e).values = column(&[&[0; 5], b""]);
            },
            "emits[0]: a record of 21 bytes",
        ),
    ]);
}

#[test]
fn writes_go_to_value_states_once_a_key() {
    refused(&[
        (|e| e.values[0].state = 4, "values.state: state 4 of 4"),
        (|e| e.values[0].state = 3, "values.state: state `map` is no value state"),
        (|e| e.values.extend(good().values), "values.state: state `everywhere` comes twice"),
        (|e| e.values[0].origins = pack_u32s(&[0, 2]), "values.origins[1]: record 2: a second entry for its key"),
        (|e| e.values[0].origins = pack_u32s(&[0, 4]), "values.origins[1]: record 4 is not among"),
        (
            |e| (e.rejects, e.values[0].origins) = (no_effects(0).rejects, pack_u32s(&[0, 3])),
            "values.origins[1]: record 3 has no key",
        ),
        (|e| e.values[0].operations = vec![SET, 3], "values.operations[1]: operation 3"),
        (|e| e.values[0].operations = vec![SET], "values.operations: 1 bytes"),
        (|e| e.values[0].operations = vec![TOUCHED, SET], "values.values[0]: a value beside an operation"),
        (|e| e.values[0].values = column(&[&[0; 17], b""]), "values.values[0]: 17 bytes"),
    ]);
    let call = Call::new();
    for rides_or_not in 0..3 {
        let mut effects = good();
        effects.values[0].state = rides_or_not;
        assert_eq!(checker().check(&call.shape(), &effects), Ok(()));
    }
    let message = checker_with(true).check(&call.shape(), &good()).unwrap_err().to_string();
    assert!(message.contains("is no value state of this call's keys"), "{message}");
}

#[test]
fn rejects_have_one_reason_and_no_effects() {
    refused(&[
        (|e| e.rejects.reasons.clear(), "rejects.reasons: 0 bytes"),
        (|e| e.rejects.origins = pack_u32s(&[4]), "rejects.origins[0]: record 4"),
        (|e| e.rejects.origins = pack_u32s(&[1]), "emits.origins[0]: an effect of a record that is rejected"),
        (
            |e| e.rejects = Rejects { origins: pack_u32s(&[3, 3]), reasons: vec![String::new(), String::new()] },
            "rejects.origins: record 3 is rejected twice",
        ),
        (
            |e| (e.emits, e.rejects.origins) = (no_effects(0).emits, pack_u32s(&[1])),
            "values.origins[1]: an effect of a record",
        ),
    ]);
}

#[test]
fn timer_changes_that_do_not_add_up_are_refused() {
    refused(&[
        (|e| e.timers.origins.push(0), "timers.origins: 9 bytes"),
        (|e| e.timers.operations.push(0), "timers.operations: 3 bytes, and 2"),
        (|e| e.timers.domains.clear(), "timers.domains: 0 bytes"),
        (|e| e.timers.times.truncate(8), "timers.times: 8 bytes"),
        (|e| e.timers.tags.push(0), "timers.tags: 9 bytes"),
        (|e| e.timers.operations[1] = 2, "timers.operations[1]: operation 2"),
        (|e| e.timers.domains[0] = 2, "timers.domains[0]: domain 2"),
        (|e| e.timers.origins = pack_u32s(&[0, 4]), "timers.origins[1]: record 4 is not among the 4"),
        (|e| e.timers.origins = pack_u32s(&[3, 0]), "timers.origins[0]: an effect of a record that is rejected"),
        (
            |e| (e.rejects, e.timers.origins) = (no_effects(0).rejects, pack_u32s(&[0, 3])),
            "timers.origins[1]: its record has no key",
        ),
    ]);
}

#[test]
fn records_past_what_was_consumed_have_no_effects_yet() {
    refused(&[(
        |e| (e.consumed, e.rejects, e.emits.origins) = (2, no_effects(0).rejects, pack_u32s(&[1, 2])),
        "emits.origins[1]: record 2 is not among the 2 consumed",
    )]);
}
