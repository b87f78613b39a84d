//! The E-step of an iteration: one pass in which each row finds its nearest components and is shared among
//! them.

use super::cells::{MeanCells, PROBED_CELLS};
use super::densities::Densities;
use super::nearest::{Near, Nearest};
use super::neighborhoods::{Encounters, Meetings, Neighborhoods, sort_by_key};
use super::space::{Space, draws};
use super::whole::{Seen, Whole};
use crate::data::{DataSource, row_values};
use crate::error::{Error, InvalidParam, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::{Chunk, Cut, Wide, sweep};
use crate::rows::Rows;
use crate::stats::{ProjectionSums, ShareSums};
use crate::tuning::STRIP_ROWS;

/// Rows of `n` for which one worker computes responsibilities of `k` components between two merges: an eighth
/// of all, which gives several threads work, but enough that merging the sums of all components takes little
/// of the time. At most 32,768, of which thousands of components have some rows each.
fn mixture_tile_rows(n: usize, k: usize) -> usize {
    (n / 8).max(k).next_multiple_of(1024).min(32_768)
}

/// Rows of `row_bytes` each for which a worker computes responsibilities together, if each row evaluates up
/// to `looks` components. They are processed in the order of their components, so that rows of one component
/// find its center, neighbors and sums in the cache. More rows are better, up to a limit of the bytes of
/// converted rows and a million evaluated components.
fn mixture_chunk_rows(row_bytes: usize, looks: usize) -> usize {
    ((16 << 20) / row_bytes.max(1)).min((1 << 20) / looks.max(1)).max(STRIP_ROWS)
}

/// Rows are prefetched this many rows ahead, since they are not read in memory order.
const AHEAD: usize = 3;

/// Number of rows between two checks of the interrupt flag.
const CHECKED_ROWS: usize = 1024;

/// Marks a row without components.
pub(super) const NO_COMPONENT: u32 = u32::MAX;

/// The work of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    /// Search for nearer components. `None` keeps the known components.
    pub(super) search: Option<Search<'a>>,
    /// Compute shares and sum the rows.
    pub(super) weigh: bool,
    /// Sum squares per column.
    pub(super) by_column: bool,
}

/// Where rows search for nearer components.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) neighbors: &'a Neighborhoods,
    /// Where rows without components search. `None`: among the neighbors of randomly drawn components.
    pub(super) cells: Option<&'a MeanCells>,
    /// Number of additional random components per row.
    pub(super) explore: usize,
    /// The seed of the draws, and the number of the search.
    pub(super) seed: u64,
    pub(super) number: u64,
}

/// The result of a pass.
pub(super) struct EStepSums {
    pub(super) sums: ShareSums,
    /// Empty unless components have factors.
    pub(super) projections: ProjectionSums,
    pub(super) meetings: Meetings,
    /// The lower bound of the log-likelihood (equation 20).
    pub(super) bound: f64,
    /// The weight of all rows.
    pub(super) weight: f64,
    /// The sum of the smallest squared distances. `spread` is half the sum of the mean squared distances.
    pub(super) least: f64,
    pub(super) spread: f64,
    /// Number of rows with another nearest component than before.
    pub(super) changed: u64,
    pub(super) distances: u64,
}

impl EStepSums {
    fn new(k: usize, sums: ShareSums, projections: ProjectionSums) -> Self {
        Self {
            sums,
            projections,
            meetings: Meetings::new(k),
            bound: 0.0,
            weight: 0.0,
            least: 0.0,
            spread: 0.0,
            changed: 0,
            distances: 0,
        }
    }

    fn merge(&mut self, part: &mut Self, cx: &Executor) {
        self.sums.merge(&mut part.sums);
        self.projections.merge(&mut part.projections);
        self.meetings.merge(&mut part.meetings, cx);
        for (total, part) in [
            (&mut self.bound, &mut part.bound),
            (&mut self.weight, &mut part.weight),
            (&mut self.least, &mut part.least),
            (&mut self.spread, &mut part.spread),
        ] {
            *total += std::mem::take(part);
        }
        self.changed += std::mem::take(&mut part.changed);
        self.distances += std::mem::take(&mut part.distances);
    }
}

fn too_far_apart<T: Compute>() -> Error {
    let remedy = if T::EPSILON > f64::EPSILON {
        "pass float64, scale `rows`, or drop outliers"
    } else {
        "scale `rows`, or drop outliers"
    };
    Error::Source(format!(
        "`rows` have outliers so far away that the distances between other components underflow in {}: {remedy}",
        T::NAME
    ))
}

