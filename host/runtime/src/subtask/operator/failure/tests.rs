//! Every policy, wherever the records at fault stand, with a guest that does what a record says over real state. Owns no rule.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmill_core::contract::{Codec, OperatorContract, Port, StateContract, StateKind};
use wasmill_core::element::{Element, Stamp};
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, OperatorUid, Parallelism, StateName, SubtaskId, SubtaskIndex};
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};
use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use super::*;
use crate::bell::Bell;
use crate::clock::SystemClock;
use crate::control::Mailbox;
use crate::exchange::channel::{Receiver, channel};
use crate::exchange::gate::{Gate, InputChannel, OnLate};
use crate::exchange::route::{OutEdge, Outputs, Routing};
use crate::guest::contract::{self, Batch, Eager, Effects, Firing, Now};
use crate::guest::effects::Malformed;
use crate::guest::{Crash, Guest, GuestFactory, InstanceOptions, Limits, SharedState, StateError, packed};
use crate::state::{KeyedState, Restore, SharedMemory, StateBackend, StateSpec};
use crate::subtask::operator::{Cut, Instances, Options, Snapshots};
use crate::subtask::{CallState, Context};
use crate::telemetry::{Reading, Renewal, SubtaskMeter};

/// Counts each key's records in lazy state and emits `KEY=COUNT@WATERMARK`, but for records that say otherwise.
struct Script {
    contract: OperatorContract,
    instances: AtomicU64,
}

struct Instance {
    state: SharedState,
    memory: u64,
}

impl GuestFactory for Script {
    fn contract(&self) -> &OperatorContract {
        &self.contract
    }

    fn digest(&self) -> &str {
        "0123abcd"
    }

    fn instantiate(&self, _: &InstanceOptions, state: SharedState) -> Result<Box<dyn Guest>, CallError> {
        self.instances.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Instance { state, memory: 0 }))
    }
}

fn crash() -> Box<Crash> {
    let stack = vec!["count".to_owned()];
    Box::new(Crash { call: "process", component: "c".to_owned(), cause: "told to".to_owned(), said: None, stack })
}

fn failure(command: &str) -> Option<CallError> {
    Some(match command {
        "panic" => CallError::Trap { at: crash() },
        "spin" => CallError::TimedOut { limit: Duration::from_secs(1), setting: "limits.call-time", at: crash() },
        "bomb" => CallError::MemoryLimit { limit: 1 << 20, at: crash() },
        "flood" => CallError::ResultLimit { limit: 1 << 20, at: crash() },
        "lie" => CallError::Malformed {
            call: "process",
            component: "c".to_owned(),
            cause: Malformed { field: "consumed", index: None, rule: "never 0".to_owned() },
        },
        "fatal" => {
            CallError::Fault { call: "process", component: "c".to_owned(), retryable: false, message: "no".to_owned() }
        }
        _ => return None,
    })
}

fn answered(error: StateError) -> CallError {
    CallError::Host(Fault::new(FaultKind::Internal, error))
}

impl Guest for Instance {
    fn process(&mut self, _: u16, _: Now, batch: &Batch, _: &[Eager]) -> Result<Effects, CallError> {
        let records = packed::u32s(&batch.slots).count() as u32;
        let mut effects = contract::no_effects(records);
        for record in 0..records {
            self.memory += 1;
            let value = contract::value_at(&batch.values, record as usize).unwrap_or_default();
            let command = std::str::from_utf8(value).unwrap_or_default();
            let run = batch.watermarks.iter().find(|run| record < run.until).unwrap();
            let mut state = self.state.lock();
            let mark = state.mark();
            let count = state.value_get(0, record).map_err(answered)?.map_or(0, |bytes| bytes[0]) + 1;
            state.value_set(0, record, vec![count]).map_err(answered)?;
            if let Some(error) = failure(command) {
                return Err(error);
            }
            if let "reject" | "dirty" = command {
                packed::push_u32(&mut effects.rejects.origins, record);
                effects.rejects.reasons.push("told to".to_owned());
                if command == "reject" {
                    state.rollback(mark).map_err(answered)?;
                }
                continue;
            }
            change_timer(command, record, &mut effects);
            let slot = packed::u32_at(&batch.slots, record as usize).unwrap() as usize;
            let key = contract::value_at(&batch.keys, slot).unwrap_or_default();
            let text = format!("{}={count}@{}", String::from_utf8_lossy(key), run.watermark);
            effects.emits.outputs.extend_from_slice(&[0, 0]);
            packed::push_u32(&mut effects.emits.origins, record);
            contract::push_value(&mut effects.emits.values, text.as_bytes());
            if command == "stop" && record + 1 == run.until {
                effects.consumed = run.until;
                break;
            }
        }
        Ok(effects)
    }

