//! wasmill's decisions as pure code: no async, no I/O, no clock, no heavy library.
//!
//! Time comes in as an argument, results go out as values that say what to do next. `wasmill-runtime` acts on them.

pub mod align;
pub mod checkpoint;
pub mod commit;
pub mod contract;
pub mod digest;
pub mod element;
pub mod fault;
pub mod graph;
pub mod id;
pub mod key_group;
pub mod merge;
pub mod record;
pub mod slice;
pub mod time;
pub mod timer;
pub mod ttl;
pub mod watermark;
