//! SIGTERM and SIGINT.
//!
//! Owns that the first asks for a final checkpoint and the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use wasmill_core::fault::{Fault, FaultKind};

use crate::exit::Exit;

/// The signals that stop a job.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    received: bool,
}

impl Signals {
    /// From now on, signals are taken here. Within a tokio runtime.
    pub fn take() -> Result<Self, Fault> {
        let take = |kind| {
            signal(kind).map_err(|error| Fault::new(FaultKind::External, format!("signals cannot be taken: {error}")))
        };
        let (terminate, interrupt) = (take(SignalKind::terminate())?, take(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, received: false })
    }

    /// Waits for the first signal. The second does not return.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        if self.received {
            tracing::warn!("stopped at once, without a final checkpoint");
            std::process::exit(i32::from(Exit::Stopped.code()));
        }
        self.received = true;
    }

    /// Whether one was received.
    pub fn received(&self) -> bool {
        self.received
    }
}
