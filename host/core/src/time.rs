//! Points in time: event time and processing time, in milliseconds since 1970 UTC.
//!
//! Owns the range of times and that arithmetic saturates. Does not read a clock: time comes in as an argument.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time in milliseconds since 1970 UTC, within ±(2^53−1): JavaScript's numbers are exact no further.
///
/// Negative times are ordinary. Arithmetic saturates at [`Timestamp::MIN`] and [`Timestamp::MAX`].
///
/// ```
/// use std::time::Duration;
/// use wasmill_core::time::Timestamp;
/// assert_eq!(Timestamp::from_millis(-5).minus(Duration::from_millis(1)).as_millis(), -6);
/// assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The watermark before the first: nothing is known yet.
    pub const MIN: Self = Self(-((1 << 53) - 1));
    /// The end of time: the watermark at end of input.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The time, clamped to the range.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since 1970 UTC.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Later by `by`, saturating.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(whole_millis(by)))
    }

    /// Earlier by `by`, saturating.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(whole_millis(by)))
    }

    /// Whether a record of this time is late where `watermark` is in force: the one definition of lateness.
    ///
    /// Watermark W says that no record at or before W follows, so a record at W is late. Before the first watermark
    /// ([`Timestamp::MIN`]) none is.
    ///
    /// ```
    /// use wasmill_core::time::Timestamp;
    /// let late = |time, watermark| Timestamp::from_millis(time).is_late(Timestamp::from_millis(watermark));
    /// assert_eq!((late(998, 999), late(999, 999), late(1_000, 999)), (true, true, false));
    /// ```
    #[must_use]
    pub fn is_late(self, watermark: Self) -> bool {
        watermark > Self::MIN && self <= watermark
    }
}

fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self::from_millis)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_arithmetic_on_time_overflows() {
        assert_eq!(Timestamp::from_millis(i64::MIN), Timestamp::MIN);
        assert_eq!(Timestamp::from_millis(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus(Duration::MAX), Timestamp::MIN);
        assert_eq!(Timestamp::MIN.plus(Duration::MAX), Timestamp::MAX);
    }

    #[test]
    fn before_the_first_watermark_nothing_is_late() {
        assert!(!Timestamp::MIN.is_late(Timestamp::MIN));
        assert!(Timestamp::MIN.is_late(Timestamp::from_millis(Timestamp::MIN.as_millis() + 1)));
    }

    proptest! {
        /// Whatever the numbers: the exact sum in 128 bits, cut to the range.
        #[test]
        fn arithmetic_is_exact_within_the_range_and_saturates_at_its_ends(millis: i64, by in any::<Duration>()) {
            let time = Timestamp::from_millis(millis);
            let clamp = |exact: i128| {
                exact.clamp(i128::from(Timestamp::MIN.as_millis()), i128::from(Timestamp::MAX.as_millis()))
            };
            let by_millis = i128::try_from(by.as_millis()).unwrap_or(i128::MAX / 2);
            prop_assert_eq!(i128::from(time.as_millis()), clamp(i128::from(millis)));
            prop_assert_eq!(i128::from(time.plus(by).as_millis()), clamp(i128::from(time.as_millis()) + by_millis));
            prop_assert_eq!(i128::from(time.minus(by).as_millis()), clamp(i128::from(time.as_millis()) - by_millis));
        }

        /// A negative time is a time like any other.
        #[test]
        fn lateness_is_the_same_on_both_sides_of_1970(time in -5_000i64..5_000, watermark in -5_000i64..5_000) {
            let late = Timestamp::from_millis(time).is_late(Timestamp::from_millis(watermark));
            prop_assert_eq!(late, time <= watermark);
        }
    }
}
