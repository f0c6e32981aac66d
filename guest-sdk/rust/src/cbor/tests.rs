//! What the encoding promises, held against RFC 8949 and against another implementation.
//!
//! Owns no helper that others use.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Empty,
    Circle(f64),
    Box(u8, i64),
    Named { width: u32, label: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    zulu: u64,
    a: Option<i64>,
    text: String,
    list: Vec<Shape>,
    map: BTreeMap<String, f32>,
    numbers: BTreeMap<i64, bool>,
    pair: (char, ()),
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Empty),
        any::<f64>().prop_filter("NaN is not equal to itself", |x| !x.is_nan()).prop_map(Shape::Circle),
        any::<(u8, i64)>().prop_map(|(a, b)| Shape::Box(a, b)),
        any::<(u32, String)>().prop_map(|(width, label)| Shape::Named { width, label }),
    ]
}

fn row() -> impl Strategy<Value = Row> {
    let plain = (any::<u64>(), any::<Option<i64>>(), any::<String>(), any::<char>());
    let floats = any::<f32>().prop_filter("NaN is not equal to itself", |x| !x.is_nan());
    let maps = (prop::collection::btree_map(any::<String>(), floats, 0..40), any::<BTreeMap<i64, bool>>());
    (plain, prop::collection::vec(shape(), 0..30), maps).prop_map(|((zulu, a, text, c), list, (map, numbers))| Row {
        zulu,
        a,
        text,
        list,
        map,
        numbers,
        pair: (c, ()),
    })
}

/// Walks one value as another implementation reads it, and holds it to the deterministic encoding.
fn check_deterministic(decoder: &mut minicbor::Decoder<'_>, bytes: &[u8]) {
    use minicbor::data::Type;
    let at = decoder.position();
    let mut again = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut again);
    match decoder.datatype().unwrap() {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => drop(encoder.u64(decoder.u64().unwrap()).unwrap()),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => drop(encoder.i64(decoder.i64().unwrap()).unwrap()),
        Type::String => drop(encoder.str(decoder.str().unwrap()).unwrap()),
        Type::Bytes => drop(encoder.bytes(decoder.bytes().unwrap()).unwrap()),
        Type::Array => {
            let len = decoder.array().unwrap().unwrap();
            encoder.array(len).unwrap();
            assert!(bytes[at..].starts_with(&again));
            return (0..len).for_each(|_| check_deterministic(decoder, bytes));
        }
        Type::Map => {
            let len = decoder.map().unwrap().unwrap();
            encoder.map(len).unwrap();
            assert!(bytes[at..].starts_with(&again));
            let mut before: &[u8] = &[];
            for _ in 0..len {
                let start = decoder.position();
                check_deterministic(decoder, bytes);
                let key = &bytes[start..decoder.position()];
                assert!(before < key, "entries ascend by key");
                before = key;
                check_deterministic(decoder, bytes);
            }
            return;
        }
        _ => return decoder.skip().unwrap(),
    }
    assert_eq!(&bytes[at..decoder.position()], again, "lengths and integers are the shortest");
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_and_deterministic(row in row()) {
        let bytes = to_vec(&row).unwrap();
        prop_assert_eq!(&from_slice::<Row>(&bytes).unwrap(), &row);
        let mut decoder = minicbor::Decoder::new(&bytes);
        check_deterministic(&mut decoder, &bytes);
        prop_assert_eq!(decoder.position(), bytes.len());
    }

    #[test]
    fn an_encoder_writes_the_same_after_other_values_and_errors(rows in prop::collection::vec(row(), 1..4)) {
        let mut encoder = Encoder::new();
        for row in &rows {
            let mut bytes = b"before".to_vec();
            prop_assert!(encoder.encode(&Failing, &mut bytes).is_err());
            encoder.encode(row, &mut bytes).unwrap();
            prop_assert_eq!(&bytes[6..], to_vec(row).unwrap());
        }
    }

    #[test]
    fn every_float_keeps_its_bits(bits in any::<u64>(), single in any::<u32>()) {
        for value in [f64::from_bits(bits), f64::from(f32::from_bits(single))] {
            let read: f64 = from_slice(&to_vec(&value).unwrap()).unwrap();
            prop_assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()));
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_slice::<Row>(&bytes);
        let _ = from_slice::<Vec<Shape>>(&bytes);
        let _ = from_slice::<serde_json::Value>(&bytes);
        let _ = from_slice::<serde::de::IgnoredAny>(&bytes);
    }

    #[test]
    fn no_damage_makes_the_reader_panic(row in row(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = to_vec(&row).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = from_slice::<Row>(&bytes);
        bytes.truncate(at);
        prop_assert!(from_slice::<Row>(&bytes).is_err());
    }
}

/// Serialises a part of itself and fails.
struct Failing;

