//! A record on which an operator fails: it alone is set aside, by any policy, and nothing around it is harmed.

use std::time::Duration;

use serde_json::Value;
use wasmill_tests::probe::{job, probe};
use wasmill_tests::{Harness, Job, memory_of};

const DEAD: &str = r#"
[sink.dead]
connector = "file"
input = "probe/dead-letter"
path = "dead"
"#;

/// A neighbour: a count over made-up records, printed as it goes.
fn neighbour(records: u32) -> String {
    let component = Harness::get().guest("wasmill_example_count");
    format!(
        r#"
[source.numbers]
connector = "generator"
keys = 10
records = {records}
rate = 1000

[operator.count]
component = "{}"
input = {{ from = "numbers", exchange = "key" }}

[sink.counts]
connector = "stdout"
input = "count"
"#,
        component.display()
    )
}

fn dead(job: &Job) -> Vec<Value> {
    job.output("dead").records().collect()
}

/// Each key's last count, of both states, which must agree.
fn counts(job: &Job) -> Vec<(String, u64)> {
    let mut counts = std::collections::BTreeMap::new();
    for record in job.output("out").records() {
        assert_eq!(record["eager"], record["lazy"], "{record}");
        let key = record["key"].as_str().expect("a key").to_owned();
        counts.insert(key, record["eager"].as_u64().expect("a count"));
    }
    counts.into_iter().collect()
}

