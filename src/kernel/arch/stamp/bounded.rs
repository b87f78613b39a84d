//! The kernels of bounded sweeps.

/// Defines the functions that compare picked rows with single panels or listed centers, and the loops over
/// bounds.
macro_rules! bounded {
    ($t:ident, $simd:ty, $mr:literal $m2:literal $m3:literal x $nv:literal, [$($attr:meta),*]) => {
        $(#[$attr])*
        unsafe fn sparse_lowest(
            packed: &Packed,
            rows: SparseRef<'_, $t>,
            gathered: &mut Gathered<$t>,
            meeting: &mut Meeting<'_, $t>,
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { sparse::lowest::<$simd, $nv>(packed, rows, gathered, meeting) }
        }

        $(#[$attr])*
        unsafe fn gather(
            packed: &Packed,
            rows: MatRef<'_, $t>,
            rows_picked: &[u32],
            slot: &[u32],
            to: &mut Gathered<$t>,
            own: &mut [$t],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { picked::gather::<$simd>(packed, rows, rows_picked, slot, to, own) }
        }

        $(#[$attr])*
        unsafe fn measure(
            packed: &Packed,
            rows: MatRef<'_, $t>,
            rows_picked: &[u32],
            labels: &[u32],
            sq_norm: &mut [$t],
            own: &mut [$t],
        ) {
            picked::measure(packed, rows, rows_picked, labels, sq_norm, own);
        }

        $(#[$attr])*
        unsafe fn between(columns: &[$t], margins: Margins<$t>, sums: &mut [$t], out: &mut [f32]) {
            picked::between(columns, margins, sums, out);
        }

        $(#[$attr])*
        unsafe fn listed(
            packed: &Packed,
            columns: &[$t],
            rows: Range<usize>,
            list: &[u32],
            nearest: &mut Nearest<$t>,
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { lanes::listed::<$simd>(packed, columns, rows, list, nearest) }
        }

        $(#[$attr])*
        unsafe fn narrow(
            frame: (&[$t], $t),
            faces: &[$t],
            skin: Skin<$t>,
            from: &Candidates<$t>,
            to: &mut Candidates<$t>,
            work: &mut Narrowing<$t>,
        ) -> bool {
            blocks::narrow(frame, faces, skin, from, to, work)
        }

        $(#[$attr])*
        unsafe fn lowest(packed: &Packed, gathered: &mut Gathered<$t>, meeting: &mut Meeting<'_, $t>) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { picked::lowest::<$simd, $mr, $m2, $m3, $nv>(packed, gathered, meeting) }
        }

        $(#[$attr])*
        unsafe fn least(lower: &[$t], drift: &[$t], rows: &[u32], out: &mut [$t]) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { bounds::least::<$simd>(lower, drift, rows, out) }
        }

        $(#[$attr])*
        unsafe fn near(
            lower: &[$t],
            drift: (&[$t], usize),
            rows: &[u32],
            reach: &[$t],
            lists: (&mut [u32], usize, &mut [u32]),
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { bounds::near::<$simd>(lower, drift, rows, reach, lists) }
        }

        $(#[$attr])*
        unsafe fn within(lower: &[$t], drift: $t, reach: &[$t], rows: &mut [u32]) -> usize {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { bounds::within::<$simd>(lower, drift, reach, rows) }
        }

        $(#[$attr])*
        unsafe fn below(
            tile: &[$t],
            base: &[$t],
            rows: &[$t],
            columns: &[$t],
            found: &mut [u32],
        ) -> usize {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { bounds::below::<$simd>(tile, base, rows, columns, found) }
        }
        $(#[$attr])*
        unsafe fn radii(margins: Margins<$t>, radii: &mut Radii<$t>) {
            bounds::radii(margins, radii);
        }

        $(#[$attr])*
        unsafe fn reach(margins: Margins<f32>, upper: &[f32], out: &mut [f32]) {
            bounds::reach(margins, upper, out);
        }

        $(#[$attr])*
        unsafe fn renew(
            sq_norm: &[$t],
            rows: &[u32],
            low: &[$t],
            error: &[$t],
            unit: $t,
            drift: f32,
            lower: (&mut [f32], usize, usize),
        ) {
            bounds::renew(sq_norm, rows, low, error, unit, drift, lower);
        }
    };
}
pub(in crate::kernel::arch) use bounded;
