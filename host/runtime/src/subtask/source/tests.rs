//! What a source's subtask promises of idleness, restored watermarks and drift, with a scripted reader and a clock in hand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;
use wasmill_core::element::Element;
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{CheckpointId, OperatorUid, SubtaskId, SubtaskIndex};

use super::*;
use crate::bell::Bell;
use crate::clock::ManualClock;
use crate::control::Mailbox;
use crate::exchange::channel::{Receiver, channel};
use crate::exchange::route::{OutEdge, Routing};
use crate::source::ReadCounts;
use crate::telemetry::SubtaskMeter;

/// What the reader finds next: records of a split, or nothing.
enum Next {
    Records(usize, Vec<i64>),
    Nothing,
}

#[derive(Default)]
struct Script {
    names: Vec<&'static str>,
    next: VecDeque<Next>,
    waiting: Vec<bool>,
    held: Vec<bool>,
}

impl SourceReader for Script {
    fn read(&mut self, batch: &mut RecordBatch, _limit: usize, _now: Timestamp) -> Result<ReadOutcome, Fault> {
        match self.next.pop_front() {
            Some(Next::Records(split, times)) => {
                assert!(!self.held.get(split).is_some_and(|held| *held), "split {split} is held");
                times.into_iter().for_each(|time| batch.push(None, Timestamp::from_millis(time), None));
                Ok(ReadOutcome::Read { split })
            }
            Some(Next::Nothing) => Ok(ReadOutcome::Wait(Duration::ZERO)),
            None => Ok(ReadOutcome::End),
        }
    }

    fn open_splits(&self) -> usize {
        self.names.len()
    }

    fn split_name(&self, split: usize) -> &str {
        self.names[split]
    }

    fn is_waiting(&self, split: usize) -> bool {
        self.waiting.get(split).is_some_and(|waiting| *waiting)
    }

    fn hold(&mut self, held: &[bool]) {
        self.held = held.to_vec();
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |name: &&str| SplitPosition { split: (*name).to_owned(), position: serde_json::Value::Null };
        self.names.iter().chain(&["later"]).map(position).collect()
    }

    fn counts(&self) -> ReadCounts {
        ReadCounts::default()
    }
}

struct Bench {
    clock: Arc<ManualClock>,
    reports: mpsc::UnboundedReceiver<Report>,
    receiver: Receiver,
    subtask: SourceSubtask,
}

fn id(index: u32) -> SubtaskId {
    SubtaskId { uid: OperatorUid::new("in").unwrap(), index: SubtaskIndex(index) }
}

fn bench(options: Options, script: Script) -> Bench {
    let clock = Arc::new(ManualClock::default());
    let (sender, reports) = mpsc::unbounded_channel();
    let context = Context {
        id: id(0),
        mailbox: Mailbox::default(),
        reports: sender,
        clock: Arc::clone(&clock) as _,
        meter: Arc::new(SubtaskMeter::new(id(0), NodeKind::Source)),
    };
    let (sender, receiver) = channel(Bell::default(), Bell::default());
    let outputs = Outputs::new(vec![vec![OutEdge { routing: Routing::Forward, targets: vec![sender] }]]);
    let mut subtask = SourceSubtask::new(context, options, Box::new(script), outputs);
    subtask.begin().unwrap();
    Bench { clock, reports, receiver, subtask }
}

fn ascending(idle_after: Option<Duration>) -> Options {
    Options {
        strategy: Strategy::Times(Duration::ZERO),
        idle_after,
        drift: None,
        restored: Vec::new(),
        dead_letters: false,
    }
}

impl Bench {
    /// Reads once and says in words what was sent.
    fn read(&mut self) -> Vec<String> {
        self.subtask.read().unwrap();
        self.sent()
    }

    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(element) = self.receiver.receive() {
            sent.push(match element {
                Element::Records(batch) => {
                    let marks: Vec<_> = batch.marks.iter().map(|mark| mark.watermark.as_millis()).collect();
                    format!("{} records {marks:?}", batch.len())
                }
                Element::Idle => "idle".to_owned(),
                Element::Active => "active".to_owned(),
                Element::Barrier(_) => "barrier".to_owned(),
                Element::Merged { .. } => "merged".to_owned(),
            });
        }
        sent
    }
}

