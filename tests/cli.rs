//! The command line: what is told, to whom, and with which exit code.

use wasmill_tests::{Finished, Harness, Job, Pipeline, Running};

/// Made-up records straight into a file; `source` goes into the source's table.
fn generator(source: &str) -> Pipeline {
    Pipeline::new(format!(
        "[job]\nname = \"made-up\"\n[checkpoint]\ninterval = \"100ms\"\n[source.numbers]\nconnector = \"generator\"\n{source}\
         [sink.out]\nconnector = \"file\"\ninput = \"numbers\"\npath = \"out\"\n"
    ))
}

fn flights() -> Pipeline {
    let harness = Harness::get();
    let sample = harness.root().join("examples/flights/sample.csv.gz");
    Pipeline::of_example("flights")
        .with("data/flights.csv.gz", &sample.to_string_lossy())
        .with("per_aircraft.wasm", &harness.guest("per_aircraft").to_string_lossy())
}

/// What standard error says, without the folder's name before the file's.
fn error_of(finished: &Finished, job: &Job) -> String {
    finished.stderr.replace(&format!("{}/", job.folder().display()), "")
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Waits until the job answers that it is running, and returns its status.
fn status_of(job: &Job, running: &mut Running) -> serde_json::Value {
    let mut status = serde_json::Value::Null;
    let came = running.wait_until(|| {
        let finished = job.command(&["status"], &["--json"]);
        if finished.code == Some(0) {
            status = json(&finished.stdout);
        }
        status["phase"] == "running" && status["checkpoints-completed"].as_u64() > Some(0)
    });
    assert!(came, "the job has ended:\n{}", running.stderr());
    status
}

#[test]
fn a_misspelt_key_is_refused_with_line_and_nearest_key() {
    let job = Job::new(&generator("").with("interval", "intervall"));
    let finished = job.run(&[]).expect_code(2);
    let expected = "error: pipeline.toml:4:1: unknown key `intervall` in [checkpoint]; did you mean `interval`?; \
                    known here: store, interval, mode, retain, retain-for, timeout\n";
    assert_eq!(error_of(&finished, &job), expected);
}

#[test]
fn a_missing_component_is_named_with_its_place() {
    let job = Job::new(&flights().with("_aircraft.wasm", "_airplane.wasm"));
    for command in ["run", "check"] {
        let finished = job.command(&[command], &[]).expect_code(2);
        let error = error_of(&finished, &job);
        assert!(error.contains("error: pipeline.toml:"), "{error}");
        assert!(error.contains("per_airplane.wasm"), "{error}");
    }
}

#[test]
fn a_checkpoint_store_that_cannot_be_written_is_named_with_its_place() {
    let job = Job::new(&generator("").with("[checkpoint]", "[checkpoint]\nstore = \"pipeline.toml/store\""));
    for command in ["run", "check"] {
        let finished = job.command(&[command], &[]).expect_code(4);
        let error = error_of(&finished, &job);
        assert!(error.contains("pipeline.toml:4:1"), "{error}");
    }
}

#[test]
fn failures_are_json_where_that_is_asked_for() {
    let job = Job::new(&generator("").with("[job]", "[jobs]"));
    let finished = job.run(&["--json"]).expect_code(2);
    let error = json(finished.stderr.trim());
    assert_eq!(error["error"]["kind"], "user");
    assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains("unknown key `jobs`")));
}

#[test]
fn a_checked_pipeline_shows_its_plan_and_leaves_no_checkpoint() {
    let job = Job::new(&flights());
    let finished = job.command(&["check"], &[]).expect_code(0);
    assert!(finished.stdout.contains("job flights can run"), "{}", finished.stdout);
    assert!(finished.stdout.contains("flights by `tailnum`"), "{}", finished.stdout);
    let plan = json(&job.command(&["check"], &["--json"]).expect_code(0).stdout);
    assert_eq!(plan["nodes"][1]["parallelism"], 2);
    let listed = job.command(&["checkpoints", "list"], &[]).expect_code(0);
    assert!(listed.stdout.contains("has no checkpoint"), "{}", listed.stdout);
}

#[test]
fn an_import_that_was_not_granted_is_named_with_the_components_place() {
    let built = Harness::get().guest("per_aircraft").display().to_string();
    let job = Job::new(&flights().with(&built, "clock.wasm"));
    let component = r#"(component (import "wasi:clocks/wall-clock@0.2.3" (instance)))"#;
    let file = job.folder().join("clock.wasm");
    std::fs::write(&file, wat::parse_str(component).expect("the text is right")).expect("it can be written");
    for command in ["run", "check"] {
        let finished = job.command(&[command], &[]).expect_code(2);
        let error = error_of(&finished, &job);
        assert!(error.contains("error: pipeline.toml:"), "{error}");
        let expected = "it imports `wasi:clocks/wall-clock@0.2.3`, which is not granted";
        assert!(error.contains(expected) && error.contains("grants = [\"clock\"]"), "{error}");
    }
}

#[test]
fn a_checked_pipeline_shows_what_its_operators_are_granted() {
    let granted = "input = { from = \"flights\"";
    let job = Job::new(&flights().with(granted, &format!("grants = [\"random\", \"clock\"]\n{granted}")));
    let finished = job.command(&["check"], &[]).expect_code(0);
    assert!(finished.stdout.contains("granted clock, random"), "{}", finished.stdout);
    let plan = json(&job.command(&["check"], &["--json"]).expect_code(0).stdout);
    assert_eq!(plan["nodes"][1]["component"]["grants"], serde_json::json!(["clock", "random"]));
    assert_eq!(plan["nodes"][1]["component"]["denied"], serde_json::json!([]));
}

