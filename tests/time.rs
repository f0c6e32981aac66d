//! Watermarks, lateness and the end of time, end to end. Cases of the field carry their number.

use serde_json::{Value, json};
use wasmill_tests::lines::{job, write_to};
use wasmill_tests::{Harness, Job, Pipeline, probe};

/// The end of time.
const END: i64 = (1 << 53) - 1;

/// Lines through the relay, which tells each record's time and watermark. `source`, `input` and `operator` go into the tables.
fn relayed(source: &str, input: &str, operator: &str) -> Pipeline {
    let relay = Harness::get().guest("wasmill_test_relay");
    Pipeline::new(format!(
        r#"
[job]
name = "time"

[checkpoint]
interval = "100ms"

[source.lines]
connector = "file"
path = "lines*.jsonl"
format = "json"
time = {{ field = "t", format = "unix-ms" }}
{source}

[operator.relay]
component = "{}"
input = {{ from = "lines"{input} }}
{operator}

[sink.out]
connector = "file"
input = "relay"
path = "out"
format = "jsonl"
"#,
        relay.display()
    ))
}

/// One more table that takes the relay's late records.
fn with_late_sink(pipeline: Pipeline) -> Pipeline {
    pipeline.with(
        "[sink.out]",
        "[sink.late]\nconnector = \"file\"\ninput = \"relay/late\"\npath = \"late\"\nformat = \"jsonl\"\n\n[sink.out]",
    )
}

/// The records of an output in the order of their numbers.
fn by_seq(job: &Job, path: &str) -> Vec<Value> {
    let mut records: Vec<_> = job.output(path).records().collect();
    records.sort_by_key(|record| record["seq"].as_u64());
    records
}

fn seqs(job: &Job, path: &str) -> Vec<u64> {
    by_seq(job, path).iter().filter_map(|record| record["seq"].as_u64()).collect()
}

/// Times that rise and fall, some far behind.
fn ragged(count: i64) -> Vec<Value> {
    (0..count).map(|seq| json!({"seq": seq, "t": seq * 3 - seq * 7_919 % 1_500 - 4_000})).collect()
}

#[test]
fn e7_a_record_at_the_watermark_is_late_and_one_after_it_is_not() {
    let source = "watermark = { field = \"wm\", format = \"unix-ms\" }";
    for offset in [0, -1_000_000] {
        let at = |seq, t: i64| json!({"seq": seq, "t": t + offset});
        let lines = [
            json!({"seq": 0, "t": 1_500 + offset, "wm": 999 + offset}),
            at(1, 998),
            at(2, 999),
            at(3, 1_000),
            json!({"seq": 4, "t": 2_000 + offset, "wm": null}),
        ];
        let passing = job(&relayed(source, "", ""), &lines);
        passing.run(&[]).expect_code(0);
        let watermarks: Vec<_> = by_seq(&passing, "out").iter().map(|record| record["watermark"].clone()).collect();
        let in_force = json!(999 + offset);
        let expected: Vec<_> = [&Value::Null, &in_force, &in_force, &in_force, &in_force].map(Value::clone).into();
        assert_eq!(watermarks, expected);

        let dropping = job(&relayed(source, ", on-late = \"drop\"", ""), &lines);
        let ended = dropping.run(&[]).expect_code(0);
        assert_eq!(seqs(&dropping, "out"), [0, 3, 4]);
        assert!(ended.stderr.contains("dropped=2"), "{}", ended.stderr);

        let aside = job(&with_late_sink(relayed(source, ", on-late = { output = \"late\" }", "")), &lines);
        aside.run(&[]).expect_code(0);
        assert_eq!(seqs(&aside, "out"), [0, 3, 4]);
        assert_eq!(by_seq(&aside, "late"), [at(1, 998), at(2, 999)], "late records as they came");
    }
}

#[test]
fn lateness_and_watermarks_do_not_depend_on_batch_size_or_parallelism() {
    let lines = ragged(20_000);
    let source = "watermark = { out-of-order = \"900ms\" }";
    let mut first = None;
    for (parallelism, batch) in [(1, 1024), (1, 1), (1, 7), (2, 1024), (3, 7)] {
        let input = ", key = \"seq\", on-late = { output = \"late\" }";
        let operator = format!("parallelism = {parallelism}\nbatch = {{ records = {batch} }}");
        let job = job(&with_late_sink(relayed(source, input, &operator)), &lines);
        job.run(&[]).expect_code(0);
        let found = (by_seq(&job, "out"), by_seq(&job, "late"));
        assert_eq!(found.0.len() + found.1.len(), lines.len());
        assert!(found.1.len() > 100, "{} late", found.1.len());
        let (out, late) = first.get_or_insert_with(|| found.clone());
        assert!(*out == found.0, "parallelism {parallelism}, batches of {batch}: other records or watermarks");
        assert!(*late == found.1, "parallelism {parallelism}, batches of {batch}: other late records");
    }
}

