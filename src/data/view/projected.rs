//! The rows of a source in the coordinates of other axes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::forward;
use crate::data::any::ComputeType;
use crate::data::{
    Access, AnySource, Block, Converted, DataSource, Source, TileReader, Visit, copy_to, gather,
};
use crate::error::{Error, Result};
use crate::float::{Float, PerFloat};
use crate::matrix::{MatRef, make_room};
use crate::rows::{RowBuf, Rows};

/// The rows of a source as `(x - mean) components'`: one column per component, for example of a principal component
/// analysis.
///
/// Rows are projected when they are read, in every pass. Differences from the mean are computed in `f64` and rounded to
/// the compute type. Products are summed in the compute type, in blocks of 256 columns. Sparse rows become dense.
///
/// ```
/// use shoal::{KMeans, MatRef};
/// use shoal::data::{DataSource, Projected};
/// let axes = [0.0, 1.0, 0.0, 0.6, 0.0, 0.8];
/// let rows = Projected::new([[1.0f32, 2.0, 3.0], [1.0, 2.0, 8.0]], MatRef::new(&axes, 3), Some(&[1.0, 1.0, 3.0]))?;
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!((rows.dim(), &found[..]), (2, &[1.0, 0.0, 1.0, 4.0][..]));
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [1.0, 2.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Projected<S> {
    source: S,
    by: Arc<Projection>,
    compute: ComputeType<Self>,
}

/// Components of a panel: sums that a core keeps in registers.
const LANES: usize = 16;

/// Columns that are summed at a time: a panel of them stays in the first-level cache, and sums of few terms round
/// less.
const COLUMNS: usize = 256;

/// Rows that are read and projected together.
const GROUP: usize = 32;

/// Components in panels of [`LANES`]: the values of a panel column by column, then the next panel. The last panel is
/// filled up with zeros.
type Panels<T> = Vec<[T; LANES]>;

/// Where to put the panels of a compute type.
struct Slot<'a, 'b>(PhantomData<&'b mut &'a ()>);

impl<'a, 'b> PerFloat for Slot<'a, 'b> {
    type Of<T: Float> = &'b mut Option<&'a Panels<T>>;
}

/// The mean and the components for either compute type.
pub(crate) struct Projection {
    mean: Vec<f64>,
    /// The projected mean.
    offset: Vec<f64>,
    narrow: Panels<f32>,
    wide: Panels<f64>,
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Projection({} to {} columns)", self.mean.len(), self.cols())
    }
}

/// Buffers for the rows of a source and their differences from the mean.
#[derive(Default)]
struct Buffers<T> {
    converted: Converted<T>,
    centered: Vec<T>,
}

/// The products of a row with the components of a panel, summed in the order of the columns.
#[inline(always)]
fn products<T: Float>(row: impl Iterator<Item = T>, panel: &[[T; LANES]]) -> [T; LANES] {
    let mut sums = [T::ZERO; LANES];
    for (x, weights) in row.zip(panel) {
        for (sum, &weight) in sums.iter_mut().zip(weights) {
            *sum = *sum + x * weight;
        }
    }
    sums
}

impl Projection {
    /// Checks the components, one per row, for rows of `dim` columns.
    pub(crate) fn new(dim: usize, components: MatRef<'_, f64>, mean: Option<&[f64]>) -> Result<Self> {
        let (p, found) = (components.rows(), components.cols());
        if p == 0 {
            return Err(Error::Shape("components must have at least 1 row, got 0".into()));
        }
        if found != dim {
            return Err(Error::Shape(format!("components have {found} columns, X has {dim}")));
        }
        if let Some((row, column)) = components.first_not_finite() {
            let value = components.row(row)[column].to_string();
            return Err(Error::NotFinite { what: "components", value, row: row as u64, column });
        }
        let mean = mean.map_or_else(|| vec![0.0; dim], <[f64]>::to_vec);
        if mean.len() != dim {
            return Err(Error::Shape(format!("mean has {} values, X has {dim} columns", mean.len())));
        }
        if let Some(bad) = mean.iter().position(|x| !x.is_finite()) {
            return Err(Error::param("mean", "finite", format!("{} at column {bad}", mean[bad])));
        }
        let mut wide = Vec::new();
        make_room(&mut wide, "components", p.div_ceil(LANES) as u64, dim)?;
        for first in (0..p).step_by(LANES) {
            let lane =
                |column: usize, l: usize| if first + l < p { components.row(first + l)[column] } else { 0.0 };
            wide.extend((0..dim).map(|column| std::array::from_fn(|l| lane(column, l))));
        }
        let narrow = wide.iter().map(|lanes| lanes.map(f32::from_f64)).collect();
        let offset = components.iter().map(|row| row.iter().zip(&mean).map(|(x, m)| x * m).sum()).collect();
        Ok(Self { mean, offset, narrow, wide })
    }

    /// Number of components.
    pub(crate) fn cols(&self) -> usize {
        self.offset.len()
    }

    fn panels<T: Float>(&self) -> &Panels<T> {
        let mut found = None;
        T::choose::<Slot<'_, '_>, _>(
            &mut found,
            |slot| *slot = Some(&self.narrow),
            |slot| *slot = Some(&self.wide),
        );
        found.expect("one of the two was called")
    }

