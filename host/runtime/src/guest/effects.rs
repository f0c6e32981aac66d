//! Whether what a call returned is true to the call: nothing a guest returns reaches the state or a channel unchecked (I12).
//!
//! Owns the rules of effects. Does not own what is done with them. One pass over each column, no allocation after the first
//! calls.

use std::sync::Arc;

use wasmill_core::contract::{OperatorContract, StateKind};
use wasmill_core::timer::Domain;

use super::contract::{
    self, Column, Effects, Emits, OptionalColumn, Rejects, SET, TOUCHED, TimerChanges, ValueWrites, WatermarkRun,
};
use super::limits::{ByteLimit, Limits};
use super::packed;

/// What is not valid: the field, the index in it, the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}: {rule}", index.map(|index| format!("[{index}]")).unwrap_or_default())]
pub struct Malformed {
    /// The field of the effects, as in the WIT.
    pub field: &'static str,
    /// The index in the field, where one element is at fault.
    pub index: Option<usize>,
    /// The rule and what was found.
    pub rule: String,
}

/// What the effects are checked against: the call.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// The input of a batch; `None` for timers.
    pub input: Option<u16>,
    /// The place of each record's (or timer's) key among the keys, packed `u32s`.
    pub slots: &'a [u8],
    /// How many keys the call has.
    pub keys: usize,
    /// The place of the absent key among them.
    pub absent_key: Option<u32>,
    /// The watermark runs of a batch.
    pub runs: &'a [WatermarkRun],
}

impl<'a> Shape<'a> {
    /// The shape of a `process` call.
    #[must_use]
    pub fn of_batch(input: u16, batch: &'a contract::Batch) -> Self {
        Self {
            input: Some(input),
            slots: &batch.slots,
            keys: batch.keys.ends.len() / 4,
            absent_key: batch.absent_key,
            runs: &batch.watermarks,
        }
    }

    /// The shape of a `fire` call.
    #[must_use]
    pub fn of_timers(timers: &'a contract::Firing) -> Self {
        Self {
            input: None,
            slots: &timers.slots,
            keys: timers.keys.ends.len() / 4,
            absent_key: timers.absent_key,
            runs: &[],
        }
    }

    /// How many records or timers the call has.
    #[must_use]
    pub fn origins(&self) -> u32 {
        u32::try_from(self.slots.len() / 4).unwrap_or(u32::MAX)
    }
}

/// Checks the effects of one operator's calls.
#[derive(Debug)]
pub struct Checker {
    contract: Arc<OperatorContract>,
    limits: Limits,
    /// For each key of the call: the number of the last check of a state that wrote it.
    written: Vec<u64>,
    round: u64,
    rejected: Vec<u32>,
}

type Checked = Result<(), Malformed>;

impl Checker {
    /// For an operator with this declaration.
    #[must_use]
    pub fn new(contract: Arc<OperatorContract>, limits: Limits) -> Self {
        Self { contract, limits, written: Vec::new(), round: 0, rejected: Vec::new() }
    }

