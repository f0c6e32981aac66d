//! One hostile component in a host process of its own, beside a healthy neighbour, held to what it must meet.
//!
//! Owns the pipeline, the limits that all rows share, and the verdict. Does not own the rows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;
use wasmill_tests::{Finished, Job, Pipeline, memory_of};

use crate::file::{self, File};

/// Records of the hostile operator, a thousand a second.
const RECORDS: usize = 200;
/// Which of them has the key `bad`.
const BAD: usize = 100;
/// Records of the neighbour, a thousand a second.
const NEIGHBOURS: usize = 500;
/// The most memory that a host process may ever hold, in MiB: a healthy job of the kind holds about a half, of what a guest
/// may use 32 are its own, 8 those of one call and 4 its lazy writes.
const MOST_MIB: u64 = 192;
/// The same where the guest does not come further than to describe itself, for which it has 256 MiB.
const MOST_MIB_TO_DESCRIBE: u64 = 320;
/// The longest that a process may take. The longest rows take 11 s alone on a machine: `describe` and a module's start have 10.
const LONGEST: Duration = Duration::from_secs(90);
/// Most bytes that one process may write to standard error, whatever its guest says.
const MOST_STDERR: usize = 256 << 10;

/// What a pipeline does with a record at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Fail,
    DeadLetter,
    Drop,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::DeadLetter => "dead-letter",
            Self::Drop => "drop",
        }
    }
}

