//! Effects: honest ones, and each lie that a column can hold.

use wasmill_guest::bindings::wasmill::operator::state;
use wasmill_guest::types::*;

use super::describe::{EAGER, LAZY, LIST, MAP};
use super::{BAD, act};

/// What a call is about.
pub(super) struct Call {
    /// The slot of each record or timer.
    slots: Vec<u32>,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    /// The counts that ride along, one a slot.
    counts: Vec<u64>,
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn packed(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn times(times: &[i64]) -> Vec<u8> {
    times.iter().flat_map(|time| time.to_le_bytes()).collect()
}

fn values(column: &Column) -> Vec<Vec<u8>> {
    let mut start = 0;
    let value = |end: u32| column.bytes[std::mem::replace(&mut start, end as usize)..end as usize].to_vec();
    words(&column.ends).into_iter().map(value).collect()
}

fn column(values: &[Vec<u8>]) -> Column {
    let mut column = Column { bytes: Vec::new(), ends: Vec::new() };
    for value in values {
        column.bytes.extend_from_slice(value);
        column.ends.extend_from_slice(&(column.bytes.len() as u32).to_le_bytes());
    }
    column
}

fn nothing() -> Effects {
    Effects {
        consumed: 0,
        emits: Emits {
            outputs: Vec::new(),
            origins: Vec::new(),
            keys: None,
            times: None,
            values: column(&[]),
            absent_values: Vec::new(),
            headers: None,
        },
        values: Vec::new(),
        timers: TimerChanges {
            origins: Vec::new(),
            operations: Vec::new(),
            domains: Vec::new(),
            times: Vec::new(),
            tags: Vec::new(),
        },
        rejects: Rejects { origins: Vec::new(), reasons: Vec::new() },
    }
}

impl Call {
    pub(super) fn of_batch(batch: &Batch, eager: &[Eager]) -> Self {
        Self::new(&batch.slots, &batch.keys, values(&batch.values), eager)
    }

    pub(super) fn of_timers(timers: &Firing, eager: &[Eager]) -> Self {
        Self::new(&timers.slots, &timers.keys, Vec::new(), eager)
    }

    fn new(slots: &[u8], keys: &Column, records: Vec<Vec<u8>>, eager: &[Eager]) -> Self {
        let count = |value: Vec<u8>| value.try_into().map_or(0, u64::from_le_bytes);
        let riding = eager.iter().find(|eager| eager.state == EAGER);
        let counts = riding.map(|eager| values(&eager.values.values).into_iter().map(count).collect());
        Self { slots: words(slots), keys: values(keys), values: records, counts: counts.unwrap_or_default() }
    }

    /// The first record to be evil on.
    pub(super) fn bad(&self) -> Option<u32> {
        let is_bad = |slot: &u32| self.keys.get(*slot as usize).is_some_and(|key| key == BAD);
        self.slots.iter().position(is_bad).map(|record| record as u32)
    }

    /// Every record as it came, and its key's count. A neighbour emits the time of the call in the place of the record; one
    /// that churns goes through maps by the thousand first.
    pub(super) fn honest(&self, now: Now) -> Effects {
        self.honest_but_for(None, now)
    }

    /// The same without one of the records.
    pub(super) fn honest_but_for(&self, left_out: Option<u32>, now: Now) -> Effects {
        let mut effects = self.fired();
        let records: Vec<u32> = (0..self.slots.len() as u32).filter(|record| Some(*record) != left_out).collect();
        match act() {
            "neighbour" => {
                let time = [&[0x1b][..], &now.processing_time.to_be_bytes()].concat();
                effects.emits.values = column(&vec![time; records.len()]);
            }
            what => {
                if what == "churn" {
                    records.iter().for_each(|record| churn(*record));
                }
                let values: Vec<_> = records.iter().map(|record| self.values[*record as usize].clone()).collect();
                effects.emits.values = column(&values);
            }
        }
        effects.emits.outputs = vec![0; records.len() * 2];
        effects.emits.origins = packed(&records);
        effects.values.push(self.counted(&records));
        effects
    }

    /// All done, nothing else.
    pub(super) fn fired(&self) -> Effects {
        Effects { consumed: self.slots.len() as u32, ..nothing() }
    }

    fn counted(&self, records: &[u32]) -> ValueWrites {
        let mut counts = self.counts.clone();
        let mut last = vec![None; counts.len()];
        for &record in records {
            let slot = self.slots[record as usize] as usize;
            counts[slot] += 1;
            last[slot] = Some(record);
        }
        let written = last.iter().zip(&counts).filter_map(|(record, count)| record.map(|record| (record, *count)));
        let (origins, counts): (Vec<_>, Vec<_>) = written.unzip();
        let counts: Vec<_> = counts.into_iter().map(|count: u64| count.to_le_bytes().to_vec()).collect();
        ValueWrites {
            state: EAGER,
            operations: vec![1; origins.len()],
            origins: packed(&origins),
            values: column(&counts),
        }
    }
}

/// A thousand entries of the record's map, read and written one by one.
fn churn(record: u32) {
    for key in 0..1000u32 {
        let key = key.to_le_bytes();
        let count = state::map_get(MAP, record, &key).map_or(0, |count| count.try_into().map_or(0, u64::from_le_bytes));
        state::map_put(MAP, record, &key, &(count + 1).to_le_bytes());
    }
}

/// The effects with one lie in them. `bad` is a record of the call.
pub(super) fn spoiled(what: &str, mut effects: Effects, call: &Call, bad: u32) -> Effects {
    let count = call.slots.len();
    match what.split_once('-').unwrap_or((what, "")) {
        ("consumed", "nothing") => effects.consumed = 0,
        ("consumed", "past") => effects.consumed = u32::MAX,
        ("consumed", _) => effects.consumed = count as u32 + 1,
        ("emits", what) => emits(what, &mut effects.emits, count),
        ("values", what) => values_of(what, &mut effects.values, bad),
        ("timers", what) => timers(what, &mut effects.timers, bad),
        _ => panic!("no such lie"),
    }
    effects
}

fn emits(what: &str, emits: &mut Emits, count: usize) {
    let len = emits.values.bytes.len() as u32;
    let nobody = || OptionalColumn { present: vec![0; count], values: column(&vec![Vec::new(); count]) };
    match what {
        "torn" => emits.origins.push(7),
        "outputs" => emits.outputs = vec![0xff; emits.outputs.len()],
        "few-outputs" => emits.outputs.clear(),
        "origins" => emits.origins = packed(&vec![u32::MAX; count]),
        "overlap" => {
            let mut ends = words(&emits.values.ends);
            ends.extend([len, 1]);
            for column in [&mut emits.origins, &mut emits.outputs] {
                column.extend(vec![0; 8]);
            }
            emits.outputs.truncate((count + 2) * 2);
            emits.values.ends = packed(&ends);
        }
        "over-long" => emits.values.ends = packed(&vec![len + 1_000_000; count]),
        "uncovered" => emits.values.bytes.extend([0; 100]),
        "few-ends" => emits.values.ends.clear(),
        "absent" => emits.absent_values = packed(&[u32::MAX]),
        "absent-full" => emits.absent_values = packed(&(0..count as u32).collect::<Vec<_>>()),
        "times" => emits.times = Some(times(&[1])[..7].to_vec()),
        "end-times" => {
            let ends = [i64::MIN, i64::MAX, -1, 0];
            emits.times = Some(times(&(0..count).map(|record| ends[record % 4]).collect::<Vec<_>>()));
        }
        "present" => emits.keys = Some(OptionalColumn { present: vec![7; count], ..nobody() }),
        "few-keys" => emits.keys = Some(OptionalColumn { present: Vec::new(), ..nobody() }),
        "key" => {
            let keys = column(&vec![vec![7; 70_000]; count]);
            emits.keys = Some(OptionalColumn { present: vec![1; count], values: keys });
        }
        "value" => emits.values = column(&vec![vec![0xf6; 2 << 20]; count]),
        "headers" => {
            let names = column(&[b"h".to_vec()]);
            emits.headers = Some(Headers { records: packed(&[0]), values: names.clone(), names });
        }
        "headers-of-none" => {
            let names = column(&[]);
            emits.headers = Some(Headers { records: vec![0], values: names.clone(), names });
        }
        "flood" => {
            emits.values.bytes = vec![1; 1_000_000];
            emits.values.ends = (1..=1_000_000u32).flat_map(u32::to_le_bytes).collect();
            emits.origins = vec![0; 4_000_000];
            emits.outputs = vec![0; 2_000_000];
        }
        "many" => {
            emits.values = column(&vec![b"\x01".to_vec(); 50_000]);
            emits.origins = packed(&vec![0; 50_000]);
            emits.outputs = vec![0; 100_000];
        }
        _ => panic!("no such lie"),
    }
}

fn values_of(what: &str, writes: &mut Vec<ValueWrites>, bad: u32) {
    let write = |state| ValueWrites { state, origins: packed(&[bad]), operations: vec![1], values: column(&[vec![1]]) };
    match what {
        "undeclared" => writes.push(write(9)),
        "kind" => writes.push(write(LIST)),
        "twice" => writes.push(write(EAGER)),
        "key-twice" => {
            let origins = packed(&[bad, bad]);
            let values = column(&[vec![1], vec![2]]);
            *writes = vec![ValueWrites { state: EAGER, origins, operations: vec![1, 1], values }];
        }
        "operation" => *writes = vec![ValueWrites { operations: vec![9], ..write(EAGER) }],
        "cleared" => *writes = vec![ValueWrites { operations: vec![0], ..write(EAGER) }],
        "slot" => *writes = vec![ValueWrites { origins: packed(&[u32::MAX]), ..write(EAGER) }],
        "too-long" => *writes = vec![ValueWrites { values: column(&[vec![1; 2 << 20]]), ..write(EAGER) }],
        "bytes" => *writes = vec![ValueWrites { values: column(&[b"not a count".to_vec()]), ..write(EAGER) }],
        _ => panic!("no such lie"),
    }
}

fn timer(origin: u32, domain: u8, time: i64) -> TimerChanges {
    TimerChanges {
        origins: packed(&[origin]),
        operations: vec![1],
        domains: vec![domain],
        times: times(&[time]),
        tags: packed(&[u32::MAX]),
    }
}

fn timers(what: &str, changes: &mut TimerChanges, bad: u32) {
    *changes = match what {
        "operation" => TimerChanges { operations: vec![2], ..timer(bad, 0, 0) },
        "domain" => TimerChanges { domains: vec![9], ..timer(bad, 0, 0) },
        "times" => TimerChanges { times: vec![0; 7], ..timer(bad, 0, 0) },
        "few-tags" => TimerChanges { tags: Vec::new(), ..timer(bad, 0, 0) },
        "origin" => timer(u32::MAX, 0, 0),
        "ends" => TimerChanges {
            origins: packed(&[bad; 8]),
            operations: vec![1, 1, 1, 1, 0, 0, 1, 1],
            domains: vec![0, 0, 1, 0, 0, 1, 0, 1],
            times: times(&[i64::MIN, i64::MAX, i64::MIN, (1 << 53) - 1, i64::MAX, i64::MAX, -(1 << 53), i64::MAX]),
            tags: packed(&[0, u32::MAX, 0, 7, 8, 0, 1, 1]),
        },
        _ => panic!("no such lie"),
    };
}

/// The effects with a timer that is due at once, in processing time where the evil's name ends so.
pub(super) fn with_timer(what: &str, mut effects: Effects, now: Now, bad: u32) -> Effects {
    effects.timers = match what.ends_with("processing") {
        true => timer(bad, 1, now.processing_time),
        false => timer(bad, 0, i64::MIN),
    };
    effects
}

/// What a firing does beside.
pub(super) fn fired(what: &str, mut effects: Effects, now: Now, timers: &Firing) -> Effects {
    match what {
        "again" => effects.timers = timer(0, 0, i64::MIN),
        "again-processing" => effects.timers = timer(0, 1, now.processing_time),
        "hourly" => {
            let at = i64::from_le_bytes(timers.times[..8].try_into().unwrap_or_default());
            effects.timers = timer(0, 0, at.max(now.watermark).saturating_add(3_600_000));
        }
        _ => {}
    }
    effects
}