    /// Emits `KEY!TIME@WATERMARK` for each timer; its tag says what else it does.
    fn fire(&mut self, now: Now, timers: &Firing, _: &[Eager]) -> Result<Effects, CallError> {
        let mut effects = contract::no_effects(timers.tags.len() as u32 / 4);
        for (timer, tag) in packed::u32s(&timers.tags).enumerate() {
            let time = packed::time_at(&timers.times, timer).unwrap().as_millis();
            let origin = timer as u32;
            self.memory += 1;
            match tag {
                PANIC => return Err(failure("panic").unwrap()),
                REJECT => {
                    packed::push_u32(&mut effects.rejects.origins, origin);
                    effects.rejects.reasons.push("told to".to_owned());
                    continue;
                }
                AGAIN => change_timer(&format!("set {time} {AGAIN}"), origin, &mut effects),
                HOURLY => change_timer(&format!("set {} {HOURLY}", time + 3_600_000), origin, &mut effects),
                DELETE_NEXT => change_timer(&format!("del {} 0", time + 1), origin, &mut effects),
                _ => {}
            }
            let slot = packed::u32_at(&timers.slots, timer).unwrap() as usize;
            let key = String::from_utf8_lossy(contract::value_at(&timers.keys, slot).unwrap());
            effects.emits.outputs.extend_from_slice(&[0, 0]);
            packed::push_u32(&mut effects.emits.origins, origin);
            contract::push_value(&mut effects.emits.values, format!("{key}!{time}@{}", now.watermark).as_bytes());
        }
        Ok(effects)
    }

    fn memory_bytes(&self) -> u64 {
        self.memory
    }
}

/// Tags by which a timer does more than fire.
pub(in crate::subtask::operator) const PANIC: u32 = 101;
pub(in crate::subtask::operator) const REJECT: u32 = 102;
/// Sets itself again, due as it is.
pub(in crate::subtask::operator) const AGAIN: u32 = 103;
/// Sets itself again an hour later.
pub(in crate::subtask::operator) const HOURLY: u32 = 104;
/// Deletes the timer of its key a millisecond later.
pub(in crate::subtask::operator) const DELETE_NEXT: u32 = 105;

/// Does what `set TIME TAG`, `del TIME TAG` or, in processing time, `pset TIME TAG` says; several with commas between.
fn change_timer(commands: &str, origin: u32, effects: &mut Effects) {
    for command in commands.split(',') {
        let words: Vec<_> = command.split(' ').collect();
        let [verb @ ("set" | "del" | "pset"), time, tag] = words[..] else { continue };
        let timers = &mut effects.timers;
        packed::push_u32(&mut timers.origins, origin);
        timers.operations.push(u8::from(verb != "del"));
        timers.domains.push(u8::from(verb == "pset"));
        packed::push_s64(&mut timers.times, time.parse().unwrap());
        packed::push_u32(&mut timers.tags, tag.parse().unwrap());
    }
}

/// The watermark with which broadcast records come.
pub(in crate::subtask::operator) const STAMPED: Timestamp = Timestamp::from_millis(7);

struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn take(&self, _: Cut) {}
    fn decided(&self, _: CheckpointId) {}
    fn given_up(&self, _: CheckpointId) {}
}

fn declared(broadcast: bool) -> OperatorContract {
    let port = |name: &str, broadcast| Port { name: name.to_owned(), broadcast, headers: false };
    OperatorContract {
        name: "script".to_owned(),
        version: "1".to_owned(),
        key_type: None,
        inputs: vec![port("in", broadcast)],
        outputs: vec![port("out", false)],
        config: Vec::new(),
        states: vec![StateContract {
            name: StateName::new("count").unwrap(),
            kind: StateKind::Value,
            version: 1,
            codec: Codec::Bytes,
            value_type: "bytes".to_owned(),
            map_key_type: None,
            lazy: true,
            rides_with: Vec::new(),
            ttl: None,
            renamed_from: Vec::new(),
            migrates_from: Vec::new(),
        }],
        lists_timers: false,
    }
}

