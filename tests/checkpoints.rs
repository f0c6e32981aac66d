//! `wasmill checkpoints`: what is listed, shown, verified and deleted, and what a damaged checkpoint does to a restart.

use std::path::{Path, PathBuf};

use serde_json::Value;
use wasmill_tests::counts::counts;
use wasmill_tests::{Finished, Job};

/// A job that has ended with three checkpoints.
fn ended() -> Job {
    let job = Job::new(&counts("records = 12000\nrate = 20000", ""));
    job.run(&[]).expect_code(0);
    assert_eq!(ids(&job).len(), 3);
    job
}

/// The lines of JSON that a command gave.
fn json(finished: &Finished) -> Vec<Value> {
    let value = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    finished.stdout.lines().map(value).collect()
}

fn ids(job: &Job) -> Vec<String> {
    let listed = job.command(&["checkpoints", "list"], &["--json"]).expect_code(0);
    json(&listed).iter().map(|line| line["checkpoint"].to_string()).collect()
}

fn store(job: &Job) -> PathBuf {
    job.folder().join("checkpoints/jobs/counts")
}

/// The objects that a checkpoint names.
fn objects(job: &Job, id: &str) -> Vec<String> {
    let shown = job.command(&["checkpoints", "show"], &[id, "--json"]).expect_code(0);
    let objects = json(&shown)[0]["objects"].as_array().expect("objects").clone();
    objects.iter().map(|object| object.as_str().expect("a name").to_owned()).collect()
}

fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).expect("the object can be written");
}

#[test]
fn the_list_names_the_current_one_and_what_all_take() {
    let job = ended();
    let lines = json(&job.command(&["checkpoints", "list"], &["--json"]).expect_code(0));
    assert!(lines.iter().all(|line| line["decided"] == true && line["damage"].is_null()), "{lines:?}");
    assert_eq!(lines.iter().map(|line| line["current"] == true).collect::<Vec<_>>(), [false, false, true]);
    let page = job.command(&["checkpoints", "list"], &[]).expect_code(0).stdout;
    assert!(page.contains("3 checkpoints, ") && page.contains(" in all") && page.contains("current"), "{page}");
}

