//! W7: files that are no operator of this contract, put in the place of one that runs. Owns no other test of such files: each kind
//! has its row in `modules` too.

use wasmill_tests::{Harness, Job, Pipeline};

use crate::file;

/// A job that goes on until it is stopped, and tells the time of each call.
fn pipeline(component: &str) -> Pipeline {
    Pipeline::new(format!(
        r#"
[job]
name = "deployed"

[checkpoint]
store = "checkpoints"
interval = "100ms"

[state]
dir = "state"

[source.numbers]
connector = "generator"
keys = 10
rate = 1000

[operator.times]
component = "{component}"
input = {{ from = "numbers", exchange = "key" }}

[sink.out]
connector = "file"
input = "times"
path = "out"
"#
    ))
}

fn without_process() -> Vec<u8> {
    let wit =
        std::fs::read_to_string(Harness::get().root().join("wit/operator.wit")).expect("the contract can be read");
    let lines: Vec<_> = wit.lines().filter(|line| !line.contains("export process")).collect();
    file::embedded_in(&file::module(&[]), &lines.join("\n"))
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is a component")
}

/// What lies in the job's folder and in that of compiled components, but for the file that is put there.
fn registered(job: &Job) -> Vec<String> {
    let names = |path: &str| {
        let entries = std::fs::read_dir(job.folder().join(path)).expect("the folder can be read");
        entries.map(|entry| entry.expect("the folder can be read").file_name().to_string_lossy().into_owned())
    };
    let mut found: Vec<_> = names("").chain(names("state/compiled")).filter(|name| name != "v2.wasm").collect();
    found.sort();
    found
}

#[test]
fn w7_each_unfit_file_is_refused_with_its_own_cause_while_what_runs_goes_on() {
    let good = file::good();
    let files = [
        (Vec::new(), "it is empty"),
        (b"this is no component".to_vec(), "it is not WebAssembly: name the .wasm file"),
        (good[..good.len() * 6 / 10].to_vec(), "it is cut off: it ends at byte"),
        (file::module(&[]), "a core module without a component-type section"),
        (without_process(), "it does not export `process`"),
        (
            component(r#"(component (import "acme:secrets/vault@1.0.0" (instance)))"#),
            "it imports `acme:secrets/vault@1.0.0`, which is not granted",
        ),
        (
            component(r#"(component (import "wasmill:operator/types@0.9.0" (instance)))"#),
            "it was built for version 0.9.0",
        ),
    ];
    let job = Job::new(&pipeline("v1.wasm"));
    std::fs::write(job.folder().join("v1.wasm"), file::stamped("neighbour")).expect("the component can be written");
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| job.output("out").lines.len() > 100), "{}", running.stderr());
    let before = registered(&job);
    job.change(&pipeline("v2.wasm"));
    let alone = Job::new(&pipeline("v2.wasm"));
    let mut causes = Vec::new();
    for (bytes, expected) in files {
        for (job, command) in [(&job, "check"), (&alone, "run")] {
            std::fs::write(job.folder().join("v2.wasm"), &bytes).expect("the component can be written");
            let refused = job.command(&[command], &[]).expect_code(2);
            let (_, cause) = refused.stderr.split_once("v2.wasm: ").expect("the file is named");
            assert!(cause.contains(expected) && !refused.stderr.contains("panicked"), "{expected}: {}", refused.stderr);
            causes.push(cause.to_owned());
        }
        assert!(!alone.folder().join("checkpoints").exists(), "a refused job left a checkpoint store");
    }
    causes.dedup();
    assert_eq!(causes.len(), 7, "causes that differ: {causes:#?}");
    assert_eq!(registered(&job), before);
    let lines = job.output("out").lines.len();
    assert!(running.wait_until(|| job.output("out").lines.len() > lines + 100), "{}", running.stderr());
    running.signal("TERM");
    let stopped = running.wait().expect_code(130);
    assert!(!stopped.stderr.contains("restarting"), "{}", stopped.stderr);
    let times: Vec<u64> = job.output("out").records().filter_map(|time| time.as_u64()).collect();
    let pause = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
    assert!(pause < Some(1000), "what runs paused for {pause:?} ms");
}
