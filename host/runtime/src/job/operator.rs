//! What an operator's subtask stands on, whoever runs it: its state opened, its first instance made.
//!
//! Owns how a pipeline's settings become the state's and the instance's. Does not own the subtask's channels nor its loop.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::id::{Attempt, Parallelism, SubtaskId};
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::Now;

use crate::clock::SharedClock;
use crate::config::operator::Limits as Declared;
use crate::guest::{Component, GuestFactory, InstanceOptions, Limits, SharedState};
use crate::state::{Elements, Error, Options, Restore, SharedMemory, StateBackend, StateSpec};
use crate::subtask::operator::Instances;
use crate::subtask::{CallState, StateLimits};

/// One subtask of an operator, before it has anything.
pub(crate) struct Seat<'a> {
    /// Which.
    pub id: &'a SubtaskId,
    /// Tells the time.
    pub clock: &'a SharedClock,
    /// Its component.
    pub component: &'a Component,
    /// How many subtasks there are.
    pub parallelism: Parallelism,
    /// How many key groups there are.
    pub max_parallelism: MaxParallelism,
    /// Its own key groups.
    pub key_groups: KeyGroupRange,
    /// The attempt that it belongs to.
    pub attempt: Attempt,
    /// The operator's `config`.
    pub config: &'a serde_json::Map<String, serde_json::Value>,
    /// The operator's `limits`.
    pub limits: &'a Declared,
    /// Whether records come with keys: there may be timers then, which no component declares.
    pub has_keys: bool,
    /// What holds the rows of its state.
    pub backend: StateBackend,
    /// The folder of its state.
    pub dir: PathBuf,
    /// Bytes of its write-back cache.
    pub cache_bytes: usize,
    /// What all subtasks of the process share.
    pub memory: &'a SharedMemory,
    /// The elements of operator state that all subtasks of a checkpoint had, where it must be told them.
    pub elements: Option<&'a Elements>,
    /// What the component declared that wrote what is restored, and the watermark that is restored.
    pub before: Option<&'a OperatorContract>,
    /// See `before`.
    pub watermark: Timestamp,
}

impl Seat<'_> {
    /// Opens the state from what is restored and makes the first instance over it.
    ///
    /// # Errors
    /// State that cannot be opened, or an instance that cannot be made or does not take its configuration.
    pub fn take(self, restore: Restore) -> Result<(Arc<Mutex<CallState>>, Instances), Fault> {
        let contract = self.component.contract();
        let keyed = if !contract.states.is_empty() || self.has_keys {
            let options = Options {
                backend: self.backend,
                dir: self.dir,
                states: specs(contract),
                range: self.key_groups,
                max_parallelism: self.max_parallelism,
                cache_bytes: self.cache_bytes,
                shared: self.memory.clone(),
                clock: Arc::clone(self.clock),
                place: self.id.to_string(),
            };
            let now = Now { event: self.watermark, processing: self.clock.now() };
            let mut keyed = super::state::open(options, restore, (self.before, contract), now)?;
            if let Some(elements) = self.elements {
                let failed = |error: Error| Fault::new(error.kind(), error);
                keyed.take_elements(elements, self.id.index, self.parallelism).map_err(failed)?;
            }
            Some(keyed)
        } else {
            None
        };
        let mut state = CallState::new(keyed);
        state.limit_writes(bytes(self.limits.overlay.get()));
        state.limit_state(StateLimits {
            key_bytes: self.limits.state_per_key.map(|most| most.get()),
            entries: self.limits.state_entries.map(|most| most.get()),
        });
        let call = Arc::new(Mutex::new(state));
        let instance = InstanceOptions {
            uid: self.id.uid.clone(),
            subtask: self.id.index,
            parallelism: self.parallelism,
            attempt: self.attempt,
            config: serde_json::Value::Object(self.config.clone()).to_string(),
            limits: guest_limits(self.limits),
        };
        let factory: Arc<dyn GuestFactory> = Arc::new(Component::clone(self.component));
        let shared: SharedState = Arc::clone(&call) as SharedState;
        let renew_above = self.limits.renew_above.map(|mark| mark.get());
        let instances = Instances::new(factory, instance, shared, renew_above)
            .map_err(|fault| fault.at(format_args!("operator {}", self.id)))?;
        Ok((call, instances))
    }
}

/// The states of a contract as the state's seam wants them.
pub(super) fn specs(contract: &OperatorContract) -> Vec<StateSpec> {
    contract.states.iter().map(StateSpec::of).collect()
}

fn guest_limits(declared: &Declared) -> Limits {
    Limits {
        memory: declared.memory.get(),
        call_time: declared.call_time.get(),
        record_time: declared.record_time.map(|time| time.get()),
        key_bytes: bytes(declared.key.get()),
        value_bytes: bytes(declared.value.get()),
        record_bytes: bytes(declared.record.get()),
        result_bytes: bytes(declared.result.get()),
        log_lines: declared.log_lines,
    }
}

/// A count of bytes as this machine counts them.
pub(crate) fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
