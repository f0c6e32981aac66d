//! Makes a subtask's folder and what its state begins with.
//!
//! Owns the folder's lock, and how a local cut becomes a working database: as it is, or row by row along key groups. Does not
//! own where local cuts come from.

use std::collections::HashSet;
use std::fs::{File, TryLockError};

use wasmill_core::contract::StateKind;
use wasmill_core::id::StateName;
use wasmill_core::key_group::{KeyGroup, KeyGroupRange};
use wasmill_core::timer::TIMERS;

use super::backend::{Backend, add_missing};
use super::elements::ALL_GROUPS;
use super::error::Error;
use super::{Counts, Options, Restore, Tally, row};

/// The working database within the subtask's folder.
const DATABASE: &str = "db";
/// Held while the folder is in use.
const LOCK: &str = "LOCK";

/// What a state begins with.
pub(super) struct Begun {
    pub(super) backend: Backend,
    /// Counts of the declared states by index, then of those beside them.
    pub(super) counts: Counts,
    /// Held for as long as the backend is open.
    pub(super) lock: File,
}

/// Locks the folder, empties it, and fills it from `restore`.
pub(super) fn begin(options: &Options, restore: Restore) -> Result<Begun, Error> {
    let lock = lock(options)?;
    let dir = options.dir.join(DATABASE);
    let failed = |doing, error: std::io::Error| Error::file(&options.place, doing, &dir, &error);
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("empty", error)),
        _ => {}
    }
    std::fs::create_dir(&dir).map_err(|error| failed("create", error))?;
    let mut families = declared(options)?;
    families.push(TIMERS.to_owned());
    let mut counts = Counts::new(options.states.iter().map(|state| state.name.clone()), options.range);
    let shared = (&options.shared, &*options.place);
    let open = |families: &[String]| Backend::open(options.backend, &dir, families, &options.states, shared);
    let restore = match restore {
        // Files of another backend cannot be opened as they are.
        Restore::Same { dir, counts } if Backend::of(&dir, &options.place)? != options.backend => {
            Restore::Rows { dirs: vec![dir], counts }
        }
        restore => restore,
    };
    let backend = match restore {
        Restore::Empty => open(&families)?,
        Restore::Same { dir: cut, counts: taken } => {
            counts.merge(&taken.restrict(options.range));
            Backend::link(options.backend, &cut, &dir, &options.place)?;
            open(&families)?
        }
        Restore::Rows { dirs, counts: taken } => {
            let (backend, copied) = copy(options, &dirs, families, open)?;
            counts.merge(&copied);
            let (copied, promised) = (keyed(&copied, options), keyed(&taken.restrict(options.range), options));
            if copied != promised {
                tracing::warn!(
                    place = %options.place, entries = copied.entries, bytes = copied.bytes,
                    manifest_entries = promised.entries, manifest_bytes = promised.bytes,
                    "the rows restored are not as many as the manifest says: the rows count"
                );
            }
            backend
        }
    };
    Ok(Begun { backend, counts, lock })
}

/// The counts of what is copied by key group, which is all but the state of no key.
fn keyed(counts: &Counts, options: &Options) -> Tally {
    let mut total = Tally::default();
    for (state, tally) in counts.states() {
        if kind(options, state.as_str()).is_none_or(StateKind::is_keyed) {
            total += tally;
        }
    }
    total
}

fn kind(options: &Options, family: &str) -> Option<StateKind> {
    options.states.iter().find(|spec| spec.name.as_str() == family).map(|spec| spec.kind)
}

