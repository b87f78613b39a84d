//! The pairs of rows within reach of each other, of some cells: rows of a cell among themselves, and with the rows
//! that visit the cell.

use std::ops::Range;

use super::cells::Cells;
use super::identical::Distinct;
use super::linkage::Ranks;
use crate::data::{DataSource, copy, row_values, take};
use crate::error::Result;
use crate::kernel::near::{Near, near};
use crate::kernel::{Compute, Frame, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::{RowBuf, Rows};
use crate::tuning::packed_rows;

/// Rows that are compared with rows of a cell together: their pairs take at most some 32 MB.
const DUPLICATE_VISITORS: usize = 2048;

/// What a search for pairs needs to know.
pub(super) struct Pairing<'a, T: Compute> {
    pub(super) data: &'a dyn DataSource<T>,
    pub(super) frame: &'a Frame<T>,
    pub(super) cells: &'a Cells<T>,
    pub(super) ranks: &'a Ranks,
    pub(super) distinct: &'a Distinct,
}

/// Rows of a cell that are compared with other rows together.
struct Meeting<'a> {
    /// Rows of the cell.
    block: &'a [u32],
    /// Rows from `block` on in the same cell, or visitors.
    others: &'a [u32],
    are_visitors: bool,
}

impl Meeting<'_> {
    /// The number of pairs of different rows that a meeting compares.
    fn n_compared(&self) -> u64 {
        let &Self { block, others, are_visitors } = self;
        let (block_len, len) = (block.len() as u64, others.len() as u64);
        if are_visitors {
            return block_len * len;
        }
        // Rows of the cell ascend: those after the block are compared with all of it.
        let after = others.iter().filter(|&&row| row > block[block.len() - 1]).count() as u64;
        let within = others.iter().filter(|&&row| row >= block[0] && row <= block[block.len() - 1]);
        let at = |row: u32| block.partition_point(|&own| own < row) as u64;
        after * block_len + within.map(|&row| at(row)).sum::<u64>()
    }
}

/// What meetings find.
#[derive(Default)]
struct FoundPairs {
    /// Pairs of ranks: the later one in the high half.
    pairs: Vec<u64>,
    n_pairs: u64,
    compared: u64,
}

impl<T: Compute> Pairing<'_, T> {
    /// Finds the pairs of the cells `targets`, given all visits to them, and calls `take` with pairs of ranks, the
    /// later one in the high half, in a fixed order. Returns the number of pairs of rows, and of compared pairs.
    pub(super) fn run(
        &self,
        targets: Range<usize>,
        visits: &[(u32, u32)],
        take: impl FnMut(&mut Vec<u64>) -> Result<()> + Send,
        cx: &Executor,
    ) -> Result<(u64, u64)> {
        let visitors: Vec<u32> = visits.iter().map(|&(_, row)| row).collect();
        let (mut cells, mut first, mut work) = (Vec::new(), 0, 0);
        let size = packed_rows::<T>(self.data.dim());
        for cell in targets {
            let last = first + visits[first..].partition_point(|&(target, _)| target as usize == cell);
            let (own, visitors) = (self.cells.groups.of(cell), &visitors[first..last]);
            let blocks = (0..own.len()).step_by(size);
            work += blocks.map(|start| (own.len() - start + visitors.len()) as u64).sum::<u64>();
            cells.push((own, visitors));
            first = last;
        }
        let meetings = cells.into_iter().flat_map(|(own, visitors)| {
            own.chunks(size).enumerate().flat_map(move |(at, block)| {
                [(&own[at * size..], false), (visitors, true)].into_iter().flat_map(
                    move |(all, are_visitors)| {
                        all.chunks(DUPLICATE_VISITORS).map(move |others| Meeting {
                            block,
                            others,
                            are_visitors,
                        })
                    },
                )
            })
        });
        let _phase = cx.phase("pairs", work);
        let (mut total, mut failed) = (FoundPairs::default(), Ok(()));
        let taking = std::sync::Mutex::new((take, &mut failed));
        let run = |meeting: Meeting<'_>, part: &mut FoundPairs, buffers: &mut Near<T>| {
            cx.count(meeting.others.len() as u64);
            self.meet(&meeting, part, buffers, cx)
        };
        let merge = |total: &mut FoundPairs, part: &mut FoundPairs| {
            total.n_pairs += std::mem::take(&mut part.n_pairs);
            total.compared += std::mem::take(&mut part.compared);
            let mut taking = taking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (take, failed) = &mut *taking;
            if failed.is_ok() {
                **failed = take(&mut part.pairs);
            }
            part.pairs.clear();
        };
        cx.ordered_reduce(meetings, &mut total, FoundPairs::default, Near::default, run, merge)?;
        failed?;
        Ok((total.n_pairs, total.compared))
    }

    /// Compares rows of a cell with others.
    fn meet(
        &self,
        meeting: &Meeting<'_>,
        part: &mut FoundPairs,
        buffers: &mut Near<T>,
        cx: &Executor,
    ) -> Result<()> {
        let &Meeting { block, others, are_visitors } = meeting;
        cx.check()?;
        let block_rows = self.read(block)?;
        let packed = self.packed(block, &block_rows)?;
        let nothing = packed.limits(block.iter().map(|_| -1.0));
        let values = self.read(others)?;
        let reach = self.cells.reach;
        let reaches = vec![reach; others.len()];
        let home = self.cells.labels[block[0] as usize];
        part.compared += meeting.n_compared();
        near(values.rows(), &packed, &reaches, &nothing, buffers, |i, j, sq_dist| {
            let (row, own) = (others[i], block[j]);
            // Two rows that visit each other's cells are a pair of the cell with the lower number.
            let counts = || {
                if !are_visitors {
                    return row > own;
                }
                let other = self.cells.labels[row as usize];
                home < other || !self.cells.is_visited(block_rows.rows(), j, own, other)
            };
            if sq_dist <= reach && counts() {
                part.n_pairs += self.distinct.count(row as usize) * self.distinct.count(own as usize);
                part.pairs.push(self.ranks.pair(row, own));
            }
            reach
        });
        Ok(())
    }

    fn read(&self, rows: &[u32]) -> Result<RowBuf<T>> {
        let rows: Vec<u64> = rows.iter().map(|&row| u64::from(row)).collect();
        copy(self.data, &rows)
    }

    /// Packs rows, to be compared with other rows.
    fn packed(&self, rows: &[u32], values: &RowBuf<T>) -> Result<PackedCenters<T>> {
        let (most, dim) = (row_values(self.data), self.data.dim());
        match values.rows() {
            Rows::Dense(values) => Ok(PackedCenters::framed(values, self.frame, most, false)),
            Rows::Sparse(_) => {
                let rows: Vec<u64> = rows.iter().map(|&row| u64::from(row)).collect();
                let values = take(self.data, &rows)?;
                Ok(PackedCenters::framed(MatRef::new(&values, dim), self.frame, most, true))
            }
        }
    }
}
