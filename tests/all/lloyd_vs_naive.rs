//! Lloyd's algorithm compared with a naive f64 implementation: the same labels after every iteration, and the
//! same inertia.
//!
//! The naive implementation uses the rules of scikit-learn. It stops if no label changes, or if the squared
//! shift of all centers is at most `tol` times the mean variance of the columns. An empty cluster moves to
//! the row farthest from its center. The lowest index wins a tie. Rows are labeled once more at the end
//! unless the labels are stable.

use shoal::data::{AnySource, Dense, Source, Weighted};
use shoal::fit::{Step, StopReason};
use shoal::kernel::Compute;
use shoal::{Executor, KMeans, Seeding};

// ---------------------------------------------------------------- the naive implementation

/// Rows in f64, and the precision of the compute type that the library uses for them.
struct Naive<'a> {
    rows: &'a [f64],
    d: usize,
    weights: Vec<f64>,
    /// Rounds a center to the compute type.
    round: fn(f64) -> f64,
    /// Two squared distances are a tie in the compute type if they differ by less than this share of the
    /// squared norms of row and centers, measured from the first center.
    band: f64,
}

fn sq_dist(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

impl Naive<'_> {
    fn n(&self) -> usize {
        self.rows.len() / self.d
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.d..][..self.d]
    }

    /// The nearest center per row, the lowest index first, and the number of ties. In a tie within `band`,
    /// the label `theirs` is used, so that a rounding difference does not separate the two runs.
    fn label(&self, centers: &[f64], theirs: &[u32]) -> (Vec<u32>, usize) {
        let mut taken_over = 0;
        let origin = &centers[..self.d];
        let labels = (0..self.n())
            .map(|i| {
                let dists: Vec<f64> = centers.chunks(self.d).map(|c| sq_dist(self.row(i), c)).collect();
                let own = (0..dists.len()).fold(0, |best, j| if dists[j] < dists[best] { j } else { best });
                let other = theirs[i] as usize;
                let far = sq_dist(self.row(i), origin)
                    .max(centers.chunks(self.d).map(|c| sq_dist(c, origin)).fold(0.0, f64::max));
                if own != other && dists[other] - dists[own] <= self.band * far {
                    taken_over += 1;
                    return other as u32;
                }
                own as u32
            })
            .collect();
        (labels, taken_over)
    }

    /// The centers after one update, the squared length of their shifts, and the number of relocated clusters.
    fn update(&self, centers: &[f64], labels: &[u32]) -> (Vec<f64>, f64, usize) {
        let k = centers.len() / self.d;
        let mut sums = vec![0.0; centers.len()];
        let mut totals = vec![0.0; k];
        let mut shift = |i: usize, j: usize, sign: f64| {
            totals[j] += sign * self.weights[i];
            for (t, x) in self.row(i).iter().enumerate() {
                sums[j * self.d + t] += sign * self.weights[i] * x;
            }
            totals[j]
        };
        let mut filled = vec![0.0; k];
        for (i, &j) in labels.iter().enumerate() {
            filled[j as usize] = shift(i, j as usize, 1.0);
        }
        let empty: Vec<usize> = (0..k).filter(|&j| filled[j] == 0.0).collect();
        let mut far: Vec<(f64, usize)> = (0..self.n())
            .map(|i| (sq_dist(self.row(i), &centers[labels[i] as usize * self.d..][..self.d]), i))
            .filter(|&(sq_dist, i)| sq_dist > 0.0 && self.weights[i] > 0.0)
            .collect();
        far.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut relocated = 0;
        for (&j, &(_, i)) in empty.iter().zip(&far) {
            shift(i, labels[i] as usize, -1.0);
            shift(i, j, 1.0);
            relocated += 1;
        }
        let mut new = centers.to_vec();
        for j in (0..k).filter(|&j| totals[j] > 0.0) {
            for t in 0..self.d {
                new[j * self.d + t] = (self.round)(sums[j * self.d + t] / totals[j]);
            }
        }
        let moved = sq_dist(&new, centers);
        (new, moved, relocated)
    }

    /// The mean variance of the columns, without weights.
    fn variance(&self) -> f64 {
        let n = self.n() as f64;
        let columns = (0..self.d).map(|t| {
            let column = || self.rows.iter().skip(t).step_by(self.d);
            let mean = column().sum::<f64>() / n;
            column().map(|x| (x - mean).powi(2)).sum::<f64>() / n
        });
        columns.sum::<f64>() / self.d as f64
    }

    fn inertia(&self, centers: &[f64], labels: &[u32]) -> f64 {
        // A compensated sum, so that the reference is more precise than the library.
        let (mut sum, mut lost) = (0.0f64, 0.0f64);
        for (i, &j) in labels.iter().enumerate() {
            let term =
                self.weights[i] * sq_dist(self.row(i), &centers[j as usize * self.d..][..self.d]) - lost;
            let next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        sum
    }
}

