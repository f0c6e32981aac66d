//! `wasmill test`: components on test files, without a pipeline.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wasmill_tests::Harness;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `wasmill test` with these arguments within a folder; paths are shown relative to it.
fn run(folder: &Path, arguments: &[&str]) -> Ran {
    let ran = Command::new(Harness::get().wasmill())
        .args(["--log", "warn", "test"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("wasmill starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: ran.status.code(), stdout: text(&ran.stdout), stderr: text(&ran.stderr) }
}

impl Ran {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// A folder with the test guest as `op.wasm` and, beside it, a test file.
fn folder(cases: &str) -> TempDir {
    let folder = TempDir::new().expect("there is a folder for the test");
    std::fs::copy(Harness::get().guest("wasmill_test_trial"), folder.path().join("op.wasm")).expect("a copy");
    write(&folder, "op.test.jsonl", cases);
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).expect("the folder can be written");
}

fn read(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).expect("the file can be read")
}

/// Cases of all that a test file can say, without what should come of it.
const STEPS: &str = r#"# A comment stays.
{"case": "timers and the clock"}
{"record": "set 2000", "key": "a", "time": 1000}
{"record": "after 5000", "key": "b"}
{"record": "set 9000", "key": "b"}
{"watermark": 1999}
{"record": "hello", "key": "a", "time": 2500}
// another comment
{"watermark": 2000}
{"advance": "4999ms"}
{"advance": "1ms"}
{"clock": "1970-01-01T00:01:00Z"}
{"record": "hello", "key": "a"}

{"case": "what cannot be done is set aside, record by record"}
{"record": "hello", "key": 7, "time": 1}
{"record": "panic", "key": 7, "time": 2}
{"record": "reject", "key": 7, "time": 3}
{"record": "hello", "key": 7, "time": 4}
{"record": "absent", "key": true, "time": 5}

{"case": "two inputs and a side output", "config": {"name": "somebody"}}
{"record": "plain text", "input": "texts", "key": "a", "time": 1}
{"watermark": 10, "input": "texts"}
{"record": "hello", "key": "a", "time": 2}
{"watermark": 20, "input": "commands"}
{"record": "hello", "key": "a", "time": 12}
{"end": true}
"#;

#[test]
fn what_came_is_blessed_and_a_second_run_passes() {
    let folder = folder(STEPS);
    let failed = run(folder.path(), &["op.wasm"]).expect(1);
    assert!(failed.stdout.ends_with("3 cases: 0 passed, 3 failed\n"), "{}", failed.stdout);
    let blessed = run(folder.path(), &["op.wasm", "--bless"]).expect(0);
    assert!(blessed.stdout.ends_with("3 cases: 3 passed, 0 failed, 3 blessed\n"), "{}", blessed.stdout);
    let golden = include_str!("golden/trial/blessed.test.jsonl");
    assert_eq!(read(&folder, "op.test.jsonl"), golden);
    let passed = run(folder.path(), &["."]).expect(0);
    assert!(passed.stdout.ends_with("3 cases: 3 passed, 0 failed\n"), "{}", passed.stdout);
    run(folder.path(), &["op.wasm", "--bless"]).expect(0);
    assert_eq!(read(&folder, "op.test.jsonl"), golden, "what passes is not written again");
    let steps: String = golden.lines().filter(|line| !is_expectation(line)).map(|line| format!("{line}\n")).collect();
    assert_eq!(steps, STEPS, "steps and comments stay as they are");
}

fn is_expectation(line: &str) -> bool {
    ["emit", "dead-letter", "timers", "fails"].iter().any(|word| line.starts_with(&format!("{{\"{word}\"")))
}

#[test]
fn a_difference_is_shown_with_the_lines_of_the_file() {
    let folder = folder(
        r#"{"case": "off by one"}
{"record": "hello", "key": "a", "time": 1}
{"emit": {"text": "hello", "seen": 2, "watermark": null, "clock": 0}}
{"record": "hello", "key": "a", "time": 2}
{"record": "set 5", "key": "a", "time": 3}
{"emit": "nothing", "output": "side"}
{"timers": []}

{"case": "it should fail"}
{"record": "hello", "key": "a"}
{"emit": {"text": "hello", "seen": 1, "watermark": null, "clock": 0}}
{"fails": "no"}

{"case": "fields that are left out are not compared"}
{"record": "hello", "key": "a", "time": 1}
{"emit": {"seen": 1.0, "clock": 0, "watermark": null, "text": "hello"}}
"#,
    );
    let failed = run(folder.path(), &["op.wasm"]).expect(1);
    assert_eq!(failed.stdout, include_str!("golden/trial/differences.txt"));
    let json = run(folder.path(), &["op.wasm", "--json"]).expect(1);
    let lines: Vec<serde_json::Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let [first, second, third, tally] = lines.as_slice() else { panic!("{}", json.stdout) };
    assert_eq!((&first["case"], &first["line"], &first["passed"]), (&"off by one".into(), &1.into(), &false.into()));
    assert_eq!(first["differences"][0]["line"], 2);
    assert_eq!(first["differences"][0]["expected"][0][0], 3);
    assert_eq!((&second["passed"], &third["passed"]), (&false.into(), &true.into()));
    assert_eq!(tally, &serde_json::json!({"cases": 3, "passed": 1, "failed": 2, "blessed": 0}));
}

#[test]
fn a_failure_that_is_declared_passes_wherever_it_stands() {
    let folder = folder(
        r#"{"case": "while it runs"}
{"record": "hello", "key": "a", "time": 1}
{"emit": {"text": "hello", "seen": 1, "watermark": null, "clock": 0}}
{"record": "fatal", "key": "a", "time": 1}
{"fails": "told to fail"}

{"case": "before it runs", "config": {"name": "nobody"}}
{"fails": "nobody is no name"}

{"case": "a key that it does not read", "config": {"nmae": "a"}}
{"fails": "did you mean `name`"}
"#,
    );
    let passed = run(folder.path(), &["op.wasm"]).expect(0);
    assert!(passed.stdout.ends_with("3 cases: 3 passed, 0 failed\n"), "{}", passed.stdout);
}

#[test]
fn headers_come_in_and_are_compared_where_the_line_has_them() {
    let cases = r#"{"case": "headers"}
{"record": "headers", "key": "a", "headers": {"trace": "abc", "raw": {"hex": "00ff"}}}
{"emit": 1, "headers": {"trace": "abc", "raw": {"hex": "00ff"}}}
{"record": "headers", "key": "a", "headers": [["twice", "1"], ["twice", "2"]]}
{"emit": 2, "headers": [["twice", "1"], ["twice", "2"]]}
{"record": "headers", "key": "a"}
{"emit": 3, "headers": {}}
{"record": "headers", "key": "a", "headers": {"trace": "left out"}}
{"emit": 4}
"#;
    let folder = folder(cases);
    run(folder.path(), &["op.wasm"]).expect(0);
    write(
        &folder,
        "op.test.jsonl",
        &cases.replace("{\"emit\": 3, \"headers\": {}}", "{\"emit\": 3, \"headers\": {\"a\": \"b\"}}"),
    );
    let failed = run(folder.path(), &["op.wasm"]).expect(1);
    for line in
        ["- {\"emit\": 3, \"headers\": {\"a\": \"b\"}}   (line 7)", "+ {\"emit\": 3, \"key\": \"a\", \"time\": 0}"]
    {
        assert!(failed.stdout.contains(line), "{}", failed.stdout);
    }
    write(
        &folder,
        "op.test.jsonl",
        "{\"case\": \"a\"}\n{\"record\": \"headers\", \"key\": \"a\", \"headers\": {\"n\": \"v\"}}\n",
    );
    run(folder.path(), &["op.wasm", "--bless"]).expect(0);
    let blessed = read(&folder, "op.test.jsonl");
    assert!(
        blessed.ends_with("{\"emit\": 1, \"key\": \"a\", \"time\": 0, \"headers\": {\"n\": \"v\"}}\n"),
        "{blessed}"
    );
}

#[test]
fn what_depends_on_how_records_are_cut_or_on_guest_memory_is_told_and_not_blessed() {
    let mut cases = "{\"case\": \"it remembers\"}\n".to_owned();
    // A batch that fails begins again on a new instance: the count does, where the batch began and not at the record at fault.
    for time in 0..13 {
        let verb = if time == 11 { "panic" } else { "memory" };
        cases.push_str(&format!("{{\"record\": \"{verb}\", \"key\": \"a\", \"time\": {time}}}\n"));
        if time == 2 {
            cases.push_str("{\"advance\": \"1ms\"}\n");
        }
    }
    let folder = folder(&cases);
    for arguments in [&["op.wasm", "--bless"][..], &["op.wasm"]] {
        let failed = run(folder.path(), arguments).expect(1);
        for manner in ["in batches of 7,", "in batches of 1024,", "in batches of 7, each to a new instance,"] {
            let what = format!("{manner} other than record by record");
            assert!(failed.stdout.contains(&what), "{}", failed.stdout);
        }
        assert!(!failed.stdout.contains("what comes of this step") || arguments.len() > 1, "{}", failed.stdout);
    }
    let other = run(folder.path(), &["op.wasm", "--batches", "1"]).expect(1);
    assert!(!other.stdout.contains("in batches of 7"), "{}", other.stdout);
    assert!(other.stdout.contains("in batches of 1, each to a new instance"), "{}", other.stdout);
}

#[test]
fn a_components_files_are_found_beside_it_and_below_a_folder() {
    let case = "{\"case\": \"NAME\"}\n{\"record\": \"hello\", \"key\": \"a\"}\n{\"emit\": {\"text\": \"hello\", \
                \"seen\": 1, \"watermark\": null, \"clock\": 0}}\n";
    let folder = folder(&case.replace("NAME", "first"));
    write(&folder, "op.more.test.jsonl", &case.replace("NAME", "second"));
    write(&folder, "opera.test.jsonl", &format!("{{\"component\": \"op.wasm\"}}\n{}", case.replace("NAME", "third")));
    std::fs::create_dir_all(folder.path().join("deep/er")).expect("a folder");
    write(&folder, "deep/er/a.test.jsonl", &format!("{{\"component\": \"../../op.wasm\"}}\n{case}"));
    let tally = |arguments: &[&str]| {
        let ran = run(folder.path(), arguments).expect(0);
        ran.stdout.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(tally(&["op.wasm"]), "2 cases: 2 passed, 0 failed");
    assert_eq!(tally(&["."]), "4 cases: 4 passed, 0 failed");
    assert_eq!(tally(&["op.more.test.jsonl"]), "1 case: 1 passed, 0 failed");
    assert_eq!(tally(&[".", "--filter", "ir"]), "2 cases: 2 passed, 0 failed");
    assert_eq!(tally(&["op.wasm", "--cases", "deep"]), "1 case: 1 passed, 0 failed");
    let none = run(folder.path(), &[".", "--filter", "fourth"]).expect(2);
    assert_eq!(none.stderr, "error: no case found: `fourth` is in the name of none of 4\n");
}

#[test]
fn a_component_passes_as_the_module_that_it_was_made_from() {
    let harness = Harness::get();
    let folder = folder(include_str!("golden/trial/blessed.test.jsonl"));
    let encoded = Command::new(harness.binary("examples/componentize"))
        .args([folder.path().join("op.wasm"), folder.path().join("encoded.wasm")])
        .status();
    assert!(encoded.expect("componentize starts").success());
    let module = std::fs::read(folder.path().join("op.wasm")).expect("the module can be read");
    let component = std::fs::read(folder.path().join("encoded.wasm")).expect("the component can be read");
    assert_eq!((module[4], component[4], component[6]), (1, 13, 1), "one is a module, the other a component");
    run(folder.path(), &["op.wasm"]).expect(0);
    run(folder.path(), &["encoded.wasm", "--cases", "op.test.jsonl"]).expect(0);
}

#[test]
fn what_neither_a_file_nor_the_command_line_grants_is_refused() {
    let component = r#"(component (import "wasi:clocks/wall-clock@0.2.3" (instance)))"#;
    let folder = folder("");
    let bytes = wat::parse_str(component).expect("the text is right");
    std::fs::write(folder.path().join("clock.wasm"), bytes).expect("the folder can be written");
    let refused =
        "clock.test.jsonl: component clock.wasm: it imports `wasi:clocks/wall-clock@0.2.3`, which is not granted";
    let case = "{\"case\": \"a\"}\n";
    let runs: [(&str, &[&str], bool); 6] = [
        ("", &[], true),
        ("{\"grants\": [\"random\"]}\n", &["--grants", "random"], true),
        ("{\"grants\": [\"clock\"]}\n", &[], false),
        ("{\"wasi\": \"deny\"}\n", &[], false),
        ("", &["--grants", "random,clock"], false),
        ("{\"wasi\": \"refuse\"}\n", &["--deny-wasi"], false),
    ];
    for (lines, arguments, is_refused) in runs {
        write(&folder, "clock.test.jsonl", &format!("{lines}{case}"));
        // It is no operator in any case.
        let ran = run(folder.path(), &[&["clock.wasm"], arguments].concat()).expect(2);
        assert_eq!(ran.stderr.contains(refused), is_refused, "{lines}{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("clock.wasm"), "{}", ran.stderr);
    }
}

#[test]
fn wrong_input_is_one_error_that_names_file_and_line() {
    let folder = folder("{\"case\": \"a\"}\n\n{\"recrod\": 1}\n");
    write(&folder, "lonely.test.jsonl", "{\"case\": \"a\"}\n");
    write(&folder, "empty.test.jsonl", "\n");
    write(&folder, "text.wasm", "no component");
    write(&folder, "text.test.jsonl", "{\"case\": \"a\"}\n");
    write(
        &folder,
        "input.test.jsonl",
        "{\"component\": \"op.wasm\"}\n{\"case\": \"a\"}\n{\"record\": 1, \"input\": \"text\"}\n",
    );
    write(
        &folder,
        "key.test.jsonl",
        "{\"component\": \"op.wasm\"}\n{\"case\": \"a\", \"key-from\": \"k\"}\n{\"record\": {}}\n",
    );
    write(
        &folder,
        "back.test.jsonl",
        "{\"component\": \"op.wasm\"}\n{\"case\": \"a\"}\n{\"advance\": \"1s\"}\n{\"clock\": 999}\n",
    );
    write(
        &folder,
        "headers.test.jsonl",
        "{\"component\": \"op.wasm\"}\n{\"case\": \"a\"}\n{\"record\": \"\", \"input\": \"texts\", \"headers\": {\"a\": \"\"}}\n",
    );
    std::fs::create_dir(folder.path().join("bare")).expect("a folder");
    for (arguments, says) in [
        (&["op.wasm"][..], "op.test.jsonl:3: `recrod` is nothing that a line can say; did you mean `record`?"),
        (&["."], "./empty.test.jsonl:1: there is no case"),
        (&["missing.wasm"], "missing.wasm: there is no such file or folder"),
        (&["op.wasm", "--cases", "missing.test.jsonl"], "missing.test.jsonl: the test file cannot be read"),
        (&["bare"], "no case found: no file below bare ends in .test.jsonl"),
        (&["lonely.test.jsonl"], "lonely.test.jsonl: its component is not there, lonely.wasm: build it"),
        (&["op.wasm", "--cases", "empty.test.jsonl"], "empty.test.jsonl:1: there is no case"),
        (&["text.wasm"], "text.wasm"),
        (&["input.test.jsonl"], "input.test.jsonl:3: the component has no input `text`; did you mean `texts`?"),
        (&["key.test.jsonl"], "key.test.jsonl:3: the record has no key by `key-from`: it is missing"),
        (&["back.test.jsonl"], "back.test.jsonl:4: the clock does not go back: it stands at 1000"),
        (&["headers.test.jsonl"], "headers.test.jsonl:3: the component does not declare headers for the input `texts`"),
        (&["op.wasm", "--grants", "clok"], "there are clock and random"),
        (&["op.wasm", "--batches", "0"], "--batches"),
    ] {
        let refused = run(folder.path(), arguments).expect(2);
        assert!(refused.stderr.contains(says), "{arguments:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{arguments:?}");
    }
}

#[test]
fn the_examples_cases_pass() {
    let examples: PathBuf = Harness::get().root().join("examples");
    run(&examples, &["."]).expect(0);
}

#[test]
fn the_document_on_test_files_shows_a_case_that_passes() {
    let harness = Harness::get();
    let text = std::fs::read_to_string(harness.root().join("docs/testing.md")).expect("the document can be read");
    let blocks = text.split("```").skip(1).step_by(2);
    let cases: Vec<_> = blocks.filter_map(|block| block.strip_prefix("jsonl\n")).collect();
    assert!(!cases.is_empty(), "the document has an example");
    let folder = TempDir::new().expect("there is a folder for the test");
    write(&folder, "shown.test.jsonl", &cases.concat());
    let component = harness.guest("wasmill_example_count");
    run(folder.path(), &[&component.to_string_lossy(), "--cases", "shown.test.jsonl"]).expect(0);
}
