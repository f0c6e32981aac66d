//! How a running job is doing, in one line.
//!
//! Owns what of a status fits a line. On a terminal the line is renewed twice a second; in a log there is one every ten seconds.

use std::time::Duration;

use wasmill_core::graph::NodeKind;
use wasmill_runtime::telemetry::{JobStatus, Phase};

use crate::logging::Screen;
use crate::show;

const LIVE: Duration = Duration::from_millis(500);
const LOGGED: Duration = Duration::from_secs(10);

/// Shows progress when it is time.
pub struct Progress {
    screen: Screen,
    shown: Duration,
}

impl Progress {
    /// `now` is any monotonic time.
    pub fn new(screen: Screen, now: Duration) -> Self {
        Self { screen, shown: now }
    }

    /// Shows the status that `status` gives, if it is time.
    pub fn tick(&mut self, now: Duration, status: impl FnOnce() -> JobStatus) {
        let live = self.screen.is_live();
        if now.saturating_sub(self.shown) < if live { LIVE } else { LOGGED } {
            return;
        }
        self.shown = now;
        let status = status();
        if live {
            self.screen.progress(&line(&status));
        } else {
            log(&status);
        }
    }

    /// Takes the line away and logs how the job stood at its end.
    pub fn end(&self, status: &JobStatus) {
        self.screen.progress("");
        let totals = Totals::of(status);
        tracing::info!(
            job = %status.job,
            records = totals.records,
            state_entries = totals.entries,
            state_bytes = totals.bytes,
            checkpoints = status.checkpoints_completed,
            restarts = status.restarts,
            dropped = totals.dropped,
            dead_letters = totals.dead_letters,
            "the job has ended"
        );
    }
}

struct Totals {
    records: u64,
    per_second: f64,
    dropped: u64,
    dead_letters: u64,
    entries: u64,
    bytes: u64,
}

impl Totals {
    fn of(status: &JobStatus) -> Self {
        let sources = || status.subtasks.iter().filter(|subtask| subtask.kind == NodeKind::Source);
        Self {
            records: sources().map(|subtask| subtask.records_in).sum(),
            per_second: sources().map(|subtask| subtask.records_per_second).sum(),
            dropped: status.subtasks.iter().flat_map(|subtask| subtask.dropped.values()).sum(),
            dead_letters: status.subtasks.iter().flat_map(|subtask| subtask.dead_letters.values()).sum(),
            entries: status.states.iter().map(|state| state.entries).sum(),
            bytes: status.states.iter().map(|state| state.bytes).sum(),
        }
    }
}

/// The line of progress.
fn line(status: &JobStatus) -> String {
    let totals = Totals::of(status);
    let phase = if status.phase == Phase::Running { String::new() } else { format!(" {}", status.phase.as_str()) };
    if let Some(restoring) = &status.restoring {
        let share = restoring.bytes as f64 / restoring.bytes_total.max(1) as f64;
        return format!(
            "{} restoring checkpoint {} | {} of {}, {}",
            status.job,
            restoring.checkpoint,
            show::bytes(restoring.bytes),
            show::bytes(restoring.bytes_total),
            show::percent(share),
        );
    }
    let mut line = format!(
        "{}{phase} | {} records, {} | state {} entries, {}",
        status.job,
        show::count(totals.records),
        show::rate(totals.per_second),
        show::count(totals.entries),
        show::bytes(totals.bytes),
    );
    if let Some(last) = &status.last_checkpoint {
        line.push_str(&format!(
            " | checkpoint {} in {}, {} new",
            last.id,
            show::millis(last.duration_ms),
            show::bytes(last.bytes_new)
        ));
    }
    if totals.dropped > 0 {
        line.push_str(&format!(" | {} dropped", show::count(totals.dropped)));
    }
    if totals.dead_letters > 0 {
        line.push_str(&format!(" | {} dead letters", show::count(totals.dead_letters)));
    }
    line
}

fn log(status: &JobStatus) {
    if let Some(restoring) = &status.restoring {
        let (checkpoint, bytes, of) = (restoring.checkpoint, restoring.bytes, restoring.bytes_total);
        return tracing::info!(%checkpoint, bytes, of, "restoring");
    }
    let totals = Totals::of(status);
    let last = status.last_checkpoint.as_ref();
    tracing::info!(
        phase = status.phase.as_str(),
        records = totals.records,
        records_per_second = totals.per_second.round() as u64,
        state_entries = totals.entries,
        state_bytes = totals.bytes,
        dropped = totals.dropped,
        dead_letters = totals.dead_letters,
        checkpoint = last.map(|last| last.id.0),
        checkpoint_ms = last.map(|last| last.duration_ms),
        checkpoint_bytes_new = last.map(|last| last.bytes_new),
        "progress"
    );
}
