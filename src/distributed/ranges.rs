//! Commits of large sweeps by ranges of clusters: the workers that hold the sums of a range move its centers.
//!
//! [`Partial::range`] cuts partial results. Those of one range merge like others. Then
//!
//! 1. the worker of every range reports ([`Head::report`]),
//! 2. the driver decides ([`Head::decide`]),
//! 3. every range moves its centers ([`Head::moved`]),
//! 4. the driver ends the sweep ([`Head::end`]).
//!
//! The driver sees a few numbers per cluster. Results are those of [`KMeansPass::commit`].

use crate::kernel::Compute;
use serde_json::json;

use super::clusters::ClusterTotals;
use super::commit::{Found, Head, Moved, Moves, Moving, Plan};
use super::errors::of_others;
use super::extent::Before;
use super::kmeans::KMeansPass;
use super::message::Message;
use super::numbers::{as_size, exact, exact_of, size_of_object};
use super::partial::Partial;
use super::picked::Picked;
use super::sums::AnySums;
use crate::error::{Error, Result};
use crate::fit::Step;
use crate::kmeans::{keep_sums, sums_of};
use crate::persist::kept::{Values, count, flag, keep, list};
use crate::persist::{Array, Contents};
use crate::tuning::FARTHEST_ROWS;

/// Kinds of messages.
const REPORT: &str = "distributed-range-report";
const MOVES: &str = "distributed-range-moves";
const MOVED: &str = "distributed-range-moved";

impl ClusterTotals {
    /// The sums of the `i`-th of `n` ranges of about as many clusters.
    ///
    /// # Errors
    /// If these are not the sums of all clusters, or if there is no such range.
    fn range(&self, i: usize, n: usize) -> Result<Self> {
        let Self { k, dim, .. } = *self;
        if self.clusters.weights().len() != k || i >= n || n > k {
            return Err(of_others());
        }
        let (first, end) = (k * i / n, k * (i + 1) / n);
        let mut far = self.far.clone();
        if i > 0 {
            far.clear();
        }
        Ok(Self { k, dim, first, clusters: self.clusters.range(first..end), far })
    }
}

impl Partial {
    /// The sums of the `i`-th of `n` ranges of about as many clusters, which merge with those of the same range.
    ///
    /// # Errors
    /// If these are not the sums of all clusters of a sweep of k-means, or if there is no such range.
    pub(crate) fn range(&self, i: usize, n: usize) -> Result<Self> {
        let own = self.clusters().ok_or_else(of_others)?.range(i, n)?;
        Ok(Self { sums: Some(AnySums::new(own)), ..self.clone() })
    }
}

/// What a range reports to the driver before its centers move.
#[derive(Clone, Debug)]
struct Report {
    /// The digest of the pass.
    pass: u64,
    now: Before,
    zeros: u64,
    found: Found,
}

impl KMeansPass {
    /// What the driver of a sweep in ranges knows of this sweep.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The points about which squared errors are summed, if they are not the centers.
    pub(crate) fn other_points(&self) -> Option<&Values> {
        self.points.as_ref()
    }
}

/// The total of a range, at its centers. Without points, squared errors are about the centers.
fn moving<T: Compute>(sums: AnySums, centers: &Values, points: Option<&Values>) -> Result<Moving<T>> {
    Moving::new(sums.into_kind::<ClusterTotals>()?, centers.get(), points.unwrap_or(centers).get())
}

impl Head {
    /// The sweep with these centers, and the points about which it sums squared errors, if these are others.
    ///
    /// # Errors
    /// If they do not belong to this sweep.
    pub(crate) fn with(&self, centers: Values, points: Option<Values>) -> Result<KMeansPass> {
        KMeansPass::of_parts(self.clone(), centers, points)
            .map_err(|problem| Error::format("the pass", problem))
    }

    /// What the range of `total` reports, as bytes. `total` has the sums of all partitions.
    ///
    /// # Errors
    /// Those of [`KMeansPass::commit`] that concern this range.
    pub(crate) fn report(
        &self,
        total: Partial,
        centers: &Values,
        points: Option<&Values>,
    ) -> Result<Vec<u8>> {
        let (pass, zeros) = (total.pass.ok_or_else(of_others)?, total.zero_rows());
        let (extent, _, sums) = total.whole(pass, self.before.extent.as_ref())?;
        let found = if centers.is_wide() {
            moving::<f64>(sums, centers, points)?.found()?
        } else {
            moving::<f32>(sums, centers, points)?.found()?
        };
        Report { pass, now: self.before.and(extent), zeros, found }.to_bytes()
    }

    /// What follows from the reports of all ranges, in order, and the number of rows of zeros. There must be `partitions`.
    ///
    /// # Errors
    /// Those of [`KMeansPass::commit`]. [`Error::Format`] for damaged reports.
    pub(crate) fn decide(&self, reports: &[impl AsRef<[u8]>], partitions: u64) -> Result<(Plan, u64)> {
        let reports =
            reports.iter().map(|bytes| Report::from_bytes(bytes.as_ref())).collect::<Result<Vec<_>>>()?;
        let first = reports.first().ok_or_else(of_others)?;
        let (pass, now, zeros) = (first.pass, first.now.clone(), first.zeros);
        let same = |report: &Report| report.pass == pass && report.now == now;
        if !reports.iter().all(same) || now.passes != self.before.passes + 1 {
            return Err(of_others());
        }
        let found = now.extent.as_ref().map_or(0, |extent| extent.blocks);
        if found != partitions {
            return Err(Error::Source(format!("total must hold {partitions} partitions, got {found}")));
        }
        let found: Vec<Found> = reports.into_iter().map(|report| report.found).collect();
        Ok((self.plan(now, &found)?, zeros))
    }

