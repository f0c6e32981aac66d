//! Evils of time and memory, the same in each export. Does not own when they are done.

use wasmill_guest::bindings::wasmill::operator::diagnostics::{Level, log};
use wasmill_guest::bindings::wasmill::operator::state;

/// Does what never ends well.
pub(super) fn burn(what: &str) -> ! {
    match what {
        "spin" => spin(),
        "spin-in-host" => loop {
            state::mark();
        },
        "chatter" => loop {
            log(Level::Info, "and another thing");
        },
        "recurse" => {
            let depth = recurse(std::hint::black_box(1));
            panic!("came back from {depth}")
        }
        "grow" => grow(Some(1), || panic!("no more memory")),
        "grow-spin" => grow(None, spin),
        "abort" => std::process::abort(),
        "last-words" => {
            log(Level::Error, &"\u{1b}[2J\u{7}never mind ".repeat(1 << 16));
            std::process::abort()
        }
        "index" => {
            let values = std::hint::black_box(vec![1]);
            panic!("{}", values[std::hint::black_box(7)])
        }
        _ => panic!("told to panic"),
    }
}

fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

#[expect(unconditional_recursion, reason = "that is the evil")]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 16]);
    recurse(frame[3] + 1) + frame[5]
}

/// Takes memory until no more is given, and fills it.
fn grow(with: Option<u8>, then: fn() -> !) -> ! {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() || blocks.try_reserve(1).is_err() {
            then()
        }
        if let Some(byte) = with {
            block.resize(1 << 20, byte);
        }
        blocks.push(std::hint::black_box(block));
    }
}