    /// Checks what a call returned against the call.
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&mut self, shape: &Shape<'_>, effects: &Effects) -> Checked {
        let Effects { consumed, emits, values, timers, rejects } = effects;
        consumed_ends_a_run(*consumed, shape)?;
        self.rejects(*consumed, rejects)?;
        self.emits(*consumed, emits)?;
        for (index, writes) in values.iter().enumerate() {
            self.state_fits(shape, writes.state, &values[..index])?;
            self.writes(*consumed, shape, writes)?;
        }
        self.timers(*consumed, shape, timers)
    }

    fn timers(&self, consumed: u32, shape: &Shape<'_>, timers: &TimerChanges) -> Checked {
        let TimerChanges { origins, operations, domains, times, tags } = timers;
        let count = count("timers.origins", origins, 4)?;
        same_length("timers.operations", operations.len(), count, 1)?;
        same_length("timers.domains", domains.len(), count, 1)?;
        same_length("timers.times", times.len(), count, 8)?;
        same_length("timers.tags", tags.len(), count, 4)?;
        self.origins("timers.origins", consumed, origins)?;
        if let Some(index) = operations.iter().position(|operation| *operation > contract::SET_TIMER) {
            let rule = format!("operation {}: 0 deletes, 1 sets", operations[index]);
            return Err(bad("timers.operations", index, rule));
        }
        if let Some(index) = domains.iter().position(|domain| Domain::from_number(*domain).is_none()) {
            let rule = format!("domain {}: 0 is event time, 1 processing time", domains[index]);
            return Err(bad("timers.domains", index, rule));
        }
        if let Some(input) = shape.input.filter(|&input| count > 0 && self.contract.is_broadcast(input)) {
            let name = &self.contract.inputs[usize::from(input)].name;
            let rule = format!("`{name}` is a broadcast input: its records set no timers, which belong to keys");
            return Err(whole("timers.origins", rule));
        }
        let keyless = |origin: u32| {
            shape.absent_key.is_some() && packed::u32_at(shape.slots, origin as usize) == shape.absent_key
        };
        match packed::u32s(origins).position(keyless) {
            Some(index) => {
                Err(bad("timers.origins", index, "its record has no key, and a timer belongs to one".to_owned()))
            }
            None => Ok(()),
        }
    }

    fn emits(&self, consumed: u32, emits: &Emits) -> Checked {
        let Emits { outputs, origins, keys, times, values, absent_values, headers } = emits;
        let count = count("emits.origins", origins, 4)?;
        same_length("emits.outputs", outputs.len(), count, 2)?;
        let declared = self.contract.outputs.len();
        if let Some(index) = packed::u16s(outputs).position(|output| usize::from(output) >= declared) {
            let output = packed::u16_at(outputs, index).unwrap_or_default();
            return Err(bad("emits.outputs", index, format!("output {output} of {declared}, counted from 0")));
        }
        self.origins("emits.origins", consumed, origins)?;
        let limits = &self.limits;
        let most = if limits.value_bytes < limits.record_bytes { limits.value() } else { limits.record() };
        column("emits.values", values, count, most)?;
        absent("emits.absent-values", absent_values, values, count)?;
        if let Some(times) = times {
            same_length("emits.times", times.len(), count, 8)?;
        }
        if let Some(keys) = keys {
            optional_column("emits.keys", keys, count, self.limits.key())?;
        }
        if let Some(headers) = headers {
            self.headers(count, outputs, headers)?;
        }
        match (keys, headers) {
            (None, None) => Ok(()),
            _ => self.record_sizes(count, emits),
        }
    }

    fn headers(&self, count: usize, outputs: &[u8], headers: &contract::Headers) -> Checked {
        let contract::Headers { records, names, values } = headers;
        let entries = self::count("emits.headers.records", records, 4)?;
        column("emits.headers.names", names, entries, self.limits.key())?;
        column("emits.headers.values", values, entries, self.limits.record())?;
        let mut previous = 0;
        for (index, record) in packed::u32s(records).enumerate() {
            if record < previous || record as usize >= count {
                let rule = format!("record {record} after {previous}: they ascend and are among {count} emits");
                return Err(bad("emits.headers.records", index, rule));
            }
            let output = packed::u16_at(outputs, record as usize).map(usize::from).unwrap_or_default();
            if let Some(port) = self.contract.outputs.get(output).filter(|port| !port.headers) {
                let rule = format!("output `{}` is not declared to carry headers", port.name);
                return Err(bad("emits.headers.records", index, rule));
            }
            previous = record;
        }
        Ok(())
    }

    /// Key, value and headers of a record together; each alone was checked before.
    fn record_sizes(&self, count: usize, emits: &Emits) -> Checked {
        let limit = self.limits.record_bytes;
        let mut headers = emits
            .headers
            .iter()
            .flat_map(|h| packed::u32s(&h.records).zip(sizes(&h.names).zip(sizes(&h.values))))
            .peekable();
        let mut keys = emits.keys.iter().flat_map(|keys| sizes(&keys.values));
        for (index, value) in sizes(&emits.values).enumerate().take(count) {
            let mut bytes = value + keys.next().unwrap_or_default();
            while let Some((_, (name, value))) = headers.next_if(|(record, _)| *record as usize == index) {
                bytes += name + value;
            }
            if bytes > limit {
                return Err(bad(
                    "emits",
                    index,
                    format!("a record of {bytes} bytes, and {limit} are allowed (`limits.record`)"),
                ));
            }
        }
        Ok(())
    }

    fn state_fits(&self, shape: &Shape<'_>, state: u16, before: &[ValueWrites]) -> Checked {
        let declared = self.contract.states.len();
        let Some(contract) = self.contract.states.get(usize::from(state)) else {
            return Err(whole("values.state", format!("state {state} of {declared}, counted from 0")));
        };
        let keyed = shape.input.is_none_or(|input| !self.contract.is_broadcast(input));
        if contract.kind != StateKind::Value || !keyed {
            let rule = format!(
                "state `{}` is no value state of this call's keys: write it through the state import",
                contract.name
            );
            return Err(whole("values.state", rule));
        }
        if before.iter().any(|writes| writes.state == state) {
            return Err(whole("values.state", format!("state `{}` comes twice", contract.name)));
        }
        Ok(())
    }

    fn writes(&mut self, consumed: u32, shape: &Shape<'_>, writes: &ValueWrites) -> Checked {
        let ValueWrites { state: _, origins, operations, values } = writes;
        let count = count("values.origins", origins, 4)?;
        same_length("values.operations", operations.len(), count, 1)?;
        column("values.values", values, count, self.limits.value())?;
        self.origins("values.origins", consumed, origins)?;
        self.round += 1;
        if self.written.len() < shape.keys {
            self.written.resize(shape.keys, 0);
        }
        let mut previous_end = 0;
        let entries = packed::u32s(origins).zip(operations).zip(packed::u32s(&values.ends));
        for (index, ((origin, &operation), end)) in entries.enumerate() {
            let is_empty = end == previous_end;
            previous_end = end;
            if operation > TOUCHED {
                return Err(bad(
                    "values.operations",
                    index,
                    format!("operation {operation}: 0 clears, 1 sets, 2 touches"),
                ));
            }
            if operation != SET && !is_empty {
                return Err(bad("values.values", index, "a value beside an operation that is not `set`".to_owned()));
            }
            let slot = packed::u32_at(shape.slots, origin as usize).unwrap_or(u32::MAX);
            if shape.absent_key == Some(slot) {
                return Err(bad(
                    "values.origins",
                    index,
                    format!("record {origin} has no key, so it has no keyed state"),
                ));
            }
            match self.written.get_mut(slot as usize) {
                Some(round) if *round != self.round => *round = self.round,
                _ => {
                    let rule = format!("record {origin}: a second entry for its key, and one a key is allowed");
                    return Err(bad("values.origins", index, rule));
                }
            }
        }
        Ok(())
    }

    fn rejects(&mut self, consumed: u32, rejects: &Rejects) -> Checked {
        let Rejects { origins, reasons } = rejects;
        let count = count("rejects.origins", origins, 4)?;
        same_length("rejects.reasons", reasons.len(), count, 1)?;
        self.rejected.clear();
        self.origins("rejects.origins", consumed, origins)?;
        self.rejected.extend(packed::u32s(origins));
        self.rejected.sort_unstable();
        match self.rejected.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(whole("rejects.origins", format!("record {} is rejected twice", pair[0]))),
            None => Ok(()),
        }
    }

    /// Every origin was consumed, and none was rejected.
    fn origins(&self, field: &'static str, consumed: u32, origins: &[u8]) -> Checked {
        if let Some(index) = packed::u32s(origins).position(|origin| origin >= consumed) {
            let origin = packed::u32_at(origins, index).unwrap_or_default();
            return Err(bad(field, index, format!("record {origin} is not among the {consumed} consumed")));
        }
        if self.rejected.is_empty() {
            return Ok(());
        }
        match packed::u32s(origins).position(|origin| self.rejected.binary_search(&origin).is_ok()) {
            Some(index) => Err(bad(field, index, "an effect of a record that is rejected".to_owned())),
            None => Ok(()),
        }
    }
}

