//! Deterministic CBOR, written and walked (RFC 8949, 4.2.1): shortest integers, floats and lengths, definite lengths, map
//! keys sorted by their encoded bytes.
//!
//! Owns what the hot paths need and no more: appending items, reading one head, skipping one item. Whole values of unknown
//! make are read with minicbor where a sink writes them.

/// Major type of unsigned integers.
pub const UNSIGNED: u8 = 0;
/// Major type of negative integers.
pub const NEGATIVE: u8 = 1;
/// Major type of byte strings.
pub const BYTES: u8 = 2;
/// Major type of text.
pub const TEXT: u8 = 3;
/// Major type of arrays.
pub const ARRAY: u8 = 4;
/// Major type of maps.
pub const MAP: u8 = 5;
/// Major type of tags.
pub const TAG: u8 = 6;
/// Major type of floats, booleans, null.
pub const SIMPLE: u8 = 7;

/// The encoding of null.
pub const NULL: u8 = 0xf6;
const BREAK: u8 = 0xff;
const INDEFINITE: u8 = 31;

/// Appends the head of an item: its major type with a length or number.
#[inline]
pub fn push_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    match argument {
        0..24 => out.push(major | argument as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, argument as u8]),
        0x100..0x1_0000 => {
            let [a, b] = (argument as u16).to_be_bytes();
            out.extend_from_slice(&[major | 25, a, b]);
        }
        0x1_0000..0x1_0000_0000 => {
            let [a, b, c, d] = (argument as u32).to_be_bytes();
            out.extend_from_slice(&[major | 26, a, b, c, d]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }
}

/// Appends an unsigned integer.
#[inline]
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    push_head(out, UNSIGNED, value);
}

/// Appends an integer.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => push_head(out, UNSIGNED, value),
        Err(_) => push_head(out, NEGATIVE, !value as u64),
    }
}

/// Appends a float in the shortest of its three widths that keeps its value; every NaN becomes `f97e00`.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    let single = value as f32;
    if value.is_nan() {
        out.extend_from_slice(&[0xf9, 0x7e, 0x00]);
    } else if f64::from(single) != value {
        out.push(0xfb);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Some(half) = exact_half(single) {
        out.push(0xf9);
        out.extend_from_slice(&half.to_be_bytes());
    } else {
        out.push(0xfa);
        out.extend_from_slice(&single.to_be_bytes());
    }
}

/// The half-precision bits of a number (not NaN), where they keep its value.
fn exact_half(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let exponent = ((bits >> 23) & 0xff) as i32 - 127;
    let mantissa = bits & 0x7f_ffff;
    match exponent {
        -127 if mantissa == 0 => Some(sign),
        128 => Some(sign | 0x7c00),
        -14..=15 if mantissa & 0x1fff == 0 => Some(sign | ((exponent + 15) as u16) << 10 | (mantissa >> 13) as u16),
        // Subnormal halves: multiples of 2^-24 below 2^-14.
        -24..=-15 => {
            let shift = (-1 - exponent) as u32;
            let full = mantissa | 0x80_0000;
            (full.trailing_zeros() >= shift).then(|| sign | (full >> shift) as u16)
        }
        _ => None,
    }
}

/// Appends a boolean.
#[inline]
pub fn push_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xf5 } else { 0xf4 });
}

