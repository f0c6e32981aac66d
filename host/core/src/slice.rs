//! Bytes such as a map key or a value: where they are few, in place; else shared.
//!
//! Owns that the short ones, which most are, cost no allocation and no second read of memory. Does not own what they mean.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Most bytes that lie in place: a slice is three words.
const SHORT: usize = 22;

/// Bytes that an allocation with counts of its users costs beside what it holds.
const SHARED_BYTES: usize = 2 * size_of::<usize>();

/// Bytes that do not change. A copy of long ones shares them.
///
/// ```
/// use wasmill_core::slice::Slice;
/// let few = Slice::from(&b"key"[..]);
/// assert_eq!((&*few, few.apart()), (&b"key"[..], 0));
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

impl Slice {
    /// Bytes of memory that it takes beside its own three words; shared ones counted whole.
    #[must_use]
    pub fn apart(&self) -> usize {
        match &self.0 {
            Repr::Short { .. } => 0,
            Repr::Long(bytes) => bytes.len() + SHARED_BYTES,
        }
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Slice {
    #[inline]
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..from.len()) {
            Some(own) => {
                own.copy_from_slice(from);
                Self(Repr::Short { len: from.len() as u8, bytes })
            }
            None => Self(Repr::Long(from.into())),
        }
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_come_back_and_keep_their_order() {
        let all: Vec<Vec<u8>> = (0..60u8).map(|len| (0..len).collect()).collect();
        let slices: Vec<Slice> = all.iter().map(|bytes| Slice::from(&bytes[..])).collect();
        for (bytes, slice) in all.iter().zip(&slices) {
            assert_eq!(**slice, **bytes);
            assert_eq!(slice.apart() > 0, bytes.len() > SHORT, "{}", bytes.len());
        }
        assert!(slices.is_sorted());
    }

    #[test]
    fn a_slice_is_three_words() {
        assert_eq!((size_of::<Slice>(), size_of::<Option<Slice>>()), (24, 24));
    }
}
