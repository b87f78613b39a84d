//! The tree of blocks: branches of some thousand rows, split from a sample of all rows, and leaves of some dozen
//! rows, split from a sample of the branch. Every leaf holds a copy of its rows by columns.
//!
//! The tree depends on the rows alone, not on the number of threads.
#![allow(clippy::needless_range_loop, reason = "loops over several arrays")]

use super::splits::Splits;
use crate::data::{self, Block, DataSource};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::bounded::BEHIND;
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rows::Rows;
use crate::tuning::{ROWS_IN_LANES_DIM, chunk_rows, tile_rows};
use std::ops::ControlFlow;

/// Rows of a branch of the tree of blocks: its rows and their copy by columns fit into the second-level cache
/// while the branch is built. A sweep tests all centers against every branch, which must be few distances
/// for each row.
const BLOCK_BRANCH_ROWS: usize = 4096;

/// Rows of a leaf: a few vectors. Smaller leaves hold fewer candidates, and more boxes must be tested.
const BLOCK_LEAF_ROWS: usize = 64;

/// Sampled rows for each branch, from which the splits between the branches are made.
const BLOCK_BRANCH_SAMPLE: usize = 64;

/// Sampled rows for each leaf, from which the splits of a branch are made.
const BLOCK_LEAF_SAMPLE: usize = 8;

/// Marks a position behind the last row of a leaf.
pub(super) const NO_ROW: u32 = u32::MAX;

/// The rows of a source, by branches.
#[derive(Debug)]
pub(super) struct Tree<T> {
    pub(super) rows: usize,
    pub(super) branches: Vec<Branch<T>>,
}

/// A complete binary tree of boxes; the leaves hold rows.
#[derive(Debug)]
pub(super) struct Branch<T> {
    pub(super) dim: usize,
    pub(super) leaves: Vec<Leaf>,
    /// The row number per position. Every leaf ends with up to [`BEHIND`] positions without a row.
    pub(super) rows: Vec<u32>,
    /// The values of the leaves, one after the other, by columns.
    pub(super) values: Vec<T>,
    /// Lower and upper faces per node, in heap order.
    pub(super) faces: Vec<T>,
    /// The mean distance from the middle of a leaf to its corners.
    pub(super) radius: T,
}

/// Consecutive positions of a branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// The first position, and the first behind the leaf.
    pub(super) start: usize,
    pub(super) end: usize,
    /// The number of rows.
    pub(super) rows: usize,
}

/// Rows on the way into a branch, row after row.
#[derive(Default)]
struct Staged<T> {
    rows: Vec<u32>,
    values: Vec<T>,
}

/// Upper limit of the bytes of the tree of `n` rows, and of their labels and carried candidates.
pub(super) fn bytes<T>(n: usize, dim: usize) -> usize {
    let row = dim * size_of::<T>();
    let leaves = 2 * n.div_ceil(BLOCK_LEAF_ROWS);
    let positions = n + BEHIND * leaves;
    positions * (row + row / 2 + 12 + size_of::<T>()) + leaves * (4 * row + 16 + size_of::<Leaf>()) + 9 * n
}

/// Whether the tree of `n` rows of `dim` columns fits into `budget` bytes.
pub(super) fn fits<T>(n: usize, dim: usize, budget: u64) -> bool {
    dim <= ROWS_IN_LANES_DIM && n < NO_ROW as usize && bytes::<T>(n, dim) as u64 <= budget
}

/// The number of levels that gives at most `each` rows per place.
fn levels_for(n: usize, each: usize) -> u32 {
    n.div_ceil(each).next_power_of_two().trailing_zeros()
}

