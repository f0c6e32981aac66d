//! What a gate promises about idleness and the watermark over several channels.

use super::*;
use crate::bell::Bell;
use crate::clock::ManualClock;
use crate::exchange::channel::{Sender, channel};

fn gate(channels: usize, watermark: i64) -> (Vec<Sender>, Gate) {
    let (senders, inputs) = (0..channels)
        .map(|_| {
            let (sender, receiver) = channel(Bell::default(), Bell::default());
            (sender, InputChannel { input: 0, on_late: OnLate::Pass, receiver })
        })
        .unzip();
    (senders, Gate::new(inputs, Timestamp::from_millis(watermark)))
}

/// All that the gate has, in a word each; marks are taken.
fn events(gate: &mut Gate) -> Vec<String> {
    let clock = ManualClock::default();
    let mut events = Vec::new();
    while let Some(event) = gate.poll(&clock).unwrap() {
        events.push(match event {
            Event::Records { channel, batch, .. } => {
                let advanced = batch.marks.iter().filter_map(|mark| gate.advance(channel, mark.watermark)).last();
                format!("{} records, {advanced:?}", batch.len())
            }
            Event::Watermark(watermark) => format!("watermark {watermark}"),
            Event::Idle => "idle".to_owned(),
            Event::Active => "active".to_owned(),
            Event::Barrier(_) | Event::Declined(_) => "barrier".to_owned(),
        });
    }
    events
}

fn send(sender: &Sender, records: usize, watermark: Timestamp) {
    let mut batch = RecordBatch::default();
    (0..records).for_each(|_| batch.push(None, Timestamp::from_millis(1), None));
    batch.marks.push(wasmill_core::record::WatermarkMark { after: records as u32, watermark });
    sender.send(Element::Records(batch));
}

#[test]
fn idle_and_active_are_told_once_and_before_the_records_that_follow() {
    let (senders, mut gate) = gate(2, Timestamp::MIN.as_millis());
    senders[0].send(Element::Idle);
    assert_eq!(events(&mut gate), [""; 0]);
    senders[1].send(Element::Idle);
    assert_eq!(events(&mut gate), ["idle"]);
    senders[1].send(Element::Idle);
    assert_eq!(events(&mut gate), [""; 0]);
    senders[0].send(Element::Active);
    send(&senders[0], 1, Timestamp::from_millis(5));
    assert_eq!(events(&mut gate), ["active".to_owned(), format!("1 records, {:?}", Some(Timestamp::from_millis(5)))]);
}

#[test]
fn an_ended_channel_beside_an_idle_one_makes_the_subtask_idle_and_does_not_end_time() {
    let (senders, mut gate) = gate(2, Timestamp::MIN.as_millis());
    senders[0].send(Element::Idle);
    send(&senders[1], 0, Timestamp::MAX);
    assert_eq!(events(&mut gate), ["0 records, None", "idle"]);
    assert_eq!(gate.watermark(), Timestamp::MIN);
    senders[0].send(Element::Active);
    send(&senders[0], 0, Timestamp::MAX);
    assert_eq!(events(&mut gate), ["active".to_owned(), format!("0 records, {:?}", Some(Timestamp::MAX))]);
}

#[test]
fn a_restored_watermark_is_in_force_before_any_channel_has_spoken() {
    let (senders, mut gate) = gate(1, 1_000);
    assert_eq!(gate.watermark(), Timestamp::from_millis(1_000));
    send(&senders[0], 0, Timestamp::from_millis(900));
    assert_eq!(events(&mut gate), ["0 records, None"]);
    assert_eq!(gate.watermark(), Timestamp::from_millis(1_000));
}
