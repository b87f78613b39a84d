//! Partitions that grow: the inverted lists of a vector index that takes in new rows without a new fit.
//!
//! A [`Partition`] holds the cells of an inverted file: an id, a center and a few sums each, no rows. Rows stay in a
//! database. [`Partition::update`] takes in new rows:
//!
//! 1. New rows go to their nearest centers.
//! 2. A cell that outgrew its limit of twice the target is fetched and split, by 2-means with at least a third of the
//!    rows on each side. Its id retires, and the parts get new ids.
//! 3. Rows of the nearest cells move to a new center if it is nearer than their own, and rows of the split cell move
//!    elsewhere if another center is nearer than both the new ones: the rules of LIRE, which need no other comparisons.
//! 4. Cells whose centers have drifted most from the means of their rows are fetched too, a few for those above.
//! 5. A cell with less than a quarter of the target joins: its rows go to the nearest cells with room.
//! 6. The centers of all fetched cells move to the means of their rows, and their rows to the nearest centers around.
//!
//! Cells that were not fetched keep their ids and centers, bit for bit.
//!
//! Sources: Xu et al., "`SPFresh`: Incremental In-Place Update for Billion-Scale Vector Search", SOSP 2023, for rules
//! 2, 3 and 5 (LIRE). Here, identical rows are never dropped, splits have a least share, and rules 4 and 6 are added.

mod advice;
mod change;
mod draft;
mod fetch;
mod file;
mod joins;
mod moves;
mod settle;
mod split;
#[cfg(test)]
mod tests;
mod update;

use crate::centers::{KMeansModel, nearest, predict};
use crate::data::{DataSource, Dense, Source};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::{Float, Typed, either};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::kept::Values;

pub use change::{Moved, PartitionChange};
pub use fetch::Fetched;
#[cfg(feature = "python")]
pub(crate) use update::Rules;

/// The cells of an inverted file, which can take in rows.
///
/// Begin with [`Partition::from_model`], or [`Partition::load`]. The memory is one center and one sum per cell.
///
/// ```
/// use shoal::HierarchicalKMeans;
/// use shoal::partition::{Fetched, Partition};
///
/// // The database: rows, and the cell of each.
/// let mut rows: Vec<[f32; 2]> = (0..4000u32).map(|i| [(i % 64) as f32, (i * 7919 % 997) as f32 / 16.0]).collect();
/// let model = HierarchicalKMeans::params(40).rng_seed(7).fit(&rows)?;
/// let mut cells: Vec<u64> = model.labels().iter().map(|&label| u64::from(label)).collect();
/// let mut partition = Partition::from_model(&model)?;
///
/// let new: Vec<[f32; 2]> = (0..400u32).map(|i| [9.0 + (i % 20) as f32 / 10.0, (i / 20) as f32 / 10.0]).collect();
/// let change = partition.update(&new, |ids| {
///     let found = (0..rows.len()).filter(|&row| ids.contains(&cells[row]));
///     let mut fetched = Fetched::<f32>::default();
///     for row in found {
///         fetched.push(row as u64, cells[row], &rows[row]);
///     }
///     Ok(fetched)
/// })?;
/// assert!(!change.split_ids.is_empty() && change.new_ids.iter().all(|&id| id >= 40));
///
/// // The database stores the new rows, and moves others.
/// rows.extend(new);
/// cells.extend(&change.labels);
/// for moved in &change.moved {
///     cells[moved.key as usize] = moved.to;
/// }
/// for (&id, &size) in partition.ids().iter().zip(partition.sizes()) {
///     assert_eq!(cells.iter().filter(|&&cell| cell == id).count() as u64, size);
/// }
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    pub(crate) cells: Typed<Cells<f32>, Cells<f64>>,
    threads: Option<usize>,
}

