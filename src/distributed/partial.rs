//! Partial results: what workers send back, with the partitions that they cover.

use super::clusters::ClusterTotals;
use super::errors::of_too_many;
use super::extent::{Extent, Names, difference};
use super::pieces::Pieces;
use super::place::{MOST, Place, Starts};
use super::sums::AnySums;
use crate::error::{Error, Result};
use crate::kernel::Compute;

/// What a pass has seen of the rows besides their values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Number of rows of zeros that the cosine metric met.
    pub(super) zeros: u64,
    /// Whether the rows have weights.
    pub(super) weighted: bool,
    /// Whether only nonzero values are stored.
    pub(super) sparse: bool,
}

/// What the rows of a partial result have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct About {
    pub(super) dim: usize,
    /// The type in which the rows are stored.
    pub(super) stored: String,
    /// A place of such rows, for messages.
    pub(super) place: Place,
    /// Whether the rows have weights.
    pub(super) weighted: bool,
    /// Whether only nonzero values are stored.
    pub(super) sparse: bool,
    /// Number of rows of zeros that the cosine metric met.
    pub(super) zeros: u64,
    pub(super) names: Names,
}

impl About {
    pub(super) fn new<T: Compute>(dim: usize, place: Place, seen: Seen) -> Self {
        let Seen { zeros, weighted, sparse } = seen;
        Self { dim, stored: T::NAME.into(), place, weighted, sparse, zeros, names: None }
    }

    /// What both have in common.
    fn and(&self, other: &Self) -> Result<Self> {
        let (one, two) = (self.place, other.place);
        if self.dim != other.dim {
            return Err(Error::Shape(format!(
                "all partitions must have the same columns, got {} in {two} and {} in {one}",
                other.dim, self.dim
            )));
        }
        if self.stored != other.stored {
            return Err(Error::Shape(format!(
                "all partitions must be of one type, got {} in {two} and {} in {one}: convert the rows to one type",
                other.stored, self.stored
            )));
        }
        if let Some((feature, own, theirs)) = difference(&self.names, &other.names) {
            return Err(Error::Shape(format!(
                "all partitions must have the same features in the same order, but feature {feature} is {own:?} in \
                 {one} and {theirs:?} in {two}: select the columns by name in every partition"
            )));
        }
        let ordered = |first: bool| if first { (one, two) } else { (two, one) };
        if self.names.is_some() != other.names.is_some() {
            let (with, without) = ordered(self.names.is_some());
            return Err(Error::Shape(format!(
                "all partitions must have names of features, or none: got names in {with} and none in {without}"
            )));
        }
        if self.sparse != other.sparse {
            let (sparse, dense) = ordered(self.sparse);
            return Err(Error::Shape(format!(
                "all partitions must be sparse, or all dense: got sparse rows in {sparse} and dense rows in {dense}"
            )));
        }
        if self.weighted != other.weighted {
            let (with, without) = ordered(self.weighted);
            return Err(Error::Source(format!(
                "all partitions must have weights, or none: got weights in {with} and none in {without}"
            )));
        }
        let zeros = self.zeros.checked_add(other.zeros).filter(|&zeros| zeros <= MOST);
        // The first place, in whatever order results are merged.
        let first = if one.number() <= two.number() { one } else { two };
        Ok(Self { zeros: zeros.ok_or_else(of_too_many)?, place: first, ..self.clone() })
    }
}

/// What a pass found in some of the rows. Partial results of all partitions merge into the result of the pass.
///
/// The default has no rows, and merges with any other.
///
/// See the [module](super) for an example.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The digest of the pass; `None` without partitions.
    pub(super) pass: Option<u64>,
    /// `None` without rows.
    pub(super) about: Option<About>,
    pub(super) pieces: Pieces,
    /// The sums of all pieces; `None` without partitions.
    pub(super) sums: Option<AnySums>,
}

impl Default for Partial {
    fn default() -> Self {
        Self { pass: None, about: None, pieces: Pieces::new(false), sums: None }
    }
}

