//! What the SDK promises an operator's author, held with an operator that does all sorts of things.
//!
//! Owns no helper that others use.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::batch::Formed;
use super::*;
use crate::diagnostics::Level;
use crate::prelude::*;
use crate::types::{Batch, Codec, Column, Effects, FaultKind, Headers, StateKind, WatermarkRun};

/// Does what a record's words say, one after another.
#[derive(Operator)]
#[operator(version = "2.1.0", key = String)]
#[operator(input("in", headers), input("rules", broadcast), input("side"), output("out", headers), output("late"))]
struct Script {
    eager: Value<u64>,
    #[state(name = "slow", version = 3, lazy, renamed_from("old", "older"))]
    lazy: Value<String>,
    #[state(rides_with("in"))]
    sometimes: Value<u32>,
    raw: Value<Vec<u8>, Raw>,
    /// Where home is.
    #[config]
    home: Option<String>,
    #[config(name = "most", default = 7)]
    limit: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Step {
    Add { n: u64 },
    Append { text: String },
    Bump,
    Raw { bytes: Vec<u8> },
    ClearAll,
    Emit,
    EmitLate { key: Option<String>, time: i64 },
    EmitHeader,
    EmitAbsent,
    EmitNowhere,
    Log,
    Reject,
    Fatal,
    Retry,
}

impl Script {
    fn step(&mut self, step: Step, record: &Record<'_>, ctx: &mut Context<'_>) -> Result {
        match step {
            Step::Add { n } => {
                self.eager.update(ctx, |sum| *sum += n)?;
            }
            Step::Append { text } => {
                let all = self.lazy.get(ctx)?.unwrap_or_default() + &text;
                self.lazy.set(ctx, all)?;
            }
            Step::Bump => {
                self.sometimes.update(ctx, |n| *n += 1)?;
            }
            Step::Raw { bytes } => self.raw.set(ctx, bytes)?,
            Step::ClearAll => {
                self.eager.clear(ctx)?;
                self.lazy.clear(ctx)?;
                self.sometimes.clear(ctx)?;
                self.raw.clear(ctx)?;
            }
            Step::Emit => {
                let state = (self.eager.get(ctx)?, self.lazy.get(ctx)?, self.sometimes.get(ctx)?, self.raw.get(ctx)?);
                ctx.emit(&state)?;
            }
            Step::EmitLate { key, time } => {
                let emit = ctx.to("late").at(Timestamp::from_millis(time));
                match key {
                    Some(key) => emit.key(&key).emit(&1)?,
                    None => emit.no_key().emit(&1)?,
                }
            }
            Step::EmitHeader => {
                let names: Vec<String> =
                    record.headers().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
                ctx.to("out").header("seen", names.join(",").as_bytes()).emit(&2)?;
            }
            Step::EmitAbsent => ctx.to("out").emit_absent()?,
            Step::EmitNowhere => ctx.to("nowhere").emit(&3)?,
            Step::Log => {
                log::warn!("at {}, at most {}", record.time(), self.limit);
                metrics::counter("seen", 2);
                metrics::gauge("home", 1.5);
                metrics::histogram("size", 3.0);
            }
            Step::Reject => return Err(Error::reject("as told")),
            Step::Fatal => return Err(Error::fatal("as told")),
            Step::Retry => return Err(Error::retryable("as told")),
        }
        Ok(())
    }
}

impl Process for Script {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        for step in record.value::<Vec<Step>>()? {
            self.step(step, &record, ctx)?;
        }
        Ok(())
    }

    fn start(&mut self, _subtask: Subtask) -> Result {
        if self.home.as_deref() == Some("nowhere") { Err(Error::fatal("home is nowhere")) } else { Ok(()) }
    }
}

fn script(key: &str, steps: Vec<Step>) -> Input {
    Input::new(&steps).key(key)
}

fn append(text: &str) -> Step {
    Step::Append { text: text.to_owned() }
}

fn harness() -> Harness<Script> {
    Harness::new("{}").unwrap()
}

type Seen = (Option<u64>, Option<String>, Option<u32>, Option<Vec<u8>>);

fn seen(emits: &[Emitted]) -> Vec<Seen> {
    emits.iter().map(|emit| emit.value().unwrap()).collect()
}

