//! The only place that starts threads and tasks.
//!
//! Owns that a panic in one is caught, logged once and, of a thread, told to whoever joins. Does not own what the caller
//! does then: a job whose thread panicked fails whole.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use futures::FutureExt;
use tokio::runtime::Handle;
use wasmill_core::fault::{Fault, FaultKind};

/// A thread's stack, in bytes: room for a guest's stack and the host's frames around it. Only touched pages take memory.
pub const STACK_BYTES: usize = 8 * 1024 * 1024;

/// A running thread. Dropping it lets the thread run on by itself.
#[derive(Debug)]
pub struct Thread<T> {
    name: String,
    handle: JoinHandle<Result<T, Fault>>,
}

/// Starts a thread.
///
/// # Errors
/// When the system has no room for another thread.
pub fn thread<T, F>(name: impl Into<String>, run: F) -> Result<Thread<T>, Fault>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let name = name.into();
    let inner = name.clone();
    Builder::new()
        .name(name.clone())
        .stack_size(STACK_BYTES)
        .spawn(move || catch_unwind(AssertUnwindSafe(run)).map_err(|panic| panicked(&inner, panic.as_ref())))
        .map(|handle| Thread { name: name.clone(), handle })
        .map_err(|error| Fault::new(FaultKind::External, format!("cannot start the thread `{name}`: {error}")))
}

/// Runs another crate's code on untrusted input here and now, so that a panic in it is a fault of this input alone.
///
/// # Errors
/// A fault of kind `Internal` when it panicked.
pub fn guarded<T>(what: &str, run: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| panicked(what, panic.as_ref()))
}

/// Starts a task that nobody waits for.
pub fn task<F>(runtime: &Handle, run: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    runtime.spawn(async move {
        if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
            panicked("task", panic.as_ref());
        }
    });
}

impl<T> Thread<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// A fault of kind `Internal` when the thread panicked.
    pub fn join(self) -> Result<T, Fault> {
        self.handle.join().unwrap_or_else(|panic| Err(panicked(&self.name, panic.as_ref())))
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The thread's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn panicked(thread: &str, panic: &(dyn Any + Send)) -> Fault {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(thread, message, "a thread panicked: this is a bug of wasmill");
    Fault::new(FaultKind::Internal, format!("the thread `{thread}` panicked: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_thread_is_told_to_whoever_joins() {
        let fault = thread("sad", || -> u32 { panic!("no {}", "luck") }).unwrap().join().unwrap_err();
        assert_eq!(fault, Fault::new(FaultKind::Internal, "the thread `sad` panicked: no luck"));
        assert_eq!(thread("glad", || 7).unwrap().join(), Ok(7));
    }
}
