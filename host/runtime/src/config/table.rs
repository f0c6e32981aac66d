//! The tables of which a pipeline has one each: `[job]`, `[checkpoint]`, `[state]`, `[restart]`, `[admin]`.
//!
//! Owns their keys, defaults and documentation (docs/pipeline.md is made from it).

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_core::id::JobId;
use wasmill_core::key_group::MaxParallelism;

use super::substitute::Secret;
use super::unit::{ByteSize, Duration};

/// `[job]`: what the whole pipeline is called, how far it can ever spread, and how far apart its sources may be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Job {
    /// The job's name: 1 to 64 of `a-z A-Z 0-9 _ - .`, beginning with a letter or digit. Its checkpoints lie under this name, so
    /// a renamed job starts without state.
    #[schemars(with = "String")]
    pub name: JobId,
    /// The number of key groups, 1 to 32768, fixed for the life of the state: no keyed operator can ever have more subtasks.
    /// The default divides evenly by most small numbers. Default: `720`.
    #[serde(default = "default_max_parallelism")]
    #[schemars(with = "u16", range(min = 1, max = 32768))]
    pub max_parallelism: MaxParallelism,
    /// How far the watermark of one source split may be ahead of the slowest split's, over all sources: one that is further ahead
    /// is not read until the slowest has come closer, so that operators need not keep what they cannot yet use. Splits that are
    /// idle, have ended or have nothing to read are not waited for, nor sources with `watermark = "none"`. It does not bound
    /// memory: what was read stays on its way. Left out: without limit.
    pub max_drift: Option<Duration>,
}

/// `[checkpoint]`: where checkpoints go and how often they are taken.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Checkpoint {
    /// Where checkpoints are kept: a folder relative to the pipeline file, or a URL (`file:///…`, `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `memory:///` for a trial that keeps nothing). Must be readable by whichever
    /// machine restarts the job. What opens the store of a cloud comes from the environment: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT` (and `AWS_ALLOW_HTTP=true`) for other servers than Amazon's; `GOOGLE_…`;
    /// `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`; or the machine's own role. A server of S3 must know `If-None-Match: *`.
    /// Default: `./checkpoints`.
    pub store: String,
    /// From the start of one checkpoint to the start of the next. Shorter: less is done again after a failure and exactly-once
    /// output appears sooner; longer: less is written. Where a checkpoint takes longer than the interval, the next one waits.
    /// Default: `10s`.
    pub interval: Duration,
    /// How barriers pass operators with several inputs: `aligned`, an input that is ahead waits for the others.
    /// Default: `aligned`.
    pub mode: CheckpointMode,
    /// How many decided checkpoints are kept, at least 1, however old; of the others those go that `retain-for` does not keep.
    /// Default: `3`.
    #[schemars(with = "u32", range(min = 1))]
    pub retain: NonZeroU32,
    /// Decided checkpoints younger than this are kept too, up to 1,000 in all: to go back behind a fault that is found late. They
    /// share files, so each takes about what changed since the one before. Left out: none is kept for its age.
    pub retain_for: Option<Duration>,
    /// A checkpoint that takes longer is given up and counted as failed; the job goes on. Default: `10m`.
    pub timeout: Duration,
}

/// How barriers pass operators with several inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMode {
    /// An input that is ahead waits at its barrier for the others.
    #[default]
    Aligned,
}

/// `[state]`: where the state of running operators lies on this machine. What survives the machine are the checkpoints.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct State {
    /// What holds the state behind the cache: `rocksdb`, on local disk, or `memory`. Either restores what the other checkpointed.
    /// Default: `rocksdb`.
    pub backend: StateBackend,
    /// The folder of the local state, relative to the pipeline file; one process at a time can use it. It may be lost with the
    /// machine: what is needed is restored from the checkpoint store. Left out: `state/NAME` with the job's name.
    pub dir: Option<PathBuf>,
    /// Memory for the state of the whole process. Half is for the write-back cache, and half for the backend: with `rocksdb` block
    /// cache and memtables; with `memory` the rows themselves, about 72 bytes each beside key and value, and a job whose state outgrows
    /// them stops with an error. It does not bound what guests use (`limits.memory` does), nor batches in flight. Default: `256MiB`.
    pub memory: ByteSize,
}

/// What holds the state of running operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StateBackend {
    /// RocksDB on local disk, behind a write-back cache.
    #[default]
    Rocksdb,
    /// Memory, behind the same cache; on disk only what checkpoints are made of.
    Memory,
}

impl StateBackend {
    /// Its name, in pipeline files and manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Memory => "memory",
        }
    }

    /// The backend of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Rocksdb, Self::Memory].into_iter().find(|backend| backend.name() == name)
    }
}

/// `[restart]`: what happens after a failure that a restart may mend (a trap, a store that does not answer). A wrong pipeline and
/// damaged state are never tried again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Restart {
    /// How many restarts in a row, without a checkpoint decided in between, before the job gives up; `0`: the first failure ends
    /// it. Default: `10`.
    pub attempts: u32,
    /// The pause before the first restart; it doubles with each further one in the row. Default: `500ms`.
    pub backoff_min: Duration,
    /// The longest pause. Default: `1m`.
    pub backoff_max: Duration,
}

/// `[admin]`: the HTTP endpoint with `/metrics`, `/healthz`, `/readyz` and `/status`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Admin {
    /// Address and port; port 0 picks a free one, which the log and `wasmill status` name. Another address than loopback needs a
    /// `token`. `"off"`: no endpoint, and `wasmill status` finds nothing. Default: `127.0.0.1:0`.
    #[schemars(with = "String")]
    pub listen: Listen,
    /// Where set, `/metrics` and `/status` answer only requests with the header `Authorization: Bearer TOKEN`. Of at least 16
    /// characters; better a reference such as `${env:WASMILL_TOKEN}` than the token itself. The connection is not encrypted.
    #[schemars(with = "Option<String>")]
    pub token: Option<Secret>,
}

/// Whether and where the admin endpoint listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    /// Nowhere.
    Off,
    /// At this address; port 0 picks one.
    At(SocketAddr),
}

impl TryFrom<String> for Listen {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "off" => Ok(Self::Off),
            address => address.parse().map(Self::At).map_err(|_| {
                format!(
                    "`{address}` is no address with a port, such as \"127.0.0.1:9464\" or \"[::1]:0\", and not \"off\""
                )
            }),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

fn default_max_parallelism() -> MaxParallelism {
    MaxParallelism::DEFAULT
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            store: "./checkpoints".to_owned(),
            interval: Duration::secs(10),
            mode: CheckpointMode::Aligned,
            retain: const { NonZeroU32::new(3).expect("3 is not 0") },
            retain_for: None,
            timeout: Duration::secs(600),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self { backend: StateBackend::Rocksdb, dir: None, memory: ByteSize::mib(256) }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self { attempts: 10, backoff_min: Duration::millis(500), backoff_max: Duration::secs(60) }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: Listen::At(SocketAddr::from(([127, 0, 0, 1], 0))), token: None }
    }
}
