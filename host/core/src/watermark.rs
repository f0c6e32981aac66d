//! The watermark of a subtask, combined from its channels.
//!
//! Owns I9 (watermarks never go back) and that an idle or ended channel holds nothing back. Does not make watermarks from records.

use crate::time::Timestamp;

/// Combines the watermarks of a subtask's channels: the least of those that are neither idle nor ended.
#[derive(Debug, Clone)]
pub struct CombinedWatermark {
    channels: Vec<Channel>,
    current: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Channel {
    watermark: Timestamp,
    idle: bool,
}

impl CombinedWatermark {
    /// With `channels` channels, all at [`Timestamp::MIN`].
    #[must_use]
    pub fn new(channels: usize) -> Self {
        Self { channels: vec![Channel { watermark: Timestamp::MIN, idle: false }; channels], current: Timestamp::MIN }
    }

    /// The combined watermark.
    #[must_use]
    pub fn current(&self) -> Timestamp {
        self.current
    }

    /// The channel's watermark became `watermark` (the channel is active again). Returns the combined one if it advanced.
    ///
    /// # Panics
    /// Where the channel does not exist.
    pub fn advance(&mut self, channel: usize, watermark: Timestamp) -> Option<Timestamp> {
        let state = &mut self.channels[channel];
        state.watermark = state.watermark.max(watermark);
        state.idle = false;
        self.combine()
    }

    /// The channel became idle. Returns the combined watermark if that let it advance.
    ///
    /// # Panics
    /// Where the channel does not exist.
    pub fn idle(&mut self, channel: usize) -> Option<Timestamp> {
        self.channels[channel].idle = true;
        self.combine()
    }

    /// Whether every channel is idle.
    #[must_use]
    pub fn all_idle(&self) -> bool {
        self.channels.iter().all(|channel| channel.idle)
    }

    fn combine(&mut self) -> Option<Timestamp> {
        let least = self.channels.iter().filter(|channel| !channel.idle).map(|channel| channel.watermark).min()?;
        // `>`: a channel that wakes up behind the others must not turn time back.
        (least > self.current).then(|| {
            self.current = least;
            least
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_slowest_channel_decides_until_it_is_idle() {
        let mut combined = CombinedWatermark::new(2);
        assert_eq!(combined.advance(0, at(10)), None);
        assert_eq!(combined.advance(1, at(5)), Some(at(5)));
        assert_eq!(combined.idle(1), Some(at(10)));
    }

    #[test]
    fn a_watermark_never_goes_back() {
        let mut combined = CombinedWatermark::new(2);
        combined.idle(1);
        assert_eq!(combined.advance(0, at(10)), Some(at(10)));
        assert_eq!(combined.advance(1, at(3)), None);
        assert_eq!(combined.current(), at(10));
        assert_eq!(combined.advance(0, at(4)), None);
        assert_eq!(combined.current(), at(10));
    }
}
