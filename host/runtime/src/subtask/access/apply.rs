//! A call's writes through the imports become real, once it has succeeded.
//!
//! Owns their order: first those of which memory knows what they replace, then the others, after one read of all that it lacks.
//! Does not own the log of writes ([`super::overlay`]) nor the state.

use std::collections::HashMap;

use super::CallState;
use super::collections::key_of;
use super::overlay::{Place, Step, Write};
use crate::state::{self, BLOCK, Error, KeyedState, Value};

impl CallState {
    /// Makes the writes real.
    pub(super) fn apply_writes(&mut self) -> Result<(), Error> {
        let Some(keyed) = self.keyed.as_mut().filter(|_| !self.overlay.is_empty()) else { return Ok(()) };
        let (log, elements) = self.overlay.take();
        let (keys, none) = ((&self.keys, &self.hashes[..]), keyed.no_key_hash());
        let place = |step: &Step| {
            let (state, slot) = step.place;
            let (key, hash) = key_of(slot, keys, none);
            (usize::from(state), key, hash)
        };
        let cleared = cleared(&log);
        let counts = |at: usize, step: &Step| {
            cleared.is_empty() || step.write.is_clear() || cleared.get(&step.place).is_none_or(|clear| *clear < at)
        };
        let mut later: Vec<&Step> = Vec::new();
        keyed.begin_wanted();
        for (block, steps) in log.chunks(BLOCK).enumerate() {
            keyed.guess_entries(steps.iter().map(|step| match &step.write {
                Write::Entry(name, _) => Some((place(step), &**name)),
                _ => None,
            }))?;
            for (number, step) in steps.iter().enumerate().filter(|(at, step)| counts(block * BLOCK + at, step)) {
                if !write_known(keyed, place(step), (number, &step.write), &elements)? {
                    later.push(step);
                }
            }
        }
        keyed.fetch_wanted()?;
        for step in later {
            let (state, key, hash) = place(step);
            match &step.write {
                Write::Entry(name, Some(value)) => keyed.map_put((state, key, hash), name, value.clone())?,
                Write::Entry(name, None) => keyed.map_remove((state, key, hash), name)?,
                Write::Append(start, end) => {
                    keyed.list_append(state, key, hash, elements[*start..*end].iter().cloned())?;
                }
                Write::Value(_) | Write::ClearMap | Write::ClearList => {}
            }
        }
        self.overlay.reuse((log, elements));
        Ok(())
    }
}

/// Makes a write real if memory knows what it replaces, else that is wanted; whether it is real. An entry is number `number` of
/// those looked for.
fn write_known(
    keyed: &mut KeyedState,
    place: state::Place<'_>,
    (number, write): (usize, &Write),
    elements: &[Value],
) -> Result<bool, Error> {
    let (state, key, hash) = place;
    match write {
        Write::Value(Some(value)) => keyed.set_value(state, key, hash, value)?,
        Write::Value(None) => keyed.clear_value(state, key, hash)?,
        Write::Entry(name, value) => return keyed.map_write_known(number, name, value.as_ref()),
        Write::ClearMap => keyed.map_clear(state, key, hash)?,
        Write::Append(start, end) => return keyed.list_append_known(place, &elements[*start..*end]),
        Write::ClearList => {
            keyed.list_clear(state, key, hash)?;
            keyed.forget_union(state);
        }
    }
    Ok(true)
}

/// At which step each place was cleared last: what was written there before does not count.
fn cleared(log: &[Step]) -> HashMap<Place, usize> {
    let steps = log.iter().enumerate().filter(|(_, step)| step.write.is_clear());
    steps.map(|(at, step)| (step.place, at)).collect()
}
