//! How far a value in low precision may be from the true one.
//!
//! # What is compared
//! Let `x' = g (x - s)` and `c' = g (c - s)` be a row and a center as rounded by the library (see
//! [`pack`](crate::kernel::pack)), `N = |c'|^2` rounded, and `V` either of two values: the tile value, a chain of
//! `d` fused steps in `f32`, or the squared distance of the arbiter, times `g^2`, less `|x'|^2`. Let `u = 2^-24` and
//! `gamma = (d + 4) u / (1 - (d + 4) u)`. Then
//!
//! `|V - (N - 2 x'.c')| <= gamma (N + 2 |x'| |c'|) + far + tiny`,
//!
//! up to a number that is the same for all centers: the chain has `d + 2` roundings, and rounding `x'` and `c'` moves
//! the distance of the arbiter by two. `tiny` covers products that underflow, and `far` the roundings of the arbiter,
//! at most `(d / 16 + 8) 2^-53` of `(|x'| + |c'|)^2 <= 4 Y^2 + 4 a^2 + 2 |c'|^2`, where `|x'| <= Y + a` as below. Only
//! rows with `Y <= F`, the [`farthest`], are compared in low precision, so that `Y^2 <= F Y` (with `T` of bf16 below,
//! `(Y + T)^2 <= 2 F (Y + T)`). Let `m` be the mean of the centers `c'`, rounded. Both products
//! compute `W`, an approximation of `V + 2 x.m` or `V + 2 x'.m`. The second term is the same for all centers of
//! a row, so it does not matter which center is the nearest.
//!
//! # Bytes
//! Rows are whole numbers from 0 to 255 and `g = 1`, so `x` has no error. A center is rounded to `m + q` with `q`
//! a multiple of its unit by -127 to 127, and `e = c' - m - q`. Let `p` be the vector [`middle`], about `m + s`.
//! With `x' = x - s + r`, `|r| <= u |x - s|`:
//!
//! `N - 2 x'.c' + 2 x.m = [N + 2 s.c' - 2 p.e] - 2 x.q - 2 (x - p).e - 2 r.c'`.
//!
//! `W` is the first two terms: the bracket is rounded to `f32`, `x.q` is a sum of integers without error. So
//! with `Y = |x - p|`, `|x - s| <= Y + |p - s|` and `|x| <= Y + |p|`
//!
//! `|W - V - 2 x.m| <= 2 Y |e| + 2 (u + gamma) (1 + u) (Y + |p - s|) |c'| + gamma N + (roundings of W) + tiny`.
//!
//! # bf16
//! A row is rounded to `h`, the bf16 nearest to `x' - m`, and `t = x' - m - h`. A center is rounded to `m + q` as
//! well, with `q` the bf16 nearest to `c' - m`. Then
//!
//! `N - 2 x'.c' + 2 x'.m = [N - 2 m.(c' - m)] - 2 h.q - 2 h.e - 2 t.(c' - m)`.
//!
//! The sum `h.q` is taken in `f32`, in any order, and subnormal values may count as zero: an error of at most
//! `gamma' |h| |q| + tiny`. With `Y = |h|`, `T = |t|` and `|x'| <= Y + T + |m|`
//!
//! `|W - V - 2 x'.m| <= 2 Y |e| + 2 T |c' - m| + 2 gamma (Y + T + |m|) |c'| + gamma N + 2 gamma' Y |q| + (roundings of
//! W) + tiny`.
//!
//! # Roundings of `W`
//! A sum is converted to `f32`, multiplied and added to the constant, and the bound itself is subtracted and
//! added again. These are fewer than eight roundings of at most `u (|constant| + 2 |x| |q|)` each.
//!
//! Both bounds have the form `Y rows + T rests + fixed`, which [`Bound`] stores. All coefficients are computed
//! in `f64` and rounded up by 1e-6, which covers the roundings of `f64` and the evaluation in `f32`.
//!
//! [`middle`]: super::pack::LowCenters::middle
//! [`farthest`]: super::pack::LowCenters::farthest

use crate::kernel::arch::engine::{Line, Product};

/// Half the distance of 1 to the next `f32`.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// An upper limit of the error of the values of a row: `length rows + rest rests + fixed`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    rows: f32,
    rests: f32,
    fixed: f32,
}

