//! docs/pipeline.md, made from the tables' types: keys, types, defaults and texts stand in one place, the code.
//!
//! Owns the document's order and layout. Does not own what is said of a key: that is the key's own doc comment.

use std::fmt::Write;

use schemars::{JsonSchema, schema_for};
use serde_json::Value;

use super::operator::OperatorTable;
use super::sink::{FileSink, StdoutSink};
use super::source::{FileSource, GeneratorSource};
use super::table::{Admin, Checkpoint, Job, Restart, State};

/// A pipeline that uses the common keys; it stands at the top of the document.
pub const EXAMPLE: &str = include_str!("example.toml");

const HEAD: &str = "\
# The pipeline file

<!-- Made by `wasmill docs pipeline` from the doc comments in host/runtime/src/config; edit them there. -->

One TOML file declares a job; a table's name is the node's uid.

";

const RULES: &str = "
- Durations and sizes are texts with their unit: `\"500ms\"`, `\"1m30s\"` (`ns us ms s m h d`); `\"256MiB\"`, `\"1GB\"` (`B kB MB GB TB` by 1,000, `KiB MiB GiB TiB` by 1,024).
- Unknown keys are errors: the message names file, line and the nearest known key. `wasmill check PIPELINE` finds all that can be found without running.
- `${env:NAME}` and `${file:PATH}` in any text are replaced by the environment variable or the file's content (without its last line end). What they bring in is masked wherever the pipeline is shown or logged. `$${` stands for a plain `${`.
- Relative paths are relative to the pipeline file.
- A uid is 1 to 64 of the characters `a-z A-Z 0-9 _ - .`, beginning with a letter or digit, and unique among sources, operators and sinks.
";

/// The whole document.
#[must_use]
pub fn markdown() -> String {
    let mut page = Page { text: format!("{HEAD}```toml\n{EXAMPLE}```\n{RULES}"), rendered: Vec::new() };
    page.table::<Job>("## `[job]`");
    page.table::<Checkpoint>("## `[checkpoint]`");
    page.table::<State>("## `[state]`");
    page.table::<Restart>("## `[restart]`");
    page.table::<Admin>("## `[admin]`");
    page.text
        .push_str("\n## `[source.NAME]`\n\nWhere records come from; `connector` says what kind of source it is.\n");
    page.table::<FileSource>("### `connector = \"file\"`");
    page.table::<GeneratorSource>("### `connector = \"generator\"`");
    page.table::<OperatorTable>("## `[operator.NAME]`");
    page.text.push_str("\n## `[sink.NAME]`\n\nWhere records go; `connector` says what kind of sink it is.\n");
    page.table::<FileSink>("### `connector = \"file\"` (sink)");
    page.table::<StdoutSink>("### `connector = \"stdout\"`");
    page.text
}

struct Page {
    text: String,
    /// The nested tables that stand in the document already.
    rendered: Vec<String>,
}

impl Page {
    fn table<T: JsonSchema>(&mut self, heading: &str) {
        let schema = schema_for!(T).to_value();
        let definitions = schema.get("$defs").cloned().unwrap_or_default();
        let mut nested = Vec::new();
        self.section(heading, &schema, &definitions, &mut nested);
        let level = heading.chars().take_while(|&c| c == '#').count() + 1;
        let mut next = 0;
        while next < nested.len() {
            let name = nested[next].clone();
            next += 1;
            if self.rendered.contains(&name) {
                continue;
            }
            let heading = format!("{} {}", "#".repeat(level), nested_heading(&name));
            self.section(&heading, &definitions[&name], &definitions, &mut nested);
            self.rendered.push(name);
        }
    }

    fn section(&mut self, heading: &str, schema: &Value, definitions: &Value, nested: &mut Vec<String>) {
        let _ = write!(self.text, "\n{heading}\n\n{}\n", paragraphs(schema));
        self.text.push_str("\n| key | type | meaning |\n|---|---|---|\n");
        let mut choices = String::new();
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key));
            let required = if required { "**Required.** " } else { "" };
            let meaning = line(property).replace('|', "\\|");
            let _ = writeln!(self.text, "| `{key}` | {} | {required}{meaning} |", kind(property, definitions, nested));
            choices.push_str(&choices_of(key, property, definitions));
        }
        if !choices.is_empty() {
            let _ = write!(self.text, "\n{choices}");
        }
    }
}

