//! This module knows truncated variational EM: every row is shared out among a few components near it, found in the neighbourhoods of those it was
//! near to before.
//!
//! Sources: Hirschberger, Forster and Lücke, "Large scale clustering with variational EM for Gaussian mixture models", 2018 (var-GMM-S on all rows,
//! vc-GMM on a coreset), TPAMI 44 (2022) for variances of each component. Components that a row has not met have no share in it (equation 3), and
//! since a row keeps its components until it meets nearer ones, the bound of the log-likelihood never falls.

use std::time::Instant;

use super::cells::Cells;
use super::estep::{EStep, NOBODY, Pass, Swept};
use super::mixture::{Covariance, Mixture};
use super::model::GaussianMixture;
use super::neighbourhoods::Neighbourhoods;
use super::params::{MixtureParams, Start, Stopping};
use super::scores::Scores;
use crate::data::{Access, DataSource, count_rows};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::{CenterSolver, Metric, Snapshot, Timings};
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::persist::kept::keep;
use crate::persist::{Array, Contents};
use crate::solver::{Solver, Step, StopReason};
use crate::stats::{Coreset, lightweight_coreset};

/// Iterations with a shared variance and equal weights, before components get their own: variances of components that have not found their rows
/// yet mean little.
const WARM_UP: u64 = 2;

/// The share of the squared distances below which what is left of them, in roundings of their type, is measured again.
const CANCELLED: f64 = 1024.0;

/// Truncated EM as a state: the mixture, and for each row the components that share it.
///
/// `Step::objective` is the bound of the log-likelihood by weight, of the parameters before the step moved them.
#[derive(Clone, Debug)]
pub struct Truncated<T> {
    pub(super) params: MixtureParams,
    /// None before the first components are chosen.
    pub(super) mixture: Option<Mixture<T>>,
    pub(super) neighbours: Neighbourhoods,
    /// What stands for all rows, if it was asked for.
    pub(super) coreset: Option<Coreset<T>>,
    /// The components of each row, the nearest first.
    pub(super) near: Vec<u32>,
    /// The weight of the rows of each component.
    pub(super) counts: Vec<f64>,
    /// The bound by weight, at the last search.
    pub(super) bound: f64,
    /// Searches that were made.
    pub(super) searches: u64,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    /// Distances that seeding took, until a step has told of them.
    pub(super) seeding_distances: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    /// Labels and squared error of all rows about the present components, once a pass has made them.
    pub(super) finished: Option<(Vec<u32>, f64)>,
}

/// What an iteration changes.
struct Iterated<T> {
    mixture: Mixture<T>,
    neighbours: Neighbourhoods,
    near: Vec<u32>,
    searches: u64,
    rows_seen: u64,
    distances: u64,
    changed: u64,
}

impl<T: Compute> Truncated<T> {
    /// A plan: the first components are chosen with the first step.
    pub(super) fn plan(params: MixtureParams) -> Self {
        Self {
            params,
            mixture: None,
            neighbours: Neighbourhoods::default(),
            coreset: None,
            near: Vec::new(),
            counts: Vec::new(),
            bound: f64::NAN,
            searches: 0,
            iteration: 0,
            rows_seen: 0,
            seeding_distances: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            finished: None,
        }
    }

