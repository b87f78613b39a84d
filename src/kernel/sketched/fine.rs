//! Finer sketches: four more bits per coordinate, for rows that are expensive to read.
//!
//! # A finer sketch
//! The directions of a sketch are the *head*. Further directions, the *tail*, complete them to a basis. A finer sketch
//! has four bits per coordinate: in the head for the rounding error of the sketch, in the tail for the coordinate
//! itself. Both sketches together give a point `s`. When it is made, its distance from the row `y` is measured in both
//! parts: `miss_head` and `miss_tail`.
//!
//! # Comparison of two centers
//! For two centers `a` and `b`, and `v = b - a`,
//!
//! `|y - b|^2 - |y - a|^2 = |b|^2 - |a|^2 - 2 y'v`,
//!
//! where the centers are exact. By the inequality of Cauchy and Schwarz in each part,
//!
//! `|y'v - s'v| <= miss_head |v_head| + miss_tail |v_tail|`.
//!
//! This error is much smaller than that of a distance: `v` is short for centers near each other, and most of it is in
//! the head, where `miss_head` is small. The coordinates of `v` are products with the rounded directions in `f64`,
//! rounded to `f32`. Their error is a small share of the lengths of `a` and `b` ([`Fine::rounding`]), and is multiplied
//! by the length of `s`.

use super::basis::{Basis, Directions, UNIT};
use super::multiply;
use super::sketch::{Sketch, UNKNOWN};
use crate::kernel::simd::Widen;
use crate::kernel::tier::{Compute, Operation, Tier, active};
use crate::matrix::MatRef;

/// Values that are added in lanes of their own. Parts are whole numbers of these.
const LANES: usize = 16;

/// Rows that are sketched at a time.
const STRIP: usize = 24;

/// The step of the coordinates of the tail, in units of their root mean square: the best of 16 equal steps for a
/// bell-shaped distribution, which random directions give.
const STEP: f64 = 0.335;

/// Lengths whose squares are lost to underflow.
const TINY: f64 = 1e-18;

/// The basis of finer sketches, and the centers in it, all in the units of sketches.
#[derive(Clone, Debug)]
pub(crate) struct Fine {
    /// All directions, first those of the sketches.
    basis: Basis,
    head: usize,
    /// Coordinates of the centers, and their squared lengths.
    centers: Vec<f32>,
    squares: Vec<f64>,
}

/// What is stored of a row beside its bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FineSketch {
    /// The step of the tail.
    step: f32,
    /// How far the stored point is from the row, at most, in the head and in the tail.
    pub(super) misses: [f32; 2],
    /// The squared length of the row.
    square: f32,
}

/// Buffers for [`Fine::write`].
#[derive(Debug, Default)]
pub(crate) struct FineSketching {
    moved: Vec<f32>,
    squares: Vec<f32>,
    coordinates: Vec<f32>,
    point: Vec<f32>,
}

/// A row and its stored point.
#[derive(Debug, Default)]
pub(crate) struct FinePoint {
    point: Vec<f32>,
    sketch: FineSketch,
    /// The length of the point, at most.
    length: f64,
}

impl Fine {
    /// For sketches by learned directions, and `k` centers. `None` if the directions cannot be completed.
    pub(crate) fn new(basis: &Basis, k: usize) -> Option<Self> {
        let head = basis.width;
        let basis = basis.completed()?;
        let centers = vec![0.0; k * basis.width];
        Some(Self { basis, head, centers, squares: vec![0.0; k] })
    }

    /// Bytes of a row.
    pub(crate) fn bytes(&self) -> usize {
        self.basis.width / 2
    }

    /// The error of the computed coordinates of a vector, relative to its length.
    fn rounding(&self) -> f64 {
        self.basis.defect * 1.01 + 2.01 * UNIT + 1e-12
    }

    /// Sets a center.
    pub(crate) fn set<T: Compute>(&mut self, j: usize, center: &[T]) {
        let Directions::Learned(matrix) = &self.basis.directions else { return };
        let width = self.basis.width;
        let mut sums = vec![0.0f64; width];
        let mut square = 0.0;
        for ((c, &m), directions) in center.iter().zip(&self.basis.mean).zip(matrix.chunks_exact(width)) {
            let moved = (c.to_f64() - f64::from(m)) * self.basis.factor;
            square += moved * moved;
            sums.iter_mut().zip(directions).for_each(|(sum, &v)| *sum += moved * f64::from(v));
        }
        self.squares[j] = square;
        self.centers[j * width..][..width].iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    }