    /// The new centers of the range of `total`, and what it reports of their moves.
    ///
    /// # Errors
    /// [`Error::Source`] if the parts do not belong to each other, [`Error::Format`] for damaged bytes.
    pub(crate) fn moved(
        &self,
        total: Partial,
        centers: &Values,
        points: Option<&Values>,
        moves: &[u8],
    ) -> Result<(Values, Vec<u8>)> {
        let moves = Moves::from_bytes(moves)?;
        if moves.mean.len() != self.dim || moves.far.dim() != self.dim {
            return Err(of_others());
        }
        let pass = total.pass.ok_or_else(of_others)?;
        let (_, _, sums) = total.whole(pass, self.before.extent.as_ref())?;
        let (centers, moved) = if centers.is_wide() {
            let (centers, moved) = moving::<f64>(sums, centers, points)?.moved(self, &moves);
            (Values::F64(centers), moved)
        } else {
            let (centers, moved) = moving::<f32>(sums, centers, points)?.moved(self, &moves);
            (Values::F32(centers), moved)
        };
        Ok((centers, moved.to_bytes()?))
    }

    /// What the next sweep knows besides its centers, the figures of this sweep, and whether the next one sums squared
    /// errors about the points of this one.
    ///
    /// # Errors
    /// [`Error::Format`] for damaged reports.
    pub(crate) fn end(&self, plan: &Plan, moved: &[impl AsRef<[u8]>]) -> Result<(Self, Step, bool)> {
        let moved =
            moved.iter().map(|bytes| Moved::from_bytes(bytes.as_ref())).collect::<Result<Vec<_>>>()?;
        self.commit(plan.clone(), &moved)
    }
}

/// Stores numbers per cluster.
fn keep_numbers(contents: &mut Contents, name: &str, values: &[f64]) {
    keep(contents, name, Array::new(&[values.len()], values));
}

impl Message for Report {
    const KIND: &'static str = REPORT;

    fn put(&self, contents: &mut Contents) {
        let Found { first, weights, about_points, about_centers, together, far } = &self.found;
        let dim = together.shape().1;
        let mut numbers = json!({
            "pass": exact(self.pass), "dim": dim, "zeros": exact(self.zeros), "first": first,
        });
        self.now.put("iteration", &mut numbers);
        contents.meta.insert("report".into(), numbers.to_string());
        keep_numbers(contents, "weights", weights);
        keep_numbers(contents, "about_points", about_points);
        keep_numbers(contents, "about_centers", about_centers);
        keep_sums(contents, "together", together);
        let mut rows = Contents::new("");
        far.put(&mut rows);
        contents.put("far", rows);
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("report")?;
        let dim = size_of_object(&numbers, "dim")?;
        let first = as_size(count(&numbers, "first")?.saturating_add(1))? - 1;
        let now = Before::of_object("iteration", &numbers, dim)?;
        let far = contents.part("far").ok_or("it lacks the farthest rows")?;
        let found = Found {
            first,
            weights: list(contents, "weights")?,
            about_points: list(contents, "about_points")?,
            about_centers: list(contents, "about_centers")?,
            together: sums_of(contents, "together", 1, dim)?.ok_or("it lacks the sums")?,
            far: Picked::of_file(&far, dim, FARTHEST_ROWS)?,
        };
        Ok(Self { pass: exact_of(&numbers, "pass")?, now, zeros: exact_of(&numbers, "zeros")?, found })
    }
}

impl Message for Moves {
    const KIND: &'static str = MOVES;

    fn put(&self, contents: &mut Contents) {
        keep_numbers(contents, "mean", &self.mean);
        keep(contents, "to", Array::new(&[self.to.len()], &self.to));
        let mut rows = Contents::new("");
        self.far.put(&mut rows);
        contents.put("far", rows);
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let (mean, to): (Vec<f64>, Vec<u32>) = (list(contents, "mean")?, list(contents, "to")?);
        let far = contents.part("far").ok_or("it lacks the farthest rows")?;
        let far = Picked::of_file(&far, mean.len(), FARTHEST_ROWS)?;
        if to.len() <= far.entries.len() {
            Ok(Self { mean, far, to })
        } else {
            Err("it lacks farthest rows".into())
        }
    }
}

impl Message for Moved {
    const KIND: &'static str = MOVED;

    fn put(&self, contents: &mut Contents) {
        let Self { first, weights, shifts, off, spread, differs } = self;
        let numbers = json!({ "first": first, "differs": differs });
        contents.meta.insert("moved".into(), numbers.to_string());
        keep_numbers(contents, "weights", weights);
        keep_numbers(contents, "shifts", shifts);
        keep_numbers(contents, "off", off);
        keep_numbers(contents, "spread", spread);
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("moved")?;
        Ok(Self {
            first: as_size(count(&numbers, "first")?.saturating_add(1))? - 1,
            weights: list(contents, "weights")?,
            shifts: list(contents, "shifts")?,
            off: list(contents, "off")?,
            spread: list(contents, "spread")?,
            differs: flag(&numbers, "differs")?,
        })
    }
}
