//! The rules that an operator's declaration keeps, and the rules that a pipeline's `config` keeps against it.
//!
//! Owns what can be said from the declaration alone. Does not own whether it fits what an older version left in the state.

use std::collections::BTreeSet;

use super::{OperatorContract, Port, StateContract, StateKind};
use crate::id::StateName;

/// Most inputs, outputs, states or configuration keys that an operator may declare (of each).
pub const MAX_DECLARED: usize = 256;

/// Longest name or version, in bytes.
pub const MAX_TEXT_BYTES: usize = 128;

/// Longest JSON Schema of a type, in bytes.
pub const MAX_TYPE_BYTES: usize = 256 * 1024;

/// What an operator declares wrongly. Each names the place and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name or version that is empty, too long or holds control characters.
    #[error("{what} `{text}` must be 1 to {MAX_TEXT_BYTES} bytes of printable text")]
    Text {
        /// Which name.
        what: String,
        /// The name.
        text: String,
    },
    /// Too many of one kind.
    #[error("it declares {count} {what}, and {MAX_DECLARED} are the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// No input.
    #[error("it declares no input: an operator needs at least one")]
    NoInput,
    /// Two of one name.
    #[error("it declares two {what} with the name `{name}`: rename one")]
    Duplicate {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A broadcast output.
    #[error(
        "output `{0}` is declared `broadcast`, which only an input can be: the pipeline's edge decides how an output is routed"
    )]
    BroadcastOutput(String),
    /// `rides-with` names an input that does not exist.
    #[error("state `{state}` rides with input {input}, and there are {inputs} inputs, counted from 0")]
    RidesWithUnknown {
        /// The state.
        state: StateName,
        /// The input.
        input: u16,
        /// How many inputs there are.
        inputs: usize,
    },
    /// `rides-with` names a broadcast input.
    #[error(
        "state `{state}` rides with the broadcast input `{input}`, whose records every subtask gets: they have no keyed state"
    )]
    RidesWithBroadcast {
        /// The state.
        state: StateName,
        /// The input's name.
        input: String,
    },
    /// Broadcast state that nothing can write.
    #[error(
        "state `{0}` is broadcast state, which only records of a broadcast input write, and no input is declared broadcast"
    )]
    NoBroadcastInput(StateName),
    /// Time to live of what belongs to no key.
    #[error("state `{state}` is {} state, whose entries have no TTL: remove what is old yourself", kind.name())]
    TtlWithoutKey {
        /// The state.
        state: StateName,
        /// Its kind.
        kind: StateKind,
    },
    /// `lazy` or `rides-with` on a state that never rides along.
    #[error("state `{state}` is declared {word}, which only value state can be: leave it out")]
    NotValueState {
        /// The state.
        state: StateName,
        /// The declaration.
        word: &'static str,
    },
    /// Both `lazy` and `rides-with`.
    #[error("state `{0}` is declared lazy and names inputs that it rides with: choose one")]
    LazyRides(StateName),
    /// A map key type on something that is no map.
    #[error("state `{0}` declares the type of a map key, and is neither map nor broadcast state")]
    MapKeyUnexpected(StateName),
    /// A map without the type of its key.
    #[error("state `{0}` is map or broadcast state and does not declare the type of its map key")]
    MapKeyMissing(StateName),
    /// A type that is neither `bytes` nor a JSON Schema.
    #[error("{what} is neither `bytes` nor a JSON Schema of at most {MAX_TYPE_BYTES} bytes: {cause}")]
    Type {
        /// The type of what.
        what: String,
        /// Why not.
        cause: String,
    },
    /// Time to live of nothing.
    #[error("state `{0}` has a TTL of 0 ms: its entries would never be readable; leave the TTL out or name a duration")]
    ZeroTtl(StateName),
    /// Time to live that only a negative number can have become.
    #[error(
        "state `{0}` has a TTL of {1} ms, more than 2^63-1: was it a negative number? Leave the TTL out or name a duration"
    )]
    NegativeTtl(StateName, u64),
    /// Expired entries go to an output that does not exist.
    #[error(
        "state `{state}` sends expired entries to output {output}, and there are {outputs} outputs, counted from 0"
    )]
    ExpiredOutput {
        /// The state.
        state: StateName,
        /// The output.
        output: u16,
        /// How many outputs there are.
        outputs: usize,
    },
    /// A name that checkpoints use for something else.
    #[error("state `{0}`: the name is wasmill's own; choose another")]
    Reserved(StateName),
    /// An earlier name that is in use.
    #[error(
        "state `{state}` says that it was once called `{old}`, which is the name of a state now or of another's past"
    )]
    RenamedFrom {
        /// The state.
        state: StateName,
        /// The earlier name.
        old: StateName,
    },
    /// A migration from the version itself, or named twice.
    #[error(
        "state `{state}` of version {version} names version {from} among those it migrates from: name each other version once"
    )]
    MigratesFrom {
        /// The state.
        state: StateName,
        /// Its version.
        version: u32,
        /// The version named.
        from: u32,
    },
}

