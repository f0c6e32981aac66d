//! A guest for this module's tests, written in WebAssembly text by the canonical ABI, so that no test needs a guest's toolchain.
//!
//! The first byte of a batch's first value says what `process` does; see `guest.wat`.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmill_core::id::{Attempt, OperatorUid, Parallelism, SubtaskIndex};
use wasmill_core::record::{self, OptionalColumn};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, KeyTimer};
use wit_component::StringEncoding;

use super::contract::{self, Batch, Column, Now, WIT};
use super::{Component, Engine, EngineOptions, InstanceOptions, Limits, SharedState, StateAccess, StateError, packed};
use crate::state::{Page, Range};

const BASE: usize = 1024;

/// Bytes of the guest's memory from [`BASE`] on.
struct Image(Vec<u8>);

impl Image {
    /// Places bytes and returns the list's pointer and length.
    fn place(&mut self, bytes: &[u8], length: usize) -> [u32; 2] {
        while !self.0.len().is_multiple_of(8) {
            self.0.push(0);
        }
        let at = BASE + self.0.len();
        self.0.extend_from_slice(bytes);
        [at as u32, length as u32]
    }

    fn text(&mut self, text: &str) -> [u32; 2] {
        self.place(text.as_bytes(), text.len())
    }

    fn list(&mut self, records: &[Vec<u8>]) -> [u32; 2] {
        self.place(&records.concat(), records.len())
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    packed::pack_u32s(words)
}

/// What `describe` returns, where a test wants something else than the usual.
#[derive(Clone)]
pub(super) struct Described {
    pub(super) name: &'static str,
    /// Name and whether it is lazy, of states of bytes. One with the name `map`, `list`, `broadcast` or `split` is one.
    pub(super) states: Vec<(&'static str, bool)>,
    /// Whether its input is a broadcast input; then it has another, `keyed`.
    pub(super) broadcast: bool,
}

impl Default for Described {
    fn default() -> Self {
        Self { name: "fixture", states: vec![("eager", false), ("lazy", true)], broadcast: false }
    }
}

/// The memory image and the place of the descriptor in it.
fn image(described: &Described) -> (Vec<u8>, u32) {
    let mut image = Image(Vec::new());
    let port = |image: &mut Image, name: &str, broadcast: bool| {
        [words(&image.text(name)), vec![u8::from(broadcast), 0, 0, 0]].concat()
    };
    let mut inputs = vec![port(&mut image, "in", described.broadcast)];
    if described.broadcast {
        inputs.push(port(&mut image, "keyed", false));
    }
    let inputs = image.list(&inputs);
    let outputs = [port(&mut image, "out", false)];
    let outputs = image.list(&outputs);
    let doc = image.text("where it lives");
    let config = [[words(&image.text("home")), words(&[0]), words(&doc)].concat()];
    let config = image.list(&config);
    let mut states = Vec::new();
    for (name, lazy) in &described.states {
        let kind =
            ["value", "list", "map", "broadcast", "split"].iter().position(|kind| kind == name).unwrap_or_default()
                as u32;
        let [name, name_len] = image.text(name);
        let [of, of_len] = image.text("bytes");
        // name, kind, version, codec bytes, type, map key, lazy, rides-with, ttl (option and record), renames, migrations
        let has_map_key = u32::from(kind == 2 || kind == 3);
        let mut state =
            words(&[name, name_len, kind, 1, 1, of, of_len, has_map_key, of, of_len, u32::from(*lazy), 0, 0, 0]);
        state.resize(96, 0);
        states.push(state);
    }
    let states = image.list(&states);
    let (name, version) = (image.text(described.name), image.text("1.2.3"));
    let mut descriptor = words(&[name[0], name[1], version[0], version[1], 0, 0, 0]);
    for list in [inputs, outputs, config, states] {
        descriptor.extend(words(&list));
    }
    descriptor.extend(words(&[0]));
    let [at, _] = image.place(&descriptor, 1);
    (image.0, at)
}

/// The guest as WebAssembly text.
pub(super) fn text(described: &Described) -> String {
    let (image, descriptor) = image(described);
    let data: String = image.iter().map(|byte| format!("\\{byte:02x}")).collect();
    include_str!("tests/guest.wat").replace("DATA", &data).replace("DESCRIPTOR", &descriptor.to_string())
}

/// The guest as a core module without a component-type section.
pub(super) fn plain_module(described: &Described) -> Vec<u8> {
    wat::parse_str(text(described)).unwrap()
}

/// `module` with the section that says which world it is for.
pub(super) fn embedded(module: Vec<u8>, wit: &str) -> Vec<u8> {
    embedded_with(module, wit, &[])
}

/// The same, of a world that uses other packages.
pub(super) fn embedded_with(mut module: Vec<u8>, wit: &str, others: &[&str]) -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    for other in others {
        resolve.push_str("other.wit", other).unwrap();
    }
    let package = resolve.push_str("operator.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("operator")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    module
}

/// The guest as a core module that carries the section.
pub(super) fn module() -> Vec<u8> {
    embedded(plain_module(&Described::default()), WIT)
}

/// A core module as a component.
pub(super) fn component(module: &[u8]) -> Vec<u8> {
    wit_component::ComponentEncoder::default().validate(true).module(module).unwrap().encode().unwrap()
}

pub(super) fn engine() -> Engine {
    Engine::new(EngineOptions::default()).unwrap()
}

pub(super) fn loaded() -> Component {
    engine().load_bytes("fixture", &module()).unwrap()
}

pub(super) fn options(limits: Limits) -> InstanceOptions {
    InstanceOptions {
        uid: OperatorUid::new("op").unwrap(),
        subtask: SubtaskIndex(1),
        parallelism: Parallelism::new(2).unwrap(),
        attempt: Attempt(3),
        config: r#"{"home":"x"}"#.to_owned(),
        limits,
    }
}

pub(super) const NOW: Now = Now { watermark: 5, processing_time: 6 };

/// A batch of records with these values, each of its own key.
pub(super) fn batch(values: &[&[u8]]) -> Batch {
    let count = values.len() as u32;
    let column = |values: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut column: Column = contract::empty_column();
        values.for_each(|value| contract::push_value(&mut column, &value));
        column
    };
    Batch {
        keys: column(&mut (0..count).map(|key| key.to_be_bytes().to_vec())),
        absent_key: None,
        slots: packed::pack_u32s(&(0..count).collect::<Vec<_>>()),
        times: packed::pack_s64s(&vec![0; values.len()]),
        values: column(&mut values.iter().map(|value| value.to_vec())),
        absent_values: Vec::new(),
        headers: None,
        watermarks: Vec::new(),
    }
}

/// A state that holds nothing, remembers what was asked, and fails where it is told to.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) log: Vec<String>,
    pub(super) fails: Option<StateError>,
    /// How many elements were asked for, given or removed.
    pub(super) elements: usize,
    /// Whose ticks the first element takes so many of.
    pub(super) delay: Option<(Engine, u64)>,
}

