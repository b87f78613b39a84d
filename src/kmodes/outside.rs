//! This module knows the responsibilities of rows that were not in the fit, through their neighbours that were.

use super::exponent::Exponent;
use super::modes::{Gauss, nearness};
use crate::data::{DataSource, count_rows};
use crate::error::{Error, Result};
use crate::graph::nearest_rows;
use crate::matrix::make_room;
use crate::parallel::Executor;

/// What a fit knows that others ask it for: its rows, as it has seen them, and what it found.
pub(crate) struct Known<'a, T> {
    pub(crate) rows: &'a dyn DataSource<T>,
    pub(crate) modes: &'a [T],
    pub(crate) responsibilities: &'a [T],
    pub(crate) n_neighbors: usize,
    pub(crate) bandwidth: f64,
    pub(crate) lambda: f64,
}

/// `softmax(k(x, m) + lambda sum_q z_q)` over the nearest rows `q` of the fit, for each of other rows.
///
/// # Errors
/// Those of the sources; [`Error::Shape`] for responsibilities of another number of rows.
pub(crate) fn responsibilities<T: Exponent>(
    rows: &dyn DataSource<T>,
    known: &Known<'_, T>,
    cx: &Executor,
) -> Result<Vec<T>> {
    let k = known.modes.len() / rows.dim();
    let (n, fitted) = (count_rows(rows)?, count_rows(known.rows)?);
    if known.responsibilities.len() as u64 != fitted * k as u64 || known.n_neighbors as u64 > fitted {
        return Err(Error::Shape(format!(
            "the fit was of other rows than the {fitted} that are given for it"
        )));
    }
    let mut z = Vec::new();
    make_room(&mut z, "responsibilities", n, k)?;
    z.resize(n as usize * k, T::ZERO);
    let (found, _) = nearest_rows(rows, known.rows, known.n_neighbors, cx)?;
    nearness(rows, known.modes, Gauss::new(known.bandwidth * known.bandwidth), &mut z, cx)?;
    let lambda = T::from_f64(known.lambda);
    for (z, found) in z.chunks_exact_mut(k).zip(found.chunks_exact(known.n_neighbors)) {
        for &q in found {
            let other = &known.responsibilities[q as usize * k..][..k];
            z.iter_mut().zip(other).for_each(|(z, &other)| *z = *z + lambda * other);
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
    Ok(z)
}
