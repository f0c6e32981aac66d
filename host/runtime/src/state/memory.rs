//! The backend in memory: ordered rows, and files of them that only local cuts need.
//!
//! Owns the rows, what memory they take, and which files hold them. Does not own the files' format ([`file`]), what the rows are,
//! which thread calls, nor what a restore copies.
//!
//! Every write is also appended to a file, which a flush ends: the files of a cut, read in the order of their names onto nothing, are
//! its rows. So a cut writes what changed. Where the files outgrow the rows, or are too many, one file of all rows replaces them.

mod file;
mod row;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use wasmill_core::key_group::KeyGroupRange;

pub(super) use self::file::names;
use self::file::{Change, FileWriter};
pub(super) use self::row::Row;
use self::row::{Keyed, Probe};
use super::LocalFile;
use super::backend::{Span, Stored};
use super::error::Error;

/// Files of one cut; with more, one file of all rows replaces them.
const MAX_FILES: usize = 32;
/// Files may be so much larger than twice what the rows take in memory, whatever that is.
const SLACK_BYTES: u64 = 1 << 20;
/// Rows of a range that are deleted while readers wait.
const DELETED_AT_ONCE: usize = 256;
/// Rows that a cursor takes at first, and at most, while it holds on.
const TAKEN: std::ops::RangeInclusive<usize> = 8..=512;

/// Memory for the rows of all subtasks of a process. A cheap clone.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { used: Arc::default(), limit }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// One subtask's rows.
pub(super) struct Tables {
    /// The column families, by index: the declared states', then those that are there beside them.
    families: Vec<String>,
    tables: Vec<RwLock<BTreeSet<Row>>>,
    files: Mutex<Files>,
    budget: Budget,
    used: AtomicUsize,
    place: String,
    dir: PathBuf,
}

/// The files that hold what was written.
#[derive(Default)]
struct Files {
    ended: Vec<LocalFile>,
    open: Option<FileWriter>,
    /// The number of the file begun last: none is used twice.
    last: u64,
}

impl Tables {
    /// Opens the rows in `dir`, with the column families `families` and those that are there.
    pub(super) fn open(dir: &Path, families: &[String], budget: &Budget, place: &str) -> Result<Self, Error> {
        Self::load(dir, families, budget, (KeyGroupRange { start: 0, end: u16::MAX }, place))
    }

    /// Opens the rows of `range` in the local cut in `dir`, to be read only.
    pub(super) fn open_read_only(dir: &Path, range: KeyGroupRange, place: &str) -> Result<Self, Error> {
        Self::load(dir, &[], &Budget::new(usize::MAX), (range, place))
    }

    fn load(
        dir: &Path,
        families: &[String],
        budget: &Budget,
        (range, place): (KeyGroupRange, &str),
    ) -> Result<Self, Error> {
        let mut tables = Self {
            families: families.to_vec(),
            tables: families.iter().map(|_| RwLock::default()).collect(),
            files: Mutex::default(),
            budget: budget.clone(),
            used: AtomicUsize::new(0),
            place: place.to_owned(),
            dir: dir.to_owned(),
        };
        let mut ended = Vec::new();
        for name in names(dir, place)? {
            let read = file::read(&dir.join(&name), place, |family, change| tables.apply(family, &change, range))?;
            ended.push(LocalFile { name, bytes: read.bytes, key_groups: Some(read.key_groups) });
        }
        let last = ended.last().and_then(|file| file::number(&file.name)).unwrap_or(0);
        *tables.files.get_mut() = Files { ended, open: None, last };
        Ok(tables)
    }

    fn apply(&mut self, family: &str, change: &Change<'_>, range: KeyGroupRange) -> Result<(), Error> {
        let index = self.families.iter().position(|name| name == family).unwrap_or_else(|| {
            self.families.push(family.to_owned());
            self.tables.push(RwLock::default());
            self.families.len() - 1
        });
        match *change {
            Change::Put(key, value) if file::group(key).is_some_and(|group| range.contains(group)) => {
                self.insert(index, Row::new(key, value))
            }
            Change::Put(..) => Ok(()),
            Change::Delete(key) => self.remove(index, key),
            Change::DeleteRange(from, to) => self.remove_range(index, from, to),
        }
    }

