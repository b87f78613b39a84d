//! This module knows sources made from other sources: with weights, in part, in another order, with rows of
//! length 1.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::failure::Failure;
use super::raw::one_block;
use super::reblock::Reblock;
use super::{Access, Block, DataSource, TileReader, Visit, gather, no_such_row};
use crate::error::{Error, InvalidParam, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

/// A source with one weight a row, in place of any that it has.
///
/// Weights that are all 1 are as good as none: such a source gives no weights, and every result is that of the rows alone.
///
/// ```
/// use shoal::data::{DataSource, Dense, Weighted};
/// let rows = Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
/// let weighted = Weighted::new(rows, vec![1.0, 0.0, 2.5]).unwrap();
/// assert_eq!(weighted.weights(), Some(&[1.0, 0.0, 2.5][..]));
///
/// let refused = Weighted::new(rows, vec![1.0, -1.0, 0.0]).unwrap_err();
/// assert_eq!(refused.to_string(), "weights must be finite and at least 0, got -1 at row 1");
/// ```
#[derive(Clone, Debug)]
pub struct Weighted<'a, S> {
    source: S,
    weights: Cow<'a, [f64]>,
    /// Whether all weights are 1: draws by weight would take other rows than draws without.
    unit: bool,
}

impl<'a, S> Weighted<'a, S> {
    /// Weights, borrowed or owned, for the rows of `source`. A source that can be read as `f32` and as `f64`
    /// needs to be told here which of them to ask for its length: `Weighted::new::<f32>(source, weights)`.
    ///
    /// # Errors
    /// [`Error::Shape`] when their number is not that of the rows, [`Error::InvalidParam`] for a weight that
    /// is negative or not finite, and when all are 0.
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
        Ok(Self { source, weights, unit })
    }

    /// Weights that were checked before, one for each row; all of them may be 0.
    pub(crate) fn vouched(source: S, weights: &'a [f64]) -> Self {
        Self { source, weights: Cow::Borrowed(weights), unit: false }
    }
}

/// The refusal of weights that are all 0.
pub(crate) fn no_weight() -> Error {
    Error::param("weights", "above 0 for at least one row", "0 for every row")
}

/// The refusal of weights whose sums no `f64` can hold.
pub(crate) fn too_heavy() -> Error {
    let expected = "of a finite sum, also when multiplied by squared distances";
    InvalidParam::new("weights", expected, "weights that are too large")
        .with_remedy("scale the weights")
        .into()
}

/// The refusal of weights whose products with squared distances have no digits left.
pub(crate) fn too_light() -> Error {
    let expected = "at least 1e-280 in sum";
    InvalidParam::new("weights", expected, "weights that are too small")
        .with_remedy("scale the weights")
        .into()
}

/// Refuses weights that are negative or not finite; the first of them is that of row `first_row`.
pub(super) fn check_weights(weights: &[f64], first_row: u64) -> Result<()> {
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        None => Ok(()),
        Some(bad) => Err(Error::param(
            "weights",
            "finite and at least 0",
            format!("{} at row {}", weights[bad], first_row + bad as u64),
        )),
    }
}

fn check_length(weights: usize, rows: u64) -> Result<()> {
    if weights as u64 == rows {
        return Ok(());
    }
    Err(Error::Shape(format!("weights has {weights} values, X has {rows} rows")))
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Weighted<'_, S> {
    fn dim(&self) -> usize {
        self.source.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.source.rows()
    }
    fn access(&self) -> Access {
        self.source.access()
    }
    fn weights(&self) -> Option<&[f64]> {
        Some(&*self.weights).filter(|_| !self.unit)
    }
    fn always_finite(&self) -> bool {
        self.source.always_finite()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.weigh(0, &|g| self.source.for_each_block(tile_rows, g), f)
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.weigh(row, &|g| self.source.for_each_block_from(row, tile_rows, g), f)
    }
    fn most_values(&self) -> Option<usize> {
        self.source.most_values()
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(rows, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(rows, out)
    }
}

impl<S> Weighted<'_, S> {
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
            // The number of rows of a stream shows only now.
            let Some(weights) = self.weights.get(block.first_row as usize..seen as usize) else {
                return Err(check_length(self.weights.len(), seen).unwrap_err());
            };
            let next = f(Block { weights: Some(weights).filter(|_| !self.unit), ..block })?;
            ended = next.is_break();
            Ok(next)
        })?;
        if ended { Ok(()) } else { check_length(self.weights.len(), seen) }
    }
}

