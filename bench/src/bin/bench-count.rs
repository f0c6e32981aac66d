//! A keyed count, the Rust guest in WebAssembly against the same source in the host's own code.
//!
//! Owns the comparison: one subtask, one cache, the same records, rounds in turn, epoch interruption on. Measured is the
//! subtask's thread alone: batch, state, call, effects. Making the records and reading the output are outside.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use parking_lot::Mutex;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tokio::sync::mpsc;
use wasmill_bench::figure;
use wasmill_bench::native::{Copying, Native};
use wasmill_core::contract::OperatorContract;
use wasmill_core::element::Element;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, OperatorUid, Parallelism, SubtaskId, SubtaskIndex};
use wasmill_core::key_group::{KeyGroupRange, KeyHash, MaxParallelism};
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;
use wasmill_example_count::CountPerKey;
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::config::operator::OnFailure;
use wasmill_runtime::control::Mailbox;
use wasmill_runtime::exchange::channel::{Receiver, Sender, channel};
use wasmill_runtime::exchange::gate::{Gate, InputChannel, OnLate};
use wasmill_runtime::exchange::route::{OutEdge, Outputs, Routing};
use wasmill_runtime::guest::{
    CallError, Component, Engine, EngineOptions, Guest, GuestFactory, InstanceOptions, Limits, SharedState,
};
use wasmill_runtime::state::{KeyedState, Options, Restore, SharedMemory, StateBackend, StateSpec};
use wasmill_runtime::subtask::operator::{self, Cut, Instances, OperatorSubtask, Snapshots};
use wasmill_runtime::subtask::{CallState, Context};
use wasmill_runtime::telemetry::SubtaskMeter;

/// Measures a keyed count in WebAssembly and native. Example: bench-count --records 10000000
#[derive(Parser)]
struct Arguments {
    /// Records a round.
    #[arg(long, default_value_t = 10_000_000)]
    records: usize,
    /// Distinct keys.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The component; left out: the built example.
    #[arg(long)]
    component: Option<PathBuf>,
}

/// Records of a batch.
const BATCH: usize = 1024;
/// Memory of the cache; RocksDB gets as much.
const CACHE: usize = 128 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Native,
    Wasm,
}

struct Round {
    nanos: f64,
    output: u64,
    emitted: usize,
    state: u64,
    state_bytes: u64,
}

struct Bench {
    arguments: Arguments,
    component: Component,
    clock: SharedClock,
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let engine = Engine::new(EngineOptions { cache_dir: None })?;
    let component = engine.load(&component_path(&arguments)?)?;
    let bench = Bench { arguments, component, clock: SystemClock::shared() };
    let (mut native, mut wasm) = (Vec::new(), Vec::new());
    println!(
        "keyed count, {} records, {} keys, {} B payload, batches of {BATCH}, one subtask",
        bench.arguments.records, bench.arguments.keys, bench.arguments.payload
    );
    println!("{:>5}  {:>10}  {:>10}", "round", "native ns", "wasm ns");
    for round in 0..bench.arguments.rounds {
        // The order changes from round to round, so that neither always runs on a warmer machine.
        let order = if round % 2 == 0 { [Side::Native, Side::Wasm] } else { [Side::Wasm, Side::Native] };
        let [first, second] = [bench.round(order[0])?, bench.round(order[1])?];
        let (of_native, of_wasm) = if round % 2 == 0 { (first, second) } else { (second, first) };
        ensure!(of_native.emitted == of_wasm.emitted && of_native.output == of_wasm.output, "the outputs differ");
        ensure!(of_native.state == of_wasm.state && of_native.state_bytes == of_wasm.state_bytes, "the states differ");
        println!("{round:>5}  {:>10.1}  {:>10.1}", of_native.nanos, of_wasm.nanos);
        native.push(of_native.nanos);
        wasm.push(of_wasm.nanos);
    }
    let (native, wasm) = (figure::median(&native), figure::median(&wasm));
    println!("outputs and state bytes of both are the same; median ratio {:.3}", wasm / native);
    figure::print("count_native_ns", native, "ns/record");
    figure::print("count_wasm_ns", wasm, "ns/record");
    figure::print("count_wasm_over_native", wasm / native, "");
    Ok(())
}