    /// Writes the bits and the numbers of rows whose sketches are made.
    pub(crate) fn write<T: Compute>(
        &self,
        buffers: &mut FineSketching,
        rows: MatRef<'_, T>,
        (codes, sketches): (&[u8], &[Sketch]),
        (bits, numbers): (&mut [u8], &mut [FineSketch]),
    ) {
        let Directions::Learned(matrix) = &self.basis.directions else { return };
        let (n, dim, width) = (rows.rows(), self.basis.dim, self.basis.width);
        assert!(bits.len() == n * self.bytes() && numbers.len() == n && codes.len() == n * self.head);
        let FineSketching { moved, squares, coordinates, point } = buffers;
        moved.resize(STRIP * dim, 0.0);
        squares.resize(STRIP, 0.0);
        coordinates.resize(STRIP * width, 0.0);
        let tier: Tier<f32> = active();
        for first in (0..n).step_by(STRIP) {
            let here = first..n.min(first + STRIP);
            let few = here.len();
            let rows = rows.slice(here.start, here.end);
            self.basis.center(rows, &mut moved[..few * dim], &mut squares[..few]);
            multiply(&moved[..few * dim], matrix, (dim, width), &mut coordinates[..few * width]);
            for (at, r) in here.enumerate() {
                let row = (&codes[r * self.head..][..self.head], &sketches[r]);
                let bits = &mut bits[r * self.bytes()..][..self.bytes()];
                let coordinates = &coordinates[at * width..][..width];
                let square = squares[at];
                numbers[r] = tier.run(Rounding { fine: self, row, coordinates, square, bits, point });
            }
        }
    }

    /// Restores the stored point of a row.
    pub(crate) fn read(
        &self,
        (codes, sketch): (&[u8], &Sketch),
        (bits, fine): (&[u8], &FineSketch),
        to: &mut FinePoint,
    ) {
        to.point.resize(self.basis.width, 0.0);
        let tier: Tier<f32> = active();
        tier.run(Restoring {
            head: self.head,
            row: (codes, sketch),
            bits,
            step: fine.step,
            out: &mut to.point,
        });
        let misses = f64::from(fine.misses[0]) + f64::from(fine.misses[1]);
        to.sketch = *fine;
        // The rounding of the square is less than the roundings in the misses.
        to.length = f64::from(fine.square).sqrt() + misses;
    }

    fn center(&self, j: u32) -> &[f32] {
        &self.centers[j as usize * self.basis.width..][..self.basis.width]
    }

    /// Limits of the squared distance of a row to a center.
    pub(crate) fn sq_dist(&self, point: &FinePoint, j: u32) -> (f64, f64) {
        let (row, center) = (f64::from(point.sketch.square), self.squares[j as usize]);
        let (product, error) = self.product(point, (self.center(j), &[]), center.sqrt());
        if error.is_infinite() {
            return (0.0, f64::INFINITY);
        }
        // Sums of `f32` in 16 lanes, with two roundings per term, of values that were rounded.
        let unsure = (self.basis.dim as f64 / 8.0 + 24.0) * UNIT * row;
        let value = row + center - 2.0 * product;
        let error = 2.0 * error + unsure + 1e-9 * (row + center) + TINY * TINY;
        ((value - error).max(0.0), (value + error).max(0.0))
    }

    /// A lower limit of the difference of two squared distances of a row: the one to center `other`, less the one to
    /// center `near`. If it is positive, `near` is nearer for the arbiter, too. It may be NaN.
    pub(crate) fn farther(&self, point: &FinePoint, near: u32, other: u32) -> f64 {
        let (a, b) = (self.squares[near as usize], self.squares[other as usize]);
        let (product, error) =
            self.product(point, (self.center(other), self.center(near)), a.sqrt() + b.sqrt());
        // The last term covers the rounding of the arbiter.
        (b - a) - 2.0 * product - 2.0 * error - 1e-9 * (a + b + f64::from(point.sketch.square))
    }

