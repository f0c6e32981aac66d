//! The contract's types on the host's side: what crosses the boundary, and the declaration made from `describe`.
//!
//! Owns the translation from WIT's descriptor to [`OperatorContract`]. Does not own the declaration's rules (core does) nor the
//! checks of what a call returns ([`super::effects`]).

use wasmill_core::contract as core;
use wasmill_core::id::{NameError, StateName};

use super::bindings::wasmill::operator::types as wit;
pub use super::bindings::wasmill::operator::types::{
    Batch, Column, Descriptor, Eager, Effects, Emits, Fault, FaultKind, Firing, Headers, Migrated, Now, OptionalColumn,
    Rejects, StateDescriptor, Subtask, TimerChanges, ValueWrites, WatermarkRun,
};
use super::packed;

/// The WIT package as text, as `wasmill wit` prints it.
pub const WIT: &str = include_str!("../../../../wit/operator.wit");

/// The package's name, and the version that this host speaks.
pub const PACKAGE: &str = "wasmill:operator";
/// The version of [`PACKAGE`] that this host speaks; any component of the same minor version loads.
pub const VERSION: (u64, u64, u64) = (0, 1, 0);

/// `operations` of value writes: the key's value is removed.
pub const CLEAR: u8 = 0;
/// `operations` of value writes: the key's value is replaced.
pub const SET: u8 = 1;
/// `operations` of value writes: the key's value was read, which refreshes its TTL where reads do.
pub const TOUCHED: u8 = 2;

/// `operations` of timer changes: the timer is set.
pub const SET_TIMER: u8 = 1;

/// Why a descriptor is not a valid declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A state's name breaks the rule of names.
    #[error("state {index}: {source}")]
    StateName {
        /// The state's index.
        index: usize,
        /// The rule.
        source: NameError,
    },
    /// The declaration breaks a rule.
    #[error(transparent)]
    Contract(#[from] core::Error),
}

/// Value `index` of a column; `None` past the end or where the column contradicts itself.
#[must_use]
#[inline]
pub fn value_at(column: &Column, index: usize) -> Option<&[u8]> {
    let start = match index {
        0 => 0,
        _ => packed::u32_at(&column.ends, index - 1)?,
    };
    let end = packed::u32_at(&column.ends, index)?;
    column.bytes.get(start as usize..end as usize)
}

/// Appends a value to a column. Past 4 GiB the column is torn; batches are cut by bytes long before.
#[inline]
pub fn push_value(column: &mut Column, value: &[u8]) {
    column.bytes.extend_from_slice(value);
    packed::push_u32(&mut column.ends, u32::try_from(column.bytes.len()).unwrap_or(u32::MAX));
}

/// An empty column.
#[must_use]
pub fn empty_column() -> Column {
    Column { bytes: Vec::new(), ends: Vec::new() }
}

/// Effects of a call that consumed `consumed` records and did nothing.
#[must_use]
pub fn no_effects(consumed: u32) -> Effects {
    Effects {
        consumed,
        emits: Emits {
            outputs: Vec::new(),
            origins: Vec::new(),
            keys: None,
            times: None,
            values: empty_column(),
            absent_values: Vec::new(),
            headers: None,
        },
        values: Vec::new(),
        timers: TimerChanges {
            origins: Vec::new(),
            operations: Vec::new(),
            domains: Vec::new(),
            times: Vec::new(),
            tags: Vec::new(),
        },
        rejects: Rejects { origins: Vec::new(), reasons: Vec::new() },
    }
}

/// Makes the declaration from what `describe` returned, and checks it.
///
/// # Errors
/// The first rule that it breaks, by name.
pub fn operator_contract(descriptor: Descriptor) -> Result<core::OperatorContract, Error> {
    let Descriptor { name, version, key_type, inputs, outputs, config, states, lists_timers } = descriptor;
    let contract = core::OperatorContract {
        name,
        version,
        key_type,
        inputs: inputs.into_iter().map(port).collect(),
        outputs: outputs.into_iter().map(port).collect(),
        config: config
            .into_iter()
            .map(|wit::ConfigKey { name, required, doc }| core::ConfigKey { name, required, doc })
            .collect(),
        states: states
            .into_iter()
            .enumerate()
            .map(|(index, state)| state_contract(state).map_err(|source| Error::StateName { index, source }))
            .collect::<Result<_, _>>()?,
        lists_timers,
    };
    contract.check()?;
    Ok(contract)
}

fn port(wit::Port { name, broadcast, headers }: wit::Port) -> core::Port {
    core::Port { name, broadcast, headers }
}

fn state_contract(state: StateDescriptor) -> Result<core::StateContract, NameError> {
    let StateDescriptor {
        name,
        kind,
        version,
        codec,
        value_type,
        map_key_type,
        lazy,
        rides_with,
        ttl,
        renamed_from,
        migrates_from,
    } = state;
    Ok(core::StateContract {
        name: StateName::new(&name)?,
        kind: match kind {
            wit::StateKind::ValueState => core::StateKind::Value,
            wit::StateKind::ListState => core::StateKind::List,
            wit::StateKind::MapState => core::StateKind::Map,
            wit::StateKind::BroadcastState => core::StateKind::Broadcast,
            wit::StateKind::OperatorSplit => core::StateKind::OperatorSplit,
            wit::StateKind::OperatorUnion => core::StateKind::OperatorUnion,
        },
        version,
        codec: match codec {
            wit::Codec::Cbor => core::Codec::Cbor,
            wit::Codec::Bytes => core::Codec::Bytes,
        },
        value_type,
        map_key_type,
        lazy,
        rides_with,
        ttl: ttl.map(time_to_live),
        renamed_from: renamed_from.iter().map(|name| StateName::new(name)).collect::<Result<_, _>>()?,
        migrates_from,
    })
}

fn time_to_live(wit::Ttl { milliseconds, refresh, domain, visibility, expired_output }: wit::Ttl) -> core::Ttl {
    core::Ttl {
        milliseconds,
        refresh: match refresh {
            wit::Refresh::Write => core::Refresh::Write,
            wit::Refresh::ReadAndWrite => core::Refresh::ReadAndWrite,
        },
        domain: match domain {
            wit::TimeDomain::Event => core::TimeDomain::Event,
            wit::TimeDomain::Processing => core::TimeDomain::Processing,
        },
        visibility: match visibility {
            wit::Visibility::Strict => core::Visibility::Strict,
            wit::Visibility::Relaxed => core::Visibility::Relaxed,
        },
        expired_output,
    }
}
