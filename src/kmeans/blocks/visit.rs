//! Narrows the candidates on the way down a branch.

use super::WorkCount;
use super::carried::Carried;
use super::tree::{Branch, NO_ROW};
use crate::centers::{LabelsRef, NO_LABEL};
use crate::float::Float;
use crate::kernel::blocks::{self, Candidates, Narrowing, Relabeled, Skin, narrow};
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;

/// Candidates are carried only if a branch has at least this many times as many rows, so that they take
/// little memory.
const FEW: usize = 4;

/// The labels of a branch.
#[derive(Clone, Debug)]
pub(super) struct State<T> {
    /// The label per position, as a number. Those of positions without a row serve only to skip them.
    labels: Vec<T>,
    /// The label of all rows of a node, or [`NO_LABEL`]. Values below a node with a label are stale.
    whole: Vec<u32>,
    /// The candidates of the last visit, if they may serve again.
    carried: Option<Carried<T>>,
}

/// A label as a number; below 0 for [`NO_LABEL`]. All numbers of centers are exact in `f32`.
fn number<T: Float>(label: u32) -> T {
    T::from_f32(if label == NO_LABEL { -1.0 } else { label as f32 })
}

impl<T> State<T> {
    /// A branch before [`State::take`].
    pub(super) fn new() -> Self {
        Self { labels: Vec::new(), whole: Vec::new(), carried: None }
    }
}

impl<T: Float> State<T> {
    /// Takes over the labels of all rows.
    pub(super) fn take(&mut self, branch: &Branch<T>, of_rows: LabelsRef<'_>) {
        let label = |&row: &u32| if row == NO_ROW { NO_LABEL } else { of_rows.get(row as usize) };
        self.labels.clear();
        self.labels.extend(branch.rows.iter().map(|row| number::<T>(label(row))));
        self.whole.clear();
        self.whole.resize(2 * branch.leaves.len() - 1, NO_LABEL);
        self.carried = None;
    }
}

/// Buffers of a worker.
#[derive(Debug, Default)]
pub(super) struct Visit<T> {
    /// The candidates on the way down.
    lists: Vec<Candidates<T>>,
    narrowing: Narrowing<T>,
    leaf: LeafBuffers<T>,
}

/// Buffers for the rows of a leaf.
#[derive(Debug, Default)]
struct LeafBuffers<T> {
    relabeled: Relabeled,
    row: Vec<T>,
}

/// A node of a branch, and the leaves below it.
#[derive(Clone, Copy)]
struct Node {
    at: usize,
    first_leaf: usize,
    leaves: usize,
}

impl Node {
    fn children(self) -> [Self; 2] {
        let leaves = self.leaves / 2;
        [
            Self { at: 2 * self.at + 1, first_leaf: self.first_leaf, leaves },
            Self { at: 2 * self.at + 2, first_leaf: self.first_leaf + leaves, leaves },
        ]
    }
}

/// The centers of a sweep.
#[derive(Clone, Copy)]
pub(super) struct MovedCenters<'a, T: Compute> {
    pub(super) packed: &'a PackedCenters<T>,
    /// All centers as candidates, with their last moves.
    pub(super) all: &'a Candidates<T>,
    /// How far the shift of the frame has moved.
    pub(super) shift_move: T,
}

/// What changes during the visit of a branch.
struct Outcome<'a, T, F> {
    state: &'a mut State<T>,
    /// Called with every row whose label changes, and the new label.
    changed: F,
    work: &'a mut WorkCount,
}

impl<T: Float, F: FnMut(u32, u32)> Outcome<'_, T, F> {
    /// Gives the row at a position its label.
    #[inline]
    fn set(&mut self, at: usize, row: u32, label: u32) {
        let number = number(label);
        if self.state.labels[at] != number {
            self.state.labels[at] = number;
            if row != NO_ROW {
                (self.changed)(row, label);
            }
        }
    }
}

/// What does not change during the visit of a branch.
struct Fixed<'a, T: Compute> {
    branch: &'a Branch<T>,
    centers: MovedCenters<'a, T>,
    skin: Skin<T>,
}

