//! The engine: wasmtime's configuration and the clock that stops guests.
//!
//! Owns which WebAssembly is accepted, how it is compiled, and the ticker thread by which a call's time limit holds even for
//! a guest that never yields. Does not own loading ([`super::load`]) nor calls ([`super::instance`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use wasmtime::{Config, InstanceAllocationStrategy, OptLevel};

use super::compile_cache::CompileCache;
use super::load::Error;
use crate::clock::{SharedClock, SystemClock};
use crate::spawn;

/// How far apart the ticks are by which calls are timed.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Most ticks made up for at once after the ticker was held up. A process that was stopped and goes on must not find all its
/// guests timed out; a ticker that is merely starved of CPU must not let them overrun by much.
pub(super) const CATCH_UP: u64 = 20;

/// Stack for a guest's own frames, in bytes. A thread that calls guests needs twice that ([`spawn::STACK_BYTES`] is more).
const WASM_STACK_BYTES: usize = 1 << 20;

/// How an engine is made.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The folder where compiled components are kept, by digest, engine and configuration; made if it is missing, readable
    /// by this user alone. `None`: each load compiles. A folder that cannot be used is a warning, not an error.
    pub cache_dir: Option<PathBuf>,
}

/// Compiles and runs components. A cheap handle; the ticker thread ends with the last handle, component and instance.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    cache: Option<CompileCache>,
    ticker: Arc<Ticker>,
}

impl Engine {
    /// Makes an engine and starts its ticker.
    ///
    /// # Errors
    /// A processor that wasmtime does not support, or no room for the ticker's thread.
    pub fn new(options: EngineOptions) -> Result<Self, Error> {
        let wasmtime = wasmtime::Engine::new(&config()).map_err(|error| Error::Engine(format!("{error:#}")))?;
        let ticker = Arc::new(Ticker::new(SystemClock::shared()));
        let (ticks, weak) = (Arc::clone(&ticker), wasmtime.weak());
        spawn::thread("guest-ticker", move || ticks.run(&weak)).map_err(|fault| Error::Engine(fault.message))?;
        let cache = options.cache_dir.map(|dir| CompileCache::new(dir, &wasmtime));
        Ok(Self { inner: Arc::new(Inner { wasmtime, cache, ticker }) })
    }

    pub(super) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(super) fn cache(&self) -> Option<&CompileCache> {
        self.inner.cache.as_ref()
    }

    /// How many ticks from now a call that begins now is stopped: never early, and late by two ticks at most unless the ticker is
    /// held up. Ticks that are due and still to come were before the call.
    pub(super) fn deadline(&self, limit: Duration) -> u64 {
        ticks_for(limit) + self.inner.ticker.overdue()
    }

    /// Ticks since the engine was made: a clock that costs a load to read.
    pub(super) fn ticks(&self) -> u64 {
        self.inner.ticker.ticks.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("ticks", &self.ticks()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        *self.ticker.stopped.lock() = true;
        self.ticker.wake.notify_all();
    }
}

/// When the call under way is over, for what the host does on its behalf: the epoch stops the guest's own code alone.
#[derive(Debug)]
pub(super) struct Deadline {
    engine: Engine,
    tick: u64,
}

impl Deadline {
    /// Of a call that begins now and may take so many ticks.
    pub(super) fn after(engine: &Engine, ticks: u64) -> Self {
        Self { engine: engine.clone(), tick: engine.ticks().saturating_add(ticks) }
    }

    /// Whether it has passed; costs a load.
    pub(super) fn has_passed(&self) -> bool {
        self.engine.ticks() >= self.tick
    }
}

/// How many ticks make up a limit: with one more, as the first is under way.
fn ticks_for(limit: Duration) -> u64 {
    let ticks = limit.as_nanos().div_ceil(TICK.as_nanos());
    // Far from the end of u64, where the engine's deadline would wrap.
    u64::try_from(ticks).unwrap_or(u64::MAX).min(u64::MAX >> 2) + 1
}

/// On demand rather than pooled: instances live for the life of a job, so that making one need not be fast, and a pool
/// would fix the number of core instances beforehand (a Python component has 38, one in C has 3).
fn config() -> Config {
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .memory_init_cow(true)
        .parallel_compilation(true)
        .cranelift_opt_level(OptLevel::Speed)
        // A replay after a restart must give the same bytes, on another machine too.
        .relaxed_simd_deterministic(true)
        // Function names suffice, and line tables cost load time and memory.
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    config
}

struct Ticker {
    clock: SharedClock,
    ticks: AtomicU64,
    /// When the next tick is due, in nanoseconds of the monotonic clock.
    due: AtomicU64,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Ticker {
    fn new(clock: SharedClock) -> Self {
        let due = AtomicU64::new(nanos(clock.monotonic() + TICK));
        Self { clock, ticks: AtomicU64::new(0), due, stopped: Mutex::default(), wake: Condvar::new() }
    }

    /// How many ticks should have come by now and have not.
    fn overdue(&self) -> u64 {
        let late = nanos(self.clock.monotonic()).checked_sub(self.due.load(Ordering::Acquire));
        late.map_or(0, |late| (late / nanos(TICK) + 1).min(CATCH_UP))
    }

    fn run(&self, engine: &wasmtime::EngineWeak) {
        let clock = &self.clock;
        let mut due = clock.monotonic() + TICK;
        let mut stopped = self.stopped.lock();
        while !*stopped {
            self.wake.wait_for(&mut stopped, due.saturating_sub(clock.monotonic()));
            let now = clock.monotonic();
            let mut made_up = 0;
            while due <= now && made_up < CATCH_UP {
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
                self.ticks.fetch_add(1, Ordering::Relaxed);
                due += TICK;
                made_up += 1;
            }
            if due <= now {
                due = now + TICK;
            }
            // After the ticks: whoever reads the old one counts some of them twice, and is late, not early.
            self.due.store(nanos(due), Ordering::Release);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_call_gets_its_time_in_full() {
        assert_eq!(ticks_for(Duration::from_millis(200)), 41);
        assert_eq!(ticks_for(Duration::from_millis(201)), 42);
        assert_eq!(ticks_for(Duration::ZERO), 1);
        assert!(ticks_for(Duration::MAX) < u64::MAX >> 1);
    }

    #[test]
    fn ticks_that_are_due_before_a_call_do_not_count_against_it() {
        let clock = Arc::new(ManualClock::default());
        let ticker = Ticker::new(Arc::clone(&clock) as SharedClock);
        let after = |by: Duration| {
            clock.advance(by);
            ticker.overdue()
        };
        assert_eq!([after(TICK / 2), after(TICK / 2), after(TICK * 2), after(TICK * 1000)], [0, 1, 3, CATCH_UP]);
    }

    #[test]
    fn the_ticker_ends_with_the_last_handle() {
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let ticker = Arc::clone(&engine.inner.ticker);
        drop(engine.clone());
        assert!(!*ticker.stopped.lock());
        drop(engine);
        assert!(*ticker.stopped.lock());
    }
}