fn consumed_ends_a_run(consumed: u32, shape: &Shape<'_>) -> Checked {
    let origins = shape.origins();
    let at_an_end = consumed == origins || shape.runs.iter().any(|run| run.until == consumed);
    if at_an_end && (consumed > 0 || origins == 0) {
        return Ok(());
    }
    let rule = format!("{consumed} of {origins}: it is all, or the end of a watermark run, and never 0");
    Err(whole("consumed", rule))
}

fn count(field: &'static str, packed: &[u8], width: usize) -> Result<usize, Malformed> {
    if !packed.len().is_multiple_of(width) {
        return Err(whole(field, format!("{} bytes are no whole number of {width}-byte elements", packed.len())));
    }
    Ok(packed.len() / width)
}

fn same_length(field: &'static str, bytes: usize, count: usize, width: usize) -> Checked {
    if bytes != count * width {
        return Err(whole(field, format!("{bytes} bytes, and {count} elements of {width} were expected")));
    }
    Ok(())
}

/// `count` values whose ends ascend and cover the bytes, none longer than `limit`.
pub(super) fn column(field: &'static str, column: &Column, count: usize, most: ByteLimit) -> Checked {
    let ByteLimit { limit, setting } = most;
    same_length(field, column.ends.len(), count, 4)?;
    let mut previous = 0;
    for (index, end) in packed::u32s(&column.ends).enumerate() {
        if end < previous {
            return Err(bad(field, index, format!("it ends at {end}, before the value before it ends at {previous}")));
        }
        if (end - previous) as usize > limit {
            return Err(bad(field, index, format!("{} bytes, and {limit} are allowed (`{setting}`)", end - previous)));
        }
        previous = end;
    }
    if previous as usize != column.bytes.len() {
        return Err(whole(field, format!("the last value ends at {previous} of {} bytes", column.bytes.len())));
    }
    Ok(())
}

