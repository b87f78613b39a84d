//! Some rows of a source in ascending order, which are read forwards.

use std::ops::{ControlFlow, Range};

use super::forward;
use crate::data::raw::one_block;
use crate::data::{Access, Block, DataSource, TileReader, Visit, copy_to, gather, no_such_row, single_row};
use crate::error::Result;
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};
use crate::tuning::SUBSET_SHARE;

/// Distinct rows of a source with random access, in ascending order.
///
/// A large subset is read in a pass that reads ahead, a small one row by row.
pub(crate) struct Subset<'a, T: Float> {
    source: &'a dyn DataSource<T>,
    rows: &'a [u64],
    weights: Option<Vec<f64>>,
}

impl<'a, T: Float> Subset<'a, T> {
    /// The rows `rows` of `source`, which must ascend and exist.
    pub(crate) fn new(source: &'a dyn DataSource<T>, rows: &'a [u64]) -> Self {
        debug_assert!(rows.is_sorted());
        let weights = source.weights().map(|weights| rows.iter().map(|&row| weights[row as usize]).collect());
        Self { source, rows, weights }
    }

    /// Converts row numbers of the subset to row numbers of the source.
    fn of_source(&self, places: &[u64]) -> Result<Vec<u64>> {
        match places.iter().find(|&&place| place >= self.rows.len() as u64) {
            Some(&beyond) => Err(no_such_row(beyond)),
            None => Ok(places.iter().map(|&place| self.rows[place as usize]).collect()),
        }
    }
}

/// Rows of a source that consists of one block.
struct OfBlock<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    rows: &'a [u64],
    cols: usize,
}

/// Room for `n` rows of `cols` values, of which only some will be read.
fn room<T: Float>(n: usize, cols: usize, scratch: &mut Vec<T>) -> &mut [T] {
    if scratch.len() < n * cols {
        scratch.resize(n * cols, T::ZERO);
    }
    &mut scratch[..n * cols]
}

/// As [`TileReader::sparse`], from rows that `copy` appends.
fn sparse_rows<'s, T: Float>(
    (rows, cols): (&[u64], usize),
    picked: Option<&[u32]>,
    scratch: &'s mut RowBuf<T>,
    mut copy: impl FnMut(&[u64], &mut RowBuf<T>) -> Result<()>,
) -> Result<Option<SparseRef<'s, T>>> {
    scratch.begin_sparse(cols);
    let Some(picked) = picked.filter(|picked| 2 * picked.len() <= rows.len()) else {
        copy(rows, scratch)?;
        return Ok(scratch.as_sparse());
    };
    let mut wanted = picked.to_vec();
    wanted.sort_unstable();
    let mut next = 0;
    for r in wanted {
        // Rows that were not picked stay empty.
        (next..r as usize).for_each(|_| scratch.end_row());
        copy(&rows[r as usize..=r as usize], scratch)?;
        next = r as usize + 1;
    }
    (next..rows.len()).for_each(|_| scratch.end_row());
    Ok(scratch.as_sparse())
}

impl<T: Float> TileReader<T> for OfBlock<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.cols))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        scratch.clear();
        let mut converted = Vec::new();
        for run in self.rows[rows].chunk_by(|a, b| a + 1 == *b) {
            let first = run[0] as usize;
            let tile = self.whole.tile(first..first + run.len(), &mut converted)?;
            tile.iter().for_each(|row| scratch.extend_from_slice(row));
        }
        Ok(scratch)
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        if 2 * picked.len() > rows.len() {
            return self.tile(rows, scratch);
        }
        let mut converted = Vec::new();
        let out = room(rows.len(), self.cols, scratch);
        for &r in picked {
            let row = self.rows[rows.start + r as usize] as usize;
            let values = single_row(self.whole, row, self.cols, &mut converted)?;
            out[r as usize * self.cols..][..self.cols].copy_from_slice(values);
        }
        Ok(MatRef::new(out, self.cols))
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        let mut buffer = RowBuf::default();
        if self.whole.sparse(0..0, None, &mut buffer)?.is_none() {
            return Ok(None);
        }
        sparse_rows((&self.rows[rows], self.cols), picked, scratch, |rows, out| {
            for run in rows.chunk_by(|a, b| a + 1 == *b) {
                let first = run[0] as usize;
                if let Some(tile) = self.whole.sparse(first..first + run.len(), None, &mut buffer)? {
                    out.extend(tile.into());
                }
            }
            Ok(())
        })
    }
}

