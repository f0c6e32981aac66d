//! What maps and lists have in common: finding the run of a key, asking RocksDB for what it lacks, writing, clearing, scanning.
//!
//! Owns that counts and heads are right after each write, and what is asked of RocksDB together. Does not own what a run keeps,
//! nor what makes a list of it ([`super::list`]).

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::{StateKind, Ttl};
use wasmill_core::key_group::KeyHash;
use wasmill_core::ttl::Stamp;

use super::backend::{Entries, Rows};
use super::changes::Changes;
use super::entries::EntryAt;
use super::error::Error;
use super::keyed::{KeyedState, MAX_PIECE};
use super::lifetime::{Sight, restamped, split, stamped};
use super::row;
use super::run::{Known, Name, Run, Value};
use super::runs::RunIndex;
use super::scan::{Cursor, Merged, Page, Range, Walk};

/// A map or list that is read whole when it is asked for again: not more entries, nor more bytes.
const SMALL_ENTRIES: u64 = 128;
const SMALL_BYTES: u64 = 16 << 10;

/// The key of a map or list: the state's index, the key, its hash.
pub type Place<'a> = (usize, &'a [u8], KeyHash);

/// Rows of one state that RocksDB is asked for together.
#[derive(Default)]
pub(super) struct Wanted {
    state: usize,
    /// Whose they are, and where the name begins in an entry's row; `None`: the row is the head.
    of: Vec<(RunIndex, Option<usize>)>,
    rows: Rows,
}

impl KeyedState {
    /// The run of a key, made if there is none.
    pub(super) fn run(&mut self, kind: StateKind, (state, key, hash): Place<'_>) -> Result<RunIndex, Error> {
        let id = self.check(state, kind)?;
        if let Some(run) = self.runs.find(id, hash, key) {
            return Ok(run);
        }
        if key.len() > MAX_PIECE {
            return Err(self.too_large(state, key.len()));
        }
        let group = self.group(hash)?;
        let empty = self.runs.is_complete() || self.has_none(state, group);
        let stamp = self.rows.states[state].stamp_bytes() as u8;
        Ok(self.runs.make(((id, stamp), hash), group, key, empty))
    }

    /// Forgets runs while a call goes on that reads more than there is room for. No [`RunIndex`] is valid afterwards.
    pub(super) fn relieve(&mut self) {
        let released = self.writer.released();
        if self.runs.is_over(released) {
            self.runs.forget(released);
        }
    }

    /// What a run's head says.
    pub(super) fn head(&mut self, index: RunIndex) -> Result<Tally, Error> {
        self.know(index, None)?;
        Ok(self.runs.get(index).head().unwrap_or_default())
    }

    /// Makes the head known, and the entry `name`, with all else that is wanted.
    pub(super) fn know(&mut self, index: RunIndex, name: Option<&[u8]>) -> Result<(), Error> {
        self.want(index, name)?;
        self.fetch_wanted()
    }

    /// Begins to gather what is wanted. No [`RunIndex`] is valid afterwards.
    pub fn begin_wanted(&mut self) {
        self.relieve();
        self.wanted.clear();
    }

    /// Wants what is not known: the head, and the entry `name`.
    pub(super) fn want(&mut self, index: RunIndex, name: Option<&[u8]>) -> Result<(), Error> {
        let run = self.runs.get(index);
        let name = name.filter(|name| run.get(name) == Known::Unknown);
        if run.head().is_some() && name.is_none() {
            self.gauges.hits += 1;
            return Ok(());
        }
        self.gauges.misses += 1;
        let state = usize::from(run.state);
        if state != self.wanted.state {
            self.fetch_wanted()?;
            self.wanted.state = state;
        }
        let run = self.runs.get(index);
        // Asked for again: what is small is soon asked for whole.
        if name.is_some() && run.has_entries() && self.is_small(index) {
            return self.load_all(index);
        }
        self.row_key.clear();
        row::encode_key(run.group, &run.key, &mut self.row_key);
        let head = &self.row_key;
        if run.head().is_none() {
            self.wanted.of.push((index, None));
            self.wanted.rows.push_with(|row| row.extend_from_slice(head));
        }
        if let Some(name) = name {
            self.wanted.of.push((index, Some(head.len() + 1)));
            self.wanted.rows.push_with(|row| {
                row.extend_from_slice(head);
                row::encode_entry(name, row);
            });
        }
        Ok(())
    }

