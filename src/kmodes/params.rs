//! The parameters of Laplacian K-modes.

use std::fmt::{self, Display};

use crate::error::{InvalidParam, Result};
use crate::fit::{Metric, Parameter, Value, parameters, parsed, run_methods};
use crate::graph::GraphMethod;
use crate::names::names;
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// Laplacian K-modes (SLK): see the [module](super).
///
/// ```
/// use shoal::LaplacianKModes;
/// let rows: Vec<[f32; 2]> = (0..60).map(|i| [(i % 3) as f32 * 9.0 + (i % 7) as f32 / 9.0, (i % 5) as f32 / 9.0]).collect();
/// let model = LaplacianKModes::params(3).rng_seed(1).fit(&rows)?;
/// assert_eq!(model.labels().len(), 60);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LaplacianKModes;

/// What the modes are.
///
/// ```
/// use shoal::kmodes::ModeUpdate;
/// assert_eq!((ModeUpdate::ByProduct.to_string(), "mean-shift".parse().ok()), ("byproduct".into(), Some(ModeUpdate::MeanShift)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeUpdate {
    /// The rows with the highest responsibility for each cluster (SLK-BO). They are a by-product of the
    /// labels at no extra cost.
    #[default]
    ByProduct,
    /// Means, moved by mean shift to where their rows are densest (SLK-MS). They are not rows of the data.
    MeanShift,
}

names! {
    ModeUpdate("mode_update") {
        ByProduct = "byproduct",
        MeanShift = "mean-shift",
    }
}

/// The shift of the diagonal of the affinity. As a [`Value`], it is `"auto"` or a number.
///
/// ```
/// use shoal::kmodes::Shift;
/// assert_eq!((Shift::Auto.to_string(), "0.5".parse().ok()), ("auto".to_owned(), Some(Shift::By(0.5))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Shift {
    /// Per row, the smallest shift with which every update lowers the energy. It is applied from the first
    /// update that does not lower the energy.
    #[default]
    Auto,
    /// The same shift for every row; 0 is the algorithm of the paper.
    By(f64),
}

impl Parameter for Shift {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Float(shift) => Ok(Self::By(shift)),
            Value::Int(shift) => Ok(Self::By(shift as f64)),
            Value::Text(text) if text == "auto" => Ok(Self::Auto),
            other => Err(InvalidParam::new(name, "\"auto\", or a finite number of at least 0", other)),
        }
    }

    fn to_value(&self) -> Value {
        match *self {
            Self::Auto => "auto".into(),
            Self::By(shift) => shift.into(),
        }
    }
}

parsed! { Shift("shift") }

impl Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::By(shift) => write!(f, "{shift:?}"),
        }
    }
}

/// What happens when a cluster loses its last row.
///
/// ```
/// use shoal::kmodes::Collapse;
/// assert_eq!((Collapse::Restore.to_string(), "reduce".parse().ok()), ("restore".to_owned(), Some(Collapse::Reduce)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collapse {
    /// The clusters of the previous iteration are restored, and the run ends.
    #[default]
    Restore,
    /// The iteration is repeated with the weight of the Laplacian reduced by a fifth, until no cluster is empty.
    Reduce,
}

names! {
    Collapse("on_collapse") {
        Restore = "restore",
        Reduce = "reduce",
    }
}

/// Copies of the responsibilities of all rows that a fit holds: the result, and two that are replaced.
const COPIES: u64 = 3;
/// Minimum number of responsibilities kept per row: a row may lie between two clusters.
const LEAST_KEPT: usize = 2;

