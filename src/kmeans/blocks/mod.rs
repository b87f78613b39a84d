//! Exact sweeps by blocks of rows, for few columns: the filtering algorithm (Kanungo et al., "An efficient
//! k-means clustering algorithm: analysis and implementation", 2002; Pelleg and Moore, "Accelerating exact
//! k-means algorithms with geometric reasoning", 1999).
//!
//! A tree of boxes is built once per fit (`tree`). A sweep takes the centers down the tree and drops those that
//! cannot be nearest to any row of a box (`visit`). Where one center is left, all rows of the box have its label,
//! and nothing is done if they had it before. The rows of a leaf with several centers are compared with these
//! centers only.
//!
//! Labels are those of a plain sweep: a center is dropped only if it is farther than another center from every row
//! of the box, by more than the rounding of tile values (`kernel::blocks`), and the arbiter decides where tile values
//! leave a doubt. The rows whose label changed are then summed as in a plain sweep, in row order, so sums
//! are bit-identical too.

mod carried;
mod shared;
mod splits;
#[cfg(test)]
mod tests;
mod tree;
mod visit;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::centers::{LabelsRef, NO_LABEL};
use crate::error::Result;
use crate::kernel::blocks::{Candidates, apart};
use crate::kernel::{Compute, PackedCenters};
use crate::parallel::Executor;
pub(super) use shared::Shared;
use tree::{Branch, Tree};
use visit::{MovedCenters, State, Visit};

/// Rows of the words of [`Blocks::marks`].
const WORD: usize = 64;

/// Items of work per thread, so that threads end at about the same time.
const ITEMS: usize = 8;

/// A tree of blocks of rows, and the labels of its rows.
#[derive(Debug)]
pub(super) struct Blocks<T> {
    tree: Arc<Tree<T>>,
    /// The labels of each branch, in its order.
    states: Vec<State<T>>,
    /// The labels in row order.
    latest: Vec<AtomicU32>,
    /// One bit per row whose label changed in the last search.
    marks: Vec<AtomicU64>,
    /// The labels are those of the rows.
    known: bool,
    /// The centers and the shift of the last search.
    last: Option<(Vec<T>, Vec<T>)>,
}

/// The work of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkCount {
    /// Distances between rows and centers.
    pub(super) distances: u64,
    /// Pairs of a box and a center.
    pub(super) tests: u64,
}

impl WorkCount {
    /// The work in units of distances.
    pub(super) fn total(self) -> u64 {
        self.distances + self.tests
    }
}

impl<T> Blocks<T> {
    /// The blocks of a tree, without labels.
    fn of(tree: Arc<Tree<T>>) -> Self {
        let states = tree.branches.iter().map(|_| State::new()).collect();
        let n = tree.rows;
        Self {
            tree,
            states,
            latest: (0..n).map(|_| AtomicU32::new(NO_LABEL)).collect(),
            marks: (0..n.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect(),
            known: false,
            last: None,
        }
    }
}

impl<T: Compute> Blocks<T> {
    /// Upper limit of the bytes of the tree, the labels, and the centers of the last search.
    pub(super) fn bytes(&self, (k, dim): (usize, usize)) -> usize {
        tree::bytes::<T>(self.tree.rows, dim) + k * dim * size_of::<T>()
    }

    /// Notes that labels may have changed elsewhere.
    pub(super) fn forget(&mut self) {
        self.known = false;
    }