fn component_path(arguments: &Arguments) -> Result<PathBuf> {
    if let Some(path) = &arguments.component {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("where this program is")?;
    let target = own.parent().and_then(|release| release.parent()).ok_or_else(|| anyhow!("no target folder"))?;
    let built = target.join("wasm32-unknown-unknown/release/wasmill_example_count.wasm");
    ensure!(built.exists(), "{} is missing: run `make guests`", built.display());
    Ok(built)
}

/// Makes the operator compiled into this program.
struct NativeFactory {
    contract: OperatorContract,
    clock: SharedClock,
    copying: Copying,
}

impl GuestFactory for NativeFactory {
    fn contract(&self) -> &OperatorContract {
        &self.contract
    }

    fn digest(&self) -> &str {
        "native"
    }

    fn instantiate(&self, _: &InstanceOptions, _: SharedState) -> Result<Box<dyn Guest>, CallError> {
        let native = Native::<CountPerKey>::new(Arc::clone(&self.clock), self.copying.clone())
            .map_err(|message| CallError::Host(Fault::new(FaultKind::Internal, message)))?;
        Ok(Box::new(native))
    }
}

impl Bench {
    fn round(&self, side: Side) -> Result<Round> {
        let dir = tempfile::tempdir()?;
        let contract = self.component.contract().clone();
        let call = Arc::new(Mutex::new(CallState::new(Some(self.state(&contract, dir.path())?))));
        let copying = Copying::default();
        let factory: Arc<dyn GuestFactory> = match side {
            Side::Wasm => Arc::new(self.component.clone()),
            Side::Native => Arc::new(NativeFactory {
                contract: contract.clone(),
                clock: Arc::clone(&self.clock),
                copying: copying.clone(),
            }),
        };
        let instances = Instances::new(factory, instance()?, Arc::clone(&call) as SharedState, None)?;
        let context = self.context()?;
        let (records, receiver) = channel(Mailbox::default().bell().clone(), context.mailbox.bell().clone());
        let (edge, emitted) = channel(context.mailbox.bell().clone(), Mailbox::default().bell().clone());
        let gate = Gate::new(vec![InputChannel { input: 0, on_late: OnLate::Pass, receiver }], Timestamp::MIN);
        let outputs = Outputs::new(vec![vec![OutEdge { routing: Routing::Forward, targets: vec![edge] }]]);
        let options = operator::Options {
            contract,
            key_groups: KeyGroupRange::all(MaxParallelism::DEFAULT),
            batch_records: BATCH,
            batch_bytes: 1 << 20,
            on_failure: OnFailure::Fail,
            late_outputs: 0,
            cuts: dir.path().join("cuts"),
            snapshots: Arc::new(NoSnapshots),
        };
        let mut subtask = OperatorSubtask::new(context, options, (gate, outputs), instances, Arc::clone(&call));
        let mut output = Digest::default();
        let mut nanos = Duration::ZERO;
        let mut maker = Maker::new(&self.arguments);
        while maker.fill(&records) {
            let begin = self.clock.monotonic();
            while subtask.step()? {}
            nanos += self.clock.monotonic().saturating_sub(begin);
            output.take(&emitted);
        }
        let begin = self.clock.monotonic();
        subtask.flush()?;
        nanos += self.clock.monotonic().saturating_sub(begin);
        output.take(&emitted);
        let nanos = nanos.saturating_sub(copying.total());
        let (state, state_bytes) = self.state_digest(&call)?;
        Ok(Round {
            nanos: nanos.as_nanos() as f64 / self.arguments.records as f64,
            output: output.hash,
            emitted: output.records,
            state,
            state_bytes,
        })
    }

    fn state(&self, contract: &OperatorContract, dir: &std::path::Path) -> Result<KeyedState> {
        let states = contract
            .states
            .iter()
            .map(|state| StateSpec { name: state.name.clone(), kind: state.kind, version: state.version })
            .collect();
        let options = Options {
            dir: dir.join("state"),
            states,
            range: KeyGroupRange::all(MaxParallelism::DEFAULT),
            max_parallelism: MaxParallelism::DEFAULT,
            cache_bytes: CACHE,
            backend: StateBackend::Rocksdb,
            shared: SharedMemory::new(CACHE),
            clock: Arc::clone(&self.clock),
            place: "count/0".to_owned(),
        };
        Ok(KeyedState::open(options, Restore::Empty)?)
    }

    fn context(&self) -> Result<Context> {
        let id = SubtaskId { uid: OperatorUid::new("count")?, index: SubtaskIndex(0) };
        Ok(Context {
            id: id.clone(),
            mailbox: Mailbox::default(),
            reports: mpsc::unbounded_channel().0,
            clock: Arc::clone(&self.clock),
            meter: Arc::new(SubtaskMeter::new(id, NodeKind::Operator)),
        })
    }

    /// A hash over every key's value, and the counted bytes of the state.
    fn state_digest(&self, call: &Mutex<CallState>) -> Result<(u64, u64)> {
        let mut call = call.lock();
        let keyed = call.keyed().ok_or_else(|| anyhow!("the operator keeps no state"))?;
        let mut hash = 0u64;
        for key in 0..self.arguments.keys {
            let key = key_text(key);
            let value = keyed.value(0, &key, KeyHash::of(&key))?;
            hash = hash.rotate_left(5) ^ value.map_or(1, |value| KeyHash::of(value).0);
        }
        Ok((hash, keyed.counts().total().bytes))
    }
}

fn instance() -> Result<InstanceOptions> {
    Ok(InstanceOptions {
        uid: OperatorUid::new("count")?,
        subtask: SubtaskIndex(0),
        parallelism: Parallelism::ONE,
        attempt: Attempt(1),
        config: "{}".to_owned(),
        limits: Limits::default(),
    })
}

struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn take(&self, _: Cut) {}
    fn decided(&self, _: CheckpointId) {}
    fn given_up(&self, _: CheckpointId) {}
}