/// The buffers of one worker.
#[derive(Debug, Default)]
struct SearchBuffers<T> {
    space: Space,
    sq_dists: Vec<T>,
    /// The distances of the members of the space from the row.
    far: Vec<T>,
    nearest: Nearest,
    met: Encounters<T>,
    order: Vec<u32>,
    counts: Vec<u32>,
    ids: Vec<u32>,
    shares: Vec<f64>,
    near_dists: Vec<f64>,
    /// The projections of the row onto the axes of the components that share it.
    onto: Vec<T>,
    seen: Seen<T>,
}

/// The E-step for components with known densities, with or without computing shares.
pub(super) struct EStep<'a, T: Compute> {
    pub(super) densities: &'a Densities<T>,
    pub(super) active: usize,
    pub(super) plan: Plan<'a>,
}

impl<T: Compute> EStep<'_, T> {
    /// Makes the pass. `near` holds the components per row, nearest first, or [`NO_COMPONENT`]. After an error,
    /// some rows keep their old components.
    pub(super) fn sweep(
        &self,
        near: &mut [u32],
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<EStepSums> {
        let (k, dim) = (self.densities.centers.len(), self.densities.centers.dim());
        if data.dim() != dim {
            return Err(Error::Shape(format!(
                "`rows` have {} columns, but the run started with {dim}",
                data.dim()
            )));
        }
        if !self.densities.centers.are_told_apart() {
            return Err(too_far_apart::<T>());
        }
        let Plan { search, weigh, by_column } = self.plan;
        let projections = || match self.densities.whole.scatters(k) {
            Some(k) => ProjectionSums::of_scatters(if weigh { k } else { 0 }, dim),
            None => ProjectionSums::new(k, dim, self.densities.centers.n_axes()),
        };
        let mut total = EStepSums::new(k, ShareSums::new(k, dim, by_column), projections());
        let tile = mixture_tile_rows(near.len() / self.active, k);
        let ranks = search.map_or_else(Vec::new, |search| search.neighbors.ranks());
        let met = search.map_or(1, |search| self.active * search.neighbors.size() + search.explore);
        let rows = mixture_chunk_rows(row_values(data).min(dim) * size_of::<T>(), met.min(k));
        let cut = Cut { tile_rows: tile, chunk_rows: Some(rows.min(tile)) };
        let part = || EStepSums::new(k, ShareSums::part(k, dim, by_column), projections());
        let make = (part, SearchBuffers::<T>::default);
        let absorb =
            |chunk: Chunk<'_, T>, near: Wide<'_, u32>, part: &mut EStepSums, work: &mut SearchBuffers<T>| {
                self.absorb(&chunk, near.values, &ranks, part, work, cx)
            };
        let state = Wide { values: near, width: self.active };
        let merge = |total: &mut EStepSums, part: &mut EStepSums| total.merge(part, cx);
        sweep(data, cx, cut, state, &mut total, make, absorb, merge)?;
        if !total.weight.is_finite() {
            let problem = InvalidParam::new("weights", "finite in sum", total.weight);
            return Err(problem.with_remedy("scale the weights").into());
        }
        if !(total.least.is_finite() && total.sums.energies().iter().all(|energy| energy.is_finite())) {
            return Err(Error::Source(
                "squared distances, times the weights of the rows, overflow: scale the `rows`".into(),
            ));
        }
        Ok(total)
    }

    /// Processes a chunk, grouped by component, in an order in which near components follow each other. Such
    /// rows read the same centers and add to the same sums.
    fn absorb(
        &self,
        chunk: &Chunk<'_, T>,
        near: &mut [u32],
        ranks: &[u32],
        part: &mut EStepSums,
        work: &mut SearchBuffers<T>,
        cx: &Executor,
    ) -> Result<()> {
        let k = self.densities.centers.len();
        let (n, mut order) = (chunk.rows.rows(), std::mem::take(&mut work.order));
        if near[0] == NO_COMPONENT || ranks.is_empty() {
            order.clear();
            order.extend(0..n as u32);
        } else {
            let firsts = near.iter().step_by(self.active).map(|&j| ranks[j as usize]);
            sort_by_key(firsts, k, &mut work.counts, &mut order);
        }
        for (at, &i) in order.iter().enumerate() {
            if at.is_multiple_of(CHECKED_ROWS) {
                cx.check()?;
            }
            if let Some(&next) = order.get(at + AHEAD) {
                self.densities.centers.prefetch(chunk.rows, next as usize);
            }
            let i = i as usize;
            let weight = chunk.weights.map_or(1.0, |w| w[i]);
            let near = &mut near[i * self.active..][..self.active];
            if let Some(search) = &self.plan.search {
                part.distances += self.search(search, chunk, i, near, work);
                let best = work.nearest.found[0];
                if !best.sq_dist.is_finite() {
                    return Err(chunk.not_finite());
                }
                part.changed += u64::from(near[0] != best.id);
                near.iter_mut().zip(&work.nearest.found).for_each(|(near, found)| *near = found.id);
                if weight > 0.0 {
                    let SearchBuffers { space, far, sq_dists, met, .. } = work;
                    let are_all = self.densities.are_alike() && search.cells.is_none();
                    let far = if are_all { sq_dists } else { far };
                    met.push(best.id, weight, &space.list, far);
                }
            } else {
                self.measure(chunk.rows, i, near, work);
            }
            part.weight += weight;
            if weight > 0.0 {
                part.least += weight * work.nearest.found[0].sq_dist;
                if self.plan.search.is_some() && !self.densities.are_known() {
                    let sum = work.sq_dists.iter().fold(0.0, |sum, d| sum + d.to_f64());
                    let unit = self.densities.centers.unit();
                    part.spread += 0.5 * weight * sum / unit / work.sq_dists.len() as f64;
                }
                if self.plan.weigh {
                    part.bound += weight * self.share(weight, work);
                    self.sum(chunk.rows, i, part, work);
                }
            }
        }
        part.meetings.note(&mut work.met);
        work.order = order;
        Ok(())
    }

    /// Finds the nearest components of a row in its search space. Returns the number of components evaluated.
    fn search(
        &self,
        search: &Search<'_>,
        chunk: &Chunk<'_, T>,
        i: usize,
        near: &[u32],
        work: &mut SearchBuffers<T>,
    ) -> u64 {
        let measured = self.choose_space(search, chunk, i, near, work);
        let SearchBuffers { space, sq_dists, far, nearest, seen, .. } = work;
        let looked = space.list.len();
        sq_dists.resize(looked, T::ZERO);
        let (list, found) = (&space.list[measured..], &mut sq_dists[measured..]);
        self.densities.sq_dists(chunk.rows, i, list, found, seen);
        // A row that searched cells reports only as many components as a later search would. Otherwise each
        // component would meet nearly all others.
        nearest.begin(if measured > 0 { self.active * search.neighbors.size() } else { self.active });
        let unit = 1.0 / self.densities.unit();
        if self.densities.are_alike() {
            for (&id, sq_dist) in space.list.iter().zip(&*sq_dists) {
                let cost = sq_dist.to_f64();
                nearest.offer(Near { cost, id, sq_dist: cost * unit });
            }
        } else {
            far.clear();
            for (&id, sq_dist) in space.list.iter().zip(&*sq_dists) {
                let sq_dist = sq_dist.to_f64();
                far.push(T::from_f64(self.densities.far(id, sq_dist)));
                nearest.offer(Near { cost: self.densities.cost(id, sq_dist), id, sq_dist: sq_dist * unit });
            }
        }
        if measured > 0 {
            // In the first search only distances are known, and they are the costs.
            space.list.clear();
            space.list.extend(nearest.found.iter().map(|near| near.id));
            far.clear();
            far.extend(nearest.found.iter().map(|near| T::from_f64(near.cost)));
            nearest.found.truncate(self.active);
        }
        looked as u64
    }

    /// Chooses the search space of a row (`S_m`): the neighbors of its known components, and some components drawn at
    /// random. Returns how many of its first members have known distances.
    fn choose_space(
        &self,
        search: &Search<'_>,
        chunk: &Chunk<'_, T>,
        i: usize,
        near: &[u32],
        work: &mut SearchBuffers<T>,
    ) -> usize {
        let k = self.densities.centers.len();
        work.space.begin(k);
        if self.active == k {
            work.space.fill();
            return 0;
        }
        let row = chunk.first_row + i as u64;
        let mut measured = 0;
        match (near[0], search.cells) {
            (NO_COMPONENT, Some(cells)) => measured = self.probe_cells(cells, chunk.rows, i, work),
            (NO_COMPONENT, None) => {
                // The first components of a row are drawn at random.
                let space = &mut work.space;
                space.explore(self.active, &mut draws(search.seed, 0, row));
                let drawn = space.list.clone();
                space.begin(k);
                for &c in &drawn {
                    space.extend(search.neighbors.of_cluster(c as usize));
                }
            }
            _ => {
                for &c in near {
                    work.space.extend(search.neighbors.of_cluster(c as usize));
                }
            }
        }
        let missing = self.active.saturating_sub(work.space.list.len());
        let drawn = search.explore.max(missing);
        if drawn > 0 {
            work.space.explore(drawn, &mut draws(search.seed, search.number, row));
        }
        measured
    }

    /// Adds the pivots, and the means around the nearest pivots, to the search space of a row. Returns the
    /// number of pivots, whose distances are then known.
    fn probe_cells(
        &self,
        cells: &MeanCells,
        rows: Rows<'_, T>,
        i: usize,
        work: &mut SearchBuffers<T>,
    ) -> usize {
        let SearchBuffers { space, sq_dists, nearest, .. } = work;
        let pivots = cells.pivots();
        space.extend_to(pivots as u32);
        sq_dists.resize(pivots, T::ZERO);
        self.densities.centers.sq_dists(rows, i, &space.list, sq_dists);
        nearest.begin(PROBED_CELLS);
        for (id, sq_dist) in (0..).zip(&*sq_dists) {
            let cost = sq_dist.to_f64();
            // Among equal pivots, one holds all their means.
            if !cells.of_pivot(id).is_empty() {
                nearest.offer(Near { cost, id, sq_dist: cost });
            }
        }
        for near in &nearest.found {
            space.extend(cells.of_pivot(near.id));
        }
        pivots
    }

    /// Computes the distances of the components near a row, in `f64`.
    fn measure(&self, rows: Rows<'_, T>, i: usize, near: &[u32], work: &mut SearchBuffers<T>) {
        let Densities { centers, .. } = self.densities;
        work.nearest.begin(near.len());
        for &id in near {
            let sq_dist = centers.sq_dist(rows, i, id as usize);
            let cost = self.densities.cost(id, sq_dist * centers.unit());
            work.nearest.offer(Near { cost, id, sq_dist });
        }
    }

    /// Adds a row with its shares to the sums.
    fn sum(&self, rows: Rows<'_, T>, i: usize, part: &mut EStepSums, work: &mut SearchBuffers<T>) {
        let SearchBuffers { ids, shares, near_dists, sq_dists, onto, .. } = work;
        let centers = &self.densities.centers;
        part.sums.add(rows, i, (ids, shares, near_dists), centers);
        if let (Rows::Dense(rows), false) = (rows, matches!(self.densities.whole, Whole::None)) {
            if let Whole::Shared(shared) = &self.densities.whole {
                let all = shares.iter().sum();
                part.projections.add_scatter(rows.row(i), &[0], &[all], &shared.from);
            } else {
                part.projections.add_scatter(rows.row(i), ids, shares, centers);
            }
            return;
        }
        if let (1.., Rows::Dense(rows)) = (centers.n_axes(), rows) {
            sq_dists.resize(ids.len(), T::ZERO);
            onto.resize(ids.len() * centers.n_axes(), T::ZERO);
            centers.project(rows.row(i), ids, sq_dists, onto);
            part.projections.add(rows.row(i), (ids, shares, onto), centers);
        }
    }

    /// Computes the shares of a row (equation 3). Returns the logarithm of the sum of the joint densities.
    fn share(&self, weight: f64, work: &mut SearchBuffers<T>) -> f64 {
        let SearchBuffers { nearest, ids, shares, near_dists, .. } = work;
        let &Densities { half, constant, .. } = self.densities;
        ids.clear();
        shares.clear();
        near_dists.clear();
        let best = nearest.found[0].cost;
        let mut sum = 0.0;
        for near in &nearest.found {
            let share = (half * (best - near.cost)).exp();
            if share > 0.0 {
                sum += share;
                ids.push(near.id);
                shares.push(share);
                near_dists.push(near.sq_dist);
            }
        }
        let factor = weight / sum;
        for share in shares.iter_mut() {
            *share *= factor;
        }
        constant - half * best + sum.ln()
    }
}
