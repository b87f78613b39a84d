//! How far a partition has come from a fit.

use super::{Cells, Partition};
use crate::fit::Metric;
use crate::float::either;
use crate::kernel::Compute;

impl Partition {
    /// Per cell, the distance of its center from the mean of its rows, in the order of [`Partition::ids`]. For the
    /// cosine metric, the part of it across the center. Rows of the fit count as if their mean had been the center.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let mut partition = shoal::partition::Partition::from_model(&model)?;
    /// let change = partition.insert(&[[5.0f64]])?;
    /// let at = partition.ids().iter().position(|&id| id == change.labels[0]).unwrap();
    /// assert_eq!((partition.drift()[at], partition.drift()[1 - at]), (0.5, 0.0));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn drift(&self) -> Vec<f64> {
        either!(&self.cells, cells => {
            let sizes = cells.sizes.iter().map(|&size| size.max(1) as f64);
            (0..cells.ids.len()).zip(sizes).map(|(j, size)| cells.sq_shift(j).sqrt() / size).collect()
        })
    }

    /// The squared distances of all rows to the centers of their cells. NaN if the model had no inertia.
    ///
    /// ```
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let mut partition = shoal::partition::Partition::from_model(&model)?;
    /// partition.insert(&[[5.0f64]])?;
    /// assert_eq!(partition.inertia(), 1.0);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn inertia(&self) -> f64 {
        either!(&self.cells, cells => cells.inertia)
    }

    /// The inertia per row, as a multiple of that at the fit. Above about 1.1, a new fit pays. NaN if the model had no
    /// inertia.
    ///
    /// ```
    /// let rows: Vec<[f64; 1]> = (0..8).map(|i| [f64::from(i)]).collect();
    /// let model = shoal::KMeans::params(2).fit(&rows)?;
    /// let mut partition = shoal::partition::Partition::from_model(&model)?;
    /// assert_eq!(partition.inertia_growth(), 1.0);
    /// partition.insert(&[[20.0f64]])?;
    /// assert!(partition.inertia_growth() > 1.1);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn inertia_growth(&self) -> f64 {
        either!(&self.cells, cells => {
            let rows: u64 = cells.sizes.iter().sum();
            let now = cells.inertia / rows.max(1) as f64;
            if now == cells.inertia_at_fit { 1.0 } else { now / cells.inertia_at_fit }
        })
    }
}

impl<T: Compute> Cells<T> {
    /// The squared length of the shift of a cell.
    fn sq_shift(&self, j: usize) -> f64 {
        sq_shift(self.metric, self.center(j), &self.shifts[j * self.dim..][..self.dim])
    }
}

/// The squared length of a shift; without its part along the center, for the cosine metric.
pub(super) fn sq_shift<T: Compute>(metric: Metric, center: &[T], shift: &[f64]) -> f64 {
    let along = match metric {
        Metric::Euclidean => 0.0,
        Metric::Cosine => center.iter().zip(shift).map(|(c, s)| c.to_f64() * s).sum(),
    };
    center.iter().zip(shift).map(|(c, s)| (s - along * c.to_f64()).powi(2)).sum()
}
