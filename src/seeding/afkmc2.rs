//! This module knows AFK-MC2 and K-MC2: every new center is where a short chain of candidates ends, whose law comes close to that of
//! k-means++ without a pass over the rows for each center (Bachem, Lucic, Hassani and Krause, 2016).
//!
//! Candidates are drawn from a law `q` that does not change, of AFK-MC2 one that knows the squared distances `d1` to the first center. With
//! `r = D2 / q` (for weight 1), a chain goes from the candidate `x` to the next one, `y`, when `r(y) > u r(x)`, with `u` uniform in
//! `[0, 1)`.
//!
//! Where a chain ends depends on few of its candidates. Since `D2` is at most `d1`, `r` of AFK-MC2 is below a number known from the start, the
//! `top`: a candidate with `r(y) > u top` is accepted whatever came before. So a chain is read from its end backwards, up to such a
//! candidate, and no farther: about as many candidates are drawn and measured as the sum of `D2` is smaller than that of `d1`. The end is that of
//! the whole chain.
//!
//! Chains of many centers are begun together: their candidates meet the centers that there were then as one block, by the kernels, and those that
//! came since one by one, by difference.

use std::borrow::Cow;
use std::collections::HashSet;

use super::near::{Potential, unused};
use super::odds::Odds;
use super::{Seeds, finite_or_first_bad, known};
use crate::data::{DataSource, copy, no_weight, row_bytes, take, too_heavy, weights_of};
use crate::error::{Error, Result};
use crate::kernel::{Compute, PackedCenters, Point, Scratch, nearest, sq_dists};
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows, spread};
use crate::tuning::{SEEDING_TILE_ROWS, STRIP_ROWS, chains_together};

/// Chains that may end in a center that there is already, one after the other, before the center is drawn from all rows.
const TRIES: u64 = 16;

/// Rows that are measured together at least: a few micro tiles.
const MEASURED_ROWS: usize = 24;

/// `k` centers by chains of `chain` candidates each; `adaptive` is AFK-MC2, else K-MC2, which does not look at the rows before it draws them.
///
/// Costs about `chain k^2 / 2` distances, of AFK-MC2 at most, and a pass over all rows besides. A chain that ends in a center that there is already is drawn
/// again; where that happens over and over, the centers that are left are those of plain k-means++.
///
/// # Errors
/// When `chain` is 0, there are fewer rows than `k`, a value is not finite, or the source can be read only once.
pub fn afk_mc2<T: Compute>(
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
    let first = super::random::draw(n, weights, 1, rng);
    let key = rng.bits();
    let mut state = State {
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
    // Nothing is far from the first center: any rows will do.
    let all_alike = state.proposal.mean <= 0.0;
    while !all_alike && state.rows.len() < k {
        if !state.next_centers(k)? {
            break;
        }
    }
    let State { rows, centers, n_distances, .. } = state;
    if rows.len() == k {
        return Ok(Seeds { centers, rows, method: method.into(), n_distances });
    }
    // Next to all rows lie where a center is.
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

/// The law that candidates are drawn from.
struct Proposal<'a> {
    n: u64,
    weights: Option<&'a [f64]>,
    /// Weight of all rows.
    all: f64,
    /// What the odds of each row are proportional to; `None`: all rows are alike. An alias table would draw faster, but it takes 12 bytes a row besides
    /// these 8, and few candidates are ever drawn.
    odds: Option<(Cow<'a, [f64]>, Odds)>,
    /// The weighted mean of `d1`, which `r` cannot exceed; infinite where nothing is known of `d1`.
    mean: f64,
}

impl<'a> Proposal<'a> {
    /// Half by the weight and half by weight times squared distance to `center`.
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
            return Err(too_heavy());
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
                // For now the share that the row has in the mean.
                *far = chunk.weights.map_or(1.0, |w| w[i]) / all * sq_dist;
                sum += *far;
            }
            *part += sum;
            Ok(())
        };
        let merge = |total: &mut f64, part: &mut f64| *total += std::mem::take(part);
        sweep(data, cx, SEEDING_TILE_ROWS, &mut odds[..], &mut mean, (|| 0.0, || ()), absorb, merge)?;
        if !mean.is_finite() {
            return Err(too_heavy());
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

    /// What `D2` of a row is multiplied by to be `r`: its share of all weight over its odds.
    fn lift(&self, row: u64) -> f64 {
        match &self.odds {
            Some((odds, _)) if self.mean.is_finite() => {
                self.weights.map_or(1.0, |w| w[row as usize]) / self.all / odds[row as usize]
            }
            _ => 1.0,
        }
    }
}

/// A chain, read from its end: its candidates are drawn one after the other, the last one first.
struct Walk {
    rng: Rng,
    rows: Vec<u64>,
    /// By how much each may be worse than the one before it, to be accepted all the same.
    steps: Vec<f64>,
    lifts: Vec<f64>,
    /// `D2` of each, and where the copy of the row is.
    near: Vec<f64>,
    places: Vec<usize>,
}

impl Walk {
    /// The chain for center number `slot`, drawn for the time `again`.
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

    /// Draws more candidates, as long as there are fewer than `chain`.
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

    /// The candidate that the chain ends with; `None` while that depends on candidates that were not drawn.
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

/// Seeding on its way.
struct State<'a, T: Compute> {
    data: &'a dyn DataSource<T>,
    cx: &'a Executor,
    chain: usize,
    /// Of the streams that chains are drawn from.
    key: u64,
    proposal: Proposal<'a>,
    /// The rows that are centers so far.
    rows: Vec<u64>,
    used: HashSet<u64>,
    centers: Vec<T>,
    n_distances: u64,
}

/// What the chains of a block share: the centers that there were at its begin, and copies of the candidates.
struct Block<T: Compute> {
    packed: PackedCenters<T>,
    points: RowBuf<T>,
}

impl<T: Compute> State<'_, T> {
    /// The centers of some chains that are begun together; false when a chain found none.
    fn next_centers(&mut self, k: usize) -> Result<bool> {
        let (first, dim) = (self.rows.len(), self.data.dim());
        let together = chains_together(first, self.chain, row_bytes(self.data)).min(k - first);
        let sparse = self.data.most_values().is_some();
        let packed = PackedCenters::for_rows(MatRef::new(&self.centers, dim), sparse);
        let mut block = Block { packed, points: RowBuf::new(dim) };
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
            // Candidates of later chains meet it now.
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

    /// Makes a row a center, of which there is a copy.
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
    fn lengthen(&mut self, walks: &mut [&mut Walk], block: &mut Block<T>) -> Result<()> {
        let mut drawn: Vec<(u64, usize)> = Vec::new();
        for (w, walk) in walks.iter_mut().enumerate() {
            walk.lengthen(&self.proposal, self.chain);
            drawn.extend(walk.rows[walk.near.len()..].iter().map(|&row| (row, w)));
        }
        // Read forwards.
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
        // Every row for itself: how they are cut does not matter.
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
        Err(Error::Source("X holds values so large that squared distances overflow: scale the data".into()))
    }
}
