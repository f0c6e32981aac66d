//! The tables `[source.NAME]`: one type a connector.
//!
//! Owns what a source may be told. Does not own what the pipeline does with its records.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use schemars::JsonSchema;
use serde::Deserialize;

use super::unit::{ByteSize, Duration};
use super::watermark::Watermark;

/// A source: where records come from.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "connector", rename_all = "kebab-case")]
pub enum Source {
    /// Reads files, or standard input.
    File(FileSource),
    /// Makes records up, the same ones for the same seed.
    Generator(GeneratorSource),
}

impl Source {
    /// How many subtasks read; `None`: one.
    #[must_use]
    pub fn parallelism(&self) -> Option<NonZeroU32> {
        match self {
            Self::File(file) => file.parallelism,
            Self::Generator(generator) => generator.parallelism,
        }
    }

    /// Whether records that cannot be decoded go to an output of their own.
    #[must_use]
    pub fn makes_dead_letters(&self) -> bool {
        matches!(self, Self::File(file) if file.on_undecodable == OnUndecodable::DeadLetter)
    }

    /// How watermarks are made.
    #[must_use]
    pub fn watermark(&self) -> &Watermark {
        match self {
            Self::File(file) => &file.watermark,
            Self::Generator(generator) => &generator.watermark,
        }
    }
}

/// `connector = "file"`: reads files line by line (CSV: record by record), or standard input.
///
/// Files ending in `.gz` or `.zst` are decompressed. The files that match when the job starts are read in the order of their
/// names, one after the other; with several subtasks, file i is read by subtask i modulo the parallelism.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileSource {
    /// A file, a glob pattern (`data/*.csv.gz`), or `-` for standard input. Relative to the pipeline file. Standard input
    /// cannot be read again: a job that has to restart in the middle of it stops instead.
    pub path: String,
    /// How a record is written: `csv`, `json` (one object a line; also `jsonl`), `raw` (the line's bytes) or `dead-letter` (what a
    /// sink of dead letters wrote as `jsonl`: the records come back with the key, the time and the bytes that they had).
    pub format: SourceFormat,
    /// Keep waiting for more at the end of each file (plain files only). Lines count once their newline is there; files are
    /// read in turn. A file that is found shorter or replaced fails the job; one that was emptied and has grown beyond what was read
    /// between two looks is not noticed: move files away, do not empty them. Default: false.
    #[serde(default)]
    pub follow: bool,
    /// Records a second over all subtasks together. Left out: as fast as they are taken.
    pub rate: Option<NonZeroU64>,
    /// Longest line or CSV record, at most 1 GiB; a longer one is undecodable. Default: `16MiB`.
    #[serde(default = "default_max_record")]
    pub max_record: ByteSize,
    /// Keeps only these fields (`csv`, `json`). A record without one of them is undecodable. Left out: all fields.
    pub fields: Option<Vec<String>>,
    /// Whether a record with `fields` reaches the operator as a CBOR map or as an array in the order of `fields` (smaller and
    /// faster). Default: `map`.
    #[serde(default)]
    pub record: RecordShape,
    /// The types of fields: `i64`, `u64`, `f64`, `bool` or `text`. The rest is text in `csv` and what it is in `json`.
    #[serde(default)]
    pub types: BTreeMap<String, ColumnType>,
    /// Texts that mean null, such as `["NA", ""]`. Default: none.
    #[serde(default)]
    pub null: Vec<String>,
    /// `csv`: the columns' names where the file has no header line (`header = false`).
    pub columns: Option<Vec<String>>,
    /// `csv`: whether each file begins with a line of column names. Default: true.
    #[serde(default = "yes")]
    pub header: bool,
    /// `csv`: the character between fields, one ASCII character. Default: `,`.
    #[serde(default = "default_delimiter")]
    pub delimiter: char,
    /// Where the event time of a record stands (`csv`, `json`). Left out: the processing time at which it was read.
    pub time: Option<Time>,
    /// What to do with a record that cannot be decoded: `fail` (the job stops and names file and line), `drop` (counted) or
    /// `dead-letter`. Default: `fail`.
    #[serde(default)]
    pub on_undecodable: OnUndecodable,
    /// How watermarks are made: `"ascending"` (records come in order of time), `"none"` (the source says nothing of time: it holds
    /// no other back and none advances by it, until it ends), or a table. Default: `"ascending"`.
    #[serde(default)]
    pub watermark: Watermark,
    /// How many subtasks read. Default: 1.
    pub parallelism: Option<NonZeroU32>,
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceFormat {
    /// Comma-separated values as in RFC 4180; quotes may hold line breaks. Reaches the operator as deterministic CBOR.
    Csv,
    /// One JSON object a line. Reaches the operator as deterministic CBOR.
    #[serde(alias = "jsonl")]
    Json,
    /// The line's bytes without the line break.
    Raw,
    /// A dead letter a line, as JSON.
    DeadLetter,
}

