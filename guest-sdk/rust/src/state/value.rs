//! One value a key.
//!
//! Owns the decoded values of a call: each key's is decoded at most once and encoded at most once, at the call's end. Where
//! the state does not ride along, the first read of a key goes to the host.

use std::marker::PhantomData;

use super::reads::Reads;
use super::{Cbor, Codec, Declaration, Host, State, descriptor};
use crate::bindings::wasmill::operator::types::{Eager, Fault, StateDescriptor, StateKind, ValueWrites};
use crate::cbor::{self, Encoder};
use crate::columns::{Builder, Malformed, Strings};
use crate::context::Context;
use crate::error::{Error, Result, fatal};

const CLEAR: u8 = 0;
const SET: u8 = 1;
const TOUCHED: u8 = 2;

/// A value for each key, of type `T`, written as CBOR or (`Value<Vec<u8>, Raw>`) as raw bytes.
///
/// Every function acts on the key of the record that `ctx` stands for. Absent is not a default: `get` says `None`.
pub struct Value<T, C = Cbor> {
    index: u16,
    name: &'static str,
    /// One for each key of the call.
    cells: Vec<Cell<T>>,
    /// The slots of dirty cells in the order of their first write.
    dirty: Vec<u32>,
    eager: Option<Eager>,
    undo: Option<Undo<T>>,
    /// Where reads refresh: who read or wrote each key.
    reads: Option<Reads>,
    codec: PhantomData<C>,
}

/// What is known of a key's value.
enum Cell<T> {
    Unread,
    Clean(Option<T>),
    /// Not yet handed to the host; written on behalf of `origin`.
    Dirty {
        value: Option<T>,
        origin: u32,
    },
}

/// The cell to put back where the newest writing origin is rejected.
struct Undo<T> {
    origin: u32,
    slot: usize,
    cell: Cell<T>,
}

