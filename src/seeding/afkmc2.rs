//! AFK-MC2 and K-MC2 seeding: every new center is the end of a short Markov chain of candidates (Bachem,
//! Lucic, Hassani and Krause, 2016).
//!
//! The distribution of the ends approximates k-means++, without a pass over the rows for each center.
//!
//! Candidates are drawn from a fixed distribution `q`. For AFK-MC2, `q` depends on the squared distances `d1`
//! to the first center. With `r = D2 / q` (for weight 1), a chain moves from candidate `x` to the next
//! candidate `y` if `r(y) > u r(x)`, with `u` uniform in `[0, 1)`.
//!
//! The end of a chain depends on only a few candidates. `D2` is at most `d1`, so `r` of AFK-MC2 has an upper
//! limit `top` that is known from the start. A candidate with `r(y) > u top` is accepted regardless of the
//! earlier candidates. Therefore a chain is drawn backwards from its end, only until such a candidate. The
//! number of candidates drawn and measured shrinks by about the ratio of the sums of `D2` and `d1`. The end
//! equals the end of the full chain.
//!
//! Chains of many centers start together. Their candidates are compared with all earlier centers in one block
//! by the kernels, and with centers added since then one by one, by difference.

use std::borrow::Cow;
use std::collections::HashSet;

use super::near::{Potential, unused};
use super::odds::Odds;
use super::seeds::{Seeds, finite_or_first_bad, known};
use crate::data::{DataSource, copy, no_weight, row_bytes, take, too_far, too_heavy, weights_of};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters, Point, Scratch, nearest, sq_dists};
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows, spread};
use crate::tuning::{SEEDING_TILE_ROWS, STRIP_ROWS};

/// Chains of `chain` candidates that AFK-MC2 begins together, with `centers` centers so far. The kernels
/// compute the distances of the candidates to these centers. Distances to centers that are added meanwhile, a
/// 64th of all, are computed from differences, at an eighth of the rate.
fn chains_together(centers: usize, chain: usize, row_bytes: usize) -> usize {
    // Copies of the candidates take at most 32 MB, if those of one chain do.
    let fitting = (32 << 20) / chain.saturating_mul(row_bytes).max(1);
    (centers / 32).clamp(8, fitting.max(8))
}

/// Number of successive chains that may end in an existing center, before the center is drawn from all rows.
const TRIES: u64 = 16;

/// Smallest number of rows that are measured together: a few micro tiles.
const MEASURED_ROWS: usize = 24;

/// Chooses `k` centers by chains of `chain` candidates each. `adaptive` selects AFK-MC2; otherwise K-MC2,
/// which does not read the rows before it draws them.
///
/// Costs up to about `chain k^2 / 2` distances, and for AFK-MC2 one pass over all rows. A chain that ends in
/// an existing center is drawn again. After repeated failures, plain k-means++ chooses the remaining centers.
///
/// # Errors
/// If `chain` is 0, there are fewer rows than `k`, a value is not finite, or the source can be read only
/// once.
pub(super) fn afk_mc2<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    chain: usize,
    adaptive: bool,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Seeds<T>> {
    let n = known(data, k)?;
    let weights = weights_of(data)?;
    let weights = weights.as_deref();
    let method = if adaptive { "afk-mc2" } else { "k-mc2" };
    // Visits are distances: of all rows to the first center, and of all candidates to the centers before.
    let chains = |centers: usize| (chain as u64).saturating_mul((centers as u64).saturating_pow(2)) / 2;
    let _phase = cx.phase("seeding", chains(k).saturating_add(if adaptive { n } else { 0 }));
    let first = super::random::draw(n, weights, 1, rng);
    let key = rng.bits();
    let mut state = Chains {
        data,
        cx,
        chain,
        key,
        used: first.iter().copied().collect(),
        centers: take(data, &first)?,
        rows: first,
        proposal: Proposal { n, weights, all: n as f64, odds: None, mean: f64::INFINITY },
        n_distances: 0,
    };
    finite_or_first_bad(&state.centers, data, cx)?;
    if adaptive {
        state.proposal = Proposal::adapted(data, n, weights, &state.centers, cx)?;
        state.n_distances = n;
    } else if let Some(weights) = weights {
        state.proposal.odds = Some((Cow::Borrowed(weights), Odds::new(weights)));
    }
    // All rows equal the first center, so any rows will do.
    let all_alike = state.proposal.mean <= 0.0;
    while !all_alike && state.rows.len() < k {
        let before = state.rows.len();
        if !state.next_centers(k)? {
            break;
        }
        cx.count(chains(state.rows.len()) - chains(before));
    }
    let Chains { rows, centers, n_distances, .. } = state;
    if rows.len() == k {
        return Ok(Seeds { centers, rows, method: method.into(), n_distances });
    }
    // Nearly all rows coincide with a center.
    let mut all = Potential::new(data, n)?;
    if all_alike {
        let others = unused(&rows, n, k, rng);
        all.take_in(data, &rows)?;
        all.take_in(data, &others)?;
    } else {
        all.take_in(data, &rows)?;
        all.admit_from(0, data, cx)?;
        all.grow(data, k, 1, weights, rng, cx)?;
    }
    all.n_distances += n_distances;
    Ok(all.seeds(method))
}

