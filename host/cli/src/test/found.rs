//! Which test files a path stands for, and which component each is for.
//!
//! Owns the names of files. Reads the test files; loads no component.

use std::path::{Path, PathBuf};

use wasmill_core::fault::{Fault, FaultKind};
use wasmill_runtime::trial::{CaseFile, SUFFIX};

/// A test file and its component's file.
pub struct Found {
    pub file: CaseFile,
    pub component: PathBuf,
}

/// The test files for `path`: a component's own, the file itself, or all below a folder; with `cases`, those for the component
/// `path`.
///
/// # Errors
/// No file, no component, or a file that is wrong.
pub fn find(path: &Path, cases: Option<&Path>) -> Result<Vec<Found>, Fault> {
    let none = |reason: String| Err(Fault::new(FaultKind::User, format!("no case found: {reason}")));
    if !path.exists() {
        return Err(Fault::new(FaultKind::User, format!("{}: there is no such file or folder", path.display())));
    }
    if let Some(cases) = cases {
        if path.is_dir() || is_test(path) {
            let reason = "--cases names the test files, and PATH the component that they are for";
            return Err(Fault::new(FaultKind::User, format!("{}: {reason}", path.display())));
        }
        let files = if cases.is_dir() { below(cases)? } else { vec![cases.to_owned()] };
        if files.is_empty() {
            return none(format!("no file below {} ends in {SUFFIX}", cases.display()));
        }
        return files
            .iter()
            .map(|file| Ok(Found { file: CaseFile::read(file)?, component: path.to_owned() }))
            .collect();
    }
    if path.is_dir() {
        let files = below(path)?;
        if files.is_empty() {
            return none(format!("no file below {} ends in {SUFFIX}", path.display()));
        }
        return files.iter().map(|file| with_its_component(file)).collect();
    }
    if is_test(path) {
        return Ok(vec![with_its_component(path)?]);
    }
    let files = beside(path)?;
    if files.is_empty() {
        let first = path.with_extension(&SUFFIX[1..]);
        return none(format!("there is no {} beside {}", first.display(), path.display()));
    }
    files.iter().map(|file| Ok(Found { file: CaseFile::read(file)?, component: path.to_owned() })).collect()
}

fn is_test(path: &Path) -> bool {
    stem(path).is_some()
}

/// The name without the suffix; `None` of a file that has another.
fn stem(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(SUFFIX)
}

/// A test file with the component that it names, or that it is named after.
fn with_its_component(path: &Path) -> Result<Found, Fault> {
    let file = CaseFile::read(path)?;
    if let Some(component) = file.component() {
        return Ok(Found { file, component });
    }
    let stem = stem(path).unwrap_or_default();
    let parts = std::iter::successors(Some(stem), |name| name.rsplit_once('.').map(|(name, _)| name));
    let candidates: Vec<_> = parts.map(|name| path.with_file_name(format!("{name}.wasm"))).collect();
    match candidates.iter().find(|candidate| candidate.exists()) {
        Some(component) => Ok(Found { file, component: component.clone() }),
        None => {
            let names: Vec<_> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
            let names = names.join(" nor ");
            let way_out = "build it, or name another in the first line: {\"component\": \"path/to.wasm\"}";
            Err(Fault::new(
                FaultKind::User,
                format!("{}: its component is not there, {names}: {way_out}", path.display()),
            ))
        }
    }
}

/// The test files named after a component.
fn beside(component: &Path) -> Result<Vec<PathBuf>, Fault> {
    let name = component.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = component.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_its_own = |file: &PathBuf| {
        stem(file)
            .is_some_and(|stem| stem == name || stem.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')))
    };
    let entries = entries(folder)?;
    let paths = entries.iter().map(|entry| component.with_file_name(entry.file_name()));
    let mut files: Vec<_> = paths.filter(is_its_own).collect();
    files.sort();
    Ok(files)
}

/// All test files below a folder, but for hidden folders and links.
fn below(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder)? {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => folders.push(entry.path()),
                Ok(kind) if !kind.is_dir() && is_test(&entry.path()) => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<std::fs::DirEntry>, Fault> {
    let read = std::fs::read_dir(folder).and_then(Iterator::collect);
    read.map_err(|error| Fault::new(FaultKind::User, format!("{}: cannot be read: {error}", folder.display())))
}
