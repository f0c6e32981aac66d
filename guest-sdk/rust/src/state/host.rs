//! The seam to state that does not ride along.
//!
//! Owns what the contract's interface `state` looks like to the handles. In a component these are the imports; a native run
//! brings its own.

use crate::bindings::wasmill::operator::state::{Bounds, Page, Timers};
use crate::bindings::wasmill::operator::types::{Column, OptionalColumn};

/// What serves a call: on WebAssembly the imports themselves, so that a component imports only what it uses; elsewhere any
/// [`StateHost`].
#[cfg(target_arch = "wasm32")]
pub type Host = crate::component::Imports;
/// What serves a call: on WebAssembly the imports themselves, so that a component imports only what it uses; elsewhere any
/// [`StateHost`].
#[cfg(not(target_arch = "wasm32"))]
pub type Host = dyn StateHost;

/// State that does not ride along in the batch: what the contract's interface `state` offers to the guest, where each
/// function is described.
///
/// `origin` stands for its key. A host that keeps value state alone leaves the rest as it is: it panics when used.
#[expect(missing_docs, reason = "each is the contract's function of that name")]
pub trait StateHost {
    fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>>;

    /// A point to roll back to.
    fn mark(&mut self) -> u32;
    /// Undoes what this call wrote since `mark`.
    fn rollback(&mut self, mark: u32);

    fn map_get(&mut self, state: u16, _origin: u32, _key: &[u8]) -> Option<Vec<u8>> {
        serves_not("map", state)
    }
    fn map_clear(&mut self, state: u16, _origin: u32) {
        serves_not("map", state)
    }
    fn map_get_many(&mut self, state: u16, _origins: &[u8], _keys: &Column) -> OptionalColumn {
        serves_not("map", state)
    }
    fn map_put_many(&mut self, state: u16, _origins: &[u8], _keys: &Column, _values: &Column) {
        serves_not("map", state)
    }
    fn map_remove_many(&mut self, state: u16, _origins: &[u8], _keys: &Column) {
        serves_not("map", state)
    }
    fn map_page(&mut self, state: u16, _origin: u32, _bounds: &Bounds) -> Page {
        serves_not("map", state)
    }

    fn list_append_many(&mut self, state: u16, _origins: &[u8], _values: &Column) {
        serves_not("list", state)
    }
    fn list_length(&mut self, state: u16, _origin: u32) -> u64 {
        serves_not("list", state)
    }
    fn list_page(&mut self, state: u16, _origin: u32, _start: u64, _limit: u32) -> Column {
        serves_not("list", state)
    }
    fn list_replace(&mut self, state: u16, _origin: u32, _values: &Column) {
        serves_not("list", state)
    }
    fn list_clear(&mut self, state: u16, _origin: u32) {
        serves_not("list", state)
    }

    fn broadcast_get(&mut self, state: u16, _key: &[u8]) -> Option<Vec<u8>> {
        serves_not("broadcast", state)
    }
    fn broadcast_put(&mut self, state: u16, _key: &[u8], _value: &[u8]) {
        serves_not("broadcast", state)
    }
    fn broadcast_remove(&mut self, state: u16, _key: &[u8]) {
        serves_not("broadcast", state)
    }
    fn broadcast_page(&mut self, state: u16, _bounds: &Bounds) -> Page {
        serves_not("broadcast", state)
    }

    fn operator_page(&mut self, state: u16, _start: u64, _limit: u32) -> Column {
        serves_not("operator", state)
    }
    fn operator_replace(&mut self, state: u16, _values: &Column) {
        serves_not("operator", state)
    }

    /// The timers of the origin's key as they were before this call.
    fn timers_page(&mut self, _origin: u32, _after: Option<(u8, i64, u32)>, _limit: u32) -> Timers {
        panic!("this host lists no timers")
    }
}

#[cold]
fn serves_not(kind: &str, state: u16) -> ! {
    panic!("this host keeps no {kind} state, and state {state} is one")
}
