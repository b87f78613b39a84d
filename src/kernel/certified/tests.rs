//! Labels by low precision are those of the arbiter, with any engine and any error within the bounds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Certified;
use super::bound::Lengths;
use super::pack::{LowCenters, PANEL, bf16, wide};
use super::remeasure::{self, excess};
use super::rows::load;
use super::tiles::{Buffers, ByTiles, nearest_with};
use crate::kernel::arch::engine::{Emulated, Engine, Line, Product, Sums, Tile, WithEngine};
use crate::kernel::arch::scalar::ScalarF32;
use crate::kernel::frame::moved;
use crate::kernel::sketched::{Labeling, SketchedCenters};
use crate::kernel::{Isa, PackedCenters, Scratch, nearest, sq_dist};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

/// Rows and centers.
struct Problem {
    d: usize,
    x: Vec<f32>,
    c: Vec<f32>,
}

impl Problem {
    fn rows(&self) -> MatRef<'_, f32> {
        MatRef::new(&self.x, self.d)
    }

    fn packed(&self, isa: Isa) -> PackedCenters<f32> {
        PackedCenters::for_isa(MatRef::new(&self.c, self.d), isa)
    }

    /// Adds what makes labels hard to decide: rows on centers, equal centers, centers that differ in one bit, rows
    /// halfway between two centers.
    fn made_hard(mut self, whole: bool) -> Self {
        let (d, n, k) = (self.d, self.x.len() / self.d, self.c.len() / self.d);
        for j in (3..k).step_by(4) {
            self.c.copy_within((j - 1) * d..j * d, j * d);
            if j % 8 == 7 {
                let value = &mut self.c[j * d + d / 2];
                *value = f32::from_bits(value.to_bits() ^ 1);
            }
        }
        for i in 0..n {
            let (a, b) = (i * 7 % k * d, i * 11 % k * d);
            for t in 0..d {
                let value = match i % 5 {
                    0 => self.c[a + t],
                    1 => f32::midpoint(self.c[a + t], self.c[b + t]),
                    _ => continue,
                };
                self.x[i * d + t] = if whole { value.round().clamp(0.0, 255.0) } else { value };
            }
        }
        self
    }

    /// Bytes: rows of whole numbers, centers between them or on them.
    fn bytes(n: usize, k: usize, d: usize, seed: u64) -> Self {
        let mut rng = Rng::keyed(seed, Purpose::Seeding, (n + k * d) as u64);
        let mut unit = || rng.unit() as f32;
        let few = seed.is_multiple_of(3);
        let x =
            (0..n * d).map(|_| if few { 255.0 * (2.0 * unit()).floor() } else { (unit() * 256.0).floor() });
        let x: Vec<f32> = x.collect();
        let c = (0..k * d)
            .map(|_| if seed.is_multiple_of(2) { (unit() * 256.0).floor() } else { unit() * 255.0 });
        let c = c.collect();
        Self { d, x, c }.made_hard(true)
    }

    /// Any values, times `scale`, moved by `offset` times `scale`.
    fn floats(n: usize, k: usize, d: usize, scale: f32, offset: f32, seed: u64) -> Self {
        let mut rng = Rng::keyed(seed, Purpose::Seeding, (n + k * d) as u64);
        let mut value = || (rng.unit() as f32 - 0.5 + offset) * scale;
        let x = (0..n * d).map(|_| value()).collect();
        let c = (0..k * d).map(|_| value()).collect();
        Self { d, x, c }.made_hard(false)
    }
}