/// The distribution of candidates.
struct Proposal<'a> {
    n: u64,
    weights: Option<&'a [f64]>,
    /// Total weight of all rows.
    all: f64,
    /// The odds per row; `None` if all rows have equal odds. An alias table would draw faster, but takes
    /// 12 bytes per row in addition to these 8, and few candidates are drawn.
    odds: Option<(Cow<'a, [f64]>, Odds)>,
    /// The weighted mean of `d1`, which is an upper limit of `r`. Infinite if `d1` is unknown.
    mean: f64,
}

impl<'a> Proposal<'a> {
    /// Half by weight and half by weight times squared distance to `center`.
    fn adapted<T: Compute>(
        data: &dyn DataSource<T>,
        n: u64,
        weights: Option<&'a [f64]>,
        center: &[T],
        cx: &Executor,
    ) -> Result<Self> {
        let all = weights.map_or(n as f64, |weights| weights.iter().sum());
        if all <= 0.0 {
            return Err(no_weight());
        }
        if !all.is_finite() {
            return Err(too_heavy(true));
        }
        let center = Point::new(center);
        let mut odds: Vec<f64> = Vec::new();
        make_room(&mut odds, "odds of seeding", n, 1)?;
        odds.resize(n as usize, 0.0);
        let mut mean = 0.0;
        let absorb = |chunk: Chunk<'_, T>, far: &mut [f64], part: &mut f64, (): &mut ()| {
            let mut sum = 0.0;
            for (i, far) in far.iter_mut().enumerate() {
                let sq_dist = center.sq_dist(chunk.rows, i);
                if !sq_dist.is_finite() {
                    return Err(chunk.not_finite());
                }
                // First, the row's share in the mean.
                *far = chunk.weights.map_or(1.0, |w| w[i]) / all * sq_dist;
                sum += *far;
            }
            *part += sum;
            Ok(())
        };
        let merge = |total: &mut f64, part: &mut f64| *total += std::mem::take(part);
        sweep(data, cx, SEEDING_TILE_ROWS, &mut odds[..], &mut mean, (|| 0.0, || ()), absorb, merge)?;
        if !mean.is_finite() {
            return Err(too_heavy(weights.is_some()));
        }
        if mean > 0.0 {
            for (i, odds) in odds.iter_mut().enumerate() {
                *odds = weights.map_or(1.0, |w| w[i]) / all + *odds / mean;
            }
        }
        let draws = Odds::new(&odds);
        Ok(Self { n, weights, all, odds: Some((Cow::Owned(odds), draws)), mean })
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.odds {
            Some((odds, draws)) => draws.draw(odds, rng),
            None => rng.below(self.n),
        }
    }

    /// The factor from `D2` of a row to `r`: the row's share of the total weight, divided by its odds.
    fn lift(&self, row: u64) -> f64 {
        match &self.odds {
            Some((odds, _)) if self.mean.is_finite() => {
                self.weights.map_or(1.0, |w| w[row as usize]) / self.all / odds[row as usize]
            }
            _ => 1.0,
        }
    }
}

