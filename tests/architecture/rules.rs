//! The rules as tables, and for each a function from sources to the places that break it.
//!
//! Owns what docs/architecture.md says in words. A new module gets a layer here and there; an exception gets its reason.

use crate::source::{Reference, Source, Tree};

const CORE: &str = "host/core/src/";
const RUNTIME: &str = "host/runtime/src/";

/// What `core` may not refer to: it decides, without I/O, clock, thread or heavy library.
const NOT_IN_CORE: [&str; 21] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "futures",
    "wasmtime",
    "rocksdb",
    "rdkafka",
    "object_store",
    "parquet",
    "arrow",
    "axum",
    "tracing",
    "rand",
    "wasmill_runtime",
    "wasmill_guest",
];

/// What `core` may depend on.
const CORE_DEPENDENCIES: [&str; 6] = ["serde", "serde_json", "sha2", "strsim", "thiserror", "xxhash-rust"];

/// Each heavy library and the one place under `host/` that imports it: a module (file or folder), or a crate's folder.
const SOLE_IMPORTERS: [(&str, &str); 11] = [
    ("wasmtime", "host/runtime/src/guest"),
    ("wit_component", "host/runtime/src/guest"),
    ("wasmparser", "host/runtime/src/guest"),
    ("rocksdb", "host/runtime/src/state/rocksdb"),
    ("librocksdb_sys", "host/runtime/src/state/rocksdb"),
    ("object_store", "host/runtime/src/blob"),
    ("rdkafka", "host/runtime/src/connector/kafka"),
    ("parquet", "host/runtime/src/savepoint"),
    ("axum", "host/runtime/src/admin"),
    ("clap", "host/cli/src"),
    ("anyhow", "host/cli/src"),
];

/// The runtime's modules by layer. A module refers to lower layers only, and to [`SIBLINGS`].
const LAYERS: [&[&str]; 6] = [
    &["clock", "failpoint", "config", "telemetry", "control", "bell", "spawn", "blob"],
    &["source", "sink", "format", "exchange", "state", "guest", "connector"],
    &["snapshot", "savepoint"],
    &["subtask", "coordinator"],
    &["job"],
    &["admin", "trial"],
];

/// Arrows within a layer, each with its reason.
const SIBLINGS: [(&str, &str, &str); 11] = [
    ("control", "bell", "a message wakes the subtask that it is for"),
    ("sink", "source", "both seams place a subtask alike"),
    ("connector", "source", "connectors implement the seam"),
    ("connector", "sink", "connectors implement the seam"),
    ("connector", "format", "records are read and written in the pipeline's formats"),
    ("exchange", "format", "a key stands in a record's value"),
    ("guest", "state", "a guest's state imports are served from the subtask's state"),
    ("telemetry", "clock", "figures carry times"),
    ("spawn", "telemetry", "a thread that dies is logged"),
    ("blob", "clock", "retries wait and give up by time"),
    ("blob", "failpoint", "a store's faults are provoked in tests"),
];

/// Arrows that no layer may allow, each end with what lies under it.
const NEVER: [(&str, &[&str]); 5] = [
    ("state", &["guest", "blob", "snapshot"]),
    ("guest", &["blob", "snapshot", "coordinator", "source", "sink", "exchange"]),
    ("snapshot", &["guest", "subtask", "coordinator"]),
    ("subtask", &["coordinator", "job", "admin"]),
    ("coordinator", &["subtask", "guest", "state", "exchange"]),
];

/// Lines a file may have; over the first it needs a reason in [`LONG_FILES`], over the second it is split.
const LONG: usize = 500;
const CEILING: usize = 800;

/// Files over [`LONG`] lines and why they are better whole.
const LONG_FILES: [(&str, &str); 0] = [];

/// The only files with `unsafe` in them, first the one that loads precompiled components.
pub const UNSAFE_FILES: [&str; 1] = ["host/runtime/src/guest/compile_cache.rs"];

/// Words that the project says otherwise; see CONTRIBUTING.md.
const NOT_OUR_WORDS: [&str; 6] = ["topology", "vnode", "shard", "worker", "backup", "epoch"];