    /// The column families, by index.
    pub(super) fn families(&self) -> &[String] {
        &self.families
    }

    /// The subtask and the folder, for errors.
    pub(super) fn place(&self) -> (&str, &Path) {
        (&self.place, &self.dir)
    }

    /// Bytes of memory that the rows take.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The values of `rows` of a state, in order.
    pub(super) fn get_many<'a>(
        &self,
        state: usize,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<Option<Stored<'_>>>, Error> {
        let table = self.table(state)?.read_recursive();
        Ok(rows.map(|row| table.get(Probe::new(row).keyed()).cloned().map(Stored::Memory)).collect())
    }

    /// One row of a state.
    pub(super) fn get(&self, state: usize, row: &[u8]) -> Result<Option<Row>, Error> {
        Ok(self.table(state)?.read_recursive().get(Probe::new(row).keyed()).cloned())
    }

    /// The rows of a state within `span`. Writers wait while it is there.
    pub(super) fn cursor(&self, state: usize, span: &Span<'_>) -> Result<Cursor<'_>, Error> {
        let table = self.table(state)?.read_recursive();
        let more = span.lower < span.upper;
        let (lower, upper) = (Bound::Included(span.lower.to_vec()), Bound::Excluded(span.upper.to_vec()));
        let mut cursor = Cursor { table, lower, upper, reverse: span.reverse, taken: Vec::new(), at: 0, more };
        cursor.take(*TAKEN.start());
        Ok(cursor)
    }

    pub(super) fn put(&self, state: usize, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.insert(state, Row::new(key, value))?;
        self.append(state, &Change::Put(key, value))
    }

    pub(super) fn delete(&self, state: usize, key: &[u8]) -> Result<(), Error> {
        self.remove(state, key)?;
        self.append(state, &Change::Delete(key))
    }

    /// Deletes all rows from `from` up to `to`, that one not included.
    pub(super) fn delete_range(&self, state: usize, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.remove_range(state, from, to)?;
        self.append(state, &Change::DeleteRange(from, to))
    }

    /// Ends the file of what was written since the last flush, or writes all rows to one that replaces all files.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let mut files = self.files.lock();
        let bytes = files.ended.iter().map(|file| file.bytes).sum::<u64>();
        let bytes = bytes + files.open.as_ref().map_or(0, FileWriter::bytes);
        if files.ended.len() >= MAX_FILES || bytes > 2 * self.used() as u64 + SLACK_BYTES {
            return self.rewrite(&mut files);
        }
        if files.ended.is_empty() && files.open.is_none() {
            files.open = Some(self.begin(&mut files.last)?);
        }
        if let Some(open) = files.open.take() {
            files.ended.push(open.end()?);
        }
        Ok(())
    }

    /// Takes the local cut: hard links to all files, in `dir`, which must not exist.
    pub(super) fn cut(&self, dir: &Path) -> Result<Vec<LocalFile>, Error> {
        let files = self.files.lock().ended.clone();
        std::fs::create_dir(dir).map_err(|error| Error::file(&self.place, "create", dir, &error))?;
        for LocalFile { name, .. } in &files {
            file::link(&self.dir.join(name), &dir.join(name), &self.place)?;
        }
        Ok(files)
    }

    fn rewrite(&self, files: &mut Files) -> Result<(), Error> {
        let mut all = self.begin(&mut files.last)?;
        for (family, table) in self.families.iter().zip(&self.tables) {
            for row in table.read_recursive().iter() {
                all.append(family, &Change::Put(row.key(), row.value()))?;
            }
        }
        let all = all.end()?;
        let open = files.open.take().map(FileWriter::abandon);
        let old = std::mem::replace(&mut files.ended, vec![all]).into_iter().map(|file| self.dir.join(file.name));
        for path in old.chain(open) {
            std::fs::remove_file(&path).map_err(|error| Error::file(&self.place, "remove", &path, &error))?;
        }
        Ok(())
    }

    fn append(&self, state: usize, change: &Change<'_>) -> Result<(), Error> {
        let mut files = self.files.lock();
        let Files { open, last, .. } = &mut *files;
        let open = match open {
            Some(open) => open,
            None => open.insert(self.begin(last)?),
        };
        open.append(&self.families[state], change)
    }

    fn begin(&self, last: &mut u64) -> Result<FileWriter, Error> {
        *last += 1;
        FileWriter::new(&self.dir, *last, &self.place)
    }

    fn insert(&self, state: usize, row: Row) -> Result<(), Error> {
        let table = self.table(state)?;
        let bytes = row.memory();
        let before = table.write().replace(row).map_or(0, |before| before.memory());
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.freed(before);
        let (used, limit) = (self.budget.used(), self.budget.limit);
        if bytes > before && used > limit {
            return Err(Error::Full { place: self.place.clone(), used, limit });
        }
        Ok(())
    }

    fn remove(&self, state: usize, key: &[u8]) -> Result<(), Error> {
        if let Some(row) = self.table(state)?.write().take(Probe::new(key).keyed()) {
            self.freed(row.memory());
        }
        Ok(())
    }

    fn remove_range(&self, state: usize, from: &[u8], to: &[u8]) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        let (from, to) = (Probe::new(from), Probe::new(to));
        loop {
            let mut table = self.table(state)?.write();
            let bounds = (Bound::Included(from.keyed()), Bound::Excluded(to.keyed()));
            let rows: Vec<Row> = table.range::<dyn Keyed, _>(bounds).take(DELETED_AT_ONCE).cloned().collect();
            for row in &rows {
                table.remove(row);
                self.freed(row.memory());
            }
            if rows.len() < DELETED_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn freed(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn table(&self, state: usize) -> Result<&RwLock<BTreeSet<Row>>, Error> {
        self.tables.get(state).ok_or_else(|| Error::Misuse {
            place: self.place.clone(),
            message: format!("there is no state with index {state}"),
        })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.freed(self.used());
    }
}

/// Links the files of a local cut into `to`.
pub(super) fn link(from: &Path, to: &Path, place: &str) -> Result<(), Error> {
    names(from, place)?.iter().try_for_each(|name| file::link(&from.join(name), &to.join(name), place))
}

/// A cursor over rows: it holds off writers, and takes some rows at a time.
pub(super) struct Cursor<'a> {
    table: RwLockReadGuard<'a, BTreeSet<Row>>,
    /// Of what was not taken yet.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    reverse: bool,
    taken: Vec<Row>,
    at: usize,
    more: bool,
}

impl Cursor<'_> {
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.taken.get(self.at).map(|row| (row.key(), row.value()))
    }

    pub(super) fn next(&mut self) {
        self.at += 1;
        if self.at >= self.taken.len() {
            self.take((2 * self.taken.len()).min(*TAKEN.end()));
        }
    }

    fn take(&mut self, count: usize) {
        self.taken.clear();
        self.at = 0;
        if !self.more {
            return;
        }
        let (lower, upper) =
            (self.lower.as_ref().map(|key| Probe::new(key)), self.upper.as_ref().map(|key| Probe::new(key)));
        let bounds = (lower.as_ref().map(Probe::keyed), upper.as_ref().map(Probe::keyed));
        let mut rows = self.table.range::<dyn Keyed, _>(bounds).cloned();
        if self.reverse {
            self.taken.extend(rows.rev().take(count));
        } else {
            self.taken.extend(rows.by_ref().take(count));
        }
        self.more = self.taken.len() == count;
        let Some(last) = self.taken.last() else { return };
        let bound = Bound::Excluded(last.key().to_vec());
        if self.reverse {
            self.upper = bound;
        } else {
            self.lower = bound;
        }
    }
}