/// What a component must meet. Each text stands in the message.
#[derive(Debug, Clone, Copy)]
pub enum Meets {
    /// It is not loaded: exit code 2 before any record.
    Refusal(&'static [&'static str]),
    /// Its record alone is treated by the policy, for this kind of failure; all others come through.
    Aside(&'static str, &'static [&'static str]),
    /// The same with the timer that the record set; the record itself comes through.
    TimerAside(&'static str, &'static [&'static str]),
    /// The job ends with exit code 1 after its one restart, whatever the policy; the operator is named.
    Failure(&'static [&'static str]),
    /// No harm is done, and all records come through.
    Nothing,
    /// No harm is done, and at least so many records come out.
    Output(usize),
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub does: &'static str,
    pub file: File,
    pub policy: Policy,
    pub meets: Meets,
}

/// What was seen of a row.
#[derive(Debug)]
pub struct Seen {
    pub case: Case,
    /// What is not as it must be; empty where all is.
    pub wrong: Vec<String>,
    /// Panics of the host, or a death by a signal.
    pub panics: usize,
    /// The greatest time between two outputs of the neighbour, where the job went on.
    pub gap_ms: Option<u64>,
    pub rss_mib: u64,
    pub took: Duration,
    pub code: Option<i32>,
}

/// Runs a row.
pub fn run(case: Case) -> Seen {
    let job = job(case);
    let begun = now();
    let mut running = job.start(&[]);
    let (id, mut rss, mut hangs) = (running.id(), 0, false);
    running.wait_until(|| {
        rss = memory_of(id, "VmHWM").unwrap_or(rss);
        hangs = begun.elapsed() > LONGEST;
        hangs
    });
    if hangs {
        let stderr = running.stderr();
        running.kill();
        let panics = panics_in(&stderr);
        let wrong = vec![format!("it did not end in {LONGEST:?}; standard error:\n{stderr}")];
        return Seen { case, wrong, panics, gap_ms: None, rss_mib: rss >> 20, took: begun.elapsed(), code: None };
    }
    let finished = running.wait();
    let (took, rss_mib) = (begun.elapsed(), rss >> 20);
    let panics = panics(&finished);
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    must(panics == 0, "the host panicked");
    let most = most_mib(case);
    must(rss_mib <= most, &format!("{rss_mib} MiB of memory, and {most} are allowed"));
    must(finished.stderr.len() <= MOST_STDERR, &format!("{} bytes of standard error", finished.stderr.len()));
    must(!finished.stderr.contains(['\u{1b}', '\u{7}']), "what the guest says controls the terminal");
    check(case, &job, &finished, &mut must);
    if !wrong.is_empty() {
        let head: String = finished.stderr.chars().take(4000).collect();
        wrong.push(format!("standard error:\n{head}"));
    }
    let goes_on = finished.code == Some(0);
    let gap_ms = goes_on.then(|| gap(&finished.stdout)).flatten();
    Seen { case, wrong, panics, gap_ms, rss_mib, took, code: finished.code }
}

/// What a call may take: little where the guest never comes back by itself, else more than a busy machine makes of it.
fn call_time(case: Case) -> &'static str {
    if ["spin", "chatter"].iter().any(|loops| case.name.contains(loops)) { "250ms" } else { "5s" }
}

fn most_mib(case: Case) -> u64 {
    match case.meets {
        Meets::Refusal(_) => MOST_MIB_TO_DESCRIBE,
        _ => MOST_MIB,
    }
}

fn panics(finished: &Finished) -> usize {
    panics_in(&finished.stderr).max(usize::from(matches!(finished.code, None | Some(101))))
}

/// How many panics of the host are told; guests tell of theirs in log lines.
fn panics_in(stderr: &str) -> usize {
    let of_host = |line: &&str| line.starts_with("thread '") && line.contains("panicked at");
    stderr.lines().filter(of_host).count().max(stderr.matches("bug of wasmill").count())
}

fn check(case: Case, job: &Job, finished: &Finished, must: &mut impl FnMut(bool, &str)) {
    let Finished { code, stdout, stderr } = finished;
    let dead: Vec<Value> = job.output("dead").records().collect();
    let mut code_is = |expected| must(*code == Some(expected), &format!("exit code {code:?} and not {expected}"));
    let (says, at): (&[&str], &str) = match case.meets {
        Meets::Refusal(says) => {
            code_is(2);
            must(stdout.is_empty() && !stderr.contains("records flow"), "records flowed");
            (says, "victim.wasm")
        }
        Meets::Failure(says) => {
            code_is(1);
            (says, "victim")
        }
        Meets::Aside(_, says) | Meets::TimerAside(_, says) if case.policy == Policy::Fail => {
            code_is(1);
            must(stderr.contains("with key `bad`"), "the record is not named");
            (says, "victim/0")
        }
        Meets::Aside(kind, says) | Meets::TimerAside(kind, says) => {
            code_is(0);
            let timer = matches!(case.meets, Meets::TimerAside(..));
            comes_through(job, !timer, must);
            match case.policy {
                Policy::DeadLetter => letter(&dead, kind, timer, says, must),
                _ => {
                    must(stderr.contains("dropped=1"), "not exactly one record was dropped");
                    must(stderr.contains(&format!("kind=\"{kind}\"")), "the kind of failure is not told");
                }
            }
            (if case.policy == Policy::DeadLetter { &[] } else { says }, "")
        }
        Meets::Nothing => {
            code_is(0);
            comes_through(job, false, must);
            (&[], "")
        }
        Meets::Output(least) => {
            code_is(0);
            let lines = job.output("out").lines.len();
            must(lines >= least, &format!("{lines} records came out"));
            (&[], "")
        }
    };
    for says in says.iter().chain([&at]) {
        must(stderr.contains(says), &format!("`{says}` is not said"));
    }
    must(dead.len() == usize::from(is_letter(case)), &format!("{} dead letters", dead.len()));
    if *code == Some(0) {
        let lines = stdout.lines().count();
        must(lines == NEIGHBOURS, &format!("the neighbour's {lines} of {NEIGHBOURS} records"));
        must(!stderr.contains("restarting"), "the job was restarted");
    }
}

fn is_letter(case: Case) -> bool {
    case.policy == Policy::DeadLetter && matches!(case.meets, Meets::Aside(..) | Meets::TimerAside(..))
}

/// All records came out, each once, but for the one that is set aside.
fn comes_through(job: &Job, but_for_bad: bool, must: &mut impl FnMut(bool, &str)) {
    let seqs: Vec<u64> = job.output("out").records().filter_map(|record| record["seq"].as_u64()).collect();
    let distinct: BTreeSet<u64> = seqs.iter().copied().collect();
    let all = (0..RECORDS as u64).filter(|seq| !(but_for_bad && *seq == BAD as u64));
    let right = seqs.len() == distinct.len() && all.eq(distinct.iter().copied());
    must(right, &format!("{} records came out, {} of them different", seqs.len(), distinct.len()));
}

fn letter(dead: &[Value], kind: &str, timer: bool, says: &[&str], must: &mut impl FnMut(bool, &str)) {
    let Some(letter) = dead.first() else { return must(false, "no dead letter") };
    let value = if timer { Value::Null } else { record(BAD) };
    let told = [("uid", "victim".into()), ("kind", kind.into()), ("key", "bad".into()), ("value", value)];
    for (field, expected) in told {
        must(letter[field] == expected, &format!("the dead letter's {field} is {} and not {expected}", letter[field]));
    }
    must(letter["component"].as_str().is_some_and(|digest| digest.len() == 64), "no digest in the dead letter");
    let message = letter["message"].as_str().unwrap_or_default();
    must(message.len() < 8 << 10, &format!("a message of {} bytes", message.len()));
    must(!message.contains('\u{1b}'), "the message controls the terminal");
    for says in says {
        must(message.contains(says), &format!("`{says}` is not in the dead letter's message `{message:.2000}`"));
    }
}

/// The greatest time between two outputs of the neighbour, which are the times of its calls in the host's clock.
fn gap(stdout: &str) -> Option<u64> {
    let times: Vec<u64> = stdout.lines().filter_map(|line| line.parse().ok()).collect();
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max()
}

fn record(seq: usize) -> Value {
    let key = if seq == BAD { "bad" } else { ["a", "b", "c"][seq % 3] };
    serde_json::json!({ "key": key, "seq": seq, "t": seq * 1000 })
}

fn job(case: Case) -> Job {
    let (policy, call_time) = (case.policy.name(), call_time(case));
    let dead = match case.policy {
        Policy::DeadLetter => "[sink.dead]\nconnector = \"file\"\ninput = \"victim/dead-letter\"\npath = \"dead\"\n",
        _ => "",
    };
    let job = Job::new(&Pipeline::new(format!(
        r#"
[job]
name = "hostile"

[checkpoint]
interval = "100ms"

[restart]
attempts = 1
backoff-min = "10ms"

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
time = {{ field = "t", format = "unix-ms" }}
rate = 1000

[operator.victim]
component = "victim.wasm"
input = {{ from = "lines", key = "key" }}
on-failure = "{policy}"
limits = {{ memory = "32MiB", call-time = "{call_time}", value = "1MiB", record = "1MiB", result = "8MiB", overlay = "4MiB" }}

[sink.out]
connector = "file"
input = "victim"
path = "out"

{dead}
[source.numbers]
connector = "generator"
keys = 10
records = {NEIGHBOURS}
rate = 1000

[operator.neighbour]
component = "neighbour.wasm"
input = {{ from = "numbers", exchange = "key" }}

[sink.times]
connector = "stdout"
input = "neighbour"
"#
    )));
    let mut lines = String::new();
    for seq in 0..RECORDS {
        writeln!(lines, "{}", record(seq)).expect("a text takes everything");
    }
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(job.folder().join(name), bytes).expect("the file can be written");
    write("input.jsonl", lines.as_bytes());
    write("victim.wasm", &case.file.bytes());
    write("neighbour.wasm", &file::stamped("neighbour"));
    job
}

#[expect(clippy::disallowed_methods, reason = "the time that another process takes")]
fn now() -> Instant {
    Instant::now()
}