/// Identifiers of others that hold such a word.
const THEIR_WORDS: [&str; 2] = ["worker_threads", "UNIX_EPOCH"];

/// Where a word means what its library means by it.
const WORD_AT_HOME: [(&str, &str); 1] = [("epoch", "host/runtime/src/guest")];

/// Names for a file or folder that say nothing of what it owns.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "manager", "misc"];

/// `core` refers to nothing that acts.
pub fn core_is_pure(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with(CORE)) {
        for reference in &source.references {
            for banned in NOT_IN_CORE.iter().filter(|banned| begins_with(&reference.segments, banned)) {
                found.push(place(source, reference.line, &format!("core may not use {banned}")));
            }
        }
        for word in source.words.iter().filter(|word| ["async", "await"].contains(&word.text.as_str())) {
            found.push(place(source, word.line, "core has no async code"));
        }
    }
    found
}

/// Each heavy library is imported in one place.
pub fn sole_importers(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("host/")) {
        for reference in &source.references {
            let library = SOLE_IMPORTERS
                .iter()
                .find(|(library, _)| reference.segments.first().is_some_and(|first| first == library));
            if let Some((library, home)) = library.filter(|(_, home)| !lies_in(&source.path, home)) {
                found.push(place(source, reference.line, &format!("{library} is imported in {home} only")));
            }
        }
    }
    found
}

/// A module refers to lower layers, and to a sibling where a reason stands.
pub fn layers(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with(RUNTIME)) {
        let Some(from) = source.top_module() else { continue };
        if layer(&from).is_none() {
            found.push(place(
                source,
                1,
                &format!("the module {from} has no layer: give it one here and in docs/architecture.md"),
            ));
            continue;
        }
        for reference in source.references.iter().filter(|reference| !reference.in_test) {
            if let Some(reason) = crossing(&from, reference) {
                found.push(place(source, reference.line, &reason));
            }
        }
    }
    found
}

/// Why the module `from` may not refer to this; `None` where it may.
fn crossing(from: &str, reference: &Reference) -> Option<String> {
    let [first, to, ..] = reference.segments.as_slice() else { return None };
    if first != "crate" || to == from {
        return None;
    }
    let never = NEVER.iter().any(|(end, others)| *end == from && others.contains(&to.as_str()));
    let sibling = SIBLINGS.iter().any(|(end, other, _)| *end == from && other == to);
    match (layer(from)?, layer(to)?) {
        _ if never => Some(format!("{from} never refers to {to}")),
        (own, other) if other < own || sibling => None,
        (own, other) if other == own => Some(format!("{from} and {to} are siblings of layer {own}")),
        (own, other) => Some(format!("{from} (layer {own}) refers up to {to} (layer {other})")),
    }
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module)).map(|index| index + 1)
}

/// No file is longer than it may be.
pub fn budget(tree: &Tree) -> Vec<String> {
    let over = |source: &&Source| {
        let lines = source.text.lines().count();
        let excused = source.is_test() || LONG_FILES.iter().any(|(path, _)| *path == source.path);
        lines > if excused { CEILING } else { LONG }
    };
    let long = tree.sources.iter().filter(over);
    long.map(|source| place(source, source.text.lines().count(), "is the last line of a file that is too long"))
        .collect()
}

/// Every file opens with what it owns.
pub fn heads(tree: &Tree) -> Vec<String> {
    let headless = tree.sources.iter().filter(|source| !source.text.starts_with("//!"));
    headless.map(|source| place(source, 1, "opens with `//!`: what the file owns and what it does not")).collect()
}

/// `unsafe` stands where the list says.
pub fn unsafe_code(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !UNSAFE_FILES.contains(&source.path.as_str())) {
        for word in source.words.iter().filter(|word| word.text == "unsafe") {
            found.push(place(source, word.line, &format!("unsafe stands in {UNSAFE_FILES:?} only")));
        }
    }
    found
}