/// Labels the rows by tiles, with what `run` takes.
fn by(
    low: &LowCenters,
    problem: &Problem,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    run: impl FnOnce(ByTiles<'_>) -> usize,
) {
    let problem = remeasure::Problem { rows: problem.rows(), packed, low };
    nearest_with(problem, labels, &mut Scratch::default(), &mut Buffers::default(), run);
}

/// The low precision of centers, if they have one.
fn certified(packed: &PackedCenters<f32>) -> Option<&Certified<f32>> {
    packed.shortcut.as_ref()?.as_any().downcast_ref()
}

/// Labels by the engine, and those of the kernel with the same roundings. Nothing if the centers do not suit the
/// product.
fn both<E: Engine>(problem: &Problem, product: Product, engine: &E) -> Option<[Vec<u32>; 2]> {
    let packed = problem.packed(Isa::Scalar);
    let low = LowCenters::new(&packed, product)?;
    let n = problem.rows().rows();
    let mut labels = [vec![u32::MAX; n], vec![u32::MAX; n]];
    by(&low, problem, &packed, &mut labels[0], |work| work.run(engine));
    nearest(problem.rows(), &packed, &mut labels[1], &mut Scratch::default());
    Some(labels)
}

fn check(problem: &Problem, product: Product, what: &str) {
    if let Some([found, wanted]) = both(problem, product, &Emulated) {
        assert_eq!(found, wanted, "{what}");
    }
    let expected = problem.x.iter().all(|&x| f32::from(x as u8) == x);
    assert!(expected || product == Product::Bf16, "{what}: rows must be bytes");
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    by_tiles(problem, product, what);
}

/// Compares labels by the tile unit, which is emulated if need be, in every order of additions.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn by_tiles(problem: &Problem, product: Product, what: &str) {
    use crate::kernel::arch::amx;
    use crate::kernel::tests::amx::{emulator, tiles};
    if tiles().is_none() {
        return;
    }
    let packed = problem.packed(Isa::Avx512);
    let Some(low) = LowCenters::new(&packed, product) else { return };
    let mut wanted = vec![u32::MAX; problem.rows().rows()];
    nearest(problem.rows(), &packed, &mut wanted, &mut Scratch::default());
    for order in emulator::ORDERS {
        emulator::set_order(order);
        let mut found = vec![u32::MAX; wanted.len()];
        by(&low, problem, &packed, &mut found, |work| amx::run(work));
        assert_eq!(found, wanted, "tiles, {order:?} {what}");
    }
}

/// Sketches of all columns give the labels of the arbiter, for `f32` and `f64` rows.
fn check_sketches(problem: &Problem, what: &str) {
    let packed = problem.packed(Isa::Scalar);
    let rows = problem.rows();
    let Some(centers) = SketchedCenters::new(packed.centers(), Isa::active()) else { return };
    let (mut found, mut wanted) = (vec![u32::MAX; rows.rows()], vec![u32::MAX; rows.rows()]);
    let mut buffers = Labeling::default();
    centers.label(rows, &packed, &mut found, &mut buffers);
    nearest(rows, &packed, &mut wanted, &mut Scratch::default());
    for row in 0..rows.rows() {
        let is_open = buffers.open.contains(&(row as u32));
        assert_eq!(found[row] == u32::MAX, is_open, "{what}: row {row} has a label or is open");
        assert!(is_open || found[row] == wanted[row], "{what}: row {row}, {} {}", found[row], wanted[row]);
    }
    let wide = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let (x, c) = (wide(&problem.x), wide(&problem.c));
    let packed = PackedCenters::for_isa(MatRef::new(&c, problem.d), Isa::Scalar);
    let mut found = vec![u32::MAX; rows.rows()];
    centers.label(MatRef::new(&x, problem.d), &packed, &mut found, &mut buffers);
    for row in (0..rows.rows()).filter(|&row| found[row] != u32::MAX) {
        assert_eq!(found[row], wanted[row], "{what}: row {row} in `f64`");
    }
}

