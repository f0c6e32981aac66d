//! A map that every subtask has the same of.
//!
//! Owns that only records of a broadcast input write it, and that what a call read of it is not asked for again. Does not
//! own how it stays the same everywhere: that is the host's.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::map::nearest;
use super::overlay::{Change, Overlay};
use super::{Cbor, Codec, Declaration, Host, Scan, State, descriptor};
use crate::bindings::wasmill::operator::types::{Eager, Fault, StateDescriptor, StateKind, ValueWrites};
use crate::cbor::Encoder;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::map_key::{FromMapKey, KeyFor, MapKey, PrefixOf};

/// Entries of map key and value that belong to no key: each subtask has the same, such as rules or rates.
///
/// Read from everywhere, written on behalf of a broadcast input's record only (`#[operator(input("rules", broadcast))]`).
/// Otherwise like a [`super::Map`]. Everything that one call reads is kept for its other records, and [`Broadcast::all`] keeps
/// the whole: it should fit in memory.
///
/// ```
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// Passes amounts over their currency's limit.
/// #[derive(Operator)]
/// #[operator(input("amounts"), input("limits", broadcast))]
/// struct OverLimit {
///     limits: Broadcast<String, i64>,
/// }
///
/// impl Process for OverLimit {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let (currency, amount): (&str, i64) = record.value()?;
///         if record.input() == 1 {
///             return self.limits.insert(ctx, currency, amount);
///         }
///         match self.limits.get(ctx, currency)? {
///             Some(limit) if amount <= limit => Ok(()),
///             _ => ctx.emit(&(currency, amount)),
///         }
///     }
/// }
///
/// let mut test = Harness::<OverLimit>::new("{}")?;
/// test.process([Input::new(&("EUR", 100)).on(1)])?;
/// let emits = test.process([("EUR", 90), ("EUR", 110), ("USD", 1)].map(|amount| Input::new(&amount)))?;
/// assert_eq!(emits.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Broadcast<K, V, C = Cbor> {
    index: u16,
    name: &'static str,
    /// Of one slot, that stands for all keys.
    overlay: Overlay<V>,
    /// Whether the overlay knows every entry.
    complete: bool,
    call: u32,
    key: Vec<u8>,
    types: PhantomData<fn() -> (K, C)>,
}

const ONLY: usize = 0;

impl<K: FromMapKey, V, C: Codec<V>> Broadcast<K, V, C> {
    /// The value of an entry, as a copy; `None` where there is none.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `V`.
    pub fn get<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result<Option<V>>
    where
        V: Clone,
    {
        Ok(self.read(ctx, key)?.cloned())
    }

    /// The value of an entry in place.
    ///
    /// # Errors
    /// As [`Broadcast::get`].
    pub fn read<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result<Option<&V>> {
        self.take_key(key);
        if !self.complete && self.overlay.known(ONLY, &self.key).is_none() {
            let bytes = ctx.host().broadcast_get(self.index, &self.key);
            let value = bytes.map(|bytes| C::decode(&bytes)).transpose();
            let value = value.map_err(|error| super::undecodable(self.name, &error, ctx.origin()))?;
            self.overlay.learn(ONLY, &self.key, value);
        }
        Ok(self.overlay.known(ONLY, &self.key).flatten())
    }

