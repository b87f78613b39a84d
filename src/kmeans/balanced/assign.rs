//! Rows and clusters with limits, for fixed centers: labels that keep the limits, prices, and a lower bound.

use super::ascent::ascend;
use super::limits::SizeLimits;
use super::lists::{CANDIDATE_BYTES, CandidateLists};
use super::repair::repair;
use super::transport::Transport;
use crate::centers::{LabelsRef, sum_labeled};
use crate::data::{DataSource, count_rows};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::ClusterSums;
use crate::tuning::{BALANCED_ASCENT, BALANCED_CANDIDATES, BALANCED_GAP, BALANCED_ROUNDS};

/// Labels that keep the limits.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) labels: Vec<u32>,
    /// Sums of the rows by their labels, with squared errors about the centers.
    pub(super) sums: ClusterSums,
    /// The price per cluster. Added to squared distances, the prices prove the bound.
    pub(super) prices: Vec<f64>,
    /// Prices from which a search for nearby centers begins. With them, every row chooses its label among its
    /// candidates, if such prices exist.
    pub(super) settled: Vec<f64>,
    /// A lower bound of the energy of all labels that keep the limits.
    pub(super) bound: f64,
}

/// The share of the rows that have to move if every row takes its cheapest candidate: the rows above a cluster's upper
/// limit, and the rows that a cluster misses to its lower limit.
fn imbalance(lists: &CandidateLists, prices: &[f64], limits: &SizeLimits) -> f64 {
    let (_, sizes) = lists.demand(prices, limits);
    let of_cluster = |(&size, &price): (&f64, &f64)| match price {
        price if price > 0.0 => (size - limits.most).abs(),
        price if price < 0.0 => (size - limits.least).abs(),
        _ => (size - limits.most).max(limits.least - size).max(0.0),
    };
    sizes.iter().zip(prices).map(of_cluster).sum::<f64>() / sizes.iter().sum::<f64>()
}

/// Whether an energy is so close to its lower bound that no further search is made.
pub(super) fn is_close(energy: f64, bound: f64) -> bool {
    energy.is_finite() && energy - bound <= BALANCED_GAP * energy
}

/// Candidates per row: `wanted`, or as many as fit into `memory` bytes, but at least two.
fn candidates(wanted: usize, k: usize, n: u64, memory: u64) -> usize {
    let fit = memory / (n * CANDIDATE_BYTES as u64).max(1);
    wanted.min(fit.try_into().unwrap_or(usize::MAX)).max(2).min(k)
}

/// Assigns all rows to `centers`. The search begins at `prices`, with candidates of up to `memory` bytes, and makes at
/// most `rounds` rounds once it has found labels.
pub(super) fn assign<T: Compute>(
    centers: MatRef<'_, T>,
    prices: &[f64],
    limits: &SizeLimits,
    (memory, rounds): (u64, usize),
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Assigned> {
    let (k, n) = (centers.rows(), count_rows(data)?);
    let mut width = if k <= 2 * BALANCED_CANDIDATES { k } else { BALANCED_CANDIDATES };
    // The prices with the highest bound, and the prices where the search continues.
    let mut best = (f64::NEG_INFINITY, prices.to_vec());
    let mut prices = prices.to_vec();
    let (mut labels, mut lowest) = (Vec::new(), f64::INFINITY);
    for round in 1..=BALANCED_ROUNDS {
        // The candidates follow from the prices of the last round. With every round, the prices tell better
        // which centers are in demand.
        let lists = CandidateLists::new(centers, &prices, candidates(width, k, n, memory), data, cx)?;
        let mut keep = |prices: &[f64]| {
            let (found, _) = lists.demand(prices, limits);
            if found > best.0 {
                best = (found, prices.to_vec());
            }
            best.0
        };
        // All centers were compared for these prices, so their bound is exact.
        if is_close(lowest, keep(&prices)) {
            break;
        }
        if limits.in_rows.is_none() || imbalance(&lists, &prices, limits) > BALANCED_ASCENT {
            prices = ascend(&lists, &prices, limits, cx)?;
            keep(&prices);
        }
        let Some(in_rows) = limits.in_rows else {
            labels = (0..lists.rows()).map(|row| lists.best(row, &prices).0 as u32).collect();
            if imbalance(&lists, &prices, limits) <= BALANCED_ASCENT || lists.width == k || round >= rounds {
                break;
            }
            width *= 4;
            continue;
        };
        let mut transport = Transport::new(&lists, &prices, in_rows, &limits.weights);
        let settled = transport.settle(cx)?;
        let (found_prices, found) = transport.into_prices_and_labels();
        let energy = if settled { lists.energy(&found, limits) } else { f64::INFINITY };
        if labels.is_empty() || energy <= lowest {
            (labels, lowest) = (found, energy);
        }
        let bound = keep(&found_prices);
        // Prices are meaningless for clusters that their candidates cannot fill.
        prices = if settled { found_prices } else { best.1.clone() };
        if is_close(lowest, bound) || lowest.is_finite() && round >= rounds {
            break;
        }
        width *= 2;
    }
    let packed = PackedCenters::for_rows(centers, data.most_values().is_some());
    repair(&mut labels, limits, &packed, data, cx)?;
    let sums = sum_labeled(LabelsRef::from(&labels[..]), &packed, data, cx)?;
    // Without prices, 0 is a bound.
    let (bound, best) = if best.0 > 0.0 { best } else { (0.0, vec![0.0; k]) };
    // Rounding, and limits that weights exceed, must not lift the bound above the energy that was reached.
    let bound = bound.min(sums.energy());
    Ok(Assigned { labels, sums, prices: best, settled: prices, bound })
}
