//! Properties that hold for all rows.

use proptest::prelude::*;
use shoal::data::{Dense, Weighted};
use shoal::{Executor, KMeans, KMeansModel, Metric, Seeding};

/// Rows, the number of columns, and initial centers.
#[derive(Clone, Debug)]
struct Problem {
    rows: Vec<f64>,
    d: usize,
    given: Vec<f64>,
}

impl Problem {
    fn n(&self) -> usize {
        self.rows.len() / self.d
    }

    fn k(&self) -> usize {
        self.given.len() / self.d
    }

    fn source(&self) -> Dense<'_, f64> {
        Dense::new(&self.rows, self.d).unwrap()
    }

    fn params(&self) -> shoal::kmeans::KMeansParams {
        KMeans::params(self.k()).seeding(Seeding::Given(self.given.clone())).threads(Some(1))
    }
}

/// Rows of values that rarely tie.
fn problem() -> impl Strategy<Value = Problem> {
    (1usize..150, 1usize..20).prop_flat_map(|(n, d)| {
        (prop::collection::vec(-100.0f64..100.0, n * d), 1..=n.min(12)).prop_map(move |(rows, k)| {
            let given = (0..k).flat_map(|j| rows[j * n / k * d..][..d].to_vec()).collect();
            Problem { rows, d, given }
        })
    })
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1e-300)
}