// ---------------------------------------------------------------- the comparison

/// A compute type.
trait Kind: Compute {
    /// See [`Naive::band`].
    const BAND: f64;
    fn round(x: f64) -> f64 {
        Self::from_f64(x).to_f64()
    }
}
impl Kind for f32 {
    const BAND: f64 = 4e-6;
}
impl Kind for f64 {
    const BAND: f64 = 1e-14;
}

/// A weighted source of its compute type.
struct Rows<'a, T: Compute>(Weighted<'a, Dense<'a, T>>);

impl<T: Compute> Source for Rows<'_, T> {
    fn any(&self) -> AnySource<'_> {
        AnySource::of::<T>(&self.0)
    }
}

#[derive(Clone)]
struct Case {
    name: String,
    rows: Vec<f64>,
    d: usize,
    /// The initial centers.
    given: Vec<f64>,
    weights: Option<Vec<f64>>,
    tolerance: f64,
    /// Upper limit of the number of ties over all iterations.
    ties: usize,
}

fn relative(a: f64, b: f64) -> f64 {
    if a == b { 0.0 } else { (a - b).abs() / a.abs().max(b.abs()) }
}

fn compare<T: Kind>(case: &Case) {
    const MOST: u64 = 12;
    let name = format!("{} ({})", case.name, T::NAME);
    // Both implementations get values that are rounded to the compute type.
    let typed: Vec<T> = case.rows.iter().map(|&x| T::from_f64(x)).collect();
    let rows: Vec<f64> = typed.iter().map(|x| x.to_f64()).collect();
    let n = rows.len() / case.d;
    let weights = case.weights.clone().unwrap_or_else(|| vec![1.0; n]);
    let naive = Naive { rows: &rows, d: case.d, weights: weights.clone(), round: T::round, band: T::BAND };
    let dense = Dense::new(&typed, case.d).unwrap();
    let weighted = Rows(Weighted::new(dense, weights).unwrap());
    let source: &dyn Source = if case.weights.is_some() { &weighted } else { &dense };
    let k = case.given.len() / case.d;
    let params = KMeans::params(k)
        .seeding(Seeding::Given(case.given.clone()))
        .tolerance(case.tolerance)
        .threads(Some(2));
    let cx = Executor::new(Some(2)).unwrap();
    let threshold = if case.tolerance > 0.0 { case.tolerance * naive.variance() } else { 0.0 };
    let mut centers: Vec<f64> = case.given.iter().map(|&c| T::round(c)).collect();
    let mut before = vec![u32::MAX; n];
    let mut ties = 0;
    let mut run = params.start(source).unwrap();
    for iteration in 1..=MOST {
        // The labels of a sweep belong to the centers before the step.
        let step = run
            .advance_on(source, &cx)
            .unwrap()
            .unwrap_or_else(|| panic!("{name}: ended before {iteration}"));
        let model = run.model();
        if step.stop_reason.is_none() {
            let (labels, taken) = naive.label(&centers, model.labels());
            let wrong = labels.iter().zip(model.labels()).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{name}: first row with another label in iteration {iteration}");
            ties += taken;
            check_step(&name, &step, &naive, &centers, &labels, &before);
            let (new, moved, relocated) = naive.update(&centers, &labels);
            check_centers(&name, iteration, &model.centers::<T>(), &new, &naive);
            let off = relative(step.center_shift, moved.sqrt());
            assert!(off < 1e-3 || moved < threshold.max(rounding(&new)), "{name}: shift");
            assert!(!(labels == before && relocated == 0), "{name}: should have ended at {iteration}");
            assert!(moved > threshold * 0.999, "{name}: should have ended at {iteration} by tolerance");
            (centers, before) = (new, labels);
        }
        // A complete fit with so many iterations labels the rows once more with the final centers.
        let fitted = params.clone().max_iter(iteration).fit(source).unwrap();
        assert_eq!(fitted.n_iter(), iteration, "{name}");
        let last = if step.stop_reason.is_none() {
            centers.clone()
        } else {
            let (labels, _) = naive.label(&centers, fitted.labels());
            let (new, moved, relocated) = naive.update(&centers, &labels);
            match step.stop_reason {
                Some(StopReason::LabelsStable) => {
                    assert!(labels == before && relocated == 0, "{name}: not stable");
                }
                Some(StopReason::Tolerance) => {
                    assert!(moved <= threshold * 1.001 + rounding(&new), "{name}: {moved} moved");
                }
                other => panic!("{name}: ended by {other:?}"),
            }
            new
        };
        let (labels, taken) = naive.label(&last, fitted.labels());
        ties += taken;
        let wrong = labels.iter().zip(fitted.labels()).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{name}: first row with another label after {iteration} iterations");
        let returned: Vec<f64> = fitted.centers::<T>().iter().map(|c| c.to_f64()).collect();
        let inertia = naive.inertia(&returned, fitted.labels());
        let off = relative(fitted.inertia(), inertia);
        assert!(off < 1e-12, "{name}: inertia {} instead of {inertia} ({off:e})", fitted.inertia());
        if step.stop_reason.is_some() {
            break;
        }
    }
    assert!(ties <= case.ties, "{name}: {ties} rows are ties, at most {} are expected", case.ties);
}

