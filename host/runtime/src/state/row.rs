//! How entries of keyed state lie in RocksDB: a row's key and a row's value.
//!
//! Owns the encodings, which are stored formats (docs/formats.md, "Rows in RocksDB"). Does not own which rows exist.

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::key_group::KeyGroup;
use wasmill_core::timer::{Domain, ID_BYTES};

/// Bytes of the key group at the head of every row's key.
pub(super) const GROUP_BYTES: usize = 2;

/// Domain and time of a timer.
const TIMER_NAME_BYTES: u32 = 9;

/// Longest LEB128 form of a `u32`.
const MAX_VARINT_BYTES: usize = 5;
/// Longest LEB128 form of a `u64`.
const MAX_LONG_VARINT_BYTES: usize = 10;

/// Stands before the map key or list position in the rows of a map's or list's entries. The rows of a key are its head, whose
/// row ends with the key, and its entries, which all lie below the key followed by [`ENTRIES_END`].
const ENTRY: u8 = 1;
const ENTRIES_END: u8 = 2;

/// Flag of a row that is the head of a map or list.
const HEAD: u8 = 0b10;

/// A row that this build cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// It ends too early.
    #[error("the row ends too early")]
    Short,
    /// A number is too large or not in its shortest form.
    #[error("a number in the row is not in its shortest form or is too large")]
    Number,
    /// Flags that a later version must have written.
    #[error("the row has the flags {0:#04x}, which this build does not know: it was written by a later one")]
    Flags(u8),
    /// The head of a map or list, where a value or an entry was to be read.
    #[error("the row is the head of a map or list: the state was of another kind when it was written")]
    Head,
    /// A value, where the head of a map or list was to be read.
    #[error("the row is not the head of a map or list: the state was of another kind when it was written")]
    NoHead,
    /// Neither a head nor an entry.
    #[error("the row's key goes on with what this build does not know: it was written by a later one")]
    Kind,
}

/// Appends the key of a value state's row, which is that of the head of a map or list too.
///
/// The key's length stands before it, so that no key is a prefix of another's rows.
pub(super) fn encode_key(group: KeyGroup, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&group.0.to_be_bytes());
    encode_varint(key.len() as u32, out);
    out.extend_from_slice(key);
}

/// Appends to the key of the head what makes it that of an entry: of a map its map key, of a list its position.
pub(super) fn encode_entry(entry: &[u8], out: &mut Vec<u8>) {
    out.push(ENTRY);
    out.extend_from_slice(entry);
}

/// Appends to the key of the head what makes it the first that lies behind all entries.
pub(super) fn encode_entries_end(out: &mut Vec<u8>) {
    out.push(ENTRIES_END);
}

/// The map key or list position in what follows the key of an entry's row.
pub(super) fn decode_entry(rest: &[u8]) -> Result<&[u8], RowError> {
    match rest.split_first() {
        Some((&ENTRY, entry)) => Ok(entry),
        _ => Err(RowError::Kind),
    }
}

/// The key of the same row under another group.
pub(super) fn in_group(group: KeyGroup, row: &[u8]) -> Vec<u8> {
    let mut moved = group.0.to_be_bytes().to_vec();
    moved.extend_from_slice(row.get(GROUP_BYTES..).unwrap_or_default());
    moved
}

/// The parts of a row's key: the group, the key, and what follows it.
pub(super) fn decode_key(row: &[u8]) -> Result<(KeyGroup, &[u8], &[u8]), RowError> {
    let (group, rest) = row.split_first_chunk::<GROUP_BYTES>().ok_or(RowError::Short)?;
    let (len, rest) = decode_varint(rest)?;
    let (key, rest) = rest.split_at_checked(len as usize).ok_or(RowError::Short)?;
    Ok((KeyGroup(u16::from_be_bytes(*group)), key, rest))
}

/// Appends the head of a timer's row: to it belongs the timer's id. Read as any row's key, domain and time stand where
/// other rows have the key.
pub(super) fn encode_timer_head(group: KeyGroup, domain: Domain, out: &mut Vec<u8>) {
    out.extend_from_slice(&group.0.to_be_bytes());
    encode_varint(TIMER_NAME_BYTES, out);
    out.push(domain as u8);
}

/// Where the rows of a key group's timers of a domain begin, which is their head, and before what they end.
pub(super) fn timer_bounds(group: KeyGroup, domain: Domain) -> (Vec<u8>, Vec<u8>) {
    let mut lower = Vec::new();
    encode_timer_head(group, domain, &mut lower);
    let mut upper = lower.clone();
    // The head ends in the domain, far from 0xff.
    if let Some(last) = upper.last_mut() {
        *last += 1;
    }
    (lower, upper)
}

/// What a timer of a key of `key` bytes counts for: domain, time, key and tag.
pub(super) fn timer_bytes(key: usize) -> usize {
    1 + ID_BYTES + key
}

/// Domain and id of a timer's row.
pub(super) fn timer_of(row: &[u8]) -> Option<(Domain, &[u8])> {
    let rest = row.get(GROUP_BYTES..)?;
    let (&[length, domain], id) = rest.split_first_chunk::<2>()?;
    (u32::from(length) == TIMER_NAME_BYTES).then_some((Domain::from_number(domain)?, id))
}

