//! What a component on trial is given beyond the contract, and the clock that it then reads.
//!
//! Owns that a granted clock is the case's, moved by its steps alone. Does not own what a grant gives ([`crate::guest`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmill_core::time::Timestamp;

use crate::clock::{Clock, ManualClock, SharedClock};
use crate::config::{Grant, Wasi};
use crate::guest::{Component, Engine, Error, Grants};

/// What is granted, as `grants` and `wasi` of an operator in a pipeline file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// What the component is given.
    pub grants: BTreeSet<Grant>,
    /// What becomes of what it imports from WASI 0.2 and is not given.
    pub wasi: Wasi,
}

impl Granted {
    /// What either grants.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let wasi = if self.wasi == Wasi::Deny { self.wasi } else { other.wasi };
        Self { grants: self.grants.union(&other.grants).copied().collect(), wasi }
    }
}

/// A component that is tried.
#[derive(Clone)]
pub struct Tried {
    pub(super) component: Component,
    pub(super) clock: Arc<CaseClock>,
}

impl Tried {
    /// Loads the component in a file with what it is granted.
    ///
    /// # Errors
    /// As [`Engine::load_granted`].
    pub fn load(engine: &Engine, file: &Path, granted: &Granted) -> Result<Self, Error> {
        let clock = Arc::new(CaseClock::default());
        let shared = Arc::clone(&clock) as SharedClock;
        let grants = Grants {
            clock: granted.grants.contains(&Grant::Clock).then_some(shared),
            random: granted.grants.contains(&Grant::Random),
            wasi: granted.wasi,
        };
        Ok(Self { component: engine.load_granted(file, &grants)?, clock })
    }
}

/// The clock of the case that runs: a component is loaded once, and each run has a clock of its own.
#[derive(Default)]
pub(super) struct CaseClock(Mutex<Arc<ManualClock>>);

impl CaseClock {
    /// Shows what `clock` shows from now on.
    pub(super) fn follow(&self, clock: &Arc<ManualClock>) {
        *self.0.lock() = Arc::clone(clock);
    }
}

impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        self.0.lock().now()
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_and_the_command_line_grant_adds_up() {
        let granted = |grants: &[Grant], wasi| Granted { grants: grants.iter().copied().collect(), wasi };
        let file = granted(&[Grant::Clock], Wasi::Refuse);
        let line = granted(&[Grant::Random], Wasi::Deny);
        let both = granted(&Grant::ALL, Wasi::Deny);
        assert_eq!((file.and(&line), line.and(&file)), (both.clone(), both));
        assert_eq!(file.and(&Granted::default()), file);
    }

    #[test]
    fn a_granted_clock_is_that_of_the_case_that_runs() {
        let clock = CaseClock::default();
        let case = Arc::new(ManualClock::default());
        clock.follow(&case);
        case.advance(Duration::from_millis(7));
        assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_millis(7), Duration::from_millis(7)));
        clock.follow(&Arc::default());
        assert_eq!(clock.now(), Timestamp::from_millis(0));
    }
}