#[test]
fn w1_after_a_trap_the_rest_goes_on_on_a_new_instance_and_the_record_is_a_dead_letter() {
    let pipeline = probe("", "on-failure = \"dead-letter\"", DEAD);
    let job = job(&pipeline, &["a:x", "a:x", "b:x", "a:panic", "a:x", "b:x"]);
    let ended = job.run(&[]).expect_code(0);
    assert_eq!(counts(&job), [("a".to_owned(), 3), ("b".to_owned(), 2)]);
    let dead = dead(&job);
    let [letter] = &dead[..] else { panic!("{dead:?}\n{}", ended.stderr) };
    assert_eq!((&letter["uid"], &letter["kind"], &letter["key"]), (&"probe".into(), &"trap".into(), &"a".into()));
    assert_eq!(letter["value"], serde_json::json!({ "key": "a", "text": "panic" }));
    let message = letter["message"].as_str().expect("a message");
    for part in ["`process` trapped", "told to panic", "Probe", "component"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(letter["component"].as_str().map(str::len), Some(64));
    let place = (&letter["source"], &letter["split"], &letter["position"]);
    assert_eq!(place, (&"lines".into(), &"input.jsonl".into(), &4.into()));
}

#[test]
fn w3_a_guest_that_never_yields_is_stopped_and_its_neighbour_does_not_pause() {
    let operator = "on-failure = \"dead-letter\"\nlimits = { call-time = \"200ms\" }";
    let pipeline = probe("", operator, &format!("{DEAD}{}", neighbour(4000)));
    let job = job(&pipeline, &["a:x", "a:spin", "a:x"]);
    let mut running = job.start(&[]);
    let silence = running.longest_silence();
    let ended = running.wait().expect_code(0);
    assert!(silence < Duration::from_secs(1), "the neighbour paused for {silence:?}");
    assert_eq!(ended.stdout.lines().count(), 4000);
    assert_eq!(counts(&job), [("a".to_owned(), 2)]);
    let dead = dead(&job);
    let [letter] = &dead[..] else { panic!("{dead:?}") };
    let message = letter["message"].as_str().expect("a message");
    assert!(letter["kind"] == "time-limit" && letter["key"] == "a" && letter["position"] == 2, "{letter}");
    assert!(
        message.contains("200ms") && message.contains("limits.call-time") && message.contains("Probe"),
        "{message}"
    );
    assert!(!ended.stderr.contains("restarting"), "{}", ended.stderr);
    let listed = job.command(&["checkpoints", "list"], &["--json"]).expect_code(0).stdout;
    let checkpoints: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert!(!checkpoints.is_empty(), "{listed}");
}

/// The memory of a job beside a neighbour: the most of its life, and what it held last.
fn memory(text: &str) -> (u64, u64) {
    let operator = "on-failure = \"dead-letter\"\nlimits = { memory = \"64MiB\" }";
    let pipeline = probe("", operator, &format!("{DEAD}{}", neighbour(2000)));
    let job = job(&pipeline, &["a:x", text, "a:x"]);
    let mut running = job.start(&[]);
    let id = running.id();
    let (mut most, mut last) = (0, 0);
    running.wait_until(|| {
        most = memory_of(id, "VmHWM").unwrap_or(most);
        last = memory_of(id, "VmRSS").unwrap_or(last);
        false
    });
    let ended = running.wait().expect_code(0);
    assert_eq!(ended.stdout.lines().count(), 2000, "the neighbour lost records");
    let expected = if text == "a:bomb" { vec!["memory-limit"] } else { vec![] };
    let dead = dead(&job);
    assert_eq!(dead.iter().map(|letter| letter["kind"].as_str().unwrap_or_default()).collect::<Vec<_>>(), expected);
    for letter in dead {
        let message = letter["message"].as_str().unwrap_or_default();
        assert!(message.contains("memory limit of 64 MiB") && message.contains("limits.memory"), "{message}");
    }
    (most, last)
}

#[test]
fn w5_memory_is_bounded_the_limit_is_named_and_what_was_taken_comes_back() {
    let (most_without, last_without) = memory("a:x");
    let (most, last) = memory("a:bomb");
    let mib = |bytes: u64| bytes >> 20;
    assert!(mib(most) <= mib(most_without) + 64 + 32, "{} MiB against {}", mib(most), mib(most_without));
    assert!(mib(last) <= mib(last_without) + 32, "{} MiB against {}", mib(last), mib(last_without));
}

#[test]
fn dropped_records_leave_the_same_output_whatever_the_batch() {
    let mut lines: Vec<String> = (0..300).map(|record| format!("{}:x", ["a", "b", "c"][record % 3])).collect();
    for (place, text) in
        [(0, "a:panic"), (5, "b:reject"), (6, "b:panic"), (150, "c:bomb"), (151, "a:spin"), (305, "c:panic")]
    {
        lines.insert(place, text.to_owned());
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let outputs = [1, 7, 1024].map(|batch| {
        let limits = "{ memory = \"16MiB\", call-time = \"100ms\" }";
        let operator = format!("on-failure = \"drop\"\nlimits = {limits}\nbatch = {{ records = {batch} }}");
        let job = job(&probe("", &operator, ""), &lines);
        let ended = job.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("dropped=6"), "{}", ended.stderr);
        assert_eq!(counts(&job).iter().map(|(_, count)| count).collect::<Vec<_>>(), [&100, &100, &100]);
        job.output("out").sorted_by("key", "eager")
    });
    assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2], "the outputs differ");
}

#[test]
fn under_fail_the_record_is_named_and_the_job_ends_after_its_restarts() {
    let job = job(&probe("", "", ""), &["a:x", "b:panic", "a:x"]);
    let failed = job.run(&[]).expect_code(1);
    for part in [
        "probe/0",
        "key `b`",
        "input.jsonl:2 of source `lines`",
        "`process` trapped",
        "gave up after 1 restarts",
        "dead-letter",
    ] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
    }
    assert!(job.output("out").is_empty());
}

#[test]
fn dead_letters_are_there_once_through_kills() {
    let lines: Vec<String> =
        (0..4000).map(|record| format!("k{}:{}", record % 7, if record % 100 == 50 { "panic" } else { "x" })).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let job = job(&probe("rate = 4000", "on-failure = \"dead-letter\"", DEAD), &lines);
    for kills in 1..=3 {
        let mut running = job.start(&[]);
        running.wait_until(|| dead(&job).len() >= kills * 8);
        running.kill();
    }
    job.run(&[]).expect_code(0);
    assert_eq!((dead(&job).len(), job.output("out").lines.len()), (40, 3960));
}

