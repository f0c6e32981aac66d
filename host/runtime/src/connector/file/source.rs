//! The file source: which files there are, who reads which, and in what order.
//!
//! Owns the list of files (found once, sorted by name) and the turns among them. Does not own the reading of one file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;

use super::input::{self, STDIN};
use super::split::{self, Found, NotDecoded, Origin, Position, Settings, Split};
use crate::clock::SharedClock;
use crate::config::source::{FileSource, RecordShape, SourceFormat};
use crate::config::watermark;
use crate::connector::pace::{Allowed, Pace};
use crate::format::{csv, fields};
use crate::source::{Place, ReadCounts, ReadOutcome, SourceFactory, SourceReader, SplitPosition, Undecodable};

/// How often a followed file or standard input is looked at again when it gave nothing.
const POLL: Duration = Duration::from_millis(50);
/// Longest `max-record`: two of them fit a batch.
const MAX_RECORD: u64 = 1 << 30;

/// Why a file source cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting for another format.
    #[error("{setting} does not go with format = \"{format}\"")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The format.
        format: &'static str,
    },
    /// Fields, types or time that contradict each other.
    #[error(transparent)]
    Fields(#[from] fields::Error),
    /// CSV settings that contradict each other.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// Out of bounds.
    #[error("max-record is {0}: 1B to 1GiB are possible")]
    MaxRecord(crate::config::unit::ByteSize),
    /// Standard input ends when it ends.
    #[error("follow = true does not go with path = \"-\": standard input is waited for in any case")]
    FollowStdin,
    /// Not a pattern.
    #[error("path `{path}` is not a pattern: {reason}")]
    Pattern {
        /// The pattern.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl From<split::Error> for Fault {
    fn from(error: split::Error) -> Self {
        let kind = match &error {
            split::Error::Header { .. } | split::Error::Record { .. } => FaultKind::User,
            split::Error::Input(input) => match input {
                input::Error::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound => FaultKind::User,
                input::Error::Io { .. } => FaultKind::External,
                input::Error::Damaged { .. } | input::Error::NotAFile(_) | input::Error::FollowCompressed(_) => {
                    FaultKind::User
                }
                input::Error::Shorter { .. } | input::Error::Replaced(_) | input::Error::StdinTwice(_) => {
                    FaultKind::Refused
                }
            },
        };
        Self::new(kind, error)
    }
}

/// Makes the readers of a file source.
pub struct FileSourceFactory {
    settings: Arc<Settings>,
    base: PathBuf,
    clock: SharedClock,
    /// Found once, so that every subtask deals out the same list.
    files: OnceLock<Vec<(String, PathBuf)>>,
}

impl FileSourceFactory {
    /// Checks the settings. `path` is relative to `base`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(config: FileSource, base: &Path, clock: SharedClock) -> Result<Self, Error> {
        check_settings(&config)?;
        let fields = Arc::new(fields::Fields::new(&config)?);
        if config.format == SourceFormat::Csv {
            csv::check(&config, &fields)?;
        }
        if let Err(error) = glob::Pattern::new(&config.path) {
            return Err(Error::Pattern { path: config.path, reason: error.msg.to_owned() });
        }
        let settings = Arc::new(Settings { config, fields });
        Ok(Self { settings, base: base.to_owned(), clock, files: OnceLock::new() })
    }

    fn files(&self) -> Result<&[(String, PathBuf)], Fault> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let found = self.find()?;
        Ok(self.files.get_or_init(|| found))
    }

    fn find(&self) -> Result<Vec<(String, PathBuf)>, Fault> {
        let path = &self.settings.config.path;
        if path == STDIN {
            return Ok(vec![(STDIN.to_owned(), PathBuf::from(STDIN))]);
        }
        let literal = self.base.join(path);
        if literal.is_file() {
            return Ok(vec![(path.clone(), literal)]);
        }
        // The folder's own characters are no pattern.
        let base = glob::Pattern::escape(&self.base.to_string_lossy());
        let pattern = if Path::new(path).is_absolute() { path.clone() } else { format!("{base}/{path}") };
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
        let user = |reason: String| Fault::new(FaultKind::User, format!("path `{path}`: {reason}"));
        let matches = glob::glob_with(&pattern, options).map_err(|error| user(error.msg.to_owned()))?;
        let mut files = Vec::new();
        for found in matches {
            let found = found.map_err(|error| Fault::new(FaultKind::External, format!("path `{path}`: {error}")))?;
            if !found.is_file() {
                continue;
            }
            let shown =
                if Path::new(path).is_absolute() { &found } else { found.strip_prefix(&self.base).unwrap_or(&found) };
            let Some(name) = shown.to_str() else {
                return Err(user(format!("the file name {} is not UTF-8 text: rename it", found.display())));
            };
            files.push((name.to_owned(), found));
        }
        if files.is_empty() {
            let folder = self.base.display();
            return Err(user(format!("no such file and no file that matches (looked in `{folder}`)")));
        }
        files.sort();
        Ok(files)
    }

    /// The files of one subtask, those that had ended apart.
    fn share(&self, place: Place, restored: &[SplitPosition]) -> Result<(VecDeque<Origin>, Vec<SplitPosition>), Fault> {
        let follow = self.settings.config.follow;
        let files = self.files()?;
        let mut waiting = VecDeque::new();
        let mut ended = Vec::new();
        for (index, (name, path)) in files.iter().enumerate() {
            if index % place.parallelism.get() as usize != place.index.0 as usize {
                continue;
            }
            let position = match restored.iter().find(|split| split.split == *name) {
                Some(split) => parse(split)?,
                None => Position { replayable: name != STDIN, ..Position::default() },
            };
            if position.ended && !follow {
                ended.push(stored(name, position));
            } else {
                waiting.push_back(Origin { name: name.clone(), path: path.clone(), position });
            }
        }
        for gone in restored.iter().filter(|split| !files.iter().any(|(name, _)| *name == split.split)) {
            if !parse(gone)?.ended {
                return Err(Fault::new(
                    FaultKind::Refused,
                    format!(
                        "`{}` was read in part and is gone (or no longer matches the path): put it back, or start with --fresh",
                        gone.split
                    ),
                ));
            }
            // Kept, so that it is not read again when it comes back.
            if place.index.0 == 0 {
                ended.push(gone.clone());
            }
        }
        Ok((waiting, ended))
    }
}

