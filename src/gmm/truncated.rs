//! Truncated variational EM: each row is shared among a few near components, found in the neighborhoods of
//! its previous components.
//!
//! Sources: Hirschberger, Forster and Lücke, "Large scale clustering with variational EM for Gaussian mixture
//! models", 2018 (var-GMM-S on all rows, vc-GMM on a coreset); TPAMI 44 (2022) for variances per component.
//! Components that a row has not evaluated have no share in it (equation 3). A row keeps its components until
//! it finds nearer ones, so the lower bound of the log-likelihood never falls.

use std::time::Instant;

use super::cells::MeanCells;
use super::covariance::Covariance;
use super::estep::{EStep, EStepSums, NO_COMPONENT, Plan, Search};
use super::mixture::Mixture;
use super::model::GaussianMixture;
use super::neighborhoods::Neighborhoods;
use super::params::{MixtureParams, Start, Stopping};
use super::scores::Scores;
use crate::data::{Access, DataSource, count_rows, too_near};
use crate::error::Result;
use crate::fit::{Restartable, Solver, Step, StopReason, Timings};
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::persist::kept::Values;
use crate::rng::{Purpose, Rng};

/// Iterations with a shared variance and equal weights, before components get their own. Variances of
/// components that have not found their rows yet are not meaningful.
const WARM_UP: u64 = 2;

/// If the remaining share of the squared distances is below this many rounding errors of their type, they are
/// measured again.
const CANCELED: f64 = 1024.0;

/// One start of truncated EM: the mixture, and the components per row.
///
/// `Step::objective` is the lower bound of the mean log-likelihood per weight, for the parameters before the
/// step.
#[derive(Clone, Debug)]
pub(super) struct Truncated<T> {
    pub(super) params: MixtureParams,
    /// The number of this start, from 0.
    pub(super) start: u64,
    /// `None` before the first components are chosen.
    pub(super) mixture: Option<Mixture<T>>,
    pub(super) neighbors: Neighborhoods,
    /// The components per row, nearest first.
    pub(super) near: Vec<u32>,
    /// The total weight of the rows per component.
    pub(super) counts: Vec<f64>,
    /// The bound per weight, at the search of each iteration.
    pub(super) bounds: Vec<f64>,
    /// Whether the stop rule ended the start.
    pub(super) converged: bool,
    /// Number of searches.
    pub(super) searches: u64,
    pub(super) rows_seen: u64,
    /// Number of distances of the seeding, until a step reports them.
    pub(super) seeding_distances: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    /// Labels and squared error of all rows about the current components, once a pass computed them.
    pub(super) finished: Option<(Vec<u32>, f64)>,
}

/// What a pass over the rows does.
#[derive(Clone, Copy)]
struct Wanted {
    /// Searches for the components near each row.
    search: bool,
    /// Computes and sums the shares of the components.
    weigh: bool,
    /// Sums squares by column.
    by_column: bool,
}

/// The state that an iteration changes.
struct Iterated<T> {
    mixture: Mixture<T>,
    neighbors: Neighborhoods,
    near: Vec<u32>,
    searches: u64,
    rows_seen: u64,
    distances: u64,
    changed: u64,
}

impl<T: Compute> Truncated<T> {
    /// A plan, from which [`Restartable::begin`] creates starts.
    pub(super) fn plan(params: MixtureParams) -> Self {
        Self {
            params,
            start: 0,
            mixture: None,
            neighbors: Neighborhoods::default(),
            near: Vec::new(),
            counts: Vec::new(),
            bounds: Vec::new(),
            converged: false,
            searches: 0,
            rows_seen: 0,
            seeding_distances: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            finished: None,
        }
    }

