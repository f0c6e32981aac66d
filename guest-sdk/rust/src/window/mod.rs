//! Windows over event time: which ones a time lies in, and the aggregates of each.
//!
//! Owns the convention: a window is [start, end), fires when the watermark reaches end−1, and is dropped when it reaches
//! end−1 + lateness; a record is late where all its windows are dropped. Does not own aggregates: see [`crate::aggregate`].

mod assign;
#[cfg(feature = "time-zones")]
mod calendar;
mod sessions;
#[cfg(test)]
mod tests;
mod windows;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

pub use assign::{Assign, Sliding, Tumbling};
#[cfg(feature = "time-zones")]
pub use calendar::Calendar;
pub use sessions::{Gap, Sessions};
pub use windows::Windows;

/// A span of event time: `start <= time < end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// The first time that lies in it.
    pub start: Timestamp,
    /// The first time behind it.
    pub end: Timestamp,
}

impl Window {
    /// The last time that lies in it: what it emits when it fires has this time, so that it is not late where it goes.
    #[must_use]
    pub fn last(self) -> Timestamp {
        Timestamp::from_millis(self.end.as_millis() - 1)
    }

    /// Whether a time lies in it.
    #[must_use]
    pub fn contains(self, time: Timestamp) -> bool {
        self.start <= time && time < self.end
    }
}

/// A window of a key and what it holds, as stored: start, end, whether something was added since it fired, and the aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Pane<A>(Timestamp, Timestamp, bool, A);

impl<A> Pane<A> {
    fn window(&self) -> Window {
        Window { start: self.0, end: self.1 }
    }
}
