//! Windows by the calendar of a time zone: days, weeks and months, longer or shorter where the clocks change.
//!
//! Owns how periods of local dates lie on the line of time. Does not own the zones' rules: they are those of the IANA database
//! that is built in, so a component knows the rules of the day on which it was built.

use std::cell::Cell;
use std::time::Duration;

use jiff::civil::{Date, date};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, ToSpan};

use super::{Assign, Window};
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Periods that begin before the one of the first date, or behind the one of the last, are one window with it.
const FIRST: Date = date(-9_990, 1, 1);
const LAST: Date = date(9_990, 1, 1);
const MOMENT: SignedDuration = SignedDuration::from_millis(1);

/// The days, weeks or months of a time zone, one behind the other, by its clocks: a day is 23 or 25 hours long where they change.
///
/// A day begins with its first moment: where midnight is left out, with the first moment behind it; where it comes twice, with the
/// first one. Times before the year -9990 or behind 9990 lie in one window each. Needs the feature `time-zones`, which adds the
/// IANA database to the component.
///
/// ```
/// use wasmill_guest::Timestamp;
/// use wasmill_guest::window::{Assign, Calendar};
///
/// let days = Calendar::days("America/New_York")?;
/// let mut hours = Vec::new();
/// for noon in [1_362_848_400_000, 1_362_934_800_000, 1_363_021_200_000] {
///     let noon = Timestamp::from_millis(noon);
///     days.each(noon, &mut |window| hours.push((window.end.as_millis() - window.start.as_millis()) / 3_600_000));
/// }
/// assert_eq!(hours, [24, 23, 24], "of the ninth to the eleventh of March 2013");
/// # Ok::<(), wasmill_guest::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Calendar {
    period: Period,
    zone: TimeZone,
    lateness: Duration,
    /// The window that was asked for last: most records lie in the same.
    last: Cell<Option<Window>>,
}

#[derive(Debug, Clone, Copy)]
enum Period {
    Day,
    Week,
    Month,
}

impl Default for Calendar {
    /// The days of UTC, for a field that [`crate::Process::start`] sets.
    fn default() -> Self {
        Self::of(Period::Day, TimeZone::UTC)
    }
}

impl Calendar {
    /// The days of a zone by its IANA name.
    ///
    /// # Errors
    /// Fatal for a name that is none.
    pub fn days(zone: &str) -> Result<Self> {
        Ok(Self::of(Period::Day, named(zone)?))
    }

    /// Its weeks, from Monday on.
    ///
    /// # Errors
    /// As [`Calendar::days`].
    pub fn weeks(zone: &str) -> Result<Self> {
        Ok(Self::of(Period::Week, named(zone)?))
    }

    /// Its months.
    ///
    /// # Errors
    /// As [`Calendar::days`].
    pub fn months(zone: &str) -> Result<Self> {
        Ok(Self::of(Period::Month, named(zone)?))
    }

    /// Lets late records change a window for so long after it has fired.
    #[must_use]
    pub fn lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    fn of(period: Period, zone: TimeZone) -> Self {
        Self { period, zone, lateness: Duration::ZERO, last: Cell::new(None) }
    }

    fn window(&self, time: Timestamp) -> Window {
        let first = self.period.begin(FIRST);
        let last = self.period.begin(LAST);
        let mut begin = self.period.begin(self.date(time)).clamp(first, last);
        // Where a date comes twice, its second half lies behind the beginning of the next one.
        while begin < last && self.first_moment(self.period.next(begin)) <= time {
            begin = self.period.next(begin);
        }
        let start = if begin == first { Timestamp::MIN } else { self.first_moment(begin) };
        let end = if begin == last { Timestamp::MAX } else { self.first_moment(self.period.next(begin)) };
        Window { start, end }
    }

    /// The date that the zone's clocks show; the first or last one where they show none.
    fn date(&self, time: Timestamp) -> Date {
        match jiff::Timestamp::from_millisecond(time.as_millis()) {
            Ok(time) => self.zone.to_datetime(time).date(),
            Err(_) if time.as_millis() < 0 => FIRST,
            Err(_) => LAST,
        }
    }

    fn first_moment(&self, date: Date) -> Timestamp {
        let midnight = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
        let moment = match (midnight.offset(), midnight.later()) {
            // Midnight is left out: with the change of the clocks the day begins.
            (AmbiguousOffset::Gap { .. }, Ok(behind)) => {
                let change = self.zone.preceding(behind.saturating_add(MOMENT).unwrap_or(behind)).next();
                Ok(change.map_or(behind, |change| change.timestamp()))
            }
            _ => midnight.earlier(),
        };
        match moment {
            Ok(moment) => Timestamp::from_millis(moment.as_millisecond()),
            Err(_) if date < FIRST => Timestamp::MIN,
            Err(_) => Timestamp::MAX,
        }
    }
}

