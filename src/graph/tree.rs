//! k-d tree search, for few columns: skips boxes that are too far away with all their rows.
//!
//! Each box is the smallest one around its rows, so equal rows form boxes of size 0. Equal rows are ordered
//! by index, and each box knows its lowest index. Among many coinciding rows the lowest indices are found
//! first, and boxes with only higher indices are skipped. Thus a row compares with few rows, however many
//! coincide.

use super::brute::frame;
use super::lists::{Neighbor, NeighborLists, offer};
use crate::data::{DataSource, count_rows, take};
use crate::error::Result;
use crate::kernel::{Compute, sq_dist};
use crate::parallel::Executor;

/// Rows per leaf of a k-d tree: fewer rows need more boxes, more rows need more distances.
const LEAF_ROWS: usize = 16;

/// Number of rows whose neighbors one worker finds at a time. They are close together in the tree.
const TILE_ROWS: usize = 512;

/// A node: places `start..end` in the order of the tree.
#[derive(Debug)]
struct Node {
    start: u32,
    end: u32,
    /// Index of the second child; 0 for a leaf. The first child follows its parent.
    second: u32,
    /// The lowest index of a row.
    lowest: u32,
}

#[derive(Debug)]
struct Tree<T> {
    dim: usize,
    nodes: Vec<Node>,
    /// The lowest and the highest value per column, node by node.
    boxes: Vec<[T; 2]>,
    /// The row indices in the order of the tree.
    ids: Vec<u32>,
    rows: Vec<T>,
    /// A lower limit of the ratio between two sums of the same squared distance in different orders.
    sure: f64,
}

impl<T: Compute> Tree<T> {
    fn new(rows: &[T], dim: usize, cx: &Executor) -> Result<Self> {
        let n = rows.len() / dim;
        let mut ids: Vec<u32> = (0..n as u32).collect();
        let (mut nodes, mut boxes) = (Vec::new(), Vec::new());
        // Parts to process, and the parent whose second child each part is.
        let mut parts = vec![(0, n, usize::MAX)];
        while let Some((start, end, parent)) = parts.pop() {
            cx.check()?;
            let at = nodes.len();
            if parent != usize::MAX {
                let parent: &mut Node = &mut nodes[parent];
                parent.second = at as u32;
            }
            let own = &mut ids[start..end];
            let lowest = own.iter().copied().min().unwrap_or_default();
            nodes.push(Node { start: start as u32, end: end as u32, second: 0, lowest });
            let row = |id: u32| &rows[id as usize * dim..][..dim];
            boxes.extend(row(own[0]).iter().map(|&x| [x, x]));
            let own_box = &mut boxes[at * dim..];
            for &id in &own[1..] {
                for ([low, high], &x) in own_box.iter_mut().zip(row(id)) {
                    *low = if x < *low { x } else { *low };
                    *high = if x > *high { x } else { *high };
                }
            }
            if own.len() <= LEAF_ROWS {
                continue;
            }
            let mut widest = (0.0, 0);
            for (column, [low, high]) in own_box.iter().enumerate() {
                let width = high.to_f64() - low.to_f64();
                if width > widest.0 {
                    widest = (width, column);
                }
            }
            let key = |id: u32| (rows[id as usize * dim + widest.1].to_f64(), id);
            let middle = own.len() / 2;
            own.select_nth_unstable_by(middle, |&a, &b| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
            });
            parts.push((start + middle, end, at));
            parts.push((start, start + middle, usize::MAX));
        }
        let mut ordered = Vec::with_capacity(rows.len());
        for &id in &ids {
            ordered.extend_from_slice(&rows[id as usize * dim..][..dim]);
        }
        let sure = 1.0 - (dim + 8) as f64 * 4.0 * f64::EPSILON;
        Ok(Self { dim, nodes, boxes, ids, rows: ordered, sure })
    }

    fn row(&self, place: usize) -> &[T] {
        &self.rows[place * self.dim..][..self.dim]
    }

    /// A lower bound on the squared distance to any row of a node, up to rounding.
    fn gap(&self, node: u32, to: &[T]) -> f64 {
        let sides = &self.boxes[node as usize * self.dim..][..self.dim];
        sides.iter().zip(to).fold(0.0, |sum, ([low, high], x)| {
            let x = x.to_f64();
            let out = (low.to_f64() - x).max(x - high.to_f64()).max(0.0);
            sum + out * out
        })
    }

    /// Fills the list of the row at a place. `open` is the stack of nodes to visit.
    fn look(&self, place: usize, list: &mut [Neighbor], open: &mut Vec<(f64, u32)>) {
        let (own, to) = (self.ids[place], self.row(place));
        open.clear();
        open.push((0.0, 0));
        let mut furthest = list[list.len() - 1];
        while let Some((gap, at)) = open.pop() {
            let node = &self.nodes[at as usize];
            let none_before = gap == 0.0 && furthest.0 == 0.0 && node.lowest > furthest.1;
            if gap * self.sure > furthest.0 || none_before {
                continue;
            }
            if node.second == 0 {
                for place in node.start as usize..node.end as usize {
                    let row = self.row(place);
                    let rough = to.iter().zip(row).fold(0.0, |sum, (a, b)| {
                        let e = a.to_f64() - b.to_f64();
                        sum + e * e
                    });
                    if rough * self.sure <= furthest.0 && self.ids[place] != own {
                        offer(list, sq_dist(to, row), self.ids[place]);
                        furthest = list[list.len() - 1];
                    }
                }
                continue;
            }
            let (one, other) = (at + 1, node.second);
            let (near, far) = ((self.gap(one, to), one), (self.gap(other, to), other));
            let key = |(gap, node): (f64, u32)| (gap, self.nodes[node as usize].lowest);
            // Visit the nearer child first. If both contain the point, the child with the lowest row index
            // comes first.
            let (near, far) = if key(far) < key(near) { (far, near) } else { (near, far) };
            open.push(far);
            open.push(near);
        }
    }
}

/// The nearest rows of all rows.
///
/// # Errors
/// Same as [`brute::neighbors`](super::brute::neighbors).
pub(super) fn neighbors<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    cx: &Executor,
) -> Result<NeighborLists> {
    let n = count_rows(data)?;
    let _phase = cx.phase("neighbors", n.saturating_mul(2));
    // Returns an error for values that are not finite.
    frame(data, None, cx)?;
    let all: Vec<u64> = (0..n).collect();
    let tree = Tree::new(&take(data, &all)?, data.dim(), cx)?;
    let mut ordered = NeighborLists::new(n, m)?;
    let tiles = ordered.places.chunks_mut(TILE_ROWS * m).enumerate();
    cx.for_each(tiles, Vec::new, |(tile, lists), open| {
        for (i, list) in lists.chunks_exact_mut(m).enumerate() {
            tree.look(tile * TILE_ROWS + i, list, open);
        }
        cx.count((lists.len() / m) as u64);
        Ok(())
    })?;
    let mut lists = NeighborLists::new(n, m)?;
    for (list, &id) in ordered.places.chunks_exact(m).zip(&tree.ids) {
        lists.places[id as usize * m..][..m].copy_from_slice(list);
    }
    Ok(lists)
}