fn check_settings(config: &FileSource) -> Result<(), Error> {
    let named = match config.format {
        SourceFormat::Csv => "csv",
        SourceFormat::Json => "json",
        SourceFormat::Raw => "raw",
        SourceFormat::DeadLetter => "dead-letter",
    };
    let raw = matches!(config.format, SourceFormat::Raw | SourceFormat::DeadLetter);
    let csv = config.format == SourceFormat::Csv;
    let given = [
        ("fields", raw && config.fields.is_some()),
        ("types", raw && !config.types.is_empty()),
        ("null", raw && !config.null.is_empty()),
        ("time", raw && config.time.is_some()),
        ("watermark.field", raw && matches!(config.watermark.strategy, watermark::Strategy::Field(_))),
        ("record", raw && config.record != RecordShape::Map),
        ("columns", !csv && config.columns.is_some()),
        ("header", !csv && !config.header),
        ("delimiter", !csv && config.delimiter != ','),
    ];
    if let Some((setting, _)) = given.iter().find(|(_, given)| *given) {
        return Err(Error::Setting { setting, format: named });
    }
    if !(1..=MAX_RECORD).contains(&config.max_record.get()) {
        return Err(Error::MaxRecord(config.max_record));
    }
    if config.follow && config.path == STDIN {
        return Err(Error::FollowStdin);
    }
    Ok(())
}

fn parse(split: &SplitPosition) -> Result<Position, Fault> {
    Position::deserialize(&split.position).map_err(|error| {
        Fault::new(FaultKind::Refused, format!("the position of `{}` cannot be read: {error}", split.split))
    })
}

fn stored(name: &str, position: Position) -> SplitPosition {
    // Numbers and booleans: there is nothing that could fail.
    let position = serde_json::to_value(position).unwrap_or_default();
    SplitPosition { split: name.to_owned(), position }
}

