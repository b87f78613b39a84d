//! Exact sums: rows are added as whole numbers, and whole numbers to pairs of `f64`.
//!
//! Every column has a *grid*, a power of two. A value plus [`1.5 * 2^52` grids](split) is the value rounded to the
//! grid, and the bits of the result count grids. So the sum of these bits is the sum of the values, in grids, in any
//! order. A check sees values that do not lie on the grid or are too large; the caller adds these in another way.
#![allow(clippy::needless_range_loop, reason = "loops of known length over several arrays are vectorized")]

use super::pair::{sq_dist, sq_dist_of};
use crate::float::Float;
use crate::kernel::simd::{Bits, MOST_LANES, Simd, Widen};
use crate::matrix::MatRef;

/// The grid of the second number of a sum, in grids of the first.
const LOW: f64 = 1.0 / (1u64 << 40) as f64;

/// The entry in [`Limbs::grids`] of a column without a grid. Only 0, and values above `2^907`, lie on so coarse a grid.
pub(crate) const NO_GRID: f64 = 1.5 * f64::from_bits((1000 + 1023) << 52);

/// `2^32`, the weight of the upper half of a whole number.
const HALF: f64 = (1u64 << 32) as f64;

/// Sums of rows as whole numbers, `grids.len()` per cluster.
pub(crate) struct Limbs<'a> {
    /// `1.5 * 2^52` grids per column, or [`NO_GRID`] for a column whose values are all 0.
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
struct Seen<S: Bits> {
    lost: S::V,
    range: S::V,
    /// The same of single values.
    rest: (u64, u64),
}

impl<S: Bits> Seen<S> {
    /// # Safety
    /// The processor must support the instruction set.
    #[inline(always)]
    unsafe fn nothing() -> Self {
        // SAFETY: this function requires the instruction set.
        unsafe { Self { lost: S::splat(0.0), range: S::splat(0.0), rest: (0, 0) } }
    }

    #[inline(always)]
    fn see(&mut self, split: &Split) {
        self.rest.0 |= split.lost;
        self.rest.1 |= split.range;
    }

    /// # Safety
    /// The processor must support the instruction set.
    #[inline(always)]
    unsafe fn is_exact(&self) -> bool {
        let (mut lost, mut range) = ([0.0; MOST_LANES], [0.0; MOST_LANES]);
        // SAFETY: no vector has more than `MOST_LANES` lanes. This function requires the instruction set.
        unsafe {
            S::store(lost.as_mut_ptr(), self.lost);
            S::store(range.as_mut_ptr(), self.range);
        }
        let all = |values: [f64; MOST_LANES]| values.into_iter().fold(0, |all, value| all | value.to_bits());
        self.rest.0 | all(lost) | (self.rest.1 | all(range)) >> 52 == 0
    }
}
/// Adds a row, times `weight` if `W`, to sums.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn add_row<S: Widen, const TWO: bool, const W: bool>(
    (row, weight): (&[S::T], f64),
    j: usize,
    to: &mut Limbs<'_>,
    seen: &mut Seen<S::Wide>,
) {
    let d = row.len();
    let (grids, high) = (&to.grids[..d], &mut to.high[j * d..][..d]);
    let low = if TWO { &mut to.low[j * d..][..d] } else { &mut [][..] };
    let whole = d / S::Wide::LANES * S::Wide::LANES;
    // SAFETY: all slices that are read or written have `d` values, and `whole` is at most `d`. This function requires
    // the instruction set.
    unsafe {
        let (weights, factor) = (S::Wide::splat(weight), S::Wide::splat(LOW));
        for t in (0..whole).step_by(S::Wide::LANES) {
            let x = S::widen(row.as_ptr().add(t));
            let value = if W { S::Wide::mul(weights, x) } else { x };
            let grid = S::Wide::load(grids.as_ptr().add(t));
            let sum = S::Wide::add(value, grid);
            S::Wide::add_bits(high.as_mut_ptr().add(t), grid, sum);
            seen.range = S::Wide::or(seen.range, S::Wide::xor(sum, grid));
            let on_grid = S::Wide::sub(sum, grid);
            let lost = if TWO {
                let (rest, grid) = (S::Wide::sub(value, on_grid), S::Wide::mul(grid, factor));
                let sum = S::Wide::add(rest, grid);
                S::Wide::add_bits(low.as_mut_ptr().add(t), grid, sum);
                S::Wide::sub(S::Wide::sub(sum, grid), rest)
            } else {
                S::Wide::sub(on_grid, value)
            };
            seen.lost = S::Wide::or(seen.lost, lost);
        }
    }
    for t in whole..d {
        let x = row[t].to_f64();
        let split = split::<TWO>(if W { weight * x } else { x }, grids[t]);
        high[t] = high[t].wrapping_add(split.high);
        if TWO {
            low[t] = low[t].wrapping_add(split.low);
        }
        seen.see(&split);
    }
}