/// Checks a problem whose rows all get labels.
fn check_decided(problem: &Problem, what: &str) {
    let packed = problem.packed(Isa::Scalar);
    let centers = SketchedCenters::new(packed.centers(), Isa::active()).expect("plain centers");
    let (mut labels, mut buffers) = (vec![u32::MAX; problem.rows().rows()], Labeling::default());
    centers.label(problem.rows(), &packed, &mut labels, &mut buffers);
    assert!(buffers.open.is_empty(), "{what}: {:?}", buffers.open);
    check_sketches(problem, what);
}

#[test]
fn sketches_give_the_labels_of_the_arbiter() {
    for (i, d) in DIMS.into_iter().enumerate() {
        for k in CENTERS {
            let n = 70 + i * 13;
            let seed = (d + k) as u64;
            check_sketches(&Problem::bytes(n, k, d, seed), &format!("bytes, {d} columns, {k} centers"));
            for (scale, offset) in
                [(1.0, 0.0), (1.0, 1000.0), (1e-12, 0.0), (1e15, 0.5), (1e-25, 3.0), (1e25, 0.0)]
            {
                let what = format!("floats, {d} columns, {k} centers, scale {scale}, offset {offset}");
                check_sketches(&Problem::floats(n, k, d, scale, offset, seed), &what);
            }
        }
    }
}

/// A row that is not a number, or far from all centers, is left open; a row between many centers, too.
#[test]
fn sketches_leave_hard_rows_open() {
    let mut problem = Problem::floats(200, 100, 64, 1.0, 0.0, 1);
    problem.x[5 * 64 + 3] = f32::NAN;
    problem.x[6 * 64 + 3] = f32::INFINITY;
    problem.x[7 * 64..8 * 64].fill(1e30);
    let packed = problem.packed(Isa::Scalar);
    let centers = SketchedCenters::new(packed.centers(), Isa::active()).expect("plain centers");
    let (mut labels, mut buffers) = (vec![u32::MAX; 200], Labeling::default());
    let candidates = centers.label(problem.rows(), &packed, &mut labels, &mut buffers);
    assert_eq!(buffers.open, [5, 6, 7]);
    assert!(candidates >= 3 * 99, "{candidates}");
}

/// The squared distance of the first center overflows in `f32`, that of the second is rounded down to a finite value.
/// The first is nearer.
#[test]
fn sums_that_overflow_go_to_the_arbiter() {
    let (d, k) = (64, 64);
    let mut c = vec![2f32.powi(63); k * d];
    let below = |x: f64| (x as f32).next_down();
    let parts = [
        [2f32.powi(62), 0.0, 0.0, 0.0],
        [
            2f32.powi(62) * (1.0 - 2f32.powi(-24)),
            below(2f64.powf(49.5)),
            below(1.5f64.sqrt() * 2f64.powi(50)),
            below(2f64.powf(49.5)),
        ],
    ];
    for (j, part) in parts.iter().enumerate() {
        (0..d).for_each(|t| c[j * d + t] = part[t / 16]);
    }
    let problem = Problem { d, x: vec![0.0; 20 * d], c };
    let packed = problem.packed(Isa::Scalar);
    let mut labels = vec![u32::MAX; 20];
    nearest(problem.rows(), &packed, &mut labels, &mut Scratch::default());
    assert_eq!(labels, [0; 20]);
    check_sketches(&problem, "overflow");
}

/// Squares of the differences from the first center underflow. The second is nearer.
#[test]
fn sums_that_underflow_go_to_the_arbiter() {
    let (d, k) = (64, 64);
    let mut c: Vec<f32> = (0..k * d).map(|i| 1e-18 * (1.0 + (i % 97) as f32)).collect();
    c[..d].fill(2.6e-23);
    c[d..2 * d].fill(0.0);
    c[d] = 1.5e-22;
    check_decided(&Problem { d, x: vec![0.0; 20 * d], c }, "underflow");
}