/// Consecutive rows of a source; they are counted from 0 again.
///
/// ```
/// use shoal::data::{DataSource, Dense, RowRange};
/// let rows = Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
/// let last = RowRange::new(rows, 1..3).unwrap();
/// let mut found = Vec::new();
/// last.gather(&[0], &mut found).unwrap();
/// assert_eq!((last.rows(), found), (Some(2), vec![2.0]));
/// ```
#[derive(Clone, Debug)]
pub struct RowRange<S> {
    source: S,
    rows: Range<u64>,
}

impl<S> RowRange<S> {
    /// The rows `rows` of `source`; of a source that does not know its number of rows, those of them that
    /// there are. (About the type parameter see [`Weighted::new`].)
    ///
    /// # Errors
    /// [`Error::Shape`] for a range that is not within the rows.
    ///
    /// ```
    /// use shoal::data::{Dense, RowRange};
    /// let rows = Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
    /// let refused = RowRange::new(rows, 1..5).unwrap_err();
    /// assert_eq!(refused.to_string(), "rows 1..5 do not lie within 0..3");
    /// ```
    pub fn new<T: Float>(source: S, rows: Range<u64>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let all = source.rows();
        if rows.start > rows.end || all.is_some_and(|all| rows.end > all) {
            let all = all.map_or(String::new(), |all| all.to_string());
            return Err(Error::Shape(format!("rows {rows:?} do not lie within 0..{all}")));
        }
        Ok(Self { source, rows })
    }

