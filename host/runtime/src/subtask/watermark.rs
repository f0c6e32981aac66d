//! Makes a source's watermarks from the times of its records, split by split.
//!
//! Owns the strategy of bounded out-of-orderness and where marks lie: after fixed numbers of records or steps of event time,
//! never where a batch happens to end. The clock serves idleness alone.

use std::time::Duration;

use wasmill_core::record::{RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

/// Records of a split after which its watermark is looked at again.
const EVERY_RECORDS: u32 = 1024;
/// Event time after which a split's watermark is looked at again.
const EVERY_MILLIS: Duration = Duration::from_millis(100);
/// The least step of event time: watermark W means that no record at or before W follows.
const TICK: Duration = Duration::from_millis(1);

/// The watermark of one source subtask.
#[derive(Debug)]
pub(super) struct SourceWatermark {
    out_of_order: Duration,
    idle_after: Option<Duration>,
    splits: Vec<Split>,
    current: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Split {
    latest: Timestamp,
    watermark: Timestamp,
    since: u32,
    last_read: Duration,
}

impl SourceWatermark {
    /// Records may be `out_of_order` late; a split without a record for `idle_after` holds nothing back.
    pub(super) fn new(out_of_order: Duration, idle_after: Option<Duration>) -> Self {
        Self { out_of_order, idle_after, splits: Vec::new(), current: Timestamp::MIN }
    }

    /// Makes room for `open` splits; those that are new begin at the watermark that `restored` tells, if any.
    pub(super) fn open(&mut self, open: usize, now: Duration, restored: impl Fn(usize) -> Option<Timestamp>) {
        for split in self.splits.len()..open {
            let watermark = restored(split).unwrap_or(Timestamp::MIN);
            let latest = if watermark == Timestamp::MIN { watermark } else { watermark.plus(self.out_of_order + TICK) };
            self.splits.push(Split { latest, watermark, since: 0, last_read: now });
        }
    }

    /// Looks at the records of `batch` from `start` on, all of `split`, and puts the marks between them.
    pub(super) fn observe(&mut self, split: usize, batch: &mut RecordBatch, start: usize, now: Duration) {
        for record in start..batch.times.len() {
            let Some(state) = self.splits.get_mut(split) else { return };
            state.latest = state.latest.max(batch.times[record]);
            state.last_read = now;
            state.since += 1;
            let watermark = state.latest.minus(self.out_of_order + TICK);
            if watermark > state.watermark
                && (state.since >= EVERY_RECORDS || watermark >= state.watermark.plus(EVERY_MILLIS))
            {
                state.watermark = watermark;
                state.since = 0;
                if let Some(watermark) = self.combine(now) {
                    batch.marks.push(WatermarkMark { after: record as u32 + 1, watermark });
                }
            }
        }
    }

    /// The split ended: it holds nothing back any more.
    pub(super) fn end(&mut self, split: usize, now: Duration) -> Option<Timestamp> {
        if split < self.splits.len() {
            self.splits.remove(split);
        }
        self.combine(now)
    }

    /// Looks for splits that fell idle. Returns the watermark if that let it advance.
    pub(super) fn look_around(&mut self, now: Duration) -> Option<Timestamp> {
        self.combine(now)
    }

    /// Whether every split is idle.
    pub(super) fn all_idle(&self, now: Duration) -> bool {
        self.splits.iter().all(|split| self.idle(split, now))
    }

    /// The watermark of an open split.
    pub(super) fn of_split(&self, split: usize) -> Timestamp {
        self.splits.get(split).map_or(Timestamp::MIN, |split| split.watermark)
    }

    /// The watermark sent last.
    pub(super) fn current(&self) -> Timestamp {
        self.current
    }

    fn idle(&self, split: &Split, now: Duration) -> bool {
        self.idle_after.is_some_and(|after| now.saturating_sub(split.last_read) >= after)
    }

    fn combine(&mut self, now: Duration) -> Option<Timestamp> {
        let active = self.splits.iter().filter(|split| !self.idle(split, now));
        let least = active.map(|split| split.watermark).min()?;
        (least > self.current).then(|| {
            self.current = least;
            least
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: impl IntoIterator<Item = i64>) -> RecordBatch {
        let mut batch = RecordBatch::default();
        times.into_iter().for_each(|time| batch.push(None, Timestamp::from_millis(time), None));
        batch
    }

    fn marks(batch: &RecordBatch) -> Vec<(u32, i64)> {
        batch.marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect()
    }

    #[test]
    fn marks_do_not_depend_on_where_batches_end() {
        let times: Vec<i64> = (0..5_000).map(|i| i * 7 % 4_001).collect();
        let positions = |size: usize| {
            let mut watermark = SourceWatermark::new(Duration::from_millis(10), None);
            watermark.open(1, Duration::ZERO, |_| None);
            let mut all = Vec::new();
            for (index, chunk) in times.chunks(size).enumerate() {
                let mut batch = batch(chunk.iter().copied());
                watermark.observe(0, &mut batch, 0, Duration::ZERO);
                all.extend(marks(&batch).iter().map(|(after, mark)| ((index * size) as u32 + after, *mark)));
            }
            all
        };
        assert_eq!(positions(1), positions(5_000));
        assert_eq!(positions(7), positions(1024));
        assert!(positions(1).len() > 10);
    }

    #[test]
    fn a_silent_split_holds_time_back_until_it_is_idle() {
        let mut watermark = SourceWatermark::new(Duration::ZERO, Some(Duration::from_secs(5)));
        watermark.open(2, Duration::ZERO, |_| None);
        let mut records = batch([1_000]);
        watermark.observe(0, &mut records, 0, Duration::from_secs(4));
        assert_eq!(marks(&records), []);
        assert_eq!(watermark.look_around(Duration::from_secs(5)), Some(Timestamp::from_millis(999)));
        assert!(!watermark.all_idle(Duration::from_secs(8)));
        assert!(watermark.all_idle(Duration::from_secs(9)));
    }
}
