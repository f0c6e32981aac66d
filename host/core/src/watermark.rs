//! The watermark of a subtask, combined from its channels.
//!
//! Owns I9 (watermarks never go back), that an idle or ended channel holds nothing back, and that time ends only where every
//! channel has ended. Does not make watermarks from records.

use crate::time::Timestamp;

/// Combines the watermarks of a subtask's channels: the least of those that are neither idle nor ended.
///
/// A channel ends with the watermark [`Timestamp::MAX`]. Where the last that has not ended falls idle, time comes to the greatest of
/// theirs, which nobody holds back any more, whichever fell idle first, and stands still: they may go on. Where all have ended, it
/// is the end of time.
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

impl Channel {
    fn has_ended(self) -> bool {
        self.watermark == Timestamp::MAX
    }
}

impl CombinedWatermark {
    /// With `channels` channels, all at [`Timestamp::MIN`].
    #[must_use]
    pub fn new(channels: usize) -> Self {
        Self::resumed(channels, Timestamp::MIN)
    }

    /// After a restore: no channel has said anything yet, and the combined watermark is what it was at the cut. One that had
    /// come to the end of time begins anew, since there is input again.
    #[must_use]
    pub fn resumed(channels: usize, watermark: Timestamp) -> Self {
        let current = if watermark == Timestamp::MAX { Timestamp::MIN } else { watermark };
        Self { channels: vec![Channel { watermark: Timestamp::MIN, idle: false }; channels], current }
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
        if !self.all_idle() {
            return self.combine();
        }
        let open = self.channels.iter().filter(|channel| !channel.has_ended());
        let greatest = open.map(|channel| channel.watermark).max();
        greatest.and_then(|greatest| self.reach(greatest))
    }

    /// The channel is no longer idle: its watermark holds the others back again.
    ///
    /// # Panics
    /// Where the channel does not exist.
    pub fn active(&mut self, channel: usize) {
        self.channels[channel].idle = false;
    }

    /// Whether every channel that has not ended is idle, and there is one.
    #[must_use]
    pub fn all_idle(&self) -> bool {
        let mut open = self.channels.iter().filter(|channel| !channel.has_ended()).peekable();
        open.peek().is_some() && open.all(|channel| channel.idle)
    }

    fn combine(&mut self) -> Option<Timestamp> {
        let ended = !self.channels.is_empty() && self.channels.iter().all(|channel| channel.has_ended());
        let waited_for = self.channels.iter().filter(|channel| !channel.idle && !channel.has_ended());
        let least = waited_for.map(|channel| channel.watermark).min().or(ended.then_some(Timestamp::MAX))?;
        self.reach(least)
    }

    fn reach(&mut self, watermark: Timestamp) -> Option<Timestamp> {
        // `>`: a channel that wakes up behind the others must not turn time back.
        (watermark > self.current).then(|| {
            self.current = watermark;
            watermark
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn it_does_not_matter_which_channel_falls_idle_first() {
        for order in [[0, 1], [1, 0]] {
            let mut combined = CombinedWatermark::new(2);
            combined.advance(0, at(10));
            for channel in order {
                combined.idle(channel);
            }
            assert_eq!(combined.current(), at(10), "{order:?}");
        }
    }

    #[test]
    fn a_channel_that_wakes_up_holds_the_others_back_again() {
        let mut combined = CombinedWatermark::new(2);
        combined.advance(1, at(5));
        combined.idle(1);
        assert_eq!(combined.advance(0, at(10)), Some(at(10)));
        combined.active(1);
        assert_eq!(combined.advance(0, at(20)), None);
        assert_eq!(combined.advance(1, at(15)), Some(at(15)));
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

    #[test]
    fn time_ends_only_where_every_channel_has_ended() {
        let mut combined = CombinedWatermark::new(2);
        combined.advance(1, at(5));
        assert_eq!(combined.idle(1), None);
        // The idle one may go on: the end of the other is not the end of time.
        assert_eq!(combined.advance(0, Timestamp::MAX), None);
        assert!(combined.all_idle());
        combined.active(1);
        assert_eq!(combined.advance(1, at(7)), Some(at(7)));
        assert_eq!(combined.advance(1, Timestamp::MAX), Some(Timestamp::MAX));
        assert!(!combined.all_idle());
    }

    #[test]
    fn a_restored_watermark_is_kept_until_the_channels_pass_it() {
        let mut combined = CombinedWatermark::resumed(2, at(10));
        assert_eq!(combined.advance(0, at(8)), None);
        assert_eq!(combined.advance(1, at(9)), None);
        assert_eq!(combined.current(), at(10));
        combined.advance(0, at(12));
        assert_eq!(combined.advance(1, at(11)), Some(at(11)));
        assert_eq!(CombinedWatermark::resumed(1, Timestamp::MAX).current(), Timestamp::MIN);
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Advance(usize, i64),
        Idle(usize),
        Active(usize),
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let channel = 0usize..3;
        prop_oneof![
            6 => (channel.clone(), any::<i64>()).prop_map(|(channel, to)| Step::Advance(channel, to)),
            4 => (channel.clone(), -50i64..50).prop_map(|(channel, to)| Step::Advance(channel, to)),
            3 => channel.clone().prop_map(Step::Idle),
            3 => channel.clone().prop_map(Step::Active),
            1 => channel.prop_map(Step::End),
        ]
    }

    proptest! {
        /// I9, and that no channel which counts is ever overtaken by an advance.
        #[test]
        fn an_advance_rises_and_overtakes_no_channel_that_counts(steps in prop::collection::vec(step(), 0..60)) {
            let mut combined = CombinedWatermark::new(3);
            let mut channels = [(Timestamp::MIN, false); 3];
            let mut before = Timestamp::MIN;
            for step in steps {
                let advanced = match step {
                    Step::Advance(channel, to) => {
                        let to = at(to).min(Timestamp::MAX.minus(std::time::Duration::from_millis(1)));
                        channels[channel] = (channels[channel].0.max(to), false);
                        combined.advance(channel, to)
                    }
                    Step::End(channel) => {
                        channels[channel] = (Timestamp::MAX, false);
                        combined.advance(channel, Timestamp::MAX)
                    }
                    Step::Idle(channel) => {
                        channels[channel].1 = true;
                        combined.idle(channel)
                    }
                    Step::Active(channel) => {
                        channels[channel].1 = false;
                        combined.active(channel);
                        None
                    }
                };
                if let Some(advanced) = advanced {
                    prop_assert!(advanced > before);
                    prop_assert!(channels.iter().all(|&(watermark, idle)| idle || advanced <= watermark));
                    prop_assert_eq!(
                        advanced == Timestamp::MAX,
                        channels.iter().all(|&(watermark, _)| watermark == Timestamp::MAX)
                    );
                }
                prop_assert!(combined.current() >= before);
                before = combined.current();
            }
        }
    }
}
