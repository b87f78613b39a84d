//! The exponential of many values at once.

/// `e^x` of every value, to a rounding or two; the values are at most 0.
pub(crate) fn exp_all_f64(values: &mut [f64]) {
    for x in values {
        // Below -708, e^x is not a normal number.
        *x = x.max(-708.0).exp();
    }
}

/// `e^x` of every value, to a rounding or two; the values are at most 0.
pub(crate) fn exp_all_f32(values: &mut [f32]) {
    for x in values {
        *x = exp(*x);
    }
}

/// `e^x` for `x <= 0` as `2^n e^r` with `|r| <= ln 2 / 2`: without a branch or a call, so that the compiler
/// makes vectors of it.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is left in the lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_145_75;
    const LN_2_LOW: f32 = 1.428_606_8e-6;
    // Below, e^x is not a normal number.
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
        exp_all_f32(&mut values);
        for (&found, wanted) in values.iter().zip(wanted) {
            assert!((f64::from(found) / wanted - 1.0).abs() < 3e-7, "{found} {wanted}");
        }
        let mut far = [0.0f32, -1e30, f32::NEG_INFINITY];
        exp_all_f32(&mut far);
        assert!(far[0] == 1.0 && far[1..].iter().all(|&x| x > 0.0 && x < 2e-38));
        let mut far = [0.0f64, -1e30, f64::NEG_INFINITY];
        exp_all_f64(&mut far);
        assert!(far[0] == 1.0 && far[1..].iter().all(|&x| x > 0.0 && x < 4e-308));
    }
}
