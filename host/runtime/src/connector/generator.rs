//! A source that makes records up: the same ones for the same seed, from any record on.
//!
//! Owns the sequence: record i follows from the seed and i alone (a hash of both), so that a restored reader goes on at once.
//! The Zipf distribution uses the machine's `powf`; its draws are the same on machines of one kind.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::record::RecordBatch;
use wasmill_core::time::Timestamp;

use super::pace::{Allowed, Pace};
use crate::clock::SharedClock;
use crate::config::source::{Distribution, GeneratorFormat, GeneratorSource};
use crate::format::cbor;
use crate::source::{Place, ReadCounts, ReadOutcome, SourceFactory, SourceReader, SplitPosition};

/// Most distinct keys.
const MAX_KEYS: u32 = 1_000_000_000;
/// Longest payload in bytes.
const MAX_PAYLOAD: u64 = 1 << 20;
/// Payloads are cut out of a text of this length plus their own.
const TEXT_BYTES: u64 = 1 << 14;
/// How long to wait where every share is held.
const HELD_WAIT: Duration = Duration::from_millis(10);
const KEY_PREFIX: &[u8] = b"key-";
/// Odd, so that every record starts its own stream of numbers.
const STRIDE: u64 = 0xd134_2543_de82_ef95;

/// Why a generator cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Too many keys.
    #[error("keys is {0}: at most {MAX_KEYS}")]
    Keys(u32),
    /// Too long a payload.
    #[error("payload is {0}: at most 1MiB")]
    Payload(crate::config::unit::ByteSize),
    /// No such distribution.
    #[error("exponent is {0}: a number above 0 and at most 100 is needed")]
    Exponent(f64),
    /// Not a time.
    #[error("start is `{0}`: write it as RFC 3339, such as `2013-01-01T00:00:00Z`")]
    Start(String),
}

/// The made-up sequence.
#[derive(Debug, Clone)]
struct Sequence {
    seed: u64,
    records: u64,
    keys: u64,
    key_digits: usize,
    zipf: Option<Zipf<f64>>,
    text: Vec<u8>,
    payload: usize,
    format: GeneratorFormat,
    start: i64,
    step: i64,
}

/// Makes readers of a made-up sequence.
#[derive(Clone)]
pub struct GeneratorFactory {
    sequence: Sequence,
    rate: Option<NonZeroU64>,
    clock: SharedClock,
}

/// Where a share of the sequence is: the records `next`, `next + stride`, … are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    next: u64,
    stride: u64,
}

struct Share {
    name: String,
    position: Position,
    /// Whether it is passed over for now.
    is_held: bool,
}

struct GeneratorReader {
    sequence: Sequence,
    open: Vec<Share>,
    ended: Vec<Share>,
    pace: Option<Pace>,
    clock: SharedClock,
}

impl GeneratorFactory {
    /// Checks the settings.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(config: &GeneratorSource, clock: SharedClock) -> Result<Self, Error> {
        let keys = config.keys.get();
        if keys > MAX_KEYS {
            return Err(Error::Keys(keys));
        }
        if config.payload.get() > MAX_PAYLOAD {
            return Err(Error::Payload(config.payload));
        }
        let zipf = match config.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf if config.exponent > 0.0 && config.exponent <= 100.0 => {
                Some(Zipf::new(f64::from(keys), config.exponent).map_err(|_| Error::Exponent(config.exponent))?)
            }
            Distribution::Zipf => return Err(Error::Exponent(config.exponent)),
        };
        let start = jiff::Timestamp::from_str(&config.start).map_err(|_| Error::Start(config.start.clone()))?;
        let sequence = Sequence {
            seed: SplitMix64::seed_from_u64(config.seed).next_u64(),
            records: config.records.unwrap_or(u64::MAX),
            keys: u64::from(keys),
            key_digits: (keys - 1).checked_ilog10().map_or(1, |log| log as usize + 1).max(6),
            zipf,
            text: text(config.seed, TEXT_BYTES + config.payload.get()),
            payload: config.payload.as_usize(),
            format: config.format,
            start: start.as_millisecond(),
            step: i64::try_from(config.step.get().as_millis()).unwrap_or(i64::MAX),
        };
        Ok(Self { sequence, rate: config.rate, clock })
    }
}

/// Small letters, 26 of them.
fn text(seed: u64, len: u64) -> Vec<u8> {
    let mut random = SplitMix64::seed_from_u64(!seed);
    (0..len).map(|_| b'a' + (random.next_u64() % 26) as u8).collect()
}

