//! What one access of state costs through the guest, in memory and past it, beside a hash map and beside RocksDB.
//!
//! Owns the comparison. An access changes what is there: a count is read and set, an element appended, a timer set and fired. Its cost
//! is what a record takes with it, less what a record takes without. All of one run, one after the other, on one thread.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use hashbrown::HashMap;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use wasmill_bench::drive::{BATCH, Drive, built_component};
use wasmill_bench::{figure, rocks};
use wasmill_core::element::Element;
use wasmill_core::key_group::KeyHash;
use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::exchange::channel::Sender;
use wasmill_runtime::guest::{Component, Engine, EngineOptions};

/// Measures an access of state through the guest. Example: bench-state --large 20000000
#[derive(Parser)]
struct Arguments {
    /// Entries that fit in memory.
    #[arg(long, default_value_t = 100_000)]
    small: u64,
    /// Entries that do not; 0 leaves that part out.
    #[arg(long, default_value_t = 20_000_000)]
    large: u64,
    /// Accesses of each measurement in memory.
    #[arg(long, default_value_t = 2_000_000)]
    accesses: u64,
    /// Accesses of each measurement past memory.
    #[arg(long, default_value_t = 1_000_000)]
    large_accesses: u64,
    /// Timers pending at once where the memory that they take is measured; 0 leaves that out.
    #[arg(long, default_value_t = 10_000_000)]
    timers: u64,
    /// Rounds in memory, of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Of these alone, by name: value-eager, value-lazy, map-get, map-many, list-append, timer.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Sets the timers and prints this process's greatest memory in MiB: how the program calls itself.
    #[arg(long, hide = true)]
    timers_alone: bool,
}

/// Memory of the cache; RocksDB gets as much: 256 MiB together.
const BUDGET: usize = 128 << 20;
/// Entries of a map, elements of a list.
const PER_KEY: u64 = 100;
/// A timer is due so many records after it was set.
const TIMER_DELAY: u64 = 100_000;
/// Past every record: a timer that stays.
const FAR: u64 = 1 << 50;

/// The kinds of access by the guest's inputs, with their figures; `none` is what the others are compared with.
const KINDS: [(&str, &str); 7] = [
    ("none", ""),
    ("value-eager", "value_eager"),
    ("value-lazy", "value_lazy"),
    ("map-get", "map_get"),
    ("map-many", "map_many"),
    ("list-append", "list_append"),
    ("timer", "timer"),
];
const EAGER: usize = 1;
const MAP_MANY: usize = 4;
const TIMER: usize = 6;

