//! The only place that reads the clocks.
//!
//! Owns processing time and monotonic time. Everything else is given a [`Clock`], so that a test can hold time in its hand.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use wasmill_core::time::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Processing time: the wall clock's.
    fn now(&self) -> Timestamp;
    /// Time since some fixed point, which never goes back.
    fn monotonic(&self) -> Duration;
}

/// A clock that many hold.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clocks, shared.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clocks")]
    pub fn shared() -> SharedClock {
        Arc::new(Self { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clocks")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    elapsed: Mutex<Duration>,
}

impl ManualClock {
    /// Moves time on.
    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).plus(*self.elapsed.lock())
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.lock()
    }
}
