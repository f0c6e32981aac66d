//! What a guest may use: memory, time, bytes.
//!
//! Owns the numbers and the account of an instance's memory. Does not own the clock of calls ([`super::engine`]) nor the checks
//! of what a call returns ([`super::effects`]).

use std::time::Duration;

use wasmtime::ResourceLimiter;

/// Most elements of all tables of an instance together. Tables hold function references, 16 bytes each at most, so that this
/// is 16 MiB beside the memory limit; CPython, the largest guest tried, needs some ten thousand.
const TABLE_ELEMENTS: usize = 1 << 20;

/// Most core instances, memories and tables of an instance (of each). A Python component has 38 core instances.
const PARTS: usize = 1000;

/// What one instance of a guest may use. Past a limit the call fails, its effects are undone and the instance is renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of the instance, in bytes, all its memories together; a refused growth is the guest's to handle, and
    /// where the call then fails, this limit is named as the cause. Default 256 MiB. Python needs 20 MiB at least, QuickJS 3.
    /// Does not bound the host's copies of a call's results: `result_bytes` does.
    pub memory: u64,
    /// Wall-clock time of one call, the start of an instance and its `configure` counted as one call. Default 30 s. Enforced
    /// to about 20 ms, by a thread of its own, so that a guest that never yields is stopped too. A stopped process (SIGSTOP,
    /// a suspended machine) does not use it up.
    pub call_time: Duration,
    /// Time of one record or timer; a call of n of them is stopped after n times that, if `call_time` is not over before. So one
    /// that stands alone has that long, and in a batch it may use what the others leave. Default: none.
    pub record_time: Option<Duration>,
    /// One key, in bytes. Default 64 KiB.
    pub key_bytes: usize,
    /// One value of a state or record, in bytes. Default 16 MiB.
    pub value_bytes: usize,
    /// One emitted record: key, value and headers, in bytes. Default 16 MiB.
    pub record_bytes: usize,
    /// What one call may hand to the host, in bytes, results and each import's arguments alike. Default 128 MiB. Bounds what
    /// the host allocates on a guest's behalf.
    pub result_bytes: usize,
    /// Log lines a second of one subtask, over all its instances. Default 100. The rest is left out and counted.
    pub log_lines: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            call_time: Duration::from_secs(30),
            record_time: None,
            key_bytes: 64 << 10,
            value_bytes: 16 << 20,
            record_bytes: 16 << 20,
            result_bytes: 128 << 20,
            log_lines: 100,
        }
    }
}

/// How many bytes something may have, and the setting that says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteLimit {
    pub(super) limit: usize,
    pub(super) setting: &'static str,
}

/// How long a call may take, and the setting that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeLimit {
    pub(super) limit: Duration,
    pub(super) setting: &'static str,
}

impl Limits {
    pub(super) fn key(&self) -> ByteLimit {
        ByteLimit { limit: self.key_bytes, setting: "limits.key" }
    }

    pub(super) fn value(&self) -> ByteLimit {
        ByteLimit { limit: self.value_bytes, setting: "limits.value" }
    }

    pub(super) fn record(&self) -> ByteLimit {
        ByteLimit { limit: self.record_bytes, setting: "limits.record" }
    }

    /// How long a call on behalf of so many records or timers may take.
    pub(super) fn time_of(&self, origins: Option<u32>) -> TimeLimit {
        let by_record = self.record_time.zip(origins).map(|(time, origins)| time.saturating_mul(origins.max(1)));
        match by_record {
            Some(limit) if limit < self.call_time => TimeLimit { limit, setting: "limits.record-time" },
            _ => TimeLimit { limit: self.call_time, setting: "limits.call-time" },
        }
    }
}

/// The account of an instance's memory. It remembers that it refused growth during a call: what fails afterwards (an abort, an
/// endless retry) is that refusal's symptom.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    used: u64,
    tables: usize,
    refused: bool,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: 0, tables: 0, refused: false }
    }

    /// Bytes of linear memory in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether growth was refused since [`Memory::begin_call`].
    pub(super) fn refused(&self) -> bool {
        self.refused
    }

    pub(super) fn begin_call(&mut self) {
        self.refused = false;
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current) as u64;
        let fits = self.used.saturating_add(growth) <= self.limit;
        if fits {
            self.used += growth;
        } else {
            self.refused = true;
        }
        Ok(fits)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // Told of growth that was granted and failed, and of growth that was never asked for above because the memory's type
        // forbids it. Nothing is taken off the account: which of the two it was is not said, and a guest must not shrink its account.
        self.refused = true;
        tracing::debug!(%error, "a guest's memory could not grow");
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let elements = self.tables.saturating_add(desired.saturating_sub(current));
        let fits = elements <= TABLE_ELEMENTS;
        if fits {
            self.tables = elements;
        } else {
            self.refused = true;
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        PARTS
    }

    fn tables(&self) -> usize {
        PARTS
    }

    fn memories(&self) -> usize {
        PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_call_is_its_records_times_up_to_the_calls_own() {
        let seconds = Duration::from_secs;
        let limits = Limits { call_time: seconds(10), record_time: Some(seconds(3)), ..Limits::default() };
        let time = |origins| limits.time_of(origins).limit.as_secs();
        assert_eq!([time(None), time(Some(0)), time(Some(1)), time(Some(3)), time(Some(4))], [10, 3, 3, 9, 10]);
        assert_eq!(limits.time_of(Some(1)).setting, "limits.record-time");
        assert_eq!(limits.time_of(Some(1000)).setting, "limits.call-time");
    }

    #[test]
    fn memory_is_counted_over_all_memories_and_refusal_is_remembered_for_the_call() {
        let mut memory = Memory::new(100);
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(!memory.memory_growing(0, 41, None).unwrap());
        assert!(memory.refused());
        memory.begin_call();
        assert!(memory.memory_growing(0, 40, None).unwrap() && !memory.refused());
        assert!(!memory.memory_growing(0, usize::MAX, None).unwrap());
        assert_eq!(memory.used(), 100);
    }

    #[test]
    fn a_growth_that_its_type_forbids_takes_nothing_off_the_account() {
        let mut memory = Memory::new(100);
        assert!(memory.memory_growing(0, 60, None).unwrap());
        memory.memory_grow_failed(wasmtime::Error::msg("past 4 GiB")).unwrap();
        assert_eq!(memory.used(), 60);
        assert!(memory.refused());
    }

    #[test]
    fn tables_are_bounded_together() {
        let mut memory = Memory::new(100);
        assert!(memory.table_growing(0, TABLE_ELEMENTS, None).unwrap());
        assert!(!memory.table_growing(0, 1, None).unwrap());
        assert!(memory.refused());
    }
}
