//! A source with one weight per row.

use std::borrow::Cow;

use crate::data::any::ComputeType;
use crate::data::source::forward;
use crate::data::weights::{check_length, check_weights, no_weight};
use crate::data::{Access, AnySource, Block, DataSource, Origin, Source, Visit};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// A source with one weight per row, which replaces the weights of the source.
///
/// Weights that are all 1 count as none: results are bit-identical to those of the rows without weights.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Weighted};
/// let rows = [[1.0f32], [2.0], [30.0]];
/// let weighted = Weighted::new(&rows, vec![1.0, 3.0, 2.5])?;
/// assert_eq!(weighted.weights(), Some(&[1.0, 3.0, 2.5][..]));
/// assert_eq!(KMeans::params(1).fit(&weighted)?.cluster_weights(), [6.5]);
///
/// let refused = Weighted::new(&rows, vec![1.0, -1.0, 0.0]).unwrap_err();
/// assert_eq!(refused.to_string(), "weights must be finite and at least 0, got -1 at row 1");
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weighted<'a, S> {
    source: S,
    weights: Cow<'a, [f64]>,
    /// Whether all weights are 1. Such weights are ignored, because draws by weight would select other rows
    /// than draws without weights.
    unit: bool,
    compute: ComputeType<Self>,
}

impl<'a, S> Weighted<'a, S> {
    /// Adds weights, borrowed or owned, to the rows of `source`.
    ///
    /// The type parameter is the compute type. A source that has only one, such as a slice or
    /// [`Dense`](crate::data::Dense), determines it. Stored rows ([`RawRows`](crate::data::RawRows),
    /// [`Mapped`](crate::data::Mapped), [`Csr`](crate::data::Csr)) support both types, so name it:
    /// `Weighted::new::<f32>(source, weights)`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when there is not one weight per row,
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) for a weight that is negative or not finite, and
    /// when all are 0.
    ///
    /// ```
    /// use shoal::data::{RawRows, Weighted};
    /// let rows = RawRows::new(&[1u8, 2], 1).unwrap();
    /// assert!(Weighted::new::<f32>(rows, &[1.0, 2.0][..]).is_ok());
    /// assert!(Weighted::new::<f32>(rows, &[0.0, 0.0][..]).is_err());
    /// ```
    pub fn new<T: Float>(source: S, weights: impl Into<Cow<'a, [f64]>>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let weights = weights.into();
        if let Some(rows) = source.rows() {
            check_length(weights.len(), rows)?;
        }
        check_weights(&weights, 0)?;
        if !weights.is_empty() && weights.iter().all(|&w| w == 0.0) {
            return Err(no_weight());
        }
        let unit = weights.iter().all(|&w| w == 1.0);
        Ok(Self { source, weights, unit, compute: ComputeType::of::<T>() })
    }

    /// Adds weights that were checked before, one per row; all of them may be 0.
    pub(crate) fn vouched<T: Float>(source: S, weights: &'a [f64]) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, weights: Cow::Borrowed(weights), unit: false, compute: ComputeType::of::<T>() }
    }

    /// Runs `f` on the blocks of `pass`, which begins with row `row`, with their weights.
    fn weigh<T: Float>(
        &self,
        row: u64,
        pass: &dyn Fn(&mut Visit<'_, T>) -> Result<()>,
        f: &mut Visit<'_, T>,
    ) -> Result<()> {
        let (mut seen, mut ended) = (row, false);
        pass(&mut |block| {
            seen = block.first_row + block.len as u64;
            // Only a pass tells the number of rows of a stream.
            let Some(weights) = self.weights.get(block.first_row as usize..seen as usize) else {
                return Err(check_length(self.weights.len(), seen).unwrap_err());
            };
            let next = f(Block { weights: (!self.unit).then_some(weights), ..block })?;
            ended = next.is_break();
            Ok(next)
        })?;
        if ended { Ok(()) } else { check_length(self.weights.len(), seen) }
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Weighted<'_, S> {
    forward!(|this| this.source => dim rows access always_finite scarce_memory origin most_values gather copy);

    fn weights(&self) -> Option<&[f64]> {
        (!self.unit).then_some(&*self.weights)
    }
    fn has_weights(&self) -> bool {
        true
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.weigh(0, &|g| self.source.for_each_block(tile_rows, g), f)
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.weigh(row, &|g| self.source.for_each_block_from(row, tile_rows, g), f)
    }
}

impl<S> Source for Weighted<'_, S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
