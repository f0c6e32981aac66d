//! What is written comes back, and is what the golden file says. Owns no rule.

use super::*;

fn letter<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> DeadLetter<'a> {
    DeadLetter {
        uid: "count",
        subtask: 1,
        component: Some("0123abcd"),
        input: Some("in"),
        kind: "trap",
        message: "`process` trapped: it gave up",
        tries: 3,
        place: Some(Place { source: "lines", split: "input.jsonl", position: 4 }),
        time: Timestamp::from_millis(-5),
        key,
        value,
        headers: &[],
        timer: None,
    }
}

fn line(letter: &DeadLetter<'_>) -> String {
    let (mut map, mut line) = (Vec::new(), Vec::new());
    Writer::default().push(letter, &mut map);
    encode::push_json(&map, &mut line).unwrap();
    String::from_utf8(line).unwrap()
}

/// {"a": [1, 2.0]}
const MAP: &[u8] = b"\xa1\x61a\x82\x01\xf9\x40\x00";

#[test]
fn a_record_comes_back_as_it_was_whatever_its_bytes() {
    let values: [Option<&[u8]>; 10] = [
        None,
        Some(b""),
        Some(b"\xf6"),
        Some(MAP),
        Some(b"\x61a"),
        Some(b"\x18\x01"),
        Some(b"\x41a"),
        Some(b"text that is no CBOR"),
        Some(b"\xff\x00"),
        Some(b"\xa1\x65value\xf6"),
    ];
    for value in values {
        for key in [None, Some(&b""[..]), Some(b"a\0b"), Some(b"\x80\0\0\0\0\0\0\x07"), Some("k\"ä".as_bytes())] {
            let line = line(&letter(key, value));
            let record = Reader::default().read(line.as_bytes()).unwrap();
            assert_eq!(record.key.as_deref(), key, "{line}");
            assert_eq!(record.value.as_deref(), value, "{line}");
            assert_eq!(record.time, Timestamp::from_millis(-5));
        }
    }
}

fn header(name: &[u8], value: &[u8]) -> Header {
    Header { record: 9, name: name.to_vec(), value: value.to_vec() }
}

#[test]
fn headers_come_back_as_they_were_in_their_order() {
    let headers = [header(b"who", b"me"), header(b"who", b""), header(b"\xff", b"\x80\0"), header(b"", b"you")];
    let line = line(&DeadLetter { headers: &headers, ..letter(None, None) });
    let back = Reader::default().read(line.as_bytes()).unwrap().headers;
    assert_eq!(back, headers.map(|Header { name, value, .. }| (name, value)));
}

#[test]
fn what_people_can_read_stands_there_readable() {
    let line = line(&letter(Some(b"a"), Some(MAP)));
    assert!(line.contains(r#""value":{"a":[1,2.0]}"#) && line.contains(r#""key":"a""#), "{line}");
}

#[test]
fn bytes_that_were_never_decoded_stay_bytes_whatever_they_look_like() {
    // The line `aa` is also the CBOR of the text `a`.
    let line = line(&DeadLetter { kind: UNDECODABLE, ..letter(None, Some(b"aa")) });
    assert!(line.contains(r#""value":null"#) && line.contains(r#""value-bytes":"YWE=""#), "{line}");
}

#[test]
fn the_format_is_the_golden_one() {
    let mut found = String::new();
    let headers = [header(b"who", b"me"), header(b"\xff", b"\x80")];
    let letters = [
        letter(Some(b"a"), Some(MAP)),
        DeadLetter { headers: &headers, ..letter(Some(b"\x80"), Some(b"\xff")) },
        DeadLetter { component: None, input: None, place: None, ..letter(None, None) },
        DeadLetter { place: None, timer: Some((Domain::Processing, 7)), ..letter(Some(b"a"), None) },
    ];
    for letter in letters {
        let mut map = Vec::new();
        Writer::default().push(&letter, &mut map);
        let hex: String = map.iter().map(|byte| format!("{byte:02x}")).collect();
        found.push_str(&format!("{hex}\n{}", line(&letter)));
    }
    assert_eq!(found, include_str!("../../../golden/dead-letter-1.txt"));
}

#[test]
fn what_is_no_dead_letter_is_refused_with_the_reason() {
    let whole = line(&letter(None, Some(MAP)));
    let cases = [
        (whole.replace("\"dead-letter\":1", "\"dead-letter\":2"), "version is 2"),
        (whole.replace("\"timer\":null", "\"timer\":{\"tag\":7,\"domain\":\"event\"}"), "of a timer"),
        (whole.replace("\"kind\":\"trap\"", "\"kind\":\"undecodable\""), "mend the line"),
        (whole.replace("\"value-bytes\":null", "\"value-bytes\":\"?\""), "not base64"),
        (r#"{"a":1}"#.to_owned(), "missing field"),
        ("[".to_owned(), "EOF"),
    ];
    for (line, reason) in cases {
        let error = Reader::default().read(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
