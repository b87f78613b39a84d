//! Kernel calls of sweeps by blocks of rows: which centers can be nearest to a row within a box.
//!
//! **The test.** In the frame of the packed centers, let `x` be any row of a box, `z` and `b` two centers. Then
//! `F(x) = |x - z|^2 - |x - b|^2` is linear in `x`, so its minimum over the box is a sum over columns, with one
//! of the two faces in each: `F >= sum_t min((z_t - b_t)(z_t + b_t - 2 lo_t), (z_t - b_t)(z_t + b_t - 2 hi_t))`.
//! If the minimum exceeds the rounding of tile values, `b` has a smaller tile value than `z` for every row of the
//! box, and `z` is dropped. `b` is the center nearest to the middle of the box.
//!
//! **Skin.** If the test must hold while `z` and `b` move by up to `a_z` and `a_b`, the minimum must also exceed
//! `2 a_z P + 2 a_b Q + a_b^2`. `P` and `Q` are the largest distances of a row of the box from `z` and `b`, at most
//! the distance from the middle of the box plus the distance from there to a corner. For `|x - z|` shrinks by at
//! most `a_z`, so its square by at most `2 a_z P`, and `(|x - b| + a_b)^2 <= |x - b|^2 + 2 a_b Q + a_b^2`. The
//! shift may move too: it moves rows and centers alike, and only changes their lengths.
//!
//! **Rounding.** Subtracting the shift and multiplying by the scale are monotone, so the box of the moved faces
//! contains all moved rows. Let `u = EPSILON / 2`, and `A_j = |c_j| + |x|` for the longest row of the box, both
//! with their allowances.
//!
//! - A tile value is a chain of `d + 1` roundings of partial sums that never exceed `|c_j|^2 + 2 |x| |c_j| <=
//!   A_j^2`. The squared length has up to `d + 1` roundings of its own (for `f32` values it is summed in `f64`,
//!   and has one). The error is at most `(2 d + 2) u A_j^2`.
//! - The computed minimum of `F` has at most `d + 4` roundings of terms that add up to at most
//!   `(A_z + A_b)^2 <= 2 (A_z^2 + A_b^2)`.
//! - In a later frame, row and center are rounded again, which moves each by at most `2 u` of its length. This
//!   adds `2 u A_j` to an allowance, and at most `8 u (A_z^2 + A_b^2)` to the skin.
//!
//! Hence `(4 d + 18) u (A_z^2 + A_b^2)` is a sufficient margin. The test takes `(4 d + 32) u`, and the rest covers
//! the roundings of the margin itself. Lengths and the skin are sums of squares, whose relative error is smaller
//! than this factor; they are increased by it. A value that is not a number keeps its center.
//!
//! **Rows of a leaf** are compared by sums of squared differences of the rows and centers as they are. A difference has
//! one rounding, and its square counts it twice. With up to `d + 1` roundings of products and sums, a sum is wrong by
//! at most `(d + 3) u` of its value, and the arbiter by at most `(d + 12) u`. So `(4 d + 64) u` of the smaller one is a
//! sufficient margin, if no digits are lost to underflow. Underflow loses far less than `vanishing`, which is added.
//! Overflow gives infinity, which is not smaller than anything and leaves the decision to the arbiter.

pub(crate) use super::candidates::{Candidates, Leaf, Narrowing, Relabeled, Skin, apart};
use super::doubt::{Doubt, vanishing};
use super::operations;
use super::pack::PackedCenters;
use super::tier::Compute;
use crate::float::Float;

/// Copies to `to` the candidates that may be nearest to a row of the box with these lower and upper faces. If
/// none can be dropped, returns `false` and copies nothing.
pub(crate) fn narrow<T: Compute>(
    packed: &PackedCenters<T>,
    faces: &[T],
    skin: Skin<T>,
    from: &Candidates<T>,
    to: &mut Candidates<T>,
    work: &mut Narrowing<T>,
) -> bool {
    assert_eq!(faces.len(), 2 * packed.dim(), "two faces per column");
    operations::narrow(packed.tier, packed.frame(), faces, skin, from, to, work)
}

/// Compares the rows of a leaf with the centers in `list`. Writes those whose label may be another one to `to`.
pub(crate) fn relabel<T: Compute>(
    packed: &PackedCenters<T>,
    leaf: Leaf<'_, T>,
    list: &[u32],
    to: &mut Relabeled,
) {
    to.changed.clear();
    to.in_doubt.clear();
    operations::relabel(packed.tier, leaf, packed.centers(), list, of_differences(packed.dim()), to);
}

/// By how much sums of squared differences must differ to exclude a center.
pub(super) fn of_differences<T: Float>(dim: usize) -> Doubt<T> {
    Doubt::for_all(T::from_f64((2.0 * dim as f64 + 32.0) * T::EPSILON), vanishing())
}