#[test]
fn reads_see_the_writes_of_the_batch_and_of_the_batches_before() {
    for size in [1, 2, 7] {
        let mut test = harness().batches_of(size);
        let all = |key| {
            let raw = Step::Raw { bytes: vec![9] };
            script(key, vec![Step::Add { n: 2 }, append("x"), Step::Bump, raw, Step::Emit])
        };
        let records = [all("a"), all("b"), all("a"), script("a", vec![Step::ClearAll, Step::Emit])];
        let seen = seen(&test.process(records).unwrap());
        assert_eq!(seen[0], (Some(2), Some("x".to_owned()), Some(1), Some(vec![9])));
        assert_eq!(seen[2], (Some(4), Some("xx".to_owned()), Some(2), Some(vec![9])));
        assert_eq!(seen[3], (None, None, None, None));
        assert_eq!(test.state::<u64>("eager", "a").unwrap(), None);
        assert_eq!(test.state::<u64>("eager", "b").unwrap(), Some(2));
        assert_eq!(test.state::<String>("slow", "b").unwrap().unwrap(), "x");
        assert_eq!(test.state_bytes("raw", "b").unwrap(), Some(&[9][..]));
    }
}

#[test]
fn a_rejected_record_leaves_no_trace() {
    let everything = || {
        let late = Step::EmitLate { key: Some("k".to_owned()), time: 5 };
        let raw = Step::Raw { bytes: vec![1] };
        let add = || Step::Add { n: 100 };
        let writes = [add(), add(), append("lost"), Step::Bump, raw];
        let emits = [late, Step::EmitHeader, Step::EmitAbsent, Step::ClearAll, Step::Reject];
        writes.into_iter().chain(emits).collect()
    };
    let keep = |text: &str| script("a", vec![Step::Add { n: 1 }, append(text), Step::Emit]);
    for size in [1, 3, 1024] {
        let mut test = harness().batches_of(size);
        let records = [
            script("a", everything()),
            keep("1"),
            script("a", everything()),
            script("b", everything()),
            Input::bytes(b"not cbor").key("a"),
            keep("2"),
            script("b", vec![Step::Emit]),
        ];
        let emits = test.process(records).unwrap();
        let seen = seen(&emits);
        assert_eq!(seen[0], (Some(1), Some("1".to_owned()), None, None));
        assert_eq!(seen[1], (Some(2), Some("12".to_owned()), None, None));
        assert_eq!(seen[2], (None, None, None, None));
        assert_eq!(emits.len(), 3);
        assert!(emits.iter().all(|emit| emit.output == "out" && emit.headers.is_empty()));
        assert_eq!(test.rejects().iter().map(|reject| reject.record).collect::<Vec<_>>(), [0, 2, 3, 4]);
        assert_eq!(test.rejects()[0].reason, "as told");
        assert_eq!(test.state_len("raw").unwrap() + test.state_len("sometimes").unwrap(), 0);
        assert_eq!(test.state::<u64>("eager", "a").unwrap(), Some(2));
        assert_eq!(test.state_len("eager").unwrap(), 1);
        assert_eq!(test.state::<String>("slow", "a").unwrap().unwrap(), "12");
    }
}

#[test]
fn a_fault_undoes_the_batch_whole() {
    let mut test = harness();
    let write = || vec![Step::Add { n: 1 }, append("x")];
    for (step, kind) in [(Step::Fatal, FaultKind::Fatal), (Step::Retry, FaultKind::Retryable)] {
        let fault = test.process([script("a", write()), script("b", vec![step])]).unwrap_err();
        assert_eq!((fault.kind, fault.message.as_str()), (kind, "as told"));
        assert_eq!(test.state_len("eager").unwrap() + test.state_len("slow").unwrap(), 0);
    }
    test.process([script("a", write())]).unwrap();
    assert_eq!(test.state::<u64>("eager", "a").unwrap(), Some(1));
}

#[test]
fn an_emit_has_its_origins_key_and_time_unless_it_names_its_own() {
    let at = |time, input: Input| input.at(Timestamp::from_millis(time));
    let late = |key: Option<&str>| Step::EmitLate { key: key.map(str::to_owned), time: 99 };
    let records = [
        at(10, script("a", vec![Step::Emit])),
        at(20, script("b", vec![late(Some("own")), Step::EmitAbsent])),
        at(30, Input::new(&vec![Step::Emit, late(None)])),
    ];
    let emits = harness().process(records).unwrap();
    let told: Vec<_> = emits
        .iter()
        .map(|emit| (emit.output.as_str(), emit.key::<&str>(), emit.time.as_millis(), emit.bytes.is_some()))
        .collect();
    let expected = [
        ("out", Some("a"), 10, true),
        ("late", Some("own"), 99, true),
        ("out", Some("b"), 20, false),
        ("out", None, 30, true),
        ("late", None, 99, true),
    ];
    assert_eq!(told, expected);
}

#[test]
fn headers_cross_where_they_are_declared() {
    let record = script("a", vec![Step::EmitHeader]).header("x", b"1").header("y", b"");
    let records = [script("a", vec![Step::Emit]), record, script("a", vec![Step::EmitHeader])];
    let emits = harness().process(records).unwrap();
    assert_eq!(emits[0].headers, []);
    assert_eq!(emits[1].headers, [(b"seen".to_vec(), b"x,y".to_vec())]);
    assert_eq!(emits[2].headers, [(b"seen".to_vec(), b"".to_vec())]);
}