    /// Rows of the range as rows of the source.
    fn of_source(&self, rows: &[u64]) -> Result<Vec<u64>> {
        let n = self.rows.end - self.rows.start;
        match rows.iter().find(|&&row| row >= n) {
            Some(&beyond) => Err(no_such_row(beyond)),
            None => Ok(rows.iter().map(|row| row + self.rows.start).collect()),
        }
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for RowRange<S> {
    fn dim(&self) -> usize {
        self.source.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.source.rows().map(|_| self.rows.end - self.rows.start)
    }
    fn access(&self) -> Access {
        self.source.access()
    }
    fn weights(&self) -> Option<&[f64]> {
        self.source.weights()?.get(self.rows.start as usize..self.rows.end as usize)
    }
    fn always_finite(&self) -> bool {
        self.source.always_finite()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        // Tiles count from the first row of the range, as if there were no other rows: blocks are cut anew.
        let mut blocks = Reblock::new(self.source.dim(), tile_rows, 1, f);
        let mut ended = false;
        self.source.for_each_block(tile_rows, &mut |block| {
            let end = block.first_row + block.len as u64;
            let start = self.rows.start.max(block.first_row);
            let stop = self.rows.end.min(end);
            if start >= stop {
                return Ok(ControlFlow::Continue(()));
            }
            let within = (start - block.first_row) as usize..(stop - block.first_row) as usize;
            let last = end >= self.rows.end;
            let weights = block.weights.map(|weights| &weights[within.clone()]);
            ended = blocks.push(block.rows, within, weights, last)?.is_break();
            Ok(if last || ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if ended { Ok(()) } else { blocks.finish() }
    }
    fn most_values(&self) -> Option<usize> {
        self.source.most_values()
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(&self.of_source(rows)?, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(&self.of_source(rows)?, out)
    }
}

/// A source of unknown length whose rows were counted already, so that nobody else makes a pass for it. A pass that gives another number is
/// an error of whoever counts on this one.
pub(crate) struct Counted<S> {
    source: S,
    rows: u64,
}

impl<S> Counted<S> {
    pub(crate) fn new(source: S, rows: u64) -> Self {
        Self { source, rows }
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Counted<S> {
    fn dim(&self) -> usize {
        self.source.dim()
    }
    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }
    fn access(&self) -> Access {
        self.source.access()
    }
    fn weights(&self) -> Option<&[f64]> {
        self.source.weights()
    }
    fn always_finite(&self) -> bool {
        self.source.always_finite()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.source.for_each_block(tile_rows, f)
    }
    fn most_values(&self) -> Option<usize> {
        self.source.most_values()
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.source.for_each_block_from(row, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(rows, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(rows, out)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// A type that rows are counted in: `u32`, which takes half the memory, or `u64`.
///
/// ```
/// use shoal::data::RowIndex;
/// assert_eq!(7u32.row(), 7u64);
/// ```
pub trait RowIndex: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The row.
    fn row(self) -> u64;
}

impl RowIndex for u32 {
    fn row(self) -> u64 {
        u64::from(self)
    }
}

impl RowIndex for u64 {
    fn row(self) -> u64 {
        self
    }
}

/// The rows of a source in a given order. Rows may be left out or come more than once.
///
/// ```
/// use shoal::data::{DataSource, Dense, Permuted};
/// let rows = Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
/// let backwards = Permuted::new(rows, vec![2u32, 1, 0]).unwrap();
/// let mut found = Vec::new();
/// backwards.gather(&[0, 1], &mut found).unwrap();
/// assert_eq!(found, [3.0, 2.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Permuted<S, I = u64> {
    source: S,
    order: Vec<I>,
    weights: Option<Vec<f64>>,
    failure: Failure,
}

/// Row numbers are turned into `u64` this many at a time, on the stack.
const GATHERED_ROWS: usize = 256;

impl<S, I: RowIndex> Permuted<S, I> {
    /// The rows `order` of `source`. (About the type parameter see [`Weighted::new`].)
    ///
    /// # Errors
    /// [`Error::Source`] for a source without random access, [`Error::Shape`] for a row that is not there.
    ///
    /// ```
    /// use shoal::data::{Dense, Permuted};
    /// let rows = Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
    /// assert_eq!(Permuted::new(rows, vec![0u64, 3]).unwrap_err().to_string(), "row 3 is not there");
    /// ```
    pub fn new<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let mut new = Self::unweighted(source, order)?;
        new.weights =
            new.source.weights().map(|weights| new.order.iter().map(|i| weights[i.row() as usize]).collect());
        Ok(new)
    }

    /// As [`Permuted::new`], but every row weighs 1, whatever the source says.
    pub(crate) fn unweighted<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let rows = source.rows().filter(|_| source.access() == Access::Random).ok_or_else(|| {
            Error::Source(
                "another row order needs random access: write the rows to a file and open that".into(),
            )
        })?;
        if let Some(beyond) = order.iter().find(|i| i.row() >= rows) {
            return Err(no_such_row(beyond.row()));
        }
        Ok(Self { source, order, weights: None, failure: Failure::default() })
    }

    /// The rows that it lists.
    pub(crate) fn order(&self) -> &[I] {
        &self.order
    }

    /// What stands at some places of the order.
    fn of_source<'a>(&'a self, places: &'a [u64]) -> Result<impl Iterator<Item = I> + use<'a, S, I>> {
        match places.iter().find(|&&place| place >= self.order.len() as u64) {
            Some(&beyond) => Err(no_such_row(beyond)),
            None => Ok(places.iter().map(|&place| self.order[place as usize])),
        }
    }

    /// Hands the rows that `order` lists to `f`, some at a time.
    fn some_at_a_time(order: impl Iterator<Item = I>, mut f: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let mut rows = [0u64; GATHERED_ROWS];
        let mut order = order.peekable();
        while order.peek().is_some() {
            let mut n = 0;
            for (row, i) in rows.iter_mut().zip(order.by_ref()) {
                *row = i.row();
                n += 1;
            }
            f(&rows[..n])?;
        }
        Ok(())
    }
}

impl<T: Float, S: DataSource<T>, I: RowIndex> TileReader<T> for Permuted<S, I> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        scratch.clear();
        let n = rows.len();
        let order = self.order[rows].iter().copied();
        if let Err(e) = Self::some_at_a_time(order, |rows| gather(&self.source, rows, scratch)) {
            self.failure.note(e);
        }
        // What could not be read is anything, for the pass ends in the error.
        scratch.resize(n * self.source.dim(), T::ZERO);
        MatRef::new(scratch, self.source.dim())
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        _picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Option<SparseRef<'s, T>> {
        self.source.most_values()?;
        scratch.begin_sparse(self.source.dim());
        let order = self.order[rows].iter().copied();
        let _ = Self::some_at_a_time(order, |rows| {
            self.failure.copy_or_empty(&self.source, rows, scratch);
            Ok(())
        });
        scratch.as_sparse()
    }
}

impl<T: Float, S: DataSource<T>, I: RowIndex> DataSource<T> for Permuted<S, I> {
    fn dim(&self) -> usize {
        self.source.dim()
    }
    fn rows(&self) -> Option<u64> {
        Some(self.order.len() as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }
    fn always_finite(&self) -> bool {
        self.source.always_finite()
    }
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let weights = self.weights.as_deref();
        self.failure.or(one_block(self, self.order.len(), &mut |block| f(Block { weights, ..block })))
    }
    fn most_values(&self) -> Option<usize> {
        self.source.most_values()
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        Self::some_at_a_time(self.of_source(rows)?, |rows| self.source.gather(rows, out))
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        Self::some_at_a_time(self.of_source(rows)?, |rows| self.source.copy(rows, out))
    }
}

/// The rows of a source divided by their Euclidean norms, for clustering by angle. Rows of zeros stay as they
/// are.
///
/// ```
/// use shoal::data::{DataSource, Dense, Normalized};
/// let rows = Normalized::new(Dense::new(&[3.0f32, 4.0, 0.0, 0.0], 2).unwrap());
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found).unwrap();
/// assert_eq!(found, [0.6, 0.8, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Normalized<S>(S);

impl<S> Normalized<S> {
    /// The rows of `source`, each divided by its norm when it is read.
    ///
    /// ```
    /// use shoal::data::{Dense, Normalized};
    /// let _ = Normalized::new(Dense::new(&[3.0f32, 4.0], 2).unwrap());
    /// ```
    pub fn new(source: S) -> Self {
        Self(source)
    }
}

/// Sum of squares in a fixed order that can be vectorised.
fn sq_norm<T: Float>(row: &[T], scale: f64) -> f64 {
    let mut sums = [0.0f64; 8];
    for part in row.chunks(sums.len()) {
        for (sum, x) in sums.iter_mut().zip(part) {
            let x = x.to_f64() * scale;
            *sum += x * x;
        }
    }
    sums.iter().sum()
}

fn normalize<T: Float>(row: &mut [T]) {
    let largest = |row: &[T]| row.iter().fold(0.0f64, |most, x| most.max(x.to_f64().abs()));
    let (mut norm, mut scale) = (sq_norm(row, 1.0), 1.0);
    if !norm.is_normal() {
        if row.iter().any(|x| !x.finite()) {
            // Left as it is, so that whoever finds the value names it and its column.
            return;
        }
        // The squares are too large or too small for f64, but the values may not be.
        let most = largest(row);
        if most == 0.0 {
            return;
        }
        // A power of two, so that nothing is rounded; its inverse must be finite too.
        scale = (-most.log2().floor()).clamp(-1022.0, 1022.0).exp2();
        norm = sq_norm(row, scale);
    }
    let norm = norm.sqrt();
    if size_of::<T>() < 8 {
        // A division for each value would take most of the time; what it tells apart is lost when it is rounded to T.
        let inverse = norm.recip();
        for x in row {
            *x = T::from_f64(x.to_f64() * scale * inverse);
        }
    } else {
        for x in row {
            *x = T::from_f64(x.to_f64() * scale / norm);
        }
    }
}

/// Divides each of several rows by its Euclidean norm, as [`Normalized`] does.
pub(crate) fn normalize_rows<T: Float>(rows: &mut [T], cols: usize) {
    rows.chunks_exact_mut(cols).for_each(normalize);
}

/// Rows of one block, divided by their norms.
struct NormalizedRows<'a, T: Float>(&'a dyn TileReader<T>);

impl<T: Float> TileReader<T> for NormalizedRows<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        let n = rows.len();
        let tile = self.0.tile(rows.clone(), scratch);
        let (cols, first, touching) = (tile.cols(), tile.data().as_ptr(), tile.stride() == tile.cols());
        let converted = touching && std::ptr::eq(first, scratch.as_ptr());
        if !converted {
            // The rows lie elsewhere and are not ours to change. Whoever reads in place has no use for the
            // scratch lent here.
            let mut unused = Vec::new();
            let tile = self.0.tile(rows, &mut unused);
            scratch.clear();
            tile.iter().for_each(|row| scratch.extend_from_slice(row));
        }
        let values = &mut scratch[..n * cols];
        values.chunks_exact_mut(cols).for_each(normalize);
        MatRef::new(values, cols)
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Option<SparseRef<'s, T>> {
        // The stored values are copied, whether they lie elsewhere or were put together just now.
        let mut buffer = RowBuf::default();
        let tile = self.0.sparse(rows, picked, &mut buffer)?;
        scratch.begin_sparse(tile.cols());
        scratch.extend(tile.into());
        normalize_stored(scratch, 0);
        scratch.as_sparse()
    }
}

/// Divides sparse rows from number `first` on by their norms.
fn normalize_stored<T: Float>(rows: &mut RowBuf<T>, first: usize) {
    let RowBuf { starts, values, .. } = rows;
    starts[first..].windows(2).for_each(|row| normalize(&mut values[row[0]..row[1]]));
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Normalized<S> {
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.0.rows()
    }
    fn access(&self) -> Access {
        self.0.access()
    }
    fn weights(&self) -> Option<&[f64]> {
        self.0.weights()
    }
    fn always_finite(&self) -> bool {
        self.0.always_finite()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.0.for_each_block(tile_rows, &mut |block| f(Block { rows: &NormalizedRows(block.rows), ..block }))
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let f = &mut |block: Block<'_, T>| f(Block { rows: &NormalizedRows(block.rows), ..block });
        self.0.for_each_block_from(row, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let before = out.len();
        self.0.gather(rows, out)?;
        out[before..].chunks_exact_mut(self.0.dim()).for_each(normalize);
        Ok(())
    }
    fn most_values(&self) -> Option<usize> {
        self.0.most_values()
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let before = out.len();
        self.0.copy(rows, out)?;
        if out.is_sparse() {
            normalize_stored(out, before);
        } else {
            let cols = out.cols();
            out.values[before * cols..].chunks_exact_mut(cols).for_each(normalize);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Chunks, Dense, RawRows, take};
    use super::*;

    /// All rows, tile by tile, and their weights; checks the contract of blocks on the way.
    fn read<T: Float>(source: &dyn DataSource<T>, tile_rows: usize) -> (Vec<T>, Vec<f64>) {
        let (mut rows, mut weights, mut scratch, mut next, mut whole) =
            (Vec::new(), Vec::new(), Vec::new(), 0, true);
        source
            .for_each_block(tile_rows, &mut |block| {
                assert_eq!(block.first_row, next);
                assert!(whole && block.len > 0, "a block before the last is not of whole tiles");
                whole = block.len.is_multiple_of(tile_rows);
                next += block.len as u64;
                for start in (0..block.len).step_by(tile_rows) {
                    let tile = block.rows.tile(start..block.len.min(start + tile_rows), &mut scratch);
                    tile.iter().for_each(|row| rows.extend_from_slice(row));
                }
                weights.extend_from_slice(block.weights.unwrap_or_default());
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        (rows, weights)
    }

    proptest! {
        #[test]
        fn adapters_equal_what_they_say(
            n in 1usize..200, chunk in 1usize..40, tile in 1usize..9, a in 0usize..200, b in 0usize..200,
        ) {
            let (a, b) = (a.min(b).min(n), a.max(b).min(n));
            let values: Vec<u8> = (0..2 * n).map(|i| (i * 7 % 251) as u8).collect();
            let wide: Vec<f32> = values.iter().map(|&x| f32::from(x)).collect();
            let weights: Vec<f64> = (0..n).map(|i| (i + 2) as f64).collect();
            let raw = RawRows::new(&values, 2).unwrap();
            let stream = Chunks::replay(2, || wide.chunks(2 * chunk).map(|c| Ok(c.to_vec().into())));
            let sources: [&dyn DataSource<f32>; 2] = [&raw, &stream];
            for source in sources {
                let weighted = Weighted::new(source, &weights).unwrap();
                prop_assert_eq!(read(&weighted, tile), (wide.clone(), weights.clone()));
                let range = RowRange::new(&weighted, a as u64..b as u64).unwrap();
                prop_assert_eq!(read(&range, tile), (wide[2 * a..2 * b].to_vec(), weights[a..b].to_vec()));
                prop_assert_eq!(range.weights(), Some(&weights[a..b]));
                if b > a {
                    prop_assert_eq!(take(&range, &[(b - a - 1) as u64]).unwrap(), &wide[2 * b - 2..2 * b]);
                }
            }
            let weighted = Weighted::new::<f32>(raw, &weights).unwrap();
            let order: Vec<u32> = (a as u32..n as u32).rev().chain(0..b as u32).collect();
            let permuted = Permuted::new::<f32>(&weighted, order.clone()).unwrap();
            let expected: Vec<f32> = order.iter().flat_map(|&i| wide[2 * i as usize..][..2].to_vec()).collect();
            let heavy: Vec<f64> = order.iter().map(|&i| weights[i as usize]).collect();
            prop_assert_eq!(read(&permuted, tile), (expected.clone(), heavy));
            let rows: Vec<u64> = (0..order.len() as u64).collect();
            prop_assert_eq!(take::<f32>(&permuted, &rows).unwrap(), expected);
        }

        #[test]
        fn normalized_rows_have_length_1(values in prop::collection::vec(-1e3f32..1e3, 3..60)) {
            let values = &values[..values.len() / 3 * 3];
            let dense = Normalized::new(Dense::new(values, 3).unwrap());
            let (rows, _) = read(&dense, 2);
            // Read in place or converted, and whatever the tile: the same bits.
            let bytes = Normalized::new(RawRows::new(values, 3).unwrap());
            prop_assert_eq!(&read::<f32>(&bytes, 5).0, &rows);
            let (wide, _) = read::<f64>(&bytes, 5);
            for ((unit, exact), from) in rows.chunks(3).zip(wide.chunks(3)).zip(values.chunks(3)) {
                let norm = from.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
                for j in 0..3 {
                    let expected = if norm == 0.0 { 0.0 } else { f64::from(from[j]) / norm };
                    prop_assert!((f64::from(unit[j]) - expected).abs() < 1e-7);
                    prop_assert!((exact[j] - expected).abs() < 1e-15);
                }
            }
        }
    }

    #[test]
    fn norms_beyond_f64_are_no_trouble() {
        for scale in [1e300, 1e-300, f64::from_bits(1) * 8.0, 1.0] {
            let rows = [3.0 * scale, 4.0 * scale, 0.0, 0.0];
            let (found, _) = read(&Normalized::new(Dense::new(&rows, 2).unwrap()), 1);
            assert!((found[0] - 0.6).abs() < 1e-15 && (found[1] - 0.8).abs() < 1e-15, "{scale}: {found:?}");
            assert_eq!(found[2..], [0.0, 0.0]);
        }
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let rows = || Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
        let unit = Weighted::new(rows(), vec![1.0; 3]).unwrap();
        assert_eq!((unit.weights(), read(&unit, 1).1), (None, vec![]));
        let alike = Weighted::new(rows(), vec![2.0; 3]).unwrap();
        assert_eq!((alike.weights(), read(&alike, 1).1), (Some(&[2.0; 3][..]), vec![2.0; 3]));
        let weights = |w: Vec<f64>| Weighted::new(rows(), w).unwrap_err().to_string();
        assert_eq!(weights(vec![1.0; 2]), "weights has 2 values, X has 3 rows");
        assert_eq!(
            weights(vec![1.0, f64::NAN, -1.0]),
            "weights must be finite and at least 0, got NaN at row 1"
        );
        assert_eq!(
            weights(vec![0.0; 3]),
            "weights must be above 0 for at least one row, got 0 for every row"
        );
        assert_eq!(RowRange::new(rows(), 2..4).unwrap_err().to_string(), "rows 2..4 do not lie within 0..3");
        assert!(RowRange::new(rows(), 1..2).unwrap().gather(&[1], &mut Vec::new()).is_err());
        let stream = Chunks::once(1, std::iter::once(Ok(vec![1.0f32, 2.0].into())));
        assert_eq!(
            Permuted::new(&stream, vec![0u32]).unwrap_err().to_string(),
            "another row order needs random access: write the rows to a file and open that"
        );
        let short = Weighted::new(stream, vec![1.0]).unwrap();
        let refused = short.for_each_block(1, &mut |_| Ok(ControlFlow::Continue(()))).unwrap_err();
        assert_eq!(refused.to_string(), "weights has 1 values, X has 2 rows");
    }
}