/// No marks of unfinished work, no ignored test, no `unwrap` outside tests.
pub fn marks(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.path.starts_with("tests/architecture/")) {
        for (index, line) in source.text.lines().enumerate() {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric());
            if words.any(|word| ["TODO", "FIXME", "XXX", "HACK"].contains(&word)) {
                found.push(place(source, index + 1, "work is done or filed, not marked in the code"));
            }
        }
        for word in &source.words {
            let reason = match word.text.as_str() {
                "unwrap" if word.is_method && !word.in_test => "unwrap panics: return an error",
                "ignore" if source.text.lines().nth(word.line - 1).is_some_and(|line| line.contains("#[ignore")) => {
                    "an ignored test holds no promise"
                }
                _ => continue,
            };
            found.push(place(source, word.line, reason));
        }
    }
    found
}

/// Identifiers, files and folders use the project's words.
pub fn words(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.path.starts_with("tests/architecture/")) {
        let names = source.path.trim_end_matches(".rs").split('/');
        for name in names.filter(|name| EMPTY_NAMES.contains(name)) {
            found.push(place(source, 1, &format!("`{name}` says nothing of what is in it")));
        }
        let at_home = |word: &str| WORD_AT_HOME.iter().any(|(own, home)| *own == word && lies_in(&source.path, home));
        for word in source.words.iter().filter(|word| !THEIR_WORDS.contains(&word.text.as_str())) {
            for part in parts(&word.text).filter(|part| NOT_OUR_WORDS.contains(&part.as_str()) && !at_home(part)) {
                found.push(place(
                    source,
                    word.line,
                    &format!("`{}`: we do not say {part} (CONTRIBUTING.md)", word.text),
                ));
            }
        }
    }
    found
}

/// The parts of `a_snake` or `ACamel` name, in lower case.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut lower_before = false;
    for letter in name.chars() {
        if letter == '_' || (lower_before && letter.is_uppercase()) {
            spaced.push(' ');
        }
        lower_before = letter.is_lowercase();
        spaced.extend(letter.to_lowercase().filter(|letter| *letter != '_'));
    }
    spaced.split_whitespace().map(|part| part.trim_end_matches('s').to_owned()).collect::<Vec<_>>().into_iter()
}

/// The manifests depend on no more than the architecture lets them; `read` gives a manifest's text.
pub fn dependencies(read: impl Fn(&str) -> String) -> Vec<String> {
    let core = declared(&read("host/core/Cargo.toml"));
    let mut found: Vec<String> = core
        .into_iter()
        .filter(|name| !CORE_DEPENDENCIES.contains(&name.as_str()))
        .map(|name| format!("host/core/Cargo.toml: core may not depend on {name}"))
        .collect();
    let runtime = declared(&read("host/runtime/Cargo.toml"));
    for name in runtime.into_iter().filter(|name| ["anyhow", "clap", "wasmill"].contains(&name.as_str())) {
        found.push(format!("host/runtime/Cargo.toml: {name} belongs to host/cli"));
    }
    found
}

/// The names under `[dependencies]` of a manifest.
fn declared(manifest: &str) -> Vec<String> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    let name =
        |line: &str| line.split(['=', '.']).next().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    lines.filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

/// How a path begins that exists on one machine only.
pub fn machine_place() -> String {
    format!("/{}/", "work")
}

/// Texts that name such a path.
pub fn machine_places(texts: &[(String, String)]) -> Vec<String> {
    let begin = machine_place();
    texts
        .iter()
        .filter(|(_, text)| text.contains(&begin))
        .map(|(path, _)| format!("{path} names a path under {begin}"))
        .collect()
}

/// Whether `path` is the module `home` (as a file or a folder) or lies under it.
fn lies_in(path: &str, home: &str) -> bool {
    path.strip_prefix(home).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether the path begins with the segments of `prefix` (`a::b`).
fn begins_with(segments: &[String], prefix: &str) -> bool {
    let mut wanted = prefix.split("::");
    let mut given = segments.iter();
    wanted.all(|name| given.next().is_some_and(|segment| segment == name))
}

fn place(source: &Source, line: usize, reason: &str) -> String {
    format!("{}:{line}: {reason}", source.path)
}
