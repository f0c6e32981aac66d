//! Records of broadcast inputs: called apart from all others, in the same pieces and with the same times on every subtask.
//!
//! Owns that nothing of what a guest sees of them depends on the subtask. Their order and times come from the merging subtask.

use wasmill_core::element::Stamp;
use wasmill_core::fault::Fault;
use wasmill_core::record::RecordBatch;

use super::OperatorSubtask;

impl OperatorSubtask {
    /// Calls the guest with the records, cut at each watermark between them. What was gathered before goes first.
    pub(super) fn gather_merged(
        &mut self,
        channel: usize,
        (input, stamp): (u16, Stamp),
        batch: &RecordBatch,
    ) -> Result<(), Fault> {
        self.call()?;
        self.input = input;
        self.context.meter.received(batch.len() as u64, batch.payload_bytes() as u64);
        let on_late = self.options.merged_late.get(usize::from(stamp.edge)).copied().unwrap_or_default();
        let mut stamp = stamp;
        let mut marks = batch.marks.iter().peekable();
        for record in 0..=batch.len() {
            while let Some(mark) = marks.next_if(|mark| mark.after as usize <= record) {
                self.call_stamped(stamp)?;
                stamp.watermark = mark.watermark;
                // The subtask's own watermark, which its other inputs may hold back.
                if let Some(watermark) = self.gate.advance(channel, mark.watermark) {
                    self.advance(watermark)?;
                }
            }
            if record == batch.len() {
                break;
            }
            let late = batch.times[record].is_late(stamp.watermark);
            if late && !self.late.passes(on_late, batch, record, &self.context.meter) {
                continue;
            }
            if self.batcher.is_full() {
                self.call_stamped(stamp)?;
            }
            self.batcher.push(batch, record);
        }
        self.call_stamped(stamp)?;
        self.merged = stamp.watermark;
        Ok(())
    }

    fn call_stamped(&mut self, stamp: Stamp) -> Result<(), Fault> {
        self.stamp = Some(stamp);
        self.batcher.stamp(Some(stamp.watermark));
        let called = self.call();
        self.batcher.stamp(None);
        self.stamp = None;
        called
    }
}

#[cfg(test)]
mod tests {
    use crate::config::operator::OnFailure;
    use crate::subtask::operator::failure::tests::{BATCHES, STAMPED, Setting, run, with};

    fn broadcast(policy: OnFailure, batch: usize) -> Setting {
        let mut setting = with(policy, batch);
        setting.broadcast = true;
        setting
    }

    #[test]
    fn broadcast_records_have_the_times_of_the_merging_subtask_and_end_at_each_watermark() {
        let first = STAMPED.as_millis();
        for batch in BATCHES {
            let ran = run(&broadcast(OnFailure::Fail, batch), &["a:x", "b:x", "@9", "a:x", "@10", "@11", "b:x"]);
            let expected = [format!("a=1@{first}"), format!("b=1@{first}"), "@9".to_owned()];
            assert_eq!(ran.out[..3], expected);
            assert_eq!(ran.out[3..], ["a=2@9", "@10", "@11", "b=2@11"]);
            ran.result.unwrap();
        }
    }

    #[test]
    fn a_failure_on_a_broadcast_input_fails_the_attempt_under_any_policy() {
        for (policy, command) in [(OnFailure::Drop, "a:panic"), (OnFailure::DeadLetter, "a:reject")] {
            let message = run(&broadcast(policy, 1024), &["a:x", command]).result.unwrap_err().message;
            assert!(message.contains("of the broadcast input `in`"), "{message}");
        }
    }

    #[test]
    fn a_timer_that_fails_after_broadcast_records_is_treated_as_timers_are() {
        let ran = run(&broadcast(OnFailure::Drop, 7), &["a:set 8 101", "@9", "b:x"]);
        assert_eq!((ran.result, ran.out.last().map(String::as_str)), (Ok(()), Some("b=1@9")));
    }
}