/// What a run gave.
pub(in crate::subtask::operator) struct Ran {
    pub result: Result<(), Fault>,
    /// Emits, and watermarks as `@WATERMARK`.
    pub out: Vec<String>,
    dead: Vec<serde_json::Value>,
    pub meter: Reading,
    instances: u64,
}

impl Ran {
    pub fn of(&self, counts: &[(DropReason, u64)], reason: DropReason) -> u64 {
        counts.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
    }
}

pub(in crate::subtask::operator) struct Setting {
    policy: OnFailure,
    batch: usize,
    pub broadcast: bool,
    pub(in crate::subtask::operator) renew_above: Option<u64>,
}

pub(in crate::subtask::operator) fn with(policy: OnFailure, batch: usize) -> Setting {
    Setting { policy, batch, broadcast: false, renew_above: None }
}

/// Runs records, written `KEY:COMMAND`, or `@WATERMARK` for a watermark between them.
pub(in crate::subtask::operator) fn run(setting: &Setting, records: &[&str]) -> Ran {
    let Setting { policy, batch: batch_records, broadcast, renew_above } = *setting;
    let folder = tempfile::tempdir().unwrap();
    let clock = SystemClock::shared();
    let contract = declared(broadcast);
    let keyed = crate::state::Options {
        dir: folder.path().join("state"),
        states: vec![StateSpec {
            name: contract.states[0].name.clone(),
            kind: StateKind::Value,
            version: 1,
            ttl: None,
        }],
        range: KeyGroupRange::all(MaxParallelism::DEFAULT),
        max_parallelism: MaxParallelism::DEFAULT,
        cache_bytes: 1 << 20,
        backend: StateBackend::Rocksdb,
        shared: SharedMemory::new(1 << 20),
        clock: Arc::clone(&clock),
        place: "op/0".to_owned(),
    };
    let call = Arc::new(Mutex::new(CallState::new(Some(KeyedState::open(keyed, Restore::Empty).unwrap()))));
    let id = SubtaskId { uid: OperatorUid::new("op").unwrap(), index: SubtaskIndex(0) };
    let context = Context {
        id: id.clone(),
        mailbox: Mailbox::default(),
        reports: mpsc::unbounded_channel().0,
        clock,
        meter: Arc::new(SubtaskMeter::new(id.clone(), NodeKind::Operator)),
    };
    let meter = Arc::clone(&context.meter);
    let (sender, receiver) = channel(Bell::default(), Bell::default());
    let edges: [_; 2] = std::array::from_fn(|_| channel(Bell::default(), Bell::default()));
    let [(out, emitted), (letters, dead)] = edges;
    let edge = |target| vec![OutEdge { routing: Routing::Forward, targets: vec![target] }];
    let options = Options {
        contract: contract.clone(),
        key_groups: KeyGroupRange::all(MaxParallelism::DEFAULT),
        batch_records,
        batch_bytes: 1 << 20,
        on_failure: policy,
        late_outputs: 0,
        merged_late: Vec::new(),
        merged_watermark: Timestamp::MIN,
        expires_at_once: false,
        cuts: folder.path().join("cuts"),
        snapshots: Arc::new(NoSnapshots),
    };
    let place = InstanceOptions {
        uid: id.uid,
        subtask: id.index,
        parallelism: Parallelism(NonZeroU32::MIN),
        attempt: Attempt(1),
        config: "{}".to_owned(),
        limits: Limits::default(),
    };
    let factory = Arc::new(Script { contract, instances: AtomicU64::new(0) });
    let shared = Arc::clone(&call) as SharedState;
    let instances = Instances::new(Arc::clone(&factory) as Arc<dyn GuestFactory>, place, shared, renew_above).unwrap();
    let ports = (
        Gate::new(vec![InputChannel { input: 0, on_late: OnLate::Pass, receiver }], Timestamp::MIN),
        Outputs::new(vec![edge(out), edge(letters)]),
    );
    let mut subtask = OperatorSubtask::new(context, options, ports, instances, call);

    let mut batch = RecordBatch::default();
    for record in records {
        if let Some(watermark) = record.strip_prefix('@') {
            let watermark = Timestamp::from_millis(watermark.parse().unwrap());
            batch.marks.push(WatermarkMark { after: batch.len() as u32, watermark });
        } else {
            let (key, command) = record.split_once(':').unwrap();
            batch.push(Some(key.as_bytes()), Timestamp::from_millis(batch.len() as i64), Some(command.as_bytes()));
        }
    }
    let stamp = Stamp { edge: 0, watermark: STAMPED, processing_time: STAMPED };
    let merged = |records| Element::Merged { input: 0, stamp, records };
    sender.send(if broadcast { merged(batch) } else { Element::Records(batch) });
    let mut step = || -> Result<(), Fault> {
        while subtask.step()? {}
        subtask.flush()?;
        subtask.tick()?;
        subtask.flush()
    };
    let result = step();
    let (out, letters) = (shown(&emitted), shown(&dead));
    let dead = letters.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ran { result, out, dead, meter: meter.read(), instances: factory.instances.load(Ordering::Relaxed) }
}

