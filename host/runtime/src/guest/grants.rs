//! What a component may import beyond the contract, and what becomes of the rest.
//!
//! Owns which interfaces of WASI 0.2 a grant gives, and what a refusal advises. Does not own what the interfaces do
//! ([`super::wasi`]).

use crate::clock::SharedClock;
use crate::config::{Grant, Wasi};

/// What an operator is given. By default nothing.
#[derive(Clone, Default)]
pub struct Grants {
    /// The clock that `wasi:clocks` reads, where `clock` is granted.
    pub clock: Option<SharedClock>,
    /// Whether `random` is granted.
    pub random: bool,
    /// What becomes of the other imports of WASI 0.2.
    pub wasi: Wasi,
}

/// On what grounds a component has an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The contract gives it to all.
    Contract,
    /// It was granted.
    Granted(Grant),
    /// It is there and traps when it is called.
    Denied,
}

impl Grants {
    /// Everything that can be granted, and the rest of WASI denied: enough to ask any component what it is.
    #[must_use]
    pub fn all(clock: SharedClock) -> Self {
        Self { clock: Some(clock), random: true, wasi: Wasi::Deny }
    }

    /// Whether it is granted.
    #[must_use]
    pub fn has(&self, grant: Grant) -> bool {
        match grant {
            Grant::Clock => self.clock.is_some(),
            Grant::Random => self.random,
        }
    }

    /// On what grounds an import from outside the contract's package is there; `None` where it is refused.
    pub(super) fn access(&self, import: &str) -> Option<Access> {
        let interface = wasi_interface(import)?;
        match grant_of(interface).filter(|grant| self.has(*grant)) {
            Some(grant) => Some(Access::Granted(grant)),
            None => (self.wasi == Wasi::Deny).then_some(Access::Denied),
        }
    }
}

/// The package and interface of an import of WASI 0.2: `clocks/wall-clock` of `wasi:clocks/wall-clock@0.2.3`.
pub(super) fn wasi_interface(import: &str) -> Option<&str> {
    let (interface, version) = import.strip_prefix("wasi:")?.split_once('@')?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let is_0_2 = numbers.next() == Some(Ok(0)) && numbers.next() == Some(Ok(2)) && numbers.all(|number| number.is_ok());
    is_0_2.then_some(interface)
}

/// The grant that gives an interface of WASI 0.2.
pub(super) fn grant_of(interface: &str) -> Option<Grant> {
    match interface {
        "clocks/wall-clock" | "clocks/monotonic-clock" => Some(Grant::Clock),
        "random/random" | "random/insecure" | "random/insecure-seed" => Some(Grant::Random),
        _ => None,
    }
}

/// The ways out for imports that were refused.
pub(super) fn advice(refused: &[String]) -> String {
    let of_wasi: Vec<&str> = refused.iter().filter_map(|import| wasi_interface(import)).collect();
    let mut advice = String::new();
    let needed: Vec<String> = (Grant::ALL.into_iter())
        .filter(|grant| of_wasi.iter().any(|interface| grant_of(interface) == Some(*grant)))
        .map(|grant| format!("\"{}\"", grant.name()))
        .collect();
    if !needed.is_empty() {
        advice.push_str(&format!("; grants = [{}] would give it what can be granted", needed.join(", ")));
    }
    if of_wasi.iter().any(|interface| grant_of(interface).is_none()) {
        let names = Grant::ALL.map(|grant| format!("`{}`", grant.name()));
        advice.push_str(&format!("; no grant gives the rest (there are {})", names.join(" and ")));
    }
    if !of_wasi.is_empty() {
        advice.push_str("; with wasi = \"deny\" it loads, and a call of what was not granted traps");
    }
    if refused.iter().any(|import| import.starts_with("wasi")) {
        let old = if of_wasi.is_empty() { " (of WASI, 0.2 alone can be granted or denied)" } else { "" };
        advice.push_str(&format!(
            "; or build for wasm32-unknown-unknown, or stub WASI (`--stub-wasi` of the JS and Python tools){old}"
        ));
    }
    advice
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn nothing_of_wasi_is_there_unless_it_is_granted_or_denied() {
        let clock = "wasi:clocks/wall-clock@0.2.3";
        let some = Grants { clock: Some(Arc::new(ManualClock::default())), ..Grants::default() };
        let denied = Grants { wasi: Wasi::Deny, ..Grants::default() };
        assert_eq!(Grants::default().access(clock), None);
        assert_eq!(some.access(clock), Some(Access::Granted(Grant::Clock)));
        assert_eq!(some.access("wasi:random/random@0.2.0"), None);
        assert_eq!(denied.access(clock), Some(Access::Denied));
        assert_eq!(Grants::all(Arc::new(ManualClock::default())).access("wasi:http/types@0.2.3"), Some(Access::Denied));
    }

    #[test]
    fn only_wasi_0_2_can_be_granted_or_denied() {
        let all = Grants::all(Arc::new(ManualClock::default()));
        for import in [
            "wasi:clocks/wall-clock@0.3.0",
            "wasi:clocks/wall-clock@0.2.0-rc-2023-11-10",
            "wasi:clocks/wall-clock@1.2.0",
            "wasi:clocks/wall-clock",
            "wasi_snapshot_preview1",
            "acme:clocks/wall-clock@0.2.0",
            "",
        ] {
            assert_eq!(all.access(import), None, "{import}");
        }
        assert!(all.access("wasi:clocks/wall-clock@0.2").is_some());
    }
}
