//! wasmill's SDK for operators in Rust.
//!
//! An operator is a struct whose fields are its states and its configuration, and one function for one record:
//!
//! ```
//! use wasmill_guest::prelude::*;
//!
//! #[derive(Operator)]
//! #[operator(key = String)]
//! struct CountPerKey {
//!     count: Value<u64>,
//! }
//!
//! impl Process for CountPerKey {
//!     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
//!         let n = self.count.get(ctx)?.unwrap_or(0) + 1;
//!         self.count.set(ctx, n)?;
//!         ctx.emit(&(record.key::<&str>()?, n))
//!     }
//! }
//! operator!(CountPerKey);
//! ```
//!
//! The crate owns the turn from the contract's columns to records and back. It does not own state, time or keys: the host
//! gives them. [`testing`] runs an operator without WebAssembly, [`instance`] lets a host do so.

extern crate self as wasmill_guest;

pub mod aggregate;
#[allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, reason = "made by wit-bindgen")]
pub mod bindings;
pub mod cbor;
mod columns;
pub mod component;
pub mod config;
mod context;
pub mod dedup;
pub mod describe;
pub mod diagnostics;
mod emits;
mod error;
pub mod instance;
pub mod join;
pub mod key;
mod library;
pub mod map_key;
mod operator;
pub mod pattern;
mod record;
pub mod schema;
pub mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod time;
pub mod timer;
pub mod window;

pub use context::{Context, Emit};
pub use error::{Error, Result};
pub use library::Arrival;
pub use operator::{Ahead, OnTimer, Operator, Port, Process};
pub use record::Record;
pub use state::{Broadcast, List, Map, OperatorState, Value};
pub use time::Timestamp;
pub use timer::Timer;
pub use wasmill_guest_derive::Operator;

/// The contract's types, as wit-bindgen makes them: what an [`instance::Instance`] takes and gives.
pub use bindings::wasmill::operator::types;

/// What an operator's source needs.
pub mod prelude {
    pub use crate::diagnostics::{log, metrics};
    pub use crate::state::{Broadcast, List, Map, OperatorState, Raw, Split, Union, Value};
    pub use crate::{Context, Error, OnTimer, Operator, Process, Record, Result, Timer, Timestamp, operator};
}