impl<T: Float> Tree<T> {
    /// Builds the tree of `n` dense rows.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn build(n: usize, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let dim = data.dim();
        let levels = levels_for(n, BLOCK_BRANCH_ROWS);
        let mut branch_of = Vec::new();
        make_room(&mut branch_of, "branches of the rows", n as u64, 1)?;
        branch_of.resize(n, 0u32);
        let splits = if levels == 0 {
            Splits::of(&[], dim, 0)
        } else {
            Splits::of(&sample(n, BLOCK_BRANCH_SAMPLE << levels, data)?, dim, levels)
        };
        let mut counts = vec![0usize; splits.places()];
        let place = |chunk: Chunk<'_, T>, branch_of: &mut [u32], counts: &mut Vec<usize>, (): &mut ()| {
            if let Rows::Dense(rows) = chunk.rows {
                splits.place(rows, branch_of);
                for &mut place in branch_of {
                    counts[place as usize] += 1;
                }
            }
            Ok(())
        };
        let make = (|| vec![0; splits.places()], || ());
        let merge = |total: &mut Vec<usize>, part: &mut Vec<usize>| {
            total.iter_mut().zip(part).for_each(|(total, part)| *total += std::mem::take(part));
        };
        sweep(data, cx, tile_rows(splits.places()), &mut branch_of[..], &mut counts, make, place, merge)?;
        let staged = stage(&branch_of, &counts, data, cx)?;
        drop(branch_of);
        let mut branches: Vec<Option<Branch<T>>> = staged.iter().map(|_| None).collect();
        cx.for_each(
            staged.into_iter().zip(&mut branches),
            || (),
            |(staged, out), ()| {
                *out = Some(Branch::of(&staged, dim));
                Ok(())
            },
        )?;
        Ok(Self { rows: n, branches: branches.into_iter().flatten().collect() })
    }
}

/// One row from each of `count` runs of rows of equal length, at a place in the run that follows no pattern.
fn sample<T: Float>(n: usize, count: usize, data: &dyn DataSource<T>) -> Result<Vec<T>> {
    let run = (n / count).max(1);
    let picked = (0..(n / run) as u64).map(|i| {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        i * run as u64 + (mixed >> 32) % run as u64
    });
    let mut values = Vec::new();
    data::gather(data, &picked.collect::<Vec<_>>(), &mut values)?;
    Ok(values)
}

/// The error if two passes give different numbers of rows.
fn other_rows() -> Error {
    Error::Source(
        "the source gave another number of rows in a second pass: every pass must give the same rows".into(),
    )
}