struct Bench {
    arguments: Arguments,
    component: Component,
    clock: SharedClock,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let engine = Engine::new(EngineOptions { cache_dir: None })?;
    let component = engine.load(&built_component("wasmill_test_access")?)?;
    let bench = Bench { arguments, component, clock: SystemClock::shared() };
    if bench.arguments.timers_alone { bench.timers_alone() } else { bench.all() }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
impl Bench {
    fn all(&self) -> Result<()> {
        let Arguments { small, large, .. } = self.arguments;
        println!("ns an access through the guest, cache and RocksDB of {} MiB together", (2 * BUDGET) >> 20);
        println!("{:>12}  {:>14}  {:>14}", "", format!("{small} entries"), format!("{large} entries"));
        let map = self.median_of(|| Ok(self.hash_map()))?;
        println!("{:>12}  {map:>14.1}  {:>14}", "hash map", "");
        let mut in_memory = [0.0; KINDS.len()];
        let mut past_memory = [0.0; KINDS.len()];
        let rocksdb = if large > 0 { self.rocksdb()? } else { 0.0 };
        println!("{:>12}  {:>14}  {rocksdb:>14.1}", "RocksDB", "");
        for (kind, (name, _)) in KINDS.iter().enumerate().filter(|(kind, _)| self.is_asked(*kind)) {
            in_memory[kind] = self.median_of(|| self.guest(kind, small, self.arguments.accesses))?;
            if large > 0 {
                past_memory[kind] = self.guest(kind, large, self.arguments.large_accesses)?;
            }
            let [small, large] =
                [in_memory, past_memory].map(|column| column[kind] - if kind > 0 { column[0] } else { 0.0 });
            println!("{name:>12}  {small:>14.1}  {large:>14.1}");
        }
        figure::print("hash_map_ns", map, "ns/access");
        figure::print("rocksdb_ns_20m", rocksdb, "ns/access");
        for (kind, (_, figure)) in KINDS.iter().enumerate().skip(1).filter(|(kind, _)| self.is_asked(*kind)) {
            figure::print(&format!("{figure}_ns"), in_memory[kind] - in_memory[0], "ns/access");
            if large > 0 {
                figure::print(&format!("{figure}_ns_20m"), past_memory[kind] - past_memory[0], "ns/access");
            }
        }
        if self.is_asked(EAGER) {
            figure::print("value_eager_over_map", (in_memory[EAGER] - in_memory[0]) / map, "");
            if large > 0 {
                figure::print("value_eager_over_rocksdb_20m", (past_memory[EAGER] - past_memory[0]) / rocksdb, "");
            }
        }
        if self.is_asked(MAP_MANY) {
            figure::print("map_many_over_map", (in_memory[MAP_MANY] - in_memory[0]) / map, "");
        }
        if self.arguments.timers > 0 {
            self.timers_apart()?;
        }
        Ok(())
    }

    fn is_asked(&self, kind: usize) -> bool {
        let only = &self.arguments.only;
        kind == 0 || only.is_empty() || only.iter().any(|name| name == KINDS[kind].0)
    }

    fn median_of(&self, measure: impl Fn() -> Result<f64>) -> Result<f64> {
        let rounds: Vec<f64> = (0..self.arguments.rounds).map(|_| measure()).collect::<Result<_>>()?;
        Ok(figure::median(&rounds))
    }

    /// What a record takes that makes one access of a kind to random ones of so many entries, all of them there before.
    fn guest(&self, kind: usize, entries: u64, accesses: u64) -> Result<f64> {
        let input = u16::try_from(kind)?;
        let mut drive = Drive::new(Arc::new(self.component.clone()), input, BUDGET, Arc::clone(&self.clock))?;
        let mut made = Maker::new(kind, entries, entries);
        if kind > 0 {
            drive.run(|records| made.fill(records), |_| {})?;
        }
        let mut made = Maker { first_time: entries, ..Maker::new(kind, accesses, entries) }.at_random();
        let took = drive.run(|records| made.fill(records), |_| {})?;
        Ok(nanos(took, accesses))
    }

    /// An update of a hash map by the same keys as the eager value's.
    fn hash_map(&self) -> f64 {
        let Arguments { small, accesses, .. } = self.arguments;
        let mut map: HashMap<Vec<u8>, u64, foldhash::fast::RandomState> =
            (0..small).map(|entry| (key_text(entry), 0)).collect();
        let mut random = SplitMix64::seed_from_u64(SEED);
        let mut took = Duration::ZERO;
        let mut keys = RecordBatch::default();
        for _ in 0..accesses.div_ceil(BATCH as u64) {
            keys.clear();
            (0..BATCH).for_each(|_| keys.push(Some(&key_text(random.next_u64() % small)), Timestamp::MIN, None));
            let begin = self.clock.monotonic();
            for key in keys.keys.iter().flatten() {
                match map.get_mut(key) {
                    Some(count) => *count += 1,
                    None => drop(map.insert(key.to_vec(), 1)),
                }
            }
            took += self.clock.monotonic().saturating_sub(begin);
        }
        std::hint::black_box(&map);
        nanos(took, accesses)
    }