/// What a pipeline's `config` table says wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A key that the operator does not read.
    #[error("config key `{key}` is not read by operator `{operator}`{}", suggestion(nearest.as_deref(), known))]
    Unknown {
        /// The key.
        key: String,
        /// The operator's own name.
        operator: String,
        /// What it may have meant.
        nearest: Option<String>,
        /// The keys it reads.
        known: Vec<String>,
    },
    /// A required key that is not there.
    #[error("operator `{operator}` needs the config key `{key}`{}", doc.as_ref().map(|doc| format!(" ({doc})")).unwrap_or_default())]
    Missing {
        /// The key.
        key: String,
        /// The operator's own name.
        operator: String,
        /// What the key does.
        doc: Option<String>,
    },
}

fn suggestion(nearest: Option<&str>, known: &[String]) -> String {
    match (nearest, known) {
        (Some(nearest), _) => format!("; did you mean `{nearest}`?"),
        (None, []) => "; it reads none".to_owned(),
        (None, known) => format!("; it reads {}", known.join(", ")),
    }
}

impl OperatorContract {
    /// Whether any state is kept by key, so that every input must be keyed.
    #[must_use]
    pub fn has_keyed_state(&self) -> bool {
        self.states.iter().any(|state| state.kind.is_keyed())
    }

