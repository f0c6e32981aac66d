//! Elements of a subtask that belong to no key.
//!
//! Owns the elements as read and replaced in a call. Does not own how the host spreads them over other subtasks when
//! there are more or fewer of them.

use std::marker::PhantomData;

use super::{Cbor, Codec, Declaration, Host, State, descriptor};
use crate::bindings::wasmill::operator::types::{Eager, Fault, StateDescriptor, StateKind, ValueWrites};
use crate::cbor::Encoder;
use crate::columns::{Builder, Malformed, Strings};
use crate::context::Context;
use crate::error::{Error, Result};

const PAGE: u32 = 512;

/// How elements are spread when a job is restored with another parallelism.
pub trait Spread {
    /// As the declaration names it.
    const KIND: StateKind;
}

/// Each element goes to one subtask, each gets about as many.
#[derive(Debug, Clone, Copy)]
pub struct Split;

impl Spread for Split {
    const KIND: StateKind = StateKind::OperatorSplit;
}

/// After a restore every subtask sees the elements of all, until it replaces them: then it sees its own alone.
#[derive(Debug, Clone, Copy)]
pub struct Union;

impl Spread for Union {
    const KIND: StateKind = StateKind::OperatorUnion;
}

/// Elements of this subtask, which belong to no key: [`Split`] or [`Union`] says how they are spread at another parallelism.
///
/// ```
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// Numbers the records that a subtask handles.
/// #[derive(Operator)]
/// struct Numbers {
///     counts: OperatorState<u64, Split>,
/// }
///
/// impl Process for Numbers {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let number = self.counts.read(ctx)?.iter().sum::<u64>() + 1;
///         self.counts.replace(ctx, vec![number])?;
///         ctx.emit(&number)
///     }
/// }
///
/// let mut test = Harness::<Numbers>::new("{}")?;
/// let emits = test.process([Input::absent(), Input::absent()])?;
/// assert_eq!(emits[1].value::<u64>()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OperatorState<T, S = Split, C = Cbor> {
    index: u16,
    name: &'static str,
    elements: Option<Vec<T>>,
    written: bool,
    undo: Option<Undo<T>>,
    types: PhantomData<fn() -> (S, C)>,
}

struct Undo<T> {
    origin: u32,
    elements: Option<Vec<T>>,
    written: bool,
}

impl<T, S: Spread, C: Codec<T>> OperatorState<T, S, C> {
    /// The elements.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `T`.
    pub fn read(&mut self, ctx: &mut Context<'_>) -> Result<&[T]> {
        let elements = match self.elements.take() {
            Some(elements) => elements,
            None => self.fetch(ctx)?,
        };
        Ok(self.elements.insert(elements))
    }

    /// Puts these elements in the place of this subtask's.
    ///
    /// # Errors
    /// None so far. An element that does not encode fails the call at its end.
    pub fn replace(&mut self, ctx: &mut Context<'_>, elements: Vec<T>) -> Result {
        let before = self.elements.replace(elements);
        let written = std::mem::replace(&mut self.written, true);
        let origin = ctx.origin();
        if self.undo.as_ref().is_none_or(|undo| undo.origin != origin) {
            self.undo = Some(Undo { origin, elements: before, written });
        }
        Ok(())
    }

    fn fetch(&self, ctx: &mut Context<'_>) -> Result<Vec<T>> {
        let mut elements = Vec::new();
        loop {
            let page = ctx.host().operator_page(self.index, elements.len() as u64, PAGE);
            let values = Strings::check(&page).map_err(Malformed::fault)?;
            if values.len() == 0 {
                return Ok(elements);
            }
            for at in 0..values.len() {
                let element = C::decode(values.get(at));
                elements.push(element.map_err(|error| super::undecodable(self.name, &error, ctx.origin()))?);
            }
        }
    }
}

impl<T, S: Spread, C: Codec<T>> State for OperatorState<T, S, C> {
    fn open(index: u16, name: &'static str) -> Self {
        Self { index, name, elements: None, written: false, undo: None, types: PhantomData }
    }

    fn describe(declaration: Declaration) -> StateDescriptor {
        descriptor(declaration, S::KIND, C::KIND, C::value_type())
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn begin(&mut self, _slots: usize, eager: Option<Eager>) -> std::result::Result<(), Fault> {
        (self.elements, self.written, self.undo) = (None, false, None);
        super::rides_not(self.name, eager.as_ref())
    }

    fn undo(&mut self, origin: u32) {
        if let Some(undo) = self.undo.take_if(|undo| undo.origin == origin) {
            (self.elements, self.written) = (undo.elements, undo.written);
        }
    }

    fn finish(&mut self, encoder: &mut Encoder, host: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        let Some(elements) = self.elements.as_ref().filter(|_| self.written) else { return Ok(None) };
        let mut values = Builder::default();
        for element in elements {
            let written = values.push_with(|out| Ok(C::encode(element, encoder, out)?));
            written.map_err(|error| Error::fatal(format_args!("state `{}`: {error}", self.name)).into_fault())?;
        }
        host.operator_replace(self.index, &values.finish());
        Ok(None)
    }
}
