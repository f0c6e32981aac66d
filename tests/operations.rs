//! What an operator on call meets: stops, restarts, refusals, traps, bad input. Each test is a process or several.

use wasmill_tests::counts::counts;
use wasmill_tests::{Job, probe};

fn count_of(job: &Job) -> usize {
    job.output("out").lines.len()
}

#[test]
fn a_signal_takes_a_final_checkpoint_and_the_next_run_goes_on_from_it() {
    let job = Job::new(&counts("records = 400000\nrate = 40000", ""));
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| count_of(&job) > 0), "the job ended before it was stopped");
    running.signal("TERM");
    let stopped = running.wait().expect_code(130);
    assert!(stopped.stderr.contains("final checkpoint"), "{}", stopped.stderr);
    let before = count_of(&job);
    assert!(before < 400_000, "the job was not stopped in time");
    job.change(&counts("records = 400000", ""));
    job.run(&[]).expect_code(0);
    assert_eq!(count_of(&job), 400_000);
    let whole = Job::new(&counts("records = 400000", ""));
    whole.run(&[]).expect_code(0);
    let sorted = |job: &Job| job.output("out").sorted_by("key", "count");
    assert!(sorted(&job) == sorted(&whole), "the job in two runs gave another output than in one");
}

#[test]
fn a_second_process_on_the_same_state_folder_is_refused_and_harms_nothing() {
    let job = Job::new(&counts("records = 200000\nrate = 40000", ""));
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| count_of(&job) > 0));
    let second = job.run(&[]).expect_code(3);
    assert!(second.stderr.contains("in use by process"), "{}", second.stderr);
    running.wait().expect_code(0);
    assert_eq!(count_of(&job), 200_000);
}

#[test]
fn a_changed_max_parallelism_is_refused_and_the_old_one_still_starts() {
    let pipeline = counts("records = 2000", "");
    let job = Job::new(&pipeline);
    job.run(&[]).expect_code(0);
    job.change(&pipeline.clone().with("name = \"counts\"", "name = \"counts\"\nmax-parallelism = 128"));
    let refused = job.run(&[]).expect_code(3);
    assert!(refused.stderr.contains("720") && refused.stderr.contains("--fresh"), "{}", refused.stderr);
    job.change(&pipeline);
    job.run(&[]).expect_code(0);
    assert_eq!(count_of(&job), 2_000);
}

#[test]
fn another_parallelism_restores_the_same_state() {
    let with = |records: u32, parallelism: u32| {
        counts(&format!("records = {records}"), "").with("parallelism = 2", &format!("parallelism = {parallelism}"))
    };
    let job = Job::new(&with(1_000, 2));
    job.run(&[]).expect_code(0);
    for (records, parallelism) in [(2_000, 3), (3_000, 2), (4_000, 5), (5_000, 1)] {
        job.change(&with(records, parallelism));
        job.run(&[]).expect_code(0);
    }
    let whole = Job::new(&with(5_000, 1));
    whole.run(&[]).expect_code(0);
    assert_eq!(job.output("out").sorted_by("key", "count"), whole.output("out").sorted_by("key", "count"));
}

#[test]
fn a_state_that_the_pipeline_no_longer_has_is_refused_with_its_size() {
    let pipeline = counts("records = 2000", "");
    let job = Job::new(&pipeline);
    job.run(&[]).expect_code(0);
    job.change(
        &pipeline.with("[operator.count]", "[operator.renamed]").with("input = \"count\"", "input = \"renamed\""),
    );
    let refused = job.run(&[]).expect_code(3);
    assert!(refused.stderr.contains("`count` of `count`: 50 entries"), "{}", refused.stderr);
}

#[test]
fn fresh_begins_anew_and_from_goes_back_to_a_retained_checkpoint() {
    let job = Job::new(&counts("records = 1000", ""));
    job.run(&[]).expect_code(0);
    let listed = job.command(&["checkpoints", "list"], &["--json"]).expect_code(0);
    assert!(serde_json::from_str::<serde_json::Value>(listed.stdout.trim()).is_ok(), "{}", listed.stdout);
    job.run(&["--fresh"]).expect_code(0);
    assert_eq!(count_of(&job), 2_000);
    let unknown = job.run(&["--from", "9999"]).expect_code(2);
    assert!(unknown.stderr.contains("9999"), "{}", unknown.stderr);
}

#[test]
fn a_trap_ends_the_job_after_its_restarts_and_names_the_guests_function() {
    let job = probe::job(&probe::probe("", "", ""), &["a:x", "a:panic"]);
    let failed = job.run(&[]).expect_code(1);
    assert!(failed.stderr.contains("trapped") && failed.stderr.contains("probe/0"), "{}", failed.stderr);
    assert!(failed.stderr.contains("gave up after 1 restarts"), "{}", failed.stderr);
    assert_eq!(count_of(&job), 0);
}

#[test]
fn a_guest_that_never_returns_is_stopped_and_named() {
    let job = probe::job(&probe::probe("", "limits = { call-time = \"200ms\" }", ""), &["a:spin"]);
    let failed = job.run(&[]).expect_code(1);
    assert!(failed.stderr.contains("time limit of 200ms"), "{}", failed.stderr);
}

#[test]
fn a_guest_that_takes_all_memory_is_told_by_its_limit() {
    let job = probe::job(&probe::probe("", "limits = { memory = \"64MiB\" }", ""), &["a:bomb"]);
    let failed = job.run(&[]).expect_code(1);
    assert!(failed.stderr.contains("memory limit of 64"), "{}", failed.stderr);
}

#[test]
fn a_rejected_record_is_left_out_and_counted_where_the_pipeline_says_so() {
    let lines = ["a:x", "a:reject", "a:x"];
    let job = probe::job(&probe::probe("", "on-failure = \"drop\"", ""), &lines);
    let ended = job.run(&[]).expect_code(0);
    assert!(ended.stderr.contains("dropped=1"), "{}", ended.stderr);
    assert_eq!(count_of(&job), 2);
    let job = probe::job(&probe::probe("", "", ""), &lines);
    let failed = job.run(&[]).expect_code(1);
    assert!(failed.stderr.contains("rejected") && failed.stderr.contains("`a`"), "{}", failed.stderr);
}

#[test]
fn a_damaged_newest_checkpoint_stops_the_job_and_an_older_one_starts_it() {
    let job = Job::new(&counts("records = 60000\nrate = 60000", ""));
    job.run(&[]).expect_code(0);
    let checkpoints = job.folder().join("checkpoints/jobs/counts/checkpoints");
    let mut folders: Vec<_> = std::fs::read_dir(&checkpoints).expect("checkpoints lie there").flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    let newest = folders.pop().expect("there is a checkpoint");
    let manifest = newest.path().join("manifest.json");
    let mut bytes = std::fs::read(&manifest).expect("the manifest can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&manifest, bytes).expect("the manifest can be written");
    let refused = job.run(&[]).expect_code(3);
    assert!(refused.stderr.contains("manifest.json") && refused.stderr.contains("--from"), "{}", refused.stderr);
    let older = folders.pop().expect("there is an older checkpoint").file_name().to_string_lossy().into_owned();
    let older = older.trim_start_matches('0');
    job.run(&["--from", older]).expect_code(0);
}