/// A squared distance from these centers that may be the rounding of naive sums.
fn rounding(centers: &[f64]) -> f64 {
    1e-24 * centers.iter().map(|c| c * c).sum::<f64>()
}

fn check_step(name: &str, step: &Step, naive: &Naive<'_>, centers: &[f64], labels: &[u32], before: &[u32]) {
    let changed = labels.iter().zip(before).filter(|(a, b)| a != b).count();
    assert_eq!(step.n_changed, changed as u64, "{name}");
    assert_eq!(step.batch_size, naive.n() as u64, "{name}");
    assert_eq!(step.rows_seen, step.iteration * step.batch_size, "{name}");
    let objective = naive.inertia(centers, labels);
    // The centers may differ by one rounding. Between equal rows nothing else is left.
    let close = relative(step.objective, objective) < 1e-6;
    let nothing = step.objective.max(objective) < naive.n() as f64 * rounding(centers);
    assert!(close || nothing, "{name}: {} instead of {objective}", step.objective);
}

fn check_centers<T: Kind>(name: &str, iteration: u64, found: &[T], expected: &[f64], naive: &Naive<'_>) {
    let largest = naive.rows.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    // One rounding of the result, plus the rounding of sums in another order.
    let most = (4.0 * T::EPSILON + naive.n() as f64 * f64::EPSILON) * largest;
    for (found, expected) in found.iter().zip(expected) {
        let off = (found.to_f64() - expected).abs();
        assert!(off <= most, "{name}: center value {found} instead of {expected} in {iteration}");
    }
}

fn both(case: &Case) {
    compare::<f64>(&Case { ties: 0, ..case.clone() });
    compare::<f32>(case);
}

