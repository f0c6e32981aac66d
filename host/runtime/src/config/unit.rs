//! Quantities as people write them: durations and sizes with their unit.
//!
//! Owns the text forms (`"500ms"`, `"256MiB"`). Does not own defaults or limits of the keys that use them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration with its unit: `"500ms"`, `"2s"`, `"1.5h"`, `"1m30s"`. Units: `ns us ms s m h d`.
///
/// ```
/// use wasmill_runtime::config::unit::Duration;
/// let pause: Duration = "1m30s".parse()?;
/// assert_eq!(pause.get().as_secs(), 90);
/// assert_eq!(pause.to_string(), "1m30s");
/// # Ok::<(), wasmill_runtime::config::unit::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(std::time::Duration);

/// A number of bytes with its unit: `"64KiB"`, `"256MiB"`, `"1GB"`, `"512B"`. Units: `B kB KB MB GB TB KiB MiB GiB TiB`.
///
/// ```
/// use wasmill_runtime::config::unit::ByteSize;
/// let size: ByteSize = "256MiB".parse()?;
/// assert_eq!(size.get(), 256 << 20);
/// assert_eq!(size.to_string(), "256MiB");
/// # Ok::<(), wasmill_runtime::config::unit::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a number followed by a unit.
    #[error("`{text}` is not {what}")]
    Malformed {
        /// The text.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// A unit that does not exist.
    #[error("`{text}` has the unknown unit `{unit}`: use one of {known}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The unit.
        unit: String,
        /// The units there are.
        known: &'static str,
    },
    /// More than 64 bits hold.
    #[error("`{text}` is too large")]
    TooLarge {
        /// The text.
        text: String,
    },
}

const DURATION: &str = "a duration with its unit, such as \"500ms\", \"2s\" or \"1m30s\"";
const SIZE: &str = "a size with its unit, such as \"64KiB\" or \"256MiB\"";
static DURATION_UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];
static SIZE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl Duration {
    /// Wraps a duration.
    #[must_use]
    pub const fn new(duration: std::time::Duration) -> Self {
        Self(duration)
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    /// So many seconds.
    #[must_use]
    pub const fn secs(secs: u64) -> Self {
        Self(std::time::Duration::from_secs(secs))
    }

    /// The duration.
    #[must_use]
    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

impl ByteSize {
    /// So many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many times 1,024 bytes.
    #[must_use]
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// So many times 1,048,576 bytes.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes, at most what this machine can address.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Duration {
    type Err = Error;

    /// One or more numbers, each with its unit; their sum.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut nanos: u64 = 0;
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(malformed(text, DURATION));
        }
        while !rest.is_empty() {
            let (part, after) = quantity(text, rest, DURATION, &DURATION_UNITS, "ns, us, ms, s, m, h, d")?;
            nanos = nanos.checked_add(part).ok_or_else(|| Error::TooLarge { text: text.to_owned() })?;
            rest = after.trim_start();
        }
        Ok(Self(std::time::Duration::from_nanos(nanos)))
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    /// One number with its unit.
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";
        let (bytes, rest) = quantity(text, text.trim(), SIZE, &SIZE_UNITS, known)?;
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(malformed(text, SIZE)) }
    }
}

fn malformed(text: &str, what: &'static str) -> Error {
    Error::Malformed { text: text.to_owned(), what }
}

