//! Parts of a descriptor, for the code that the derive makes.
//!
//! Owns the turn from static declarations into the contract's types. Does not own the types of values: see [`crate::schema`].

use crate::bindings::wasmill::operator::types::{ConfigKey, Port as PortDescriptor};
use crate::operator::Port;

/// Inputs or outputs.
#[must_use]
pub fn ports(ports: &[Port]) -> Vec<PortDescriptor> {
    let port =
        |port: &Port| PortDescriptor { name: port.name.to_owned(), broadcast: port.broadcast, headers: port.headers };
    ports.iter().map(port).collect()
}

/// A configuration key.
#[must_use]
pub fn config_key(name: &str, required: bool, doc: &str) -> ConfigKey {
    ConfigKey { name: name.to_owned(), required, doc: doc.to_owned() }
}
