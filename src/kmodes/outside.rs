//! Responsibilities of rows that were not in the fit, from their neighbors in the fit.

use super::modes::{Gauss, nearness};
use super::shares::Shares;
use crate::data::{DataSource, count_rows};
use crate::error::{Error, Result};
use crate::graph::nearest_rows;
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::tuning::STRIP_ROWS;

/// The weight of a neighbor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NeighborWeight {
    /// The kernel value.
    Kernel,
    /// A constant per neighbor: the mean degree of the affinity divided by the number of neighbors, so that
    /// new rows are pulled as strongly as those of the fit.
    Each(f64),
}

impl NeighborWeight {
    /// The constant for an affinity of `n` rows with `m` neighbors each, whose weights sum to `sum`.
    pub(super) fn mean(sum: f64, n: usize, m: usize) -> Self {
        Self::Each(sum / (n.max(1) * m) as f64)
    }
}

/// The parts of a fit that prediction needs; `rows` are the rows as the fit saw them.
pub(crate) struct FittedRows<'a, T> {
    pub(crate) rows: &'a dyn DataSource<T>,
    pub(crate) modes: &'a [T],
    pub(crate) responsibilities: &'a Shares<T>,
    pub(crate) n_neighbors: usize,
    pub(crate) pull: NeighborWeight,
    pub(crate) bandwidth: f64,
    pub(crate) lambda: f64,
}

/// `softmax(k(x, m) + lambda sum_q w_q z_q)` for every row, where `q` are the nearest rows of the fit.
///
/// # Errors
/// [`Error::Shape`] if the responsibilities have another number of rows. Errors of the sources.
pub(crate) fn responsibilities<T: Compute>(
    rows: &dyn DataSource<T>,
    known: &FittedRows<'_, T>,
    cx: &Executor,
) -> Result<Vec<T>> {
    let (k, m) = (known.modes.len() / rows.dim(), known.n_neighbors);
    let (n, fitted) = (count_rows(rows)?, count_rows(known.rows)?);
    if known.responsibilities.n_rows() as u64 != fitted || m as u64 > fitted {
        return Err(Error::Shape(format!(
            "the rows of the fit must be passed, got {fitted} rows that do not match the model"
        )));
    }
    let gauss = Gauss::new(known.bandwidth * known.bandwidth);
    let mut z = Vec::new();
    make_room(&mut z, "responsibilities", n, k)?;
    z.resize(n as usize * k, T::ZERO);
    let (found, sq_dists) = nearest_rows(rows, known.rows, m, cx)?;
    nearness(rows, known.modes, gauss, &mut z, cx)?;
    let neighbors = found.chunks(STRIP_ROWS * m).zip(sq_dists.chunks(STRIP_ROWS * m));
    cx.for_each(
        z.chunks_mut(STRIP_ROWS * k).zip(neighbors),
        || (),
        |(z, (found, sq_dists)), ()| {
            let neighbors = found.chunks_exact(m).zip(sq_dists.chunks_exact(m));
            for (z, (found, sq_dists)) in z.chunks_exact_mut(k).zip(neighbors) {
                for (&q, &sq_dist) in found.iter().zip(sq_dists) {
                    let weight = match known.pull {
                        NeighborWeight::Kernel => gauss.of(sq_dist),
                        NeighborWeight::Each(weight) => weight,
                    };
                    known.responsibilities.add(q as usize, T::from_f64(known.lambda * weight), z);
                }
                let most = z.iter().fold(z[0], |most, &x| if x > most { x } else { most });
                for x in &mut *z {
                    *x = *x - most;
                }
                T::exp_all(z);
                let share = T::from_f64(1.0 / z.iter().map(|x| x.to_f64()).sum::<f64>());
                for x in z {
                    *x = *x * share;
                }
            }
            Ok(())
        },
    )?;
    Ok(z)
}