/// Equal terms are rounded alike, so that long sums of them in `f32` are off by much, and others by less.
#[test]
fn long_sums_of_equal_terms_go_to_the_arbiter() {
    let (d, k) = (1 << 13, 64);
    for at in 0..40u8 {
        let mut c = vec![3.0; k * d];
        let size = 1.0 + f32::from(at) / 41.0;
        c[..d].fill(size);
        // The second is a little nearer than the first.
        let near = f64::from(size) * (1.0 - 1e-7 * f64::from(at % 20));
        let share = 0.1 + 0.02 * f64::from(at);
        for (t, x) in c[d..2 * d].iter_mut().enumerate() {
            let square = if t / 16 % 2 == 0 { 1.0 + share } else { 1.0 - share };
            *x = (near * square.sqrt()) as f32;
        }
        check_decided(&Problem { d, x: vec![0.0; d], c }, &format!("equal terms, {size}"));
    }
}

/// Distances in `f32` cannot tell these centers apart.
#[test]
fn close_distances_go_to_the_arbiter() {
    let (d, k) = (256, 64);
    let mut problem = Problem::floats(60, k, d, 1.0, 0.0, 2);
    for j in 1..k {
        // Each a little farther from the rows than the one before, by less than an `f32` distance resolves.
        problem.c.copy_within(..d, j * d);
        problem.c[j * d + 7] += (k - j) as f32 * 1e-7;
    }
    for (i, x) in problem.x.chunks_exact_mut(d).enumerate() {
        x.copy_from_slice(&problem.c[..d]);
        x.iter_mut().skip(i % 3).step_by(3).for_each(|x| *x += 0.7);
        x[7] -= 2.0;
    }
    check_sketches(&problem, "twins");
}

const DIMS: [usize; 12] = [1, 3, 17, 31, 32, 33, 63, 64, 65, 130, 200, 600];
const CENTERS: [usize; 8] = [1, 2, 15, 16, 17, 33, 64, 100];

#[test]
fn rows_of_bytes() {
    for (i, d) in DIMS.into_iter().enumerate() {
        for (j, k) in CENTERS.into_iter().enumerate() {
            let n = 1 + (i * 37 + j * 23) % 90;
            check(
                &Problem::bytes(n, k, d, (i * 8 + j) as u64),
                Product::Bytes,
                &format!("d={d} k={k} n={n}"),
            );
        }
    }
    for n in [1, 15, 16, 17, 31, 32, 33, 500] {
        check(&Problem::bytes(n, 70, 40, n as u64), Product::Bytes, &format!("n={n}"));
        check(&Problem::bytes(n, 70, 40, n as u64), Product::Bf16, &format!("n={n} bf16"));
    }
}

#[test]
fn rows_of_any_values() {
    for (i, d) in DIMS.into_iter().enumerate() {
        let k = CENTERS[i % CENTERS.len()].max(2);
        for scale in [1.0, 1e-3, 1e-12, 1e-30, 1e-38, 1e-42, 1e9, 1e30] {
            for offset in [0.0, 5.0, 1e3, 1e6] {
                let problem = Problem::floats(40, k, d, scale, offset, i as u64);
                check(&problem, Product::Bf16, &format!("d={d} k={k} {scale} {offset}"));
            }
        }
    }
}

/// Rows that are not finite, or too large, get the label that the kernel gives.
#[test]
fn rows_out_of_range() {
    for (product, bad) in [Product::Bytes, Product::Bf16]
        .into_iter()
        .zip([&[f32::NAN, f32::INFINITY, -1.0, 0.5, 256.0, 3e38][..], &[f32::NAN, f32::NEG_INFINITY, 3e38]])
    {
        for &bad in bad {
            let mut problem = Problem::bytes(70, 40, 70, 5);
            problem.x[33 * 70 + 69] = bad;
            let [found, wanted] = both(&problem, product, &Emulated).expect("plain centers");
            assert_eq!(found, wanted, "{product:?} {bad}");
        }
    }
}

