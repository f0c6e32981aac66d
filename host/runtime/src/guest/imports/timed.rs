//! Imports of many elements and the time of the call that makes them.
//!
//! Owns how often it is looked whether the time is over, and that the call then ends as one whose own code took too long: the
//! engine stops that alone, and not what the host does for it. Does not own the clock ([`super::super::engine`]).

use wasmill_core::record::OptionalColumn;
use wasmtime::{Result, Trap};

use crate::guest::instance::Data;
use crate::guest::{StateError, check_answer};

/// So many elements are handled between two looks at the clock: where each is read from a disk, some tenths of a second.
pub(super) const ELEMENTS: usize = 1_024;

type Elements<'e, 'v> = &'e mut dyn Iterator<Item = &'v [u8]>;

impl Data {
    /// Ends the call where its time is over; looks before some of an import's elements only, the first among them.
    pub(super) fn check_time(&self, element: usize) -> Result<()> {
        if element.is_multiple_of(ELEMENTS) && self.deadline.has_passed() {
            return Err(Trap::Interrupt.into());
        }
        Ok(())
    }

    /// Asks for all that is wanted, some at a time.
    pub(super) fn ask<T>(
        &self,
        wanted: &[T],
        mut ask: impl FnMut(&[T]) -> Result<OptionalColumn, StateError>,
    ) -> Result<OptionalColumn> {
        if wanted.len() <= ELEMENTS {
            return Ok(ask(wanted)?);
        }
        let mut all = OptionalColumn::default();
        for (at, some) in wanted.chunks(ELEMENTS).enumerate() {
            self.check_time(at * ELEMENTS)?;
            ask(some)?.iter().for_each(|value| all.push(value));
            check_answer(&all)?;
        }
        Ok(all)
    }

    /// Gives all values to a state that takes them at once; where the time is over it is given no more of them.
    pub(super) fn give<'v>(
        &self,
        values: impl Iterator<Item = &'v [u8]>,
        take: impl FnOnce(Elements<'_, 'v>) -> Result<(), StateError>,
    ) -> Result<()> {
        let mut in_time = Ok(());
        let mut values = values.enumerate().map_while(|(at, value)| match self.check_time(at) {
            Ok(()) => Some(value),
            Err(error) => {
                in_time = Err(error);
                None
            }
        });
        take(&mut values)?;
        in_time
    }
}
