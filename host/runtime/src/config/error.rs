//! Why a pipeline file is refused, with the place in it.
//!
//! Owns the wording. Text that a `${…}` brought in never stands in a message.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};

/// A place in the pipeline file; lines and columns (in characters) count from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file as it was named.
    pub file: Arc<Path>,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// Why a pipeline file is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or not readable.
    #[error("{}: the pipeline file cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Not TOML.
    #[error("{place}: not valid TOML: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}` in {table}{}; known here: {}", did_you_mean(nearest.as_deref()), known.join(", "))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// Its table, such as `[checkpoint]`.
        table: String,
        /// What may have been meant.
        nearest: Option<String>,
        /// The keys there are.
        known: Vec<String>,
    },
    /// A key that must be there.
    #[error("{place}: {table} lacks the key `{key}`")]
    MissingKey {
        /// Where the table begins.
        place: Place,
        /// The key.
        key: String,
        /// Its table.
        table: String,
    },
    /// A name that is not among those allowed.
    #[error("{place}: `{key}` cannot be `{value}`{}; possible: {}", did_you_mean(nearest.as_deref()), known.join(", "))]
    UnknownValue {
        /// Where.
        place: Place,
        /// The key with its tables, such as `checkpoint.mode`.
        key: String,
        /// What it was set to.
        value: String,
        /// What may have been meant.
        nearest: Option<String>,
        /// The values there are.
        known: Vec<String>,
    },
    /// A value of the wrong type or out of range.
    #[error("{place}: `{key}`: {message}")]
    Value {
        /// Where.
        place: Place,
        /// The key with its tables.
        key: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// Something that this version does not have.
    #[error("{place}: {what} is not supported yet; {instead}")]
    NotYet {
        /// Where.
        place: Place,
        /// What was asked for.
        what: String,
        /// What there is instead.
        instead: &'static str,
    },
    /// Two nodes with one name.
    #[error(
        "{place}: the uid `{uid}` is taken by [{first}.{uid}] at line {line}: rename one of them (state is found by uid)"
    )]
    DuplicateUid {
        /// Where the second is.
        place: Place,
        /// The uid.
        uid: String,
        /// The first one's kind of table.
        first: &'static str,
        /// The first one's line.
        line: u32,
    },
    /// The component does not take its `config`.
    #[error("{place}: operator `{uid}`: {source}")]
    Config {
        /// Where.
        place: Place,
        /// The operator.
        uid: wasmill_core::id::OperatorUid,
        /// What is wrong.
        source: Box<wasmill_core::contract::ConfigError>,
    },
    /// The nodes are no graph.
    #[error("{place}: {source}")]
    Graph {
        /// Where the node at fault is.
        place: Place,
        /// What is wrong.
        source: wasmill_core::graph::Error,
    },
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(FaultKind::User, error)
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default()
}

/// The known name that `wanted` most likely stands for.
pub(crate) fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let wanted = wanted.to_lowercase().replace('_', "-");
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3) && *distance < name.len())
        .min()
        .map(|(_, name)| name.to_owned())
}