/// What rounding to bf16 takes from a row decides between two centers.
#[test]
fn the_rest_of_a_row_counts() {
    // All values are rounded to 1 or -1, except that of the last column.
    let mut x: Vec<f32> = (0..256).map(|t| if t % 2 == 0 { 1.0 } else { -1.0 } + 2f32.powi(-9)).collect();
    x.push(-0.125);
    let mut c = vec![-1.0f32; 257];
    c.extend([1.0; 257]);
    let problem = Problem { d: 257, x, c };
    let [found, wanted] = both(&problem, Product::Bf16, &Emulated).expect("plain centers");
    assert_eq!((found, wanted), (vec![1], vec![1]));
}

/// Loads 16 rows at most. Returns the limits of their lengths, or nothing if the rows do not suit.
fn loaded(problem: &Problem, packed: &PackedCenters<f32>, low: &LowCenters) -> Option<Lengths> {
    let (mut tiles, mut lengths) = (vec![Tile::ZERO; low.steps], Lengths::ZERO);
    load(&Emulated, low, packed, problem.rows(), &mut tiles, &mut lengths).then_some(lengths)
}

/// The length of a row, and of what rounding to bf16 takes from it, are at most what is stored.
fn check_lengths(problem: &Problem, product: Product, what: &str) {
    let packed = problem.packed(Isa::Scalar);
    let low = LowCenters::new(&packed, product).expect("plain centers");
    let found = loaded(problem, &packed, &low).expect("rows within range");
    for (r, row) in problem.rows().iter().enumerate() {
        let (mut length, mut rest) = (0.0, 0.0);
        for (t, &x) in row.iter().enumerate() {
            let middle = low.middle[t];
            let (near, about) = match product {
                Product::Bytes => (f64::from(x) - f64::from(middle), f64::from(x) - f64::from(middle)),
                Product::Bf16 => {
                    let x = moved(x, packed.shift[t], packed.scale);
                    (f64::from(wide(bf16(x - middle))), f64::from(x) - f64::from(middle))
                }
            };
            length += near * near;
            rest += (about - near).powi(2);
        }
        assert!(f64::from(found.length.0[r]) >= length.sqrt(), "{what}: length of row {r}");
        assert!(f64::from(found.rest.0[r]) >= rest.sqrt(), "{what}: rest of row {r}");
    }
}

#[test]
fn lengths_of_rows_are_rounded_up() {
    let d = 70;
    for seed in 0..20 {
        check_lengths(&Problem::bytes(16, 40, d, seed), Product::Bytes, "bytes");
        check_lengths(&Problem::floats(16, 40, d, 1.0, 0.0, seed), Product::Bf16, "floats");
    }
    // Centers about the origin. The mean of all is about 4e-8.
    let c: Vec<f32> = [-1.0, 0.0, 1.0 + f32::EPSILON].into_iter().flat_map(|c| vec![c; d]).collect();
    let of = |x: f32| Problem { d, x: vec![x; d], c: c.clone() };
    // Subtracting the mean from -1 has no effect in `f32`.
    check_lengths(&of(-1.0), Product::Bf16, "rounded difference");
    let mut even = of(1e-24);
    even.c.fill(0.0);
    even.c[..d].fill(-1.0);
    even.c[2 * d..].fill(1.0);
    // The squares of all values are 0 in `f32`.
    check_lengths(&even, Product::Bf16, "underflow");
}

/// Rows for which the roundings of the arbiter would exceed the bounds do not suit.
#[test]
fn rows_far_away_do_not_suit() {
    let mut problem = Problem::bytes(16, 40, 70, 1);
    let packed = problem.packed(Isa::Scalar);
    let low = LowCenters::new(&packed, Product::Bf16).expect("plain centers");
    assert!(loaded(&problem, &packed, &low).is_some());
    problem.x[70] = 2.0 * low.farthest;
    assert!(loaded(&problem, &packed, &low).is_none());
}

