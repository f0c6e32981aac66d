//! Names and numbers by which jobs, operators, subtasks and checkpoints are known.
//!
//! Owns the rules of what a valid name is. Does not own what the ids point at.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// Longest name of a job, operator or state, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name that breaks the rule of [`OperatorUid`], [`JobId`] or [`StateName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not a valid {what}: use 1 to {MAX_NAME_BYTES} of the characters a-z A-Z 0-9 _ - . beginning with a letter or digit"
)]
pub struct NameError {
    what: &'static str,
    name: String,
}

fn checked(what: &'static str, name: &str) -> Result<String, NameError> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if first && rest && name.len() <= MAX_NAME_BYTES {
        Ok(name.to_owned())
    } else {
        Err(NameError { what, name: name.chars().take(80).collect() })
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the name.
            ///
            /// # Errors
            /// When it is empty, longer than [`MAX_NAME_BYTES`] or holds another character than `a-z A-Z 0-9 _ - .`.
            pub fn new(name: &str) -> Result<Self, NameError> {
                checked($what, name).map(Self)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(&name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A running pipeline's name; the folder of its checkpoints.
    JobId, "job name"
);
name!(
    /// The stable name of a node of the graph, by which its state is found.
    OperatorUid, "uid"
);
name!(
    /// The name of a state within its operator.
    StateName, "state name"
);

macro_rules! number {
    ($(#[$doc:meta])* $type:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(pub $inner);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Which of an operator's parallel instances, from 0.
    SubtaskIndex(u32)
);
number!(
    /// A checkpoint's number: rises within a job's lineage and is never used twice.
    CheckpointId(u64)
);
number!(
    /// One life of a job between restarts, from 1; the fencing token.
    Attempt(u64)
);

/// How many subtasks an operator has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parallelism(pub NonZeroU32);

impl Parallelism {
    /// One subtask.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// `None` for 0.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).map(Self)
    }

    /// The number of subtasks.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The subtasks' indexes in order.
    pub fn subtasks(self) -> impl Iterator<Item = SubtaskIndex> + use<> {
        (0..self.get()).map(SubtaskIndex)
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A subtask of the job: the operator and its index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubtaskId {
    /// The operator.
    pub uid: OperatorUid,
    /// The place among the operator's subtasks.
    pub index: SubtaskIndex,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_its_folder_is_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "-a", "é", &"x".repeat(65)] {
            assert!(OperatorUid::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "per-aircraft", "Ops_1.v2", &"x".repeat(64)] {
            assert_eq!(OperatorUid::new(good).unwrap().as_str(), good);
        }
    }
}
