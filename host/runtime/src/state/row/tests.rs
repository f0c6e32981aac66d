//! Rows against the golden ones, and against any bytes.

use proptest::prelude::*;
use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Timer, TimerId};

use super::*;

fn key_row(group: u16, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    encode_key(KeyGroup(group), key, &mut row);
    row
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'.').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The file is never changed, only added to: rows written by any version must be readable by every later one.
#[test]
fn rows_equal_the_golden_rows() {
    let golden = include_str!("../../../golden/state-rows.txt");
    let mut lines = 0;
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["key", group, key, row] => {
                let (group, key, row) = (group.parse().unwrap(), hex(key), hex(row));
                assert_eq!(key_row(group, &key), row, "{line}");
                assert_eq!(decode_key(&row), Ok((KeyGroup(group), &key[..], &[][..])), "{line}");
            }
            ["timer", group, domain, millis, key, tag, row] => {
                let domain = if domain == "event" { Domain::Event } else { Domain::Processing };
                let time = Timestamp::from_millis(millis.parse().unwrap());
                let key = hex(key);
                let timer = Timer { time, key: &key, tag: tag.parse().unwrap() };
                let mut written = Vec::new();
                encode_timer_head(KeyGroup(group.parse().unwrap()), domain, &mut written);
                TimerId::of(&timer).encode(&mut written);
                assert_eq!(written, hex(row), "{line}");
                let (of, id) = timer_of(&written).unwrap();
                let id = TimerId::decode(id).unwrap();
                assert_eq!((of, id.timer()), (domain, timer), "{line}");
                assert_eq!(decode_key(&written).unwrap().2.len() + 1 + 8, timer_bytes(key.len()), "{line}");
            }
            ["value", version, value, row] => {
                let (version, value, row) = (version.parse().unwrap(), hex(value), hex(row));
                let mut written = Vec::new();
                encode_value(version, &value, &mut written);
                assert_eq!(written, row, "{line}");
                let entry = FoundEntry::Plain(&value);
                assert_eq!(decode_value(&row), Ok(Found { version, entry }), "{line}");
            }
            ["stamped", domain, version, stamp, value, row] => {
                let domain = if domain == "event" { TimeDomain::Event } else { TimeDomain::Processing };
                let (version, stamp, row) = (version.parse().unwrap(), stamp.parse::<i64>().unwrap(), hex(row));
                let stored = [&stamp.to_be_bytes()[..], &hex(value)].concat();
                let mut written = Vec::new();
                Form { version, stamp: Some(domain) }.encode(&stored, &mut written);
                assert_eq!(written, row, "{line}");
                let entry = FoundEntry::Stamped(domain, &stored);
                assert_eq!(decode_value(&row), Ok(Found { version, entry }), "{line}");
            }
            ["gone", version, bytes, row] => {
                let (version, bytes, row) = (version.parse().unwrap(), bytes.parse().unwrap(), hex(row));
                let stored = [&Stamp::GONE.as_raw().to_be_bytes()[..], &vec![0; bytes as usize]].concat();
                let mut written = Vec::new();
                Form { version, stamp: Some(TimeDomain::Event) }.encode(&stored, &mut written);
                assert_eq!(written, row, "{line}");
                assert_eq!(decode_value(&row), Ok(Found { version, entry: FoundEntry::Gone(bytes) }), "{line}");
            }
            ["entry", group, key, entry, row] => {
                let (group, key, entry, row) = (group.parse().unwrap(), hex(key), hex(entry), hex(row));
                let mut written = key_row(group, &key);
                encode_entry(&entry, &mut written);
                assert_eq!(written, row, "{line}");
                let (_, _, rest) = decode_key(&row).unwrap();
                assert_eq!(decode_entry(rest), Ok(&entry[..]), "{line}");
            }
            ["head", entries, bytes, row] => {
                let tally = Tally { entries: entries.parse().unwrap(), bytes: bytes.parse().unwrap() };
                let (head, row) = (Head { tally, first: 0 }, hex(row));
                let mut written = Vec::new();
                encode_head(head, &mut written);
                assert_eq!(written, row, "{line}");
                assert_eq!(decode_head(&row), Ok(head), "{line}");
                assert!(is_head(&row) && decode_value(&row) == Err(RowError::Head), "{line}");
            }
            ["list-head", entries, bytes, first, row] => {
                let tally = Tally { entries: entries.parse().unwrap(), bytes: bytes.parse().unwrap() };
                let (head, row) = (Head { tally, first: first.parse().unwrap() }, hex(row));
                let mut written = Vec::new();
                encode_head(head, &mut written);
                assert_eq!(written, row, "{line}");
                assert_eq!(decode_head(&row), Ok(head), "{line}");
                assert!(is_head(&row) && decode_value(&row) == Err(RowError::Head), "{line}");
            }
            ["bad-head", row, error] => {
                assert_eq!(format!("{:?}", decode_head(&hex(row)).unwrap_err()), error, "{line}");
            }
            ["bad-key", row, error] => {
                assert_eq!(format!("{:?}", decode_key(&hex(row)).unwrap_err()), error, "{line}");
            }
            ["bad-value", row, error] => {
                assert_eq!(format!("{:?}", decode_value(&hex(row)).unwrap_err()), error, "{line}");
            }
            _ => panic!("{line}"),
        }
        lines += 1;
    }
    assert_eq!(lines, 55);
}

