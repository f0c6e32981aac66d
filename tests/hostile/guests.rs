//! The rows of the guest `hostile`: what it does on its contract's own terms, and what it must get for it. What it returns stands
//! in `effects`.

use crate::case::Meets::{Aside, Failure, Nothing, Refusal};
use crate::case::Policy::{DeadLetter, Drop, Fail};
use crate::case::{Case, Meets, Policy};
use crate::effects;
use crate::file::File;

/// Name and stamp, what it does, what the pipeline does, what it meets.
pub type Row = (&'static str, &'static str, Policy, Meets);

/// All of them.
pub fn rows() -> Vec<Case> {
    let all = [DESCRIBES, STARTS, CALLS, IMPORTS, effects::EFFECTS, effects::VALUES, effects::REJECTS, effects::TIMERS]
        .concat();
    all.into_iter()
        .map(|(name, does, policy, meets)| Case { name, does, file: File::Stamped(name), policy, meets })
        .collect()
}

const WRONGLY: &str = "it describes itself wrongly";

/// What it says of itself.
const DESCRIBES: &[Row] = &[
    (
        "describe-spin",
        "never describes itself",
        Fail,
        Refusal(&["cannot describe itself", "did not return within its time limit of 10s"]),
    ),
    ("describe-panic", "traps in describe", Fail, Refusal(&["cannot describe itself", "`describe` trapped"])),
    (
        "describe-recurse",
        "recurses in describe",
        Fail,
        Refusal(&["`describe` trapped", "out of bounds memory access", "burn::recurse"]),
    ),
    ("describe-grow", "takes memory in describe", Fail, Refusal(&["`describe` reached its memory limit"])),
    ("describe-state", "asks for state in describe", Fail, Refusal(&["`describe` trapped", "value-get: "])),
    ("describe-no-input", "has no input", Fail, Refusal(&[WRONGLY, "no input"])),
    ("describe-outputs", "has 5,000 outputs", Fail, Refusal(&[WRONGLY, "5000 outputs, and 256 are the most"])),
    (
        "describe-broadcast-output",
        "has a broadcast output",
        Fail,
        Refusal(&[WRONGLY, "output `out` is declared `broadcast`"]),
    ),
    ("describe-nameless", "has no name", Fail, Refusal(&[WRONGLY, "the operator's name", "1 to 128 bytes"])),
    ("describe-long-name", "has a name of 4 MiB", Fail, Refusal(&[WRONGLY, "the operator's name", "1 to 128 bytes"])),
    ("describe-escape-name", "has a name that clears the screen", Fail, Refusal(&[WRONGLY, "the operator's name"])),
    ("describe-twice", "has two states of one name", Fail, Refusal(&[WRONGLY, "two states with the name `eager`"])),
    (
        "describe-state-name",
        "has a state named like a path",
        Fail,
        Refusal(&[WRONGLY, "`../../eager` is not a valid state name"]),
    ),
    (
        "describe-reserved",
        "takes a state of the host's for its own",
        Fail,
        Refusal(&[WRONGLY, "`wasmill.timers`: the name is wasmill's own"]),
    ),
    (
        "describe-map-key",
        "has a map without a key",
        Fail,
        Refusal(&[WRONGLY, "does not declare the type of its map key"]),
    ),
    ("describe-schema", "has a type that is no schema", Fail, Refusal(&[WRONGLY, "the type of state `eager`"])),
    ("describe-deep-schema", "has a schema of 100,000 levels", Fail, Refusal(&[WRONGLY, "the type of state `eager`"])),
    ("describe-long-schema", "has a schema of 1 MiB", Fail, Refusal(&[WRONGLY, "the type of state `eager`"])),
    ("describe-lazy-map", "has a lazy map", Fail, Refusal(&[WRONGLY, "state `map` is declared `lazy`"])),
    (
        "describe-rides",
        "has a state that rides with no input",
        Fail,
        Refusal(&[WRONGLY, "rides with input 7, and there are 1"]),
    ),
    ("describe-ttl", "has a state that expires at once", Fail, Refusal(&[WRONGLY, "a TTL of 0 ms"])),
    (
        "describe-expired-output",
        "sends what expires nowhere",
        Fail,
        Refusal(&[WRONGLY, "to output 65535, and there are 1"]),
    ),
    ("describe-renamed", "was called what another is called", Fail, Refusal(&[WRONGLY, "once called `lazy`"])),
    ("describe-migrates", "migrates from itself", Fail, Refusal(&[WRONGLY, "names version 1 among those"])),
];

/// What it does before the first record.
const STARTS: &[Row] = &[
    (
        "configure-panic",
        "traps in configure",
        DeadLetter,
        Failure(&["`configure` trapped", "told to panic", "gave up after 1 restarts"]),
    ),
    (
        "configure-spin",
        "never takes its configuration",
        DeadLetter,
        Failure(&["`configure` did not return within its time limit of 250ms"]),
    ),
    (
        "configure-recurse",
        "recurses in configure",
        DeadLetter,
        Failure(&["`configure` trapped", "out of bounds memory access", "burn::recurse"]),
    ),
    (
        "configure-grow",
        "takes memory in configure",
        DeadLetter,
        Failure(&["`configure` reached its memory limit of 32 MiB"]),
    ),
    (
        "configure-fatal",
        "refuses its configuration",
        DeadLetter,
        Failure(&["`configure` failed: not with this configuration"]),
    ),
    (
        "configure-state",
        "asks for state in configure",
        DeadLetter,
        Failure(&["`configure` trapped", "no state outside `process` and `fire`"]),
    ),
];