    /// Checks what the declaration says of itself.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), Error> {
        text("the operator's name", &self.name)?;
        text("the operator's version", &self.version)?;
        if let Some(schema) = &self.key_type {
            json_schema(|| "the key's type".to_owned(), schema)?;
        }
        ports("inputs", "the name of an input", &self.inputs)?;
        ports("outputs", "the name of an output", &self.outputs)?;
        if self.inputs.is_empty() {
            return Err(Error::NoInput);
        }
        if let Some(port) = self.outputs.iter().find(|port| port.broadcast) {
            return Err(Error::BroadcastOutput(port.name.clone()));
        }
        for key in &self.config {
            text("the name of a config key", &key.name)?;
        }
        names("config keys", self.config.iter().map(|key| key.name.as_str()))?;
        names("states", self.states.iter().map(|state| state.name.as_str()))?;
        self.states.iter().try_for_each(|state| self.check_state(state))?;
        self.check_renames()
    }

    /// Checks the keys of a pipeline's `config` table against the keys that the operator declares.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one, or a required key that is missing.
    pub fn check_config(&self, config: &serde_json::Map<String, serde_json::Value>) -> Result<(), ConfigError> {
        for key in config.keys() {
            if self.config.iter().all(|known| known.name != *key) {
                return Err(self.unknown_config(key));
            }
        }
        match self.config.iter().find(|key| key.required && !config.contains_key(&key.name)) {
            None => Ok(()),
            Some(key) => Err(ConfigError::Missing {
                key: key.name.clone(),
                operator: self.name.clone(),
                doc: (!key.doc.is_empty()).then(|| key.doc.clone()),
            }),
        }
    }

    fn unknown_config(&self, key: &str) -> ConfigError {
        let nearest = self
            .config
            .iter()
            .map(|known| (strsim::jaro_winkler(key, &known.name), &known.name))
            .filter(|(likeness, _)| *likeness > 0.7)
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, name)| name.clone());
        ConfigError::Unknown {
            key: key.to_owned(),
            operator: self.name.clone(),
            nearest,
            known: self.config.iter().map(|known| known.name.clone()).collect(),
        }
    }

    fn check_state(&self, state: &StateContract) -> Result<(), Error> {
        let name = || state.name.clone();
        if state.name.as_str() == crate::timer::TIMERS {
            return Err(Error::Reserved(name()));
        }
        if state.kind == StateKind::Broadcast && !self.inputs.iter().any(|port| port.broadcast) {
            return Err(Error::NoBroadcastInput(name()));
        }
        if state.kind != StateKind::Value && state.lazy {
            return Err(Error::NotValueState { state: name(), word: "`lazy`" });
        }
        if state.kind != StateKind::Value && !state.rides_with.is_empty() {
            return Err(Error::NotValueState { state: name(), word: "`rides-with`" });
        }
        if state.lazy && !state.rides_with.is_empty() {
            return Err(Error::LazyRides(name()));
        }
        let inputs = self.inputs.len();
        let rides_nowhere = |input: &&u16| usize::from(**input) >= inputs && **input != super::RIDES_WITH_TIMERS;
        if let Some(&input) = state.rides_with.iter().find(rides_nowhere) {
            return Err(Error::RidesWithUnknown { state: name(), input, inputs });
        }
        if let Some(&input) = state.rides_with.iter().find(|&&input| self.is_broadcast(input)) {
            let input = self.inputs[usize::from(input)].name.clone();
            return Err(Error::RidesWithBroadcast { state: name(), input });
        }
        json_schema(|| format!("the type of state `{}`", state.name), &state.value_type)?;
        let is_map = matches!(state.kind, StateKind::Map | StateKind::Broadcast);
        match &state.map_key_type {
            Some(_) if !is_map => return Err(Error::MapKeyUnexpected(name())),
            None if is_map => return Err(Error::MapKeyMissing(name())),
            Some(schema) => json_schema(|| format!("the type of the map key of state `{}`", state.name), schema)?,
            None => {}
        }
        self.check_ttl(state)?;
        let mut seen = BTreeSet::from([state.version]);
        match state.migrates_from.iter().find(|from| !seen.insert(**from)) {
            Some(&from) => Err(Error::MigratesFrom { state: name(), version: state.version, from }),
            None => Ok(()),
        }
    }

    fn check_ttl(&self, state: &StateContract) -> Result<(), Error> {
        let Some(ttl) = state.ttl else { return Ok(()) };
        if !state.kind.is_keyed() {
            return Err(Error::TtlWithoutKey { state: state.name.clone(), kind: state.kind });
        }
        if ttl.milliseconds == 0 {
            return Err(Error::ZeroTtl(state.name.clone()));
        }
        if i64::try_from(ttl.milliseconds).is_err() {
            return Err(Error::NegativeTtl(state.name.clone(), ttl.milliseconds));
        }
        if let Some(output) = ttl.expired_output.filter(|output| usize::from(*output) >= self.outputs.len()) {
            return Err(Error::ExpiredOutput { state: state.name.clone(), output, outputs: self.outputs.len() });
        }
        Ok(())
    }

    fn check_renames(&self) -> Result<(), Error> {
        let mut taken: BTreeSet<&StateName> = self.states.iter().map(|state| &state.name).collect();
        for state in &self.states {
            for old in &state.renamed_from {
                if !taken.insert(old) {
                    return Err(Error::RenamedFrom { state: state.name.clone(), old: old.clone() });
                }
            }
        }
        Ok(())
    }
}

fn ports(what: &'static str, one: &str, ports: &[Port]) -> Result<(), Error> {
    for port in ports {
        text(one, &port.name)?;
    }
    names(what, ports.iter().map(|port| port.name.as_str()))
}

fn names<'a>(what: &'static str, names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), Error> {
    let count = names.len();
    if count > MAX_DECLARED {
        return Err(Error::TooMany { what, count });
    }
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::Duplicate { what, name: name.to_owned() });
        }
    }
    Ok(())
}

fn text(what: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        return Err(Error::Text { what: what.to_owned(), text: text.chars().take(80).collect() });
    }
    Ok(())
}

fn json_schema(what: impl Fn() -> String, schema: &str) -> Result<(), Error> {
    if schema == "bytes" {
        return Ok(());
    }
    let cause = if schema.len() > MAX_TYPE_BYTES {
        format!("it has {} bytes", schema.len())
    } else {
        match serde_json::from_str::<serde_json::Value>(schema) {
            Ok(serde_json::Value::Object(_) | serde_json::Value::Bool(_)) => return Ok(()),
            Ok(_) => "a schema is an object or a boolean".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    Err(Error::Type { what: what(), cause })
}

#[cfg(test)]
mod tests;
