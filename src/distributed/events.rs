//! The sums of the passes of a coreset: sums of the rows, then the rows on which events fall.

use super::errors::of_others;
use super::sums::Sums;
use crate::error::Result;
use crate::fit::{Typed, either};
use crate::kernel::Compute;
use crate::kmeans::{keep_sums, sums_of};
use crate::persist::kept::{keep, keep_rows, kept_rows, list};
use crate::persist::{Array, Contents};
use crate::stats::{ClusterSums, Coreset, Moments};

/// The sums of the rows about a point, as one cluster.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// `None` without rows.
    pub(super) totals: Option<ClusterSums>,
    /// Whether the rows are computed as `f64`.
    pub(super) wide: bool,
}

impl Sums for Measured {
    const KIND: &'static str = "measured";

    fn add(&mut self, next: Self) -> Result<()> {
        match (&mut self.totals, next.totals) {
            (_, None) => {}
            (none @ None, more) => (*none, self.wide) = (more, next.wide),
            (Some(totals), Some(mut more)) => {
                if totals.shape() != more.shape() || self.wide != next.wide {
                    return Err(of_others());
                }
                totals.merge(&mut more);
            }
        }
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "wide", Array::new(&[1], &[u8::from(self.wide)]));
        if let Some(totals) = &self.totals {
            keep_sums(contents, "totals", totals);
        }
    }

    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String> {
        let wide = contents.values::<u8>("wide", &[1])?[0] != 0;
        Ok(Self { totals: sums_of(contents, "totals", 1, dim)?, wide })
    }

    fn fits(&self, rows: u64, dim: usize) -> bool {
        self.totals.is_some() == (rows > 0 && dim > 0)
    }
}

pub(super) fn put_moments(contents: &mut Contents, moments: &Moments) {
    keep(contents, "rows", Array::new(&[1], &[moments.rows()]));
    keep(contents, "mean", Array::new(&[moments.mean().len()], moments.mean()));
    keep(contents, "totals", Array::new(&[2], &[moments.weight(), moments.spread()]));
}

pub(super) fn moments_of(contents: &Contents) -> Result<Moments, String> {
    let rows = contents.values::<u64>("rows", &[1])?[0];
    let mean: Vec<f64> = list(contents, "mean")?;
    let totals = contents.values::<f64>("totals", &[2])?;
    let fits = totals.iter().all(|x| x.is_finite() && *x >= 0.0) && mean.iter().all(|x| x.is_finite());
    if fits && !mean.is_empty() && rows <= 1 << 62 {
        Ok(Moments::of_parts(rows, totals[0], mean, totals[1]))
    } else {
        Err("its moments are damaged".into())
    }
}

/// A coreset, or a part of one, in either compute type.
pub(super) type AnyCoreset = Typed<Coreset<f32>, Coreset<f64>>;

/// The rows on which events fell, with their odds, or all rows with their weights; in any order, with their numbers among
/// all rows. `None` without rows.
#[derive(Clone, Debug)]
pub(super) struct Events(pub(super) Option<AnyCoreset>);

impl Events {
    /// Number of rows here.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |rows| either!(rows, rows => rows.rows.len()))
    }

    /// The rows in the order of their numbers, of `n` rows.
    ///
    /// # Errors
    /// If there are none, or if a number is too large: then they are those of other rows.
    pub(super) fn in_order(self, n: u64) -> Result<AnyCoreset> {
        fn ordered<T: Compute>(rows: &Coreset<T>, n: u64) -> Result<Coreset<T>> {
            let mut order: Vec<usize> = (0..rows.rows.len()).collect();
            order.sort_by_key(|&i| rows.rows[i]);
            if order.last().is_none_or(|&last| rows.rows[last] >= n) {
                return Err(of_others());
            }
            let mut sorted = Coreset::new(rows.points.cols());
            for i in order {
                sorted.push(rows.points.rows(), i, rows.weights[i], rows.rows[i]);
            }
            Ok(sorted)
        }
        Ok(match self.0.ok_or_else(of_others)? {
            Typed::F32(rows) => Typed::F32(ordered(&rows, n)?),
            Typed::F64(rows) => Typed::F64(ordered(&rows, n)?),
        })
    }
}

impl Sums for Events {
    const KIND: &'static str = "events";

    fn add(&mut self, next: Self) -> Result<()> {
        match (&mut self.0, next.0) {
            (_, None) => {}
            (none @ None, rows) => *none = rows,
            (Some(Typed::F32(rows)), Some(Typed::F32(more))) => join(rows, &more)?,
            (Some(Typed::F64(rows)), Some(Typed::F64(more))) => join(rows, &more)?,
            _ => return Err(of_others()),
        }
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "any", Array::new(&[1], &[u8::from(self.0.is_some())]));
        put_coreset(contents, self.0.as_ref());
    }

    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String> {
        let known = contents.values::<u8>("any", &[1])?[0] != 0;
        Ok(Self(known.then(|| coreset_of(contents, dim)).transpose()?))
    }

    fn fits(&self, rows: u64, _: usize) -> bool {
        rows > 0 || self.len() == 0
    }
}

/// Adds the rows of another part.
fn join<T: Compute>(rows: &mut Coreset<T>, more: &Coreset<T>) -> Result<()> {
    if rows.points.cols() != more.points.cols() || rows.points.is_sparse() != more.points.is_sparse() {
        // A part without rows does not know whether its rows would be sparse.
        if rows.rows.is_empty() {
            rows.clone_from(more);
            return Ok(());
        }
        return if more.rows.is_empty() { Ok(()) } else { Err(of_others()) };
    }
    rows.extend(more);
    Ok(())
}

/// Writes a coreset, if there is one.
pub(super) fn put_coreset(contents: &mut Contents, coreset: Option<&AnyCoreset>) {
    fn put<T: Compute>(contents: &mut Contents, coreset: &Coreset<T>) {
        let n = coreset.rows.len();
        keep_rows(contents, "points", &coreset.points);
        keep(contents, "point_weights", Array::new(&[n], &coreset.weights));
        keep(contents, "numbers", Array::new(&[n], &coreset.rows));
    }
    if let Some(coreset) = coreset {
        either!(coreset, coreset => put(contents, coreset));
    }
}

/// Reads what [`put_coreset`] wrote, of rows of `dim` values.
pub(super) fn coreset_of(contents: &Contents, dim: usize) -> Result<AnyCoreset, String> {
    fn typed<T: Compute>(contents: &Contents, dim: usize) -> Result<Coreset<T>, String> {
        let points = kept_rows::<T>(contents, "points", dim)?;
        let weights: Vec<f64> = list(contents, "point_weights")?;
        let rows: Vec<u64> = list(contents, "numbers")?;
        let n = points.len();
        let fits =
            weights.len() == n && rows.len() == n && weights.iter().all(|w| w.is_finite() && *w >= 0.0);
        if fits && points.rows().first_not_finite().is_none() {
            Ok(Coreset { points, weights, rows })
        } else {
            Err("its points are damaged".into())
        }
    }
    Ok(if contents.array("points")?.dtype() == crate::data::Dtype::F64 {
        Typed::F64(typed(contents, dim)?)
    } else {
        Typed::F32(typed(contents, dim)?)
    })
}
