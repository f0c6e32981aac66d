//! What a call wrote through the state imports and may still be undone: a log of writes, with marks and rollback.
//!
//! Owns that a rollback undoes writes of every kind, and the bound on their bytes. Does not own what they are written over, nor how
//! the call's own reads see them ([`super::view`]): who never reads what it wrote pays for no view.

use super::lifetime::Touch;
use super::view::View;
use crate::guest::StateError;
use crate::state::{Name, Value};

/// Bytes of lazy writes that a call may hold, what marks may bring back included, where nothing else is said.
const LIMIT: usize = 64 << 20;
/// What a write is counted for beside its bytes.
const WRITE_BYTES: usize = 64;

/// A state's index and a slot of the call.
pub(super) type Place = (u16, u32);

/// The slot of state that belongs to no key.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// The writes of a call.
#[derive(Debug)]
pub(super) struct Overlay {
    log: Vec<Step>,
    /// The elements that were appended to lists.
    elements: Vec<Value>,
    view: View,
    /// Reads that refresh, which no rollback undoes.
    pub(super) touches: Vec<Touch>,
    bytes: usize,
    limit: usize,
    /// On whose behalf is written now; `None`: nobody says.
    origin: Option<u32>,
}

impl Default for Overlay {
    fn default() -> Self {
        Self {
            log: Vec::new(),
            elements: Vec::new(),
            view: View::default(),
            touches: Vec::new(),
            bytes: 0,
            limit: LIMIT,
            origin: None,
        }
    }
}

/// A write that can be undone.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) write: Write,
    /// What it was counted for.
    bytes: usize,
    origin: Option<u32>,
}

/// What was written at a place.
#[derive(Debug)]
pub(super) enum Write {
    /// A value; `None`: it was removed.
    Value(Option<Value>),
    /// An entry of a map; `None`: it was removed.
    Entry(Name, Option<Value>),
    ClearMap,
    /// Elements of a list: these among the log's.
    Append(usize, usize),
    ClearList,
}

impl Write {
    /// Whether nothing counts that was written there before.
    pub(super) fn is_clear(&self) -> bool {
        matches!(self, Self::ClearMap | Self::ClearList)
    }
}

impl Overlay {
    pub(super) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// What is written from now on is written on behalf of `origin`; `None`: of any.
    pub(super) fn act_for(&mut self, origin: Option<u32>) {
        self.origin = origin;
    }

    pub(super) fn wrote_for(&self, origins: impl Iterator<Item = u32> + Clone) -> bool {
        self.log.iter().any(|step| origins.clone().any(|origin| step.origin.is_none_or(|own| own == origin)))
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The writes, as reads see them.
    pub(super) fn view(&mut self) -> &View {
        self.view.take_in(&self.log, &self.elements);
        &self.view
    }

    /// The writes, oldest first, with the elements of all that were appended; to be given back empty to [`Overlay::reuse`].
    pub(super) fn take(&mut self) -> (Vec<Step>, Vec<Value>) {
        self.view.clear();
        (std::mem::take(&mut self.log), std::mem::take(&mut self.elements))
    }

    /// Takes back memory.
    pub(super) fn reuse(&mut self, (mut log, mut elements): (Vec<Step>, Vec<Value>)) {
        log.clear();
        elements.clear();
        (self.log, self.elements) = (log, elements);
    }

    pub(super) fn clear(&mut self) {
        self.log.clear();
        self.elements.clear();
        self.view.clear();
        self.touches.clear();
        self.bytes = 0;
    }

    pub(super) fn write_value(&mut self, place: Place, value: Option<Value>) -> Result<(), StateError> {
        let bytes = value.as_ref().map_or(0, |value| value.len());
        self.write(place, Write::Value(value), bytes)
    }

    pub(super) fn write_entry(&mut self, place: Place, name: &[u8], value: Option<Value>) -> Result<(), StateError> {
        // Twice: a view has the map key too.
        let bytes = 2 * name.len() + value.as_ref().map_or(0, |value| value.len());
        self.write(place, Write::Entry(Name::from(name), value), bytes)
    }

    pub(super) fn clear_map(&mut self, place: Place) -> Result<(), StateError> {
        self.write(place, Write::ClearMap, 0)
    }

    /// Keeps a read that refreshes; it counts as a write.
    pub(super) fn touch(&mut self, touch: Touch) -> Result<(), StateError> {
        self.charge(touch.bytes())?;
        self.touches.push(touch);
        Ok(())
    }

    pub(super) fn append(&mut self, place: Place, values: &mut dyn Iterator<Item = Value>) -> Result<(), StateError> {
        let start = self.elements.len();
        self.write(place, Write::Append(start, start), 0)?;
        for value in values {
            let charged = self.charge(value.len())?;
            self.elements.push(value);
            if let Some(Step { write: Write::Append(_, end), bytes, .. }) = self.log.last_mut() {
                (*end, *bytes) = (self.elements.len(), *bytes + charged);
            }
        }
        Ok(())
    }

    pub(super) fn clear_list(&mut self, place: Place) -> Result<(), StateError> {
        self.write(place, Write::ClearList, 0)
    }

    pub(super) fn mark(&self) -> u32 {
        u32::try_from(self.log.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn rollback(&mut self, mark: u32) -> Result<(), StateError> {
        if mark as usize > self.log.len() {
            return Err(StateError::Misuse(format!(
                "mark {mark} was not given in this call, or was rolled back before"
            )));
        }
        while self.log.len() > mark as usize {
            let Some(step) = self.log.pop() else { break };
            self.bytes -= step.bytes;
            self.view.give_back(self.log.len(), &step);
            if let Write::Append(start, _) = step.write {
                self.elements.truncate(start);
            }
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, place: Place, write: Write, bytes: usize) -> Result<(), StateError> {
        let bytes = self.charge(bytes)?;
        self.log.push(Step { place, write, bytes, origin: self.origin });
        Ok(())
    }

    /// Counts a write; returns for how much.
    #[inline]
    fn charge(&mut self, bytes: usize) -> Result<usize, StateError> {
        let bytes = bytes + WRITE_BYTES;
        if self.bytes + bytes > self.limit {
            let limit = self.limit;
            return Err(StateError::Misuse(format!(
                "the call wrote more than its limit of {limit} bytes of lazy state: raise `limits.overlay`, or write less in one call"
            )));
        }
        self.bytes += bytes;
        Ok(bytes)
    }
}
