//! Tests of what sinks write.

use proptest::prelude::*;

use super::*;
use crate::format::cbor;

fn settings(format: SinkFormat) -> Settings {
    Settings { format, fields: None, header: true, delimiter: ',', separator: "\n".to_owned() }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn lines(settings: &Settings, values: &[Option<&[u8]>]) -> String {
    let mut encoder = Encoder::new(settings).unwrap();
    let mut out = Vec::new();
    for value in values {
        encoder.encode(*value, &mut out).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn cbor_becomes_json_by_the_documented_rules() {
    let cases = [
        ("00", "0"),
        ("1bffffffffffffffff", "18446744073709551615"),
        ("3bffffffffffffffff", "-18446744073709551616"),
        ("f93e00", "1.5"),
        ("fb3ff199999999999a", "1.1"),
        ("f97e00", "null"),
        ("f97c00", "null"),
        ("f6", "null"),
        ("f7", "null"),
        ("f0", "null"),
        ("f5", "true"),
        ("43000102", "\"AAEC\""),
        ("5f420001ff", "\"AAE=\""),
        ("63e282ac", "\"€\""),
        ("6122", "\"\\\"\""),
        ("7f61616162ff", "\"ab\""),
        ("8301820203820405", "[1,[2,3],[4,5]]"),
        ("9f01ff", "[1]"),
        ("a26161016162820203", "{\"a\":1,\"b\":[2,3]}"),
        ("bf6161f4ff", "{\"a\":false}"),
        ("a301020203820102f5", "{\"1\":2,\"2\":3,\"[1,2]\":true}"),
        ("a1820161616101", "{\"[1,\\\"a\\\"]\":\"\\u0001\"}"),
        ("c11a514b67b0", "1363896240"),
        ("80", "[]"),
        ("a0", "{}"),
    ];
    for (cbor, json) in cases {
        assert_eq!(lines(&settings(SinkFormat::Jsonl), &[Some(&hex(cbor))]), format!("{json}\n"), "{cbor}");
    }
    assert_eq!(lines(&settings(SinkFormat::Jsonl), &[None]), "null\n");
}

#[test]
fn what_is_not_one_cbor_value_is_refused_and_leaves_nothing_behind() {
    let deep = [0x81; 1000];
    let cases: [&[u8]; 9] =
        [b"", b"\xff", b"\x18", b"\x61", b"\x61\xff", b"\x01\x01", b"\x9f\x01", b"\xbf\x61a\xff", &deep];
    for format in [SinkFormat::Jsonl, SinkFormat::Csv] {
        for bad in cases {
            let mut encoder = Encoder::new(&settings(format)).unwrap();
            let mut out = b"kept".to_vec();
            assert!(encoder.encode(Some(bad), &mut out).is_err(), "{}", bad.escape_ascii());
            assert_eq!(out, b"kept");
        }
    }
}

#[test]
fn csv_has_the_first_records_columns_in_every_file() {
    let first = hex("a2616101616266782c22790a7a"); // {"a": 1, "b": "x,\"y\nz"}
    let second = hex("a26161f6616280"); // {"a": null, "b": []}
    let mut encoder = Encoder::new(&settings(SinkFormat::Csv)).unwrap();
    let mut out = Vec::new();
    encoder.encode(Some(&first), &mut out).unwrap();
    encoder.encode(Some(&second), &mut out).unwrap();
    encoder.encode(Some(&hex("a1616143000102")), &mut out).unwrap();
    encoder.encode(None, &mut out).unwrap();
    encoder.begin();
    encoder.encode(Some(&hex("a1617a f5".replace(' ', "").as_str())), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "a,b\n1,\"x,\"\"y\nz\"\n,[]\nAAEC,\n,\nz\ntrue\n");
}

#[test]
fn csv_refuses_what_its_columns_would_lose() {
    let mut encoder = Encoder::new(&settings(SinkFormat::Csv)).unwrap();
    let mut out = Vec::new();
    encoder.encode(Some(&hex("a1616101")), &mut out).unwrap();
    let lost = encoder.encode(Some(&hex("a2616101616202")), &mut out);
    assert_eq!(lost, Err(Unwritable::UnknownColumn("b".to_owned())));
    assert_eq!(encoder.encode(Some(&hex("01")), &mut out), Err(Unwritable::NoColumns));
    assert_eq!(encoder.encode(Some(&hex("820102")), &mut out), Err(Unwritable::Width { found: 2, expected: 1 }));
    encoder.encode(Some(&hex("a1616103")), &mut out).unwrap();
    assert_eq!(out, b"a\n1\n3\n");
}

#[test]
fn named_columns_select_and_arrays_go_by_place() {
    let mut named = settings(SinkFormat::Csv);
    named.fields = Some(vec!["b".to_owned(), "a".to_owned()]);
    named.delimiter = ';';
    let record = hex("a3616101616202616303");
    assert_eq!(lines(&named, &[Some(&record), Some(&hex("820506"))]), "b;a\n2;1\n5;6\n");
    named.header = false;
    assert_eq!(lines(&named, &[Some(&record)]), "2;1\n");
    assert_eq!(lines(&settings(SinkFormat::Csv), &[Some(&hex("820506")), Some(&hex("8107"))]), "5,6\n7\n");
}

#[test]
fn raw_is_the_bytes_and_the_separator() {
    assert_eq!(lines(&settings(SinkFormat::Raw), &[Some(b"a"), None, Some(b"b")]), "a\n\nb\n");
    let mut joined = settings(SinkFormat::Raw);
    joined.separator = String::new();
    assert_eq!(lines(&joined, &[Some(b"a"), Some(b"b")]), "ab");
}

#[test]
fn settings_for_another_format_are_refused() {
    let mut wrong = settings(SinkFormat::Jsonl);
    wrong.fields = Some(vec!["a".to_owned()]);
    assert_eq!(Encoder::new(&wrong).unwrap_err(), Error::Setting { setting: "fields", format: "jsonl" });
    let mut wrong = settings(SinkFormat::Csv);
    wrong.delimiter = 'é';
    assert_eq!(Encoder::new(&wrong).unwrap_err(), Error::Delimiter('é'));
}

proptest! {
    #[test]
    fn no_bytes_panic_a_sink(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in [SinkFormat::Jsonl, SinkFormat::Csv, SinkFormat::Raw] {
            let mut out = Vec::new();
            let _ = Encoder::new(&settings(format)).unwrap().encode(Some(&bytes), &mut out);
        }
    }

    #[test]
    fn a_json_line_is_json(number: f64, text: String, integer: i64) {
        let mut value = Vec::new();
        cbor::push_head(&mut value, cbor::ARRAY, 3);
        cbor::push_f64(&mut value, number);
        cbor::push_text(&mut value, &text);
        cbor::push_i64(&mut value, integer);
        let line = lines(&settings(SinkFormat::Jsonl), &[Some(&value)]);
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        if number.is_finite() {
            prop_assert_eq!(&back[0], &serde_json::json!(number));
        }
        prop_assert_eq!(&back[1], &serde_json::json!(text));
        prop_assert_eq!(&back[2], &serde_json::json!(integer));
    }
}