    /// Number of components that share a row, and of members of a neighborhood. Both are at most the number
    /// of components.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let k = self.params.n_components;
        (self.params.n_active.min(k), self.params.n_neighbors.min(k))
    }

    /// Number of columns of a row; 0 before the first components are chosen.
    pub(super) fn dim(&self) -> usize {
        self.mixture.as_ref().map_or(0, |mixture| mixture.dim)
    }

    /// Number of iterations.
    pub(super) fn n_iter(&self) -> u64 {
        self.bounds.len() as u64
    }

    /// The bound per weight at the last search; NaN before the first search.
    pub(super) fn bound(&self) -> f64 {
        self.bounds.last().copied().unwrap_or(f64::NAN)
    }

    /// The seed of this start's own random draws.
    fn seed(&self) -> u64 {
        match self.start {
            0 => self.params.rng_seed,
            start => Rng::keyed(self.params.rng_seed, Purpose::Restart, start).bits(),
        }
    }

    /// Chooses the first components.
    fn choose(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let (n, k) = (count_rows(data)?, self.params.n_components);
        let seeds = self.params.seeding.choose(data, k, self.params.rng_seed, self.start, cx)?;
        let active = self.sizes().0;
        let mut near = Vec::new();
        make_room(&mut near, "components of rows", n, active)?;
        near.resize(n as usize * active, NO_COMPONENT);
        self.begin_from(seeds.centers, data.dim(), near);
        self.seeded_by = seeds.method;
        self.seeding_distances = seeds.n_distances;
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Begins with means of `dim` columns, and rows without components.
    pub(super) fn begin_from(&mut self, means: Vec<T>, dim: usize, near: Vec<u32>) {
        self.near = near;
        self.neighbors = Neighborhoods::drawn(self.params.n_components, self.sizes().1, self.seed());
        self.mixture = Some(self.new_mixture(means, dim));
    }

    /// Components at `means` of `dim` columns, with unknown variance.
    pub(super) fn new_mixture(&self, means: Vec<T>, dim: usize) -> Mixture<T> {
        let reg_covar = self.params.reg_covar;
        Mixture { reg_covar, ..Mixture::new(means, dim, self.params.factors(dim)) }
    }

    /// Makes one pass over the rows.
    fn sweep(
        &self,
        now: &mut Iterated<T>,
        Wanted { search, weigh, by_column }: Wanted,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<EStepSums> {
        let densities = now.mixture.densities(data.most_values().is_some(), cx)?;
        let (active, size) = self.sizes();
        // Neighborhoods that contain all components need no cells.
        let first = search && now.searches == 0 && active.max(size) < self.params.n_components;
        let cells = if first && self.params.start_with == Start::Cells {
            let cells = MeanCells::new(now.mixture.centers(), cx)?;
            now.distances += cells.distances();
            Some(cells)
        } else {
            None
        };
        now.searches += u64::from(search);
        let nearer = Search {
            neighbors: &now.neighbors,
            cells: cells.as_ref(),
            explore: self.params.explored(),
            seed: self.seed(),
            number: now.searches,
        };
        let plan = Plan { search: search.then_some(nearer), weigh, by_column };
        let swept = EStep { densities: &densities, active, plan }.sweep(&mut now.near, data, cx)?;
        if search {
            now.neighbors.follow(&swept.meetings, cx)?;
            now.changed = swept.changed;
        }
        now.distances += swept.distances;
        now.rows_seen += (now.near.len() / active) as u64;
        Ok(swept)
    }

    /// Makes one iteration over `data`. The state changes only at the end.
    fn iterate(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        let mixture = self.mixture.as_ref().expect("components were chosen");
        let mut near = Vec::new();
        make_room(&mut near, "components of rows", self.near.len() as u64, 1)?;
        near.extend_from_slice(&self.near);
        let mut now = Iterated {
            mixture: mixture.clone(),
            neighbors: self.neighbors.clone(),
            near,
            searches: self.searches,
            rows_seen: self.rows_seen,
            distances: 0,
            changed: 0,
        };
        let given = self.n_iter() == 0 && self.params.begins_given();
        let warm = given || self.n_iter() + 1 >= WARM_UP;
        let shape = if warm { self.params.covariance } else { Covariance::TiedSpherical };
        let all = Wanted { search: true, weigh: true, by_column: shape.is_by_column() };
        let mut swept = if now.mixture.variances.is_empty() {
            // Equation 8 needs the result of a search, and shares need the result of equation 8.
            for _ in 0..=self.params.n_initial_e_steps {
                let found =
                    self.sweep(&mut now, Wanted { weigh: false, by_column: false, ..all }, data, cx)?;
                now.mixture.begin((found.least, found.spread, found.weight));
            }
            if given {
                now.mixture.begin_given(&self.params);
            }
            // Given components are near other rows than their means alone.
            self.sweep(&mut now, Wanted { search: given, ..all }, data, cx)?
        } else {
            self.sweep(&mut now, all, data, cx)?
        };
        let bound = swept.bound / swept.weight;
        let converged = self.settles(bound, data.dim());
        let mut moved = 0.0;
        let counts = swept.sums.weights().to_vec();
        // A variance that is not a normal number gives no shares.
        if swept.weight > 0.0 && !counts.iter().any(|&weight| weight > 0.0) {
            return Err(too_near());
        }
        if !converged {
            let before = now.mixture.clone();
            let left;
            (moved, left) = now.mixture.follow(&swept.sums, &swept.projections, shape, given, cx)?;
            if left < CANCELED * T::EPSILON {
                // Squared distances rounded to `T` would leave only their rounding error, so measure again.
                now.mixture = before;
                swept = self.sweep(&mut now, Wanted { search: false, ..all }, data, cx)?;
                (moved, _) = now.mixture.follow(&swept.sums, &swept.projections, shape, given, cx)?;
            }
        }
        let n = (self.near.len() / self.sizes().0) as u64;
        (self.mixture, self.neighbors, self.near) = (Some(now.mixture), now.neighbors, now.near);
        (self.searches, self.rows_seen) = (now.searches, now.rows_seen);
        (self.counts, self.converged, self.finished) = (counts, converged, None);
        self.bounds.push(bound);
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(Step {
            iteration: self.n_iter(),
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: bound,
            center_shift: moved.sqrt(),
            n_changed: now.changed,
            n_distances: now.distances + std::mem::take(&mut self.seeding_distances),
            elapsed: 0.0,
            stop_reason: converged.then_some(StopReason::Tolerance),
        })
    }

    /// Whether the iteration with this bound is the last one by the stop rule. Rows have `dim` columns.
    fn settles(&self, bound: f64, dim: usize) -> bool {
        let (change, tolerance) = (bound - self.bound(), self.params.tolerance);
        // With a number added to the variances, the bound can fall before it rises.
        let gain = if self.params.reg_covar > 0.0 { change.abs() } else { change };
        // Between the first bounds the shape may change.
        let comparable = self.params.covariance == Covariance::TiedSpherical || self.n_iter() > WARM_UP;
        let settled = match self.params.stopping {
            Stopping::Auto => gain <= tolerance * dim as f64,
            Stopping::PerWeight => gain <= tolerance,
            Stopping::Relative => gain.abs() <= tolerance * bound.abs(),
        };
        self.n_iter() > 0 && comparable && settled
    }

    /// The scores of the current mixture.
    fn scores(&self) -> Option<Scores<'_, T>> {
        self.mixture.as_ref().map(|mixture| Scores::new(mixture, Some(&self.neighbors)))
    }

    /// Labels and squared error of all rows of `data` about the current components, computed once.
    pub(super) fn label_all(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        if self.finished.is_none() {
            let finished = self.scores().map(|scores| scores.label(data, cx)).transpose()?;
            self.finished = finished;
        }
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(self.finished.as_ref().map_or(f64::NAN, |(_, inertia)| *inertia))
    }
}

