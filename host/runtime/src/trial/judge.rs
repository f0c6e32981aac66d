//! How what came of a case differs from what it expects, and the runs from one another.
//!
//! Owns what must be equal: of each output the records of a key in their order, step by step; across keys there is no order. With
//! larger batches, not step by step but between two watermarks or steps of the clock.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use wasmill_core::timer::Domain;

use super::drive::{Failed, Ran, Runs, Seen};
use super::file::{Case, Expected};
use super::line::{Timer, What};
use super::value;
use crate::telemetry::DropReason;

/// One place where a case did not come out as it should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Difference {
    /// The line of the step in the test file, counted from 1.
    pub line: usize,
    /// What differs there.
    pub what: String,
    /// What should have come, as the file writes it, with its line where it stands in the file.
    pub expected: Vec<(Option<usize>, String)>,
    /// What came instead, as the file would write it.
    pub found: Vec<String>,
}

/// All differences, in the order of the file; those between the runs come last.
pub(super) fn judge(case: &Case, runs: &Runs) -> Vec<Difference> {
    let mut differences = of_steps(case, runs);
    differences.extend(of_timers(case, runs));
    differences.extend(of_failure(case, runs));
    differences.sort_by_key(|difference| difference.line);
    for (manner, other) in &runs.others {
        differences.extend(between(case, runs, manner, other));
    }
    differences
}

fn of_steps(case: &Case, runs: &Runs) -> Vec<Difference> {
    let mut differences = Vec::new();
    for steps in 0..=case.steps.len() {
        let mut seen: Vec<_> = runs.stepwise.seen.iter().filter(|seen| seen.steps == steps).map(Some).collect();
        let expected = case.expected.iter().filter(|expected| expected.steps == steps);
        // By output and key: the place behind the record that was matched last.
        let mut behind: BTreeMap<(usize, Option<&[u8]>), usize> = BTreeMap::new();
        let mut missing = Vec::new();
        for expected in expected.filter(|expected| matches!(expected.what, What::Emit { .. } | What::DeadLetter { .. }))
        {
            let found = (0..seen.len()).find(|&at| seen[at].is_some_and(|seen| is_meant(expected, seen, runs)));
            let in_order = found.filter(|&at| {
                let lane = seen[at].map(|seen| (seen.output, seen.key.as_deref())).unwrap_or_default();
                let place = behind.entry(lane).or_default();
                let in_order = at >= *place;
                *place = at + 1;
                in_order
            });
            match in_order {
                Some(at) => seen[at] = None,
                None => missing.push((Some(expected.line), expected.text.clone())),
            }
        }
        let found: Vec<_> = seen.into_iter().flatten().map(|seen| runs.line(seen)).collect();
        if !missing.is_empty() || !found.is_empty() {
            let line = case.line_of(steps);
            differences.push(Difference { line, what: "what comes of this step".to_owned(), expected: missing, found });
        }
    }
    differences
}

/// Whether a record that came is the expected one, as far as the expectation says.
fn is_meant(expected: &Expected, seen: &Seen, runs: &Runs) -> bool {
    let same_place = |key: &Option<value::Bytes>, time: &Option<wasmill_core::time::Timestamp>| {
        key.as_ref().is_none_or(|key| *key == seen.key) && time.is_none_or(|time| time == seen.time)
    };
    match &expected.what {
        What::Emit { value, output, key, time, headers } => {
            let name = output.as_ref().or(runs.outputs.first());
            runs.outputs.get(seen.output) == name
                && same_place(key, time)
                && headers.as_ref().is_none_or(|headers| *headers == seen.headers)
                && value::same_value(value.as_deref(), seen.value.as_deref())
        }
        What::DeadLetter { kind, message, key, time } => {
            let letter = seen.value.as_deref().and_then(value::decoded).unwrap_or_default();
            seen.output == runs.outputs.len()
                && same_place(key, time)
                && letter["kind"] == **kind
                && message.as_ref().is_none_or(|part| {
                    letter["message"].as_str().is_some_and(|message| message.contains(part.as_str()))
                })
        }
        What::Timers(_) | What::Fails(_) => false,
    }
}

fn of_timers(case: &Case, runs: &Runs) -> Option<Difference> {
    let (line, text, mut timers) = case.expected.iter().find_map(|expected| match &expected.what {
        What::Timers(timers) => Some((expected.line, &expected.text, timers.clone())),
        _ => None,
    })?;
    timers.sort();
    (timers != runs.stepwise.timers && runs.stepwise.failed.is_none()).then(|| Difference {
        line: case.line_of(case.steps.len()),
        what: "the timers that are left".to_owned(),
        expected: vec![(Some(line), text.clone())],
        found: vec![runs.timers_line()],
    })
}

fn of_failure(case: &Case, runs: &Runs) -> Option<Difference> {
    let fails = case.expected.iter().find_map(|expected| match &expected.what {
        What::Fails(part) => Some((expected, part)),
        _ => None,
    });
    let what = "how it ends".to_owned();
    match (fails, &runs.stepwise.failed) {
        (None, None) => None,
        (Some((expected, part)), Some(failed)) if is_expected(expected.steps, part, failed) => None,
        (fails, failed) => Some(Difference {
            line: case.line_of(failed.as_ref().map_or(case.steps.len(), |failed| failed.steps)),
            what,
            expected: fails.into_iter().map(|(expected, _)| (Some(expected.line), expected.text.clone())).collect(),
            found: failed.as_ref().map(fails_line).into_iter().collect(),
        }),
    }
}

