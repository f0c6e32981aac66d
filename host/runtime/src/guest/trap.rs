//! Why a call into a guest failed.
//!
//! Owns the kinds of failure and how wasmtime's errors become one of them. Does not own what is done about it: isolating the
//! poison record, dead-lettering and restarting are the subtask's.

use std::fmt;
use std::time::Duration;

use wasmill_core::fault::{Fault, FaultKind};
use wasmtime::{Trap, WasmBacktrace};

use super::StateError;
use super::effects::Malformed;
use super::limits::{Limits, TimeLimit};

/// Most frames of a guest's stack in a message, the innermost ones.
const FRAMES: usize = 12;

/// Longest function name in a message, in bytes.
const FRAME_BYTES: usize = 200;

/// Longest cause in a message, in bytes.
const CAUSE_BYTES: usize = 1000;

/// Why a call failed. After any of these the instance is dead: make a new one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The guest crashed.
    #[error("`{}` trapped: {}{at}", at.call, at.cause)]
    Trap {
        /// The cause and where it happened.
        at: Box<Crash>,
    },
    /// The call ran for too long and was stopped.
    #[error("`{}` did not return within its time limit of {limit:?} and was stopped{at}; raise `{setting}` or do less in one call", at.call)]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// The setting that it follows from.
        setting: &'static str,
        /// Where it was stopped.
        at: Box<Crash>,
    },
    /// The guest asked for more memory than it may have, and then failed.
    #[error("`{}` reached its memory limit of {} and failed{at}; raise `limits.memory` or keep less in memory", at.call, Size(*limit))]
    MemoryLimit {
        /// The limit, in bytes.
        limit: u64,
        /// The failure that followed.
        at: Box<Crash>,
    },
    /// The guest handed the host more than one call may.
    #[error("`{}` handed over more than its limit of {} in one call{at}; raise `limits.result`, or emit and write less in one call", at.call, Size(*limit as u64))]
    ResultLimit {
        /// The limit, in bytes.
        limit: usize,
        /// Where it was stopped.
        at: Box<Crash>,
    },
    /// The guest returned effects that contradict themselves, the call or the limits.
    #[error("`{call}` returned effects that are not valid: {cause} (component {component})")]
    Malformed {
        /// The function.
        call: &'static str,
        /// The component.
        component: String,
        /// Field, index and rule.
        cause: Malformed,
    },
    /// What the guest wrote would leave more state than it may keep. Found by the subtask, which knows the state.
    #[error("`{call}` wrote more than may be kept and was undone: {cause}")]
    StateLimit {
        /// The function.
        call: &'static str,
        /// State, key, what there would be, and the setting.
        cause: String,
    },
    /// The guest answered with a fault of its own.
    #[error("`{call}` failed{}: {message} (component {component})", if *retryable { " and may be tried again" } else { "" })]
    Fault {
        /// The function.
        call: &'static str,
        /// The component.
        component: String,
        /// Whether the guest says that a retry may help.
        retryable: bool,
        /// The guest's message.
        message: String,
    },
    /// The host could not do what the guest rightly asked: its state, or room for an instance. Not the guest's fault.
    #[error("{0}")]
    Host(Fault),
    /// The instance failed before and was used again.
    #[error("the instance failed in an earlier call and cannot be called again: make a new one")]
    Dead,
}

impl CallError {
    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Host(fault) => fault.kind,
            Self::Dead => FaultKind::Internal,
            Self::Trap { .. }
            | Self::TimedOut { .. }
            | Self::MemoryLimit { .. }
            | Self::ResultLimit { .. }
            | Self::StateLimit { .. }
            | Self::Malformed { .. }
            | Self::Fault { .. } => FaultKind::Guest,
        }
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Host(fault) => fault,
            error => Self::new(error.kind(), error),
        }
    }
}

/// What is known of a crash. Shown, it is the tail of a message: what the guest said, where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The exported function that was called.
    pub call: &'static str,
    /// The component: its name and the start of its digest.
    pub component: String,
    /// The cause in the engine's words.
    pub cause: String,
    /// The last line that the guest logged as an error during the call: a panic's message.
    pub said: Option<String>,
    /// The guest's functions on its stack, innermost first.
    pub stack: Vec<String>,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(said) = &self.said {
            write!(f, "; its last words: {said}")?;
        }
        if !self.stack.is_empty() {
            write!(f, "; in {}", self.stack.join(" < "))?;
        }
        write!(f, " (component {})", self.component)
    }
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// What was known when the call failed.
pub(super) struct Circumstances<'a> {
    pub(super) call: &'static str,
    pub(super) component: String,
    pub(super) limits: &'a Limits,
    pub(super) time: TimeLimit,
    pub(super) memory_refused: bool,
    pub(super) said: Option<String>,
}

/// Makes a call's failure of an engine's error. A refused growth of memory comes before the symptom that follows it.
pub(super) fn classify(error: &wasmtime::Error, circumstances: Circumstances<'_>) -> CallError {
    let Circumstances { call, component, limits, time, memory_refused, said } = circumstances;
    if let Some(StateError::Failed(fault)) = error.downcast_ref() {
        return CallError::Host(fault.clone());
    }
    let at = Box::new(Crash { call, component, cause: cause(error), said, stack: stack(error) });
    if memory_refused {
        CallError::MemoryLimit { limit: limits.memory, at }
    } else if error.downcast_ref() == Some(&Trap::Interrupt) {
        CallError::TimedOut { limit: time.limit, setting: time.setting, at }
    } else if at.cause.contains(RESULT_LIMIT_REACHED) {
        CallError::ResultLimit { limit: limits.result_bytes, at }
    } else {
        CallError::Trap { at }
    }
}

/// wasmtime has no type for this error; a test holds its words.
const RESULT_LIMIT_REACHED: &str = "fuel allocated for hostcalls has been exhausted";

/// Whether the engine could not even begin: neither a trap nor anything that the guest did.
pub(super) fn is_hosts(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<Trap>().is_none()
        && error.downcast_ref::<WasmBacktrace>().is_none()
        && error.downcast_ref::<StateError>().is_none()
}

fn cause(error: &wasmtime::Error) -> String {
    let cause = match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => "it gave up (wasm `unreachable`): a panic or an abort".to_owned(),
        Some(Trap::StackOverflow) => "its stack overflowed: endless or too deep recursion".to_owned(),
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    };
    shortened(&cause, CAUSE_BYTES)
}

fn stack(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(name) => shortened(&format!("{:#}", rustc_demangle::demangle(name)), FRAME_BYTES),
        None => format!("function {}", frame.func_index()),
    };
    backtrace.frames().iter().take(FRAMES).map(name).collect()
}

/// `text` without control characters, cut at a character's boundary to at most `bytes` bytes.
pub(super) fn shortened(text: &str, bytes: usize) -> String {
    let mut cut = bytes.min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut short: String =
        text[..cut].chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    if cut < text.len() {
        short.push('…');
    }
    short
}
