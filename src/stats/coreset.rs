//! A weighted sample of rows, and the distribution that the rows of a lightweight coreset are drawn from.

use crate::data::{DataSource, Weighted, no_weight, too_heavy, too_light};
use crate::error::Result;
use crate::float::{Float, PerFloat};
use crate::kernel::{Compute, Point};
use crate::parallel::Executor;
use crate::pass::{Cut, Unread, sweep};
use crate::rows::{RowBuf, Rows};
use crate::stats::Moments;

/// Rows between two merges in the pass of a coreset: a merge takes some operations per column.
pub(super) const CORESET_TILE_ROWS: usize = 8192;

/// A weighted sample of rows that represents many more rows.
///
/// ```
/// use shoal::{Executor, KMeans, data::Dense, stats::lightweight_coreset};
/// let values: Vec<f32> = (0..10_000).map(|i| (i % 10) as f32).collect();
/// let rows = Dense::new(&values, 1)?;
/// let coreset = lightweight_coreset(&rows, 500, 7, &Executor::new(None)?)?;
/// assert_eq!((coreset.points.len(), coreset.weights.len()), (500, 500));
/// let model = KMeans::params(5).fit(&coreset.weighted()?)?;
/// assert_eq!(model.n_clusters(), 5);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Coreset<T> {
    /// The rows; sparse if the source is sparse.
    pub points: RowBuf<T>,
    /// The weight that each row represents.
    pub weights: Vec<f64>,
    /// The row numbers in the source.
    pub rows: Vec<u64>,
}

impl PerFloat for Coreset<()> {
    type Of<T: Float> = Coreset<T>;
}

impl<T: Compute> Coreset<T> {
    /// An empty coreset of `dim` columns.
    pub(crate) fn new(dim: usize) -> Self {
        Self { points: RowBuf::new(dim), weights: Vec::new(), rows: Vec::new() }
    }

    /// The weighted rows as a source, for every function that takes a source.
    ///
    /// See [`Coreset`] for an example.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if all weights are 0.
    pub fn weighted(&self) -> Result<Weighted<'_, &RowBuf<T>>> {
        Weighted::new::<T>(&self.points, &self.weights[..])
    }

    /// Adds a row with a weight.
    pub(crate) fn push(&mut self, rows: Rows<'_, T>, i: usize, weight: f64, row: u64) {
        self.points.push(rows, i);
        self.weights.push(weight);
        self.rows.push(row);
    }

    /// Adds all rows of another coreset.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.points.extend(other.points.rows());
        self.weights.extend_from_slice(&other.weights);
        self.rows.extend_from_slice(&other.rows);
    }

    /// Keeps the first `n` rows.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.points.truncate(n);
        self.weights.truncate(n);
        self.rows.truncate(n);
    }
}

/// The smallest allowed total weight. Below it, products with squared distances lose all digits.
pub(crate) const LIGHTEST: f64 = 1e-280;

/// The sampling distribution, up to a factor: `w (1 + d2 / mean)`.
#[derive(Debug)]
pub(crate) struct SamplingLaw<T> {
    pub(super) center: Vec<T>,
    /// The weighted mean of `d2`. 0 if all rows are equal, or so close that squares lose all digits.
    mean: f64,
    /// The weight of all rows.
    weight: f64,
}

impl<T: Compute> SamplingLaw<T> {
    /// # Errors
    /// If the total weight is 0 or nearly 0, or sums overflow.
    pub(crate) fn new(moments: &Moments) -> Result<Self> {
        let center: Vec<T> = moments.mean().iter().map(|&x| T::from_f64(x)).collect();
        let weight = moments.weight();
        if weight <= 0.0 {
            return Err(no_weight());
        }
        if weight < LIGHTEST {
            return Err(too_light());
        }
        // Distances are measured from the center as rounded to `T`.
        let spread = moments.spread_about(&center);
        let mean = if spread < f64::MIN_POSITIVE / f64::EPSILON { 0.0 } else { spread / weight };
        if !(weight.is_finite() && mean.is_finite()) {
            // Weights of 1 count as none.
            return Err(too_heavy(weight != moments.rows() as f64));
        }
        Ok(Self { center, mean, weight })
    }

    /// The point from which distances are measured.
    pub(super) fn point(&self) -> Point<'_, T> {
        Point::new(&self.center)
    }

    /// The odds of a row of weight 1.
    pub(super) fn odds(&self, sq_dist: f64) -> f64 {
        if self.mean > 0.0 { 1.0 + sq_dist / self.mean } else { 1.0 }
    }

    /// The share of a row in the odds of all rows. At most 1, however small the weight or large the distance.
    pub(super) fn share(&self, weight: f64, sq_dist: f64) -> f64 {
        let weight = weight / self.weight;
        let share =
            if self.mean > 0.0 { f64::midpoint(weight, weight * sq_dist / self.mean) } else { weight };
        share.min(1.0)
    }

    /// The weight that a row with these odds represents, as one of `m` drawn rows. The shares of all rows add
    /// up to `all`.
    pub(super) fn stands_for(&self, odds: f64, all: f64, m: usize) -> f64 {
        let known = if self.mean > 0.0 { 2.0 * self.weight } else { self.weight };
        // Rounding must not lift weights above their bound.
        let all = if (all - 1.0).abs() < 1e-9 { known } else { all * known };
        all / m as f64 / odds
    }
}

/// Adds the rows of a source to `moments`.
pub(crate) fn add_moments<T: Compute>(
    data: &dyn DataSource<T>,
    moments: &mut Moments,
    cx: &Executor,
) -> Result<()> {
    let dim = data.dim();
    let absorb = |mut chunk: Unread<'_, T>, (): (), part: &mut Moments, (): &mut ()| {
        if chunk.weights().is_none()
            && let Some(bytes) = chunk.bytes()?
        {
            part.absorb_bytes(bytes);
            return Ok(());
        }
        let chunk = chunk.read()?;
        part.absorb(chunk.rows, chunk.weights);
        if part.spread().is_finite() {
            return Ok(());
        }
        chunk.check_finite()?;
        Err(if part.weight().is_finite() && chunk.weights.is_none() {
            chunk.not_finite()
        } else {
            too_heavy(true)
        })
    };
    let merge = |total: &mut Moments, part: &mut Moments| {
        total.merge(part);
        part.clear();
    };
    sweep(data, cx, cut(data), (), moments, (|| Moments::new(dim), || ()), absorb, merge)
}

/// How passes cut the rows. A tile of sparse rows is one chunk, since each chunk costs a few operations per
/// column.
pub(super) fn cut<T: Compute>(data: &dyn DataSource<T>) -> Cut {
    let chunk_rows = data.most_values().map(|_| CORESET_TILE_ROWS);
    Cut { tile_rows: CORESET_TILE_ROWS, chunk_rows }
}
