//! Assigns rows to known centers: labels, distances and inertia in one pass, with constant memory beyond the
//! result.

use super::LabelsRef;
use crate::data::{DataSource, Normalized, count_rows};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, PerRow, TILE_ROWS, for_all_rows, gather};
use crate::stats::{ErrorSums, project};
use crate::tuning::STRIP_ROWS;

/// Returns an error unless `centers` are rows of `d` finite values.
pub(super) fn check_centers<T: Float>(centers: &[T], d: usize) -> Result<()> {
    if centers.is_empty() || !centers.len().is_multiple_of(d) {
        return Err(Error::Shape(format!(
            "centers must have {d} columns, the number of columns of `rows`, got {} values",
            centers.len()
        )));
    }
    if let Some((row, column)) = MatRef::new(centers, d).first_not_finite() {
        return Err(Error::not_finite("centers", centers[row * d + column], row as u64, column));
    }
    Ok(())
}

/// Packs the centers, applies the metric to centers and rows, and calls `f` with both.
pub(super) fn with_metric<T: Compute, R>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    f: impl FnOnce(&PackedCenters<T>, &dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let d = data.dim();
    check_centers(centers, d)?;
    let sparse = data.most_values().is_some();
    match metric {
        Metric::Euclidean => f(&PackedCenters::for_rows(MatRef::new(centers, d), sparse), data),
        Metric::Cosine => {
            let mut unit = centers.to_vec();
            project(&mut unit, d, metric);
            f(&PackedCenters::for_rows(MatRef::new(&unit, d), sparse), &Normalized::new(data))
        }
    }
}

/// The nearest center of every row.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`].
pub(crate) fn predict<T: Compute>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<u32>> {
    with_metric(centers, metric, data, |packed, data| {
        let fill = |chunk: &Chunk<'_, T>, labels: &mut [u32], _: &mut [()], scratch: &mut Scratch<T>| {
            chunk.check_finite()?;
            kernel::nearest(chunk.rows, packed, labels, scratch);
            Ok(())
        };
        Ok(for_all_rows("labels", data, cx, (TILE_ROWS, 1), Scratch::default, fill)?.0)
    })
}

/// Labels for every row, or none.
#[derive(Clone, Copy)]
struct Given<'a>(Option<LabelsRef<'a>>);

impl PerRow for Given<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        match self.0.map(|labels| labels.split(n)) {
            Some((mine, rest)) => (Self(Some(mine)), Self(Some(rest))),
            None => (self, self),
        }
    }
    fn rows(&self) -> Option<usize> {
        self.0.map(|labels| labels.len())
    }
}

/// Returns an error if a label is not below `k`.
pub(super) fn check_labels(labels: LabelsRef<'_>, k: usize) -> Result<()> {
    match labels.iter().position(|j| j as usize >= k) {
        None => Ok(()),
        Some(row) => {
            let found = format!("{} at row {row}", labels.get(row));
            Err(Error::param("labels", format!("below {k}"), found))
        }
    }
}

/// Weighted sum of squared distances of rows to the centers of `labels`, or to their nearest centers.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`], and [`Error::Shape`] if the number of labels is not the number of
/// rows.
pub(crate) fn inertia<T: Compute>(
    centers: &[T],
    labels: Option<LabelsRef<'_>>,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<f64> {
    Ok(errors(centers, labels, metric, data, cx)?.iter().sum())
}

