//! This module knows the parameters of Laplacian K-modes, checked as a whole before any work.

use crate::error::{Error, Result};
use crate::fit::run_methods;
use crate::graph::GraphMethod;
use crate::seeding::Seeding;

/// Laplacian K-modes (SLK): see the [module](super).
#[derive(Clone, Copy, Debug)]
pub struct LaplacianKModes;

/// What modes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeUpdate {
    /// Rows that their clusters are surest of (SLK-BO): they come with the labels, for nothing.
    #[default]
    ByProduct,
    /// Means that are shifted to where their rows are densest (SLK-MS): no rows of the data.
    MeanShift,
}

/// What the diagonal of the affinity is shifted by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shift {
    /// Row by row as much as makes every update go downhill, from the moment when one does not.
    #[default]
    Auto,
    /// As much as this everywhere; 0 is the paper.
    By(f64),
}

/// What is done when a cluster loses its last row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collapse {
    /// The clusters of the iteration before are restored, and the run ends.
    #[default]
    Restore,
    /// The iteration is made again with a fifth less of the Laplacian's weight, as often as it takes.
    Reduce,
}

/// Parameters of a fit.
///
/// ```
/// use shoal::kmodes::LaplacianKModes;
/// use shoal::Seeding;
/// let rows = [[0.0f64, 1.0], [0.1, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.1], [1.0, 0.2]];
/// let params = LaplacianKModes::params(2).n_neighbors(2).seeding(Seeding::Given(vec![0.0, 1.0, 1.0, 0.0]));
/// let mut run = params.start(&rows).unwrap();
/// while run.advance(&rows).unwrap().is_some() {}
/// assert_eq!(run.labels(), [0, 0, 0, 1, 1, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct KModesParams {
    pub(super) n_clusters: usize,
    pub(super) laplacian_weight: Option<f64>,
    pub(super) mode_update: ModeUpdate,
    pub(super) n_neighbors: usize,
    pub(super) bandwidth: Option<f64>,
    pub(super) gaussian: bool,
    pub(super) shift: Shift,
    pub(super) on_collapse: Collapse,
    pub(super) normalize: bool,
    pub(super) seeding: Seeding,
    pub(super) max_iter: u64,
    pub(super) rng_seed: u64,
    pub(super) graph_method: GraphMethod,
    pub(super) responsibilities_memory: Option<u64>,
    pub(super) threads: Option<usize>,
}

/// Responsibilities of all rows that a fit holds: those it ends with, and twice those it replaces.
const COPIES: u64 = 3;
/// Clusters of a row whose responsibilities are kept at least: a row may lie between two.
const LEAST_KEPT: usize = 2;

impl LaplacianKModes {
    /// Parameters with the defaults of the Python class, but for the start: k-means++ seeds. [`KModesRun::begin_with`](super::KModesRun::begin_with) takes labels.
    ///
    /// See [`KModesParams`] for an example.
    pub fn params(n_clusters: usize) -> KModesParams {
        KModesParams {
            n_clusters,
            laplacian_weight: None,
            mode_update: ModeUpdate::ByProduct,
            n_neighbors: 5,
            bandwidth: None,
            gaussian: false,
            shift: Shift::Auto,
            on_collapse: Collapse::Restore,
            normalize: true,
            seeding: Seeding::PlusPlus { greedy: true },
            max_iter: 100,
            rng_seed: 0,
            graph_method: GraphMethod::Auto,
            responsibilities_memory: Some(1_000_000_000),
            threads: None,
        }
    }
}

