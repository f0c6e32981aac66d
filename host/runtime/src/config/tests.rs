//! Whole pipeline files: what is read from them, and every refusal with its place.

use std::collections::BTreeMap;
use std::path::Path;

use wasmill_core::contract::{Codec, ConfigKey, OperatorContract, Port, StateContract, StateKind};
use wasmill_core::graph::Exchange;
use wasmill_core::id::{OperatorUid, StateName};

use super::input::{KeySpec, OnMissingKey};
use super::source::Time;
use super::table::Listen;
use super::watermark::{Strategy, Watermark};
use super::*;

const EXAMPLE: &str = include_str!("example.toml");

fn environment(name: &str) -> Option<String> {
    match name {
        "WORD" => Some("s3cret".to_owned()),
        "ONE" => Some("1".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Pipeline, Error> {
    Pipeline::parse(Path::new("p.toml"), text, &environment)
}

fn uid(name: &str) -> OperatorUid {
    OperatorUid::new(name).unwrap()
}

#[test]
fn refused_files_name_place_key_and_way_out() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for case in include_str!("testdata/refused.txt").split("\n== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (file, expected) = rest.split_once("\n-> ").unwrap();
        let expected = expected.lines().next().unwrap();
        let found = match parse(file) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        if found != expected {
            wrong.push(format!("{name}\n  expected {expected}\n  found    {found}"));
        }
        assert!(!found.contains("s3cret"), "{name}: {found}");
        cases += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 40);
}

#[test]
fn the_example_is_read_as_it_stands() {
    let pipeline = parse(EXAMPLE).unwrap();
    assert_eq!(pipeline.job.max_parallelism.get(), 720);
    assert_eq!(pipeline.checkpoint.retain.get(), 3);
    assert_eq!(pipeline.admin.listen, Listen::At("127.0.0.1:0".parse().unwrap()));
    let here = std::path::absolute(".").unwrap();
    assert_eq!(pipeline.state_dir, here.join("state/flights"));
    assert_eq!(pipeline.checkpoint.store, here.join("checkpoints").to_string_lossy());
    let operator = pipeline.operator(&uid("per-aircraft")).unwrap();
    assert_eq!(operator.component, here.join("per_aircraft.wasm"));
    assert_eq!(operator.parallelism.get(), 2);
    assert_eq!(operator.inputs[0].key, KeySpec::Field("tailnum".to_owned()));
    assert_eq!(operator.inputs[0].on_missing_key, OnMissingKey::Drop);
    let names: Vec<_> = pipeline.graph.nodes().iter().map(|node| node.uid.as_str()).collect();
    assert_eq!(names, ["flights", "per-aircraft", "totals"]);
    let place = pipeline.place(&["operator", "per-aircraft", "component"]);
    assert_eq!(place.to_string(), "p.toml:19:1");
}

#[test]
fn an_exchange_left_out_follows_from_key_and_parallelism() {
    let text = r#"
        [job]
        name = "x"
        [source.s]
        connector = "generator"
        [operator.a]
        component = "a.wasm"
        input = "s"
        [operator.b]
        component = "b.wasm"
        parallelism = 2
        input = ["a", { from = "a", key = "/k" }, { from = "a/late", exchange = "key", port = "late" }]
        [sink.out]
        connector = "stdout"
        input = "b"
    "#;
    let pipeline = parse(text).unwrap();
    let edges = |name: &str| -> Vec<_> {
        let node = pipeline.graph.node(&uid(name)).unwrap();
        node.edges.iter().map(|edge| (edge.exchange, edge.input, edge.output.as_deref())).collect()
    };
    assert_eq!(edges("a"), [(Exchange::Forward, 0, None)]);
    assert_eq!(
        edges("b"),
        [(Exchange::Rebalance, 0, None), (Exchange::Key, 1, None), (Exchange::Key, 2, Some("late"))]
    );
    assert_eq!(edges("out"), [(Exchange::Rebalance, 0, None)]);
    assert_eq!(pipeline.inputs(&uid("b"))[2].key, KeySpec::Record);
}

#[test]
fn what_opens_the_store_of_a_cloud_is_masked_though_no_reference_names_it() {
    let of = |store: &str| {
        let text = EXAMPLE.replace("\"./checkpoints\"", &format!("\"{store}\""));
        let environment = |name: &str| Some(format!("value-of-{name}"));
        let pipeline = Pipeline::parse(Path::new("p.toml"), &text, &environment).unwrap();
        assert!(pipeline.checkpoint.store.ends_with(store.trim_start_matches('.')));
        pipeline.secrets
    };
    for (store, name) in [
        ("s3://bucket/x", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket", "AWS_SESSION_TOKEN"),
        ("gs://bucket/x", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_KEY"),
    ] {
        let said = format!("403: value-of-{name} is wrong");
        assert_eq!(of(store).mask(&said), format!("403: ${{env:{name}}} is wrong"));
        assert_eq!(of("./checkpoints").mask(&said), said, "nothing of it is used");
    }
}

#[test]
fn what_a_reference_brought_in_is_used_and_masked() {
    let text = EXAMPLE.replace("\"per_aircraft.wasm\"", "\"${env:WORD}/a.wasm\"");
    let pipeline = parse(&text).unwrap();
    let component = pipeline.operators[0].component.display().to_string();
    assert!(component.ends_with("s3cret/a.wasm"), "{component}");
    assert!(pipeline.secrets.mask(&component).ends_with("${env:WORD}/a.wasm"));
    assert!(!format!("{pipeline:?}").contains("s3cret"));
}

fn contract(inputs: &[(&str, bool)], outputs: &[&str], keyed: bool) -> OperatorContract {
    let port = |(name, broadcast): (&str, bool)| Port { name: name.to_owned(), broadcast, headers: false };
    let state = StateContract {
        name: StateName::new("count").unwrap(),
        kind: StateKind::Value,
        version: 1,
        codec: Codec::Cbor,
        value_type: "{}".to_owned(),
        map_key_type: None,
        lazy: false,
        rides_with: Vec::new(),
        ttl: None,
        renamed_from: Vec::new(),
        migrates_from: Vec::new(),
    };
    OperatorContract {
        name: "op".to_owned(),
        version: "1".to_owned(),
        key_type: None,
        inputs: inputs.iter().copied().map(port).collect(),
        outputs: outputs.iter().map(|&name| port((name, false))).collect(),
        config: vec![
            ConfigKey { name: "home".to_owned(), required: false, doc: "where from".to_owned() },
            ConfigKey { name: "rate".to_owned(), required: true, doc: "how fast".to_owned() },
        ],
        states: if keyed { vec![state] } else { Vec::new() },
        lists_timers: false,
    }
}

/// A file with one operator between a source and a sink.
fn file(input: &str, config: &str, sink: &str) -> String {
    format!(
        "[job]\nname = \"x\"\n[source.s]\nconnector = \"generator\"\n[operator.a]\ncomponent = \"a.wasm\"\n\
         input = {input}\nconfig = {config}\n[sink.o]\nconnector = \"stdout\"\ninput = \"{sink}\"\n"
    )
}

/// Binds each file to its component and compares the complaint; an empty one stands for none.
fn bound(cases: &[(String, &OperatorContract, &str)]) {
    for (text, contract, expected) in cases {
        let contracts = BTreeMap::from([(uid("a"), (*contract).clone())]);
        let found = match parse(text).unwrap().bind(&contracts) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn components_that_do_not_fit_the_file_are_refused_by_place() {
    let keyed = "{ from = \"s\", exchange = \"key\" }";
    let one = contract(&[("in", false)], &["out", "late"], true);
    let two = contract(&[("left", false), ("rules", true)], &[], false);
    let cases = [
        (file(keyed, "{ rate = 1 }", "a/late"), &one, ""),
        (file(&format!("[{keyed}, {keyed}]"), "{ rate = 1 }", "a"), &one, ""),
        (
            file("\"s\"", "{ rate = 1 }", "a"),
            &one,
            "p.toml:7:1: `operator.a.input.exchange`: the component keeps state by key (`count`): give the input a `key`, or exchange = \"key\"",
        ),
        (
            file(keyed, "{ }", "a"),
            &one,
            "p.toml:8:1: operator `a`: operator `op` needs the config key `rate` (how fast)",
        ),
        (
            file(keyed, "{ rate = 1, hom = 2 }", "a"),
            &one,
            "p.toml:8:22: operator `a`: config key `hom` is not read by operator `op`; did you mean `home`?",
        ),
        (
            file(keyed, "{ rate = 1 }", "a/lat"),
            &one,
            "p.toml:11:1: `sink.o.input.from`: the component of `a` has no output `lat`; did you mean `late`?; it has: out, late",
        ),
        (
            file("[\"s\", { from = \"s\", exchange = \"broadcast\" }, \"s\"]", "{ rate = 1 }", "s"),
            &two,
            "p.toml:7:55: `operator.a.input.from`: the component has 2 input(s), and this is number 3: name the one it feeds by `port`",
        ),
        (
            file("{ from = \"s\", key = \"k\", port = \"inn\" }", "{ rate = 1 }", "a"),
            &one,
            "p.toml:7:34: `operator.a.input.port`: the component has no input `inn`; did you mean `in`?; it has: in",
        ),
        (
            file("\"s\"", "{ rate = 1 }", "s"),
            &two,
            "p.toml:7:1: `operator.a.input`: nothing feeds the component's input `rules`",
        ),
        (
            file("[\"s\", \"s\"]", "{ rate = 1 }", "s"),
            &two,
            "p.toml:7:15: `operator.a.input.exchange`: the component's input `rules` is a broadcast input: it needs exchange = \"broadcast\"",
        ),
        (
            file("{ from = \"s\", exchange = \"broadcast\" }", "{ rate = 1 }", "s"),
            &two,
            "p.toml:7:23: `operator.a.input.exchange`: the component's input `left` is no broadcast input: it needs another exchange than exchange = \"broadcast\"",
        ),
        (
            file("[\"s\", { from = \"s\", exchange = \"broadcast\" }]", "{ rate = 1 }", "a"),
            &two,
            "p.toml:11:1: `sink.o.input.from`: the component of `a` has no output",
        ),
    ];
    bound(&cases);
}

#[test]
fn late_outputs_that_nobody_can_take_are_refused_by_place() {
    let one = contract(&[("in", false)], &["out", "late"], true);
    bound(&[
        (file("{ from = \"s\", key = \"k\", on-late = { output = \"tardy\" } }", "{ rate = 1 }", "a/tardy"), &one, ""),
        (
            file("{ from = \"s\", key = \"k\", on-late = { output = \"late\" } }", "{ rate = 1 }", "a/late"),
            &one,
            "p.toml:7:34: `operator.a.input.on-late`: the component has an output `late` of its own: give the late output another name",
        ),
        (
            file("{ from = \"s\", key = \"k\", on-late = { output = \"tardy\" } }", "{ rate = 1 }", "a"),
            &one,
            "p.toml:7:34: `operator.a.input.on-late`: nothing takes `a/tardy`: name it in the `from` of an input, or set on-late = \"drop\" to leave late records out",
        ),
        (
            file("{ from = \"s\", key = \"k\", on-late = { output = \"tardy\" } }", "{ rate = 1 }", "a/tardi"),
            &one,
            "p.toml:11:1: `sink.o.input.from`: the component of `a` has no output `tardi`; did you mean `tardy`?; it has: out, late, tardy",
        ),
    ]);
}

#[test]
fn watermarks_are_read_in_every_form() {
    let forms = [
        ("", Strategy::Times(unit::Duration::default()), None),
        ("watermark = \"none\"", Strategy::None, None),
        ("watermark = \"ascending\"", Strategy::Times(unit::Duration::default()), None),
        (
            "watermark = { out-of-order = \"5s\", idle = \"1m\" }",
            Strategy::Times(unit::Duration::secs(5)),
            Some(unit::Duration::secs(60)),
        ),
        ("watermark = { idle = \"1s\" }", Strategy::Times(unit::Duration::default()), Some(unit::Duration::secs(1))),
        (
            "watermark = { field = \"w\", format = \"unix-s\" }",
            Strategy::Field(Time { field: "w".to_owned(), format: "unix-s".to_owned(), zone: "UTC".to_owned() }),
            None,
        ),
    ];
    for (form, strategy, idle) in forms {
        let text =
            format!("[job]\nname = \"x\"\n[source.s]\nconnector = \"file\"\npath = \"x\"\nformat = \"json\"\n{form}\n");
        let pipeline = parse(&text).unwrap();
        assert_eq!(*pipeline.sources[0].config.watermark(), Watermark { strategy, idle }, "{form}");
    }
}

#[test]
fn inputs_named_by_port_feed_that_input() {
    let text = "[job]\nname = \"x\"\n[source.s]\nconnector = \"generator\"\n[operator.a]\ncomponent = \"a.wasm\"\nconfig.rate = 1\n\
                input = [{ from = \"s\", exchange = \"broadcast\", port = \"rules\" }, { from = \"s\", port = \"left\" }, { from = \"s\", port = \"left\" }]\n";
    let contracts = BTreeMap::from([(uid("a"), contract(&[("left", false), ("rules", true)], &[], false))]);
    let graph = parse(text).unwrap().bind(&contracts).unwrap();
    let inputs: Vec<_> = graph.node(&uid("a")).unwrap().edges.iter().map(|edge| edge.input).collect();
    assert_eq!(inputs, [1, 0, 0]);
}

mod never_panics {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_mangled_file_is_read_or_refused(cut in 0usize..1200, insert in "[ -~\n]{0,6}", len in 0usize..40) {
            let mut text: Vec<char> = super::EXAMPLE.chars().collect();
            let start = cut.min(text.len());
            let end = (start + len).min(text.len());
            text.splice(start..end, insert.chars());
            let text: String = text.into_iter().collect();
            if let Err(error) = super::parse(&text) {
                prop_assert!(error.to_string().starts_with("p.toml:"));
            }
        }
    }
}
