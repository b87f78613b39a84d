//! This module knows rows that Python makes, a block at a time: each pass pulls them anew, one block ahead of the work.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use numpy::PyUntypedArray;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

use super::array::Array;
use super::enter::check;
use crate::data::pass::{OpenPass, Pass, Piece};
use crate::data::{Access, Block, DataSource, Dtype, TileReader};
use crate::error::{Error, Result};
use crate::float::Float;

/// Seconds of one wait for a block; between two of them the work looks whether it was interrupted.
const WAIT: f64 = 0.05;

/// What a pass has to read: all of it in Python, which is only entered to take a block over.
pub(super) struct Stream {
    /// Makes what a pass pulls from, a `shoal._ahead.Ahead` of 2-D arrays; refuses a second pass over what can be read once.
    make: Py<PyAny>,
    once: bool,
    dtype: Dtype,
    cols: usize,
    /// As told at the start.
    rows: Option<usize>,
    /// Rows of the first pass that went to the end.
    found: Arc<OnceLock<u64>>,
    open: OpenPass<Blocks, Array>,
}

impl Stream {
    pub(super) fn new(
        make: Py<PyAny>,
        once: bool,
        cols: usize,
        dtype: Dtype,
        rows: Option<usize>,
    ) -> Result<Self> {
        if cols == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        Ok(Self { make, once, dtype, cols, rows, found: Arc::default(), open: OpenPass::default() })
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

    /// A pass at its first row.
    fn pass(&self) -> Result<Pass<Blocks, Array>> {
        let ahead = Python::attach(|py| self.make.call0(py)).map_err(Error::foreign)?;
        let Self { dtype, cols, rows, .. } = *self;
        let found = Arc::clone(&self.found);
        Ok(Pass::new(Blocks { ahead, dtype, cols, told: rows, found, pulled: 0, rows: 0, over: false }))
    }
}

/// The blocks of one pass.
struct Blocks {
    ahead: Py<PyAny>,
    dtype: Dtype,
    cols: usize,
    /// Rows that there should be.
    told: Option<usize>,
    found: Arc<OnceLock<u64>>,
    /// Blocks and rows so far.
    pulled: u64,
    rows: u64,
    over: bool,
}

impl Iterator for Blocks {
    type Item = Result<Array>;

    fn next(&mut self) -> Option<Result<Array>> {
        while !self.over {
            match self.pull() {
                // Blocks without rows may have any width.
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
    /// The next block, waited for; `None` after the last.
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
                Some(Some(block)) => return self.checked(block).map(Some),
                Some(None) => (),
                None => return self.end().map(|()| None),
            }
        }
    }

    fn checked(&mut self, block: Array) -> Result<Array> {
        let found = block.rows().layout();
        let i = self.pulled;
        self.pulled += 1;
        self.rows += found.rows as u64;
        if found.rows == 0 {
            return Ok(block);
        }
        if found.cols != self.cols {
            return Err(Error::Shape(format!(
                "block {i} of X has {} columns, the first one has {}",
                found.cols, self.cols
            )));
        }
        if found.dtype != self.dtype {
            return Err(Error::Shape(format!(
                "block {i} of X holds {}, the first one {}: make them one type",
                found.dtype, self.dtype
            )));
        }
        Ok(block)
    }

    /// Refuses a pass that ended with other rows than were told, or found before.
    fn end(&self) -> Result<()> {
        let rows = self.rows;
        if let Some(told) = self.told.filter(|&told| told as u64 != rows) {
            return Err(Error::Source(format!("X gave {rows} rows, where {told} were announced")));
        }
        let before = *self.found.get_or_init(|| rows);
        if before == rows {
            return Ok(());
        }
        Err(Error::Source(format!(
            "X gave {before} rows in one pass and {rows} in another: the callable must return a fresh iterator over the \
             same rows each time"
        )))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // What closing says cannot be raised here any more.
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
    fn gather(&self, _rows: &[u64], _out: &mut Vec<T>) -> Result<()> {
        Err(Error::Source("single rows of a stream cannot be read; write it to a file and open that".into()))
    }
}
