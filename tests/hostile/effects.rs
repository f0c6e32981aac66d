//! The rows of the guest `hostile` that return what is not true: columns, values, refusals, timers.

use crate::case::Meets::{Aside, Failure, Nothing, Output, TimerAside};
use crate::case::Policy::{DeadLetter, Drop, Fail};
use crate::guests::Row;

/// What it returns in columns.
pub const EFFECTS: &[Row] = &[
    ("effects-consumed-nothing", "consumes nothing", DeadLetter, Aside("malformed", &["consumed: 0 of 1"])),
    (
        "effects-consumed-past",
        "consumes 4 billion records",
        DeadLetter,
        Aside("malformed", &["consumed: 4294967295 of 1"]),
    ),
    ("effects-consumed-one-more", "consumes one record more", Drop, Aside("malformed", &["consumed: 2 of 1"])),
    (
        "effects-emits-torn",
        "emits for a quarter of a record",
        DeadLetter,
        Aside("malformed", &["emits.origins: 5 bytes are no whole number"]),
    ),
    (
        "effects-emits-outputs",
        "emits to output 65,535",
        DeadLetter,
        Aside("malformed", &["emits.outputs[0]: output 65535 of 1"]),
    ),
    ("effects-emits-few-outputs", "emits to no output", DeadLetter, Aside("malformed", &["emits.outputs: 0 bytes"])),
    (
        "effects-emits-origins",
        "emits for a record of no call",
        DeadLetter,
        Aside("malformed", &["emits.origins[0]: record 4294967295 is not among the 1 consumed"]),
    ),
    (
        "effects-emits-overlap",
        "emits values that overlap",
        DeadLetter,
        Aside("malformed", &["emits.values[2]: it ends at 1, before"]),
    ),
    (
        "effects-emits-over-long",
        "emits past the end of its bytes",
        DeadLetter,
        Aside("malformed", &["emits.values: the last value ends at"]),
    ),
    (
        "effects-emits-uncovered",
        "emits bytes of no value",
        Drop,
        Aside("malformed", &["emits.values: the last value ends at"]),
    ),
    ("effects-emits-few-ends", "emits without values", DeadLetter, Aside("malformed", &["emits.values: 0 bytes"])),
    (
        "effects-emits-absent",
        "emits an absent value of no record",
        DeadLetter,
        Aside("malformed", &["emits.absent-values[0]: value 4294967295"]),
    ),
    (
        "effects-emits-absent-full",
        "emits an absent value with bytes",
        DeadLetter,
        Aside("malformed", &["emits.absent-values[0]: value 0 is absent and has bytes"]),
    ),
    ("effects-emits-times", "emits seven eighths of a time", DeadLetter, Aside("malformed", &["emits.times: 7 bytes"])),
    ("effects-emits-end-times", "emits at the ends of time", DeadLetter, Nothing),
    (
        "effects-emits-present",
        "emits keys that are there seven times",
        DeadLetter,
        Aside("malformed", &["emits.keys[0]: present is 7"]),
    ),
    ("effects-emits-few-keys", "emits keys for no record", DeadLetter, Aside("malformed", &["emits.keys: 0 bytes"])),
    (
        "effects-emits-key",
        "emits a key of 70,000 bytes",
        DeadLetter,
        Aside("malformed", &["emits.keys[0]: 70000 bytes, and 65536 are allowed"]),
    ),
    (
        "effects-emits-value",
        "emits a record of 2 MiB",
        Fail,
        Aside("malformed", &["emits.values[0]: 2097152 bytes, and 1048576 are allowed"]),
    ),
    (
        "effects-emits-headers",
        "emits headers that it did not declare",
        DeadLetter,
        Aside("malformed", &["emits.headers.records[0]: output `out` is not declared to carry headers"]),
    ),
    (
        "effects-emits-headers-of-none",
        "emits headers of a quarter of a record",
        DeadLetter,
        Aside("malformed", &["emits.headers.records: 1 bytes"]),
    ),
    (
        "effects-emits-flood",
        "emits a million records at once",
        DeadLetter,
        Aside("result-limit", &["`process` handed over more than its limit of 8 MiB"]),
    ),
    ("effects-emits-many", "emits 50,000 records at once", DeadLetter, Output(50_000)),
];

