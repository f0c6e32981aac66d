//! The instance of a subtask, made anew after a failure and, where the pipeline says so, when it has grown.
//!
//! Owns when there is a new one. Nothing in an instance's memory counts: it is a cache. Does not own what an instance may use.

use std::sync::Arc;

use wasmill_core::fault::Fault;

use crate::guest::{Guest, GuestFactory, InstanceOptions, SharedState};

/// Makes a subtask's instances, one at a time.
pub struct Instances {
    factory: Arc<dyn GuestFactory>,
    options: InstanceOptions,
    state: SharedState,
    renew_above: Option<u64>,
    current: Option<Box<dyn Guest>>,
}

impl Instances {
    /// With the first instance. One that holds more than `renew_above` bytes of memory between two calls is replaced.
    ///
    /// # Errors
    /// An instance that cannot be made or does not take its configuration.
    pub fn new(
        factory: Arc<dyn GuestFactory>,
        options: InstanceOptions,
        state: SharedState,
        renew_above: Option<u64>,
    ) -> Result<Self, Fault> {
        let mut instances = Self { factory, options, state, renew_above, current: None };
        instances.current()?;
        Ok(instances)
    }

    /// SHA-256 of the component's file, in hex.
    pub(super) fn digest(&self) -> &str {
        self.factory.digest()
    }

    /// The instance, a new one where there is none.
    pub(super) fn current(&mut self) -> Result<&mut dyn Guest, Fault> {
        let guest = match self.current.take() {
            Some(guest) => guest,
            None => self.factory.instantiate(&self.options, Arc::clone(&self.state))?,
        };
        Ok(&mut **self.current.insert(guest))
    }

    /// Ends the instance: its memory is given back before another is made.
    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// Ends the instance if it has grown past the mark; whether it had.
    pub(super) fn end_if_grown(&mut self) -> bool {
        let memory = self.current.as_ref().map_or(0, |guest| guest.memory_bytes());
        let grown = self.renew_above.is_some_and(|mark| memory > mark);
        if grown {
            self.end();
        }
        grown
    }
}
