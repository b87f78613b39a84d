//! Exact sums: rows are added as whole numbers, and whole numbers to pairs of `f64`.
//!
//! Every column has a *grid*, a power of two. A value plus [`1.5 * 2^52` grids](split) is the value rounded to the
//! grid, and the bits of the result count grids. So the sum of these bits is the sum of the values, in grids, in any
//! order. A check sees values that do not lie on the grid or are too large; the caller adds these in another way.
#![allow(clippy::needless_range_loop, reason = "loops of known length over several arrays are vectorized")]

use super::pair::{sq_dist, sq_dist_of};
use super::simd::Widen;
use crate::float::Float;
use crate::matrix::MatRef;

/// The grid of the second number of a sum, in grids of the first.
const LOW: f64 = 1.0 / (1u64 << 40) as f64;

/// `2^32`, the weight of the upper half of a whole number.
const HALF: f64 = (1u64 << 32) as f64;

/// Sums of rows as whole numbers, `grids.len()` per cluster.
pub(crate) struct Limbs<'a> {
    /// `1.5 * 2^52` grids per column, or 0 for a column whose values are all 0.
    pub(crate) grids: &'a [f64],
    /// The sums in grids.
    pub(crate) high: &'a mut [i64],
    /// What values have below the grid, in grids times [`LOW`]. Empty if all values must lie on the grid.
    pub(crate) low: &'a mut [i64],
}

/// A value as whole numbers.
pub(crate) struct Split {
    pub(crate) high: i64,
    pub(crate) low: i64,
    /// Not 0 if bits of the value were lost.
    lost: u64,
    /// The upper 12 bits are not all 0 if the value is too large or not finite.
    range: u64,
}

impl Split {
    /// Whether the numbers are the value.
    #[inline(always)]
    pub(crate) fn is_exact(&self) -> bool {
        self.lost | self.range >> 52 == 0
    }
}

/// Splits a value for a column with this entry in [`Limbs::grids`].
#[inline(always)]
pub(crate) fn split<const TWO: bool>(value: f64, grid: f64) -> Split {
    let sum = value + grid;
    let range = sum.to_bits() ^ grid.to_bits();
    let high = sum.to_bits().wrapping_sub(grid.to_bits()).cast_signed();
    let on_grid = sum - grid;
    if TWO {
        let (rest, grid) = (value - on_grid, grid * LOW);
        let sum = rest + grid;
        let low = sum.to_bits().wrapping_sub(grid.to_bits()).cast_signed();
        // Subtracted in this order, equal values give +0, also for -0.
        Split { high, low, lost: ((sum - grid) - rest).to_bits(), range }
    } else {
        Split { high, low: 0, lost: (on_grid - value).to_bits(), range }
    }
}

/// What the checks of some values have seen.
#[derive(Default)]
struct Seen {
    lost: u64,
    range: u64,
}

impl Seen {
    #[inline(always)]
    fn see(&mut self, split: &Split) {
        self.lost |= split.lost;
        self.range |= split.range;
    }

    #[inline(always)]
    fn is_exact(&self) -> bool {
        self.lost | self.range >> 52 == 0
    }
}

/// Adds a row, times `weight` if `W`, to the sums of cluster `j`.
#[inline(always)]
fn add_row<T: Float, const TWO: bool, const W: bool>(
    (row, weight): (&[T], f64),
    j: usize,
    to: &mut Limbs<'_>,
    seen: &mut Seen,
) {
    let d = row.len();
    let (grids, high) = (&to.grids[..d], &mut to.high[j * d..][..d]);
    let value = |x: T| if W { weight * x.to_f64() } else { x.to_f64() };
    // A local value stays in a register.
    let mut all = Seen::default();
    if TWO {
        let low = &mut to.low[j * d..][..d];
        for t in 0..d {
            let split = split::<true>(value(row[t]), grids[t]);
            high[t] = high[t].wrapping_add(split.high);
            low[t] = low[t].wrapping_add(split.low);
            all.see(&split);
        }
    } else {
        for t in 0..d {
            let split = split::<false>(value(row[t]), grids[t]);
            high[t] = high[t].wrapping_add(split.high);
            all.see(&split);
        }
    }
    seen.lost |= all.lost;
    seen.range |= all.range;
}

