//! Sparse rows that wait to be added to per-cluster sums, with their clusters and weights.

use crate::float::Float;

/// Rows in the order in which they will be added.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// Cluster, weight, and the end of the stored values.
    entries: Vec<(u32, f64, usize)>,
    columns: Vec<i32>,
    values: Vec<f64>,
}

impl Waiting {
    /// Number of stored values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a row of a cluster.
    pub(super) fn push<T: Float>(&mut self, (columns, values): (&[i32], &[T]), label: u32, weight: f64) {
        self.columns.extend_from_slice(columns);
        self.values.extend(values.iter().map(|x| x.to_f64()));
        self.entries.push((label, weight, self.values.len()));
    }

    /// Moves the rows of another to the end.
    pub(super) fn append(&mut self, other: &mut Self) {
        let first = self.values.len();
        self.columns.append(&mut other.columns);
        self.values.append(&mut other.values);
        self.entries.extend(other.entries.drain(..).map(|(label, weight, end)| (label, weight, first + end)));
    }

    /// Passes all rows to `f`, as cluster, weight, columns and values, and removes them.
    pub(super) fn drain(&mut self, mut f: impl FnMut(u32, f64, &[i32], &[f64])) {
        let mut start = 0;
        for (label, weight, end) in self.entries.drain(..) {
            f(label, weight, &self.columns[start..end], &self.values[start..end]);
            start = end;
        }
        self.columns.clear();
        self.values.clear();
    }
}