/// Values and watermarks in order; CBOR as JSON.
fn shown(channel: &Receiver) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(element) = channel.receive() {
        let Element::Records(batch) = element else { continue };
        let mut marks = batch.marks.iter().peekable();
        for record in 0..batch.len() {
            while let Some(mark) = marks.next_if(|mark| mark.after as usize <= record) {
                all.push(format!("@{}", mark.watermark.as_millis()));
            }
            let value = batch.values.get(record).unwrap();
            let mut json = Vec::new();
            let text = match crate::format::encode::push_json(value, &mut json) {
                Ok(()) if json.starts_with(b"{") => &json,
                _ => value,
            };
            all.push(String::from_utf8(text.to_vec()).unwrap());
        }
        all.extend(marks.map(|mark| format!("@{}", mark.watermark.as_millis())));
    }
    all
}

pub(in crate::subtask::operator) const BATCHES: [usize; 3] = [1, 7, 1024];

/// Twenty good records of three keys with watermarks between them.
fn good() -> Vec<String> {
    let mut records = Vec::new();
    for record in 0..20 {
        if record % 4 == 3 {
            records.push(format!("@{}", record * 10));
        }
        records.push(format!("{}:x", ["a", "b", "c"][record % 3]));
    }
    records.push("@1000".to_owned());
    records
}

/// The good records with others put in at places.
fn good_with(others: &[(usize, &str)]) -> Vec<String> {
    let mut records = good();
    for &(place, other) in others.iter().rev() {
        records.insert(place, other.to_owned());
    }
    records
}

fn all(records: &[String]) -> Vec<&str> {
    records.iter().map(String::as_str).collect()
}

#[test]
fn a_record_at_fault_is_dropped_alone_wherever_it_stands_whatever_the_batch() {
    let good = good();
    let expected = run(&with(OnFailure::Fail, 1024), &all(&good)).out;
    assert!(expected.contains(&"a=7@150".to_owned()) && expected.contains(&"@1000".to_owned()), "{expected:?}");
    let places: [&[usize]; 5] = [&[0], &[12], &[25], &[0, 12, 25], &[5, 5, 5]];
    let commands = [
        ("panic", DropReason::Trap),
        ("spin", DropReason::TimeLimit),
        ("bomb", DropReason::MemoryLimit),
        ("flood", DropReason::ResultLimit),
        ("lie", DropReason::Malformed),
        ("reject", DropReason::Rejected),
        ("dirty", DropReason::Rejected),
    ];
    for (command, reason) in commands {
        let record = format!("a:{command}");
        for places in places {
            let others: Vec<_> = places.iter().map(|&place| (place, record.as_str())).collect();
            for batch in BATCHES {
                let ran = run(&with(OnFailure::Drop, batch), &all(&good_with(&others)));
                assert_eq!(ran.result, Ok(()));
                assert_eq!(ran.out, expected, "{command} at {places:?} in batches of {batch}");
                assert_eq!(ran.of(&ran.meter.dropped, reason), places.len() as u64);
            }
        }
    }
}

#[test]
fn where_all_are_at_fault_all_are_dropped_and_watermarks_go_on() {
    for batch in BATCHES {
        let ran = run(&with(OnFailure::Drop, batch), &["a:panic", "@5", "b:spin", "a:lie", "@9"]);
        assert_eq!((ran.result, ran.out), (Ok(()), vec!["@5".to_owned(), "@9".to_owned()]), "{batch}");
    }
}

