//! The file `admin.json` in a job's state folder: where the endpoint of the process that runs the job listens.
//!
//! Owns its form. The file may be left behind by a process that was killed, so that what it names must be asked.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::JobId;

/// Where a job's endpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Registration {
    /// The job.
    pub job: JobId,
    /// The process that runs it.
    pub pid: u32,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Registration {
    /// Leaves it in the state folder, which is made where it is missing.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write(&self, state_dir: &Path) -> Result<(), Fault> {
        let file = path(state_dir);
        let cannot = |error: std::io::Error| {
            Fault::new(FaultKind::External, format!("{} cannot be written: {error}", file.display()))
        };
        std::fs::create_dir_all(state_dir).map_err(cannot)?;
        // Whole or not at all: another process may read at any time.
        let mut whole = tempfile::NamedTempFile::new_in(state_dir).map_err(cannot)?;
        serde_json::to_writer(&mut whole, self).map_err(|error| cannot(error.into()))?;
        whole.write_all(b"\n").map_err(cannot)?;
        whole.persist(&file).map_err(|error| cannot(error.error))?;
        Ok(())
    }

    /// What is left in the state folder; `None` where nothing (readable) is.
    #[must_use]
    pub fn read(state_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path(state_dir)).ok()?).ok()
    }

    pub(super) fn remove(state_dir: &Path) {
        // Left behind, it names an address where nobody answers, which whoever asks finds out.
        let _ = std::fs::remove_file(path(state_dir));
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("admin.json")
}