/// Reads a number and its unit at the start of `rest`: the quantity in the smallest unit, and what follows.
fn quantity<'a>(
    text: &str,
    rest: &'a str,
    what: &'static str,
    units: &[(&str, u64)],
    known: &'static str,
) -> Result<(u64, &'a str), Error> {
    let too_large = || Error::TooLarge { text: text.to_owned() };
    let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, after) = rest.split_at(number_end);
    let after = after.trim_start();
    let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
    let (unit, after) = after.split_at(unit_end);
    if number.is_empty() || unit.is_empty() {
        return Err(malformed(text, what));
    }
    let Some(&(_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(Error::UnknownUnit { text: text.to_owned(), unit: unit.to_owned(), known });
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let bad_fraction = fraction.contains('.') || fraction.len() > 9 || (number.contains('.') && fraction.is_empty());
    if whole.is_empty() || bad_fraction {
        return Err(malformed(text, what));
    }
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // At most nine digits, so neither the power nor the product leaves 128 bits.
    let scale = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().unwrap_or(0) * u128::from(factor) / scale;
    let total = u128::from(whole) * u128::from(factor) + part;
    Ok((u64::try_from(total).map_err(|_| too_large())?, after))
}

impl fmt::Display for Duration {
    /// The shortest exact form with whole numbers: `1m30s`, `500ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in DURATION_UNITS.iter().rev().filter(|(unit, _)| *unit != "µs") {
            let count = nanos / u128::from(*factor);
            if count > 0 {
                write!(f, "{count}{unit}")?;
                nanos %= u128::from(*factor);
            }
        }
        Ok(())
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit of 1,024 that divides it: `256MiB`, `1000B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |factor: u64| self.0 > 0 && self.0.is_multiple_of(factor);
        let (unit, factor) =
            SIZE_UNITS[6..].iter().rev().find(|(_, factor)| divides(*factor)).unwrap_or(&SIZE_UNITS[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

macro_rules! text_form {
    ($type:ident, $what:expr, $name:literal, $pattern:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(|error| match error {
                            Error::Malformed { .. } => E::invalid_value(Unexpected::Str(text), &self),
                            other => E::custom(other),
                        })
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $name, "pattern": $pattern })
            }
        }
    };
}

text_form!(Duration, DURATION, "duration", r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d))+$");
text_form!(ByteSize, SIZE, "size", r"^[0-9]+(\.[0-9]+)?(B|[kKMGT]B|[KMGT]iB)$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_with_their_unit() {
        let cases = [
            ("500ms", 500_000_000, "500ms"),
            ("2s", 2_000_000_000, "2s"),
            ("1.5h", 5_400_000_000_000, "1h30m"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1 m 30 s", 90_000_000_000, "1m30s"),
            ("0s", 0, "0s"),
            ("250us", 250_000, "250us"),
            ("2d", 172_800_000_000_000, "2d"),
        ];
        for (text, nanos, shown) in cases {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.get().as_nanos(), nanos, "{text}");
            assert_eq!(duration.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<Duration>().unwrap(), duration, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_written_with_their_unit() {
        let cases = [
            ("256MiB", 256 << 20, "256MiB"),
            ("1GB", 1_000_000_000, "1000000000B"),
            ("1.5KiB", 1_536, "1536B"),
            ("512B", 512, "512B"),
            ("0B", 0, "0B"),
            ("2048 MiB", 2 << 30, "2GiB"),
        ];
        for (text, bytes, shown) in cases {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.get(), bytes, "{text}");
            assert_eq!(size.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn a_quantity_without_unit_or_beyond_64_bits_is_refused() {
        for bad in
            ["", "5", "ms", "5 parsecs", "-1s", "1..5s", ".5s", "1.s", "1s,", "99999999999999999999s", "600000000000s"]
        {
            assert!(bad.parse::<Duration>().is_err(), "{bad:?}");
        }
        for bad in ["", "5", "MiB", "5 MiB 3", "1 mib", "-1B", "99999999999TiB", "5MiB3KiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
        assert_eq!(
            "5 parsecs".parse::<Duration>().unwrap_err().to_string(),
            "`5 parsecs` has the unknown unit `parsecs`: use one of ns, us, ms, s, m, h, d"
        );
        assert_eq!(
            "5".parse::<ByteSize>().unwrap_err().to_string(),
            "`5` is not a size with its unit, such as \"64KiB\" or \"256MiB\""
        );
    }
}