fn optional_column(field: &'static str, optional: &OptionalColumn, count: usize, most: ByteLimit) -> Checked {
    let OptionalColumn { present, values } = optional;
    same_length(field, present.len(), count, 1)?;
    column(field, values, count, most)?;
    for (index, (&present, size)) in present.iter().zip(sizes(values)).enumerate() {
        if present > 1 {
            return Err(bad(field, index, format!("present is {present}, and 0 or 1 is allowed")));
        }
        if present == 0 && size > 0 {
            return Err(bad(field, index, "an absent value with bytes".to_owned()));
        }
    }
    Ok(())
}

/// Indexes of absent values: ascending, among `count`, empty in the column.
fn absent(field: &'static str, absent: &[u8], values: &Column, count: usize) -> Checked {
    self::count(field, absent, 4)?;
    let mut next = 0;
    for (index, value) in packed::u32s(absent).enumerate() {
        if (value as usize) < next || value as usize >= count {
            return Err(bad(field, index, format!("value {value}: they ascend and are among {count}")));
        }
        if contract::value_at(values, value as usize).is_none_or(|bytes| !bytes.is_empty()) {
            return Err(bad(field, index, format!("value {value} is absent and has bytes")));
        }
        next = value as usize + 1;
    }
    Ok(())
}

/// The sizes of a checked column's values.
fn sizes(column: &Column) -> impl Iterator<Item = usize> + '_ {
    let mut previous = 0;
    packed::u32s(&column.ends).map(move |end| {
        let size = end.saturating_sub(previous) as usize;
        previous = end;
        size
    })
}

fn bad(field: &'static str, index: usize, rule: String) -> Malformed {
    Malformed { field, index: Some(index), rule }
}

fn whole(field: &'static str, rule: String) -> Malformed {
    Malformed { field, index: None, rule }
}

#[cfg(test)]
mod tests;