    /// Components that share a row, and members of a neighbourhood, of which there can be no more than components.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let k = self.params.n_components;
        (self.params.n_active.min(k), self.params.n_neighbors.min(k))
    }

    /// Draws the coreset, if one is wanted, and chooses the first components.
    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let n = count_rows(data)?;
        crate::seeding::enough_rows(n, self.params.n_components)?;
        if self.coreset.is_none()
            && let Some(size) = self.params.coreset_size
        {
            let size = usize::try_from(size.of(n).min(n)).unwrap_or(usize::MAX);
            self.coreset = Some(lightweight_coreset(data, size, self.params.seed, cx)?);
            // One to find the mean, one to draw.
            self.rows_seen = if size as u64 == n { n } else { 2 * n };
        }
        match &self.coreset {
            None => self.choose(data, n, cx)?,
            Some(_) => self.on_coreset(|this, rows, n| this.choose(rows, n, cx))?,
        }
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Runs `f` on the rows of the coreset and their number.
    fn on_coreset<R>(
        &mut self,
        f: impl FnOnce(&mut Self, &dyn DataSource<T>, u64) -> Result<R>,
    ) -> Result<R> {
        let coreset = self.coreset.take().expect("there is one");
        let result = coreset.weighted().and_then(|rows| f(self, &rows, coreset.rows.len() as u64));
        self.coreset = Some(coreset);
        result
    }

    /// Chooses the first components among `n` rows.
    fn choose(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<()> {
        let (k, seed) = (self.params.n_components, self.params.seed);
        let seeds = self.params.seeding.choose(data, k, seed, 0, cx)?;
        let (active, size) = self.sizes();
        let mut near = Vec::new();
        make_room(&mut near, "components of rows", n, active)?;
        near.resize(n as usize * active, NOBODY);
        self.near = near;
        self.neighbours = Neighbourhoods::drawn(k, size, seed);
        self.seeded_by = seeds.method;
        self.seeding_distances = seeds.n_distances;
        self.mixture = Some(Mixture::new(seeds.centers, data.dim()));
        Ok(())
    }

    /// One pass over the rows.
    fn sweep(
        &self,
        now: &mut Iterated<T>,
        (search, weigh, by_column): (bool, bool, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Swept> {
        let densities = now.mixture.densities(data.most_values().is_some());
        let (active, size) = self.sizes();
        // Neighbourhoods of all components hold all that there is to find.
        let first = search && now.searches == 0 && active.max(size) < self.params.n_components;
        let cells = if first && self.params.start == Start::Cells {
            let cells = Cells::new(now.mixture.centers(), cx)?;
            now.distances += cells.distances();
            Some(cells)
        } else {
            None
        };
        now.searches += u64::from(search);
        let pass = Pass {
            search: search.then_some((&now.neighbours, now.searches)),
            cells: cells.as_ref(),
            explore: self.params.explored(),
            weigh,
            by_column,
            seed: self.params.seed,
        };
        let swept = EStep { densities: &densities, active, pass }.sweep(&mut now.near, data, cx)?;
        if search {
            now.neighbours.follow(&swept.meetings, cx)?;
            now.changed = swept.changed;
        }
        now.distances += swept.distances;
        now.rows_seen += (now.near.len() / active) as u64;
        Ok(swept)
    }

    /// One iteration over `data`. What it changes is taken over at its end.
    fn iterate(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        let mixture = self.mixture.as_ref().expect("components were chosen");
        let mut near = Vec::new();
        make_room(&mut near, "components of rows", self.near.len() as u64, 1)?;
        near.extend_from_slice(&self.near);
        let mut now = Iterated {
            mixture: mixture.clone(),
            neighbours: self.neighbours.clone(),
            near,
            searches: self.searches,
            rows_seen: self.rows_seen,
            distances: 0,
            changed: 0,
        };
        let warm = self.iteration + 1 >= WARM_UP;
        let shape = if warm { self.params.covariance } else { Covariance::TiedSpherical };
        let by_column = shape == Covariance::Diag;
        let mut swept = if now.mixture.variances.is_empty() {
            // Equation 8 needs the finds of a search, and shares need its result.
            for _ in 0..=self.params.n_initial_e_steps {
                let found = self.sweep(&mut now, (true, false, false), data, cx)?;
                now.mixture.begin((found.least, found.spread, found.weight));
            }
            self.sweep(&mut now, (false, true, by_column), data, cx)?
        } else {
            self.sweep(&mut now, (true, true, by_column), data, cx)?
        };
        let bound = swept.bound / swept.weight;
        let stop_reason = self.stops(bound);
        let mut moved = 0.0;
        let counts = swept.sums.weights().to_vec();
        if stop_reason != Some(StopReason::Tolerance) {
            let before = now.mixture.clone();
            let left;
            (moved, left) = now.mixture.follow(&swept.sums, shape);
            if left < CANCELLED * T::EPSILON {
                // Of squared distances that were rounded to T nothing else would be left than their rounding.
                now.mixture = before;
                swept = self.sweep(&mut now, (false, true, by_column), data, cx)?;
                (moved, _) = now.mixture.follow(&swept.sums, shape);
            }
        }
        let n = (self.near.len() / self.sizes().0) as u64;
        (self.mixture, self.neighbours, self.near) = (Some(now.mixture), now.neighbours, now.near);
        (self.searches, self.rows_seen) = (now.searches, now.rows_seen);
        (self.bound, self.counts) = (bound, counts);
        self.iteration += 1;
        self.finished = None;
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: bound,
            center_shift: moved.sqrt(),
            n_changed: now.changed,
            n_distances: now.distances + std::mem::take(&mut self.seeding_distances),
            elapsed: 0.0,
            stop_reason,
        })
    }

    /// Why the iteration that found this bound is the last one.
    fn stops(&self, bound: f64) -> Option<StopReason> {
        let gain = bound - self.bound;
        // Between the first bounds the shape may change.
        let comparable = self.params.covariance == Covariance::TiedSpherical || self.iteration > WARM_UP;
        let settled = match self.params.stopping {
            Stopping::PerWeight => gain <= self.params.tolerance,
            Stopping::Relative => gain.abs() <= self.params.tolerance * bound.abs(),
        };
        if self.iteration > 0 && comparable && settled {
            Some(StopReason::Tolerance)
        } else if self.iteration + 1 >= self.params.max_iter {
            Some(StopReason::MaxIterations)
        } else {
            None
        }
    }

    /// What of it scores rows.
    fn scores(&self) -> Option<Scores<'_, T>> {
        self.mixture.as_ref().map(|mixture| Scores::new(mixture, Some(&self.neighbours)))
    }
}

