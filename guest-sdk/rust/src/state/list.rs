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
    /// What the call appends to any list, in order: the elements, and of each its slot and on whose behalf.
    values: Builder,
    appended: Vec<(u32, u32)>,
    /// The appended elements of each slot, as far as somebody asked for them by position.
    positions: Vec<Vec<u32>>,
    placed: usize,
    /// Slots whose elements were removed; some may stand here twice.
    replaced: Vec<usize>,
    undo: Undo,
    call: u32,
    types: PhantomData<fn() -> (T, C)>,
}

/// What a call made of one key's list.
#[derive(Clone, Copy, Default)]
struct Tail {
    /// The origin that put what the call appends from `since` on in the place of all elements that the host has.
    replaced: Option<u32>,
    since: u32,
}

/// How to take back what the newest origin wrote.
#[derive(Default)]
struct Undo {
    origin: Option<u32>,
    /// How much was appended before.
    appended: usize,
    tails: Vec<(usize, Tail)>,
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
        if slot >= self.slots.len() {
            return Err(super::lost(self.name));
        }
        self.remember(origin);
        self.values.push_with(|out| Ok(C::encode(element, ctx.encoder, out)?))?;
        self.appended.push((slot as u32, origin));
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
        let tail = *self.slots.get(ctx.slot()).ok_or_else(|| super::lost(self.name))?;
        let appended = self.own(ctx.slot(), tail).len() as u64;
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
        self.remember(origin);
        let since = self.appended.len() as u32;
        let Some(tail) = self.slots.get_mut(slot) else { return Err(super::lost(self.name)) };
        self.undo.tails.push((slot, std::mem::replace(tail, Tail { replaced: Some(origin), since })));
        self.replaced.push(slot);
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
        let tail = *self.slots.get(slot).ok_or_else(|| super::lost(self.name))?;
        let stored = match (tail.replaced, walk.stored) {
            (Some(_), _) => 0,
            (None, Some(stored)) => stored,
            (None, None) => *walk.stored.insert(ctx.host().list_length(self.index, origin)),
        };
        let decoded = if let Some(own) = walk.position.checked_sub(stored) {
            let own = usize::try_from(own).unwrap_or(usize::MAX);
            let Some(&at) = self.own(slot, tail).get(own) else { return Ok(None) };
            C::decode(self.values.get(at as usize))
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

    /// Which of the appended elements are the slot's, in order.
    fn own(&mut self, slot: usize, tail: Tail) -> &[u32] {
        if self.appended.is_empty() {
            return &[];
        }
        if self.positions.len() < self.slots.len() {
            self.positions.resize_with(self.slots.len(), Vec::new);
        }
        for (at, (slot, _)) in self.appended.iter().enumerate().skip(self.placed) {
            self.positions[*slot as usize].push(at as u32);
        }
        self.placed = self.appended.len();
        let all = &self.positions[slot];
        &all[all.partition_point(|at| *at < tail.since)..]
    }

    #[inline]
    fn remember(&mut self, origin: u32) {
        if self.undo.origin != Some(origin) {
            self.undo = Undo { origin: Some(origin), appended: self.appended.len(), tails: Vec::new() };
        }
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
            values: Builder::default(),
            appended: Vec::new(),
            positions: Vec::new(),
            placed: 0,
            replaced: Vec::new(),
            undo: Undo::default(),
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
        self.forget();
        self.slots.clear();
        self.slots.resize(slots, Tail::default());
        super::rides_not(self.name, eager.as_ref())
    }

    fn undo(&mut self, origin: u32) {
        if self.undo.origin != Some(origin) {
            return;
        }
        for (slot, tail) in self.undo.tails.drain(..).rev() {
            self.slots[slot] = tail;
        }
        let keep = self.undo.appended.min(self.appended.len());
        for at in keep..self.placed {
            self.positions[self.appended[at].0 as usize].pop();
        }
        self.placed = self.placed.min(keep);
        self.appended.truncate(keep);
        self.values.truncate(keep);
    }

    fn finish(&mut self, _: &mut Encoder, host: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        // What was undone was not replaced.
        let mut replaced = std::mem::take(&mut self.replaced);
        replaced.retain(|slot| self.slots[*slot].replaced.is_some());
        replaced.sort_unstable();
        replaced.dedup();
        for &slot in &replaced {
            let tail = self.slots[slot];
            let mut values = Builder::default();
            let own = self.own(slot, tail).to_vec();
            for at in &own {
                values.push(self.values.get(*at as usize)).map_err(Error::into_fault)?;
            }
            let last = own.last().map(|at| self.appended[*at as usize].1);
            match (last, tail.replaced) {
                (Some(origin), _) => host.list_replace(self.index, origin, &values.finish()),
                (None, Some(origin)) => host.list_clear(self.index, origin),
                (None, None) => {}
            }
        }
        let (mut origins, mut values) = (Vec::with_capacity(4 * self.appended.len()), std::mem::take(&mut self.values));
        if replaced.is_empty() {
            self.appended.iter().for_each(|(_, origin)| origins.extend_from_slice(&origin.to_le_bytes()));
        } else {
            let all = std::mem::take(&mut values);
            for (at, (slot, origin)) in self.appended.iter().enumerate() {
                if self.slots[*slot as usize].replaced.is_none() {
                    origins.extend_from_slice(&origin.to_le_bytes());
                    values.push(all.get(at)).map_err(Error::into_fault)?;
                }
            }
        }
        self.forget();
        if !origins.is_empty() {
            host.list_append_many(self.index, &origins, &values.finish());
        }
        Ok(None)
    }
}

impl<T, C> List<T, C> {
    /// Forgets the call.
    fn forget(&mut self) {
        self.values.truncate(0);
        self.appended.clear();
        self.positions.clear();
        self.placed = 0;
        self.replaced.clear();
        self.undo = Undo::default();
    }
}
