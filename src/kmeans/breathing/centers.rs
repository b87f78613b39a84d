//! Which centers a breath adds and removes.

use crate::kernel::{self, Compute};
use crate::matrix::MatRef;
use crate::rng::Rng;

/// Up to `m` clusters with errors, the largest first, and the lower index first among equals.
pub(super) fn largest(errors: &[f64], m: usize) -> Vec<usize> {
    let mut largest: Vec<usize> = (0..errors.len()).filter(|&j| errors[j] > 0.0).collect();
    largest.sort_by(|&a, &b| errors[b].total_cmp(&errors[a]));
    largest.truncate(m);
    largest
}

/// Up to `m` different clusters, drawn with odds proportional to their errors.
pub(super) fn drawn(errors: &[f64], m: usize, rng: &mut Rng) -> Vec<usize> {
    let mut left: Vec<usize> = (0..errors.len()).filter(|&j| errors[j] > 0.0).collect();
    let mut drawn = Vec::new();
    while drawn.len() < m && !left.is_empty() {
        let mut rest = rng.unit() * left.iter().map(|&j| errors[j]).sum::<f64>();
        let past = left.iter().position(|&j| {
            rest -= errors[j];
            rest < 0.0
        });
        drawn.push(left.remove(past.unwrap_or(left.len() - 1)));
    }
    drawn
}

/// All centers, and a copy of each of those in `copied`, moved by `offset` in a random direction.
pub(super) fn with_copies<T: Compute>(
    centers: MatRef<'_, T>,
    copied: &[usize],
    offset: f64,
    rng: &mut Rng,
) -> Vec<T> {
    let mut all: Vec<T> = centers.iter().flatten().copied().collect();
    for &j in copied {
        let towards = direction(centers.cols(), rng);
        all.extend(centers.row(j).iter().zip(towards).map(|(&c, t)| {
            let moved = T::from_f64(c.to_f64() + offset * t);
            if moved.finite() { moved } else { c }
        }));
    }
    all
}

/// A random vector of length 1.
fn direction(dim: usize, rng: &mut Rng) -> Vec<f64> {
    let mut values: Vec<f64> = (0..dim).map(|_| 2.0 * rng.unit() - 1.0).collect();
    let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length > 0.0 {
        for v in &mut values {
            *v /= length;
        }
    } else {
        values[0] = 1.0;
    }
    values
}

/// Removes all but `k` centers, in ascending order of utility, the lower index first among equals. After each
/// removal the nearest center that is left may not be removed any more, as long as enough others can be.
///
/// Returns for each center a center that is left: itself, or one near it.
pub(super) fn without_useless<T: Compute>(centers: MatRef<'_, T>, utilities: &[f64], k: usize) -> Vec<usize> {
    let n = centers.rows();
    let mut ascending: Vec<usize> = (0..n).collect();
    ascending.sort_by(|&a, &b| utilities[a].total_cmp(&utilities[b]));
    let mut heirs: Vec<usize> = (0..n).collect();
    let mut frozen = vec![false; n];
    // Centers still to remove, and centers that may be removed.
    let (mut due, mut free) = (n - k, n);
    for j in ascending {
        if due == 0 {
            break;
        }
        if frozen[j] {
            continue;
        }
        (due, free) = (due - 1, free - 1);
        let left = (0..n).filter(|&i| i != j && heirs[i] == i);
        let measured = left.map(|i| (kernel::sq_dist(centers.row(j), centers.row(i)), i));
        let nearest = measured.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (_, heir) = nearest.expect("at least one center stays");
        heirs[j] = heir;
        if !frozen[heir] && free > due {
            frozen[heir] = true;
            free -= 1;
        }
    }
    // An heir that was not frozen may have been removed later.
    (0..n)
        .map(|j| {
            let mut heir = j;
            while heirs[heir] != heir {
                heir = heirs[heir];
            }
            heir
        })
        .collect()
}
