//! The terminal's standard error: log lines, and below them one line of progress.
//!
//! Owns that neither garbles the other and that what `${…}` brought into the pipeline is masked in both.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_runtime::config::Secrets;

/// Standard error. A cheap clone writes on the same screen.
#[derive(Clone, Default)]
pub struct Screen(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    secrets: Secrets,
    /// The line of progress that stands on the terminal now.
    progress: String,
    /// Whether lines of progress can be shown.
    live: bool,
}

impl Screen {
    /// Sends log lines of `filter` to standard error, as text or as JSON.
    pub fn install(filter: Option<&str>, json: bool) -> Result<Self, Fault> {
        let screen = Self::default();
        let live = !json && io::stderr().is_terminal();
        screen.inner(|inner| inner.live = live);
        let filter = filter.unwrap_or(if live { "info,wasmill_runtime::coordinator=warn" } else { "info" });
        let filter = EnvFilter::try_new(filter)
            .map_err(|error| Fault::new(FaultKind::User, format!("--log {filter}: {error}; try `info` or `debug`")))?;
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(screen.clone());
        let installed = if json {
            builder.json().flatten_event(true).try_init()
        } else {
            builder.with_target(false).with_ansi(io::stderr().is_terminal()).try_init()
        };
        installed.map_err(|error| Fault::new(FaultKind::Internal, format!("the log cannot be set up: {error}")))?;
        Ok(screen)
    }

    /// Masks `secrets` from now on.
    pub fn mask_with(&self, secrets: &Secrets) {
        self.inner(|inner| inner.secrets = secrets.clone());
    }

    /// `text` masked.
    pub fn mask(&self, text: &str) -> String {
        self.inner(|inner| inner.secrets.mask(text))
    }

    /// Whether lines of progress can be shown.
    pub fn is_live(&self) -> bool {
        self.inner(|inner| inner.live)
    }

    /// Leaves standard error to log lines: standard output, where records go, is the same terminal.
    pub fn share_terminal(&self) {
        self.inner(|inner| inner.live = false);
    }

    /// Puts `line` in the place of the line of progress; an empty one takes it away.
    pub fn progress(&self, line: &str) {
        self.inner(|inner| {
            if inner.live {
                inner.progress = inner.secrets.mask(line);
                inner.write("");
            }
        });
    }

    fn inner<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    /// Writes whole lines above the line of progress.
    fn write(&self, lines: &str) {
        let mut stderr = io::stderr().lock();
        let written = if self.live {
            // Without the terminal's wrapping for the line of progress: what does not fit is cut off, so that one line is cleared.
            write!(stderr, "\r\x1b[2K{lines}\x1b[?7l{}\x1b[?7h", self.progress)
        } else {
            write!(stderr, "{lines}")
        };
        // A closed standard error has nobody to be told.
        let _ = written.and_then(|()| stderr.flush());
    }
}

/// Takes one event's lines; they are written whole when it is dropped.
pub struct Line {
    screen: Screen,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        self.screen.inner(|inner| inner.write(&inner.secrets.mask(&text)));
    }
}

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { screen: self.clone(), text: Vec::new() }
    }
}
