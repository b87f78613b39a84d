//! Centers that move step by step, stored in `f64` as a mean plus an offset.

use crate::float::Float;

/// Centers `B + g e`. A pull toward the mean only changes the factor `g`, for any number of columns.
#[derive(Debug)]
pub(super) struct Moving {
    dim: usize,
    /// Factor from lengths in the data to the lengths returned here.
    unit: f64,
    /// The means `B` at the start of the epoch.
    means: Vec<f64>,
    /// The offset `e` per center, and its factor `g`.
    apart: Vec<f64>,
    share: Vec<f64>,
    /// An upper bound on the length of each `e`.
    length: Vec<f64>,
}

/// Covers the rounding of a sum of squares and its root.
const MORE: f64 = 1.0 + 1e-9;

impl Moving {
    /// Centers at these means. Returned lengths are multiplied by `unit`.
    pub(super) fn new(means: Vec<f64>, dim: usize, unit: f64) -> Self {
        let k = means.len() / dim;
        Self { dim, unit, apart: vec![0.0; means.len()], means, share: vec![1.0; k], length: vec![0.0; k] }
    }

    pub(super) fn len(&self) -> usize {
        self.share.len()
    }

    pub(super) fn mean(&self, j: usize) -> &[f64] {
        &self.means[j * self.dim..][..self.dim]
    }

    /// An upper bound on the distance of center `j` from its mean.
    pub(super) fn apart(&self, j: usize) -> f64 {
        self.share[j] * self.length[j]
    }

    /// Writes center `j`, rounded to `T`.
    pub(super) fn write<T: Float>(&self, j: usize, out: &mut [T]) {
        let (share, apart) = (self.share[j], &self.apart[j * self.dim..]);
        for ((out, &mean), &e) in out.iter_mut().zip(self.mean(j)).zip(apart) {
            *out = T::from_f64(mean + share * e);
        }
    }

    /// `c_j += rate (B_j - c_j)`. Returns an upper bound on the length of the move.
    pub(super) fn pull(&mut self, j: usize, rate: f64) -> f64 {
        let moved = rate * self.apart(j) * MORE;
        self.share[j] *= 1.0 - rate;
        moved
    }

    /// `c_j += rate (x - c_j)`. Returns an upper bound on the length of the move.
    pub(super) fn attract(&mut self, j: usize, x: &[f64], rate: f64) -> f64 {
        let row = j * self.dim..(j + 1) * self.dim;
        let share = std::mem::replace(&mut self.share[j], 1.0);
        let (mut moved, mut length) = (0.0, 0.0);
        for ((e, mean), x) in self.apart[row.clone()].iter_mut().zip(&self.means[row]).zip(x) {
            let apart = share * *e;
            let step = rate * (x - (mean + apart));
            *e = apart + step;
            moved += (step * self.unit).powi(2);
            length += (*e * self.unit).powi(2);
        }
        self.length[j] = length.sqrt() * MORE;
        moved.sqrt() * MORE
    }

    /// `c_j += rate (B_j - x)`. Returns an upper bound on the length of the move.
    pub(super) fn push(&mut self, j: usize, x: &[f64], rate: f64) -> f64 {
        let row = j * self.dim..(j + 1) * self.dim;
        let share = std::mem::replace(&mut self.share[j], 1.0);
        let (mut moved, mut length) = (0.0, 0.0);
        for ((e, mean), x) in self.apart[row.clone()].iter_mut().zip(&self.means[row]).zip(x) {
            let step = rate * (mean - x);
            *e = share * *e + step;
            moved += (step * self.unit).powi(2);
            length += (*e * self.unit).powi(2);
        }
        self.length[j] = length.sqrt() * MORE;
        moved.sqrt() * MORE
    }

    /// `c_j -= rate gradient_j` for all centers; the gradients have these `lengths`.
    pub(super) fn descend(&mut self, gradient: &[f64], lengths: &[f64], rate: f64) {
        let rows = self.apart.chunks_exact_mut(self.dim).zip(gradient.chunks_exact(self.dim));
        for (j, (apart, gradient)) in rows.enumerate() {
            let share = std::mem::replace(&mut self.share[j], 1.0);
            apart.iter_mut().zip(gradient).for_each(|(e, g)| *e = share * *e - rate * g);
            self.length[j] = (share * self.length[j] + rate * lengths[j]) * MORE;
        }
    }
}