#[test]
fn a_replay_of_dead_letters_is_one_run_with_a_source_more() {
    let long = format!("a:{}", "long".repeat(1000));
    let limited = probe("", "on-failure = \"dead-letter\"\nlimits = { record = \"1KiB\" }", DEAD);
    let job = job(&limited, &["a:x", &long, "b:x", "a:x"]);
    job.run(&[]).expect_code(0);
    assert_eq!(counts(&job), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(dead(&job)[0]["kind"], "malformed");
    assert!(dead(&job)[0]["message"].as_str().is_some_and(|message| message.contains("limits.record")));
    let again =
        "[source.again]\nconnector = \"file\"\npath = \"dead/*.jsonl\"\nformat = \"dead-letter\"\n\n[operator.probe]";
    let inputs = "input = [{ from = \"lines\", key = \"key\" }, { from = \"again\", key = \"key\" }]";
    let mended = limited
        .with("1KiB", "1MiB")
        .with("[operator.probe]", again)
        .with("input = { from = \"lines\", exchange = \"key\", key = \"key\", on-missing-key = \"drop\" }", inputs);
    job.change(&mended);
    job.run(&[]).expect_code(0);
    assert_eq!(counts(&job), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert_eq!(dead(&job).len(), 1);
    job.run(&[]).expect_code(0);
    assert_eq!(job.output("out").lines.len(), 4, "what was replayed is not replayed again");
}

#[test]
fn headers_cross_between_operators_that_declare_them_and_stand_in_dead_letters() {
    let harness = Harness::get();
    let second = |uid: &str, guest: &str, policy: &str| {
        format!(
            "[operator.{uid}]\ncomponent = \"{}\"\ninput = {{ from = \"probe\", key = \"key\" }}\nparallelism = 2\n{policy}\n\n\
             [sink.{uid}-out]\nconnector = \"file\"\ninput = \"{uid}\"\npath = \"{uid}\"\nformat = \"jsonl\"\n",
            harness.guest(guest).display()
        )
    };
    let declares = second("again", "wasmill_example_probe", "on-failure = \"dead-letter\"");
    let does_not = second("count", "wasmill_example_count", "");
    let dead = DEAD.replace("probe/", "again/");
    let job = job(
        &probe("", "", &[declares, does_not, dead].concat()),
        &["a:header who=me", "b:x", "c:header who=you", "c:header panic=now"],
    );
    job.run(&[]).expect_code(0);
    let again = job.output("again");
    let heard = again.records().filter(|record| record["headers"].is_array());
    let mut heard: Vec<_> = heard.map(|record| format!("{} {}", record["key"], record["headers"])).collect();
    heard.sort();
    assert_eq!(heard, [r#""a" [["who","me"]]"#, r#""c" [["who","you"]]"#]);
    let letters = self::dead(&job);
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&letter["headers"][0]["name"], &letter["headers"][0]["value"]), (&"panic".into(), &"now".into()));
    assert_eq!(job.output("count").lines.len(), 4);
}

#[test]
fn a_record_that_would_leave_too_much_state_is_set_aside_alone_and_told_by_state_key_and_setting() {
    let limited = |limit: &str| {
        let settings = format!("on-failure = \"dead-letter\"\nlimits = {{ {limit} }}");
        let job = job(&probe("", &settings, DEAD), &["a:x", "b:x", "long:x", "a:x", "b:x"]);
        job.run(&[]).expect_code(0);
        assert_eq!(counts(&job), [("a".to_owned(), 2), ("b".to_owned(), 2)]);
        let dead = dead(&job);
        let [letter] = &dead[..] else { panic!("{dead:?}") };
        assert!(letter["kind"] == "state-limit" && letter["key"] == "long", "{letter}");
        letter["message"].as_str().expect("a message").to_owned()
    };
    // Each key has an entry in two states; a count is one byte.
    for (limit, setting) in [("state-per-key = \"4B\"", "state-per-key"), ("state-entries = 4", "state-entries")] {
        let message = limited(limit);
        for part in ["state `eager`", "key `long`", &format!("`limits.{setting}`")] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

/// A good line after each odd one: an empty key, one with a zero byte, bad bytes, no JSON, no key, a null key, a value that is
/// no text.
const ODD: &[u8] = b"{\"key\":\"\",\"text\":\"x\"}
{\"key\":\"good\",\"text\":\"x\"}
{\"key\":\"a\\u0000b\",\"text\":\"x\"}
{\"key\":\"good\",\"text\":\"x\"}
{\"key\":\"\xff\",\"text\":\"x\"}
{\"key\":\"good\",\"text\":\"x\"}
nonsense
{\"key\":\"good\",\"text\":\"x\"}
{\"text\":\"x\"}
{\"key\":\"good\",\"text\":\"x\"}
{\"key\":null,\"text\":\"x\"}
{\"key\":\"good\",\"text\":\"x\"}
{\"key\":\"a\",\"text\":5}
{\"key\":\"good\",\"text\":\"x\"}
";

fn odd(policy: &str, rest: &str) -> Job {
    let settings = format!("on-undecodable = \"{policy}\"");
    let pipeline = probe(&settings, &format!("on-failure = \"{policy}\""), rest)
        .with("on-missing-key = \"drop\"", &format!("on-missing-key = \"{policy}\""));
    let job = Job::new(&pipeline);
    std::fs::write(job.folder().join("input.jsonl"), ODD).expect("the input can be written");
    job
}

#[test]
fn k10_odd_records_are_handled_by_policy_with_their_place_and_the_good_ones_all_count() {
    let lines = "[sink.aside]\nconnector = \"file\"\ninput = \"lines/dead-letter\"\npath = \"lines\"\n";
    let expected = [(String::new(), 1), ("a\0b".to_owned(), 1), ("good".to_owned(), 7)];
    let dropped = odd("drop", "");
    dropped.run(&[]).expect_code(0);
    assert_eq!(counts(&dropped), expected);
    let job = odd("dead-letter", &format!("{DEAD}{lines}"));
    job.run(&[]).expect_code(0);
    assert_eq!(counts(&job), expected);
    let letters: Vec<Value> = job.output("lines").records().collect();
    let found: Vec<_> = letters.iter().map(|letter| (letter["kind"].as_str(), letter["position"].as_u64())).collect();
    let expected = [("undecodable", 5), ("undecodable", 7), ("missing-key", 9), ("missing-key", 11)];
    assert_eq!(found, expected.map(|(kind, position)| (Some(kind), Some(position))));
    // `nonsense` in base64.
    assert_eq!(letters[1]["value-bytes"], "bm9uc2Vuc2U=");
    assert!(letters[2]["value"]["text"] == "x" && letters[2]["uid"] == "lines", "{}", letters[2]);
    let dead = dead(&job);
    assert_eq!((dead.len(), &dead[0]["kind"], &dead[0]["position"]), (1, &"rejected".into(), &13.into()));
    let failed = odd("fail", "").run(&[]).expect_code(2);
    assert!(failed.stderr.contains("input.jsonl:5") && failed.stderr.contains("dead-letter"), "{}", failed.stderr);
}

#[test]
fn a_talkative_guest_is_cut_short_and_its_lines_say_whose_they_are() {
    let lines = vec!["a:log hello"; 200];
    let job = job(&probe("", "limits = { log-lines = 5 }", ""), &lines);
    let ended = job.run(&[]).expect_code(0);
    let said: Vec<_> = ended.stderr.lines().filter(|line| line.contains("hello")).collect();
    assert!((1..=50).contains(&said.len()), "{} lines", said.len());
    assert!(said.iter().all(|line| line.contains("uid=probe") && line.contains("digest=")), "{said:?}");
}