    /// The product of a row and the difference of two vectors, and a limit of its error. The second is 0 if it is
    /// empty. `length` is at least the sum of their lengths.
    fn product(&self, point: &FinePoint, (a, b): (&[f32], &[f32]), length: f64) -> (f64, f64) {
        let [head, tail] = point.sketch.misses.map(f64::from);
        if !(head.is_finite() && tail.is_finite() && length < 1e15) {
            return (0.0, f64::INFINITY);
        }
        let tier: Tier<f32> = active();
        let found = tier.run(Comparing { head: self.head, point: &point.point, a, b });
        // Relative errors of sums of squares in `f32`.
        let grown = |sum: f32| f64::from(sum).sqrt() * (1.0 + 1e-4);
        let off = self.rounding() * length + TINY;
        let sums = (self.basis.width as f64 / LANES as f64 + 20.0) * UNIT * 1.01;
        let [of_head, of_tail] = found.squares.map(grown);
        let error = head * (of_head + off)
            + tail * (of_tail + off)
            + point.length * (off + sums * (of_head + of_tail));
        (f64::from(found.product), error + TINY * TINY)
    }
}

/// Rounds the coordinates of a row.
struct Rounding<'a> {
    fine: &'a Fine,
    row: (&'a [u8], &'a Sketch),
    coordinates: &'a [f32],
    square: f32,
    bits: &'a mut [u8],
    point: &'a mut Vec<f32>,
}

impl Operation<f32> for Rounding<'_> {
    type Output = FineSketch;

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> FineSketch {
        let Self { fine, row: (codes, sketch), coordinates, square, bits, point } = self;
        let unknown = || FineSketch { misses: [f32::INFINITY; 2], ..FineSketch::default() };
        if sketch.error >= UNKNOWN {
            return unknown();
        }
        let (head, tail) = coordinates.split_at(fine.head);
        let length = |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        let step = (STEP * length(tail) / ((fine.basis.dim - fine.head) as f64).sqrt()) as f32;
        let inverse = |step: f32| if (1e-30..1e30).contains(&step) { 1.0 / step } else { 0.0 };
        let (per_unit, per_step) = (16.0 * inverse(sketch.unit), inverse(step));
        let of_head = |i: usize| {
            let known = sketch.unit * (f32::from(codes[i]) - 128.0);
            ((head[i] - known) * per_unit + 8.0).clamp(0.0, 15.0) as u8
        };
        let of_tail = |i: usize| (tail[i] * per_step + 8.0).clamp(0.0, 15.0) as u8;
        let (head_bits, tail_bits) = bits.split_at_mut(head.len() / 2);
        for (i, byte) in head_bits.iter_mut().enumerate() {
            *byte = of_head(i) | of_head(i + head.len() / 2) << 4;
        }
        for (i, byte) in tail_bits.iter_mut().enumerate() {
            *byte = of_tail(i) | of_tail(i + tail.len() / 2) << 4;
        }
        point.resize(coordinates.len(), 0.0);
        restore(fine.head, (codes, sketch), bits, step, point);
        let basis = &fine.basis;
        let unsure = basis.rounding * f64::from(square).sqrt() * (1.0 + 1e-4)
            + basis.defect * 1.01 * (length(coordinates) + f64::from(square).sqrt())
            + TINY * (basis.dim as f64).sqrt();
        let miss = |from: usize, to: usize| {
            let terms = coordinates[from..to].iter().zip(&point[from..to]);
            let sum: f64 = terms.map(|(&c, &p)| (f64::from(c) - f64::from(p)).powi(2)).sum();
            ((sum.sqrt() * (1.0 + 1e-9) + unsure) as f32).next_up()
        };
        let misses = [miss(0, fine.head), miss(fine.head, coordinates.len())];
        // Not `misses < ...`, because of NaN.
        let known = misses.iter().all(|&miss| miss < UNKNOWN);
        if known { FineSketch { step, misses, square } } else { unknown() }
    }
}

/// Restores the stored point of a row.
struct Restoring<'a> {
    head: usize,
    row: (&'a [u8], &'a Sketch),
    bits: &'a [u8],
    step: f32,
    out: &'a mut [f32],
}

impl Operation<f32> for Restoring<'_> {
    type Output = ();

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        restore(self.head, self.row, self.bits, self.step, self.out);
    }
}

