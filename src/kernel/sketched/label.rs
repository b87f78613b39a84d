//! Labels of rows that are read once: rows and centers are sketched with all columns.

use super::basis::Basis;
use super::closest::block_rows;
use super::pack::PackedSketches;
use super::query::Hit;
use super::scan::Scan;
use super::sketch::{Sketch, Sketching};
use super::upper_of;
use crate::kernel::generic::listed::Padded;
use crate::kernel::isa::Isa;
use crate::kernel::operations;
use crate::kernel::pack::PackedCenters;
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;
use crate::rows::Rows;

/// The most centers that sketches may leave for a row that is read once. With more, computing its `f32` tile values is
/// faster.
pub(in crate::kernel) const fn sketch_candidates(k: usize) -> usize {
    4 + k / 32
}

/// Sums of squares of `f32` may be off by this much, because squares underflow.
const TINY: f64 = 1e-30;

/// The most centers that are listed for a row, and the number that is measured at a time.
const MOST: usize = 128;
const FEW: usize = 4;

/// Sketches of centers with all columns.
#[derive(Debug)]
pub(in crate::kernel) struct SketchedCenters {
    basis: Basis,
    packed: PackedSketches,
    isa: Isa,
}

/// Buffers of one worker.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Labeling {
    sketching: Sketching,
    scan: Scan,
    codes: Vec<u8>,
    sketches: Vec<Sketch>,
    /// Rows for which too many centers are left.
    pub(in crate::kernel) open: Vec<u32>,
}

impl SketchedCenters {
    /// Sketches the centers, for products on an instruction set. `None` if their scale is out of range.
    pub(in crate::kernel) fn new<T: Compute>(centers: MatRef<'_, T>, isa: Isa) -> Option<Self> {
        let basis = Basis::of_columns(centers)?;
        let (k, width) = (centers.rows(), basis.width());
        let (mut codes, mut sketches) = (vec![0; k * width], vec![Sketch::default(); k]);
        Sketching::default().write(&basis, centers, &mut codes, &mut sketches);
        // The largest error of a group counts for all of its centers, so a group has centers with similar errors.
        let mut order: Vec<u32> = (0..k as u32).collect();
        order.sort_by(|&a, &b| sketches[a as usize].error.total_cmp(&sketches[b as usize].error));
        Some(Self { packed: PackedSketches::new(&codes, &sketches, width, &order), basis, isa })
    }

    /// Labels rows. Lists the rows without a label as `open` in the buffers. Returns how many centers were left for all
    /// rows together, without one per row; an open row counts all centers.
    pub(in crate::kernel) fn label<T: Compute>(
        &self,
        rows: MatRef<'_, T>,
        packed: &PackedCenters<T>,
        labels: &mut [u32],
        buffers: &mut Labeling,
    ) -> usize {
        let Labeling { sketching, scan, codes, sketches, open } = buffers;
        let (width, block) = (self.basis.width(), block_rows(self.packed.n_groups()));
        let most = sketch_candidates(packed.k).min(MOST);
        scan.isa = self.isa;
        let mut candidates = 0;
        open.clear();
        for first in (0..rows.rows()).step_by(block) {
            let here = rows.slice(first, rows.rows().min(first + block));
            codes.resize(here.rows() * width, 0);
            sketches.resize(here.rows(), Sketch::default());
            sketching.write(&self.basis, here, codes, sketches);
            let hits = scan.closest(&self.packed, (codes, sketches), most, |_, _, upper| upper, None);
            for hits in hits.chunk_by_mut(|a, b| a.row == b.row) {
                let row = first + hits[0].row as usize;
                match hits.len() {
                    1 => labels[row] = hits[0].center,
                    left if left <= most => {
                        labels[row] = self.nearest_of(rows, row, packed, hits);
                        candidates += left - 1;
                    }
                    _ => {
                        open.push(row as u32);
                        candidates += packed.k;
                    }
                }
            }
        }
        candidates
    }

    /// The nearest of the centers that are left for a row: by distances in the type of the rows, and by the arbiter
    /// where these are too close.
    fn nearest_of<T: Compute>(
        &self,
        rows: MatRef<'_, T>,
        row: usize,
        packed: &PackedCenters<T>,
        hits: &mut [Hit],
    ) -> u32 {
        hits.sort_unstable_by(|a, b| a.bound.total_cmp(&b.bound));
        let centers = Padded { values: &packed.centers, stride: packed.dim };
        // A difference and its square have three roundings, a lane has one per column, and lanes are halved.
        let rounding = 1.01 * (packed.dim.div_ceil(packed.tier.lanes) + 8) as f64 * T::EPSILON / 2.0;
        let (mut list, mut values) = ([0; MOST], [T::ZERO; MOST]);
        let (mut count, mut limit) = (0, f64::INFINITY);
        for hits in hits.chunks(FEW) {
            if hits[0].bound > upper_of(limit, self.basis.factor()) {
                break;
            }
            let here = count..count + hits.len();
            list[here.clone()].iter_mut().zip(hits).for_each(|(j, hit)| *j = hit.center);
            operations::few(
                packed.tier,
                rows.row(row),
                centers,
                &list[here.clone()],
                &mut values[here.clone()],
            );
            for value in &values[here] {
                // The roundings of two distances, those of the arbiter, and squares that underflow.
                limit = limit.min(value.to_f64() * (1.0 + 4.0 * rounding) + TINY);
            }
            count += hits.len();
        }
        let mut left = 0;
        for at in 0..count {
            // A sum that overflowed may be of any distance.
            if values[at].to_f64() <= limit || !values[at].finite() {
                list[left] = list[at];
                left += 1;
            }
        }
        if left == 1 { list[0] } else { packed.nearest_of(Rows::Dense(rows), row, &list[..left]) }
    }
}
