//! The nearest center of a row so far, and sums over the rows of a tile.

/// The squared distance of a row to its nearest center so far, and that center: `(D2, center)`.
pub(super) type Near = (f64, u32);

/// Whether a center at this squared distance from the nearest center of a row may be nearer to the row, which is at the
/// squared distance `sq_dist` from that. The factor covers the roundings of all three distances.
pub(super) fn may_be_nearer(between: f64, sq_dist: f64) -> bool {
    between < 4.0 * (1.0 + 1e-9) * sq_dist
}

/// The rows of a tile that points may be nearer to than their centers, and their squared distances to these points.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) picked: Vec<u32>,
    /// The points that may be nearer to each of these rows, as bits.
    pub(super) needed: Vec<u32>,
    pub(super) sq_dists: Vec<f64>,
}

impl Measured {
    /// Picks the rows, given the smallest squared distance of a point to each center.
    pub(super) fn pick(&mut self, near: &[Near], least: &[f64]) {
        self.picked.resize(near.len(), 0);
        let mut n = 0;
        // Without branches, which would often be predicted wrongly.
        for (i, &(sq_dist, center)) in near.iter().enumerate() {
            self.picked[n] = i as u32;
            n += usize::from(may_be_nearer(least[center as usize], sq_dist));
        }
        self.picked.truncate(n);
    }
}

/// Sums per tile, collected in tile order.
#[derive(Default)]
pub(super) struct TileSums {
    pub(super) sums: Vec<f64>,
    pub(super) open: f64,
    pub(super) measured: u64,
}

impl TileSums {
    /// Each partial result is one tile.
    pub(super) fn merge(&mut self, part: &mut Self) {
        self.sums.push(std::mem::take(&mut part.open));
        self.measured += std::mem::take(&mut part.measured);
    }
}

/// The reduction of the sum by each candidate, and the number of computed distances.
pub(super) type Gains = (Vec<f64>, u64);

/// Adds the gains of a tile.
pub(super) fn merge_gains((total, measured): &mut Gains, (part, more): &mut Gains) {
    total.iter_mut().zip(part).for_each(|(t, p)| *t += std::mem::take(p));
    *measured += std::mem::take(more);
}

/// The largest gain; the earliest among equals.
pub(super) fn best_of_gains(gains: &[f64]) -> usize {
    (0..gains.len()).rev().max_by(|&a, &b| gains[a].total_cmp(&gains[b])).unwrap_or(0)
}
