//! `wasmill run`: a job from its start to its end, with signals, progress, the admin endpoint and `--watch`.
//!
//! Owns what happens around a job. Does not own the job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_runtime::admin::{self, Server};
use wasmill_runtime::clock::{SharedClock, SystemClock};
use wasmill_runtime::config::Pipeline;
use wasmill_runtime::config::sink::Sink;
use wasmill_runtime::config::table::Listen;
use wasmill_runtime::job::{self, Ending, JobHandle, Start};
use wasmill_runtime::telemetry::{Monitor, Recorder};

use crate::args;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::progress::Progress;
use crate::signal::Signals;
use crate::watch::Watch;

/// How often the job is looked after.
const TICK: Duration = Duration::from_millis(20);

/// Runs the pipeline.
pub fn run(options: &args::Run, screen: &Screen) -> Result<Exit, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(FaultKind::External, format!("cannot start: {error}")))?;
    let start = match (options.fresh, options.from) {
        (true, _) => Start::Fresh,
        (false, Some(checkpoint)) => Start::Checkpoint(checkpoint),
        (false, None) => Start::Newest,
    };
    runtime.block_on(async {
        let signals = Signals::take()?;
        let recorder = Recorder::of_process();
        let runner = Runner {
            file: options.pipeline.clone(),
            clock: SystemClock::shared(),
            screen: screen.clone(),
            signals,
            recorder,
        };
        if options.watch { runner.watch(start).await } else { runner.once(start).await }
    })
}

struct Runner {
    file: PathBuf,
    clock: SharedClock,
    screen: Screen,
    signals: Signals,
    recorder: Recorder,
}

/// Why a job is no longer looked after.
enum Left {
    /// It has ended.
    Ended(Result<Ending, Fault>),
    /// A component's file changed, and the job was stopped with a checkpoint.
    Changed(PathBuf),
}

impl Runner {
    async fn once(mut self, start: Start) -> Result<Exit, Fault> {
        let pipeline = self.load()?;
        match self.follow(&pipeline, start, None).await? {
            Left::Ended(ended) => self.exit(ended?),
            Left::Changed(_) => Ok(Exit::Done),
        }
    }

    /// Runs the job anew whenever a component changes. What keeps it from running is told, and mended by the next change.
    async fn watch(mut self, mut start: Start) -> Result<Exit, Fault> {
        loop {
            let pipeline = self.load()?;
            let mut watch = Watch::new(&pipeline, self.clock.monotonic());
            let fault = match self.follow(&pipeline, start, Some(&mut watch)).await {
                Ok(Left::Ended(Ok(ended))) => return self.exit(ended),
                Ok(Left::Changed(path)) => {
                    tracing::info!(component = %path.display(), "the component changed: going on from the last checkpoint");
                    start = Start::Newest;
                    continue;
                }
                Ok(Left::Ended(Err(fault))) | Err(fault) => fault,
            };
            if self.signals.received() {
                return Err(fault);
            }
            tracing::error!(%fault, "the job cannot run; waiting for a component to change");
            if !self.wait_for_change(&mut watch).await {
                return Ok(Exit::Stopped);
            }
            start = Start::Newest;
        }
    }

    /// Waits until a component changes; `false`: a signal came first.
    async fn wait_for_change(&mut self, watch: &mut Watch) -> bool {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = self.signals.next() => return false,
                _ = tick.tick() => if watch.changed(self.clock.monotonic()).is_some() {
                    return true;
                },
            }
        }
    }

    fn load(&self) -> Result<Arc<Pipeline>, Fault> {
        let pipeline = Pipeline::load(&self.file)?;
        self.screen.mask_with(&pipeline.secrets);
        Ok(Arc::new(pipeline))
    }

    /// Starts the job and looks after it until it ends, a signal's or a change's final checkpoint included.
    async fn follow(
        &mut self,
        pipeline: &Arc<Pipeline>,
        start: Start,
        mut watch: Option<&mut Watch>,
    ) -> Result<Left, Fault> {
        if pipeline.sinks.iter().any(|sink| matches!(sink.config, Sink::Stdout(_))) {
            self.screen.share_terminal();
        }
        let options = job::Options { pipeline: Arc::clone(pipeline), start, clock: Arc::clone(&self.clock) };
        let handle = job::start(options)?;
        let monitor = Monitor::new(handle.board().clone(), Arc::clone(&self.clock));
        let _admin = self.serve(pipeline, &monitor)?;
        let mut progress = Progress::new(self.screen.clone(), self.clock.monotonic());
        let mut tick = tokio::time::interval(TICK);
        let mut changed = None;
        while !handle.is_finished() {
            tokio::select! {
                () = self.signals.next() => self.stop(&handle),
                _ = tick.tick() => {
                    let now = self.clock.monotonic();
                    progress.tick(now, || monitor.status());
                    if changed.is_none() && !self.signals.received() {
                        changed = watch.as_mut().and_then(|watch| watch.changed(now));
                        if changed.is_some() {
                            handle.stop();
                        }
                    }
                }
            }
        }
        let ended = handle.wait();
        progress.end(&monitor.status());
        match (ended, changed) {
            (Ok(Ending::Stopped), Some(path)) if !self.signals.received() => Ok(Left::Changed(path)),
            (ended, _) => Ok(Left::Ended(ended)),
        }
    }

    fn stop(&self, handle: &JobHandle) {
        tracing::info!("stopping: taking a final checkpoint (a second signal stops at once)");
        handle.stop();
    }

    fn serve(&self, pipeline: &Pipeline, monitor: &Monitor) -> Result<Option<Server>, Fault> {
        let Listen::At(listen) = pipeline.admin.listen else { return Ok(None) };
        let options = admin::Options {
            listen,
            token: pipeline.admin.token.clone(),
            state_dir: pipeline.state_dir.clone(),
            job: pipeline.job.name.clone(),
            monitor: monitor.clone(),
            recorder: self.recorder.clone(),
            secrets: pipeline.secrets.clone(),
        };
        let place = || pipeline.place(&["admin", "listen"]);
        Server::start(options).map(Some).map_err(|fault| fault.at(place()))
    }

    fn exit(&self, ended: Ending) -> Result<Exit, Fault> {
        Ok(match ended {
            Ending::EndOfInput => Exit::Done,
            Ending::Stopped => Exit::Stopped,
        })
    }
}
