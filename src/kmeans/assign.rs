//! This module knows the passes that known centers make over rows: labels, distances, energies. Any source, constant memory beside the
//! result.

use super::params::Metric;
use crate::data::{DataSource, Normalized, count_rows, normalize_rows};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::solver::sweep::{Chunk, Wide, sweep};
use crate::tuning::{STRIP_ROWS, tile_rows};

/// Runs `f` on packed centers and the rows as the metric sees them.
fn with_metric<T: Compute, R>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    f: impl FnOnce(&PackedCenters<T>, &dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let d = data.dim();
    if centers.is_empty() || !centers.len().is_multiple_of(d) {
        return Err(Error::Shape(format!(
            "X has {d} columns, which {} values of centers do not fit",
            centers.len()
        )));
    }
    if let Some((row, column)) = MatRef::new(centers, d).first_not_finite() {
        let value = centers[row * d + column].to_string();
        return Err(Error::NotFinite { what: "centers", value, row: row as u64, column });
    }
    match metric {
        Metric::Euclidean => f(&PackedCenters::new(MatRef::new(centers, d)), data),
        Metric::Cosine => {
            let mut unit = centers.to_vec();
            // Those of a fit are on the unit sphere, as exactly as T can say it: moving them again would change labels.
            for center in unit.chunks_exact_mut(d) {
                let sq_norm: f64 = center.iter().map(|c| c.to_f64().powi(2)).sum();
                if (sq_norm - 1.0).abs() > 4.0 * T::EPSILON {
                    normalize_rows(center, d);
                }
            }
            f(&PackedCenters::new(MatRef::new(&unit, d)), &Normalized::new(data))
        }
    }
}

/// The nearest center of every row.
///
/// # Errors
/// As [`super::KMeansModel::predict`].
pub(crate) fn predict<T: Compute>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<u32>> {
    let mut labels = vec![0; count_rows(data)? as usize];
    with_metric(centers, metric, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>, labels: &mut [u32], (): &mut (), scratch: &mut Scratch<T>| {
            chunk.check_finite()?;
            kernel::nearest(chunk.rows, packed, labels, scratch);
            Ok(())
        };
        let tile = tile_rows(packed.n_centers());
        sweep(data, cx, tile, &mut labels[..], &mut (), (|| (), Scratch::default), absorb, |(), ()| ())
    })?;
    Ok(labels)
}

/// Weighted sum of squared distances of rows to the centers of `labels`, or to their nearest ones.
///
/// # Errors
/// As [`super::KMeansModel::predict`]; [`Error::Shape`] for labels that do not fit.
pub(crate) fn inertia<T: Compute>(
    centers: &[T],
    labels: Option<&[u32]>,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<f64> {
    let own;
    let labels = if let Some(labels) = labels {
        labels
    } else {
        own = predict(centers, metric, data, cx)?;
        &own
    };
    let (n, k) = (count_rows(data)?, centers.len() / data.dim());
    if labels.len() as u64 != n {
        return Err(Error::Shape(format!(
            "labels must hold one value for each of {n} rows, got {}",
            labels.len()
        )));
    }
    if let Some(row) = labels.iter().position(|&j| j as usize >= k) {
        return Err(Error::param(format!("labels must be below {k}, got {} at row {row}", labels[row])));
    }
    let mut total = 0.0;
    with_metric(centers, metric, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>, labels: &[u32], part: &mut f64, dists: &mut Vec<f64>| {
            dists.resize(labels.len(), 0.0);
            kernel::sq_dists(chunk.rows, labels, packed, dists);
            let sum: f64 = match chunk.weights {
                Some(weights) => dists.iter().zip(weights).map(|(d, w)| d * w).sum(),
                None => dists.iter().sum(),
            };
            *part += sum;
            if sum.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let merge = |total: &mut f64, part: &mut f64| *total += std::mem::take(part);
        sweep(data, cx, tile_rows(k), labels, &mut total, (|| 0.0, Vec::new), absorb, merge)
    })?;
    Ok(total)
}

/// Euclidean distances of every row to every center, a row of `n_clusters` values for each, into `out`.
///
/// # Errors
/// As [`super::KMeansModel::predict`].
///
/// # Panics
/// When `out` is not rows times centers long.
pub(crate) fn transform<T: Compute, U: Float>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    out: &mut [U],
    cx: &Executor,
) -> Result<()> {
    let k = centers.len() / data.dim().max(1);
    with_metric(centers, metric, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>,
                      out: Wide<'_, U>,
                      (): &mut (),
                      (scratch, dists): &mut (Scratch<T>, Vec<f64>)| {
            chunk.check_finite()?;
            // A few rows at a time: the distances in f64 stay in the cache.
            for start in (0..chunk.rows.rows()).step_by(STRIP_ROWS) {
                let rows = chunk.rows.slice(start, chunk.rows.rows().min(start + STRIP_ROWS));
                dists.resize(rows.rows() * k, 0.0);
                kernel::distances(rows, packed, dists, scratch);
                let out = &mut out.values[start * k..][..dists.len()];
                out.iter_mut().zip(&*dists).for_each(|(out, d)| *out = U::from_f64(d.sqrt()));
            }
            Ok(())
        };
        let make = (|| (), <(Scratch<T>, Vec<f64>)>::default);
        let state = Wide { values: out, width: k };
        sweep(data, cx, tile_rows(k), state, &mut (), make, absorb, |(), ()| ())
    })
}

/// The `m` nearest centers of every row, nearest first, and their squared distances: `m` of each a row.
///
/// # Errors
/// As [`super::KMeansModel::predict`]; [`Error::InvalidParam`] for an `m` that is not in `1..=k`.
pub(crate) fn nearest<T: Compute>(
    centers: &[T],
    m: usize,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<(Vec<u32>, Vec<f64>)> {
    let n = count_rows(data)? as usize;
    let k = centers.len() / data.dim().max(1);
    if m == 0 || m > k {
        return Err(Error::param(format!("n_nearest must be in 1..={k}, the number of centers, got {m}")));
    }
    let (mut labels, mut sq_dists) = (vec![0; n * m], vec![0.0; n * m]);
    with_metric(centers, metric, data, |packed, data| {
        let state =
            (Wide { values: &mut labels[..], width: m }, Wide { values: &mut sq_dists[..], width: m });
        let absorb = |chunk: Chunk<'_, T>,
                      (labels, dists): (Wide<'_, u32>, Wide<'_, f64>),
                      (): &mut (),
                      scratch: &mut Scratch<T>| {
            chunk.check_finite()?;
            if m == 1 {
                kernel::nearest(chunk.rows, packed, labels.values, scratch);
                kernel::sq_dists(chunk.rows, labels.values, packed, dists.values);
            } else {
                kernel::nearest_m(chunk.rows, packed, m, labels.values, dists.values, scratch);
            }
            Ok(())
        };
        sweep(data, cx, tile_rows(k), state, &mut (), (|| (), Scratch::default), absorb, |(), ()| ())
    })?;
    Ok((labels, sq_dists))
}
