//! The order of timers, and a queue that holds the earliest of them.
//!
//! Owns what identifies a timer, which fires first, and how the queue stays within its memory: it holds every timer before its
//! *horizon*, and what lies behind is read from the store when time comes near. Does not own the store, nor calls.

use std::collections::{BTreeSet, HashSet};

use crate::slice::Slice;
use crate::time::Timestamp;

/// The name under which a checkpoint counts timers; no state may have it.
pub const TIMERS: &str = "wasmill.timers";

/// Whose time a timer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Domain {
    /// The watermark's.
    Event = 0,
    /// The clock's.
    Processing = 1,
}

impl Domain {
    /// Both, in their stored order.
    pub const ALL: [Self; 2] = [Self::Event, Self::Processing];

    /// The domain of the contract's number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|domain| *domain as u8 == number)
    }
}

/// A timer of one domain: (key, time, tag) identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer<'a> {
    /// When it is due.
    pub time: Timestamp,
    /// Whose it is.
    pub key: &'a [u8],
    /// Tells a key's timers of one time apart.
    pub tag: u32,
}

/// A timer among those of its key, in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyTimer {
    /// Whose time it waits for.
    pub domain: Domain,
    /// When it is due.
    pub time: Timestamp,
    /// Tells timers of one time apart.
    pub tag: u32,
}

/// A timer by itself, in the order in which timers fire: by time, then key, then tag. Its bytes sort the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    time: u64,
    /// Key and tag.
    rest: Slice,
}

impl TimerId {
    /// Of a timer.
    #[must_use]
    pub fn of(timer: &Timer<'_>) -> Self {
        let mut short = [0; SHORT];
        let key = timer.key.len();
        let tag = timer.tag.to_be_bytes();
        let rest = match short.get_mut(..key + TAG_BYTES) {
            Some(rest) => {
                rest[..key].copy_from_slice(timer.key);
                rest[key..].copy_from_slice(&tag);
                Slice::from(&*rest)
            }
            None => Slice::from([timer.key, &tag].concat().as_slice()),
        };
        Self { time: sortable(timer.time), rest }
    }

    /// The timer.
    #[must_use]
    pub fn timer(&self) -> Timer<'_> {
        let time = Timestamp::from_millis((self.time ^ SIGN) as i64);
        match self.rest.split_last_chunk::<TAG_BYTES>() {
            Some((key, tag)) => Timer { time, key, tag: u32::from_be_bytes(*tag) },
            None => Timer { time, key: &[], tag: 0 },
        }
    }

    /// Before all timers.
    #[must_use]
    pub fn first() -> Self {
        Self { time: 0, rest: Slice::from(&[][..]) }
    }

    /// The id of its bytes; `None` where the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (time, rest) = bytes.split_first_chunk::<TIME_BYTES>()?;
        (rest.len() >= TAG_BYTES).then(|| Self { time: u64::from_be_bytes(*time), rest: Slice::from(rest) })
    }

    /// Appends its bytes: the time with its sign bit flipped, the key, the tag, numbers big-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.rest);
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.rest.apart()
    }
}

/// Bytes of a [`TimerId`] beside the key.
pub const ID_BYTES: usize = TIME_BYTES + TAG_BYTES;
const TIME_BYTES: usize = 8;
const TAG_BYTES: usize = 4;
/// What a timer takes in the queue beside its id: its share of a tree that is two thirds full.
const OVERHEAD: usize = size_of::<TimerId>() / 2;
/// Bytes of key and tag that are put together without an allocation.
const SHORT: usize = 64;

const SIGN: u64 = 1 << 63;

fn sortable(time: Timestamp) -> u64 {
    time.as_millis() as u64 ^ SIGN
}

/// What the queue knows of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is set.
    Set,
    /// It is not set.
    Absent,
    /// It lies behind the horizon: the store knows.
    Behind,
}

