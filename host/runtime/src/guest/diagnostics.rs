//! What guests say: log lines and metrics.
//!
//! Owns the bounds, so that a guest that talks without end harms nobody: lines a second, bytes a line, names of metrics. Does
//! not own where lines and figures go (`tracing`, `metrics`).

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};
use parking_lot::Mutex;

use super::bindings::wasmill::operator::diagnostics::Level;
use super::engine::{Engine, TICK};
use super::trap::shortened;

/// Longest log line, in bytes; the rest is cut off.
pub(super) const LINE_BYTES: usize = 4 << 10;

/// Most names of metrics of one component. Further names are dropped, which is told once.
pub(super) const METRIC_NAMES: usize = 100;

/// Longest name of a metric without its prefix, in characters, of which each becomes a byte; longer names are cut off.
const NAME_BYTES: usize = 100;

/// Before the names that guests give, so that they cannot take the host's.
const PREFIX: &str = "wasmill_guest_";

const WINDOW_TICKS: u64 = 1000 / TICK.as_millis() as u64;

/// What all instances of a component share: their budgets for lines, by uid and subtask, and for names.
pub(super) struct Channel {
    engine: Engine,
    digest: String,
    lines: Mutex<HashMap<(String, u32), SharedLines>>,
    names: Mutex<Names>,
}

/// The account of one subtask's lines: each instance goes on with it.
type SharedLines = Arc<Mutex<Lines>>;

#[derive(Default)]
struct Lines {
    window: u64,
    written: u32,
    /// Left out and not told of in the log yet.
    suppressed: u64,
    /// Left out and not counted in a metric yet.
    uncounted: u64,
}

