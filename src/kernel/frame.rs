//! The shift and the scale of packed values: `x' = g (x - s)`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::float::Float;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::tuning::{SHIFT_SAMPLE, shared_rows};

/// Columns that are looked at together: a whole cache line, or two.
const COLUMNS: usize = 16;

/// Lower limit of the square of a shift over the median squared distance of the centers from it, if a few
/// outlying centers spoil the mean: with a smaller ratio, a shift would save at most four binary digits of a
/// tile value.
const CLUMPED: f64 = 16.0;

/// The shift and scale that are applied to rows and centers.
///
/// The shift `s` keeps the precision of data far from the origin. The scale `g`, a power of two and nearly always 1,
/// keeps huge and tiny magnitudes in range. Both depend on the centers alone, so the same centers always give the same
/// labels.
#[derive(Clone, Debug)]
pub(crate) struct Frame<T> {
    pub(super) shift: Vec<T>,
    pub(super) scale: T,
}

impl<T: Float> Frame<T> {
    /// The frame of a set of centers for dense rows.
    ///
    /// The shift is the per-column median of evenly spaced centers, which a single outlier cannot move. It is
    /// used only if it is long compared with the spread, so that integer data near the origin stay integers with
    /// exact ties. The spread is the mean square, or much less if most centers are close together and a few
    /// outliers dominate the mean.
    pub(super) fn about(centers: MatRef<'_, T>, cx: &Executor) -> Self {
        let (k, dim) = (centers.rows(), centers.cols());
        let sample =
            if k <= SHIFT_SAMPLE { k - usize::from(k.is_multiple_of(2)) } else { SHIFT_SAMPLE }.max(1);
        let picked: Vec<&[T]> = (0..sample).map(|i| centers.row(i * k / sample)).collect();
        let mut shift = vec![T::ZERO; dim];
        let mut sums = vec![(0.0, 0.0); dim.div_ceil(MEDIANS)];
        let parts = shift.chunks_mut(MEDIANS).zip(&mut sums).enumerate();
        cx.share(parts, |(i, (shift, sums))| *sums = medians(&picked, i * MEDIANS, shift));
        let (offset, spread) = sums.iter().fold((0.0, 0.0), |all, sums| (all.0 + sums.0, all.1 + sums.1));
        let wanted = offset.is_finite() && !spread.is_nan();
        if !wanted || offset <= spread && offset <= CLUMPED * sample as f64 * median_sq_dist(&picked, &shift)
        {
            shift.fill(T::ZERO);
        }
        let scale = scale_of(centers, Some(&shift), cx);
        Self { shift, scale }
    }

    /// The frame of a set of centers for sparse rows, which are not shifted: a shift would make zeros nonzero.
    pub(super) fn at_origin(centers: MatRef<'_, T>, cx: &Executor) -> Self {
        Self { shift: vec![T::ZERO; centers.cols()], scale: scale_of(centers, None, cx) }
    }

    /// The frame of rows that include `sample` and have values of magnitude up to `largest`.
    pub(crate) fn of(sample: MatRef<'_, T>, largest: f64, sparse: bool) -> Self {
        let shift =
            if sparse { vec![T::ZERO; sample.cols()] } else { Self::about(sample, Executor::caller()).shift };
        let moved = shift.iter().fold(0.0, |most: f64, s| most.max(s.to_f64().abs()));
        Self { shift, scale: scale_for(largest + moved) }
    }
}

/// Columns whose medians a thread computes at a time.
const MEDIANS: usize = 8 * COLUMNS;