    /// Finds the label of every row, given the labels before. [`Blocks::confirm`] must follow once they are
    /// those of the rows. [`Blocks::changes`] serves only if changes are `noted`.
    pub(super) fn find(
        &mut self,
        labels: LabelsRef<'_>,
        noted: bool,
        packed: &PackedCenters<T>,
        cx: &Executor,
    ) -> Result<WorkCount> {
        if !self.known {
            self.take(labels);
        }
        self.known = false;
        let packed = PackedCenters::for_listed(packed.centers());
        let last = self.last.take();
        let all = Candidates::all(&packed, last.as_ref().map(|(centers, _)| &centers[..]));
        let (shift, scale) = packed.frame();
        let shift_move = last.map_or(T::INFINITY, |(_, last)| apart(shift, &last, scale));
        self.last = Some((packed.centers().iter().flatten().copied().collect(), shift.to_vec()));
        let centers = MovedCenters { packed: &packed, all: &all, shift_move };
        let each = self.states.len().div_ceil(ITEMS * cx.threads()).max(1);
        let items = self.tree.branches.chunks(each).zip(self.states.chunks_mut(each));
        let (latest, marks) = (&self.latest[..], &self.marks[..]);
        let mut total = WorkCount::default();
        cx.ordered_reduce(
            items,
            &mut total,
            WorkCount::default,
            Visit::default,
            |(branches, states), work, visit| {
                for (branch, state) in branches.iter().zip(states) {
                    cx.check()?;
                    let changed = |row: u32, label: u32| {
                        let row = row as usize;
                        latest[row].store(label, Relaxed);
                        if noted {
                            marks[row / WORD].fetch_or(1 << (row % WORD), Relaxed);
                        }
                    };
                    visit.branch(branch, state, &centers, changed, work);
                }
                Ok(())
            },
            |total, part| {
                total.distances += std::mem::take(&mut part.distances);
                total.tests += std::mem::take(&mut part.tests);
            },
        )?;
        Ok(total)
    }

    /// The work of a first sweep per row of the branch with most rows.
    pub(super) fn probe(&self, labels: LabelsRef<'_>, packed: &PackedCenters<T>) -> f64 {
        let packed = PackedCenters::for_listed(packed.centers());
        let centers =
            MovedCenters { packed: &packed, all: &Candidates::all(&packed, None), shift_move: T::INFINITY };
        let of_branch = |branch: &Branch<T>| branch.leaves.iter().map(|leaf| leaf.rows).sum::<usize>();
        let Some(branch) = self.tree.branches.iter().max_by_key(|branch| of_branch(branch)) else {
            return 0.0;
        };
        let (mut state, mut work) = (State::new(), WorkCount::default());
        state.take(branch, labels);
        Visit::default().branch(branch, &mut state, &centers, |_, _| (), &mut work);
        work.total() as f64 / of_branch(branch).max(1) as f64
    }

    /// Notes that the labels found last are now those of the rows.
    pub(super) fn confirm(&mut self) {
        self.marks.iter_mut().for_each(|word| *word.get_mut() = 0);
        self.known = true;
    }

    /// The labels found last, of consecutive rows.
    pub(super) fn latest(&self, rows: Range<usize>, to: &mut Vec<u32>) {
        to.clear();
        to.extend(self.latest[rows].iter().map(|label| label.load(Relaxed)));
    }

    /// The rows of a range whose label changed, counted from its start, with their labels.
    pub(super) fn changes(&self, rows: Range<usize>, to: &mut Vec<(u32, u32)>) {
        to.clear();
        for word in rows.start / WORD..rows.end.div_ceil(WORD) {
            let mut bits = self.marks[word].load(Relaxed);
            while bits != 0 {
                let row = word * WORD + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if rows.contains(&row) {
                    to.push(((row - rows.start) as u32, self.latest[row].load(Relaxed)));
                }
            }
        }
    }

    /// Takes over the labels of the rows.
    fn take(&mut self, labels: LabelsRef<'_>) {
        for (to, label) in self.latest.iter_mut().zip(labels.iter()) {
            *to.get_mut() = label;
        }
        self.marks.iter_mut().for_each(|word| *word.get_mut() = 0);
        for (branch, state) in self.tree.branches.iter().zip(&mut self.states) {
            state.take(branch, labels);
        }
        self.known = true;
    }
}

impl<T> Clone for Blocks<T> {
    /// The same tree; labels are taken over from the rows again.
    fn clone(&self) -> Self {
        Self { known: false, ..Self::of(Arc::clone(&self.tree)) }
    }
}

/// Whether rows can be searched by blocks, in at most `budget` bytes.
pub(super) fn serve<T: Compute>(n: usize, dim: usize, sparse: bool, budget: u64) -> bool {
    !sparse && tree::fits::<T>(n, dim, budget)
}
