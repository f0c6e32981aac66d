//! The tables `[operator.NAME]`.
//!
//! Owns what an operator may be told. Does not own its inputs' forms (`input`) nor what its component declares.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::grants::{Grant, Wasi};
use super::input::Inputs;
use super::unit::{ByteSize, Duration};

/// `[operator.NAME]`: a component that runs over records. NAME is its uid, by which its state is found: a renamed operator starts
/// without state.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OperatorTable {
    /// The `.wasm` file, relative to the pipeline file: a component, or a core module that carries its component type.
    pub component: PathBuf,
    /// Where records come from; see [Inputs](#inputs).
    pub input: Inputs,
    /// How many subtasks, at least 1; of a keyed operator at most `job.max-parallelism`. Default: `1`.
    #[serde(default = "one")]
    #[schemars(with = "u32", range(min = 1))]
    pub parallelism: NonZeroU32,
    /// Handed to the component as it stands (as JSON). The component declares which keys it reads: a missing one that it needs and
    /// one that it does not know are refused. Default: `{}`.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What the component may use; see [Limits](#limits).
    #[serde(default)]
    pub limits: Limits,
    /// What the component may import beside the contract, which has neither: `clock` (`wasi:clocks/wall-clock` and
    /// `wasi:clocks/monotonic-clock`, which tell the time and cannot wait for one), `random` (`wasi:random`). **Records that are
    /// read again after a restart see another time and other numbers**, so the output of an operator that uses them is not the
    /// same again. There is no grant for files, network or HTTP. Default: none.
    #[serde(default)]
    pub grants: BTreeSet<Grant>,
    /// What becomes of imports of WASI 0.2 that no grant gives. A component that imports anything else is refused.
    /// Default: `refuse`.
    #[serde(default)]
    pub wasi: Wasi,
    /// How many records cross into the component at once; see [Batches](#batches).
    #[serde(default)]
    pub batch: Batch,
    /// What happens to a record that the component rejects, or on which its call traps, overruns a limit or returns effects that
    /// are not valid: `fail`, `drop` or `dead-letter`. Nothing of a failed call is kept: on a new instance its records are called
    /// again in halves until those at fault stand alone, about 2 log2(n) calls for one among n. A fault that the component
    /// answers with as a whole restarts the job with any policy. Default: `fail`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Why state that nothing bounds may grow without end, in words: `wasmill check` names every keyed state without a TTL, but for
    /// those of windows, joins and the like, whose timers remove what they no longer need; with a reason it names none. Left out: it
    /// names them.
    pub unbounded: Option<String>,
}

/// `limits`: what a component may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// The linear memory of one instance, of which a subtask has one; more is refused to it, on which most languages trap. The
    /// call then fails by this limit, whatever it trapped on. Python needs 20 MiB at least, QuickJS 3.
    /// Default: `256MiB`.
    pub memory: ByteSize,
    /// How long one call may take, a batch of records at most; a call that takes longer is stopped and fails. Kept to about 20 ms.
    /// Barriers wait for it, and for the calls that then look for the record at fault: keep it well below `checkpoint.timeout`.
    /// Default: `30s`.
    pub call_time: Duration,
    /// How long one record may take: a call of n records is stopped after n times that, where `call-time` is not over before. In a
    /// batch a record may use what the others leave; alone it has no more. It makes the search for a record that never returns
    /// short. Left out: `call-time` alone.
    pub record_time: Option<Duration>,
    /// The longest key that it may emit; no more than 64 KiB. A longer one, as any value or record that is too long, fails the call.
    /// Default: `64KiB`.
    pub key: ByteSize,
    /// The longest value of a state's entry; a longer one fails the call. Default: `16MiB`.
    pub value: ByteSize,
    /// The longest record that it may emit: key, value and headers; a longer one fails the call. Default: `16MiB`.
    pub record: ByteSize,
    /// What one call may hand to the host in all; more fails the call. Bounds what the host allocates on the component's behalf.
    /// Default: `128MiB`.
    pub result: ByteSize,
    /// What one call may write to state that does not ride along with it, 64 bytes a write beside the value; more is a trap.
    /// Default: `64MiB`.
    pub overlay: ByteSize,
    /// What one state may hold for one key: a value, or a map's or list's entries, each with its key and its map key or position (8
    /// bytes). A call that would leave more, and more than there was, fails. Left out: no limit.
    pub state_per_key: Option<ByteSize>,
    /// How many entries the states of a subtask may have together; each entry of a map and element of a list is one, timers are
    /// none. A call that would leave more, and more than there were, fails. Left out: no limit.
    pub state_entries: Option<NonZeroU64>,
    /// How many lines a second the component may log, each subtask for itself; the rest is left out and counted.
    /// Default: `100`.
    pub log_lines: u32,
    /// The linear memory above which an instance is replaced by a new one between two batches: for components that lose memory
    /// from call to call. A mark that a component reaches in one batch costs a new instance a batch (under a millisecond; in
    /// Python more). Left out: never.
    pub renew_above: Option<ByteSize>,
}

/// `batch`: how many records cross into a component at once. The output does not depend on it (but for late records): larger
/// batches are faster, smaller ones answer sooner and use less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Batch {
    /// At most so many records, at least 1. No batch waits to be full. Default: `1024`.
    #[schemars(with = "u32", range(min = 1))]
    pub records: NonZeroU32,
    /// At most so many bytes of keys, values and the state that rides along, but one record at least. Default: `1MiB`.
    pub bytes: ByteSize,
}

/// What happens to a record on which a component fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The job restarts from its last checkpoint, up to `restart.attempts` times in a row.
    #[default]
    Fail,
    /// The record alone is dropped and counted.
    Drop,
    /// The record goes to the output `dead-letter` with what is known of the failure, and the job goes on. A sink takes it by
    /// `input = "NAME/dead-letter"`, and one must. Its fields stand in `docs/formats.md`.
    DeadLetter,
}

/// The output of an operator for dead letters. No component may have an output of that name.
pub const DEAD_LETTER: &str = "dead-letter";

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(256),
            call_time: Duration::secs(30),
            record_time: None,
            key: ByteSize::kib(64),
            value: ByteSize::mib(16),
            record: ByteSize::mib(16),
            result: ByteSize::mib(128),
            overlay: ByteSize::mib(64),
            state_per_key: None,
            state_entries: None,
            log_lines: 100,
            renew_above: None,
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self { records: const { NonZeroU32::new(1024).expect("1024 is not 0") }, bytes: ByteSize::mib(1) }
    }
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}