/// The cells of a partition in their compute type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cells<T> {
    pub(crate) dim: usize,
    pub(crate) metric: Metric,
    /// The wanted number of rows per cell. Cells with more than twice as many split.
    pub(crate) target: u64,
    /// Ascending.
    pub(crate) ids: Vec<u64>,
    /// Larger than all ids that there ever were.
    pub(crate) next_id: u64,
    pub(crate) centers: Vec<T>,
    /// Rows per cell.
    pub(crate) sizes: Vec<u64>,
    /// Per cell, the sum of its rows minus its center: their number times how far the center has drifted from their
    /// mean. 0 at a fit.
    pub(crate) shifts: Vec<f64>,
    /// The squared distances of all rows to their centers; NaN if a fit has not computed them.
    pub(crate) inertia: f64,
    /// The inertia per row at the fit.
    pub(crate) inertia_at_fit: f64,
}

/// The largest target: a limit is twice as large, and files hold both.
const MOST_TARGET: u64 = 1 << 40;

impl Partition {
    /// The cells of a fitted model, whose labels are their ids. Their sizes are the
    /// [`cluster_weights`](KMeansModel::cluster_weights), and the target is the mean size.
    ///
    /// See [`Partition`] for an example.
    ///
    /// # Errors
    /// [`Error::Source`] if the rows of the fit had weights other than whole numbers, which are no numbers of rows, and
    /// for the model of a run before its first step.
    pub fn from_model(model: &KMeansModel) -> Result<Self> {
        let (weights, dim, metric) = (model.cluster_weights(), model.dim(), model.metric());
        if weights.is_empty() {
            return Err(Error::no_step());
        }
        if weights.iter().any(|weight| weight.fract() != 0.0) {
            return Err(Error::Source(
                "a partition counts rows, but the model was fitted to rows with weights: fit it without weights"
                    .into(),
            ));
        }
        let sizes: Vec<u64> = weights.iter().map(|&weight| weight as u64).collect();
        let (k, n) = (sizes.len(), sizes.iter().sum::<u64>());
        let inertia = model.inertia();
        let cells = either!(&model.centers, centers => Typed(Cells {
            dim,
            metric,
            target: (n as f64 / k as f64).round().max(1.0) as u64,
            ids: (0..k as u64).collect(),
            next_id: k as u64,
            centers: centers.clone(),
            sizes,
            shifts: vec![0.0; k * dim],
            inertia,
            inertia_at_fit: inertia / n as f64,
        }));
        Ok(Self { cells, threads: None })
    }

