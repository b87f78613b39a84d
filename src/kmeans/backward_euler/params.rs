//! The parameters of stochastic backward Euler.

use crate::data::Access;
use crate::fit::{Metric, parameters, run_methods, stream_methods};
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// The first step size under a cap, in numbers of clusters (`papers/sbe.py`, steps; `defaults.py`). Without a cap, it
/// is the number of clusters, as in the paper: pulls of 3 would diverge.
const AUTO_STEP: f64 = 3.0;

/// The share of [`AUTO_STEP`] that the last step of a fit has by default.
const AUTO_END: f64 = 1.0 / 20.0;

/// Stochastic backward Euler for k-means: long steps that leave poor optima, even after a poor start. Begin
/// with [`BackwardEuler::params`].
///
/// An outer step is implicit: it uses the gradient at the point where it ends. A few inner iterations around
/// a fixed anchor, each on its own mini-batch, find that point as the average of their iterates. Then the
/// step size decays. Centers without rows in a batch do not move.
///
/// Source: Yin, Pham, Oberman and Osher, "Stochastic backward Euler: an implicit gradient descent algorithm
/// for k-means clustering", 2018.
///
/// ```
/// use shoal::BackwardEuler;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, 1.0]).collect();
/// let model = BackwardEuler::params(2).batch_size(50).max_iter(40).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// assert_ne!(model.labels()[0], model.labels()[1]);
/// ```
#[doc(alias = "BackwardEulerKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct BackwardEuler;

parameters! {
    /// The parameters of stochastic backward Euler. A fit checks all of them before it starts.
    ///
    /// See [`BackwardEuler`] for an example.
    BackwardEulerParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    BackwardEuler::params(n_clusters) {
        /// How the first centers are chosen (default [`Seeding::Auto`]). The paper starts from random rows.
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Rows per batch of a fit (default 1000). If there are no more rows than this, every batch holds
        /// each row once.
        batch_size: u64 = 1000 => at_least_1(),
        /// The first step size, gamma (default `None`: three times the number of clusters; the number of
        /// clusters if there is no cap or one cluster). A cluster with the share `p` of a batch moves toward
        /// the mean of its rows by `p` times the step size, up to the [cap](BackwardEulerParams::step_cap).
        ///
        /// The schedule of the paper is no cap, which makes this the number of clusters, and a
        /// [decay](BackwardEulerParams::step_decay) of 1 / 1.01.
        step_size: Option<f64> = None => Range(|size| size.is_finite() && size >= 0.0, "a finite number of at least 0, or none"),
        /// The factor of the step size after each outer step, beta (default `None`: the step size falls to a
        /// twentieth of the first in [`max_iter`](BackwardEulerParams::max_iter) outer steps).
        ///
        /// ```
        /// use shoal::BackwardEuler;
        /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i % 7)]).collect();
        /// let mut run = BackwardEuler::params(2).max_iter(4).start(&rows).unwrap();
        /// while run.advance(&rows).unwrap().is_some() {}
        /// // From 3 times 2, in 4 steps to a twentieth.
        /// let expected = [0.0, 0.25, 0.5, 0.75].map(|share| 6.0 * 20f64.powf(-share));
        /// let sizes = run.step_sizes();
        /// assert!(sizes.iter().zip(&expected).all(|(size, expected)| (size / expected - 1.0).abs() < 1e-12));
        /// ```
        step_decay: Option<f64> as impl Into<Option<f64>> = None => Range(|factor| factor > 0.0 && factor <= 1.0, "above 0 and at most 1, or none"),
        /// The share of the average that each inner iteration keeps, alpha (default 0.75). With 0 the result
        /// is the last iterate.
        averaging: f64 = 0.75 => from_0_to_1(),
        /// Inner iterations per outer step, each with its own batch (default 5).
        n_inner: u64 = 5 => at_least_1(),
        /// The distance (default [`Metric::Euclidean`]). With [`Metric::Cosine`] rows are scaled to length 1 as they
        /// are read, a center moves toward the direction of the sum of its rows, and iterates and their average are
        /// projected to the unit sphere.
        ///
        /// ```
        /// use shoal::{BackwardEuler, Metric};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| if i % 2 == 0 { [f64::from(i), 0.0] } else { [0.0, 1.0] }).collect();
        /// let model = BackwardEuler::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// assert!(model.centers::<f64>().chunks(2).all(|center| (center[0].hypot(center[1]) - 1.0).abs() < 1e-12));
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// Outer steps of a fit (default 150).
        max_iter: u64 = 150 => at_least_1(),
        /// Upper limit for the product of step size and share of the batch of a center (default `None`: 1.8,
        /// or 1.5 with more than 5 inner iterations; infinity: no limit).
        step_cap: Option<f64> = None => Range(|most| most > 0.0, "above 0, infinity, or none"),
        /// Whether a fit ends with sweeps of exact k-means until they converge (default `None`: if the rows
        /// can be read again). `true` requires rows that can be read again.
        polish: Option<bool> as impl Into<Option<bool>> = None,
        /// Upper limit for the bytes of the bounds of the [polish](BackwardEulerParams::polish) (default 1 GB). See
        /// [`KMeansParams::bounds_memory`](crate::kmeans::KMeansParams::bounds_memory).
        bounds_memory: u64 = DEFAULT_MEMORY,
        /// Whether [`BackwardEulerParams::fit`] ends with a pass for labels and inertia (default true).
        compute_labels: bool = true,
    }
    /// ```
    /// let params = shoal::BackwardEuler::params(8).batch_size(0).averaging(1.5).step_size(Some(-1.0));
    /// let refused = params.check(Some(5), 2).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters") && refused.contains("batch_size"));
    /// assert!(refused.contains("averaging") && refused.contains("step_size"));
    /// ```
    check;
}

