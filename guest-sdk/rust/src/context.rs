//! What an operator may do while it handles a record: emit, and ask for times and its place.
//!
//! Owns the record's identity within the call and the undo of what it emitted. State is written through its own handles,
//! which ask here on whose behalf.

use serde::Serialize;

use crate::bindings::wasmill::operator::types::Subtask;
use crate::cbor::Encoder;
use crate::emits::{Buffer, Envelope};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::operator::Port;
use crate::record::{Origins, Record};
use crate::state::Host;
use crate::time::Timestamp;
use crate::timer::{Changes, TimerId, TimerUse};

/// The surroundings of the record that is being handled.
pub struct Context<'a> {
    pub(crate) origins: &'a Origins<'a>,
    pub(crate) emits: Buffer,
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) watermark: Timestamp,
    processing_time: Timestamp,
    subtask: Subtask,
    outputs: &'static [Port],
    pub(crate) host: &'a mut Host,
    origin: u32,
    slot: u32,
    time: i64,
    emits_before: u32,
    pub(crate) timers: Changes,
    timers_before: usize,
    pub(crate) timer_use: TimerUse,
    /// The timer that is being handled; none while it is a record.
    pub(crate) firing: Option<TimerId>,
    broadcast: bool,
}

/// What lasts for a whole call.
pub(crate) struct Surroundings<'a> {
    pub(crate) origins: &'a Origins<'a>,
    pub(crate) emits: Buffer,
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) host: &'a mut Host,
    pub(crate) watermark: i64,
    pub(crate) processing_time: i64,
    pub(crate) subtask: Subtask,
    pub(crate) outputs: &'static [Port],
    pub(crate) timer_use: TimerUse,
    /// Whether the records are a broadcast input's.
    pub(crate) broadcast: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(call: Surroundings<'a>) -> Self {
        Self {
            origins: call.origins,
            emits: call.emits,
            encoder: call.encoder,
            watermark: Timestamp::from_millis(call.watermark),
            processing_time: Timestamp::from_millis(call.processing_time),
            subtask: call.subtask,
            outputs: call.outputs,
            host: call.host,
            origin: 0,
            slot: 0,
            time: 0,
            emits_before: 0,
            timers: Changes::default(),
            timers_before: 0,
            timer_use: call.timer_use,
            firing: None,
            broadcast: call.broadcast,
        }
    }

    /// From here on acts on behalf of `origin`.
    #[inline]
    pub(crate) fn enter(&mut self, origin: u32) {
        self.origin = origin;
        self.slot = self.origins.slot(origin);
        self.time = self.origins.time(origin);
        self.emits_before = self.emits.len();
        self.timers_before = self.timers.len();
    }

    /// Undoes what the present origin emitted and its timers; states undo their own.
    pub(crate) fn undo(&mut self) {
        self.emits.truncate(self.emits_before);
        self.timers.truncate(self.timers_before);
    }

    #[inline]
    pub(crate) fn origin(&self) -> u32 {
        self.origin
    }

    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot as usize
    }

    #[inline]
    pub(crate) fn time(&self) -> i64 {
        self.time
    }

    /// The host's state, for reading: what is written goes there at the call's end.
    pub(crate) fn host(&mut self) -> &mut Host {
        self.host
    }

    /// The time of the record or timer that is being handled.
    pub(crate) fn record_time(&self) -> Timestamp {
        Timestamp::from_millis(self.time)
    }

    /// Whether broadcast state may be written.
    pub(crate) fn writes_broadcast(&self) -> bool {
        self.broadcast
    }

    /// Emits a value to the first output, with the record's own key and time.
    ///
    /// # Errors
    /// When the value does not encode (rejects the record).
    #[inline]
    pub fn emit<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        let envelope = Envelope { output: 0, origin: self.origin, key: None, time: None };
        let encoder = &mut *self.encoder;
        self.emits.push(envelope, self.origins, |out| Ok(encoder.encode(value, out)?))
    }

    /// An emit that differs from the plain one in output, key, time, headers or value's form:
    /// `ctx.to("late").key(&airport).at(time).emit(&flight)?`.
    pub fn to(&mut self, output: &'static str) -> Emit<'_, 'a> {
        let found = self.outputs.iter().position(|port| port.name == output);
        let mut emit = Emit::new(self);
        match found.and_then(|index| u16::try_from(index).ok()) {
            Some(index) => emit.output = index,
            None => {
                emit.failed = Some(Error::fatal(format_args!(
                    "the operator has no output `{output}`; declare it with #[operator(output(\"{output}\"))]"
                )));
            }
        }
        emit
    }

    /// The watermark in force for this record.
    #[must_use]
    pub fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// The processing time of this call, the same for all its records.
    #[must_use]
    pub fn processing_time(&self) -> Timestamp {
        self.processing_time
    }

    /// Which subtask this is.
    #[must_use]
    pub fn subtask(&self) -> Subtask {
        self.subtask
    }
}

