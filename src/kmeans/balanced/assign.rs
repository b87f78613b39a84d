//! Rows and clusters with limits, for fixed centers: labels that keep the limits, prices, and a lower bound.

use super::ascent::ascend;
use super::limits::{Limits, Weights};
use super::lists::Lists;
use super::repair::repair;
use super::transport::Transport;
use crate::centers::{LabelsRef, sum_labeled};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::ClusterSums;

/// Labels that keep the limits.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) labels: Vec<u32>,
    /// Sums of the rows by their labels, with squared errors about the centers.
    pub(super) sums: ClusterSums,
    /// Per cluster: added to squared distances, they make every row choose its cluster, but for rows that limits of
    /// whole rows force elsewhere.
    pub(super) prices: Vec<f64>,
    /// No labels that keep the limits have less energy.
    pub(super) bound: f64,
}

/// Assigns all rows to `centers`. The search begins at `prices`.
pub(super) fn assign<T: Compute>(
    centers: MatRef<'_, T>,
    prices: &[f64],
    limits: &Limits,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Assigned> {
    let lists = Lists::new(centers, prices, data, cx)?;
    let (prices, mut labels) = match (&limits.weights, limits.in_rows) {
        (weights @ Weights::Equal(..), Some(in_rows)) => {
            let mut transport = Transport::new(&lists, prices, in_rows, weights);
            transport.settle(cx)?;
            transport.into_prices_and_labels()
        }
        _ => ascend(&lists, prices, limits, cx)?,
    };
    let bound = lists.bound(&prices, limits);
    drop(lists);
    let packed = PackedCenters::for_rows(centers, data.most_values().is_some());
    repair(&mut labels, limits, &packed, data, cx)?;
    let sums = sum_labeled(LabelsRef::from(&labels[..]), &packed, data, cx)?;
    // Rounding, and limits that weights exceed, must not lift the bound above what was reached.
    let bound = bound.min(sums.energy());
    Ok(Assigned { labels, sums, prices, bound })
}
