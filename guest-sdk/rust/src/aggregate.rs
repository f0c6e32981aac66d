//! Aggregates: small values that grow by one record after another.
//!
//! Owns the usual ones. Any type with a default is one; where sessions merge, it says how by [`Merge`].
//!
//! ```
//! use wasmill_guest::aggregate::{Avg, Count, Max, Merge};
//! let mut total: (Count, Max<i64>, Avg) = Default::default();
//! for delay in [3, 9, 6] {
//!     total.0.add();
//!     total.1.add(delay);
//!     total.2.add(delay as f64);
//! }
//! assert_eq!((total.0.get(), total.1.get(), total.2.get()), (3, Some(9), Some(6.0)));
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An aggregate of two parts of the records is that of one part put together with that of the other, which came later.
pub trait Merge {
    /// Takes in what `later` holds.
    fn merge(&mut self, later: Self);
}

/// How many records there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count(u64);

impl Count {
    /// One more.
    pub fn add(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Merge for Count {
    fn merge(&mut self, later: Self) {
        self.0 = self.0.saturating_add(later.0);
    }
}

/// The sum of integers (which saturates) or of floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sum<T>(T);

/// What can be summed.
pub trait Summand: Copy {
    /// The sum of both; that of integers saturates.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ident),*) => {$(
        impl Summand for $type {
            fn plus(self, other: Self) -> Self {
                self.saturating_add(other)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Summand for f64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl<T: Summand> Sum<T> {
    /// Adds a value.
    pub fn add(&mut self, value: T) {
        self.0 = self.0.plus(value);
    }

    /// The sum.
    #[must_use]
    pub fn get(self) -> T {
        self.0
    }
}

impl<T: Summand> Merge for Sum<T> {
    fn merge(&mut self, later: Self) {
        self.add(later.0);
    }
}

/// The least value; of equal ones the first. A value that compares to none, such as NaN, is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Min<T>(Option<T>);

/// The greatest value; of equal ones the first. A value that compares to none, such as NaN, is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Max<T>(Option<T>);

macro_rules! extremes {
    ($($extreme:ident by $op:tt),*) => {$(
        impl<T> Default for $extreme<T> {
            fn default() -> Self {
                Self(None)
            }
        }

        impl<T: PartialOrd> $extreme<T> {
            /// Takes a value into account.
            pub fn add(&mut self, value: T) {
                let comparable = value.partial_cmp(&value).is_some();
                if comparable && self.0.as_ref().is_none_or(|known| value $op *known) {
                    self.0 = Some(value);
                }
            }

            /// The value; `None` where there was none.
            #[must_use]
            pub fn get(self) -> Option<T> {
                self.0
            }
        }

        impl<T: PartialOrd> Merge for $extreme<T> {
            fn merge(&mut self, later: Self) {
                if let Some(value) = later.0 {
                    self.add(value);
                }
            }
        }
    )*};
}
extremes!(Min by <, Max by >);

/// The mean of floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Avg {
    sum: f64,
    count: u64,
}

impl Avg {
    /// Takes a value into account.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count = self.count.saturating_add(1);
    }

    /// The mean; `None` where there was no value.
    #[must_use]
    pub fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Merge for Avg {
    fn merge(&mut self, later: Self) {
        self.sum += later.sum;
        self.count = self.count.saturating_add(later.count);
    }
}

/// The items with the greatest scores, best first; of equal scores the earlier one.
///
/// ```
/// use wasmill_guest::aggregate::Top;
/// let mut top = Top::default();
/// for (score, name) in [(3, "c"), (9, "a"), (3, "d"), (7, "b")] {
///     top.add(3, score, name);
/// }
/// assert_eq!(top.items(), [(9, "a"), (7, "b"), (3, "c")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Top<S, T> {
    most: u32,
    items: Vec<(S, T)>,
}

impl<S, T> Default for Top<S, T> {
    fn default() -> Self {
        Self { most: 0, items: Vec::new() }
    }
}

impl<S: PartialOrd, T> Top<S, T> {
    /// Takes an item into account, of which the best `most` are kept, and says whether it is among them. An item whose score
    /// compares to none, such as NaN, is passed over.
    pub fn add(&mut self, most: u32, score: S, item: T) -> bool {
        self.most = most;
        let keep = most as usize;
        let place = self.items.partition_point(|(known, _)| *known >= score);
        if place >= keep || score.partial_cmp(&score).is_none() {
            self.items.truncate(keep);
            return false;
        }
        self.items.insert(place, (score, item));
        self.items.truncate(keep);
        true
    }

    /// Score and item, best first.
    #[must_use]
    pub fn items(&self) -> &[(S, T)] {
        &self.items
    }
}

impl<S: PartialOrd, T> Merge for Top<S, T> {
    fn merge(&mut self, later: Self) {
        let most = self.most.max(later.most);
        for (score, item) in later.items {
            self.add(most, score, item);
        }
    }
}

macro_rules! tuples {
    ($($($name:ident $at:tt),*;)*) => {$(
        impl<$($name: Merge),*> Merge for ($($name,)*) {
            fn merge(&mut self, later: Self) {
                $(self.$at.merge(later.$at);)*
            }
        }
    )*};
}
tuples! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type All = (Count, Sum<i64>, (Min<i64>, Max<i64>), Top<i64, usize>);

    fn of(values: impl Iterator<Item = (usize, i64)>) -> All {
        let mut all = All::default();
        for (at, value) in values {
            all.0.add();
            all.1.add(value);
            all.2.0.add(value);
            all.2.1.add(value);
            all.3.add(3, value, at);
        }
        all
    }

    proptest! {
        #[test]
        fn parts_put_together_are_the_whole(values in prop::collection::vec(-5..5i64, 0..20), cut in 0..20usize) {
            let cut = cut.min(values.len());
            let numbered = || values.iter().copied().enumerate();
            let mut first = of(numbered().take(cut));
            first.merge(of(numbered().skip(cut)));
            prop_assert_eq!(&first, &of(numbered()));
            let mut best: Vec<(i64, usize)> = numbered().map(|(at, value)| (value, at)).collect();
            best.sort_by_key(|item| std::cmp::Reverse(item.0));
            best.truncate(3);
            prop_assert_eq!(first.3.items(), best);
            prop_assert_eq!(first.2.0.get(), values.iter().min().copied());
            prop_assert_eq!(first.2.1.get(), values.iter().max().copied());
        }
    }

    #[test]
    fn sums_saturate_and_what_is_not_a_number_is_passed_over() {
        let mut sum = Sum(i64::MAX - 1);
        sum.add(5);
        assert_eq!(sum.get(), i64::MAX);
        let (mut least, mut top) = (Min::default(), Top::default());
        for value in [f64::NAN, 2.0, f64::NAN, 1.0] {
            least.add(value);
            top.add(2, value, ());
        }
        assert_eq!(least.get(), Some(1.0));
        assert_eq!(top.items(), [(2.0, ()), (1.0, ())]);
        assert_eq!(Avg::default().get(), None);
    }

    #[test]
    fn aggregates_are_stored_as_they_always_were() {
        let mut all = of([(0, 5), (1, 7)].into_iter());
        all.3.items.truncate(1);
        let bytes = crate::cbor::to_vec(&all).unwrap();
        assert_eq!(bytes, b"\x84\x02\x0c\x82\x05\x07\xa2\x64most\x03\x65items\x81\x82\x07\x01");
        let mean = crate::cbor::to_vec(&Avg { sum: 1.5, count: 2 }).unwrap();
        assert_eq!(mean, b"\xa2\x63sum\xf9\x3e\x00\x65count\x02");
    }
}
