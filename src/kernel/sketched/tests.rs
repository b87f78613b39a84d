//! Sketches against exact distances in `f64`.

use super::basis::UNIT;
use super::basis::{Directions, mix};
use super::query::Query;
use super::sketch::UNKNOWN;
use super::{
    Basis, Bounds, Compared, Fine, FinePoint, FineSketch, FineSketching, Lists, PackedSketches, Paths, Scan,
    Sketch, Sketching,
};
use crate::kernel::Isa;
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

/// Kinds of rows.
const KINDS: usize = 8;

/// Rows of a kind that is hard for sketches: clusters, a falling spectrum, few directions, constant columns,
/// duplicates, a far outlier, an offset.
fn rows(kind: usize, n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, kind as u64);
    let middles: Vec<f64> = (0..6 * d).map(|_| 6.0 * rng.unit()).collect();
    let mut out: Vec<f64> = (0..n)
        .flat_map(|i| {
            let weights = [rng.unit(), rng.unit(), rng.unit()];
            (0..d)
                .map(|t| {
                    let x = rng.unit() - 0.5;
                    match kind {
                        0 => middles[i % 6 * d + t] + x,
                        1 => x * 0.9f64.powi(t as i32 % 80),
                        2 => (0..3).map(|r| weights[r] * middles[r * d + t]).sum(),
                        3 if t % 3 == 0 => 0.25,
                        4 => (4.0 * x).round(),
                        5 if i == 7 => 1e4 * x,
                        6 => x + 300.0,
                        _ => x * x * x,
                    }
                })
                .collect::<Vec<f64>>()
        })
        .collect();
    // Duplicates.
    let first = out[..d].to_vec();
    out[(n - 1) * d..].copy_from_slice(&first);
    out
}

/// Sketches of rows.
struct Made {
    basis: Basis,
    codes: Vec<u8>,
    sketches: Vec<Sketch>,
}

impl Made {
    fn of<T: Compute>(basis: Basis, rows: MatRef<'_, T>) -> Self {
        let (mut codes, mut sketches) =
            (vec![0; rows.rows() * basis.width()], vec![Sketch::default(); rows.rows()]);
        Sketching::default().write(&basis, rows, &mut codes, &mut sketches);
        Self { basis, codes, sketches }
    }

    fn one(&self, i: usize) -> (&Sketch, &[u8]) {
        (&self.sketches[i], &self.codes[i * self.basis.width()..][..self.basis.width()])
    }

    /// The squared distance of the stored points of two rows.
    fn apart(&self, i: usize, j: usize) -> f64 {
        let ((a, a_codes), (b, b_codes)) = (self.one(i), self.one(j));
        let at = |s: &Sketch, code: u8| f64::from(s.unit) * (f64::from(code) - 128.0);
        let within: f64 = a_codes.iter().zip(b_codes).map(|(&x, &y)| (at(a, x) - at(b, y)).powi(2)).sum();
        within + (f64::from(a.rest) - f64::from(b.rest)).powi(2)
    }

    /// Whether the stored points are farther apart than the errors allow for rows at this distance.
    fn is_wrong(&self, (i, j): (usize, usize), distance: f64) -> bool {
        let errors = f64::from(self.sketches[i].error) + f64::from(self.sketches[j].error);
        self.apart(i, j).sqrt() > distance + errors
    }
}

/// The exact distance of two rows, in units of sketches.
fn distance<T: Compute>(basis: &Basis, a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum::<f64>().sqrt() * basis.factor()
}

