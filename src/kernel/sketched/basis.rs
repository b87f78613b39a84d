//! The coordinates of sketches: a subspace learned from a sample of the rows, or all columns.

use super::directions::{Leading, defect_of, orthonormal, random, rotated};
use crate::float::Float;
use crate::kernel::generic::product::{COLUMNS, DEPTH};
use crate::kernel::operations;
use crate::kernel::tier::{Compute, active};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

/// Share of the squared lengths of rows, about their mean, that the columns of sketches hold. With less, sketches
/// exclude too few centers; with more, they take longer to compare.
const SKETCH_ENERGY: f64 = 0.9;

/// Rows on which mixing columns is tried, and the share of the largest coordinates from which on it pays: it takes as
/// long as rounding the rows.
const SKETCH_PEAKS: usize = 64;
const SKETCH_GAIN: f32 = 0.85;

/// Rows from which the columns of sketches are learned.
const SKETCH_SAMPLE: usize = 1024;

/// The most columns of a sketch: sums of products of bytes fit into 32 bits, and those of squares in a lane into 24.
const MOST: usize = 1 << 14;

/// Half of the distance of 1 to the next `f32`.
pub(super) const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// What the coordinates of a row are.
#[derive(Clone, Debug)]
pub(super) enum Directions {
    /// Products with orthonormal directions in which rows differ most: `dim` rows of `width` values. The directions are
    /// rotated at random among each other. Their coordinates are then about equally large, so that one unit per row
    /// suits all of them.
    Learned(Vec<f32>),
    /// All columns.
    Columns,
    /// Sums and differences of all columns ([`mix`]), which are more equally large than columns.
    Mixed,
}

/// A fixed point, a scale, and orthonormal directions.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// Columns of a row, and of a sketch.
    pub(super) dim: usize,
    pub(super) width: usize,
    pub(super) mean: Vec<f32>,
    /// A power of two, by which the sample has values of about 1.
    pub(super) factor: f64,
    pub(super) directions: Directions,
    /// Limit of the error of coordinates, relative to the length of the row, from rounding.
    pub(super) rounding: f64,
    /// Limit of the error, relative to the length of the coordinates, because the directions are rounded.
    pub(super) defect: f64,
}

impl Basis {
    /// The fewest bytes of a sketch, for rows with at least as many columns.
    pub(crate) const LEAST_WIDTH: usize = 32;