/// What it writes of values.
pub const VALUES: &[Row] = &[
    (
        "effects-values-undeclared",
        "writes a state that it did not declare",
        DeadLetter,
        Aside("malformed", &["values.state: state 9 of 4"]),
    ),
    (
        "effects-values-kind",
        "writes a list as a value",
        Drop,
        Aside("malformed", &["values.state: state `list` is no value state of this call's keys"]),
    ),
    (
        "effects-values-twice",
        "writes a state twice",
        DeadLetter,
        Aside("malformed", &["values.state: state `eager` comes twice"]),
    ),
    ("effects-values-key-twice", "writes a key twice", DeadLetter, Aside("malformed", &["a second entry for its key"])),
    (
        "effects-values-operation",
        "writes by an operation of its own",
        DeadLetter,
        Aside("malformed", &["values.operations[0]: operation 9"]),
    ),
    (
        "effects-values-cleared",
        "clears a value with bytes",
        DeadLetter,
        Aside("malformed", &["values.values[0]: a value beside an operation"]),
    ),
    (
        "effects-values-slot",
        "writes for a record of no call",
        DeadLetter,
        Aside("malformed", &["values.origins[0]: record 4294967295"]),
    ),
    (
        "effects-values-too-long",
        "writes a value of 2 MiB",
        DeadLetter,
        Aside("malformed", &["values.values[0]: 2097152 bytes, and 1048576 are allowed"]),
    ),
    ("effects-values-bytes", "writes a value that it cannot read", DeadLetter, Nothing),
];

/// What it refuses.
pub const REJECTS: &[Row] = &[
    ("reject-politely", "refuses a record", DeadLetter, Aside("rejected", &["because"])),
    ("reject-reason", "refuses a record for 5 MiB of reasons", DeadLetter, Aside("rejected", &["because"])),
    ("reject-unclean", "refuses a record and leaves writes behind", DeadLetter, Aside("rejected", &["because"])),
    ("reject-twice", "refuses a record twice", DeadLetter, Aside("malformed", &["is rejected twice"])),
    (
        "reject-reasons",
        "refuses a record without a reason",
        DeadLetter,
        Aside("malformed", &["rejects.reasons: 0 bytes"]),
    ),
    (
        "reject-origin",
        "refuses a record of no call",
        DeadLetter,
        Aside("malformed", &["rejects.origins[0]: record 4294967295"]),
    ),
    (
        "reject-effect",
        "emits for a record that it refuses",
        DeadLetter,
        Aside("malformed", &["emits.origins[0]: an effect of a record that is rejected"]),
    ),
];

/// What it does with timers.
pub const TIMERS: &[Row] = &[
    (
        "effects-timers-operation",
        "changes a timer by an operation of its own",
        DeadLetter,
        Aside("malformed", &["timers.operations[0]: operation 2"]),
    ),
    (
        "effects-timers-domain",
        "sets a timer in a time of its own",
        DeadLetter,
        Aside("malformed", &["timers.domains[0]: domain 9"]),
    ),
    (
        "effects-timers-times",
        "sets a timer to seven eighths of a time",
        DeadLetter,
        Aside("malformed", &["timers.times: 7 bytes"]),
    ),
    ("effects-timers-few-tags", "sets a timer without a tag", Drop, Aside("malformed", &["timers.tags: 0 bytes"])),
    (
        "effects-timers-origin",
        "sets a timer for a record of no call",
        DeadLetter,
        Aside("malformed", &["timers.origins[0]: record 4294967295"]),
    ),
    ("effects-timers-ends", "sets and deletes timers at the ends of i64", DeadLetter, Nothing),
    ("timer-once", "sets a timer at the beginning of time", DeadLetter, Nothing),
    ("timer-hourly", "sets its timer again for ever", DeadLetter, Nothing),
    (
        "timer-again",
        "sets its timer again without time going on",
        DeadLetter,
        Failure(&["with key `bad`", "sets timers without an end"]),
    ),
    (
        "timer-again-processing",
        "does so in processing time",
        DeadLetter,
        Failure(&["with key `bad`", "sets timers without an end"]),
    ),
    ("fire-panic", "traps in fire", DeadLetter, TimerAside("trap", &["`fire` trapped", "told to panic"])),
    (
        "fire-spin",
        "never comes back from fire",
        DeadLetter,
        TimerAside("time-limit", &["`fire` did not return within its time limit of 250ms"]),
    ),
    (
        "fire-recurse",
        "recurses in fire",
        Drop,
        TimerAside("trap", &["`fire` trapped", "out of bounds memory access", "burn::recurse"]),
    ),
    (
        "fire-grow",
        "takes memory in fire",
        DeadLetter,
        TimerAside("memory-limit", &["`fire` reached its memory limit of 32 MiB"]),
    ),
    (
        "fire-consumed",
        "fires no timer",
        DeadLetter,
        TimerAside("malformed", &["`fire` returned effects that are not valid: consumed: 0 of 1"]),
    ),
    (
        "fire-import",
        "reads for no timer of its call in fire",
        Fail,
        TimerAside("trap", &["`fire` trapped", "value-get: origin"]),
    ),
    ("fire-panic-processing", "traps in fire in processing time", DeadLetter, TimerAside("trap", &["`fire` trapped"])),
    (
        "fire-fatal",
        "says in fire that the job cannot go on",
        DeadLetter,
        Failure(&["`fire` failed: told to end the job"]),
    ),
];
