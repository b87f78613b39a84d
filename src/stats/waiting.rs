//! This module knows sparse rows that are still to be added to sums: what they store, and what they weigh in which cluster.

use crate::float::Float;

/// Rows in the order in which they are to be added.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// Cluster, weight, and where the stored values end.
    entries: Vec<(u32, f64, usize)>,
    columns: Vec<i32>,
    values: Vec<f64>,
}

impl Waiting {
    /// Stored values that wait.
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

    /// Adds the rows of another, which is left empty.
    pub(super) fn append(&mut self, other: &mut Self) {
        let first = self.values.len();
        self.columns.append(&mut other.columns);
        self.values.append(&mut other.values);
        self.entries.extend(other.entries.drain(..).map(|(label, weight, end)| (label, weight, first + end)));
    }

    /// Hands all rows to `f`, as cluster, weight, columns and values, and drops them.
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