#[test]
fn a_checkpoint_is_shown_with_operators_states_subtasks_and_files() {
    let job = ended();
    let shown = &json(&job.command(&["checkpoints", "show"], &["--json"]).expect_code(0))[0];
    assert_eq!(shown["checkpoint"].to_string(), ids(&job)[2], "the one that a restart restores");
    let operator = &shown["operators"][0];
    assert_eq!((&operator["uid"], &operator["states"][0]["entries"]), (&Value::from("count"), &Value::from(50)));
    let subtasks = shown["subtasks"].as_array().expect("subtasks");
    let of_count: Vec<_> = subtasks.iter().filter(|subtask| subtask["uid"] == "count").collect();
    assert_eq!(of_count.len(), 2);
    assert!(of_count.iter().all(|subtask| subtask["file-count"].as_u64() > Some(0)), "{shown}");
    let page = job.command(&["checkpoints", "show"], &[&ids(&job)[0]]).expect_code(0).stdout;
    for told in ["count/1", "key groups", "files/", "components/", "decided"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let unknown = job.command(&["checkpoints", "show"], &["9999"]).expect_code(2);
    assert!(unknown.stderr.contains("no checkpoint 9999"), "{}", unknown.stderr);
}

#[test]
fn verifying_names_each_object_that_is_missing_or_damaged() {
    let job = ended();
    let whole = json(&job.command(&["checkpoints", "verify"], &["--json"]).expect_code(0));
    assert!(whole.len() == 3 && whole.iter().all(|line| line["whole"] == true), "{whole:?}");
    let newest = ids(&job)[2].clone();
    let files: Vec<_> = objects(&job, &newest).into_iter().filter(|object| object.starts_with("files/")).collect();
    let component =
        objects(&job, &newest).into_iter().find(|object| object.starts_with("components/")).expect("one ran");
    flip(&store(&job).join(&files[0]));
    std::fs::remove_file(store(&job).join(&component)).expect("the component can be removed");
    let damaged = job.command(&["checkpoints", "verify"], &[&newest]).expect_code(3);
    let told = |object: &str, cause: &str| {
        let line =
            damaged.stdout.lines().find(|line| line.contains(object)).unwrap_or_else(|| panic!("{}", damaged.stdout));
        assert!(line.contains(cause), "{line}");
    };
    told(&files[0], "checksum");
    told(&component, "missing");
    flip(&store(&job).join(format!("checkpoints/{newest:0>12}/manifest.json")));
    let damaged = json(&job.command(&["checkpoints", "verify"], &["--json"]).expect_code(3));
    assert!(damaged[2]["damaged"][0]["object"].to_string().contains("manifest.json"), "{damaged:?}");
    job.command(&["checkpoints", "verify"], &["9999"]).expect_code(2);
}

#[test]
fn deleting_takes_what_no_other_checkpoint_names_and_spares_what_a_restart_restores() {
    let job = ended();
    let all = ids(&job);
    let needed: Vec<_> = all[1..].iter().flat_map(|id| objects(&job, id)).collect();
    let alone: Vec<_> = objects(&job, &all[0]).into_iter().filter(|object| !needed.contains(object)).collect();
    let deleted = job.command(&["checkpoints", "delete"], &[&all[0], "--json"]).expect_code(0);
    assert_eq!(json(&deleted)[0]["current"].to_string(), all[2]);
    assert_eq!(ids(&job), all[1..]);
    assert!(!alone.is_empty() && alone.iter().all(|object| !store(&job).join(object).exists()), "{alone:?}");
    job.command(&["checkpoints", "verify"], &[]).expect_code(0);
    job.command(&["checkpoints", "delete"], &[&all[0]]).expect_code(2);
    let refused = job.command(&["checkpoints", "delete"], &[&all[2]]).expect_code(3);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    let forced = job.command(&["checkpoints", "delete"], &[&all[2], "--force"]).expect_code(0);
    assert!(forced.stdout.contains(&format!("restores checkpoint {}", all[1])), "{}", forced.stdout);
    let gone_on = job.run(&[]).expect_code(0);
    assert!(gone_on.stderr.contains(&format!("restored={}", all[1])), "{}", gone_on.stderr);
}

#[test]
fn reading_and_deleting_beside_a_running_job_does_it_no_harm() {
    let job = Job::new(&counts("records = 60000\nrate = 20000", ""));
    let mut running = job.start(&[]);
    assert!(running.wait_for_log("checkpoint decided", 4), "{}", running.stderr());
    let mut deleted = 0;
    while !running.has_ended() {
        job.command(&["checkpoints", "list"], &[]).expect_code(0);
        job.command(&["checkpoints", "verify"], &[]).expect_code(0);
        // It may be retired before it is deleted.
        let code = job.command(&["checkpoints", "delete"], &[&ids(&job)[0]]).code;
        deleted += usize::from(code == Some(0));
    }
    assert!(deleted > 0);
    let ended = running.wait().expect_code(0);
    assert!(ended.stderr.contains("restarts=0"), "{}", ended.stderr);
    let whole = Job::new(&counts("records = 60000", ""));
    whole.run(&[]).expect_code(0);
    let sorted = |job: &Job| job.output("out").sorted_by("key", "count");
    assert!(sorted(&job) == sorted(&whole));
    job.command(&["checkpoints", "verify"], &[]).expect_code(0);
}

#[test]
fn a_damaged_file_of_the_newest_checkpoint_stops_the_job_with_its_name_and_the_way_on() {
    for damage in [|file: &Path| flip(file), |file: &Path| std::fs::remove_file(file).expect("it can be removed")] {
        let job = ended();
        let all = ids(&job);
        let older: Vec<_> = objects(&job, &all[1]);
        let own = objects(&job, &all[2]).into_iter().filter(|object| object.starts_with("files/"));
        let object = own.into_iter().find(|object| !older.contains(object)).expect("it uploaded something");
        damage(&store(&job).join(&object));
        let before = job.output("out").lines.len();
        let refused = job.run(&[]).expect_code(3);
        for told in [object.as_str(), &format!("--from {}", all[1]), &format!("checkpoint {}", all[2])] {
            assert!(refused.stderr.contains(told), "{told}: {}", refused.stderr);
        }
        assert_eq!(job.output("out").lines.len(), before, "nothing older and nothing empty was taken");
        job.run(&["--from", &all[1]]).expect_code(0);
    }
}

#[test]
fn checkpoints_that_are_young_are_kept_beside_the_newest() {
    let job = Job::new(
        &counts("records = 20000\nrate = 20000", "")
            .with("interval = \"100ms\"", "interval = \"100ms\"\nretain = 1\nretain-for = \"1h\""),
    );
    job.run(&[]).expect_code(0);
    let kept = ids(&job).len();
    assert!(kept > 3, "{kept}");
    job.change(
        &counts("records = 21000", "")
            .with("interval = \"100ms\"", "interval = \"100ms\"\nretain = 1\nretain-for = \"1ms\""),
    );
    job.run(&[]).expect_code(0);
    assert_eq!(ids(&job).len(), 1);
    job.command(&["checkpoints", "verify"], &[]).expect_code(0);
}

#[test]
fn c10_half_written_and_unknown_manifests_are_passed_over_and_cleaned_up() {
    let job = Job::new(&counts("records = 30000\nrate = 20000", ""));
    let manifests = store(&job).join("checkpoints");
    let mut seen = std::collections::BTreeSet::new();
    for planted in [&b""[..], b"{\"format\":1,\"wasm", b"no manifest at all"] {
        let mut running = job.start(&[]);
        assert!(running.wait_for_log("checkpoint decided", 2), "{}", running.stderr());
        running.kill();
        let all = ids(&job);
        let newest: u64 = all.last().expect("two were decided").parse().expect("a number");
        assert!(seen.insert(newest), "{newest} was used before");
        // As a process leaves it that is killed while it writes: of ids that the attempt had reserved.
        let folder = manifests.join(format!("{:012}", newest + 1));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::fs::write(folder.join("manifest.json"), planted).expect("a file can be written");
        std::fs::write(folder.join("manifest.json#1"), planted).expect("a file can be written");
        let mut next = job.start(&[]);
        assert!(next.wait_for_log("records flow", 1), "{}", next.stderr());
        assert!(next.stderr().contains(&format!("restored={newest}")), "{}", next.stderr());
        assert!(!folder.exists(), "it was cleaned up");
        next.kill();
    }
    job.run(&[]).expect_code(0);
}
