//! Keyed state: handles that an operator declares as fields.
//!
//! Owns what every kind of handle must do in a call (begin, undo, finish) and what a field of several states is. Does not own
//! where state lies: that is the host's, behind [`StateHost`].

mod broadcast;
mod codec;
mod elements;
mod host;
mod list;
mod map;
mod overlay;
mod reads;
mod scan;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;

use crate::bindings::wasmill::operator::types::{
    Codec as CodecKind, Eager, Fault, StateDescriptor, StateKind, Ttl, ValueWrites,
};
use crate::cbor::Encoder;
use crate::error::{Error, fatal};

pub use broadcast::Broadcast;
pub use codec::{Cbor, Codec, Raw, Stored};
pub use elements::{OperatorState, Split, Spread, Union};
pub use host::{Host, StateHost};
pub use list::{Elements, List};
pub use map::Map;
pub use scan::Scan;
pub use value::Value;

/// What an operator's source says of a state.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The name by which it is found.
    pub name: &'static str,
    /// The schema version of what is written now.
    pub version: u32,
    /// Whether it is fetched on demand and does not ride along.
    pub lazy: bool,
    /// The indexes of the inputs it rides along with, and [`TIMERS`] for timers; of none named, all.
    pub rides_with: &'static [u16],
    /// Names it had.
    pub renamed_from: &'static [&'static str],
    /// How long its values, entries or elements live; `None`: for ever.
    pub ttl: Option<Ttl>,
}

/// Stands for timers among the inputs that a state rides along with.
pub const TIMERS: u16 = u16::MAX;

/// A kind of state, as the field of an operator.
///
/// The functions are the SDK's: it calls them around an operator's own.
pub trait State {
    /// The handle of the state with this index in the operator's declaration.
    fn open(index: u16, name: &'static str) -> Self
    where
        Self: Sized;

    /// The declaration, with the types, as `describe` gives it.
    fn describe(declaration: Declaration) -> StateDescriptor
    where
        Self: Sized;

    /// The index given to [`State::open`].
    fn index(&self) -> u16;

    /// From now on it tells the host of reads too.
    fn refresh_by_reads(&mut self) {}

    /// Forgets the call before and takes what rides along with this one, one value for each of `slots` keys.
    ///
    /// # Errors
    /// When the column does not fit.
    fn begin(&mut self, slots: usize, eager: Option<Eager>) -> Result<(), Fault>;

    /// Undoes what `origin`, the newest one, changed in guest memory. (What it wrote through the imports is rolled back
    /// for all states at once.)
    fn undo(&mut self, origin: u32);

    /// Hands the writes of the call over: to the host where the state does not ride along, else as what is returned.
    ///
    /// # Errors
    /// When a value does not encode.
    fn finish(&mut self, encoder: &mut Encoder, host: &mut Host) -> Result<Option<ValueWrites>, Fault>;
}

/// What a field of an operator may be: one state, or what is built of several, such as a join.
///
/// ```
/// use wasmill_guest::state::{Declaration, Field, State};
/// use wasmill_guest::types::StateDescriptor;
/// use wasmill_guest::{Map, Value};
///
/// struct Numbered<T> {
///     next: Value<u64>,
///     items: Map<u64, T>,
/// }
/// # use serde::{Serialize, de::DeserializeOwned};
/// impl<T: Serialize + DeserializeOwned + schemars::JsonSchema> Field for Numbered<T> {
///     const STATES: u16 = 2;
///     fn open(first: u16, name: &'static str) -> Self {
///         Self { next: Field::open(first, name), items: Field::open(first + 1, name) }
///     }
///     fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
///         states.push(Value::<u64>::part("next", declaration));
///         states.push(Map::<u64, T>::part("items", declaration));
///     }
///     fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
///         visit(&mut self.next);
///         visit(&mut self.items);
///     }
/// }
/// ```
pub trait Field: Sized {
    /// How many states it is.
    const STATES: u16;

    /// The handles, of which the first has this index.
    fn open(first: u16, name: &'static str) -> Self;

    /// Appends one declaration for each state.
    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>);

    /// Shows each state in that order.
    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State));

    /// The declaration of a field of one state as a part of another field: its name is `field.part`.
    #[must_use]
    fn part(part: &str, declaration: Declaration) -> StateDescriptor
    where
        Self: State,
    {
        let mut described = <Self as State>::describe(declaration);
        for name in std::iter::once(&mut described.name).chain(&mut described.renamed_from) {
            name.push('.');
            name.push_str(part);
        }
        described
    }
}

impl<S: State> Field for S {
    const STATES: u16 = 1;

    fn open(first: u16, name: &'static str) -> Self {
        <S as State>::open(first, name)
    }

    fn describe(declaration: Declaration, states: &mut Vec<StateDescriptor>) {
        states.push(<S as State>::describe(declaration));
    }

    #[inline]
    fn each_state(&mut self, visit: &mut dyn FnMut(&mut dyn State)) {
        visit(self);
    }
}

/// The handles of an operator's next field; `states` counts those before.
pub fn open<F: Field>(states: &mut u16, name: &'static str) -> F {
    let first = *states;
    *states = first.saturating_add(F::STATES);
    F::open(first, name)
}

/// The same of a field whose reads refresh.
pub fn open_refreshed<F: Field>(states: &mut u16, name: &'static str) -> F {
    let mut field = open::<F>(states, name);
    field.each_state(&mut |state| state.refresh_by_reads());
    field
}

/// A declaration of a state that does not ride along.
fn descriptor(declaration: Declaration, kind: StateKind, codec: CodecKind, value_type: String) -> StateDescriptor {
    StateDescriptor {
        name: declaration.name.to_owned(),
        kind,
        version: declaration.version,
        codec,
        value_type,
        map_key_type: None,
        lazy: false,
        rides_with: Vec::new(),
        ttl: declaration.ttl,
        renamed_from: declaration.renamed_from.iter().map(|&name| name.to_owned()).collect(),
        migrates_from: Vec::new(),
    }
}

/// That nothing came along for a state that does not ride.
fn rides_not(name: &str, eager: Option<&Eager>) -> Result<(), Fault> {
    match eager {
        None => Ok(()),
        Some(_) => Err(fatal(format_args!(
            "the host broke the contract: state `{name}` is no value state and came along with a batch"
        ))),
    }
}

#[cold]
fn undecodable(name: &str, error: &dyn std::error::Error, origin: u32) -> Error {
    Error::fatal(format_args!(
        "state `{name}`, the key of record {origin}: what is stored is not of the declared type: {error}; \
         give a changed type a new version"
    ))
}

#[cold]
fn unencodable(name: &str, error: &dyn fmt::Display, origin: u32) -> Error {
    Error::fatal(format_args!("state `{name}`, the key of record {origin}: {error}"))
}

#[cold]
fn lost(name: &str) -> Error {
    Error::fatal(format_args!("state `{name}` was used outside a call"))
}
