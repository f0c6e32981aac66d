//! The imports for map and list state.
//!
//! Owns the checks of their columns and bounds, and the translation of pages. Does not own maps and lists
//! ([`StateAccess`](crate::guest::StateAccess) answers).

use std::ops::Bound;

use wasmill_core::contract::StateKind;
use wasmill_core::record;
use wasmtime::Result;

use super::{Bounds, Page, misuse};
use crate::guest::bindings::wasmill::operator::types::{Column, OptionalColumn};
use crate::guest::instance::Data;
use crate::guest::limits::ByteLimit;
use crate::guest::{contract, effects, packed};
use crate::state::{self, Range};

impl Data {
    pub(super) fn get_entry(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_origin("map-get", origin)?;
        self.check_key("map-get", name)?;
        Ok(self.state_of("map-get", state, StateKind::Map)?.map_get(state, origin, name)?)
    }

    pub(super) fn put_entry(&mut self, state: u16, origin: u32, name: &[u8], value: &[u8]) -> Result<()> {
        self.check_origin("map-put", origin)?;
        self.check_key("map-put", name)?;
        self.check_value("map-put", value)?;
        Ok(self.state_of("map-put", state, StateKind::Map)?.map_put(state, origin, name, value)?)
    }

    pub(super) fn remove_entry(&mut self, state: u16, origin: u32, name: &[u8]) -> Result<()> {
        self.check_origin("map-remove", origin)?;
        self.check_key("map-remove", name)?;
        Ok(self.state_of("map-remove", state, StateKind::Map)?.map_remove(state, origin, name)?)
    }

    pub(super) fn clear_entries(&mut self, state: u16, origin: u32) -> Result<()> {
        self.check_origin("map-clear", origin)?;
        Ok(self.state_of("map-clear", state, StateKind::Map)?.map_clear(state, origin)?)
    }

    pub(super) fn get_entries(&mut self, state: u16, origins: &[u8], names: &Column) -> Result<OptionalColumn> {
        let import = "map-get-many";
        let wanted = self.named(import, origins, names)?;
        let mut access = self.state_of(import, state, StateKind::Map)?;
        let found = self.ask(&wanted, |some| access.map_get_many(state, some))?;
        Ok(super::optional_column(&found))
    }

    pub(super) fn put_entries(&mut self, state: u16, origins: &[u8], names: &Column, values: &Column) -> Result<()> {
        let import = "map-put-many";
        let named = self.named(import, origins, names)?;
        check_column(import, "values", values, named.len(), self.limits.value())?;
        let mut access = self.state_of(import, state, StateKind::Map)?;
        for (at, (&(origin, name), value)) in named.iter().zip(values_of(values)).enumerate() {
            self.check_time(at)?;
            access.map_put(state, origin, name, value)?;
        }
        Ok(())
    }

    pub(super) fn remove_entries(&mut self, state: u16, origins: &[u8], names: &Column) -> Result<()> {
        let import = "map-remove-many";
        let named = self.named(import, origins, names)?;
        let mut access = self.state_of(import, state, StateKind::Map)?;
        for (at, (origin, name)) in named.into_iter().enumerate() {
            self.check_time(at)?;
            access.map_remove(state, origin, name)?;
        }
        Ok(())
    }

    pub(super) fn page_of_entries(&mut self, state: u16, origin: u32, bounds: &Bounds) -> Result<Page> {
        let import = "map-page";
        self.check_origin(import, origin)?;
        let range = self.range(import, bounds)?;
        let page = self.state_of(import, state, StateKind::Map)?.map_page(state, origin, range, bounds.limit)?;
        Ok(page_of(&page))
    }

