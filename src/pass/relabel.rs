//! Compares the rows of every group with the centers of the group's list: the children of a node of the tree, or
//! the centers around a center.
//!
//! The centers of a list are packed once for the rows of a group, so the work is dense. Rows keep the order of their
//! groups, in which every thread writes a range of its own.

use super::groups::{Copies, Groups};
use super::windows::for_each_window;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::parallel::Executor;
use crate::tuning::GROUPED_ROWS;

/// What rows are compared with.
pub(crate) struct Compared<'a, T: Compute> {
    /// All centers, [with rows](PackedCenters::with_rows).
    pub(crate) all: &'a PackedCenters<T>,
    /// Writes the ascending list of a group; an empty list leaves the labels of the group unchanged.
    pub(crate) list: &'a (dyn Fn(usize, &mut Vec<u32>) + Sync),
    /// Upper limit of the length of a list.
    pub(crate) longest: usize,
    /// A lower bound on the distance from the center of a group to all centers outside its list, if there is one
    /// for all groups.
    pub(crate) reach: Option<&'a (dyn Fn(usize) -> f64 + Sync)>,
    /// Upper limit of the bytes of rows that are copied from a file larger than memory.
    pub(crate) memory: u64,
}

/// The labels of grouped rows, in the order of the groups.
#[derive(Default)]
struct Relabeled {
    labels: Vec<u32>,
    /// Empty without [`Compared::reach`].
    slacks: Vec<f32>,
    /// Computed distances.
    distances: u64,
}

/// Buffers of a worker.
struct Desk<T: Compute> {
    chosen: PackedCenters<T>,
    list: Vec<u32>,
    copies: Copies<T>,
    scratch: Scratch<T>,
    labels: Vec<u32>,
    sq_dists: Vec<f64>,
    /// The length of the longest center.
    norm: f64,
}

/// Relative rounding of distances in `f64`, with room to spare.
const ROUNDING: f64 = 1e-9;

impl<T: Compute> Compared<'_, T> {
    /// Compares the rows of all groups. Calls `found(row, label, slack)` for every row: the slack is how much nearer the
    /// nearest center of the list is than any center outside of it can be, NaN for a row that was not compared, and
    /// without [`Compared::reach`]. Returns the number of distances.
    pub(crate) fn relabel(
        &self,
        data: &dyn DataSource<T>,
        groups: &Groups,
        cx: &Executor,
        mut found: impl FnMut(u32, u32, f32),
    ) -> Result<u64> {
        let _phase = cx.phase("", groups.rows().len() as u64);
        let mut distances = 0;
        let compared = |j: usize| {
            let mut list = Vec::new();
            (self.list)(j, &mut list);
            !list.is_empty()
        };
        for_each_window(data, groups, self.memory, &compared, cx, |data, groups| {
            let now = self.relabel_grouped(data, groups, cx)?;
            distances += now.distances;
            let slacks = now.slacks.into_iter().chain(std::iter::repeat(f32::NAN));
            let each = groups.rows().iter().zip(now.labels).zip(slacks);
            each.for_each(|((&row, label), slack)| found(row, label, slack));
            Ok(())
        })?;
        Ok(distances)
    }

    /// Compares the rows of all groups.
    fn relabel_grouped(&self, data: &dyn DataSource<T>, groups: &Groups, cx: &Executor) -> Result<Relabeled> {
        let n = groups.rows().len();
        let mut found = Relabeled { labels: vec![0; n], ..Relabeled::default() };
        if self.reach.is_some() {
            found.slacks = vec![f32::NAN; n];
        }
        let labels = found.labels.chunks_mut(GROUPED_ROWS);
        let mut slacks = found.slacks.chunks_mut(GROUPED_ROWS);
        let items = labels.map(|labels| (labels, slacks.next().unwrap_or_default())).enumerate();
        let norm = self.all.largest_norm() / self.all.scale();
        let desk = || Desk {
            chosen: self.all.places(self.longest),
            list: Vec::new(),
            copies: Copies::default(),
            scratch: Scratch::default(),
            labels: Vec::new(),
            sq_dists: Vec::new(),
            norm,
        };
        let map = |(part, (labels, slacks)): (usize, (&mut [u32], &mut [f32])),
                   distances: &mut u64,
                   desk: &mut Desk<T>| {
            *distances += self.part(data, groups, part * GROUPED_ROWS, labels, slacks, desk)?;
            cx.count(labels.len() as u64);
            Ok(())
        };
        let merge = |all: &mut u64, part: &mut u64| *all += std::mem::take(part);
        cx.ordered_reduce(items, &mut found.distances, || 0, desk, map, merge)?;
        Ok(found)
    }

    /// Compares the grouped rows from place `first` on. Returns the number of distances.
    fn part(
        &self,
        data: &dyn DataSource<T>,
        groups: &Groups,
        first: usize,
        labels: &mut [u32],
        slacks: &mut [f32],
        desk: &mut Desk<T>,
    ) -> Result<u64> {
        let (mut at, mut distances) = (first, 0);
        let end = first + labels.len();
        let mut j = groups.at(first);
        while at < end {
            let next = end.min(groups.start(j) + groups.len(j));
            let range = at - first..next - first;
            let rows = &groups.rows()[at..next];
            desk.list.clear();
            if !rows.is_empty() {
                (self.list)(j, &mut desk.list);
            }
            let labels = &mut labels[range.clone()];
            if desk.list.is_empty() {
                labels.fill(j as u32);
            } else {
                distances += (rows.len() * desk.list.len()) as u64;
                let slacks = slacks.get_mut(range).unwrap_or_default();
                self.group(data, j, rows, labels, slacks, desk)?;
            }
            (at, j) = (next, j + 1);
        }
        Ok(distances)
    }

    /// Compares some rows of one group.
    fn group(
        &self,
        data: &dyn DataSource<T>,
        j: usize,
        rows: &[u32],
        labels: &mut [u32],
        slacks: &mut [f32],
        desk: &mut Desk<T>,
    ) -> Result<()> {
        let Desk { chosen, list, copies, scratch, .. } = desk;
        chosen.choose(list, self.all);
        copies.read(data, rows)?;
        let rows = copies.rows.rows();
        kernel::nearest(rows, chosen, labels, scratch);
        for label in labels.iter_mut() {
            *label = list[(*label as usize).min(list.len() - 1)];
        }
        let Some(reach) = self.reach else { return Ok(()) };
        let reach = reach(j);
        desk.sq_dists.resize(labels.len(), 0.0);
        kernel::sq_dists(rows, labels, self.all, &mut desk.sq_dists);
        // The distances to the center of the group.
        desk.labels.clear();
        desk.labels.resize(labels.len(), j as u32);
        let mut own = vec![0.0; labels.len()];
        kernel::sq_dists(rows, &desk.labels, self.all, &mut own);
        let norm = desk.norm;
        let gamma = (self.all.dim() as f64 + 16.0) * T::EPSILON;
        for ((slack, &best), own) in slacks.iter_mut().zip(&desk.sq_dists).zip(own) {
            // Other centers must be farther by more than the rounding of tile values.
            let off = 4.0 * gamma * ((norm + best.sqrt()).powi(2) + norm * norm);
            let (own, needed) = (own.sqrt(), (best + off).sqrt());
            let exact = reach - own - needed;
            let least = exact - ROUNDING * (own + needed);
            // A NaN would mark a row that was not compared.
            *slack = if least.is_nan() { f32::NEG_INFINITY } else { down(least) };
        }
        Ok(())
    }
}

/// Rounds down to `f32`.
fn down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}
