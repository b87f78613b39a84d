//! What sketches of rows tell about exact centers, where reading a row costs much.
//!
//! Lengths are in the units of sketches.

use crate::kernel::Compute;
use crate::kernel::sketched::{Basis, SketchedRow, Vectors};

/// Relative rounding of sums in `f64`, with room to spare.
const ROUNDING: f64 = 1e-11;

/// Exact centers, and how they moved since the last sweep.
#[derive(Clone, Debug)]
pub(super) struct Exact {
    centers: Vectors,
    /// Squared lengths.
    squares: Vec<f64>,
    moves: Vectors,
    /// By how much the squared lengths grew, and a limit of the rounding.
    growths: Vec<(f64, f64)>,
}

impl Exact {
    /// For `k` centers.
    pub(super) fn new(basis: &Basis, k: usize) -> Self {
        let none = Vectors::new(basis, k);
        Self { centers: none.clone(), squares: vec![0.0; k], moves: none, growths: vec![(0.0, 0.0); k] }
    }

    /// Sets a center.
    pub(super) fn place<T: Compute>(&mut self, basis: &Basis, j: usize, center: &[T]) {
        let moved: Vec<f64> = center
            .iter()
            .zip(basis.mean())
            .map(|(c, &m)| (c.to_f64() - f64::from(m)) * basis.factor())
            .collect();
        self.squares[j] = moved.iter().map(|v| v * v).sum();
        self.centers.set(basis, j, &moved);
    }

    /// Notes the move of a center.
    pub(super) fn follow<T: Compute>(&mut self, basis: &Basis, j: usize, old: &[T], new: &[T]) {
        let factor = basis.factor();
        let (mut growth, mut terms) = (0.0, 0.0);
        let path: Vec<f64> = (old.iter().zip(new).zip(basis.mean()))
            .map(|((old, new), &m)| {
                let (old, new, m) = (old.to_f64(), new.to_f64(), f64::from(m));
                let (path, sum) = ((new - old) * factor, ((new - m) + (old - m)) * factor);
                growth += path * sum;
                terms += path.abs() * (((new - m).abs() + (old - m).abs()) * factor);
                path
            })
            .collect();
        self.growths[j] = (growth, ROUNDING * terms);
        self.moves.set(basis, j, &path);
    }

    /// Forgets the moves, which all bounds have followed.
    pub(super) fn settle(&mut self) {
        self.moves.clear();
        self.growths.fill((0.0, 0.0));
    }

    /// Limits of how much the squared distance of a row to a center grew.
    pub(super) fn growth(&self, row: SketchedRow<'_>, j: u32) -> (f64, f64) {
        let (product, error) = self.moves.product(row, j as usize);
        let (growth, rounding) = self.growths[j as usize];
        let (growth, error) = (growth - 2.0 * product, 2.0 * error + rounding);
        (growth - error, growth + error)
    }

    /// The squared distance of a row to a center, less the squared length of the row, as its sketch estimates it.
    pub(super) fn estimate(&self, row: SketchedRow<'_>, j: u32) -> f64 {
        self.squares[j as usize] - 2.0 * self.centers.value(row, j as usize)
    }

    /// Whether a row, at most `upper` from the center `near`, is certainly farther from the center `other`, which is
    /// at most `apart` from `near`. The estimates of `other` and `near` differ by `more`.
    pub(super) fn is_farther(
        &self,
        row: SketchedRow<'_>,
        (other, near, apart): (u32, u32, f32),
        (more, upper): (f64, f32),
    ) -> bool {
        let (near, other) = (near as usize, other as usize);
        let error = self.centers.error_of_difference(row, (other, near), f64::from(apart));
        let rounding = ROUNDING * (self.squares[near] + self.squares[other]);
        more > 2.0 * error + rounding + 1e-8 * f64::from(upper) * f64::from(upper)
    }
}
