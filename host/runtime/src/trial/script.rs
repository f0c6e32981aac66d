//! A case's steps made ready for a component: inputs by number, keys as bytes, times by the clock.
//!
//! Owns what of a step can be wrong for a component. Runs nothing.

use std::time::Duration;

use serde_json::Value;
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::Fault;
use wasmill_core::time::Timestamp;

use super::file::{Case, Step};
use super::line::{Act, Error, Record, What};
use super::value::{Bytes, Headers};
use crate::config;
use crate::exchange::key::KeyExtractor;

/// A step, ready.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Record { input: usize, key: Bytes, time: Timestamp, value: Bytes, headers: Headers },
    Watermark { inputs: Vec<usize>, time: Timestamp },
    Clock(Duration),
    End,
}

/// The case's steps for the component, and whether any record has a key.
///
/// # Errors
/// An input or output that it does not have, headers for an input without, a record without the key that it should have, a clock that goes back; with the line.
pub(super) fn script(contract: &OperatorContract, case: &Case) -> Result<(Vec<Move>, bool), Fault> {
    let mut names: Vec<_> = contract.inputs.iter().map(|port| port.name.as_str()).collect();
    if names.is_empty() {
        names.push("");
    }
    let extractor = case.settings.key_from.as_ref().map(|key| KeyExtractor::new(key, None)).transpose();
    let extractor = extractor.map_err(|error| wrong(case, case.line, error.to_string()))?;
    let mut clock = Timestamp::from_millis(0);
    let mut moves = Vec::new();
    for Step { line, act } in &case.steps {
        let at = |reason| wrong(case, *line, reason);
        let input = |input: &Option<String>| input.as_deref().map(|name| find(name, &names, "input")).transpose();
        moves.push(match act {
            Act::Record(record) => {
                let input = input(&record.input).map_err(at)?.unwrap_or(0);
                if !record.headers.is_empty() && !contract.inputs.get(input).is_some_and(|port| port.headers) {
                    return Err(at(format!(
                        "the component does not declare headers for the input `{}`, and would not be shown them",
                        names[input]
                    )));
                }
                Move::Record {
                    input,
                    key: key(record, extractor.as_ref()).map_err(at)?,
                    time: record.time.unwrap_or(clock),
                    value: record.value.clone(),
                    headers: record.headers.clone(),
                }
            }
            Act::Watermark { time, input: named } => {
                let inputs = input(named).map_err(at)?.map_or((0..names.len()).collect(), |input| vec![input]);
                Move::Watermark { inputs, time: *time }
            }
            Act::Advance(by) => {
                clock = clock.plus(*by);
                Move::Clock(*by)
            }
            Act::Clock(time) => {
                let by = u64::try_from(time.as_millis() - clock.as_millis())
                    .map_err(|_| at(format!("the clock does not go back: it stands at {clock}, and begins at 0")))?;
                clock = *time;
                Move::Clock(Duration::from_millis(by))
            }
            Act::End => Move::End,
        });
    }
    check_outputs(contract, case)?;
    let has_keys = moves.iter().any(|act| matches!(act, Move::Record { key: Some(_), .. }));
    Ok((moves, has_keys))
}

/// The component's outputs by name, at least one.
pub(super) fn outputs(contract: &OperatorContract) -> Vec<String> {
    let mut names: Vec<_> = contract.outputs.iter().map(|port| port.name.clone()).collect();
    if names.is_empty() {
        names.push(String::new());
    }
    names
}

/// The keys of the case's records, with the words that they are written in.
pub(super) fn keys(case: &Case) -> Vec<(Vec<u8>, Value)> {
    let written = case.steps.iter().filter_map(|step| match &step.act {
        Act::Record(Record { key: Some((written, Some(bytes))), .. }) => Some((bytes.clone(), written.clone())),
        _ => None,
    });
    written.collect()
}

fn check_outputs(contract: &OperatorContract, case: &Case) -> Result<(), Fault> {
    let names = outputs(contract);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for expected in &case.expected {
        if let What::Emit { output: Some(name), .. } = &expected.what {
            find(name, &names, "output").map_err(|reason| wrong(case, expected.line, reason))?;
        }
    }
    Ok(())
}

fn key(record: &Record, extractor: Option<&KeyExtractor>) -> Result<Bytes, String> {
    let mut scratch = Vec::new();
    match (&record.key, extractor) {
        (Some((_, key)), _) => Ok(key.clone()),
        (None, None) => Ok(None),
        (None, Some(extractor)) => match extractor.key(None, record.value.as_deref(), &mut scratch) {
            Ok(key) => Ok(Some(key.to_vec())),
            Err(reason) => Err(format!("the record has no key by `key-from`: {reason}; give it one with \"key\"")),
        },
    }
}

fn find(name: &str, names: &[&str], what: &str) -> Result<usize, String> {
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let nearest = config::nearest(name, names.iter().copied());
        let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
        let known = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        format!("the component has no {what} `{name}`{hint}; it has {known}")
    })
}

fn wrong(case: &Case, line: usize, reason: String) -> Fault {
    Error::line(&case.path, line, reason).into()
}