fn lock(options: &Options) -> Result<File, Error> {
    std::fs::create_dir_all(&options.dir)
        .map_err(|error| Error::file(&options.place, "create", &options.dir, &error))?;
    let path = options.dir.join(LOCK);
    let failed = |error: std::io::Error| Error::file(&options.place, "lock", &path, &error);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { place: options.place.clone(), dir: options.dir.clone() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// The column family of each declared state, by index.
fn declared(options: &Options) -> Result<Vec<String>, Error> {
    let names: Vec<String> = options.states.iter().map(|state| state.name.as_str().to_owned()).collect();
    let distinct: HashSet<&String> = names.iter().collect();
    if distinct.len() != names.len() {
        let message = "two states have one name".to_owned();
        return Err(Error::Misuse { place: options.place.clone(), message });
    }
    Ok(names)
}

/// Copies the rows of the subtask's groups from `dirs`, of states that are declared and of those that are not.
fn copy(
    options: &Options,
    dirs: &[std::path::PathBuf],
    mut families: Vec<String>,
    open: impl Fn(&[String]) -> Result<Backend, Error>,
) -> Result<(Backend, Counts), Error> {
    // Broadcast state lies in one group of its source, whichever that is.
    let has_broadcast = options.states.iter().any(|spec| spec.kind == StateKind::Broadcast);
    let range = if has_broadcast { ALL_GROUPS } else { options.range };
    let sources = dirs
        .iter()
        .map(|dir| Backend::open_read_only(dir, range, (&options.shared, &options.place)))
        .collect::<Result<Vec<_>, _>>()?;
    for source in &sources {
        add_missing(&mut families, source.families());
    }
    let backend = open(&families)?;
    let mut counts = Counts::default();
    let mut writes = backend.writes();
    for (nth, source) in sources.iter().enumerate() {
        for (from, family) in source.families().iter().enumerate() {
            let Some(to) = backend.families().iter().position(|name| name == family) else { continue };
            match kind(options, family) {
                // Every subtask had the same: the first has all of it.
                Some(StateKind::Broadcast) if nth > 0 => {}
                Some(StateKind::Broadcast) => {
                    let group = KeyGroup(options.range.start);
                    copy_family(source, from, (ALL_GROUPS, options.range), family, &mut counts, |key, value| {
                        writes.put(to, &row::in_group(group, key), value)
                    })?;
                }
                // Given out by element, not by row: `super::elements`.
                Some(StateKind::OperatorSplit | StateKind::OperatorUnion) => {}
                _ => {
                    let ranges = (options.range, options.range);
                    copy_family(source, from, ranges, family, &mut counts, |key, value| writes.put(to, key, value))?;
                }
            }
        }
    }
    writes.finish()?;
    Ok((backend, counts))
}

/// Copies the rows of the groups `range`; they are counted in `counted_in`, those of other groups in its first.
fn copy_family(
    source: &Backend,
    from: usize,
    (range, counted_in): (KeyGroupRange, KeyGroupRange),
    family: &str,
    counts: &mut Counts,
    mut put: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if range.is_empty() {
        return Ok(());
    }
    // RocksDB has column families of its own making (`default`), which count for nothing while they are empty.
    let state = StateName::new(family).ok();
    let mut counted = None;
    source.scan(from, range, |key, value| {
        let (group, name, rest) = row::decode_key(key).map_err(|reason| source.bad_row(from, key, reason))?;
        if row::is_head(value) {
            // It says what the entries that follow are counted for.
            row::decode_head(value).map_err(|reason| source.bad_row(from, key, reason))?;
            return put(key, value);
        }
        let found = row::decode_value(value).map_err(|reason| source.bad_row(from, key, reason))?;
        // Of a value nothing follows; of a timer the rest of its id.
        let rest = if rest.is_empty() || family == TIMERS { Ok(rest) } else { row::decode_entry(rest) };
        let rest = rest.map_err(|reason| source.bad_row(from, key, reason))?;
        if let Some(state) = &state {
            let index = *counted.get_or_insert_with(|| counts.cover(state, counted_in));
            let group = if range == counted_in { group } else { KeyGroup(counted_in.start) };
            if let Some(tally) = counts.tally_mut(index, group) {
                tally.entries += 1;
                tally.bytes += (name.len() + rest.len() + found.entry.value_bytes()) as u64;
            }
        }
        put(key, value)
    })
}
