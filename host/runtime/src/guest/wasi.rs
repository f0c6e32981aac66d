//! The part of WASI 0.2 that can be granted, and traps in place of the rest.
//!
//! Owns what the granted interfaces do. Does not own who is granted what ([`super::grants`]).

use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::time::Timestamp;
use wasmtime::Result;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component as Compiled, ComponentType, Linker, LinkerInstance, Lower, ResourceType};

use super::StateError;
use super::grants::{Access, Grants, grant_of, wasi_interface};
use super::imports::misuse;
use super::instance::Data;
use crate::clock::SharedClock;

/// Most random bytes that one call may ask for; more traps.
const RANDOM_BYTES: u64 = 1 << 20;

/// Stands for every resource of the interfaces that are denied. None is ever made.
struct Never;

/// `wasi:clocks/wall-clock`'s time since 1970.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// Gives the linker each import of the component that is granted or denied.
pub(super) fn add_to(linker: &mut Linker<Data>, component: &Compiled, grants: &Grants) -> Result<()> {
    let engine = component.engine();
    for (import, item) in component.component_type().imports(engine) {
        let (Some(access), ComponentItem::ComponentInstance(interface)) = (grants.access(import), item.ty) else {
            continue;
        };
        let mut to = linker.instance(import)?;
        let import = Arc::from(import);
        for (name, item) in interface.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let works = access != Access::Denied && implement(&mut to, &import, name, grants)?;
                    if !works {
                        trap(&mut to, &import, name, access)?;
                    }
                }
                ComponentItem::Resource(_) => to.resource(name, ResourceType::host::<Never>(), |_, _| Ok(()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Defines a granted function. Whether there is such a one.
fn implement(to: &mut LinkerInstance<'_, Data>, import: &str, name: &str, grants: &Grants) -> Result<bool> {
    let Some(interface) = wasi_interface(import) else { return Ok(false) };
    if let Some(clock) = &grants.clock
        && tell_time(to, interface, name, clock)?
    {
        return Ok(true);
    }
    match (interface, name) {
        ("random/random", "get-random-bytes") | ("random/insecure", "get-insecure-random-bytes") => {
            to.func_wrap(name, |_, (length,): (u64,)| Ok((random_bytes(length)?,)))?;
        }
        ("random/random", "get-random-u64") | ("random/insecure", "get-insecure-random-u64") => {
            to.func_wrap(name, |_, (): ()| Ok((random()?,)))?;
        }
        ("random/insecure-seed", "insecure-seed") => {
            to.func_wrap(name, |_, (): ()| Ok(((random()?, random()?),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn tell_time(to: &mut LinkerInstance<'_, Data>, interface: &str, name: &str, clock: &SharedClock) -> Result<bool> {
    let clock = Arc::clone(clock);
    match (interface, name) {
        ("clocks/wall-clock", "now") => to.func_wrap(name, move |_, (): ()| Ok((datetime(clock.now()),)))?,
        ("clocks/wall-clock", "resolution") => {
            to.func_wrap(name, |_, (): ()| Ok((datetime(Timestamp::from_millis(1)),)))?;
        }
        ("clocks/monotonic-clock", "now") => {
            let nanos = move || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
            to.func_wrap(name, move |_, (): ()| Ok((nanos(),)))?;
        }
        ("clocks/monotonic-clock", "resolution") => to.func_wrap(name, |_, (): ()| Ok((1_u64,)))?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn datetime(time: Timestamp) -> Datetime {
    let millis = u64::try_from(time.as_millis()).unwrap_or_default();
    Datetime { seconds: millis / 1000, nanoseconds: (millis % 1000) as u32 * 1_000_000 }
}

fn random_bytes(length: u64) -> Result<Vec<u8>> {
    if length > RANDOM_BYTES {
        return Err(misuse(format!("{length} random bytes at once, and {RANDOM_BYTES} are allowed")));
    }
    let mut bytes = vec![0; length as usize];
    getrandom::fill(&mut bytes).map_err(|error| unavailable(&error))?;
    Ok(bytes)
}

fn random() -> Result<u64> {
    Ok(getrandom::u64().map_err(|error| unavailable(&error))?)
}

fn unavailable(error: &getrandom::Error) -> StateError {
    StateError::Failed(Fault::new(FaultKind::External, format!("the machine gives no random numbers: {error}")))
}

/// Defines a function that traps and says why.
fn trap(to: &mut LinkerInstance<'_, Data>, import: &Arc<str>, name: &str, access: Access) -> Result<()> {
    let (import, function) = (Arc::clone(import), Box::<str>::from(name));
    to.func_new(name, move |_, _, _, _| {
        let why = match (access, wasi_interface(&import).and_then(grant_of)) {
            (Access::Denied, Some(grant)) => format!("is denied: grants = [\"{}\"] gives it", grant.name()),
            (Access::Denied, None) => "is denied, and no grant gives it".to_owned(),
            (Access::Contract | Access::Granted(_), _) => "is not offered: no operator can wait for a time".to_owned(),
        };
        Err(misuse(format!("it called `{function}` of `{import}`, which {why}")))
    })
}

#[cfg(test)]
mod tests;
