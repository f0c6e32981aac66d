//! A file sink's output as a reader from outside sees it.
//!
//! Owns which files count as finished and how lines are sorted to be compared. Does not own what the lines must be.

use std::path::Path;

use serde_json::Value;

/// The lines of all finished files, in the order of the files' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Each line without its end.
    pub lines: Vec<String>,
}

impl Output {
    /// Reads the folder; one that does not exist is empty. Whatever is hidden is not finished.
    ///
    /// # Panics
    /// Where a file cannot be read or is not text.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut output = Self { lines: Vec::new() };
        output.collect(folder);
        output
    }

    /// Whether nothing is visible.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines as JSON.
    ///
    /// # Panics
    /// Where one is not JSON.
    pub fn records(&self) -> impl Iterator<Item = Value> {
        self.lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// The lines sorted by two fields, a key's name and its sequence number: what must be the same from run to run.
    ///
    /// # Panics
    /// Where a line is not JSON or has no such fields.
    #[must_use]
    pub fn sorted_by(&self, key: &str, sequence: &str) -> Vec<String> {
        let mut named: Vec<_> = self
            .records()
            .zip(&self.lines)
            .map(|(record, line)| (name(&record, key, sequence), line.clone()))
            .collect();
        named.sort();
        named.into_iter().map(|(_, line)| line).collect()
    }

    fn collect(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if path.is_dir() && !hidden {
                self.collect(&path);
            } else if !hidden {
                let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                self.lines.extend(text.lines().map(str::to_owned));
            }
        }
    }
}

fn name(record: &Value, key: &str, sequence: &str) -> (String, u64) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (record.get(key), record.get(sequence).and_then(Value::as_u64)) {
        (Some(key), Some(sequence)) => (text(key), sequence),
        _ => panic!("a record without `{key}` or `{sequence}`: {record}"),
    }
}