/// Large terms that cancel hide a small one, by no more than the error says.
#[test]
fn the_excess_has_an_error() {
    let mut x = [0.0; 24];
    (x[0], x[8], x[16]) = (2f32.powi(27), 1.0, 2f32.powi(27));
    let mut mean = x;
    mean[16] = -mean[16];
    let (found, error) = excess(&x, &mean);
    assert!((found - 2.0).abs() <= error && found != 2.0, "{found} {error}");
}

/// An engine whose values are off by a share of their bounds, in the direction that hides the nearest center.
struct Faulty {
    /// The true values, rows by slots.
    values: Vec<Vec<f64>>,
    share: f64,
}

impl Faulty {
    fn new(problem: &Problem, product: Product, share: f64) -> Self {
        let packed = problem.packed(Isa::Scalar);
        let low = LowCenters::new(&packed, product).expect("plain centers");
        let values = problem.rows().iter().map(|x| {
            let moved: Vec<f32> =
                x.iter().zip(&packed.shift).map(|(&x, &s)| moved(x, s, packed.scale)).collect();
            let read = if product == Product::Bytes { x } else { &moved };
            let excess: f64 =
                read.iter().zip(&low.mean).map(|(&x, &m)| 2.0 * f64::from(x) * f64::from(m)).sum();
            let sq_norm: f64 = moved.iter().map(|&x| f64::from(x).powi(2)).sum();
            let scale = f64::from(packed.scale);
            let value = |slot: usize| match low.order[slot] {
                u32::MAX => f64::INFINITY,
                j => sq_dist(x, packed.centers().row(j as usize)) * scale * scale - sq_norm + excess,
            };
            (0..low.panels * PANEL).map(value).collect()
        });
        Self { values: values.collect(), share }
    }
}

impl Engine for Faulty {
    type Vectors = ScalarF32;

    fn block(
        &self,
        product: Product,
        a: [&[Tile]; 2],
        b: [&[Tile]; 2],
        sums: &mut Sums,
        between: impl FnMut(usize),
    ) {
        Emulated.block(product, a, b, sums, between);
    }

    fn disturb(&self, slot: usize, row: usize, values: &mut Line, bounds: &Line) {
        for (r, true_values) in self.values.iter().skip(row).take(16).enumerate() {
            let least = true_values.iter().copied().fold(f64::INFINITY, f64::min);
            let sign = if true_values[slot] == least { 1.0 } else { -1.0 };
            // What is computed is within the bounds of what is true.
            let off = (f64::from(values.0[r]) - true_values[slot]).abs();
            assert!(off.is_nan() || off <= f64::from(bounds.0[r]), "{off} {}", bounds.0[r]);
            values.0[r] = (true_values[slot] + sign * self.share * f64::from(bounds.0[r])) as f32;
        }
    }
}

/// Any error within the bounds leaves all labels as they are; errors far above them change some.
#[test]
fn errors_within_the_bounds_change_no_label() {
    for product in [Product::Bytes, Product::Bf16] {
        for (d, k) in [(20, 33), (64, 50), (130, 100), (300, 17)] {
            for seed in 0..4 {
                // Not more rows than a strip: `disturb` counts them from its first.
                let problem = Problem::bytes(60, k, d, seed);
                for share in [0.999, 0.5, -0.999] {
                    let engine = Faulty::new(&problem, product, share);
                    let [found, wanted] = both(&problem, product, &engine).expect("plain centers");
                    assert_eq!(found, wanted, "{product:?} d={d} k={k} {share}");
                }
                let engine = Faulty::new(&problem, product, 20.0);
                // Debug builds notice.
                let found = catch_unwind(AssertUnwindSafe(|| both(&problem, product, &engine)));
                if let Ok(Some([found, wanted])) = found {
                    assert_ne!(found, wanted, "{product:?} d={d} k={k}");
                }
            }
        }
    }
}

