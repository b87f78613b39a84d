//! Identical rows: only one of them takes part in the search.

use crate::data::{DataSource, Subset, copy, count_rows};
use crate::error::Result;
use crate::float::Float;
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::pass::{Chunk, for_all_rows};
use crate::rows::{RowBuf, Rows};
use crate::tuning::{GRAPH_TILE_ROWS, GROUPED_ROWS};

/// The rows that differ from each other.
#[derive(Debug)]
pub(super) struct Distinct {
    /// The first of every set of identical rows, in ascending order.
    pub(super) rows: Vec<u64>,
    /// For every row the place in `rows` of the row that it equals; [`APART`] for rows that take no part. Empty if all
    /// rows are different and take part.
    places: Vec<u32>,
    /// For every set of identical rows their number. Empty if all rows are different.
    counts: Vec<u32>,
}

/// The place of a row that has no duplicates by definition.
const APART: u32 = u32::MAX;

impl Distinct {
    /// Finds identical rows: equal hashes first, then equal values. Rows of zeros take no part if `without_zeros`.
    /// Checks that all values are finite.
    pub(super) fn of<T: Compute>(
        data: &dyn DataSource<T>,
        without_zeros: bool,
        cx: &Executor,
    ) -> Result<Self> {
        let n = count_rows(data)?;
        let fill = |chunk: &Chunk<'_, T>, hashes: &mut [u64], apart: &mut [bool], (): &mut ()| {
            chunk.check_finite()?;
            for (i, (hash, apart)) in hashes.iter_mut().zip(apart).enumerate() {
                let zero = T::from_f64(0.0);
                *apart = without_zeros && chunk.rows.stored(i).iter().all(|&x| x == zero);
                *hash = hash_of(chunk.rows, i);
            }
            Ok(())
        };
        let (hashes, mut apart) =
            for_all_rows("hashes of rows", data, cx, (GRAPH_TILE_ROWS, 1), <()>::default, fill)?;
        if apart.iter().all(|&apart| apart) {
            // One row takes part, so that there are rows to search. Alone it has no duplicates.
            apart[..1].fill(false);
        }
        let mut order: Vec<u32> = Vec::new();
        make_room(&mut order, "an order of rows", n, 1)?;
        order.extend((0..n as u32).filter(|&row| !apart[row as usize]));
        order.sort_unstable_by_key(|&row| (hashes[row as usize], row));
        // The first identical row of every row.
        let mut first: Vec<u32> = Vec::new();
        make_room(&mut first, "identical rows", n, 1)?;
        first.extend(0..n as u32);
        for same in order.chunk_by(|&a, &b| hashes[a as usize] == hashes[b as usize]) {
            if same.len() > 1 {
                collapse(data, same, &mut first, cx)?;
            }
        }
        drop((hashes, order));
        let is_first = |row: u32| first[row as usize] == row && !apart[row as usize];
        let rows: Vec<u64> = (0..n as u32).filter(|&row| is_first(row)).map(u64::from).collect();
        if rows.len() as u64 == n {
            return Ok(Self { rows, places: Vec::new(), counts: Vec::new() });
        }
        let (mut places, mut counts) = (first, vec![0; rows.len()]);
        let mut next = 0;
        for row in 0..n as usize {
            // The first of identical rows has the lowest number, so its place is known.
            places[row] = if apart[row] {
                APART
            } else if places[row] as usize == row {
                next += 1;
                next - 1
            } else {
                places[places[row] as usize]
            };
            if places[row] != APART {
                counts[places[row] as usize] += 1;
            }
        }
        Ok(Self { rows, places, counts })
    }

    /// The distinct rows of `data`.
    pub(super) fn view<'a, T: Float>(&'a self, data: &'a dyn DataSource<T>) -> Subset<'a, T> {
        Subset::new(data, &self.rows)
    }

    /// The place of a row among the distinct rows; `None` for a row that takes no part.
    pub(super) fn place(&self, row: u32) -> Option<u32> {
        match self.places.get(row as usize) {
            Some(&APART) => None,
            Some(&place) => Some(place),
            None => Some(row),
        }
    }

    /// The number of rows that equal the distinct row at a place, itself included.
    pub(super) fn count(&self, place: usize) -> u64 {
        self.counts.get(place).copied().map_or(1, u64::from)
    }

    /// Number of pairs of identical rows.
    pub(super) fn n_pairs(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count) * u64::from(count.saturating_sub(1)) / 2).sum()
    }
}

/// A hash of the stored values of a row; equal rows have equal hashes. Zeros of both signs are equal.
fn hash_of<T: Float>(rows: Rows<'_, T>, i: usize) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, bits: u64| (hash.rotate_left(23) ^ bits).wrapping_mul(FACTOR);
    let value = |x: &T| (x.to_f64() + 0.0).to_bits();
    let hash = match rows {
        Rows::Dense(rows) => rows.row(i).iter().fold(0, |hash, x| mix(hash, value(x))),
        Rows::Sparse(rows) => {
            let (columns, values) = rows.row(i);
            let stored = columns.iter().zip(values);
            stored.fold(0, |hash, (&column, x)| mix(mix(hash, column as u64), value(x)))
        }
    };
    hash ^ (hash >> 32)
}

/// Writes into `first` which of some rows with equal hashes are identical. `same` ascends.
fn collapse<T: Float>(
    data: &dyn DataSource<T>,
    same: &[u32],
    first: &mut [u32],
    cx: &Executor,
) -> Result<()> {
    // One row of every set of identical rows: nearly always a single one.
    let (mut known, mut numbers) = (RowBuf::default(), Vec::new());
    for part in same.chunks(GROUPED_ROWS) {
        cx.check()?;
        let rows: Vec<u64> = part.iter().map(|&row| u64::from(row)).collect();
        let copies = copy(data, &rows)?;
        if numbers.is_empty() {
            known = copy(data, &rows[..1])?;
            numbers.push(part[0]);
        }
        for (i, &row) in part.iter().enumerate() {
            if let Some(j) = (0..numbers.len()).find(|&j| are_equal(known.rows(), j, copies.rows(), i)) {
                first[row as usize] = numbers[j];
            } else {
                known.push(copies.rows(), i);
                numbers.push(row);
            }
        }
    }
    Ok(())
}

/// Whether two rows store the same values.
fn are_equal<T: Float>(a: Rows<'_, T>, i: usize, b: Rows<'_, T>, j: usize) -> bool {
    match (a, b) {
        (Rows::Dense(a), Rows::Dense(b)) => a.row(i) == b.row(j),
        (Rows::Sparse(a), Rows::Sparse(b)) => a.row(i) == b.row(j),
        _ => false,
    }
}
