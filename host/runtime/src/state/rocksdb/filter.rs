//! The compaction filter: of an entry that has expired and that nobody reads, the value is dropped when its file is compacted.
//!
//! Owns which rows are rewritten, and the memory of what they become. Does not own the rules (`core::ttl`), nor the times by which
//! it judges: they are told once a local cut is taken, so that whatever a later cut holds had expired at its barrier.
//!
//! A row keeps its place and says how long its value was: counts and the heads of maps stay exact, and the sweep removes it like
//! any other. Elements of lists are left alone: one lives as long as those before it, which a row by itself does not tell.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use ::rocksdb::compaction_filter::{CompactionFilter, Decision};
use ::rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use parking_lot::Mutex;
use wasmill_core::contract::{StateKind, TimeDomain, Ttl};
use wasmill_core::time::Timestamp;
use wasmill_core::ttl::{Judge, Now};

use crate::state::StateSpec;
use crate::state::lifetime::split;
use crate::state::row::{self, Form, FoundEntry};

const NAME: &CStr = c"wasmill.expired";

/// Rows of expired entries that the process keeps in memory, each once: one for each schema version and length of a value. An entry
/// for which there is no room keeps its value until the sweep comes by.
const MOST_GONE: usize = 1 << 16;

/// What the rows of expired entries become. The library takes nothing shorter-lived than the process.
static GONE: LazyLock<Mutex<Gone>> = LazyLock::new(|| Mutex::new(Gone::new()));

type Gone = HashMap<(u32, u32), &'static [u8]>;

/// The times by which compaction judges. Before there are any, nothing has expired.
#[derive(Debug)]
pub(super) struct Horizon {
    event: AtomicI64,
    processing: AtomicI64,
}

impl Default for Horizon {
    fn default() -> Self {
        let start = || AtomicI64::new(Timestamp::MIN.as_millis());
        Self { event: start(), processing: start() }
    }
}

impl Horizon {
    /// Times go on, never back. Event time's end is no such time: after it, more input begins anew.
    pub(super) fn pass(&self, now: Now) {
        if now.event < Timestamp::MAX {
            self.event.fetch_max(now.event.as_millis(), Ordering::Relaxed);
        }
        self.processing.fetch_max(now.processing.as_millis(), Ordering::Relaxed);
    }

    fn of(&self, domain: TimeDomain) -> Timestamp {
        let time = match domain {
            TimeDomain::Event => &self.event,
            TimeDomain::Processing => &self.processing,
        };
        Timestamp::from_millis(time.load(Ordering::Relaxed))
    }
}

/// Makes the filters of a state's compactions.
pub(super) struct Filters {
    ttl: Ttl,
    horizon: Arc<Horizon>,
}

impl Filters {
    /// None for a state of which no value may be dropped so: one without a TTL, a list, or where expired entries are emitted, whose
    /// values are still needed.
    pub(super) fn of(spec: &StateSpec, horizon: &Arc<Horizon>) -> Option<Self> {
        let ttl = spec.ttl.filter(|ttl| ttl.expired_output.is_none())?;
        let alone = matches!(spec.kind, StateKind::Value | StateKind::Map);
        alone.then(|| Self { ttl, horizon: Arc::clone(horizon) })
    }
}

impl CompactionFilterFactory for Filters {
    type Filter = Filter;

    fn create(&mut self, _: CompactionFilterContext) -> Filter {
        Filter { ttl: self.ttl, horizon: Arc::clone(&self.horizon), known: HashMap::new() }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// The filter of one compaction, on one thread.
pub(super) struct Filter {
    ttl: Ttl,
    horizon: Arc<Horizon>,
    /// What it has taken from [`GONE`].
    known: Gone,
}

impl Filter {
    /// What the row of an expired entry becomes; `None`: it stays as it is.
    fn gone(&mut self, value: &[u8]) -> Option<&'static [u8]> {
        // What cannot be read is left to whoever reads it.
        let found = row::decode_value(value).ok()?;
        let FoundEntry::Stamped(domain, stored) = found.entry else { return None };
        let now = self.horizon.of(self.ttl.domain);
        if domain != self.ttl.domain || Judge::new(self.ttl, now, None).is_alive(split(stored).0) {
            return None;
        }
        let key = (found.version, u32::try_from(found.entry.value_bytes()).ok()?);
        if let Some(row) = self.known.get(&key) {
            return Some(row);
        }
        let row = kept(&mut GONE.lock(), key, MOST_GONE)?;
        self.known.insert(key, row);
        Some(row)
    }
}

impl CompactionFilter for Filter {
    fn filter(&mut self, _: u32, _: &[u8], value: &[u8]) -> Decision {
        self.gone(value).map_or(Decision::Keep, Decision::Change)
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// The row of an expired entry, made if there are fewer than `most`.
fn kept(gone: &mut Gone, key: (u32, u32), most: usize) -> Option<&'static [u8]> {
    if let Some(row) = gone.get(&key) {
        return Some(row);
    }
    if gone.len() >= most {
        return None;
    }
    let (version, bytes) = key;
    let mut row = Vec::new();
    Form::encode_gone(version, bytes, &mut row);
    let row: &'static [u8] = Box::leak(row.into_boxed_slice());
    gone.insert(key, row);
    Some(row)
}

#[cfg(test)]
mod tests;
