//! What sinks must commit again after a restore.
//!
//! Owns I7's second half: outside effects of a decided checkpoint are committed though the process may have died between the
//! decision and the commit; committing twice is harmless. Does not own how a sink commits.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::checkpoint::log::CommitPermit;
use crate::checkpoint::manifest::Manifest;
use crate::graph::{Graph, NodeKind};
use crate::id::OperatorUid;

/// What each sink of `graph` must commit before its first record: everything that the restored checkpoint says is prepared, in
/// the order of its subtasks. Without a restored checkpoint, or with nothing prepared, an empty list: the sink then removes
/// whatever earlier attempts left behind undecided.
///
/// The permit shows that the manifest's checkpoint is decided and that no later attempt has started; one of another
/// checkpoint gives nothing to commit.
#[must_use]
pub fn after_restore(graph: &Graph, restored: Option<(&Manifest, &CommitPermit)>) -> BTreeMap<OperatorUid, Vec<Value>> {
    let restored = restored.filter(|(manifest, permit)| manifest.checkpoint == permit.checkpoint());
    let pending = |uid: &OperatorUid| match restored {
        None => Vec::new(),
        Some((manifest, _)) => {
            let mut parts: Vec<_> = manifest.parts_of(uid).collect();
            parts.sort_by_key(|part| part.index);
            parts.into_iter().flat_map(|part| part.commits.iter().cloned()).collect()
        }
    };
    let sinks = graph.nodes().iter().filter(|node| node.kind == NodeKind::Sink);
    sinks.map(|sink| (sink.uid.clone(), pending(&sink.uid))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checkpoint::log::state::Prepared;
    use crate::checkpoint::log::{Decider, Entry, LogState, Start, StartFrom, WriterId};
    use crate::checkpoint::manifest::tests::golden;
    use crate::id::{Attempt, CheckpointId};
    use crate::time::Timestamp;

    fn permit(id: CheckpointId) -> CommitPermit {
        let mut log = LogState::new();
        let of = Prepared { purpose: crate::element::Purpose::Periodic, bytes_new: 0, bytes_referenced: 0 };
        let (_, start) = log.start(&Start { from: StartFrom::Newest, pipeline: Default::default() }).unwrap();
        let reserve = log.reserved(id);
        let prepared = log.prepared(id, String::new(), crate::digest::Digest::of(b""), of);
        for entry in [start, reserve, prepared, Entry::Decided { checkpoint: id }] {
            let at = Timestamp::from_millis(0);
            let record = log.record(Attempt(1), &WriterId("w".to_owned()), at, entry).unwrap();
            log.apply(&record).unwrap();
        }
        log.commit_permit(Attempt(1), id, Decider::Log).unwrap()
    }

    #[test]
    fn what_the_restored_checkpoint_prepared_is_committed_again() {
        let manifest = golden();
        let sink = manifest.graph.nodes()[2].uid.clone();
        let again = after_restore(&manifest.graph, Some((&manifest, &permit(manifest.checkpoint))));
        assert_eq!(
            again,
            BTreeMap::from([(sink.clone(), vec![json!({"file": "part-000018-0.jsonl", "bytes": 2048})])])
        );
        let nothing = BTreeMap::from([(sink, vec![])]);
        assert_eq!(after_restore(&manifest.graph, None), nothing);
        let other = permit(CheckpointId(17));
        assert_eq!(
            after_restore(&manifest.graph, Some((&manifest, &other))),
            nothing,
            "a permit of another checkpoint"
        );
    }
}