fn check<T: Compute>(kind: usize, (n, d): (usize, usize), scale: f64) {
    let values: Vec<T> = rows(kind, n, d, d as u64).into_iter().map(|x| T::from_f64(x * scale)).collect();
    let rows = MatRef::new(&values, d);
    let what = format!("kind {kind}, {d} columns, scale {scale}");
    let Some(basis) = Basis::learn(rows, Executor::caller()) else {
        assert!(kind == 3 && d == 1, "{what}: only equal rows have no basis");
        return;
    };
    let made = Made::of(basis, rows);
    let apart = |i: usize, j: usize| distance(&made.basis, rows.row(i), rows.row(j));
    for i in 0..n {
        for j in 0..i {
            assert!(!made.is_wrong((i, j), apart(i, j)), "{what}: rows {i} and {j}");
        }
    }
    // The first rows as centers, in falling order.
    let k = n.min(101);
    let width = made.basis.width();
    let order: Vec<u32> = (0..k as u32).rev().collect();
    let packed = PackedSketches::new(&made.codes[..k * width], &made.sketches[..k], width, &order);
    // Every third row has a center of its own.
    let own = |i: usize| i.is_multiple_of(3).then_some((i * 5 % k) as u32);
    let radius = |i: usize| apart(i, (i * 7 + 1) % k) as f32;
    let mut scan = Scan::default();
    scan.resize(n);
    for i in 0..n {
        let place = own(i).map(|j| packed.place_of(j));
        scan.set(i, &made.sketches[i], radius(i).next_up(), place);
    }
    for (isa, sets) in Isa::available().into_iter().flat_map(|isa| [1, 2, 3].map(|sets| (isa, sets))) {
        let mut paths = Paths::new(packed.n_groups(), sets);
        // Paths must not change what holds for the centers of today.
        assert!(paths.extend((0..k).map(|place| place as f32)));
        // Rows in an order of their own, of which each set has others.
        let is_listed = |i: usize, set: usize| !(i * 3 + set).is_multiple_of(7);
        let mut values = vec![f32::INFINITY; n * paths.stride()];
        let mut bounds = Bounds { values: &mut values, paths: &paths };
        for (i, set) in (0..n).flat_map(|i| (0..paths.len()).map(move |set| (i, set))) {
            let bound = if is_listed(i, set) { 0.0 } else { f32::INFINITY };
            bounds.lower(i, set * paths.groups, bound);
        }
        let mut lists = Lists::default();
        lists.clear(paths.len(), n);
        for i in 0..n {
            bounds.list(if n.is_multiple_of(17) { i } else { i * 17 % n }, 1.0, &mut lists);
        }
        scan.isa = isa;
        let hits = scan.within(&packed, &made.codes, Compared::Listed(&lists, &mut bounds));
        let mut found = vec![false; n * k];
        for hit in hits {
            let (i, j) = (hit.row as usize, hit.center as usize);
            found[i * k + j] = true;
            assert!(f64::from(hit.bound) <= apart(i, j), "{isa}, {what}: row {i}, center {j}");
            assert_ne!(own(i), Some(hit.center), "{isa}, {what}: row {i}");
        }
        for i in 0..n {
            let mut least = f64::INFINITY;
            for j in (0..k).filter(|&j| is_listed(i, packed.group_of(j as u32) / paths.groups)) {
                if !found[i * k + j] && own(i) != Some(j as u32) {
                    assert!(apart(i, j) > f64::from(radius(i)), "{isa}, {what}: row {i}, center {j}");
                    least = least.min(apart(i, j));
                }
            }
            assert!(f64::from(bounds.least(i)) <= least, "{isa}, {what}: row {i}, {least}");
        }
    }
}

#[test]
fn a_scan_finds_every_center_within_the_radius() {
    for kind in 0..KINDS {
        for (n, d) in [(40, 1), (60, 5), (110, 16), (130, 33), (150, 64), (90, 130), (70, 300)] {
            check::<f32>(kind, (n, d), 1.0);
            check::<f64>(kind, (n, d), 1e20);
        }
        for scale in [1e-25, 1e-10, 1e10, 1e25] {
            check::<f32>(kind, (60, 40), scale);
        }
    }
}

/// Every center within the radius is found, without a radius in advance, by learned directions, columns and mixed
/// columns.
fn check_closest(kind: usize, (n, d): (usize, usize), directions: Option<Directions>) {
    let values: Vec<f32> = rows(kind, n, d, d as u64).into_iter().map(|x| x as f32).collect();
    let rows = MatRef::new(&values, d);
    let mut basis = match directions {
        None => Basis::learn(rows, Executor::caller()),
        Some(_) => Basis::of_columns(rows),
    }
    .unwrap();
    if let Some(directions) = directions {
        (basis.directions, basis.rounding) = (directions, 20.0 * UNIT);
    }
    let what = format!("kind {kind}, {n} rows, {d} columns");
    let made = Made::of(basis, rows);
    let apart = |i: usize, j: usize| distance(&made.basis, rows.row(i), rows.row(j));
    let (k, width) = (n.min(101), made.basis.width());
    let order: Vec<u32> = (0..k as u32).rev().collect();
    let packed = PackedSketches::new(&made.codes[..k * width], &made.sketches[..k], width, &order);
    for isa in Isa::available() {
        let (mut radii, mut own) = (vec![0.0; n], vec![0; n]);
        let paths = Paths::new(packed.n_groups(), 2);
        let mut values = vec![f32::INFINITY; n * paths.stride()];
        let mut bounds = Bounds { values: &mut values, paths: &paths };
        let radius_of = |row: u32, center: u32, upper: f32| {
            own[row as usize] = center as usize;
            let (i, exact) = (row as usize, apart(row as usize, center as usize));
            assert!(f64::from(upper) >= exact, "{isa}, {what}: row {i}, {upper} {exact}");
            radii[i] = if i % 2 == 0 { upper } else { (exact as f32).next_up() };
            radii[i]
        };
        let mut scan = Scan { isa, ..Scan::default() };
        let rows = (&made.codes[..], &made.sketches[..]);
        let hits = scan.closest(&packed, rows, usize::MAX, radius_of, Some(&mut bounds));
        assert!(hits.is_sorted_by_key(|hit| hit.row), "{isa}, {what}");
        let mut found = vec![false; n * k];
        for hit in &*hits {
            let (i, j) = (hit.row as usize, hit.center as usize);
            found[i * k + j] = true;
            assert!(f64::from(hit.bound) <= apart(i, j), "{isa}, {what}: row {i}, center {j}");
        }
        for (i, radius) in radii.iter().enumerate() {
            for j in (0..k).filter(|&j| apart(i, j) <= f64::from(*radius)) {
                assert!(found[i * k + j], "{isa}, {what}: row {i}, center {j}");
            }
            let others = (0..k).filter(|&j| j != own[i]).map(|j| apart(i, j)).fold(f64::INFINITY, f64::min);
            assert!(f64::from(bounds.least(i)) <= others, "{isa}, {what}: row {i}");
        }
        // Nothing but the nearest centers of separate clusters.
        assert!(kind != 0 || d < 100 || hits.len() < n * k / 4, "{isa}, {what}: {}", hits.len());
    }
}