impl Bound {
    /// Covers another bound as well.
    pub(super) fn widen(&mut self, other: &Self) {
        self.rows = self.rows.max(other.rows);
        self.rests = self.rests.max(other.rests);
        self.fixed = self.fixed.max(other.fixed);
    }

    /// The bounds of 16 rows.
    #[inline(always)]
    pub(super) fn of(&self, rows: &Lengths) -> Line {
        let mut out = Line::ZERO;
        for r in 0..16 {
            out.0[r] = rows.length.0[r] * self.rows + (rows.rest.0[r] * self.rests + self.fixed);
        }
        out
    }
}

/// `Y` and `T` of 16 rows, rounded up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) length: Line,
    pub(super) rest: Line,
}

impl Lengths {
    pub(super) const ZERO: Self = Self { length: Line::ZERO, rest: Line::ZERO };
}

/// The numbers of the bounds that all centers share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    product: Product,
    /// Relative error of a tile value, of the arbiter, of the product's sums, and of sums in `f64`.
    gamma: f64,
    far: f64,
    gamma_product: f64,
    gamma_f64: f64,
    /// Error of products that underflow or are flushed to zero.
    tiny: f64,
    /// The largest `Y`.
    farthest: f64,
    /// `|m|`, `|p|`, `|p - s|` and `|s|`.
    mean: f64,
    middle: f64,
    apart: f64,
    shift: f64,
}

impl Frame {
    pub(super) fn new(
        product: Product,
        farthest: f32,
        (mean, middle, shift): (&[f32], &[f32], &[f32]),
    ) -> Self {
        let dim = mean.len();
        let gamma = |steps: usize| steps as f64 * UNIT / (1.0 - steps as f64 * UNIT);
        let length = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
        let apart = middle.iter().zip(shift).map(|(&p, &s)| f64::from(p) - f64::from(s));
        Self {
            product,
            gamma: gamma(dim + 4),
            far: (dim as f64 / 16.0 + 8.0) * f64::EPSILON / 2.0,
            farthest: f64::from(farthest),
            // Up to a tile of padding, and a sum per tile.
            gamma_product: gamma(2 * dim + 64),
            gamma_f64: (dim + 8) as f64 * f64::EPSILON,
            tiny: (dim + 64) as f64 * 2f64.powi(-120),
            mean: length(&mut mean.iter().map(|&v| f64::from(v))),
            middle: length(&mut middle.iter().map(|&v| f64::from(v))),
            apart: length(&mut { apart }),
            shift: length(&mut shift.iter().map(|&v| f64::from(v))),
        }
    }
}

/// Sums over the columns of a center.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Center {
    norm: f64,
    /// Squared lengths of `c'`, `c' - m`, `q` and `e`.
    whole: f64,
    moved: f64,
    near: f64,
    error: f64,
    /// `s.c'`, `m.(c' - m)` and `p.e`.
    by_shift: f64,
    by_mean: f64,
    by_middle: f64,
}

impl Center {
    pub(super) fn new(norm: f64) -> Self {
        Self { norm, ..Self::default() }
    }

    /// Adds a column: `c'`, `c' - m` and `q`, and the column of `s`, `m` and `p`.
    pub(super) fn add(&mut self, center: f64, moved: f64, near: f64, shift: f64, mean: f64, middle: f64) {
        let error = moved - near;
        self.whole += center * center;
        self.moved += moved * moved;
        self.near += near * near;
        self.error += error * error;
        self.by_shift += shift * center;
        self.by_mean += mean * moved;
        self.by_middle += middle * error;
    }

    /// The constant term of the values.
    pub(super) fn constant(&self, product: Product) -> f32 {
        (match product {
            Product::Bytes => self.norm + 2.0 * self.by_shift - 2.0 * self.by_middle,
            Product::Bf16 => self.norm - 2.0 * self.by_mean,
        }) as f32
    }