/// [`add_row`] for all rows. For up to 4 columns, whose number the compiler then knows: longer rows it adds as vectors.
#[inline(always)]
fn add_rows<T: Float, const TWO: bool, const W: bool>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: &[f64],
    to: Limbs<'_>,
) -> bool {
    match rows.cols() {
        1 => add_few::<T, TWO, W, 1>(rows, labels, weights, to),
        2 => add_few::<T, TWO, W, 2>(rows, labels, weights, to),
        3 => add_few::<T, TWO, W, 3>(rows, labels, weights, to),
        4 => add_few::<T, TWO, W, 4>(rows, labels, weights, to),
        _ => add_many::<T, TWO, W>(rows, labels, weights, to),
    }
}

#[inline(always)]
fn add_few<T: Float, const TWO: bool, const W: bool, const D: usize>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: &[f64],
    Limbs { grids, high, low }: Limbs<'_>,
) -> bool {
    let ((high, _), (low, _)) = (high.as_chunks_mut::<D>(), low.as_chunks_mut::<D>());
    let (grids, mut seen) = (&grids[..D], Seen::default());
    for (i, row) in rows.iter().enumerate() {
        let (row, j) = (&row[..D], labels[i] as usize);
        for t in 0..D {
            let x = row[t].to_f64();
            let split = split::<TWO>(if W { weights[i] * x } else { x }, grids[t]);
            high[j][t] = high[j][t].wrapping_add(split.high);
            if TWO {
                low[j][t] = low[j][t].wrapping_add(split.low);
            }
            seen.see(&split);
        }
    }
    seen.is_exact()
}

#[inline(always)]
fn add_many<T: Float, const TWO: bool, const W: bool>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: &[f64],
    mut to: Limbs<'_>,
) -> bool {
    let mut seen = Seen::default();
    for (i, row) in rows.iter().enumerate() {
        let weight = if W { weights[i] } else { 1.0 };
        add_row::<T, TWO, W>((row, weight), labels[i] as usize, &mut to, &mut seen);
    }
    seen.is_exact()
}

/// Adds every row, times its weight, to the sums of its cluster. Returns whether all sums are exact.
#[inline(always)]
pub(in crate::kernel) fn add<T: Float>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    to: Limbs<'_>,
) -> bool {
    match (to.low.is_empty(), weights) {
        (true, None) => add_rows::<T, false, false>(rows, labels, &[], to),
        (true, Some(weights)) => add_rows::<T, false, true>(rows, labels, weights, to),
        (false, None) => add_rows::<T, true, false>(rows, labels, &[], to),
        (false, Some(weights)) => add_rows::<T, true, true>(rows, labels, weights, to),
    }
}

#[inline(always)]
fn move_rows<T: Float, const TWO: bool>(
    rows: MatRef<'_, T>,
    (old, new): (&[u32], &[u32]),
    mut to: Limbs<'_>,
) -> bool {
    let mut seen = Seen::default();
    for (i, row) in rows.iter().enumerate().filter(|&(i, _)| old[i] != new[i]) {
        add_row::<T, TWO, true>((row, -1.0), old[i] as usize, &mut to, &mut seen);
        add_row::<T, TWO, false>((row, 1.0), new[i] as usize, &mut to, &mut seen);
    }
    seen.is_exact()
}

/// Moves every row whose label changed to the sums of its new cluster. Returns whether all sums are exact.
#[inline(always)]
pub(in crate::kernel) fn reassign<T: Float>(
    rows: MatRef<'_, T>,
    labels: (&[u32], &[u32]),
    to: Limbs<'_>,
) -> bool {
    if to.low.is_empty() {
        move_rows::<T, false>(rows, labels, to)
    } else {
        move_rows::<T, true>(rows, labels, to)
    }
}

/// A rounded sum and its rounding error (Knuth's two-sum).
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let total = a + b;
    let rest = total - a;
    (total, (a - (total - rest)) + (b - rest))
}

