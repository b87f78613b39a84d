//! A few of many centers, packed together in the frame of all of them. A row gets the same label from any choice that
//! holds its nearest center.

use super::aligned::Aligned;
use super::frame::moved;
use super::pack::{Form, PackedCenters};
use super::tier::Compute;

impl<T: Compute> PackedCenters<T> {
    /// Also keeps the centers as rows, from which [`PackedCenters::choose`] packs.
    pub(crate) fn with_rows(mut self) -> Self {
        if self.form == Form::Sparse {
            return self;
        }
        let stride = self.gathered_stride();
        let mut rows = Aligned::filled(self.k * stride, T::ZERO);
        let two = T::from_f32(-2.0);
        for (row, center) in rows.chunks_exact_mut(stride).zip(self.centers().iter()) {
            for ((out, &c), &s) in row.iter_mut().zip(center).zip(&self.shift) {
                *out = two * moved(c, s, self.scale);
            }
        }
        self.plain = rows;
        self
    }

    /// Replaces the centers of this set, whose places were made by [`PackedCenters::places`] of `all`, by the
    /// centers `list` of `all`. `all` must be [with rows](PackedCenters::with_rows).
    ///
    /// # Panics
    /// If the list is empty, longer than the number of places, or names a center that does not exist.
    pub(crate) fn choose(&mut self, list: &[u32], all: &Self) {
        let (k, dim) = (list.len(), self.dim);
        assert!(k > 0 && dim == all.dim, "a list of centers of {dim} columns");
        self.k = k;
        self.norms.cut(k.next_multiple_of(self.tier.lanes));
        self.centers.resize(k * dim, T::ZERO);
        if !self.sq_norms.is_empty() {
            self.sq_norms.resize(k, 0.0);
        }
        if self.form == Form::Sparse {
            self.norms[k..].fill(T::INFINITY);
            for (slot, &j) in list.iter().enumerate() {
                self.place(slot, slot, all.centers().row(j as usize));
            }
            return;
        }
        for (center, &j) in self.centers.chunks_exact_mut(dim).zip(list) {
            center.copy_from_slice(all.centers().row(j as usize));
        }
        let stride = all.gathered_stride();
        let row = |slot: usize| &all.plain[list[slot] as usize * stride..][..dim];
        for (slot, norm) in self.norms.iter_mut().enumerate() {
            *norm = list.get(slot).map_or(T::INFINITY, |&j| all.norms[j as usize]);
        }
        if self.form == Form::RowsInLanes {
            for (slot, out) in self.data.chunks_exact_mut(dim).take(k).enumerate() {
                out.copy_from_slice(row(slot));
            }
            return;
        }
        for first in (0..k).step_by(self.width) {
            let width = self.width.min(self.norms.len() - first);
            let panel = &mut self.data[first * dim..][..width * dim];
            let mut lane = 0;
            let members = k.min(first + width) - first;
            // Four centers at a time share the lines that are written.
            while lane + 4 <= members {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| row(first + lane + i));
                for (t, line) in panel.chunks_exact_mut(width).enumerate() {
                    line[lane..lane + 4].copy_from_slice(&[a[t], b[t], c[t], d[t]]);
                }
                lane += 4;
            }
            for lane in lane..members {
                let center = row(first + lane);
                panel[lane..].iter_mut().step_by(width).zip(center).for_each(|(out, &c)| *out = c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Scratch, distances, nearest, sq_dist as sq_dist_of};
    use crate::matrix::MatRef;
    use crate::rng::{Purpose, Rng};

    fn check<T: Compute>(dim: usize, k: usize, n: usize, offset: f64) {
        let mut rng = Rng::keyed(dim as u64, Purpose::Seeding, k as u64);
        let mut values = |count: usize| -> Vec<T> {
            (0..count * dim).map(|_| T::from_f64(offset + rng.below(64) as f64 / 4.0)).collect()
        };
        let (centers, rows) = (values(k), values(n));
        let (centers, rows) = (MatRef::new(&centers, dim), MatRef::new(&rows, dim));
        let all = PackedCenters::new(centers).with_rows();
        let (mut scratch, mut expected) = (Scratch::default(), vec![0; n]);
        nearest(rows, &all, &mut expected, &mut scratch);
        let mut some = all.places(k);
        for step in [1, 2, 3, k] {
            // Lists of any length, each with the nearest centers of the rows that it is for.
            for first in 0..step {
                let of: Vec<usize> = (0..n).filter(|r| expected[*r] as usize % step == first).collect();
                let list: Vec<u32> = (first as u32..k as u32).step_by(step).collect();
                if of.is_empty() || list.is_empty() {
                    continue;
                }
                some.choose(&list, &all);
                let taken: Vec<T> = of.iter().flat_map(|&r| rows.row(r).to_vec()).collect();
                let mut found = vec![0; of.len()];
                nearest(MatRef::new(&taken, dim), &some, &mut found, &mut scratch);
                let mut sq_dists = vec![0.0; of.len() * list.len()];
                distances(MatRef::new(&taken, dim), &some, &mut sq_dists, &mut scratch);
                for (&r, sq_dists) in of.iter().zip(sq_dists.chunks(list.len())) {
                    for (&j, sq_dist) in list.iter().zip(sq_dists) {
                        let exact = sq_dist_of(rows.row(r), centers.row(j as usize));
                        let off = 1e-3 * (exact + 1.0) + if offset > 1e4 { 1e9 } else { 0.0 };
                        assert!((sq_dist - exact).abs() <= off, "{sq_dist} {exact}");
                    }
                }
                for (&r, &slot) in of.iter().zip(&found) {
                    assert_eq!(list[slot as usize], expected[r], "{dim} columns, row {r}, step {step}");
                }
            }
        }
    }

    #[test]
    fn a_choice_gives_the_labels_of_all_centers() {
        for dim in [1, 3, 16, 17, 40, 128, 300] {
            for k in [1, 5, 33, 130] {
                check::<f32>(dim, k, 70, 0.0);
                check::<f64>(dim, k, 70, 1000.0);
            }
        }
        // Centers that `f32` tile values cannot tell apart.
        check::<f32>(2, 9, 30, 1e6);
    }
}
