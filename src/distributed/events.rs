//! The sums of the two passes of a coreset: the moments of the rows, then the rows on which events fall.

use super::errors::{of_others, of_too_many};
use super::sums::Sums;
use crate::error::Result;
use crate::fit::{Typed, either};
use crate::kernel::Compute;
use crate::persist::kept::{keep, keep_rows, kept_rows, list};
use crate::persist::{Array, Contents};
use crate::stats::{Coreset, Moments};

/// The moments of the rows.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// `None` without rows.
    pub(super) moments: Option<Moments>,
    /// Whether the rows are computed as `f64`.
    pub(super) wide: bool,
}

impl Sums for Measured {
    const KIND: &'static str = "moments";

    fn add(&mut self, next: Self) -> Result<()> {
        match (&mut self.moments, next.moments) {
            (_, None) => {}
            (none @ None, more) => (*none, self.wide) = (more, next.wide),
            (Some(moments), Some(more)) => {
                if moments.mean().len() != more.mean().len() || self.wide != next.wide {
                    return Err(of_others());
                }
                moments.merge(&more);
            }
        }
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "wide", Array::new(&[1], &[u8::from(self.wide)]));
        if let Some(moments) = &self.moments {
            put_moments(contents, moments);
        }
    }

    fn of_file(contents: &Contents, _: usize) -> Result<Self, String> {
        let wide = contents.values::<u8>("wide", &[1])?[0] == 1;
        let known = contents.arrays.contains_key("mean");
        Ok(Self { moments: known.then(|| moments_of(contents)).transpose()?, wide })
    }

    fn fits(&self, rows: u64, dim: usize) -> bool {
        match &self.moments {
            None => rows == 0,
            Some(moments) => moments.rows() == rows && (dim == 0 || moments.mean().len() == dim),
        }
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

/// The rows on which events fell, with their odds, or all rows with their weights.
#[derive(Clone, Debug)]
pub(super) struct Events {
    /// `None` without rows. The numbers of the rows are those within their block.
    pub(super) rows: Option<AnyCoreset>,
    /// The shares of all rows.
    pub(super) shares: f64,
    /// Per block: its number of rows, and how many of them are here.
    pub(super) blocks: Vec<(u64, u64)>,
}

impl Events {
    /// Number of rows of all blocks; `None` if it is too large.
    pub(super) fn n_rows(&self) -> Option<u64> {
        self.blocks.iter().try_fold(0u64, |sum, &(rows, _)| sum.checked_add(rows))
    }

    /// Number of rows here.
    pub(super) fn len(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| either!(rows, rows => rows.rows.len()))
    }

    /// The rows, numbered among all rows.
    ///
    /// # Errors
    /// If a number is too large.
    pub(super) fn numbered(self) -> Result<Option<AnyCoreset>> {
        let blocks = self.blocks;
        let number = |rows: &mut Vec<u64>| -> Result<()> {
            let (mut offset, mut all) = (0u64, rows.iter_mut());
            for (length, here) in blocks {
                for row in all.by_ref().take(here as usize) {
                    *row = row.checked_add(offset).ok_or_else(of_too_many)?;
                }
                offset = offset.checked_add(length).ok_or_else(of_too_many)?;
            }
            Ok(())
        };
        let Some(mut rows) = self.rows else { return Ok(None) };
        either!(&mut rows, rows => number(&mut rows.rows))?;
        Ok(Some(rows))
    }
}

impl Sums for Events {
    const KIND: &'static str = "events";

    fn add(&mut self, next: Self) -> Result<()> {
        match (&mut self.rows, &next.rows) {
            (_, None) => {}
            (none @ None, Some(_)) => none.clone_from(&next.rows),
            (Some(Typed::F32(rows)), Some(Typed::F32(more))) => join(rows, more)?,
            (Some(Typed::F64(rows)), Some(Typed::F64(more))) => join(rows, more)?,
            _ => return Err(of_others()),
        }
        self.shares += next.shares;
        self.blocks.extend_from_slice(&next.blocks);
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        let blocks: Vec<u64> = self.blocks.iter().flat_map(|&(rows, here)| [rows, here]).collect();
        keep(contents, "blocks", Array::new(&[blocks.len()], &blocks));
        keep(contents, "shares", Array::new(&[1], &[self.shares]));
        put_coreset(contents, self.rows.as_ref());
    }

    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String> {
        let blocks: Vec<u64> = list(contents, "blocks")?;
        let blocks: Vec<(u64, u64)> = blocks.as_chunks().0.iter().map(|&[first, end]| (first, end)).collect();
        let shares = contents.values::<f64>("shares", &[1])?[0];
        let known = contents.arrays.contains_key("points");
        let rows = known.then(|| coreset_of(contents, dim)).transpose()?;
        let events = Self { rows, shares, blocks };
        let numbers = |rows: &[u64]| {
            let mut all = rows.iter();
            events.blocks.iter().all(|&(length, here)| {
                let mut own = all.by_ref().take(usize::try_from(here).unwrap_or(usize::MAX));
                length <= 1 << 62 && own.all(|&row| row < length)
            })
        };
        let here = events.blocks.iter().try_fold(0u64, |sum, &(_, here)| sum.checked_add(here));
        // Drawn rows have odds above 0, and shares. All rows, which have no shares, may have a weight of 0.
        let odds = |odds: &[f64]| shares == 0.0 || odds.iter().all(|&odds| odds > 0.0);
        let fits = match &events.rows {
            None => true,
            Some(rows) => either!(rows, rows => numbers(&rows.rows) && odds(&rows.weights)),
        };
        let known = shares.is_finite() && shares >= 0.0 && events.n_rows().is_some();
        if known && fits && here == Some(events.len() as u64) {
            Ok(events)
        } else {
            Err("its rows are damaged".into())
        }
    }

    fn fits(&self, rows: u64, _: usize) -> bool {
        self.n_rows() == Some(rows)
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