#[test]
fn state_that_nothing_bounds_is_named_until_the_pipeline_says_why() {
    let job = Job::new(&flights());
    let checked = job.command(&["check"], &[]).expect_code(0);
    assert!(checked.stdout.contains("unbounded: operator per-aircraft, state "), "{}", checked.stdout);
    let plan = json(&job.command(&["check"], &["--json"]).expect_code(0).stdout);
    assert_ne!(plan["nodes"][1]["component"]["unbounded"], serde_json::json!([]));
    let reason = "[operator.per-aircraft]\nunbounded = \"one entry an aircraft, of which there are 4,000\"";
    let job = Job::new(&flights().with("[operator.per-aircraft]", reason));
    let checked = job.command(&["check"], &[]).expect_code(0);
    assert!(!checked.stdout.contains("unbounded"), "{}", checked.stdout);
}

#[test]
fn state_that_the_librarys_timers_clean_is_not_named_as_unbounded() {
    let folder = Harness::get().root().join("examples");
    let shown = |arguments: &[&std::ffi::OsStr]| {
        let ran =
            std::process::Command::new(Harness::get().wasmill()).args(arguments).output().expect("wasmill starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    for (example, named) in [("sessions", false), ("payments", false), ("dedup", false), ("logins", true)] {
        let checked = shown(&["check".as_ref(), folder.join(example).join("pipeline.toml").as_ref()]);
        assert_eq!(checked.contains("unbounded: "), named, "{checked}");
    }
    assert!(shown(&["inspect".as_ref(), folder.join("payments/payments.wasm").as_ref()]).contains("cleaned by timers"));
}

#[test]
fn a_component_tells_what_it_declares() {
    let component = Harness::get().guest("per_aircraft");
    let inspect = |arguments: &[&str]| {
        let ran = std::process::Command::new(Harness::get().wasmill())
            .arg("inspect")
            .arg(&component)
            .args(arguments)
            .output()
            .expect("wasmill starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    assert!(inspect(&[]).contains("states:"));
    let told = json(&inspect(&["--json"]));
    assert!(told["size"].as_u64() > Some(0));
    assert!(told["contract"]["states"].as_array().is_some_and(|states| !states.is_empty()));
    assert_eq!(told["digest"].as_str().map(str::len), Some(64));
}

#[test]
fn the_wit_package_is_printed() {
    let ran = std::process::Command::new(Harness::get().wasmill()).arg("wit").output().expect("wasmill starts");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("package wasmill:operator@"));
}

#[test]
fn a_running_job_tells_its_status_and_a_stopped_one_is_not_found() {
    let job = Job::new(&generator("rate = 2000\n"));
    job.command(&["status"], &[]).expect_code(4);
    let mut running = job.start(&[]);
    let status = status_of(&job, &mut running);
    assert_eq!(status["job"], "made-up");
    assert_eq!(status["subtasks"][0]["uid"], "numbers");
    assert!(status["subtasks"][0]["records-in"].as_u64() > Some(0));
    assert!(job.command(&["status"], &[]).expect_code(0).stdout.contains("numbers/0"));
    assert!(running.kill());
    let finished = job.command(&["status"], &[]).expect_code(4);
    assert!(finished.stderr.contains("is not running"), "{}", finished.stderr);
}

#[test]
fn what_the_environment_brought_in_is_not_shown() {
    let job = Job::new(&flights().with("./run/checkpoints", "./${file:secret}/checkpoints"));
    std::fs::write(job.folder().join("secret"), "hush-hush\n").expect("the folder can be written");
    let mut shown = String::new();
    for command in [&["check"][..], &["run"], &["checkpoints", "list"]] {
        let finished = job.command(command, &[]).expect_code(0);
        shown.push_str(&(finished.stdout + &finished.stderr));
    }
    assert!(job.folder().join("hush-hush/checkpoints").exists());
    assert!(shown.contains("${file:secret}"), "{shown}");
    assert!(!shown.contains("hush-hush"), "{shown}");
}

#[test]
fn a_changed_component_is_taken_up_from_the_last_checkpoint() {
    let harness = Harness::get();
    let guest = harness.guest("per_aircraft");
    let pipeline =
        flights().with(&guest.to_string_lossy(), "op.wasm").with("format = \"csv\"", "format = \"csv\"\nrate = 2000");
    let job = Job::new(&pipeline);
    let component = job.folder().join("op.wasm");
    std::fs::copy(&guest, &component).expect("the guest can be copied");
    let mut running = job.start(&["--watch"]);
    let before = status_of(&job, &mut running);
    // A custom section (id 0, 2 bytes: the name "x") changes the file and not what it does.
    let mut bytes = std::fs::read(&guest).expect("the guest can be read");
    bytes.extend([0, 2, 1, b'x']);
    std::fs::write(&component, bytes).expect("the component can be written");
    let mut after = serde_json::Value::Null;
    let came = running.wait_until(|| {
        let finished = job.command(&["status"], &["--json"]);
        after = if finished.code == Some(0) { json(&finished.stdout) } else { serde_json::Value::Null };
        after["phase"] == "running" && after["attempt"].as_u64() > before["attempt"].as_u64()
    });
    assert!(came, "the job has ended:\n{}", running.stderr());
    assert!(after["last-restore"]["checkpoint"].is_u64(), "{after}");
}