/// Makes the same records for the same arguments.
struct Maker<'a> {
    arguments: &'a Arguments,
    random: SplitMix64,
    made: usize,
    payload: Vec<u8>,
}

impl<'a> Maker<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        let random = SplitMix64::seed_from_u64(42);
        Self { arguments, random, made: 0, payload: vec![0x2a; arguments.payload] }
    }

    /// Fills the channel; whether there was anything left to send.
    fn fill(&mut self, records: &Sender) -> bool {
        let before = self.made;
        while self.made < self.arguments.records && records.has_room() {
            let mut batch = RecordBatch::default();
            while batch.len() < BATCH && self.made < self.arguments.records {
                let key = key_text(self.random.next_u64() % self.arguments.keys);
                batch.hashes.push(KeyHash::of(&key));
                batch.push(Some(&key), Timestamp::from_millis(self.made as i64), Some(&self.payload));
                self.made += 1;
            }
            records.send(Element::Records(batch));
        }
        self.made > before
    }
}

fn key_text(key: u64) -> Vec<u8> {
    format!("key-{key:06}").into_bytes()
}

/// A hash over all emitted records in order.
#[derive(Default)]
struct Digest {
    hash: u64,
    records: usize,
}

impl Digest {
    fn take(&mut self, emitted: &Receiver) {
        while let Some(element) = emitted.receive() {
            if let Element::Records(batch) = element {
                self.records += batch.len();
                self.hash = self.hash.rotate_left(7) ^ KeyHash::of(batch.values.values().bytes()).0;
            }
        }
    }
}