fn same_model(one: &KMeansModel, other: &KMeansModel, scale: f64) -> Result<(), TestCaseError> {
    for (a, b) in one.centers::<f64>().iter().zip(other.centers::<f64>()) {
        prop_assert!((a - b).abs() <= 1e-12 * scale, "{} and {}", a, b);
    }
    prop_assert!(
        (one.inertia() - other.inertia()).abs() <= 1e-12 * one.inertia().max(scale * scale * 1e-3),
        "{} and {}",
        one.inertia(),
        other.inertia()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_objective_never_rises(p in problem(), cosine in any::<bool>()) {
        let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
        let source = p.source();
        let mut run = p.params().metric(metric).tolerance(0.0).start(&source).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let mut last = f64::INFINITY;
        while let Some(step) = run.advance_on(&source, &cx).unwrap() {
            prop_assert!(step.objective <= last * (1.0 + 1e-12) + 1e-25, "{} after {}", step.objective, last);
            last = step.objective;
        }
        let model = run.into_model();
        prop_assert!(model.inertia() <= last * (1.0 + 1e-12) + 1e-25);
        prop_assert!(model.cluster_weights().iter().sum::<f64>() == p.n() as f64);
    }

    #[test]
    fn predict_returns_the_labels(p in problem(), cosine in any::<bool>(), max_iter in 1u64..6) {
        let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
        let model = p.params().metric(metric).max_iter(max_iter).fit(&p.source()).unwrap();
        prop_assert_eq!(model.predict(&p.source()).unwrap(), model.labels());
        let inertia = model.inertia_of(&p.source()).unwrap();
        prop_assert!(close(inertia, model.inertia(), 1e-12) || inertia < 1e-25, "{} and {}", inertia, model.inertia());
        let narrow: Vec<f32> = p.rows.iter().map(|&x| x as f32).collect();
        let narrow = Dense::new(&narrow, p.d).unwrap();
        let model = p.params().metric(metric).max_iter(max_iter).fit(&narrow).unwrap();
        prop_assert_eq!(model.predict(&narrow).unwrap(), model.labels());
    }

    #[test]
    fn permuted_centers_give_permuted_clusters(p in problem(), turn in 0usize..12) {
        let (k, d) = (p.k(), p.d);
        let place = |j: usize| (j + turn) % k;
        let mut given = vec![0.0; k * d];
        for (j, center) in p.given.chunks(d).enumerate() {
            given[place(j) * d..][..d].copy_from_slice(center);
        }
        let one = p.params().fit(&p.source()).unwrap();
        let other = p.params().seeding(Seeding::Given(given)).fit(&p.source()).unwrap();
        let labels: Vec<u32> = one.labels().iter().map(|&j| place(j as usize) as u32).collect();
        prop_assert_eq!(labels, other.labels());
        prop_assert_eq!(one.n_iter(), other.n_iter());
        prop_assert!(close(one.inertia(), other.inertia(), 1e-12) || one.inertia() < 1e-25);
        let (centers, others) = (one.centers::<f64>(), other.centers::<f64>());
        for (j, center) in centers.chunks(d).enumerate() {
            // Sums run in the order of the rows for any cluster index, so they are bit-identical.
            prop_assert_eq!(center, &others[place(j) * d..][..d]);
        }
    }

    #[test]
    fn integer_weights_are_repeated_rows(p in problem(), seed in any::<u64>()) {
        let counts: Vec<usize> = (0..p.n()).map(|i| (seed.rotate_left(i as u32 * 5) % 4) as usize).collect();
        prop_assume!(counts.iter().sum::<usize>() >= p.k());
        let weights: Vec<f64> = counts.iter().map(|&c| c as f64).collect();
        let weighted = Weighted::new(p.source(), weights).unwrap();
        let repeated: Vec<f64> =
            p.rows.chunks(p.d).zip(&counts).flat_map(|(row, &c)| row.repeat(c)).collect();
        // The tolerance depends on the variance of the rows without weights, so it is 0 here.
        let params = p.params().tolerance(0.0);
        // An empty cluster takes a weighted row with all of its weight, but only one of the repeated rows.
        let full = |model: &KMeansModel| model.cluster_weights().iter().all(|&w| w > 0.0);
        let one = params.fit(&weighted).unwrap();
        let other = params.fit(&Dense::new(&repeated, p.d).unwrap()).unwrap();
        prop_assume!(full(&one) && full(&other) && starts_full(&p, &counts));
        same_model(&one, &other, 100.0)?;
        let labels: Vec<u32> = one.labels().iter().zip(&counts).flat_map(|(&j, &c)| vec![j; c]).collect();
        prop_assert_eq!(labels, other.labels());
    }

    #[test]
    fn cosine_equals_euclidean_on_normalized_rows(p in problem()) {
        let unit: Vec<f64> = p.rows.chunks(p.d).flat_map(normalized).collect();
        let given: Vec<f64> = p.given.chunks(p.d).flat_map(normalized).collect();
        let unit = Dense::new(&unit, p.d).unwrap();
        let source = p.source();
        // Compare one sweep. After it the cosine centers are on the sphere, and the Euclidean centers are not.
        let mut one = p.params().metric(Metric::Cosine).start(&source).unwrap();
        let mut other = p.params().seeding(Seeding::Given(given)).start(&unit).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let first = one.advance_on(&source, &cx).unwrap().unwrap();
        let second = other.advance_on(&unit, &cx).unwrap().unwrap();
        let (one, other) = (one.model(), other.model());
        prop_assert_eq!(one.labels(), other.labels());
        prop_assert!((first.objective - second.objective).abs() <= 1e-12 * p.n() as f64);
        let (on_sphere, means) = (one.centers::<f64>(), other.centers::<f64>());
        for (center, mean) in on_sphere.chunks(p.d).zip(means.chunks(p.d)) {
            let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
            prop_assume!(length > 1e-3);
            for (a, b) in center.iter().zip(mean) {
                prop_assert!((a - b / length).abs() < 1e-11, "{} and {}", a, b / length);
            }
        }
        // The model labels rows as Euclidean k-means does on the sphere.
        let model = p.params().metric(Metric::Cosine).fit(&source).unwrap();
        let euclid = KMeans::params(p.k()).seeding(Seeding::Given(model.centers())).start(&unit);
        let mut euclid = euclid.unwrap();
        euclid.advance_on(&unit, &cx).unwrap();
        let euclid = euclid.model();
        prop_assert_eq!(euclid.labels(), model.labels());
    }
}

fn normalized(row: &[f64]) -> Vec<f64> {
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    row.iter().map(|x| x / length).collect()
}

/// Whether no cluster is empty at any iteration.
fn starts_full(p: &Problem, counts: &[usize]) -> bool {
    let weights: Vec<f64> = counts.iter().map(|&c| c as f64).collect();
    let weighted = Weighted::new(p.source(), weights).unwrap();
    let mut steps = Vec::new();
    for max_iter in 1..30 {
        let model = p.params().tolerance(0.0).max_iter(max_iter).fit(&weighted).unwrap();
        steps.push(model.cluster_weights().iter().all(|&w| w > 0.0));
        if model.n_iter() < max_iter {
            break;
        }
    }
    // The initial centers are rows: with a weight, each has at least its own row.
    let own = (0..p.k()).all(|j| counts[j * p.n() / p.k()] > 0);
    own && steps.into_iter().all(|full| full)
}
