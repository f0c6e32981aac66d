//! Components that import WASI: granted, denied and refused. Owns no rule.

use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::config::Wasi;
use crate::guest::contract::{Effects, WIT};
use crate::guest::load::Error;
use crate::guest::tests::{Asked, Described, NOW, batch, component, embedded_with, engine, options, text};
use crate::guest::{CallError, Component, GuestFactory, Limits};

const WASI: [&str; 4] = [
    "package wasi:io@0.2.3; interface poll { resource pollable { ready: func() -> bool; } }",
    "package wasi:clocks@0.2.3;
    interface wall-clock { record datetime { seconds: u64, nanoseconds: u32 } now: func() -> datetime; }
    interface monotonic-clock {
      use wasi:io/poll@0.2.3.{pollable};
      now: func() -> u64;
      subscribe-instant: func(when: u64) -> pollable;
    }",
    "package wasi:random@0.2.3;
    interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; }",
    "package wasi:http@0.2.3; interface outgoing-handler { handle: func(); }",
];

/// A component that imports a function and calls it for each batch. `call` may use the function `$it` and `$at`, the place of the
/// first record's value, which is emitted after that.
fn calling(import: &str, function: &str, signature: &str, call: &str) -> Vec<u8> {
    let module = text(&Described::default());
    let imported = format!(r#"(module $fixture (import "{import}" "{function}" (func $it {signature}))"#);
    let module = module.replacen("(module $fixture", &imported, 1);
    let what = "(local.set $what (i32.load8_u (i32.load offset=64 (local.get $args))))";
    assert!(module.contains(what));
    let call = call.replace("$at", "(i32.load offset=64 (local.get $args))");
    let module = module.replacen(what, &format!("{what} {call}"), 1);
    let wit = WIT.replacen("import diagnostics;", &format!("import diagnostics; import {import};"), 1);
    component(&embedded_with(wat::parse_str(module).unwrap(), &wit, &WASI))
}

const CLOCK: &str = "wasi:clocks/wall-clock@0.2.3";
const MONOTONIC: &str = "wasi:clocks/monotonic-clock@0.2.3";
const RANDOM: &str = "wasi:random/random@0.2.3";
const HTTP: &str = "wasi:http/outgoing-handler@0.2.3";

fn wall_clock() -> Vec<u8> {
    calling(CLOCK, "now", "(param i32)", "(call $it $at)")
}

fn load(bytes: &[u8], grants: &Grants) -> Result<Component, Error> {
    engine().load_bytes_granted("op.wasm", bytes, grants)
}

/// Processes one record of 16 bytes.
fn process(component: &Component) -> Result<Effects, CallError> {
    let mut guest = component.instantiate(&options(Limits::default()), Asked::shared().1).unwrap();
    guest.process(0, NOW, &batch(&[b"e234567812345678"]), &[])
}

fn clock() -> (Arc<ManualClock>, Grants) {
    let clock = Arc::new(ManualClock::default());
    (Arc::clone(&clock), Grants { clock: Some(clock), ..Grants::default() })
}

fn denying() -> Grants {
    Grants { wasi: Wasi::Deny, ..Grants::default() }
}

#[test]
fn a_granted_clock_tells_the_hosts_time() {
    let (clock, grants) = clock();
    clock.advance(Duration::from_millis(7_001));
    let component = load(&wall_clock(), &grants).unwrap();
    let told = process(&component).unwrap().emits.values.bytes;
    assert_eq!((&told[..8], &told[8..12]), (&7_u64.to_le_bytes()[..], &1_000_000_u32.to_le_bytes()[..]));
    let monotonic = calling(MONOTONIC, "now", "(result i64)", "(i64.store $at (call $it))");
    let both = Grants { wasi: Wasi::Deny, ..grants };
    let told = process(&load(&monotonic, &both).unwrap()).unwrap().emits.values.bytes;
    assert_eq!(told[..8], 7_001_000_000_u64.to_le_bytes());
}

#[test]
fn granted_random_numbers_differ_and_are_bounded() {
    let grants = Grants { random: true, ..Grants::default() };
    let numbers =
        load(&calling(RANDOM, "get-random-u64", "(result i64)", "(i64.store $at (call $it))"), &grants).unwrap();
    assert_ne!(process(&numbers).unwrap().emits.values, process(&numbers).unwrap().emits.values);
    let bytes = |length: u64| {
        // Beyond the batch, which lies where the fixture allocates from.
        let call = format!("(global.set $heap (i32.const 98304)) (call $it (i64.const {length}) $at)");
        load(&calling(RANDOM, "get-random-bytes", "(param i64 i32)", &call), &grants).unwrap()
    };
    let told = process(&bytes(1000)).unwrap().emits.values.bytes;
    assert_eq!(told[4..8], 1000_u32.to_le_bytes());
    let error = process(&bytes(1 << 60)).unwrap_err().to_string();
    assert!(error.contains("1048576 are allowed"), "{error}");
}

#[test]
fn what_was_not_granted_is_refused_with_the_grant_or_the_want_of_one() {
    let refused = |bytes: &[u8], grants: &Grants| load(bytes, grants).unwrap_err().to_string();
    let error = refused(&wall_clock(), &Grants { random: true, ..Grants::default() });
    for part in [CLOCK, "not granted", "grants = [\"clock\"]", "wasi = \"deny\""] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = refused(&calling(HTTP, "handle", "", "(call $it)"), &clock().1);
    for part in [HTTP, "not granted", "no grant gives the rest (there are `clock` and `random`)", "wasi = \"deny\""] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let component = wat::parse_str(r#"(component (import "acme:files/disk@1.0.0" (instance)))"#).unwrap();
    let error = refused(&component, &Grants::all(Arc::new(ManualClock::default())));
    assert!(error.contains("`acme:files/disk@1.0.0`, which is not granted") && !error.contains("deny"), "{error}");
}

#[test]
fn a_denied_import_loads_and_traps_by_name_when_it_is_called() {
    let http = load(&calling(HTTP, "handle", "", "(call $it)"), &denying()).unwrap();
    assert_eq!(http.denied(), [HTTP]);
    let error = process(&http).unwrap_err();
    assert!(matches!(error, CallError::Trap { .. }), "{error}");
    assert!(error.to_string().contains(&format!("it called `handle` of `{HTTP}`, which is denied")), "{error}");
    let error = process(&load(&wall_clock(), &denying()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("grants = [\"clock\"] gives it"), "{error}");
    let idle = load(&calling(HTTP, "handle", "", ""), &denying()).unwrap();
    assert!(process(&idle).is_ok());
}

#[test]
fn no_operator_waits_for_a_time_and_resources_of_denied_interfaces_load() {
    let waits = calling(MONOTONIC, "subscribe-instant", "(param i64) (result i32)", "(drop (call $it (i64.const 1)))");
    assert!(load(&waits, &clock().1).unwrap_err().to_string().contains("wasi:io/poll@0.2.3"));
    let component = load(&waits, &Grants { wasi: Wasi::Deny, ..clock().1 }).unwrap();
    assert_eq!(
        (component.granted(), component.denied()),
        (vec![crate::config::Grant::Clock], vec!["wasi:io/poll@0.2.3"])
    );
    let error = process(&component).unwrap_err().to_string();
    assert!(error.contains("`subscribe-instant`") && error.contains("no operator can wait"), "{error}");
}

#[test]
fn a_granted_function_of_another_type_is_refused_at_load() {
    let wrong =
        [WASI[0], WASI[1], "package wasi:random@0.2.3; interface random { get-random-u64: func() -> u32; }", WASI[3]];
    let module = text(&Described::default());
    let wit = WIT.replacen("import diagnostics;", &format!("import diagnostics; import {RANDOM};"), 1);
    let imported = format!(r#"(module $fixture (import "{RANDOM}" "get-random-u64" (func $it (result i32)))"#);
    let module = wat::parse_str(module.replacen("(module $fixture", &imported, 1)).unwrap();
    let bytes = component(&embedded_with(module, &wit, &wrong));
    let error = load(&bytes, &Grants { random: true, ..Grants::default() }).unwrap_err();
    assert!(matches!(error.cause(), Error::Mismatch { cause } if cause.contains("wasi:random")), "{error}");
}