    /// A get and a put of RocksDB, with the same keys and as much memory, and no cache before it.
    fn rocksdb(&self) -> Result<f64> {
        let Arguments { large, large_accesses, .. } = self.arguments;
        let dir = tempfile::tempdir()?;
        let rocks = rocks::Rocks::open(dir.path(), 2 * BUDGET)?;
        rocks.fill((0..large).map(key_text))?;
        let mut random = SplitMix64::seed_from_u64(SEED);
        let mut took = Duration::ZERO;
        for _ in 0..large_accesses {
            let key = key_text(random.next_u64() % large);
            let begin = self.clock.monotonic();
            rocks.count(&key)?;
            took += self.clock.monotonic().saturating_sub(begin);
        }
        Ok(nanos(took, large_accesses))
    }

    /// Measures the memory of pending timers in a process of their own.
    fn timers_apart(&self) -> Result<()> {
        let timers = self.arguments.timers.to_string();
        let child = std::process::Command::new(std::env::current_exe()?)
            .args(["--timers-alone", "--timers", &timers])
            .output()?;
        ensure!(child.status.success(), "timers alone: {}", String::from_utf8_lossy(&child.stderr));
        let mib: f64 = String::from_utf8(child.stdout)?.trim().parse()?;
        println!("{timers} timers pending: {mib:.0} MiB at most in the whole process");
        figure::print("timers_10m_rss_mib", mib, "MiB");
        Ok(())
    }

    fn timers_alone(&self) -> Result<()> {
        let timers = self.arguments.timers;
        let mut drive =
            Drive::new(Arc::new(self.component.clone()), u16::try_from(TIMER)?, BUDGET, Arc::clone(&self.clock))?;
        let mut made = Maker::new(TIMER, timers, timers);
        drive.run(|records| made.fill(records), |_| {})?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let peak: f64 = peak.ok_or_else(|| anyhow!("the kernel does not tell this process's memory"))?.parse()?;
        println!("{}", peak / 1024.0);
        Ok(())
    }
}

const SEED: u64 = 42;

fn nanos(took: Duration, accesses: u64) -> f64 {
    took.as_nanos() as f64 / accesses as f64
}

/// Makes the records: first every entry in turn, or entries at random.
struct Maker {
    kind: usize,
    left: u64,
    entries: u64,
    first_time: u64,
    made: u64,
    random: Option<SplitMix64>,
}

impl Maker {
    fn new(kind: usize, records: u64, entries: u64) -> Self {
        Self { kind, left: records, entries, first_time: 0, made: 0, random: None }
    }

    fn at_random(self) -> Self {
        Self { random: Some(SplitMix64::seed_from_u64(SEED)), ..self }
    }

    /// Fills the channel; whether there was anything left to send.
    fn fill(&mut self, records: &Sender) -> bool {
        let before = self.left;
        while self.left > 0 && records.has_room() {
            let mut batch = RecordBatch::default();
            while batch.len() < BATCH && self.left > 0 {
                self.push(&mut batch);
            }
            let watermark = Timestamp::from_millis(self.time());
            batch.marks.push(WatermarkMark { after: batch.len() as u32, watermark });
            records.send(Element::Records(batch));
        }
        self.left < before
    }

    fn time(&self) -> i64 {
        (self.first_time + self.made) as i64
    }

    fn push(&mut self, batch: &mut RecordBatch) {
        let entry = match &mut self.random {
            Some(random) => random.next_u64() % self.entries,
            None => self.made,
        };
        let (key, value) = match KINDS[self.kind].0 {
            "timer" if self.random.is_some() => (entry, TIMER_DELAY),
            // Scattered, as timers of many keys are.
            "timer" => (entry, FAR + (entry.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24)),
            "map-get" | "map-many" | "list-append" => (entry / PER_KEY, entry % PER_KEY),
            _ => (entry, 0),
        };
        let key = key_text(key);
        batch.hashes.push(KeyHash::of(&key));
        batch.push(Some(&key), Timestamp::from_millis(self.time()), Some(&value.to_le_bytes()));
        self.made += 1;
        self.left -= 1;
    }
}

fn key_text(key: u64) -> Vec<u8> {
    format!("key-{key:08}").into_bytes()
}
