//! A component tried on a file of steps (records, watermarks, the clock) without a pipeline, against what should come of them.
//!
//! Owns the test file, the runs with several sizes of batches, and what counts as a difference. The steps go through the subtask
//! that a job runs, over real state in a folder of its own; its clock is moved by the file alone. Finds no files and prints nothing.

mod bless;
mod drive;
mod file;
mod granted;
mod judge;
mod line;
mod script;
mod value;

use wasmill_core::fault::{Fault, FaultKind};

pub use self::drive::Runs;
pub use self::file::{Case, CaseFile};
pub use self::granted::{Granted, Tried};
pub use self::judge::Difference;
pub use self::line::Error;

/// What the name of a test file ends in.
pub const SUFFIX: &str = ".test.jsonl";

/// The sizes of batches that every case is run with where nothing else is asked for; with 1 in any case.
pub const BATCHES: [u32; 3] = [1, 7, 1_024];

/// Runs a case with batches of 1 and of each of `sizes`, and once with a new instance for each batch.
///
/// # Errors
/// The case does not fit the component, or the host failed: no verdict. A case that fails has differences instead.
pub fn run(tried: &Tried, case: &Case, sizes: &[u32]) -> Result<Runs, Fault> {
    let scratch = tempfile::tempdir().map_err(|error| {
        Fault::new(FaultKind::External, format_args!("no scratch folder for a case's state can be made: {error}"))
    })?;
    drive::all(tried, case, sizes, scratch.path())
}

/// How the runs differ from what the case expects, and from one another. Of none the case passes.
#[must_use]
pub fn judge(case: &Case, runs: &Runs) -> Vec<Difference> {
    judge::judge(case, runs)
}
