//! Distinct rows of a source, as one bit per row of the source.

use std::ops::Range;

use super::listed::RowNumbers;
use crate::error::Result;
use crate::matrix::make_room;

/// Words between two counts.
const STRIDE: usize = 8;

/// Distinct row numbers in ascending order. They take less memory than a list if they are more than one in 64.
#[derive(Clone, Debug)]
pub(crate) struct RowMarks {
    words: Vec<u64>,
    /// Rows before every [`STRIDE`]th word.
    before: Vec<u64>,
    len: usize,
}

impl RowMarks {
    /// No rows, of `n`.
    pub(crate) fn new(n: u64) -> Result<Self> {
        let size = n.div_ceil(64);
        let mut words = Vec::new();
        make_room(&mut words, "marks of rows", size, 1)?;
        words.resize(size as usize, 0);
        let before = vec![0; words.len().div_ceil(STRIDE)];
        Ok(Self { words, before, len: 0 })
    }

    /// Adds rows.
    pub(crate) fn mark(&mut self, rows: impl Iterator<Item = u64>) {
        for row in rows {
            self.words[(row / 64) as usize] |= 1 << (row % 64);
        }
        let mut all = 0;
        for (before, words) in self.before.iter_mut().zip(self.words.chunks(STRIDE)) {
            *before = all;
            all += ones(words);
        }
        self.len = all as usize;
    }

    /// The number of rows before this one.
    pub(crate) fn place_of(&self, row: u64) -> usize {
        let word = (row / 64) as usize;
        let first = word / STRIDE * STRIDE;
        let within = self.words[word] & ((1 << (row % 64)) - 1);
        (self.before[word / STRIDE] + ones(&self.words[first..word])) as usize + within.count_ones() as usize
    }

    /// The word of the row at a place, and the places of that word before it.
    fn find(&self, place: usize) -> (usize, u32) {
        let stride = self.before.partition_point(|&before| before <= place as u64) - 1;
        let mut left = place as u64 - self.before[stride];
        let mut word = stride * STRIDE;
        while left >= u64::from(self.words[word].count_ones()) {
            left -= u64::from(self.words[word].count_ones());
            word += 1;
        }
        (word, left as u32)
    }
}

fn ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl RowNumbers for &RowMarks {
    fn len(&self) -> usize {
        self.len
    }

    fn at(&self, place: usize) -> u64 {
        self.range(place..place + 1)[0]
    }

    fn range(&self, places: Range<usize>) -> Vec<u64> {
        let mut rows = Vec::with_capacity(places.len());
        if places.is_empty() {
            return rows;
        }
        let (first, skipped) = self.find(places.start);
        let mut bits = self.words[first];
        for _ in 0..skipped {
            bits &= bits - 1;
        }
        let mut word = first;
        loop {
            while bits != 0 {
                rows.push(64 * word as u64 + u64::from(bits.trailing_zeros()));
                if rows.len() == places.len() {
                    return rows;
                }
                bits &= bits - 1;
            }
            word += 1;
            bits = self.words[word];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_a_sorted_list() {
        for n in [1u64, 63, 64, 65, 512, 513, 5000] {
            for step in [1, 2, 7, 63, 700] {
                let rows: Vec<u64> = (0..n).filter(|row| row * row % step < step.div_ceil(3)).collect();
                let mut marks = RowMarks::new(n).unwrap();
                marks.mark(rows.iter().rev().copied().skip(rows.len() / 2));
                marks.mark(rows.iter().copied());
                let marks = &marks;
                assert_eq!(marks.len(), rows.len());
                assert_eq!(marks.range(0..rows.len()), rows);
                assert!(rows.iter().enumerate().all(|(place, &row)| marks.place_of(row) == place));
                for start in (0..rows.len()).step_by(11) {
                    let end = rows.len().min(start + 70);
                    assert_eq!(marks.at(start), rows[start]);
                    assert_eq!(marks.range(start..end), rows[start..end]);
                    assert!(marks.range(start..start).is_empty());
                }
            }
        }
    }
}