#[test]
fn an_output_that_is_not_declared_is_a_fatal_fault() {
    let fault = harness().process([script("a", vec![Step::EmitNowhere])]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Fatal);
    assert!(fault.message.contains("`nowhere`"), "{}", fault.message);
}

#[test]
fn a_state_that_does_not_ride_with_an_input_is_lazy_there() {
    let mut test = harness();
    let bump = || script("a", vec![Step::Bump]);
    test.process([bump(), bump().on(2), bump(), bump().on(2)]).unwrap();
    assert_eq!(test.state::<u32>("sometimes", "a").unwrap(), Some(4));
}

#[test]
#[should_panic(expected = "a broadcast input's record has no keyed state")]
fn a_broadcast_inputs_record_has_no_keyed_state() {
    drop(harness().process([script("a", vec![Step::Bump]).on(1)]));
}

#[test]
fn the_empty_and_the_absent_key_have_states_of_their_own() {
    let mut test = harness();
    let steps = || vec![Step::Add { n: 1 }, Step::Emit];
    let emits = test.process([Input::new(&steps()), script("", steps()), Input::new(&steps())]).unwrap();
    assert_eq!(seen(&emits).iter().map(|seen| seen.0.unwrap()).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(emits[0].key, None);
    assert_eq!(emits[1].key.as_deref(), Some(&[][..]));
    assert_eq!(test.process([Input::absent().key("a")]).unwrap(), []);
    assert_eq!(test.rejects()[0].reason, "the record has no value");
}

#[test]
fn stored_bytes_of_another_type_are_a_fatal_fault_that_names_the_state() {
    let mut test = harness();
    test.put_state("eager", "a", "text").unwrap();
    let fault = test.process([script("b", vec![]), script("a", vec![Step::Add { n: 1 }])]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Fatal);
    assert!(fault.message.starts_with("state `eager`, the key of record 1: "), "{}", fault.message);
}

#[test]
fn logs_and_metrics_reach_the_host() {
    let mut test = harness();
    test.process([script("a", vec![Step::Log, Step::Log]).at(Timestamp::from_millis(4))]).unwrap();
    assert_eq!(test.logs()[0], (Level::Warn, "at 4, at most 7".to_owned()));
    assert_eq!(test.counter("seen"), 4);
    assert_eq!(test.gauge("home"), Some(1.5));
    assert_eq!(test.histogram("size"), [3.0, 3.0]);
}

#[test]
fn a_configuration_is_taken_whole_or_refused_by_key() {
    let fault = |config| Harness::<Script>::new(config).err().map(|fault| fault.message).unwrap_or_default();
    assert_eq!(fault(r#"{"home":"NYC","most":3}"#), "");
    assert_eq!(fault(""), "");
    assert_eq!(fault(r#"{"hom":1}"#), "unknown configuration key `hom`; the operator knows `home`, `most`");
    assert!(fault(r#"{"most":-1}"#).starts_with("configuration key `most`: "));
    assert!(fault("[]").starts_with("the configuration is not a JSON object: "));
    assert_eq!(fault(r#"{"home":"nowhere"}"#), "home is nowhere");
}

#[test]
fn a_renewed_operator_goes_on_from_state_alone() {
    let mut test = harness();
    let add = || script("a", vec![Step::Add { n: 1 }, Step::Emit]);
    test.process([add()]).unwrap();
    test.renew().unwrap();
    assert_eq!(seen(&test.process([add()]).unwrap())[0].0, Some(2));
}

#[test]
fn the_declaration_says_what_the_source_says() {
    let told = Instance::<Script>::describe();
    assert_eq!((told.name.as_str(), told.version.as_str()), ("script", "2.1.0"));
    assert_eq!(told.key_type.as_deref(), Some(r#"{"type":"string"}"#));
    let ports: Vec<_> = told.inputs.iter().map(|port| (port.name.as_str(), port.broadcast, port.headers)).collect();
    assert_eq!(ports, [("in", false, true), ("rules", true, false), ("side", false, false)]);
    assert_eq!(told.outputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["out", "late"]);
    let config: Vec<_> = told.config.iter().map(|key| (key.name.as_str(), key.required, key.doc.as_str())).collect();
    assert_eq!(config, [("home", false, "Where home is."), ("most", false, "")]);
    let names: Vec<_> = told.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["eager", "slow", "sometimes", "raw"]);
    let slow = &told.states[1];
    assert_eq!((slow.kind, slow.version, slow.codec, slow.lazy), (StateKind::ValueState, 3, Codec::Cbor, true));
    assert_eq!(slow.renamed_from, ["old", "older"]);
    assert_eq!(slow.value_type, r#"{"type":"string"}"#);
    assert_eq!(told.states[2].rides_with, [0]);
    assert_eq!((told.states[3].codec, told.states[3].value_type.as_str()), (Codec::Bytes, "bytes"));
}

#[test]
fn names_are_in_kebab_case_unless_given() {
    #[derive(Operator)]
    struct CountPerHTTPHost {
        last_seen_2: Value<BTreeMap<String, u64>>,
    }
    impl Process for CountPerHTTPHost {
        fn process(&mut self, _record: Record<'_>, _ctx: &mut Context<'_>) -> Result {
            Ok(())
        }
    }
    let told = CountPerHTTPHost::describe();
    assert_eq!((told.name.as_str(), told.states[0].name.as_str()), ("count-per-httphost", "last-seen-2"));
    assert_eq!(told.version, env!("CARGO_PKG_VERSION"));
    assert_eq!((told.inputs[0].name.as_str(), told.outputs[0].name.as_str()), ("in", "out"));
}

/// One call of a script straight on the contract, over the eager state of one key.
fn call(batch: Batch) -> Result<Effects, Fault> {
    let mut instance = Instance::<Script>::new();
    instance.configure("{}", Subtask { index: 0, parallelism: 1, attempt: 1 }).unwrap();
    let mut memory = Memory::of(&Script::describe().states);
    let eager = memory.begin(&Formed::of(&[Input::absent().key("a")], 0).actors, Some(0), false);
    instance.process(&mut memory, 0, Now { watermark: 0, processing_time: 0 }, batch, eager)
}

#[test]
fn a_value_is_written_on_behalf_of_the_origin_with_the_greatest_time() {
    let add = |time| script("a", vec![Step::Add { n: 1 }]).at(Timestamp::from_millis(time));
    let effects = call(Formed::of(&[add(5), add(9), add(7)], 0).batch).unwrap();
    assert_eq!(effects.values[0].origins, 1u32.to_le_bytes());
    assert_eq!(effects.values[0].values.bytes, [3]);
}

#[test]
fn each_record_sees_the_watermark_of_its_run() {
    #[derive(Operator)]
    struct Watermarks;
    impl Process for Watermarks {
        fn process(&mut self, _record: Record<'_>, ctx: &mut Context<'_>) -> Result {
            let watermark = ctx.watermark();
            ctx.emit(&watermark)
        }
    }
    let mut formed = Formed::of(&[Input::absent(), Input::absent(), Input::absent(), Input::absent()], 0);
    let run = |until, watermark| WatermarkRun { until, watermark };
    formed.batch.watermarks = vec![run(1, 10), run(1, 15), run(3, 20), run(4, 30)];
    let mut instance = Instance::<Watermarks>::new();
    instance.configure("", Subtask { index: 0, parallelism: 1, attempt: 1 }).unwrap();
    let now = Now { watermark: 10, processing_time: 0 };
    let effects = instance.process(&mut Memory::of(&[]), 0, now, formed.batch.clone(), vec![]).unwrap();
    let emits = batch::emitted(&formed.actors, &effects.emits, Watermarks::OUTPUTS).unwrap();
    assert_eq!(emits.iter().map(|emit| emit.value::<i64>().unwrap()).collect::<Vec<_>>(), [10, 20, 20, 30]);
}

proptest! {
    #[test]
    fn no_batch_out_of_shape_makes_the_sdk_panic(
        which in 0..6usize,
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        ends in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut batch = Formed::of(&[script("a", vec![Step::Emit]), script("a", vec![])], 0).batch;
        let column = || Column { bytes: bytes.clone(), ends: ends.clone() };
        match which {
            0 => batch.keys = column(),
            1 => batch.values = column(),
            2 => batch.slots = ends.clone(),
            3 => batch.times = ends.clone(),
            4 => batch.absent_values = ends.clone(),
            _ => batch.headers = Some(Headers { records: ends.clone(), names: column(), values: column() }),
        }
        let _ = call(batch);
    }

    #[test]
    fn the_output_does_not_depend_on_the_batch_size(
        steps in prop::collection::vec((0..3u8, 0..6u8, 0..4u64), 1..60),
        size in 1..10usize,
    ) {
        let run = |size: usize| {
            let mut test = harness().batches_of(size);
            let records = steps.iter().map(|&(key, step, n)| {
                let step = match step {
                    0 => Step::Add { n },
                    1 => append(&n.to_string()),
                    2 => Step::ClearAll,
                    3 => Step::Reject,
                    4 => Step::EmitLate { key: (n > 1).then(|| "k".to_owned()), time: n as i64 },
                    _ => Step::Emit,
                };
                script(&key.to_string(), vec![Step::Bump, step, Step::Emit])
            });
            let emits = test.process(records).unwrap();
            (emits, test.rejects().to_vec())
        };
        prop_assert_eq!(run(1024), run(size));
    }
}
