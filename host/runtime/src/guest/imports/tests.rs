//! Imports for maps and lists, as a guest calls them. Owns no rule; the guest is [`super::super::tests`].

use std::time::Duration;

use super::timed::ELEMENTS;
use crate::guest::engine::CATCH_UP;
use crate::guest::tests::{Asked, Described, NOW, batch, embedded, engine, options, plain_module};
use crate::guest::{CallError, Engine, Guest, GuestFactory, InstanceOptions, Limits, SharedState, WIT};

fn start(state: SharedState) -> Box<dyn Guest> {
    let states = vec![("eager", false), ("lazy", true), ("map", false), ("list", false)];
    let module = embedded(plain_module(&Described { states, ..Described::default() }), WIT);
    engine().load_bytes("fixture", &module).unwrap().instantiate(&options(Limits::default()), state).unwrap()
}

/// With a broadcast input, broadcast state 4 and operator state 5 beside.
fn start_broadcast(state: &SharedState) -> Box<dyn Guest> {
    start_limited(&engine(), &options(Limits::default()), state)
}

fn start_limited(engine: &Engine, options: &InstanceOptions, state: &SharedState) -> Box<dyn Guest> {
    let states = ["eager", "lazy", "map", "list", "broadcast", "split"].map(|name| (name, name == "lazy")).to_vec();
    let described = Described { states, broadcast: true, ..Described::default() };
    let component = engine.load_bytes("fixture", &embedded(plain_module(&described), WIT)).unwrap();
    component.instantiate(options, SharedState::clone(state)).unwrap()
}

#[test]
fn state_of_no_key_is_asked_of_the_subtask() {
    let (asked, state) = Asked::shared();
    start_broadcast(&state).process(0, NOW, &batch(&[b"w"]), &[]).unwrap();
    assert_eq!(
        asked.lock().log,
        [
            "broadcast-put 4 [105, 116] [104, 117, 114, 116, 115]",
            "broadcast-page 4 Range { lower: Unbounded, upper: Unbounded, reverse: false } 7",
            "operator-replace 5 [[105, 116], [32, 104, 117, 114, 116, 115]]",
            "operator-page 5 5 6",
        ]
    );
}

#[test]
fn only_a_broadcast_inputs_record_writes_broadcast_state_and_it_has_no_keyed_state() {
    let (asked, state) = Asked::shared();
    let cases: [(u16, &[u8], &str); 3] = [
        (1, b"w", "broadcast-put: broadcast state `broadcast` is written on behalf of a broadcast input's record only"),
        (0, b"g", "value-get: this is a record of the broadcast input `in`"),
        (0, b"k", "map-put: this is a record of the broadcast input `in`"),
    ];
    for (input, command, expected) in cases {
        let error = start_broadcast(&state).process(input, NOW, &batch(&[command]), &[]).unwrap_err();
        assert!(matches!(&error, CallError::Trap { at } if at.cause.contains(expected)), "{error}");
    }
    assert!(asked.lock().log.is_empty());
}

#[test]
fn maps_and_lists_are_asked_of_the_subtask_with_bounds_and_columns() {
    let (asked, state) = Asked::shared();
    start(state).process(0, NOW, &batch(&[b"k"]), &[]).unwrap();
    assert_eq!(
        asked.lock().log,
        [
            "map-put 2 0 [105, 116] [104, 117, 114, 116, 115]",
            "map-page 2 0 Range { lower: Excluded([105, 116]), upper: Unbounded, reverse: true } 7",
            "list-append 3 0 [[105, 116], [32, 104, 117, 114, 116, 115]]",
            "list-length 3 0",
            "list-page 3 0 5 6",
        ]
    );
}

#[test]
fn a_column_that_contradicts_itself_does_not_reach_the_state() {
    let (asked, state) = Asked::shared();
    let error = start(state).process(0, NOW, &batch(&[b"K"]), &[]).unwrap_err();
    let expected = "list-append: values";
    assert!(matches!(&error, CallError::Trap { at } if at.cause.contains(expected)), "{error}");
    assert!(asked.lock().log.is_empty());
}

/// What the import of each command is asked or given before a slow state has used up the call's time.
#[test]
fn an_import_of_many_elements_ends_with_the_time_of_its_call() {
    let limits = Limits { call_time: Duration::from_millis(100), ..Limits::default() };
    let engine = engine();
    for command in b"01234567" {
        let (asked, state) = Asked::shared();
        let mut guest = start_limited(&engine, &options(limits.clone()), &state);
        // Past the call's end even where the ticker was held up when it began.
        asked.lock().delay = Some((engine.clone(), engine.deadline(limits.call_time) + CATCH_UP));
        let error = guest.process(1, NOW, &batch(&[&[*command]]), &[]).unwrap_err();
        assert!(matches!(&error, CallError::TimedOut { setting: "limits.call-time", .. }), "{error}");
        assert_eq!(asked.lock().elements, ELEMENTS, "command {}", char::from(*command));
    }
}

#[test]
fn many_elements_in_time_are_all_asked_for_and_given() {
    for command in b"01234567" {
        let (asked, state) = Asked::shared();
        start_broadcast(&state).process(1, NOW, &batch(&[&[*command]]), &[]).unwrap();
        assert_eq!(asked.lock().elements, 3_000, "command {}", char::from(*command));
    }
}
