//! Exit codes, and how a failure is told.
//!
//! Owns which fault ends in which code; `wasmill --help` documents them.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use wasmill_core::fault::{Fault, FaultKind};

use crate::show;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The job failed.
    Failed,
    /// Wrong usage, or a pipeline that cannot run.
    Usage,
    /// Refused for the safety of state.
    Refused,
    /// An outside system could not be reached.
    Unreachable,
    /// Stopped by a signal.
    Stopped,
}

impl Exit {
    /// The end that a fault brings.
    pub fn of(fault: &Fault) -> Self {
        match fault.kind {
            FaultKind::User => Self::Usage,
            FaultKind::Guest | FaultKind::Internal => Self::Failed,
            FaultKind::External => Self::Unreachable,
            FaultKind::Refused => Self::Refused,
        }
    }

    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::Stopped => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Tells a fault on standard error; `message` is its message, masked.
pub fn tell(message: &str, fault: &Fault, as_json: bool) {
    let line = if as_json {
        json!({ "error": { "kind": fault.kind.as_str(), "message": message } }).to_string()
    } else {
        let hint = if fault.kind == FaultKind::Internal { " (a bug of wasmill: please report it)" } else { "" };
        format!("error: {}{hint}", show::plain(message))
    };
    // Nobody is left to be told of a closed standard error.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
