//! The rows of a batch.

use crate::data::{RowMarks, RowNumbers};
use crate::error::Result;
use crate::shuffle::Shuffle;

/// Numbers of the rows of a batch, ascending.
#[derive(Clone, Debug, Default)]
pub(super) enum Members {
    /// The first rows of the source, or all of them.
    #[default]
    First,
    Listed(Vec<u64>),
    /// The same as a bit per row of the source, for batches whose list would take more.
    Marked(RowMarks),
}

impl Members {
    pub(super) fn are_first(&self) -> bool {
        matches!(self, Self::First)
    }

    /// The row at a place.
    pub(super) fn row(&self, place: usize) -> u64 {
        match self {
            Self::First => place as u64,
            Self::Listed(rows) => rows[place],
            Self::Marked(rows) => rows.at(place),
        }
    }

    /// The place of a row of the batch.
    pub(super) fn place_of(&self, row: u64) -> usize {
        match self {
            Self::First => row as usize,
            Self::Listed(rows) => rows.partition_point(|&earlier| earlier < row),
            Self::Marked(rows) => rows.place_of(row),
        }
    }

    /// A batch of the first `due` of the `n` rows in random order, of which these are the first `old`.
    pub(super) fn grown(&self, n: u64, (old, due): (u64, u64), seed: u64) -> Result<Self> {
        if due == n {
            return Ok(Self::First);
        }
        let order = Shuffle::new(n, seed);
        let fresh = (old..due).map(|i| order.at(i));
        if due <= n / 64 {
            let mut rows: Vec<u64> = (0..old as usize).map(|place| self.row(place)).chain(fresh).collect();
            rows.sort_unstable();
            return Ok(Self::Listed(rows));
        }
        let mut marks = match self {
            Self::Marked(marks) => marks.clone(),
            _ => RowMarks::new(n)?,
        };
        let listed = if let Self::Listed(rows) = self { &rows[..] } else { &[] };
        marks.mark(listed.iter().copied().chain(fresh));
        Ok(Self::Marked(marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_the_first_rows_of_the_order_for_any_steps() {
        let (n, seed) = (10_000, 3);
        let order = Shuffle::new(n, seed);
        for steps in [&[100, 150, 156, 157, 5000, n][..], &[300, 9999], &[1, 10_000]] {
            let (mut members, mut old) = (Members::default(), 0);
            for &due in steps {
                let next = members.grown(n, (old, due), seed).unwrap();
                let mut rows: Vec<u64> = (0..due).map(|i| order.at(i)).collect();
                rows.sort_unstable();
                assert_eq!((0..due as usize).map(|place| next.row(place)).collect::<Vec<_>>(), rows);
                assert!(rows.iter().enumerate().all(|(place, &row)| next.place_of(row) == place));
                (members, old) = (next, due);
            }
            assert!(members.are_first() == (old == n));
        }
    }
}