#[test]
fn the_work_of_a_search_is_bounded_and_counted() {
    let mut records = vec!["a:x"; 1024];
    records[700] = "a:panic";
    let ran = run(&with(OnFailure::Drop, 1024), &records);
    assert_eq!((ran.out.len(), ran.meter.isolations), (1023, 1));
    assert!((10..=20).contains(&ran.meter.reruns), "{}", ran.meter.reruns);
    assert_eq!(ran.meter.calls, ran.meter.reruns + 1);
    let replaced = ran.meter.renewals.iter().find(|(reason, _)| *reason == Renewal::Failure).unwrap().1;
    assert!(replaced <= 11 && ran.instances == replaced + 1, "{replaced} of {}", ran.instances);
}

#[test]
fn a_dead_letter_says_what_is_known_and_comes_before_later_watermarks() {
    for batch in BATCHES {
        let ran = run(&with(OnFailure::DeadLetter, batch), &["a:x", "@1", "b:panic", "a:reject", "@7", "a:x"]);
        assert_eq!(ran.result, Ok(()));
        assert_eq!(ran.out.last().unwrap(), "a=2@7");
        let [trap, reject] = &ran.dead[..] else { panic!("{:?}", ran.dead) };
        for (field, value) in
            [("uid", "op"), ("component", "0123abcd"), ("input", "in"), ("kind", "trap"), ("key", "b")]
        {
            assert_eq!(trap[field], value, "{field}");
        }
        assert!(trap["message"].as_str().unwrap().contains("told to; in count"), "{trap}");
        assert_eq!((&trap["time"], &trap["subtask"]), (&1.into(), &0.into()));
        assert_eq!(trap["tries"].as_u64().unwrap() > 1, batch > 1);
        assert_eq!(
            (&reject["kind"], &reject["message"], &reject["key"]),
            (&"rejected".into(), &"told to".into(), &"a".into())
        );
        assert_eq!(ran.of(&ran.meter.dead_letters, DropReason::Trap), 1);
        assert_eq!(ran.of(&ran.meter.dropped, DropReason::Trap), 0);
    }
}

#[test]
fn under_fail_the_record_at_fault_is_named() {
    for batch in BATCHES {
        for (command, what) in [("panic", "failed: `process` trapped"), ("dirty", "was rejected: told to")] {
            let record = format!("b:{command}");
            let ran = run(&with(OnFailure::Fail, batch), &["a:x", "a:x", record.as_str(), "a:x"]);
            let message = ran.result.unwrap_err().message;
            let expected = format!("operator op/0: the record with key `b` and time 2 {what}");
            assert!(message.starts_with(&expected) && message.contains("on-failure"), "{message}");
        }
    }
}

#[test]
fn a_fault_that_the_guest_answers_with_fails_the_attempt_under_any_policy() {
    for policy in [OnFailure::Fail, OnFailure::Drop, OnFailure::DeadLetter] {
        let ran = run(&with(policy, 1024), &["a:x", "a:fatal"]);
        assert!(ran.result.unwrap_err().message.contains("`process` failed: no"));
    }
}

#[test]
fn what_a_call_leaves_unconsumed_is_called_again_once_also_beside_a_failure() {
    let records = ["a:stop", "@1", "a:x", "b:stop", "@2", "b:panic", "a:x", "@3"];
    let expected = ["a=1@-9007199254740991", "@1", "a=2@1", "b=1@1", "@2", "a=3@2", "@3"];
    for batch in BATCHES {
        let ran = run(&with(OnFailure::Drop, batch), &records);
        assert_eq!((ran.result, ran.out), (Ok(()), expected.map(str::to_owned).to_vec()), "{batch}");
    }
    let ran = run(&with(OnFailure::Fail, 1024), &["a:stop", "@1", "a:x"]);
    assert_eq!((ran.meter.isolations, ran.meter.reruns, ran.meter.calls), (0, 0, 2));
    let ran = run(&with(OnFailure::Drop, 1024), &["a:stop", "@1", "a:panic", "a:x"]);
    assert_eq!((ran.meter.isolations, ran.meter.reruns, ran.meter.calls), (1, 2, 4));
}

#[test]
fn an_instance_past_the_mark_is_replaced_between_batches() {
    let setting = Setting { renew_above: Some(5), ..with(OnFailure::Fail, 3) };
    let ran = run(&setting, &["a:x"; 18]);
    assert_eq!((ran.out.last().unwrap().as_str(), ran.instances), ("a=18@-9007199254740991", 3));
    assert_eq!(ran.meter.renewals, [(Renewal::Failure, 0), (Renewal::Memory, 3)]);
}
