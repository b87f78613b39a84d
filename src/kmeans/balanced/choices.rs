//! What the rows choose at given prices, and the lower bound that follows.

use super::limits::SizeLimits;
use super::lists::CandidateLists;
use crate::error::Result;
use crate::parallel::Executor;

/// Rows of a tile whose choices are summed at a time.
const BALANCED_TILE_ROWS: usize = 4096;

/// What a row chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The cheapest candidate and the next one; equal if there is only one.
    pub(super) first: u32,
    pub(super) second: u32,
    /// How much more the second one costs.
    pub(super) regret: f64,
}

/// The choices of all rows at given prices.
#[derive(Debug)]
pub(super) struct Choices {
    pub(super) prices: Vec<f64>,
    pub(super) rows: Vec<Choice>,
    /// Per cluster: the weight of the rows that choose it.
    pub(super) sizes: Vec<f64>,
    /// The Lagrangian dual: a lower bound of the energy of all assignments to candidates that keep the limits.
    pub(super) dual: f64,
    /// A lower bound of the energy of all assignments that keep the limits.
    pub(super) bound: f64,
}

/// The sums of a tile of rows: the costs, with those of other centers than the candidates, and the sizes.
#[derive(Default)]
struct Sums {
    dual: f64,
    bound: f64,
    sizes: Vec<f64>,
}

impl Choices {
    pub(super) fn new(
        lists: &CandidateLists,
        prices: Vec<f64>,
        limits: &SizeLimits,
        cx: &Executor,
    ) -> Result<Self> {
        let k = prices.len();
        let rise = lists.rise(&prices);
        let mut rows = vec![Choice { first: 0, second: 0, regret: 0.0 }; lists.rows()];
        let empty = || Sums { sizes: vec![0.0; k], ..Sums::default() };
        let mut total = empty();
        let choose = |(tile, rows): (usize, &mut [Choice]), sums: &mut Sums, (): &mut ()| {
            for (row, choice) in (tile * BALANCED_TILE_ROWS..).zip(rows) {
                let (first, value, second, next) = lists.best(row, &prices);
                *choice = Choice { first: first as u32, second: second as u32, regret: next - value };
                let weight = limits.weights.of(row);
                sums.dual += weight * value;
                sums.bound += weight * value.min(lists.beyond(row) + rise);
                sums.sizes[first] += weight;
            }
            Ok(())
        };
        let merge = |total: &mut Sums, part: &mut Sums| {
            total.dual += part.dual;
            total.bound += part.bound;
            total.sizes.iter_mut().zip(&part.sizes).for_each(|(all, some)| *all += some);
            (part.dual, part.bound) = (0.0, 0.0);
            part.sizes.fill(0.0);
        };
        let tiles = rows.chunks_mut(BALANCED_TILE_ROWS).enumerate();
        cx.ordered_reduce(tiles, &mut total, empty, || (), choose, merge)?;
        let paid = |&price: &f64| price * if price > 0.0 { limits.most } else { limits.least };
        let paid = prices.iter().map(paid).sum::<f64>();
        let Sums { dual, bound, sizes } = total;
        Ok(Self { dual: dual - paid, bound: bound - paid, prices, rows, sizes })
    }

    /// How far the size of cluster `j` is above the limit that its price belongs to, or below it if negative: the
    /// slope of the dual along the price.
    pub(super) fn slope(&self, j: usize, limits: &SizeLimits) -> f64 {
        let size = self.sizes[j];
        match self.prices[j] {
            price if price > 0.0 => size - limits.most,
            price if price < 0.0 => size - limits.least,
            _ => size - size.clamp(limits.least, limits.most),
        }
    }

    /// The share of the rows that have to move: those above a cluster's upper limit, and those that a cluster misses to
    /// its lower limit.
    pub(super) fn imbalance(&self, limits: &SizeLimits) -> f64 {
        let k = self.prices.len();
        (0..k).map(|j| self.slope(j, limits).abs()).sum::<f64>() / self.sizes.iter().sum::<f64>()
    }
}