#[test]
fn the_smallest_estimate_gives_a_radius_that_holds_the_nearest_center() {
    for kind in 0..KINDS {
        for (n, d) in [(60, 5), (110, 16), (200, 33), (90, 130), (70, 600)] {
            check_closest(kind, (n, d), None);
            check_closest(kind, (n, d), Some(Directions::Columns));
            check_closest(kind, (n, d), Some(Directions::Mixed));
        }
    }
}

/// A center without a sketch is listed for all rows, but gives none of them its radius.
#[test]
fn a_center_without_a_sketch_gives_no_radius() {
    let (n, d) = (80, 64);
    let mut values: Vec<f32> = rows(0, n, d, 3).into_iter().map(|x| x as f32).collect();
    let basis = Basis::learn(MatRef::new(&values, d), Executor::caller()).unwrap();
    values[2 * d] = 3e30;
    let made = Made::of(basis, MatRef::new(&values, d));
    let (k, width) = (60, made.basis.width());
    let order: Vec<u32> = (0..k as u32).collect();
    let packed = PackedSketches::new(&made.codes[..k * width], &made.sketches[..k], width, &order);
    let mut count = 0;
    let radius_of = |row: u32, center: u32, upper: f32| {
        assert!(row == 2 || center != 2, "row {row}");
        count += 1;
        upper
    };
    let mut scan = Scan::default();
    let hits = scan.closest(&packed, (&made.codes, &made.sketches), usize::MAX, radius_of, None);
    assert_eq!(count, n);
    assert!((0..n as u32).all(|row| hits.iter().any(|hit| hit.row == row && hit.center == 2)));
    assert!(hits.iter().filter(|hit| hit.row != 2).count() < n * k / 3, "{}", hits.len());
}

/// The bounds of sets without a center within the radius say more than the radius.
#[test]
fn bounds_are_near_the_distances() {
    let (n, d, k) = (120, 64, 90);
    let values: Vec<f32> = rows(1, n, d, 6).into_iter().map(|x| x as f32).collect();
    let rows = MatRef::new(&values, d);
    let made = Made::of(Basis::learn(rows, Executor::caller()).unwrap(), rows);
    let order: Vec<u32> = (0..k as u32).collect();
    let width = made.basis.width();
    let packed = PackedSketches::new(&made.codes[..k * width], &made.sketches[..k], width, &order);
    let paths = Paths::new(packed.n_groups(), 1);
    let mut values = vec![f32::INFINITY; n * paths.stride()];
    let mut bounds = Bounds { values: &mut values, paths: &paths };
    let mut scan = Scan::default();
    scan.resize(n);
    (0..n).for_each(|i| scan.set(i, &made.sketches[i], 1e-3, Some(i as u32)));
    let mut lists = Lists::default();
    lists.clear(1, n);
    for i in 0..n {
        bounds.lower(i, 0, 0.0);
        bounds.list(i, 0.0, &mut lists);
    }
    scan.within(&packed, &made.codes, Compared::Listed(&lists, &mut bounds));
    // The last row equals the first.
    for i in 0..n - 1 {
        let apart = |j: usize| distance(&made.basis, rows.row(i), rows.row(j));
        let least = (0..k).filter(|&j| j != i).map(apart).fold(f64::INFINITY, f64::min);
        let found = f64::from(bounds.least(i));
        assert!(found <= least && (found > 0.8 * least || least < 0.1), "row {i}: {found} {least}");
    }
}

/// A center is listed if its error puts it within the radius, however large the error is.
#[test]
fn a_center_with_a_large_error_is_listed() {
    let (d, k) = (64, 100);
    let values: Vec<f32> = rows(1, k, d, 8).into_iter().map(|x| x as f32).collect();
    let rows = MatRef::new(&values, d);
    let made = Made::of(Basis::learn(rows, Executor::caller()).unwrap(), rows);
    let order: Vec<u32> = (0..k as u32).collect();
    for i in 0..30 {
        let far = (0..k).max_by(|&a, &b| made.apart(i, a).total_cmp(&made.apart(i, b))).unwrap();
        let (apart, (sketch, codes)) = (made.apart(i, far).sqrt() as f32, made.one(i));
        let radius = 0.1 * apart;
        let mut packed = PackedSketches::new(&made.codes, &made.sketches, made.basis.width(), &order);
        packed.set_error(far as u32, apart - 0.5 * radius - sketch.error);
        for isa in Isa::available() {
            let mut scan = Scan { isa, ..Scan::default() };
            let hits = scan.closest(&packed, (codes, &[*sketch]), usize::MAX, |_, _, _| radius, None);
            assert!(hits.iter().any(|hit| hit.center as usize == far), "{isa}: row {i}");
        }
    }
}

