//! Files that load, and each kind that does not. Owns no rule.

use super::*;
use crate::guest::Limits;
use crate::guest::contract::WIT;
use crate::guest::tests::{Asked, Described, component, embedded, engine, loaded, module, options, plain_module};

fn refusal(bytes: &[u8]) -> Error {
    let error = engine().load_bytes("op.wasm", bytes).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("component op.wasm: "), "{error}");
    assert_eq!(Fault::from(error.clone()).kind, FaultKind::User);
    error.cause().clone()
}

#[test]
fn a_core_module_is_made_a_component_and_both_are_inspected_alike() {
    let from_module = loaded();
    let from_component = engine().load_bytes("c", &component(&module())).unwrap();
    assert!(from_module.was_core_module() && !from_component.was_core_module());
    assert_eq!(from_module.contract(), from_component.contract());
    assert_eq!(from_module.imports(), from_component.imports());
    assert_eq!(from_module.wit_version(), "0.1.0");
    assert_eq!(from_module.bytes().as_ref(), module());
    assert_eq!(from_module.size(), module().len());
    assert_eq!(from_module.digest(), hex(&Sha256::digest(module())));
    assert_ne!(from_module.digest(), from_component.digest());
    let state = from_module.imports().iter().find(|import| import.interface == "wasmill:operator/state@0.1.0").unwrap();
    for function in ["value-get", "value-set", "map-get", "list-page", "mark", "rollback"] {
        assert!(state.functions.iter().any(|named| named == function), "{function}");
    }
    assert_eq!(state.functions.len(), 20);
    assert!(from_module.exports().iter().any(|export| export == "process"));
}

#[test]
fn what_describe_returns_becomes_the_declaration() {
    let component = loaded();
    let OperatorContract { name, version, key_type, inputs, outputs, config, states, lists_timers } =
        component.contract();
    assert_eq!((name.as_str(), version.as_str(), key_type), ("fixture", "1.2.3", &None));
    assert_eq!((inputs[0].name.as_str(), outputs[0].name.as_str()), ("in", "out"));
    assert_eq!(
        (config[0].name.as_str(), config[0].required, config[0].doc.as_str()),
        ("home", false, "where it lives")
    );
    let states: Vec<_> = states.iter().map(|s| (s.name.as_str(), s.lazy, s.version, s.value_type.as_str())).collect();
    assert_eq!(states, [("eager", false, 1, "bytes"), ("lazy", true, 1, "bytes")]);
    assert!(!lists_timers);
}

#[test]
fn a_declaration_that_breaks_a_rule_is_refused_at_load() {
    let twice = Described { states: vec![("a", false), ("a", true)], ..Described::default() };
    let error = refusal(&embedded(plain_module(&twice), WIT)).to_string();
    assert!(error.contains("describes itself wrongly: it declares two states with the name `a`"), "{error}");
    let nameless = Described { states: vec![("a/b", false)], ..Described::default() };
    let error = refusal(&embedded(plain_module(&nameless), WIT)).to_string();
    assert!(error.contains("state 0: `a/b` is not a valid state name"), "{error}");
}

#[test]
fn each_unfit_file_is_refused_with_its_own_cause() {
    let good = component(&module());
    let without = |export: &str| {
        let wit: String =
            WIT.lines().filter(|line| !line.contains(&format!("export {export}"))).collect::<Vec<_>>().join("\n");
        embedded(plain_module(&Described::default()), &wit)
    };
    let text = b"(module)";
    let cases: [(&str, &[u8], &str); 11] = [
        ("empty", b"", "it is empty"),
        ("text", b"hello, world", "it is not WebAssembly: name the .wasm file"),
        ("wat", text, "looks like its text form"),
        ("first 60%", &good[..good.len() * 6 / 10], "it is cut off: it ends at byte"),
        ("magic alone", b"\0asm", "it is cut off"),
        ("core module", &plain_module(&Described::default()), "a core module without a component-type section"),
        ("no process", &without("process"), "it does not export `process`"),
        (
            "unknown interface",
            &wat::parse_str(r#"(component (import "wasi:cli/stdout@0.2.0" (instance)))"#).unwrap(),
            "it imports `wasi:cli/stdout@0.2.0`, which is not granted",
        ),
        (
            "unknown interface of the package",
            &wat::parse_str(r#"(component (import "wasmill:operator/secrets@0.1.0" (instance)))"#).unwrap(),
            "it imports `wasmill:operator/secrets@0.1.0`, which is not granted",
        ),
        (
            "newer contract",
            &wat::parse_str(r#"(component (import "wasmill:operator/types@0.2.0" (instance)))"#).unwrap(),
            "it was built for version 0.2.0 of wasmill:operator, and this wasmill speaks 0.1.0",
        ),
        ("another world", &wat::parse_str("(component)").unwrap(), "it does not speak wasmill's contract"),
    ];
    let mut seen = Vec::new();
    for (name, bytes, expected) in cases {
        let error = refusal(bytes).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!seen.contains(&error), "{name}: {error}");
        seen.push(error);
    }
}

#[test]
fn a_module_for_a_newer_contract_is_refused_by_version() {
    let wit = WIT.replace("@0.1.0", "@0.3.1");
    let text = String::from_utf8(include_bytes!("../tests/guest.wat").to_vec()).unwrap();
    let text = text.replace("@0.1.0", "@0.3.1").replace("DESCRIPTOR", "0").replace("DATA", "");
    let newer = embedded(wat::parse_str(text).unwrap(), &wit);
    assert_eq!(refusal(&newer), Error::ContractVersion { built_for: "0.3.1".to_owned() });
}

#[test]
fn a_function_of_another_type_is_named() {
    let wit = WIT.replace("export rekey: func(source-version: u32,", "export rekey: func(source-version: s32,");
    assert_ne!(wit, WIT);
    let error = refusal(&embedded(plain_module(&Described::default()), &wit));
    assert!(matches!(&error, Error::Mismatch { cause } if cause.contains("rekey")), "{error}");
}

#[test]
fn a_core_module_that_imports_the_outside_is_refused_by_name() {
    let import = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32) (result i32)))"#;
    let text = include_str!("../tests/guest.wat").replace("DESCRIPTOR", "0").replace("DATA", "");
    let text = text.replacen("(module $fixture", &format!("(module $fixture {import}"), 1);
    let error = refusal(&embedded(wat::parse_str(text).unwrap(), WIT)).to_string();
    assert!(
        error.contains("`wasi_snapshot_preview1`, which is not granted") && error.contains("wasm32-unknown"),
        "{error}"
    );
}

