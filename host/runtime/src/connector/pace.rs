//! How many records a reader may take now, so that a source keeps its `rate`.
//!
//! Owns the even spacing: what a pause left undone is not made up for, but for some milliseconds. Does not wait itself.

use std::num::NonZeroU64;
use std::time::Duration;

use wasmill_core::id::Parallelism;

/// The most that a reader catches up with at once.
const CATCH_UP: Duration = Duration::from_millis(20);
/// The shortest wait: more records at once instead of a wake-up for each.
const LEAST_WAIT: Duration = Duration::from_millis(2);

/// Spaces one subtask's records.
#[derive(Debug)]
pub struct Pace {
    /// Nanoseconds from record to record.
    interval: u128,
    /// When the next record may be taken.
    next: Option<u128>,
}

/// What a reader may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Take so many records, at least one.
    Records(usize),
    /// Ask again after this long.
    Wait(Duration),
}

impl Pace {
    /// For one of `parallelism` subtasks of a source with that many records a second in all.
    #[must_use]
    pub fn new(rate: NonZeroU64, parallelism: Parallelism) -> Self {
        let interval = 1_000_000_000 * u128::from(parallelism.get()) / u128::from(rate.get());
        Self { interval: interval.max(1), next: None }
    }

    /// What may be taken at the monotonic time `now`.
    pub fn allowed(&mut self, now: Duration) -> Allowed {
        let now = now.as_nanos();
        let next = self.next.unwrap_or(now).max(now.saturating_sub(CATCH_UP.as_nanos()));
        self.next = Some(next);
        if now < next {
            let wait = Duration::from_nanos(u64::try_from(next - now).unwrap_or(u64::MAX));
            return Allowed::Wait(wait.max(LEAST_WAIT));
        }
        Allowed::Records(usize::try_from((now - next) / self.interval + 1).unwrap_or(usize::MAX))
    }

    /// So many records were taken.
    pub fn took(&mut self, records: usize) {
        if let Some(next) = &mut self.next {
            *next += self.interval * records as u128;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_all_subtasks_and_pauses_are_not_made_up_for() {
        let mut pace = Pace::new(NonZeroU64::new(20_000).unwrap(), Parallelism::new(2).unwrap());
        let mut taken = 0;
        // One second, asked every 5 ms: half of the rate is this subtask's.
        for millis in (0..1000).step_by(5) {
            if let Allowed::Records(records) = pace.allowed(Duration::from_millis(millis)) {
                assert!(records <= 51, "{records}");
                taken += records;
                pace.took(records);
            }
        }
        assert!((9_900..=10_000).contains(&taken), "{taken}");
        // After ten seconds of pause no more than 20 ms are made up for.
        assert_eq!(pace.allowed(Duration::from_secs(11)), Allowed::Records(201));
    }

    #[test]
    fn a_slow_source_gives_one_record_at_a_time() {
        let mut pace = Pace::new(NonZeroU64::MIN, Parallelism::ONE);
        assert_eq!(pace.allowed(Duration::ZERO), Allowed::Records(1));
        pace.took(1);
        assert_eq!(pace.allowed(Duration::from_millis(400)), Allowed::Wait(Duration::from_millis(600)));
        assert_eq!(pace.allowed(Duration::from_secs(1)), Allowed::Records(1));
    }
}
