//! The rows of files made by hand: what bindings cannot say, and what is no operator at all.

use crate::case::Case;
use crate::case::Meets::{Aside, Failure, Nothing, Refusal};
use crate::case::Policy::{DeadLetter, Drop, Fail};
use crate::case::{Meets, Policy};
use crate::file::File::{Bytes, Text, Wat};
use crate::file::{self, File};

type Row = (&'static str, &'static str, File, Policy, Meets);

/// All of them.
pub fn rows() -> Vec<Case> {
    let all = [POINTERS, EXPORTS, SIZES, FILES].concat();
    all.into_iter().map(|(name, does, file, policy, meets)| Case { name, does, file, policy, meets }).collect()
}

const TRAPPED: &str = "`process` trapped";

/// Results that the canonical ABI does not allow.
const POINTERS: &[Row] = &[
    ("honest", "does no harm", Wat(&[]), Fail, Nothing),
    (
        "result-outside",
        "answers outside its memory",
        Wat(&[("PROCESS", "(return (i32.const 0x7ffffff0))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "out of bounds"]),
    ),
    (
        "result-unaligned",
        "answers at an odd place",
        Wat(&[("PROCESS", "(return (i32.const 40001))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "align"]),
    ),
    (
        "result-tag",
        "answers neither effects nor a fault",
        Wat(&[("PROCESS", "(i32.store8 (i32.const 40000) (i32.const 5))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED]),
    ),
    (
        "option-tag",
        "emits keys that are neither there nor not",
        Wat(&[("PROCESS", "(i32.store8 (i32.const 40024) (i32.const 7))")]),
        Drop,
        Aside("trap", &[TRAPPED]),
    ),
    (
        "recursion",
        "recurses for ever",
        Wat(&[("FIELDS", "(func $r (call $r) (call $r))"), ("PROCESS", "(call $r)")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "its stack overflowed"]),
    ),
    (
        "enum-tag",
        "answers a fault of a kind of its own",
        Wat(&[(
            "PROCESS",
            "(i32.store8 (i32.const 40000) (i32.const 1)) (i32.store8 (i32.const 40004) (i32.const 200))",
        )]),
        DeadLetter,
        Aside("trap", &[TRAPPED]),
    ),
    (
        "bytes-outside",
        "emits bytes outside its memory",
        Wat(&[("PROCESS", "(i32.store (i32.const 40064) (i32.const 0x7fffffff))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "out of bounds"]),
    ),
    (
        "bytes-endless",
        "emits 4 GiB",
        Wat(&[("PROCESS", "(i32.store (i32.const 40068) (i32.const -1))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "out of bounds"]),
    ),
    (
        "list-endless",
        "writes 268 million states",
        Wat(&[("PROCESS", "(i32.store (i32.const 40136) (i32.const 0x0fffffff))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED]),
    ),
    (
        "list-unaligned",
        "writes states from an odd place",
        Wat(&[("PROCESS", "(i32.store (i32.const 40132) (i32.const 3)) (i32.store (i32.const 40136) (i32.const 1))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "align"]),
    ),
    (
        "fault-no-text",
        "answers a fault that is no text",
        Wat(&[(
            "PROCESS",
            "(i32.store8 (i32.const 40000) (i32.const 1)) (i32.store (i32.const 40008) (i32.const 0x500)) (i32.store (i32.const 40012) (i32.const 7))",
        )]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "utf-8"]),
    ),
    (
        "reason-no-text",
        "refuses a record for no text",
        Wat(&[(
            "PROCESS",
            "(i32.store (i32.const 40180) (i32.const 42000)) (i32.store (i32.const 40184) (i32.const 4)) (i32.store (i32.const 40188) (i32.const 0x508)) (i32.store (i32.const 40192) (i32.const 1))",
        )]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "utf-8"]),
    ),
    (
        "log-no-text",
        "logs what is no text",
        Wat(&[("FIELDS", LOG), ("PROCESS", "(call $log (i32.const 2) (i32.const 0x500) (i32.const 7))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "utf-8"]),
    ),
    (
        "log-level",
        "logs at a level of its own",
        Wat(&[("FIELDS", LOG), ("PROCESS", "(call $log (i32.const 99) (i32.const 0x480) (i32.const 7))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED]),
    ),
    (
        "log-outside",
        "logs from outside its memory",
        Wat(&[("FIELDS", LOG), ("PROCESS", "(call $log (i32.const 2) (i32.const -8) (i32.const 7))")]),
        DeadLetter,
        Aside("trap", &[TRAPPED, "out of bounds"]),
    ),
    (
        "name-no-text",
        "has a name that is no text",
        Wat(&[("DESCRIBE", "(i32.store (i32.const 1024) (i32.const 0x500))")]),
        Fail,
        Refusal(&["cannot describe itself", "`describe` trapped", "utf-8"]),
    ),
    (
        "descriptor-outside",
        "describes itself outside its memory",
        Wat(&[("DESCRIBE", "(return (i32.const -64))")]),
        Fail,
        Refusal(&["cannot describe itself", "`describe` trapped", "out of bounds"]),
    ),
    (
        "descriptor-endless",
        "has 2 billion inputs",
        Wat(&[("DESCRIBE", "(i32.store (i32.const 1056) (i32.const 0x7fffffff))")]),
        Fail,
        Refusal(&["cannot describe itself", "`describe` trapped"]),
    ),
    (
        "realloc-outside",
        "gives room outside its memory",
        Wat(&[("REALLOC", "(return (i32.const -4096))")]),
        DeadLetter,
        Failure(&["`configure` trapped", "beyond end of memory"]),
    ),
    (
        "realloc-unaligned",
        "gives room at an odd place",
        Wat(&[("REALLOC", "(if (i32.gt_u (local.get 2) (i32.const 1)) (then (return (i32.const 65537))))")]),
        Fail,
        Failure(&[TRAPPED, "align"]),
    ),
    (
        "realloc-trap",
        "traps where it must give room",
        Wat(&[("REALLOC", "unreachable")]),
        DeadLetter,
        Failure(&["`configure` trapped"]),
    ),
    (
        "realloc-spin",
        "never gives room",
        Wat(&[("REALLOC", "(loop $again (br $again))")]),
        DeadLetter,
        Failure(&["`configure` did not return within its time limit of 250ms"]),
    ),
    (
        "realloc-import",
        "calls the host where it must give room",
        Wat(&[("FIELDS", MARK), ("REALLOC", "(drop (call $mark))")]),
        DeadLetter,
        Failure(&["`configure` trapped", "cannot leave component instance"]),
    ),
    (
        "post-return-trap",
        "traps after it has answered",
        Wat(&[("FIELDS", "(func (export \"cabi_post_process\") (param i32) unreachable)")]),
        Fail,
        Failure(&[TRAPPED, "unreachable"]),
    ),
    (
        "post-return-spin",
        "loops after it has answered",
        Wat(&[("FIELDS", "(func (export \"cabi_post_configure\") (param i32) (loop $again (br $again)))")]),
        DeadLetter,
        Failure(&["`configure` did not return within its time limit of 250ms"]),
    ),
];

const LOG: &str = r#"(import "wasmill:operator/diagnostics@0.1.0" "log" (func $log (param i32 i32 i32)))"#;
const MARK: &str = r#"(import "wasmill:operator/state@0.1.0" "mark" (func $mark (result i32)))"#;

/// Exports and imports that are not the contract's.
const EXPORTS: &[Row] = &[
    (
        "start-trap",
        "traps in its start function",
        Wat(&[("FIELDS", "(start $s) (func $s unreachable)")]),
        Fail,
        Refusal(&["cannot describe itself", "`start` trapped"]),
    ),
    (
        "start-spin",
        "loops in its start function",
        Wat(&[("FIELDS", "(start $s) (func $s (loop $again (br $again)))")]),
        Fail,
        Refusal(&["cannot describe itself", "`start` did not return within its time limit of 10s"]),
    ),
    (
        "start-import",
        "calls the host in its start function",
        Wat(&[("FIELDS", START_IMPORT)]),
        Fail,
        Refusal(&["cannot describe itself", "`start` trapped"]),
    ),
    ("no-process", "has no function process", Wat(&[("(export \"process\")", "")]), Fail, Refusal(&["process"])),
    ("no-realloc", "gives no room", Wat(&[("(export \"cabi_realloc\")", "")]), Fail, Refusal(&["cabi_realloc"])),
    ("no-memory", "shows no memory", Wat(&[("(memory (export \"memory\")", "(memory")]), Fail, Refusal(&["memory"])),
    (
        "process-type",
        "has a process of another type",
        Wat(&[(
            "(func (export \"process\") (param $args i32) (result i32)",
            "(func (export \"process\") (param $args i32) (param f64) (result i32)",
        )]),
        Fail,
        Refusal(&["process"]),
    ),
    (
        "import-wasi",
        "asks for files",
        Wat(&[(
            "FIELDS",
            r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#,
        )]),
        Fail,
        Refusal(&["`wasi_snapshot_preview1`"]),
    ),
    (
        "import-escape",
        "asks for what clears the screen",
        Wat(&[("FIELDS", "(import \"\\1b[2J\" \"f\" (func))")]),
        Fail,
        Refusal(&["is not granted"]),
    ),
    ("import-long", "asks for what has a name of 90,000 bytes", Bytes(import_long), Fail, Refusal(&["is not granted"])),
    (
        "import-unknown",
        "asks the state for what it does not do",
        Wat(&[("FIELDS", r#"(import "wasmill:operator/state@0.1.0" "steal" (func))"#)]),
        Fail,
        Refusal(&["steal"]),
    ),
    (
        "import-type",
        "calls the host by another type",
        Wat(&[("FIELDS", r#"(import "wasmill:operator/state@0.1.0" "mark" (func (result i64)))"#)]),
        Fail,
        Refusal(&["mark"]),
    ),
    (
        "import-secrets",
        "asks the contract for what it has not",
        Text(|| r#"(component (import "wasmill:operator/secrets@0.1.0" (instance)))"#.to_owned()),
        Fail,
        Refusal(&["`wasmill:operator/secrets@0.1.0`, which is not granted"]),
    ),
    (
        "newer-contract",
        "was built for another contract",
        Text(|| r#"(component (import "wasmill:operator/types@0.2.0" (instance)))"#.to_owned()),
        Fail,
        Refusal(&["version 0.2.0"]),
    ),
    (
        "no-contract",
        "is a component of nothing",
        Text(|| "(component)".to_owned()),
        Fail,
        Refusal(&["does not speak wasmill's contract"]),
    ),
];

const START_IMPORT: &str = r#"(import "wasmill:operator/state@0.1.0" "mark" (func $mark (result i32))) (start $s) (func $s (drop (call $mark)))"#;

/// Files larger or deeper than anybody needs.
const SIZES: &[Row] = &[
    (
        "memory-huge",
        "wants 4 GiB to begin with",
        Wat(&[("MEMORY", "65536")]),
        Fail,
        Refusal(&["cannot describe itself", "memory limit of 256 MiB"]),
    ),
    (
        "memory-large",
        "wants 64 MiB to begin with, and has 32",
        Wat(&[("MEMORY", "1024")]),
        DeadLetter,
        Failure(&["`start` reached its memory limit of 32 MiB"]),
    ),
    (
        "table-huge",
        "wants a table of 100 million functions",
        Wat(&[("FIELDS", "(table 100000000 funcref)")]),
        Fail,
        Refusal(&["cannot describe itself"]),
    ),
    (
        "data-outside",
        "puts its data outside its memory",
        Wat(&[("FIELDS", "(data (i32.const 0x7fffff00) \"bad\")")]),
        Fail,
        Refusal(&["cannot describe itself", "out of bounds"]),
    ),
    (
        "locals",
        "has a function with 60,000 locals",
        Bytes(|| with_function(&format!("(local {})", "i32 ".repeat(60_000)))),
        Fail,
        Refusal(&["too many locals"]),
    ),
    (
        "nested",
        "has 20,000 blocks in one another",
        Bytes(|| with_function(&format!("{}{}", "block ".repeat(20_000), "end ".repeat(20_000)))),
        Fail,
        Nothing,
    ),
    ("functions", "has 5,000 functions", Bytes(|| with_fields(&"(func) ".repeat(5_000))), Fail, Nothing),
    ("types-deep", "exports a list of lists of lists, 5,000 deep", Text(types_deep), Fail, Refusal(&["it is"])),
    ("types-wide", "exports a pair of pairs of pairs, 2^60 wide", Text(types_wide), Fail, Refusal(&["it is"])),
    (
        "components-deep",
        "has 10,000 components in one another",
        Bytes(components_deep),
        Fail,
        Refusal(&["does not speak wasmill\'s contract"]),
    ),
    ("instances", "wants 2,000 instances", Text(instances), Fail, Refusal(&["it is"])),
];

/// Files that are no component.
const FILES: &[Row] = &[
    ("empty", "is empty", Bytes(Vec::new), Fail, Refusal(&["it is empty"])),
    ("text", "is text", Bytes(|| b"hello, world".to_vec()), Fail, Refusal(&["it is not WebAssembly"])),
    ("cut", "is cut off", Bytes(|| cut(60)), Fail, Refusal(&["it is cut off"])),
    (
        "core-module",
        "does not say what it is",
        Bytes(|| file::module(&[])),
        Fail,
        Refusal(&["a core module without a component-type section"]),
    ),
    (
        "flipped-magic",
        "has a bit flipped in its first bytes",
        Bytes(|| flipped(1, 0x20)),
        Fail,
        Refusal(&["it is not WebAssembly"]),
    ),
    (
        "flipped-version",
        "has a bit flipped in its version",
        Bytes(|| flipped(4, 0x40)),
        Fail,
        Refusal(&["it is damaged at byte 4"]),
    ),
    ("flipped-size", "has a bit flipped in a section's size", Bytes(|| flipped(9, 0x40)), Fail, Refusal(&["it is"])),
    ("zeros", "is zeros behind its first half", Bytes(zeros), Fail, Refusal(&["it is"])),
    ("doubled", "comes twice", Bytes(|| file::good().repeat(2)), Fail, Refusal(&["it is damaged"])),
    (
        "spare-bytes",
        "has bytes behind its end",
        Bytes(|| [file::good(), vec![0xff; 100]].concat()),
        Fail,
        Refusal(&["it is"]),
    ),
    ("drops-nothing", "does no harm, as a component", Bytes(file::good), Drop, Nothing),
];

fn cut(percent: usize) -> Vec<u8> {
    let good = file::good();
    good[..good.len() * percent / 100].to_vec()
}

fn flipped(at: usize, bit: u8) -> Vec<u8> {
    let mut good = file::good();
    good[at] ^= bit;
    good
}

fn zeros() -> Vec<u8> {
    let mut good = file::good();
    let half = good.len() / 2;
    good[half..].fill(0);
    good
}

fn with_fields(fields: &str) -> Vec<u8> {
    file::embedded(&file::module(&[("FIELDS", fields)]))
}

fn with_function(body: &str) -> Vec<u8> {
    with_fields(&format!("(func {body})"))
}

fn import_long() -> Vec<u8> {
    with_fields(&format!("(import \"{}\" \"f\" (func))", "x".repeat(90_000)))
}

/// A component of the contract whose `process` is of the last of many types.
fn typed(types: &str, last: usize) -> String {
    let others = ["describe", "configure", "fire", "migrate", "rekey", "merge"];
    let exports: String = others.iter().map(|name| format!("(export \"{name}\" (func $f))\n")).collect();
    format!(
        r#"(component (import "wasmill:operator/types@0.1.0" (instance))
        {types}
        (core module $m (func (export "f") (param i32 i32)) (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable))
        (core instance $i (instantiate $m))
        (func $f (param "x" $t{last})
            (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
        (export "process" (func $f)) {exports})"#
    )
}

fn types_deep() -> String {
    let types: String = (1..=5_000).map(|of| format!("(type $t{of} (list $t{}))\n", of - 1)).collect();
    typed(&format!("(type $t0 (list u8))\n{types}"), 5_000)
}

fn types_wide() -> String {
    let types: String = (1..=60).map(|of| format!("(type $t{of} (tuple $t{0} $t{0}))\n", of - 1)).collect();
    let list = "(type $t61 (list $t60))";
    typed(&format!("(type $t0 (tuple u8 u8))\n{types}{list}"), 61)
}

fn components_deep() -> Vec<u8> {
    let head = b"\0asm\x0d\0\x01\0";
    let mut component = head.to_vec();
    for _ in 0..10_000 {
        // A section of kind 4 is a component; its size as LEB128.
        let mut section = vec![4];
        let mut size = component.len();
        while size > 0x7f {
            section.push(size as u8 | 0x80);
            size >>= 7;
        }
        section.push(size as u8);
        component = [&head[..], &section, &component].concat();
    }
    component
}

fn instances() -> String {
    let module = "(core module $n (memory 1))";
    let instances = "(core instance (instantiate $n))\n".repeat(2_000);
    typed(&format!("(type $t0 (list u8)) {module} {instances}"), 0)
}