#[derive(Default)]
struct Names {
    kinds: HashMap<String, Kind>,
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Channel {
    pub(super) fn new(engine: Engine, digest: String) -> Self {
        Self { engine, digest, lines: Mutex::default(), names: Mutex::default() }
    }

    fn lines(&self, uid: &str, subtask: u32) -> SharedLines {
        Arc::clone(self.lines.lock().entry((uid.to_owned(), subtask)).or_default())
    }

    /// Whether metrics of that name and kind may be recorded.
    fn takes(&self, name: &str, kind: Kind) -> bool {
        self.names.lock().takes(name, kind, &self.digest)
    }
}

impl Lines {
    /// Whether a line may be written in the window, of which at most `limit` are, and how many were left out before it.
    fn admit(&mut self, window: u64, limit: u32) -> Option<u64> {
        if self.window != window {
            self.window = window;
            self.written = 0;
        }
        if self.written >= limit {
            self.suppressed += 1;
            self.uncounted += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Names {
    fn takes(&mut self, name: &str, kind: Kind, digest: &str) -> bool {
        match self.kinds.get(name) {
            Some(known) if *known == kind => return true,
            None if self.kinds.len() < METRIC_NAMES => {
                self.kinds.insert(name.to_owned(), kind);
                return true;
            }
            _ => {}
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                component = digest,
                name,
                "a guest's metric is dropped: it has more than {METRIC_NAMES} names, or uses one for two kinds"
            );
        }
        false
    }
}

enum Metric {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// What one instance says.
pub(super) struct Diagnostics {
    channel: Arc<Channel>,
    lines: SharedLines,
    lines_limit: u32,
    name: String,
    uid: String,
    subtask: String,
    said: Option<String>,
    metrics: HashMap<String, Option<Metric>>,
}

impl Diagnostics {
    /// Of an instance that may log `lines_limit` lines a second.
    pub(super) fn new(channel: Arc<Channel>, name: &str, (uid, subtask): (&str, u32), lines_limit: u32) -> Self {
        Self {
            lines: channel.lines(uid, subtask),
            lines_limit,
            channel,
            name: name.to_owned(),
            uid: uid.to_owned(),
            subtask: subtask.to_string(),
            said: None,
            metrics: HashMap::new(),
        }
    }

    /// The component in messages: its name and the start of its digest.
    pub(super) fn component(&self) -> String {
        let digest = self.channel.digest.get(..12).unwrap_or_default();
        if self.name.is_empty() { digest.to_owned() } else { format!("`{}` {digest}", self.name) }
    }

    pub(super) fn begin_call(&mut self) {
        self.said = None;
    }

    /// The last error line of the call.
    pub(super) fn take_said(&mut self) -> Option<String> {
        self.said.take()
    }

    pub(super) fn log(&mut self, level: Level, message: &str) {
        let line = shortened(message, LINE_BYTES);
        macro_rules! write_line {
            ($level:ident) => {
                if tracing::enabled!(target: "wasmill::guest", tracing::Level::$level) {
                    let window = self.channel.engine.ticks() / WINDOW_TICKS;
                    let admitted = self.lines.lock().admit(window, self.lines_limit);
                    if let Some(suppressed) = admitted {
                        let Self { uid, subtask, channel, .. } = self;
                        let digest = &channel.digest;
                        if suppressed > 0 {
                            tracing::warn!(target: "wasmill::guest", %uid, %subtask, %digest, suppressed, "lines of this guest were left out");
                        }
                        tracing::event!(target: "wasmill::guest", tracing::Level::$level, %uid, %subtask, %digest, "{line}");
                    }
                }
            };
        }
        match level {
            Level::Error => write_line!(ERROR),
            Level::Warn => write_line!(WARN),
            Level::Info => write_line!(INFO),
            Level::Debug => write_line!(DEBUG),
            Level::Trace => write_line!(TRACE),
        }
        if level == Level::Error {
            self.said = Some(line);
        }
    }

    /// How many lines were left out since it was asked last.
    pub(super) fn take_lines_dropped(&self) -> u64 {
        std::mem::take(&mut self.lines.lock().uncounted)
    }

    pub(super) fn counter_add(&mut self, name: &str, delta: u64) {
        if let Some(Metric::Counter(counter)) = self.metric(name, Kind::Counter) {
            counter.increment(delta);
        }
    }

    pub(super) fn gauge_set(&mut self, name: &str, value: f64) {
        if let Some(Metric::Gauge(gauge)) = self.metric(name, Kind::Gauge) {
            gauge.set(value);
        }
    }

    pub(super) fn histogram_record(&mut self, name: &str, value: f64) {
        if !value.is_finite() {
            return;
        }
        if let Some(Metric::Histogram(histogram)) = self.metric(name, Kind::Histogram) {
            histogram.record(value);
        }
    }

    fn metric(&mut self, name: &str, kind: Kind) -> Option<&Metric> {
        let name = name.char_indices().nth(NAME_BYTES).map_or(name, |(end, _)| &name[..end]);
        if !self.metrics.contains_key(name) {
            // As many spellings as names: a guest that keeps inventing spellings of one name is cut off too.
            if self.metrics.len() >= METRIC_NAMES {
                return None;
            }
            let metric = self.register(name, kind);
            self.metrics.insert(name.to_owned(), metric);
        }
        self.metrics.get(name)?.as_ref()
    }

    fn register(&self, name: &str, kind: Kind) -> Option<Metric> {
        let name = metric_name(name)?;
        if !self.channel.takes(&name, kind) {
            return None;
        }
        let labels = [("uid", self.uid.clone()), ("subtask", self.subtask.clone())];
        Some(match kind {
            Kind::Counter => Metric::Counter(metrics::counter!(name, &labels)),
            Kind::Gauge => Metric::Gauge(metrics::gauge!(name, &labels)),
            Kind::Histogram => Metric::Histogram(metrics::histogram!(name, &labels)),
        })
    }
}

/// The name with the prefix and with `_` for what Prometheus does not take; `None` for an empty one.
fn metric_name(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut full = String::with_capacity(PREFIX.len() + name.len().min(NAME_BYTES));
    full.push_str(PREFIX);
    for c in name.chars().take(NAME_BYTES) {
        // Writing to a string cannot fail.
        let _ = full.write_char(if c.is_ascii_alphanumeric() { c } else { '_' });
    }
    Some(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_talkative_guest_gets_its_lines_a_second_and_the_rest_is_counted() {
        let mut lines = Lines::default();
        let admitted = (0..57).filter(|_| lines.admit(3, 50).is_some()).count();
        assert_eq!((admitted, lines.uncounted), (50, 7));
        assert_eq!(lines.admit(4, 50), Some(7));
        assert_eq!(lines.admit(4, 50), Some(0));
        assert_eq!(lines.admit(5, 0), None);
    }

    #[test]
    fn names_of_metrics_are_bounded_and_keep_their_kind() {
        let mut names = Names::default();
        let taken = (0..1000).filter(|i| names.takes(&format!("n{i}"), Kind::Counter, "d")).count();
        assert_eq!(taken, METRIC_NAMES);
        assert!(names.takes("n0", Kind::Counter, "d"));
        assert!(!names.takes("n0", Kind::Gauge, "d"));
    }

    #[test]
    fn names_that_differ_past_their_longest_are_one() {
        let engine = Engine::new(crate::guest::EngineOptions::default()).unwrap();
        let channel = Arc::new(Channel::new(engine, "d".repeat(64)));
        let mut said = Diagnostics::new(channel, "op", ("op", 0), 100);
        for name in 0..200 {
            said.counter_add(&format!("{}{name}", "ü".repeat(NAME_BYTES)), 1);
        }
        assert_eq!(said.metrics.keys().map(|name| name.chars().count()).collect::<Vec<_>>(), [NAME_BYTES]);
    }

    #[test]
    fn a_metric_keeps_to_the_prefix_and_the_alphabet() {
        assert_eq!(metric_name("late-records.ü"), Some("wasmill_guest_late_records__".to_owned()));
        assert_eq!(metric_name(&"x".repeat(500)).map(|name| name.len()), Some(PREFIX.len() + NAME_BYTES));
        assert_eq!(metric_name(""), None);
    }
}