/// Writes the medians of the columns of some centers from column `first` on. Returns the sums of the squares of the
/// medians, one per value, and of the squared differences from them.
fn medians<T: Float>(centers: &[&[T]], first: usize, medians: &mut [T]) -> (f64, f64) {
    let n = centers.len();
    let (mut offset, mut spread) = (0.0, 0.0);
    // A few columns at a time, because rows are far apart in memory.
    let mut columns = vec![T::ZERO; n * COLUMNS];
    for (block, medians) in medians.chunks_mut(COLUMNS).enumerate() {
        for (i, center) in centers.iter().enumerate() {
            let values = &center[first + block * COLUMNS..][..medians.len()];
            columns[i..].iter_mut().step_by(n).zip(values).for_each(|(out, &v)| *out = v);
        }
        for (column, out) in columns.chunks_exact_mut(n).zip(medians) {
            let middle = n / 2;
            column.select_nth_unstable_by(middle, |a, b| a.to_f64().total_cmp(&b.to_f64()));
            *out = column[middle];
            let median = out.to_f64();
            offset += median * median * n as f64;
            spread += column.iter().map(|v| (v.to_f64() - median).powi(2)).sum::<f64>();
        }
    }
    (offset, spread)
}

/// The median squared distance of some centers from a point.
fn median_sq_dist<T: Float>(centers: &[&[T]], point: &[T]) -> f64 {
    let sq_dist = |center: &&[T]| {
        let apart = center.iter().zip(point).map(|(c, p)| c.to_f64() - p.to_f64());
        apart.map(|apart| apart * apart).sum::<f64>()
    };
    let mut sq_dists: Vec<f64> = centers.iter().map(sq_dist).collect();
    let middle = sq_dists.len() / 2;
    *sq_dists.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The scale of a set of centers about a point, or about the origin.
pub(super) fn scale_of<T: Float>(centers: MatRef<'_, T>, shift: Option<&[T]>, cx: &Executor) -> T {
    // The order of the bits is that of the values, which are not negative.
    let largest = AtomicU64::new(0);
    let (k, rows) = (centers.rows(), shared_rows(centers.cols()));
    cx.share((0..k).step_by(rows), |first| {
        let most = largest_of(centers.slice(first, k.min(first + rows)), shift);
        largest.fetch_max(most.to_bits(), Ordering::Relaxed);
    });
    scale_for(f64::from_bits(largest.into_inner()))
}

/// The largest magnitude about a point, or about the origin.
fn largest_of<T: Float>(centers: MatRef<'_, T>, shift: Option<&[T]>) -> f64 {
    let mut largest = 0.0f64;
    for c in centers.iter() {
        // Maxima in lanes avoid a chain of dependent operations.
        let mut most = [0.0f64; COLUMNS];
        for (i, part) in c.chunks(COLUMNS).enumerate() {
            if let Some(shift) = shift {
                let moved = part.iter().zip(&shift[i * COLUMNS..]);
                most.iter_mut()
                    .zip(moved)
                    .for_each(|(most, (v, s))| *most = most.max((v.to_f64() - s.to_f64()).abs()));
            } else {
                most.iter_mut().zip(part).for_each(|(most, v)| *most = most.max(v.to_f64().abs()));
            }
        }
        largest = most.into_iter().fold(largest, f64::max);
    }
    largest
}

/// The scale for values of magnitude up to `largest`.
fn scale_for<T: Float>(largest: f64) -> T {
    // Squares must neither overflow nor underflow. Magnitudes within a quarter of the exponent range on
    // either side need no scale.
    let safe = if T::WIDE { 250 } else { 30 };
    let exponent = if largest > 0.0 && largest.is_finite() { largest.log2().floor() as i32 } else { 0 };
    // Subnormal centers are scaled as far as T allows.
    let most = if T::WIDE { 1022 } else { 126 };
    T::from_f64(if exponent.abs() > safe { 2f64.powi((-exponent).clamp(-most, most)) } else { 1.0 })
}

/// `g (x - s)`: rows and centers are rounded in the same way, so a row that equals a center stays equal to
/// it.
#[inline(always)]
pub(super) fn moved<T: Float>(x: T, shift: T, scale: T) -> T {
    (x - shift) * scale
}

/// `|x'|^2` of a row.
#[inline(always)]
pub(super) fn sq_norm<T: Float>(values: &[T], scale: T) -> f64 {
    values.iter().fold(0.0, |sum, &x| {
        let x = (x * scale).to_f64();
        sum + x * x
    })
}