#[inline(always)]
fn restore(head: usize, (codes, sketch): (&[u8], &Sketch), bits: &[u8], step: f32, out: &mut [f32]) {
    let (of_head, of_tail) = out.split_at_mut(head);
    let (head_bits, tail_bits) = bits.split_at(head / 2);
    let centered = |bits: u8| f32::from(bits) - 7.5;
    let (first, second) = of_head.split_at_mut(head / 2);
    let (first_codes, second_codes) = codes.split_at(head / 2);
    let within = sketch.unit * (1.0 / 16.0);
    let whole = |code: u8| sketch.unit * (f32::from(code) - 128.0);
    for ((out, &bits), &code) in first.iter_mut().zip(head_bits).zip(first_codes) {
        *out = whole(code) + within * centered(bits & 15);
    }
    for ((out, &bits), &code) in second.iter_mut().zip(head_bits).zip(second_codes) {
        *out = whole(code) + within * centered(bits >> 4);
    }
    let half = of_tail.len() / 2;
    let (first, second) = of_tail.split_at_mut(half);
    for (out, &bits) in first.iter_mut().zip(tail_bits) {
        *out = step * centered(bits & 15);
    }
    for (out, &bits) in second.iter_mut().zip(tail_bits) {
        *out = step * centered(bits >> 4);
    }
}

/// Compares a point with the difference of two vectors.
struct Comparing<'a> {
    head: usize,
    point: &'a [f32],
    a: &'a [f32],
    /// As long as `a`, or empty.
    b: &'a [f32],
}

/// The product of a point and a vector, and the squared lengths of the parts of the vector.
struct Compared {
    product: f32,
    squares: [f32; 2],
}