impl SourceFactory for FileSourceFactory {
    fn open(&self, place: Place, restored: &[SplitPosition]) -> Result<Box<dyn SourceReader>, Fault> {
        let (waiting, ended) = self.share(place, restored)?;
        let mut reader = FileReader {
            settings: Arc::clone(&self.settings),
            open: Vec::new(),
            waiting,
            ended,
            turn: 0,
            pace: self.settings.config.rate.map(|rate| Pace::new(rate, place.parallelism)),
            clock: self.clock.clone(),
            bytes: Arc::default(),
            undecodable: NotDecoded::default(),
        };
        reader.open_next()?;
        Ok(Box::new(reader))
    }

    fn check(&self) -> Result<(), Fault> {
        for (name, path) in self.files()? {
            if name == STDIN {
                tracing::warn!("standard input cannot be read again: a restart in the middle of it stops the job");
            } else {
                input::Input::open(path, name, self.settings.config.follow, &Arc::default())
                    .map_err(|error| Fault::from(split::Error::Input(error)))?;
            }
        }
        Ok(())
    }

    fn splits(&self) -> Option<usize> {
        self.files().ok().map(<[_]>::len)
    }
}

/// Reads one subtask's files: one after the other, or in turn where they are followed.
struct FileReader {
    settings: Arc<Settings>,
    open: Vec<Split>,
    waiting: VecDeque<Origin>,
    ended: Vec<SplitPosition>,
    turn: usize,
    pace: Option<Pace>,
    clock: SharedClock,
    bytes: Arc<AtomicU64>,
    undecodable: NotDecoded,
}

impl FileReader {
    /// Opens the next file, or all of them where they are followed.
    fn open_next(&mut self) -> Result<(), Fault> {
        while self.settings.config.follow || self.open.is_empty() {
            let Some(origin) = self.waiting.pop_front() else { break };
            self.open.push(Split::open(&origin, &self.settings, &self.bytes)?);
        }
        Ok(())
    }
}

impl SourceReader for FileReader {
    fn read(&mut self, batch: &mut RecordBatch, limit: usize, now: Timestamp) -> Result<ReadOutcome, Fault> {
        if self.open.is_empty() {
            return Ok(ReadOutcome::End);
        }
        let limit = match self.pace.as_mut().map(|pace| pace.allowed(self.clock.monotonic())) {
            Some(Allowed::Wait(wait)) => return Ok(ReadOutcome::Wait(wait)),
            Some(Allowed::Records(records)) => limit.min(records),
            None => limit,
        };
        for _ in 0..self.open.len() {
            let index = self.turn % self.open.len();
            let before = batch.len();
            let split = &mut self.open[index];
            if split.is_held {
                self.turn = index + 1;
                continue;
            }
            let found = split.read(&self.settings, batch, limit, now, &mut self.undecodable)?;
            split.is_waiting = found == Found::NotNow;
            match found {
                Found::Records => {
                    if let Some(pace) = &mut self.pace {
                        pace.took(batch.len() - before);
                    }
                    self.turn = index + 1;
                    return Ok(ReadOutcome::Read { split: index });
                }
                Found::Nothing => return Ok(ReadOutcome::Wait(Duration::ZERO)),
                Found::NotNow => self.turn = index + 1,
                Found::End => {
                    let split = self.open.remove(index);
                    self.ended.push(stored(&split.name, split.position()));
                    self.turn = index;
                    self.open_next()?;
                    return Ok(ReadOutcome::SplitEnded { split: index });
                }
            }
        }
        Ok(ReadOutcome::Wait(POLL))
    }

    fn take_undecodable(&mut self) -> Vec<Undecodable> {
        std::mem::take(&mut self.undecodable.set_aside)
    }

    fn open_splits(&self) -> usize {
        self.open.len()
    }

    fn split_name(&self, split: usize) -> &str {
        &self.open[split].name
    }

    fn is_waiting(&self, split: usize) -> bool {
        self.open[split].is_waiting
    }

    fn hold(&mut self, held: &[bool]) {
        for (split, &held) in self.open.iter_mut().zip(held) {
            split.is_held = held;
        }
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let open = self.open.iter().map(|split| stored(&split.name, split.position()));
        let waiting = self.waiting.iter().map(|origin| stored(&origin.name, origin.position));
        self.ended.iter().cloned().chain(open).chain(waiting).collect()
    }

    fn counts(&self) -> ReadCounts {
        ReadCounts { undecodable: self.undecodable.dropped, bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests;
