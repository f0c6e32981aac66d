//! Holds the sources to docs/architecture.md: layers, sole importers, budgets, heads, words, and the record's path.
//!
//! Each rule is tried twice: on the tree, where it must find nothing, and on planted faults, which it must find.

mod cases;
mod path;
mod rules;
mod source;

use source::{Source, Tree};

fn assert_clean(found: &[String]) {
    assert!(found.is_empty(), "{} place(s) break the architecture:\n  {}", found.len(), found.join("\n  "));
}

/// What `rule` says of one planted file.
fn planted(rule: fn(&Tree) -> Vec<String>, path: &str, text: &str) -> Vec<String> {
    rule(&Tree::of(vec![Source::parse(path, text).expect("planted text is Rust")]))
}

macro_rules! holds {
    ($($(#[$meta:meta])* $name:ident: $rule:path, finds [$(($path:expr, $text:expr)),+ $(,)?], passes [$(($good:expr, $fine:expr)),* $(,)?];)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            #[test]
            fn holds_for_the_tree() {
                assert_clean(&$rule(&Tree::load()));
            }

            #[test]
            fn is_seen_where_it_is_broken() {
                $(assert_eq!(planted($rule, $path, $text).len(), 1, "planted in {}: {}", $path, $text);)+
            }

            #[test]
            fn is_not_seen_where_it_is_kept() {
                $(assert_clean(&planted($rule, $good, $fine));)*
            }
        }
    )+};
}

const STATE: &str = "host/runtime/src/state/cache.rs";
const CORE: &str = "host/core/src/align.rs";

holds! {
    core_is_pure: rules::core_is_pure,
        finds [
            (CORE, "use std::fs::File;"),
            (CORE, "use std::{fmt, io::Read};"),
            (CORE, "fn f() { std::thread::yield_now() }"),
            (CORE, "use std::time::Instant;"),
            (CORE, "async fn f() {}"),
            (CORE, "fn f() { wasmtime::Engine::default(); }"),
            (CORE, "use tokio::sync::mpsc;"),
        ],
        passes [
            (CORE, "use std::fmt; use std::time::Duration; use serde::Serialize;"),
            (CORE, "// std::fs\nconst A: &str = \"async std::fs\";"),
            ("host/runtime/src/blob.rs", "use std::fs::File;"),
        ];

    heavy_libraries_have_one_importer: rules::sole_importers,
        finds [
            (STATE, "use rocksdb::DB;"),
            (STATE, "use object_store::{path::Path as P};"),
            ("host/runtime/src/subtask/operator.rs", "fn f() -> wasmtime::Result<()> { Ok(()) }"),
            ("host/runtime/src/guest_list.rs", "use wasmtime::Engine;"),
            ("host/runtime/src/job.rs", "use ::axum as web;"),
            ("host/runtime/src/config.rs", "use anyhow;"),
            ("host/core/src/id.rs", "#[derive(clap::Parser)] struct A;"),
        ],
        passes [
            ("host/runtime/src/state/rocksdb.rs", "use rocksdb::DB;"),
            ("host/runtime/src/state/rocksdb/options.rs", "use rocksdb::Options;"),
            ("host/runtime/src/guest/engine.rs", "use wasmtime::Engine;"),
            ("host/runtime/src/state/mod.rs", "use crate::state::rocksdb::Backend; mod rocksdb; use self::rocksdb::Backend as B;"),
            ("host/cli/src/main.rs", "use anyhow::Context; use clap::Parser;"),
        ];

    arrows_point_to_a_lower_layer: rules::layers,
        finds [
            (STATE, "use crate::guest::Call;"),
            (STATE, "use super::super::snapshot;"),
            (STATE, "use crate::{clock::Clock, blob::Store};"),
            ("host/runtime/src/guest/call.rs", "fn f(_: &crate::exchange::Route) {}"),
            ("host/runtime/src/subtask/operator.rs", "use crate::coordinator::Trigger;"),
            ("host/runtime/src/coordinator.rs", "use crate::state::Backend;"),
            ("host/runtime/src/clock.rs", "use crate::config::Pipeline;"),
            ("host/runtime/src/job/run.rs", "use crate::admin;"),
            ("host/runtime/src/novelty.rs", "use crate::clock::Clock;"),
        ],
        passes [
            (STATE, "use crate::clock::Clock; use super::Key; use crate::state::memory;"),
            (STATE, "#[cfg(test)] mod tests { use crate::guest::Call; }"),
            ("host/runtime/src/state/tests.rs", "use crate::guest::Call;"),
            ("host/runtime/src/connector/file.rs", "use crate::source::SourceReader; mod inner { use super::super::Place; }"),
            ("host/runtime/src/subtask/operator.rs", "use crate::control::ToSubtask; use crate::guest::Call;"),
        ];

    files_keep_their_budget: rules::budget,
        finds [
            ("host/core/src/id.rs", &"//! x\n".repeat(501)),
            ("host/core/src/id/tests.rs", &"//! x\n".repeat(801)),
        ],
        passes [
            ("host/core/src/id.rs", &"//! x\n".repeat(500)),
            ("host/core/src/id/tests.rs", &"//! x\n".repeat(800)),
        ];

    files_open_with_what_they_own: rules::heads,
        finds [("host/core/src/id.rs", "use std::fmt;"), ("host/core/src/id.rs", "// not a head\nuse std::fmt;")],
        passes [("host/core/src/id.rs", "//! Owns ids.\nuse std::fmt;")];

    unsafe_code_stands_in_one_file: rules::unsafe_code,
        finds [(STATE, "fn f() { unsafe { g() } }"), (STATE, "#[unsafe(no_mangle)] fn f() {}")],
        passes [
            (rules::UNSAFE_FILES[0], "fn f() { unsafe { g() } }"),
            (STATE, "#![deny(unsafe_code)] // unsafe\n"),
        ];

    nothing_is_left_to_do: rules::marks,
        finds [
            (STATE, "// TODO: later"),
            (STATE, "/* FIXME */"),
            (STATE, "#[ignore] fn f() {}"),
            (STATE, "fn f() { g().unwrap(); }"),
        ],
        passes [
            (STATE, "#[cfg(test)] mod tests { fn f() { g().unwrap(); } }"),
            (STATE, "fn f() { g().unwrap_or_default(); } // FIXMENT"),
            ("tests/architecture/rules.rs", "fn f() { g().unwrap(); }"),
        ];

    words_are_the_projects_own: rules::words,
        finds [
            (STATE, "struct WorkerPool;"),
            (STATE, "fn make_shard() {}"),
            (STATE, "let epoch = 1;"),
            ("host/core/src/util.rs", ""),
            ("host/core/src/helpers/key.rs", ""),
        ],
        passes [
            (STATE, "fn f() { builder.worker_threads(2); let a = UNIX_EPOCH; }"),
            ("host/runtime/src/guest/limits.rs", "fn epoch_deadline() {}"),
        ];
}