parameters! {
    /// The parameters of Laplacian K-modes. A fit checks all of them before it starts.
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
    KModesParams,
    /// Parameters with the defaults of the Python class, except that a fit starts from k-means++ seeds.
    /// [`KModesRun::begin_with`](super::KModesRun::begin_with) takes labels.
    ///
    /// See [`KModesParams`] for an example.
    LaplacianKModes::params(n_clusters) {
        /// Weight `lambda` of the Laplacian term; 0 is K-modes. Default `None`: the smallest weight at which
        /// neighbors determine the labels, computed from the number of clusters and the mean row sum of the
        /// affinity.
        ///
        /// ```
        /// use shoal::kmodes::LaplacianKModes;
        /// let fixed = LaplacianKModes::params(2).laplacian_weight(1.5);
        /// let found_by_the_fit = fixed.laplacian_weight(None);
        /// ```
        laplacian_weight: Option<f64> as impl Into<Option<f64>> = None => finite_at_least_0(),
        /// What the modes are (default [`ModeUpdate::ByProduct`]).
        mode_update: ModeUpdate = ModeUpdate::ByProduct,
        /// Neighbors of a row in the graph. Default `None`: 5, or up to 40 if the graph falls apart with fewer. A graph
        /// falls apart if it has more parts than clusters, or if most rows lie in small parts. A part is a connected
        /// component, and small if it has fewer rows than a tenth of the mean cluster. If 40 neighbors are too few, 5
        /// are used.
        ///
        /// ```
        /// use shoal::kmodes::LaplacianKModes;
        /// // Two lines, each of which has a gap after every sixth row.
        /// let row = |i: u32| [f64::from(i % 60 + 9 * (i % 60 / 6)), f64::from(i / 60) * 500.0];
        /// let rows: Vec<[f64; 2]> = (0..120).map(row).collect();
        /// let model = LaplacianKModes::params(2).fit(&rows)?;
        /// assert_eq!((model.n_neighbors(), model.labels()[0]), (6, model.labels()[59]));
        /// assert_eq!(LaplacianKModes::params(2).n_neighbors(5).fit(&rows)?.n_neighbors(), 5);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        n_neighbors: Option<usize> as impl Into<Option<usize>> = None,
        /// Width `sigma` of the kernel (default `None`: the root of the mean squared distance of neighbors).
        bandwidth: Option<f64> = None,
        /// Whether the weight of a neighbor is its kernel value (default false: it is 1).
        gaussian: bool = false,
        /// The shift of the diagonal of the affinity (default [`Shift::Auto`]).
        #[doc(alias = "diagonal_shift")]
        shift: Shift = Shift::Auto,
        /// What happens when a cluster loses its last row (default [`Collapse::Restore`]).
        on_collapse: Collapse = Collapse::Restore,
        /// Whether rows are scaled to length 1 as they are read, so that only their directions count. Default `None`: a
        /// rule decides from up to 1,024 evenly spaced rows. Rows are scaled if they have at least 8 columns, unless
        /// more than a tenth of their values are nonzero and at least 99 hundredths of their variance are the variance
        /// of their lengths.
        ///
        /// ```
        /// use shoal::kmodes::LaplacianKModes;
        /// let flat: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
        /// assert!(!LaplacianKModes::params(3).fit(&flat)?.normalize());
        /// assert!(LaplacianKModes::params(3).normalize(true).fit(&flat)?.normalize());
        /// # Ok::<(), shoal::Error>(())
        /// ```
        normalize: Option<bool> as impl Into<Option<bool>> = None,
        /// The distance (default [`Metric::Euclidean`]). [`Metric::Cosine`] compares rows by angle: it is another name
        /// for `normalize(true)`.
        ///
        /// ```
        /// use shoal::{Metric, kmodes::LaplacianKModes};
        /// let params = LaplacianKModes::params(3).metric(Metric::Cosine);
        /// let refused = params.normalize(false).check(Some(10), 2).unwrap_err().to_string();
        /// assert_eq!(refused, "normalize must be true with the metric \"cosine\", got false");
        /// ```
        metric: Metric = Metric::Euclidean,
        /// How the first modes are chosen (default [`Seeding::PlusPlus`] with `greedy`).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::PlusPlus { greedy: true },
        /// Maximum number of iterations (default 100).
        max_iter: u64 = 100 => at_least_1(),
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// How neighbors are found (default [`GraphMethod::Auto`]).
        graph_method: GraphMethod = GraphMethod::Auto,
        /// Upper limit for the bytes of the responsibilities (default 1 GB). If all of them
        /// take more, only the largest ones per row are kept: as many as fit, at least two. The other clusters
        /// share the rest equally. `None`: all are kept.
        responsibilities_memory: Option<u64> = Some(DEFAULT_MEMORY),
    }
}

impl KModesParams {
    /// Whether rows are scaled to length 1. A run has decided it before it plans a solver.
    pub(super) fn scales(&self) -> bool {
        self.normalize == Some(true)
    }

    /// Responsibilities kept per row, of `n` rows, with values of `size` bytes.
    pub(super) fn kept(&self, n: u64, size: usize) -> usize {
        let k = self.n_clusters;
        let Some(bytes) = self.responsibilities_memory else { return k };
        let of_row = bytes / (COPIES * n.max(1));
        if of_row >= (k * size) as u64 {
            return k;
        }
        // Per row: values, their clusters, and the rest that the other clusters share.
        let fitting = (of_row as usize).saturating_sub(size) / (size + size_of::<u32>());
        fitting.max(LEAST_KEPT).min(k)
    }

    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// ```
    /// let params = shoal::kmodes::LaplacianKModes::params(0).laplacian_weight(-1.0);
    /// let refused = params.check(Some(10), 2).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters") && refused.contains("laplacian_weight"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let mut problems = self.problems(n, dim);
        problems.neighbors(self.n_neighbors.unwrap_or(1), n);
        if let Shift::By(shift) = self.shift {
            problems.finite_at_least_0("shift", shift);
        }
        if let Some(bandwidth) = self.bandwidth {
            let fits = bandwidth > 0.0 && (bandwidth * bandwidth).is_normal();
            let allowed = "from 1.5e-154 to 1.3e154, so that its square is a number";
            problems.require(fits, "bandwidth", allowed, format!("{bandwidth:?}"));
        }
        let fits = self.normalize != Some(false) || self.metric == Metric::Euclidean;
        problems.require(fits, "normalize", "true with the metric \"cosine\"", false);
        problems.into_result()
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
