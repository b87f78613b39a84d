//! The kernels that compare strips of rows with all centers.

/// Defines the functions that load a strip and find the nearest centers of dense and sparse rows.
macro_rules! labels {
    ($t:ident, $simd:ty, $mr:literal x $nv:literal, [$($attr:meta),*]) => {
        $(#[$attr])*
        unsafe fn load(packed: &Packed, rows: MatRef<'_, $t>, scratch: &mut Scratch<$t>) {
            strip::load(packed, rows, scratch);
        }

        $(#[$attr])*
        unsafe fn argmin(packed: &Packed, scratch: &mut Scratch<$t>, labels: &mut [u32]) {
            // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
            unsafe {
                if packed.form == Form::RowsInLanes {
                    return lanes::sweep::<$simd, false>(packed, scratch, labels);
                }
                tile::sweep::<$simd, Argmin, $mr, $nv>(packed, scratch, labels.len());
                strip::reduce::<$simd, false>(scratch, labels, packed.k);
            }
        }

        $(#[$attr])*
        unsafe fn two(packed: &Packed, scratch: &mut Scratch<$t>, labels: &mut [u32]) {
            // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
            unsafe {
                if packed.form == Form::RowsInLanes {
                    return lanes::sweep::<$simd, true>(packed, scratch, labels);
                }
                tile::sweep::<$simd, Two, $mr, $nv>(packed, scratch, labels.len());
                strip::reduce::<$simd, true>(scratch, labels, packed.k);
            }
        }

        $(#[$attr])*
        unsafe fn values(packed: &Packed, scratch: &mut Scratch<$t>, rows: usize, panel: usize) {
            // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
            unsafe {
                if packed.form == Form::RowsInLanes {
                    return lanes::values::<$simd>(packed, scratch, rows, panel);
                }
                tile::values::<$simd, $mr, $nv>(packed, scratch, rows, panel);
            }
        }

        $(#[$attr])*
        unsafe fn sparse_argmin(
            packed: &Packed,
            rows: SparseRef<'_, $t>,
            scratch: &mut Scratch<$t>,
            labels: &mut [u32],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe {
                sparse::sweep::<$simd, Argmin>(packed, rows, scratch);
                strip::reduce::<$simd, false>(scratch, labels, packed.k);
            }
        }

        $(#[$attr])*
        unsafe fn sparse_two(
            packed: &Packed,
            rows: SparseRef<'_, $t>,
            scratch: &mut Scratch<$t>,
            labels: &mut [u32],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe {
                sparse::sweep::<$simd, Two>(packed, rows, scratch);
                strip::reduce::<$simd, true>(scratch, labels, packed.k);
            }
        }

        $(#[$attr])*
        unsafe fn sparse_values(
            packed: &Packed,
            rows: SparseRef<'_, $t>,
            scratch: &mut Scratch<$t>,
            panel: usize,
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { sparse::values::<$simd>(packed, rows, scratch, panel) }
        }
    };
}
pub(in crate::kernel::arch) use labels;
