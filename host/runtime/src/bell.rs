//! Wakes a subtask's thread: something arrived, or room was made.
//!
//! Owns one bit and the wait for it. Whoever rings does not say why; the woken thread looks at its mailbox and channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A cheap clone rings the same bell.
#[derive(Debug, Clone, Default)]
pub struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rung: AtomicBool,
    lock: Mutex<()>,
    waiting: Condvar,
}

impl Bell {
    /// Wakes the thread that waits, or lets its next wait return at once.
    pub fn ring(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            // The lock closes the gap between a waiter's look at `rung` and its sleep.
            let _held = self.0.lock.lock();
            self.0.waiting.notify_one();
        }
    }

    /// Waits until the bell rings, `timeout` at most. One thread waits on a bell.
    pub fn wait(&self, timeout: Duration) {
        let mut held = self.0.lock.lock();
        if !self.0.rung.load(Ordering::Acquire) {
            self.0.waiting.wait_for(&mut held, timeout);
        }
        self.0.rung.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let bell = Bell::default();
        bell.ring();
        bell.wait(Duration::from_secs(3600));
    }
}