    /// Sets the value of an entry.
    ///
    /// # Errors
    /// Fatal but on behalf of a broadcast input's record.
    pub fn insert<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q, value: V) -> Result {
        self.write(ctx, key, Some(value))
    }

    /// Removes an entry; where there is none, nothing happens.
    ///
    /// # Errors
    /// As [`Broadcast::insert`].
    pub fn remove<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result {
        self.write(ctx, key, None)
    }

    /// A walk over all entries; [`Broadcast::next`] takes it further.
    #[must_use]
    pub fn iter(&self) -> Scan<K> {
        Scan::all()
    }

    /// A walk over the entries of a range of map keys.
    #[must_use]
    pub fn range<Q: KeyFor<K>>(&self, range: impl RangeBounds<Q>) -> Scan<K> {
        Scan::range(&range)
    }

    /// A walk over the entries whose map keys begin so.
    #[must_use]
    pub fn prefix<Q: PrefixOf<K> + ?Sized>(&self, prefix: &Q) -> Scan<K> {
        Scan::prefix(prefix)
    }

    /// The next entry of a walk.
    ///
    /// # Errors
    /// Fatal when what is stored is not a `K` or `V`, or the walk began with another state or record.
    pub fn next(&mut self, ctx: &mut Context<'_>, scan: &mut Scan<K>) -> Result<Option<(K, V)>>
    where
        V: Clone,
    {
        scan.bind(self.index, self.call, ctx.origin())?;
        while !scan.is_over() {
            if self.complete {
                scan.drop_page();
            } else if let Some(bounds) = scan.asks() {
                scan.turn(ctx.host().broadcast_page(self.index, &bounds))?;
            }
            let Some((key, value)) = nearest::<V, C, K>(&mut self.overlay, ONLY, scan) else { return Ok(None) };
            let value = value.map_err(|error| super::undecodable(self.name, &error, ctx.origin()))?;
            scan.pass(&key, value.is_some());
            if let Some(value) = value {
                let key = K::read(&key).map_err(|error| super::undecodable(self.name, &error, ctx.origin()))?;
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// All entries, at once. The first use in a call fetches them, the others cost no call to the host.
    ///
    /// # Errors
    /// As [`Broadcast::next`].
    pub fn all(&mut self, ctx: &mut Context<'_>) -> Result<Vec<(K, V)>>
    where
        V: Clone,
    {
        let mut scan = self.iter();
        let mut entries = Vec::new();
        while let Some((key, value)) = self.next(ctx, &mut scan)? {
            if !self.complete {
                self.take_key(&key);
                self.overlay.learn(ONLY, &self.key, Some(value.clone()));
            }
            entries.push((key, value));
        }
        self.complete = true;
        Ok(entries)
    }

    fn write<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q, value: Option<V>) -> Result {
        if !ctx.writes_broadcast() {
            return Err(Error::fatal(format_args!(
                "state `{}` is written on behalf of a broadcast input's record only; declare the input with \
                 #[operator(input(\"..\", broadcast))]",
                self.name
            )));
        }
        self.take_key(key);
        self.overlay.write(ctx, ONLY, &self.key, value);
        Ok(())
    }

    fn take_key(&mut self, key: &(impl MapKey + ?Sized)) {
        self.key.clear();
        key.write(&mut self.key);
    }
}

impl<K: FromMapKey, V, C: Codec<V>> State for Broadcast<K, V, C> {
    fn open(index: u16, name: &'static str) -> Self {
        Self { index, name, overlay: Overlay::new(), complete: false, call: 0, key: Vec::new(), types: PhantomData }
    }

    fn describe(declaration: Declaration) -> StateDescriptor {
        StateDescriptor {
            map_key_type: Some(K::schema()),
            ..descriptor(declaration, StateKind::BroadcastState, C::KIND, C::value_type())
        }
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn begin(&mut self, _slots: usize, eager: Option<Eager>) -> std::result::Result<(), Fault> {
        self.call = self.call.wrapping_add(1);
        self.complete = false;
        self.overlay.begin(1);
        super::rides_not(self.name, eager.as_ref())
    }

    fn undo(&mut self, origin: u32) {
        self.overlay.undo(origin);
    }

    fn finish(&mut self, encoder: &mut Encoder, host: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        let mut result: Result = Ok(());
        let (index, name) = (self.index, self.name);
        self.overlay.take_changes(|change| match change {
            Change::Put { origin, key, value } => {
                let mut bytes = Vec::new();
                match C::encode(&value, encoder, &mut bytes) {
                    Ok(()) => host.broadcast_put(index, key, &bytes),
                    Err(error) => result = Err(super::unencodable(name, &error, origin)),
                }
            }
            Change::Remove { key, .. } => host.broadcast_remove(index, key),
            Change::Clear { .. } => {}
        });
        result.map_err(Error::into_fault)?;
        Ok(None)
    }
}
