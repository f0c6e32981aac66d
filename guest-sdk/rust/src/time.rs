//! Points in time as the guest sees them: milliseconds since 1970 UTC.
//!
//! Owns their range and that arithmetic saturates. Reads no clock: time is given with each call.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time in milliseconds since 1970 UTC, within ±(2^53−1). Written as that integer.
///
/// Negative times are ordinary. Arithmetic saturates at [`Timestamp::MIN`] and [`Timestamp::MAX`].
///
/// ```
/// use std::time::Duration;
/// use wasmill_guest::Timestamp;
/// assert_eq!(Timestamp::from_millis(-5).minus(Duration::from_millis(1)).as_millis(), -6);
/// assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before every record: the watermark at the start.
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