/// Distances are rounded outward.
#[test]
fn limits_of_exact_distances_are_rounded_outward() {
    let mut rng = Rng::keyed(13, Purpose::Seeding, 0);
    for _ in 0..20_000 {
        let (sq_dist, factor) = (10f64.powf(60.0 * rng.unit() - 30.0), 2f64.powi(rng.below(20) as i32 - 10));
        let exact = sq_dist.sqrt() * factor;
        assert!(f64::from(super::upper_of(sq_dist, factor)) >= exact * (1.0 + 1e-12), "{sq_dist}");
        assert!(f64::from(super::lower_of(sq_dist, factor)) <= exact * (1.0 - 1e-12), "{sq_dist}");
    }
    assert!(super::upper_of(0.0, 1.0) > 0.0);
}

/// Mixing keeps lengths and products, and makes peaks of few columns smaller.
#[test]
fn mixing_is_orthogonal() {
    for d in [16, 48, 112, 512, 784] {
        let values: Vec<f32> = rows(1, 2, d, 9).into_iter().map(|x| x as f32).collect();
        let (a, b) = values.split_at(d);
        let (mut mixed_a, mut mixed_b) = (a.to_vec(), b.to_vec());
        mix(&mut mixed_a);
        mix(&mut mixed_b);
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        assert!((product(a, b) - product(&mixed_a, &mixed_b)).abs() < 1e-5, "{d}");
        assert!((product(a, a) - product(&mixed_a, &mixed_a)).abs() < 1e-5, "{d}");
    }
}

