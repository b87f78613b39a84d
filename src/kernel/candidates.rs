//! The arguments and results of the kernels of sweeps by [blocks](super::blocks) of rows.

use super::frame::moved;
use super::pack::PackedCenters;
use super::tier::Compute;
use crate::float::Float;

/// How far a center may move until the lists of candidates of its blocks are made again, in multiples of its last
/// move.
const SKIN_MOVES: f32 = 3.0;

/// The least of that, and the most for which lists are kept at all, in radii of a leaf.
const SKIN_LEAST: f32 = 0.25;
const SKIN_MOST: f32 = 1.5;

/// Centers that are tested together: the widest vector of `f32`.
pub(in crate::kernel) const GROUP: usize = 16;

/// Centers that may be nearest to a row of a block, in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates<T> {
    pub(super) ids: Vec<u32>,
    /// Values between two columns: a multiple of [`GROUP`]. Places without a center hold any value.
    pub(super) stride: usize,
    /// The columns of the centers in the frame of the packed centers, then their lengths, rounded up, and their
    /// last moves.
    pub(super) values: Vec<T>,
}

/// How far centers may move until a list of candidates must be made again: each by a multiple of its last move,
/// or by `least` if that is more. The default is not at all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skin<T> {
    pub(super) moves: T,
    pub(super) least: T,
    /// How far the shift of the frame may move.
    pub(super) shift: T,
}

impl<T: Float> Skin<T> {
    /// The allowance of the shift.
    pub(crate) fn shift(self) -> T {
        self.shift
    }

    /// The allowance of a center.
    #[inline(always)]
    pub(super) fn of(self, moved: T) -> T {
        let allowed = self.moves * moved;
        if allowed > self.least { allowed } else { self.least }
    }
}

/// Rounding of the test, relative to squared lengths.
#[inline(always)]
pub(super) fn gamma<T: Float>(dim: usize) -> T {
    T::from_f64((2.0 * dim as f64 + 16.0) * T::EPSILON)
}

/// The distance of two points of the data in the frame of packed centers with this scale, rounded up.
pub(crate) fn apart<T: Float>(a: &[T], b: &[T], scale: T) -> T {
    let apart = a.iter().zip(b).map(|(&a, &b)| (a - b) * scale);
    let sum = apart.fold(T::ZERO, |sum, apart| sum + apart * apart);
    sum.sqrt() * (T::from_f32(1.0) + gamma(a.len()))
}

impl<T: Compute> Candidates<T> {
    /// All centers. `last` are the centers of the last sweep, if there was one.
    pub(crate) fn all(packed: &PackedCenters<T>, last: Option<&[T]>) -> Self {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let stride = k.next_multiple_of(GROUP);
        let mut values = vec![T::ZERO; (dim + 2) * stride];
        for (j, center) in packed.centers().iter().enumerate() {
            let mut sq_norm = T::ZERO;
            for (t, (&c, &s)) in center.iter().zip(&packed.shift).enumerate() {
                let c = moved(c, s, packed.scale);
                values[t * stride + j] = c;
                sq_norm = sq_norm + c * c;
            }
            values[dim * stride + j] = sq_norm.sqrt() * (T::from_f32(1.0) + gamma(dim));
            let moved = last.map_or(T::INFINITY, |last| apart(center, &last[j * dim..][..dim], packed.scale));
            values[(dim + 1) * stride + j] = moved;
        }
        Self { ids: (0..k as u32).collect(), stride, values }
    }

    /// The centers.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn moves(&self) -> &[T] {
        &self.values[self.values.len() - self.stride..][..self.ids.len()]
    }

    /// A skin for leaves of about this radius in the data, or `None` if the candidates move too far for one.
    /// The shift moved by `shift_move`.
    pub(crate) fn skin(&self, radius: T, scale: T, shift_move: T) -> Option<Skin<T>> {
        let (radius, moves) = (radius * scale, T::from_f32(SKIN_MOVES));
        let most = radius * T::from_f32(SKIN_MOST);
        let least = radius * T::from_f32(SKIN_LEAST);
        let skin = Skin { moves, least, shift: T::ZERO };
        let still = |moved: T| skin.of(moved) <= most;
        let all = self.moves().iter().all(|&moved| still(moved)) && still(shift_move);
        all.then(|| Skin { shift: skin.of(shift_move), ..skin })
    }

    /// The allowances of the centers.
    pub(crate) fn allowed(&self, skin: Skin<T>) -> Vec<T> {
        self.moves().iter().map(|&moved| skin.of(moved)).collect()
    }
}

/// Buffers of [`narrow`](super::blocks::narrow).
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrowing<T> {
    /// The box in the frame of the packed centers: lower faces, upper faces, middle.
    pub(super) faces: Vec<T>,
    /// Squared distances to the middle.
    pub(super) sq_dists: Vec<T>,
    /// Positions of the centers that stay.
    pub(super) kept: Vec<u32>,
}

/// The rows of a leaf: its values by columns, and per-row labels as numbers. The length is a multiple of
/// [`BEHIND`](super::bounded::BEHIND).
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a, T> {
    pub(crate) columns: &'a [T],
    pub(crate) labels: &'a [T],
}

/// Rows of a leaf whose label may not be that of their nearest center.
#[derive(Debug, Default)]
pub(crate) struct Relabeled {
    /// Rows with another nearest center, and this center.
    pub(crate) changed: Vec<(u32, u32)>,
    /// Rows whose nearest center only the arbiter can tell.
    pub(crate) in_doubt: Vec<u32>,
}