/// An emit under construction; `emit`, `emit_bytes` or `emit_absent` sends it.
#[must_use = "nothing is emitted until `emit`, `emit_bytes` or `emit_absent`"]
pub struct Emit<'c, 'a> {
    context: &'c mut Context<'a>,
    output: u16,
    key: Option<Option<Vec<u8>>>,
    time: Option<i64>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    failed: Option<Error>,
}

impl<'c, 'a> Emit<'c, 'a> {
    fn new(context: &'c mut Context<'a>) -> Self {
        Self { context, output: 0, key: None, time: None, headers: Vec::new(), failed: None }
    }

    /// With this key in place of the record's.
    pub fn key<K: Key + ?Sized>(mut self, key: &K) -> Self {
        let mut bytes = Vec::new();
        match key.write(&mut bytes) {
            Ok(()) => self.key = Some(Some(bytes)),
            Err(error) => self.failed = self.failed.or(Some(error.into())),
        }
        self
    }

    /// Without a key.
    pub fn no_key(mut self) -> Self {
        self.key = Some(None);
        self
    }

    /// With this time in place of the record's.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = Some(time.as_millis());
        self
    }

    /// With a header more; the output must declare headers.
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        let port = self.context.outputs.get(usize::from(self.output));
        if port.is_some_and(|port| port.headers) {
            self.headers.push((name.as_bytes().to_vec(), value.to_vec()));
        } else if self.failed.is_none() {
            let output = port.map_or("", |port| port.name);
            self.failed = Some(Error::fatal(format_args!(
                "output `{output}` has no headers; declare them with #[operator(output(\"{output}\", headers))]"
            )));
        }
        self
    }

    /// Sends it with `value` as CBOR.
    ///
    /// # Errors
    /// When the value or the key does not encode (rejects the record), or the operator declares no such output or no headers
    /// there (fatal).
    pub fn emit<T: Serialize + ?Sized>(self, value: &T) -> Result {
        self.send(|emits, envelope, origins, encoder| {
            emits.push(envelope, origins, |out| Ok(encoder.encode(value, out)?))
        })
    }

    /// Sends it with these bytes as they are.
    ///
    /// # Errors
    /// As [`Emit::emit`].
    pub fn emit_bytes(self, value: &[u8]) -> Result {
        self.send(|emits, envelope, origins, _| {
            emits.push(envelope, origins, |out| {
                out.extend_from_slice(value);
                Ok(())
            })
        })
    }

    /// Sends it without a value (a tombstone).
    ///
    /// # Errors
    /// As [`Emit::emit`].
    pub fn emit_absent(self) -> Result {
        self.send(|emits, envelope, origins, _| emits.push_absent(envelope, origins))
    }

    /// Sends a record on as it is: its value's bytes, or none where it has none.
    ///
    /// # Errors
    /// As [`Emit::emit`].
    pub fn forward(self, record: &Record<'_>) -> Result {
        match record.value_bytes() {
            Some(bytes) => self.emit_bytes(bytes),
            None => self.emit_absent(),
        }
    }

    fn send(self, push: impl FnOnce(&mut Buffer, Envelope<'_>, &Origins<'_>, &mut Encoder) -> Result) -> Result {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Context { emits, origins, encoder, origin, .. } = self.context;
        let key = self.key.as_ref().map(Option::as_deref);
        push(emits, Envelope { output: self.output, origin: *origin, key, time: self.time }, origins, encoder)?;
        for (name, value) in &self.headers {
            emits.push_header(name, value)?;
        }
        Ok(())
    }
}
