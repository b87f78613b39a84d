//! Rows that Python produces block by block. Each pass pulls them again and prefetches one block.

use std::ops::ControlFlow;

use numpy::PyUntypedArray;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

use super::array::Array;
use super::enter::check;
use crate::data::pass::{OpenPass, Piece, StreamPass};
use crate::data::{Access, Block, DataSource, Dtype, Origin, TileReader};
use crate::error::{Error, Result};
use crate::float::Float;

/// Maximum seconds to wait for a block between two checks for an interrupt.
const WAIT: f64 = 0.05;

/// A stream of rows. The blocks are made in Python; the interpreter is entered only to receive a block.
pub(super) struct Stream {
    /// Returns the blocks of one pass: a `shoal._rows.prefetch.Prefetch` of the checked blocks
    /// of `shoal._rows.streams.Passes`. Raises for a second pass over a stream that can be read once.
    make: Py<PyAny>,
    once: bool,
    dtype: Dtype,
    cols: usize,
    /// The number of rows, if it was given.
    rows: Option<usize>,
    /// Returns the file of a row, and the number of the row there, if the rows come from several files.
    file_of: Option<Py<PyAny>>,
    open: OpenPass<Blocks, Array>,
}

impl Stream {
    pub(super) fn new(
        make: Py<PyAny>,
        once: bool,
        cols: usize,
        dtype: Dtype,
        rows: Option<usize>,
        file_of: Option<Py<PyAny>>,
    ) -> Result<Self> {
        if cols == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        Ok(Self { make, once, dtype, cols, rows, file_of, open: OpenPass::default() })
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    pub(super) fn rows(&self) -> Option<usize> {
        self.rows
    }

    pub(super) fn access(&self) -> Access {
        if self.once { Access::Once } else { Access::Replay }
    }

    /// Starts a pass.
    fn pass(&self) -> Result<StreamPass<Blocks, Array>> {
        let ahead = Python::attach(|py| self.make.call0(py)).map_err(Error::foreign)?;
        Ok(StreamPass::new(Blocks { ahead, over: false }))
    }
}

/// The blocks of one pass.
struct Blocks {
    ahead: Py<PyAny>,
    over: bool,
}

impl Iterator for Blocks {
    type Item = Result<Array>;

    fn next(&mut self) -> Option<Result<Array>> {
        while !self.over {
            match self.pull() {
                Ok(Some(block)) if block.rows().layout().rows == 0 => (),
                Ok(Some(block)) => return Some(Ok(block)),
                Ok(None) => self.over = true,
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<T: Float> Piece<T> for Array {
    fn reader(&self) -> &dyn TileReader<T> {
        self.rows()
    }
    fn len(&self) -> usize {
        self.rows().layout().rows
    }
    fn weights(&self) -> Option<&[f64]> {
        None
    }
}

impl Blocks {
    /// Waits for the next block; `None` after the last.
    fn pull(&mut self) -> Result<Option<Array>> {
        loop {
            check()?;
            let found = Python::attach(|py| -> PyResult<_> {
                let block = match self.ahead.call_method1(py, "poll", (WAIT,)) {
                    Err(end) if end.is_instance_of::<PyStopIteration>(py) => return Ok(None),
                    other => other?,
                };
                if block.is_none(py) {
                    return Ok(Some(None));
                }
                Ok(Some(Some(Array::new(block.bind(py).cast::<PyUntypedArray>()?)?)))
            });
            match found.map_err(Error::foreign)? {
                Some(Some(block)) => return Ok(Some(block)),
                Some(None) => (),
                None => return Ok(None),
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // An error from `close` cannot be raised here.
        let _ = Python::attach(|py| self.ahead.call_method0(py, "close"));
    }
}

impl<T: Float> DataSource<T> for Stream {
    fn dim(&self) -> usize {
        self.cols
    }
    fn rows(&self) -> Option<u64> {
        self.rows.map(|rows| rows as u64)
    }
    fn access(&self) -> Access {
        self.access()
    }
    fn always_finite(&self) -> bool {
        !self.dtype.is_float()
    }
    fn origin(&self, row: u64, _column: usize) -> Origin {
        let file_of = |f: &Py<PyAny>| Python::attach(|py| f.call1(py, (row,))?.extract(py)).ok();
        Origin { file: self.file_of.as_ref().and_then(file_of), stored: None }
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.pass()?.read(self.cols, tile_rows, f)
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.open.read_from(row, || self.pass(), (self.cols, tile_rows), f)
    }
}
