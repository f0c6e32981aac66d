//! Event time from a field's text or number.
//!
//! Owns the formats `unix-ms`, `unix-s`, `rfc3339` and strftime patterns with a zone. Does not own which field it is.

use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use wasmill_core::time::Timestamp;

use crate::config::source::Time;

/// Why a pipeline's `time` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such zone.
    #[error("time.zone `{0}` is not a time zone: use an IANA name such as `UTC` or `America/New_York`")]
    Zone(String),
    /// A pattern that jiff does not know, or one that gives no date.
    #[error(
        "time.format `{format}` does not give a time ({reason}): use `unix-ms`, `unix-s`, `rfc3339` or a pattern such as `%Y-%m-%d %H:%M:%S`"
    )]
    Pattern {
        /// The pattern.
        format: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads times of one format. Remembers the last text: equal times come in a row.
#[derive(Debug, Clone)]
pub struct TimeParser {
    format: Format,
    last_text: Vec<u8>,
    last: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Format {
    UnixMillis,
    UnixSeconds,
    Rfc3339,
    Pattern { pattern: String, zone: TimeZone },
}

impl TimeParser {
    /// For the format that the pipeline names.
    ///
    /// # Errors
    /// An unknown zone or a pattern that gives no time.
    pub fn new(time: &Time) -> Result<Self, Error> {
        let format = match time.format.as_str() {
            "unix-ms" => Format::UnixMillis,
            "unix-s" => Format::UnixSeconds,
            "rfc3339" => Format::Rfc3339,
            pattern => {
                let zone = TimeZone::get(&time.zone).map_err(|_| Error::Zone(time.zone.clone()))?;
                check(pattern, &zone)?;
                Format::Pattern { pattern: pattern.to_owned(), zone }
            }
        };
        Ok(Self { format, last_text: Vec::new(), last: None })
    }

    /// The time that `text` says; `None` where it says none within the range of times.
    pub fn text(&mut self, text: &[u8]) -> Option<Timestamp> {
        if self.last.is_some() && text == self.last_text {
            return self.last;
        }
        let time = self.parse(std::str::from_utf8(text).ok()?)?;
        self.last_text.clear();
        self.last_text.extend_from_slice(text);
        self.last = Some(time);
        Some(time)
    }

    /// The time that a whole number says, with the formats `unix-ms` and `unix-s`.
    #[must_use]
    pub fn integer(&self, number: i64) -> Option<Timestamp> {
        match self.format {
            Format::UnixMillis => in_range(number),
            Format::UnixSeconds => in_range(number.checked_mul(1000)?),
            Format::Rfc3339 | Format::Pattern { .. } => None,
        }
    }

    /// The time that a number says, with the formats `unix-ms` and `unix-s`; rounded down to milliseconds.
    #[must_use]
    pub fn float(&self, number: f64) -> Option<Timestamp> {
        let millis = match self.format {
            Format::UnixMillis => number,
            Format::UnixSeconds => number * 1000.0,
            Format::Rfc3339 | Format::Pattern { .. } => return None,
        };
        let bounds = Timestamp::MIN.as_millis() as f64..=Timestamp::MAX.as_millis() as f64;
        bounds.contains(&millis).then(|| Timestamp::from_millis(millis.floor() as i64))
    }

    /// The format as a message names it.
    #[must_use]
    pub fn expected(&self) -> String {
        match &self.format {
            Format::UnixMillis => "milliseconds since 1970 (unix-ms)".to_owned(),
            Format::UnixSeconds => "seconds since 1970 (unix-s)".to_owned(),
            Format::Rfc3339 => "RFC 3339 (rfc3339)".to_owned(),
            Format::Pattern { pattern, .. } => format!("`{pattern}`"),
        }
    }

    fn parse(&self, text: &str) -> Option<Timestamp> {
        match &self.format {
            Format::UnixMillis | Format::UnixSeconds => match text.parse() {
                Ok(number) => self.integer(number),
                Err(_) => self.float(text.parse().ok()?),
            },
            Format::Rfc3339 => in_range(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()),
            Format::Pattern { pattern, zone } => in_range(by_pattern(pattern, zone, text).ok()?),
        }
    }
}

fn in_range(millis: i64) -> Option<Timestamp> {
    let time = Timestamp::from_millis(millis);
    (time.as_millis() == millis).then_some(time)
}

/// Milliseconds since 1970. A pattern with an offset or a zone of its own does not need `zone`; a civil time that a zone skips or
/// has twice is taken as RFC 5545 does (the offset before the gap, the first of the two).
fn by_pattern(pattern: &str, zone: &TimeZone, text: &str) -> Result<i64, jiff::Error> {
    let broken = BrokenDownTime::parse(pattern, text)?;
    if broken.offset().is_some() || broken.timestamp().is_some() {
        return Ok(broken.to_timestamp()?.as_millisecond());
    }
    Ok(zone.to_timestamp(broken.to_datetime()?)?.as_millisecond())
}

/// A pattern is right when what it prints can be read back.
fn check(pattern: &str, zone: &TimeZone) -> Result<(), Error> {
    let bad = |error: jiff::Error| Error::Pattern { format: pattern.to_owned(), reason: error.to_string() };
    let sample = jiff::Timestamp::UNIX_EPOCH.to_zoned_datetime(zone.clone());
    let text = BrokenDownTime::from(&sample).to_string(pattern).map_err(bad)?;
    by_pattern(pattern, zone, &text).map(|_| ()).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(format: &str, zone: &str) -> Result<TimeParser, Error> {
        TimeParser::new(&Time { field: "t".to_owned(), format: format.to_owned(), zone: zone.to_owned() })
    }

    #[test]
    fn times_are_read_in_every_format() {
        let cases = [
            ("unix-ms", "UTC", "1357016400123", 1_357_016_400_123),
            ("unix-s", "UTC", "1357016400", 1_357_016_400_000),
            ("unix-s", "UTC", "1357016400.5", 1_357_016_400_500),
            ("unix-s", "UTC", "-1.5", -1_500),
            ("rfc3339", "UTC", "2013-01-01T05:00:00Z", 1_357_016_400_000),
            ("rfc3339", "UTC", "2013-01-01T00:00:00.250-05:00", 1_357_016_400_250),
            ("%Y-%m-%d %H:%M:%S", "UTC", "2013-01-01 05:00:00", 1_357_016_400_000),
            ("%Y-%m-%d %H:%M:%S", "America/New_York", "2013-01-01 00:00:00", 1_357_016_400_000),
            ("%Y-%m-%d %H:%M:%S %z", "America/New_York", "2013-01-01 05:00:00 +0000", 1_357_016_400_000),
            ("%Y-%m-%d %H:%M:%S%.f", "UTC", "2013-01-01 05:00:00.007", 1_357_016_400_007),
            ("%d/%m/%Y", "UTC", "02/01/1970", 86_400_000),
        ];
        for (format, zone, text, millis) in cases {
            let mut parser = parser(format, zone).unwrap();
            assert_eq!(parser.text(text.as_bytes()), Some(Timestamp::from_millis(millis)), "{format} {text}");
            assert_eq!(parser.text(text.as_bytes()), Some(Timestamp::from_millis(millis)), "again: {format} {text}");
        }
    }

    #[test]
    fn what_says_no_time_is_none_and_does_not_stick() {
        let mut parser = parser("%Y-%m-%d", "UTC").unwrap();
        assert!(parser.text(b"1970-01-02").is_some());
        for bad in [&b""[..], b"1970-13-01", b"1970-02-30", b"NA", b"1970-01-02 junk", b"\xff"] {
            assert_eq!(parser.text(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(parser.text(b"1970-01-02"), Some(Timestamp::from_millis(86_400_000)));
    }

    #[test]
    fn a_time_past_the_range_is_none() {
        let mut millis = parser("unix-ms", "UTC").unwrap();
        assert_eq!(millis.text(b"9007199254740992"), None);
        assert_eq!(millis.text(b"1e300"), None);
        assert_eq!(millis.text(b"NaN"), None);
        assert_eq!(parser("unix-s", "UTC").unwrap().integer(i64::MAX), None);
    }

    #[test]
    fn a_zone_or_pattern_that_cannot_work_is_refused_before_any_record() {
        assert_eq!(parser("%Y-%m-%d", "Mars/Base").unwrap_err(), Error::Zone("Mars/Base".to_owned()));
        for bad in ["%H:%M", "%Q", "%", "no directive"] {
            assert!(matches!(parser(bad, "UTC"), Err(Error::Pattern { .. })), "{bad}");
        }
    }
}