    /// The rows, of `n`, from which a basis is learned: drawn at random, in ascending order.
    pub(crate) fn sample_of(n: usize) -> Vec<u64> {
        if n <= SKETCH_SAMPLE {
            return (0..n as u64).collect();
        }
        let mut rng = Rng::keyed(0, Purpose::Sketching, n as u64);
        let mut rows: Vec<u64> = (0..SKETCH_SAMPLE).map(|_| rng.below(n as u64)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The smallest of some widths for which the subspace has most of the squared lengths of the sample, or all
    /// columns. `None` if the scale of the rows is out of range.
    pub(crate) fn learn<T: Compute>(sample: MatRef<'_, T>, cx: &Executor) -> Option<Self> {
        let new = Self::of_columns(sample)?;
        let dim = new.dim;
        let mut rows = vec![0.0; sample.rows() * dim];
        new.center(sample, &mut rows, &mut vec![0.0; sample.rows()]);
        let mut rng = Rng::keyed(0, Purpose::Sketching, dim as u64);
        let mut leading = Leading::of(&rows, dim);
        for width in [Self::LEAST_WIDTH, 64, 128, 256] {
            if dim <= width + width / 2 {
                break;
            }
            leading.extend(width, &mut rng, cx);
            if leading.energy >= SKETCH_ENERGY {
                let learned = new.clone().with(&rotated(&leading.directions, dim, width, &mut rng), width);
                return Some(learned.unwrap_or(new));
            }
        }
        Some(new)
    }

    /// `width` directions, whatever they hold of the squared lengths of the sample. `None` if the scale of the rows is
    /// out of range.
    pub(crate) fn learn_few<T: Compute>(sample: MatRef<'_, T>, width: usize, cx: &Executor) -> Option<Self> {
        let new = Self::of_columns(sample)?;
        let dim = new.dim;
        let mut rows = vec![0.0; sample.rows() * dim];
        new.center(sample, &mut rows, &mut vec![0.0; sample.rows()]);
        let mut rng = Rng::keyed(0, Purpose::Sketching, dim as u64);
        let mut leading = Leading::of(&rows, dim);
        leading.extend(width, &mut rng, cx);
        new.with(&rotated(&leading.directions, dim, width, &mut rng), width)
    }

    /// The learned directions, and random ones that complete them to a basis of all columns. `None` without learned
    /// directions, or if the basis is not orthonormal.
    pub(super) fn completed(&self) -> Option<Self> {
        let Directions::Learned(matrix) = &self.directions else { return None };
        let mut rng = Rng::keyed(1, Purpose::Sketching, self.dim as u64);
        let mut all: Vec<f64> = vec![0.0; self.width * self.dim];
        for (t, row) in matrix.chunks_exact(self.width).enumerate() {
            row.iter().enumerate().for_each(|(j, &v)| all[j * self.dim + t] = f64::from(v));
        }
        all.extend(random((self.dim - self.width) * self.dim, &mut rng));
        self.clone().with(&orthonormal(all, 0, self.dim, &mut rng), self.dim)
    }

    /// All columns, for rows like those of a sample. `None` if the scale of the rows is out of range.
    pub(crate) fn of_columns<T: Compute>(sample: MatRef<'_, T>) -> Option<Self> {
        let dim = sample.cols();
        let n = sample.rows().max(1) as f64;
        let mut sums = vec![0.0; dim];
        for row in sample.iter() {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f64());
        }
        let mean: Vec<f32> = sums.iter().map(|sum| (sum / n) as f32).collect();
        let mut peaks = vec![0.0; dim];
        for row in sample.iter() {
            for ((peak, x), &m) in peaks.iter_mut().zip(row).zip(&mean) {
                let far = (x.to_f64() - f64::from(m)).abs();
                *peak = if far > *peak { far } else { *peak };
            }
        }
        let peak = peaks.into_iter().fold(0.0, f64::max);
        if !mean.iter().all(|m| m.is_finite()) || !(1e-30..1e30).contains(&peak) || dim > MOST {
            return None;
        }
        let factor = 2f64.powi(-(peak.log2().floor() as i32));
        let width = dim.next_multiple_of(COLUMNS);
        let rounding = 6.0 * UNIT;
        let mut new =
            Self { dim, width, mean, factor, directions: Directions::Columns, rounding, defect: 0.0 };
        if new.mixing_lowers_peaks(sample) {
            // One rounding per sum of two numbers that have passed the ones before, and two for the factor.
            let levels = (width / COLUMNS).ilog2();
            new.rounding += f64::from(levels + 2) * UNIT * 1.01;
            new.directions = Directions::Mixed;
        }
        Some(new)
    }

    /// Writes `g (x - mean)` and the squared lengths of these.
    pub(super) fn center<T: Compute>(&self, rows: MatRef<'_, T>, out: &mut [f32], squares: &mut [f32]) {
        operations::centered(active(), rows, &self.mean, self.factor, out, squares);
    }

    /// Whether the largest coordinates of some rows of the sample are much smaller if they are mixed.
    fn mixing_lowers_peaks<T: Compute>(&self, sample: MatRef<'_, T>) -> bool {
        let mut coordinates = vec![0.0; self.width];
        let (mut plain, mut mixed) = (0.0, 0.0);
        let peak = |values: &[f32]| values.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        for i in (0..sample.rows()).step_by(sample.rows().div_ceil(SKETCH_PEAKS)) {
            coordinates[self.dim..].fill(0.0);
            self.center(sample.slice(i, i + 1), &mut coordinates[..self.dim], &mut [0.0]);
            plain += peak(&coordinates);
            mix(&mut coordinates);
            mixed += peak(&coordinates);
        }
        mixed < SKETCH_GAIN * plain
    }

    /// The number of bytes of a sketch.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The scale, a power of two: lengths of sketches are lengths of rows times this factor.
    pub(crate) fn factor(&self) -> f64 {
        self.factor
    }

    /// The directions span all columns, so that no row has a part outside.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self.directions, Directions::Learned(_))
    }

