//! The stored form of a log entry.
//!
//! Owns tags and members as they stand in the store: format 1. Does not own what they mean together.
//!
//! Retired tags: none. Reserved, refused by this version: `swapped`, `rescaled`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Seq;
use super::state::InForce;
use crate::checkpoint::names::ObjectName;
use crate::checkpoint::sealed::{self, Sealed};
use crate::digest::Digest;
use crate::element::Purpose;
use crate::id::{Attempt, CheckpointId, OperatorUid, Parallelism};
use crate::time::Timestamp;

/// The format that is written, and the only one there has been.
pub const FORMAT: u32 = 1;

/// Tells a writer's own entries from those of another, also of one that chose the same attempt: a fresh random text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriterId(pub String);

/// An entry as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Its number, also in the object's name.
    pub seq: Seq,
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// Who wrote it.
    pub writer: WriterId,
    /// When, by the writer's clock; for people only.
    pub at: Timestamp,
    /// What it says.
    pub entry: Entry,
    /// In a block's last entry: what is in force, this entry included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Entry {
    /// A new attempt: all earlier ones are over.
    AttemptStarted {
        /// What it starts from.
        restored: Restored,
        /// What the pipeline file said.
        pipeline: Settings,
        /// What runs: the file's, or what a swap or rescale put in its place.
        running: Settings,
        /// The attempt may use checkpoint ids below this one.
        checkpoints_below: CheckpointId,
    },
    /// The attempt may use checkpoint ids below this one, so that no later attempt uses them again.
    Reserved {
        /// The bound.
        checkpoints_below: CheckpointId,
    },
    /// The checkpoint's manifest, and all it names, is durable.
    Prepared {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Its manifest.
        manifest: ObjectName,
        /// The checksum in the manifest's last member.
        sha256: Digest,
        /// Why it was taken.
        purpose: Purpose,
        /// Bytes it uploaded.
        bytes_new: u64,
        /// Bytes it shares with earlier checkpoints.
        bytes_referenced: u64,
        /// As in [`Entry::Reserved`].
        checkpoints_below: CheckpointId,
    },
    /// The checkpoint may be restored, and what depends on it may become visible.
    Decided {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoints are neither restored nor referred to any more; their objects may be gone.
    Retired {
        /// The checkpoints.
        checkpoints: Vec<CheckpointId>,
    },
}

impl Entry {
    /// Whether it retires checkpoints: the one entry that another than the attempt may append beside it.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        matches!(self, Self::Retired { .. })
    }
}

/// What an attempt starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restored {
    /// Empty state, and the sources' own beginnings.
    Nothing,
    /// A checkpoint of this job.
    Checkpoint(CheckpointId),
}

/// What is set for each node, by uid.
pub type Settings = BTreeMap<OperatorUid, Setting>;

/// What is set for a node and may change in a running job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setting {
    /// The component of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Digest>,
    /// The number of subtasks.
    pub parallelism: Parallelism,
}

/// Why a stored entry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Damaged, cut, or of a later format.
    #[error(transparent)]
    Sealed(#[from] sealed::Error),
    /// Of a kind that came later.
    #[error("it is of the kind `{0}`, which this wasmill does not know: use the version that wrote it, or a newer one")]
    Kind(String),
    /// Under another's name.
    #[error("it is entry {found}, stored under the name of entry {expected}")]
    OtherSeq {
        /// By the object's name.
        expected: Seq,
        /// By the entry itself.
        found: Seq,
    },
}

const KINDS: [&str; 5] = ["attempt-started", "reserved", "prepared", "decided", "retired"];

impl Record {
    /// The bytes to store.
    ///
    /// # Errors
    /// Never in practice: the record is an object.
    pub fn encode(&self) -> Result<Sealed, sealed::Error> {
        sealed::seal(self)
    }

    /// Reads the entry stored under the number `seq`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn decode(seq: Seq, bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Tagged {
            entry: Tag,
        }
        #[derive(Deserialize)]
        struct Tag {
            kind: String,
        }
        let record: Self = match sealed::unseal(bytes, FORMAT) {
            Ok((record, _)) => record,
            Err(sealed::Error::Json(error)) => {
                return Err(match serde_json::from_slice::<Tagged>(bytes) {
                    Ok(Tagged { entry: Tag { kind } }) if !KINDS.contains(&kind.as_str()) => Error::Kind(kind),
                    _ => Error::Sealed(sealed::Error::Json(error)),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if record.seq == seq { Ok(record) } else { Err(Error::OtherSeq { expected: seq, found: record.seq }) }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttemptStarted { restored: Restored::Nothing, .. } => {
                f.write_str("attempt started, nothing restored")
            }
            Self::AttemptStarted { restored: Restored::Checkpoint(id), .. } => {
                write!(f, "attempt started, checkpoint {id} restored")
            }
            Self::Reserved { checkpoints_below } => write!(f, "checkpoint ids below {checkpoints_below} reserved"),
            Self::Prepared { checkpoint, .. } => write!(f, "checkpoint {checkpoint} prepared"),
            Self::Decided { checkpoint } => write!(f, "checkpoint {checkpoint} decided"),
            Self::Retired { checkpoints } => {
                f.write_str("retired checkpoints")?;
                checkpoints.iter().try_for_each(|id| write!(f, " {id}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(entry: &str) -> Vec<u8> {
        let text = format!(r#"{{"format":1,"seq":3,"attempt":2,"writer":"w","at":5,"entry":{entry}}}"#);
        sealed::seal(&serde_json::from_str::<serde_json::Value>(&text).unwrap()).unwrap().bytes
    }

    /// Format 1 as it was first written: it must be readable for ever.
    #[test]
    fn entries_of_format_1_are_read() {
        let golden = include_str!("../../../golden/log-1.jsonl");
        let records: Vec<_> = (0..)
            .zip(golden.split_inclusive('\n'))
            .map(|(seq, line)| Record::decode(Seq(seq), line.as_bytes()).unwrap())
            .collect();
        let lines: Vec<_> = records.iter().map(|record| record.entry.to_string()).collect();
        assert_eq!(
            lines,
            [
                "attempt started, nothing restored",
                "checkpoint 1 prepared",
                "checkpoint 1 decided",
                "attempt started, checkpoint 1 restored",
                "checkpoint ids below 26 reserved",
                "checkpoint 18 prepared",
                "checkpoint 18 decided",
                "retired checkpoints 1",
            ]
        );
        let written: String = records.iter().map(|r| String::from_utf8(r.encode().unwrap().bytes).unwrap()).collect();
        assert_eq!(written, golden, "and is written the same");
    }

    #[test]
    fn an_entry_of_a_later_kind_is_refused_by_its_name() {
        for kind in ["swapped", "rescaled", "invented"] {
            let error = Record::decode(Seq(3), &stored(&format!(r#"{{"kind":"{kind}","x":1}}"#))).unwrap_err();
            assert!(matches!(&error, Error::Kind(found) if found == kind), "{error}");
        }
        let error = Record::decode(Seq(3), &stored(r#"{"kind":"decided"}"#)).unwrap_err();
        assert!(matches!(error, Error::Sealed(sealed::Error::Json(_))), "{error}");
    }

    #[test]
    fn an_entry_under_another_number_is_refused() {
        let bytes = stored(r#"{"kind":"decided","checkpoint":1}"#);
        assert!(Record::decode(Seq(3), &bytes).is_ok());
        assert!(matches!(Record::decode(Seq(4), &bytes), Err(Error::OtherSeq { .. })));
    }
}
