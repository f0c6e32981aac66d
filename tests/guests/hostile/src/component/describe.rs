//! What the operator says of itself: the truth, or one lie.

use wasmill_guest::types::*;

use super::burn;

/// The states, by index: one that rides along, one that is fetched, a map and a list.
pub(super) const EAGER: u16 = 0;
pub(super) const LAZY: u16 = 1;
pub(super) const MAP: u16 = 2;
pub(super) const LIST: u16 = 3;

fn port(name: &str) -> Port {
    Port { name: name.to_owned(), broadcast: false, headers: false }
}

fn state(name: &str, kind: StateKind, lazy: bool) -> StateDescriptor {
    StateDescriptor {
        name: name.to_owned(),
        kind,
        version: 1,
        codec: Codec::Bytes,
        value_type: "bytes".to_owned(),
        map_key_type: (kind == StateKind::MapState).then(|| "bytes".to_owned()),
        lazy,
        rides_with: Vec::new(),
        ttl: None,
        renamed_from: Vec::new(),
        migrates_from: Vec::new(),
    }
}

fn truth() -> Descriptor {
    Descriptor {
        name: "hostile".to_owned(),
        version: "1.0.0".to_owned(),
        key_type: None,
        inputs: vec![port("in")],
        outputs: vec![port("out")],
        config: Vec::new(),
        states: vec![
            state("eager", StateKind::ValueState, false),
            state("lazy", StateKind::ValueState, true),
            state("map", StateKind::MapState, false),
            state("list", StateKind::ListState, false),
        ],
        lists_timers: false,
    }
}

pub(super) fn describe(act: &str) -> Descriptor {
    let mut told = truth();
    match act.strip_prefix("describe-") {
        None => return told,
        Some("state") => {
            wasmill_guest::bindings::wasmill::operator::state::value_get(LAZY, 0);
        }
        Some("no-input") => told.inputs.clear(),
        Some("outputs") => told.outputs = (0..5_000).map(|output| port(&format!("out-{output}"))).collect(),
        Some("broadcast-output") => told.outputs[0].broadcast = true,
        Some("nameless") => told.name.clear(),
        Some("long-name") => told.name = "n".repeat(4 << 20),
        Some("escape-name") => told.name = "\u{1b}[2Jhostile".to_owned(),
        Some("twice") => told.states[1].name = "eager".to_owned(),
        Some("state-name") => told.states[0].name = "../../eager".to_owned(),
        Some("reserved") => told.states[0].name = "wasmill.timers".to_owned(),
        Some("map-key") => told.states[2].map_key_type = None,
        Some("schema") => told.states[0].value_type = "{ not json".to_owned(),
        Some("deep-schema") => told.states[0].value_type = "[".repeat(100_000),
        Some("long-schema") => told.states[0].value_type = format!("{{\"title\":\"{}\"}}", "x".repeat(1 << 20)),
        Some("lazy-map") => told.states[2].lazy = true,
        Some("rides") => told.states[0].rides_with = vec![7],
        Some("ttl") => {
            told.states[0].ttl = Some(Ttl {
                milliseconds: 0,
                refresh: Refresh::Write,
                domain: TimeDomain::Event,
                visibility: Visibility::Strict,
                expired_output: None,
            });
        }
        Some("expired-output") => {
            told.states[0].ttl = Some(Ttl {
                milliseconds: 1_000,
                refresh: Refresh::Write,
                domain: TimeDomain::Event,
                visibility: Visibility::Strict,
                expired_output: Some(u16::MAX),
            });
        }
        Some("renamed") => told.states[0].renamed_from = vec!["lazy".to_owned()],
        Some("migrates") => told.states[0].migrates_from = vec![1],
        Some(what) => burn::burn(what),
    }
    told
}
