//! Declarations that keep and break the rules. Owns no rule.

use super::*;
use crate::contract::{Codec, ConfigKey, Refresh, TimeDomain, Ttl, Visibility};

fn port(name: &str) -> Port {
    Port { name: name.to_owned(), broadcast: false, headers: false }
}

fn value(name: &str) -> StateContract {
    StateContract {
        name: StateName::new(name).unwrap(),
        kind: StateKind::Value,
        version: 2,
        codec: Codec::Cbor,
        value_type: r#"{"type":"integer"}"#.to_owned(),
        map_key_type: None,
        lazy: false,
        rides_with: vec![],
        ttl: None,
        renamed_from: vec![],
        migrates_from: vec![],
    }
}

fn contract(states: Vec<StateContract>) -> OperatorContract {
    let key = |name: &str, required| ConfigKey { name: name.to_owned(), required, doc: String::new() };
    OperatorContract {
        name: "count".to_owned(),
        version: "1.0.0".to_owned(),
        key_type: Some("bytes".to_owned()),
        inputs: vec![port("in"), port("side")],
        outputs: vec![port("out")],
        config: vec![key("home", true), key("threshold", false)],
        states,
        lists_timers: false,
    }
}

const TTL: Ttl = Ttl {
    milliseconds: 1000,
    refresh: Refresh::Write,
    domain: TimeDomain::Event,
    visibility: Visibility::Strict,
    expired_output: None,
};

type Change = fn(&mut StateContract);

#[test]
fn a_state_that_contradicts_itself_is_refused_by_name() {
    let cases: [(Change, &str); 13] = [
        (|s| s.rides_with = vec![2], "rides with input 2"),
        (|s| (s.lazy, s.rides_with) = (true, vec![0]), "declared lazy and names inputs"),
        (|s| (s.kind, s.lazy) = (StateKind::List, true), "declared `lazy`"),
        (|s| (s.kind, s.rides_with) = (StateKind::List, vec![0]), "declared `rides-with`"),
        (|s| s.kind = StateKind::Map, "does not declare the type of its map key"),
        (|s| s.map_key_type = Some("bytes".to_owned()), "neither map nor broadcast"),
        (|s| s.value_type = "{".to_owned(), "neither `bytes` nor a JSON Schema"),
        (|s| s.value_type = "3".to_owned(), "an object or a boolean"),
        (|s| s.ttl = Some(Ttl { milliseconds: 0, ..TTL }), "TTL of 0 ms"),
        (|s| s.ttl = Some(Ttl { expired_output: Some(1), ..TTL }), "expired entries to output 1"),
        (|s| s.ttl = Some(Ttl { milliseconds: u64::MAX, ..TTL }), "was it a negative number?"),
        (|s| s.migrates_from = vec![2], "names version 2"),
        (|s| s.renamed_from = vec![StateName::new("other").unwrap()], "once called `other`"),
    ];
    for (change, expected) in cases {
        let mut state = value("total");
        change(&mut state);
        let message = contract(vec![state, value("other")]).check().unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("total"), "{message}");
    }
    let eager =
        StateContract { rides_with: vec![1, super::super::RIDES_WITH_TIMERS], ttl: Some(TTL), ..value("total") };
    let emitted = Ttl { expired_output: Some(0), ..TTL };
    let emitting = StateContract { ttl: Some(emitted), ..value("other") };
    assert_eq!(contract(vec![eager, emitting]).check(), Ok(()));
}

#[test]
fn state_of_no_key_keeps_rules_of_its_own() {
    let broadcast =
        StateContract { kind: StateKind::Broadcast, map_key_type: Some("bytes".to_owned()), ..value("total") };
    let with_input = |states: Vec<StateContract>| {
        let inputs = vec![port("in"), Port { broadcast: true, ..port("rules") }];
        OperatorContract { inputs, ..contract(states) }.check()
    };
    assert_eq!(with_input(vec![broadcast.clone()]), Ok(()));
    let name = StateName::new("total").unwrap();
    assert_eq!(contract(vec![broadcast.clone()]).check(), Err(Error::NoBroadcastInput(name.clone())));
    let with_ttl = StateContract { ttl: Some(TTL), ..broadcast };
    let refused = Error::TtlWithoutKey { state: name.clone(), kind: StateKind::Broadcast };
    assert_eq!(with_input(vec![with_ttl]), Err(refused));
    for kind in [StateKind::OperatorSplit, StateKind::OperatorUnion] {
        let elements = StateContract { kind, ..value("total") };
        assert_eq!(contract(vec![elements.clone()]).check(), Ok(()));
        let lazy = StateContract { lazy: true, ..elements };
        assert!(matches!(contract(vec![lazy]).check(), Err(Error::NotValueState { .. })));
    }
    let riding = StateContract { rides_with: vec![1], ..value("total") };
    assert_eq!(with_input(vec![riding]), Err(Error::RidesWithBroadcast { state: name, input: "rules".to_owned() }));
}