const SPINS: &[&str] = &["`process` did not return within its time limit of 250ms", "limits.call-time"];
const GROWS: &[&str] = &["`process` reached its memory limit of 32 MiB", "limits.memory"];

/// What it does with a call.
const CALLS: &[Row] = &[
    ("process-spin", "loops for ever", DeadLetter, Aside("time-limit", SPINS)),
    ("process-spin-in-host", "calls the host for ever", Drop, Aside("time-limit", SPINS)),
    ("process-chatter", "logs for ever", DeadLetter, Aside("time-limit", SPINS)),
    (
        "process-recurse",
        "recurses for ever",
        DeadLetter,
        Aside("trap", &["`process` trapped", "out of bounds memory access", "burn::recurse"]),
    ),
    ("process-grow", "takes memory until it is refused, and traps", DeadLetter, Aside("memory-limit", GROWS)),
    ("process-grow-spin", "takes memory until it is refused, and loops", Drop, Aside("memory-limit", GROWS)),
    (
        "process-panic",
        "panics",
        DeadLetter,
        Aside("trap", &["`process` trapped", "its last words", "told to panic", "Hostile"]),
    ),
    (
        "process-index",
        "reads past a list's end, under `fail`",
        Fail,
        Aside("trap", &["`process` trapped", "index out of bounds", "gave up after 1 restarts"]),
    ),
    ("process-abort", "aborts without a word", Drop, Aside("trap", &["`process` trapped"])),
    (
        "process-last-words",
        "clears the screen in 1 MiB of last words",
        DeadLetter,
        Aside("trap", &["`process` trapped", "never mind"]),
    ),
    (
        "process-fatal",
        "says that the job cannot go on",
        DeadLetter,
        Failure(&["`process` failed: told to end the job", "gave up after 1 restarts"]),
    ),
    (
        "process-retry",
        "asks for another try for ever",
        DeadLetter,
        Failure(&["`process` failed and may be tried again", "gave up after 1 restarts"]),
    ),
];

/// What it asks of the host.
const IMPORTS: &[Row] = &[
    (
        "import-undeclared",
        "reads a state that it did not declare",
        DeadLetter,
        Aside("trap", &["value-get: state 999 is not declared"]),
    ),
    ("import-kind", "reads a value as a map", Drop, Aside("trap", &["map-get: state `lazy` is not map state"])),
    ("import-riding", "writes what rides along", DeadLetter, Aside("trap", &["value-set: state `eager` rides along"])),
    (
        "import-origin",
        "reads for a record of no call",
        DeadLetter,
        Aside("trap", &["value-get: origin 4294967295 is not of this call"]),
    ),
    (
        "import-origins",
        "names three quarters of a record",
        DeadLetter,
        Aside("trap", &["value-get-many: origins of 3 bytes"]),
    ),
    ("import-many", "writes two values under one key", DeadLetter, Aside("trap", &["map-put-many: keys"])),
    (
        "import-column",
        "appends past the end of its bytes",
        DeadLetter,
        Aside("trap", &["list-append: values", "of 2 bytes"]),
    ),
    (
        "import-ends",
        "appends a value that ends before it begins",
        Drop,
        Aside("trap", &["list-replace: values[1]: it ends at 1"]),
    ),
    (
        "import-map-key",
        "writes under a key of 70,000 bytes",
        DeadLetter,
        Aside("trap", &["map-put: a map key of 70000 bytes, and 65536 are allowed"]),
    ),
    (
        "import-value",
        "writes a value of 3 MiB",
        Fail,
        Aside("trap", &["value-set: a value of 3145728 bytes, and 1048576 are allowed"]),
    ),
    (
        "import-argument",
        "hands over 12 MiB at once",
        DeadLetter,
        Aside("result-limit", &["`process` handed over more than its limit of 8 MiB", "limits.result"]),
    ),
    (
        "import-never-given",
        "rolls back to a mark never given",
        DeadLetter,
        Aside("trap", &["was not given in this call"]),
    ),
    (
        "import-rolled-back",
        "rolls back to a mark that is void",
        DeadLetter,
        Aside("trap", &["mark 1 was not given in this call, or was rolled back before"]),
    ),
    ("import-overlay", "writes entries without end", DeadLetter, Aside("trap", &["limits.overlay"])),
    ("import-overlay-of-nothing", "appends nothing without end", DeadLetter, Aside("trap", &["limits.overlay"])),
    ("import-answer", "reads 1 MiB a million times at once", DeadLetter, Aside("trap", &["ask for fewer at once"])),
    (
        "import-answer-of-map",
        "reads an entry of 1 MiB 262,144 times at once",
        DeadLetter,
        Aside("trap", &["ask for fewer at once"]),
    ),
    ("import-metrics", "invents metrics without end", DeadLetter, Nothing),
    ("import-metric-names", "invents metrics with names of 2 MiB", DeadLetter, Nothing),
    ("import-log", "logs 20,000 lines in colour", DeadLetter, Nothing),
    ("import-ranges", "scans from the end to the beginning", DeadLetter, Nothing),
    ("import-ends-of-lists", "reads lists past every end", DeadLetter, Nothing),
];
