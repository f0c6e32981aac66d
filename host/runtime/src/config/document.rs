//! The pipeline file as a tree whose every key and value knows its place.
//!
//! Owns TOML parsing, substitution and places. Does not know which keys exist.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Error, Place};
use super::substitute::{self, Environment, Secrets};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// `shown` is the text as written, where a reference was replaced in it.
    String {
        text: String,
        shown: Option<String>,
    },
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value, in the order of the file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) span: Range<usize>,
    pub(super) node: Node,
}

/// Where the keys of a pipeline file stand.
#[derive(Debug, Clone)]
pub(super) struct Places {
    file: Arc<Path>,
    known: BTreeMap<Vec<String>, (u32, u32)>,
}

/// A parsed pipeline file.
pub(super) struct Document {
    pub(super) root: Vec<Entry>,
    pub(super) secrets: Secrets,
    pub(super) lines: Lines,
}

/// Turns offsets into places.
pub(super) struct Lines {
    file: Arc<Path>,
    text: String,
}

impl Document {
    /// Parses `text`, which stands in `file`.
    pub(super) fn parse(file: &Path, text: &str, environment: Environment<'_>) -> Result<Self, Error> {
        let lines = Lines { file: Arc::from(file), text: text.to_owned() };
        let table = DeTable::parse(text).map_err(|error| syntax(&error, &lines))?;
        let base = file.parent().unwrap_or(Path::new(""));
        let mut reader = Reader { lines: &lines, base, environment, secrets: Secrets::default() };
        let root = reader.table(table.into_inner(), &mut Vec::new())?;
        let secrets = reader.secrets;
        Ok(Self { root, secrets, lines })
    }

    /// Where each key stands.
    pub(super) fn places(&self) -> Places {
        let mut known = BTreeMap::new();
        let mut path = Vec::new();
        note_table(&self.root, &self.lines, &mut path, &mut known);
        Places { file: self.lines.file.clone(), known }
    }
}

fn note_table(entries: &[Entry], lines: &Lines, path: &mut Vec<String>, known: &mut BTreeMap<Vec<String>, (u32, u32)>) {
    for entry in entries {
        path.push(entry.key.clone());
        note(&entry.node, entry.span.start, lines, path, known);
        path.pop();
    }
}

fn note(node: &Node, at: usize, lines: &Lines, path: &mut Vec<String>, known: &mut BTreeMap<Vec<String>, (u32, u32)>) {
    known.insert(path.clone(), lines.line_and_column(at));
    match &node.value {
        Value::Table(entries) => note_table(entries, lines, path, known),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                note(item, item.span.start, lines, path, known);
                path.pop();
            }
        }
        _ => {}
    }
}

impl Places {
    /// Where the key of that path stands, or else the innermost table around it that is there.
    pub(super) fn of(&self, path: &[&str]) -> Place {
        let mut path: Vec<String> = path.iter().map(|&part| part.to_owned()).collect();
        while !path.is_empty() {
            if let Some(&(line, column)) = self.known.get(&path) {
                return Place { file: self.file.clone(), line, column };
            }
            path.pop();
        }
        Place { file: self.file.clone(), line: 1, column: 1 }
    }
}

impl Places {
    /// Where input `index` of a node stands, or a key of it: inputs are an array, a table or a text.
    pub(super) fn of_input(&self, table: &str, uid: &str, index: usize, key: Option<&str>) -> Place {
        let index = index.to_string();
        let mut path = vec![table, uid, "input"];
        if self.known.contains_key(&[table, uid, "input", &index].map(str::to_owned)[..]) {
            path.push(&index);
        }
        path.extend(key);
        self.of(&path)
    }
}

impl Lines {
    /// The place of a byte offset.
    pub(super) fn place(&self, offset: usize) -> Place {
        let (line, column) = self.line_and_column(offset);
        Place { file: self.file.clone(), line, column }
    }

    fn line_and_column(&self, offset: usize) -> (u32, u32) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(before.matches('\n').count() + 1), count(before[line_start..].chars().count() + 1))
    }
}

fn syntax(error: &toml::de::Error, lines: &Lines) -> Error {
    let span = error.span().unwrap_or(0..0);
    let message = if error.message() == "duplicate key" {
        let key = lines.text.get(span.clone()).unwrap_or_default();
        format!("`{key}` stands here for the second time: a table holds a key once, and a uid names one node")
    } else {
        error.message().to_owned()
    };
    Error::Syntax { place: lines.place(span.start), message }
}

struct Reader<'a> {
    lines: &'a Lines,
    base: &'a Path,
    environment: Environment<'a>,
    secrets: Secrets,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>, path: &mut Vec<String>) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let span = key.span();
            let key = key.into_inner().into_owned();
            path.push(key.clone());
            let node = self.node(value, path)?;
            path.pop();
            entries.push(Entry { key, span, node });
        }
        entries.sort_by_key(|entry| entry.span.start);
        Ok(entries)
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, path: &mut Vec<String>) -> Result<Node, Error> {
        let span = value.span();
        let wrong =
            |message: String| Error::Value { place: self.lines.place(span.start), key: path.join("."), message };
        let value = match value.into_inner() {
            DeValue::String(text) => {
                let replaced = substitute::substitute(&text, self.base, self.environment, &mut self.secrets)
                    .map_err(|error| wrong(error.to_string()))?;
                match replaced {
                    Some(replaced) => Value::String { text: replaced, shown: Some(text.into_owned()) },
                    None => Value::String { text: text.into_owned(), shown: None },
                }
            }
            DeValue::Integer(number) => Value::Integer(
                i64::from_str_radix(number.as_str(), number.radix())
                    .map_err(|_| wrong("the number does not fit 64 bits".to_owned()))?,
            ),
            DeValue::Float(number) => {
                Value::Float(number.as_str().parse().map_err(|_| wrong("the number cannot be read".to_owned()))?)
            }
            DeValue::Boolean(flag) => Value::Boolean(flag),
            DeValue::Datetime(time) => Value::String { text: time.to_string(), shown: None },
            DeValue::Array(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    path.push(index.to_string());
                    nodes.push(self.node(item, path)?);
                    path.pop();
                }
                Value::Array(nodes)
            }
            DeValue::Table(table) => Value::Table(self.table(table, path)?),
        };
        Ok(Node { span, value })
    }
}