fn is_expected(steps: usize, part: &str, failed: &Failed) -> bool {
    steps == failed.steps && failed.message.contains(part)
}

/// How another run differs from the one step by step.
fn between(case: &Case, runs: &Runs, manner: &str, other: &Ran) -> Vec<Difference> {
    let base = &runs.stepwise;
    let differ = |steps, expected: Vec<String>, found| Difference {
        line: case.line_of(steps),
        what: format!("{manner}, other than record by record"),
        expected: expected.into_iter().map(|line| (None, line)).collect(),
        found,
    };
    match (&base.failed, &other.failed) {
        // What a larger batch had done before it failed is undone with it.
        (Some(_), Some(_)) => return Vec::new(),
        (Some(failed), None) => return vec![differ(failed.steps, vec![fails_line(failed)], Vec::new())],
        (None, Some(failed)) => return vec![differ(failed.steps, Vec::new(), vec![fails_line(failed)])],
        (None, None) => {}
    }
    let (lanes, mut others) = (lanes(runs, base), lanes(runs, other));
    let mut differences = Vec::new();
    for (lane, seen) in lanes {
        let theirs = others.remove(&lane).unwrap_or_default();
        if !seen.iter().map(|(_, line)| line).eq(theirs.iter().map(|(_, line)| line)) {
            let lines = |seen: Vec<(usize, String)>| seen.into_iter().map(|(_, line)| line).collect::<Vec<_>>();
            differences.push(differ(seen[0].0, lines(seen), lines(theirs)));
        }
    }
    for theirs in others.into_values() {
        let steps = theirs.first().map_or(0, |(steps, _)| *steps);
        differences.push(differ(steps, Vec::new(), theirs.into_iter().map(|(_, line)| line).collect()));
    }
    if base.timers != other.timers {
        differences.push(differ(case.steps.len(), vec![runs.timers_line()], vec![runs.line_of_timers(&other.timers)]));
    }
    differences.sort_by_key(|difference| difference.line);
    differences
}

/// By output, span and key: the records in order, as lines, with the steps done when they came.
type Lanes<'a> = BTreeMap<(usize, (usize, usize), Option<&'a [u8]>), Vec<(usize, String)>>;

fn lanes<'a>(runs: &Runs, ran: &'a Ran) -> Lanes<'a> {
    let mut lanes = Lanes::new();
    for seen in &ran.seen {
        let lane = lanes.entry((seen.output, seen.span, seen.key.as_deref())).or_default();
        lane.push((seen.steps, runs.line(seen)));
    }
    lanes
}

impl Runs {
    /// A record that came, as the file would write it.
    pub(super) fn line(&self, seen: &Seen) -> String {
        let mut line = Map::new();
        if seen.output == self.outputs.len() {
            let letter = seen.value.as_deref().and_then(value::decoded).unwrap_or_default();
            line.insert("dead-letter".to_owned(), letter["kind"].clone());
            // What a guest says of a record is its own; the message of a crash is the engine's and holds addresses.
            if letter["kind"] == DropReason::Rejected.as_str() {
                line.insert("message".to_owned(), letter["message"].clone());
            }
        } else {
            let (value, form) = value::show_value(seen.value.as_deref());
            line.insert("emit".to_owned(), value);
            if let Some(form) = form {
                line.insert("as".to_owned(), json!(form));
            }
            if seen.output > 0 {
                line.insert("output".to_owned(), json!(self.outputs[seen.output]));
            }
        }
        line.insert("key".to_owned(), value::show_key(seen.key.as_deref(), &self.keys));
        line.insert("time".to_owned(), json!(seen.time));
        if !seen.headers.is_empty() {
            line.insert("headers".to_owned(), value::show_headers(&seen.headers));
        }
        written(&Value::Object(line))
    }

    /// The timers that were left, as the file would write them.
    pub(super) fn timers_line(&self) -> String {
        self.line_of_timers(&self.stepwise.timers)
    }

    fn line_of_timers(&self, timers: &[Timer]) -> String {
        let timers = timers.iter().map(|timer| {
            let mut line = json!({ "timer": timer.time, "key": value::show_key(Some(&timer.key), &self.keys) });
            if timer.tag != 0 {
                line["tag"] = json!(timer.tag);
            }
            if timer.domain == Domain::Processing {
                line["domain"] = json!("processing");
            }
            line
        });
        written(&json!({ "timers": timers.collect::<Vec<_>>() }))
    }
}

/// A failure, as the file would write it.
pub(super) fn fails_line(failed: &Failed) -> String {
    written(&json!({ "fails": failed.message.lines().next().unwrap_or_default() }))
}

/// JSON with a space behind each colon and comma, as people write it.
fn written(value: &Value) -> String {
    let inner = |parts: Vec<String>, open: char, close: char| format!("{open}{}{close}", parts.join(", "));
    match value {
        Value::Object(fields) => {
            inner(fields.iter().map(|(name, value)| format!("{}: {}", json!(name), written(value))).collect(), '{', '}')
        }
        Value::Array(values) => inner(values.iter().map(written).collect(), '[', ']'),
        other => other.to_string(),
    }
}
