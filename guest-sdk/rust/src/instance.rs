//! An operator that is being run: the contract's exports as functions of a value.
//!
//! Owns the walk over a batch, the undo of rejected records and `consumed`. The same code runs in a component, where the
//! macro [`crate::operator!`] keeps one instance, and natively, where a test or a host keeps as many as it likes.

use crate::bindings::wasmill::operator::types::{
    Batch, Column, Descriptor, Eager, Effects, Fault, Firing, Migrated, Now, Rejects, Subtask, TimerChanges,
};
use crate::cbor::Encoder;
use crate::config;
use crate::context::{Context, Surroundings};
use crate::emits::{Buffer, Room};
use crate::error::{Error, fatal};
use crate::operator::Operator;
use crate::record::{Cursor, Records};
use crate::state::StateHost;

/// An operator and what the SDK keeps for it from call to call: memory to reuse, nothing that matters.
pub struct Instance<O> {
    configured: Option<Configured<O>>,
    encoder: Encoder,
    room: Room,
}

struct Configured<O> {
    operator: O,
    subtask: Subtask,
}

impl<O: Operator> Default for Instance<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Operator> Instance<O> {
    /// An instance that is to be configured.
    #[must_use]
    pub fn new() -> Self {
        Self { configured: None, encoder: Encoder::new(), room: Room::default() }
    }

    /// The export `describe`.
    #[must_use]
    pub fn describe() -> Descriptor {
        O::describe()
    }

    /// The export `configure`.
    ///
    /// # Errors
    /// A fault that names the configuration key.
    pub fn configure(&mut self, config: &str, place: Subtask) -> Result<(), Fault> {
        let build = || {
            let mut reader = config::Reader::parse(config)?;
            let operator = O::build(&mut reader)?;
            reader.finish()?;
            Ok::<_, config::Error>(operator)
        };
        let mut operator = build().map_err(fatal)?;
        operator.start(place).map_err(Error::into_fault)?;
        self.configured = Some(Configured { operator, subtask: place });
        Ok(())
    }

    /// The export `process`; `host` is the state that does not ride along.
    ///
    /// # Errors
    /// The fault of the record at which the operator gave up; nothing of the call is then to be kept.
    pub fn process(
        &mut self,
        host: &mut dyn StateHost,
        input: u16,
        now: Now,
        batch: Batch,
        eager: Vec<Eager>,
    ) -> Result<Effects, Fault> {
        let Some(Configured { operator, subtask }) = &mut self.configured else { return Err(not_configured()) };
        let records = Records::check(&batch).map_err(fatal)?;
        begin(operator, records.origins.slots(), eager)?;
        let mut ctx = Context::new(Surroundings {
            origins: &records.origins,
            emits: Buffer::with_room(self.room),
            encoder: &mut self.encoder,
            host,
            watermark: now.watermark,
            processing_time: now.processing_time,
            subtask: *subtask,
            outputs: O::OUTPUTS,
        });
        let mut rejects = Rejects { origins: Vec::new(), reasons: Vec::new() };
        let mut cursor = Cursor::default();
        let mut consumed = 0;
        while consumed < records.len() {
            let (record, watermark) = records.next(&mut cursor, consumed, input);
            if let Some(watermark) = watermark {
                if stops_before_run() {
                    break;
                }
                ctx.watermark = watermark;
            }
            ctx.enter(consumed);
            match operator.process(record, &mut ctx) {
                Ok(()) => {}
                Err(Error::Reject(reason)) => {
                    ctx.undo();
                    operator.each_state(&mut |state| state.undo(consumed));
                    rejects.origins.extend_from_slice(&consumed.to_le_bytes());
                    rejects.reasons.push(reason);
                }
                Err(error) => return Err(error.into_fault()),
            }
            consumed += 1;
        }
        let emits = ctx.emits;
        self.room = emits.room();
        finish(operator, &mut self.encoder, consumed, emits, rejects)
    }

    /// The export `fire`.
    ///
    /// # Errors
    /// Always: an operator that sets no timer has none to fire.
    pub fn fire(
        &mut self,
        _host: &mut dyn StateHost,
        _now: Now,
        _timers: Firing,
        _eager: Vec<Eager>,
    ) -> Result<Effects, Fault> {
        Err(fatal("the operator sets no timers, and one fired"))
    }

    /// The export `migrate`.
    ///
    /// # Errors
    /// Always: the declaration names no version to migrate from.
    pub fn migrate(state: &str, source: u32, target: u32) -> Result<Migrated, Fault> {
        Err(fatal(format_args!("state `{state}`: the operator has no step from version {source} to {target}")))
    }

    /// The export `rekey`.
    ///
    /// # Errors
    /// Always: the operator declares no change of keys.
    pub fn rekey(source: u32, target: u32) -> Result<Migrated, Fault> {
        Err(fatal(format_args!("the operator has no change of keys from version {source} to {target}")))
    }

    /// The export `merge`.
    ///
    /// # Errors
    /// Always: the operator declares no merge.
    pub fn merge(state: &str) -> Result<Column, Fault> {
        Err(fatal(format_args!("state `{state}`: the operator does not say how two values of one key merge")))
    }
}

/// Whether the call ends before the next run of the watermark: where a timer set in it falls due there. Without timers,
/// never.
#[inline]
fn stops_before_run() -> bool {
    false
}

#[cold]
fn not_configured() -> Fault {
    fatal("the host broke the contract: `process` before `configure`")
}

/// Gives each state what rides along with it.
fn begin<O: Operator>(operator: &mut O, slots: usize, mut eager: Vec<Eager>) -> Result<(), Fault> {
    let mut result = Ok(());
    operator.each_state(&mut |state| {
        let column = eager.iter().position(|column| column.state == state.index()).map(|at| eager.swap_remove(at));
        let begun = state.begin(slots, column);
        if result.is_ok() {
            result = begun;
        }
    });
    match eager.first() {
        Some(unknown) if result.is_ok() => {
            Err(fatal(format_args!("the host broke the contract: no state has the index {}", unknown.state)))
        }
        _ => result,
    }
}

fn finish<O: Operator>(
    operator: &mut O,
    encoder: &mut Encoder,
    consumed: u32,
    emits: Buffer,
    rejects: Rejects,
) -> Result<Effects, Fault> {
    let mut values = Vec::new();
    let mut failed = None;
    operator.each_state(&mut |state| match state.finish(encoder) {
        Ok(writes) => values.extend(writes),
        Err(fault) => failed = failed.take().or(Some(fault)),
    });
    match failed {
        Some(fault) => Err(fault),
        None => Ok(Effects { consumed, emits: emits.finish(), values, timers: no_timers(), rejects }),
    }
}

fn no_timers() -> TimerChanges {
    TimerChanges {
        origins: Vec::new(),
        operations: Vec::new(),
        domains: Vec::new(),
        times: Vec::new(),
        tags: Vec::new(),
    }
}
