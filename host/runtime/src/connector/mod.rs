//! The connectors: what sources and sinks of a pipeline read and write.
//!
//! Owns the way from a table of the pipeline file to a factory of readers or writers. Each module below owns one outside.

use std::path::Path;
use std::sync::Arc;

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::OperatorUid;

use crate::clock::SharedClock;
use crate::config::sink::Sink;
use crate::config::source::Source;
use crate::sink::SinkFactory;
use crate::source::SourceFactory;

pub mod file;
pub mod generator;
mod pace;
pub mod stdout;

/// Makes the factory of a source. Relative paths are relative to `base`, the pipeline file's folder.
///
/// # Errors
/// Settings that contradict each other; the message names the source and the setting. Files are looked at by
/// [`SourceFactory::check`] and [`SourceFactory::open`] only.
pub fn source(
    config: &Source,
    uid: &OperatorUid,
    base: &Path,
    clock: SharedClock,
) -> Result<Arc<dyn SourceFactory>, Fault> {
    let made: Result<Arc<dyn SourceFactory>, String> = match config {
        Source::File(file) => file::source::FileSourceFactory::new(file.clone(), base, clock)
            .map(|factory| Arc::new(factory) as _)
            .map_err(|error| error.to_string()),
        Source::Generator(generator) => generator::GeneratorFactory::new(generator, clock)
            .map(|factory| Arc::new(factory) as _)
            .map_err(|error| error.to_string()),
    };
    made.map_err(|reason| Fault::new(FaultKind::User, format!("source `{uid}`: {reason}")))
}

/// Makes the factory of a sink. Relative paths are relative to `base`, the pipeline file's folder.
///
/// # Errors
/// Settings that contradict each other; the message names the sink and the setting.
pub fn sink(config: &Sink, uid: &OperatorUid, base: &Path) -> Result<Arc<dyn SinkFactory>, Fault> {
    let made: Result<Arc<dyn SinkFactory>, String> = match config {
        Sink::File(file) => file::sink::FileSinkFactory::new(file, uid, base)
            .map(|factory| Arc::new(factory) as _)
            .map_err(|error| error.to_string()),
        Sink::Stdout(stdout) => stdout::StdoutFactory::new(stdout, uid)
            .map(|factory| Arc::new(factory) as _)
            .map_err(|error| error.to_string()),
    };
    made.map_err(|reason| Fault::new(FaultKind::User, format!("sink `{uid}`: {reason}")))
}
