//! What an operator answers when it cannot go on: refuse this record, or fail the call.
//!
//! Owns the three kinds and how they reach the host. Does not own what the host does next: that is the pipeline's policy.

use std::fmt;

use crate::bindings::wasmill::operator::types::{Fault, FaultKind};

/// The result of an operator's functions.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why an operator does not go on.
///
/// Any `std::error::Error` that is let through with `?` rejects the record, so that bad input is one record's matter:
///
/// ```
/// use wasmill_guest::Error;
/// fn parse(text: &str) -> Result<i64, Error> {
///     Ok(text.parse()?)
/// }
/// assert!(matches!(parse("x"), Err(Error::Reject(_))));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// This record is refused: what it wrote and emitted is undone, and the job goes on by the pipeline's policy.
    Reject(String),
    /// The call failed for a reason that may pass: undone whole, and tried again.
    Retryable(String),
    /// The call failed and would fail again: undone whole, and isolated to the record that causes it.
    Fatal(String),
}

impl Error {
    /// Refuses the record.
    #[must_use]
    pub fn reject(reason: impl fmt::Display) -> Self {
        Self::Reject(reason.to_string())
    }

    /// Fails the call; it may succeed when tried again.
    #[must_use]
    pub fn retryable(reason: impl fmt::Display) -> Self {
        Self::Retryable(reason.to_string())
    }

    /// Fails the call; it would fail again.
    #[must_use]
    pub fn fatal(reason: impl fmt::Display) -> Self {
        Self::Fatal(reason.to_string())
    }

    /// As the fault of a call. A record that is rejected where there is none is a fatal fault.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Retryable(message) => Fault { kind: FaultKind::Retryable, message },
            Self::Fatal(message) | Self::Reject(message) => fatal(message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reject(message) | Self::Retryable(message) | Self::Fatal(message) => f.write_str(message),
        }
    }
}

impl<E: std::error::Error> From<E> for Error {
    #[cold]
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason.push_str(": ");
            reason.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Reject(reason)
    }
}

/// A fatal fault.
#[cold]
pub(crate) fn fatal(message: impl fmt::Display) -> Fault {
    Fault { kind: FaultKind::Fatal, message: message.to_string() }
}
