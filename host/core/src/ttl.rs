//! Whether an entry with a time to live is alive at a time, and what its stamp becomes: one definition for reads, scans,
//! compaction, sweep and restore.
//!
//! Owns the rules. Does not own the stamps (they stand before the values, in the state), nor any clock.
//!
//! What is stored is the time of the last access, never that of expiry: so a later version may change, add or remove the TTL.

use std::time::Duration;

use crate::contract::{Refresh, TimeDomain, Ttl, Visibility};
use crate::time::Timestamp;

/// Both times at which something is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For records, the watermark in force for them; for timers of event time, their time, but not below the watermark before
    /// the advance.
    pub event: Timestamp,
    /// The call's processing time.
    pub processing: Timestamp,
}

impl Now {
    /// Before all times: nothing has expired.
    pub const START: Self = Self { event: Timestamp::MIN, processing: Timestamp::MIN };

    /// The time in a domain.
    #[must_use]
    pub fn of(self, domain: TimeDomain) -> Timestamp {
        match domain {
            TimeDomain::Event => self.event,
            TimeDomain::Processing => self.processing,
        }
    }
}

/// When an entry was last accessed, as far as that is known.
///
/// ```
/// use wasmill_core::time::Timestamp;
/// use wasmill_core::ttl::Stamp;
/// assert_eq!(Stamp::at(Timestamp::from_millis(7)).as_raw(), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(i64);

impl Stamp {
    /// Written where the state had no TTL, or one in the other domain: it counts from the restart that brought the TTL.
    pub const UNKNOWN: Self = Self(i64::MIN + 1);
    /// The entry has expired and compaction has dropped its value.
    pub const GONE: Self = Self(i64::MIN);

    /// A time.
    #[must_use]
    pub const fn at(time: Timestamp) -> Self {
        Self(time.as_millis())
    }

    /// From [`Stamp::as_raw`]; a time outside the range of times is clamped to it.
    #[must_use]
    pub const fn from_raw(raw: i64) -> Self {
        if raw <= Self::UNKNOWN.0 { Self(raw) } else { Self::at(Timestamp::from_millis(raw)) }
    }

    /// The time in milliseconds, below all times what is no time.
    #[must_use]
    pub const fn as_raw(self) -> i64 {
        self.0
    }

    /// The time; `None` where it is not known or the entry is gone.
    #[must_use]
    pub fn time(self) -> Option<Timestamp> {
        (self > Self::UNKNOWN).then(|| Timestamp::from_millis(self.0))
    }
}

impl Ttl {
    /// The first time at which an entry stamped `stamp` is not alive; `None`: it never comes, as the sum saturates.
    ///
    /// ```
    /// use wasmill_core::contract::{Refresh, TimeDomain, Ttl, Visibility};
    /// use wasmill_core::time::Timestamp;
    /// let (refresh, domain, visibility) = (Refresh::Write, TimeDomain::Event, Visibility::Strict);
    /// let ttl = |milliseconds| Ttl { milliseconds, refresh, domain, visibility, expired_output: None };
    /// let zero = Timestamp::from_millis(0);
    /// assert_eq!(ttl(10_000).expiry(zero), Some(Timestamp::from_millis(10_000)));
    /// assert_eq!(ttl(i64::MAX as u64).expiry(zero), None);
    /// ```
    #[must_use]
    pub fn expiry(&self, stamp: Timestamp) -> Option<Timestamp> {
        let millis = i64::try_from(self.milliseconds).unwrap_or(i64::MAX);
        let sum = stamp.as_millis().saturating_add(millis);
        (sum < Timestamp::MAX.as_millis()).then(|| Timestamp::from_millis(sum))
    }

    /// The stamp of what is written (or refreshed) at `now` on behalf of a record or timer of time `origin`. In event time the
    /// greater of the two; in processing time the call's.
    #[must_use]
    pub fn stamp(&self, now: Now, origin: Timestamp) -> Stamp {
        Stamp::at(match self.domain {
            TimeDomain::Event => now.event.max(origin),
            TimeDomain::Processing => now.processing,
        })
    }

    /// What the stamp `before` becomes where `stamp` is written over it: event time never goes back.
    #[must_use]
    pub fn restamped(&self, before: Stamp, stamp: Stamp) -> Stamp {
        match self.domain {
            TimeDomain::Event => before.max(stamp),
            TimeDomain::Processing => stamp,
        }
    }

    /// Whether entries expire at the same times as under `other`.
    #[must_use]
    pub fn expires_as(&self, other: &Self) -> bool {
        (self.milliseconds, self.domain) == (other.milliseconds, other.domain)
    }

    /// How long the background waits between two looks at all entries: an eighth of the TTL, at least a second and at most five
    /// minutes.
    #[must_use]
    pub fn sweep_pause(&self) -> Duration {
        Duration::from_millis(self.milliseconds / 8).clamp(Duration::from_secs(1), Duration::from_secs(300))
    }

    /// Whether reads renew the stamp.
    #[must_use]
    pub fn is_refreshed_by_reads(&self) -> bool {
        self.refresh == Refresh::ReadAndWrite
    }
}

/// Judges the entries of a state with a TTL at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judge {
    ttl: Ttl,
    now: Timestamp,
    since: Option<Timestamp>,
}

impl Judge {
    /// At `now`. What has no known stamp counts from `since`, and is alive where that is not known either.
    #[must_use]
    pub fn new(ttl: Ttl, now: Timestamp, since: Option<Timestamp>) -> Self {
        Self { ttl, now, since }
    }

    /// The TTL.
    #[must_use]
    pub fn ttl(&self) -> &Ttl {
        &self.ttl
    }

