//! Checkpoints in an object store: two S3 servers, and what goes wrong on the way to them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use wasmill_tests::counts::counts;
use wasmill_tests::proxy::{Fault, Proxy, Request};
use wasmill_tests::{Job, Pipeline, SERVERS, Server, probe};

/// Counts generated records per key, with checkpoints in `store`.
fn counts_into(store: &str, source: &str) -> Pipeline {
    counts(source, "").with("[checkpoint]", &format!("[checkpoint]\nstore = \"{store}\""))
}

/// A job with its checkpoints on the server, by way of the proxy.
fn job(server: &Server, proxy: &Proxy, source: &str) -> Job {
    Job::new(&counts_into(&server.location(), source)).within(server.environment(proxy.address()))
}

fn lines(job: &Job) -> Vec<String> {
    job.output("out").sorted_by("key", "count")
}

/// What comes of `records` records without a fault.
fn undisturbed(records: u32) -> Vec<String> {
    let whole = Job::new(&counts_into("checkpoints", &format!("records = {records}")));
    whole.run(&[]).expect_code(0);
    lines(&whole)
}

/// Runs the test against each server that there is.
#[expect(clippy::print_stdout, reason = "a failure is told with its server")]
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
        let direct = Job::new(&counts_into(&server.location(), "records = 60000\nrate = 20000"));
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

fn count(running: &wasmill_tests::Running, text: &str) -> usize {
    running.stderr().matches(text).count()
}

/// A job whose first checkpoint has a file of 40 MB, which is uploaded in parts: a thousand long keys in two states.
fn large(server: &Server, proxy: &Proxy, source: &str) -> Job {
    let store = format!("[checkpoint]\nstore = \"{}\"\n", server.location());
    let pipeline = probe::probe(source, "", "[state]\nbackend = \"memory\"").with("[checkpoint]\n", &store);
    let lines: Vec<_> = (0..1_000).map(|number| format!("{number:0>20000}:x")).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    probe::job(&pipeline, &lines).within(server.environment(proxy.address()))
}

#[test]
fn c5_failed_uploads_leave_neither_short_objects_nor_open_parts_nor_orphans() {
    let Some(server) = Server::start("versitygw") else { return };
    let proxy = Proxy::to(server.address());
    // The second part of each large file fails for good, and so does taking the upload back.
    let of_upload = |request: &Request| request.path.contains("uploadId=");
    proxy.rule(move |request| match request.method.as_str() {
        "PUT" if request.path.contains("partNumber=2") => Fault::Status(403),
        "DELETE" if of_upload(request) => Fault::Status(500),
        _ => Fault::None,
    });
    let job = large(&server, &proxy, "follow = true");
    let mut running = job.start(&["--log", "debug"]);
    let failed = "checkpoint given up";
    assert!(running.wait_for_log(failed, 5), "{}", running.stderr());
    assert!(server.open_uploads() > 0, "nothing failed as it should");
    proxy.rule(|_| Fault::None);
    let decided = count(&running, "checkpoint decided");
    assert!(running.wait_for_log("checkpoint decided", decided + 3), "{}", running.stderr());
    running.signal("TERM");
    let stopped = running.wait().expect_code(130);
    assert!(stopped.stderr.contains("restarts=0"), "{}", stopped.stderr);
    assert_eq!(server.open_uploads(), 0);
    let listed = job.command(&["checkpoints", "list"], &["--json"]).expect_code(0).stdout;
    let ids: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let mut named = BTreeSet::new();
    for id in ids.iter().map(|line| line["checkpoint"].to_string()) {
        let shown = job.command(&["checkpoints", "show"], &[&id, "--json"]).expect_code(0).stdout;
        let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
        named.extend(
            shown["objects"].as_array().expect("objects").iter().map(|object| object.as_str().unwrap_or("").to_owned()),
        );
    }
    let files = std::fs::read_dir(server.folder().join("jobs/probe/files")).expect("files lie there").flatten();
    let there: BTreeSet<_> = files.map(|file| format!("files/{}", file.file_name().to_string_lossy())).collect();
    let orphans: Vec<_> = there.difference(&named).collect();
    assert!(orphans.is_empty(), "{orphans:?}");
    job.command(&["checkpoints", "verify"], &[]).expect_code(0);
}

#[test]
fn uploads_that_a_killed_process_left_open_are_taken_back_by_the_next() {
    let Some(server) = Server::start("versitygw") else { return };
    let proxy = Proxy::to(server.address());
    proxy.rule(|request| match request.method.as_str() {
        "PUT" if request.path.contains("partNumber=2") => Fault::Delay(Duration::from_secs(60)),
        _ => Fault::None,
    });
    let job = large(&server, &proxy, "");
    let mut running = job.start(&[]);
    assert!(running.wait_until(|| server.open_uploads() > 0), "{}", running.stderr());
    assert!(running.kill());
    assert!(server.open_uploads() > 0);
    proxy.rule(|_| Fault::None);
    job.run(&[]).expect_code(0);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn c11_a_store_that_throttles_and_then_is_slow_stops_neither_records_nor_job() {
    let Some(server) = Server::start("versitygw") else { return };
    let proxy = Proxy::to(server.address());
    let pipeline = counts_into(&server.location(), "rate = 1000")
        .with("interval = \"100ms\"", "interval = \"500ms\"\ntimeout = \"1m\"");
    let pipeline = pipeline.with("[sink.out]", "[sink.live]\nconnector = \"stdout\"\ninput = \"count\"\n\n[sink.out]");
    let job = Job::new(&pipeline).within(server.environment(proxy.address()));
    let mut running = job.start(&[]);
    assert!(running.wait_for_log("checkpoint decided", 2), "{}", running.stderr());
    let before = count(&running, "checkpoint decided");
    let healthy = proxy.requests().len();
    proxy.rule(|request| if is_write(request) { Fault::Status(503) } else { Fault::None });
    let mut longest = running.longest_silence_for(Duration::from_secs(8));
    let throttled: Vec<_> = proxy.requests().split_off(healthy);
    // Each request backs off by itself, so fewer and fewer come.
    let begin = throttled.first().expect("requests came").at;
    let in_second =
        |second: u64| throttled.iter().filter(|request| request.at.duration_since(begin).as_secs() == second).count();
    let (first, last) = (in_second(0), in_second(5) + in_second(6));
    assert!(first > last, "{first} requests in the first second, {last} in two later ones");
    assert_eq!(count(&running, "checkpoint decided"), before);
    proxy.rule(|_| Fault::Delay(Duration::from_millis(700)));
    longest = longest.max(running.longest_silence_for(Duration::from_secs(4)));
    proxy.rule(|_| Fault::None);
    assert!(running.wait_for_log("checkpoint decided", before + 1), "{}", running.stderr());
    assert!(longest < Duration::from_secs(2), "no record came out for {longest:?}");
    let decided = count(&running, "checkpoint decided");
    assert!(running.wait_for_log("checkpoint decided", decided + 2), "{}", running.stderr());
    running.signal("TERM");
    let stopped = running.wait().expect_code(130);
    assert!(stopped.stderr.contains("restarts=0"), "{}", stopped.stderr);
}