macro_rules! setters {
    ($($(#[$about:meta])* $name:ident: $t:ty),* $(,)?) => {$(
        $(#[$about])*
        #[must_use]
        pub fn $name(mut self, $name: $t) -> Self {
            self.$name = $name;
            self
        }
    )*};
}

impl KModesParams {
    /// Weight `lambda` of the Laplacian term; 0 is K-modes. `None`, the default: the least at which neighbours decide, from the number of clusters and
    /// the mean sum of a row of the affinity.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let fixed = LaplacianKModes::params(2).laplacian_weight(1.5);
    /// let found_by_the_fit = fixed.laplacian_weight(None);
    /// ```
    #[must_use]
    pub fn laplacian_weight(mut self, laplacian_weight: impl Into<Option<f64>>) -> Self {
        self.laplacian_weight = laplacian_weight.into();
        self
    }

    setters! {
        /// What modes are.
        mode_update: ModeUpdate,
        /// Neighbours of a row in the graph.
        n_neighbors: usize,
        /// Width `sigma` of the kernel; `None`: the root of the mean squared distance of neighbours.
        bandwidth: Option<f64>,
        /// Whether neighbours weigh as much as the kernel says, not 1.
        gaussian: bool,
        /// What the diagonal of the affinity is shifted by.
        shift: Shift,
        /// What is done when a cluster loses its last row.
        on_collapse: Collapse,
        /// Whether rows are scaled to length 1 as they are read.
        normalize: bool,
        /// The first modes.
        seeding: Seeding,
        /// Most iterations.
        max_iter: u64,
        /// Seed of all draws.
        rng_seed: u64,
        /// How neighbours are found.
        graph_method: GraphMethod,
        /// Bytes for responsibilities: where all of them take more, the largest of each row are kept, as many as fit, at least two, and the others
        /// share what is left. `None`: all are kept.
        responsibilities_memory: Option<u64>,
        /// Number of threads (default: as [`Executor::new`](crate::Executor::new) with `None`). The result does not depend on it.
        threads: Option<usize>,
    }

    /// Clusters whose responsibilities are kept of each of `n` rows, given the bytes of a value.
    pub(super) fn kept(&self, n: u64, size: usize) -> usize {
        let k = self.n_clusters;
        let Some(bytes) = self.responsibilities_memory else { return k };
        let of_row = bytes / (COPIES * n.max(1));
        if of_row >= (k * size) as u64 {
            return k;
        }
        // Values and their clusters, and what is left for the others.
        let fitting = (of_row as usize).saturating_sub(size) / (size + size_of::<u32>());
        fitting.max(LEAST_KEPT).min(k)
    }

    /// Refuses parameters outside their range, for `n` rows; all problems at once.
    ///
    /// ```
    /// let refused = shoal::kmodes::LaplacianKModes::params(0).laplacian_weight(-1.0).check(10).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters") && refused.contains("laplacian_weight"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`].
    pub fn check(&self, n: u64) -> Result<()> {
        let mut problems = Vec::new();
        if self.n_clusters == 0 || self.n_clusters as u64 > n {
            problems.push(format!(
                "n_clusters must be at least 1 and at most the number of rows, {n}, got {}",
                self.n_clusters
            ));
        }
        if self.n_neighbors == 0 || self.n_neighbors as u64 >= n {
            problems.push(format!(
                "n_neighbors must be at least 1 and less than the number of rows, {n}, got {}",
                self.n_neighbors
            ));
        }
        let mut not_negative = |name: &str, value: f64| {
            if !(value.is_finite() && value >= 0.0) {
                problems.push(format!("{name} must be finite and at least 0, got {value}"));
            }
        };
        if let Some(weight) = self.laplacian_weight {
            not_negative("laplacian_weight", weight);
        }
        if let Shift::By(shift) = self.shift {
            not_negative("diagonal_shift", shift);
        }
        if let Some(bandwidth) = self.bandwidth.filter(|b| !(*b > 0.0 && (b * b).is_normal())) {
            problems.push(format!(
                "bandwidth must be above 0, and its square a number: from 1.5e-154 to 1.3e154, got {bandwidth:?}"
            ));
        }
        if self.max_iter == 0 {
            problems.push("max_iter must be at least 1, got 0".into());
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::InvalidParam(problems)) }
    }
}

run_methods! {
    KModesParams, LaplacianKModes;
    /// ```
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let model = shoal::kmodes::LaplacianKModes::params(3).fit(&rows).unwrap();
    /// assert!(model.mode_rows().iter().all(|&row| row < 40));
    /// ```
    fit;
    /// See [`KModesParams`] for an example.
    start;
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let params = LaplacianKModes::params(3);
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// let mut again = params.resume_fit(&run.checkpoint(&rows).unwrap(), &rows).unwrap();
    /// for run in [&mut run, &mut again] {
    ///     while run.advance(&rows).unwrap().is_some() {}
    /// }
    /// assert_eq!(run.labels(), again.labels());
    /// ```
    resume_fit;
    /// See [`KMeansParams::solve`](crate::kmeans::KMeansParams::solve) for an example.
    solve;
}