/// S2: keys of all ones, and keys that begin with another.
#[test]
fn no_key_is_a_prefix_of_another_keys_rows() {
    let keys: [&[u8]; 8] = [b"", b"\xff", b"\xff\x00", b"\xff\xff", b"\xfe", b"\x00", &[0; 65_536], &[0xff; 65_536]];
    for (i, a) in keys.iter().enumerate() {
        for (j, b) in keys.iter().enumerate() {
            assert!(i == j || !key_row(7, b).starts_with(&key_row(7, a)), "{i} {j}");
        }
    }
}

/// S2: all entries of a key lie between its head and the end of its entries, and nobody else's.
#[test]
fn s2_the_rows_of_a_key_have_an_end_whatever_its_bytes() {
    let keys: [&[u8]; 7] = [b"", b"\xff", b"\xff\x00", b"\xff\xff", b"\xfe", b"\x01", b"\x02"];
    let entries: [&[u8]; 6] = [b"", b"\x00", b"\x7f", b"\xff", b"\xff\xff", &[0xff; 300]];
    for key in keys {
        let (head, mut end) = (key_row(7, key), key_row(7, key));
        encode_entries_end(&mut end);
        for other in keys {
            for entry in entries {
                let mut row = key_row(7, other);
                encode_entry(entry, &mut row);
                assert_eq!(head < row && row < end, key == other, "{key:?} {other:?} {entry:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn keys_compare_as_their_rows(a in key(), b in key()) {
        prop_assert_eq!(compare_keys(&a, &b), key_row(3, &a).cmp(&key_row(3, &b)));
    }

    #[test]
    fn no_bytes_panic_the_decoders(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
        if let Ok((group, key, rest)) = decode_key(&bytes) {
            let mut again = key_row(group.0, key);
            again.extend_from_slice(rest);
            prop_assert_eq!(again, bytes.clone());
        }
        if let Ok(head) = decode_head(&bytes) {
            let mut again = Vec::new();
            encode_head(head, &mut again);
            prop_assert_eq!(again, bytes.clone());
        }
        if let Ok(Found { version, entry }) = decode_value(&bytes) {
            let (stamp, stored) = match entry {
                FoundEntry::Plain(value) => (None, value.to_vec()),
                FoundEntry::Stamped(domain, stored) => (Some(domain), stored.to_vec()),
                FoundEntry::Gone(_) => return Ok(()),
            };
            // A stamp that is no time is never written.
            if stamp.is_none() || i64::from_be_bytes(*stored.first_chunk().unwrap()) > Stamp::UNKNOWN.as_raw() {
                let mut again = Vec::new();
                Form { version, stamp }.encode(&stored, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![0usize..4, 126usize..130, 254usize..258, 16_382usize..16_386];
    (lengths, any::<u8>(), any::<u8>()).prop_map(|(len, fill, last)| {
        let mut key = vec![fill; len];
        if let Some(byte) = key.last_mut() {
            *byte = last;
        }
        key
    })
}