impl<T, C: Codec<T>> Value<T, C> {
    /// The value, as a copy; `None` where there is none.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `T`.
    #[inline]
    pub fn get(&mut self, ctx: &mut Context<'_>) -> Result<Option<T>>
    where
        T: Clone,
    {
        Ok(self.read(ctx)?.cloned())
    }

    /// The value in place; `None` where there is none.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `T`.
    #[inline]
    pub fn read(&mut self, ctx: &mut Context<'_>) -> Result<Option<&T>> {
        let slot = ctx.slot();
        self.note(slot, ctx);
        self.load(slot, ctx)?;
        Ok(match &self.cells[slot] {
            Cell::Clean(value) | Cell::Dirty { value, .. } => value.as_ref(),
            Cell::Unread => None,
        })
    }

    /// Sets the value.
    ///
    /// # Errors
    /// None so far. A value that does not encode fails the call at its end.
    #[inline]
    pub fn set(&mut self, ctx: &mut Context<'_>, value: T) -> Result {
        self.write(ctx, Some(value))
    }

    /// Removes the value.
    ///
    /// # Errors
    /// None so far.
    pub fn clear(&mut self, ctx: &mut Context<'_>) -> Result {
        self.write(ctx, None)
    }

    /// Changes the value, beginning with the default where there is none, and shows it as it is then.
    ///
    /// The value before is copied, so that a rejected record can be undone; for a large value on a hot path where that
    /// counts, keep the parts that change in a state of their own.
    ///
    /// # Errors
    /// As [`Value::get`] and [`Value::set`].
    #[inline]
    pub fn update(&mut self, ctx: &mut Context<'_>, change: impl FnOnce(&mut T)) -> Result<&T>
    where
        T: Clone + Default,
    {
        let mut value = self.get(ctx)?.unwrap_or_default();
        change(&mut value);
        self.set(ctx, value)?;
        match &self.cells[ctx.slot()] {
            Cell::Clean(Some(value)) | Cell::Dirty { value: Some(value), .. } => Ok(value),
            _ => Err(self.lost()),
        }
    }

    /// Where reads refresh, notes who reads; what does not ride along is asked for again, so that the host knows.
    fn note(&mut self, slot: usize, ctx: &Context<'_>) {
        let Some(reads) = &mut self.reads else { return };
        match self.cells.get_mut(slot) {
            Some(cell @ Cell::Clean(_)) if self.eager.is_none() => *cell = Cell::Unread,
            Some(Cell::Unread) if self.eager.is_none() => {}
            _ => reads.read(slot, ctx.origin(), |origin| ctx.origins.time(origin)),
        }
    }

    /// Makes sure that the cell is known.
    #[inline]
    fn load(&mut self, slot: usize, ctx: &mut Context<'_>) -> Result {
        match self.cells.get(slot) {
            Some(Cell::Unread) => self.decode(slot, ctx),
            Some(_) => Ok(()),
            None => Err(self.lost()),
        }
    }

    fn decode(&mut self, slot: usize, ctx: &mut Context<'_>) -> Result {
        let decoded = match &self.eager {
            Some(eager) => {
                let present = eager.values.present.get(slot).is_some_and(|&present| present != 0);
                present.then(|| C::decode(Strings::checked(&eager.values.values).get(slot)))
            }
            None => {
                let origin = ctx.origin();
                ctx.host().value_get(self.index, origin).map(|bytes| C::decode(&bytes))
            }
        };
        match decoded.transpose() {
            Ok(value) => {
                self.cells[slot] = Cell::Clean(value);
                Ok(())
            }
            Err(error) => Err(self.undecodable(&error, ctx.origin())),
        }
    }

    /// Writes in guest memory, for the call's end. Of the origins that wrote a key, the one with the greatest time stands
    /// for all.
    #[inline]
    fn write(&mut self, ctx: &Context<'_>, value: Option<T>) -> Result {
        let mut origin = ctx.origin();
        if let Some(reads) = &mut self.reads {
            reads.read(ctx.slot(), origin, |origin| ctx.origins.time(origin));
        }
        match self.cells.get(ctx.slot()) {
            Some(&Cell::Dirty { origin: before, .. }) => {
                if ctx.origins.time(before) > ctx.time() {
                    origin = before;
                }
            }
            Some(_) => self.dirty.push(ctx.slot() as u32),
            None => return Err(self.lost()),
        }
        self.keep(ctx, Cell::Dirty { value, origin });
        Ok(())
    }

    /// Replaces the present key's cell. The origin's first replacement is what an undo restores; what was not dirty is then
    /// read again.
    #[inline]
    fn keep(&mut self, ctx: &Context<'_>, cell: Cell<T>) {
        let (slot, origin) = (ctx.slot(), ctx.origin());
        let before = match &mut self.cells[slot] {
            dirty @ Cell::Dirty { .. } => std::mem::replace(dirty, cell),
            known => {
                *known = cell;
                Cell::Unread
            }
        };
        if self.undo.as_ref().is_none_or(|undo| undo.origin != origin) {
            self.undo = Some(Undo { origin, slot, cell: before });
        }
    }

    #[cold]
    fn undecodable(&self, error: &cbor::Error, origin: u32) -> Error {
        super::undecodable(self.name, error, origin)
    }

    #[cold]
    fn lost(&self) -> Error {
        super::lost(self.name)
    }
}

impl<T, C: Codec<T>> State for Value<T, C> {
    fn open(index: u16, name: &'static str) -> Self {
        Self {
            index,
            name,
            cells: Vec::new(),
            dirty: Vec::new(),
            eager: None,
            undo: None,
            reads: None,
            codec: PhantomData,
        }
    }

    fn describe(declaration: Declaration) -> StateDescriptor {
        StateDescriptor {
            lazy: declaration.lazy,
            rides_with: declaration.rides_with.to_vec(),
            ..descriptor(declaration, StateKind::ValueState, C::KIND, C::value_type())
        }
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn begin(&mut self, slots: usize, eager: Option<Eager>) -> std::result::Result<(), Fault> {
        self.cells.clear();
        self.cells.resize_with(slots, || Cell::Unread);
        self.dirty.clear();
        self.undo = None;
        if let Some(reads) = &mut self.reads {
            reads.begin(slots);
        }
        self.eager = eager;
        if let Some(eager) = &self.eager {
            let values = Strings::check(&eager.values.values).map_err(fatal)?;
            if values.len() != slots || eager.values.present.len() != slots {
                return Err(fatal(Malformed("an eager state has not one value a key")));
            }
        }
        Ok(())
    }

    fn refresh_by_reads(&mut self) {
        self.reads = Some(Reads::default());
    }

    fn undo(&mut self, origin: u32) {
        if let Some(reads) = &mut self.reads {
            reads.undo(origin);
        }
        if let Some(undo) = self.undo.take_if(|undo| undo.origin == origin) {
            let after = std::mem::replace(&mut self.cells[undo.slot], undo.cell);
            if matches!(after, Cell::Dirty { .. }) && !matches!(self.cells[undo.slot], Cell::Dirty { .. }) {
                // The newest origin made it dirty, so it is the last.
                self.dirty.pop();
            }
        }
    }

    fn finish(&mut self, encoder: &mut Encoder, _: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        let touched = self.reads.as_ref().map_or(&[][..], Reads::slots);
        if self.dirty.is_empty() && touched.is_empty() {
            return Ok(None);
        }
        let len = self.dirty.len();
        let mut origins = Vec::with_capacity(4 * len);
        let mut operations = Vec::with_capacity(len);
        let mut values = Builder::with_capacity(
            len,
            self.eager.as_ref().map_or(0, |eager| eager.values.values.bytes.len()) + 2 * len,
        );
        for &slot in &self.dirty {
            let Cell::Dirty { value, origin } = &self.cells[slot as usize] else { continue };
            let origin = &self.reads.as_ref().and_then(|reads| reads.reader(slot as usize)).unwrap_or(*origin);
            let written = match value {
                Some(value) => {
                    operations.push(SET);
                    values.push_with(|out| Ok(C::encode(value, encoder, out)?))
                }
                None => {
                    operations.push(CLEAR);
                    values.push(&[])
                }
            };
            written.map_err(|error| super::unencodable(self.name, &error, *origin).into_fault())?;
            origins.extend_from_slice(&origin.to_le_bytes());
        }
        for &slot in touched {
            let reader = self.reads.as_ref().and_then(|reads| reads.reader(slot as usize));
            if let (Some(origin), Some(Cell::Clean(Some(_)))) = (reader, self.cells.get(slot as usize)) {
                operations.push(TOUCHED);
                values.push(&[]).map_err(fatal)?;
                origins.extend_from_slice(&origin.to_le_bytes());
            }
        }
        Ok(Some(ValueWrites { state: self.index, origins, operations, values: values.finish() }))
    }
}
