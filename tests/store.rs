//! Checkpoints in an object store: two S3 servers, and what goes wrong on the way to them.

use wasmill_tests::proxy::{Fault, Proxy, Request};
use wasmill_tests::{Harness, Job, Pipeline, SERVERS, Server};

/// Counts generated records per key, with checkpoints in `store`.
fn counts(store: &str, source: &str) -> Pipeline {
    let component = Harness::get().guest("wasmill_example_count");
    Pipeline::new(format!(
        r#"
[job]
name = "counts"

[checkpoint]
store = "{store}"
interval = "100ms"

[source.numbers]
connector = "generator"
keys = 50
{source}

[operator.count]
component = "{}"
input = {{ from = "numbers", exchange = "key" }}
parallelism = 2

[sink.out]
connector = "file"
input = "count"
path = "out"
format = "jsonl"
"#,
        component.display()
    ))
}

/// A job with its checkpoints on the server, by way of the proxy.
fn job(server: &Server, proxy: &Proxy, source: &str) -> Job {
    Job::new(&counts(&server.location(), source)).within(server.environment(proxy.address()))
}

fn lines(job: &Job) -> Vec<String> {
    job.output("out").sorted_by("key", "count")
}

/// What comes of `records` records without a fault.
fn undisturbed(records: u32) -> Vec<String> {
    let whole = Job::new(&counts("checkpoints", &format!("records = {records}")));
    whole.run(&[]).expect_code(0);
    lines(&whole)
}

/// Runs the test against each server that there is.
fn on_each(test: impl Fn(Server)) {
    for server in SERVERS.into_iter().filter_map(Server::start) {
        println!("on {}", server.name());
        test(server);
    }
}

fn is_write(request: &Request) -> bool {
    ["PUT", "POST"].contains(&request.method.as_str())
}

#[test]
fn a_killed_job_goes_on_exactly_from_a_checkpoint_in_s3() {
    let expected = undisturbed(60_000);
    on_each(|server| {
        let direct = Job::new(&counts(&server.location(), "records = 60000\nrate = 20000"));
        let direct = direct.within(server.environment(server.address()));
        for _ in 0..2 {
            let before = direct.output("out").lines.len();
            let mut running = direct.start(&[]);
            assert!(running.wait_until(|| direct.output("out").lines.len() > before), "{}", running.stderr());
            assert!(running.kill(), "the input ended too soon");
        }
        let ended = direct.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("restored="), "{}", ended.stderr);
        assert!(
            lines(&direct) == expected,
            "on {} the job in three runs gave another output than in one",
            server.name()
        );
        let listed = direct.command(&["checkpoints", "list"], &["--json"]).expect_code(0);
        assert_eq!(listed.stdout.lines().count(), 3, "{}", listed.stdout);
    });
}

#[test]
fn lost_replies_and_refusals_now_and_then_change_nothing() {
    let expected = undisturbed(40_000);
    on_each(|server| {
        let proxy = Proxy::to(server.address());
        proxy.rule(|request| match request.number % 7 {
            // The store did it, and nobody hears: a decision is found to be one's own.
            2 if is_write(request) => Fault::LoseReply,
            4 => Fault::Status(503),
            5 if request.method == "GET" => Fault::Cut,
            _ => Fault::None,
        });
        let job = job(&server, &proxy, "records = 40000\nrate = 20000");
        let mut running = job.start(&[]);
        assert!(running.wait_until(|| !job.output("out").lines.is_empty()), "{}", running.stderr());
        assert!(running.kill(), "the input ended too soon");
        let ended = job.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("restarts=0"), "{}", ended.stderr);
        assert!(lines(&job) == expected, "on {} faults of the store changed the output", server.name());
    });
}

#[test]
fn what_opens_the_store_is_never_shown() {
    on_each(|server| {
        let proxy = Proxy::to(server.address());
        proxy.rule(|_| Fault::Status(403));
        let job = job(&server, &proxy, "records = 10");
        for arguments in [&["--log", "trace"][..], &["--log", "trace", "--json"]] {
            let refused = job.run(arguments).expect_code(4);
            assert!(refused.stderr.contains("403"), "{}", refused.stderr);
            assert!(!refused.stderr.contains(server.secret()), "{}", refused.stderr);
        }
        let status = job.command(&["checkpoints", "list"], &["--json"]).expect_code(4);
        assert!(!format!("{}{}", status.stdout, status.stderr).contains(server.secret()));
    });
}
