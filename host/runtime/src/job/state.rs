//! Opens a subtask's state with what it begins with.
//!
//! Owns that what had expired under a TTL which a new version no longer has does not come back. Does not own the state.

use std::collections::BTreeMap;

use wasmill_core::checkpoint::manifest::Manifest;
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::id::OperatorUid;
use wasmill_core::ttl::Now;

use crate::state::{Error, KeyedState, Options, Restore};

/// The state that begins with `restore`, which a component that declared `before` wrote up to `now`.
///
/// # Errors
/// What cannot be restored, or a folder that is in use or cannot be written.
pub(super) fn open(
    options: Options,
    restore: Restore,
    (before, contract): (Option<&OperatorContract>, &OperatorContract),
    now: Now,
) -> Result<KeyedState, Fault> {
    let fault = |error: Error| Fault::new(error.kind(), error);
    let mut keyed = KeyedState::open(options, restore).map_err(fault)?;
    let before = before.map_or(&[][..], |before| &before.states);
    for (index, state) in contract.states.iter().enumerate() {
        let was = before.iter().find(|was| was.name == state.name).and_then(|was| was.ttl);
        if let Some(was) = was.filter(|was| !state.ttl.is_some_and(|ttl| ttl.expires_as(was))) {
            keyed.purge(index, was, now).map_err(fault)?;
        }
    }
    Ok(keyed)
}

/// What the operators of a checkpoint declared.
pub(super) fn declared(manifest: &Manifest) -> BTreeMap<OperatorUid, OperatorContract> {
    let operators = manifest.operators.iter();
    operators.map(|(uid, operator)| (uid.clone(), operator.contract.clone())).collect()
}
