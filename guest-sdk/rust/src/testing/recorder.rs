//! What an operator under test logged and counted.
//!
//! Owns the receiver that is installed while its code runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::diagnostics::{Diagnostics, Level, install};

#[derive(Debug, Default)]
struct Recorded {
    logs: Vec<(Level, String)>,
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    histograms: BTreeMap<String, Vec<f64>>,
}

/// A shared record.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Rc<RefCell<Recorded>>);

impl Recorder {
    /// Runs `code` with this receiver, and puts the one before back.
    pub(super) fn during<T>(&self, code: impl FnOnce() -> T) -> T {
        struct Restore(Option<Box<dyn Diagnostics>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                install(self.0.take());
            }
        }
        let _restore = Restore(install(Some(Box::new(self.clone()))));
        code()
    }

    pub(super) fn logs(&self) -> Vec<(Level, String)> {
        self.0.borrow().logs.clone()
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        self.0.borrow().counters.get(name).copied().unwrap_or_default()
    }

    pub(super) fn gauge(&self, name: &str) -> Option<f64> {
        self.0.borrow().gauges.get(name).copied()
    }

    pub(super) fn histogram(&self, name: &str) -> Vec<f64> {
        self.0.borrow().histograms.get(name).cloned().unwrap_or_default()
    }
}

impl Diagnostics for Recorder {
    fn log(&mut self, level: Level, message: &str) {
        self.0.borrow_mut().logs.push((level, message.to_owned()));
    }
    fn counter_add(&mut self, name: &str, delta: u64) {
        *self.0.borrow_mut().counters.entry(name.to_owned()).or_default() += delta;
    }
    fn gauge_set(&mut self, name: &str, value: f64) {
        self.0.borrow_mut().gauges.insert(name.to_owned(), value);
    }
    fn histogram_record(&mut self, name: &str, value: f64) {
        self.0.borrow_mut().histograms.entry(name.to_owned()).or_default().push(value);
    }
}
