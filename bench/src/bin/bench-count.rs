//! A keyed count, the Rust guest in WebAssembly against the same source in the host's own code.
//!
//! Owns the comparison: one subtask, one cache, the same records, rounds in turn, epoch interruption on. Measured is the
//! subtask's thread alone: batch, state, call, effects. Making the records and reading the output are outside.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Parser;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use wasmill_bench::drive::{BATCH, Drive, built_component};
use wasmill_bench::figure;
use wasmill_bench::native::{Copying, Native};
use wasmill_core::contract::OperatorContract;
use wasmill_core::element::Element;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;
use wasmill_example_count::CountPerKey;
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::exchange::channel::{Receiver, Sender};
use wasmill_runtime::guest::{
    CallError, Component, Engine, EngineOptions, Guest, GuestFactory, InstanceOptions, SharedState,
};

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
    let component = engine.load(&match &arguments.component {
        Some(path) => path.clone(),
        None => built_component("wasmill_example_count")?,
    })?;
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
        let copying = Copying::default();
        let factory: Arc<dyn GuestFactory> = match side {
            Side::Wasm => Arc::new(self.component.clone()),
            Side::Native => Arc::new(NativeFactory {
                contract: self.component.contract().clone(),
                clock: Arc::clone(&self.clock),
                copying: copying.clone(),
            }),
        };
        let mut drive = Drive::new(factory, 0, CACHE, Arc::clone(&self.clock))?;
        let mut output = Digest::default();
        let mut maker = Maker::new(&self.arguments);
        let took = drive.run(|records| maker.fill(records), |emitted| output.take(emitted))?;
        let (state, state_bytes) = self.state_digest(&drive)?;
        Ok(Round {
            nanos: took.saturating_sub(copying.total()).as_nanos() as f64 / self.arguments.records as f64,
            output: output.hash,
            emitted: output.records,
            state,
            state_bytes,
        })
    }

    /// A hash over every key's value, and the counted bytes of the state.
    fn state_digest(&self, drive: &Drive) -> Result<(u64, u64)> {
        drive.state(|keyed| {
            let mut hash = 0u64;
            for key in 0..self.arguments.keys {
                let key = key_text(key);
                let value = keyed.value(0, &key, KeyHash::of(&key))?;
                hash = hash.rotate_left(5) ^ value.map_or(1, |value| KeyHash::of(value).0);
            }
            Ok((hash, keyed.counts().total().bytes))
        })
    }
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