// ---------------------------------------------------------------- data

/// A number in `[0, 1)`: a hash of the seed and the position.
fn unit(seed: u64, i: usize) -> f64 {
    let mut z = (seed << 40).wrapping_add(i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// `n` rows around a few overlapping points.
fn blobs(seed: u64, n: usize, d: usize) -> Vec<f64> {
    (0..n * d)
        .map(|at| {
            let (i, t) = (at / d, at % d);
            let noise: f64 = (0..4).map(|q| unit(seed + 1, 4 * at + q)).sum::<f64>() - 2.0;
            3.0 * unit(seed, (i % 7) * d + t) + noise
        })
        .collect()
}

/// `k` rows spread over the data.
fn spread(rows: &[f64], d: usize, k: usize) -> Vec<f64> {
    let n = rows.len() / d;
    (0..k).flat_map(|j| rows[j * n / k * d..][..d].to_vec()).collect()
}

fn case(name: &str, rows: Vec<f64>, d: usize, k: usize) -> Case {
    let given = spread(&rows, d, k);
    Case { name: name.into(), rows, d, given, weights: None, tolerance: 0.0, ties: 2 }
}

// ---------------------------------------------------------------- tests

#[test]
fn all_shapes() {
    for (n, d, k) in [
        (1, 1, 1),
        (2, 3, 1),
        (500, 1, 1),
        (500, 130, 1),
        (700, 1, 9),
        (900, 2, 20),
        (800, 3, 25),
        (1000, 5, 33),
        (700, 8, 17),
        (600, 16, 40),
        (650, 17, 48),
        (400, 31, 12),
        (500, 130, 21),
        (300, 257, 10),
    ] {
        both(&case(&format!("n={n} d={d} k={k}"), blobs(7, n, d), d, k));
    }
}

#[test]
fn several_tiles() {
    both(&Case { ties: 8, ..case("several tiles", blobs(3, 9_001, 4), 4, 16) });
}

#[test]
fn as_many_clusters_as_rows() {
    for d in [1, 3, 17, 130] {
        both(&case("n = k", blobs(1, 40, d), d, 40));
    }
}

#[test]
fn duplicates() {
    for d in [1, 3, 17] {
        let few = blobs(5, 30, d);
        let rows: Vec<f64> = (0..600).flat_map(|i| few[i % 30 * d..][..d].to_vec()).collect();
        both(&case("every row twenty times", rows, d, 12));
    }
}

#[test]
fn fewer_distinct_rows_than_clusters() {
    for d in [1, 4, 20] {
        let few = blobs(5, 3, d);
        let rows: Vec<f64> = (0..60).flat_map(|i| few[i % 3 * d..][..d].to_vec()).collect();
        let mut case = case("three distinct rows, five clusters", rows, d, 5);
        case.given = few.iter().chain(&few[..2 * d]).copied().collect();
        // A mean of equal values can be off by one ulp. The row is then nearer to another center with almost
        // the same value.
        case.ties = 60 * 24;
        compare::<f64>(&case);
        compare::<f32>(&case);
    }
}

#[test]
fn equal_centers_and_empty_clusters() {
    for d in [1, 3, 17, 130] {
        let mut case = case("all centers alike", blobs(9, 400, d), d, 6);
        case.given = (0..6).flat_map(|_| case.rows[..d].to_vec()).collect();
        both(&case);
        case.name = "a center far from all rows".into();
        case.given = spread(&case.rows, d, 6);
        case.given[2 * d..4 * d].fill(100.0);
        both(&case);
    }
}

#[test]
fn small_integers_are_full_of_ties() {
    for (d, values) in [(1, 60.0), (2, 12.0), (3, 6.0), (17, 3.0), (130, 2.0)] {
        let rows: Vec<f64> = (0..700 * d).map(|i| (unit(11, i) * values).floor()).collect();
        // Means of integers are not integers. From the second iteration on, rounding can break a tie of exact
        // arithmetic.
        let case = Case { ties: 60, ..case("small integers", rows, d, 14) };
        compare::<f64>(&case);
        compare::<f32>(&case);
    }
}

fn first_labels<T: Kind>(rows: &[f64], grid: &[f64]) -> Vec<u32> {
    let typed: Vec<T> = rows.iter().map(|&x| T::from_f64(x)).collect();
    let source = Dense::new(&typed, 2).unwrap();
    let mut run = KMeans::params(25).seeding(Seeding::Given(grid.to_vec())).start(&source).unwrap();
    run.advance_on(&source, &Executor::new(Some(1)).unwrap()).unwrap();
    run.model().labels().to_vec()
}

#[test]
fn ties_go_to_the_lowest_index() {
    // Half of all rows are equally far from two or four centers.
    let rows: Vec<f64> = (0..81).flat_map(|i| [f64::from(i / 9), f64::from(i % 9)]).collect();
    let grid: Vec<f64> = (0..25).flat_map(|j| [f64::from(j / 5 * 2), f64::from(j % 5 * 2)]).collect();
    let expected: Vec<u32> = (0..81).map(|i| i / 9 / 2 * 5 + i % 9 / 2).collect();
    assert_eq!(first_labels::<f32>(&rows, &grid), expected);
    assert_eq!(first_labels::<f64>(&rows, &grid), expected);
}

#[test]
fn weights() {
    for d in [1, 3, 17, 130] {
        let mut case = case("weights", blobs(13, 600, d), d, 11);
        case.weights = Some((0..600).map(|i| 5.0 * unit(17, i)).collect());
        both(&case);
        case.name = "weights, half of them 0".into();
        case.weights = Some((0..600).map(|i| (3.0 * unit(19, i)).floor()).collect());
        both(&case);
    }
}

#[test]
fn weights_and_empty_clusters() {
    let mut case = case("weights and empty clusters", blobs(13, 600, 3), 3, 8);
    case.given[..9].fill(50.0);
    case.weights = Some((0..600).map(|i| (4.0 * unit(23, i)).floor() / 2.0).collect());
    both(&case);
}

#[test]
fn huge_and_tiny_values() {
    for d in [1, 3, 17, 130] {
        for scale in [1e25, 1e-25, 3e17, 1e-16] {
            let rows = blobs(29, 500, d).iter().map(|x| x * scale).collect();
            both(&case(&format!("values of about {scale:e}, d={d}"), rows, d, 9));
        }
        for scale in [1e140, 1e-140] {
            let rows = blobs(29, 500, d).iter().map(|x| x * scale).collect();
            compare::<f64>(&Case {
                ties: 0,
                ..case(&format!("values of about {scale:e}, d={d}"), rows, d, 9)
            });
        }
    }
}

#[test]
fn far_from_the_origin() {
    for d in [1, 3, 17, 130] {
        // In f32 the rows are multiples of 2^-10 at this distance, so many are equal.
        let rows = blobs(31, 600, d).iter().map(|x| x + 1e4).collect();
        both(&Case { ties: 12, ..case("unit variance at 1e4", rows, d, 10) });
    }
}

#[test]
fn one_column_far_larger_than_the_others() {
    let rows =
        blobs(37, 600, 5).iter().enumerate().map(|(i, x)| if i % 5 == 2 { x * 1e6 } else { *x }).collect();
    both(&Case { ties: 12, ..case("a column of 1e6", rows, 5, 12) });
}

#[test]
fn tolerance_stops_where_scikit_learn_stops() {
    for tolerance in [1e-4, 1e-2, 1.0] {
        for d in [1, 3, 17] {
            let mut case = case(&format!("tol={tolerance}"), blobs(41, 900, d), d, 8);
            case.tolerance = tolerance;
            both(&case);
            case.weights = Some((0..900).map(|i| 2.0 * unit(43, i)).collect());
            both(&case);
        }
    }
}