#[test]
fn nothing_rides_along_with_a_broadcast_input() {
    let inputs = vec![port("in"), Port { broadcast: true, ..port("rules") }];
    let contract = OperatorContract { inputs, ..contract(vec![value("total")]) };
    let rides = |input| contract.rides_with_input(&contract.states[0], input);
    assert!(rides(0) && !rides(1) && rides(crate::contract::RIDES_WITH_TIMERS));
}

#[test]
fn names_are_unique_and_present() {
    let duplicate = contract(vec![value("a"), value("a")]).check();
    assert_eq!(duplicate, Err(Error::Duplicate { what: "states", name: "a".to_owned() }));
    let without_input = OperatorContract { inputs: vec![], ..contract(vec![]) };
    assert_eq!(without_input.check(), Err(Error::NoInput));
    let nameless = OperatorContract { name: String::new(), ..contract(vec![]) };
    assert!(matches!(nameless.check(), Err(Error::Text { .. })));
    let many = OperatorContract { inputs: (0..257).map(|i| port(&i.to_string())).collect(), ..contract(vec![]) };
    assert_eq!(many.check(), Err(Error::TooMany { what: "inputs", count: 257 }));
    let loud = OperatorContract { outputs: vec![Port { broadcast: true, ..port("o") }], ..contract(vec![]) };
    assert_eq!(loud.check(), Err(Error::BroadcastOutput("o".to_owned())));
}

#[test]
fn a_value_state_rides_with_the_inputs_it_names_or_with_all() {
    let all = value("a");
    assert!(all.rides_with_input(0) && all.rides_with_input(1) && all.rides_with_timers());
    let one = StateContract { rides_with: vec![1], ..value("a") };
    assert!(!one.rides_with_input(0) && one.rides_with_input(1) && !one.rides_with_timers());
    let lazy = StateContract { lazy: true, ..value("a") };
    assert!(!lazy.rides_with_input(0) && !lazy.rides_with_timers());
}

#[test]
fn config_names_the_nearest_key_and_the_missing_one() {
    let check = |text: &str| {
        let config: serde_json::Map<_, _> = serde_json::from_str(text).unwrap();
        contract(vec![]).check_config(&config).map_err(|error| error.to_string())
    };
    assert_eq!(check(r#"{"home": "NYC"}"#), Ok(()));
    assert_eq!(check("{}"), Err("operator `count` needs the config key `home`".to_owned()));
    assert_eq!(
        check(r#"{"home": 1, "treshold": 2}"#),
        Err("config key `treshold` is not read by operator `count`; did you mean `threshold`?".to_owned())
    );
    assert_eq!(
        check(r#"{"home": 1, "x": 2}"#),
        Err("config key `x` is not read by operator `count`; it reads home, threshold".to_owned())
    );
}

#[test]
fn what_has_no_ttl_and_is_not_said_to_be_cleaned_is_unbounded() {
    let typed = |name, value_type: &str| StateContract { value_type: value_type.to_owned(), ..value(name) };
    let states = vec![
        typed("kept", r#"{"type":"integer"}"#),
        typed("cleaned", r#"{"type":"integer","x-wasmill-cleaned":"timers"}"#),
        typed("nested", r#"{"items":{"x-wasmill-cleaned":"timers"},"type":"array"}"#),
        typed("other", r#"{"x-wasmill-cleaned":"prayer"}"#),
        typed("raw", "bytes"),
        typed("any", "true"),
        StateContract { ttl: Some(TTL), ..value("lives") },
        StateContract { kind: StateKind::OperatorSplit, ..value("unkeyed") },
    ];
    let contract = contract(states);
    let unbounded: Vec<_> = contract.unbounded_states().map(|state| state.name.as_str()).collect();
    assert_eq!(unbounded, ["kept", "nested", "other", "raw", "any"]);
    contract.check().unwrap();
}
