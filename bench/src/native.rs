//! An operator of the Rust SDK, compiled into the host and called as a guest is.
//!
//! Owns the translation between the two generated forms of the contract's types. What comes back is moved; what goes in is
//! copied, because the host only lends it, and the time of these copies is told apart: a native operator would not need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmill_guest::instance::Instance;
use wasmill_guest::state::StateHost;
use wasmill_guest::{Operator, types as sdk};
use wasmill_runtime::clock::SharedClock;
use wasmill_runtime::guest::contract as host;
use wasmill_runtime::guest::{CallError, Guest};

/// The operator `O` in the host's own code.
pub struct Native<O: Operator> {
    instance: Instance<O>,
    clock: SharedClock,
    copying: Copying,
}

/// How long the copies took that a native operator would not need.
#[derive(Debug, Clone, Default)]
pub struct Copying(Arc<AtomicU64>);

impl Copying {
    /// The time so far.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl<O: Operator> Native<O> {
    /// An instance with an empty configuration.
    ///
    /// # Errors
    /// What the operator's `configure` says.
    pub fn new(clock: SharedClock, copying: Copying) -> Result<Self, String> {
        let mut instance = Instance::new();
        let place = sdk::Subtask { index: 0, parallelism: 1, attempt: 1 };
        instance.configure("{}", place).map_err(|fault| fault.message)?;
        Ok(Self { instance, clock, copying })
    }
}

impl<O: Operator + Send> Guest for Native<O> {
    fn process(
        &mut self,
        input: u16,
        now: host::Now,
        batch: &host::Batch,
        eager: &[host::Eager],
    ) -> Result<host::Effects, CallError> {
        let begin = self.clock.monotonic();
        let (batch, eager) = (lent_batch(batch), eager.iter().map(lent_eager).collect());
        let copied = self.clock.monotonic().saturating_sub(begin);
        self.copying.0.fetch_add(copied.as_nanos() as u64, Ordering::Relaxed);
        let now = sdk::Now { watermark: now.watermark, processing_time: now.processing_time };
        let effects = self.instance.process(&mut NoLazyState, input, now, batch, eager);
        effects.map(effects_back).map_err(|fault| CallError::Fault {
            call: "process",
            component: "native".to_owned(),
            retryable: false,
            message: fault.message,
        })
    }

    fn fire(&mut self, _: host::Now, _: &host::Firing, _: &[host::Eager]) -> Result<host::Effects, CallError> {
        Err(CallError::Fault {
            call: "fire",
            component: "native".to_owned(),
            retryable: false,
            message: "a native operator has no timers".to_owned(),
        })
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// All state rides along.
struct NoLazyState;

impl StateHost for NoLazyState {
    fn value_get(&mut self, _: u16, _: u32) -> Option<Vec<u8>> {
        None
    }
    fn mark(&mut self) -> u32 {
        0
    }
    fn rollback(&mut self, _: u32) {}
}

fn lent_batch(batch: &host::Batch) -> sdk::Batch {
    sdk::Batch {
        keys: lent_column(&batch.keys),
        absent_key: batch.absent_key,
        slots: batch.slots.clone(),
        times: batch.times.clone(),
        values: lent_column(&batch.values),
        absent_values: batch.absent_values.clone(),
        headers: None,
        watermarks: batch
            .watermarks
            .iter()
            .map(|run| sdk::WatermarkRun { until: run.until, watermark: run.watermark })
            .collect(),
    }
}

fn lent_eager(eager: &host::Eager) -> sdk::Eager {
    let values =
        sdk::OptionalColumn { present: eager.values.present.clone(), values: lent_column(&eager.values.values) };
    sdk::Eager { state: eager.state, values }
}

fn lent_column(column: &host::Column) -> sdk::Column {
    sdk::Column { bytes: column.bytes.clone(), ends: column.ends.clone() }
}

fn effects_back(effects: sdk::Effects) -> host::Effects {
    let sdk::Effects { consumed, emits, values, timers, rejects } = effects;
    host::Effects {
        consumed,
        emits: host::Emits {
            outputs: emits.outputs,
            origins: emits.origins,
            keys: emits
                .keys
                .map(|keys| host::OptionalColumn { present: keys.present, values: column_back(keys.values) }),
            times: emits.times,
            values: column_back(emits.values),
            absent_values: emits.absent_values,
            headers: None,
        },
        values: values
            .into_iter()
            .map(|writes| host::ValueWrites {
                state: writes.state,
                origins: writes.origins,
                operations: writes.operations,
                values: column_back(writes.values),
            })
            .collect(),
        timers: host::TimerChanges {
            origins: timers.origins,
            operations: timers.operations,
            domains: timers.domains,
            times: timers.times,
            tags: timers.tags,
        },
        rejects: host::Rejects { origins: rejects.origins, reasons: rejects.reasons },
    }
}

fn column_back(column: sdk::Column) -> host::Column {
    host::Column { bytes: column.bytes, ends: column.ends }
}