#[test]
fn a_file_that_is_declared_for_tests_is_test_code() {
    let file = |path: &str, text: &str| Source::parse(path, text).unwrap();
    let parent = "#[cfg(test)]\npub(super) mod fixture;\nmod call;";
    let tree = Tree::of(vec![
        file("host/runtime/src/guest/mod.rs", parent),
        file("host/runtime/src/guest/fixture.rs", "fn f() { g().unwrap(); }"),
        file("host/runtime/src/guest/fixture/wat.rs", "fn f() { g().unwrap(); }"),
        file("host/runtime/src/guest/call.rs", "fn f() { g().unwrap(); }"),
        file("host/core/src/guest/fixture.rs", "fn f() { g().unwrap(); }"),
    ]);
    let found = rules::marks(&tree);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("host/runtime/src/guest/call.rs:1:"), "{found:?}");
}

#[test]
fn dependencies_are_declared_where_the_architecture_has_them() {
    assert_clean(&rules::dependencies(|manifest| std::fs::read_to_string(source::root().join(manifest)).unwrap()));
    let planted = |name: &str| {
        rules::dependencies(|manifest| match manifest.contains("core") {
            true => format!(
                "[package]\nname = \"wasmill-core\"\n[dependencies]\n{name}\n[dev-dependencies]\nproptest.workspace = true\n"
            ),
            false => String::new(),
        })
    };
    assert_eq!(planted("tokio.workspace = true").len(), 1);
    assert_eq!(planted("wasmill-runtime = { path = \"../runtime\" }").len(), 1);
    assert_clean(&planted("serde.workspace = true"));
}

#[test]
fn a_records_path_names_files_and_functions_that_exist() {
    let text = std::fs::read_to_string(source::root().join("docs/architecture.md")).unwrap();
    assert_clean(&path::check(&text, &Tree::load()));
}

#[test]
fn a_records_path_with_a_wrong_name_is_seen() {
    let tree =
        Tree::of(vec![Source::parse("host/core/src/key_group.rs", "impl KeyGroup { pub const fn of() {} }").unwrap()]);
    let check = |item: &str| path::check(&format!("# A\n## A record's path\n\n1. {item}\n\n## Next\n1. text\n"), &tree);
    assert_clean(&check("**route**: `host/core/src/key_group.rs`, `KeyGroup::of`, then on"));
    assert_eq!(check("**route**: `host/core/src/key_group.rs`, `KeyGroup::to`").len(), 1);
    assert_eq!(check("**route**: `host/core/src/key_groups.rs`, `KeyGroup::of`").len(), 1);
    assert_eq!(check("**route**: `host/core/src/key_group.rs`").len(), 1);
    assert_eq!(check("**route** asks someone").len(), 1);
    assert_eq!(path::check("# A\n## Other\n", &tree).len(), 1);
}

#[test]
fn the_table_of_cases_names_the_tests_that_hold_them() {
    let text = std::fs::read_to_string(source::root().join("docs/cases.md")).unwrap();
    assert_clean(&cases::check(&text, &Tree::load()));
    let tree = Tree::of(vec![Source::parse("tests/a.rs", "fn w1_holds() {} fn u8_of() {}").unwrap()]);
    let table = |rows: &str| cases::check(&format!("| case | what holds | held by |\n|---|---|---|\n{rows}"), &tree);
    let row = "| W1 | It holds | `tests/a.rs` `w1_holds` |\n";
    assert_clean(&table(&format!("{row}| W2 | More | no test yet |\n")));
    assert_eq!(table(&format!("{row}{row}")).len(), 2, "twice");
    assert_eq!(table("| W1 | It holds | `tests/b.rs` `w1_holds` |\n").len(), 1, "another file");
    assert_eq!(table("| W2 | More | no test yet |\n").len(), 1, "no row for a test");
    assert_eq!(table(&format!("{row}| W2 | More | `tests/a.rs` `w2_holds` |\n")).len(), 1, "no such test");
    assert_eq!(table("").len(), 1, "no table");
}

#[test]
fn no_text_names_a_place_on_someones_machine() {
    assert_clean(&rules::machine_places(&source::texts()));
    let text = format!("see {}wt/x", rules::machine_place());
    assert_eq!(rules::machine_places(&[("README.md".to_owned(), text)]).len(), 1);
}