impl<T: Float> TileReader<T> for Subset<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.source.dim()))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        scratch.clear();
        gather(self.source, &self.rows[rows], scratch)?;
        Ok(scratch)
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        if 2 * picked.len() > rows.len() {
            return self.tile(rows, scratch);
        }
        let (n, cols) = (rows.len(), self.source.dim());
        let chosen: Vec<u64> = picked.iter().map(|&r| self.rows[rows.start + r as usize]).collect();
        let mut values = Vec::with_capacity(chosen.len() * cols);
        gather(self.source, &chosen, &mut values)?;
        let out = room(n, cols, scratch);
        for (row, &r) in values.chunks_exact(cols).zip(picked) {
            out[r as usize * cols..][..cols].copy_from_slice(row);
        }
        Ok(MatRef::new(out, cols))
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        if self.source.most_values().is_none() {
            return Ok(None);
        }
        sparse_rows((&self.rows[rows], self.source.dim()), picked, scratch, |rows, out| {
            copy_to(self.source, rows, out)
        })
    }
}

impl<T: Float> DataSource<T> for Subset<'_, T> {
    forward!(source: dim always_finite most_values);

    fn rows(&self) -> Option<u64> {
        Some(self.rows.len() as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let (len, weights) = (self.rows.len(), self.weights.as_deref());
        let all = self.source.rows().unwrap_or(u64::MAX);
        let mut passed = false;
        if len > 0 && len as f64 >= SUBSET_SHARE * all as f64 {
            self.source.for_each_block(tile_rows, &mut |block| {
                // Rows of a source of several blocks are read one by one.
                if block.len as u64 == all {
                    passed = true;
                    let rows = OfBlock { whole: block.rows, rows: self.rows, cols: self.dim() };
                    let _ = f(Block { first_row: 0, len, rows: &rows, weights })?;
                }
                Ok(ControlFlow::Break(()))
            })?;
        }
        if passed {
            return Ok(());
        }
        one_block(self, len, &mut |block| f(Block { weights, ..block }))
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(&self.of_source(rows)?, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(&self.of_source(rows)?, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weighted;
    use super::*;
    use crate::data::RawRows;

    #[test]
    fn few_rows_and_many_are_the_same_rows() {
        let values: Vec<u8> = (0..3 * 80).collect();
        let weights: Vec<f64> = (0..80).map(f64::from).collect();
        let source = Weighted::new::<f32>(RawRows::new(&values, 3).unwrap(), &weights).unwrap();
        for step in [1u64, 2, 7, 50] {
            let rows: Vec<u64> = (0..80).filter(|row| row % step < step.div_ceil(2)).collect();
            let subset = Subset::<f32>::new(&source, &rows);
            let (mut seen, mut scratch, mut some) = (Vec::new(), Vec::new(), Vec::new());
            subset
                .for_each_block(4, &mut |block| {
                    assert_eq!((block.first_row, block.len), (0, rows.len()));
                    let heavy: Vec<f64> = rows.iter().map(|&row| row as f64).collect();
                    assert_eq!(block.weights, Some(&heavy[..]));
                    for start in (0..block.len).step_by(5) {
                        let tile = block.rows.tile(start..block.len.min(start + 5), &mut scratch)?;
                        tile.iter().for_each(|row| seen.extend_from_slice(row));
                        // One row of them, and all of them.
                        let n = block.len.min(start + 5) - start;
                        for picked in [vec![n as u32 / 2], (0..n as u32).collect()] {
                            let tile = block.rows.tile_of(start..start + n, &picked, &mut some)?;
                            assert_eq!(tile.rows(), n);
                            for &r in &picked {
                                assert_eq!(tile.row(r as usize), &seen[3 * (start + r as usize)..][..3]);
                            }
                        }
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            let expected: Vec<f32> =
                rows.iter().flat_map(|&r| [0, 1, 2].map(|c| (3 * r + c) as f32)).collect();
            assert_eq!(seen, expected, "{step}");
            let mut last = Vec::new();
            subset.gather(&[rows.len() as u64 - 1], &mut last).unwrap();
            assert_eq!(last, expected[expected.len() - 3..]);
            assert!(subset.gather(&[rows.len() as u64], &mut last).is_err());
        }
    }
}