    /// These directions, each a run of `dim` values. `None` if they are not orthonormal.
    fn with(mut self, directions: &[f64], count: usize) -> Option<Self> {
        let dim = self.dim;
        self.width = count.next_multiple_of(COLUMNS);
        let mut matrix = vec![0.0; dim * self.width];
        let rounded: Vec<f64> = directions.iter().map(|&v| f64::from(v as f32)).collect();
        for (j, direction) in rounded.chunks_exact(dim).enumerate() {
            for (t, &v) in direction.iter().enumerate() {
                matrix[t * self.width + j] = v as f32;
            }
        }
        self.defect = defect_of(&rounded, dim) * 1.001 + 1e-12;
        self.directions = Directions::Learned(matrix);
        // Two roundings per term without fused steps, one sum per chain, and those of the values of a row.
        let steps = 2.0 * dim.min(DEPTH) as f64 + (dim / DEPTH) as f64 + 10.0;
        self.rounding = steps * UNIT * (count as f64).sqrt() * 1.01;
        (self.defect < 1e-3).then_some(self)
    }
}

/// Replaces coordinates by sums and differences, whole vectors of 16 at a time, in blocks of a power of two of vectors:
/// an orthogonal map (of Walsh and Hadamard).
#[inline(always)]
pub(super) fn mix<V: Float>(coordinates: &mut [V]) {
    let (mut left, _) = coordinates.as_chunks_mut::<COLUMNS>();
    while !left.is_empty() {
        let size = 1 << left.len().ilog2();
        let (block, rest) = left.split_at_mut(size);
        let mut step = 1;
        // Two levels at a time, because each reads and writes all vectors.
        while 4 * step <= size {
            for four in block.chunks_exact_mut(4 * step) {
                let (ab, cd) = four.split_at_mut(2 * step);
                let ((a, b), (c, d)) = (ab.split_at_mut(step), cd.split_at_mut(step));
                for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                    for l in 0..COLUMNS {
                        let (sum, difference) = (a[l] + b[l], a[l] - b[l]);
                        let (other_sum, other_difference) = (c[l] + d[l], c[l] - d[l]);
                        (a[l], c[l]) = (sum + other_sum, sum - other_sum);
                        (b[l], d[l]) = (difference + other_difference, difference - other_difference);
                    }
                }
            }
            step *= 4;
        }
        if step < size {
            let (first, second) = block.split_at_mut(step);
            for (a, b) in first.iter_mut().zip(second) {
                for l in 0..COLUMNS {
                    (a[l], b[l]) = (a[l] + b[l], a[l] - b[l]);
                }
            }
        }
        let factor = V::from_f64(1.0 / (size as f64).sqrt());
        block.as_flattened_mut().iter_mut().for_each(|v| *v = *v * factor);
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sketch, Sketching, multiply};
    use super::*;

    fn columns(dim: usize) -> Basis {
        Basis::of_columns(MatRef::new(
            &vec![1.0f32; dim].into_iter().chain(vec![-1.0; dim]).collect::<Vec<_>>(),
            dim,
        ))
        .unwrap()
    }

    /// The defect is at least the distance of the products of the directions from those of orthonormal ones.
    #[test]
    fn the_defect_is_measured() {
        let mut rng = Rng::keyed(5, Purpose::Seeding, 0);
        for (dim, count) in [(96, 32), (300, 64), (200, 1)] {
            let directions = orthonormal(random(dim * count, &mut rng), 0, dim, &mut rng);
            let basis = columns(dim).with(&directions, count).unwrap();
            let Directions::Learned(matrix) = &basis.directions else { unreachable!() };
            let mut sum = 0.0;
            for (i, j) in (0..count).flat_map(|i| (0..count).map(move |j| (i, j))) {
                let product: f64 =
                    matrix.chunks_exact(basis.width).map(|row| f64::from(row[i]) * f64::from(row[j])).sum();
                sum += (product - f64::from(u8::from(i == j))).powi(2);
            }
            assert!(
                sum > 0.0 && sum.sqrt() <= basis.defect && basis.defect < 1e-5,
                "{} {}",
                sum.sqrt(),
                basis.defect
            );
        }
        let twice = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]].concat();
        assert!(columns(3).with(&twice, 2).is_none());
    }

    /// Sums of products whose terms are all rounded downward, and the number of roundings.
    #[test]
    fn the_rounding_of_products_is_covered() {
        for dim in [16, 128, 200] {
            let basis = columns(dim).with(&vec![1.0 / (dim as f64).sqrt(); dim], 1).unwrap();
            let Directions::Learned(matrix) = &basis.directions else { unreachable!() };
            let share = matrix[0];
            let (mut sum, mut exact) = (0.0f32, 0.0f64);
            let row: Vec<f32> = (0..dim)
                .map(|_| {
                    let lost = |x: f32| {
                        f64::from(sum) + f64::from(x) * f64::from(share) - f64::from(x.mul_add(share, sum))
                    };
                    let candidates = (0..40).map(|i| 1.0 + i as f32 * 1.7e-3);
                    let x = candidates.max_by(|&a, &b| lost(a).total_cmp(&lost(b))).unwrap();
                    sum = x.mul_add(share, sum);
                    exact += f64::from(x) * f64::from(share);
                    x
                })
                .collect();
            let mut found = vec![0.0; basis.width];
            multiply(&row, matrix, (dim, basis.width), &mut found);
            let length = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let off = (f64::from(found[0]) - exact).abs();
            assert!(off > 0.0 && off <= basis.rounding * length, "{dim}: {off} {}", basis.rounding * length);
        }
        // Two roundings per term and for each of 16 coordinates, and ten more.
        let mut rng = Rng::keyed(7, Purpose::Seeding, 0);
        for (dim, steps) in [(64, 138.0), (300, 268.0)] {
            let directions = orthonormal(random(dim * 16, &mut rng), 0, dim, &mut rng);
            let basis = columns(dim).with(&directions, 16).unwrap();
            assert!(basis.rounding >= steps * UNIT * 4.0, "{dim}: {}", basis.rounding);
        }
    }

    /// The learned directions, of the smallest width that suffices, hold most of the squared lengths of rows.
    #[test]
    fn learned_directions_hold_most_of_the_squared_lengths() {
        let (n, dim) = (600, 400);
        let mut rng = Rng::keyed(6, Purpose::Seeding, 0);
        for (rank, width) in [(20, 32), (50, 64), (100, 128), (240, 256)] {
            let mut rows = vec![0.0f32; n * dim];
            for row in rows.chunks_exact_mut(dim) {
                row.iter_mut().take(rank).for_each(|x| *x = rng.unit() as f32 - 0.5);
            }
            let rows = MatRef::new(&rows, dim);
            let basis = Basis::learn(rows, Executor::caller()).unwrap();
            assert_eq!((basis.width, basis.is_whole()), (width, false), "{rank}");
            let (mut codes, mut sketches) = (vec![0; n * width], vec![Sketch::default(); n]);
            Sketching::default().write(&basis, rows, &mut codes, &mut sketches);
            let outside: f64 = sketches.iter().map(|sketch| f64::from(sketch.rest).powi(2)).sum();
            let all: f64 = sketches.iter().map(|sketch| f64::from(sketch.square)).sum();
            assert!(outside <= (1.0 - SKETCH_ENERGY) * all, "{rank}: {outside} of {all}");
        }
    }
}