impl Partial {
    /// The result of one partition, which may turn out to have no rows.
    ///
    /// # Errors
    /// If the place or the number of rows is too large.
    pub(super) fn new(pass: u64, place: Place, rows: u64, about: About, sums: AnySums) -> Result<Self> {
        place.check()?;
        if place.first_row().checked_add(rows).is_none_or(|end| end > MOST) {
            return Err(of_too_many());
        }
        if rows == 0 {
            return Ok(Self::empty(pass, place, sums));
        }
        Ok(Self { about: Some(about), pieces: Pieces::at(place, rows), ..Self::empty(pass, place, sums) })
    }

    /// The result of a partition without rows.
    pub(super) fn empty(pass: u64, place: Place, sums: AnySums) -> Self {
        Self { pass: Some(pass), about: None, pieces: Pieces::at(place, 0), sums: Some(sums) }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.pieces.rows()
    }

    /// Number of partitions, or of blocks that are numbered by their first row.
    pub fn partitions(&self) -> u64 {
        self.pieces.blocks()
    }

    /// Number of rows of zeros that the cosine metric met.
    pub fn zero_rows(&self) -> u64 {
        self.about.as_ref().map_or(0, |about| about.zeros)
    }

    /// The sums of clusters; `None` if the pass has no centers.
    pub(super) fn clusters(&self) -> Option<&ClusterTotals> {
        self.sums.as_ref()?.get()
    }