/// The earliest timers of one domain.
///
/// ```
/// use wasmill_core::time::Timestamp;
/// use wasmill_core::timer::{Timer, TimerId, TimerQueue};
/// let id = |millis, key: &'static str| {
///     TimerId::of(&Timer { time: Timestamp::from_millis(millis), key: key.as_bytes(), tag: 0 })
/// };
/// let mut queue = TimerQueue::new(1 << 20);
/// queue.insert(id(20, "a"));
/// queue.insert(id(10, "a"));
/// assert_eq!(queue.next(), Some(Timestamp::from_millis(10)));
/// let mut due = Vec::new();
/// queue.take_due(Timestamp::from_millis(20), 100, &mut due);
/// assert_eq!(due, [id(10, "a")], "one a key: the later one fires in the next round");
/// ```
#[derive(Debug)]
pub struct TimerQueue {
    near: BTreeSet<TimerId>,
    /// The first id that `near` does not answer for; `None`: it answers for all.
    horizon: Option<TimerId>,
    bytes: usize,
    budget: usize,
}

impl TimerQueue {
    /// An empty queue of about `budget` bytes, over an empty store.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { near: BTreeSet::new(), horizon: None, bytes: 0, budget }
    }

    /// An empty queue over a store that has timers.
    #[must_use]
    pub fn over_store(budget: usize) -> Self {
        Self { horizon: Some(TimerId::first()), ..Self::new(budget) }
    }

    /// What is known of a timer.
    #[must_use]
    pub fn known(&self, id: &TimerId) -> Known {
        match &self.horizon {
            Some(horizon) if id >= horizon => Known::Behind,
            _ if self.near.contains(id) => Known::Set,
            _ => Known::Absent,
        }
    }

    /// A timer is set; what was known of it. One behind the horizon is left to the store.
    pub fn insert(&mut self, id: TimerId) -> Known {
        if self.horizon.as_ref().is_some_and(|horizon| id >= *horizon) {
            return Known::Behind;
        }
        let bytes = id.memory() + OVERHEAD;
        if !self.near.insert(id) {
            return Known::Set;
        }
        self.bytes += bytes;
        Known::Absent
    }

    /// A timer is deleted; what was known of it.
    pub fn remove(&mut self, id: &TimerId) -> Known {
        if self.horizon.as_ref().is_some_and(|horizon| id >= horizon) {
            return Known::Behind;
        }
        if !self.near.remove(id) {
            return Known::Absent;
        }
        self.bytes -= id.memory() + OVERHEAD;
        Known::Set
    }

    /// When something is due next: exact where a timer is here, else the horizon's time, before which nothing is.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.near.first().or(self.horizon.as_ref()).map(|first| first.timer().time)
    }

    /// Whether the store must be read before anything else can be said of what is due by `until`.
    #[must_use]
    pub fn must_refill(&self, until: Timestamp) -> bool {
        self.near.is_empty() && self.horizon.is_some() && self.next().is_some_and(|next| next <= until)
    }

    /// Takes timers that are due by `until`: of at most `limit` keys the earliest each, in order. Those that lie past the horizon come in
    /// another round.
    pub fn take_due(&mut self, until: Timestamp, limit: usize, due: &mut Vec<TimerId>) {
        let mut keys: HashSet<&[u8]> = HashSet::new();
        let start = due.len();
        // How many were taken before one was passed over.
        let mut leading = None;
        // Keys with many timers due are passed over, but not for ever.
        for id in self.near.iter().take(limit.saturating_mul(4)) {
            let timer = id.timer();
            if timer.time > until || keys.len() >= limit {
                break;
            }
            if keys.insert(timer.key) {
                due.push(id.clone());
            } else {
                leading.get_or_insert(keys.len());
            }
        }
        let leading = leading.unwrap_or(keys.len());
        for _ in 0..leading {
            let Some(id) = self.near.pop_first() else { break };
            self.bytes -= id.memory() + OVERHEAD;
        }
        for id in &due[start + leading..] {
            self.remove(id);
        }
    }

    /// Where reading the store goes on.
    #[must_use]
    pub fn horizon(&self) -> Option<&TimerId> {
        self.horizon.as_ref()
    }

    /// Takes what the store has from the old horizon up to a new one; `None`: it has no more.
    pub fn refill(&mut self, read: impl IntoIterator<Item = TimerId>, horizon: Option<TimerId>) {
        self.horizon = horizon;
        for id in read {
            self.insert(id);
        }
    }

    /// Forgets the latest timers where there are more than the budget holds. The store must have them, or be about to.
    pub fn shrink(&mut self) {
        if self.bytes <= self.budget {
            return;
        }
        while self.bytes > self.budget / 4 * 3 && self.near.len() > 1 {
            let Some(last) = self.near.pop_last() else { break };
            self.bytes -= last.memory() + OVERHEAD;
            self.horizon = Some(last);
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// About the bytes that may be in use.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(millis: i64, key: &[u8], tag: u32) -> TimerId {
        TimerId::of(&Timer { time: Timestamp::from_millis(millis), key, tag })
    }

    fn bytes(id: &TimerId) -> Vec<u8> {
        let mut bytes = Vec::new();
        id.encode(&mut bytes);
        bytes
    }

    #[test]
    fn negative_times_are_before_positive_ones() {
        let mut ids = [id(1, b"", 0), id(-1, b"\xff", 0), id(i64::MIN, b"", 9), id(i64::MAX, b"", 0), id(0, b"a", 0)];
        ids.sort_unstable();
        let times: Vec<_> = ids.iter().map(|id| id.timer().time.as_millis()).collect();
        assert_eq!(times, [Timestamp::MIN.as_millis(), -1, 0, 1, Timestamp::MAX.as_millis()]);
        assert!(TimerId::first() < ids[0]);
    }

    #[test]
    fn bytes_that_are_no_id_are_no_timer() {
        assert_eq!(TimerId::decode(&[0; ID_BYTES - 1]), None);
        assert_eq!(TimerId::decode(&[0; ID_BYTES]).unwrap().timer().key, b"");
    }

    #[test]
    fn a_round_has_the_earliest_timer_of_each_key() {
        let mut queue = TimerQueue::new(1 << 20);
        for (millis, key) in [(3, b"a"), (1, b"a"), (2, b"b"), (9, b"c")] {
            queue.insert(id(millis, key, 0));
        }
        let round = |queue: &mut TimerQueue| {
            let mut due = Vec::new();
            queue.take_due(Timestamp::from_millis(5), 10, &mut due);
            due.iter().map(|id| id.timer().time.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(round(&mut queue), [1, 2]);
        assert_eq!(round(&mut queue), [3]);
        assert!(round(&mut queue).is_empty());
        assert_eq!(queue.next(), Some(Timestamp::from_millis(9)));
    }

    #[test]
    fn what_the_budget_does_not_hold_lies_behind_the_horizon() {
        let mut queue = TimerQueue::new(10 * (size_of::<TimerId>() + OVERHEAD));
        for millis in 0..100 {
            queue.insert(id(millis, b"k", 0));
            queue.shrink();
        }
        assert!(queue.bytes() <= queue.budget());
        assert_eq!(queue.known(&id(0, b"k", 0)), Known::Set);
        assert_eq!(queue.known(&id(0, b"k", 1)), Known::Absent);
        assert_eq!(queue.known(&id(99, b"k", 0)), Known::Behind);
        assert!(!queue.must_refill(Timestamp::MAX), "some are here");
        let mut due = Vec::new();
        while !queue.must_refill(Timestamp::MAX) {
            queue.take_due(Timestamp::MAX, 1, &mut due);
        }
        assert!(queue.next().is_some());
    }

    proptest! {
        #[test]
        fn ids_come_back_and_sort_as_their_bytes(
            some in proptest::collection::vec(
                (any::<i64>(), proptest::collection::vec(any::<u8>(), 0..90), any::<u32>()), 1..9,
            ),
        ) {
            let mut ids = Vec::new();
            for (millis, key, tag) in &some {
                let id = id(*millis, key, *tag);
                let timer = Timer { time: Timestamp::from_millis(*millis), key, tag: *tag };
                prop_assert_eq!(id.timer(), timer);
                prop_assert_eq!(TimerId::decode(&bytes(&id)), Some(id.clone()));
                ids.push(id);
            }
            ids.sort_unstable();
            let sorted = ids.is_sorted_by_key(bytes);
            prop_assert!(sorted);
        }
    }
}