/// Copies every row to its branch.
fn stage<T: Float>(
    branch_of: &[u32],
    counts: &[usize],
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<Staged<T>>> {
    let dim = data.dim();
    let mut staged = Vec::with_capacity(counts.len());
    for &rows in counts {
        let mut branch = Staged::default();
        make_room(&mut branch.rows, "blocks of rows", rows as u64, 1)?;
        make_room(&mut branch.values, "blocks of rows", rows as u64, dim)?;
        staged.push(branch);
    }
    let (mut scratch, tile) = (Vec::new(), chunk_rows(dim));
    data::read(data, tile, &mut |block: Block<'_, T>| {
        for start in (0..block.len).step_by(tile) {
            cx.check()?;
            let end = block.len.min(start + tile);
            let first = block.first_row as usize + start;
            let places = branch_of.get(first..first + end - start).ok_or_else(other_rows)?;
            let rows = block.rows.tile(start..end, &mut scratch)?;
            for ((row, r), &branch) in rows.iter().zip(first..).zip(places) {
                let branch = &mut staged[branch as usize];
                branch.rows.push(r as u32);
                // A copy of so few values costs more as a call.
                for &x in row {
                    branch.values.push(x);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let all_there = staged.iter().zip(counts).all(|(staged, &rows)| staged.rows.len() == rows);
    if all_there { Ok(staged) } else { Err(other_rows()) }
}

impl<T: Float> Branch<T> {
    fn of(staged: &Staged<T>, dim: usize) -> Self {
        let n = staged.rows.len();
        let levels = levels_for(n, BLOCK_LEAF_ROWS);
        let step = (n / (BLOCK_LEAF_SAMPLE << levels)).max(1);
        let sample: Vec<T> = staged.values.chunks_exact(dim).step_by(step).flatten().copied().collect();
        let splits = Splits::of(&sample, dim, levels);
        let mut leaves = vec![Leaf { start: 0, end: 0, rows: 0 }; splits.places()];
        let mut leaf_of = vec![0; n];
        splits.place(MatRef::new(&staged.values, dim), &mut leaf_of);
        for &leaf in &leaf_of {
            leaves[leaf as usize].rows += 1;
        }
        let mut end = 0;
        for leaf in &mut leaves {
            leaf.start = end;
            end += leaf.rows.next_multiple_of(BEHIND);
            leaf.end = end;
        }
        let (mut rows, mut values) = (vec![NO_ROW; end], vec![T::ZERO; end * dim]);
        let mut filled: Vec<usize> = vec![0; leaves.len()];
        for ((row, &r), &leaf) in staged.values.chunks_exact(dim).zip(&staged.rows).zip(&leaf_of) {
            let at = filled[leaf as usize];
            filled[leaf as usize] += 1;
            let Leaf { start, end, .. } = leaves[leaf as usize];
            rows[start + at] = r;
            for t in 0..dim {
                values[start * dim + t * (end - start) + at] = row[t];
            }
        }
        let mut new = Self { dim, leaves, rows, values, faces: Vec::new(), radius: T::ZERO };
        new.enclose();
        new
    }

    /// Computes the boxes, and fills the positions without a row.
    fn enclose(&mut self) {
        let (dim, places) = (self.dim, self.leaves.len());
        let nodes = 2 * places - 1;
        self.faces = Vec::with_capacity(2 * dim * nodes);
        for _ in 0..nodes {
            self.faces.resize(self.faces.len() + dim, T::INFINITY);
            self.faces.resize(self.faces.len() + dim, T::ZERO - T::INFINITY);
        }
        for (l, leaf) in self.leaves.iter().enumerate().filter(|(_, leaf)| leaf.rows > 0) {
            let (low, high) = self.faces[2 * dim * (places - 1 + l)..][..2 * dim].split_at_mut(dim);
            let columns =
                self.values[leaf.start * dim..leaf.end * dim].chunks_exact_mut(leaf.end - leaf.start);
            for ((column, low), high) in columns.zip(low).zip(high) {
                let (values, rest) = column.split_at_mut(leaf.rows);
                rest.fill(values[leaf.rows - 1]);
                for &x in &*values {
                    *low = if x < *low { x } else { *low };
                    *high = if x > *high { x } else { *high };
                }
            }
        }
        let radius = |l: usize| {
            let (low, high) = self.faces(places - 1 + l).split_at(dim);
            let sides = low.iter().zip(high).map(|(low, high)| (high.to_f64() - low.to_f64()).powi(2));
            0.5 * sides.sum::<f64>().sqrt()
        };
        let filled = self.leaves.iter().enumerate().filter(|(_, leaf)| leaf.rows > 0);
        let (sum, count) = filled.fold((0.0, 0.0), |(sum, count), (l, _)| (sum + radius(l), count + 1.0));
        self.radius = T::from_f64(if count > 0.0 { sum / count } else { 0.0 });
        for node in (0..places - 1).rev() {
            let (mine, below) = self.faces.split_at_mut(2 * dim * (node + 1));
            let mine = &mut mine[2 * dim * node..];
            let below = &below[2 * dim * node..][..4 * dim];
            let (left, right) = below.split_at(2 * dim);
            for t in 0..dim {
                mine[t] = if left[t] < right[t] { left[t] } else { right[t] };
                let (left, right) = (left[dim + t], right[dim + t]);
                mine[dim + t] = if left > right { left } else { right };
            }
        }
    }

    /// The faces of the box of a node.
    pub(super) fn faces(&self, node: usize) -> &[T] {
        &self.faces[2 * self.dim * node..][..2 * self.dim]
    }

    /// The values of a leaf, by columns.
    pub(super) fn columns(&self, leaf: Leaf) -> &[T] {
        &self.values[leaf.start * self.dim..leaf.end * self.dim]
    }
}
