//! Evils through the imports. `bad` is the origin on whose behalf they are done.

use wasmill_guest::bindings::wasmill::operator::diagnostics::{Level, counter_add, gauge_set, histogram_record, log};
use wasmill_guest::bindings::wasmill::operator::state::*;
use wasmill_guest::types::{Column, Effects, Rejects};

use super::describe::{EAGER, LAZY, LIST, MAP};

fn column(values: &[&[u8]]) -> Column {
    let mut column = Column { bytes: Vec::new(), ends: Vec::new() };
    for value in values {
        column.bytes.extend_from_slice(value);
        column.ends.extend_from_slice(&(column.bytes.len() as u32).to_le_bytes());
    }
    column
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn bounds(lower: Option<&[u8]>, upper: Option<&[u8]>, open: bool, reverse: bool) -> Bounds {
    Bounds {
        lower: lower.map(<[u8]>::to_vec),
        lower_open: open,
        upper: upper.map(<[u8]>::to_vec),
        upper_open: open,
        reverse,
        limit: u32::MAX,
    }
}

/// Does it. What comes back did nothing that the contract forbids, and the call may go on.
pub(super) fn abuse(what: &str, bad: u32) {
    match what {
        "undeclared" => drop(value_get(999, bad)),
        "kind" => drop(map_get(LAZY, bad, b"")),
        "riding" => value_set(EAGER, bad, b"mine"),
        "origin" => drop(value_get(LAZY, u32::MAX)),
        "origins" => drop(value_get_many(LAZY, &[1, 2, 3])),
        "many" => map_put_many(MAP, &words(&[bad, bad]), &column(&[b"a"]), &column(&[b"b", b"c"])),
        "column" => list_append(LIST, bad, &Column { bytes: vec![1, 2], ends: words(&[7]) }),
        "ends" => list_replace(LIST, bad, &Column { bytes: vec![1, 2], ends: words(&[2, 1]) }),
        "map-key" => map_put(MAP, bad, &[7; 70_000], b""),
        "value" => value_set(LAZY, bad, &vec![7; 3 << 20]),
        "argument" => value_set(LAZY, bad, &vec![7; 12 << 20]),
        "never-given" => rollback(mark() + 12_345),
        "rolled-back" => {
            let first = mark();
            value_set(LAZY, bad, b"1");
            let second = mark();
            rollback(first);
            rollback(second);
        }
        "overlay" => (0u32..).for_each(|key| map_put(MAP, bad, &key.to_le_bytes(), &[1; 1000])),
        "overlay-of-nothing" => loop {
            list_append(LIST, bad, &column(&[]));
        },
        "answer" => {
            value_set(LAZY, bad, &vec![1; 1 << 20]);
            drop(value_get_many(LAZY, &words(&vec![bad; 1 << 20])));
        }
        "answer-of-map" => {
            map_put(MAP, bad, b"k", &vec![1; 1 << 20]);
            let keys = column(&vec![&b"k"[..]; 1 << 18]);
            drop(map_get_many(MAP, &words(&vec![bad; 1 << 18]), &keys));
        }
        "metrics" => metrics(),
        "metric-names" => {
            let rest = "x".repeat(2 << 20);
            for name in 'a'..='z' {
                for of in 'a'..='d' {
                    counter_add(&format!("{name}{of}{rest}"), 1);
                }
            }
        }
        "log" => (0..20_000).for_each(|line| log(Level::Info, &format!("line {line} \u{1b}[31m"))),
        "ranges" => ranges(bad),
        "ends-of-lists" => ends_of_lists(bad),
        _ => {
            log(Level::Error, what);
            panic!("no such evil")
        }
    }
}

fn metrics() {
    for number in 0..20_000 {
        counter_add(&format!("m{number}"), u64::MAX);
        gauge_set(&format!("m{number}"), f64::NAN);
        histogram_record("h", f64::INFINITY);
    }
    counter_add("", 1);
    counter_add("one", u64::MAX);
    counter_add("one", u64::MAX);
    gauge_set("one", f64::NEG_INFINITY);
    histogram_record("one", -0.0);
}

/// Ranges that end before they begin, or hold nothing, over what the call wrote and over what is stored.
fn ranges(bad: u32) {
    for clear in [false, true] {
        if clear {
            map_clear(MAP, bad);
        }
        for reverse in [false, true] {
            for open in [false, true] {
                let pages = [
                    map_page(MAP, bad, &bounds(Some(b"z"), Some(b"a"), open, reverse)),
                    map_page(MAP, bad, &bounds(Some(b"m"), Some(b"m"), open, reverse)),
                    map_page(MAP, bad, &bounds(Some(b""), Some(b""), open, reverse)),
                    map_page(MAP, bad, &bounds(Some(&[255; 65_536]), None, open, reverse)),
                    map_page(MAP, bad, &bounds(None, Some(b""), open, reverse)),
                ];
                assert!(pages.iter().all(|page| page.values.bytes.len() < 2), "entries that are not in the range");
                drop(map_page(MAP, bad, &Bounds { limit: 0, ..bounds(None, None, open, reverse) }));
            }
        }
        map_put(MAP, bad, b"m", b"1");
    }
    map_clear(MAP, bad);
}

fn ends_of_lists(bad: u32) {
    for _ in 0..2 {
        for start in [0, 1, u64::MAX - 1, u64::MAX] {
            for limit in [0, 1, u32::MAX] {
                drop(list_page(LIST, bad, start, limit));
            }
        }
        list_append(LIST, bad, &column(&[b"", b"1"]));
    }
    list_clear(LIST, bad);
    assert!(list_length(LIST, bad) == 0, "elements in a cleared list");
}

/// Rejects the record, of which the effects hold nothing, with some evil.
pub(super) fn reject(what: &str, mut effects: Effects, bad: u32) -> Effects {
    let reason = match what {
        "reason" => "\u{1b}[2Jbecause ".repeat(1 << 18),
        _ => "because".to_owned(),
    };
    effects.rejects = Rejects { origins: words(&[bad]), reasons: vec![reason] };
    match what {
        "twice" => effects.rejects = Rejects { origins: words(&[bad, bad]), reasons: vec![String::new(); 2] },
        "reasons" => effects.rejects.reasons.clear(),
        "origin" => effects.rejects.origins = words(&[u32::MAX]),
        "unclean" => value_set(LAZY, bad, b"left behind"),
        "effect" => {
            effects.emits.origins.extend(bad.to_le_bytes());
            effects.emits.outputs.extend([0, 0]);
            effects.emits.values.ends.extend((effects.emits.values.bytes.len() as u32).to_le_bytes());
        }
        _ => {}
    }
    effects
}
