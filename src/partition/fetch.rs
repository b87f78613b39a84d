//! The stored rows that an update asks for.

use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;

/// The stored rows of some cells, in any order.
///
/// See [`Partition`](super::Partition) for an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fetched<T> {
    /// A key per row, which names it in [`PartitionChange::moved`](super::PartitionChange::moved): for example the
    /// primary key of a table.
    pub keys: Vec<u64>,
    /// The cell in which each row is stored: one of those that were asked for.
    pub cells: Vec<u64>,
    /// The values of the rows, one row after the other.
    pub rows: Vec<T>,
}

impl<T: Float> Fetched<T> {
    /// Adds a row.
    ///
    /// See [`Partition`](super::Partition) for an example.
    pub fn push(&mut self, key: u64, cell: u64, row: &[T]) {
        self.keys.push(key);
        self.cells.push(cell);
        self.rows.extend_from_slice(row);
    }

    /// The same rows in another compute type.
    pub(super) fn cast<E: Float>(self) -> Fetched<E> {
        let Self { keys, cells, rows } = self;
        Fetched { keys, cells, rows: rows.into_iter().map(|x| E::from_f64(x.to_f64())).collect() }
    }

    /// Returns an error unless these are finite rows of `dim` columns of the cells `ids`, which ascend.
    pub(super) fn check(&self, ids: &[u64], dim: usize) -> Result<()> {
        let n = self.keys.len();
        if self.cells.len() != n || self.rows.len() != n * dim {
            return Err(Error::Shape(format!(
                "`fetch` must return a key, a cell and {dim} values per row, got {n} keys, {} cells and {} values",
                self.cells.len(),
                self.rows.len()
            )));
        }
        if let Some(row) = self.cells.iter().position(|cell| ids.binary_search(cell).is_err()) {
            let cell = self.cells[row];
            return Err(Error::Source(format!(
                "`fetch` must return rows of the cells that it was asked for, got cell {cell} at row {row}"
            )));
        }
        if let Some((row, column)) = MatRef::new(&self.rows, dim).first_not_finite() {
            let value = self.rows[row * dim + column];
            return Err(Error::not_finite("rows of `fetch`", value, row as u64, column));
        }
        Ok(())
    }
}

/// A function that returns the stored rows of the cells with the given ids.
pub(super) type Fetch<'a, T> = dyn FnMut(&[u64]) -> Result<Fetched<T>> + 'a;
