//! The tables `[sink.NAME]`: one type a connector.
//!
//! Owns what a sink may be told. Does not own how records reach it.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::Inputs;

/// A sink: where records go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "connector", rename_all = "kebab-case")]
pub enum Sink {
    /// Writes files into a folder.
    File(FileSink),
    /// Writes lines to standard output.
    Stdout(StdoutSink),
}

impl Sink {
    /// Where its records come from.
    #[must_use]
    pub fn input(&self) -> &Inputs {
        match self {
            Self::File(file) => &file.input,
            Self::Stdout(stdout) => &stdout.input,
        }
    }

    /// How many subtasks write; `None`: one.
    #[must_use]
    pub fn parallelism(&self) -> Option<NonZeroU32> {
        match self {
            Self::File(file) => file.parallelism,
            Self::Stdout(stdout) => stdout.parallelism,
        }
    }
}

/// `connector = "file"`: writes part files into a folder. Sorted by name, a subtask's parts are in the order written.
///
/// A part becomes visible whole, once the checkpoint that it belongs to is decided; until then it lies in `.pending` there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileSink {
    /// Where the records come from, in the [forms](#inputs) that operators have, but for `port`; several are merged.
    pub input: Inputs,
    /// The folder; made where it is missing. Relative to the pipeline file. Several sinks may share it.
    pub path: String,
    /// How a record is written: `jsonl` (also `json`), `csv` or `raw`. Default: `jsonl`.
    #[serde(default)]
    pub format: SinkFormat,
    /// `exactly-once` (parts appear when their checkpoint is decided) or `at-least-once` (parts appear at the barrier, so that
    /// records since the last decided checkpoint are there twice after a restart). Default: `exactly-once`.
    #[serde(default)]
    pub delivery: Delivery,
    /// `csv`: the columns, in order. Left out: the keys of each part's first record.
    pub fields: Option<Vec<String>>,
    /// `csv`: whether each part begins with a line of column names. Default: true.
    #[serde(default = "yes")]
    pub header: bool,
    /// `csv`: the character between fields, one ASCII character. Default: `,`.
    #[serde(default = "default_delimiter")]
    pub delimiter: char,
    /// `raw`: what follows each record's bytes. Default: a newline.
    #[serde(default = "default_separator")]
    pub separator: String,
    /// How many subtasks write. Default: 1.
    pub parallelism: Option<NonZeroU32>,
}

/// `connector = "stdout"`: writes lines to standard output as records arrive: at least once, since what was printed cannot be
/// taken back after a restart. A closed pipe stops the job.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StdoutSink {
    /// Where the records come from, in the [forms](#inputs) that operators have, but for `port`; several are merged.
    pub input: Inputs,
    /// How a record is written: `jsonl` (also `json`), `csv` or `raw`. Default: `jsonl`.
    #[serde(default)]
    pub format: SinkFormat,
    /// `csv`: the columns, in order. Left out: the keys of the first record.
    pub fields: Option<Vec<String>>,
    /// `csv`: whether a line of column names comes first. Default: true.
    #[serde(default = "yes")]
    pub header: bool,
    /// `csv`: the character between fields, one ASCII character. Default: `,`.
    #[serde(default = "default_delimiter")]
    pub delimiter: char,
    /// `raw`: what follows each record's bytes. Default: a newline.
    #[serde(default = "default_separator")]
    pub separator: String,
    /// How many subtasks write. Default: 1.
    pub parallelism: Option<NonZeroU32>,
}

/// How a sink writes a record's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SinkFormat {
    /// The operator's CBOR as one line of JSON: byte strings as base64, an absent value, NaN and infinities as null, map keys
    /// that are not text as their JSON text.
    #[default]
    #[serde(alias = "json")]
    Jsonl,
    /// The operator's CBOR map (by column) or array (by place) as a line of CSV: null and missing as empty, nested values as
    /// JSON.
    Csv,
    /// The value's bytes as they are, followed by `separator`; an absent value as nothing.
    Raw,
}

/// What a restart may do to a sink's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Every record's effect is there once.
    #[default]
    ExactlyOnce,
    /// Records may be there again.
    AtLeastOnce,
}

fn default_delimiter() -> char {
    ','
}

fn default_separator() -> String {
    "\n".to_owned()
}

fn yes() -> bool {
    true
}
