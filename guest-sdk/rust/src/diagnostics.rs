//! What an operator tells people: log lines and metrics, and the message of a panic.
//!
//! Owns the way to the host from anywhere in the guest. Does not own levels, rates and labels: the host adds operator
//! and subtask to each line, and limits their rate.
//!
//! In a component everything goes to the imports. In a native run it goes to what [`install`] gave this thread, or nowhere.

use std::fmt;

pub use crate::bindings::wasmill::operator::diagnostics::Level;

/// A receiver of log lines and metrics in a native run.
pub trait Diagnostics {
    /// A log line.
    fn log(&mut self, level: Level, message: &str);
    /// Adds to a counter.
    fn counter_add(&mut self, name: &str, delta: u64);
    /// Sets a gauge.
    fn gauge_set(&mut self, name: &str, value: f64);
    /// Records a value in a histogram.
    fn histogram_record(&mut self, name: &str, value: f64);
}

/// Log lines: `log::info!("{n} flights so far")`.
pub mod log {
    pub use crate::{
        __log_debug as debug, __log_error as error, __log_info as info, __log_trace as trace, __log_warn as warn,
    };
}

/// Metrics by name; the host adds operator and subtask as labels.
pub mod metrics {
    /// Adds to a counter.
    pub fn counter(name: &str, delta: u64) {
        super::sink::counter_add(name, delta);
    }

    /// Sets a gauge.
    pub fn gauge(name: &str, value: f64) {
        super::sink::gauge_set(name, value);
    }

    /// Records a value in a histogram.
    pub fn histogram(name: &str, value: f64) {
        super::sink::histogram_record(name, value);
    }
}

/// Logs at a level; the macros of [`log`] call it.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(text) => sink::log(level, text),
        None => sink::log(level, &message.to_string()),
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log_error {
    ($($argument:tt)*) => { $crate::diagnostics::write($crate::diagnostics::Level::Error, format_args!($($argument)*)) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn {
    ($($argument:tt)*) => { $crate::diagnostics::write($crate::diagnostics::Level::Warn, format_args!($($argument)*)) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! __log_info {
    ($($argument:tt)*) => { $crate::diagnostics::write($crate::diagnostics::Level::Info, format_args!($($argument)*)) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug {
    ($($argument:tt)*) => { $crate::diagnostics::write($crate::diagnostics::Level::Debug, format_args!($($argument)*)) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! __log_trace {
    ($($argument:tt)*) => { $crate::diagnostics::write($crate::diagnostics::Level::Trace, format_args!($($argument)*)) };
}

#[cfg(target_arch = "wasm32")]
mod sink {
    pub(super) use crate::bindings::wasmill::operator::diagnostics::{counter_add, gauge_set, histogram_record, log};
}

/// Makes a panic say its message and place to the host before it traps.
#[cfg(target_arch = "wasm32")]
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        match panic.location() {
            Some(place) => write(Level::Error, format_args!("panic at {place}: {message}")),
            None => write(Level::Error, format_args!("panic: {message}")),
        }
    }));
}

#[cfg(not(target_arch = "wasm32"))]
pub use sink::install;

#[cfg(not(target_arch = "wasm32"))]
mod sink {
    use std::cell::RefCell;

    use super::{Diagnostics, Level};

    thread_local! {
        static RECEIVER: RefCell<Option<Box<dyn Diagnostics>>> = const { RefCell::new(None) };
    }

    /// Gives this thread a receiver and returns the one before.
    pub fn install(receiver: Option<Box<dyn Diagnostics>>) -> Option<Box<dyn Diagnostics>> {
        RECEIVER.with(|slot| slot.replace(receiver))
    }

    fn tell(what: impl FnOnce(&mut dyn Diagnostics)) {
        RECEIVER.with(|slot| {
            // A receiver that itself logs is not called again from within.
            if let Ok(mut slot) = slot.try_borrow_mut()
                && let Some(receiver) = slot.as_deref_mut()
            {
                what(receiver);
            }
        });
    }

    pub(super) fn log(level: Level, message: &str) {
        tell(|receiver| receiver.log(level, message));
    }

    pub(super) fn counter_add(name: &str, delta: u64) {
        tell(|receiver| receiver.counter_add(name, delta));
    }

    pub(super) fn gauge_set(name: &str, value: f64) {
        tell(|receiver| receiver.gauge_set(name, value));
    }

    pub(super) fn histogram_record(name: &str, value: f64) {
        tell(|receiver| receiver.histogram_record(name, value));
    }
}
