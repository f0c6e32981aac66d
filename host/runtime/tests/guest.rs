//! The guest seam with operators written with the Rust SDK: a good one, and one that misbehaves when told to.
//!
//! Owns what holds for real guests: sizes, messages of panics, limits. The seam's own rules are tested beside it, by a guest
//! in WebAssembly text.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use wasmill_core::id::{Attempt, OperatorUid, Parallelism, SubtaskIndex};
use wasmill_core::record;
use wasmill_core::timer::KeyTimer;
use wasmill_runtime::clock::SystemClock;
use wasmill_runtime::guest::contract::{self, Batch, Column, Eager, Effects, Now, OptionalColumn, SET};
use wasmill_runtime::guest::{
    CallError, Component, Engine, EngineOptions, Guest, GuestFactory, InstanceOptions, Limits, StateAccess, StateError,
    packed,
};
use wasmill_runtime::state::{Page, Range};

/// A guest's file, built if need be.
fn guest(name: &str) -> PathBuf {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        // A test binary lies in TARGET/release/deps.
        let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
        let root = workspace();
        let mut build = Command::new(root.join("scripts/guests"));
        let built = build.env("CARGO_TARGET_DIR", &target).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target
    });
    target.join("wasm32-unknown-unknown/release").join(format!("{name}.wasm"))
}

/// Above the folder that cargo runs tests in, not where this was compiled: clones may share one target folder.
fn workspace() -> PathBuf {
    let here = std::env::current_dir().unwrap();
    here.ancestors().find(|folder| folder.join("Cargo.lock").exists()).unwrap().to_owned()
}

fn load(name: &str) -> Component {
    Engine::new(EngineOptions::default()).unwrap().load(&guest(name)).unwrap()
}

fn start(component: &Component, limits: Limits) -> Box<dyn Guest> {
    let options = InstanceOptions {
        uid: OperatorUid::new("op").unwrap(),
        subtask: SubtaskIndex(0),
        parallelism: Parallelism::ONE,
        attempt: Attempt(1),
        config: "{}".to_owned(),
        limits,
    };
    component.instantiate(&options, Arc::new(Mutex::new(Empty))).unwrap()
}

/// A state without entries that forgets what it is told.
struct Empty;

