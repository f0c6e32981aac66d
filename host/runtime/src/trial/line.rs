//! One line of a test file: a step, an expectation or a setting.
//!
//! Owns the words of a line and what is said of a wrong one. Does not own the order of lines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::time::Timestamp;
use wasmill_core::timer::Domain;

use super::value::{self, Bytes, Headers};
use crate::config;
use crate::config::input::KeySpec;
use crate::config::operator::Limits;
use crate::config::unit;
use crate::config::{Grant, Wasi};

/// Why a test file cannot be used: its place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("{}: the test file cannot be {verb}: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// `read` or `written`.
        verb: &'static str,
        /// The system's word.
        reason: String,
    },
    /// A line that is wrong.
    #[error("{}:{line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl Error {
    pub(super) fn line(file: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::Line { file: file.to_owned(), line, reason: reason.into() }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(FaultKind::User, error)
    }
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    Component(PathBuf),
    Grants(Vec<Grant>),
    Wasi(Wasi),
    Case(Settings),
    Act(Act),
    Expected(What),
}

/// What a case begins with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub name: String,
    pub config: Map<String, Value>,
    pub limits: Limits,
    /// Where records without a `key` of their own have it.
    pub key_from: Option<KeySpec>,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    Record(Record),
    Watermark {
        time: Timestamp,
        /// `None`: every input.
        input: Option<String>,
    },
    /// The clock is moved to a time.
    Clock(Timestamp),
    /// The clock is moved on.
    Advance(Duration),
    /// The input ends.
    End,
}

/// A record that comes in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub input: Option<String>,
    /// As written, for showing it again; `None`: by the case's `key-from`, or none.
    pub key: Option<(Value, Bytes)>,
    /// `None`: the clock's.
    pub time: Option<Timestamp>,
    pub value: Bytes,
    pub headers: Headers,
}

/// What should come of a step. A field that is left out is not compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    Emit { value: Bytes, output: Option<String>, key: Option<Bytes>, time: Option<Timestamp>, headers: Option<Headers> },
    DeadLetter { kind: String, message: Option<String>, key: Option<Bytes>, time: Option<Timestamp> },
    Timers(Vec<Timer>),
    Fails(String),
}

/// A timer that is left at the end of a case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub time: Timestamp,
    pub key: Vec<u8>,
    pub tag: u32,
    pub domain: Domain,
}

/// What a line may begin with, and its other fields.
const WORDS: [(&str, &[&str]); 14] = [
    ("case", &["config", "limits", "key-from"]),
    ("record", &["key", "time", "headers", "input", "as"]),
    ("watermark", &["input"]),
    ("clock", &[]),
    ("advance", &[]),
    ("end", &[]),
    ("emit", &["output", "key", "time", "headers", "as"]),
    ("dead-letter", &["message", "key", "time"]),
    ("timers", &[]),
    ("fails", &[]),
    ("component", &[]),
    ("grants", &[]),
    ("wasi", &[]),
    ("timer", &["key", "tag", "domain"]),
];

/// `timer` stands within `timers` alone.
const LINES: usize = WORDS.len() - 1;

/// Reads a line; `None` of a blank one or a comment.
///
/// # Errors
/// The reason, without the place.
pub(super) fn read(text: &str) -> Result<Option<Line>, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') || text.starts_with("//") {
        return Ok(None);
    }
    let parsed: Value = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let place = format!(" at line 1 column {}", error.column());
        format!("not JSON: {} (column {})", message.trim_end_matches(&place), error.column())
    })?;
    let Value::Object(fields) = parsed else {
        return Err(format!("a line is a JSON object such as {{\"record\": …}}, a comment (#) or blank, not {parsed}"));
    };
    let word = word(&fields, &WORDS[..LINES])?;
    let main = &fields[word];
    let line = match word {
        "component" => Line::Component(PathBuf::from(text_of(main, word)?)),
        "grants" => Line::Grants(grants(main)?),
        "wasi" => {
            let wasi = serde_json::from_value(main.clone());
            Line::Wasi(wasi.map_err(|_| format!("`wasi` is \"refuse\" or \"deny\", not {main}"))?)
        }
        "case" => Line::Case(settings(main, &fields)?),
        "emit" | "dead-letter" | "timers" | "fails" => Line::Expected(expected(word, main, &fields)?),
        _ => Line::Act(act(word, main, &fields)?),
    };
    Ok(Some(line))
}

