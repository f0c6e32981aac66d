//! The lock on a job's state folder: one process at a time.
//!
//! Owns the file `LOCK`. The system releases it with the process, however that ends. Does not guard the checkpoint store: the
//! decision log does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use wasmill_core::fault::{Fault, FaultKind};

/// Held as long as the job lives.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock of `dir`, which is made where it is missing.
    ///
    /// # Errors
    /// Another process has it, or the folder cannot be written.
    pub(super) fn take(dir: &Path) -> Result<Self, Fault> {
        let unusable = |error: std::io::Error| {
            Fault::new(
                FaultKind::External,
                format_args!(
                    "the state folder {} cannot be used: {error}; set state.dir to one that can be written",
                    dir.display()
                ),
            )
        };
        std::fs::create_dir_all(dir).map_err(unusable)?;
        let path = dir.join("LOCK");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let who = if holder.is_empty() { "another process".to_owned() } else { format!("process {holder}") };
                return Err(Fault::new(
                    FaultKind::Refused,
                    format_args!(
                        "the state folder {} is in use by {who}: stop that job, or give this one a state.dir and job.name of its own",
                        dir.display()
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_on_a_state_folder_is_refused_and_the_folder_is_free_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateLock::take(dir.path()).unwrap();
        let fault = StateLock::take(dir.path()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.contains(&format!("process {}", std::process::id())), "{fault}");
        drop(held);
        StateLock::take(dir.path()).unwrap();
    }
}
