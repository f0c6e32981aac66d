//! How many entries and bytes each state has, per key group.
//!
//! Owns the exact counts, their stored form in a checkpoint's manifest, and their merge and split along key groups. Does not
//! own when they change.

use serde::{Deserialize, Serialize};

use crate::id::StateName;
use crate::key_group::{KeyGroup, KeyGroupRange};

/// Entries and their bytes (key and value; of a row's header nothing). Stored as a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct Tally {
    /// How many entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl From<(u64, u64)> for Tally {
    fn from((entries, bytes): (u64, u64)) -> Self {
        Self { entries, bytes }
    }
}

impl From<Tally> for (u64, u64) {
    fn from(tally: Tally) -> Self {
        (tally.entries, tally.bytes)
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Exact counts of a set of states over a range of key groups; plain data, stored in the checkpoint's manifest.
///
/// ```
/// use wasmill_core::{checkpoint::counts::Counts, id::StateName, key_group::KeyGroupRange};
/// let counts = Counts::new([StateName::new("count").unwrap()], KeyGroupRange { start: 0, end: 2 });
/// assert_eq!(serde_json::to_string(&counts).unwrap(), r#"[{"state":"count","first-group":0,"groups":[[0,0],[0,0]]}]"#);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts {
    states: Vec<StateCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StateCounts {
    state: StateName,
    first_group: u16,
    /// By key group from `first_group` on.
    groups: Vec<Tally>,
}

impl Counts {
    /// Zero for every group of `range` in each of `states`.
    pub fn new(states: impl IntoIterator<Item = StateName>, range: KeyGroupRange) -> Self {
        let mut counts = Self::default();
        for state in states {
            counts.cover(&state, range);
        }
        counts
    }

    /// Adds the counts of other groups; where both have a group, its counts are summed.
    pub fn merge(&mut self, other: &Self) {
        for theirs in &other.states {
            let range = theirs.range();
            let index = self.cover(&theirs.state, range);
            for (group, tally) in (range.start..range.end).zip(&theirs.groups) {
                if let Some(ours) = self.tally_mut(index, KeyGroup(group)) {
                    *ours += *tally;
                }
            }
        }
    }

    /// The counts of the groups in `range` alone, over the whole of `range`.
    #[must_use]
    pub fn restrict(&self, range: KeyGroupRange) -> Self {
        let mut counts = Self::default();
        for theirs in &self.states {
            let index = counts.cover(&theirs.state, range);
            let ours = &mut counts.states[index];
            for (group, into) in (ours.first_group..).zip(&mut ours.groups) {
                *into += theirs.get(KeyGroup(group));
            }
        }
        counts
    }

    /// Each state's name and its counts over all groups.
    pub fn states(&self) -> impl Iterator<Item = (&StateName, Tally)> {
        self.states.iter().map(|state| (&state.state, state.total()))
    }

    /// Each state's name and the groups it is counted for.
    pub fn ranges(&self) -> impl Iterator<Item = (&StateName, KeyGroupRange)> {
        self.states.iter().map(|state| (&state.state, state.range()))
    }

    /// The counts of one group of a state; zero where there is none.
    #[must_use]
    pub fn get(&self, state: &StateName, group: KeyGroup) -> Tally {
        self.find(state).map_or_else(Tally::default, |index| self.states[index].get(group))
    }

    /// The counts over all states and groups.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for state in &self.states {
            total += state.total();
        }
        total
    }

    /// The index of `state`, made to cover at least `range`.
    pub fn cover(&mut self, state: &StateName, range: KeyGroupRange) -> usize {
        let Some(index) = self.find(state) else {
            let groups = vec![Tally::default(); usize::from(range.end.saturating_sub(range.start))];
            self.states.push(StateCounts { state: state.clone(), first_group: range.start, groups });
            return self.states.len() - 1;
        };
        let counts = &mut self.states[index];
        let have = counts.range();
        if range.is_empty() {
            return index;
        }
        if have.is_empty() {
            counts.first_group = range.start;
            counts.groups = vec![Tally::default(); usize::from(range.end - range.start)];
            return index;
        }
        if range.start < have.start {
            let before = usize::from(have.start - range.start);
            counts.groups.splice(0..0, std::iter::repeat_n(Tally::default(), before));
            counts.first_group = range.start;
        }
        let needed = usize::from(range.end.max(have.end) - counts.first_group);
        counts.groups.resize(needed, Tally::default());
        index
    }

    /// The groups of the state at `index`, which must begin with `first` (as after [`Counts::cover`] with one range).
    pub fn tally_mut(&mut self, index: usize, group: KeyGroup) -> Option<&mut Tally> {
        let state = self.states.get_mut(index)?;
        state.groups.get_mut(usize::from(group.0.checked_sub(state.first_group)?))
    }

    fn find(&self, state: &StateName) -> Option<usize> {
        self.states.iter().position(|counts| counts.state == *state)
    }
}

impl StateCounts {
    fn range(&self) -> KeyGroupRange {
        let end = usize::from(self.first_group).saturating_add(self.groups.len());
        KeyGroupRange { start: self.first_group, end: u16::try_from(end).unwrap_or(u16::MAX) }
    }

    fn get(&self, group: KeyGroup) -> Tally {
        let index = group.0.checked_sub(self.first_group).map(usize::from);
        index.and_then(|index| self.groups.get(index)).copied().unwrap_or_default()
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in &self.groups {
            total += *tally;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> StateName {
        StateName::new(name).unwrap()
    }

    fn filled(range: KeyGroupRange) -> Counts {
        let mut counts = Counts::new([name("a"), name("b")], range);
        for group in range.start..range.end {
            let entries = u64::from(group);
            *counts.tally_mut(0, KeyGroup(group)).unwrap() = Tally { entries, bytes: 10 * entries };
            *counts.tally_mut(1, KeyGroup(group)).unwrap() = Tally { entries: 1, bytes: 1 };
        }
        counts
    }

    #[test]
    fn counts_split_along_ranges_merge_to_the_whole() {
        let whole = filled(KeyGroupRange { start: 0, end: 10 });
        for cut in 0..=10 {
            let mut merged = whole.restrict(KeyGroupRange { start: cut, end: 10 });
            merged.merge(&whole.restrict(KeyGroupRange { start: 0, end: cut }));
            assert_eq!(merged, whole, "{cut}");
        }
        assert_eq!(whole.total(), Tally { entries: 45 + 10, bytes: 450 + 10 });
        assert_eq!(whole.get(&name("a"), KeyGroup(7)), Tally { entries: 7, bytes: 70 });
        assert_eq!(whole.get(&name("c"), KeyGroup(7)), Tally::default());
    }

    #[test]
    fn counts_are_read_back_as_they_were_stored() {
        let counts = filled(KeyGroupRange { start: 3, end: 5 });
        let stored = r#"[{"state":"a","first-group":3,"groups":[[3,30],[4,40]]},{"state":"b","first-group":3,"groups":[[1,1],[1,1]]}]"#;
        assert_eq!(serde_json::to_string(&counts).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Counts>(stored).unwrap(), counts);
    }

    #[test]
    fn counts_that_leave_the_range_of_groups_do_not_panic() {
        let text = r#"[{"state":"a","first-group":65535,"groups":[[1,1],[1,1],[1,1]]}]"#;
        let hostile: Counts = serde_json::from_str(text).unwrap();
        let mut merged = filled(KeyGroupRange { start: 0, end: 2 });
        merged.merge(&hostile);
        assert_eq!(merged.restrict(KeyGroupRange { start: 65_000, end: 65_535 }).total(), Tally::default());
    }
}