/// Appends a row's value: flags, schema version, the value.
pub(super) fn encode_value(version: u32, value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    encode_varint(version, out);
    out.extend_from_slice(value);
}

/// The schema version and the value of a row.
pub(super) fn decode_value(row: &[u8]) -> Result<(u32, &[u8]), RowError> {
    let (&flags, rest) = row.split_first().ok_or(RowError::Short)?;
    match flags {
        0 => decode_varint(rest),
        HEAD => Err(RowError::Head),
        flags => Err(RowError::Flags(flags)),
    }
}

/// Appends the value of the head of a map or list: flags, how many entries it has, their bytes.
pub(super) fn encode_head(head: Tally, out: &mut Vec<u8>) {
    out.push(HEAD);
    encode_long_varint(head.entries, out);
    encode_long_varint(head.bytes, out);
}

/// What the head of a map or list says.
pub(super) fn decode_head(row: &[u8]) -> Result<Tally, RowError> {
    let (&flags, rest) = row.split_first().ok_or(RowError::Short)?;
    match flags {
        HEAD => {}
        0 => return Err(RowError::NoHead),
        flags => return Err(RowError::Flags(flags)),
    }
    let (entries, rest) = decode_number(rest, MAX_LONG_VARINT_BYTES)?;
    let (bytes, rest) = decode_number(rest, MAX_LONG_VARINT_BYTES)?;
    if rest.is_empty() { Ok(Tally { entries, bytes }) } else { Err(RowError::Number) }
}

/// Whether a row is the head of a map or list.
pub(super) fn is_head(row: &[u8]) -> bool {
    row.first() == Some(&HEAD)
}

/// Compares two keys of one group as their rows' keys compare.
pub(super) fn compare_keys(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    if a.len() == b.len() {
        return a.cmp(b);
    }
    // Both lengths are written in full and differ, so the first difference lies in them.
    varint(a.len() as u32).0.cmp(&varint(b.len() as u32).0)
}

pub(super) fn encode_varint(number: u32, out: &mut Vec<u8>) {
    let (bytes, len) = varint(number);
    out.extend_from_slice(&bytes[..len]);
}

fn varint(mut number: u32) -> ([u8; MAX_VARINT_BYTES], usize) {
    let mut bytes = [0; MAX_VARINT_BYTES];
    let mut len = 0;
    while number >= 0x80 {
        bytes[len] = number as u8 | 0x80;
        number >>= 7;
        len += 1;
    }
    bytes[len] = number as u8;
    (bytes, len + 1)
}

fn encode_long_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn decode_varint(bytes: &[u8]) -> Result<(u32, &[u8]), RowError> {
    let (number, rest) = decode_number(bytes, MAX_VARINT_BYTES)?;
    Ok((u32::try_from(number).map_err(|_| RowError::Number)?, rest))
}

/// A number in its shortest LEB128 form of at most `longest` bytes.
fn decode_number(bytes: &[u8], longest: usize) -> Result<(u64, &[u8]), RowError> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().take(longest).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index + 1 == MAX_LONG_VARINT_BYTES && bits > 1 {
            return Err(RowError::Number);
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return Err(RowError::Number);
            }
            return Ok((number, &bytes[index + 1..]));
        }
    }
    Err(if bytes.len() < longest { RowError::Short } else { RowError::Number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmill_core::time::Timestamp;
    use wasmill_core::timer::Timer;

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
        let golden = include_str!("../../golden/state-rows.txt");
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
                    timer.encode(&mut written);
                    assert_eq!(written, hex(row), "{line}");
                    let (of, id) = timer_of(&written).unwrap();
                    assert_eq!((of, Timer::decode(id)), (domain, Some(timer)), "{line}");
                    assert_eq!(decode_key(&written).unwrap().2.len() + 1 + 8, timer_bytes(key.len()), "{line}");
                }
                ["value", version, value, row] => {
                    let (version, value, row) = (version.parse().unwrap(), hex(value), hex(row));
                    let mut written = Vec::new();
                    encode_value(version, &value, &mut written);
                    assert_eq!(written, row, "{line}");
                    assert_eq!(decode_value(&row), Ok((version, &value[..])), "{line}");
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
                    let head = Tally { entries: entries.parse().unwrap(), bytes: bytes.parse().unwrap() };
                    let row = hex(row);
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
        assert_eq!(lines, 39);
    }

    /// S2: keys of all ones, and keys that begin with another.
    #[test]
    fn no_key_is_a_prefix_of_another_keys_rows() {
        let keys: [&[u8]; 8] =
            [b"", b"\xff", b"\xff\x00", b"\xff\xff", b"\xfe", b"\x00", &[0; 65_536], &[0xff; 65_536]];
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
            if let Ok((version, value)) = decode_value(&bytes) {
                let mut again = Vec::new();
                encode_value(version, value, &mut again);
                prop_assert_eq!(again, bytes);
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
}