/// Adds rows of up to four columns, whose number the compiler then knows.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn add_few<S: Widen, const TWO: bool, const W: bool, const D: usize>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    weights: &[f64],
    Limbs { grids, high, low }: Limbs<'_>,
) -> bool {
    let ((high, _), (low, _)) = (high.as_chunks_mut::<D>(), low.as_chunks_mut::<D>());
    let (grids, mut lost, mut range) = (&grids[..D], 0, 0);
    for (i, row) in rows.iter().enumerate() {
        let (row, j) = (&row[..D], labels[i] as usize);
        for t in 0..D {
            let x = row[t].to_f64();
            let split = split::<TWO>(if W { weights[i] * x } else { x }, grids[t]);
            high[j][t] = high[j][t].wrapping_add(split.high);
            if TWO {
                low[j][t] = low[j][t].wrapping_add(split.low);
            }
            lost |= split.lost;
            range |= split.range;
        }
    }
    lost | range >> 52 == 0
}

/// Rows of a single column that are split together.
const COLUMN_ROWS: usize = 64;

/// Adds rows of a single column: splitting them first takes vectors.
#[inline(always)]
fn add_column<T: Float, const W: bool>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: &[f64],
    Limbs { grids, high, low }: Limbs<'_>,
) -> bool {
    let (n, grid) = (labels.len(), grids[0]);
    let (mut highs, mut lows) = ([0; COLUMN_ROWS], [0; COLUMN_ROWS]);
    let mut values = [0.0; COLUMN_ROWS];
    let (mut lost, mut range) = (0, 0);
    for start in (0..n).step_by(COLUMN_ROWS) {
        let m = COLUMN_ROWS.min(n - start);
        for (i, value) in values[..m].iter_mut().enumerate() {
            let x = rows.row(start + i)[0].to_f64();
            *value = if W { weights[start + i] * x } else { x };
        }
        values[m..].fill(0.0);
        for i in 0..COLUMN_ROWS {
            let split = split::<true>(values[i], grid);
            (highs[i], lows[i]) = (split.high, split.low);
            lost |= split.lost;
            range |= split.range;
        }
        for (i, &j) in labels[start..start + m].iter().enumerate() {
            let (high, low) = (&mut high[j as usize], &mut low[j as usize]);
            *high = high.wrapping_add(highs[i]);
            *low = low.wrapping_add(lows[i]);
        }
    }
    lost | range >> 52 == 0
}

/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn add_rows<S: Widen, const TWO: bool, const W: bool>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    weights: &[f64],
    mut to: Limbs<'_>,
) -> bool {
    // SAFETY: this function requires the instruction set, as all of these do.
    unsafe {
        match rows.cols() {
            1 if TWO => return add_column::<S::T, W>(rows, labels, weights, to),
            1 => return add_few::<S, TWO, W, 1>(rows, labels, weights, to),
            2 => return add_few::<S, TWO, W, 2>(rows, labels, weights, to),
            3 => return add_few::<S, TWO, W, 3>(rows, labels, weights, to),
            4 => return add_few::<S, TWO, W, 4>(rows, labels, weights, to),
            _ => {}
        }
        let mut seen = Seen::nothing();
        for (i, row) in rows.iter().enumerate() {
            let weight = if W { weights[i] } else { 1.0 };
            add_row::<S, TWO, W>((row, weight), labels[i] as usize, &mut to, &mut seen);
        }
        seen.is_exact()
    }
}

/// Adds every row, times its weight, to the sums of its cluster. Returns whether all sums are exact.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn add<S: Widen>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    to: Limbs<'_>,
) -> bool {
    // SAFETY: this function requires the instruction set, as `add_rows` does.
    unsafe {
        match (to.low.is_empty(), weights) {
            (true, None) => add_rows::<S, false, false>(rows, labels, &[], to),
            (true, Some(weights)) => add_rows::<S, false, true>(rows, labels, weights, to),
            (false, None) => add_rows::<S, true, false>(rows, labels, &[], to),
            (false, Some(weights)) => add_rows::<S, true, true>(rows, labels, weights, to),
        }
    }
}

/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn move_rows<S: Widen, const TWO: bool>(
    rows: MatRef<'_, S::T>,
    (old, new): (&[u32], &[u32]),
    mut to: Limbs<'_>,
) -> bool {
    // SAFETY: this function requires the instruction set, as all of these do.
    unsafe {
        let mut seen = Seen::nothing();
        for (i, row) in rows.iter().enumerate().filter(|&(i, _)| old[i] != new[i]) {
            add_row::<S, TWO, true>((row, -1.0), old[i] as usize, &mut to, &mut seen);
            add_row::<S, TWO, false>((row, 1.0), new[i] as usize, &mut to, &mut seen);
        }
        seen.is_exact()
    }
}

/// Moves every row whose label changed to the sums of its new cluster. Returns whether all sums are exact.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn reassign<S: Widen>(
    rows: MatRef<'_, S::T>,
    labels: (&[u32], &[u32]),
    to: Limbs<'_>,
) -> bool {
    // SAFETY: this function requires the instruction set, as `move_rows` does.
    unsafe {
        if to.low.is_empty() {
            move_rows::<S, false>(rows, labels, to)
        } else {
            move_rows::<S, true>(rows, labels, to)
        }
    }
}

/// A rounded sum and its rounding error (Knuth's two-sum).
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
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
    let unit = f64::from_bits(exponent << 52);
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