impl SourceFactory for GeneratorFactory {
    fn open(&self, place: Place, restored: &[SplitPosition]) -> Result<Box<dyn SourceReader>, Fault> {
        let mut shares = Vec::new();
        if restored.is_empty() {
            let (index, stride) = (u64::from(place.index.0), u64::from(place.parallelism.get()));
            shares.push(Share {
                name: format!("{index}/{stride}"),
                position: Position { next: index, stride },
                is_held: false,
            });
        }
        // The shares are those of the first start; another parallelism deals them out anew.
        let mut ordered: Vec<&SplitPosition> = restored.iter().collect();
        ordered.sort_by(|a, b| a.split.cmp(&b.split));
        let own = ordered.into_iter().skip(place.index.0 as usize).step_by(place.parallelism.get() as usize);
        for SplitPosition { split, position } in own {
            let position = Position::deserialize(position).map_err(|error| {
                Fault::new(FaultKind::Refused, format!("generator: the position of `{split}` cannot be read: {error}"))
            })?;
            shares.push(Share { name: split.clone(), position, is_held: false });
        }
        let (open, ended) = shares.into_iter().partition(|share| share.position.next < self.sequence.records);
        Ok(Box::new(GeneratorReader {
            sequence: self.sequence.clone(),
            open,
            ended,
            pace: self.rate.map(|rate| Pace::new(rate, place.parallelism)),
            clock: self.clock.clone(),
        }))
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn splits(&self) -> Option<usize> {
        None
    }
}

impl SourceReader for GeneratorReader {
    fn read(&mut self, batch: &mut RecordBatch, limit: usize, _now: Timestamp) -> Result<ReadOutcome, Fault> {
        // The share that is furthest behind, so that the shares of one reader stay together.
        let open = self.open.iter().enumerate();
        let behind = open.filter(|(_, share)| !share.is_held).min_by_key(|(_, share)| share.position.next);
        let Some((split, _)) = behind else {
            return Ok(if self.open.is_empty() { ReadOutcome::End } else { ReadOutcome::Wait(HELD_WAIT) });
        };
        let share = &mut self.open[split];
        if share.position.next >= self.sequence.records {
            self.ended.push(self.open.remove(split));
            return Ok(ReadOutcome::SplitEnded { split });
        }
        let allowed = match self.pace.as_mut().map(|pace| pace.allowed(self.clock.monotonic())) {
            Some(Allowed::Wait(wait)) => return Ok(ReadOutcome::Wait(wait)),
            Some(Allowed::Records(records)) => records,
            None => usize::MAX,
        };
        let Position { next, stride } = &mut share.position;
        let mut taken = 0;
        while taken < limit.min(allowed) && *next < self.sequence.records {
            self.sequence.push(*next, batch);
            *next = next.saturating_add(*stride);
            taken += 1;
        }
        if let Some(pace) = &mut self.pace {
            pace.took(taken);
        }
        Ok(ReadOutcome::Read { split })
    }

    fn open_splits(&self) -> usize {
        self.open.len()
    }

    fn split_name(&self, split: usize) -> &str {
        &self.open[split].name
    }

    fn is_waiting(&self, _split: usize) -> bool {
        false
    }

    fn hold(&mut self, held: &[bool]) {
        for (share, &held) in self.open.iter_mut().zip(held) {
            share.is_held = held;
        }
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |share: &Share| SplitPosition {
            split: share.name.clone(),
            position: serde_json::json!({ "next": share.position.next, "stride": share.position.stride }),
        };
        self.open.iter().chain(&self.ended).map(position).collect()
    }

    fn counts(&self) -> ReadCounts {
        ReadCounts::default()
    }
}

impl Sequence {
    /// Appends record `number`.
    #[inline]
    fn push(&self, number: u64, batch: &mut RecordBatch) {
        let mut random = SplitMix64::seed_from_u64(self.seed.wrapping_add(number.wrapping_mul(STRIDE)));
        let key = match &self.zipf {
            None => ((u128::from(random.next_u64()) * u128::from(self.keys)) >> 64) as u64,
            // Draws are from 1 on; rounding may reach past the last.
            Some(zipf) => (zipf.sample(&mut random) as u64).saturating_sub(1).min(self.keys - 1),
        };
        let offset = (random.next_u64() % TEXT_BYTES) as usize;
        let payload = &self.text[offset..offset + self.payload];
        let mut key_text = [0; KEY_PREFIX.len() + 10];
        let key_text = self.key_text(key, &mut key_text);
        batch.keys.push(Some(key_text));
        batch.times.push(self.time(number));
        batch.positions.push(number);
        match self.format {
            GeneratorFormat::Raw => batch.values.push(Some(payload)),
            GeneratorFormat::Json => batch.values.push_with(|out| {
                // Sorted by encoded key: key, seq, payload.
                out.extend_from_slice(b"\xa3\x63key");
                cbor::push_head(out, cbor::TEXT, key_text.len() as u64);
                out.extend_from_slice(key_text);
                out.extend_from_slice(b"\x63seq");
                cbor::push_u64(out, number);
                out.extend_from_slice(b"\x67payload");
                cbor::push_head(out, cbor::TEXT, payload.len() as u64);
                out.extend_from_slice(payload);
            }),
        }
    }

    fn time(&self, number: u64) -> Timestamp {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.start.saturating_add(self.step.saturating_mul(number)))
    }

    fn key_text<'a>(&self, key: u64, text: &'a mut [u8; KEY_PREFIX.len() + 10]) -> &'a [u8] {
        let end = KEY_PREFIX.len() + self.key_digits;
        text[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
        let mut rest = key;
        for digit in text[KEY_PREFIX.len()..end].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &text[..end]
    }
}

#[cfg(test)]
mod tests;