impl Operation<f32> for Comparing<'_> {
    type Output = Compared;

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> Compared {
        let Self { head, point, a, b } = self;
        let zeros = [[0.0; LANES]];
        let vectors = |values: &'_ [f32]| values.as_chunks::<LANES>().0.len();
        let (points, a, b) =
            (point.as_chunks::<LANES>().0, a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
        let is_one = b.is_empty();
        let mut products = [0.0f32; LANES];
        let mut squares = [[0.0f32; LANES]; 2];
        let split = vectors(&point[..head]);
        for (part, range) in [0..split, split..points.len()].into_iter().enumerate() {
            let squares = &mut squares[part];
            for at in range {
                let (p, a, b) = (&points[at], &a[at], if is_one { &zeros[0] } else { &b[at] });
                for l in 0..LANES {
                    let v = a[l] - b[l];
                    products[l] += p[l] * v;
                    squares[l] += v * v;
                }
            }
        }
        Compared { product: products.iter().sum(), squares: squares.map(|lanes| lanes.iter().sum()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 columns as they are, of which 16 are the head, and centers.
    fn columns(defect: f64, centers: &[[f32; 32]]) -> Fine {
        let sample = [[1.0f32; 32], [-1.0; 32]].concat();
        let mut basis = Basis::of_columns(MatRef::new(&sample, 32)).unwrap();
        let mut matrix = vec![0.0; 32 * 32];
        (0..32).for_each(|t| matrix[t * 33] = 1.0);
        (basis.width, basis.directions) = (32, Directions::Learned(matrix));
        (basis.rounding, basis.defect) = (0.0, defect);
        let count = centers.len();
        let mut fine = Fine { basis, head: 16, centers: vec![0.0; 32 * count], squares: vec![0.0; count] };
        centers.iter().enumerate().for_each(|(j, center)| fine.set(j, center));
        fine
    }

    /// A point of zeros that stands for a row.
    fn point(misses: [f32; 2], square: f32, length: f64) -> FinePoint {
        FinePoint { point: vec![0.0; 32], sketch: FineSketch { step: 0.0, misses, square }, length }
    }

    fn one(at: usize) -> [f32; 32] {
        std::array::from_fn(|t| f32::from(u8::from(t == at)))
    }

    /// Each term of the error of a product, with all others at 0.
    #[test]
    fn every_term_of_a_product_counts_by_itself() {
        let (head, tail, none) = (one(3), one(20), [0.0; 32]);
        let sums = (2.0 + 20.0) * UNIT;
        for (at, (misses, length, defect, v, lengths, least)) in [
            ([1.0, 0.0], 0.0, 0.0, head, 0.0, 1.0),
            ([0.0, 1.0], 0.0, 0.0, tail, 0.0, 1.0),
            ([1.0, 0.0], 0.0, 1e-3, none, 1.0, 1e-3),
            ([0.0, 1.0], 0.0, 1e-3, none, 1.0, 1e-3),
            ([0.0, 0.0], 1.0, 1e-3, none, 1.0, 1e-3),
            ([0.0, 0.0], 1.0, 0.0, none, 1.0, 2.0 * UNIT),
            ([0.0, 0.0], 1.0, 0.0, head, 0.0, sums),
            ([0.0, 0.0], 1.0, 0.0, tail, 0.0, sums),
        ]
        .into_iter()
        .enumerate()
        {
            let (_, error) = columns(defect, &[]).product(&point(misses, 0.0, length), (&v, &none), lengths);
            assert!(error >= least, "case {at}: {error:e}, not {least:e}");
        }
    }

    /// What limits of distances add to the errors of products.
    #[test]
    fn every_term_of_a_distance_counts_by_itself() {
        let fine = columns(0.0, &[[0.0; 32], one(3), one(4)]);
        let (low, high) = fine.sq_dist(&point([0.0; 2], 1.0, 0.0), 0);
        let unsure = (32.0 / 8.0 + 24.0) * UNIT;
        assert!(low <= 1.0 - unsure && high >= 1.0 + unsure, "{low} {high}");
        let (low, high) = fine.sq_dist(&point([0.0; 2], 0.0, 0.0), 1);
        assert!(low <= 1.0 - 9e-10 && high >= 1.0 + 9e-10, "{low} {high}");
        let (low, high) = fine.sq_dist(&point([0.5, 0.0], 0.0, 0.0), 1);
        assert!(low == 0.0 && high >= 2.0, "{low} {high}");
        let farther = fine.farther(&point([0.0; 2], 0.0, 0.0), 1, 2);
        assert!(farther <= -1.9e-9, "{farther}");
    }

    /// Sums of squares in `f32` may be rounded downward.
    #[test]
    fn roundings_of_lengths_are_covered() {
        let mut rng = crate::rng::Rng::keyed(3, crate::rng::Purpose::Seeding, 0);
        for _ in 0..200 {
            let v: [f32; 32] = std::array::from_fn(|t| if t < 16 { rng.unit() as f32 } else { 0.0 });
            let length = v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
            let (_, error) = columns(0.0, &[]).product(&point([1.0, 0.0], 0.0, 0.0), (&v, &[0.0; 32]), 0.0);
            assert!(error >= length, "{error} {length}");
        }
    }

    /// The errors of coordinates count for both parts of a row, and its point is no longer than it says.
    #[test]
    fn misses_hold_the_errors_of_coordinates() {
        let mut row: Vec<f32> = (0..32u8).map(|t| (f32::from(t) * 1.7).sin()).collect();
        for (rounding, defect, scale, least) in
            [(1e-3, 0.0, 1.0, 1e-3), (0.0, 1e-3, 1.0, 2e-3), (0.0, 0.0, 0.0, 0.0)]
        {
            for x in &mut row {
                *x *= scale;
            }
            let mut fine = columns(defect, &[]);
            fine.basis.rounding = rounding;
            let mut head = fine.basis.clone();
            let Directions::Learned(matrix) = &fine.basis.directions else { unreachable!() };
            head.directions =
                Directions::Learned(matrix.chunks_exact(32).flat_map(|row| row[..16].to_vec()).collect());
            head.width = 16;
            let rows = MatRef::new(&row, 32);
            let (mut codes, mut sketches) = ([0; 16], [Sketch::default()]);
            super::super::Sketching::default().write(&head, rows, &mut codes, &mut sketches);
            let (mut bits, mut numbers) = ([0; 16], [FineSketch::default()]);
            let coarse = (&codes[..], &sketches[..]);
            fine.write(&mut FineSketching::default(), rows, coarse, (&mut bits, &mut numbers));
            let mut found = FinePoint::default();
            fine.read((&codes, &sketches[0]), (&bits, &numbers[0]), &mut found);
            let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
            let length = norm(&mut row.iter().map(|&x| f64::from(x) * fine.basis.factor));
            assert!(norm(&mut found.point.iter().map(|&x| f64::from(x))) <= found.length);
            for (part, miss) in [0..16, 16..32].into_iter().zip(numbers[0].misses) {
                let off = norm(
                    &mut part.map(|t| f64::from(found.point[t]) - f64::from(row[t]) * fine.basis.factor),
                );
                let least = off + least * length;
                // Squares of very short rows are lost.
                assert!(f64::from(miss) >= least.max(5e-18), "{rounding} {defect}: {miss} {least}");
            }
        }
    }
}