/// Low precision starts by itself when enough rows have come, and its labels are those of the other tiers.
#[test]
fn many_rows_start_it() {
    let problem = Problem::bytes(3000, 400, 100, 4);
    let labels = |packed: &PackedCenters<f32>| {
        let (mut labels, mut scratch) = (vec![u32::MAX; 3000], Scratch::default());
        for (start, labels) in (0..3000).step_by(100).zip(labels.chunks_mut(100)) {
            nearest(problem.rows().slice(start, start + 100), packed, labels, &mut scratch);
        }
        labels
    };
    let mut wanted = Vec::new();
    for isa in Isa::available() {
        let packed = problem.packed(isa);
        let found = labels(&packed);
        let made = certified(&packed).is_some_and(|by| match isa {
            Isa::Amx => by.bytes.get().is_some(),
            _ => by.sketches.get().is_some(),
        });
        assert_eq!(made, isa.multiplies_bytes(), "{isa}");
        assert!(wanted.is_empty() || found == wanted, "{isa}");
        wanted = found;
    }
}

/// The tile unit multiplies bytes if rows are bytes, and bf16 otherwise.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn tiles_start_by_themselves() {
    if crate::kernel::tests::amx::tiles().is_none() {
        return;
    }
    let (n, k, d) = (2100, 80, 70);
    for (problem, product) in [
        (Problem::bytes(n, k, d, 4), Product::Bytes),
        (Problem::floats(n, k, d, 1.0, 0.0, 4), Product::Bf16),
        (Problem::floats(n, k, d, 1e-20, 3.0, 4), Product::Bf16),
    ] {
        let plain = problem.packed(Isa::Avx512);
        let mut packed = problem.packed(Isa::Avx512);
        packed.shortcut = Some(Box::new(Certified::new(Isa::Amx, k, d).expect("tiles pay")));
        let (mut found, mut wanted) = (vec![u32::MAX; n], vec![u32::MAX; n]);
        let mut scratch = Scratch::default();
        for (start, found) in (0..n).step_by(300).zip(found.chunks_mut(300)) {
            nearest(problem.rows().slice(start, start + 300), &packed, found, &mut scratch);
        }
        nearest(problem.rows(), &plain, &mut wanted, &mut scratch);
        assert_eq!(found, wanted, "{product:?}");
        for other in [Product::Bytes, Product::Bf16] {
            let by = certified(&packed).expect("set above");
            let made = match other {
                Product::Bytes => by.bytes.get(),
                Product::Bf16 => by.halves.get(),
            };
            assert_eq!(made.is_some_and(Option::is_some), other == product, "{product:?}");
        }
    }
}

/// Rows with other columns than the centers are an error, also when low precision has started.
#[test]
#[should_panic(expected = "different numbers of columns")]
fn columns_must_match() {
    let problem = Problem::bytes(3000, 400, 100, 4);
    let packed = problem.packed(*Isa::available().last().expect("at least scalar"));
    nearest(MatRef::new(&problem.x, 120), &packed, &mut vec![0; 2500], &mut Scratch::default());
}

/// Labels are those of the centers as they are, also after some were packed anew.
#[test]
fn placed_centers_count() {
    let problem = Problem::bytes(3000, 400, 100, 4);
    let labels = |isa| {
        let mut packed = problem.packed(isa);
        let (mut labels, mut scratch) = ([vec![u32::MAX; 3000], vec![u32::MAX; 3000]], Scratch::default());
        nearest(problem.rows(), &packed, &mut labels[0], &mut scratch);
        packed.place(0, 0, &problem.c[100..200]);
        packed.place(1, 1, &problem.c[..100]);
        nearest(problem.rows(), &packed, &mut labels[1], &mut scratch);
        labels
    };
    for isa in Isa::available().into_iter().filter(|isa| isa.multiplies_bytes()) {
        let [before, after] = labels(isa);
        assert_ne!(before, after, "{isa}");
        assert_eq!([before, after], labels(Isa::Scalar), "{isa}");
    }
}
