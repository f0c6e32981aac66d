//! A running job: built from a pipeline, run attempt by attempt, stopped by a handle.
//!
//! Owns the life of a job in this process: the lock on its state folder, restarts with backoff, the handle. Does not own what
//! an attempt does (`attempt`), nor signals and terminals.

mod attempt;
mod lock;
pub(crate) mod operator;
mod ports;
mod prepared;
mod restore;
mod state;
mod store;
mod time;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::CheckpointId;

use self::attempt::From;
pub use self::prepared::Prepared;
pub use self::store::check_store;
use crate::clock::SharedClock;
use crate::config::Pipeline;
pub use crate::coordinator::run::Ending;
use crate::spawn::{self, Thread};
use crate::telemetry::{Phase, StatusBoard};

/// What a job starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The newest decided checkpoint; nothing where there is none.
    Newest,
    /// Nothing, whatever there is.
    Fresh,
    /// This decided checkpoint.
    Checkpoint(CheckpointId),
}

/// What a job is started with.
pub struct Options {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// What to start from.
    pub start: Start,
    /// Tells the time.
    pub clock: SharedClock,
}

/// A job that runs in the background. Dropping the handle stops the job as [`JobHandle::stop`] does and waits for it.
pub struct JobHandle {
    board: StatusBoard,
    stop: watch::Sender<bool>,
    supervisor: Mutex<Option<Thread<Result<Ending, Fault>>>>,
}

/// Checks the pipeline, takes the lock of its state folder and starts the job.
///
/// # Errors
/// A pipeline that cannot run: a component, connector or port that is not there, or a state folder that another process has.
pub fn start(options: Options) -> Result<JobHandle, Fault> {
    let Options { pipeline, start, clock } = options;
    let lock = lock::StateLock::take(&pipeline.state_dir)?;
    let prepared = Prepared::load(&pipeline, &clock)?;
    let board = StatusBoard::new(pipeline.job.name.clone(), clock.now());
    let (stop, stopping) = watch::channel(false);
    let supervisor = Supervisor { pipeline, prepared, clock, board: board.clone(), stopping, _lock: lock };
    let thread = spawn::thread("job", move || supervisor.run(start))?;
    Ok(JobHandle { board, stop, supervisor: Mutex::new(Some(thread)) })
}

impl JobHandle {
    /// What the job tells of itself.
    #[must_use]
    pub fn board(&self) -> &StatusBoard {
        &self.board
    }

    /// Asks for a final checkpoint and the end. Returns at once.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether the job has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.supervisor.lock().as_ref().is_none_or(Thread::is_finished)
    }

    /// Waits for the end of the job.
    ///
    /// # Errors
    /// What ended it, or that it was waited for before.
    pub fn wait(&self) -> Result<Ending, Fault> {
        let thread = self.supervisor.lock().take();
        thread.map_or_else(|| Err(Fault::new(FaultKind::Internal, "the job was waited for before")), Thread::join)?
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.supervisor.lock().take() {
            // Whoever wanted to know has waited.
            let _ = thread.join();
        }
    }
}

struct Supervisor {
    pipeline: Arc<Pipeline>,
    prepared: Prepared,
    clock: SharedClock,
    board: StatusBoard,
    stopping: watch::Receiver<bool>,
    _lock: lock::StateLock,
}

impl Supervisor {
    fn run(self, start: Start) -> Result<Ending, Fault> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("io")
            .enable_all()
            .build()
            .map_err(|error| Fault::new(FaultKind::External, format_args!("cannot start I/O threads: {error}")))?;
        let result = match runtime.block_on(self.unless_stopped(store::check_usable(&self.pipeline))) {
            None => Ok(Ending::Stopped),
            Some(Err(fault)) => Err(fault),
            Some(Ok(())) => self.attempts(start, &runtime),
        };
        self.board.phase(Phase::Ended);
        result
    }

    fn attempts(&self, start: Start, runtime: &tokio::runtime::Runtime) -> Result<Ending, Fault> {
        let mut from = From::Start(start);
        let mut in_a_row = 0;
        loop {
            let completed = self.board.snapshot().completed;
            let outcome = attempt::run(&attempt::Options {
                pipeline: &self.pipeline,
                prepared: &self.prepared,
                clock: &self.clock,
                board: &self.board,
                stopping: self.stopping.clone(),
                runtime: runtime.handle(),
                from,
            });
            let failed = match outcome {
                Ok(ending) => return Ok(ending),
                Err(failed) => failed,
            };
            if self.board.snapshot().completed > completed {
                in_a_row = 0;
            }
            let restart = &self.pipeline.restart;
            if !failed.fault.kind.may_restart() || *self.stopping.borrow() {
                return Err(failed.fault);
            }
            if in_a_row >= restart.attempts {
                let message = format!("gave up after {in_a_row} restarts without a checkpoint in between");
                return Err(failed.fault.at(message));
            }
            let pause = backoff(restart.backoff_min.get(), restart.backoff_max.get(), in_a_row);
            in_a_row += 1;
            tracing::error!(fault = %failed.fault, kind = failed.fault.kind.as_str(), attempt_in_row = in_a_row, pause_ms = pause.as_millis() as u64, "the attempt failed; restarting from the last checkpoint");
            self.board.restarting(failed.fault.message.clone());
            if failed.claimed {
                from = From::Restart;
            }
            if runtime.block_on(self.unless_stopped(async { tokio::time::sleep(pause).await })).is_none() {
                return Err(failed.fault);
            }
        }
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        unless_stopped(self.stopping.clone(), work).await
    }
}

/// What `work` gives, or `None` where the job is asked to stop first: the work is dropped then, wherever it stands.
async fn unless_stopped<T>(mut stopping: watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        Ok(_) = stopping.wait_for(|stop| *stop) => None,
    }
}

/// The pause before restart `number` of a row, counted from 0: doubles from `least` up to `most`.
fn backoff(least: Duration, most: Duration, number: u32) -> Duration {
    least.saturating_mul(2u32.saturating_pow(number)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_limit() {
        let pause = |number| backoff(Duration::from_millis(500), Duration::from_secs(60), number).as_millis();
        assert_eq!([pause(0), pause(1), pause(2), pause(7), pause(1000)], [500, 1000, 2000, 60_000, 60_000]);
    }
}
