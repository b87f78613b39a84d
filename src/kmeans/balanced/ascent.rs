//! Prices by ascent on the Lagrangian dual: near the best ones, for rows of any weights.
//!
//! The slope of the dual along a price is the excess of the cluster. A price that rises drives rows over the borders of
//! the cluster, so the weight of the rows near each border gives the second derivatives. They form the Laplacian of the
//! graph of neighboring clusters. A step of Newton's method solves this sparse system by conjugate gradients.
//!
//! Source: Kitagawa, Mérigot and Thibert, "Convergence of a Newton algorithm for semi-discrete optimal transport",
//! 2019.

use super::choices::{Choice, Choices};
use super::limits::SizeLimits;
use super::lists::CandidateLists;
use crate::error::Result;
use crate::parallel::Executor;

/// The share of the weight in wrong clusters at which the ascent of prices ends: shortest paths move what is left.
const BALANCED_SETTLED: f64 = 5e-3;

/// The same for rows with weights, which no paths move (`balanced.py`, weighted).
const BALANCED_SETTLED_WEIGHTS: f64 = 1.25e-3;

/// Most steps of the ascent; most times that a step is computed, with more prices that stop at 0 each time; and most
/// steps of conjugate gradients each time.
const BALANCED_STEPS: usize = 30;
const BALANCED_PINS: usize = 5;
const BALANCED_CONJUGATE: usize = 200;

/// Steps along the slopes with weights, and the factor from the length of a step to the next (`balanced.py`, weighted).
const BALANCED_PLAIN_STEPS: usize = 60;
const BALANCED_DECAY: f64 = 0.93;

/// The rows whose regret is at most this share of the mean of their border tell the weight near the border.
const BALANCED_BORDER: f64 = 0.2;

/// The damped steps that are tried: the whole one, then shorter ones. Only the first few if shortest paths follow.
const LENGTHS: [f64; 6] = [1.0, 0.3, 0.1, 0.03, 0.01, 0.003];
const FEW_LENGTHS: usize = 3;

/// Before shortest paths, the ascent ends after two steps in a row that leave more than this share of the imbalance.
const SLOW: f64 = 0.8;

/// Raises the dual from `begin` on until few rows have to move, or until no step raises it. `see` gets the choices at
/// all prices that were tried.
pub(super) fn ascend(
    lists: &CandidateLists,
    begin: Choices,
    limits: &SizeLimits,
    mut see: impl FnMut(&Choices),
    cx: &Executor,
) -> Result<Choices> {
    let found = newton(lists, begin, limits, &mut see, cx)?;
    // Rows without weights continue with shortest paths.
    if limits.in_rows.is_some() || is_settled(&found, limits) {
        return Ok(found);
    }
    plain(lists, found, limits, &mut see, cx)
}

/// Steps along the slopes, which become shorter, for rows with weights. The highest bound counts.
fn plain(
    lists: &CandidateLists,
    begin: Choices,
    limits: &SizeLimits,
    see: &mut impl FnMut(&Choices),
    cx: &Executor,
) -> Result<Choices> {
    let (mut regret, mut all) = (0.0, 0.0);
    for (row, choice) in begin.rows.iter().enumerate().filter(|(_, choice)| choice.regret.is_finite()) {
        regret += limits.weights.of(row) * choice.regret;
        all += limits.weights.of(row);
    }
    // Prices of this magnitude move rows.
    let mut length = if all > 0.0 { regret / all } else { 0.0 };
    let mut now = begin.prices.clone();
    let mut sizes = begin.sizes.clone();
    let mut best = begin;
    for _ in 1..BALANCED_PLAIN_STEPS {
        cx.check()?;
        for (price, size) in now.iter_mut().zip(&sizes) {
            *price = stepped(*price, *size, length, limits);
        }
        length *= BALANCED_DECAY;
        let found = Choices::new(lists, now.clone(), limits, cx)?;
        see(&found);
        sizes.clone_from(&found.sizes);
        if found.bound > best.bound {
            best = found;
        }
    }
    Ok(best)
}