impl<T: Compute> Visit<T> {
    /// Finds the labels of a branch, and calls `changed(row, label)` for every label that changes.
    pub(super) fn branch(
        &mut self,
        branch: &Branch<T>,
        state: &mut State<T>,
        centers: &MovedCenters<'_, T>,
        changed: impl FnMut(u32, u32),
        work: &mut WorkCount,
    ) {
        if branch.rows.is_empty() {
            return;
        }
        let levels = branch.leaves.len().trailing_zeros() as usize + 1;
        if self.lists.len() < levels {
            self.lists.resize_with(levels, Candidates::default);
        }
        let mut fixed = Fixed { branch, centers: *centers, skin: Skin::default() };
        let packed = centers.packed;
        let out = &mut Outcome { state, changed, work };
        let mut at = self.narrow(&fixed, 0, 0, out.work);
        let carried = out.state.carried.take();
        if self.list(&fixed, at).ids().len() > 1 {
            if let Some(carried) = carried.filter(|c| c.holds(packed, self.list(&fixed, at))) {
                for (leaf, list) in carried.open() {
                    self.leaf.label(&fixed, (list, leaf), out);
                }
                out.state.carried = Some(carried);
                return;
            }
            let few = |list: &Candidates<T>| list.ids().len() <= branch.rows.len() / FEW;
            let skin = self.list(&fixed, at).skin(branch.radius, packed.frame().1, centers.shift_move);
            if let Some(skin) = skin.filter(|_| few(self.list(&fixed, at))) {
                fixed.skin = skin;
                at = self.narrow(&fixed, 0, 0, out.work);
                let list = self.list(&fixed, at);
                out.state.carried = few(list).then(|| Carried::of(packed, list, skin));
            }
        }
        let root = Node { at: 0, first_leaf: 0, leaves: branch.leaves.len() };
        self.settle(&fixed, (root, out.state.whole[0]), at, out);
    }

    /// The candidates of list `at - 1`, or all.
    fn list<'s>(&'s self, fixed: &Fixed<'s, T>, at: usize) -> &'s Candidates<T> {
        if at == 0 { fixed.centers.all } else { &self.lists[at - 1] }
    }

    /// Narrows the candidates of list `at - 1` to those of a node. Returns the next list, or the same if none
    /// was dropped.
    fn narrow(&mut self, fixed: &Fixed<'_, T>, node: usize, at: usize, work: &mut WorkCount) -> usize {
        let MovedCenters { packed, all, .. } = fixed.centers;
        let (lists, rest) = self.lists.split_at_mut(at);
        let from = lists.last().unwrap_or(all);
        work.tests += from.ids().len() as u64;
        let faces = fixed.branch.faces(node);
        at + usize::from(narrow(packed, faces, fixed.skin, from, &mut rest[0], &mut self.narrowing))
    }

    /// Labels the rows of a node from the candidates of list `at - 1`. `before` is the label that all of its rows
    /// have, if known.
    fn settle(
        &mut self,
        fixed: &Fixed<'_, T>,
        (node, before): (Node, u32),
        at: usize,
        out: &mut Outcome<'_, T, impl FnMut(u32, u32)>,
    ) {
        let leaves = &fixed.branch.leaves[node.first_leaf..][..node.leaves];
        let list = if at == 0 { fixed.centers.all } else { &self.lists[at - 1] };
        if let &[label] = list.ids() {
            if before != label {
                for leaf in leaves {
                    for at in leaf.start..leaf.start + leaf.rows {
                        out.set(at, fixed.branch.rows[at], label);
                    }
                }
            }
            out.state.whole[node.at] = label;
            return;
        }
        out.state.whole[node.at] = NO_LABEL;
        if node.leaves == 1 {
            let most = fixed.branch.rows.len();
            out.state.carried.take_if(|carried| !carried.push(node.first_leaf, list.ids(), most));
            self.leaf.label(fixed, (list.ids(), node.first_leaf), out);
            return;
        }
        for child in node.children() {
            let (first, last) = (child.first_leaf, child.first_leaf + child.leaves - 1);
            if fixed.branch.leaves[first].start < fixed.branch.leaves[last].end {
                let before = if before == NO_LABEL { out.state.whole[child.at] } else { before };
                let at = self.narrow(fixed, child.at, at, out.work);
                self.settle(fixed, (child, before), at, out);
            }
        }
    }
}

impl<T: Compute> LeafBuffers<T> {
    /// Compares the rows of a leaf with the candidates.
    fn label(
        &mut self,
        fixed: &Fixed<'_, T>,
        (list, at): (&[u32], usize),
        out: &mut Outcome<'_, T, impl FnMut(u32, u32)>,
    ) {
        let Fixed { branch, centers: MovedCenters { packed, .. }, .. } = *fixed;
        let leaf = branch.leaves[at];
        out.work.distances += (list.len() * leaf.rows) as u64;
        let (columns, labels) = (branch.columns(leaf), &out.state.labels[leaf.start..leaf.end]);
        blocks::relabel(packed, blocks::Leaf { columns, labels }, list, &mut self.relabeled);
        for &(r, label) in &self.relabeled.changed {
            let at = leaf.start + r as usize;
            out.set(at, branch.rows[at], label);
        }
        for r in self.relabeled.in_doubt.iter().map(|&r| r as usize).filter(|&r| r < leaf.rows) {
            self.row.clear();
            self.row.extend(columns.iter().skip(r).step_by(leaf.end - leaf.start));
            let label = packed.nearest_of(MatRef::new(&self.row, self.row.len()).into(), 0, list);
            out.set(leaf.start + r, branch.rows[leaf.start + r], label);
        }
    }
}
