//! Makes a source's watermarks, split by split: from the times of its records, or from what they say themselves.
//!
//! Owns the strategies and where marks lie: after fixed numbers of records or steps of event time, or where a record says so,
//! never where a batch happens to end. The clock serves idleness alone. Does not know other subtasks.

use std::time::Duration;

use wasmill_core::checkpoint::manifest;
use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

/// Records of a split after which its watermark is looked at again.
const EVERY_RECORDS: u32 = 1024;
/// Event time after which a split's watermark is looked at again.
const EVERY_MILLIS: Duration = Duration::from_millis(100);
/// The least step of event time: watermark W means that no record at or before W follows.
const TICK: Duration = Duration::from_millis(1);

/// From what watermarks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// There are none: no split counts.
    None,
    /// From the greatest time read, less this, less 1 ms.
    Times(Duration),
    /// From the marks that records bring with them.
    Marks,
}

/// The watermark of one source subtask.
#[derive(Debug)]
pub(super) struct SourceWatermark {
    strategy: Strategy,
    idle_after: Option<Duration>,
    splits: Vec<Split>,
    current: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Split {
    /// The greatest time read; none before the first record.
    latest: Option<Timestamp>,
    watermark: Timestamp,
    since: u32,
    /// Since when there has been nothing to read.
    waiting_since: Option<Duration>,
}

impl SourceWatermark {
    /// A split with nothing to read for `idle_after` holds nothing back.
    pub(super) fn new(strategy: Strategy, idle_after: Option<Duration>) -> Self {
        Self { strategy, idle_after, splits: Vec::new(), current: Timestamp::MIN }
    }

    /// Makes room for `open` splits; those that are new go on from where `restored` says that they were.
    pub(super) fn open<'a>(&mut self, open: usize, restored: impl Fn(usize) -> Option<&'a manifest::Split>) {
        for split in self.splits.len()..open {
            let (watermark, latest, since) = restored(split)
                .map_or((Timestamp::MIN, None, 0), |restored| (restored.watermark, restored.latest, restored.since));
            self.splits.push(Split { latest, watermark, since, waiting_since: None });
        }
    }

    /// Looks at the records of `batch`, all of `split`, and puts the marks between them.
    pub(super) fn observe(&mut self, split: usize, batch: &mut RecordBatch, now: Duration) {
        let said = std::mem::take(&mut batch.marks);
        let Some(state) = self.splits.get_mut(split) else { return };
        state.waiting_since = None;
        let mut said = said.into_iter().peekable();
        for record in 0..batch.times.len() {
            let Some(state) = self.splits.get_mut(split) else { return };
            state.since = state.since.saturating_add(1);
            let after = record as u32 + 1;
            let next = match self.strategy {
                Strategy::None => None,
                Strategy::Times(out_of_order) => state.by_time(batch.times[record], out_of_order),
                Strategy::Marks => said.next_if(|mark| mark.after <= after).and_then(|mark| state.by_mark(mark)),
            };
            let Some(next) = next else { continue };
            state.watermark = next;
            state.since = 0;
            if let Some(watermark) = self.combine(now) {
                batch.marks.push(WatermarkMark { after, watermark });
            }
        }
    }

    /// Which splits have nothing to read, as the reader found.
    pub(super) fn waiting(&mut self, now: Duration, is_waiting: impl Fn(usize) -> bool) {
        for (index, split) in self.splits.iter_mut().enumerate() {
            split.waiting_since = is_waiting(index).then(|| split.waiting_since.unwrap_or(now));
        }
    }

    /// The source itself had to wait this long: no split was silent in that time.
    pub(super) fn paused(&mut self, waited: Duration) {
        for since in self.splits.iter_mut().filter_map(|split| split.waiting_since.as_mut()) {
            *since = since.saturating_add(waited);
        }
    }

    /// The split ended: it holds nothing back any more.
    pub(super) fn end(&mut self, split: usize, now: Duration) -> Option<Timestamp> {
        if split < self.splits.len() {
            self.splits.remove(split);
        }
        self.combine(now)
    }

    /// Looks for splits that fell idle. Returns the watermark if that let it advance: to the greatest where all are.
    pub(super) fn look_around(&mut self, now: Duration) -> Option<Timestamp> {
        if !self.all_idle(now) {
            return self.combine(now);
        }
        let greatest = self.splits.iter().map(|split| split.watermark).max();
        greatest.and_then(|greatest| self.reach(greatest))
    }

    /// Whether every split is idle.
    pub(super) fn all_idle(&self, now: Duration) -> bool {
        self.splits.iter().all(|split| self.is_idle(split, now))
    }

    /// The watermark, the greatest time and the records since of an open split.
    pub(super) fn of_split(&self, split: usize) -> Option<(Timestamp, Option<Timestamp>, u32)> {
        self.splits.get(split).map(|split| (split.watermark, split.latest, split.since))
    }

    /// Of the splits that are not idle, the one with the least watermark: the one that holds the others back.
    pub(super) fn slowest(&self, now: Duration) -> Option<(usize, Timestamp)> {
        let active = self.splits.iter().enumerate().filter(|(_, split)| !self.is_idle(split, now));
        active.map(|(index, split)| (index, split.watermark)).min_by_key(|&(_, watermark)| watermark)
    }

    /// How many splits are not idle.
    pub(super) fn active(&self, now: Duration) -> usize {
        self.splits.iter().filter(|split| !self.is_idle(split, now)).count()
    }

    /// The least watermark of the splits that have something to read: what sources that are ahead wait for.
    pub(super) fn least_to_read(&self) -> Option<Timestamp> {
        if self.strategy == Strategy::None {
            return None;
        }
        self.splits.iter().filter(|split| split.waiting_since.is_none()).map(|split| split.watermark).min()
    }

    /// Which of the open splits are further ahead than `bound`.
    pub(super) fn ahead_of(&self, bound: Option<Timestamp>) -> impl Iterator<Item = bool> {
        let counts = self.strategy != Strategy::None;
        self.splits.iter().map(move |split| counts && bound.is_some_and(|bound| split.watermark > bound))
    }

    /// The watermark sent last.
    pub(super) fn current(&self) -> Timestamp {
        self.current
    }

    fn is_idle(&self, split: &Split, now: Duration) -> bool {
        let silent = |after: Duration| split.waiting_since.is_some_and(|since| now.saturating_sub(since) >= after);
        self.strategy == Strategy::None || self.idle_after.is_some_and(silent)
    }

    fn combine(&mut self, now: Duration) -> Option<Timestamp> {
        let (_, least) = self.slowest(now)?;
        self.reach(least)
    }

    fn reach(&mut self, watermark: Timestamp) -> Option<Timestamp> {
        (watermark > self.current).then(|| {
            self.current = watermark;
            watermark
        })
    }
}

impl Split {
    /// The watermark after a record of that time, where it is due.
    fn by_time(&mut self, time: Timestamp, out_of_order: Duration) -> Option<Timestamp> {
        let latest = self.latest.map_or(time, |latest| latest.max(time));
        self.latest = Some(latest);
        let watermark = latest.minus(out_of_order).minus(TICK);
        let due = self.since >= EVERY_RECORDS || watermark >= self.watermark.plus(EVERY_MILLIS);
        (watermark > self.watermark && due).then_some(watermark)
    }

    /// The watermark that a record says. The end of time is not a record's to say.
    fn by_mark(self, mark: WatermarkMark) -> Option<Timestamp> {
        let watermark = mark.watermark.min(Timestamp::MAX.minus(TICK));
        (watermark > self.watermark).then_some(watermark)
    }
}

#[cfg(test)]
mod tests;