/// The price of a cluster after a step.
fn stepped(price: f64, size: f64, length: f64, limits: &SizeLimits) -> f64 {
    let towards = |limit: f64| price + length * (size - limit) / limits.mean;
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

/// Whether so few rows are in wrong clusters that the ascent ends.
fn is_settled(choices: &Choices, limits: &SizeLimits) -> bool {
    let most = if limits.in_rows.is_some() { BALANCED_SETTLED } else { BALANCED_SETTLED_WEIGHTS };
    choices.imbalance(limits) <= most
}

/// Steps of Newton's method.
fn newton(
    lists: &CandidateLists,
    begin: Choices,
    limits: &SizeLimits,
    see: &mut impl FnMut(&Choices),
    cx: &Executor,
) -> Result<Choices> {
    let (mut best, mut slow) = (begin, 0);
    // Shortest paths end the search for rows without weights, and are cheaper than slow steps.
    let paths = limits.in_rows.is_some();
    let lengths = if paths { &LENGTHS[..FEW_LENGTHS] } else { &LENGTHS };
    for _ in 0..BALANCED_STEPS {
        if is_settled(&best, limits) {
            break;
        }
        let step = Borders::new(&best, limits).step(&best, limits, cx)?;
        let mut higher = None;
        for &length in lengths {
            cx.check()?;
            let found = Choices::new(lists, moved(&best.prices, &step, length, limits), limits, cx)?;
            see(&found);
            if found.dual > best.dual {
                higher = Some(found);
                break;
            }
        }
        let Some(found) = higher else { break };
        let fast = found.imbalance(limits) <= SLOW * best.imbalance(limits);
        best = found;
        slow = if fast { 0 } else { slow + 1 };
        if slow == 2 && paths {
            break;
        }
    }
    Ok(best)
}

/// Whether a change takes a price past 0. The dual has a kink there, unless both limits are equal.
fn crosses(price: f64, change: f64) -> bool {
    price * (price + change) < 0.0
}

/// The prices after a step. A price stops at 0.
fn moved(prices: &[f64], step: &[f64], length: f64, limits: &SizeLimits) -> Vec<f64> {
    let price = |(&price, &step): (&f64, &f64)| {
        let change = length * step;
        if crosses(price, change) { 0.0 } else { price + change }
    };
    let mut prices: Vec<f64> = prices.iter().zip(step).map(price).collect();
    shift(&mut prices, limits);
    prices
}

/// Adds the constant to all prices at which the dual is highest. No row chooses otherwise.
fn shift(prices: &mut [f64], limits: &SizeLimits) {
    let k = prices.len();
    // The slope if the `full` largest prices are positive, and all others negative.
    let slope =
        |full: usize| limits.mean * k as f64 - limits.most * full as f64 - limits.least * (k - full) as f64;
    let tolerance = 1e-9 * limits.mean;
    if slope(0) <= tolerance {
        return;
    }
    if let Some(full) = (1..=k).find(|&full| slope(full) < -tolerance) {
        let mut sorted = prices.to_vec();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let zero = sorted[full - 1];
        for price in prices {
            *price -= zero;
        }
    }
}

/// Neighboring clusters, with the weight per unit of price difference that crosses their border.
struct Borders {
    arcs: Vec<(u32, u32, f64)>,
    /// Per cluster: the sum over its borders.
    degrees: Vec<f64>,
}

impl Borders {
    /// The borders at the prices of these choices. The rows of least regret on both sides give the weight.
    fn new(choices: &Choices, limits: &SizeLimits) -> Self {
        let k = choices.prices.len();
        let (starts, rows) = by_first(&choices.rows, k);
        let (mut arcs, mut degrees) = (Vec::new(), vec![0.0; k]);
        // Per second candidate of the rows of a cluster: their weight and regrets, and the weight near the border.
        let mut sums = vec![(0.0, 0.0, 0.0); k];
        let mut seconds = Vec::new();
        for first in 0..k {
            let rows = &rows[starts[first]..starts[first + 1]];
            let of = |row: u32| (choices.rows[row as usize], limits.weights.of(row as usize));
            for &row in rows {
                let (choice, weight) = of(row);
                if weight == 0.0 || choice.second == choice.first {
                    continue;
                }
                let sums = &mut sums[choice.second as usize];
                if sums.0 == 0.0 {
                    seconds.push(choice.second);
                }
                sums.0 += weight;
                sums.1 += weight * choice.regret;
            }
            for &row in rows {
                let (choice, weight) = of(row);
                let sums = &mut sums[choice.second as usize];
                if choice.regret * sums.0 <= BALANCED_BORDER * sums.1 {
                    sums.2 += weight;
                }
            }
            for second in seconds.drain(..) {
                let (all, regret, near) = std::mem::take(&mut sums[second as usize]);
                let reach = regret / all;
                if reach > 0.0 {
                    // Without rows near the border: as if all were spread evenly up to twice their mean.
                    let density =
                        if near > 0.0 { near / (BALANCED_BORDER * reach) } else { all / (2.0 * reach) };
                    arcs.push((first as u32, second, density / 2.0));
                    degrees[first] += density / 2.0;
                    degrees[second as usize] += density / 2.0;
                }
            }
        }
        Self { arcs, degrees }
    }

    /// The changes of the prices that balance all sizes if the borders stay as they are. A cluster between its limits
    /// keeps the price 0.
    fn step(&self, choices: &Choices, limits: &SizeLimits, cx: &Executor) -> Result<Vec<f64>> {
        let k = self.degrees.len();
        let mut slopes: Vec<f64> = (0..k).map(|j| choices.slope(j, limits)).collect();
        let mut free: Vec<bool> =
            (0..k).map(|j| self.degrees[j] > 0.0 && (choices.prices[j] != 0.0 || slopes[j] != 0.0)).collect();
        if free.iter().all(|&free| free) {
            // Nothing holds the level of the prices: `shift` finds it.
            let mean = slopes.iter().sum::<f64>() / k as f64;
            for slope in &mut slopes {
                *slope -= mean;
            }
        }
        let mut x = vec![0.0; k];
        for _ in 0..BALANCED_PINS {
            cx.check()?;
            self.solve(&slopes, &free, &mut x);
            let mut crossed = false;
            for j in 0..k {
                if free[j] && crosses(choices.prices[j], x[j]) {
                    (free[j], x[j], crossed) = (false, -choices.prices[j], true);
                }
            }
            if !crossed {
                break;
            }
        }
        Ok(x)
    }

    /// Changes the `free` values of `x` so that they balance the slopes, by conjugate gradients. What the last solution
    /// leaves sets the precision: a fixed one ends with wider gaps (`balanced.py`, weighted).
    fn solve(&self, slopes: &[f64], free: &[bool], x: &mut [f64]) {
        let k = x.len();
        let masked = |values: Vec<f64>| -> Vec<f64> {
            values.into_iter().zip(free).map(|(value, &free)| if free { value } else { 0.0 }).collect()
        };
        let times = |x: &[f64]| {
            let mut y: Vec<f64> = x.iter().zip(&self.degrees).map(|(x, degree)| 1e-6 * degree * x).collect();
            for &(a, b, weight) in &self.arcs {
                let flow = weight * (x[a as usize] - x[b as usize]);
                y[a as usize] += flow;
                y[b as usize] -= flow;
            }
            masked(y)
        };
        let scaled = |r: &[f64]| masked(r.iter().zip(&self.degrees).map(|(r, degree)| r / degree).collect());
        let image = times(x);
        let mut rest = masked(slopes.iter().zip(image).map(|(slope, image)| slope - image).collect());
        let mut direction = scaled(&rest);
        let mut size = dot(&rest, &direction);
        let enough = 1e-6 * size;
        for _ in 0..BALANCED_CONJUGATE.min(2 * k) {
            if size <= enough {
                break;
            }
            let image = times(&direction);
            let length = size / dot(&direction, &image);
            for j in 0..k {
                x[j] += length * direction[j];
                rest[j] -= length * image[j];
            }
            let next = scaled(&rest);
            let before = std::mem::replace(&mut size, dot(&rest, &next));
            for (direction, next) in direction.iter_mut().zip(next) {
                *direction = next + size / before * *direction;
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The rows by their first choices: where those of each of `k` clusters begin, and the rows.
pub(super) fn by_first(choices: &[Choice], k: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; k + 1];
    for choice in choices {
        starts[choice.first as usize + 1] += 1;
    }
    for j in 0..k {
        starts[j + 1] += starts[j];
    }
    let (mut next, mut rows) = (starts.clone(), vec![0; choices.len()]);
    for (row, choice) in (0..).zip(choices) {
        let at = &mut next[choice.first as usize];
        rows[*at] = row;
        *at += 1;
    }
    (starts, rows)
}
