//! W10: memory does not grow with calls from guests to the host, alone or by several instances at a time.

use wasmill_tests::{Harness, Job, Pipeline, memory_of};

use crate::file;

/// Calls from the guest to the host that each instance makes: half of them read, half of them write one of 1,000 map keys.
const CALLS: u64 = 2_000_000;
/// Calls that one record brings about.
const CALLS_A_RECORD: u64 = 2_000;
/// By how many bytes caches and the allocator may still grow, which is what the job gives its state: of eight instances' later calls,
/// three bytes a call.
const ROOM: u64 = 32 << 20;

fn job(instances: u64) -> Job {
    let job = Job::new(&Pipeline::new(format!(
        r#"
[job]
name = "leak"

[checkpoint]
interval = "500ms"

[state]
memory = "32MiB"

[source.numbers]
connector = "generator"
keys = {}
records = {}

[operator.churn]
component = "churn.wasm"
input = {{ from = "numbers", exchange = "key" }}
parallelism = {instances}
batch = {{ records = 16 }}

[sink.out]
connector = "stdout"
input = "churn"
"#,
        instances * 4,
        instances * CALLS / CALLS_A_RECORD,
    )));
    std::fs::write(job.folder().join("churn.wasm"), file::stamped("churn")).expect("the component can be written");
    job
}

/// The memory around a quarter of the run and at its end, each the mean of many samples: the calls are spread evenly over it.
fn memory(instances: u64) -> (u64, u64) {
    let job = job(instances);
    let mut running = job.start(&[]);
    let (id, mut samples) = (running.id(), Vec::new());
    running.wait_until(|| {
        samples.extend(memory_of(id, "VmRSS"));
        false
    });
    let ended = running.wait().expect_code(0);
    assert_eq!(ended.stdout.lines().count() as u64, instances * CALLS / CALLS_A_RECORD);
    let mean = |from: usize, to: usize| {
        let part = &samples[samples.len() * from / 100..samples.len() * to / 100];
        part.iter().sum::<u64>() / part.len() as u64
    };
    (mean(20, 30), mean(88, 98))
}

#[test]
fn w10_memory_does_not_grow_with_calls_to_the_host() {
    Harness::get();
    let _alone = crate::alone();
    for instances in [1, 8] {
        let (quarter, all) = memory(instances);
        assert!(
            all <= quarter + ROOM,
            "{instances} instances: {quarter} bytes after a quarter of the calls, {all} after all"
        );
    }
}
