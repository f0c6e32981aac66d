//! What went wrong, whose fault it is, and what to do next.
//!
//! Owns the few kinds by which the job's edge decides: restart, stop, exit code. Modules below have precise errors of their own.

use std::fmt;

/// Whose fault it is; each kind says what the operator on call must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The pipeline, the command or the input is wrong: mend it; a restart would fail the same way.
    User,
    /// The component trapped, overran a limit or returned nonsense: mend the component, or choose another policy.
    Guest,
    /// Something outside (store, disk, broker) failed: the job retries by itself; look there if it goes on.
    External,
    /// Refused to keep state safe: damaged, incompatible or in use. Nothing was changed.
    Refused,
    /// A bug of wasmill: report it.
    Internal,
}

impl FaultKind {
    /// Whether a restart from the last checkpoint may help.
    #[must_use]
    pub fn may_restart(self) -> bool {
        match self {
            Self::Guest | Self::External | Self::Internal => true,
            Self::User | Self::Refused => false,
        }
    }

    /// The kind in a word, for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Guest => "guest",
            Self::External => "external",
            Self::Refused => "refused",
            Self::Internal => "internal",
        }
    }
}

/// A fault at the job's edge: kind and one message that names the place and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault it is.
    pub kind: FaultKind,
    /// The place, the cause and what to do.
    pub message: String,
}

impl Fault {
    /// A fault of `kind`.
    pub fn new(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// The same fault with the place put before its message.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { kind: self.kind, message: format!("{place}: {}", self.message) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
