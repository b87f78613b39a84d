//! k-means++ by sketches of the rows: a candidate is measured only for rows that it may be nearer to than their center.
//!
//! Rows keep their sketches ([`kernel::sketched`](crate::kernel::sketched)), packed as the centers of a scan. The
//! distance of a row to its nearest center so far is added to the error of its sketch, so that a scan with radius 0
//! lists the rows to which a candidate may be nearer. What it leaves out would add nothing to any sum, so the draws are
//! the same as without sketches.

use super::tile_sums::{Gains, Near, TileSums, best_of_gains, merge_gains};
use crate::data::{Access, DataSource, take};
use crate::error::Result;
use crate::kernel::sketched::{
    Basis, Compared, Hit, PackedSketches, Scan, Sketch, Sketching, are_fast, upper_of,
};
use crate::kernel::{Compute, Point};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, Cut, PerRow, Unread, sweep};
use crate::rows::Rows;
use crate::tuning::{chunk_rows, seeding_tile_rows};

/// Whether sketches of `n` rows pay for choosing `k` centers by k-means++ (`seeding.py`): sketching takes as long as
/// comparing the rows with a few dozen candidates. They take at most a byte per column and about 60 per row, and must
/// fit into 1 GiB.
fn seeding_sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    dim >= 32 && k >= 32 && n >= 4096 && n * (dim + 60) <= 1 << 30
}

/// Sketches of all rows.
pub(super) struct Sketched {
    basis: Basis,
    tiles: Vec<Tile>,
}

/// Sketches of a tile of rows.
#[derive(Default)]
struct Tile {
    packed: PackedSketches,
    errors: Vec<f32>,
    /// What the last candidates were measured for.
    found: Vec<CandidateDistance>,
}

/// The squared distance of a row of a tile to a candidate.
struct CandidateDistance {
    row: u32,
    candidate: u32,
    sq_dist: f64,
}

/// The tiles of a part of the rows, and their length.
struct Tiles<'a>(&'a mut [Tile], usize);

impl PerRow for Tiles<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        let (mine, rest) = self.0.split_at_mut(n.div_ceil(self.1));
        (Self(mine, self.1), Self(rest, self.1))
    }
    fn rows(&self) -> Option<usize> {
        None
    }
}

/// Every tile of `n` rows is one chunk.
fn cut(n: usize) -> Cut {
    let rows = seeding_tile_rows(n);
    Cut { tile_rows: rows, chunk_rows: Some(rows) }
}

/// Buffers of a worker.
#[derive(Default)]
struct ScanBuffers {
    sketching: Sketching,
    codes: Vec<u8>,
    sketches: Vec<Sketch>,
    scan: Scan,
    is_picked: Vec<bool>,
    picked: Vec<u32>,
}

/// Whether sketches of all rows pay for choosing `k` centers. Single rows are read, and sparse rows have no sketches.
pub(super) fn sketches_pay<T: Compute>(data: &dyn DataSource<T>, n: usize, k: usize) -> bool {
    are_fast()
        && seeding_sketches_pay(n, k, data.dim())
        && data.access() >= Access::Random
        && data.most_values().is_none()
}

