//! This module knows the exponential of many values at a time.

use crate::data::Own;
use crate::kernel::Compute;

/// A compute type with an exponential.
///
/// ```
/// fn takes_both<T: shoal::kmodes::Exponent>(_: T) {}
/// takes_both(1.0f32);
/// takes_both(1.0f64);
/// ```
pub trait Exponent: Compute + Own {
    /// `e^x` of every value, to a rounding or two; of values that are at most 0.
    #[doc(hidden)]
    fn exp_all(values: &mut [Self]);
}

impl Exponent for f64 {
    fn exp_all(values: &mut [Self]) {
        for x in values {
            // Below, e^x is no normal number any more.
            *x = x.max(-708.0).exp();
        }
    }
}

impl Exponent for f32 {
    fn exp_all(values: &mut [Self]) {
        for x in values {
            *x = exp(*x);
        }
    }
}

/// `e^x` for `x <= 0` as `2^n e^r` with `|r| <= ln 2 / 2`: without a branch or a call, so that the compiler makes vectors of it.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is left in the lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_145_75;
    const LN_2_LOW: f32 = 1.428_606_8e-6;
    // Below, e^x is no normal number any more.
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDING;
    let n = shifted - ROUNDING;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let tail = 1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0));
    let sum = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * tail))));
    f32::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
        let mut values: Vec<f32> = (0..870_000).map(|i| -1e-4 * i as f32).collect();
        let wanted: Vec<f64> = values.iter().map(|&x| f64::from(x).exp()).collect();
        f32::exp_all(&mut values);
        for (&found, wanted) in values.iter().zip(wanted) {
            assert!((f64::from(found) / wanted - 1.0).abs() < 3e-7, "{found} {wanted}");
        }
        let mut far = [0.0f32, -1e30, f32::NEG_INFINITY];
        f32::exp_all(&mut far);
        assert!(far[0] == 1.0 && far[1..].iter().all(|&x| x > 0.0 && x < 2e-38));
        let mut far = [0.0f64, -1e30, f64::NEG_INFINITY];
        f64::exp_all(&mut far);
        assert!(far[0] == 1.0 && far[1..].iter().all(|&x| x > 0.0 && x < 4e-308));
    }
}