impl<T: Compute> Solver<T> for Truncated<T> {
    type Model = GaussianMixture;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        self.iterate(data, cx)
    }

    fn model(&self) -> GaussianMixture {
        let none = Mixture::<T> {
            dim: 0,
            means: Vec::new(),
            variances: Vec::new(),
            weights: Vec::new(),
            shape: self.params.covariance,
            floors: Vec::new(),
            reg_covar: 0.0,
            n_factors: 0,
            loadings: Vec::new(),
        };
        let mixture = self.mixture.as_ref().unwrap_or(&none);
        GaussianMixture {
            means: Values::of(&mixture.means),
            dim: mixture.dim,
            covariance: self.params.covariance,
            metric: self.params.metric,
            variances: mixture.variances_as(self.params.covariance),
            loadings: mixture.loadings(),
            weights: mixture.weights.clone(),
            active: self.sizes().0,
            neighbors: self.neighbors.clone(),
            counts: self.counts.clone(),
            bounds: self.bounds.clone(),
            converged: self.converged,
            inertia: self.finished.as_ref().map_or(f64::NAN, |(_, inertia)| *inertia),
            seeded_by: self.seeded_by.clone(),
            timings: self.timings,
            threads: None,
        }
    }
}

impl<T: Compute> Restartable<T> for Truncated<T> {
    fn begin(&self, start: u64, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let mut new = Self { start, ..Self::plan(self.params.clone()) };
        new.choose(data, cx)?;
        Ok(new)
    }