    /// Whether an entry is alive: now < stamp + TTL.
    #[must_use]
    pub fn is_alive(&self, stamp: Stamp) -> bool {
        if stamp == Stamp::GONE {
            return false;
        }
        self.expiry(stamp).is_none_or(|expiry| self.now < expiry)
    }

    /// Whether an entry may be read: while it is alive, or, where the TTL is relaxed, for as long as it is there.
    #[must_use]
    pub fn is_readable(&self, stamp: Stamp) -> bool {
        match self.ttl.visibility {
            Visibility::Strict => self.is_alive(stamp),
            Visibility::Relaxed => stamp != Stamp::GONE,
        }
    }

    /// When an entry expires, or expired; `None`: never, or that is not known any more.
    #[must_use]
    pub fn expiry(&self, stamp: Stamp) -> Option<Timestamp> {
        if stamp == Stamp::GONE {
            return None;
        }
        stamp.time().or(self.since).and_then(|stamp| self.ttl.expiry(stamp))
    }

    /// What the background writes of an entry that it comes by: the stamp that it counts from, where it has none yet.
    #[must_use]
    pub fn lacks(&self, stamp: Stamp) -> Option<Stamp> {
        if stamp == Stamp::UNKNOWN { self.since.map(Stamp::at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ttl(milliseconds: u64, domain: TimeDomain) -> Ttl {
        let (refresh, visibility) = (Refresh::Write, Visibility::Strict);
        Ttl { milliseconds, refresh, domain, visibility, expired_output: None }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn is_alive(milliseconds: u64, stamp: i64, now: i64) -> bool {
        Judge::new(ttl(milliseconds, TimeDomain::Event), at(now), None).is_alive(Stamp::at(at(stamp)))
    }

    #[test]
    fn l1_an_entry_is_alive_while_now_is_before_its_stamp_and_the_ttl() {
        assert_eq!([9_999, 10_000, 10_001].map(|now| is_alive(10_000, 0, now)), [true, false, false]);
        assert_eq!([15_999, 16_000].map(|now| is_alive(10_000, 6_000, now)), [true, false]);
    }

    #[test]
    fn l6_the_largest_ttl_never_comes_at_any_time() {
        for milliseconds in [i64::MAX as u64, u64::MAX] {
            for stamp in [Timestamp::MIN, at(0), at(1_800_000_000_000), Timestamp::MAX] {
                let judge = Judge::new(ttl(milliseconds, TimeDomain::Processing), Timestamp::MAX, None);
                assert!(judge.is_alive(Stamp::at(stamp)), "{milliseconds} {stamp}");
            }
        }
        assert!(is_alive(1, Timestamp::MAX.as_millis() - 1, Timestamp::MAX.as_millis()));
    }

    #[test]
    fn what_has_no_stamp_counts_from_the_restart_that_brought_the_ttl() {
        let judge = |now, since| Judge::new(ttl(60_000, TimeDomain::Event), at(now), since);
        assert!(judge(1_000_000, None).is_alive(Stamp::UNKNOWN));
        assert!(judge(160_999, Some(at(101_000))).is_alive(Stamp::UNKNOWN));
        assert!(!judge(161_000, Some(at(101_000))).is_alive(Stamp::UNKNOWN));
        assert_eq!(judge(0, Some(at(5))).lacks(Stamp::UNKNOWN), Some(Stamp::at(at(5))));
        let expiry = |stamp| judge(0, Some(at(5))).expiry(stamp);
        let stamps = [Stamp::UNKNOWN, Stamp::at(at(7)), Stamp::GONE, Stamp::at(Timestamp::MAX)];
        assert_eq!(stamps.map(expiry), [Some(at(60_005)), Some(at(60_007)), None, None]);
        assert_eq!(judge(0, Some(at(5))).lacks(Stamp::at(at(1))), None);
    }

    #[test]
    fn relaxed_entries_are_readable_until_compaction_has_dropped_them() {
        let relaxed = Ttl { visibility: Visibility::Relaxed, ..ttl(10, TimeDomain::Event) };
        let judge = Judge::new(relaxed, at(1_000), None);
        let stamps = [Stamp::at(at(0)), Stamp::GONE];
        assert_eq!(
            stamps.map(|stamp| (judge.is_readable(stamp), judge.is_alive(stamp))),
            [(true, false), (false, false)]
        );
    }

    proptest! {
        /// Against the exact sum in 128 bits, which saturates at the end of time.
        #[test]
        fn alive_is_now_before_the_exact_sum(milliseconds: u64, stamp: i64, now: i64) {
            let (stamp, now) = (at(stamp), at(now));
            let sum = i128::from(stamp.as_millis()) + i128::from(milliseconds);
            let expected = sum >= i128::from(Timestamp::MAX.as_millis()) || i128::from(now.as_millis()) < sum;
            prop_assert_eq!(is_alive(milliseconds, stamp.as_millis(), now.as_millis()), expected);
        }

        /// A stamp in event time never goes back, whatever the order of records and watermarks.
        #[test]
        fn event_stamps_never_go_back(writes in proptest::collection::vec((any::<i64>(), any::<i64>()), 1..20)) {
            let ttl = ttl(1, TimeDomain::Event);
            let mut stamp = Stamp::UNKNOWN;
            for (watermark, origin) in writes {
                let now = Now { event: at(watermark), processing: at(0) };
                let next = ttl.restamped(stamp, ttl.stamp(now, at(origin)));
                prop_assert!(next >= stamp && next >= Stamp::at(at(origin)) && next >= Stamp::at(at(watermark)));
                stamp = next;
            }
        }

        #[test]
        fn raw_stamps_come_back_as_they_were(raw: i64) {
            let stamp = Stamp::from_raw(raw);
            prop_assert_eq!(Stamp::from_raw(stamp.as_raw()), stamp);
        }
    }
}
