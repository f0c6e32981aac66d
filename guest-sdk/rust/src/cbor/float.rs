//! Floating-point numbers at half, single and double precision: which is the shortest that holds a number exactly.
//!
//! Owns the conversions that the standard library has not got. Does not own heads.

/// The bits of a float in the shortest width that keeps it exactly. Every NaN is the one of half precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortest {
    Half(u16),
    Single(u32),
    Double(u64),
}

/// The shortest width for `value`.
pub(super) fn shortest(value: f64) -> Shortest {
    if value.is_nan() {
        return Shortest::Half(0x7e00);
    }
    let single = value as f32;
    if f64::from(single).to_bits() != value.to_bits() {
        return Shortest::Double(value.to_bits());
    }
    match half_of(single) {
        Some(bits) => Shortest::Half(bits),
        None => Shortest::Single(single.to_bits()),
    }
}

/// `value`, which is not NaN, at half precision; `None` where that would change it.
fn half_of(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32;
    let mantissa = bits & 0x007f_ffff;
    match exponent {
        // Single-precision subnormals lie far below the half-precision ones.
        0 => (mantissa == 0).then_some(sign),
        255 => (mantissa == 0).then_some(sign | 0x7c00),
        // 2^-14 to 2^15: normal at half precision, with 10 bits of mantissa.
        113..=142 => (mantissa & 0x1fff == 0).then(|| sign | ((exponent - 112) as u16) << 10 | (mantissa >> 13) as u16),
        // 2^-24 to 2^-15: subnormal at half precision, multiples of 2^-24.
        103..=112 => {
            let shift = (126 - exponent) as u32;
            let whole = mantissa | 0x0080_0000;
            (whole & ((1 << shift) - 1) == 0).then(|| sign | (whole >> shift) as u16)
        }
        _ => None,
    }
}

/// The number that half-precision `bits` stand for.
pub(super) fn half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let mantissa = f64::from(bits & 0x3ff);
    let magnitude = match exponent {
        0 => mantissa / 16_777_216.0,
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        // Powers of two from 2^-24 to 2^5 times a whole number below 2^11: exact.
        _ => (mantissa + 1024.0) * f64::from_bits(((exponent - 25 + 1023) as u64) << 52),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_written_as_itself() {
        for bits in 0..=u16::MAX {
            let value = half(bits);
            if value.is_nan() {
                assert_eq!(shortest(value), Shortest::Half(0x7e00));
            } else {
                assert_eq!(shortest(value), Shortest::Half(bits), "{value}");
            }
        }
    }

    #[test]
    fn a_number_no_half_holds_is_not_rounded() {
        assert_eq!(shortest(65_504.0), Shortest::Half(0x7bff));
        assert_eq!(shortest(65_505.0), Shortest::Single(65_505.0_f32.to_bits()));
        assert_eq!(shortest(65_536.0), Shortest::Single(65_536.0_f32.to_bits()));
        assert_eq!(shortest(2f64.powi(-25)), Shortest::Single(2f32.powi(-25).to_bits()));
        assert_eq!(shortest(1.1), Shortest::Double(1.1_f64.to_bits()));
        assert_eq!(shortest(f64::from(f32::MIN_POSITIVE) / 2.0), Shortest::Single((f32::MIN_POSITIVE / 2.0).to_bits()));
        assert_eq!(shortest(-0.0), Shortest::Half(0x8000));
        assert_eq!(shortest(f64::NEG_INFINITY), Shortest::Half(0xfc00));
    }
}