    /// Appends the projected rows to `out`.
    fn project<T: Float>(&self, rows: Rows<'_, T>, centered: &mut Vec<T>, out: &mut Vec<T>) {
        let before = out.len();
        out.resize(before + rows.rows() * self.cols(), T::ZERO);
        let out = &mut out[before..];
        match rows {
            Rows::Dense(rows) => {
                centered.clear();
                for row in rows.iter() {
                    let off = row.iter().zip(&self.mean).map(|(x, mean)| T::from_f64(x.to_f64() - mean));
                    centered.extend(off);
                }
                self.project_dense(centered, out);
            }
            Rows::Sparse(rows) => {
                let panels = self.panels::<T>().chunks(self.mean.len());
                for (panel, first) in panels.zip((0..self.cols()).step_by(LANES)) {
                    for ((columns, values), out) in rows.iter().zip(out.chunks_exact_mut(self.cols())) {
                        let mut sums = [T::ZERO; LANES];
                        for (&column, &x) in columns.iter().zip(values) {
                            let weights = &panel[column as usize];
                            sums.iter_mut().zip(weights).for_each(|(sum, &weight)| *sum = *sum + x * weight);
                        }
                        for ((out, sum), offset) in
                            out[first..].iter_mut().zip(sums).zip(&self.offset[first..])
                        {
                            *out = T::from_f64(sum.to_f64() - offset);
                        }
                    }
                }
            }
        }
    }

    /// Adds the projections of dense rows, whose mean was subtracted, to `out`.
    fn project_dense<T: Float>(&self, rows: &[T], out: &mut [T]) {
        let (dim, cols) = (self.mean.len(), self.cols());
        for (panel, first) in self.panels::<T>().chunks(dim).zip((0..cols).step_by(LANES)) {
            for start in (0..dim).step_by(COLUMNS) {
                let columns = start..dim.min(start + COLUMNS);
                for (row, out) in rows.chunks_exact(dim).zip(out.chunks_exact_mut(cols)) {
                    let sums = products(row[columns.clone()].iter().copied(), &panel[columns.clone()]);
                    out[first..].iter_mut().zip(sums).for_each(|(out, sum)| *out = *out + sum);
                }
            }
        }
    }
}

impl<S> Projected<S> {
    /// The rows of `source` as `(x - mean) components'`. `components` has one row per column of the result. Without
    /// `mean`, nothing is subtracted. For the type parameter see [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Shape`] if `components` has no row or another number of columns than the source, or `mean` has not one
    /// value per column; [`Error::NotFinite`] and [`Error::InvalidParam`] for values that are NaN or infinite.
    ///
    /// ```
    /// use shoal::{MatRef, data::Projected};
    /// let refused = Projected::new([[3.0f32]], MatRef::new(&[1.0, 2.0], 2), None).unwrap_err();
    /// assert_eq!(refused.to_string(), "components have 2 columns, X has 1");
    /// ```
    pub fn new<T: Float>(source: S, components: MatRef<'_, f64>, mean: Option<&[f64]>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let by = Projection::new(source.dim(), components, mean)?;
        Ok(Self::by(source, Arc::new(by)))
    }

    /// The rows of `source` with a projection that was made for its columns.
    pub(crate) fn by<T: Float>(source: S, by: Arc<Projection>) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, by, compute: ComputeType::of::<T>() }
    }
}

/// Rows of one block, projected.
struct ProjectedRows<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    by: &'a Projection,
}

impl<T: Float> ProjectedRows<'_, T> {
    /// Appends the projections of the rows to `out`.
    fn append(&self, rows: Range<usize>, buffers: &mut Buffers<T>, out: &mut Vec<T>) -> Result<()> {
        for start in rows.clone().step_by(GROUP) {
            let found = buffers.converted.read(self.whole, start..rows.end.min(start + GROUP), None)?;
            self.by.project(found, &mut buffers.centered, out);
        }
        Ok(())
    }
}

impl<T: Float> TileReader<T> for ProjectedRows<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.by.cols()))
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        let cols = self.by.cols();
        let (mut buffers, mut row) = (Buffers::default(), Vec::new());
        if scratch.len() < rows.len() * cols {
            scratch.resize(rows.len() * cols, T::ZERO);
        }
        for &r in picked {
            row.clear();
            let at = rows.start + r as usize;
            self.append(at..at + 1, &mut buffers, &mut row)?;
            scratch[r as usize * cols..][..cols].copy_from_slice(&row);
        }
        Ok(MatRef::new(&scratch[..rows.len() * cols], cols))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        scratch.clear();
        self.append(rows, &mut Buffers::default(), scratch)?;
        Ok(scratch)
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Projected<S> {
    // Sums may overflow, and sparse rows become dense: neither `always_finite` nor `most_values` is forwarded.
    forward!(source: rows access weights);

    fn dim(&self) -> usize {
        self.by.cols()
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block(tile_rows, &mut |block: Block<'_, T>| {
            f(Block { rows: &ProjectedRows { whole: block.rows, by: &self.by }, ..block })
        })
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block_from(row, tile_rows, &mut |block: Block<'_, T>| {
            f(Block { rows: &ProjectedRows { whole: block.rows, by: &self.by }, ..block })
        })
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        // Each gather of a stream is a pass.
        let group = if self.source.access() == Access::Random { GROUP } else { rows.len().max(1) };
        let (before, mut found, mut centered) = (out.len(), RowBuf::default(), Vec::new());
        make_room(out, "copied rows", rows.len() as u64, self.by.cols())?;
        let sparse = self.source.most_values().is_some();
        for group in rows.chunks(group) {
            found.clear(self.source.dim());
            let copied = if sparse {
                found.begin_sparse(self.source.dim());
                copy_to(&self.source, group, &mut found)
            } else {
                gather(&self.source, group, &mut found.values)
            };
            if let Err(error) = copied {
                out.truncate(before);
                return Err(error);
            }
            self.by.project(found.rows(), &mut centered, out);
        }
        Ok(())
    }
}

impl<S> Source for Projected<S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
