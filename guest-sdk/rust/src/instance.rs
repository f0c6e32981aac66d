//! An operator that is being run: the contract's exports as functions of a value.
//!
//! Owns the walk over a batch, the undo of rejected records and `consumed`. The same code runs in a component, where the
//! macro [`crate::operator!`] keeps one instance, and natively, where a test or a host keeps as many as it likes.

use crate::bindings::wasmill::operator::types::{
    Batch, Column, Descriptor, Eager, Effects, Fault, Firing, Migrated, Now, Rejects, Subtask,
};
use crate::cbor::Encoder;
use crate::config;
use crate::context::{Context, Surroundings};
use crate::emits::{Buffer, Room};
use crate::error::{Error, fatal};
use crate::operator::{Ahead, Operator};
use crate::record::{Cursor, Records};
use crate::state::Host;
use crate::time::Timestamp;
use crate::timer::{Due, TimerUse};

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
        host: &mut Host,
        input: u16,
        now: Now,
        batch: Batch,
        eager: Vec<Eager>,
    ) -> Result<Effects, Fault> {
        let Some(Configured { operator, subtask }) = &mut self.configured else {
            return Err(not_configured("process"));
        };
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
            timer_use: O::TIMERS,
            broadcast: O::INPUTS.get(usize::from(input)).is_some_and(|port| port.broadcast),
        });
        operator.look_ahead(&mut Ahead { records: &records, input, ctx: &mut ctx }).map_err(Error::into_fault)?;
        let mut rejects = no_rejects();
        let mut cursor = Cursor::default();
        let mut consumed = 0;
        while consumed < records.len() {
            let (record, watermark) = records.next(&mut cursor, consumed, input);
            if let Some(watermark) = watermark {
                if O::TIMERS != TimerUse::None && stops_before(consumed, watermark, &ctx) {
                    break;
                }
                ctx.watermark = watermark;
            }
            ctx.enter(consumed);
            if let Err(error) = operator.process(record, &mut ctx) {
                refuse(operator, &mut ctx, &mut rejects, error)?;
            }
            consumed += 1;
        }
        self.room = ctx.emits.room();
        finish(operator, ctx, consumed, rejects)
    }

    /// The export `fire`.
    ///
    /// # Errors
    /// The fault of the timer at which the operator gave up; nothing of the call is then to be kept.
    pub fn fire(&mut self, host: &mut Host, now: Now, timers: Firing, eager: Vec<Eager>) -> Result<Effects, Fault> {
        if O::TIMERS == TimerUse::None {
            return Err(fatal(
                "the operator sets no timers, and one fired; write #[operator(timers)] and implement `OnTimer`",
            ));
        }
        let Some(Configured { operator, subtask }) = &mut self.configured else { return Err(not_configured("fire")) };
        let due = Due::check(&timers).map_err(fatal)?;
        begin(operator, due.origins.slots(), eager)?;
        let mut ctx = Context::new(Surroundings {
            origins: &due.origins,
            emits: Buffer::default(),
            encoder: &mut self.encoder,
            host,
            watermark: now.watermark,
            processing_time: now.processing_time,
            subtask: *subtask,
            outputs: O::OUTPUTS,
            timer_use: O::TIMERS,
            broadcast: false,
        });
        let mut rejects = no_rejects();
        for index in 0..due.len() {
            let timer = due.get(index);
            ctx.enter(index);
            ctx.firing = Some(timer.id());
            if let Err(error) = operator.on_timer(timer, &mut ctx) {
                refuse(operator, &mut ctx, &mut rejects, error)?;
            }
        }
        finish(operator, ctx, due.len(), rejects)
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

/// Whether the call ends before a run of the watermark: where a timer that it set falls due there, it must fire first.
fn stops_before(consumed: u32, watermark: Timestamp, ctx: &Context<'_>) -> bool {
    consumed > 0 && watermark > ctx.watermark && ctx.timers.fall_due_by(watermark)
}

/// Undoes what the present origin did where it is rejected, and fails the call otherwise.
fn refuse<O: Operator>(
    operator: &mut O,
    ctx: &mut Context<'_>,
    rejects: &mut Rejects,
    error: Error,
) -> Result<(), Fault> {
    let Error::Reject(reason) = error else { return Err(error.into_fault()) };
    let origin = ctx.origin();
    ctx.undo();
    operator.each_state(&mut |state| state.undo(origin));
    rejects.origins.extend_from_slice(&origin.to_le_bytes());
    rejects.reasons.push(reason);
    Ok(())
}

fn no_rejects() -> Rejects {
    Rejects { origins: Vec::new(), reasons: Vec::new() }
}

#[cold]
fn not_configured(call: &str) -> Fault {
    fatal(format_args!("the host broke the contract: `{call}` before `configure`"))
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

/// The effects of a call. State that does not ride along goes to the host.
fn finish<O: Operator>(operator: &mut O, ctx: Context<'_>, consumed: u32, rejects: Rejects) -> Result<Effects, Fault> {
    let Context { emits, timers, encoder, host, .. } = ctx;
    if !rejects.reasons.is_empty() {
        // What follows holds nothing of them. A rollback tells the host so.
        let mark = host.mark();
        host.rollback(mark);
    }
    let mut values = Vec::new();
    let mut failed = None;
    operator.each_state(&mut |state| match state.finish(encoder, host) {
        Ok(writes) => values.extend(writes),
        Err(fault) => failed = failed.take().or(Some(fault)),
    });
    match failed {
        Some(fault) => Err(fault),
        None => Ok(Effects { consumed, emits: emits.finish(), values, timers: timers.finish(), rejects }),
    }
}
