//! The merging subtask of an operator: which edges pass through it, and what it makes of their records.
//!
//! Owns that all subtasks of an operator get the records of its broadcast inputs in one order with the same times, so that
//! what they write of broadcast state is the same everywhere. Does not own channels, nor how watermarks of several are combined.

use crate::element::Stamp;
use crate::graph::{Edge, Exchange, Node, NodeKind};
use crate::record::{RecordBatch, WatermarkMark};
use crate::time::Timestamp;

/// The edges of a node that pass through its merging subtask, each with its place among the node's edges; a node without
/// any has no merging subtask. Only operators have one: a sink keeps nothing that would have to be the same everywhere.
pub fn edges(node: &Node) -> impl Iterator<Item = (usize, &Edge)> {
    let merges = |edge: &Edge| node.kind == NodeKind::Operator && edge.exchange == Exchange::Broadcast;
    node.edges.iter().enumerate().filter(move |(_, edge)| merges(edge))
}

/// The times that a merging subtask gives to records. None of them goes back.
#[derive(Debug, Clone)]
pub struct Stamps {
    watermark: Timestamp,
    processing_time: Timestamp,
}

impl Stamps {
    /// From the watermark of the restored checkpoint on; [`Timestamp::MIN`] where nothing was restored.
    #[must_use]
    pub fn resumed(watermark: Timestamp) -> Self {
        Self { watermark, processing_time: Timestamp::MIN }
    }

    /// Stamps records that came by the merged edge `edge` when the clock showed `now`. `advance` is told each watermark of the edge and
    /// says whether the combined one advanced; in the records stand the combined ones afterwards.
    pub fn stamp(
        &mut self,
        edge: u16,
        records: &mut RecordBatch,
        now: Timestamp,
        mut advance: impl FnMut(Timestamp) -> Option<Timestamp>,
    ) -> Stamp {
        self.processing_time = self.processing_time.max(now);
        let stamp = Stamp { edge, watermark: self.watermark, processing_time: self.processing_time };
        for WatermarkMark { after, watermark } in std::mem::take(&mut records.marks) {
            if let Some(watermark) = advance(watermark) {
                records.marks.push(WatermarkMark { after, watermark });
                self.watermark = watermark;
            }
        }
        stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OperatorUid, Parallelism};
    use crate::watermark::CombinedWatermark;

    fn node(kind: NodeKind, exchanges: &[Exchange]) -> Node {
        let uid = |name: &str| OperatorUid::new(name).unwrap();
        let edges = exchanges.iter().zip(0..);
        let edges = edges.map(|(&exchange, input)| Edge { from: uid("from"), output: None, input, exchange });
        Node { uid: uid("node"), kind, parallelism: Parallelism::ONE, edges: edges.collect() }
    }

    #[test]
    fn all_broadcast_inputs_of_an_operator_pass_through_its_merging_subtask_and_nothing_else_does() {
        let exchanges = [Exchange::Broadcast, Exchange::Key, Exchange::Rebalance, Exchange::Broadcast];
        let merged = |kind| edges(&node(kind, &exchanges)).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(merged(NodeKind::Operator), [0, 3]);
        assert!(merged(NodeKind::Sink).is_empty());
        assert!(edges(&node(NodeKind::Operator, &[Exchange::Key])).next().is_none());
    }

    #[test]
    fn records_are_stamped_with_the_combined_watermark_and_a_time_that_does_not_go_back() {
        let at = Timestamp::from_millis;
        let mut combined = CombinedWatermark::resumed(2, at(5));
        let mut stamps = Stamps::resumed(at(5));
        let mut stamp = |edge: u16, now, marks: &[(u32, i64)]| {
            let marks = marks.iter().map(|&(after, time)| WatermarkMark { after, watermark: at(time) }).collect();
            let mut records = RecordBatch { marks, ..RecordBatch::default() };
            let stamp =
                stamps.stamp(edge, &mut records, at(now), |watermark| combined.advance(usize::from(edge), watermark));
            let marks: Vec<_> = records.marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect();
            (stamp.edge, stamp.watermark.as_millis(), stamp.processing_time.as_millis(), marks)
        };
        assert_eq!(stamp(0, 100, &[(1, 10), (2, 20)]), (0, 5, 100, vec![]), "the other has not come so far");
        assert_eq!(stamp(1, 90, &[(1, 4), (1, 15), (3, 30)]), (1, 5, 100, vec![(1, 15), (3, 20)]));
        assert_eq!(stamp(0, 110, &[]), (0, 20, 110, vec![]));
    }
}
