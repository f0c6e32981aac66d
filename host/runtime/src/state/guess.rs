//! Where many entries of maps are, looked for together so that their reads of memory overlap.
//!
//! Owns the steps of the look-up: an entry out of the processor's caches takes several reads, one after the other; here the first
//! reads of all entries are made before the second ones, and so on. Does not own what is found there ([`super::map`]).

use wasmill_core::contract::StateKind;

use super::collection::Place;
use super::entries::{EntryAt, NameHash};
use super::error::Error;
use super::keyed::KeyedState;
use super::runs::RunIndex;

/// Entries looked for together: few enough to stay in the processor's nearest cache.
pub const BLOCK: usize = 64;

/// Where an entry of a map almost surely is, until runs are forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guess {
    pub(super) run: RunIndex,
    hash: NameHash,
    pub(super) at: Option<EntryAt>,
}

impl KeyedState {
    /// Looks for entries of maps, at most [`BLOCK`], for [`KeyedState::map_look`] and [`KeyedState::map_write_known`], which are
    /// told their numbers; `None` counts too.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn guess_entries<'a>(
        &mut self,
        entries: impl Iterator<Item = Option<(Place<'a>, &'a [u8])>>,
    ) -> Result<(), Error> {
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.clear();
        for entry in entries {
            let Some((place, name)) = entry else {
                guesses.push(None);
                continue;
            };
            let run = self.run(StateKind::Map, place)?;
            guesses.push(Some(Guess { run, hash: self.runs.get(run).hash_of(name), at: None }));
        }
        for guess in guesses.iter_mut().flatten() {
            guess.at = self.runs.get(guess.run).guess(guess.hash);
        }
        let mut touched = false;
        let sequence = self.sequence + 1;
        for Guess { run, at, .. } in guesses.iter().flatten() {
            let change = at.and_then(|at| self.runs.get(*run).touch(at, sequence));
            touched ^= change.is_some_and(|(key, index)| self.changes.touch(key, index));
        }
        // It means nothing, but it must be read.
        std::hint::black_box(touched);
        self.guesses = guesses;
        Ok(())
    }

    /// The run of entry number `number` among those looked for last, and where the entry is in it.
    pub(super) fn guessed(&self, number: usize, name: &[u8]) -> Result<(RunIndex, Option<EntryAt>), Error> {
        let guess = self.guesses.get(number).copied().flatten();
        let Guess { run, at, .. } = guess.ok_or_else(|| self.misuse(format!("entry {number} was not looked for")))?;
        Ok((run, self.runs.get(run).find_at(at, name)))
    }
}
