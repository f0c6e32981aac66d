//! An instance of a component, and calls into it.
//!
//! Owns the limits around each call, that a failed call leaves the instance dead, and that effects are checked before anyone
//! sees them. Does not own the rules of effects ([`super::effects`]) nor the kinds of failure ([`super::trap`]).

use std::sync::Arc;

use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::{Fault, FaultKind};
use wasmtime::Store;

use super::bindings::{Operator, OperatorPre};
use super::contract::{self, Batch, Eager, Effects, Firing, Now, Subtask};
use super::diagnostics::{Channel, Diagnostics};
use super::effects::{Checker, Shape};
use super::engine::{Deadline, Engine};
use super::limits::{Limits, Memory, TimeLimit};
use super::trap::{CallError, Circumstances, classify, is_hosts, shortened};
use super::{Guest, InstanceOptions, SharedState};

/// Longest message of a guest's own fault, or reason for a rejected record, in bytes; the rest is cut off.
const MESSAGE_BYTES: usize = 4 << 10;

/// What belongs to an instance and is not in its memory.
pub(super) struct Data {
    pub(super) memory: Memory,
    pub(super) limits: Limits,
    pub(super) diagnostics: Diagnostics,
    pub(super) access: Option<Access>,
    pub(super) calling: Calling,
    pub(super) deadline: Deadline,
    time: TimeLimit,
}

/// The state that the instance may use.
pub(super) struct Access {
    pub(super) contract: Arc<OperatorContract>,
    pub(super) state: SharedState,
}

/// What is being called: origins are of this call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Calling {
    /// Nothing on behalf of a record.
    Nothing,
    /// `process` with that many records of the input.
    Batch { input: u16, records: u32 },
    /// `fire` with that many timers.
    Timers { timers: u32 },
}

impl Calling {
    /// How many records or timers are worked on.
    fn origins(self) -> Option<u32> {
        match self {
            Self::Nothing => None,
            Self::Batch { records, .. } => Some(records),
            Self::Timers { timers } => Some(timers),
        }
    }
}

/// An instance without an operator's declaration: enough to ask for it.
pub(super) struct Bare {
    engine: Engine,
    store: Store<Data>,
    exports: Operator,
    is_dead: bool,
}

impl Bare {
    /// Makes an instance; its start functions count as a call.
    pub(super) fn start(
        engine: &Engine,
        pre: &OperatorPre<Data>,
        limits: &Limits,
        diagnostics: Diagnostics,
        access: Option<Access>,
    ) -> Result<Self, CallError> {
        let ticks = engine.deadline(limits.call_time);
        let data = Data {
            memory: Memory::new(limits.memory),
            limits: limits.clone(),
            diagnostics,
            access,
            calling: Calling::Nothing,
            deadline: Deadline::after(engine, ticks),
            time: limits.time_of(None),
        };
        let mut store = Store::new(engine.wasmtime(), data);
        store.limiter(|data| &mut data.memory);
        store.set_hostcall_fuel(limits.result_bytes);
        store.epoch_deadline_trap();
        store.set_epoch_deadline(ticks);
        match pre.instantiate(&mut store) {
            Ok(exports) => Ok(Self { engine: engine.clone(), store, exports, is_dead: false }),
            Err(error) if is_hosts(&error) && !store.data().memory.refused() => Err(CallError::Host(Fault::new(
                FaultKind::External,
                format!("cannot make an instance of component {}: {error:#}", store.data().diagnostics.component()),
            ))),
            Err(error) => Err(failure(&mut store, "start", &error)),
        }
    }

    /// Calls an export under the limits. Any error, a panic of the host included, leaves the instance dead.
    pub(super) fn call<T>(
        &mut self,
        name: &'static str,
        calling: Calling,
        call: impl FnOnce(&Operator, &mut Store<Data>) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        if std::mem::replace(&mut self.is_dead, true) {
            return Err(CallError::Dead);
        }
        let data = self.store.data_mut();
        data.calling = calling;
        data.time = data.limits.time_of(calling.origins());
        let ticks = self.engine.deadline(data.time.limit);
        data.deadline = Deadline::after(&self.engine, ticks);
        data.memory.begin_call();
        data.diagnostics.begin_call();
        self.store.set_epoch_deadline(ticks);
        match call(&self.exports, &mut self.store) {
            Ok(result) => {
                self.is_dead = false;
                self.store.data_mut().calling = Calling::Nothing;
                Ok(result)
            }
            Err(error) => Err(failure(&mut self.store, name, &error)),
        }
    }