/// Appends text.
#[inline]
pub fn push_text(out: &mut Vec<u8>, value: &str) {
    push_head(out, TEXT, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Appends a byte string.
#[inline]
pub fn push_bytes(out: &mut Vec<u8>, value: &[u8]) {
    push_head(out, BYTES, value.len() as u64);
    out.extend_from_slice(value);
}

/// Bytes that are not well-formed CBOR, or nested deeper than [`MAX_DEPTH`] where lengths are indefinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not well-formed CBOR at byte {0}")]
pub struct Malformed(
    /// Where.
    pub usize,
);

/// How deep items of indefinite length may nest, and values that a sink writes.
pub const MAX_DEPTH: usize = 128;

/// An item's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The major type.
    pub major: u8,
    /// The five bits below it: for [`SIMPLE`], which kind.
    pub info: u8,
    /// Its number or length; `None`: of indefinite length (or a break).
    pub argument: Option<u64>,
}

/// Walks CBOR without allocating.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// At the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Reads a head.
    ///
    /// # Errors
    /// At the end of the bytes, or a reserved length.
    #[inline]
    pub fn head(&mut self) -> Result<Head, Malformed> {
        let at = self.at;
        let &first = self.bytes.get(at).ok_or(Malformed(at))?;
        let (major, info) = (first >> 5, first & 31);
        let width = match info {
            0..24 => {
                self.at = at + 1;
                return Ok(Head { major, info, argument: Some(u64::from(info)) });
            }
            24..=27 => 1_usize << (info - 24),
            INDEFINITE if !matches!(major, UNSIGNED | NEGATIVE | TAG) => {
                self.at = at + 1;
                return Ok(Head { major, info, argument: None });
            }
            _ => return Err(Malformed(at)),
        };
        let raw = self.bytes.get(at + 1..at + 1 + width).ok_or(Malformed(at))?;
        let argument = raw.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        self.at = at + 1 + width;
        Ok(Head { major, info, argument: Some(argument) })
    }

    /// Reads the next `len` bytes.
    ///
    /// # Errors
    /// Where there are fewer.
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let at = self.at;
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(Malformed(at))?;
        let taken = self.bytes.get(at..end).ok_or(Malformed(at))?;
        self.at = end;
        Ok(taken)
    }

    /// Whether a collection goes on: counts `left` down, or looks for the break of an indefinite one and reads it.
    ///
    /// # Errors
    /// At the end of the bytes.
    #[inline]
    pub fn goes_on(&mut self, left: &mut Option<u64>) -> Result<bool, Malformed> {
        match left {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => {
                let &next = self.bytes.get(self.at).ok_or(Malformed(self.at))?;
                self.at += usize::from(next == BREAK);
                Ok(next != BREAK)
            }
        }
    }

    /// Skips one item with all it holds.
    ///
    /// # Errors
    /// Where it is not well-formed, or items of indefinite length nest deeper than [`MAX_DEPTH`].
    #[inline]
    pub fn skip(&mut self) -> Result<(), Malformed> {
        self.skip_within(MAX_DEPTH)
    }

    fn skip_within(&mut self, depth: usize) -> Result<(), Malformed> {
        // Items still to skip; no recursion where lengths are definite.
        let mut pending = 1_u64;
        while pending > 0 {
            pending -= 1;
            let start = self.at;
            let head = self.head()?;
            match (head.major, head.argument) {
                (BYTES | TEXT, Some(len)) => {
                    self.take(len)?;
                }
                (ARRAY, Some(len)) => pending = pending.checked_add(len).ok_or(Malformed(start))?,
                (MAP, Some(len)) => {
                    pending = len.checked_mul(2).and_then(|len| pending.checked_add(len)).ok_or(Malformed(start))?;
                }
                (TAG, _) => pending += 1,
                (UNSIGNED | NEGATIVE | SIMPLE, Some(_)) => {}
                (BYTES | TEXT | ARRAY | MAP, None) if depth > 0 => {
                    while self.goes_on(&mut None)? {
                        self.skip_within(depth - 1)?;
                    }
                }
                _ => return Err(Malformed(start)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn numbers_are_as_short_as_rfc_8949_wants_them() {
        let integers = [
            (0_i64, "00"),
            (23, "17"),
            (24, "1818"),
            (255, "18ff"),
            (256, "190100"),
            (1_000_000, "1a000f4240"),
            (1_000_000_000_000, "1b000000e8d4a51000"),
            (-1, "20"),
            (-100, "3863"),
            (i64::MIN, "3b7fffffffffffffff"),
        ];
        for (value, hex) in integers {
            assert_eq!(encoded(|out| push_i64(out, value)), hex, "{value}");
        }
        assert_eq!(encoded(|out| push_u64(out, u64::MAX)), "1bffffffffffffffff");
        // Appendix A of RFC 8949.
        let floats = [
            (0.0, "f90000"),
            (-0.0, "f98000"),
            (1.0, "f93c00"),
            (1.1, "fb3ff199999999999a"),
            (1.5, "f93e00"),
            (65504.0, "f97bff"),
            (100_000.0, "fa47c35000"),
            (3.402_823_466_385_288_6e38, "fa7f7fffff"),
            (1e300, "fb7e37e43c8800759c"),
            (5.960_464_477_539_063e-8, "f90001"),
            (0.000_061_035_156_25, "f90400"),
            (-4.0, "f9c400"),
            (-4.1, "fbc010666666666666"),
            (f64::INFINITY, "f97c00"),
            (f64::NAN, "f97e00"),
            (f64::NEG_INFINITY, "f9fc00"),
        ];
        for (value, hex) in floats {
            assert_eq!(encoded(|out| push_f64(out, value)), hex, "{value}");
        }
    }

    #[test]
    fn every_half_is_found_and_keeps_its_value() {
        for half in 0..=u16::MAX {
            let bytes = [&[0xf9][..], &half.to_be_bytes()].concat();
            let value = minicbor::Decoder::new(&bytes).f16().unwrap();
            if !value.is_nan() {
                assert_eq!(exact_half(value), Some(half));
            }
        }
    }

    proptest! {
        #[test]
        fn a_float_keeps_its_value(bits: u64) {
            let value = f64::from_bits(bits);
            let mut out = Vec::new();
            push_f64(&mut out, value);
            let back = minicbor::Decoder::new(&out).f64().unwrap();
            prop_assert!(back == value || (back.is_nan() && value.is_nan()));
        }

        #[test]
        fn hostile_bytes_end_in_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut walk = Walk::new(&bytes);
            while walk.skip().is_ok() {}
            let _ = walk.rest();
        }

        #[test]
        fn what_is_skipped_is_what_a_full_reader_reads(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut walk = Walk::new(&bytes);
            let mut reader = minicbor::Decoder::new(&bytes);
            if walk.skip().is_ok() && reader.skip().is_ok() {
                prop_assert_eq!(walk.rest().len(), bytes.len() - reader.position());
            }
        }
    }

    #[test]
    fn depth_and_lengths_beyond_reason_are_errors() {
        assert!(Walk::new(&[0x9f; 100_000]).skip().is_err());
        assert!(Walk::new(&[0x81; 100_000]).skip().is_err());
        assert!(Walk::new(&[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).skip().is_err());
        assert!(Walk::new(&[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).skip().is_err());
    }
}
