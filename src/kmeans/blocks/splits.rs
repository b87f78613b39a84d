//! A complete binary tree of splits, made from a sample of rows. Finding the place of a row takes one
//! comparison per level.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number goes to the left")]
#![allow(clippy::needless_range_loop, reason = "loops over several arrays")]

use crate::float::Float;

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
        new.split(sample, dim, &mut rows, 0);
        new
    }

    fn split(&mut self, sample: &[T], dim: usize, rows: &mut [u32], at: usize) {
        if at >= self.splits.len() || rows.len() < 2 {
            return;
        }
        let row = |i: u32| &sample[i as usize * dim..][..dim];
        let (mut low, mut high) = (row(rows[0]).to_vec(), row(rows[0]).to_vec());
        for &i in &rows[1..] {
            let row = row(i);
            for t in 0..dim {
                low[t] = if row[t] < low[t] { row[t] } else { low[t] };
                high[t] = if row[t] > high[t] { row[t] } else { high[t] };
            }
        }
        let (mut column, mut widest) = (0, T::ZERO);
        for (t, (&low, &high)) in low.iter().zip(&high).enumerate() {
            if high - low > widest {
                (column, widest) = (t, high - low);
            }
        }
        let value = |i: u32| sample[i as usize * dim + column];
        let middle = rows.len() / 2;
        rows.select_nth_unstable_by(middle, |&a, &b| value(a).to_f64().total_cmp(&value(b).to_f64()));
        let mut split = value(rows[middle]);
        if split <= low[column] {
            // At least half of the rows have the smallest value: they go to the left.
            let above = rows.iter().map(|&i| value(i)).filter(|&x| x > low[column]);
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
        self.split(sample, dim, left, 2 * at + 1);
        self.split(sample, dim, right, 2 * at + 2);
    }

    /// The number of places.
    pub(super) fn places(&self) -> usize {
        self.splits.len() + 1
    }

    /// The place where a row belongs.
    #[inline]
    pub(super) fn place(&self, row: &[T]) -> usize {
        let mut at = 0;
        for _ in 0..self.levels {
            let (column, value) = self.splits[at];
            at = 2 * at + 1 + usize::from(row[column as usize] >= value);
        }
        at - self.splits.len()
    }
}
