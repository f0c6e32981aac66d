//! Limits that one key alone does not show: ranges, and keys that must go together.
//!
//! Owns the bounds of the values. Does not own the graph's rules.

use std::time::Duration;

use wasmill_core::graph::Exchange;
use wasmill_core::id::{OperatorUid, Parallelism};
use wasmill_core::key_group::MAX_KEY_GROUPS;

use super::error::Error;
use super::input::{Input, OnMissingKey};
use super::operator::{DEAD_LETTER, OnFailure};
use super::pipeline::Pipeline;
use super::source::Source;
use super::table::Listen;
use super::unit::ByteSize;
use super::watermark::Strategy;

/// Fewest characters of a token: fewer can be tried out.
const MIN_TOKEN: usize = 16;
/// Longest record or value that a component may be allowed: columns of a batch end below 4 GiB.
const MAX_RECORD: ByteSize = ByteSize::mib(1024);
/// Longest key of the contract.
const MAX_KEY: ByteSize = ByteSize::kib(64);
/// One page of linear memory: with less no component starts.
const MIN_GUEST_MEMORY: ByteSize = ByteSize::kib(64);
/// What a 32-bit address reaches.
const MAX_GUEST_MEMORY: ByteSize = ByteSize::mib(4096);
/// Least memory for state: below it, RocksDB's own needs leave no cache.
const MIN_STATE_MEMORY: ByteSize = ByteSize::mib(16);

/// Checks what a table's types do not.
pub(super) fn limits(pipeline: &Pipeline) -> Result<(), Error> {
    let check = Check { pipeline };
    let Pipeline { checkpoint, state, restart, .. } = pipeline;
    check.that(!checkpoint.store.is_empty(), &["checkpoint", "store"], || {
        "must be a folder or a URL, such as \"./checkpoints\"".to_owned()
    })?;
    check.that(checkpoint.interval.get() >= Duration::from_millis(1), &["checkpoint", "interval"], || {
        "must be at least 1ms".to_owned()
    })?;
    check.that(checkpoint.timeout.get() >= Duration::from_millis(1), &["checkpoint", "timeout"], || {
        "must be at least 1ms".to_owned()
    })?;
    check.that(state.memory >= MIN_STATE_MEMORY, &["state", "memory"], || {
        format!("must be at least {MIN_STATE_MEMORY}")
    })?;
    check.that(restart.backoff_min <= restart.backoff_max, &["restart", "backoff-min"], || {
        format!("must not be longer than backoff-max, which is {}", restart.backoff_max)
    })?;
    check.admin()?;
    check.sources()?;
    check.operators()?;
    check.dead_letters()?;
    check.parallelism()
}

struct Check<'a> {
    pipeline: &'a Pipeline,
}

