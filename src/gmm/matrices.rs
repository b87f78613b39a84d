//! Small symmetric matrices, row by row, and systems that their Cholesky factors solve.

/// Largest difference of two values that should be equal, relative to the largest value. Matrices computed in
/// `f32` are symmetric up to rounding.
const ASYMMETRY: f64 = 1e-5;

/// The Cholesky factor of a symmetric positive definite matrix, given and returned as its lower triangle in
/// `n` rows.
pub(super) fn cholesky(matrix: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let (before, row) = matrix.split_at_mut(i * n);
            let of_j = if i == j { &row[..j] } else { &before[j * n..][..j] };
            let inner: f64 = row[..j].iter().zip(of_j).map(|(a, b)| a * b).sum();
            let rest = row[j] - inner;
            row[j] = if i == j { rest.sqrt() } else { rest / before[j * n + j] };
        }
    }
}

/// Replaces the `n` rows of `rows`, of `dim` values, by the product of the inverse of a Cholesky factor with them.
pub(super) fn solve(lower: &[f64], n: usize, rows: &mut [f64], dim: usize) {
    for h in 0..n {
        let (before, row) = rows.split_at_mut(h * dim);
        for (g, other) in before.chunks_exact(dim).enumerate() {
            subtract(lower[h * n + g], other, &mut row[..dim]);
        }
        let inverse = 1.0 / lower[h * n + h];
        row[..dim].iter_mut().for_each(|x| *x *= inverse);
    }
}

/// As [`solve`], with the transposed factor.
pub(super) fn solve_transposed(lower: &[f64], n: usize, rows: &mut [f64], dim: usize) {
    for h in (0..n).rev() {
        let (before, after) = rows.split_at_mut((h + 1) * dim);
        let row = &mut before[h * dim..];
        for (g, other) in after.chunks_exact(dim).enumerate() {
            subtract(lower[(h + 1 + g) * n + h], other, row);
        }
        let inverse = 1.0 / lower[h * n + h];
        for x in row {
            *x *= inverse;
        }
    }
}

/// `row -= factor * other`.
pub(super) fn subtract(factor: f64, other: &[f64], row: &mut [f64]) {
    row.iter_mut().zip(other).for_each(|(x, y)| *x -= factor * y);
}

/// The unit matrix times a number.
pub(super) fn diagonal(n: usize, value: f64) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    out.iter_mut().step_by(n + 1).for_each(|x| *x = value);
    out
}

/// The inverse of a symmetric positive definite matrix of `n` rows.
pub(super) fn inverse(matrix: &[f64], n: usize) -> Vec<f64> {
    let (mut root, mut out) = (matrix.to_vec(), diagonal(n, 1.0));
    cholesky(&mut root, n);
    solve(&root, n, &mut out, n);
    solve_transposed(&root, n, &mut out, n);
    symmetrize(&mut out, n);
    out
}

/// Whether a matrix of `n` rows is symmetric and positive definite.
pub(super) fn is_positive_definite(matrix: &[f64], n: usize) -> bool {
    let largest = matrix.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let symmetric =
        (0..n).all(|i| (0..i).all(|j| (matrix[i * n + j] - matrix[j * n + i]).abs() <= ASYMMETRY * largest));
    let mut root = matrix.to_vec();
    cholesky(&mut root, n);
    symmetric
        && matrix.iter().all(|x| x.is_finite())
        && root.iter().step_by(n + 1).all(|x| x.is_normal() && *x > 0.0)
}

/// The diagonal of a matrix of `n` rows.
pub(super) fn diagonal_of(matrix: &[f64], n: usize) -> Vec<f64> {
    matrix.iter().step_by(n + 1).copied().collect()
}

/// Replaces a matrix of `n` rows by the mean of it and its transpose.
pub(super) fn symmetrize(matrix: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..i {
            let mean = 0.5 * (matrix[i * n + j] + matrix[j * n + i]);
            (matrix[i * n + j], matrix[j * n + i]) = (mean, mean);
        }
    }
}

/// `matrix += factor * v v'`.
pub(super) fn add_outer(matrix: &mut [f64], factor: f64, v: &[f64]) {
    for (row, x) in matrix.chunks_exact_mut(v.len()).zip(v) {
        row.iter_mut().zip(v).for_each(|(sum, y)| *sum += factor * x * y);
    }
}
