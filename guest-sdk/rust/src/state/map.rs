//! A map for each key, ordered by map key.
//!
//! Owns which calls to the host a map needs: a look-up of what the call does not know yet, pages for a scan, and the writes
//! of the whole call at its end, in as many calls as there are kinds of change. Does not own the order of map keys: see
//! [`crate::map_key`].

use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::overlay::{Change, Overlay};
use super::{Cbor, Codec, Declaration, Host, Scan, State, descriptor};
use crate::bindings::wasmill::operator::types::{Eager, Fault, StateDescriptor, StateKind, ValueWrites};
use crate::cbor::{self, Encoder};
use crate::columns::{Builder, Malformed, Strings};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::map_key::{FromMapKey, KeyFor, PrefixOf};
use crate::operator::Ahead;
use crate::record::Record;

/// Entries of map key and value for each key, kept in the order of their map keys.
///
/// Every function acts on the key of the record that `ctx` stands for. Reads see writes, also in scans; what a call changes
/// goes to the host at its end. Values are written as CBOR or (`Map<K, Vec<u8>, Raw>`) as raw bytes.
///
/// ```
/// use wasmill_guest::prelude::*;
/// use wasmill_guest::testing::{Harness, Input};
///
/// /// Counts words for each author and emits the counts of those that begin alike.
/// #[derive(Operator)]
/// #[operator(key = String)]
/// struct Words {
///     counts: Map<String, u64>,
/// }
///
/// impl Process for Words {
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
///         let word: &str = record.value()?;
///         self.counts.update(ctx, word, |count| *count += 1)?;
///         let mut alike = self.counts.prefix(&word[..1]);
///         while let Some(entry) = self.counts.next(ctx, &mut alike)? {
///             ctx.emit(&entry)?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut test = Harness::<Words>::new("{}")?;
/// let emits = test.process(["be", "or", "but"].map(|word| Input::new(word).key("w")))?;
/// let last: Vec<(String, u64)> = emits[2..].iter().map(|emit| emit.value()).collect::<Result<_, _>>()?;
/// assert_eq!(last, [("be".to_owned(), 1), ("but".to_owned(), 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Map<K, V, C = Cbor> {
    index: u16,
    name: &'static str,
    overlay: Overlay<V>,
    /// Counts calls, so that a scan knows its own.
    call: u32,
    /// The map key in hand.
    key: Vec<u8>,
    types: PhantomData<fn() -> (K, C)>,
}

impl<K: FromMapKey, V, C: Codec<V>> Map<K, V, C> {
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
    /// As [`Map::get`].
    pub fn read<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result<Option<&V>> {
        self.take_key(key);
        self.load(ctx)?;
        Ok(self.overlay.known(ctx.slot(), &self.key).flatten())
    }

