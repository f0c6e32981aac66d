//! Which windows a time lies in.
//!
//! Owns tumbling and sliding windows of one size. Windows of other shapes implement [`Assign`], as the days of a time zone do.

use std::time::Duration;

use super::Window;
use crate::time::Timestamp;

/// Says in which windows a time lies. The answer for a time must always be the same, and windows with one end must have one start.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::Timestamp;
/// use wasmill_guest::window::{Assign, Window};
///
/// /// Everything before and after noon of the first of January 2000.
/// struct Halves;
/// impl Assign for Halves {
///     fn each(&self, time: Timestamp, visit: &mut dyn FnMut(Window)) {
///         let noon = Timestamp::from_millis(946_728_000_000);
///         let window = match time < noon {
///             true => Window { start: Timestamp::MIN, end: noon },
///             false => Window { start: noon, end: Timestamp::MAX },
///         };
///         visit(window);
///     }
/// }
/// ```
pub trait Assign {
    /// Shows each window that `time` lies in, ascending.
    fn each(&self, time: Timestamp, visit: &mut dyn FnMut(Window));

    /// How long after a window has fired records still change it, and it fires again. Zero unless said otherwise.
    fn lateness(&self) -> Duration {
        Duration::ZERO
    }
}

/// Windows of one size, one behind the other.
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::Timestamp;
/// use wasmill_guest::window::{Assign, Tumbling};
///
/// /// Days in a zone one hour ahead of UTC: they begin at 23:00 UTC.
/// const DAYS: Tumbling = Tumbling::of(Duration::from_hours(24)).offset_millis(-3_600_000);
/// let mut seen = Vec::new();
/// DAYS.each(Timestamp::from_millis(0), &mut |window| seen.push(window.start.as_millis()));
/// assert_eq!(seen, [-3_600_000]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tumbling(Sliding);

impl Tumbling {
    /// Windows of this size; one under a millisecond counts as a millisecond.
    #[must_use]
    pub const fn of(size: Duration) -> Self {
        Self(Sliding::of(size, size))
    }

    /// Begins them so many milliseconds after 1970 UTC, or before. A zone ahead of UTC needs a negative offset.
    #[must_use]
    pub const fn offset_millis(self, offset: i64) -> Self {
        Self(self.0.offset_millis(offset))
    }

    /// Lets late records change a window for so long after it has fired.
    #[must_use]
    pub const fn lateness(self, lateness: Duration) -> Self {
        Self(self.0.lateness(lateness))
    }
}

impl Assign for Tumbling {
    fn each(&self, time: Timestamp, visit: &mut dyn FnMut(Window)) {
        self.0.each(time, visit);
    }
    fn lateness(&self) -> Duration {
        Assign::lateness(&self.0)
    }
}

/// Windows of one size that begin every so often, also called hopping: a time lies in several of them, or in none where they
/// begin less often than their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sliding {
    size: i64,
    slide: i64,
    offset: i64,
    lateness: Duration,
}

impl Sliding {
    /// Windows of this size that begin every `slide`; less than a millisecond counts as a millisecond.
    #[must_use]
    pub const fn of(size: Duration, slide: Duration) -> Self {
        Self { size: at_least_one(size), slide: at_least_one(slide), offset: 0, lateness: Duration::ZERO }
    }

    /// Begins them so many milliseconds after 1970 UTC, or before.
    #[must_use]
    pub const fn offset_millis(mut self, offset: i64) -> Self {
        self.offset = Timestamp::from_millis(offset).as_millis();
        self
    }

    /// Lets late records change a window for so long after it has fired.
    #[must_use]
    pub const fn lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }
}

impl Assign for Sliding {
    fn each(&self, time: Timestamp, visit: &mut dyn FnMut(Window)) {
        let time = time.as_millis();
        // The newest window that begins at or before the time; rounded down for negative times, too.
        let newest = time - (time - self.offset).rem_euclid(self.slide);
        let count = (self.size - (time - newest) + self.slide - 1).max(0) / self.slide;
        for back in (0..count).rev() {
            let start = newest.saturating_sub(back.saturating_mul(self.slide));
            let end = start.saturating_add(self.size);
            visit(Window { start: Timestamp::from_millis(start), end: Timestamp::from_millis(end) });
        }
    }

    fn lateness(&self) -> Duration {
        self.lateness
    }
}

/// Milliseconds of a size: from 1 to the length of all time.
const fn at_least_one(size: Duration) -> i64 {
    let millis = size.as_millis();
    let longest = Timestamp::MAX.as_millis();
    if millis == 0 {
        1
    } else if millis > longest as u128 {
        longest
    } else {
        millis as i64
    }
}