impl BackwardEulerParams {
    /// The step size of the first outer step.
    pub(super) fn first_step_size(&self) -> f64 {
        // One cluster has all rows of every batch, and no poor optimum to leave.
        let is_long = self.n_clusters > 1 && self.cap().is_finite();
        self.step_size.unwrap_or(self.n_clusters as f64 * if is_long { AUTO_STEP } else { 1.0 })
    }

    /// The factor of the step size after each outer step.
    pub(super) fn decay(&self) -> f64 {
        self.step_decay.unwrap_or_else(|| AUTO_END.powf(1.0 / self.max_iter as f64))
    }

    /// Upper limit for the product of step size and share of the batch of a center.
    pub(super) fn cap(&self) -> f64 {
        // A pull of more than 1 is amplified by every inner iteration.
        self.step_cap.unwrap_or(if self.n_inner > 5 { 1.5 } else { 1.8 })
    }

    /// Whether a fit to rows with this access ends with sweeps.
    pub(super) fn polishes(&self, access: Access) -> bool {
        self.polish.unwrap_or(access > Access::Once)
    }
}

run_methods! {
    BackwardEulerParams, BackwardEuler;
    /// Rows with random access are drawn with replacement, with odds proportional to their weights; a drawn
    /// row counts 1. Rows of a stream are taken in consecutive batches, count their weight, and should come
    /// in random order. For a stream that can be read only once, the model has no labels and no inertia.
    fit;
    /// ```
    /// use shoal::{BackwardEuler, fit::StopReason};
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i % 7)]).collect();
    /// let params = BackwardEuler::params(2).step_size(Some(1e200)).step_cap(Some(f64::INFINITY));
    /// let mut run = params.start(&rows).unwrap();
    /// assert_eq!(run.advance(&rows).unwrap().unwrap().stop_reason, Some(StopReason::Diverged));
    /// assert!(run.centers::<f64>().iter().all(|c| c.is_finite()));
    /// ```
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::BackwardEuler::params(2).max_iter(3).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}

stream_methods! {
    BackwardEulerParams, BackwardEuler;
    /// ```
    /// use shoal::{BackwardEuler, Seeding};
    /// let params = BackwardEuler::params(1).seeding(Seeding::Given(vec![0.0])).averaging(0.0).n_inner(2);
    /// let params = params.step_size(Some(1.0)).step_decay(1.0);
    /// let mut run = params.stream(&[[0.0f64]]).unwrap();
    /// run.partial_fit(&[[4.0f64], [8.0]]).unwrap();
    /// assert_eq!(run.centers::<f64>(), [6.0]);
    /// run.partial_fit(&[[9.0f64]]).unwrap();
    /// // From the anchor 0, with the gradient at 6.
    /// assert_eq!(run.centers::<f64>(), [0.0 - 1.0 * (6.0 - 9.0)]);
    /// ```
    stream;
    /// See [`MiniBatchParams::resume`](crate::kmeans::MiniBatchParams::resume) for an example.
    resume;
}
