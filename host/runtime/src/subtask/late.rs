//! Records that come after the watermark has passed them: counted, and passed on, left out or sent to a late output.
//!
//! Owns the late outputs of a subtask. Which record is late is said in `core::time`; the watermark is the one in force at the
//! record's place among the marks, so that it does not matter how records are cut into calls.

use wasmill_core::record::{Header, RecordBatch, WatermarkMark};
use wasmill_core::time::Timestamp;

use crate::exchange::gate::OnLate;
use crate::telemetry::{DropReason, SubtaskMeter};

/// The late outputs of a subtask, and what was sent to each and is not sent on yet.
#[derive(Debug)]
pub(super) struct Late {
    outputs: Vec<RecordBatch>,
}

impl Late {
    /// With `outputs` late outputs.
    pub(super) fn new(outputs: usize) -> Self {
        Self { outputs: vec![RecordBatch::default(); outputs] }
    }

    /// Counts the late record `record` of `batch`; whether the guest gets it.
    pub(super) fn passes(&mut self, on_late: OnLate, batch: &RecordBatch, record: usize, meter: &SubtaskMeter) -> bool {
        meter.late();
        match on_late {
            OnLate::Pass => return true,
            OnLate::Drop => meter.dropped(DropReason::Late, 1),
            OnLate::Output(output) => {
                let Some(late) = self.outputs.get_mut(output) else { return true };
                let index = late.len() as u32;
                late.headers
                    .extend(batch.headers_of(record).iter().map(|header| Header { record: index, ..header.clone() }));
                late.push(batch.keys.get(record), batch.times[record], batch.values.get(record));
            }
        }
        false
    }

    /// The watermark became `watermark` after the records so far.
    pub(super) fn mark(&mut self, watermark: Timestamp) {
        for late in &mut self.outputs {
            late.marks.push(WatermarkMark { after: late.len() as u32, watermark });
        }
    }

    /// What was sent to each output and is not sent on yet.
    pub(super) fn outputs(&mut self) -> &mut [RecordBatch] {
        &mut self.outputs
    }
}

#[cfg(test)]
mod tests {
    use wasmill_core::graph::NodeKind;
    use wasmill_core::id::{OperatorUid, SubtaskId, SubtaskIndex};

    use super::*;

    fn meter() -> SubtaskMeter {
        SubtaskMeter::new(SubtaskId { uid: OperatorUid::new("a").unwrap(), index: SubtaskIndex(0) }, NodeKind::Operator)
    }

    fn batch() -> RecordBatch {
        let mut batch = RecordBatch::default();
        for (index, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
            batch.push(Some(name), Timestamp::from_millis(index as i64), Some(name));
            let header = |value: &[u8]| Header { record: index as u32, name: name.to_vec(), value: value.to_vec() };
            batch.headers.extend([header(b"1"), header(b"2")]);
        }
        batch
    }

    #[test]
    fn a_late_record_goes_out_as_it_came_between_the_watermarks() {
        let (mut late, meter, batch) = (Late::new(2), meter(), batch());
        late.mark(Timestamp::from_millis(5));
        assert!(!late.passes(OnLate::Output(1), &batch, 1, &meter));
        late.mark(Timestamp::from_millis(9));
        assert!(!late.passes(OnLate::Output(1), &batch, 2, &meter));
        let out = &late.outputs()[1];
        assert_eq!(out.keys.iter().collect::<Vec<_>>(), [Some(&b"b"[..]), Some(b"c")]);
        assert_eq!(out.times, batch.times[1..]);
        assert_eq!(out.headers.iter().map(|header| header.record).collect::<Vec<_>>(), [0, 0, 1, 1]);
        let marks: Vec<_> = out.marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect();
        assert_eq!(marks, [(0, 5), (1, 9)]);
        assert!(late.outputs()[0].is_empty() && late.outputs()[0].marks.len() == 2);
    }

    #[test]
    fn late_records_are_counted_whatever_becomes_of_them() {
        let (mut late, meter, batch) = (Late::new(1), meter(), batch());
        assert!(late.passes(OnLate::Pass, &batch, 0, &meter));
        assert!(!late.passes(OnLate::Drop, &batch, 1, &meter));
        assert!(!late.passes(OnLate::Output(0), &batch, 2, &meter));
        let reading = meter.read();
        assert_eq!(reading.late, 3);
        assert!(reading.dropped.contains(&(DropReason::Late, 1)));
    }
}
