//! A complete binary tree of splits, made from a sample of rows. Finding the place of a row takes one
//! comparison per level.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number goes to the left")]

use crate::float::Float;
use crate::matrix::MatRef;

/// Rows that take the way through the splits together, so that their comparisons do not wait for each other.
const TOGETHER: usize = 16;

/// Buffers for the split of a place.
#[derive(Default)]
struct Buffers<T> {
    /// The range of the rows per column.
    low: Vec<T>,
    high: Vec<T>,
    /// The values of the rows in the widest column.
    values: Vec<T>,
}

/// Splits in heap order: the children of split `i` are `2 i + 1` and `2 i + 2`.
#[derive(Debug)]
pub(super) struct Splits<T> {
    levels: u32,
    /// The column and the value per split. Rows with at least this value go to the right.
    splits: Vec<(u32, T)>,
}

impl<T: Float> Splits<T> {
    /// `levels` levels of splits, each at the median of the sample's rows in their widest column. `sample` holds
    /// rows of `dim` columns.
    pub(super) fn of(sample: &[T], dim: usize, levels: u32) -> Self {
        let splits = (1usize << levels) - 1;
        let mut new = Self { levels, splits: vec![(0, T::INFINITY); splits] };
        let mut rows: Vec<u32> = (0..(sample.len() / dim) as u32).collect();
        new.split(sample, dim, &mut rows, 0, &mut Buffers::default());
        new
    }

    fn split(&mut self, sample: &[T], dim: usize, rows: &mut [u32], at: usize, buffers: &mut Buffers<T>) {
        if at >= self.splits.len() || rows.len() < 2 {
            return;
        }
        let Buffers { low, high, values } = buffers;
        let row = |i: u32| &sample[i as usize * dim..][..dim];
        low.clear();
        low.extend_from_slice(row(rows[0]));
        high.clone_from(low);
        for &i in &rows[1..] {
            for ((&x, low), high) in row(i).iter().zip(&mut *low).zip(&mut *high) {
                *low = if x < *low { x } else { *low };
                *high = if x > *high { x } else { *high };
            }
        }
        let (mut column, mut widest) = (0, T::ZERO);
        for (t, (&low, &high)) in low.iter().zip(&*high).enumerate() {
            if high - low > widest {
                (column, widest) = (t, high - low);
            }
        }
        let value = |i: u32| sample[i as usize * dim + column];
        values.clear();
        values.extend(rows.iter().map(|&i| value(i)));
        let middle = rows.len() / 2;
        let (_, &mut mut split, _) =
            values.select_nth_unstable_by(middle, |a, b| a.to_f64().total_cmp(&b.to_f64()));
        if split <= low[column] {
            // At least half of the rows have the smallest value: they go to the left.
            let above = values.iter().copied().filter(|&x| x > low[column]);
            split = above.fold(T::INFINITY, |least, x| if x < least { x } else { least });
        }
        self.splits[at] = (column as u32, split);
        let mut left = 0;
        for i in 0..rows.len() {
            // As in `place`: what is not a number goes to the left.
            if !(value(rows[i]) >= split) {
                rows.swap(i, left);
                left += 1;
            }
        }
        let (left, right) = rows.split_at_mut(left);
        self.split(sample, dim, left, 2 * at + 1, buffers);
        self.split(sample, dim, right, 2 * at + 2, buffers);
    }

    /// The number of places.
    pub(super) fn places(&self) -> usize {
        self.splits.len() + 1
    }

    /// Writes the places where rows belong.
    pub(super) fn place(&self, rows: MatRef<'_, T>, to: &mut [u32]) {
        for (first, to) in (0..).step_by(TOGETHER).zip(to.chunks_mut(TOGETHER)) {
            to.fill(0);
            for _ in 0..self.levels {
                for (r, at) in (first..).zip(&mut *to) {
                    let (column, value) = self.splits[*at as usize];
                    *at = 2 * *at + 1 + u32::from(rows.row(r)[column as usize] >= value);
                }
            }
            for at in to {
                *at -= self.splits.len() as u32;
            }
        }
    }
}
