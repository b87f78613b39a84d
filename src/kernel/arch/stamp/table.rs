//! The table of kernels of one vector type.

/// Defines `TABLE`, whose entries call the functions that the other parts define.
///
/// The functions in the table are safe to call, because `Compute::table` hands a table out only on a
/// processor that has the instruction set. This is the reason behind each `SAFETY` comment below.
macro_rules! table {
    ($t:ident, $simd:ty, $isa:expr, $mr:literal x $nv:literal) => {
        pub(in crate::kernel) static TABLE: KernelTable<$t> = KernelTable {
            isa: $isa,
            lanes: LANES,
            registers: <$simd as Simd>::REGISTERS,
            height: $mr,
            width: $nv * LANES,
            // SAFETY: this table is used only on a processor that has the instruction set (also for all
            // entries below).
            load: |p, x, s| unsafe { load(p, x, s) },
            // SAFETY: as above.
            argmin: |p, s, l| unsafe { argmin(p, s, l) },
            // SAFETY: as above.
            two: |p, s, l| unsafe { two(p, s, l) },
            // SAFETY: as above.
            values: |p, s, rows, panel| unsafe { values(p, s, rows, panel) },
            // SAFETY: as above.
            sparse_argmin: |p, x, s, l| unsafe { sparse_argmin(p, x, s, l) },
            // SAFETY: as above.
            sparse_two: |p, x, s, l| unsafe { sparse_two(p, x, s, l) },
            // SAFETY: as above.
            sparse_values: |p, x, s, panel| unsafe { sparse_values(p, x, s, panel) },
            // SAFETY: as above.
            sparse_lowest: |p, x, g, meeting| unsafe { sparse_lowest(p, x, g, meeting) },
            // SAFETY: as above.
            gather: |p, x, rows, slot, to, own| unsafe { gather(p, x, rows, slot, to, own) },
            // SAFETY: as above.
            measure: |p, x, rows, labels, norms, own| unsafe { measure(p, x, rows, labels, norms, own) },
            // SAFETY: as above.
            between: |c, m, sums, out| unsafe { between(c, m, sums, out) },
            // SAFETY: as above.
            listed: |p, x, rows, list, to| unsafe { listed(p, x, rows, list, to) },
            // SAFETY: as above.
            narrow: |frame, faces, skin, from, to, w| unsafe { narrow(frame, faces, skin, from, to, w) },
            // SAFETY: as above.
            lowest: |p, g, meeting| unsafe { lowest(p, g, meeting) },
            // SAFETY: as above.
            least: |l, d, rows, out| unsafe { least(l, d, rows, out) },
            // SAFETY: as above.
            near: |l, d, rows, reach, lists| unsafe { near(l, d, rows, reach, lists) },
            // SAFETY: as above.
            within: |l, d, reach, rows| unsafe { within(l, d, reach, rows) },
            // SAFETY: as above.
            below: |tile, base, rows, columns, found| unsafe { below(tile, base, rows, columns, found) },
            // SAFETY: as above.
            radii: |m, r| unsafe { radii(m, r) },
            // SAFETY: as above.
            reach: |m, u, out| unsafe { reach(m, u, out) },
            // SAFETY: as above.
            renew: |s, rows, low, e, unit, d, out| unsafe { renew(s, rows, low, e, unit, d, out) },
            // SAFETY: as above.
            accumulate: |x, l, w, c, s, t, e| unsafe { accumulate(x, l, w, c, s, t, e) },
            // SAFETY: as above.
            reassign: |x, l, c, s, t, e| unsafe { reassign(x, l, c, s, t, e) },
            // SAFETY: as above.
            sq_dist: |a, b| unsafe { sq_dist(a, b) },
            // SAFETY: as above.
            add_bytes: |x, sums| unsafe { add_bytes(x, sums) },
            // SAFETY: as above.
            byte_sq_dists: |x, point, out| unsafe { byte_sq_dists(x, point, out) },
            // SAFETY: as above.
            differences: |x, c, out| unsafe { differences(x, c, out) },
            // SAFETY: as above.
            few: |x, c, list, out| unsafe { few(x, c, list, out) },
            // SAFETY: as above.
            few_scaled: |x, c, f, list, out| unsafe { few_scaled(x, c, f, list, out) },
            prefetch: listed::prefetch::<$simd>,
            // SAFETY: as above.
            add_parts: |x, list, parts, sums| unsafe { add_parts(x, list, parts, sums) },
            // SAFETY: as above.
            add_squares: |x, c, list, parts, squares| unsafe { add_squares(x, c, list, parts, squares) },
            // SAFETY: as above.
            few_projected: |x, c, f, axes, list, out| unsafe { few_projected(x, c, f, axes, list, out) },
            // SAFETY: as above.
            add_products: |x, c, list, parts, products| unsafe { add_products(x, c, list, parts, products) },
        };
    };
}
pub(in crate::kernel::arch) use table;
