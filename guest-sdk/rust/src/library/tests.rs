//! What the parts of the library share.
//!
//! Owns the test that all of them judge lateness alike.

use std::time::Duration;

use crate::aggregate::Count;
use crate::bindings::wasmill::operator::types::StateDescriptor;
use crate::dedup::{Dedup, Seen};
use crate::join::{Between, IntervalJoin, WindowJoin};
use crate::pattern::{Pattern, Role, Within};
use crate::prelude::*;
use crate::testing::{Emitted, Harness, Input};
use crate::window::{Gap, Sessions, Tumbling, Windows};

const SECOND: Tumbling = Tumbling::of(Duration::from_secs(1));
const NEAR: Between = Between::millis(-10_000, 10_000);
const GAP: Gap = Gap::of(Duration::from_millis(1));

/// Every part of the library over the same records.
#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), timers)]
struct Everything {
    windows: Windows<Count>,
    sessions: Sessions<Count>,
    join: IntervalJoin<u8, u8>,
    window_join: WindowJoin<u8, u8>,
    dedup: Dedup,
    pattern: Pattern<u8>,
}

impl Process for Everything {
    fn process(&mut self, _: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let late = [
            ("windows", self.windows.update(ctx, &SECOND, Count::add)?.is_late()),
            ("sessions", self.sessions.update(ctx, &GAP, Count::add)?.is_late()),
            ("join", self.join.left(ctx, NEAR, 0, |_, _, _| Ok(()))?.is_late()),
            ("join right", self.join.right(ctx, NEAR, 0, |_, _, _| Ok(()))?.is_late()),
            ("window join", self.window_join.left(ctx, &SECOND, 0)?.is_late()),
            ("dedup", self.dedup.check(ctx, Duration::from_secs(10))? == Seen::Late),
            ("pattern", self.pattern.add(ctx, Role::Both, 0)?.is_late()),
        ];
        late.into_iter().filter(|(_, late)| *late).try_for_each(|(part, _)| ctx.to("late").emit(part))
    }
}

impl OnTimer for Everything {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let mut fired = Vec::new();
        fired.extend(self.windows.fire(ctx, &SECOND, &timer)?);
        for (window, count) in fired {
            ctx.emit(&(window.start, count.get()))?;
        }
        let _ = self.sessions.fire(ctx, &GAP, &timer)?;
        self.join.fire(ctx, NEAR, &timer)?;
        self.window_join.fire(ctx, &SECOND, &timer, |_, _, _, _| Ok(()))?;
        self.dedup.fire(ctx, Duration::from_secs(10), &timer)?;
        self.pattern.fire(ctx, Within::of(Duration::from_secs(10)), &timer, |_, _, _| Ok(()))
    }
}

fn at(time: i64) -> Timestamp {
    Timestamp::from_millis(time)
}

fn record(time: i64) -> Input {
    Input::absent().key("k").at(at(time))
}

fn late(emits: &[Emitted]) -> Vec<String> {
    emits.iter().filter(|emit| emit.output == "late").map(|emit| emit.value().unwrap()).collect()
}

#[test]
fn e7_every_operator_judges_a_record_at_the_watermark_alike() {
    let all = ["windows", "sessions", "join", "join right", "window join", "dedup", "pattern"];
    for (time, expected) in [(998, &all[..]), (999, &all[..]), (1_000, &[][..])] {
        let mut test = Harness::<Everything>::new("{}").unwrap();
        let first = test.process([record(500).then_watermark(at(999))]).unwrap();
        assert_eq!(first.len(), 1, "the window [0, 1000) fires at 999");
        let emits = test.process([record(time)]).unwrap();
        assert_eq!(late(&emits), expected, "a record at {time}");
        assert_eq!(test.counter("late_records"), expected.len() as u64);
        let rest = test.end_of_input().unwrap();
        let windows = if expected.is_empty() { vec![(1_000, 1)] } else { vec![] };
        let told: Vec<(i64, u64)> = rest.iter().map(|emit| emit.value().unwrap()).collect();
        assert_eq!(told, windows, "the window that has fired does not fire again");
    }
}

#[test]
fn nothing_is_left_once_time_has_passed() {
    for size in [1, 7, 1_024] {
        let mut test = Harness::<Everything>::new("{}").unwrap().batches_of(size);
        test.process((0..50).map(|n| record(n * 300).then_watermark(at(n * 300 - 700)))).unwrap();
        test.advance_watermark(at(40_000)).unwrap();
        for state in Instance::describe().states {
            assert_eq!(test.state_len(&state.name).unwrap(), 0, "`{}`", state.name);
        }
        assert_eq!(test.timer_count(), 0);
    }
}

type Instance = crate::instance::Instance<Everything>;

#[test]
fn states_of_a_part_are_named_after_its_field_and_timers_after_its_name() {
    let names: Vec<String> = Instance::describe().states.into_iter().map(|state| state.name).collect();
    let expected = [
        "windows",
        "sessions",
        "join.left",
        "join.right",
        "join.queue",
        "window-join.left",
        "window-join.right",
        "window-join.queue",
        "window-join.fired",
        "dedup",
        "pattern.waiting",
        "pattern.queue",
        "pattern.open",
    ];
    assert_eq!(names, expected);
    assert_eq!(super::tag("windows", ""), super::tag("win", "dows"));
    assert_eq!(super::tag("counts", "") >> 31, 1);
}

#[test]
fn the_librarys_stored_values_and_tags_stay_what_they_were() {
    let mut test = Harness::<Everything>::new("{}").unwrap();
    test.process([record(1_500)]).unwrap();
    let bytes = |state: &str| test.state_bytes(state, "k").unwrap().unwrap().to_vec();
    assert_eq!(bytes("windows"), b"\x81\x84\x19\x03\xe8\x19\x07\xd0\xf5\x01");
    assert_eq!(bytes("sessions"), b"\x81\x84\x19\x05\xdc\x19\x05\xdd\xf5\x01");
    assert_eq!(bytes("join.queue"), b"\xa2\x64kept\x02\x64next\x02");
    assert_eq!(bytes("dedup"), b"\x19\x05\xdc");
    assert_eq!(test.map::<(Timestamp, u64), u8>("join.left", "k").unwrap(), [((at(1_500), 0), 0)]);
    let tags: Vec<(i64, u32)> =
        test.timers("k").unwrap().iter().map(|timer| (timer.time.as_millis(), timer.tag)).collect();
    assert_eq!(tags.len(), 7);
    assert!(tags.contains(&(1_999, super::tag("windows", ""))));
    // FNV-1a of "dedup", 32 bits, with the highest bit set.
    assert_eq!(super::tag("dedup", ""), fnv(b"dedup") | 1 << 31);
}

fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619))
}

#[test]
fn the_librarys_states_say_that_timers_clean_them() {
    let says = r#""x-wasmill-cleaned":"timers"}"#;
    let states = Everything::describe().states;
    assert_eq!(states.len(), 13);
    assert!(states.iter().all(|state| state.value_type.ends_with(says)), "{states:?}");
    let cleaned = |value_type: &str| {
        super::cleaned(StateDescriptor { value_type: value_type.to_owned(), ..states[0].clone() }).value_type
    };
    assert_eq!([cleaned("true"), cleaned("{}")], [format!("{{{says}"), format!("{{{says}")]);
    assert_eq!(cleaned(r#"{"type":"integer"}"#), format!(r#"{{"type":"integer",{says}"#));
    assert_eq!(cleaned("bytes"), "bytes");
}
