//! A list for each key.
//!
//! Owns what a call appended or replaced until its end, when the host hears of it in as few calls as there are kinds of
//! change. Does not own the elements that the host has: they are read page by page.

use std::marker::PhantomData;

use super::{Cbor, Codec, Declaration, Host, State, descriptor};
use crate::bindings::wasmill::operator::types::{Column, Eager, Fault, StateDescriptor, StateKind, ValueWrites};
use crate::cbor::Encoder;
use crate::columns::{Builder, Malformed, Strings};
use crate::context::Context;
use crate::error::{Error, Result};

/// Elements that a walk asks for at first; each further page is larger.
const FIRST_PAGE: u32 = 32;
const LARGEST_PAGE: u32 = 512;

/// Elements in order for each key: appending costs the same however long the list is.
///
/// Every function acts on the key of the record that `ctx` stands for. Reads see writes; what a call changes goes to the host
/// at its end. Elements are written as CBOR or (`List<Vec<u8>, Raw>`) as raw bytes. For elements that are sought, removed one
/// by one or kept in order, take a [`super::Map`].
///
/// ```
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// Emits each three records of a key together.
/// #[derive(Operator)]
/// #[operator(key = String)]
/// struct Threes {
///     waiting: List<i64>,
/// }
///
/// impl Process for Threes {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         self.waiting.append(ctx, &record.value()?)?;
///         if self.waiting.len(ctx)? == 3 {
///             let three = self.waiting.collect(ctx)?;
///             self.waiting.clear(ctx)?;
///             ctx.emit(&three)?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut test = Harness::<Threes>::new("{}")?;
/// let emits = test.process([1, 2, 3, 4].map(|n| Input::new(&n).key("k")))?;
/// assert_eq!(emits.len(), 1);
/// assert_eq!(emits[0].value::<Vec<i64>>()?, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct List<T, C = Cbor> {
    index: u16,
    name: &'static str,
    slots: Vec<Tail>,
    /// Slots that were written; some may stand here twice.
    written: Vec<usize>,
    undo: Vec<Undo>,
    undo_origin: u32,
    call: u32,
    types: PhantomData<fn() -> (T, C)>,
}

/// What a call made of one key's list.
#[derive(Default)]
struct Tail {
    /// The origin that put the tail in the place of all elements that the host has.
    replaced: Option<u32>,
    /// The appended elements, and on whose behalf.
    values: Builder,
    origins: Vec<u32>,
}

enum Undo {
    Append { slot: usize, len: usize },
    Replace { slot: usize, before: Tail },
}

/// A walk over a list from its first element, by position; [`List::next`] takes it further. It sees what is appended
/// meanwhile. It lasts as long as the record in hand.
#[derive(Debug, Clone)]
pub struct Elements {
    position: u64,
    /// Length of what the host has, once asked.
    stored: Option<u64>,
    page: Column,
    next_in_page: usize,
    page_limit: u32,
    began: Option<(u16, u32, u32)>,
}

impl<T, C: Codec<T>> List<T, C> {
    /// Appends an element.
    ///
    /// # Errors
    /// Rejects the record when the element does not encode.
    pub fn append(&mut self, ctx: &mut Context<'_>, element: &T) -> Result {
        let (slot, origin) = (ctx.slot(), ctx.origin());
        let Some(tail) = self.slots.get_mut(slot) else { return Err(super::lost(self.name)) };
        let len = tail.origins.len();
        tail.values.push_with(|out| Ok(C::encode(element, ctx.encoder, out)?))?;
        tail.origins.push(origin);
        if len == 0 && tail.replaced.is_none() {
            self.written.push(slot);
        }
        self.remember(origin, Undo::Append { slot, len });
        Ok(())
    }