    /// The same partition with another target: the wanted number of rows per cell.
    ///
    /// ```
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i)]).collect();
    /// let model = shoal::KMeans::params(6).fit(&rows)?;
    /// let partition = shoal::partition::Partition::from_model(&model)?;
    /// assert_eq!((partition.target(), partition.with_target(8)?.target()), (10, 8));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for 0, and above 2^40.
    pub fn with_target(mut self, target: u64) -> Result<Self> {
        if !(1..=MOST_TARGET).contains(&target) {
            return Err(Error::param("target", format!("in 1..={MOST_TARGET}"), target));
        }
        either!(&mut self.cells, cells => cells.target = target);
        Ok(self)
    }

    /// The same partition, which uses that many threads. `None`, the default: as many as [`Executor::new`] takes. The
    /// results do not depend on it.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let partition = shoal::partition::Partition::from_model(&model)?.with_threads(Some(1));
    /// assert_eq!(partition.predict(&[[9.0f64]])?.len(), 1);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    #[must_use]
    pub fn with_threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// The ids of the cells, ascending. An id that has retired never comes back.
    ///
    /// See [`Partition`] for an example.
    pub fn ids(&self) -> &[u64] {
        either!(&self.cells, cells => &cells.ids)
    }

    /// The number of rows per cell, in the order of [`Partition::ids`].
    ///
    /// See [`Partition`] for an example.
    pub fn sizes(&self) -> &[u64] {
        either!(&self.cells, cells => &cells.sizes)
    }

    /// The centers in the order of [`Partition::ids`], converted to `T`. The conversion is exact if the fit computed in
    /// `T`.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let partition = shoal::partition::Partition::from_model(&model)?;
    /// assert_eq!(partition.centers::<f64>(), model.centers::<f64>());
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        either!(&self.cells, cells => Values::of(&cells.centers)).get()
    }

    /// Number of columns of a row.
    ///
    /// ```
    /// let model = shoal::KMeans::params(1).fit(&[[0.0f64, 1.0], [4.0, 1.0]])?;
    /// assert_eq!(shoal::partition::Partition::from_model(&model)?.dim(), 2);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn dim(&self) -> usize {
        either!(&self.cells, cells => cells.dim)
    }

    /// The wanted number of rows per cell: the mean at the fit, or that of [`Partition::with_target`].
    pub fn target(&self) -> u64 {
        either!(&self.cells, cells => cells.target)
    }

    /// The id of the nearest cell of every row.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let partition = shoal::partition::Partition::from_model(&model)?;
    /// assert_eq!(partition.predict(&[[4.5f64]])?, [u64::from(model.predict(&[[4.5f64]])?[0])]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`KMeansModel::predict`].
    pub fn predict<S: Source>(&self, rows: S) -> Result<Vec<u64>> {
        let cx = Executor::of_call(self.threads)?;
        let labels =
            either!(rows.any(), data => predict(&self.centers_for(data)?, self.metric(), data, &cx))?;
        Ok(self.ids_at(&labels))
    }

    /// The ids of the `m` nearest cells of every row, nearest first, and the squared distances to their centers: `m` of
    /// each per row. A search in the inverted lists reads these cells.
    ///
    /// Every call packs the centers again. For many small queries, pack them once and use
    /// [`kernel::nearest_m`](crate::kernel::nearest_m), as the Rust guide shows.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let partition = shoal::partition::Partition::from_model(&model)?;
    /// let (cells, sq_dists) = partition.nearest(&[[1.0f64]], 2)?;
    /// assert_eq!((cells[0], sq_dists), (partition.predict(&[[1.0f64]])?[0], vec![1.0, 9.0]));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`KMeansModel::nearest`].
    pub fn nearest<S: Source>(&self, rows: S, m: usize) -> Result<(Vec<u64>, Vec<f64>)> {
        let cx = Executor::of_call(self.threads)?;
        let (places, sq_dists) =
            either!(rows.any(), data => nearest(&self.centers_for(data)?, m, self.metric(), data, &cx))?;
        Ok((self.ids_at(&places), sq_dists))
    }

    /// The centers, after checking that `data` has the same number of columns.
    fn centers_for<T: Compute>(&self, data: &dyn DataSource<T>) -> Result<Vec<T>> {
        either!(&self.cells, cells => cells.check_columns(data))?;
        Ok(self.centers())
    }

    /// The ids of the cells at these places.
    fn ids_at(&self, places: &[u32]) -> Vec<u64> {
        places.iter().map(|&place| self.ids()[place as usize]).collect()
    }

    fn metric(&self) -> Metric {
        either!(&self.cells, cells => cells.metric)
    }
}

impl<T: Compute> Cells<T> {
    /// The largest number of rows per cell.
    fn limit(&self) -> u64 {
        2 * self.target
    }

    /// Returns an error for rows with another number of columns.
    fn check_columns<E: Float>(&self, data: &dyn DataSource<E>) -> Result<()> {
        if data.dim() == self.dim {
            return Ok(());
        }
        Err(Error::Shape(format!("`rows` have {} columns, but the partition has {}", data.dim(), self.dim)))
    }

    fn center(&self, j: usize) -> &[T] {
        &self.centers[j * self.dim..][..self.dim]
    }

    fn rows<'a>(&self, values: &'a [T]) -> Result<Dense<'a, T>> {
        Dense::new(values, self.dim)
    }
}