#[test]
fn a_split_that_is_silent_beside_a_busy_one_falls_idle() {
    let next = (0..4).map(|read| Next::Records(0, vec![read * 1_000])).collect();
    let script = Script { names: vec!["busy", "silent"], next, waiting: vec![false, true], ..Script::default() };
    let mut bench = bench(ascending(Some(Duration::from_secs(2))), script);
    for expected in ["1 records []", "1 records []", "1 records [1999]", "1 records [2999]"] {
        assert_eq!(bench.read(), [expected]);
        bench.clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_silent_source_says_so_once_and_that_it_is_active_before_its_next_records() {
    let next = [Next::Nothing, Next::Nothing, Next::Records(0, vec![5_000]), Next::Nothing].into();
    let script = Script { names: vec!["a"], next, waiting: vec![true], ..Script::default() };
    let mut bench = bench(ascending(Some(Duration::ZERO)), script);
    assert_eq!(bench.read(), ["idle"]);
    assert_eq!(bench.read(), [""; 0]);
    assert_eq!(bench.read(), ["active", "1 records [4999]"]);
    assert_eq!(bench.read(), ["idle"]);
    assert_eq!(bench.read(), [format!("0 records [{}]", Timestamp::MAX)]);
}

#[test]
fn a_source_without_watermarks_is_idle_from_the_start_to_its_end() {
    let next = [Next::Records(0, vec![5_000])].into();
    let script = Script { names: vec!["a"], next, ..Script::default() };
    let mut bench = bench(Options { strategy: Strategy::None, ..ascending(None) }, script);
    assert_eq!(bench.sent(), ["idle"]);
    assert_eq!(bench.read(), ["1 records []"]);
    assert_eq!(bench.read(), [format!("0 records [{}]", Timestamp::MAX)]);
}

fn restored(split: &str, watermark: i64) -> Split {
    Split {
        split: split.to_owned(),
        position: serde_json::Value::Null,
        watermark: Timestamp::from_millis(watermark),
        latest: Some(Timestamp::from_millis(watermark + 1)),
        since: 3,
    }
}

#[test]
fn a_restored_source_says_its_watermark_again_and_a_barrier_before_the_first_read_keeps_it() {
    let splits = vec![restored("a", 700), restored("b", 900), restored("later", 400)];
    let script = Script { names: vec!["a", "b"], ..Script::default() };
    let mut bench = bench(Options { restored: splits.clone(), ..ascending(None) }, script);
    assert_eq!(bench.sent(), ["0 records [700]"]);
    bench.subtask.snapshot(Barrier { checkpoint: CheckpointId(8), purpose: Purpose::Periodic });
    let Ok(Report::Acknowledged { part, .. }) = bench.reports.try_recv() else { panic!("no acknowledgement") };
    assert_eq!(part.splits, splits);
    assert_eq!(part.watermark, Timestamp::from_millis(700));
}

#[test]
fn restored_sources_wait_for_one_another_from_where_they_were() {
    let bells: BTreeMap<_, _> = (0..2).map(|index| (id(index), Bell::default())).collect();
    let mut drifts = Drift::among(bells, Duration::from_millis(500));
    let (own, other) = (drifts.remove(&id(0)).unwrap(), drifts.remove(&id(1)).unwrap());
    other.publish(Some(Timestamp::from_millis(5_000)));
    let script = Script { names: vec!["a"], next: [Next::Records(0, vec![800])].into(), ..Script::default() };
    let restored = vec![restored("a", 700)];
    let mut bench = bench(Options { drift: Some(own), restored, ..ascending(None) }, script);
    assert_eq!(other.bound(), Some(Timestamp::from_millis(1_200)));
    assert_eq!(bench.sent(), ["0 records [700]"]);
    assert_eq!(bench.read(), ["1 records []"]);
}

#[test]
fn a_split_that_is_ahead_is_not_read_and_barriers_are_served_meanwhile() {
    let bells: BTreeMap<_, _> = (0..2).map(|index| (id(index), Bell::default())).collect();
    let mut drifts = Drift::among(bells, Duration::from_millis(500));
    let (own, other) = (drifts.remove(&id(0)).unwrap(), drifts.remove(&id(1)).unwrap());
    other.publish(Some(Timestamp::from_millis(0)));
    let next = [Next::Records(0, vec![2_000]), Next::Records(1, vec![100]), Next::Records(0, vec![3_000])].into();
    let script = Script { names: vec!["ahead", "behind"], next, ..Script::default() };
    let mut bench = bench(Options { drift: Some(own.clone()), ..ascending(None) }, script);
    assert_eq!(bench.read(), ["1 records []"]);
    assert_eq!(own.bound(), Some(Timestamp::MIN.plus(Duration::from_millis(500))), "the other split has said nothing");
    assert_eq!(bench.read(), ["1 records [99]"]);
    bench.subtask.context.mailbox.bell().ring();
    other.publish(Some(Timestamp::from_millis(-1_000)));
    assert_eq!(bench.read(), [""; 0]);
    bench.subtask.snapshot(Barrier { checkpoint: CheckpointId(1), purpose: Purpose::Periodic });
    assert_eq!(bench.sent(), ["barrier"]);
    // Both splits wait only as long as the other is further behind than the limit.
    other.publish(None);
    assert_eq!(own.bound(), Some(Timestamp::from_millis(599)));
    bench.subtask.watermark.waiting(Duration::ZERO, |split| split == 1);
    bench.subtask.tell(Duration::ZERO);
    assert_eq!(bench.read(), ["1 records []"], "nobody waits for a split with nothing to read");
}