    /// Asks RocksDB for what is wanted.
    ///
    /// # Errors
    /// As [`KeyedState::load_values`].
    pub fn fetch_wanted(&mut self) -> Result<(), Error> {
        let Wanted { state, of, rows } = &self.wanted;
        let state = *state;
        if of.is_empty() {
            return Ok(());
        }
        let found = self.rows.backend.get_many(state, rows)?;
        for ((&(index, name_at), key), row) in of.iter().zip(rows.iter()).zip(&found) {
            match name_at {
                None => {
                    let head = row.as_deref().map(row::decode_head).transpose();
                    let head = head.map_err(|reason| self.rows.backend.bad_row(state, key, reason))?;
                    self.runs.with(index, |run| run.learn_head(head.unwrap_or_default()));
                }
                Some(at) => {
                    let value = match row {
                        Some(row) => Some(self.rows.decode(state, row, &mut self.stored)?),
                        None => None,
                    };
                    self.runs.with(index, |run| run.learn(&key[at..], value));
                }
            }
        }
        self.wanted.clear();
        Ok(())
    }

    /// Writes an entry of which it is known what it was.
    pub(super) fn write_entry(&mut self, index: RunIndex, name: &Name, value: Option<Value>) -> Result<(), Error> {
        let at = self.runs.get(index).find(name);
        if self.write_known(index, (name, at), value)? {
            return Ok(());
        }
        Err(self.misuse("an entry that was fetched is not in the cache".to_owned()))
    }

    /// Writes an entry, which is at `at` if it is in memory, if it is known what it was; whether it is.
    pub(super) fn write_known(
        &mut self,
        index: RunIndex,
        (name, at): (&Name, Option<EntryAt>),
        value: Option<Value>,
    ) -> Result<bool, Error> {
        let run = self.runs.get(index);
        let (before, stamp) = match run.known(at) {
            _ if run.head().is_none() => return Ok(false),
            Known::Value(stored) => (Some(stored.len()), split(stored).0),
            Known::Absent => (None, Stamp::UNKNOWN),
            Known::Unknown => return Ok(false),
        };
        if let Known::Value(stored) = run.known(at)
            && self.emits_expired(usize::from(run.state))
        {
            let stored = Value::clone(stored);
            self.entry_leaves(index, name, &stored);
        }
        let run = self.runs.get(index);
        let (state, size) = (usize::from(run.state), value.as_ref().map_or(0, |value| value.len()));
        let value = match (self.ttl(state), value) {
            (Some(ttl), Some(value)) if before.is_some() => Some(restamped(&ttl, stamp, value)),
            (_, value) => value,
        };
        if name.len() > MAX_PIECE || size > MAX_PIECE {
            return Err(self.too_large(state, name.len().max(size)));
        }
        if before.is_some() || value.is_some() {
            self.replace_entry(index, (name, at), before, value);
        }
        Ok(true)
    }

    /// Stamps an entry that is known anew, if it is alive.
    pub(super) fn touch_entry(&mut self, index: RunIndex, name: &Name, ttl: &Ttl, stamp: Stamp) -> Result<(), Error> {
        let Known::Value(stored) = self.runs.get(index).get(name) else { return Ok(()) };
        let (before, value) = split(stored);
        let later = ttl.restamped(before, stamp);
        if later == before || !self.lifetimes.judge(*ttl).is_alive(before) {
            return Ok(());
        }
        let stored = stamped(later, value);
        self.write_entry(index, name, Some(stored))
    }