#[test]
fn a_name_that_is_long_or_controls_the_terminal_is_not_shown_as_it_is() {
    for name in ["\\1b[2J".to_owned(), "x".repeat(90_000)] {
        let import = format!("(import \"{name}\" \"f\" (func))");
        let text = include_str!("../tests/guest.wat").replace("DESCRIPTOR", "0").replace("DATA", "");
        let text = text.replacen("(module $fixture", &format!("(module $fixture {import}"), 1);
        let error = refusal(&embedded(wat::parse_str(text).unwrap(), WIT)).to_string();
        assert!(error.contains("is not granted") && error.len() < 400 && !error.contains('\u{1b}'), "{error}");
    }
}

#[test]
fn a_describe_that_traps_is_a_load_error() {
    let text = include_str!("../tests/guest.wat").replace("(i32.const DESCRIPTOR)", "unreachable").replace("DATA", "");
    let error = refusal(&embedded(wat::parse_str(text).unwrap(), WIT));
    assert!(matches!(&error, Error::Describe(cause) if matches!(**cause, CallError::Trap { .. })), "{error}");
    let text = include_str!("../tests/guest.wat").replace("DESCRIPTOR", "-16").replace("DATA", "");
    let error = refusal(&embedded(wat::parse_str(text).unwrap(), WIT));
    assert!(matches!(&error, Error::Describe(_)), "{error}");
}

#[test]
fn a_file_cut_anywhere_is_refused_and_never_panics() {
    let engine = engine();
    for good in [module(), component(&module())] {
        for end in (0..good.len()).step_by(13) {
            // A cut between the last sections drops only names, or the section that says what the module is.
            if let Ok(component) = engine.load_bytes("cut", &good[..end]) {
                assert_eq!(component.contract().name, "fixture");
                assert!(end > good.len() / 2, "{end} of {}", good.len());
            }
        }
    }
}

/// A flipped bit made `wasmill:operator` and `wasmill:operatgr` of one package: each then needs the other.
#[test]
fn packages_that_need_each_other_are_refused_and_overflow_no_stack() {
    let mut bytes = module();
    let name = b"wasmill:operator/types@0.1.0";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    bytes[at + "wasmill:opera".len()] ^= 0x13;
    let error = refusal(&bytes);
    let packages = ["wasmill:operagor@0.1.0", "wasmill:operator@0.1.0"].map(str::to_owned).to_vec();
    assert_eq!(error, Error::Packages { packages });
}

#[test]
fn a_file_with_a_flipped_bit_never_panics() {
    let engine = engine();
    let good = [module(), component(&module())];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..8000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut bytes = good[round % 2].clone();
        let at = (random >> 33) as usize % bytes.len();
        bytes[at] ^= 1 << (random >> 60 & 7);
        if let Ok(component) = engine.load_bytes("flipped", &bytes) {
            let limits = Limits { call_time: std::time::Duration::from_millis(100), ..Limits::default() };
            let _ = component.instantiate(&options(limits), Asked::shared().1);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("absent.wasm"), dir.path().to_path_buf()] {
        let error = engine().load(&path).map(|_| ()).unwrap_err();
        assert!(matches!(error.cause(), Error::Read(_)), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    let path = dir.path().join("op.wasm");
    std::fs::write(&path, module()).unwrap();
    assert_eq!(engine().load(&path).unwrap().digest(), loaded().digest());
}
