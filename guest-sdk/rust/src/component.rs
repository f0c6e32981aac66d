//! An operator as a component: its exports, and state through the imports.
//!
//! Owns what the macro [`crate::operator!`] expands to, on WebAssembly alone.

#[cfg(target_arch = "wasm32")]
use crate::bindings::wasmill::operator::state::{self as imports, Bounds, Page, Timers};
#[cfg(target_arch = "wasm32")]
use crate::bindings::wasmill::operator::types::{Column, OptionalColumn};

/// State through the component's imports.
#[cfg(target_arch = "wasm32")]
#[derive(Debug, Clone, Copy)]
pub struct Imports;

/// The functions of [`crate::state::StateHost`]. Not as that trait: a component then imports those alone that its operator uses.
#[cfg(target_arch = "wasm32")]
#[expect(missing_docs, reason = "each is the contract's function of that name")]
impl Imports {
    pub fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>> {
        imports::value_get(state, origin)
    }
    pub fn map_get(&mut self, state: u16, origin: u32, key: &[u8]) -> Option<Vec<u8>> {
        imports::map_get(state, origin, key)
    }
    pub fn map_clear(&mut self, state: u16, origin: u32) {
        imports::map_clear(state, origin);
    }
    pub fn map_get_many(&mut self, state: u16, origins: &[u8], keys: &Column) -> OptionalColumn {
        imports::map_get_many(state, origins, keys)
    }
    pub fn map_put_many(&mut self, state: u16, origins: &[u8], keys: &Column, values: &Column) {
        imports::map_put_many(state, origins, keys, values);
    }
    pub fn map_remove_many(&mut self, state: u16, origins: &[u8], keys: &Column) {
        imports::map_remove_many(state, origins, keys);
    }
    pub fn map_page(&mut self, state: u16, origin: u32, bounds: &Bounds) -> Page {
        imports::map_page(state, origin, bounds)
    }
    pub fn list_append_many(&mut self, state: u16, origins: &[u8], values: &Column) {
        imports::list_append_many(state, origins, values);
    }
    pub fn list_length(&mut self, state: u16, origin: u32) -> u64 {
        imports::list_length(state, origin)
    }
    pub fn list_page(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Column {
        imports::list_page(state, origin, start, limit)
    }
    pub fn list_replace(&mut self, state: u16, origin: u32, values: &Column) {
        imports::list_replace(state, origin, values);
    }
    pub fn list_clear(&mut self, state: u16, origin: u32) {
        imports::list_clear(state, origin);
    }
    pub fn broadcast_get(&mut self, state: u16, key: &[u8]) -> Option<Vec<u8>> {
        imports::broadcast_get(state, key)
    }
    pub fn broadcast_put(&mut self, state: u16, key: &[u8], value: &[u8]) {
        imports::broadcast_put(state, key, value);
    }
    pub fn broadcast_remove(&mut self, state: u16, key: &[u8]) {
        imports::broadcast_remove(state, key);
    }
    pub fn broadcast_page(&mut self, state: u16, bounds: &Bounds) -> Page {
        imports::broadcast_page(state, bounds)
    }
    pub fn operator_page(&mut self, state: u16, start: u64, limit: u32) -> Column {
        imports::operator_page(state, start, limit)
    }
    pub fn operator_replace(&mut self, state: u16, values: &Column) {
        imports::operator_replace(state, values);
    }
    pub fn timers_page(&mut self, origin: u32, after: Option<(u8, i64, u32)>, limit: u32) -> Timers {
        imports::timers_page(origin, after, limit)
    }
    pub fn mark(&mut self) -> u32 {
        imports::mark()
    }
    pub fn rollback(&mut self, mark: u32) {
        imports::rollback(mark);
    }
}

/// Called first in each export that runs an operator's code.
#[cfg(target_arch = "wasm32")]
pub fn enter() {
    crate::diagnostics::log_panics();
}

/// Makes the crate's component of an operator: `operator!(CountPerKey);`, once, in a crate of type `cdylib`.
///
/// On other targets it expands to nothing, so that the same source is tested and run natively.
#[macro_export]
macro_rules! operator {
    ($operator:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use ::std::cell::RefCell;
            use ::std::string::String;
            use ::std::vec::Vec;
            use $crate::bindings::wasmill::operator::types::*;

            type Instance = $crate::instance::Instance<$operator>;

            ::std::thread_local! {
                static INSTANCE: RefCell<Option<Instance>> = const { RefCell::new(None) };
            }

            fn with<T>(run: impl FnOnce(&mut Instance) -> T) -> T {
                INSTANCE.with_borrow_mut(|slot| run(slot.get_or_insert_with(Instance::new)))
            }

            struct Component;

            impl $crate::bindings::Guest for Component {
                fn describe() -> Descriptor {
                    $crate::component::enter();
                    Instance::describe()
                }
                fn configure(config: String, place: Subtask) -> Result<(), Fault> {
                    $crate::component::enter();
                    with(|instance| instance.configure(&config, place))
                }
                fn process(input: u16, now: Now, batch: Batch, eager: Vec<Eager>) -> Result<Effects, Fault> {
                    with(|instance| instance.process(&mut $crate::component::Imports, input, now, batch, eager))
                }
                fn fire(now: Now, timers: Firing, eager: Vec<Eager>) -> Result<Effects, Fault> {
                    with(|instance| instance.fire(&mut $crate::component::Imports, now, timers, eager))
                }
                fn migrate(
                    state: String,
                    source: u32,
                    target: u32,
                    _keys: Column,
                    _map_keys: Column,
                    _entries: Column,
                ) -> Result<Migrated, Fault> {
                    $crate::component::enter();
                    Instance::migrate(&state, source, target)
                }
                fn rekey(source: u32, target: u32, _keys: Column) -> Result<Migrated, Fault> {
                    $crate::component::enter();
                    Instance::rekey(source, target)
                }
                fn merge(state: String, _keys: Column, _first: Column, _second: Column) -> Result<Column, Fault> {
                    $crate::component::enter();
                    Instance::merge(&state)
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
