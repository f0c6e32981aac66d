//! The background sweep of expired entries: when it runs, and how much of the subtask's time it takes.
//!
//! Owns the pace. Does not own what is removed (the state does).

use std::time::Duration;

use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::ttl::Now;

use super::{OperatorSubtask, fault_of_state};

/// Rows looked at together, and how often at most: some 50,000 a second.
pub(super) const ROWS: usize = 512;
const EVERY: Duration = Duration::from_millis(10);

/// When the sweep goes on.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// Between the end of a look at all rows and the next.
    pause: Duration,
    next: Duration,
}

impl Sweeps {
    /// None where no state has a TTL.
    pub(super) fn of(contract: &OperatorContract) -> Option<Self> {
        let pause = contract.states.iter().filter_map(|state| state.ttl).map(|ttl| ttl.sweep_pause()).min()?;
        Some(Self { pause, next: Duration::ZERO })
    }
}

impl OperatorSubtask {
    /// Removes expired entries of some rows, if it is time: between calls, as the subtask's own writes.
    ///
    /// # Errors
    /// Whatever ends the attempt.
    pub fn sweep(&mut self) -> Result<(), Fault> {
        let Some(sweeps) = &mut self.sweeps else { return Ok(()) };
        let time = self.context.clock.monotonic();
        if time < sweeps.next {
            return Ok(());
        }
        let mut call = self.call.lock();
        let Some(keyed) = &mut call.keyed else { return Ok(()) };
        keyed.set_now(Now { event: self.passed, processing: self.context.clock.now() });
        let ended = keyed.sweep(ROWS).map_err(fault_of_state)?;
        keyed.maintain().map_err(fault_of_state)?;
        sweeps.next = time + if ended { sweeps.pause } else { EVERY };
        Ok(())
    }

    /// How long until the sweep goes on, at most `most`.
    pub(super) fn until_sweep(&self, most: Duration) -> Duration {
        match &self.sweeps {
            Some(sweeps) if self.may_sweep() => most.min(sweeps.next.saturating_sub(self.context.clock.monotonic())),
            _ => most,
        }
    }

    /// Whether what a sweep finds could be emitted, where it must be.
    pub(super) fn may_sweep(&self) -> bool {
        !self.emits_expired || self.outputs.have_room()
    }
}
