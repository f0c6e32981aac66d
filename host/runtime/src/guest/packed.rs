//! Packed little-endian integers: element i of a `u32s` is bytes 4i..4i+4.
//!
//! Owns the packing. Nothing here panics: an element past the end is `None`, a torn last element is not there.

use wasmill_core::time::Timestamp;

macro_rules! packed {
    ($type:ty, $width:literal, $at:ident, $push:ident, $all:ident, $from:ident, $what:literal) => {
        #[doc = concat!("Element `index` of packed ", $what, ".")]
        #[must_use]
        #[inline]
        pub fn $at(bytes: &[u8], index: usize) -> Option<$type> {
            let start = index.checked_mul($width)?;
            let element = bytes.get(start..start.checked_add($width)?)?;
            element.try_into().ok().map(<$type>::from_le_bytes)
        }

        #[doc = concat!("Appends an element to packed ", $what, ".")]
        #[inline]
        pub fn $push(bytes: &mut Vec<u8>, value: $type) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }

        #[doc = concat!("All elements of packed ", $what, ".")]
        #[inline]
        pub fn $all(bytes: &[u8]) -> impl ExactSizeIterator<Item = $type> + Clone + '_ {
            bytes.chunks_exact($width).map(|element| element.try_into().map_or(0, <$type>::from_le_bytes))
        }

        #[doc = concat!("Packs ", $what, ".")]
        #[must_use]
        pub fn $from(values: &[$type]) -> Vec<u8> {
            let mut bytes = Vec::with_capacity(values.len() * $width);
            for &value in values {
                $push(&mut bytes, value);
            }
            bytes
        }
    };
}

packed!(u16, 2, u16_at, push_u16, u16s, pack_u16s, "`u16s`");
packed!(u32, 4, u32_at, push_u32, u32s, pack_u32s, "`u32s`");
packed!(i64, 8, s64_at, push_s64, s64s, pack_s64s, "`s64s`");

/// Element `index` of packed times, clamped to the range of times.
#[must_use]
#[inline]
pub fn time_at(bytes: &[u8], index: usize) -> Option<Timestamp> {
    s64_at(bytes, index).map(Timestamp::from_millis)
}

/// All packed times, clamped to the range of times.
#[inline]
pub fn times(bytes: &[u8]) -> impl ExactSizeIterator<Item = Timestamp> + Clone + '_ {
    s64s(bytes).map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_the_end_is_no_panic() {
        let bytes = pack_u32s(&[1, u32::MAX]);
        assert_eq!(bytes, [1, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!((u32_at(&bytes, 1), u32_at(&bytes, 2)), (Some(u32::MAX), None));
        assert_eq!(u32_at(&bytes, usize::MAX), None);
        assert_eq!(u32s(&bytes[..7]).collect::<Vec<_>>(), [1]);
        assert_eq!(u16s(&pack_u16s(&[7, 9])).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(time_at(&pack_s64s(&[i64::MIN]), 0), Some(Timestamp::MIN));
    }
}
