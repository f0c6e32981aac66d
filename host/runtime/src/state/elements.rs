//! State that belongs to no key: broadcast state, which is a map, and operator state, which is a list.
//!
//! Owns where their rows lie, how elements come out of the local cuts of other subtasks, and what union state shows until it is
//! replaced. Who gets which elements is decided in `core::checkpoint::elements`; maps and lists are [`super::map`]'s and [`super::list`]'s.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use wasmill_core::checkpoint::elements;
use wasmill_core::contract::StateKind;
use wasmill_core::id::{Parallelism, StateName, SubtaskIndex};
use wasmill_core::key_group::{KeyGroupRange, KeyHash};
use wasmill_core::record::Column;

use super::backend::Backend;
use super::error::Error;
use super::keyed::KeyedState;
use super::run::Value;
use super::scan::{PAGE_BYTES, PAGE_ENTRIES};
use super::{SharedMemory, StateSpec, lifetime, row};

/// The key under which state without keys lies: the empty one of the first of the subtask's key groups.
pub const NO_KEY: &[u8] = b"";

/// The elements of a checkpoint, by state and then by the subtask that had them.
pub type Elements = BTreeMap<StateName, Vec<Arc<Column>>>;

/// All key groups that there can be.
pub(super) const ALL_GROUPS: KeyGroupRange = KeyGroupRange { start: 0, end: u16::MAX };

/// Reads the elements of the operator states among `states` out of local cuts, those of one operator's subtasks in their order.
///
/// # Errors
/// A local cut that cannot be read; elements of another schema version than is declared.
pub fn read_elements(
    dirs: &[PathBuf],
    states: &[StateSpec],
    shared: &SharedMemory,
    place: &str,
) -> Result<Elements, Error> {
    let mut elements = Elements::new();
    for dir in dirs {
        let backend = Backend::open_read_only(dir, ALL_GROUPS, (shared, place))?;
        for spec in states.iter().filter(|spec| spec.kind.is_operator()) {
            let family = backend.families().iter().position(|family| family == spec.name.as_str());
            let column = family.map(|family| column(&backend, family, spec)).transpose()?;
            elements.entry(spec.name.clone()).or_default().push(Arc::new(column.unwrap_or_default()));
        }
    }
    Ok(elements)
}

fn column(backend: &Backend, family: usize, spec: &StateSpec) -> Result<Column, Error> {
    let mut column = Column::default();
    backend.scan(family, ALL_GROUPS, |key, value| {
        if !row::is_head(value) {
            let bad = |reason| backend.bad_row(family, key, reason);
            let found = row::decode_value(value).map_err(bad)?;
            if found.version != spec.version {
                return Err(backend.other_version(spec, found.version));
            }
            let mut stored = Vec::new();
            let at = lifetime::find(found.entry, None, value.len(), &mut stored).map_err(bad)?;
            column.push(at.map_or(&stored[..], |at| &value[at..]));
        }
        Ok(())
    })?;
    Ok(column)
}

impl KeyedState {
    /// The hash by which [`NO_KEY`] lies in the first of the subtask's key groups.
    #[must_use]
    pub fn no_key_hash(&self) -> KeyHash {
        KeyHash(u64::from(self.range.start))
    }

    /// Begins with a checkpoint's elements: takes the subtask's own where they are not there yet, and shows all of union state
    /// until it is replaced. To be called once, before anything else.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn take_elements(
        &mut self,
        restored: &Elements,
        subtask: SubtaskIndex,
        parallelism: Parallelism,
    ) -> Result<(), Error> {
        let hash = self.no_key_hash();
        for state in 0..self.rows.states.len() {
            let spec = &self.rows.states[state];
            let Some(parts) = restored.get(&spec.name) else { continue };
            let is_union = spec.kind == StateKind::OperatorUnion;
            let counts: Vec<_> = parts.iter().map(|part| part.len() as u64).collect();
            if counts.len() != parallelism.get() as usize {
                let own = elements::own(&counts, subtask, parallelism);
                let values = parts.iter().flat_map(|part| part.iter());
                // Key groups of before may be a subtask's again at another parallelism: its rows are not its elements.
                self.list_clear(state, NO_KEY, hash)?;
                let own = values.skip(own.start as usize).take((own.end - own.start) as usize);
                self.list_append(state, NO_KEY, hash, own.map(Value::from).collect::<Vec<_>>())?;
            }
            if is_union {
                self.unions.insert(state, parts.clone());
            }
        }
        Ok(())
    }

    /// At most `limit` elements from `start` on of what union state shows of all subtasks; `None`: it shows its own.
    #[must_use]
    pub fn union_page(&self, state: usize, start: u64, limit: usize) -> Option<Column> {
        let all = self.unions.get(&state)?.iter().flat_map(|part| part.iter());
        let mut page = Column::default();
        for value in all.skip(usize::try_from(start).unwrap_or(usize::MAX)).take(limit.min(PAGE_ENTRIES)) {
            page.push(value);
            if page.bytes().len() >= PAGE_BYTES {
                break;
            }
        }
        Some(page)
    }

    /// From now on union state shows the subtask's own elements.
    pub fn forget_union(&mut self, state: usize) {
        self.unions.remove(&state);
    }
}
