//! One part file of a file sink: written where nobody looks, then moved to where it is seen.
//!
//! Owns names, checksums and durability (file, then folder). Does not own when a part may be seen.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use wasmill_core::id::{Attempt, CheckpointId, JobId, OperatorUid, SubtaskIndex};
use xxhash_rust::xxh3::Xxh3Default;

/// Where parts lie until they are committed, within the sink's folder.
pub const HIDDEN: &str = ".pending";
/// Bytes held before they are written to the file.
const BUFFER: usize = 1 << 18;

/// Why a part cannot be written or made visible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: String,
        /// Its word.
        error: io::Error,
    },
    /// A prepared part is nowhere.
    #[error(
        "the part `{visible}` was prepared and is lost: neither it nor `{hidden}` is there; put it back (it has {bytes} bytes), or start with --fresh"
    )]
    Lost {
        /// Where it should be seen.
        visible: String,
        /// Where it was written.
        hidden: String,
        /// Its length.
        bytes: u64,
    },
    /// A prepared part is not what was written.
    #[error(
        "`{path}` is not what was written for its checkpoint (length or checksum differ): put the right file back, or start with --fresh"
    )]
    Changed {
        /// The file.
        path: String,
    },
}

/// Puts the path to an error of the system.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::Io { path, error }
}

/// A part that is durable and not yet visible; stored in the checkpoint's manifest. Names are relative to the sink's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The checkpoint that it belongs to.
    pub checkpoint: CheckpointId,
    /// Where it was written: a name in the sink's hidden folder.
    pub hidden: String,
    /// Where it will be seen.
    pub visible: String,
    /// Its length.
    pub bytes: u64,
    /// XXH3-64 of its bytes, in 16 hexadecimal digits.
    pub checksum: String,
}

/// The folders of one sink.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Where parts are seen.
    pub visible: PathBuf,
    /// Where this sink writes them.
    pub hidden: PathBuf,
    /// What the names of visible parts begin with: job and uid.
    stem: String,
    /// Hidden parts bear it, so that no attempt removes a later one's.
    attempt: Attempt,
}

/// A part being written.
pub struct Part {
    file: NamedTempFile,
    pub buffer: Vec<u8>,
    checksum: Xxh3Default,
    bytes: u64,
}

impl Folders {
    /// The folders of the sink `uid` that writes to `path`.
    #[must_use]
    pub fn new(path: &Path, uid: &OperatorUid) -> Self {
        let hidden = path.join(HIDDEN).join(uid.as_str());
        Self { visible: path.to_owned(), hidden, stem: uid.to_string(), attempt: Attempt(0) }
    }

    /// The folders as an attempt of a job uses them: jobs that write to one folder do not meet.
    #[must_use]
    pub fn of_attempt(&self, job: &JobId, uid: &OperatorUid, attempt: Attempt) -> Self {
        let hidden = self.visible.join(HIDDEN).join(job.as_str()).join(uid.as_str());
        Self { visible: self.visible.clone(), hidden, stem: format!("{job}-{uid}"), attempt }
    }

