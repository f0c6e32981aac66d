//! Imports for maps and lists, as a guest calls them. Owns no rule; the guest is [`super::super::tests`].

use crate::guest::tests::{Asked, Described, NOW, batch, embedded, engine, options, plain_module};
use crate::guest::{CallError, Guest, GuestFactory, Limits, SharedState, WIT};

fn start(state: SharedState) -> Box<dyn Guest> {
    let states = vec![("eager", false), ("lazy", true), ("map", false), ("list", false)];
    let module = embedded(plain_module(&Described { states, ..Described::default() }), WIT);
    engine().load_bytes("fixture", &module).unwrap().instantiate(&options(Limits::default()), state).unwrap()
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