#[test]
fn a_killed_job_finds_the_same_records_late_at_the_same_watermarks() {
    let lines = ragged(20_000);
    let pipeline = |parallelism: u32, rate: &str| {
        let source = format!("watermark = {{ out-of-order = \"900ms\" }}\n{rate}");
        let input = ", key = \"seq\", on-late = { output = \"late\" }";
        with_late_sink(relayed(&source, input, &format!("parallelism = {parallelism}")))
    };
    let whole = job(&pipeline(1, ""), &lines);
    whole.run(&[]).expect_code(0);
    for parallelism in [1, 3] {
        let job = job(&pipeline(parallelism, "rate = 12000"), &lines);
        for kill in [3_000, 9_000] {
            let mut running = job.start(&[]);
            assert!(running.wait_until(|| job.output("out").lines.len() > kill), "ended before it was killed");
            assert!(running.kill());
        }
        job.change(&pipeline(parallelism, ""));
        job.run(&[]).expect_code(0);
        assert!(by_seq(&job, "out") == by_seq(&whole, "out"), "parallelism {parallelism}: other records or watermarks");
        assert!(by_seq(&job, "late") == by_seq(&whole, "late"), "parallelism {parallelism}: other late records");
    }
}

/// The watermarks of a node's subtasks in the newest checkpoint.
fn stored_watermarks(job: &Job, uid: &str) -> Vec<i64> {
    let folder = job.folder().join("checkpoints/jobs/time/checkpoints");
    let mut found: Vec<_> = std::fs::read_dir(folder).expect("checkpoints lie there").flatten().collect();
    found.sort_by_key(std::fs::DirEntry::file_name);
    let newest = found.pop().expect("there is a checkpoint").path().join("manifest.json");
    let manifest: Value = serde_json::from_slice(&std::fs::read(newest).expect("it can be read")).expect("it is JSON");
    let parts = manifest["parts"].as_array().expect("it has parts");
    parts.iter().filter(|part| part["uid"] == uid).filter_map(|part| part["watermark"].as_i64()).collect()
}

/// The relay twice in a row, and a second source beside the first.
fn chained(second_source: &str) -> Pipeline {
    let relay = Harness::get().guest("wasmill_test_relay");
    relayed("", "", "parallelism = 2").with("input = { from = \"lines\" }", "input = [\"lines\", \"more\"]").with(
        "[sink.out]\nconnector = \"file\"\ninput = \"relay\"",
        &format!(
            "[source.more]\nconnector = \"generator\"\n{second_source}\n\n[operator.again]\ncomponent = \"{}\"\n\
             input = {{ from = \"relay\", exchange = \"rebalance\" }}\nparallelism = 3\n\n\
             [sink.out]\nconnector = \"file\"\ninput = \"again\"",
            relay.display()
        ),
    )
}

#[test]
fn the_end_of_all_input_is_the_end_of_time_in_every_operator_of_a_chain() {
    let job = job(&chained("records = 500"), &ragged(100));
    job.run(&[]).expect_code(0);
    assert_eq!(stored_watermarks(&job, "relay"), [END; 2]);
    assert_eq!(stored_watermarks(&job, "again"), [END; 3]);
    assert_eq!(stored_watermarks(&job, "out"), [END]);
}

#[test]
fn a_keys_timers_are_listed_as_they_were_before_the_call_and_the_one_that_fires_is_not_among_them() {
    for records in [1, 1024] {
        let batch = format!("batch = {{ records = {records} }}");
        let lines = ["a:timer 5", "b:timer 9", "a:timer 3", "a:timers", "c:timers", "a:timer 4"];
        let job = probe::job(&probe::probe("watermark = \"none\"", &batch, ""), &lines);
        job.run(&[]).expect_code(0);
        let output = job.output("out");
        let told = output.records().filter(|record| record["timers"].is_array());
        let mut told: Vec<_> =
            told.map(|told| format!("{} {} {}", told["key"], told["fired"], told["timers"])).collect();
        told.sort();
        let expected =
            ["\"a\" 3 [4,5]", "\"a\" 4 [5]", "\"a\" 5 []", "\"a\" null [3,5]", "\"b\" 9 []", "\"c\" null []"];
        assert_eq!(told, expected);
    }
}

#[test]
fn a_stop_by_signal_is_not_the_end_of_time_even_where_one_source_has_ended() {
    let job = job(&chained("rate = 1000\nwatermark = { idle = \"50ms\" }"), &ragged(100));
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("out").lines.len() > 300));
    running.signal("TERM");
    running.wait().expect_code(130);
    for uid in ["relay", "again", "out"] {
        let watermarks = stored_watermarks(&job, uid);
        assert!(watermarks.iter().all(|&watermark| -END < watermark && watermark < END), "{uid}: {watermarks:?}");
    }
}

fn status(job: &Job) -> Value {
    let answered = job.command(&["status"], &["--json"]);
    serde_json::from_str(answered.stdout.trim()).unwrap_or_default()
}

/// The relay's watermark, where it has one.
fn relays_watermark(status: &Value) -> Option<i64> {
    status["subtasks"].as_array()?.iter().find(|subtask| subtask["uid"] == "relay")?["watermark"].as_i64()
}

