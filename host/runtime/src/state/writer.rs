//! The background thread that writes frozen layers to RocksDB and takes local cuts.
//!
//! Owns the order: first come, first served, one at a time. That is why nothing newer than a barrier is in RocksDB when its
//! local cut is taken (I3, I4). Does not own when a layer is frozen.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use parking_lot::{Condvar, Mutex};
use wasmill_core::ttl::Now;

use super::Counts;
use super::backend::{Backend, SharedMemory};
use super::changes::Changes;
use super::error::Error;
use super::layer::Layer;
use super::row::Form;
use super::timers::TimerLayer;
use super::{LocalCut, OnCut};
use crate::clock::SharedClock;
use crate::spawn;

/// A frozen layer to be written, with the changes to maps and lists that were frozen with it.
pub(super) struct Job {
    /// Rises by one from job to job.
    pub(super) sequence: u64,
    pub(super) layer: Arc<Layer>,
    pub(super) changes: Changes,
    pub(super) timers: Arc<TimerLayer>,
    pub(super) cut: Option<CutJob>,
}

/// The local cut to be taken once the layer is written.
pub(super) struct CutJob {
    pub(super) dir: PathBuf,
    pub(super) counts: Counts,
    /// The times of the barrier.
    pub(super) now: Now,
    pub(super) on_cut: OnCut,
}

/// What the thread needs to do its work.
pub(super) struct Tools {
    pub(super) backend: Arc<Backend>,
    /// The index of the timers' column family.
    pub(super) timers: usize,
    /// How each state's values are written, by index.
    pub(super) forms: Vec<Form>,
    pub(super) shared: SharedMemory,
    pub(super) clock: SharedClock,
    pub(super) place: String,
}

/// The handle of the background thread. Dropping it answers what is waiting with [`Error::Closed`] and joins the thread.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    progress: Arc<Progress>,
    thread: Option<spawn::Thread<()>>,
    place: String,
}

/// What the thread tells: read without a lock, waited for with one.
#[derive(Default)]
struct Progress {
    released: AtomicU64,
    failed: AtomicBool,
    closing: AtomicBool,
    failure: Mutex<Option<Error>>,
    changed: Condvar,
}

impl Writer {
    pub(super) fn start(tools: Tools) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let place = tools.place.clone();
        let theirs = Arc::clone(&progress);
        let thread = spawn::thread(format!("state {place}"), move || run(&tools, &theirs, &queue))
            .map_err(|fault| Error::Panicked { place: place.clone(), message: fault.message })?;
        Ok(Self { jobs: Some(jobs), progress, thread: Some(thread), place })
    }

    /// Queues a layer.
    pub(super) fn send(&self, job: Job) -> Result<(), Error> {
        match &self.jobs {
            Some(jobs) if jobs.send(job).is_ok() => Ok(()),
            _ => {
                self.check()?;
                Err(Error::Panicked { place: self.place.clone(), message: "it has ended".to_owned() })
            }
        }
    }

    /// The failure of the thread, if it failed: from then on it writes nothing.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.progress.failed.load(Ordering::Relaxed) { self.progress.failure() } else { Ok(()) }
    }

    /// The last job that is done; its layer is held no more.
    pub(super) fn released(&self) -> u64 {
        self.progress.released.load(Ordering::Acquire)
    }

    /// Waits until the job `sequence` is done.
    pub(super) fn wait(&self, sequence: u64) -> Result<(), Error> {
        let mut failure = self.progress.failure.lock();
        loop {
            if let Some(error) = &*failure {
                return Err(error.clone());
            }
            if self.released() >= sequence {
                return Ok(());
            }
            self.progress.changed.wait(&mut failure);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.progress.closing.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was caught within and told as the failure; there is nobody left to tell.
            drop(thread.join());
        }
    }
}

impl Progress {
    fn release(&self, sequence: u64) {
        let _failure = self.failure.lock();
        self.released.store(sequence, Ordering::Release);
        self.changed.notify_all();
    }

    fn fail(&self, error: Error) {
        let mut failure = self.failure.lock();
        failure.get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn failure(&self) -> Result<(), Error> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}

fn run(tools: &Tools, progress: &Progress, queue: &mpsc::Receiver<Job>) {
    for Job { sequence, layer, mut changes, timers, cut } in queue {
        let (to_dir, on_cut) = match cut {
            Some(CutJob { dir, counts, now, on_cut }) => (Some((dir, counts, now)), Some(on_cut)),
            None => (None, None),
        };
        let result = progress.failure().and_then(|()| {
            if progress.closing.load(Ordering::Relaxed) {
                return Err(Error::Closed { place: tools.place.clone() });
            }
            let done = caught(tools, || work(tools, (&layer, &mut changes, &timers), to_dir));
            done.inspect_err(|error| progress.fail(error.clone()))
        });
        // The layer goes first: who sees it released takes it back.
        drop((layer, changes));
        if result.is_ok() {
            progress.release(sequence);
        }
        // Released before it is told: who is told may freeze the next at once.
        if let Some(on_cut) = on_cut {
            let result = result.and_then(|cut| cut.ok_or_else(|| Error::Closed { place: tools.place.clone() }));
            if let Err(error) = caught(tools, || {
                on_cut(result);
                Ok(())
            }) {
                progress.fail(error);
            }
        }
    }
}

fn work(
    tools: &Tools,
    (layer, changes, timers): (&Layer, &mut Changes, &TimerLayer),
    cut: Option<(PathBuf, Counts, Now)>,
) -> Result<Option<LocalCut>, Error> {
    let start = tools.clock.monotonic();
    tools.backend.write_layer(layer, &tools.forms)?;
    changes.sort();
    tools.backend.write_changes(changes, &tools.forms)?;
    tools.backend.write_timers(tools.timers, timers)?;
    let Some((dir, counts, now)) = cut else { return Ok(None) };
    tools.backend.flush()?;
    let written = tools.clock.monotonic();
    let files = take_cut(tools, &dir).inspect_err(|_| {
        // Whoever looks at the folder must not take half a cut for one; the first error is what matters.
        drop(std::fs::remove_dir_all(&dir));
    })?;
    // Not before: what was alive at the barrier must be in its cut.
    tools.backend.passed(now);
    let end = tools.clock.monotonic();
    let (write, cut) = (written.saturating_sub(start), end.saturating_sub(written));
    Ok(Some(LocalCut { backend: tools.backend.kind(), dir, files, counts, write, cut }))
}

fn take_cut(tools: &Tools, dir: &std::path::Path) -> Result<Vec<super::LocalFile>, Error> {
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Error::file(&tools.place, "create", parent, &error))?;
    }
    tools.backend.cut(dir, &tools.shared)
}

fn caught<T>(tools: &Tools, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message =
            text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned());
        Err(Error::Panicked { place: tools.place.clone(), message })
    })
}
