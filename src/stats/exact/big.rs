//! A sum of any finite values, for the few sums that two `f64` cannot hold.

/// Digits of 32 bits: the sum of `digits[i] * 2^(32 (first + i) - 1074)`. The last digit has the sign.
#[derive(Clone, Debug, Default)]
pub(super) struct Big {
    first: usize,
    digits: Vec<i64>,
}

const DIGIT: i64 = 1 << 32;

/// `2^exponent`, which must not be below the smallest positive `f64`.
fn power(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}

impl Big {
    pub(super) fn add(&mut self, value: f64) {
        let (bits, exponent) = (value.to_bits() & ((1 << 52) - 1), value.to_bits() >> 52 & 0x7ff);
        let mantissa = if exponent > 0 { bits | 1 << 52 } else { bits };
        let place = exponent.max(1) as usize - 1;
        let sign = if value < 0.0 { -1 } else { 1 };
        let wide = u128::from(mantissa) << (place % 32);
        let digits = [0, 1, 2].map(|i| sign * (wide >> (32 * i) & 0xffff_ffff) as i64);
        self.add_digits(place / 32, &digits);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.add_digits(other.first, &other.digits);
    }

    fn add_digits(&mut self, first: usize, digits: &[i64]) {
        if self.digits.is_empty() {
            self.first = first;
        }
        if first < self.first {
            self.digits.splice(0..0, vec![0; self.first - first]);
            self.first = first;
        }
        let at = first - self.first;
        // One more for the carry and the sign.
        if self.digits.len() < at + digits.len() + 1 {
            self.digits.resize(at + digits.len() + 1, 0);
        }
        self.digits[at..].iter_mut().zip(digits).for_each(|(own, digit)| *own += digit);
        for i in 0..self.digits.len() - 1 {
            let carry = self.digits[i].div_euclid(DIGIT);
            self.digits[i] -= carry * DIGIT;
            self.digits[i + 1] += carry;
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.iter().all(|&digit| digit == 0)
    }

    /// The nearest `f64`, that with an even last bit among two; infinite beyond the largest.
    pub(super) fn round(&self) -> f64 {
        let negative = self.digits.last().is_some_and(|&digit| digit < 0);
        let sign = if negative { -1 } else { 1 };
        // The digits of the absolute value, all of them within 32 bits.
        let mut positive = Self { first: self.first, digits: Vec::new() };
        positive.add_digits(self.first, &self.digits.iter().map(|digit| sign * digit).collect::<Vec<_>>());
        let digits = &positive.digits;
        let Some(top) = digits.iter().rposition(|&digit| digit != 0) else { return 0.0 };
        // The highest four digits. Of the others it matters only whether they are 0.
        let digit = |i: usize| if top >= i { digits[top - i] as u128 } else { 0 };
        let mut highest = (0..4).fold(0, |sum, i| sum << 32 | digit(i));
        if top >= 4 && digits[..top - 3].iter().any(|&digit| digit != 0) {
            highest |= 1;
        }
        let exponent = 32 * ((self.first + top) as i32 - 3) - 1074;
        // Bits that an `f64` with 53 bits, or fewer below the smallest normal value, has no room for.
        let drop = (75 - highest.leading_zeros() as i32).max(-1074 - exponent).max(0);
        let (kept, rest) = (highest >> drop, highest & ((1 << drop) - 1));
        let half = if drop > 0 { 1 << (drop - 1) } else { 0 };
        let up = drop > 0 && (rest > half || rest == half && kept & 1 == 1);
        let rounded = (kept + u128::from(up)) as f64;
        let exponent = exponent + drop;
        let value = if exponent > 1000 { f64::INFINITY } else { rounded * power(exponent) };
        if negative { -value } else { value }
    }
}
