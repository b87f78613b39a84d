//! The rows with the smallest keys: the farthest rows of a sweep, the rows drawn in a round of a seeding.

use crate::float::Float;
use crate::persist::kept::{Values, keep, list};
use crate::persist::{Array, Contents};
use crate::rows::{Rows, spread};

/// At most `most` rows with the smallest keys; the first partition, then the first row wins a tie.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picked {
    dim: usize,
    most: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) values: Values,
    /// No row with a larger key is kept any more.
    limit: f64,
}

/// What is known of a row besides its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: f64,
    pub(super) partition: u64,
    pub(super) row: u64,
    pub(super) weight: f64,
    pub(super) label: u32,
}

impl Picked {
    /// Room for `most` rows, whose values are `f64` if `wide`.
    pub(super) fn new(dim: usize, most: usize, wide: bool) -> Self {
        let values = if wide { Values::F64(Vec::new()) } else { Values::F32(Vec::new()) };
        Self { dim, most, entries: Vec::new(), values, limit: f64::INFINITY }
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The bytes of a row of `dim` values, at most: an entry has four numbers of 8 bytes and one of 4.
    pub(super) fn row_bytes(dim: usize) -> usize {
        8 * dim + 36
    }

    /// A row whose key is above this limit cannot be among the rows that are kept.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// The values of row `i`, in the requested type.
    pub(super) fn row<T: Float>(&self, i: usize) -> Vec<T> {
        self.values.part(i * self.dim..(i + 1) * self.dim).get()
    }

    /// Adds a row of a chunk, unless its key is too large.
    pub(super) fn push<T: Float>(&mut self, entry: Entry, rows: Rows<'_, T>, i: usize) {
        if entry.key > self.limit {
            return;
        }
        self.entries.push(entry);
        match rows {
            Rows::Dense(dense) => self.values.extend(dense.row(i)),
            Rows::Sparse(sparse) => {
                let mut row = vec![T::from_f64(0.0); self.dim];
                spread(sparse.row(i), &mut row);
                self.values.extend(&row);
            }
        }
        self.prune_if_many();
    }

    /// Adds the rows of another, and leaves it empty. Call [`Picked::prune`] at the end.
    pub(super) fn append(&mut self, other: &mut Self) {
        if self.dim == 0 {
            (self.dim, self.values) = (other.dim, other.values.part(0..0));
        }
        self.entries.append(&mut other.entries);
        self.values.append(&mut other.values);
        self.prune_if_many();
    }

    /// Prunes seldom enough that sorting costs little.
    fn prune_if_many(&mut self) {
        if self.entries.len() >= 2 * self.most + 64 {
            self.prune();
        }
    }

    /// Keeps the rows with the smallest keys, in the order of the keys.
    pub(super) fn prune(&mut self) {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        let at = |i: usize| (self.entries[i].partition, self.entries[i].row);
        let by_key = |&i: &usize, &j: &usize| {
            self.entries[i].key.total_cmp(&self.entries[j].key).then_with(|| at(i).cmp(&at(j)))
        };
        order.sort_unstable_by(by_key);
        order.truncate(self.most);
        if order.len() == self.most
            && let Some(&last) = order.last()
        {
            self.limit = self.entries[last].key;
        }
        self.values = self.values.select(self.dim, &order);
        self.entries = order.into_iter().map(|i| self.entries[i]).collect();
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.values = self.values.part(0..0);
        self.limit = f64::INFINITY;
    }

    /// Orders the rows by their places.
    pub(super) fn in_order(&self) -> (Vec<Entry>, Values) {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_unstable_by_key(|&i| (self.entries[i].partition, self.entries[i].row));
        let values = self.values.select(self.dim, &order);
        (order.into_iter().map(|i| self.entries[i]).collect(), values)
    }

    pub(super) fn put(&self, contents: &mut Contents) {
        fn column<E: crate::persist::Number>(all: &[Entry], f: impl Fn(&Entry) -> E) -> Vec<E> {
            all.iter().map(f).collect()
        }
        let (all, n) = (&self.entries, self.entries.len());
        keep(contents, "keys", Array::new(&[n], &column(all, |e| e.key)));
        keep(contents, "partitions", Array::new(&[n], &column(all, |e| e.partition)));
        keep(contents, "rows", Array::new(&[n], &column(all, |e| e.row)));
        keep(contents, "row_weights", Array::new(&[n], &column(all, |e| e.weight)));
        keep(contents, "labels", Array::new(&[n], &column(all, |e| e.label)));
        keep(contents, "values", self.values.array(self.dim));
    }

    /// Reads what [`Picked::put`] wrote, of rows of `dim` values.
    pub(super) fn of_file(contents: &Contents, dim: usize, most: usize) -> Result<Self, String> {
        let keys: Vec<f64> = list(contents, "keys")?;
        let n = keys.len();
        let partitions: Vec<u64> = contents.values("partitions", &[n])?;
        let rows: Vec<u64> = contents.values("rows", &[n])?;
        let weights: Vec<f64> = contents.values("row_weights", &[n])?;
        let labels: Vec<u32> = contents.values("labels", &[n])?;
        let values = Values::matrix(contents, "values", dim)?;
        let sorted = keys.is_sorted() && keys.iter().chain(&weights).all(|x| x.is_finite());
        let fits = n <= most && n.checked_mul(dim) == Some(values.len()) && (n == 0 || dim > 0);
        if !fits || !sorted || values.first_not_finite(dim).is_some() {
            return Err("its rows are damaged".into());
        }
        let entry = |i: usize| Entry {
            key: keys[i],
            partition: partitions[i],
            row: rows[i],
            weight: weights[i],
            label: labels[i],
        };
        let limit = if n == most { keys.last().copied().unwrap_or(f64::INFINITY) } else { f64::INFINITY };
        Ok(Self { dim, most, entries: (0..n).map(entry).collect(), values, limit })
    }
}
