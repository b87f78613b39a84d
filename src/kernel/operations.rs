//! The operations of the kernels: safe functions that run generic code on a tier.
#![allow(unsafe_code)]

use std::ops::Range;

use super::candidates::{Candidates, Leaf, Narrowing, Relabeled, Skin};
use super::comparison::{BoundColumn, Gathered, GroupLists, Margins, Nearest, PanelComparison, Radii};
use super::doubt::Doubt;
use super::generic::limbs::{self, Limbs};
use super::generic::listed::{self, Padded};
use super::generic::projected::Axes;
use super::generic::{
    accumulate as sums_of, blocks, bounds, bytes, lanes, pair, picked, projected, sparse, strip, tile,
};
use super::pack::{Form, PackedCenters};
use super::scratch::Scratch;
use super::simd::{Two, Widen};
use super::tier::{Compute, Operation, Tier};
use crate::matrix::MatRef;
use crate::rows::SparseRef;

/// Defines operations: a function of a tier and the arguments, whose body is compiled for each instruction
/// set. The body may use the type `T`, its vectors `S`, and the sizes of micro tiles; see [`Operation`].
macro_rules! operations {
    (@output) => { () };
    (@output $out:ty) => { $out };
    ($($(#[$doc:meta])* $op:ident = $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? $body:block)*) => {$(
        struct $op<A>(A);

        impl<'a, 'b, T: Compute> Operation<T> for $op<($($ty,)*)> {
            type Output = operations!(@output $($out)?);

            /// # Safety
            /// The processor has the instruction set of `S`.
            #[inline(always)]
            #[allow(unused_unsafe, reason = "some bodies are safe")]
            unsafe fn run<S: Widen<T = T>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
                self,
            ) -> Self::Output {
                let Self(($($arg,)*)) = self;
                // SAFETY: this function requires the instruction set of `S`, as the bodies do. `MR` and `NV`
                // are those of the tier. The kernel calls load a strip for `packed` before they run an
                // operation on it.
                unsafe { $body }
            }
        }

        $(#[$doc])*
        #[allow(clippy::extra_unused_lifetimes, reason = "not all operations have two lifetimes")]
        pub(super) fn $name<'a, 'b, T: Compute>(tier: Tier<T>, $($arg: $ty),*) $(-> $out)? {
            tier.run($op(($($arg,)*)))
        }
    )*};
}

// Labels: strips of rows are compared with all centers.
operations! {
    /// Copies the rows of a strip as `x' = g (x - s)` into `scratch.x`, in the layout of the packed form.
    Load = load(packed: &'a PackedCenters<T>, rows: MatRef<'a, T>, scratch: &'a mut Scratch<T>) {
        strip::load::<S>(packed, rows, scratch);
    }

    /// The smallest tile value per row of the loaded strip (into `scratch.best`), its center, and whether another
    /// center may be nearer: `scratch.second` is the second smallest value, or, if it is not in doubt, infinite.
    FindNearest = argmin(
        packed: &'a PackedCenters<T>,
        doubt: Doubt<T>,
        scratch: &'a mut Scratch<T>,
        labels: &'a mut [u32],
    ) {
        if packed.form == Form::RowsInLanes {
            return lanes::sweep::<S>(packed, scratch, labels);
        }
        tile::sweep::<S, Two, MR, NV>(packed, scratch, labels.len());
        strip::reduce::<S, false>(scratch, labels, packed.k, doubt);
    }

    /// The two smallest tile values per row of the loaded strip (into `scratch.best` and `scratch.second`), and the
    /// center of the smallest.
    FindTwo = two(packed: &'a PackedCenters<T>, scratch: &'a mut Scratch<T>, labels: &'a mut [u32]) {
        if packed.form == Form::RowsInLanes {
            return lanes::sweep::<S>(packed, scratch, labels);
        }
        tile::sweep::<S, Two, MR, NV>(packed, scratch, labels.len());
        strip::reduce::<S, true>(scratch, labels, packed.k, Doubt::NONE);
    }

    /// The tile values of the first `rows` rows of the loaded strip against one panel, into `scratch.tile`,
    /// `width` values per row.
    Values = values(packed: &'a PackedCenters<T>, scratch: &'a mut Scratch<T>, rows: usize, panel: usize) {
        if packed.form == Form::RowsInLanes {
            return lanes::values::<S>(packed, scratch, rows, panel);
        }
        tile::values::<S, MR, NV>(packed, scratch, rows, panel);
    }

    /// [`two`] for sparse rows, which are not loaded.
    SparseTwo = sparse_two(
        packed: &'a PackedCenters<T>,
        rows: SparseRef<'a, T>,
        scratch: &'a mut Scratch<T>,
        labels: &'a mut [u32],
    ) {
        sparse::sweep::<S, Two>(packed, rows, scratch);
        strip::reduce::<S, true>(scratch, labels, packed.k, Doubt::NONE);
    }

    /// [`values`] for sparse rows.
    SparseValues = sparse_values(
        packed: &'a PackedCenters<T>,
        rows: SparseRef<'a, T>,
        scratch: &'a mut Scratch<T>,
        panel: usize,
    ) {
        sparse::values::<S>(packed, rows, scratch, panel);
    }
}

// Bounded sweeps: picked rows are compared with single panels or listed centers.
operations! {
    /// See [`picked::gather`].
    Gather = gather(
        packed: &'a PackedCenters<T>,
        rows: MatRef<'a, T>,
        rows_picked: &'a [u32],
        slot: &'a [u32],
        to: &'a mut Gathered<T>,
        own: &'a mut [T],
    ) {
        picked::gather::<S>(packed, rows, rows_picked, slot, to, own);
    }

    /// See [`picked::measure`].
    Measure = measure(
        packed: &'a PackedCenters<T>,
        rows: MatRef<'a, T>,
        rows_picked: &'a [u32],
        labels: &'a [u32],
        sq_norm: &'a mut [T],
        own: &'a mut [T],
    ) {
        picked::measure(packed, rows, rows_picked, labels, sq_norm, own);
    }

    /// See [`picked::between`].
    Between = between(columns: &'a [T], margins: Margins<T>, sums: &'a mut [T], out: &'a mut [f32]) {
        picked::between(columns, margins, sums, out);
    }

    /// See [`picked::lowest`].
    Lowest = lowest(
        packed: &'a PackedCenters<T>,
        gathered: &'a mut Gathered<T>,
        comparison: &'a mut PanelComparison<'b, T>,
    ) {
        picked::lowest::<S, MR, M2, M3, NV>(packed, gathered, comparison);
    }

    /// [`lowest`] for sparse rows.
    SparseLowest = sparse_lowest(
        packed: &'a PackedCenters<T>,
        rows: SparseRef<'a, T>,
        gathered: &'a mut Gathered<T>,
        comparison: &'a mut PanelComparison<'b, T>,
    ) {
        sparse::lowest::<S, NV>(packed, rows, gathered, comparison);
    }

    /// See [`lanes::listed`]. Only for rows in lanes.
    NearestListed = nearest_listed(
        packed: &'a PackedCenters<T>,
        columns: &'a [T],
        rows: Range<usize>,
        list: &'a [u32],
        nearest: &'a mut Nearest<T>,
    ) {
        lanes::listed::<S>(packed, columns, rows, list, nearest);
    }

    /// See [`blocks::narrow`].
    Narrow = narrow(
        frame: (&'a [T], T),
        faces: &'a [T],
        skin: Skin<T>,
        from: &'a Candidates<T>,
        to: &'a mut Candidates<T>,
        work: &'a mut Narrowing<T>,
    ) -> bool {
        blocks::narrow(frame, faces, skin, from, to, work)
    }

    /// See [`super::blocks::relabel`].
    Relabel = relabel(
        leaf: Leaf<'a, T>,
        centers: MatRef<'a, T>,
        list: &'a [u32],
        doubt: Doubt<T>,
        to: &'b mut Relabeled,
    ) {
        blocks::relabel::<S>(leaf, centers, list, doubt, to);
    }

    /// See [`bounds::least`].
    Least = least(lower: &'a [T], drift: &'a [T], rows: &'a [u32], out: &'a mut [T]) {
        bounds::least::<S>(lower, drift, rows, out);
    }

    /// See [`bounds::near`].
    Near = near(
        lower: &'a [T],
        drift: (&'a [T], usize),
        rows: &'a [u32],
        reach: &'a [T],
        lists: GroupLists<'a>,
    ) {
        bounds::near::<S>(lower, drift, rows, reach, lists);
    }

    /// See [`bounds::within`].
    Within = within(lower: &'a [T], drift: T, reach: &'a [T], rows: &'a mut [u32]) -> usize {
        bounds::within::<S>(lower, drift, reach, rows)
    }

    /// See [`bounds::below`].
    Below = below(
        tile: &'a [T],
        base: &'a [T],
        rows: &'a [T],
        columns: &'a [T],
        found: &'a mut [u32],
    ) -> usize {
        bounds::below::<S>(tile, base, rows, columns, found)
    }

    /// See [`bounds::radii`].
    WidenRadii = radii(margins: Margins<T>, radii: &'a mut Radii<T>) {
        bounds::radii(margins, radii);
    }

    /// See [`bounds::renew`].
    Renew = renew(
        sq_norm: &'a [T],
        rows: &'a [u32],
        lowest: (&'a [T], &'a [T]),
        unit: T,
        drift: f32,
        to: BoundColumn<'a>,
    ) {
        bounds::renew(sq_norm, rows, lowest.0, lowest.1, unit, drift, to);
    }
}

// Sums per cluster, and exact distances.
operations! {
    /// See [`sums_of::accumulate`].
    Accumulate = accumulate(
        rows: MatRef<'a, T>,
        labels: &'a [u32],
        weights: Option<&'a [f64]>,
        centers: MatRef<'a, T>,
        to: (&'a mut [f64], &'a mut [f64], &'a mut [f64]),
    ) {
        sums_of::accumulate::<S>(rows, labels, weights, centers, to.0, to.1, to.2);
    }

    /// See [`limbs::add`].
    AddRows = add_rows(
        rows: MatRef<'a, T>,
        labels: &'a [u32],
        weights: Option<&'a [f64]>,
        to: Limbs<'a>,
    ) -> bool {
        limbs::add::<S>(rows, labels, weights, to)
    }

    /// See [`limbs::reassign`].
    Reassign = reassign(
        rows: MatRef<'a, T>,
        labels: (&'a [u32], &'a [u32]),
        to: Limbs<'a>,
    ) -> bool {
        limbs::reassign::<S>(rows, labels, to)
    }

    /// See [`limbs::settle`].
    Settle = settle(from: Limbs<'a>, sums: &'a mut [f64], lows: &'a mut [f64]) -> bool {
        limbs::settle(from, sums, lows)
    }

    /// See [`limbs::merge`].
    MergePairs = merge_pairs(
        from: (&'a mut [f64], &'a mut [f64]),
        sums: &'a mut [f64],
        lows: &'a mut [f64],
    ) -> bool {
        limbs::merge(from, sums, lows)
    }

    /// See [`limbs::sq_dists`].
    SqDists = sq_dists(
        rows: MatRef<'a, T>,
        labels: &'a [u32],
        centers: MatRef<'a, T>,
        out: &'a mut [f64],
    ) {
        limbs::sq_dists::<S>(rows, labels, centers, out);
    }

    /// See [`pair::sq_dist_of_few`].
    SqDistOfFew = sq_dist_of_few(a: &'a [T], b: &'a [T]) -> f64 {
        pair::sq_dist_of_few(a, b)
    }

    /// See [`pair::sq_dist`].
    SqDistOfMany = sq_dist_of_many(a: &'a [T], b: &'a [T]) -> f64 {
        pair::sq_dist::<S>(a, b)
    }

    /// See [`pair::sq_dists_to`].
    SqDistsTo = sq_dists_to(
        rows: MatRef<'a, T>,
        picked: (&'a [u32], &'a [u32]),
        points: &'a [f64],
        out: &'a mut [f64],
    ) {
        pair::sq_dists_to::<S>(rows, picked, points, out);
    }

    /// Writes `factor (x - mean)` in `f32`, and the squared length per row.
    Centered = centered(
        rows: MatRef<'a, T>,
        mean: &'a [f32],
        factor: f64,
        out: &'a mut [f32],
        squares: &'a mut [f32],
    ) {
        let factor = T::from_f64(factor);
        for ((row, out), square) in rows.iter().zip(out.chunks_exact_mut(mean.len())).zip(squares) {
            for ((out, &x), &mean) in out.iter_mut().zip(row).zip(mean) {
                *out = ((x - T::from_f32(mean)) * factor).to_f32();
            }
            let (chunks, tail) = out.as_chunks::<16>();
            let mut sums = [0.0f32; 16];
            for chunk in chunks {
                sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v * v);
            }
            sums.iter_mut().zip(tail).for_each(|(sum, v)| *sum += v * v);
            *square = sums.iter().sum();
        }
    }

    /// See [`bytes::add`].
    AddBytes = add_bytes(rows: MatRef<'a, u8>, sums: &'a mut [u64]) -> u64 {
        bytes::add(rows, sums)
    }

    /// See [`bytes::sq_dists`].
    ByteSqDists = byte_sq_dists(rows: MatRef<'a, u8>, point: &'a [f64], out: &'a mut [f64]) {
        bytes::sq_dists::<S>(rows, point, out);
    }
}

// A row and a few listed centers.
operations! {
    /// Squared distances of a row to listed centers; see [`listed`].
    Few = few(row: &'a [T], centers: Padded<'a, T>, list: &'a [u32], out: &'a mut [T]) {
        listed::sq_dists::<S, false>(row, centers, Padded { values: &[], stride: 0 }, list, out);
    }

    /// [`few`] with a factor per column and center.
    FewScaled = few_scaled(
        row: &'a [T],
        centers: Padded<'a, T>,
        factors: Padded<'a, T>,
        list: &'a [u32],
        out: &'a mut [T],
    ) {
        listed::sq_dists::<S, true>(row, centers, factors, list, out);
    }

    /// Prefetches a row.
    Prefetch = prefetch(row: &'a [T]) {
        listed::prefetch::<S>(row);
    }

    /// See [`listed::add_parts`].
    AddParts = add_parts(row: &'a [T], list: &'a [u32], parts: &'a [f64], sums: &'a mut [f64]) {
        listed::add_parts(row, list, parts, sums);
    }

    /// See [`listed::add_squares`].
    AddSquares = add_squares(
        row: &'a [T],
        centers: Padded<'a, T>,
        list: &'a [u32],
        parts: &'a [f64],
        squares: &'a mut [f64],
    ) {
        listed::add_squares(row, centers, list, parts, squares);
    }

    /// [`few_scaled`], and projections onto axes. `out` are distances and projections.
    FewProjected = few_projected(
        row: &'a [T],
        centers: Padded<'a, T>,
        factors: Padded<'a, T>,
        axes: Axes<'a, T>,
        list: &'a [u32],
        out: (&'a mut [T], &'a mut [T]),
    ) {
        projected::distances::<S>(row, centers, factors, axes, list, out);
    }

    /// See [`projected::add_products`].
    AddProducts = add_products(
        row: &'a [T],
        centers: Padded<'a, T>,
        list: &'a [u32],
        parts: &'a [f64],
        products: &'a mut [f64],
    ) {
        projected::add_products(row, centers, list, parts, products);
    }
}

/// Sum of squared differences, with differences and sums in `f64`.
pub(super) fn sq_dist<T: Compute>(tier: Tier<T>, a: &[T], b: &[T]) -> f64 {
    if a.len() <= pair::LANES { sq_dist_of_few(tier, a, b) } else { sq_dist_of_many(tier, a, b) }
}