    fn component(&self) -> String {
        self.store.data().diagnostics.component()
    }
}

fn failure(store: &mut Store<Data>, call: &'static str, error: &wasmtime::Error) -> CallError {
    let data = store.data_mut();
    let circumstances = Circumstances {
        call,
        component: data.diagnostics.component(),
        limits: &data.limits,
        time: data.time,
        memory_refused: data.memory.refused(),
        said: data.diagnostics.take_said(),
    };
    classify(error, circumstances)
}

/// An instance of an operator.
pub(super) struct Instance {
    bare: Bare,
    checker: Checker,
}

impl Instance {
    /// Makes an instance that is not configured yet.
    pub(super) fn start(
        engine: &Engine,
        pre: &OperatorPre<Data>,
        contract: Arc<OperatorContract>,
        options: &InstanceOptions,
        state: SharedState,
        channel: Arc<Channel>,
    ) -> Result<Self, CallError> {
        let place = (options.uid.as_str(), options.subtask.0);
        let diagnostics = Diagnostics::new(channel, &contract.name, place, options.limits.log_lines);
        let checker = Checker::new(Arc::clone(&contract), options.limits.clone());
        let access = Some(Access { contract, state });
        Ok(Self { bare: Bare::start(engine, pre, &options.limits, diagnostics, access)?, checker })
    }

    /// Hands the instance its configuration and place.
    pub(super) fn configure(&mut self, options: &InstanceOptions) -> Result<(), CallError> {
        let place = Subtask {
            index: options.subtask.0,
            parallelism: options.parallelism.get(),
            attempt: u32::try_from(options.attempt.0).unwrap_or(u32::MAX),
        };
        let result = self.bare.call("configure", Calling::Nothing, |exports, store| {
            exports.call_configure(store, &options.config, place)
        })?;
        result.map_err(|fault| self.faulted("configure", fault))
    }

    fn checked(
        &mut self,
        call: &'static str,
        shape: &Shape<'_>,
        result: Result<Effects, contract::Fault>,
    ) -> Result<Effects, CallError> {
        let mut effects = result.map_err(|fault| self.faulted(call, fault))?;
        match self.checker.check(shape, &effects) {
            Ok(()) => {
                for reason in &mut effects.rejects.reasons {
                    *reason = shortened(reason, MESSAGE_BYTES);
                }
                Ok(effects)
            }
            Err(cause) => {
                self.bare.is_dead = true;
                Err(CallError::Malformed { call, component: self.bare.component(), cause })
            }
        }
    }

    /// The guest's own caches may hold what the call wrote and the host now undoes: the instance ends.
    fn faulted(&mut self, call: &'static str, fault: contract::Fault) -> CallError {
        self.bare.is_dead = true;
        CallError::Fault {
            call,
            component: self.bare.component(),
            retryable: fault.kind == contract::FaultKind::Retryable,
            message: shortened(&fault.message, MESSAGE_BYTES),
        }
    }
}

impl Guest for Instance {
    fn process(&mut self, input: u16, now: Now, batch: &Batch, eager: &[Eager]) -> Result<Effects, CallError> {
        let shape = Shape::of_batch(input, batch);
        let calling = Calling::Batch { input, records: shape.origins() };
        let result = self
            .bare
            .call("process", calling, |exports, store| exports.call_process(store, input, now, batch, eager))?;
        self.checked("process", &shape, result)
    }

    fn fire(&mut self, now: Now, timers: &Firing, eager: &[Eager]) -> Result<Effects, CallError> {
        let shape = Shape::of_timers(timers);
        let calling = Calling::Timers { timers: shape.origins() };
        let result = self.bare.call("fire", calling, |exports, store| exports.call_fire(store, now, timers, eager))?;
        self.checked("fire", &shape, result)
    }

    fn take_log_lines_dropped(&mut self) -> u64 {
        self.bare.store.data().diagnostics.take_lines_dropped()
    }

    fn memory_bytes(&self) -> u64 {
        self.bare.store.data().memory.used()
    }
}

#[cfg(test)]
mod tests;
