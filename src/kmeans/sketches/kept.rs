//! Rows of a large file that were read last. Rows between clusters are read in most sweeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::float::Float;
use crate::matrix::MatRef;

/// Consecutive rows whose kept rows are together.
const GROUP: usize = 512;

/// Copies of some rows.
#[derive(Debug)]
pub(in crate::kmeans) struct KeptRows {
    groups: Vec<Mutex<Group>>,
    /// Upper limit of the kept rows of a group.
    most: usize,
    /// Words of a row.
    words: usize,
    /// Number of the sweep.
    sweep: AtomicU32,
}

/// The kept rows of a group.
#[derive(Debug, Default)]
struct Group {
    rows: Vec<Kept>,
    /// Their values, bit by bit.
    values: Vec<u32>,
}

/// A kept row, counted from the first of its group.
#[derive(Clone, Copy, Debug)]
struct Kept {
    row: u32,
    /// The last sweep that used it.
    used: u32,
}

impl KeptRows {
    /// For `n` rows of `dim` columns, in at most `bytes`.
    pub(super) fn new<T: Float>(n: usize, dim: usize, bytes: u64) -> Self {
        let words = dim * (size_of::<T>() / size_of::<u32>());
        let groups = n.div_ceil(GROUP);
        let a_row = (words * size_of::<u32>() + size_of::<Kept>()) as u64;
        let most = (bytes / (groups.max(1) as u64 * a_row)).min(GROUP as u64) as usize;
        Self {
            groups: (0..groups).map(|_| Mutex::default()).collect(),
            most,
            words,
            sweep: AtomicU32::new(0),
        }
    }

    /// Begins a sweep.
    pub(super) fn advance(&self) {
        self.sweep.fetch_add(1, Ordering::Relaxed);
    }

    fn group(&self, row: usize) -> MutexGuard<'_, Group> {
        self.groups[row / GROUP].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies rows to their places in `out`. `picked` are counted from row `first`. Lists those that are not kept.
    pub(super) fn copy<T: Float>(&self, first: usize, picked: &[u32], out: &mut [T], missing: &mut Vec<u32>) {
        missing.clear();
        let sweep = self.sweep.load(Ordering::Relaxed);
        let dim = self.words / (size_of::<T>() / size_of::<u32>());
        for rows in picked.chunk_by(|&a, &b| (first + a as usize) / GROUP == (first + b as usize) / GROUP) {
            let mut group = self.group(first + rows[0] as usize);
            let Group { rows: kept, values } = &mut *group;
            for &r in rows {
                let row = ((first + r as usize) % GROUP) as u32;
                if let Some(at) = kept.iter().position(|kept| kept.row == row) {
                    kept[at].used = sweep;
                    unpack(&values[at * self.words..][..self.words], &mut out[r as usize * dim..][..dim]);
                } else {
                    missing.push(r);
                }
            }
        }
    }

    /// Keeps rows, in place of those that were not used for the longest time. `picked` are counted from row `first`, and
    /// their values are at their places in `rows`.
    pub(super) fn keep<T: Float>(&self, first: usize, picked: &[u32], rows: MatRef<'_, T>) {
        let sweep = self.sweep.load(Ordering::Relaxed);
        for &r in picked.iter().filter(|_| self.most > 0) {
            let row = first + r as usize;
            let mut group = self.group(row);
            let Group { rows: kept, values } = &mut *group;
            let new = Kept { row: (row % GROUP) as u32, used: sweep };
            let at = if kept.len() < self.most {
                kept.push(new);
                values.resize(kept.len() * self.words, 0);
                kept.len() - 1
            } else {
                let oldest = kept.iter().enumerate().min_by_key(|(_, kept)| kept.used);
                let Some((at, _)) = oldest.filter(|(_, kept)| kept.used < sweep) else { continue };
                kept[at] = new;
                at
            };
            pack(rows.row(r as usize), &mut values[at * self.words..][..self.words]);
        }
    }
}

/// The bits of values.
fn pack<T: Float>(values: &[T], words: &mut [u32]) {
    if T::WIDE {
        for (v, words) in values.iter().zip(words.as_chunks_mut::<2>().0) {
            let bits = v.to_f64().to_bits();
            *words = [bits as u32, (bits >> 32) as u32];
        }
    } else {
        words.iter_mut().zip(values).for_each(|(word, v)| *word = v.to_f32().to_bits());
    }
}

/// The values of bits.
fn unpack<T: Float>(words: &[u32], values: &mut [T]) {
    if T::WIDE {
        for (v, &[low, high]) in values.iter_mut().zip(words.as_chunks::<2>().0) {
            *v = T::from_f64(f64::from_bits(u64::from(low) | u64::from(high) << 32));
        }
    } else {
        values.iter_mut().zip(words).for_each(|(v, &word)| *v = T::from_f32(f32::from_bits(word)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Float>(row_bytes: u64) {
        let (n, dim) = (1100, 3);
        let values: Vec<T> = (0..n * dim).map(|i| T::from_f64(i as f64 / 7.0)).collect();
        let all = MatRef::new(&values, dim);
        // Two rows per group.
        let kept = KeptRows::new::<T>(n, dim, 3 * 2 * row_bytes);
        let found = |first: usize, picked: &[u32]| {
            let (mut out, mut missing) = (vec![T::ZERO; n * dim], Vec::new());
            kept.copy(first, picked, &mut out, &mut missing);
            for &r in picked.iter().filter(|r| !missing.contains(*r)) {
                assert_eq!(out[r as usize * dim..][..dim], *all.row(first + r as usize));
            }
            kept.keep(first, &missing, all.slice(first, n));
            missing
        };
        kept.advance();
        assert_eq!(found(10, &[1, 2, 600]), [1, 2, 600]);
        assert_eq!(found(0, &[3, 11, 12, 610]), [3]);
        kept.advance();
        // Row 12 is not used in this sweep, and makes room.
        assert_eq!(found(0, &[5, 11]), [5]);
        assert_eq!(found(0, &[5, 11, 12]), [12]);
        assert!(kept.groups.iter().all(|group| group.lock().unwrap().rows.len() <= 2));
    }

    #[test]
    fn the_rows_used_last_are_kept() {
        check::<f32>(3 * 4 + 8);
        check::<f64>(3 * 8 + 8);
    }
}
