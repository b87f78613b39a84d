//! Drops the centers that cannot be nearest to a row within a box. See [`crate::kernel::blocks`] for the test
//! and its margin.
#![allow(clippy::needless_range_loop, reason = "loops over several arrays become vector code")]
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number keeps its center")]

use crate::float::Float;
use crate::kernel::blocks::{Candidates, Narrowing, Skin, gamma};

/// Centers that are tested together: the widest vector of `f32`.
pub(in crate::kernel) const GROUP: usize = 16;

/// The group `g` of a column.
#[inline(always)]
fn group<T>(values: &[T], stride: usize, column: usize, g: usize) -> &[T; GROUP] {
    let at = column * stride + g * GROUP;
    values[at..at + GROUP].try_into().expect("a slice of this length")
}

#[inline(always)]
fn largest<T: Float>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// `1 + gamma`, by which lengths are rounded up.
#[inline(always)]
fn up<T: Float>(dim: usize) -> T {
    T::from_f32(1.0) + gamma(dim)
}

/// See [`crate::kernel::blocks::narrow`].
#[inline(always)]
pub(in crate::kernel) fn narrow<T: Float>(
    frame: (&[T], T),
    faces: &[T],
    skin: Skin<T>,
    from: &Candidates<T>,
    to: &mut Candidates<T>,
    work: &mut Narrowing<T>,
) -> bool {
    let lengths = place(frame, faces, skin, &mut work.faces);
    let nearest = nearest_to_middle(from, work);
    let n = find_needed(lengths, nearest, skin, from, work);
    if n == from.ids.len() {
        return false;
    }
    copy(from, &work.kept[..n], to);
    true
}

/// Lengths in a box, rounded up.
#[derive(Clone, Copy)]
struct Lengths<T> {
    /// Upper limit of the length of a row, with the allowance of the shift.
    farthest: T,
    /// From the middle to a corner.
    radius: T,
}

/// Moves a box into the frame of the packed centers: its lower faces, upper faces and middle.
#[inline(always)]
fn place<T: Float>((shift, scale): (&[T], T), faces: &[T], skin: Skin<T>, moved: &mut Vec<T>) -> Lengths<T> {
    let dim = shift.len();
    moved.resize(3 * dim, T::ZERO);
    let (low, rest) = moved.split_at_mut(dim);
    let (high, middle) = rest.split_at_mut(dim);
    let (half, up) = (T::from_f32(0.5), up::<T>(dim));
    let (mut farthest, mut radius) = (T::ZERO, T::ZERO);
    for t in 0..dim {
        low[t] = (faces[t] - shift[t]) * scale;
        high[t] = (faces[dim + t] - shift[t]) * scale;
        middle[t] = half * (low[t] + high[t]);
        let most = largest(T::ZERO - low[t], high[t]);
        farthest = farthest + most * most;
        let most = largest(middle[t] - low[t], high[t] - middle[t]);
        radius = radius + most * most;
    }
    Lengths { farthest: farthest.sqrt() * up + skin.shift, radius: radius.sqrt() * up }
}

/// The candidate nearest to the middle of the box. Leaves the squared distances of all in `work`.
#[inline(always)]
fn nearest_to_middle<T: Float>(from: &Candidates<T>, work: &mut Narrowing<T>) -> usize {
    let (stride, sq_dists) = (from.stride, &mut work.sq_dists);
    let middle = &work.faces[work.faces.len() / 3 * 2..];
    sq_dists.resize(stride, T::ZERO);
    for g in 0..stride / GROUP {
        let mut sums = [T::ZERO; GROUP];
        for t in 0..middle.len() {
            let (c, m) = (group(&from.values, stride, t, g), middle[t]);
            for l in 0..GROUP {
                let apart = c[l] - m;
                sums[l] = sums[l] + apart * apart;
            }
        }
        sq_dists[g * GROUP..][..GROUP].copy_from_slice(&sums);
    }
    let mut nearest = 0;
    let mut least = sq_dists[0];
    for (i, &sq_dist) in sq_dists[..from.ids.len()].iter().enumerate() {
        if sq_dist < least {
            (nearest, least) = (i, sq_dist);
        }
    }
    nearest
}

/// Lists the candidates that may be nearer to a row of the box than candidate `nearest`. Returns their number.
#[inline(always)]
fn find_needed<T: Float>(
    Lengths { farthest, radius }: Lengths<T>,
    nearest: usize,
    skin: Skin<T>,
    from: &Candidates<T>,
    work: &mut Narrowing<T>,
) -> usize {
    let Narrowing { faces, sq_dists, kept } = work;
    let (dim, stride, count) = (faces.len() / 3, from.stride, from.ids.len());
    let (low, high) = faces[..2 * dim].split_at(dim);
    let (two, gamma, up) = (T::from_f32(2.0), gamma::<T>(dim), up::<T>(dim));
    // The part of the margin that depends on the length and the allowance of one center.
    let reach = |length: T, allowed: T| {
        let reach = length + allowed + skin.shift + farthest;
        gamma * (reach * reach)
    };
    let allowed = skin.of(from.values[(dim + 1) * stride + nearest]);
    let fixed = reach(from.values[dim * stride + nearest], allowed)
        + (two * allowed * (sq_dists[nearest].sqrt() * up + radius) + allowed * allowed) * up;
    kept.resize(stride, 0);
    let mut n = 0;
    for g in 0..stride / GROUP {
        let mut sums = [T::ZERO; GROUP];
        for t in 0..dim {
            let b = from.values[t * stride + nearest];
            let (low, high) = (two * low[t], two * high[t]);
            let z = group(&from.values, stride, t, g);
            for l in 0..GROUP {
                let (apart, both) = (z[l] - b, z[l] + b);
                let (at_low, at_high) = (apart * (both - low), apart * (both - high));
                sums[l] = sums[l] + if at_low < at_high { at_low } else { at_high };
            }
        }
        let lengths = group(&from.values, stride, dim, g);
        let moves = group(&from.values, stride, dim + 1, g);
        let sq_dists = group(sq_dists, stride, 0, g);
        let mut needed = [T::ZERO; GROUP];
        for l in 0..GROUP {
            let allowed = skin.of(moves[l]);
            let far = two * allowed * (sq_dists[l].sqrt() * up + radius) * up;
            needed[l] = fixed + reach(lengths[l], allowed) + far;
        }
        for l in 0..GROUP.min(count - g * GROUP) {
            kept[n] = (g * GROUP + l) as u32;
            n += usize::from(!(sums[l] > needed[l]));
        }
    }
    n
}

/// Copies the candidates at the positions `kept`.
#[inline(always)]
fn copy<T: Float>(from: &Candidates<T>, kept: &[u32], to: &mut Candidates<T>) {
    let columns = from.values.len() / from.stride;
    to.ids.clear();
    to.ids.extend(kept.iter().map(|&i| from.ids[i as usize]));
    to.stride = kept.len().next_multiple_of(GROUP);
    to.values.resize(columns * to.stride, T::ZERO);
    for t in 0..columns {
        let column = &from.values[t * from.stride..][..from.stride];
        let out = &mut to.values[t * to.stride..][..kept.len()];
        for (out, &i) in out.iter_mut().zip(kept) {
            *out = column[i as usize];
        }
    }
}
