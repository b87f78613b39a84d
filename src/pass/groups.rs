//! Rows grouped by their labels, and rows of one group copied together.

use std::ops::Range;

use super::Chunk;
use crate::data::{DataSource, copy_to, gather};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows};

/// The rows of every label, in ascending order: a counting sort of row numbers.
#[derive(Debug)]
pub(crate) struct Groups {
    starts: Vec<usize>,
    rows: Vec<u32>,
}

impl Groups {
    /// Groups the rows by `labels`, each below `k`.
    pub(crate) fn new(labels: &[u32], k: usize) -> Self {
        let mut starts = vec![0; k + 1];
        for &j in labels {
            starts[j as usize + 1] += 1;
        }
        (0..k).for_each(|j| starts[j + 1] += starts[j]);
        let (mut next, mut rows) = (starts.clone(), vec![0; labels.len()]);
        for (row, &j) in labels.iter().enumerate() {
            rows[next[j as usize]] = row as u32;
            next[j as usize] += 1;
        }
        Self { starts, rows }
    }

    /// Number of groups.
    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The same groups, of which only these rows are left.
    pub(crate) fn within(&self, rows: &Range<u32>) -> Self {
        let (mut starts, mut left) = (Vec::with_capacity(self.starts.len()), Vec::with_capacity(rows.len()));
        starts.push(0);
        for j in 0..self.count() {
            let of = self.of(j);
            let place = |row: u32| of.partition_point(|&other| other < row);
            left.extend_from_slice(&of[place(rows.start)..place(rows.end)]);
            starts.push(left.len());
        }
        Self { starts, rows: left }
    }

    /// The rows with label `j`.
    pub(crate) fn of(&self, j: usize) -> &[u32] {
        &self.rows[self.starts[j]..self.starts[j + 1]]
    }

    /// The number of rows with label `j`.
    pub(crate) fn len(&self, j: usize) -> usize {
        self.starts[j + 1] - self.starts[j]
    }

    /// The place of the first row with label `j` among the grouped rows.
    pub(crate) fn start(&self, j: usize) -> usize {
        self.starts[j]
    }

    /// The group of the row at a place among the grouped rows.
    pub(crate) fn at(&self, place: usize) -> usize {
        self.starts.partition_point(|&start| start <= place) - 1
    }

    /// All rows, group after group.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }
}

/// Copies of some rows.
#[derive(Debug, Default)]
pub(crate) struct Copies<T> {
    numbers: Vec<u64>,
    pub(crate) rows: RowBuf<T>,
    weights: Vec<f64>,
}

impl<T: Float> Copies<T> {
    /// Reads the given rows and their weights.
    pub(crate) fn read(&mut self, data: &dyn DataSource<T>, rows: &[u32]) -> Result<()> {
        self.numbers.clear();
        self.numbers.extend(rows.iter().map(|&row| u64::from(row)));
        if data.most_values().is_some() {
            self.rows.begin_sparse(data.dim());
            copy_to(data, &self.numbers, &mut self.rows)?;
        } else {
            self.rows.clear(data.dim());
            gather(data, &self.numbers, &mut self.rows.values)?;
        }
        self.weights.clear();
        if let Some(weights) = data.weights() {
            self.weights.extend(rows.iter().map(|&row| weights[row as usize]));
        }
        Ok(())
    }

    /// The weight of row `i` of the copies.
    pub(crate) fn weight(&self, i: usize) -> f64 {
        self.weights.get(i).copied().unwrap_or(1.0)
    }

    /// The error for rows whose squared distances overflow.
    fn too_large(&self) -> Error {
        Chunk { first_row: self.numbers[0], rows: self.rows.rows(), weights: None }.not_finite()
    }
}

impl<T: Compute> Copies<T> {
    /// Adds the rows, times their weights, to `sums`, and their weights to `total`.
    pub(crate) fn add_to(&self, sums: &mut [f64], total: &mut f64) {
        for i in 0..self.numbers.len() {
            let weight = self.weight(i);
            *total += weight;
            match self.rows.rows() {
                Rows::Dense(rows) => {
                    sums.iter_mut().zip(rows.row(i)).for_each(|(sum, x)| *sum += weight * x.to_f64());
                }
                Rows::Sparse(rows) => {
                    let (columns, values) = rows.row(i);
                    for (&column, x) in columns.iter().zip(values) {
                        sums[column as usize] += weight * x.to_f64();
                    }
                }
            }
        }
    }

    /// The squared distance of row `i` to a center, by difference in `f64`.
    pub(crate) fn sq_dist(&self, i: usize, center: &[T]) -> f64 {
        match self.rows.rows() {
            Rows::Dense(rows) => kernel::sq_dist(rows.row(i), center),
            Rows::Sparse(rows) => {
                let (columns, values) = rows.row(i);
                let mut at = columns.iter().zip(values).peekable();
                let value = |(column, c): (usize, &T)| {
                    let x = at.next_if(|next| *next.0 as usize == column).map_or(0.0, |(_, x)| x.to_f64());
                    (x - c.to_f64()).powi(2)
                };
                center.iter().enumerate().map(value).sum()
            }
        }
    }

    /// Adds the squared distances of all rows to a center, times their weights, to `energy`.
    pub(crate) fn add_errors(&self, center: &[T], energy: &mut f64) -> Result<()> {
        self.for_each_sq_dist(center, |i, sq_dist| *energy += self.weight(i) * sq_dist);
        if energy.is_finite() { Ok(()) } else { Err(self.too_large()) }
    }

    /// Calls `f(row, squared distance)` for the distances of all rows to a center, by difference in `f64`.
    pub(crate) fn for_each_sq_dist(&self, center: &[T], mut f: impl FnMut(usize, f64)) {
        match self.rows.rows() {
            Rows::Dense(rows) => {
                rows.iter().enumerate().for_each(|(i, row)| f(i, kernel::sq_dist(row, center)));
            }
            rows @ Rows::Sparse(_) => {
                let packed = PackedCenters::for_rows(MatRef::new(center, center.len()), true);
                let (labels, mut sq_dists) = (vec![0; rows.rows()], vec![0.0; rows.rows()]);
                kernel::sq_dists(rows, &labels, &packed, &mut sq_dists);
                sq_dists.into_iter().enumerate().for_each(|(i, sq_dist)| f(i, sq_dist));
            }
        }
    }
}