    /// Writes an entry, which is at `at` if it is in memory and had a value of `before` bytes, or none.
    pub(super) fn replace_entry(
        &mut self,
        index: RunIndex,
        (name, at): (&Name, Option<EntryAt>),
        before: Option<usize>,
        value: Option<Value>,
    ) {
        let run = self.runs.get(index);
        let (state, group, fixed) = (usize::from(run.state), run.group, run.key.len() + name.len());
        let after = value.as_ref().map(|value| value.len());
        let sequence = self.sequence + 1;
        let changes = &mut self.changes;
        self.runs.with(index, |run| run.write((name, at), before, value, (changes, sequence)));
        self.count(state, group, fixed, before, after);
    }

    /// Removes all entries; costs the same however many there are.
    pub(super) fn clear_all(&mut self, index: RunIndex) -> Result<(), Error> {
        self.know(index, None)?;
        self.entries_leave(index)?;
        let run = self.runs.get(index);
        let (state, group, head) = (usize::from(run.state), run.group, run.head().unwrap_or_default());
        if head.entries == 0 {
            return Ok(());
        }
        if let Some(tally) = self.counts.tally_mut(state, group) {
            tally.entries = tally.entries.saturating_sub(head.entries);
            tally.bytes = tally.bytes.saturating_sub(head.bytes);
        }
        let (changes, sequence): (&mut Changes, u64) = (&mut self.changes, self.sequence + 1);
        self.runs.with(index, |run| run.clear(changes, sequence));
        Ok(())
    }

    /// How a scan reads the entries of a run now.
    pub(super) fn scan_sight(&self, index: RunIndex) -> Sight {
        let state = usize::from(self.runs.get(index).state);
        match self.sight(state) {
            Sight::Judged(_) if self.rows.states[state].kind == StateKind::List => Sight::Stamped,
            sight => sight,
        }
    }

    /// Fills a page with what `sight` sees, from what is in memory where that is all there is in the range, else from RocksDB too.
    pub(super) fn scan<'a>(
        &mut self,
        (index, sight): (RunIndex, Sight),
        range: Range<'_>,
        (page, limit): (&mut Page, usize),
        newer: impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        all_in_memory: bool,
    ) -> Result<(), Error> {
        let reverse = range.reverse;
        let newer = Walk::new(newer, reverse);
        self.runs.with(index, Run::put_in_order);
        let run = self.runs.get(index);
        let ours = Walk::new(run.range(range.bounds()), reverse);
        if all_in_memory || run.is_complete() {
            self.gauges.hits += 1;
            return page.fill(Merged::new(newer, ours, reverse), limit, sight);
        }
        self.gauges.misses += 1;
        self.row_key.clear();
        row::encode_key(run.group, &run.key, &mut self.row_key);
        let (state, head) = (usize::from(run.state), &self.row_key);
        let entries = Entries { state, head, range, spec: &self.rows.states[state] };
        let stored = self.rows.backend.entries(&entries)?;
        page.fill(Merged::new(newer, Merged::new(ours, stored, reverse), reverse), limit, sight)
    }

    /// Whether a run has little enough to be read whole.
    pub(super) fn is_small(&self, index: RunIndex) -> bool {
        let head = self.runs.get(index).head();
        head.is_some_and(|head| head.entries <= SMALL_ENTRIES && head.bytes <= SMALL_BYTES)
    }

    /// Reads all entries of a key into its run.
    pub(super) fn load_all(&mut self, index: RunIndex) -> Result<(), Error> {
        self.load(index, Range::ALL, usize::MAX)?;
        self.runs.with(index, Run::learned_all);
        Ok(())
    }

    /// Reads the first `limit` entries of a range into the run.
    pub(super) fn load(&mut self, index: RunIndex, range: Range<'_>, limit: usize) -> Result<(), Error> {
        let run = self.runs.get(index);
        self.row_key.clear();
        row::encode_key(run.group, &run.key, &mut self.row_key);
        let (state, head) = (usize::from(run.state), &self.row_key);
        let entries = Entries { state, head, range, spec: &self.rows.states[state] };
        let mut stored = self.rows.backend.entries(&entries)?;
        self.runs.with(index, |run| {
            for _ in 0..limit {
                let Some((name, value)) = stored.entry() else { break };
                run.learn(name, value);
                stored.advance()?;
            }
            Ok(())
        })
    }
}

impl Wanted {
    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.rows.clear();
    }
}