    /// Appends elements.
    ///
    /// # Errors
    /// As [`List::append`].
    pub fn extend<'t>(&mut self, ctx: &mut Context<'_>, elements: impl IntoIterator<Item = &'t T>) -> Result
    where
        T: 't,
    {
        elements.into_iter().try_for_each(|element| self.append(ctx, element))
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// None so far.
    pub fn len(&mut self, ctx: &mut Context<'_>) -> Result<u64> {
        let tail = self.slots.get(ctx.slot()).ok_or_else(|| super::lost(self.name))?;
        let appended = tail.origins.len() as u64;
        if tail.replaced.is_some() {
            return Ok(appended);
        }
        let origin = ctx.origin();
        Ok(ctx.host().list_length(self.index, origin).saturating_add(appended))
    }

    /// Whether there is none.
    ///
    /// # Errors
    /// None so far.
    pub fn is_empty(&mut self, ctx: &mut Context<'_>) -> Result<bool> {
        Ok(self.len(ctx)? == 0)
    }

    /// Puts these elements in the place of all.
    ///
    /// # Errors
    /// As [`List::append`].
    pub fn replace<'t>(&mut self, ctx: &mut Context<'_>, elements: impl IntoIterator<Item = &'t T>) -> Result
    where
        T: 't,
    {
        self.clear(ctx)?;
        self.extend(ctx, elements)
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// None so far.
    pub fn clear(&mut self, ctx: &mut Context<'_>) -> Result {
        let (slot, origin) = (ctx.slot(), ctx.origin());
        let Some(tail) = self.slots.get_mut(slot) else { return Err(super::lost(self.name)) };
        let before = std::mem::replace(tail, Tail { replaced: Some(origin), ..Tail::default() });
        self.written.push(slot);
        self.remember(origin, Undo::Replace { slot, before });
        Ok(())
    }

    /// A walk over all elements.
    #[must_use]
    pub fn iter(&self) -> Elements {
        Elements {
            position: 0,
            stored: None,
            page: Column { bytes: Vec::new(), ends: Vec::new() },
            next_in_page: 0,
            page_limit: FIRST_PAGE,
            began: None,
        }
    }

    /// The next element of a walk.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `T`, or the walk began with another state or record.
    pub fn next(&mut self, ctx: &mut Context<'_>, walk: &mut Elements) -> Result<Option<T>> {
        let (slot, origin) = (ctx.slot(), ctx.origin());
        let here = (self.index, self.call, origin);
        if *walk.began.get_or_insert(here) != here {
            return Err(Error::fatal("a walk was used with another state or beyond the record that it began with"));
        }
        let tail = self.slots.get(slot).ok_or_else(|| super::lost(self.name))?;
        let stored = match (tail.replaced, walk.stored) {
            (Some(_), _) => 0,
            (None, Some(stored)) => stored,
            (None, None) => *walk.stored.insert(ctx.host().list_length(self.index, origin)),
        };
        let decoded = if let Some(own) = walk.position.checked_sub(stored) {
            let own = usize::try_from(own).unwrap_or(usize::MAX);
            if own >= tail.origins.len() {
                return Ok(None);
            }
            C::decode(tail.values.get(own))
        } else {
            let Some(bytes) = walk.stored(|start, limit| ctx.host().list_page(self.index, origin, start, limit))?
            else {
                return Ok(None);
            };
            C::decode(bytes)
        };
        walk.position += 1;
        decoded.map(Some).map_err(|error| super::undecodable(self.name, &error, origin))
    }

    /// All elements, at once.
    ///
    /// # Errors
    /// As [`List::next`].
    pub fn collect(&mut self, ctx: &mut Context<'_>) -> Result<Vec<T>> {
        let mut walk = self.iter();
        let mut elements = Vec::new();
        while let Some(element) = self.next(ctx, &mut walk)? {
            elements.push(element);
        }
        Ok(elements)
    }

    fn remember(&mut self, origin: u32, undo: Undo) {
        if self.undo_origin != origin {
            self.undo_origin = origin;
            self.undo.clear();
        }
        self.undo.push(undo);
    }
}

impl Elements {
    /// The stored element at the walk's position; `fetch` brings a page.
    fn stored(&mut self, fetch: impl FnOnce(u64, u32) -> Column) -> Result<Option<&[u8]>> {
        if self.next_in_page >= Strings::checked(&self.page).len() {
            self.page = fetch(self.position, self.page_limit);
            self.page_limit = self.page_limit.saturating_mul(4).min(LARGEST_PAGE);
            self.next_in_page = 0;
            if Strings::check(&self.page).map_err(Malformed::fault)?.len() == 0 {
                return Ok(None);
            }
        }
        self.next_in_page += 1;
        Ok(Some(Strings::checked(&self.page).get(self.next_in_page - 1)))
    }
}

impl<T, C: Codec<T>> State for List<T, C> {
    fn open(index: u16, name: &'static str) -> Self {
        Self {
            index,
            name,
            slots: Vec::new(),
            written: Vec::new(),
            undo: Vec::new(),
            undo_origin: 0,
            call: 0,
            types: PhantomData,
        }
    }

    fn describe(declaration: Declaration) -> StateDescriptor {
        descriptor(declaration, StateKind::ListState, C::KIND, C::value_type())
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn begin(&mut self, slots: usize, eager: Option<Eager>) -> std::result::Result<(), Fault> {
        self.call = self.call.wrapping_add(1);
        self.undo.clear();
        self.written.clear();
        self.slots.clear();
        self.slots.resize_with(slots, Tail::default);
        super::rides_not(self.name, eager.as_ref())
    }

    fn undo(&mut self, origin: u32) {
        if self.undo_origin != origin {
            return;
        }
        for undo in self.undo.drain(..).rev() {
            match undo {
                Undo::Append { slot, len } => {
                    self.slots[slot].values.truncate(len);
                    self.slots[slot].origins.truncate(len);
                }
                Undo::Replace { slot, before } => self.slots[slot] = before,
            }
        }
    }

    fn finish(&mut self, _: &mut Encoder, host: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        let (mut origins, mut values) = (Vec::new(), Builder::default());
        for slot in self.written.drain(..) {
            let tail = std::mem::take(&mut self.slots[slot]);
            match (tail.replaced, tail.origins.last()) {
                (Some(origin), None) => host.list_clear(self.index, origin),
                (Some(_), Some(&origin)) => host.list_replace(self.index, origin, &tail.values.finish()),
                (None, _) => {
                    for (at, origin) in tail.origins.iter().enumerate() {
                        origins.extend_from_slice(&origin.to_le_bytes());
                        values.push(tail.values.get(at)).map_err(Error::into_fault)?;
                    }
                }
            }
        }
        if !origins.is_empty() {
            host.list_append_many(self.index, &origins, &values.finish());
        }
        Ok(None)
    }
}