    /// The range that bounds stand for, checked.
    pub(super) fn range<'a>(&self, import: &str, bounds: &'a Bounds) -> Result<Range<'a>> {
        for bound in [&bounds.lower, &bounds.upper].into_iter().flatten() {
            self.check_key(import, bound)?;
        }
        Ok(Range {
            lower: bound(bounds.lower.as_deref(), bounds.lower_open),
            upper: bound(bounds.upper.as_deref(), bounds.upper_open),
            reverse: bounds.reverse,
        })
    }

    pub(super) fn append(&mut self, state: u16, origin: u32, values: &Column) -> Result<()> {
        let import = "list-append";
        self.check_origin(import, origin)?;
        check_column(import, "values", values, values.ends.len() / 4, self.limits.value())?;
        let mut access = self.state_of(import, state, StateKind::List)?;
        self.give(values_of(values), |some| access.list_append(state, origin, some))
    }

    pub(super) fn append_many(&mut self, state: u16, origins: &[u8], values: &Column) -> Result<()> {
        let import = "list-append-many";
        let origins = self.origins(import, origins)?;
        check_column(import, "values", values, origins.len(), self.limits.value())?;
        let mut access = self.state_of(import, state, StateKind::List)?;
        for (at, (origin, value)) in origins.into_iter().zip(values_of(values)).enumerate() {
            self.check_time(at)?;
            access.list_append(state, origin, &mut std::iter::once(value))?;
        }
        Ok(())
    }

    pub(super) fn length(&mut self, state: u16, origin: u32) -> Result<u64> {
        self.check_origin("list-length", origin)?;
        Ok(self.state_of("list-length", state, StateKind::List)?.list_length(state, origin)?)
    }

    pub(super) fn page_of_elements(&mut self, state: u16, origin: u32, start: u64, limit: u32) -> Result<Column> {
        let import = "list-page";
        self.check_origin(import, origin)?;
        let page = self.state_of(import, state, StateKind::List)?.list_page(state, origin, start, limit)?;
        Ok(column(&page))
    }

    pub(super) fn replace_elements(&mut self, state: u16, origin: u32, values: &Column) -> Result<()> {
        let import = "list-replace";
        self.check_origin(import, origin)?;
        check_column(import, "values", values, values.ends.len() / 4, self.limits.value())?;
        let mut access = self.state_of(import, state, StateKind::List)?;
        access.list_clear(state, origin)?;
        self.give(values_of(values), |some| access.list_append(state, origin, some))
    }

    pub(super) fn clear_elements(&mut self, state: u16, origin: u32) -> Result<()> {
        self.check_origin("list-clear", origin)?;
        Ok(self.state_of("list-clear", state, StateKind::List)?.list_clear(state, origin)?)
    }

    /// Origins with their map keys, checked.
    fn named<'a>(&self, import: &str, origins: &[u8], names: &'a Column) -> Result<Vec<(u32, &'a [u8])>> {
        let origins = self.origins(import, origins)?;
        check_column(import, "keys", names, origins.len(), self.limits.key())?;
        Ok(origins.into_iter().zip(values_of(names)).collect())
    }

    pub(super) fn check_key(&self, import: &str, name: &[u8]) -> Result<()> {
        let (bytes, limit) = (name.len(), self.limits.key_bytes);
        if bytes <= limit {
            return Ok(());
        }
        Err(misuse(format!("{import}: a map key of {bytes} bytes, and {limit} are allowed (`limits.key`)")))
    }
}

pub(super) fn check_column(
    import: &str,
    field: &'static str,
    column: &Column,
    count: usize,
    most: ByteLimit,
) -> Result<()> {
    effects::column(field, column, count, most).map_err(|malformed| misuse(format!("{import}: {malformed}")))
}

/// The values of a checked column.
pub(super) fn values_of(column: &Column) -> impl Iterator<Item = &[u8]> {
    (0..column.ends.len() / 4).filter_map(|index| contract::value_at(column, index))
}

fn bound(bound: Option<&[u8]>, open: bool) -> Bound<&[u8]> {
    match bound {
        None => Bound::Unbounded,
        Some(name) if open => Bound::Excluded(name),
        Some(name) => Bound::Included(name),
    }
}

pub(super) fn page_of(page: &state::Page) -> Page {
    Page { keys: column(&page.names), values: column(&page.values), more: page.more }
}

pub(super) fn column(values: &record::Column) -> Column {
    Column { bytes: values.bytes().to_vec(), ends: packed::pack_u32s(values.ends()) }
}
