//! A job that is killed with SIGKILL at random moments loses and repeats nothing in its output.
//!
//! `WASMILL_KILLS` kills at each parallelism (3 where it is not set), `WASMILL_SEED` repeats a run's moments as far as a
//! machine can. Each kill comes after a checkpoint of its attempt completed and before the end of input.

use std::path::Path;
use std::time::Duration;

use wasmill_tests::{Harness, Job, Pipeline};

/// Records of the sample.
const ROWS: u64 = 34_506;
/// What a kill takes in the mean, start and restore included, so that the input lasts for all kills.
const SECONDS_A_KILL: f64 = 1.3;
/// Most time between a completed checkpoint and the kill.
const MOST_WAIT_MS: u64 = 300;

#[test]
fn a_killed_job_loses_and_repeats_nothing() {
    let kills = setting("WASMILL_KILLS").unwrap_or(3);
    let seed = setting("WASMILL_SEED").unwrap_or_else(|| u64::from(std::process::id()).wrapping_mul(0x9e37_79b9));
    println!("WASMILL_SEED={seed} WASMILL_KILLS={kills}");
    let (mut done, mut restored, mut mismatches) = (0, 0, 0);
    for parallelism in [1, 2, 4] {
        let mut random = Random(seed ^ parallelism);
        let undisturbed = undisturbed(parallelism);
        let outcome = disturbed(kills, &mut random, |_, rate| flights(parallelism, rate));
        println!("parallelism {parallelism}: killed at {}", outcome.moments.join(", "));
        done += outcome.moments.len();
        restored += outcome.restored;
        mismatches += mismatches_of(&undisturbed, &outcome.output);
    }
    println!("{}", serde_json::json!({"figure": "kills", "value": done, "unit": ""}));
    println!("{}", serde_json::json!({"figure": "kills_restored", "value": restored, "unit": ""}));
    println!("{}", serde_json::json!({"figure": "kill_mismatches", "value": mismatches, "unit": ""}));
    assert_eq!(mismatches, 0, "WASMILL_SEED={seed}");
    assert_eq!(done as u64, kills * 3, "WASMILL_SEED={seed}: the input ended too soon");
    assert_eq!(restored, done, "WASMILL_SEED={seed}: an attempt after a kill did not restore");
}

/// Each attempt restores what the one before it left, whichever backend took it and at whatever parallelism.
#[test]
fn a_killed_job_goes_on_in_memory_and_in_the_other_backend_at_another_parallelism() {
    let attempts = [("memory", 2), ("memory", 2), ("memory", 3), ("rocksdb", 2), ("memory", 2)];
    let seed = u64::from(std::process::id());
    let outcome = disturbed(4, &mut Random(seed), |attempt, rate| {
        let (backend, parallelism) = attempts[attempt];
        // Slow, so that the input lasts on a slow machine too: the last attempt has no rate.
        flights(parallelism, rate.map(|rate| rate / 3)).with("[state]", &format!("[state]\nbackend = \"{backend}\""))
    });
    let moments = outcome.moments.join(", ");
    assert_eq!(mismatches_of(&undisturbed(2), &outcome.output), 0, "killed at {moments}");
    assert_eq!((outcome.moments.len(), outcome.restored), (4, 4), "killed at {moments}");
}

struct Outcome {
    output: Vec<String>,
    /// Where each kill hit.
    moments: Vec<String>,
    /// Attempts that began from a completed checkpoint.
    restored: usize,
}

fn flights(parallelism: u64, rate: Option<u64>) -> Pipeline {
    let harness = Harness::get();
    let sample = harness.root().join("examples/flights/sample.csv.gz");
    let pipeline = Pipeline::of_example("flights")
        .with("data/flights.csv.gz", &sample.to_string_lossy())
        .with("per_aircraft.wasm", &harness.guest("per_aircraft").to_string_lossy())
        .with("parallelism = 2", &format!("parallelism = {parallelism}"))
        .with("interval = \"500ms\"", "interval = \"150ms\"");
    match rate {
        Some(rate) => pipeline.with("format = \"csv\"", &format!("format = \"csv\"\nrate = {rate}")),
        None => pipeline,
    }
}

fn undisturbed(parallelism: u64) -> Vec<String> {
    let job = Job::new(&flights(parallelism, None));
    job.run(&[]).expect_code(0);
    job.output("run/out").sorted_by("tailnum", "flights")
}

/// What comes of the pipelines of one attempt after the other, each killed but the last, which has no rate.
fn disturbed(kills: u64, random: &mut Random, pipeline: impl Fn(usize, Option<u64>) -> Pipeline) -> Outcome {
    let rate = (ROWS as f64 / (kills as f64 * SECONDS_A_KILL + 2.0)) as u64;
    let rate = Some(rate.max(200));
    let job = Job::new(&pipeline(0, rate));
    let (mut moments, mut restored) = (Vec::new(), 0);
    let parts = job.folder().join("run/out");
    while (moments.len() as u64) < kills {
        job.change(&pipeline(moments.len(), rate));
        let before = visible(&parts);
        let mut running = job.start(&[]);
        if !running.wait_until(|| visible(&parts) > before) {
            restored += restores(&running.stderr());
            break;
        }
        let wait = Duration::from_millis(random.below(MOST_WAIT_MS));
        pause(wait);
        let (log, at) = (running.stderr(), visible(&parts));
        restored += restores(&log);
        if running.kill() {
            moments.push(format!("{} parts visible + {} ms", at, wait.as_millis()));
        }
    }
    // The rest in one go, without the rate, which is no part of the state.
    job.change(&pipeline(moments.len(), None));
    let last = job.run(&[]).expect_code(0);
    restored += restores(&last.stderr);
    Outcome { output: job.output("run/out").sorted_by("tailnum", "flights"), moments, restored }
}

/// How many attempts of the log began from a checkpoint.
fn restores(log: &str) -> usize {
    log.lines().filter(|line| line.contains("records flow") && line.contains("restored=")).count()
}

fn visible(folder: &Path) -> usize {
    let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().filter(|entry| !hidden(&entry.file_name())).count())
}

/// Lines that only one side has.
fn mismatches_of(one: &[String], other: &[String]) -> usize {
    if one == other {
        return 0;
    }
    let differing = one.iter().zip(other).filter(|(one, other)| one != other).count();
    differing + one.len().abs_diff(other.len())
}

#[expect(clippy::disallowed_methods, reason = "how the command line of `make kill-test` reaches a test")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "the kill must come at a random moment of another process's life")]
fn pause(wait: Duration) {
    std::thread::sleep(wait);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