impl Check<'_> {
    fn that(&self, holds: bool, path: &[&str], message: impl FnOnce() -> String) -> Result<(), Error> {
        if holds {
            return Ok(());
        }
        Err(Error::Value { place: self.pipeline.place(path), key: path.join("."), message: message() })
    }

    fn admin(&self) -> Result<(), Error> {
        let admin = &self.pipeline.admin;
        let length = admin.token.as_ref().map(|token| token.reveal().chars().count());
        self.that(length.is_none_or(|length| length >= MIN_TOKEN), &["admin", "token"], || {
            format!("must have at least {MIN_TOKEN} characters")
        })?;
        let open = matches!(admin.listen, Listen::At(address) if !address.ip().is_loopback());
        self.that(!open || admin.token.is_some(), &["admin", "listen"], || {
            format!("{} can be reached from other machines: set `admin.token`, or listen on 127.0.0.1", admin.listen)
        })
    }

    fn sources(&self) -> Result<(), Error> {
        for node in &self.pipeline.sources {
            let Source::Generator(generator) = &node.config else { continue };
            let by_field = matches!(generator.watermark.strategy, Strategy::Field(_));
            self.that(!by_field, &["source", node.uid.as_str(), "watermark", "field"], || {
                "a generator's records have no such field: use `out-of-order`".to_owned()
            })?;
        }
        Ok(())
    }

    fn operators(&self) -> Result<(), Error> {
        for operator in &self.pipeline.operators {
            let path = |table, key| ["operator", operator.uid.as_str(), table, key];
            let (limits, batch) = (operator.limits, operator.batch);
            let between = |least: ByteSize, value: ByteSize, most: ByteSize, path: [&str; 4]| {
                self.that((least..=most).contains(&value), &path, || format!("must lie between {least} and {most}"))
            };
            let at_most = |value, most, path| between(ByteSize::new(1), value, most, path);
            at_most(limits.key, MAX_KEY, path("limits", "key"))?;
            at_most(limits.value, MAX_RECORD, path("limits", "value"))?;
            at_most(limits.record, MAX_RECORD, path("limits", "record"))?;
            at_most(limits.result, MAX_RECORD, path("limits", "result"))?;
            at_most(limits.overlay, MAX_RECORD, path("limits", "overlay"))?;
            between(MIN_GUEST_MEMORY, limits.memory, MAX_GUEST_MEMORY, path("limits", "memory"))?;
            at_most(batch.bytes, MAX_RECORD, path("batch", "bytes"))?;
            let record_time = limits.record_time.unwrap_or(limits.call_time);
            for (time, key) in [(limits.call_time, "call-time"), (record_time, "record-time")] {
                self.that(time.get() >= Duration::from_millis(1), &path("limits", key), || {
                    "must be at least 1ms".to_owned()
                })?;
            }
        }
        Ok(())
    }

    /// Dead letters are asked for where they are taken, and taken where they are asked for.
    fn dead_letters(&self) -> Result<(), Error> {
        let pipeline = self.pipeline;
        let is_letters = |input: &Input| input.output.as_deref() == Some(DEAD_LETTER);
        let taken =
            |uid: &OperatorUid| pipeline.all_inputs().any(|(.., input)| input.from == *uid && is_letters(input));
        let nothing_takes =
            |uid| format!("nothing takes the dead letters: give a sink the input \"{uid}/{DEAD_LETTER}\"");
        let operators = (pipeline.operators.iter())
            .filter(|node| node.on_failure == OnFailure::DeadLetter)
            .map(|node| ("operator", &node.uid, "on-failure"));
        let sources = (pipeline.sources.iter())
            .filter(|node| node.config.makes_dead_letters())
            .map(|node| ("source", &node.uid, "on-undecodable"));
        for (table, uid, key) in operators.chain(sources) {
            self.that(taken(uid), &[table, uid.as_str(), key], || nothing_takes(uid))?;
        }
        for (table, uid, index, input) in pipeline.all_inputs() {
            let from = &input.from;
            let sets_aside = input.on_missing_key == OnMissingKey::DeadLetter;
            let wrong = if sets_aside && input.exchange != Exchange::Key {
                ("on-missing-key", "goes with a key: give the input a `key`, or exchange = \"key\"".to_owned())
            } else if sets_aside && is_letters(input) {
                ("on-missing-key", "would set dead letters aside again: use \"fail\" or \"drop\"".to_owned())
            } else if sets_aside && !taken(from) {
                ("on-missing-key", nothing_takes(from))
            } else if is_letters(input) && !pipeline.makes_dead_letters(from) {
                let (what, key) = if pipeline.source(from).is_some() {
                    ("source", "on-undecodable")
                } else {
                    ("operator", "on-failure")
                };
                let message = format!(
                    "the {what} `{from}` makes no dead letters: set its {key} = \"dead-letter\", or on-missing-key of an input from it"
                );
                ("from", message)
            } else {
                continue;
            };
            let (key, message) = wrong;
            return Err(Error::Value {
                place: pipeline.places.of_input(table, uid.as_str(), index, Some(key)),
                key: format!("{table}.{uid}.input.{key}"),
                message,
            });
        }
        Ok(())
    }

    /// A keyed operator has at most as many subtasks as there are key groups; nothing has more than there can be groups.
    fn parallelism(&self) -> Result<(), Error> {
        let pipeline = self.pipeline;
        let max = pipeline.job.max_parallelism;
        let nodes = (pipeline.sources.iter().map(|node| ("source", &node.uid, node.parallelism)))
            .chain(pipeline.operators.iter().map(|node| ("operator", &node.uid, node.parallelism)))
            .chain(pipeline.sinks.iter().map(|node| ("sink", &node.uid, node.parallelism)));
        for (table, uid, parallelism) in nodes {
            let path = [table, uid.as_str(), "parallelism"];
            let within = |most: u16, parallelism: Parallelism| parallelism.get() <= u32::from(most);
            self.that(within(MAX_KEY_GROUPS, parallelism), &path, || format!("must not be above {MAX_KEY_GROUPS}"))?;
            let keyed = pipeline.inputs(uid).iter().any(|input| input.exchange == Exchange::Key);
            self.that(!keyed || within(max.get(), parallelism), &path, || {
                format!(
                    "is {parallelism}, above job.max-parallelism, which is {max}: subtasks beyond it would never get a key"
                )
            })?;
        }
        Ok(())
    }
}