/// The word that the line begins with, its other fields checked.
fn word(fields: &Map<String, Value>, words: &[(&'static str, &[&str])]) -> Result<&'static str, String> {
    let mut found = words.iter().filter(|(word, _)| fields.contains_key(*word));
    let list = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let Some((word, others)) = found.next() else {
        let first = fields.keys().next().map(String::as_str).unwrap_or_default();
        let nearest = config::nearest(first, words.iter().map(|(word, _)| *word));
        let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
        return Err(format!("`{first}` is nothing that a line can say{hint}; it says one of: {}", list()));
    };
    if let Some((second, _)) = found.next() {
        return Err(format!("a line says one thing, and this one says `{word}` and `{second}`"));
    }
    match fields.keys().find(|field| *field != word && !others.contains(&field.as_str())) {
        None => Ok(word),
        Some(unknown) => {
            let nearest = config::nearest(unknown, others.iter().copied());
            let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
            let known = if others.is_empty() { "nothing".to_owned() } else { others.join(", ") };
            Err(format!("`{unknown}` does not go with `{word}`{hint}; what does: {known}"))
        }
    }
}

fn settings(main: &Value, fields: &Map<String, Value>) -> Result<Settings, String> {
    let name = text_of(main, "case")?;
    if name.trim().is_empty() {
        return Err("a case has a name, by which `--filter` finds it".to_owned());
    }
    let config = match fields.get("config") {
        None => Map::new(),
        Some(Value::Object(config)) => config.clone(),
        Some(other) => return Err(format!("`config` is an object, as the table in a pipeline file, not {other}")),
    };
    let limits = match fields.get("limits") {
        None => Limits::default(),
        Some(limits) => serde_json::from_value(limits.clone()).map_err(|error| format!("`limits`: {error}"))?,
    };
    let key_from = fields.get("key-from").map(|key| KeySpec::parse(text_of(key, "key-from")?)).transpose()?;
    Ok(Settings { name: name.to_owned(), config, limits, key_from })
}

fn grants(main: &Value) -> Result<Vec<Grant>, String> {
    serde_json::from_value(main.clone()).map_err(|_| {
        let names = Grant::ALL.map(|grant| format!("\"{}\"", grant.name()));
        format!("`grants` is an array of {}, not {main}", names.join(" and "))
    })
}

fn act(word: &str, main: &Value, fields: &Map<String, Value>) -> Result<Act, String> {
    let input = || fields.get("input").map(|input| text_of(input, "input").map(str::to_owned)).transpose();
    Ok(match word {
        "record" => Act::Record(Record {
            input: input()?,
            key: fields.get("key").map(|key| Ok::<_, String>((key.clone(), value::key(key)?))).transpose()?,
            time: fields.get("time").map(value::time).transpose()?,
            value: value::value(main, form(fields)?)?,
            headers: fields.get("headers").map(value::headers).transpose()?.unwrap_or_default(),
        }),
        "watermark" => Act::Watermark { time: value::time(main)?, input: input()? },
        "clock" => Act::Clock(value::time(main)?),
        "advance" => {
            let by: unit::Duration = text_of(main, word)?.parse().map_err(|error: unit::Error| error.to_string())?;
            Act::Advance(by.get())
        }
        _ if *main == Value::Bool(true) => Act::End,
        _ => return Err("the end of the input is written {\"end\": true}".to_owned()),
    })
}

fn expected(word: &str, main: &Value, fields: &Map<String, Value>) -> Result<What, String> {
    let key = fields.get("key").map(value::key).transpose()?;
    let time = fields.get("time").map(value::time).transpose()?;
    let text = |field: &str| fields.get(field).map(|text| text_of(text, field).map(str::to_owned)).transpose();
    Ok(match word {
        "emit" => {
            let headers = fields.get("headers").map(value::headers).transpose()?;
            What::Emit { value: value::value(main, form(fields)?)?, output: text("output")?, key, time, headers }
        }
        "dead-letter" => {
            What::DeadLetter { kind: text_of(main, word)?.to_owned(), message: text("message")?, key, time }
        }
        "timers" => match main {
            Value::Array(timers) => What::Timers(timers.iter().map(timer).collect::<Result<_, _>>()?),
            other => return Err(format!("`timers` is an array of {{\"timer\": TIME, \"key\": …}}, not {other}")),
        },
        _ => What::Fails(text_of(main, word)?.to_owned()),
    })
}

fn timer(written: &Value) -> Result<Timer, String> {
    let Value::Object(fields) = written else {
        return Err(format!("a timer is written {{\"timer\": TIME, \"key\": …}}, not {written}"));
    };
    let word = word(fields, &WORDS[LINES..])?;
    let key = fields.get("key").map(value::key).transpose()?.flatten();
    let tag = match fields.get("tag") {
        None => Some(0),
        Some(tag) => tag.as_u64().and_then(|tag| u32::try_from(tag).ok()),
    };
    let domain = match fields.get("domain").map(Value::as_str) {
        None | Some(Some("event")) => Domain::Event,
        Some(Some("processing")) => Domain::Processing,
        _ => return Err("a timer's `domain` is \"event\" or \"processing\"".to_owned()),
    };
    Ok(Timer {
        time: value::time(&fields[word])?,
        key: key.ok_or("a timer has a key")?,
        tag: tag.ok_or("a timer's `tag` is a whole number of 32 bits")?,
        domain,
    })
}

fn form(fields: &Map<String, Value>) -> Result<Option<&str>, String> {
    fields.get("as").map(|form| text_of(form, "as")).transpose()
}

fn text_of<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("`{field}` is text, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read(text).expect_err(text)
    }

    #[test]
    fn blank_lines_and_comments_say_nothing() {
        for text in ["", "  ", "# a comment", "  // another"] {
            assert_eq!(read(text), Ok(None));
        }
    }

    #[test]
    fn a_wrong_line_is_told_what_would_be_right() {
        for (text, says) in [
            ("{\"record\": {}", "not JSON: EOF while parsing an object (column 13)"),
            ("[1]", "a line is a JSON object"),
            ("{\"recrod\": {}}", "`recrod` is nothing that a line can say; did you mean `record`?"),
            ("{\"timer\": 5, \"key\": \"a\"}", "did you mean `timers`?"),
            ("{\"record\": {}, \"emit\": {}}", "this one says `record` and `emit`"),
            ("{\"record\": {}, \"tiem\": 5}", "`tiem` does not go with `record`; did you mean `time`?"),
            ("{\"clock\": 5, \"key\": 5}", "`key` does not go with `clock`; what does: nothing"),
            ("{\"record\": {}, \"time\": \"noon\"}", "\"noon\" is no time"),
            ("{\"record\": 5, \"as\": \"hex\"}", "5 is no text"),
            ("{\"record\": \"5\", \"as\": \"hex\"}", "`5` is no hexadecimal text"),
            ("{\"record\": \"5\", \"as\": \"yaml\"}", "\"as\": \"yaml\" is none of"),
            ("{\"record\": 5, \"as\": \"absent\"}", "written null"),
            ("{\"advance\": \"5\"}", "`5` is not a duration with its unit"),
            ("{\"end\": false}", "{\"end\": true}"),
            ("{\"case\": \" \"}", "a case has a name"),
            ("{\"case\": \"a\", \"limits\": {\"memroy\": \"1MiB\"}}", "`limits`: unknown field `memroy`"),
            ("{\"case\": \"a\", \"key-from\": \"/~\"}", "no JSON pointer"),
            ("{\"timers\": {}}", "`timers` is an array"),
            ("{\"timers\": [{\"timer\": 5}]}", "a timer has a key"),
            ("{\"timers\": [{\"timer\": 5, \"key\": \"a\", \"tag\": -1}]}", "whole number of 32 bits"),
            ("{\"fails\": 5}", "`fails` is text"),
            ("{\"grants\": [\"clok\"]}", "`grants` is an array of \"clock\" and \"random\", not [\"clok\"]"),
            ("{\"wasi\": \"allow\"}", "`wasi` is \"refuse\" or \"deny\", not \"allow\""),
            ("{\"record\": 1, \"headers\": \"a\"}", "\"a\" is nothing that headers are written as"),
            ("{\"emit\": 1, \"headers\": {\"a\": 1}}", "1 is neither text nor {\"hex\": \"00ff\"}"),
            ("{\"emit\": 1, \"headers\": [[\"a\"]]}", "[\"a\"] is no header"),
        ] {
            assert!(error(text).contains(says), "{text}: {}", error(text));
        }
    }
}
