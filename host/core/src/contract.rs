//! What an operator declares of itself: inputs, outputs, states with kind, version, type and TTL.
//!
//! Owns the descriptors as stored in a checkpoint's manifest, and the rules that a declaration and a configuration keep.
//! Does not own the WIT types they are made from.

mod check;

use serde::{Deserialize, Serialize};

pub use self::check::{ConfigError, Error, MAX_DECLARED, MAX_TEXT_BYTES, MAX_TYPE_BYTES};
use crate::id::StateName;

/// Where `rides-with` names this instead of an input, the state rides along when timers fire.
pub const RIDES_WITH_TIMERS: u16 = u16::MAX;

/// An operator's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OperatorContract {
    /// The operator's own name (not its uid in a pipeline).
    pub name: String,
    /// The operator's own version.
    pub version: String,
    /// JSON Schema of the key, where the operator decodes it.
    pub key_type: Option<String>,
    /// The inputs, by index.
    pub inputs: Vec<Port>,
    /// The outputs, by index.
    pub outputs: Vec<Port>,
    /// The configuration keys it reads.
    pub config: Vec<ConfigKey>,
    /// The states, by index.
    pub states: Vec<StateContract>,
    /// Whether it lists a key's timers.
    pub lists_timers: bool,
}

impl OperatorContract {
    /// Whether `input` brings every record to every subtask. Its records have no keyed state: a key belongs to one subtask.
    #[must_use]
    pub fn is_broadcast(&self, input: u16) -> bool {
        self.inputs.get(usize::from(input)).is_some_and(|port| port.broadcast)
    }

    /// Whether the values of `state` come with a batch of `input`, or with timers where that is [`RIDES_WITH_TIMERS`].
    #[must_use]
    pub fn rides_with_input(&self, state: &StateContract, input: u16) -> bool {
        !self.is_broadcast(input) && state.rides_with_input(input)
    }
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Port {
    /// By which the pipeline names it.
    pub name: String,
    /// An input that every subtask gets whole.
    pub broadcast: bool,
    /// Whether headers cross.
    pub headers: bool,
}

/// A configuration key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConfigKey {
    /// The key in the pipeline's `config` table.
    pub name: String,
    /// Whether a pipeline without it is refused.
    pub required: bool,
    /// What it does.
    pub doc: String,
}

/// The shape of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// One value a key.
    Value,
    /// Values in order of append, a key.
    List,
    /// Entries by map key, a key.
    Map,
    /// Entries that every subtask has alike.
    Broadcast,
    /// A subtask's own, redistributed by even split.
    OperatorSplit,
    /// A subtask's own, given whole to each on restore.
    OperatorUnion,
}

impl StateKind {
    /// Whether it is kept by key.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Value | Self::List | Self::Map)
    }

    /// Whether it is a subtask's own elements, of no key.
    #[must_use]
    pub fn is_operator(self) -> bool {
        matches!(self, Self::OperatorSplit | Self::OperatorUnion)
    }

    /// The kind of keyed state in whose form it is kept.
    #[must_use]
    pub fn kept_as(self) -> Self {
        match self {
            Self::Value => Self::Value,
            Self::Map | Self::Broadcast => Self::Map,
            Self::List | Self::OperatorSplit | Self::OperatorUnion => Self::List,
        }
    }

    /// As people call it, to be followed by "state".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::Broadcast => "broadcast",
            Self::OperatorSplit => "split operator",
            Self::OperatorUnion => "union operator",
        }
    }
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// Deterministic CBOR (RFC 8949, 4.2).
    Cbor,
    /// The operator's own bytes.
    Bytes,
}

/// What renews an entry's time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refresh {
    /// Writes.
    Write,
    /// Reads and writes.
    ReadAndWrite,
}

/// By which time something counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeDomain {
    /// The records' time.
    Event,
    /// The clock's.
    Processing,
}

/// Whether an expired entry may still be read until it is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Never.
    Strict,
    /// Until it is cleaned.
    Relaxed,
}

/// Time to live of a state's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ttl {
    /// How long, in milliseconds.
    pub milliseconds: u64,
    /// What renews it.
    pub refresh: Refresh,
    /// By which time.
    pub domain: TimeDomain,
    /// Whether expired entries may be read.
    pub visibility: Visibility,
    /// The output that expired entries go to.
    pub expired_output: Option<u16>,
}

/// A keyword in a state's type, a JSON Schema, by which a component says what removes the state's entries: `"timers"`, as the
/// windows and joins of the SDKs do. It says nothing of what is stored: two types that differ in it alone are one type.
pub const CLEANED: &str = "x-wasmill-cleaned";

/// A state's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StateContract {
    /// By which it is found.
    pub name: StateName,
    /// Its shape.
    pub kind: StateKind,
    /// The schema version of what is written now.
    pub version: u32,
    /// How values are written.
    pub codec: Codec,
    /// JSON Schema of the value.
    pub value_type: String,
    /// JSON Schema of the map key.
    pub map_key_type: Option<String>,
    /// Whether values are fetched on demand and do not ride along.
    pub lazy: bool,
    /// The inputs it rides along with, and [`RIDES_WITH_TIMERS`] for timers; of none named, all of them.
    pub rides_with: Vec<u16>,
    /// Time to live.
    pub ttl: Option<Ttl>,
    /// Names it had.
    pub renamed_from: Vec<StateName>,
    /// Schema versions that `migrate` takes.
    pub migrates_from: Vec<u32>,
}

impl OperatorContract {
    /// The states whose entries nothing ends, as far as the declaration says: kept by key, without a TTL, and not [`CLEANED`]. (An
    /// operator may remove what it no longer needs and not say so.)
    pub fn unbounded_states(&self) -> impl Iterator<Item = &StateContract> {
        self.states.iter().filter(|state| state.kind.is_keyed() && state.ttl.is_none() && !state.is_cleaned_by_timers())
    }
}

impl StateContract {
    /// Whether the component says that its timers remove the entries, by [`CLEANED`].
    #[must_use]
    pub fn is_cleaned_by_timers(&self) -> bool {
        let schema = serde_json::from_str::<serde_json::Value>(&self.value_type);
        schema.is_ok_and(|schema| schema[CLEANED] == "timers")
    }

    /// Whether its values come with a batch of `input`, which is no broadcast input.
    fn rides_with_input(&self, input: u16) -> bool {
        self.is_eager() && (self.rides_with.is_empty() || self.rides_with.contains(&input))
    }

    /// Whether its values come with timers that fire.
    #[must_use]
    pub fn rides_with_timers(&self) -> bool {
        self.rides_with_input(RIDES_WITH_TIMERS)
    }

    fn is_eager(&self) -> bool {
        self.kind == StateKind::Value && !self.lazy
    }
}