/// The summands of [`inertia`]: per-cluster weighted sums of squared distances.
///
/// # Errors
/// Same as [`inertia`].
pub(crate) fn errors<T: Compute>(
    centers: &[T],
    labels: Option<LabelsRef<'_>>,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<f64>> {
    let k = centers.len() / data.dim().max(1);
    if let Some(labels) = labels {
        let n = count_rows(data)?;
        if labels.len() as u64 != n {
            return Err(Error::Shape(format!(
                "labels must hold one value for each of {n} rows, got {}",
                labels.len()
            )));
        }
        check_labels(labels, k)?;
    }
    let mut total = ErrorSums::new(k);
    with_metric(centers, metric, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>,
                      Given(labels): Given<'_>,
                      part: &mut ErrorSums,
                      (dists, found, scratch): &mut (Vec<f64>, Vec<u32>, Scratch<T>)| {
            let rows = chunk.rows.rows();
            dists.resize(rows, 0.0);
            let labels = if let Some(labels) = labels {
                labels.wide(found)
            } else {
                chunk.check_finite()?;
                found.resize(rows, 0);
                kernel::nearest(chunk.rows, packed, found, scratch);
                found
            };
            kernel::sq_dists(chunk.rows, labels, packed, dists);
            if part.absorb(dists, labels, chunk.weights) { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let make = (|| ErrorSums::new(k), <(Vec<f64>, Vec<u32>, Scratch<T>)>::default);
        gather(data, cx, Given(labels), &mut total, make, absorb, ErrorSums::merge)
    })?;
    total.into_values()
}

/// The nearest center of every row and the inertia: [`predict`] and [`inertia`] in one pass.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`].
pub(crate) fn label<T: Compute>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<(Vec<u32>, f64)> {
    let n = count_rows(data)?;
    let mut labels = Vec::new();
    make_room(&mut labels, "labels", n, 1)?;
    labels.resize(n as usize, 0);
    let k = centers.len() / data.dim().max(1);
    let mut total = ErrorSums::new(k);
    with_metric(centers, metric, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>,
                      labels: &mut [u32],
                      part: &mut ErrorSums,
                      (dists, scratch): &mut (Vec<f64>, Scratch<T>)| {
            dists.resize(labels.len(), 0.0);
            kernel::nearest(chunk.rows, packed, labels, scratch);
            kernel::sq_dists(chunk.rows, labels, packed, dists);
            if part.absorb(dists, labels, chunk.weights) { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let make = (|| ErrorSums::new(k), <(Vec<f64>, Scratch<T>)>::default);
        gather(data, cx, &mut labels[..], &mut total, make, absorb, ErrorSums::merge)
    })?;
    Ok((labels, total.into_values()?.iter().sum()))
}

/// Euclidean distances of every row to every center, `n_clusters` values per row.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`].
pub(crate) fn transform<T: Compute, U: Float>(
    centers: &[T],
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<U>> {
    with_metric(centers, metric, data, |packed, data| {
        let k = packed.n_centers();
        let fill = |chunk: &Chunk<'_, T>,
                    out: &mut [U],
                    _: &mut [()],
                    (scratch, dists): &mut (Scratch<T>, Vec<f64>)| {
            chunk.check_finite()?;
            // Strips of rows keep the f64 distances in the cache.
            for start in (0..chunk.rows.rows()).step_by(STRIP_ROWS) {
                let rows = chunk.rows.slice(start, chunk.rows.rows().min(start + STRIP_ROWS));
                dists.resize(rows.rows() * k, 0.0);
                kernel::lengths(rows, packed, dists, scratch);
                let out = &mut out[start * k..][..dists.len()];
                out.iter_mut().zip(&*dists).for_each(|(out, d)| *out = U::from_f64(*d));
            }
            Ok(())
        };
        let make = <(Scratch<T>, Vec<f64>)>::default;
        Ok(for_all_rows("distances to all centers", data, cx, (TILE_ROWS, k), make, fill)?.0)
    })
}

/// Returns an error unless `m` of `k` centers can be found.
pub(super) fn check_count(m: usize, k: usize) -> Result<()> {
    if m == 0 || m > k {
        return Err(Error::param("n_nearest", format!("in 1..={k}, the number of centers"), m));
    }
    Ok(())
}

/// The `m` nearest centers of every row, nearest first, and their squared distances, `m` of each per row.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`], and [`Error::InvalidParam`] if `m` is not in `1..=k`.
pub(crate) fn nearest<T: Compute>(
    centers: &[T],
    m: usize,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<(Vec<u32>, Vec<f64>)> {
    check_count(m, centers.len() / data.dim().max(1))?;
    with_metric(centers, metric, data, |packed, data| {
        let fill = |chunk: &Chunk<'_, T>, labels: &mut [u32], dists: &mut [f64], scratch: &mut Scratch<T>| {
            chunk.check_finite()?;
            if m == 1 {
                kernel::nearest(chunk.rows, packed, labels, scratch);
                kernel::sq_dists(chunk.rows, labels, packed, dists);
            } else {
                kernel::nearest_m(chunk.rows, packed, m, labels, dists, scratch);
            }
            Ok(())
        };
        for_all_rows("nearest centers", data, cx, (TILE_ROWS, m), Scratch::default, fill)
    })
}