impl Serialize for Failing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeMap};
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("a", &[1, 2])?;
        Err(S::Error::custom("on purpose"))
    }
}

#[test]
fn the_examples_of_rfc_8949_are_written_so() {
    fn hex(value: &impl Serialize) -> String {
        to_vec(value).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }
    let integers: [(i64, &str); 8] = [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (1000, "1903e8"),
        (1_000_000, "1a000f4240"),
        (1_000_000_000_000, "1b000000e8d4a51000"),
        (-1, "20"),
        (-1000, "3903e7"),
    ];
    for (value, expected) in integers {
        assert_eq!(hex(&value), expected);
    }
    assert_eq!(hex(&u64::MAX), "1bffffffffffffffff");
    assert_eq!(hex(&i64::MIN), "3b7fffffffffffffff");
    let floats: [(f64, &str); 9] = [
        (0.0, "f90000"),
        (-0.0, "f98000"),
        (1.5, "f93e00"),
        (1.1, "fb3ff199999999999a"),
        (100_000.0, "fa47c35000"),
        (3.402_823_466_385_288_6e38, "fa7f7fffff"),
        (5.960_464_477_539_063e-8, "f90001"),
        (f64::INFINITY, "f97c00"),
        (f64::NAN, "f97e00"),
    ];
    for (value, expected) in floats {
        assert_eq!(hex(&value), expected);
    }
    assert_eq!(hex(&"IETF"), "6449455446");
    assert_eq!(hex(&(1, [2, 3], [4, 5])), "8301820203820405");
    assert_eq!(hex(&Shape::Empty), "65456d707479");
    assert_eq!(hex(&BTreeMap::from([("aa", 1), ("b", 2)])), "a261620262616101");
}

#[test]
fn a_struct_is_read_from_an_array_in_declared_order() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Flight<'a> {
        tailnum: &'a str,
        distance: i64,
        delay: Option<i64>,
    }
    let bytes = to_vec(&("N1", 7, None::<i64>)).unwrap();
    assert_eq!(from_slice::<Flight<'_>>(&bytes).unwrap(), Flight { tailnum: "N1", distance: 7, delay: None });
    let long = to_vec(&("N1", 7, None::<i64>, 9)).unwrap();
    assert!(from_slice::<Flight<'_>>(&long).is_err(), "an array with more items than fields is another type");
    let map = to_vec(&BTreeMap::from([("distance", serde_json::json!(7)), ("more", serde_json::json!([1, {"a": 2}]))]));
    let error = from_slice::<Flight<'_>>(&map.unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "missing field `tailnum`");
}

#[test]
fn indefinite_lengths_and_tags_are_read() {
    assert_eq!(from_slice::<Vec<u8>>(&[0x9f, 1, 2, 0xff]).unwrap(), [1, 2]);
    assert_eq!(from_slice::<String>(&[0x7f, 0x61, b'a', 0x61, b'b', 0xff]).unwrap(), "ab");
    assert_eq!(from_slice::<BTreeMap<String, u8>>(&[0xbf, 0x61, b'a', 1, 0xff]).unwrap()["a"], 1);
    assert_eq!(from_slice::<u64>(&[0xc1, 0x18, 0x18]).unwrap(), 24);
}

#[test]
fn nesting_and_lengths_that_lie_are_refused() {
    for opener in [&[0x81][..], &[0x9f], &[0xa1, 0x00], &[0xc1]] {
        let deep = opener.repeat(100_000);
        assert_eq!(from_slice::<serde::de::IgnoredAny>(&deep), Err(Error::TooDeep).map(|()| serde::de::IgnoredAny));
        assert!(from_slice::<serde_json::Value>(&deep).is_err());
    }
    assert_eq!(
        from_slice::<Vec<u64>>(&[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        Err(Error::Truncated { at: 9 })
    );
    assert_eq!(
        from_slice::<&str>(&[0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        Err(Error::Truncated { at: 9 })
    );
    assert_eq!(from_slice::<u8>(&[1, 1]), Err(Error::Trailing { at: 1 }));
    assert!(from_slice::<u8>(&[]).is_err());
}

#[test]
fn depth_is_limited_when_written_too() {
    fn nested(depth: usize) -> serde_json::Value {
        (0..depth).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]))
    }
    let deepest = to_vec(&nested(usize::from(MAX_DEPTH))).unwrap();
    assert!(from_slice::<serde_json::Value>(&deepest).is_ok());
    assert_eq!(to_vec(&nested(usize::from(MAX_DEPTH) + 1)), Err(Error::TooDeep));
}

#[test]
fn a_key_twice_is_refused() {
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("a", 1), ("a", 2)])
        }
    }
    assert_eq!(to_vec(&Twice), Err(Error::DuplicateKey));
}