/// Mixing rounds, and by no more than the basis says beyond the rounding of columns.
#[test]
fn the_rounding_of_mixing_is_needed() {
    let mut most = 0.0f64;
    for d in [32, 112, 512, 784] {
        let mut values: Vec<f32> = rows(1, 40, d, 5).into_iter().map(|x| x as f32).collect();
        values.iter_mut().step_by(d).for_each(|v| *v *= 8.0);
        let basis = Basis::of_columns(MatRef::new(&values, d)).unwrap();
        assert!(matches!(basis.directions, Directions::Mixed), "{d}");
        for row in values.chunks_exact(d) {
            let (mut mixed, mut exact) =
                (row.to_vec(), row.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
            mix(&mut mixed);
            mix(&mut exact);
            let length = exact.iter().map(|v| v * v).sum::<f64>().sqrt();
            let off = mixed.iter().zip(&exact).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum::<f64>().sqrt();
            assert!(off <= (basis.rounding - 6.0 * UNIT) * length, "{d}: {off}");
            most = most.max(off / length);
        }
    }
    assert!(most > 0.1 * UNIT, "{most}");
}

/// Rows whose lengths are in few columns are mixed; others are not.
#[test]
fn columns_are_mixed_where_it_lowers_peaks() {
    let basis = |few: usize| {
        let values: Vec<f32> =
            (0..80 * 128).map(|i| if i % 128 < few { (i * 37 % 11) as f32 } else { 0.01 }).collect();
        Basis::of_columns(MatRef::new(&values, 128)).unwrap()
    };
    assert!(matches!(basis(3).directions, Directions::Mixed));
    let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
    let even: Vec<f32> = (0..80 * 128).map(|_| if rng.unit() < 0.5 { 1.0 } else { -1.0 }).collect();
    let even = Basis::of_columns(MatRef::new(&even, 128)).unwrap();
    assert!(matches!(even.directions, Directions::Columns));
}

#[test]
fn rows_without_a_sketch_exclude_nothing() {
    let values: Vec<f32> = rows(0, 50, 20, 1).into_iter().map(|x| x as f32).collect();
    let basis = Basis::learn(MatRef::new(&values, 20), Executor::caller()).unwrap();
    // The squares of the last one would leave no room for sums.
    for bad in [f32::NAN, f32::INFINITY, 3e30, 1e17] {
        let mut some = values[..40].to_vec();
        some[3] = bad;
        let made = Made::of(basis.clone(), MatRef::new(&some, 20));
        assert!(made.sketches[0].error >= UNKNOWN && made.sketches[1].error < 1.0, "{bad}");
        let width = basis.width();
        let packed = PackedSketches::new(&made.codes, &made.sketches, width, &[0, 1]);
        let mut scan = Scan::default();
        scan.resize(2);
        (0..2).for_each(|i| scan.set(i, &made.sketches[i], 0.0, None));
        let hits = scan.within(&packed, &made.codes, Compared::All(&[0, 1]));
        for i in 0..2 {
            assert!(hits.iter().any(|hit| hit.row == i && hit.center == 0), "{bad}: row {i}");
        }
    }
}

#[test]
fn rows_of_unsuitable_scale_have_no_basis() {
    let basis = |x: f64| Basis::learn(MatRef::new(&[x, 0.0, 0.0, 0.0], 2), Executor::caller());
    assert!(basis(1.0).is_some());
    assert!(
        basis(1e-40).is_none() && basis(1e40).is_none() && basis(0.0).is_none() && basis(f64::NAN).is_none()
    );
}

/// Without the error of a row, or of a center, a distance that is too large shows.
#[test]
fn both_errors_are_needed() {
    let (n, d) = (200, 60);
    let values: Vec<f32> = rows(1, n, d, 4).into_iter().map(|x| x as f32).collect();
    let rows = MatRef::new(&values, d);
    let mut made = Made::of(Basis::learn(rows, Executor::caller()).unwrap(), rows);
    let wrong = |made: &Made| {
        let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.filter(|&(i, j)| made.is_wrong((i, j), distance(&made.basis, rows.row(i), rows.row(j)))).count()
    };
    assert_eq!(wrong(&made), 0);
    // Rounding to whole numbers.
    made.sketches.iter_mut().for_each(|sketch| sketch.error *= 0.1);
    assert!(wrong(&made) > 0);
}

/// Two directions that are not quite orthogonal make rows seem farther apart than they are. The coordinates are whole
/// multiples of the unit, so that no other error hides it.
#[test]
fn the_defect_of_the_directions_is_needed() {
    let (d, lean) = (96, 1.0 / 127.0f32);
    let mut basis = Basis::learn(MatRef::new(&rows(1, 300, d, 2), d), Executor::caller()).unwrap();
    basis.mean.fill(0.0);
    (basis.factor, basis.width, basis.rounding) = (1.0, 16, 1e-7);
    let mut matrix = vec![0.0; d * 16];
    matrix[..2].copy_from_slice(&[1.0, lean]);
    matrix[16 + 1] = (1.0 - lean * lean).sqrt();
    basis.directions = Directions::Learned(matrix);
    basis.defect = f64::from(lean) * 1.5;
    let mut values = vec![0.0f32; 2 * d];
    (values[0], values[d + 1]) = (127.0, -127.0);
    let rows = MatRef::new(&values, d);
    let is_wrong = |basis: Basis| {
        let apart = distance(&basis, rows.row(0), rows.row(1));
        Made::of(basis, rows).is_wrong((0, 1), apart)
    };
    assert!(!is_wrong(basis.clone()));
    assert!(is_wrong(Basis { defect: 0.0, ..basis }));
}

/// A basis of given directions, for which all errors are known.
fn crafted(d: usize, directions: &[Vec<f32>]) -> Basis {
    let mut basis = Basis::learn(MatRef::new(&rows(1, 300, d, 2), d), Executor::caller()).unwrap();
    basis.mean.fill(0.0);
    (basis.factor, basis.width) = (1.0, 16);
    (basis.rounding, basis.defect) = (1e-9, 1e-9);
    let mut matrix = vec![0.0; d * 16];
    for (j, direction) in directions.iter().enumerate() {
        for (t, &v) in direction.iter().enumerate() {
            matrix[t * 16 + j] = v;
        }
    }
    basis.directions = Directions::Learned(matrix);
    basis
}

/// The length outside is the root of a difference of large squares, so it needs an error of its own.
#[test]
fn the_error_of_the_rest_is_needed() {
    let d = 96;
    let first = (0..d).map(|t| f32::from(u8::from(t == 0))).collect();
    let basis = crafted(d, &[first]);
    // The first coordinate is a whole multiple of the unit. The others are lost in the square of the first.
    let mut values = vec![1e-3f32; d];
    values[0] = 127.0;
    let made = Made::of(basis, MatRef::new(&values, d));
    let rest = 95f64.sqrt() * f64::from(1e-3f32);
    let (off, error) = ((f64::from(made.sketches[0].rest) - rest).abs(), f64::from(made.sketches[0].error));
    assert!(off <= error, "{off} {error}");
    // More than all other terms allow.
    assert!(off > 4.0 * 127.0 / f64::from(1 << 24), "{off}");
}

/// Sums of the product are rounded in one direction if all terms are equal.
#[test]
fn the_rounding_of_the_product_is_needed() {
    let d = 128;
    let length = (d as f32).sqrt();
    let mut basis = crafted(d, &[vec![1.0 / length; d]]);
    let share = f64::from(1.0 / length);
    // The direction as rounded is not quite of length 1.
    basis.defect = (share * share * d as f64 - 1.0).abs() + 1e-12;
    let mut most = 0.0f64;
    for step in 1..40 {
        let values = vec![0.1 + 0.013 * step as f32; d];
        let made = |rounding: f64| Made::of(Basis { rounding, ..basis.clone() }, MatRef::new(&values, d));
        let true_product = f64::from(values[0]) * share * d as f64;
        let off = |made: &Made| {
            let product = f64::from(made.sketches[0].unit) * (f64::from(made.codes[0]) - 128.0);
            (product - true_product).abs() / f64::from(made.sketches[0].error)
        };
        let rounding = 2.0 * (d as f64 + 4.0) / f64::from(1 << 24);
        assert!(off(&made(rounding)) <= 1.0);
        // The part outside of the direction is nothing but rounding.
        let mut without = made(0.0);
        without.sketches[0].error = (2.5 * true_product / f64::from(1 << 24)) as f32;
        most = most.max(off(&without));
    }
    assert!(most > 1.0, "{most}");
}

/// What follows from two stored points and their errors is rounded outward, also where the points nearly coincide and
/// where errors are much larger than distances.
#[test]
fn limits_from_stored_points_are_rounded_outward() {
    let (width, mut rng) = (16, Rng::keyed(12, Purpose::Seeding, 0));
    for trial in 0..20_000 {
        let mut draw = || rng.unit() as f32;
        let unit = 0.5 + draw();
        // The same unit, nearly the same, or another one. One of the points may be near the fixed point.
        let mut units = [unit, unit * [1.0, 1.0 + 1e-6 * draw(), 0.5 + draw()][trial % 3]];
        if let at @ (0 | 1) = trial % 7 {
            units[at] *= 1e-4;
        }
        let first: Vec<u8> = (0..width).map(|_| (1.0 + 254.0 * draw()) as u8).collect();
        let mut second = first.clone();
        if trial % 2 == 0 {
            second[3] = second[3].wrapping_add(1).max(1);
            second[5..5 + trial % 11].iter_mut().for_each(|code| *code = 1 + (254.0 * draw()) as u8);
        }
        let rests = [draw(), draw()].map(|rest| rest * [0.0, 1.0, 100.0][trial / 3 % 3]);
        let mut errors = [draw(), draw()].map(|error| error * [0.0, 1.0, 1000.0][trial / 9 % 3]);
        let share = 1.0 - 10f32.powf(-6.0 * draw());
        let codes = [first, second];
        let at = |i: usize, t: usize| f64::from(units[i]) * (f64::from(codes[i][t]) - 128.0);
        let within: f64 = (0..width).map(|t| (at(0, t) - at(1, t)).powi(2)).sum();
        let [a, b] = rests.map(f64::from);
        let (near, far) = ((within + (a - b).powi(2)).sqrt(), (within + (a + b).powi(2)).sqrt());
        match trial % 5 {
            // The error of the center is nearly the distance.
            0 => errors = [0.0, near as f32 * share],
            // One error is lost in the other.
            1 => errors[1] = errors[0] * (1.0 - share),
            _ => {}
        }
        let sketches = [0, 1].map(|i| Sketch {
            unit: units[i],
            error: errors[i],
            rest: rests[i],
            square: ((0..width).map(|t| at(i, t).powi(2)).sum::<f64>() + f64::from(rests[i]).powi(2)) as f32,
        });
        let [of_row, of_center] = errors.map(f64::from);
        let packed = PackedSketches::new(&codes[1], &sketches[1..], width, &[0]);
        let group = &packed.groups[0];
        let product = (0..width).map(|t| (i32::from(codes[0][t]) - 128) * (i32::from(codes[1][t]) - 128));
        let product = product.sum::<i32>() as f32;
        let query = Query::new(&sketches[0], 0.0);
        let along = query.along(product, group, 0);
        // No distance is negative.
        let least = (near - of_row - of_center).max(0.0);
        let bound = f64::from(query.bound(along, group, 0));
        assert!(bound <= least, "{trial}: bound {bound} {least}");
        let upper = f64::from(query.upper(along, group, 0));
        assert!(upper >= far + of_row + of_center, "{trial}: upper {upper} {far}");
        let beyond = f64::from(query.beyond(along + group.least[0], 0.0, errors[1]));
        assert!(beyond <= least, "{trial}: beyond {beyond} {least}");
        // A center at the radius is listed.
        let query = Query::new(&sketches[0], (least as f32).next_up());
        let compared = along + group.least[0] + query.slope * errors[1];
        assert!(compared < query.limit, "{trial}: {compared} {}", query.limit);
        let beyond = f64::from(query.beyond(compared, query.reach(), errors[1]));
        assert!(beyond <= least, "{trial}: beyond the radius {beyond} {least}");
    }
}

/// Moving rows to the mean rounds, by no more than the basis says.
#[test]
fn the_rounding_of_columns_is_needed() {
    let (n, d) = (40, 64);
    let values: Vec<f32> = rows(6, n, d, 7).into_iter().map(|x| x as f32).collect();
    let rows = MatRef::new(&values, d);
    let mut basis = Basis::of_columns(rows).unwrap();
    basis.mean.iter_mut().for_each(|m| *m *= 0.01);
    let (mut moved, mut most) = (vec![0.0; n * d], 0.0f64);
    basis.center(rows, &mut moved, &mut vec![0.0; n]);
    for (row, moved) in rows.iter().zip(moved.chunks_exact(d)) {
        let (mut off, mut square) = (0.0, 0.0);
        for ((&x, &m), &y) in row.iter().zip(&basis.mean).zip(moved) {
            let exact = (f64::from(x) - f64::from(m)) * basis.factor;
            off += (f64::from(y) - exact).powi(2);
            square += exact * exact;
        }
        assert!(off.sqrt() <= basis.rounding * square.sqrt(), "{off} {square}");
        most = most.max(off);
    }
    assert!(most > 0.0);
}

/// The sketch of one row with a crafted basis.
fn sketched(basis: Basis, row: &[f32]) -> Made {
    Made::of(basis, MatRef::new(row, row.len()))
}

/// A basis of all columns as they are, without errors.
fn exact_columns(d: usize) -> Basis {
    let mut basis = crafted(16, &[]);
    (basis.directions, basis.dim, basis.width, basis.mean) = (Directions::Columns, d, d, vec![0.0; d]);
    (basis.rounding, basis.defect) = (0.0, 0.0);
    basis
}

/// The error of a sketch is at least what rounding to whole numbers takes from the row, and at least the rounding of
/// coordinates.
#[test]
fn errors_of_sketches_are_rounded_up() {
    let check = |row: &[f32]| {
        let made = sketched(exact_columns(row.len()), row);
        let sketch = &made.sketches[0];
        let stored = made.codes.iter().map(|&code| f64::from(sketch.unit) * (f64::from(code) - 128.0));
        let misses: f64 = row.iter().zip(stored).map(|(&x, near)| (f64::from(x) - near).powi(2)).sum();
        let length = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let error = f64::from(sketch.error);
        assert!(error >= misses.sqrt(), "{error} {}", misses.sqrt());
        assert!(error >= 2.0 * UNIT * length, "{error} {length}");
    };
    for i in 0..100u8 {
        // One unit is 1 plus some digits, or so small that squares of misses are 0 in `f32`.
        for (d, size) in [(16, 1.0 + f32::from(i) / 128.0), (32, 1e-22), (16_000, 1.0)] {
            if d < 100 || i < 10 {
                let rest = if d == 16 { 0.0 } else { 0.3 + 0.01 * f32::from(i % 10) };
                let mut row = vec![rest * size; d];
                row[..2].fill(127.0 * size);
                check(&row);
            }
        }
    }
}

/// The error of coordinates counts for the stored point, and for the length outside.
#[test]
fn the_error_of_a_sketch_has_every_term() {
    let mut basis = exact_columns(16);
    let mut row = [0.0f32; 16];
    (row[0], row[1]) = (127.0, 127.0);
    let length = 127.0 * 2f64.sqrt();
    for (rounding, defect) in [(1e-3, 0.0), (0.0, 1e-3)] {
        (basis.rounding, basis.defect) = (rounding, defect);
        let error = f64::from(sketched(basis.clone(), &row).sketches[0].error);
        assert!(error >= 1e-3 * length, "{rounding} {defect}: {error}");
    }
    // One direction, and a part outside of it.
    let d = 17;
    let first: Vec<f32> = (0..d).map(|t| f32::from(u8::from(t == 0))).collect();
    let mut basis = crafted(d, &[first]);
    let mut row = vec![0.0; d];
    (row[0], row[1]) = (127.0, 1.0);
    let square = 127.0 * 127.0 + 1.0;
    for (rounding, unsure) in [
        // Sums of squares in 16 lanes over 17 columns and 16 coordinates, and eight more roundings.
        (0.0, (17.0 / 8.0 + 16.0 / 8.0 + 40.0) * UNIT * square),
        (1e-4, 2.0 * 127.0 * 1e-4 * 127.0),
    ] {
        (basis.rounding, basis.defect) = (rounding, 0.0);
        let error = f64::from(sketched(basis.clone(), &row).sketches[0].error);
        let half = 0.5 * ((1.0 + unsure).sqrt() - f64::max(1.0 - unsure, 0.0).sqrt());
        assert!(
            error >= (half * half + (rounding * 127.0).powi(2)).sqrt() * (1.0 - 2e-3),
            "{rounding}: {error} {half}"
        );
    }
}

/// Rows with finer sketches, and some of them as centers, with a copy of each that is moved by little.
struct Finer<T> {
    made: Made,
    fine: Fine,
    bits: Vec<u8>,
    numbers: Vec<FineSketch>,
    centers: Vec<T>,
}

impl<T: Compute> Finer<T> {
    fn of(rows: MatRef<'_, T>, width: usize) -> Option<Self> {
        let (n, d) = (rows.rows(), rows.cols());
        let made = Made::of(Basis::learn_few(rows, width, Executor::caller())?, rows);
        let mut centers = Vec::new();
        for j in 0..12 {
            let (a, b) = (rows.row(j * 7 % n), rows.row((j * 5 + 1) % n));
            let mix = |share: f64| {
                move |(a, b): (&T, &T)| T::from_f64(a.to_f64() * (1.0 - share) + b.to_f64() * share)
            };
            centers.extend(a.iter().zip(b).map(mix(0.4)));
            centers.extend(a.iter().zip(b).map(mix(0.4 + 0.1 * 0.2f64.powi(j as i32))));
        }
        let mut fine = Fine::new(&made.basis, centers.len() / d)?;
        centers.chunks_exact(d).enumerate().for_each(|(j, center)| fine.set(j, center));
        let (mut bits, mut numbers) = (vec![0; n * fine.bytes()], vec![FineSketch::default(); n]);
        let of_rows = (&*made.codes, &*made.sketches);
        fine.write(&mut FineSketching::default(), rows, of_rows, (&mut bits, &mut numbers));
        Some(Self { made, fine, bits, numbers, centers })
    }

    /// Pairs of a row and two centers, how many of these are decided, and how many bounds are wrong.
    fn tally(&self, rows: MatRef<'_, T>) -> [usize; 3] {
        let centers = MatRef::new(&self.centers, rows.cols());
        let mut point = FinePoint::default();
        let mut out = [0; 3];
        for (i, row) in rows.iter().enumerate() {
            let (sketch, codes) = self.made.one(i);
            let bits = &self.bits[i * self.fine.bytes()..][..self.fine.bytes()];
            self.fine.read((codes, sketch), (bits, &self.numbers[i]), &mut point);
            let exact: Vec<f64> =
                centers.iter().map(|c| distance(&self.made.basis, row, c).powi(2)).collect();
            for (a, &near) in exact.iter().enumerate() {
                let (low, high) = self.fine.sq_dist(&point, a as u32);
                out[2] += usize::from(!(low <= near && near <= high));
                for (b, &other) in exact.iter().enumerate() {
                    let farther = self.fine.farther(&point, a as u32, b as u32);
                    out[0] += 1;
                    out[1] += usize::from(farther > 0.0);
                    out[2] += usize::from(farther > other - near);
                }
            }
        }
        out
    }
}

fn check_fine<T: Compute>(kind: usize, (n, d, width): (usize, usize, usize), scale: f64) {
    let values: Vec<T> = rows(kind, n, d, 3).into_iter().map(|x| T::from_f64(x * scale)).collect();
    let rows = MatRef::new(&values, d);
    let what = format!("kind {kind}, {d} columns, {width} directions, scale {scale}");
    let made = Finer::of(rows, width).unwrap_or_else(|| panic!("{what}: no basis"));
    let [pairs, told, wrong] = made.tally(rows);
    assert_eq!(wrong, 0, "{what}");
    // Outliers make the errors of all other rows large.
    assert!(kind > 4 || 4 * told > pairs, "{what}: {told} of {pairs} pairs are decided");
}

#[test]
fn finer_sketches_limit_distances_and_their_differences() {
    for kind in 0..KINDS {
        for (n, d, width) in [(90, 64, 32), (60, 150, 64), (50, 300, 128)] {
            check_fine::<f32>(kind, (n, d, width), 1.0);
            check_fine::<f64>(kind, (n, d, width), 1e-9);
        }
        check_fine::<f32>(kind, (90, 70, 32), 1e12);
    }
}

#[test]
fn both_misses_are_needed() {
    // With one direction in the tail, what is missed there is along all differences of centers.
    let (n, d) = (60, 17);
    let values: Vec<f64> = rows(7, n, d, 3);
    let rows = MatRef::new(&values, d);
    for part in 0..2 {
        let mut made = Finer::of(rows, 16).unwrap();
        made.numbers.iter_mut().for_each(|numbers| numbers.misses[part] = 0.0);
        assert!(made.tally(rows)[2] > 0, "part {part}");
    }
}

#[test]
fn rows_without_a_sketch_have_no_finer_one() {
    let (n, d) = (40, 64);
    let mut values: Vec<f32> = rows(0, n, d, 3).into_iter().map(|x| x as f32).collect();
    let made = Finer::of(MatRef::new(&values, d), 32).unwrap();
    for value in [f32::NAN, f32::INFINITY, 3e38] {
        values[5 * d] = value;
        let row = MatRef::new(&values[5 * d..6 * d], d);
        let other = Made::of(made.made.basis.clone(), row);
        let (mut bits, mut numbers) = (vec![0; made.fine.bytes()], [FineSketch::default()]);
        let of_row = (&*other.codes, &*other.sketches);
        made.fine.write(&mut FineSketching::default(), row, of_row, (&mut bits, &mut numbers));
        let mut point = FinePoint::default();
        made.fine.read((&other.codes, &other.sketches[0]), (&bits, &numbers[0]), &mut point);
        assert_eq!(made.fine.sq_dist(&point, 0), (0.0, f64::INFINITY), "{value}");
        let farther = made.fine.farther(&point, 0, 1);
        assert!(farther.is_nan() || farther <= 0.0, "{value}");
    }
}
