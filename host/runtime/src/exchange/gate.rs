//! The input side of a subtask: its channels, read in turn, aligned at barriers.
//!
//! Owns which channel is read next and that a blocked one is never read (I3), the combined watermark, and when the subtask falls
//! idle as a whole. What alignment and watermarks mean is decided in `core::align` and `core::watermark`.

use std::time::Duration;

use wasmill_core::align::{Alignment, Step};
use wasmill_core::element::{Barrier, Element, Stamp};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::CheckpointId;
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;
use wasmill_core::watermark::CombinedWatermark;

use super::channel::Receiver;
use crate::clock::Clock;

/// One channel into the subtask.
#[derive(Debug)]
pub struct InputChannel {
    /// The index of the operator's input that the channel feeds; of the channel from its merging subtask of no weight.
    pub input: u16,
    /// What becomes of late records that come by it.
    pub on_late: OnLate,
    /// The receiving end.
    pub receiver: Receiver,
}

/// What becomes of a record whose time is at or before the watermark in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLate {
    /// The guest gets it like any other.
    #[default]
    Pass,
    /// It is left out and counted.
    Drop,
    /// It goes, as it came, to one of the subtask's late outputs.
    Output(usize),
}

/// What the gate has for the subtask.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every event is a batch: a box would be one more allocation for each"
)]
pub enum Event {
    /// Records (or only watermarks) from a channel.
    Records {
        /// The channel, for [`Gate::advance`].
        channel: usize,
        /// The operator's input.
        input: u16,
        /// Where they come from the merging subtask: the times that it gave them.
        stamp: Option<Stamp>,
        /// The records.
        batch: RecordBatch,
    },
    /// Every channel has delivered this barrier; all are blocked until [`Gate::unblock`].
    Barrier(Barrier),
    /// The checkpoint can no longer complete here.
    Declined(CheckpointId),
    /// A channel fell idle and thereby the combined watermark advanced.
    Watermark(Timestamp),
    /// All channels that have not ended are idle.
    Idle,
    /// After [`Event::Idle`]: a channel is active again.
    Active,
}

/// The input side of a subtask.
#[derive(Debug)]
pub struct Gate {
    channels: Vec<InputChannel>,
    alignment: Alignment,
    watermark: CombinedWatermark,
    next: usize,
    completed: Option<Barrier>,
    /// Whether the subtask was last told that all is idle.
    told_idle: bool,
    /// When the first barrier of the checkpoint being aligned arrived.
    aligning_since: Option<Duration>,
}

impl Gate {
    /// A gate over `channels` whose combined watermark goes on from `watermark`, that of the restored checkpoint;
    /// [`Timestamp::MIN`] where nothing was restored.
    #[must_use]
    pub fn new(channels: Vec<InputChannel>, watermark: Timestamp) -> Self {
        let count = channels.len();
        Self {
            channels,
            alignment: Alignment::new(count),
            watermark: CombinedWatermark::resumed(count, watermark),
            next: 0,
            completed: None,
            told_idle: false,
            aligning_since: None,
        }
    }

    /// What came next, if anything is there. Channels are read in turn.
    ///
    /// # Errors
    /// An internal fault where barriers break their order.
    pub fn poll(&mut self, clock: &dyn Clock) -> Result<Option<Event>, Fault> {
        if let Some(barrier) = self.completed.take() {
            return Ok(Some(Event::Barrier(barrier)));
        }
        let count = self.channels.len();
        let mut empty = 0;
        while empty < count {
            if let Some(event) = self.idleness() {
                return Ok(Some(event));
            }
            let channel = self.next;
            self.next = if channel + 1 == count { 0 } else { channel + 1 };
            if self.alignment.is_blocked(channel) {
                empty += 1;
                continue;
            }
            match self.channels[channel].receiver.receive() {
                None => empty += 1,
                Some(element) => match self.take(channel, element, clock)? {
                    Some(event) => return Ok(Some(event)),
                    None => empty = 0,
                },
            }
        }
        Ok(self.idleness())
    }

    /// What the subtask has not been told of its idleness.
    fn idleness(&mut self) -> Option<Event> {
        let idle = self.watermark.all_idle();
        let changed = std::mem::replace(&mut self.told_idle, idle) != idle;
        changed.then_some(if idle { Event::Idle } else { Event::Active })
    }

    /// The channel's watermark became `watermark`. Returns the combined one if it advanced.
    pub fn advance(&mut self, channel: usize, watermark: Timestamp) -> Option<Timestamp> {
        self.watermark.advance(channel, watermark)
    }

    /// The barrier's cut is made: all channels are open again. Returns how long alignment took up to `now`.
    pub fn unblock(&mut self, now: Duration) -> Duration {
        self.alignment.unblock();
        self.aligning_since.take().map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// What becomes of late records of the channel.
    #[must_use]
    pub fn on_late(&self, channel: usize) -> OnLate {
        self.channels[channel].on_late
    }

    /// The combined watermark.
    #[must_use]
    pub fn watermark(&self) -> Timestamp {
        self.watermark.current()
    }

    fn take(&mut self, channel: usize, element: Element, clock: &dyn Clock) -> Result<Option<Event>, Fault> {
        match element {
            Element::Records(batch) => {
                Ok(Some(Event::Records { channel, input: self.channels[channel].input, stamp: None, batch }))
            }
            Element::Merged { input, stamp, records } => {
                Ok(Some(Event::Records { channel, input, stamp: Some(stamp), batch: records }))
            }
            Element::Barrier(barrier) => {
                self.aligning_since.get_or_insert_with(|| clock.monotonic());
                self.take_barrier(channel, barrier)
            }
            Element::Idle => Ok(self.watermark.idle(channel).map(Event::Watermark)),
            Element::Active => {
                self.watermark.active(channel);
                Ok(None)
            }
        }
    }

    fn take_barrier(&mut self, channel: usize, barrier: Barrier) -> Result<Option<Event>, Fault> {
        match self.alignment.on_barrier(channel, barrier) {
            Step::Block { superseded, .. } => Ok(superseded.map(Event::Declined)),
            Step::Complete { barrier, superseded: None } => Ok(Some(Event::Barrier(barrier))),
            Step::Complete { barrier, superseded: Some(older) } => {
                self.completed = Some(barrier);
                Ok(Some(Event::Declined(older)))
            }
            Step::Stale(barrier) => Ok(Some(Event::Declined(barrier.checkpoint))),
            Step::Violation(violation) => {
                Err(Fault::new(FaultKind::Internal, format_args!("barriers out of order: {violation}")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