    /// Whether there is an entry.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn contains<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result<bool> {
        Ok(self.read(ctx, key)?.is_some())
    }

    /// The values of several entries, in the order asked for. What the call does not know yet is fetched by one call to the
    /// host.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_many<Q: KeyFor<K>>(
        &mut self,
        ctx: &mut Context<'_>,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<V>>>
    where
        V: Clone,
    {
        let mut asked = Builder::default();
        for key in keys {
            self.take_key(&key);
            asked.push(&self.key)?;
        }
        let asked = asked.finish();
        let keys = Strings::checked(&asked);
        let origin = ctx.origin();
        self.fetch(ctx, (0..keys.len()).map(|at| (origin, keys.get(at))))?;
        let value = |at| self.overlay.known(ctx.slot(), keys.get(at)).flatten().cloned();
        Ok((0..keys.len()).map(value).collect())
    }

    /// Fetches entries that records of a batch will ask for, each with the record on whose behalf, in one call to the host.
    ///
    /// ```
    /// # use wasmill_guest::prelude::*;
    /// # use wasmill_guest::Ahead;
    /// # #[derive(Operator)]
    /// # struct Prices { prices: Map<String, u64> }
    /// impl Process for Prices {
    ///     fn look_ahead(&mut self, batch: &mut Ahead<'_, '_>) -> Result {
    ///         let asked = batch.records().filter_map(|record| Some((record, record.value::<String>().ok()?)));
    ///         self.prices.prefetch(batch, asked)
    ///     }
    ///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
    ///         let price = self.prices.get(ctx, record.value::<&str>()?)?;
    ///         ctx.emit(&price)
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn prefetch<'r, Q: KeyFor<K>>(
        &mut self,
        batch: &mut Ahead<'_, '_>,
        entries: impl IntoIterator<Item = (Record<'r>, Q)>,
    ) -> Result {
        let (mut origins, mut asked) = (Vec::new(), Builder::default());
        for (record, key) in entries {
            self.take_key(&key);
            asked.push(&self.key)?;
            origins.push(record.origin);
        }
        let asked = asked.finish();
        let keys = Strings::checked(&asked);
        self.fetch(batch.ctx, origins.into_iter().enumerate().map(|(at, origin)| (origin, keys.get(at))))
    }

    /// Sets the value of an entry.
    ///
    /// # Errors
    /// None so far. A value that does not encode fails the call at its end.
    pub fn insert<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q, value: V) -> Result {
        self.take_key(key);
        self.overlay.write(ctx, ctx.slot(), &self.key, Some(value));
        Ok(())
    }

    /// Removes an entry; where there is none, nothing happens.
    ///
    /// # Errors
    /// None so far.
    pub fn remove<Q: KeyFor<K> + ?Sized>(&mut self, ctx: &mut Context<'_>, key: &Q) -> Result {
        self.take_key(key);
        self.overlay.write(ctx, ctx.slot(), &self.key, None);
        Ok(())
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// None so far.
    pub fn clear(&mut self, ctx: &mut Context<'_>) -> Result {
        self.overlay.clear(ctx, ctx.slot());
        Ok(())
    }

    /// Changes the value of an entry, beginning with the default where there is none, and shows it as it is then.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn update<Q: KeyFor<K> + ?Sized>(
        &mut self,
        ctx: &mut Context<'_>,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> Result<&V>
    where
        V: Clone + Default,
    {
        let mut value = self.get(ctx, key)?.unwrap_or_default();
        change(&mut value);
        self.insert(ctx, key, value)?;
        self.overlay.known(ctx.slot(), &self.key).flatten().ok_or_else(|| self.lost())
    }

    /// A walk over all entries; [`Map::next`] takes it further.
    #[must_use]
    pub fn iter(&self) -> Scan<K> {
        Scan::all()
    }

    /// A walk over the entries of a range of map keys.
    #[must_use]
    pub fn range<Q: KeyFor<K>>(&self, range: impl RangeBounds<Q>) -> Scan<K> {
        Scan::range(&range)
    }

    /// A walk over the entries whose map keys begin so: with a text, with bytes, or with the first parts of a tuple.
    #[must_use]
    pub fn prefix<Q: PrefixOf<K> + ?Sized>(&self, prefix: &Q) -> Scan<K> {
        Scan::prefix(prefix)
    }

    /// The next entry of a walk. Between two of them the map may be changed: see [`Scan`].
    ///
    /// # Errors
    /// Fatal when what is stored is not a `K` or `V`, or the walk began with another state or record.
    pub fn next(&mut self, ctx: &mut Context<'_>, scan: &mut Scan<K>) -> Result<Option<(K, V)>>
    where
        V: Clone,
    {
        let (slot, origin) = (ctx.slot(), ctx.origin());
        scan.bind(self.index, self.call, origin)?;
        while !scan.is_over() {
            if self.overlay.is_cleared(slot) {
                scan.drop_page();
            } else if let Some(bounds) = scan.asks() {
                scan.turn(ctx.host().map_page(self.index, origin, &bounds))?;
            }
            let Some((key, value)) = nearest::<V, C, K>(&mut self.overlay, slot, scan) else { return Ok(None) };
            let value = value.map_err(|error| self.undecodable(&error, origin))?;
            scan.pass(&key, value.is_some());
            if let Some(value) = value {
                let key = K::read(&key).map_err(|error| self.undecodable(&error, origin))?;
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// The entries that a walk has left, at once.
    ///
    /// # Errors
    /// As [`Map::next`].
    pub fn collect(&mut self, ctx: &mut Context<'_>, mut scan: Scan<K>) -> Result<Vec<(K, V)>>
    where
        V: Clone,
    {
        let mut entries = Vec::new();
        while let Some(entry) = self.next(ctx, &mut scan)? {
            entries.push(entry);
        }
        Ok(entries)
    }

    fn take_key(&mut self, key: &(impl KeyFor<K> + ?Sized)) {
        self.key.clear();
        key.write(&mut self.key);
    }

    /// Makes sure that the entry under the map key in hand is known.
    #[inline]
    fn load(&mut self, ctx: &mut Context<'_>) -> Result {
        let slot = ctx.slot();
        if self.overlay.known(slot, &self.key).is_some() {
            return Ok(());
        }
        let origin = ctx.origin();
        let bytes = ctx.host().map_get(self.index, origin, &self.key);
        let value = bytes.map(|bytes| C::decode(&bytes)).transpose();
        let value = value.map_err(|error| self.undecodable(&error, origin))?;
        self.overlay.learn(slot, &self.key, value);
        Ok(())
    }

    /// Fetches those entries that are not known, in one call to the host.
    fn fetch<'k>(&mut self, ctx: &mut Context<'_>, entries: impl Iterator<Item = (u32, &'k [u8])>) -> Result {
        let (mut origins, mut keys, mut asked) = (Vec::new(), Builder::default(), Vec::new());
        for (origin, key) in entries {
            let slot = ctx.origins.slot(origin) as usize;
            if self.overlay.known(slot, key).is_none() {
                origins.extend_from_slice(&origin.to_le_bytes());
                keys.push(key)?;
                asked.push((origin, slot));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let keys = keys.finish();
        let found = ctx.host().map_get_many(self.index, &origins, &keys);
        let values = Strings::check(&found.values).map_err(Malformed::fault)?;
        if values.len() != asked.len() || found.present.len() != asked.len() {
            return Err(Malformed("a look-up of many has not one value each").fault());
        }
        let keys = Strings::checked(&keys);
        for (at, (origin, slot)) in asked.into_iter().enumerate() {
            let value = (found.present[at] != 0).then(|| C::decode(values.get(at))).transpose();
            let value = value.map_err(|error| self.undecodable(&error, origin))?;
            self.overlay.learn(slot, keys.get(at), value);
        }
        Ok(())
    }

    #[cold]
    fn undecodable(&self, error: &dyn std::error::Error, origin: u32) -> Error {
        super::undecodable(self.name, error, origin)
    }

    #[cold]
    fn lost(&self) -> Error {
        super::lost(self.name)
    }
}

/// A map key, and its value as far as it decodes.
type Nearest<V> = (Vec<u8>, Result<Option<V>, cbor::Error>);

/// Of the host's next entry and the call's own, the one that comes first; of the same entry, the call's. `None` as a value
/// is an entry that the call removed.
pub(super) fn nearest<V: Clone, C: Codec<V>, K>(
    overlay: &mut Overlay<V>,
    slot: usize,
    scan: &Scan<K>,
) -> Option<Nearest<V>> {
    let own = overlay.first(slot, scan.left());
    let theirs = scan.front();
    let own_is_first = match (&own, &theirs) {
        (None, None) => return None,
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (Some((own, _)), Some((theirs, _))) if scan.left().is_reverse() => own >= theirs,
        (Some((own, _)), Some((theirs, _))) => own <= theirs,
    };
    match (own, theirs) {
        (Some((key, value)), _) if own_is_first => Some((key.to_vec(), Ok(value.cloned()))),
        (_, Some((key, bytes))) => Some((key.to_vec(), C::decode(bytes).map(Some))),
        _ => None,
    }
}

impl<K: FromMapKey, V, C: Codec<V>> State for Map<K, V, C> {
    fn open(index: u16, name: &'static str) -> Self {
        Self { index, name, overlay: Overlay::new(), call: 0, key: Vec::new(), types: PhantomData }
    }

    fn describe(declaration: Declaration) -> StateDescriptor {
        StateDescriptor {
            map_key_type: Some(K::schema()),
            ..descriptor(declaration, StateKind::MapState, C::KIND, C::value_type())
        }
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn begin(&mut self, slots: usize, eager: Option<Eager>) -> std::result::Result<(), Fault> {
        self.call = self.call.wrapping_add(1);
        self.overlay.begin(slots);
        super::rides_not(self.name, eager.as_ref())
    }

    fn undo(&mut self, origin: u32) {
        self.overlay.undo(origin);
    }

    fn finish(&mut self, encoder: &mut Encoder, host: &mut Host) -> std::result::Result<Option<ValueWrites>, Fault> {
        let (mut put_origins, mut put_keys, mut put_values) = (Vec::new(), Builder::default(), Builder::default());
        let (mut removed_origins, mut removed_keys) = (Vec::new(), Builder::default());
        let mut result: Result = Ok(());
        let index = self.index;
        self.overlay.take_changes(|change| {
            let done = match change {
                Change::Clear { origin } => {
                    host.map_clear(index, origin);
                    Ok(())
                }
                Change::Put { origin, key, value } => {
                    put_origins.extend_from_slice(&origin.to_le_bytes());
                    put_keys.push(key).and_then(|()| {
                        put_values.push_with(|out| {
                            C::encode(&value, encoder, out)
                                .map_err(|error| super::unencodable(self.name, &error, origin))
                        })
                    })
                }
                Change::Remove { origin, key } => {
                    removed_origins.extend_from_slice(&origin.to_le_bytes());
                    removed_keys.push(key)
                }
            };
            if result.is_ok() {
                result = done;
            }
        });
        result.map_err(Error::into_fault)?;
        if !put_origins.is_empty() {
            host.map_put_many(index, &put_origins, &put_keys.finish(), &put_values.finish());
        }
        if !removed_origins.is_empty() {
            host.map_remove_many(index, &removed_origins, &removed_keys.finish());
        }
        Ok(None)
    }
}