/// A chain, drawn from its end: the last candidate comes first.
struct Walk {
    rng: Rng,
    rows: Vec<u64>,
    /// The thresholds `u` of the candidates: a candidate is accepted if `r` exceeds `u` times `r` of the
    /// previous one.
    steps: Vec<f64>,
    lifts: Vec<f64>,
    /// `D2` of each candidate. `places` holds the position of its copy.
    near: Vec<f64>,
    places: Vec<usize>,
}

impl Walk {
    /// The chain for center number `slot`, drawn for the `again`-th time.
    fn new(key: u64, slot: usize, again: u64) -> Self {
        Self {
            rng: Rng::keyed(key, Purpose::Chain, (again << 40) | slot as u64),
            rows: Vec::new(),
            steps: Vec::new(),
            lifts: Vec::new(),
            near: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Draws more candidates, up to `chain`.
    fn lengthen(&mut self, proposal: &Proposal<'_>, chain: usize) {
        let more = (self.rows.len() / 2).max(2);
        let more = if proposal.mean.is_finite() { more } else { chain };
        for _ in 0..more.min(chain - self.rows.len()) {
            let row = proposal.draw(&mut self.rng);
            self.rows.push(row);
            self.lifts.push(proposal.lift(row));
            self.steps.push(self.rng.unit());
        }
    }

    /// The index of the chain's last candidate; `None` while it depends on candidates that are not drawn yet.
    fn end(&self, chain: usize, top: f64) -> Option<usize> {
        let r = |i: usize| (self.near[i] * self.lifts[i]).min(top);
        // The first candidate of the chain is the last one drawn.
        let sure = |i: usize| i + 1 == chain || r(i) > self.steps[i] * top;
        let mut at = (0..self.near.len()).find(|&i| sure(i))?;
        for next in (0..at).rev() {
            if r(at) <= 0.0 || r(next) > self.steps[next] * r(at) {
                at = next;
            }
        }
        Some(at)
    }
}

/// The state of the seeding.
struct Chains<'a, T: Compute> {
    data: &'a dyn DataSource<T>,
    cx: &'a Executor,
    chain: usize,
    /// The key of the random streams of the chains.
    key: u64,
    proposal: Proposal<'a>,
    /// The rows that are centers so far.
    rows: Vec<u64>,
    used: HashSet<u64>,
    centers: Vec<T>,
    n_distances: u64,
}

/// Shared by the chains of a block: the centers at its start, and copies of the candidates.
struct ChainBlock<T: Compute> {
    packed: PackedCenters<T>,
    points: RowBuf<T>,
}

impl<T: Compute> Chains<'_, T> {
    /// Adds the centers of several chains that start together. `false` if a chain found no new center.
    fn next_centers(&mut self, k: usize) -> Result<bool> {
        let (first, dim) = (self.rows.len(), self.data.dim());
        let together = chains_together(first, self.chain, row_bytes(self.data)).min(k - first);
        let sparse = self.data.most_values().is_some();
        let packed = PackedCenters::for_rows(MatRef::new(&self.centers, dim), sparse);
        let mut block = ChainBlock { packed, points: RowBuf::new(dim) };
        let mut walks: Vec<Walk> =
            (first..first + together).map(|slot| Walk::new(self.key, slot, 0)).collect();
        loop {
            let open = |walk: &&mut Walk| walk.end(self.chain, self.proposal.mean).is_none();
            let mut open: Vec<&mut Walk> = walks.iter_mut().filter(open).collect();
            if open.is_empty() {
                break;
            }
            self.lengthen(&mut open, &mut block)?;
        }
        for i in 0..walks.len() {
            self.cx.check()?;
            let (mut again, slot) = (0, first + i);
            let found = loop {
                let walk = &mut walks[i];
                match walk.end(self.chain, self.proposal.mean) {
                    Some(at) if walk.near[at] > 0.0 && !self.used.contains(&walk.rows[at]) => break Some(at),
                    Some(_) if again == TRIES => break None,
                    Some(_) => {
                        again += 1;
                        *walk = Walk::new(self.key, slot, again);
                    }
                    None => self.lengthen(&mut [walk], &mut block)?,
                }
            };
            let Some(at) = found else { return Ok(false) };
            self.take_in(walks[i].rows[at], block.points.rows(), walks[i].places[at]);
            // Compare the candidates of later chains with the new center.
            let center = Point::new(&self.centers[slot * dim..]);
            for walk in &mut walks[i + 1..] {
                for (near, &place) in walk.near.iter_mut().zip(&walk.places) {
                    *near = near.min(center.sq_dist(block.points.rows(), place));
                }
                self.n_distances += walk.near.len() as u64;
            }
        }
        Ok(true)
    }