impl<T: Compute> Solver<T> for Truncated<T> {
    type Model = GaussianMixture;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.mixture.is_none() {
            self.begin(data, cx)?;
        }
        match &self.coreset {
            None => self.iterate(data, cx),
            Some(_) => self.on_coreset(|this, rows, _| this.iterate(rows, cx)),
        }
    }

    fn model(&self) -> GaussianMixture {
        GaussianMixture::new(self)
    }
}

impl<T: Compute> CenterSolver<T> for Truncated<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let (dim, centers) = self.mixture.as_ref().map_or((0, &[][..]), |m| (m.dim, &m.means));
        let (labels, inertia) = self.finished.as_ref().map_or((&[][..], f64::NAN), |(l, e)| (l, *e));
        Snapshot {
            dim,
            metric: Metric::Euclidean,
            centers,
            weights: &self.counts,
            labels,
            inertia,
            n_iter: self.iteration,
            n_steps: self.iteration,
            seeded_by: &self.seeded_by,
            algorithm: self.params.covariance.name(),
            timings: self.timings,
        }
    }

    fn details(&self) -> Contents {
        let mut contents = Contents::new("");
        if let Some(mixture) = &self.mixture {
            let k = mixture.k();
            let variances = mixture.variances_as(self.params.covariance);
            keep(&mut contents, "variances", Array::new(&[variances.len()], &variances));
            keep(&mut contents, "weights", Array::new(&[k], &mixture.weights));
            let (size, ids) = (self.neighbours.size(), self.neighbours.ids());
            keep(&mut contents, "neighbours", Array::new(&[k, size], ids));
            contents.meta.insert("floored".into(), mixture.is_floored().to_string());
        }
        contents
    }

    fn coreset(&self) -> Option<&Coreset<T>> {
        self.coreset.as_ref()
    }

    fn checkpoint(&self) -> Contents {
        self.to_checkpoint()
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let n = self.coreset.as_ref().map(|coreset| coreset.rows.len() as u64).or(n);
        n.is_none_or(|n| self.near.len() as u64 == n * self.sizes().0 as u64)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        if self.finished.is_none() {
            let finished = self.scores().map(|scores| scores.label(data, cx)).transpose()?;
            self.finished = finished;
        }
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(self.finished.as_ref().map_or(f64::NAN, |(_, inertia)| *inertia))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmm::TruncatedGaussianMixture;

    #[test]
    fn a_row_is_known_by_its_components_alone() {
        let (n, active) = (3000u32, 3);
        let rows: Vec<[f64; 2]> = (0..n).map(|i| [f64::from(i % 50), f64::from(i % 7)]).collect();
        let cx = Executor::new(Some(1)).unwrap();
        let mut state = Truncated::<f64>::plan(TruncatedGaussianMixture::params(20).n_active(active));
        for _ in 0..4 {
            state.step(&rows, &cx).unwrap();
            assert_eq!((state.near.len(), state.near.capacity()), (n as usize * active, n as usize * active));
        }
        assert!(state.coreset.is_none() && state.finished.is_none() && state.counts.len() == 20);
        // What is kept of it is no larger: nothing else grows with the rows.
        let more: Vec<[f64; 2]> = [&rows[..], &rows[..]].concat();
        let mut other = Truncated::<f64>::plan(TruncatedGaussianMixture::params(20).n_active(active));
        other.step(&more, &cx).unwrap();
        let values = |state: &Truncated<f64>| -> usize {
            state.to_checkpoint().arrays.values().map(|array| array.shape().iter().product::<usize>()).sum()
        };
        assert_eq!(values(&other) - values(&state), n as usize * active);
    }
}
