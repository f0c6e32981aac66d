//! The exports, and which evil is done in which. Does not own the evils.

mod burn;
mod describe;
mod effects;
mod imports;

use wasmill_guest::bindings::Guest;
use wasmill_guest::bindings::wasmill::operator::diagnostics::{Level, log};
use wasmill_guest::types::*;

/// What the file was stamped with: behind the mark the name of an evil, padded with spaces.
static STAMP: [u8; 48] = *b"hostile-act:nothing                             ";

/// The key of the records on which the evil is done.
const BAD: &[u8] = b"bad";

fn act() -> &'static str {
    let stamp: &'static [u8; 48] = std::hint::black_box(&STAMP);
    std::str::from_utf8(&stamp[12..]).unwrap_or_default().trim_ascii_end()
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Descriptor {
        describe::describe(act())
    }

    fn configure(_: String, _: Subtask) -> Result<(), Fault> {
        std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
        match act().strip_prefix("configure-") {
            Some("fatal") => Err(fault(FaultKind::Fatal, "not with this configuration")),
            Some("state") => {
                wasmill_guest::bindings::wasmill::operator::state::mark();
                Ok(())
            }
            Some(what) => burn::burn(what),
            None => Ok(()),
        }
    }

    fn process(_: u16, now: Now, batch: Batch, eager: Vec<Eager>) -> Result<Effects, Fault> {
        let call = effects::Call::of_batch(&batch, &eager);
        let Some(bad) = call.bad() else { return Ok(call.honest(now)) };
        match act().split_once('-').unwrap_or((act(), "")) {
            ("process", "fatal") => Err(fault(FaultKind::Fatal, "told to end the job")),
            ("process", "retry") => Err(fault(FaultKind::Retryable, "told to try again")),
            ("process", what) => burn::burn(what),
            ("import", what) => {
                imports::abuse(what, bad);
                Ok(call.honest(now))
            }
            ("reject", what) => Ok(imports::reject(what, call.honest_but_for(Some(bad), now), bad)),
            ("effects", what) => Ok(effects::spoiled(what, call.honest(now), &call, bad)),
            ("timer" | "fire", _) => Ok(effects::with_timer(act(), call.honest(now), now, bad)),
            _ => Ok(call.honest(now)),
        }
    }

    fn fire(now: Now, timers: Firing, eager: Vec<Eager>) -> Result<Effects, Fault> {
        let call = effects::Call::of_timers(&timers, &eager);
        match act().split_once('-').unwrap_or((act(), "")) {
            ("fire", "fatal") => Err(fault(FaultKind::Fatal, "told to end the job")),
            ("fire", "consumed") => Ok(Effects { consumed: 0, ..call.fired() }),
            ("fire", "import") => {
                imports::abuse("origin", 0);
                Ok(call.fired())
            }
            ("fire", what) => burn::burn(what),
            ("timer", what) => Ok(effects::fired(what, call.fired(), now, &timers)),
            _ => Ok(call.fired()),
        }
    }

    fn migrate(_: String, _: u32, _: u32, _: Column, _: Column, _: Column) -> Result<Migrated, Fault> {
        Err(fault(FaultKind::Fatal, "nothing to migrate"))
    }

    fn rekey(_: u32, _: u32, _: Column) -> Result<Migrated, Fault> {
        Err(fault(FaultKind::Fatal, "nothing to rekey"))
    }

    fn merge(_: String, _: Column, _: Column, _: Column) -> Result<Column, Fault> {
        Err(fault(FaultKind::Fatal, "nothing to merge"))
    }
}

fn fault(kind: FaultKind, message: &str) -> Fault {
    Fault { kind, message: message.to_owned() }
}

wasmill_guest::bindings::export!(Hostile with_types_in wasmill_guest::bindings);
