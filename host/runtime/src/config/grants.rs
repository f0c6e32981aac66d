//! `grants` and `wasi` of an operator: what its component may import beyond the contract.
//!
//! Owns their names. Does not own which interfaces a grant gives nor what becomes of the others; that is the guest module's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that a component may be given beside records, their times and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// The machine's clocks: `wasi:clocks/wall-clock` and `wasi:clocks/monotonic-clock`, without waiting for a time.
    Clock,
    /// The machine's random numbers: `wasi:random`.
    Random,
}

impl Grant {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Clock, Self::Random];

    /// Its name in the pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Random => "random",
        }
    }
}

/// What becomes of imports of WASI 0.2 that no grant gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wasi {
    /// The component is refused, and each such import named.
    #[default]
    Refuse,
    /// The component is loaded, and a call of one traps and names it: for components whose tools import WASI without need.
    Deny,
}
