//! An honest operator until a record with the key `bad` comes: then it does the one evil that its file was stamped with.
//!
//! Written on the contract's bindings alone, so that it can lie in every column. What it does stands in 48 bytes of its data,
//! which the tests overwrite: each evil is a component file of its own. Owns the choice between evils; they stand in `describe`
//! (lies about itself), `effects` (lies in what it returns), `imports` (abuse of the host) and `burn` (time and memory).
//!
//! Honestly it emits each record as it is and counts the records of each key in a state that rides along.

#[cfg(target_arch = "wasm32")]
mod component;
