//! Prices by ascent on the Lagrangian dual: near the best ones, for rows of any weights.
//!
//! A cluster above its upper limit becomes more expensive, one below its lower limit cheaper, each in
//! proportion to its excess or its shortfall. Prices of clusters between their limits return to 0. Steps
//! become shorter.

use super::limits::SizeLimits;
use super::lists::CandidateLists;
use crate::error::Result;
use crate::parallel::Executor;
use crate::tuning::{BALANCED_DECAY, BALANCED_STEPS};

/// Raises the lower bound of [`CandidateLists::demand`] from `prices` on, and returns the best prices.
pub(super) fn ascend(
    lists: &CandidateLists,
    prices: &[f64],
    limits: &SizeLimits,
    cx: &Executor,
) -> Result<Vec<f64>> {
    let mut now = prices.to_vec();
    let mut best = (f64::NEG_INFINITY, prices.to_vec());
    let mut step = mean_regret(lists, &now, limits);
    for _ in 0..BALANCED_STEPS {
        cx.check()?;
        let (bound, sizes) = lists.demand(&now, limits);
        if bound > best.0 {
            best = (bound, now.clone());
        }
        for (price, size) in now.iter_mut().zip(sizes) {
            *price = moved(*price, size, step, limits);
        }
        step *= BALANCED_DECAY;
    }
    Ok(best.1)
}

/// The price of a cluster after a step.
fn moved(price: f64, size: f64, step: f64, limits: &SizeLimits) -> f64 {
    let towards = |limit: f64| price + step * (size - limit) / limits.mean;
    if size > limits.most {
        towards(limits.most)
    } else if size < limits.least {
        towards(limits.least)
    } else if price > 0.0 {
        towards(limits.most).max(0.0)
    } else if price < 0.0 {
        towards(limits.least).min(0.0)
    } else {
        0.0
    }
}

/// The mean difference in cost between the second candidate of a row and the first. Prices of this magnitude
/// move rows.
fn mean_regret(lists: &CandidateLists, prices: &[f64], limits: &SizeLimits) -> f64 {
    let (mut regret, mut weight) = (0.0, 0.0);
    for row in 0..lists.rows() {
        let (_, first, second) = lists.best(row, prices);
        if second.is_finite() {
            regret += limits.weights.of(row) * (second - first);
            weight += limits.weights.of(row);
        }
    }
    if weight > 0.0 { regret / weight } else { 0.0 }
}