    /// Makes them where they are missing.
    pub fn make(&self) -> Result<(), Error> {
        if self.hidden.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.hidden).map_err(at(&self.hidden))?;
        let mut above = self.hidden.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.visible));
        above.try_for_each(sync_folder)
    }

    /// Whether the folder, or the one it would be made in, can be written to. Leaves nothing behind.
    pub fn check(&self) -> Result<(), Error> {
        let there = self.visible.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
        tempfile::Builder::new().prefix(".check-").tempfile_in(there).map_err(at(there))?;
        Ok(())
    }

    /// The name of a part; one that an earlier lineage of the job took gets a number behind it.
    fn free_name(&self, checkpoint: CheckpointId, subtask: SubtaskIndex, extension: &str) -> String {
        let stem = format!("{}-{:010}-{:04}", self.stem, checkpoint.0, subtask.0);
        let mut name = format!("{stem}.{extension}");
        let mut number = 1;
        while self.visible.join(&name).exists() {
            number += 1;
            name = format!("{stem}-{number}.{extension}");
        }
        name
    }

    /// Makes a prepared part visible. Repeating it is harmless. The folder is not yet synced.
    ///
    /// # Errors
    /// A part that is lost or changed, or the system's.
    pub fn commit(&self, part: &Prepared) -> Result<(), Error> {
        let (hidden, visible) = (self.hidden.join(&part.hidden), self.visible.join(&part.visible));
        if visible.exists() {
            part.verify(&visible)?;
            return remove(&hidden);
        }
        if !hidden.exists() {
            return Err(Error::Lost {
                visible: visible.display().to_string(),
                hidden: hidden.display().to_string(),
                bytes: part.bytes,
            });
        }
        fs::rename(&hidden, &visible).map_err(at(&visible))
    }

    /// Like [`Folders::commit`], and checks first that the part is what was written: after a restart, when another process wrote it.
    pub fn commit_checked(&self, part: &Prepared) -> Result<(), Error> {
        let hidden = self.hidden.join(&part.hidden);
        if hidden.exists() {
            part.verify(&hidden)?;
        }
        self.commit(part)
    }

    /// Makes what was renamed durable.
    pub fn sync(&self) -> Result<(), Error> {
        sync_folder(&self.visible)
    }

    /// Removes the hidden parts of this attempt and those before it: their checkpoints were not decided. A later attempt's stay:
    /// this one may have been overtaken without knowing it yet.
    pub fn remove_leftovers(&self) -> Result<(), Error> {
        let entries = match fs::read_dir(&self.hidden) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at(&self.hidden)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(at(&self.hidden))?;
            let name = entry.file_name();
            let attempt =
                name.to_str().and_then(|name| name.split_once('-')).and_then(|(attempt, _)| attempt.parse().ok());
            // `<=`: of its own it has none yet, but for one that died at this number.
            if attempt.is_none_or(|attempt: u64| attempt <= self.attempt.0) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// How many parts of this sink are visible.
    pub fn visible_parts(&self) -> usize {
        let prefix = format!("{}-", self.stem);
        let is_part = |name: &str| {
            name.strip_prefix(&prefix)
                .is_some_and(|rest| rest.len() > 15 && rest.bytes().take(10).all(|byte| byte.is_ascii_digit()))
        };
        let entries = fs::read_dir(&self.visible).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_part)).count()
    }
}

impl Part {
    /// Begins a part under a name that no other attempt has.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(folders: &Folders, subtask: SubtaskIndex) -> Result<Self, Error> {
        let prefix = format!("{:08}-{:04}-", folders.attempt.0, subtask.0);
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            .rand_bytes(12)
            .permissions(permissions())
            .tempfile_in(&folders.hidden)
            .map_err(at(&folders.hidden))?;
        Ok(Self { file, buffer: Vec::with_capacity(BUFFER + (BUFFER >> 3)), checksum: Xxh3Default::new(), bytes: 0 })
    }

    /// Writes the buffer out where it is long enough.
    pub fn write_if_full(&mut self) -> Result<(), Error> {
        if self.buffer.len() < BUFFER { Ok(()) } else { self.write_out() }
    }

    fn write_out(&mut self) -> Result<(), Error> {
        self.file.write_all(&self.buffer).map_err(at(self.file.path()))?;
        self.checksum.update(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the part: its bytes are durable. The hidden folder is not yet synced.
    ///
    /// # Errors
    /// The system's.
    pub fn prepare(
        mut self,
        folders: &Folders,
        checkpoint: CheckpointId,
        subtask: SubtaskIndex,
        extension: &str,
    ) -> Result<Prepared, Error> {
        self.write_out()?;
        self.file.as_file().sync_all().map_err(at(self.file.path()))?;
        let (_, path) = self.file.keep().map_err(|error| at(error.file.path())(error.error))?;
        let hidden = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Prepared {
            checkpoint,
            hidden,
            visible: folders.free_name(checkpoint, subtask, extension),
            bytes: self.bytes,
            checksum: format!("{:016x}", self.checksum.digest()),
        })
    }
}

impl Prepared {
    /// Whether the file is what was written.
    fn verify(&self, path: &Path) -> Result<(), Error> {
        let mut file = File::open(path).map_err(at(path))?;
        let mut checksum = Xxh3Default::new();
        let mut bytes = 0;
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = file.read(&mut buffer).map_err(at(path))?;
            if read == 0 {
                break;
            }
            checksum.update(&buffer[..read]);
            bytes += read as u64;
        }
        if bytes == self.bytes && format!("{:016x}", checksum.digest()) == self.checksum {
            Ok(())
        } else {
            Err(Error::Changed { path: path.display().to_string() })
        }
    }
}

/// Readable as other files are: the temporary file of tempfile is its owner's alone.
fn permissions() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
pub fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(at(path))
}
