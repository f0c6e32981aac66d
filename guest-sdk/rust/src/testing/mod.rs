//! Operators under `cargo test`: the SDK's own path from columns to effects, without WebAssembly and without a host.
//!
//! Owns an in-memory state, the forming of batches and a record of what was emitted, logged and counted. Does not own
//! limits, failure policies and fan-out: those are the host's.
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
mod memory;
mod recorder;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::wasmill::operator::types::{Effects, Fault, Now, Subtask};
use crate::cbor;
use crate::diagnostics::Level;
use crate::error::fatal;
use crate::instance::Instance;
use crate::key::{FromKey, Key};
use crate::operator::Operator;
use crate::time::Timestamp;
use batch::Formed;
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

/// An operator under test.
pub struct Harness<O> {
    instance: Instance<O>,
    config: String,
    memory: Memory,
    recorder: Recorder,
    rejects: Vec<Rejected>,
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
            batch_size: 1024,
            now: Now { watermark: Timestamp::MIN.as_millis(), processing_time: 0 },
        };
        harness.renew()?;
        Ok(harness)
    }

    /// Cuts batches at this many records. An operator's output does not depend on it: test with 1, too.
    #[must_use]
    pub fn batches_of(mut self, records: usize) -> Self {
        self.batch_size = records.max(1);
        self
    }

    /// Sets the watermark for what follows.
    pub fn set_watermark(&mut self, watermark: Timestamp) {
        self.now.watermark = watermark.as_millis();
    }

    /// Sets the processing time for what follows.
    pub fn set_processing_time(&mut self, time: Timestamp) {
        self.now.processing_time = time.as_millis();
    }

    /// Feeds records and returns what they emitted.
    ///
    /// # Errors
    /// The fault by which the operator gave up. The batch it happened in left no trace, those before it stand.
    pub fn process(&mut self, records: impl IntoIterator<Item = Input>) -> Result<Vec<Emitted>, Fault> {
        let records: Vec<Input> = records.into_iter().collect();
        self.rejects.clear();
        let mut emitted = Vec::new();
        let mut rest = records.as_slice();
        while let Some(first) = rest.first() {
            let same_input = rest.iter().take_while(|record| record.input == first.input).count();
            let (batch, after) = rest.split_at(same_input.min(self.batch_size));
            self.call(&Formed::of(batch, self.now.watermark), records.len() - rest.len(), &mut emitted)?;
            rest = after;
        }
        Ok(emitted)
    }

    /// The records that the last call of [`Harness::process`] refused.
    #[must_use]
    pub fn rejects(&self) -> &[Rejected] {
        &self.rejects
    }

    /// A key's value in a state, decoded from CBOR.
    ///
    /// # Errors
    /// When the operator declares no such state, or the value is another type's.
    pub fn state<T: DeserializeOwned>(&self, state: &str, key: &(impl Key + ?Sized)) -> Result<Option<T>, Fault> {
        let bytes = self.state_bytes(state, key)?;
        bytes.map(|bytes| cbor::from_slice(bytes).map_err(fatal)).transpose()
    }

    /// The bytes of a key's value in a state.
    ///
    /// # Errors
    /// When the operator declares no such state.
    pub fn state_bytes(&self, state: &str, key: &(impl Key + ?Sized)) -> Result<Option<&[u8]>, Fault> {
        Ok(self.memory.get(self.memory.index(state)?, Some(&key_bytes(key)?)))
    }

    /// Puts a key's value into a state, as if it had been restored.
    ///
    /// # Errors
    /// When the operator declares no such state, or the value does not encode.
    pub fn put_state<T: Serialize + ?Sized>(
        &mut self,
        state: &str,
        key: &(impl Key + ?Sized),
        value: &T,
    ) -> Result<(), Fault> {
        let index = self.memory.index(state)?;
        self.memory.put(index, Some(key_bytes(key)?), cbor::to_vec(value).map_err(fatal)?);
        Ok(())
    }

    /// How many keys have a value in a state.
    ///
    /// # Errors
    /// When the operator declares no such state.
    pub fn state_len(&self, state: &str) -> Result<usize, Fault> {
        Ok(self.memory.len(self.memory.index(state)?))
    }

    /// Puts a fresh instance in the operator's place, as after a trap, a restore or a swap: state stays, memory does not.
    ///
    /// # Errors
    /// When the operator does not take its configuration.
    pub fn renew(&mut self) -> Result<(), Fault> {
        self.instance = Instance::new();
        let place = Subtask { index: 0, parallelism: 1, attempt: 1 };
        let Self { instance, config, recorder, .. } = self;
        recorder.during(|| instance.configure(config, place))
    }

    /// What was logged so far.
    #[must_use]
    pub fn logs(&self) -> Vec<(Level, String)> {
        self.recorder.logs()
    }

    /// A counter's sum so far.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.recorder.counter(name)
    }

    /// A gauge's newest value.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.recorder.gauge(name)
    }

    /// The values that a histogram got so far.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Vec<f64> {
        self.recorder.histogram(name)
    }

    fn call(&mut self, formed: &Formed, first: usize, emitted: &mut Vec<Emitted>) -> Result<(), Fault> {
        let Self { instance, memory, recorder, now, .. } = self;
        let eager = memory.begin(formed);
        let batch = formed.batch.clone();
        let result = recorder.during(|| instance.process(memory, formed.input, *now, batch, eager));
        let Effects { consumed, emits, values, rejects, .. } = match result {
            Ok(effects) => effects,
            Err(fault) => {
                memory.undo();
                return Err(fault);
            }
        };
        if consumed as usize != formed.len() {
            return Err(fatal("the operator stopped within a batch, and no timer falls due there"));
        }
        memory.apply(formed, &values)?;
        emitted.extend(batch::emitted(formed, &emits, O::OUTPUTS)?);
        for (origin, reason) in rejects.origins.as_chunks().0.iter().zip(rejects.reasons) {
            self.rejects.push(Rejected { record: first + u32::from_le_bytes(*origin) as usize, reason });
        }
        Ok(())
    }
}

fn key_bytes(key: &(impl Key + ?Sized)) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    key.write(&mut bytes).map_err(fatal)?;
    Ok(bytes)
}
