//! `wasmill status`: how a running job is doing.
//!
//! Owns how the job is found and the status laid out.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::time::Timestamp;
use wasmill_runtime::admin::{self, Registration};
use wasmill_runtime::config::{Pipeline, Secret};
use wasmill_runtime::telemetry::status::SubtaskStatus;
use wasmill_runtime::telemetry::{DropReason, JobStatus, Role};

use crate::args;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// Shows the status.
pub fn status(options: &args::Status, json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let pipeline = options.pipeline.as_deref().map(Pipeline::load).transpose()?;
    if let Some(pipeline) = &pipeline {
        screen.mask_with(&pipeline.secrets);
    }
    let token = pipeline.as_ref().and_then(|pipeline| pipeline.admin.token.as_ref());
    let status = match (&options.admin, &pipeline) {
        (Some(url), _) => admin::fetch_status(host_and_port(url), token)?,
        (None, Some(pipeline)) => find(pipeline, token)?,
        (None, None) => return Err(Fault::new(FaultKind::User, "name a pipeline file, or an endpoint by --admin")),
    };
    if json {
        let line = serde_json::to_string(&status).map_err(|error| Fault::new(FaultKind::Internal, error))?;
        return Ok(show::print(&format!("{line}\n")));
    }
    Ok(show::print(&screen.mask(&page(&status))))
}

fn host_and_port(url: &str) -> &str {
    url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/')
}

fn find(pipeline: &Pipeline, token: Option<&Secret>) -> Result<JobStatus, Fault> {
    let nobody = |why: &str| {
        let (job, dir) = (&pipeline.job.name, pipeline.state_dir.display());
        Fault::new(FaultKind::External, format!("job `{job}` is not running (by its state folder {dir}){why}"))
    };
    let found = Registration::read(&pipeline.state_dir).ok_or_else(|| nobody(", or has `admin.listen = \"off\"`"))?;
    let status = admin::fetch_status(&found.address.to_string(), token).map_err(|fault| match fault.kind {
        FaultKind::External => nobody(&format!("; process {} was killed: {fault}", found.pid)),
        _ => fault,
    })?;
    if status.job != pipeline.job.name {
        return Err(nobody(&format!("; at {} another job answers", found.address)));
    }
    Ok(status)
}

/// The status for people.
fn page(status: &JobStatus) -> String {
    let mut page = format!(
        "job {}: {}, attempt {} for {}, {} restarts\n",
        status.job,
        status.phase.as_str(),
        status.attempt,
        show::duration(between(status.since, status.now)),
        status.restarts
    );
    if let Some(failure) = &status.last_failure {
        page.push_str(&format!("last failure: {failure}\n"));
    }
    if let Some(restoring) = &status.restoring {
        let (done, total) = (show::bytes(restoring.bytes), show::bytes(restoring.bytes_total));
        page.push_str(&format!("restoring checkpoint {}: {done} of {total} downloaded\n", restoring.checkpoint));
    }
    let subtasks: Vec<_> = status.subtasks.iter().map(row).collect();
    let head = [
        "subtask",
        "records in",
        "records out",
        "rate",
        "backpressure",
        "idle",
        "held",
        "lag",
        "late",
        "dropped",
        "dead letters",
    ];
    page.push_str(&format!("\n{}", show::table(&head, &subtasks)));
    if let Some(slowest) = &status.slowest_split {
        let at = slowest.watermark.map_or_else(
            || "it has no watermark yet".to_owned(),
            |watermark| format!("{} behind now", lag_in_words(status.now.as_millis() - watermark.as_millis())),
        );
        page.push_str(&format!("\nslowest split: `{}` of {}/{}, {at}\n", slowest.split, slowest.uid, slowest.index));
    }
    if !status.states.is_empty() {
        let states: Vec<_> = status
            .states
            .iter()
            .map(|state| {
                vec![format!("{}/{}", state.uid, state.state), show::count(state.entries), show::bytes(state.bytes)]
            })
            .collect();
        page.push_str(&format!("\n{}", show::table(&["state", "entries", "size"], &states)));
    }
    page.push('\n');
    page.push_str(&checkpoints(status));
    page
}

fn row(subtask: &SubtaskStatus) -> Vec<String> {
    let by_reason = |records: &BTreeMap<DropReason, u64>| {
        let each = records.iter().map(|(reason, records)| format!("{} {}", show::count(*records), reason.as_str()));
        each.collect::<Vec<_>>().join(", ")
    };
    let name = match subtask.role {
        Role::Node => format!("{}/{}", subtask.uid, subtask.index),
        Role::Merging => format!("{}/merge", subtask.uid),
    };
    vec![
        name,
        show::count(subtask.records_in),
        show::count(subtask.records_out),
        show::rate(subtask.records_per_second),
        show::percent(subtask.backpressure),
        show::percent(subtask.idle),
        show::percent(subtask.held),
        subtask.lag_ms.map_or_else(|| "-".to_owned(), lag_in_words),
        show::count(subtask.late),
        by_reason(&subtask.dropped),
        by_reason(&subtask.dead_letters),
    ]
}

fn checkpoints(status: &JobStatus) -> String {
    let mut text = match &status.last_checkpoint {
        Some(last) => format!(
            "last checkpoint: {}, {} ago, took {} ({} of the interval), {} new, {} referenced\n",
            last.id,
            show::duration(between(last.decided, status.now)),
            show::millis(last.duration_ms),
            show::percent(last.share_of_interval),
            show::bytes(last.bytes_new),
            show::bytes(last.bytes_referenced),
        ),
        None => "last checkpoint: none in this process\n".to_owned(),
    };
    text.push_str(&format!(
        "checkpoints: {} decided, {} given up\n",
        status.checkpoints_completed, status.checkpoints_failed
    ));
    if let Some(restore) = &status.last_restore {
        let from = restore.checkpoint.map_or_else(|| "nothing".to_owned(), |id| format!("checkpoint {id}"));
        text.push_str(&format!(
            "began with {from}: download {} ({}), open {}, records after {}\n",
            show::millis(restore.download_ms),
            show::bytes(restore.bytes),
            show::millis(restore.open_ms),
            show::millis(restore.total_ms)
        ));
    }
    text
}

fn lag_in_words(lag_ms: i64) -> String {
    match u64::try_from(lag_ms) {
        Ok(millis) if millis < 10_000 => show::millis(millis as f64),
        Ok(millis) => show::duration(Duration::from_millis(millis)),
        Err(_) => "ahead".to_owned(),
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(later.as_millis().saturating_sub(earlier.as_millis())).unwrap_or(0))
}
