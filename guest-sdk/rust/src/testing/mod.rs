//! Operators under `cargo test`: the SDK's own path from columns to effects, without WebAssembly and without a host.
//!
//! Owns an in-memory state with timers, the forming of batches and a record of what was emitted, logged and counted. Does not
//! own limits, failure policies and fan-out: those are the host's. What expires by a TTL does so as soon as time reaches it.
//!
//! ```
//! use wasmill_guest::prelude::*;
//! use wasmill_guest::testing::{Harness, Input};
//!
//! #[derive(Operator)]
//! struct Sum {
//!     sum: Value<i64>,
//! }
//!
//! impl Process for Sum {
//!     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
//!         let add: i64 = record.value()?;
//!         let sum = *self.sum.update(ctx, |sum| *sum += add)?;
//!         ctx.emit(&sum)
//!     }
//! }
//!
//! let mut test = Harness::<Sum>::new("{}")?;
//! let emits = test.process([Input::new(&2).key("a"), Input::new(&3).key("a")])?;
//! assert_eq!(emits[1].value::<i64>()?, 5);
//! assert_eq!(test.state::<i64>("sum", "a")?, Some(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod drive;
mod expired;
mod inspect;
mod memory;
mod recorder;
mod stamps;
#[cfg(test)]
mod tests;
mod timers;

use serde::de::DeserializeOwned;

use crate::bindings::wasmill::operator::types::{Fault, Now, Subtask};
use crate::cbor;
use crate::instance::Instance;
use crate::key::FromKey;
use crate::operator::Operator;
use crate::time::Timestamp;
use crate::timer::TimerId;
use memory::Memory;
use recorder::Recorder;

pub use batch::Input;

/// A record that an operator emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// The output's name.
    pub output: String,
    /// The key: its own, or that of the record on whose behalf it was emitted.
    pub key: Option<Vec<u8>>,
    /// The time: its own, or that of the record on whose behalf it was emitted.
    pub time: Timestamp,
    /// The value; `None` where it is absent.
    pub bytes: Option<Vec<u8>>,
    /// The headers, as (name, value).
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Emitted {
    /// The value, decoded from CBOR.
    ///
    /// # Errors
    /// When it is absent or another type's.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, cbor::Error> {
        cbor::from_slice(self.bytes.as_deref().unwrap_or_default())
    }

    /// The key, decoded; `None` where there is none or it is another type's.
    #[must_use]
    pub fn key<'a, K: FromKey<'a>>(&'a self) -> Option<K> {
        self.key.as_deref().and_then(|bytes| K::from_key(bytes).ok())
    }
}

/// A record that an operator refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The record's index in the call to [`Harness::process`].
    pub record: usize,
    /// The reason given.
    pub reason: String,
}

/// A timer that an operator refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTimer {
    /// Its key's bytes.
    pub key: Option<Vec<u8>>,
    /// Domain, time and tag.
    pub timer: TimerId,
    /// The reason given.
    pub reason: String,
}

/// An operator under test.
///
/// Records go in by [`Harness::process`], time goes on by [`Harness::advance_watermark`] and
/// [`Harness::advance_processing_time`], and [`Harness::end_of_input`] ends it all.
pub struct Harness<O> {
    instance: Instance<O>,
    config: String,
    memory: Memory,
    recorder: Recorder,
    rejects: Vec<Rejected>,
    timer_rejects: Vec<RejectedTimer>,
    dropped_timers: usize,
    batch_size: usize,
    now: Now,
}

impl<O: Operator> Harness<O> {
    /// The operator with this configuration (JSON; `{}` for none), no state, the watermark before all time, and batches of up
    /// to 1,024 records.
    ///
    /// # Errors
    /// When the operator does not take the configuration.
    pub fn new(config: &str) -> Result<Self, Fault> {
        let mut harness = Self {
            instance: Instance::new(),
            config: config.to_owned(),
            memory: Memory::of(&Instance::<O>::describe().states),
            recorder: Recorder::default(),
            rejects: Vec::new(),
            timer_rejects: Vec::new(),
            dropped_timers: 0,
            batch_size: 1024,
            now: Now { watermark: Timestamp::MIN.as_millis(), processing_time: 0 },
        };
        harness.renew()?;
        Ok(harness)
    }

    /// Cuts batches and rounds of timers at this many. An operator's output does not depend on it: test with 1, too.
    #[must_use]
    pub fn batches_of(mut self, records: usize) -> Self {
        self.batch_size = records.max(1);
        self
    }

    /// Puts a fresh instance in the operator's place, as after a trap, a restore or a swap: state and timers stay, memory does
    /// not.
    ///
    /// # Errors
    /// When the operator does not take its configuration.
    pub fn renew(&mut self) -> Result<(), Fault> {
        self.instance = Instance::new();
        let place = Subtask { index: 0, parallelism: 1, attempt: 1 };
        let Self { instance, config, recorder, .. } = self;
        recorder.during(|| instance.configure(config, place))
    }

    /// Goes on with another configuration, as a job that was stopped and started again.
    ///
    /// # Errors
    /// When the operator does not take it.
    pub fn reconfigure(&mut self, config: &str) -> Result<(), Fault> {
        config.clone_into(&mut self.config);
        self.renew()
    }
}
