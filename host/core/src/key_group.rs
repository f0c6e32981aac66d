//! The only place where a key becomes a subtask: hash, key group, range of key groups.
//!
//! Owns I1 (a key's group depends only on its bytes and max parallelism) and the split of groups over subtasks; routing
//! and restore both ask here. Does not own keys' encoding.
//!
//! The hash is XXH3, 64 bits, seed 0 (<https://github.com/Cyan4973/xxHash>), pinned for ever; the group is
//! `hash mod max-parallelism`, so that any tool can compute it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Parallelism, SubtaskIndex};

/// Most key groups a job can have.
pub const MAX_KEY_GROUPS: u16 = 32_768;

/// The number of key groups of a job, 1 to [`MAX_KEY_GROUPS`], fixed for the life of its state (I11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MaxParallelism(u16);

/// A number of key groups outside 1 to [`MAX_KEY_GROUPS`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("max-parallelism must lie between 1 and {MAX_KEY_GROUPS}, not {0}")]
pub struct MaxParallelismError(pub u64);

impl MaxParallelism {
    /// What a job gets that names none: 720, which many numbers of subtasks divide evenly.
    pub const DEFAULT: Self = Self(720);

    /// Checks the range.
    ///
    /// # Errors
    /// Outside 1 to [`MAX_KEY_GROUPS`].
    pub fn new(groups: u64) -> Result<Self, MaxParallelismError> {
        match u16::try_from(groups) {
            Ok(count) if (1..=MAX_KEY_GROUPS).contains(&count) => Ok(Self(count)),
            _ => Err(MaxParallelismError(groups)),
        }
    }

    /// The number of key groups.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for MaxParallelism {
    type Error = MaxParallelismError;
    fn try_from(groups: u16) -> Result<Self, MaxParallelismError> {
        Self::new(u64::from(groups))
    }
}

impl From<MaxParallelism> for u16 {
    fn from(max: MaxParallelism) -> u16 {
        max.0
    }
}

impl fmt::Display for MaxParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The pinned hash of a key's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// XXH3-64 with seed 0.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(key))
    }

    /// The group of a key with this hash.
    #[must_use]
    pub fn group(self, max: MaxParallelism) -> KeyGroup {
        // The remainder is below max, which fits u16.
        KeyGroup((self.0 % u64::from(max.0)) as u16)
    }
}

/// The smallest unit of state that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyGroup(pub u16);

impl KeyGroup {
    /// The group of `key`.
    #[must_use]
    pub fn of(key: &[u8], max: MaxParallelism) -> Self {
        KeyHash::of(key).group(max)
    }

    /// The subtask that handles this group.
    #[must_use]
    pub fn owner(self, max: MaxParallelism, parallelism: Parallelism) -> SubtaskIndex {
        let owner = u64::from(self.0) * u64::from(parallelism.get()) / u64::from(max.0);
        // group < max, so owner < parallelism, which fits u32.
        SubtaskIndex(owner as u32)
    }
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A contiguous range of key groups, `[start, end)`; empty where a job has more subtasks than groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    /// The first group.
    pub start: u16,
    /// One past the last group.
    pub end: u16,
}

impl KeyGroupRange {
    /// All groups of a job.
    #[must_use]
    pub fn all(max: MaxParallelism) -> Self {
        Self { start: 0, end: max.0 }
    }

    /// The groups that [`KeyGroup::owner`] gives to `subtask`.
    #[must_use]
    pub fn of(subtask: SubtaskIndex, max: MaxParallelism, parallelism: Parallelism) -> Self {
        let first =
            |index: u64| (index * u64::from(max.0)).div_ceil(u64::from(parallelism.get())).min(u64::from(max.0)) as u16;
        Self { start: first(u64::from(subtask.0)), end: first(u64::from(subtask.0) + 1) }
    }

    /// Whether `group` lies in the range.
    #[must_use]
    pub fn contains(self, group: KeyGroup) -> bool {
        self.start <= group.0 && group.0 < self.end
    }

    /// Whether all of `other` lies in the range.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// Whether the ranges share a group.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// Whether it holds no group.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn route_and_restore_agree_on_the_owner(max in 1u64..=32_768, parallelism in 1u32..=40_000, group in any::<u16>()) {
            let max = MaxParallelism::new(max).unwrap();
            let parallelism = Parallelism::new(parallelism).unwrap();
            let group = KeyGroup(group % max.get());
            let owner = group.owner(max, parallelism);
            prop_assert!(owner.0 < parallelism.get());
            prop_assert!(KeyGroupRange::of(owner, max, parallelism).contains(group));
        }

        #[test]
        fn ranges_of_all_subtasks_cover_every_group_once(max in 1u64..=2_000, parallelism in 1u32..=2_500) {
            let max = MaxParallelism::new(max).unwrap();
            let parallelism = Parallelism::new(parallelism).unwrap();
            let mut next = 0;
            for subtask in parallelism.subtasks() {
                let range = KeyGroupRange::of(subtask, max, parallelism);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.end >= range.start);
                next = range.end;
            }
            prop_assert_eq!(next, max.get());
        }
    }

    /// S8: the list is pinned; a change would misroute the state of every job.
    #[test]
    fn s8_key_groups_equal_the_golden_list() {
        let max = MaxParallelism::new(128).unwrap();
        let golden = include_str!("../golden/key-groups.txt");
        let mut lines = 0;
        for line in golden.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let (name, group) = (words.next().unwrap(), words.next().unwrap());
            assert_eq!(KeyGroup::of(&golden_key(name), max).0, group.parse::<u16>().unwrap(), "{name}");
            lines += 1;
        }
        assert_eq!(lines, 1_000);
    }

    /// The keys of the golden list: `empty`, `zeros-64k`, `byte-NN` and `not-utf8-N` by rule, the rest as text.
    fn golden_key(name: &str) -> Vec<u8> {
        if name == "empty" {
            Vec::new()
        } else if name == "zeros-64k" {
            vec![0; 65_536]
        } else if let Some(hex) = name.strip_prefix("byte-") {
            vec![u8::from_str_radix(hex, 16).unwrap()]
        } else if let Some(n) = name.strip_prefix("not-utf8-") {
            let mut key = vec![0xff, 0xfe];
            key.extend(n.parse::<u32>().unwrap().to_be_bytes());
            key
        } else {
            name.as_bytes().to_vec()
        }
    }
}