/// How decoded fields reach the operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecordShape {
    /// A CBOR map by field name.
    #[default]
    Map,
    /// A CBOR array in the order of `fields`.
    Array,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnType {
    /// A whole number from -2^63 to 2^63-1.
    I64,
    /// A whole number from 0 to 2^64-1.
    U64,
    /// A floating-point number.
    F64,
    /// `true` or `false`, in small letters.
    Bool,
    /// Text.
    Text,
}

/// Where a record's event time stands and how it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Time {
    /// The field; it need not be among `fields`. A record in which it is null, missing or unreadable is undecodable.
    pub field: String,
    /// `unix-ms`, `unix-s`, `rfc3339`, or a pattern such as `%Y-%m-%d %H:%M:%S` (strftime's directives).
    pub format: String,
    /// The time zone of a pattern without an offset, by its IANA name. Default: `UTC`.
    #[serde(default = "default_zone")]
    pub zone: String,
}

/// What to do with a record that cannot be decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnUndecodable {
    /// The job stops and names file and line.
    #[default]
    Fail,
    /// The record is dropped and counted.
    Drop,
    /// The line goes to the output `dead-letter` with file, line and reason; a sink takes it by `input = "NAME/dead-letter"`, and
    /// one must. Of a line that is too long the bytes are not kept.
    DeadLetter,
}

/// `connector = "generator"`: record i depends on `seed` and i alone, whatever the parallelism.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GeneratorSource {
    /// How many records over all subtasks together. Left out: without end.
    pub records: Option<u64>,
    /// Records a second over all subtasks together. Left out: as fast as they are taken.
    pub rate: Option<NonZeroU64>,
    /// How many distinct keys: `key-000000` and on. Default: 1000; at most 10^9.
    #[serde(default = "default_keys")]
    pub keys: NonZeroU32,
    /// How keys are drawn. Default: `uniform`.
    #[serde(default)]
    pub distribution: Distribution,
    /// The exponent of the Zipf distribution, above 0. Default: 1.0.
    #[serde(default = "default_exponent")]
    pub exponent: f64,
    /// Bytes of made-up text a record, at most 1 MiB. Default: `100B`.
    #[serde(default = "default_payload")]
    pub payload: ByteSize,
    /// `json`: a CBOR map of `key`, `seq` and `payload`; `raw`: the payload alone. Default: `json`.
    #[serde(default)]
    pub format: GeneratorFormat,
    /// Another seed, other records. Default: 0.
    #[serde(default)]
    pub seed: u64,
    /// The event time of record 0, as RFC 3339. Default: `1970-01-01T00:00:00Z`.
    #[serde(default = "default_start")]
    pub start: String,
    /// By how much each record is later than the one before. Default: `1ms`.
    #[serde(default = "default_step")]
    pub step: Duration,
    /// How watermarks are made: `"ascending"` (records come in order of time), `"none"` (the source says nothing of time: it holds
    /// no other back and none advances by it, until it ends), or a table. Default: `"ascending"`.
    #[serde(default)]
    pub watermark: Watermark,
    /// How many subtasks make records; subtask s makes those whose number is s modulo the parallelism. Default: 1.
    pub parallelism: Option<NonZeroU32>,
}

/// How a generator draws keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Every key alike.
    #[default]
    Uniform,
    /// Key k as often as 1 / (k+1)^exponent.
    Zipf,
}

/// What a generator writes as a record's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorFormat {
    /// A deterministic CBOR map: `key` (text), `seq` (the record's number), `payload` (text).
    #[default]
    Json,
    /// The payload's bytes.
    Raw,
}

fn default_max_record() -> ByteSize {
    ByteSize::mib(16)
}

fn default_delimiter() -> char {
    ','
}

pub(super) fn default_zone() -> String {
    "UTC".to_owned()
}

fn default_keys() -> NonZeroU32 {
    const { NonZeroU32::new(1000).expect("not zero") }
}

fn default_exponent() -> f64 {
    1.0
}

fn default_payload() -> ByteSize {
    ByteSize::new(100)
}

fn default_start() -> String {
    "1970-01-01T00:00:00Z".to_owned()
}

fn default_step() -> Duration {
    Duration::millis(1)
}

fn yes() -> bool {
    true
}