/// Adds values to a sum of two parts, of which the first is the rounded sum. The last result is 0 if nothing was lost.
#[inline(always)]
pub(crate) fn plus<const N: usize>(high: f64, low: f64, values: [f64; N]) -> (f64, f64, f64) {
    let (mut high, mut low, mut lost) = (high, low, 0.0);
    for value in values {
        let (total, error) = two_sum(high, value);
        let (rest, gone) = two_sum(low, error);
        (high, low, lost) = (total, rest, lost + gone.abs());
    }
    let (high, low) = two_sum(high, low);
    (high, low, lost)
}

/// The four values whose sum these whole numbers are.
#[inline(always)]
pub(crate) fn values_of(high: i64, low: i64, grid: f64) -> [f64; 4] {
    let exponent = (grid.to_bits() >> 52).wrapping_sub(52);
    let unit = if grid == 0.0 { 0.0 } else { f64::from_bits(exponent << 52) };
    let halves = |value: i64, unit: f64| {
        [f64::from((value >> 32) as i32) * (unit * HALF), f64::from(value as u32) * unit]
    };
    let ([a, b], [c, d]) = (halves(high, unit), halves(low, unit * LOW));
    [a, b, c, d]
}

/// Adds whole numbers to sums of two parts, and clears them. Numbers whose sum two parts cannot hold stay. Returns
/// whether there are none.
#[inline(always)]
pub(in crate::kernel) fn settle(from: Limbs<'_>, sums: &mut [f64], lows: &mut [f64]) -> bool {
    let Limbs { grids, high, low } = from;
    let d = grids.len();
    let mut all = true;
    let (sums, lows, high) = (&mut sums[..d], &mut lows[..d], &mut high[..d]);
    if low.is_empty() {
        for t in 0..d {
            let [a, b, ..] = values_of(high[t], 0, grids[t]);
            let (sum, rest, lost) = plus(sums[t], lows[t], [a, b]);
            let exact = lost == 0.0;
            sums[t] = if exact { sum } else { sums[t] };
            lows[t] = if exact { rest } else { lows[t] };
            high[t] = if exact { 0 } else { high[t] };
            all &= exact;
        }
    } else {
        let low = &mut low[..d];
        for t in 0..d {
            let (sum, rest, lost) = plus(sums[t], lows[t], values_of(high[t], low[t], grids[t]));
            let exact = lost == 0.0;
            sums[t] = if exact { sum } else { sums[t] };
            lows[t] = if exact { rest } else { lows[t] };
            high[t] = if exact { 0 } else { high[t] };
            low[t] = if exact { 0 } else { low[t] };
            all &= exact;
        }
    }
    all
}

/// Adds sums of two parts to others, and clears them. Those that cannot be added without loss stay. Returns whether
/// there are none.
#[inline(always)]
pub(in crate::kernel) fn merge(
    (from, from_lows): (&mut [f64], &mut [f64]),
    sums: &mut [f64],
    lows: &mut [f64],
) -> bool {
    let d = sums.len();
    let (from, from_lows, lows) = (&mut from[..d], &mut from_lows[..d], &mut lows[..d]);
    let mut all = true;
    for t in 0..d {
        let (sum, rest, lost) = plus(sums[t], lows[t], [from[t], from_lows[t]]);
        let exact = lost == 0.0;
        sums[t] = if exact { sum } else { sums[t] };
        lows[t] = if exact { rest } else { lows[t] };
        from[t] = if exact { 0.0 } else { from[t] };
        from_lows[t] = if exact { 0.0 } else { from_lows[t] };
        all &= exact;
    }
    all
}

/// The squared distance of every row to the center of its label.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dists<S: Widen>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    centers: MatRef<'_, S::T>,
    out: &mut [f64],
) {
    with_columns!(rows.cols(), D => {
        for ((row, &j), out) in rows.iter().zip(labels).zip(out) {
            let (Ok(row), Ok(center)) = (row.try_into(), centers.row(j as usize).try_into()) else { continue };
            *out = sq_dist_of::<_, D>(row, center);
        }
    }, else {
        for ((row, &j), out) in rows.iter().zip(labels).zip(out) {
            // SAFETY: this function requires the instruction set, as `sq_dist` does.
            *out = unsafe { sq_dist::<S>(row, centers.row(j as usize)) };
        }
    });
}
