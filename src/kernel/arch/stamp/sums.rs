//! The kernels that add up rows and compute distances by difference.

/// Defines the functions for per-cluster sums, exact distances, and rows with a few listed centers.
macro_rules! sums {
    ($t:ident, $simd:ty, [$($attr:meta),*]) => {
        $(#[$attr])*
        unsafe fn accumulate(
            rows: MatRef<'_, $t>,
            labels: &[u32],
            weights: Option<&[f64]>,
            centers: MatRef<'_, $t>,
            sums: &mut [f64],
            totals: &mut [f64],
            energies: &mut [f64],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { accumulate::accumulate::<$simd>(rows, labels, weights, centers, sums, totals, energies) }
        }

        $(#[$attr])*
        unsafe fn reassign(
            rows: MatRef<'_, $t>,
            labels: (&[u32], &[u32]),
            centers: MatRef<'_, $t>,
            sums: (&mut [f64], &mut [f64]),
            totals: &mut [f64],
            energies: &mut [f64],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { accumulate::reassign::<$simd>(rows, labels, centers, sums, totals, energies) }
        }

        $(#[$attr])*
        unsafe fn sq_dist(a: &[$t], b: &[$t]) -> f64 {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { pair::sq_dist::<$simd>(a, b) }
        }

        $(#[$attr])*
        unsafe fn add_bytes(rows: MatRef<'_, u8>, sums: &mut [u64]) -> u64 {
            bytes::add(rows, sums)
        }

        $(#[$attr])*
        unsafe fn byte_sq_dists(rows: MatRef<'_, u8>, point: &[f64], out: &mut [f64]) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { bytes::sq_dists::<$simd>(rows, point, out) }
        }

        $(#[$attr])*
        unsafe fn differences(columns: &[f64], center: &[$t], out: &mut [f64; ROWS]) {
            differences::differences(columns, center, out);
        }

        $(#[$attr])*
        unsafe fn few(row: &[$t], centers: Padded<'_, $t>, list: &[u32], out: &mut [$t]) {
            let none = Padded { values: &[], stride: 0 };
            // SAFETY: the caller's processor has the instruction set.
            unsafe { listed::sq_dists::<$simd, false>(row, centers, none, list, out) }
        }

        $(#[$attr])*
        unsafe fn few_scaled(
            row: &[$t],
            centers: Padded<'_, $t>,
            factors: Padded<'_, $t>,
            list: &[u32],
            out: &mut [$t],
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { listed::sq_dists::<$simd, true>(row, centers, factors, list, out) }
        }

        $(#[$attr])*
        unsafe fn add_parts(row: &[$t], list: &[u32], parts: &[f64], sums: &mut [f64]) {
            listed::add_parts(row, list, parts, sums);
        }

        $(#[$attr])*
        unsafe fn add_squares(
            row: &[$t],
            centers: Padded<'_, $t>,
            list: &[u32],
            parts: &[f64],
            squares: &mut [f64],
        ) {
            listed::add_squares(row, centers, list, parts, squares);
        }

        $(#[$attr])*
        unsafe fn few_projected(
            row: &[$t],
            centers: Padded<'_, $t>,
            factors: Padded<'_, $t>,
            axes: (Padded<'_, $t>, usize),
            list: &[u32],
            out: (&mut [$t], &mut [$t]),
        ) {
            // SAFETY: the caller's processor has the instruction set.
            unsafe { projected::distances::<$simd>(row, centers, factors, axes, list, out) }
        }

        $(#[$attr])*
        unsafe fn add_products(
            row: &[$t],
            centers: Padded<'_, $t>,
            list: &[u32],
            parts: &[f64],
            products: &mut [f64],
        ) {
            projected::add_products(row, centers, list, parts, products);
        }
    };
}
pub(in crate::kernel::arch) use sums;