impl Sketched {
    /// Sketches of all rows, which have a center. `None` if no sketch suits them.
    pub(super) fn new<T: Compute>(
        near: &[Near],
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Option<Self>> {
        let n = near.len();
        let sample = take(data, &Basis::sample_of(n))?;
        let Some(basis) = Basis::learn(MatRef::new(&sample, data.dim()), cx) else { return Ok(None) };
        let mut tiles: Vec<Tile> = Vec::new();
        tiles.resize_with(n.div_ceil(seeding_tile_rows(n)), Tile::default);
        let width = basis.width();
        let absorb = |mut chunk: Unread<'_, T>,
                      (near, tiles): (&[Near], Tiles<'_>),
                      (): &mut (),
                      work: &mut ScanBuffers| {
            let Rows::Dense(rows) = chunk.read()?.rows else { unreachable!("sparse rows have no sketches") };
            work.codes.resize(rows.rows() * width, 0);
            work.sketches.resize(rows.rows(), Sketch::default());
            work.sketching.write(&basis, rows, &mut work.codes, &mut work.sketches);
            let order: Vec<u32> = (0..rows.rows() as u32).collect();
            let tile = &mut tiles.0[0];
            tile.packed = PackedSketches::new(&work.codes, &work.sketches, width, &order);
            tile.errors = work.sketches.iter().map(Sketch::error).collect();
            for (row, near) in near.iter().enumerate() {
                tile.reach(row, near.0, &basis);
            }
            Ok(())
        };
        let make = (|| (), ScanBuffers::default);
        let tiles_of = Tiles(&mut tiles, seeding_tile_rows(n));
        sweep(data, cx, cut(n), (near, tiles_of), &mut (), make, absorb, |(), ()| ())?;
        Ok(Some(Self { basis, tiles }))
    }

    /// Which of the candidates reduces the sum most, the earliest among equals, and the number of computed distances.
    /// Keeps the distances for [`Sketched::admit`].
    pub(super) fn best_of<T: Compute>(
        &mut self,
        near: &[Near],
        data: &dyn DataSource<T>,
        cx: &Executor,
        candidates: &[u64],
    ) -> Result<(usize, u64)> {
        let Self { basis, tiles } = self;
        let values = take(data, candidates)?;
        let rows = MatRef::new(&values, data.dim());
        let points: Vec<Point<'_, T>> = rows.iter().map(Point::new).collect();
        let m = candidates.len();
        let (mut codes, mut sketches) = (vec![0; m * basis.width()], vec![Sketch::default(); m]);
        Sketching::default().write(basis, rows, &mut codes, &mut sketches);
        let all: Vec<u32> = (0..m as u32).collect();
        let absorb = |mut chunk: Unread<'_, T>,
                      (near, tiles): (&[Near], Tiles<'_>),
                      (gains, measured): &mut Gains,
                      work: &mut ScanBuffers| {
            let Tile { packed, found, .. } = &mut tiles.0[0];
            let ScanBuffers { scan, is_picked, picked, .. } = work;
            scan.resize(m);
            for (c, sketch) in sketches.iter().enumerate() {
                scan.set(c, sketch, 0.0, None);
            }
            let hits = scan.within(packed, &codes, Compared::All(&all));
            is_picked.clear();
            is_picked.resize(near.len(), false);
            for hit in hits {
                is_picked[hit.center as usize] = true;
            }
            picked.clear();
            picked.extend((0..near.len() as u32).filter(|&row| is_picked[row as usize]));
            found.clear();
            let Chunk { rows, weights, .. } = chunk.read_of(picked)?;
            let weight = |row: usize| weights.map_or(1.0, |w| w[row]);
            // The hits of a candidate are in the order of the rows.
            for &Hit { row: candidate, center: row, .. } in hits {
                let sq_dist = points[candidate as usize].sq_dist(rows, row as usize);
                let before = near[row as usize].0;
                if sq_dist < before {
                    gains[candidate as usize] += weight(row as usize) * (before - sq_dist);
                    found.push(CandidateDistance { row, candidate, sq_dist });
                }
            }
            *measured += hits.len() as u64;
            Ok(())
        };
        let mut gains: Gains = (vec![0.0; m], 0);
        let make = (|| (vec![0.0; m], 0), ScanBuffers::default);
        let per_row = (near, Tiles(tiles, seeding_tile_rows(near.len())));
        sweep(data, cx, cut(near.len()), per_row, &mut gains, make, absorb, merge_gains)?;
        Ok((best_of_gains(&gains.0), gains.1))
    }

    /// Updates the nearest distance of every row, and the sums per tile, with a new center. It was number `candidate` in
    /// the last call of [`Sketched::best_of`].
    pub(super) fn admit<T: Compute>(
        &mut self,
        (near, sums): (&mut [Near], &mut Vec<f64>),
        data: &dyn DataSource<T>,
        cx: &Executor,
        (center, candidate): (u32, usize),
    ) -> Result<()> {
        let Self { basis, tiles } = self;
        let (before, chunk_rows) = (std::mem::take(sums), chunk_rows(data.dim()));
        let (n, tile_rows) = (near.len(), seeding_tile_rows(near.len()));
        let absorb = |chunk: Unread<'_, T>,
                      (near, tiles): (&mut [Near], Tiles<'_>),
                      sums: &mut TileSums,
                      (): &mut ()| {
            let tile = &mut tiles.0[0];
            let found = std::mem::take(&mut tile.found);
            let mut sum = before[chunk.range().start / tile_rows];
            if found.iter().any(|found| found.candidate as usize == candidate) {
                for found in found.iter().filter(|found| found.candidate as usize == candidate) {
                    near[found.row as usize] = (found.sq_dist, center);
                    tile.reach(found.row as usize, found.sq_dist, basis);
                }
                let weights = chunk.weights();
                let odds = |i: usize| weights.map_or(1.0, |w| w[i]) * near[i].0;
                // In the order of a pass that reads the rows.
                let part = |first: usize| {
                    (first..near.len().min(first + chunk_rows)).fold(0.0, |sum, i| sum + odds(i))
                };
                sum = (0..near.len()).step_by(chunk_rows).fold(0.0, |sum, first| sum + part(first));
            }
            sums.open += sum;
            Ok(())
        };
        let mut total = TileSums::default();
        let make = (TileSums::default, || ());
        sweep(data, cx, cut(n), (near, Tiles(tiles, tile_rows)), &mut total, make, absorb, TileSums::merge)?;
        *sums = total.sums;
        Ok(())
    }
}

impl Tile {
    /// A candidate may be nearer to a row than its center, at this squared distance.
    fn reach(&mut self, row: usize, sq_dist: f64, basis: &Basis) {
        self.packed.set_error(row as u32, upper_of(sq_dist, basis.factor()) + self.errors[row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::rng::{Purpose, Rng};
    use crate::seeding::near::Potential;

    /// Rows in clusters, of which some are equal.
    fn rows(n: usize, d: usize) -> Vec<f64> {
        let mut rng = Rng::keyed(3, Purpose::Seeding, d as u64);
        let middles: Vec<f64> = (0..30 * d).map(|_| 4.0 * rng.unit()).collect();
        let mut rows: Vec<f64> = (0..n * d).map(|i| middles[i / d % 30 * d + i % d] + rng.unit()).collect();
        (0..n / 5).for_each(|i| rows.copy_within(..d, i * 5 * d));
        rows
    }

    /// Chooses centers with and without sketches. Returns how many distances each took.
    fn check<T: Compute>(data: &dyn DataSource<T>, k: usize, trials: usize) -> [u64; 2] {
        let cx = Executor::new(Some(2)).unwrap();
        let weights = crate::data::weights_of(data).unwrap();
        let states = [false, true].map(|sketched| {
            let mut state = Potential::new(data, data.rows().unwrap()).unwrap();
            state.take_in(data, &[17]).unwrap();
            state.admit(data, &cx).unwrap();
            if sketched {
                state.with_sketches = true;
            }
            let rng = &mut Rng::keyed(9, Purpose::Seeding, 0);
            state.grow(data, k, trials, weights.as_deref(), rng, &cx).unwrap();
            state
        });
        let [plain, sketched] = &states;
        assert!(plain.sketched.is_none() && sketched.sketched.is_some());
        assert_eq!(plain.rows, sketched.rows);
        assert_eq!(plain.near, sketched.near);
        assert_eq!(plain.tiles, sketched.tiles);
        states.map(|state| state.n_distances)
    }

    #[test]
    fn sketches_choose_the_same_rows() {
        for (d, k) in [(3, 20), (40, 60), (130, 90)] {
            let n = 2 * crate::tuning::SEEDING_TILE_ROWS + 77;
            let wide = rows(n, d);
            let narrow: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
            let weights: Vec<f64> = (0..n).map(|i| (i % 4) as f64).collect();
            let data = Dense::new(&narrow[..], d).unwrap();
            let [plain, sketched] = check::<f32>(&data, k, 5);
            assert!(d < 40 || sketched < plain, "{d}: {sketched} {plain}");
            check::<f32>(&data, k, 1);
            let weighted = Weighted::new::<f32>(&data, weights).unwrap();
            check::<f32>(&weighted, k, 4);
            check::<f64>(&Dense::new(&wide[..], d).unwrap(), k, 3);
        }
    }

    /// Rows halfway between two centers, up to the rounding of their distances.
    #[test]
    fn midpoints_are_measured_with_and_without_sketches() {
        let (d, n) = (32, 4200);
        let mut values: Vec<f64> = (0..n * d).map(|i| if i / d % 3 == 0 { -1.0 } else { 0.0 }).collect();
        (0..d).for_each(|t| values[(n - 1) * d + t] = 1.0 - f64::EPSILON / 2.0);
        (0..n / 7).for_each(|i| values[(7 * i + 1) * d] = i as f64 / 50.0);
        check::<f64>(&Dense::new(&values[..], d).unwrap(), 30, 3);
    }

    /// With fewer different rows than centers, the rest are drawn among the equal ones.
    #[test]
    fn equal_rows_end_the_search() {
        let (d, n) = (40, 4200);
        let values: Vec<f32> = (0..n * d).map(|i| (i / d % 25 * (i % d)) as f32).collect();
        check::<f32>(&Dense::new(&values[..], d).unwrap(), 40, 3);
    }
}
