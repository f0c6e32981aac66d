//! The status as it follows from counters and time.

use std::sync::Arc;

use wasmill_core::id::{Attempt, JobId};

use super::super::meter::{CacheTally, StateTally, SubtaskMeter};
use super::*;
use crate::clock::ManualClock;

fn meter(uid: &str, index: u32) -> Arc<SubtaskMeter> {
    let id = SubtaskId { uid: OperatorUid::new(uid).unwrap(), index: SubtaskIndex(index) };
    Arc::new(SubtaskMeter::new(id, NodeKind::Operator))
}

fn tally(entries: u64, bytes: u64) -> Vec<StateTally> {
    vec![StateTally { state: StateName::new("count").unwrap(), entries, bytes }]
}

struct Job {
    clock: Arc<ManualClock>,
    board: StatusBoard,
    monitor: Monitor,
}

fn job() -> Job {
    let clock = Arc::new(ManualClock::default());
    let board = StatusBoard::new(JobId::new("flights").unwrap(), Timestamp::from_millis(0));
    let monitor = Monitor::new(board.clone(), clock.clone());
    Job { clock, board, monitor }
}

#[test]
fn rates_are_of_the_last_seconds_and_begin_anew_with_an_attempt() {
    let Job { clock, board, monitor } = job();
    let first = meter("op", 0);
    board.attempt(Attempt(1), Timestamp::from_millis(0), vec![first.clone()]);
    let rate = || monitor.status().subtasks[0].records_per_second;
    first.received(1_000, 0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(rate(), 500.0);
    clock.advance(Duration::from_secs(10));
    first.received(100, 0);
    assert_eq!(rate(), 10.0);
    for _ in 0..12 {
        clock.advance(Duration::from_secs(1));
        first.received(7, 0);
        rate();
    }
    clock.advance(Duration::from_secs(1));
    first.received(7, 0);
    assert!((rate() - 7.0).abs() < 0.001);
    let second = meter("op", 0);
    board.attempt(Attempt(2), Timestamp::from_millis(25_000), vec![second.clone()]);
    clock.advance(Duration::from_secs(1));
    second.received(3, 0);
    let status = monitor.status();
    assert_eq!((status.attempt, status.subtasks[0].records_in), (Attempt(2), 3));
    assert_eq!(status.subtasks[0].records_per_second, 3.0);
}

#[test]
fn shares_of_time_are_between_none_and_all() {
    let Job { clock, board, monitor } = job();
    let meter = meter("op", 0);
    board.attempt(Attempt(1), Timestamp::from_millis(0), vec![meter.clone()]);
    assert_eq!(monitor.status().subtasks[0].backpressure, 0.0);
    clock.advance(Duration::from_secs(2));
    meter.backpressured(Duration::from_millis(500));
    meter.idled(Duration::from_secs(3));
    let status = monitor.status();
    assert_eq!((status.subtasks[0].backpressure, status.subtasks[0].idle), (0.25, 1.0));
}

#[test]
fn states_are_added_up_over_subtasks_and_lag_is_the_clock_less_the_watermark() {
    let Job { clock, board, monitor } = job();
    let (one, two) = (meter("op", 0), meter("op", 1));
    board.attempt(Attempt(1), Timestamp::from_millis(0), vec![one.clone(), two.clone()]);
    clock.advance(Duration::from_secs(5));
    one.holds(tally(3, 30), CacheTally::default());
    two.holds(tally(4, 50), CacheTally::default());
    one.watermark(Timestamp::from_millis(2_000));
    two.watermark(Timestamp::MAX);
    let status = monitor.status();
    assert_eq!(status.states.len(), 1);
    assert_eq!((status.states[0].entries, status.states[0].bytes), (7, 80));
    assert_eq!(status.subtasks[0].lag_ms, Some(3_000));
    assert_eq!((status.subtasks[1].watermark, status.subtasks[1].lag_ms), (None, None));
}

#[test]
fn the_split_that_holds_the_job_back_is_named_where_there_is_another() {
    let Job { board, monitor, .. } = job();
    let (one, two) = (meter("in", 0), meter("in", 1));
    board.attempt(Attempt(1), Timestamp::from_millis(0), vec![one.clone(), two.clone()]);
    one.slowest(Some(("p0", Timestamp::from_millis(59_000))), 1);
    assert_eq!(monitor.status().slowest_split, None);
    two.slowest(Some(("p1", Timestamp::MIN)), 1);
    let slowest = monitor.status().slowest_split.unwrap();
    assert_eq!((slowest.index, slowest.split.as_str(), slowest.watermark), (SubtaskIndex(1), "p1", None));
    two.slowest(None, 0);
    assert_eq!(monitor.status().slowest_split, None);
    one.slowest(Some(("p0", Timestamp::from_millis(59_000))), 2);
    assert_eq!(monitor.status().slowest_split.unwrap().split, "p0");
}

#[test]
fn a_status_survives_its_json() {
    let Job { clock, board, monitor } = job();
    let meter = meter("op", 0);
    board.attempt(Attempt(1), Timestamp::from_millis(0), vec![meter.clone()]);
    meter.dropped(DropReason::MissingKey, 2);
    clock.advance(Duration::from_secs(1));
    board.restored(RestoreReport {
        checkpoint: Some(CheckpointId(7)),
        download: Duration::from_micros(1_500),
        open: Duration::ZERO,
        total: Duration::from_millis(3),
        bytes: 10,
    });
    let status = monitor.status();
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["subtasks"][0]["dropped"]["missing-key"], 2);
    assert_eq!(json["last-restore"]["download-ms"], 1.5);
    assert_eq!(serde_json::from_value::<JobStatus>(json).unwrap(), status);
}

#[test]
fn a_restore_on_its_way_shows_how_far_it_has_come_until_it_is_over() {
    let Job { board, monitor, .. } = job();
    assert_eq!(monitor.status().restoring, None);
    board.restoring(CheckpointId(7), 100);
    board.downloaded(30);
    board.downloaded(12);
    let expected = RestoringStatus { checkpoint: CheckpointId(7), bytes: 42, bytes_total: 100 };
    assert_eq!(monitor.status().restoring, Some(expected));
    board.restarting("the store does not answer".to_owned());
    assert_eq!(monitor.status().restoring, None, "the next attempt begins anew");
}
