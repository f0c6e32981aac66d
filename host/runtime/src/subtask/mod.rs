//! One subtask: a thread that reads, calls the guest or a connector, and serves barriers.
//!
//! Owns the loop of each kind of node (`source`, `operator`, `sink`) and the calls in between. Does not know what its channels
//! are, nor who decides: it meets the coordinator in `control` alone.

mod access;
mod batcher;
pub mod drift;
mod emit;
mod late;
pub mod merge;
pub mod operator;
pub mod sink;
pub mod source;
pub mod upload;
mod watermark;

use std::sync::Arc;
use std::time::Duration;

use wasmill_core::checkpoint::manifest::Part;
use wasmill_core::fault::Fault;
use wasmill_core::id::{CheckpointId, SubtaskId};

use crate::clock::SharedClock;
use crate::control::{Mailbox, Report, Reports};
use crate::spawn;
use crate::telemetry::SubtaskMeter;

pub use access::{CallState, StateLimits};
pub use watermark::Strategy;

/// How long a subtask with nothing to do sleeps before it looks around by itself.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// What every subtask has.
#[derive(Clone)]
pub struct Context {
    /// Who it is.
    pub id: SubtaskId,
    /// Where its commands arrive.
    pub mailbox: Mailbox,
    /// Where its reports go.
    pub reports: Reports,
    /// Tells the time.
    pub clock: SharedClock,
    /// Its counters.
    pub meter: Arc<SubtaskMeter>,
}

/// The duration in microseconds, as manifests have it.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Context {
    /// Runs the subtask to its end and reports how it ended. A panic is a failure like any other: a job that waited for a subtask
    /// that is no more would wait for ever.
    pub fn run(self, body: impl FnOnce(&Self) -> Result<(), Fault>) {
        let report = match spawn::guarded(&self.id.to_string(), || body(&self)).flatten() {
            Ok(()) => Report::Finished(self.id.clone()),
            Err(fault) => Report::Failed { subtask: self.id.clone(), fault },
        };
        self.report(report);
    }

    fn report(&self, report: Report) {
        // A coordinator that is gone has nothing more to learn.
        let _ = self.reports.send(report);
    }

    fn acknowledge(&self, checkpoint: CheckpointId, part: Part) {
        self.report(Report::Acknowledged { subtask: self.id.clone(), checkpoint, part: Box::new(part) });
    }

    fn decline(&self, checkpoint: CheckpointId, reason: &str) {
        self.report(Report::Declined { subtask: self.id.clone(), checkpoint, reason: reason.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use wasmill_core::fault::FaultKind;
    use wasmill_core::graph::NodeKind;
    use wasmill_core::id::{OperatorUid, SubtaskIndex};

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_panic_of_a_subtask_is_reported_as_its_failure() {
        let (reports, mut inbox) = mpsc::unbounded_channel();
        let id = SubtaskId { uid: OperatorUid::new("op").unwrap(), index: SubtaskIndex(3) };
        let meter = Arc::new(SubtaskMeter::new(id.clone(), NodeKind::Operator));
        let context =
            Context { id, mailbox: Mailbox::default(), reports, clock: Arc::new(ManualClock::default()), meter };
        context.run(|_| panic!("no luck"));
        let Ok(Report::Failed { subtask, fault }) = inbox.try_recv() else { panic!("nothing is reported") };
        assert_eq!((subtask.to_string().as_str(), fault.kind), ("op/3", FaultKind::Internal));
        assert!(fault.message.contains("`op/3` panicked: no luck"), "{fault}");
    }
}