    /// See the module.
    pub(super) fn bound(&self, frame: &Frame) -> Bound {
        let (center, moved) = (self.whole.sqrt(), self.moved.sqrt());
        let (near, error) = (self.near.sqrt(), self.error.sqrt());
        let constant = f64::from(self.constant(frame.product)).abs();
        let terms =
            self.norm + 2.0 * (frame.shift * center + frame.middle * error + frame.mean * moved) + constant;
        let rounding = 8.0 * UNIT;
        let origin = match frame.product {
            Product::Bytes => frame.apart,
            Product::Bf16 => frame.mean,
        };
        let far = frame.far * (4.0 * origin * origin + 2.0 * self.whole);
        let fixed =
            frame.gamma * self.norm + rounding * constant + frame.gamma_f64 * terms + far + frame.tiny;
        let far = 8.0 * frame.far * frame.farthest;
        let (rows, rests, fixed) = match frame.product {
            Product::Bytes => {
                let chain = 2.0 * (UNIT + frame.gamma) * (1.0 + UNIT) * center;
                let rows = 2.0 * error + chain + far + 2.0 * rounding * near;
                (rows, 0.0, fixed + chain * frame.apart + 2.0 * rounding * frame.middle * near)
            }
            Product::Bf16 => {
                let chain = 2.0 * frame.gamma * center;
                let rows = 2.0 * error + chain + far + 2.0 * (frame.gamma_product + rounding) * near;
                (rows, 2.0 * moved + chain + far, fixed + chain * frame.mean)
            }
        };
        let up = |v: f64| (v * (1.0 + 1e-6)) as f32;
        Bound { rows: up(rows), rests: up(rests), fixed: up(fixed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every term of the sums in the description of the module is covered.
    #[test]
    fn no_term_is_missing() {
        let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let d = 64;
        for seed in 0..4u32 {
            let value = |t: usize, by: f64| ((t as f64 + f64::from(seed)) * by).sin();
            // With `m = 0`, only the error of the chain depends on the norm.
            let of = |size: f64, by: f64| (0..d).map(|t| (size * value(t, by)) as f32).collect::<Vec<f32>>();
            let (mean, shift) = (of(f64::from(seed), 0.3), of(2.0, 0.7));
            let middle: Vec<f32> = mean.iter().zip(&shift).map(|(m, s)| m + s).collect();
            let near: Vec<f64> = (0..d).map(|t| value(t, 1.1)).collect();
            let error: Vec<f64> = (0..d).map(|t| 1e-3 * value(t, 1.7)).collect();
            let moved: Vec<f64> = near.iter().zip(&error).map(|(q, e)| q + e).collect();
            let whole: Vec<f64> = moved.iter().zip(&mean).map(|(c, &m)| c + f64::from(m)).collect();
            let norm = length(&whole).powi(2);
            let mut center = Center::new(norm);
            for t in 0..d {
                let (s, m, p) = (shift[t].into(), mean[t].into(), middle[t].into());
                center.add(whole[t], moved[t], near[t], s, m, p);
            }
            let gamma = (d + 4) as f64 * UNIT;
            let (e, c, q) = (length(&error), length(&whole), length(&near));
            let wide = |v: &[f32]| length(&v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>());
            let apart =
                length(&middle.iter().zip(&shift).map(|(p, s)| f64::from(p - s)).collect::<Vec<f64>>());
            // With rows this far away, the roundings of the arbiter are large.
            let far = 8.0 * (d as f64 / 16.0 + 8.0) * 2f64.powi(-53) * 1e9;
            for product in [Product::Bytes, Product::Bf16] {
                let bound = center.bound(&Frame::new(product, 1e9, (&mean, &middle, &shift)));
                let (rows, rests, fixed) = match product {
                    Product::Bytes => {
                        let chain = 2.0 * (UNIT + gamma) * c;
                        (2.0 * e + chain + far, 0.0, gamma * norm + chain * apart)
                    }
                    Product::Bf16 => {
                        let chain = 2.0 * gamma * c;
                        let rows = 2.0 * e + chain + far + 4.0 * gamma * q;
                        (rows, 2.0 * length(&moved) + chain, gamma * norm + chain * wide(&mean))
                    }
                };
                let (rows_are, rests_are, fixed_is) =
                    (f64::from(bound.rows), f64::from(bound.rests), f64::from(bound.fixed));
                let less = 1.0 - 1e-4;
                assert!(rows_are >= rows * less, "{product:?} {seed}: {rows_are} {rows}");
                assert!(rests_are >= rests * less, "{product:?} {seed}: {rests_are} {rests}");
                assert!(fixed_is >= fixed * less, "{product:?} {seed}: {fixed_is} {fixed}");
            }
        }
    }

    /// No term hides behind a larger one: with all other numbers at 0, each is what the description of the module says.
    #[test]
    fn every_term_counts_by_itself() {
        type Case = (fn(&mut Frame, &mut Center), fn(&Bound) -> f32, f64);
        const RATE: f64 = 1.0 / 1024.0;
        let both: &[Case] = &[
            (|f, c| (f.gamma, c.norm) = (RATE, 1.0), |b| b.fixed, RATE),
            (|_, c| c.norm = 1.0, |b| b.fixed, 8.0 * UNIT),
            (|f, c| (f.gamma_f64, f.shift, c.whole) = (RATE, 1.0, 1.0), |b| b.fixed, 2.0 * RATE),
            (|f, c| (f.gamma_f64, f.middle, c.error) = (RATE, 1.0, 1.0), |b| b.fixed, 2.0 * RATE),
            (|f, c| (f.gamma_f64, f.mean, c.moved) = (RATE, 1.0, 1.0), |b| b.fixed, 2.0 * RATE),
            (|f, _| (f.far, f.mean, f.apart) = (RATE, 1.0, 1.0), |b| b.fixed, 4.0 * RATE),
            (|f, c| (f.far, c.whole) = (RATE, 1.0), |b| b.fixed, 2.0 * RATE),
            (|f, _| f.tiny = 1.0, |b| b.fixed, 1.0),
            (|_, c| c.error = 1.0, |b| b.rows, 2.0),
            (|f, c| (f.gamma, c.whole) = (RATE, 1.0), |b| b.rows, 2.0 * RATE),
            (|f, _| (f.far, f.farthest) = (RATE, 1.0), |b| b.rows, 8.0 * RATE),
            (|_, c| c.near = 1.0, |b| b.rows, 16.0 * UNIT),
        ];
        let bytes: &[Case] = &[
            (|_, c| c.whole = 1.0, |b| b.rows, 2.0 * UNIT),
            (|f, c| (f.gamma, f.apart, c.whole) = (RATE, 1.0, 1.0), |b| b.fixed, 2.0 * RATE),
            (|f, c| (f.middle, c.near) = (1.0, 1.0), |b| b.fixed, 16.0 * UNIT),
        ];
        let bf16: &[Case] = &[
            (|f, c| (f.gamma_product, c.near) = (RATE, 1.0), |b| b.rows, 2.0 * RATE),
            (|_, c| c.moved = 1.0, |b| b.rests, 2.0),
            (|f, c| (f.gamma, c.whole) = (RATE, 1.0), |b| b.rests, 2.0 * RATE),
            (|f, _| (f.far, f.farthest) = (RATE, 1.0), |b| b.rests, 8.0 * RATE),
            (|f, c| (f.gamma, f.mean, c.whole) = (RATE, 1.0, 1.0), |b| b.fixed, 2.0 * RATE),
        ];
        for (product, own) in [(Product::Bytes, bytes), (Product::Bf16, bf16)] {
            for (at, (set, of, least)) in both.iter().chain(own).enumerate() {
                let mut frame = Frame::new(product, 0.0, (&[], &[], &[]));
                (frame.gamma, frame.far, frame.gamma_product, frame.gamma_f64, frame.tiny) =
                    (0.0, 0.0, 0.0, 0.0, 0.0);
                let mut center = Center::default();
                set(&mut frame, &mut center);
                let found = f64::from(of(&center.bound(&frame)));
                assert!(found >= *least, "{product:?}, case {at}: {found:e}, not {least:e}");
            }
        }
    }

    /// The errors of sums grow with the number of columns, and a bound is not rounded down.
    #[test]
    fn errors_grow_with_the_columns() {
        for dim in [1, 100, 3000] {
            let zeros = vec![0.0; dim];
            let frame = Frame::new(Product::Bf16, 0.0, (&zeros, &zeros, &zeros));
            let d = dim as f64;
            assert!(frame.gamma >= (d + 4.0) * UNIT && frame.gamma_product >= 2.0 * d * UNIT, "{dim}");
            assert!(frame.far >= (d / 16.0 + 8.0) * f64::EPSILON / 2.0, "{dim}");
        }
        for i in 1..100 {
            let mut frame = Frame::new(Product::Bytes, 0.0, (&[], &[], &[]));
            frame.tiny = f64::from(i) / 7.0;
            assert!(f64::from(Center::default().bound(&frame).fixed) >= frame.tiny, "{i}");
        }
    }
}
