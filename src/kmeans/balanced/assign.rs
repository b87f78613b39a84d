//! Rows and clusters with limits, for fixed centers: labels that keep the limits, prices, and a lower bound.

use super::ascent::ascend;
use super::choices::Choices;
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

/// Centers that a row of balanced k-means may belong to in the first round: those with the smallest squared distance
/// plus price. Each further round has four times as many. Up to twice as many clusters are all candidates
/// (`balanced.py`).
pub(super) const BALANCED_CANDIDATES: usize = 8;

/// Most rounds for the same centers, and the gap at which no further round is made (`balanced.py`, identical).
pub(super) const BALANCED_ROUNDS: usize = 6;
const BALANCED_GAP: f64 = 1e-3;

/// The share of the weight in wrong clusters up to which the choices of rows with weights keep the limits; a repair
/// moves these rows (`balanced.py`, weighted).
const BALANCED_IMBALANCE: f64 = 0.002;

/// The arcs of shortest paths that are listed at first: up to this share of the mean regret, unless more than that
/// share of the rows has to move.
const BALANCED_REACH: f64 = 0.25;
const BALANCED_FAR: f64 = 0.05;

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

/// The prices with the highest bound.
struct Best {
    bound: f64,
    prices: Vec<f64>,
}

impl Best {
    fn see(&mut self, choices: &Choices) {
        if choices.bound > self.bound {
            self.bound = choices.bound;
            self.prices.clone_from(&choices.prices);
        }
    }
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
    let mut best = Best { bound: f64::NEG_INFINITY, prices: prices.to_vec() };
    // Where the search continues.
    let mut prices = prices.to_vec();
    let (mut labels, mut lowest) = (Vec::new(), f64::INFINITY);
    for round in 1..=BALANCED_ROUNDS {
        // The candidates follow from the prices of the last round. With every round, the prices tell better
        // which centers are in demand.
        let lists = CandidateLists::new(centers, &prices, candidates(width, k, n, memory), data, cx)?;
        let choices = Choices::new(&lists, prices, limits, cx)?;
        // All centers were compared for these prices, so their bound is exact.
        best.see(&choices);
        if is_close(lowest, best.bound) {
            prices = choices.prices;
            break;
        }
        let choices = ascend(&lists, choices, limits, |choices| best.see(choices), cx)?;
        let (settled, found_prices, found) = if let Some(in_rows) = limits.in_rows {
            let transported = transported(&lists, &choices, in_rows, limits, cx)?;
            best.see(&Choices::new(&lists, transported.1.clone(), limits, cx)?);
            transported
        } else {
            let balanced = choices.imbalance(limits) <= BALANCED_IMBALANCE;
            let firsts = choices.rows.iter().map(|choice| choice.first).collect();
            (balanced, choices.prices, firsts)
        };
        let energy = if settled { lists.energy(&found, limits) } else { f64::INFINITY };
        if labels.is_empty() || energy <= lowest {
            (labels, lowest) = (found, energy);
        }
        // Prices are meaningless for clusters that their candidates cannot fill.
        prices = if settled { found_prices } else { best.prices.clone() };
        // A repair completes the labels of rows with weights.
        let usable = lowest.is_finite() || limits.in_rows.is_none();
        if is_close(lowest, best.bound) || usable && round >= rounds {
            break;
        }
        width *= 4;
    }
    let packed = PackedCenters::on(centers, data.most_values().is_some(), cx);
    repair(&mut labels, limits, &packed, data, cx)?;
    let sums = sum_labeled(LabelsRef::from(&labels[..]), &packed, data, cx)?;
    // Without prices, 0 is a bound.
    let best = if best.bound > 0.0 { best } else { Best { bound: 0.0, prices: vec![0.0; k] } };
    // Rounding, and limits that weights exceed, must not lift the bound above the energy that was reached.
    let bound = best.bound.min(sums.energy());
    Ok(Assigned { labels, sums, prices: best.prices, settled: prices, bound })
}

/// Whether all limits are kept, the prices and the labels.
type Transported = (bool, Vec<f64>, Vec<u32>);

/// Assigns all rows to candidates at the least total cost, from their choices on. Returns whether all limits are kept,
/// with the prices and the labels.
fn transported(
    lists: &CandidateLists,
    choices: &Choices,
    in_rows: (i64, i64),
    limits: &SizeLimits,
    cx: &Executor,
) -> Result<Transported> {
    // Near the best prices only rows near a border move.
    let near = if choices.imbalance(limits) <= BALANCED_FAR {
        let regrets = choices.rows.iter().map(|choice| choice.regret).filter(|regret| regret.is_finite());
        BALANCED_REACH * regrets.sum::<f64>() / choices.rows.len() as f64
    } else {
        f64::INFINITY
    };
    let from = |reach: f64| -> Result<Option<Transported>> {
        let mut transport = Transport::new(lists, choices, in_rows, &limits.weights, reach);
        let settled = transport.settle(cx)?;
        Ok(settled.map(|settled| {
            let (prices, labels) = transport.into_prices_and_labels();
            (settled, prices, labels)
        }))
    };
    match from(near)? {
        Some(found) => Ok(found),
        None => Ok(from(f64::INFINITY)?.expect("no arc is left out")),
    }
}
