//! Rows and clusters with limits, for fixed centers: labels that keep the limits, prices, and a lower bound.

use super::ascent::ascend;
use super::limits::Limits;
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
use crate::tuning::{BALANCED_ASCENT, BALANCED_ROUNDS};

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

/// The share of the rows that would have to leave their cheapest candidates.
fn excess(lists: &Lists, prices: &[f64], limits: &Limits) -> f64 {
    let (_, sizes) = lists.demand(prices, limits);
    let above = sizes.iter().map(|size| (size - limits.most).max(0.0)).sum::<f64>();
    let below = sizes.iter().map(|size| (limits.least - size).max(0.0)).sum::<f64>();
    above.max(below) / sizes.iter().sum::<f64>()
}

/// Assigns all rows to `centers`. The search begins at `prices`.
pub(super) fn assign<T: Compute>(
    centers: MatRef<'_, T>,
    prices: &[f64],
    limits: &Limits,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Assigned> {
    let (mut prices, mut best, mut labels) = (prices.to_vec(), (f64::NEG_INFINITY, Vec::new()), Vec::new());
    for _ in 0..BALANCED_ROUNDS {
        let lists = Lists::new(centers, &prices, data, cx)?;
        if limits.in_rows.is_none() || excess(&lists, &prices, limits) > BALANCED_ASCENT {
            prices = ascend(&lists, &prices, limits, cx)?;
        }
        let settled = match limits.in_rows {
            Some(in_rows) => {
                let mut transport = Transport::new(&lists, &prices, in_rows, &limits.weights);
                let settled = transport.settle(cx)?;
                (prices, labels) = transport.into_prices_and_labels();
                settled
            }
            None => {
                labels = (0..lists.rows()).map(|row| lists.best(row, &prices).0 as u32).collect();
                true
            }
        };
        let bound = lists.demand(&prices, limits).0;
        if bound > best.0 {
            best = (bound, prices.clone());
        }
        if settled {
            break;
        }
        // The prices have risen where rows found no room: other centers are their candidates now.
    }
    let (bound, prices) = best;
    let packed = PackedCenters::for_rows(centers, data.most_values().is_some());
    repair(&mut labels, limits, &packed, data, cx)?;
    let sums = sum_labeled(LabelsRef::from(&labels[..]), &packed, data, cx)?;
    // Rounding, and limits that weights exceed, must not lift the bound above what was reached.
    let bound = bound.min(sums.energy());
    Ok(Assigned { labels, sums, prices, bound })
}