    /// Starts are compared by the bound of the last search, without a pass over the rows.
    fn finish(&mut self, _data: &dyn DataSource<T>, _cx: &Executor) -> Result<f64> {
        Ok(-self.bound())
    }

    fn timings(&self) -> Timings {
        self.timings
    }

    fn rows_seen(&self) -> u64 {
        self.rows_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmm::TruncatedGaussianMixture;
    use crate::seeding::Seeding;

    #[test]
    fn a_row_is_known_by_its_components_alone() {
        let (n, active) = (3000u32, 3);
        let rows: Vec<[f64; 2]> = (0..n).map(|i| [f64::from(i % 50), f64::from(i % 7)]).collect();
        let cx = Executor::new(Some(1)).unwrap();
        let plan = Truncated::<f64>::plan(TruncatedGaussianMixture::params(20).n_active(active));
        let mut state = plan.begin(0, &rows, &cx).unwrap();
        for _ in 0..4 {
            state.step(&rows, &cx).unwrap();
            assert_eq!((state.near.len(), state.near.capacity()), (n as usize * active, n as usize * active));
        }
        assert!(state.finished.is_none() && state.counts.len() == 20);
        // The state per row is no larger: nothing else grows with the number of rows.
        let more: Vec<[f64; 2]> = [&rows[..], &rows[..]].concat();
        let mut other = plan.begin(0, &more, &cx).unwrap();
        for _ in 0..4 {
            other.step(&more, &cx).unwrap();
        }
        let values = |state: &Truncated<f64>| -> usize {
            state.checkpoint().arrays.values().map(|array| array.shape().iter().product::<usize>()).sum()
        };
        assert_eq!(values(&other) - values(&state), n as usize * active);
    }

    #[test]
    fn neighborhoods_follow_the_components() {
        // Forty groups of rows along a line; the components start at the groups, their neighborhoods at random.
        let k = 40;
        let rows: Vec<[f64; 1]> = (0..20 * k).map(|i| [f64::from(i % k) + f64::from(i / k) * 0.01]).collect();
        let cx = Executor::new(Some(1)).unwrap();
        let means: Vec<f64> = (0..k).map(f64::from).collect();
        let params = TruncatedGaussianMixture::params(k as usize).n_active(2).n_neighbors(4);
        let mut state =
            Truncated::<f64>::plan(params.seeding(Seeding::Given(means))).begin(0, &rows, &cx).unwrap();
        let known = |state: &Truncated<f64>| {
            let knows = |c: i32, j: i32| state.neighbors.of_cluster(c as usize).contains(&(j as u32));
            (1..k - 1).filter(|&c| knows(c, c - 1) && knows(c, c + 1)).count()
        };
        assert!(known(&state) < 10, "{}", known(&state));
        for _ in 0..8 {
            state.step(&rows, &cx).unwrap();
        }
        assert!(known(&state) > 30, "{}", known(&state));
    }
}
