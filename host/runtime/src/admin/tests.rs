//! The endpoint over real sockets: what it answers, to whom, and how it is found.

use std::sync::Arc;

use wasmill_core::id::Attempt;
use wasmill_core::time::Timestamp;

use super::*;
use crate::clock::ManualClock;
use crate::telemetry::StatusBoard;

struct Running {
    server: Option<Server>,
    board: StatusBoard,
    folder: tempfile::TempDir,
    address: String,
}

fn running(token: Option<&str>) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let job = JobId::new("flights").unwrap();
    let board = StatusBoard::new(job.clone(), Timestamp::from_millis(0));
    let server = Server::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: token.map(|token| Secret::new(token.to_owned())),
        state_dir: folder.path().join("state"),
        job,
        monitor: Monitor::new(board.clone(), Arc::new(ManualClock::default())),
        recorder: Recorder::of_process(),
        secrets: Secrets::default(),
    })
    .unwrap();
    let address = server.address().to_string();
    Running { server: Some(server), board, folder, address }
}

#[test]
fn a_running_job_is_found_by_its_state_folder_and_a_stopped_one_is_not() {
    let mut running = running(None);
    let state_dir = running.folder.path().join("state");
    let found = Registration::read(&state_dir).unwrap();
    assert_eq!(found.address.to_string(), running.address);
    assert_eq!(found.pid, std::process::id());
    running.board.attempt(Attempt(3), Timestamp::from_millis(0), Vec::new());
    assert_eq!(fetch_status(&running.address, None).unwrap().attempt, Attempt(3));
    running.server.take();
    assert_eq!(Registration::read(&state_dir), None);
    assert_eq!(fetch_status(&running.address, None).unwrap_err().kind, FaultKind::External);
}

#[test]
fn ready_means_that_records_flow() {
    let running = running(None);
    assert_eq!(fetch(&running.address, "/healthz", None).unwrap(), "ok\n");
    assert!(fetch(&running.address, "/readyz", None).unwrap_err().message.contains("answers 503"));
    running.board.phase(Phase::Running);
    assert_eq!(fetch(&running.address, "/readyz", None).unwrap(), "ready\n");
    let metrics = fetch(&running.address, "/metrics", None).unwrap();
    assert!(metrics.contains("wasmill_ready{job=\"flights\"} 1"), "{metrics}");
}

#[test]
fn with_a_token_metrics_and_status_are_for_those_who_have_it() {
    let running = running(Some("open sesame, please"));
    let with = |token: &str, path| fetch(&running.address, path, Some(&Secret::new(token.to_owned())));
    for path in ["/metrics", "/status"] {
        assert_eq!(fetch(&running.address, path, None).unwrap_err().kind, FaultKind::User);
        assert_eq!(with("open sesame, pleasf", path).unwrap_err().kind, FaultKind::User);
        assert_eq!(with("open sesame", path).unwrap_err().kind, FaultKind::User);
        assert!(with("open sesame, please", path).is_ok());
    }
    assert!(fetch(&running.address, "/healthz", None).is_ok());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let running = running(None);
    let taken: SocketAddr = running.address.parse().unwrap();
    let fault = Server::start(Options {
        listen: taken,
        token: None,
        state_dir: running.folder.path().join("other"),
        job: JobId::new("other").unwrap(),
        monitor: Monitor::new(running.board.clone(), Arc::new(ManualClock::default())),
        recorder: Recorder::of_process(),
        secrets: Secrets::default(),
    })
    .err()
    .unwrap();
    assert_eq!(fault.kind, FaultKind::External);
    assert!(fault.message.contains(&running.address), "{fault}");
}
