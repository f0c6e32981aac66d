//! Metrics as a scraper sees them.

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, JobId, OperatorUid, StateName, SubtaskId, SubtaskIndex};

use super::super::board::{CheckpointReport, RestoreReport, StatusBoard};
use super::super::meter::{CacheTally, DropReason, Renewal, StateTally, SubtaskMeter};
use super::*;

fn meter() -> Arc<SubtaskMeter> {
    let id = SubtaskId { uid: OperatorUid::new("op").unwrap(), index: SubtaskIndex(0) };
    let meter = SubtaskMeter::new(id, NodeKind::Operator);
    meter.received(5, 50);
    meter.dropped(DropReason::Rejected, 1);
    meter.dead_lettered(DropReason::Trap, 1);
    meter.isolating();
    meter.rerun();
    meter.renewed(Renewal::Failure);
    meter.log_lines_dropped(3);
    meter.watermark(Timestamp::from_millis(1_500));
    meter.barrier(CheckpointId(4));
    let state = StateName::new("count").unwrap();
    meter.holds(
        vec![StateTally { state, entries: 3, bytes: 30 }],
        CacheTally { hits: 9, misses: 1, bytes: 64, rows: 640 },
    );
    Arc::new(meter)
}

/// What merges the broadcast inputs of the same operator.
fn merging() -> Arc<SubtaskMeter> {
    let meter = SubtaskMeter::merging(OperatorUid::new("op").unwrap());
    meter.received(3, 30);
    meter.sent(3, 30);
    Arc::new(meter)
}

/// A source's subtask whose slowest split is at `watermark`.
fn source(index: u32, split: &str, watermark: i64) -> Arc<SubtaskMeter> {
    let id = SubtaskId { uid: OperatorUid::new("in").unwrap(), index: SubtaskIndex(index) };
    let meter = SubtaskMeter::new(id, NodeKind::Source);
    meter.slowest(Some((split, Timestamp::from_millis(watermark))), 1);
    Arc::new(meter)
}

fn report(id: u64) -> CheckpointReport {
    CheckpointReport {
        checkpoint: CheckpointId(id),
        decided: Timestamp::from_millis(2_000),
        total: Duration::from_millis(30),
        pause: Duration::ZERO,
        alignment: Duration::ZERO,
        write: Duration::ZERO,
        cut: Duration::ZERO,
        upload: Duration::ZERO,
        bytes_new: 7,
        bytes_referenced: 8,
        share_of_interval: 0.25,
    }
}

/// What a job that ran two attempts shows, by a recorder of its own.
fn shown() -> String {
    let recorder = build();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        metric::ALL.iter().for_each(Metric::describe);
        let board = StatusBoard::new(JobId::new("flights").unwrap(), Timestamp::from_millis(0));
        board.attempt(Attempt(1), Timestamp::from_millis(0), vec![meter(), merging()]);
        show(&board.snapshot(), Timestamp::from_millis(2_500));
        let (ahead, behind) = (source(0, "p0", 59_000), source(1, "p1", 0));
        board.attempt(Attempt(2), Timestamp::from_millis(1), vec![meter(), merging(), ahead, behind.clone()]);
        show(&board.snapshot(), Timestamp::from_millis(2_500));
        behind.slowest(Some(("p1", Timestamp::from_millis(60_000))), 1);
        board.checkpoint_completed(report(4));
        let restore = RestoreReport {
            checkpoint: None,
            download: Duration::ZERO,
            open: Duration::ZERO,
            total: Duration::from_millis(3),
            bytes: 0,
        };
        board.restored(restore);
        show(&board.snapshot(), Timestamp::from_millis(2_500));
    });
    handle.render()
}

#[test]
fn a_counter_goes_on_over_a_restart_and_a_gauge_is_the_newest() {
    let shown = shown();
    for line in [
        r#"wasmill_records_in_total{job="flights",uid="op",subtask="0"} 10"#,
        r#"wasmill_records_in_total{job="flights",uid="op",subtask="merge"} 6"#,
        r#"wasmill_bytes_out_total{job="flights",uid="op",subtask="merge"} 60"#,
        r#"wasmill_barrier{job="flights",uid="op",subtask="0"} 4"#,
        r#"wasmill_records_dropped_total{job="flights",uid="op",subtask="0",reason="rejected"} 2"#,
        r#"wasmill_dead_letters_total{job="flights",uid="op",subtask="0",reason="trap"} 2"#,
        r#"wasmill_instance_renewals_total{job="flights",uid="op",subtask="0",reason="failure"} 2"#,
        r#"wasmill_rerun_calls_total{job="flights",uid="op",subtask="0"} 2"#,
        r#"wasmill_log_lines_dropped_total{job="flights",uid="op",subtask="0"} 6"#,
        r#"wasmill_cache_hits_total{job="flights",uid="op",subtask="0"} 18"#,
        r#"wasmill_state_entries{job="flights",uid="op",subtask="0",state="count"} 3"#,
        r#"wasmill_watermark_lag_seconds{job="flights",uid="op",subtask="0"} 1"#,
        r#"wasmill_slowest_split{job="flights",uid="in",subtask="0",split="p0"} 1"#,
        r#"wasmill_slowest_split{job="flights",uid="in",subtask="1",split="p1"} 0"#,
        r#"wasmill_checkpoint_id{job="flights"} 4"#,
        r#"wasmill_checkpoint_seconds_bucket{job="flights",part="total",le="0.05"} 1"#,
        r#"wasmill_checkpoint_seconds_bucket{job="flights",part="total",le="0.025"} 0"#,
        "# TYPE wasmill_restarts_total counter",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "no line {line} in\n{shown}");
    }
}

#[test]
fn every_metric_of_the_table_is_shown_and_no_other() {
    let shown = shown();
    let mut found: Vec<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_whitespace().next()).collect();
    found.sort_unstable();
    let mut table: Vec<&str> = metric::ALL.iter().map(|metric| metric.name).collect();
    table.sort_unstable();
    assert_eq!(found, table);
}