#[test]
fn e5_a_silent_split_is_named_and_holds_the_job_back_until_it_is_idle() {
    let lines: Vec<_> = (0..60).map(|seq| json!({"seq": seq, "t": seq * 1_000})).collect();
    let pipeline = |watermark: &str| relayed(&format!("follow = true\nparallelism = 4\n{watermark}"), "", "");
    for (watermark, expected) in [("", None), ("watermark = { idle = \"300ms\" }", Some(58_999))] {
        let job = job(&pipeline(watermark), &lines);
        write_to(&job, "lines-silent.jsonl", &[]);
        let mut running = job.start(&[]);
        assert!(running.wait_until(|| job.output("out").lines.len() == 60));
        let mut last = Value::Null;
        let held = running.wait_until(|| {
            last = status(&job);
            match expected {
                None => last["slowest-split"]["split"] == "lines-silent.jsonl",
                Some(watermark) => relays_watermark(&last) == Some(watermark),
            }
        });
        assert!(held, "{last}");
        if expected.is_none() {
            assert_eq!(relays_watermark(&last), None, "{last}");
        }
        running.signal("TERM");
        running.wait().expect_code(130);
    }
}

#[test]
fn a_source_without_watermarks_holds_no_other_back() {
    let job = job(&chained("rate = 100\nwatermark = \"none\""), &ragged(100));
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("out").lines.len() > 150));
    running.signal("TERM");
    running.wait().expect_code(130);
    // The lines have ended and the rest is idle: their last watermark stands.
    let watermarks = stored_watermarks(&job, "again");
    assert!(watermarks.iter().all(|&watermark| -END < watermark && watermark < 0), "{watermarks:?}");
}

/// Two generators into one relay: the times of `fast` are odd, those of `slow` even.
fn two_paces(fast: &str, slow: &str) -> Pipeline {
    let relay = Harness::get().guest("wasmill_test_relay");
    let source = |name: &str, start: &str, more: &str| {
        format!(
            "[source.{name}]\nconnector = \"generator\"\nstart = \"1970-01-01T00:00:00.{start}Z\"\nstep = \"2ms\"\n{more}\n"
        )
    };
    Pipeline::new(format!(
        r#"
[job]
name = "time"
max-drift = "2s"

[checkpoint]
interval = "100ms"

{}
{}

[operator.relay]
component = "{}"
input = ["fast", "slow"]

[sink.out]
connector = "file"
input = "relay"
path = "out"
format = "jsonl"
"#,
        source("fast", "001", fast),
        source("slow", "000", slow),
        relay.display()
    ))
}

/// By how much the fast source's newest record was ahead of the slow one's newest, at the most, while both had records.
fn most_ahead(job: &Job) -> i64 {
    let (mut newest, mut most) = ([0; 2], 0);
    let times: Vec<i64> = job.output("out").records().filter_map(|record| record["time"].as_i64()).collect();
    let last_slow = times.iter().rposition(|time| time % 2 == 0).unwrap_or_default();
    for time in &times[..last_slow] {
        let source = (time % 2) as usize;
        newest[source] = newest[source].max(*time);
        most = most.max(newest[1] - newest[0]);
    }
    most
}

#[test]
fn a_source_that_is_ahead_waits_for_the_slowest_while_checkpoints_go_on() {
    let fast = "records = 20000";
    let slow = "records = 8000\nrate = 4000";
    let held = Job::new(&two_paces(fast, slow));
    let ended = held.run(&[]).expect_code(0);
    assert_eq!(held.output("out").lines.len(), 28_000);
    // The limit, a batch that was under way, and what lay in a channel.
    let most = most_ahead(&held);
    assert!((1_000..6_000).contains(&most), "ahead by {most} ms");
    let decided = ended.stderr.matches("checkpoint decided").count();
    assert!(decided >= 5, "{decided} checkpoints\n{}", ended.stderr);
    let killed = Job::new(&two_paces(fast, slow));
    let mut running = killed.start(&[]);
    assert!(running.wait_until(|| killed.output("out").lines.len() > 3_000));
    assert!(running.kill());
    killed.run(&[]).expect_code(0);
    assert_eq!(killed.output("out").lines.len(), 28_000, "sources that wait for one another go on after a restore");
    let free = Job::new(&two_paces(fast, slow).with("max-drift = \"2s\"\n", ""));
    free.run(&[]).expect_code(0);
    assert!(most_ahead(&free) > 20_000, "without the limit the fast source is far ahead");
}

#[test]
fn nobody_waits_for_a_source_that_has_nothing_to_read() {
    let pipeline = relayed("follow = true", "", "")
        .with("name = \"time\"", "name = \"time\"\nmax-drift = \"100ms\"")
        .with("input = { from = \"lines\" }", "input = [\"lines\", \"more\"]")
        .with("[sink.out]", "[source.more]\nconnector = \"generator\"\nrecords = 5000\n\n[sink.out]");
    let job = job(&pipeline, &[json!({"seq": 0, "t": 0})]);
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("out").lines.len() == 5_001), "the job stands still");
    running.signal("TERM");
    running.wait().expect_code(130);
}