impl Asked {
    pub(super) fn shared() -> (Arc<Mutex<Self>>, SharedState) {
        let asked = Arc::new(Mutex::new(Self::default()));
        (Arc::clone(&asked), asked)
    }

    fn count(&mut self, elements: usize) {
        self.elements += elements;
        if let Some((engine, ticks)) = self.delay.take() {
            let until = engine.ticks() + ticks;
            while engine.ticks() < until {
                std::thread::yield_now();
            }
        }
    }

    fn log_values(&mut self, what: &str, values: &mut dyn Iterator<Item = &[u8]>) {
        let values: Vec<_> = values.inspect(|_| self.count(1)).collect();
        self.log.push(format!("{what} {values:?}"));
    }
}

impl StateAccess for Asked {
    fn value_get(&mut self, state: u16, origin: u32) -> Result<Option<Vec<u8>>, StateError> {
        self.log.push(format!("get {state} {origin}"));
        match self.fails.clone() {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    fn value_set(&mut self, state: u16, origin: u32, value: Vec<u8>) -> Result<(), StateError> {
        self.log.push(format!("set {state} {origin} {value:?}"));
        Ok(())
    }

    fn value_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        self.log.push(format!("clear {state} {origin}"));
        Ok(())
    }

    fn value_get_many(&mut self, state: u16, origins: &[u32]) -> Result<OptionalColumn, StateError> {
        self.count(origins.len());
        self.log.push(format!("get-many {state} {origins:?}"));
        Ok(OptionalColumn::default())
    }

    fn map_get(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.count(1);
        self.log.push(format!("map-get {state} {origin} {name:?}"));
        Ok(None)
    }

    fn map_put(&mut self, state: u16, origin: u32, name: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.count(1);
        self.log.push(format!("map-put {state} {origin} {name:?} {value:?}"));
        Ok(())
    }

    fn map_remove(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<(), StateError> {
        self.count(1);
        self.log.push(format!("map-remove {state} {origin} {name:?}"));
        Ok(())
    }

    fn map_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        self.log.push(format!("map-clear {state} {origin}"));
        Ok(())
    }

    fn map_page(&mut self, state: u16, origin: u32, range: Range<'_>, limit: u32) -> Result<Page, StateError> {
        self.log.push(format!("map-page {state} {origin} {range:?} {limit}"));
        Ok(Page::default())
    }

    fn list_append(
        &mut self,
        state: u16,
        origin: u32,
        values: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), StateError> {
        self.log_values(&format!("list-append {state} {origin}"), values);
        Ok(())
    }

    fn list_length(&mut self, state: u16, origin: u32) -> Result<u64, StateError> {
        self.log.push(format!("list-length {state} {origin}"));
        Ok(0)
    }

    fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Result<record::Column, StateError> {
        self.log.push(format!("list-page {state} {origin} {start} {limit}"));
        Ok(record::Column::default())
    }

    fn list_clear(&mut self, state: u16, origin: u32) -> Result<(), StateError> {
        self.log.push(format!("list-clear {state} {origin}"));
        Ok(())
    }

    fn timers_page(&mut self, origin: u32, after: Option<KeyTimer>, limit: usize) -> Result<Vec<KeyTimer>, StateError> {
        self.log.push(format!("timers-page {origin} {after:?} {limit}"));
        let timer = |tag| KeyTimer { domain: Domain::Event, time: Timestamp::from_millis(-1), tag };
        Ok((0..5).map(timer).take(limit).collect())
    }

    fn broadcast_get(&mut self, state: u16, name: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.log.push(format!("broadcast-get {state} {name:?}"));
        Ok(None)
    }

    fn broadcast_put(&mut self, state: u16, name: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.log.push(format!("broadcast-put {state} {name:?} {value:?}"));
        Ok(())
    }

    fn broadcast_remove(&mut self, state: u16, name: &[u8]) -> Result<(), StateError> {
        self.log.push(format!("broadcast-remove {state} {name:?}"));
        Ok(())
    }

    fn broadcast_page(&mut self, state: u16, range: Range<'_>, limit: u32) -> Result<Page, StateError> {
        self.log.push(format!("broadcast-page {state} {range:?} {limit}"));
        Ok(Page::default())
    }

    fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Result<record::Column, StateError> {
        self.log.push(format!("operator-page {state} {start} {limit}"));
        Ok(record::Column::default())
    }

    fn operator_replace(&mut self, state: u16, values: &mut dyn Iterator<Item = &[u8]>) -> Result<(), StateError> {
        self.log_values(&format!("operator-replace {state}"), values);
        Ok(())
    }

    fn mark(&mut self) -> u32 {
        self.log.push("mark".to_owned());
        7
    }

    fn rollback(&mut self, mark: u32) -> Result<(), StateError> {
        self.log.push(format!("rollback {mark}"));
        Ok(())
    }
}