impl Assign for Calendar {
    fn each(&self, time: Timestamp, visit: &mut dyn FnMut(Window)) {
        let known = self.last.get().filter(|window| window.contains(time));
        let window = known.unwrap_or_else(|| self.window(time));
        self.last.set(Some(window));
        visit(window);
    }

    fn lateness(&self) -> Duration {
        self.lateness
    }
}

impl Period {
    /// The first date of the period that a date lies in.
    fn begin(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => date.saturating_sub(date.weekday().to_monday_zero_offset().days()),
            Self::Month => date.first_of_month(),
        }
    }

    /// The first date of the next period.
    fn next(self, begin: Date) -> Date {
        begin.saturating_add(match self {
            Self::Day => Span::new().days(1),
            Self::Week => Span::new().weeks(1),
            Self::Month => Span::new().months(1),
        })
    }
}

fn named(zone: &str) -> Result<TimeZone> {
    TimeZone::get(zone).map_err(|_| {
        Error::fatal(format_args!(
            "there is no time zone `{zone}`: name one of the IANA database, such as Europe/Berlin"
        ))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn window(calendar: &Calendar, time: Timestamp) -> Window {
        let mut found = Vec::new();
        calendar.each(time, &mut |window| found.push(window));
        assert_eq!(found.len(), 1);
        found[0]
    }

    #[test]
    fn days_begin_and_end_as_the_clocks_of_the_zone_say() {
        let cases = [
            // Twenty-five hours in Berlin, where the clocks go back.
            ("Europe/Berlin", "2023-10-29T12:00:00Z", "2023-10-28T22:00:00Z", "2023-10-29T23:00:00Z"),
            // Half an hour of summer time on Lord Howe Island.
            (
                "Australia/Lord_Howe",
                "2023-10-01T12:00:00+11:00",
                "2023-10-01T00:00:00+10:30",
                "2023-10-02T00:00:00+11:00",
            ),
            // No midnight: the clocks went from 23:59 to 01:00.
            ("America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
            // No midnight either: they went from 23:29 to 00:30.
            ("America/Toronto", "1919-03-31T04:45:00Z", "1919-03-31T04:30:00Z", "1919-04-01T04:00:00Z"),
            ("America/Toronto", "1919-03-31T04:29:59Z", "1919-03-30T05:00:00Z", "1919-03-31T04:30:00Z"),
            // Midnight twice: at 00:01 it was 23:01 of the day before again.
            ("America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"),
            // The thirtieth of December 2011 was left out in Samoa.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
            ("UTC", "1969-12-31T23:59:59.999Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"),
        ];
        for (zone, time, start, end) in cases {
            let found = window(&Calendar::days(zone).unwrap(), at(time));
            assert_eq!(found, Window { start: at(start), end: at(end) }, "{time} in {zone}");
        }
        let weeks = window(&Calendar::weeks("UTC").unwrap(), at("2024-03-03T23:00:00Z"));
        assert_eq!(weeks, Window { start: at("2024-02-26T00:00:00Z"), end: at("2024-03-04T00:00:00Z") });
        let months = window(&Calendar::months("Asia/Tokyo").unwrap(), at("2024-02-29T14:59:59Z"));
        assert_eq!(months, Window { start: at("2024-01-31T15:00:00Z"), end: at("2024-02-29T15:00:00Z") });
    }

    #[test]
    fn times_that_no_calendar_shows_lie_in_one_window_before_and_one_behind() {
        for calendar in [Calendar::days("Asia/Tokyo"), Calendar::weeks("UTC"), Calendar::months("America/New_York")] {
            let calendar = calendar.unwrap();
            for time in [Timestamp::MIN, Timestamp::from_millis(-400_000_000_000_000)] {
                assert_eq!(window(&calendar, time).start, Timestamp::MIN);
            }
            for time in [Timestamp::from_millis(Timestamp::MAX.as_millis() - 1), at("9995-01-01T00:00:00Z")] {
                assert_eq!(window(&calendar, time).end, Timestamp::MAX);
            }
        }
    }

    proptest! {
        #[test]
        fn windows_cover_all_times_and_do_not_overlap(
            millis in prop_oneof![any::<i64>(), -4_000_000_000_000..8_000_000_000_000i64],
            zone in prop::sample::select(vec!["UTC", "America/St_Johns", "America/Toronto", "Pacific/Apia", "Asia/Manila", "Africa/Monrovia"]),
            period in prop::sample::select(vec![Period::Day, Period::Week, Period::Month]),
        ) {
            let calendar = Calendar::of(period, named(zone).unwrap());
            let time = Timestamp::from_millis(millis);
            prop_assume!(time < Timestamp::MAX);
            let found = calendar.window(time);
            prop_assert!(found.contains(time), "{:?}", found);
            prop_assert_eq!(calendar.window(found.start), found);
            prop_assert_eq!(calendar.window(found.last()), found);
            if found.end < Timestamp::MAX {
                prop_assert_eq!(calendar.window(found.end).start, found.end);
            }
        }
    }
}