    /// Makes a copied row a center.
    fn take_in(&mut self, row: u64, points: Rows<'_, T>, place: usize) {
        let first = self.centers.len();
        self.centers.resize(first + self.data.dim(), T::ZERO);
        match points {
            Rows::Dense(points) => self.centers[first..].copy_from_slice(points.row(place)),
            Rows::Sparse(points) => spread(points.row(place), &mut self.centers[first..]),
        }
        self.rows.push(row);
        self.used.insert(row);
    }

    /// Draws more candidates of some chains, and measures them.
    fn lengthen(&mut self, walks: &mut [&mut Walk], block: &mut ChainBlock<T>) -> Result<()> {
        let mut drawn: Vec<(u64, usize)> = Vec::new();
        for (w, walk) in walks.iter_mut().enumerate() {
            walk.lengthen(&self.proposal, self.chain);
            drawn.extend(walk.rows[walk.near.len()..].iter().map(|&row| (row, w)));
        }
        // Read rows in ascending order.
        let mut order: Vec<usize> = (0..drawn.len()).collect();
        order.sort_unstable_by_key(|&i| (drawn[i].0, i));
        let rows: Vec<u64> = order.iter().map(|&i| drawn[i].0).collect();
        let copied = copy(self.data, &rows)?;
        finite_or_first_bad(&copied.values, self.data, self.cx)?;
        let mut sq_dists = self.measure(copied.rows(), &block.packed)?;
        let since = block.packed.n_centers() * self.data.dim();
        for center in self.centers[since..].chunks_exact(self.data.dim()) {
            let center = Point::new(center);
            for (i, sq_dist) in sq_dists.iter_mut().enumerate() {
                *sq_dist = sq_dist.min(center.sq_dist(copied.rows(), i));
            }
        }
        self.n_distances += (rows.len() * self.rows.len()) as u64;
        let before = block.points.len();
        block.points.extend(copied.rows());
        let mut at = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &i)| at[i] = place);
        for (&(_, w), place) in drawn.iter().zip(at) {
            walks[w].near.push(sq_dists[place]);
            walks[w].places.push(before + place);
        }
        Ok(())
    }

    /// Squared distances of rows to the nearest of the packed centers.
    fn measure(&self, rows: Rows<'_, T>, packed: &PackedCenters<T>) -> Result<Vec<f64>> {
        let mut out = vec![0.0; rows.rows()];
        // Rows are independent, so the cut does not change results.
        let cut = (rows.rows() / 8).clamp(MEASURED_ROWS, STRIP_ROWS);
        let measure = |(i, out): (usize, &mut [f64]), (labels, scratch): &mut (Vec<u32>, Scratch<T>)| {
            let rows = rows.slice(i * cut, i * cut + out.len());
            labels.resize(out.len(), 0);
            nearest(rows, packed, labels, scratch);
            sq_dists(rows, labels, packed, out);
            Ok(())
        };
        self.cx.for_each(out.chunks_mut(cut).enumerate(), Default::default, measure)?;
        if out.iter().all(|sq_dist| sq_dist.is_finite()) {
            return Ok(out);
        }
        Err(too_far())
    }
}
