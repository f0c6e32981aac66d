//! How entries of keyed state lie in RocksDB: a row's key and a row's value.
//!
//! Owns the encodings, which are stored formats (docs/formats.md, "Rows in RocksDB"). Does not own which rows exist.

use wasmill_core::checkpoint::counts::Tally;
use wasmill_core::contract::TimeDomain;
use wasmill_core::key_group::KeyGroup;
use wasmill_core::timer::{Domain, ID_BYTES};
use wasmill_core::ttl::Stamp;

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
/// Flag of a value that has a stamp before it.
const STAMPED: u8 = 0b100;
/// Flag beside [`STAMPED`]: the stamp is event time, else processing time.
const EVENT: u8 = 0b1000;
/// Flag of an entry that expired and whose value compaction has dropped: how many bytes it had stands in its place.
const GONE: u8 = 0b1_0000;
/// Flag beside [`HEAD`]: the list's first element is not at position 0.
const FIRST: u8 = 0b10_0000;

/// Bytes of a stamp.
pub(super) const STAMP_BYTES: usize = 8;

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
    /// An expired entry, in a state that has no TTL.
    #[error("the entry expired and its value is gone, and the state has no TTL now")]
    Gone,
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

/// How the values of a state are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Schema version.
    pub(super) version: u32,
    /// The time domain of the stamps; `None`: they have none.
    pub(super) stamp: Option<TimeDomain>,
}

impl Form {
    /// Appends a row's value: flags, schema version, the stamp if the state has stamps, the value. Where it has, `stored` begins
    /// with the stamp.
    pub(super) fn encode(self, stored: &[u8], out: &mut Vec<u8>) {
        match (self.stamp, stored.split_first_chunk::<STAMP_BYTES>()) {
            (Some(domain), Some((stamp, value))) => match Stamp::from_raw(i64::from_be_bytes(*stamp)) {
                Stamp::UNKNOWN => encode_value(self.version, value, out),
                Stamp::GONE => Self::encode_gone(self.version, value.len() as u32, out),
                _ => {
                    out.push(if domain == TimeDomain::Event { STAMPED | EVENT } else { STAMPED });
                    encode_varint(self.version, out);
                    out.extend_from_slice(stored);
                }
            },
            _ => encode_value(self.version, stored, out),
        }
    }

    /// Appends the row of an entry that has expired and whose value, which had so many bytes, is dropped.
    pub(super) fn encode_gone(version: u32, bytes: u32, out: &mut Vec<u8>) {
        out.push(GONE);
        encode_varint(version, out);
        encode_varint(bytes, out);
    }
}

/// A row's value as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Schema version.
    pub(super) version: u32,
    pub(super) entry: FoundEntry<'a>,
}

/// What a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundEntry<'a> {
    /// A value without a stamp.
    Plain(&'a [u8]),
    /// A stamp of this domain, and the value behind it.
    Stamped(TimeDomain, &'a [u8]),
    /// It expired; its value had so many bytes.
    Gone(u32),
}

impl FoundEntry<'_> {
    /// Bytes of the value.
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Self::Plain(value) => value.len(),
            Self::Stamped(_, stored) => stored.len() - STAMP_BYTES,
            Self::Gone(bytes) => bytes as usize,
        }
    }
}

/// Appends a row's value without a stamp: flags, schema version, the value.
pub(super) fn encode_value(version: u32, value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    encode_varint(version, out);
    out.extend_from_slice(value);
}

/// What a row that is no head holds.
pub(super) fn decode_value(row: &[u8]) -> Result<Found<'_>, RowError> {
    const STAMPED_EVENT: u8 = STAMPED | EVENT;
    let (&flags, rest) = row.split_first().ok_or(RowError::Short)?;
    let (version, rest) = match flags {
        0 | STAMPED | STAMPED_EVENT | GONE => decode_varint(rest)?,
        flags if flags & HEAD != 0 && flags & !(HEAD | FIRST) == 0 => return Err(RowError::Head),
        flags => return Err(RowError::Flags(flags)),
    };
    let entry = match flags {
        0 => FoundEntry::Plain(rest),
        GONE => match decode_varint(rest)? {
            (bytes, []) => FoundEntry::Gone(bytes),
            _ => return Err(RowError::Number),
        },
        _ if rest.len() < STAMP_BYTES => return Err(RowError::Short),
        STAMPED => FoundEntry::Stamped(TimeDomain::Processing, rest),
        _ => FoundEntry::Stamped(TimeDomain::Event, rest),
    };
    Ok(Found { version, entry })
}

/// The head of a map or list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// How many entries it has, and their bytes.
    pub(super) tally: Tally,
    /// Of a list, the position of the first element; of a map 0.
    pub(super) first: u64,
}

/// Appends the value of the head of a map or list: flags, how many entries it has, their bytes, the first one's position if
/// that is not 0.
pub(super) fn encode_head(head: Head, out: &mut Vec<u8>) {
    out.push(if head.first == 0 { HEAD } else { HEAD | FIRST });
    encode_long_varint(head.tally.entries, out);
    encode_long_varint(head.tally.bytes, out);
    if head.first != 0 {
        encode_long_varint(head.first, out);
    }
}

/// What the head of a map or list says.
pub(super) fn decode_head(row: &[u8]) -> Result<Head, RowError> {
    const HEAD_FIRST: u8 = HEAD | FIRST;
    let (&flags, rest) = row.split_first().ok_or(RowError::Short)?;
    match flags {
        HEAD | HEAD_FIRST => {}
        flags if flags & !(STAMPED | EVENT | GONE) == 0 => return Err(RowError::NoHead),
        flags => return Err(RowError::Flags(flags)),
    }
    let (entries, rest) = decode_number(rest, MAX_LONG_VARINT_BYTES)?;
    let (bytes, rest) = decode_number(rest, MAX_LONG_VARINT_BYTES)?;
    let (first, rest) = if flags == HEAD { (0, rest) } else { decode_number(rest, MAX_LONG_VARINT_BYTES)? };
    let odd = !rest.is_empty() || (flags == HEAD_FIRST && first == 0);
    if odd { Err(RowError::Number) } else { Ok(Head { tally: Tally { entries, bytes }, first }) }
}

/// Whether a row is the head of a map or list.
pub(super) fn is_head(row: &[u8]) -> bool {
    row.first().is_some_and(|flags| flags & HEAD != 0)
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
mod tests;