    /// The weighted sum of squared distances of the rows to their nearest centers; NaN if the pass has no centers.
    ///
    /// ```
    /// use shoal::{Executor, Metric, distributed::{KMeansPass, Place}};
    /// let task = KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?;
    /// let part = task.absorb(&[[1.0f32], [8.0], [8.0]], Place::Partition(0), &Executor::new(Some(1))?)?;
    /// assert_eq!((part.inertia(), part.weights(), part.rows()), (3.0, vec![1.0, 2.0], 3));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn inertia(&self) -> f64 {
        self.clusters().map_or(f64::NAN, |totals| totals.clusters.energy())
    }

    /// The weight of the rows nearest to each center; empty if the pass has no centers.
    ///
    /// See [`Partial::inertia`] for an example.
    pub fn weights(&self) -> Vec<f64> {
        self.clusters().map_or_else(Vec::new, |totals| totals.clusters.weights().to_vec())
    }

    /// The rows of both.
    ///
    /// # Errors
    /// [`Error::Source`] if both have the same partition or overlapping rows, belong to different passes, have
    /// more than 2^62 rows, or if some partitions have weights and others have none. [`Error::Shape`] for rows of
    /// different widths, types or names of columns, and for sparse rows beside dense ones. The message names the
    /// partitions.
    ///
    /// ```
    /// use shoal::{Executor, Metric, distributed::{KMeansPass, Place}};
    /// let (task, cx) = (KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?, Executor::new(Some(1))?);
    /// let part = task.absorb(&[[1.0f32]], Place::Partition(7), &cx)?;
    /// let twice = part.merge(&part).unwrap_err().to_string();
    /// assert!(twice.starts_with("partition 7 would be counted twice"));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn merge(&self, other: &Self) -> Result<Self> {
        self.clone().and(other.clone())
    }

    /// [`Partial::merge`], which copies no sums that nothing else holds.
    pub(crate) fn and(self, other: Self) -> Result<Self> {
        let (Some(pass), Some(theirs)) = (self.pass, other.pass) else {
            return Ok(if self.pass.is_some() { self } else { other });
        };
        if pass != theirs {
            return Err(Error::Source(
                "the partial results must belong to the same pass, got some of another iteration, of other centers \
                 or of another kind of pass"
                    .into(),
            ));
        }
        if self.pieces.by_row != other.pieces.by_row {
            return Err(Error::Source(
                "all blocks must be numbered in the same way, got some with the number of a partition and some \
                 with the number of their first row"
                    .into(),
            ));
        }
        let about = match (&self.about, &other.about) {
            (Some(one), Some(two)) => Some(one.and(two)?),
            _ => self.about.or(other.about),
        };
        // The counts first, because they bound the counts within the sums.
        let pieces = self.pieces.merge(other.pieces)?;
        let sums = match (self.sums, other.sums) {
            (Some(one), Some(two)) => Some(one.plus(two)?),
            (one, two) => one.or(two),
        };
        Ok(Self { pass: Some(pass), about, pieces, sums })
    }

    /// Returns an error unless this is the result of all `n` partitions, or of `n` blocks of numbered rows.
    ///
    /// A commit compares the number of partitions with that of the pass before. The first pass cannot know
    /// that the last partitions are missing: check its total before the commit.
    ///
    /// # Errors
    /// [`Error::Source`], which names the missing partitions.
    ///
    /// ```
    /// use shoal::{Executor, Metric, distributed::{KMeansPass, Place}};
    /// let (task, cx) = (KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?, Executor::new(Some(1))?);
    /// let part = task.absorb(&[[1.0f32], [8.0]], Place::Partition(0), &cx)?;
    /// part.check_partitions(1)?;
    /// let error = part.check_partitions(3).unwrap_err().to_string();
    /// assert_eq!(error, "total must hold all partitions, and lacks partitions 1 to 2");
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn check_partitions(&self, n: u64) -> Result<()> {
        self.pieces.check_number(n)
    }

    /// The extent, the first rows of the partitions and the sums of the whole, for the pass with this digest. `before` is
    /// the extent of the pass before.
    pub(super) fn whole(self, pass: u64, before: Option<&Extent>) -> Result<(Extent, Starts, AnySums)> {
        if self.pass.is_some_and(|own| own != pass) {
            return Err(Error::Source(
                "total must be a result of this pass, got one of another iteration, of other centers or of \
                 another kind of pass"
                    .into(),
            ));
        }
        let by_row = self.pieces.by_row;
        let starts = self.pieces.starts()?;
        let (n_rows, n_blocks) = (self.pieces.rows(), self.pieces.blocks());
        let (Some(sums), Some(about)) = (self.sums, self.about) else {
            return Err(Error::Empty("`rows` must have at least 1 row, got 0".into()));
        };
        let mut names = about.names;
        if let Some(Extent { rows, blocks, names: known }) = before {
            let (rows, blocks) = (*rows, *blocks);
            let moved = n_blocks != blocks && !by_row;
            if n_rows != rows || moved {
                return Err(Error::Source(format!(
                    "total must hold {rows} rows of {blocks} partitions, as in the pass before, got {n_rows} rows of \
                     {n_blocks}: a partition is missing, or its rows have changed"
                )));
            }
            if let Some((feature, was, is)) = difference(known, &names) {
                return Err(Error::Shape(format!(
                    "the rows must have the features of the pass before, in the same order, but feature {feature} was \
                     {was:?} and is {is:?} in {}",
                    about.place
                )));
            }
            names = names.or_else(|| known.clone());
        }
        Ok((Extent { rows: n_rows, blocks: n_blocks, names }, starts, sums))
    }

    /// The same result of rows whose columns have these names.
    #[cfg(any(test, feature = "python"))]
    pub(crate) fn named(mut self, names: Vec<String>) -> Result<Self> {
        if let Some(about) = &mut self.about {
            if names.len() != about.dim {
                return Err(Error::Shape(format!(
                    "the rows have {} columns, and {} names",
                    about.dim,
                    names.len()
                )));
            }
            about.names = Some(names.into());
        }
        Ok(self)
    }

    /// The same result of rows that are stored as `dtype`.
    #[cfg(feature = "python")]
    pub(crate) fn stored_as(mut self, dtype: &str) -> Self {
        if let Some(about) = &mut self.about {
            dtype.clone_into(&mut about.stored);
        }
        self
    }
}
