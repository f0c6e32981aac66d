//! An operator as a component: its exports, and state through the imports.
//!
//! Owns what the macro [`crate::operator!`] expands to, on WebAssembly alone.

#[cfg(target_arch = "wasm32")]
use crate::bindings::wasmill::operator::state as imports;
#[cfg(target_arch = "wasm32")]
use crate::state::StateHost;

/// State through the component's imports.
#[cfg(target_arch = "wasm32")]
#[derive(Debug, Clone, Copy)]
pub struct Imports;

#[cfg(target_arch = "wasm32")]
impl StateHost for Imports {
    fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>> {
        imports::value_get(state, origin)
    }
    fn value_set(&mut self, state: u16, origin: u32, value: &[u8]) {
        imports::value_set(state, origin, value);
    }
    fn value_clear(&mut self, state: u16, origin: u32) {
        imports::value_clear(state, origin);
    }
    fn mark(&mut self) -> u32 {
        imports::mark()
    }
    fn rollback(&mut self, mark: u32) {
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