fn nested_heading(name: &str) -> String {
    match name {
        "InputTable" => "Inputs".to_owned(),
        "Batch" => "Batches".to_owned(),
        "Limits" => "Limits".to_owned(),
        "OnLate" => "Late outputs".to_owned(),
        "Watermark" => "Watermarks".to_owned(),
        other => format!("`{}`", other.to_lowercase()),
    }
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// The description on one line.
fn line(schema: &Value) -> String {
    description(schema).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The description without the table's name before it, which is the heading's already.
fn paragraphs(schema: &Value) -> String {
    let text = description(schema);
    let text = match text.split_once("`: ") {
        Some((name, rest)) if name.starts_with('`') && !name[1..].contains('`') => capitalized(rest),
        _ => text.to_owned(),
    };
    let paragraphs = text.split("\n\n");
    paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n\n")
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The definition that a schema refers to, by name.
fn referred(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// The schema itself, or what it refers to, `null` as an alternative set aside.
fn resolved<'a>(schema: &'a Value, definitions: &'a Value) -> &'a Value {
    if let Some(name) = referred(schema) {
        return &definitions[name];
    }
    let others = || schema["anyOf"].as_array().into_iter().flatten().filter(|other| other["type"] != "null");
    match (others().next(), others().count()) {
        (Some(only), 1) => resolved(only, definitions),
        _ => schema,
    }
}

/// The type in a word or two. Tables that are referred to are noted in `nested`.
fn kind(schema: &Value, definitions: &Value, nested: &mut Vec<String>) -> String {
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let mut kinds: Vec<String> = Vec::new();
        for alternative in alternatives.iter().filter(|alternative| alternative["type"] != "null") {
            let kind = kind(alternative, definitions, nested);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        return kinds.join(" or ");
    }
    let schema = match referred(schema) {
        Some(name) => {
            let definition = &definitions[name];
            if definition["properties"].is_object() {
                nested.push(name.to_owned());
            }
            definition
        }
        None => schema,
    };
    if !choices(schema).is_empty() {
        return choices(schema).iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    }
    let name = match &schema["type"] {
        Value::Array(names) => names.iter().find_map(|name| name.as_str().filter(|name| *name != "null")),
        name => name.as_str(),
    };
    match (name, schema["format"].as_str()) {
        (_, Some("duration")) => "duration".to_owned(),
        (_, Some("size")) => "size".to_owned(),
        (Some("string"), _) => "text".to_owned(),
        (Some("integer"), _) => "whole number".to_owned(),
        (Some("number"), _) => "number".to_owned(),
        (Some("boolean"), _) => "`true`, `false`".to_owned(),
        (Some("array"), _) => format!("array of {}", kind(&schema["items"], definitions, nested)),
        _ => "table".to_owned(),
    }
}

/// The names that a schema allows, each with what it means.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let documented = schema["oneOf"].as_array().into_iter().flatten();
    let plain = schema["enum"].as_array().into_iter().flatten();
    documented
        .filter_map(|choice| Some((choice["const"].as_str()?.to_owned(), line(choice))))
        .chain(plain.filter_map(|name| Some((name.as_str()?.to_owned(), String::new()))))
        .collect()
}

/// What the names that a key allows mean, as a list; nothing where there is but one.
fn choices_of(key: &str, schema: &Value, definitions: &Value) -> String {
    let choices = choices(resolved(schema, definitions));
    if choices.len() < 2 || choices.iter().any(|(_, meaning)| meaning.is_empty()) {
        return String::new();
    }
    let mut list = String::new();
    for (name, meaning) in choices {
        let _ = writeln!(list, "- `{key} = \"{name}\"`: {meaning}");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_the_types_say() {
        let committed = include_str!("../../../../docs/pipeline.md");
        assert!(committed == markdown(), "docs/pipeline.md is not up to date: wasmill docs pipeline >docs/pipeline.md");
    }

    /// Every default of a type, as the document shows it, with the key's text.
    fn defaults<T: JsonSchema>(found: &mut Vec<(String, Value, String)>) {
        let schema = schema_for!(T).to_value();
        let definitions = schema["$defs"].as_object().into_iter().flatten().map(|(_, definition)| definition);
        for schema in definitions.chain([&schema]) {
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default") {
                    found.push((key.clone(), default.clone(), line(property)));
                }
            }
        }
    }

    #[test]
    fn defaults_in_the_text_are_those_of_the_code() {
        let mut found = Vec::new();
        defaults::<Job>(&mut found);
        defaults::<Checkpoint>(&mut found);
        defaults::<State>(&mut found);
        defaults::<Restart>(&mut found);
        defaults::<Admin>(&mut found);
        defaults::<FileSource>(&mut found);
        defaults::<GeneratorSource>(&mut found);
        defaults::<OperatorTable>(&mut found);
        defaults::<FileSink>(&mut found);
        defaults::<StdoutSink>(&mut found);
        assert!(found.len() > 20);
        for (key, default, text) in found {
            let expected = match &default {
                Value::String(newline) if newline == "\n" => "a newline".to_owned(),
                Value::String(text) => format!("`{text}`"),
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Array(items) if items.is_empty() => "none".to_owned(),
                _ => continue,
            };
            let said = text.replace(&format!("Default: `{default}`"), &format!("Default: {default}"));
            assert!(
                said.contains(&format!("Default: {expected}")),
                "`{key}` is {default} by default; its text: {text}"
            );
        }
    }
}