impl StateAccess for Empty {
    fn value_get(&mut self, _: u16, _: u32) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }
    fn value_set(&mut self, _: u16, _: u32, _: Vec<u8>) -> Result<(), StateError> {
        Ok(())
    }
    fn value_clear(&mut self, _: u16, _: u32) -> Result<(), StateError> {
        Ok(())
    }
    fn map_get(&mut self, _: u16, _: u32, _: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }
    fn map_put(&mut self, _: u16, _: u32, _: &[u8], _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
    fn map_remove(&mut self, _: u16, _: u32, _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
    fn map_clear(&mut self, _: u16, _: u32) -> Result<(), StateError> {
        Ok(())
    }
    fn map_page(&mut self, _: u16, _: u32, _: Range<'_>, _: u32) -> Result<Page, StateError> {
        Ok(Page::default())
    }
    fn list_append(&mut self, _: u16, _: u32, _: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError> {
        Ok(())
    }
    fn list_length(&mut self, _: u16, _: u32) -> Result<u64, StateError> {
        Ok(0)
    }
    fn list_page(&mut self, _: u16, _: u32, _: u64, _: u32) -> Result<record::Column, StateError> {
        Ok(record::Column::default())
    }
    fn list_clear(&mut self, _: u16, _: u32) -> Result<(), StateError> {
        Ok(())
    }
    fn timers_page(&mut self, _: u32, _: Option<KeyTimer>, _: usize) -> Result<Vec<KeyTimer>, StateError> {
        Ok(Vec::new())
    }
    fn broadcast_get(&mut self, _: u16, _: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }
    fn broadcast_put(&mut self, _: u16, _: &[u8], _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
    fn broadcast_remove(&mut self, _: u16, _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
    fn broadcast_page(&mut self, _: u16, _: Range<'_>, _: u32) -> Result<Page, StateError> {
        Ok(Page::default())
    }
    fn operator_page(&mut self, _: u16, _: u64, _: u32) -> Result<record::Column, StateError> {
        Ok(record::Column::default())
    }
    fn operator_replace(&mut self, _: u16, _: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError> {
        Ok(())
    }
    fn mark(&mut self) -> u32 {
        0
    }
    fn rollback(&mut self, _: u32) -> Result<(), StateError> {
        Ok(())
    }
}

fn column(values: &[&[u8]]) -> Column {
    let mut column = contract::empty_column();
    values.iter().for_each(|value| contract::push_value(&mut column, value));
    column
}

/// Records of the keys `keys[slots[r]]`.
fn batch(keys: &[&str], slots: &[u32], value: &str) -> Batch {
    Batch {
        keys: column(&keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>()),
        absent_key: None,
        slots: packed::pack_u32s(slots),
        times: packed::pack_s64s(&vec![0; slots.len()]),
        values: column(&vec![value.as_bytes(); slots.len()]),
        absent_values: Vec::new(),
        headers: None,
        watermarks: Vec::new(),
    }
}

fn absent(keys: usize) -> Eager {
    Eager { state: 0, values: OptionalColumn { present: vec![0; keys], values: column(&vec![b"" as &[u8]; keys]) } }
}

fn process(guest: &mut dyn Guest, batch: &Batch) -> Result<Effects, CallError> {
    let now = Now { watermark: 0, processing_time: 0 };
    guest.process(0, now, batch, &[absent(batch.keys.ends.len() / 4)])
}

#[test]
fn a_counting_operator_reads_and_writes_what_rides_along() {
    let component = load("wasmill_example_count");
    assert!(component.was_core_module());
    counts(&component);
}

#[test]
fn a_component_that_was_built_for_wit_0_1_still_runs() {
    let golden = workspace().join("tests/golden/wit-0.1/count.wasm");
    let component = Engine::new(EngineOptions::default()).unwrap().load(&golden).unwrap();
    assert!(!component.was_core_module());
    counts(&component);
}

fn counts(component: &Component) {
    assert_eq!(component.wit_version(), "0.1.0");
    assert_eq!(component.contract().states[0].name.as_str(), "count");
    let mut guest = start(component, Limits::default());
    let effects = process(guest.as_mut(), &batch(&["a", "b"], &[0, 1, 0, 0], "x")).unwrap();
    assert_eq!((effects.consumed, effects.emits.origins.len() / 4), (4, 4));
    let [writes] = &effects.values[..] else { panic!("{:?}", effects.values) };
    assert_eq!(writes.operations, [SET, SET]);
    let mut counts: Vec<_> = (0..2).map(|entry| contract::value_at(&writes.values, entry).unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [[1], [3]]);
}

#[test]
fn a_panic_is_told_in_the_guests_words_and_functions() {
    let component = load("wasmill_example_probe");
    let mut guest = start(&component, Limits::default());
    process(guest.as_mut(), &batch(&["a"], &[0], "fine")).unwrap();
    let error = process(guest.as_mut(), &batch(&["a"], &[0], "panic")).unwrap_err();
    let message = error.to_string();
    for part in ["`process` trapped", "told to panic", "Probe", &component.digest()[..12]] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(process(guest.as_mut(), &batch(&["a"], &[0], "fine")), Err(CallError::Dead));
    process(start(&component, Limits::default()).as_mut(), &batch(&["a"], &[0], "fine")).unwrap();
}

#[test]
fn a_guest_that_spins_is_stopped_while_another_goes_on() {
    let component = load("wasmill_example_probe");
    let limit = Duration::from_millis(200);
    let mut spinning = start(&component, Limits { call_time: limit, ..Limits::default() });
    let mut healthy = start(&component, Limits::default());
    let spin = wasmill_runtime::spawn::thread("spinning", move || {
        let clock = SystemClock::shared();
        let begun = clock.monotonic();
        let error = process(spinning.as_mut(), &batch(&["a"], &[0], "spin")).unwrap_err();
        (error, clock.monotonic() - begun)
    })
    .unwrap();
    let mut calls = 0;
    while !spin.is_finished() {
        process(healthy.as_mut(), &batch(&["a"], &[0], "fine")).unwrap();
        calls += 1;
    }
    let (error, taken) = spin.join().unwrap();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
    assert!((limit..Duration::from_secs(1)).contains(&taken), "{taken:?}");
    assert!(calls > 10, "{calls}");
}

#[test]
fn a_guest_that_eats_memory_is_told_its_limit_and_the_memory_comes_back() {
    let component = load("wasmill_example_probe");
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let mut healthy = start(&component, limits.clone());
    let before = resident_bytes();
    for _ in 0..8 {
        let mut guest = start(&component, limits.clone());
        let error = process(guest.as_mut(), &batch(&["a"], &[0], "bomb")).unwrap_err();
        assert!(matches!(error, CallError::MemoryLimit { limit, .. } if limit == 64 << 20), "{error}");
        assert!(guest.memory_bytes() > 48 << 20);
        process(healthy.as_mut(), &batch(&["a"], &[0], "fine")).unwrap();
    }
    // Eight times 64 MiB were taken; the allowance is for the other tests of this process.
    assert!(resident_bytes() < before + (192 << 20), "{before} -> {}", resident_bytes());
    assert!(healthy.memory_bytes() < 8 << 20);
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_refusal_of_one_record_is_no_failure_of_the_call() {
    let mut guest = start(&load("wasmill_example_probe"), Limits::default());
    let effects = process(guest.as_mut(), &batch(&["a", "b"], &[0, 1], "reject")).unwrap();
    assert_eq!(effects.rejects.origins, packed::pack_u32s(&[0, 1]));
    assert!(effects.rejects.reasons[0].contains("told to reject"), "{:?}", effects.rejects.reasons);
    assert!(effects.emits.origins.is_empty());
    match process(guest.as_mut(), &batch(&["a"], &[0], "retry")) {
        Err(CallError::Fault { retryable: true, message, .. }) => {
            assert!(message.contains("told to fail"), "{message}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_life_does_not_grow() {
    let mut guest = start(&load("wasmill_example_count"), Limits::default());
    let batch = batch(&["a", "b", "c"], &[0, 1, 2, 0, 1, 2], "x");
    for _ in 0..100 {
        process(guest.as_mut(), &batch).unwrap();
    }
    let before = guest.memory_bytes();
    for _ in 0..5_000 {
        process(guest.as_mut(), &batch).unwrap();
    }
    assert_eq!(guest.memory_bytes(), before);
}
