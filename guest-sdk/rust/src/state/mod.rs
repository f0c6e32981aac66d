//! Keyed state: handles that an operator declares as fields.
//!
//! Owns what every kind of handle must do in a call (begin, undo, finish) and the seam to state that does not ride along.
//! Does not own where state lies: that is the host's.

mod codec;
mod value;

use crate::bindings::wasmill::operator::types::{Eager, Fault, StateDescriptor, ValueWrites};
use crate::cbor::Encoder;

pub use codec::{Cbor, Codec, Raw};
pub use value::Value;

/// State that does not ride along in the batch: what the contract's interface `state` offers to the guest.
///
/// In a component these are the imports; a native run brings its own. `origin` stands for its key.
pub trait StateHost {
    /// The value of the origin's key, as this call sees it.
    fn value_get(&mut self, state: u16, origin: u32) -> Option<Vec<u8>>;
    /// Sets the value of the origin's key.
    fn value_set(&mut self, state: u16, origin: u32, value: &[u8]);
    /// Removes the value of the origin's key.
    fn value_clear(&mut self, state: u16, origin: u32);
    /// A point to roll back to.
    fn mark(&mut self) -> u32;
    /// Undoes what this call wrote since `mark`.
    fn rollback(&mut self, mark: u32);
}

/// What an operator's source says of a state.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The name by which it is found.
    pub name: &'static str,
    /// The schema version of what is written now.
    pub version: u32,
    /// Whether it is fetched on demand and does not ride along.
    pub lazy: bool,
    /// The indexes of the inputs it rides along with; of none named, all.
    pub rides_with: &'static [u16],
    /// Names it had.
    pub renamed_from: &'static [&'static str],
}

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

    /// Forgets the call before and takes what rides along with this one, one value for each of `slots` keys.
    ///
    /// # Errors
    /// When the column does not fit.
    fn begin(&mut self, slots: usize, eager: Option<Eager>) -> Result<(), Fault>;

    /// Undoes what `origin`, the newest one, changed in guest memory. (What it wrote through the imports is rolled back
    /// for all states at once.)
    fn undo(&mut self, origin: u32);

    /// The writes of the call to hand to the host, if there are any.
    ///
    /// # Errors
    /// When a value does not encode.
    fn finish(&mut self, encoder: &mut Encoder) -> Result<Option<ValueWrites>, Fault>;
}
