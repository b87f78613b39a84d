//! Hierarchical k-means against exact k-means, and the invariants of a fit.

use std::collections::HashSet;

use proptest::prelude::*;

use super::{HierarchicalKMeans, HierarchicalParams, HierarchicalRun};
use crate::data::{Dense, Source, Weighted};
use crate::fit::{Metric, StopReason};
use crate::kmeans::{Algorithm, KMeans};
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

/// Rows in clumps, with `below` different values per column.
fn rows(n: usize, dim: usize, below: u64, seed: u64) -> Vec<f32> {
    let rng = &mut Rng::keyed(seed, Purpose::Seeding, 0);
    let clumps: Vec<f32> = (0..20 * dim).map(|_| rng.below(below) as f32).collect();
    let mut values = Vec::with_capacity(n * dim);
    for _ in 0..n {
        let clump = rng.below(20) as usize * dim;
        values.extend((0..dim).map(|t| clumps[clump + t] + rng.below(below) as f32 / 8.0));
    }
    values
}

fn ended<S: Source>(params: &HierarchicalParams, rows: &S) -> HierarchicalRun {
    let mut run = params.start(rows).unwrap();
    while run.advance(rows).unwrap().is_some() {}
    run.finish(rows).unwrap();
    run
}

fn distinct(centers: &[f32], dim: usize) -> usize {
    centers
        .chunks(dim)
        .map(|c| c.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        .collect::<HashSet<_>>()
        .len()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (dim, metric) in [(3, Metric::Euclidean), (40, Metric::Euclidean), (20, Metric::Cosine)] {
        let values = rows(9000, dim, 60, 1);
        let source = Dense::new(&values, dim).unwrap();
        let fits = [1, 2, 4].map(|threads| {
            let params =
                HierarchicalKMeans::params(500).metric(metric).n_candidates(20).threads(Some(threads));
            let run = ended(&params, &source);
            (run.centers::<f32>(), run.labels(), run.inertia().to_bits(), run.certified().map(f64::to_bits))
        });
        assert!(fits[0] == fits[1] && fits[0] == fits[2], "{dim} {metric}");
    }
}

#[test]
fn lists_of_all_centers_give_the_sweeps_of_exact_k_means() {
    for dim in [2, 30] {
        let values = rows(3000, dim, 1000, 2);
        let source = Dense::new(&values, dim).unwrap();
        let params = HierarchicalKMeans::params(60).n_candidates(59).tolerance(0.0).rng_seed(3);
        let tree = ended(&params.clone().max_iter(0), &source);
        let start = tree.centers::<f64>();
        for sweeps in [1, 2, 5] {
            let run = ended(&params.clone().max_iter(sweeps), &source);
            let exact = KMeans::params(60).seeding(Seeding::Given(start.clone())).algorithm(Algorithm::Lloyd);
            let exact = exact.max_iter(sweeps).tolerance(0.0).fit(&source).unwrap();
            for (a, b) in run.centers::<f64>().iter().zip(exact.centers::<f64>()) {
                assert!((a - b).abs() <= 1e-4, "{dim} columns, {sweeps} sweeps: {a} {b}");
            }
            assert_eq!(run.certified(), Some(1.0));
            assert!((run.inertia() / exact.inertia() - 1.0).abs() < 1e-6);
        }
    }
}

#[test]
fn labels_are_exact_and_the_inertia_never_rises() {
    for (dim, m) in [(2, 8), (4, 16), (16, 32), (100, 16)] {
        let values = rows(8000, dim, 500, 5);
        let source = Dense::new(&values, dim).unwrap();
        let params = HierarchicalKMeans::params(400).n_candidates(m).tolerance(0.0).max_iter(12);
        let run = ended(&params, &source);
        let model = run.model();
        assert_eq!(model.predict(&source).unwrap(), model.labels());
        let inertia = model.inertia_of(&source).unwrap();
        assert!((run.inertia() / inertia - 1.0).abs() < 1e-12);
        let energies: Vec<f64> = run.history().iter().map(|step| step.objective).collect();
        assert!(
            energies.windows(2).all(|two| two[1] <= two[0] * (1.0 + 1e-7)),
            "{dim} columns: {energies:?}"
        );
        assert_eq!(distinct(&run.centers::<f32>(), dim), 400);
        // With few columns, the lists prove most labels.
        let certified = run.certified().unwrap();
        let least = if dim <= 4 { 0.8 } else { 0.0 };
        assert!((least..=1.0).contains(&certified), "{dim} columns: {certified}");
    }
}

#[test]
fn as_many_clusters_as_rows_and_a_single_one() {
    let values: Vec<f32> = (0..300).map(|i| (i * i % 307) as f32).collect();
    let source = Dense::new(&values, 1).unwrap();
    let run = ended(&HierarchicalKMeans::params(300), &source);
    assert_eq!(run.inertia(), (0.0f64).max(run.inertia()));
    let distinct_rows = distinct(&values, 1);
    assert_eq!(distinct(&run.centers::<f32>(), 1), distinct_rows);
    assert_eq!(run.inertia(), 0.0);
    let run = ended(&HierarchicalKMeans::params(1), &source);
    let mean = values.iter().sum::<f32>() / 300.0;
    assert!((run.centers::<f32>()[0] - mean).abs() < 1e-3);
    assert_eq!(run.history().last().unwrap().stop_reason, Some(StopReason::LabelsStable));
}

#[test]
fn rows_that_are_nearly_all_equal_give_all_distinct_centers() {
    let mut values = vec![7.0f32; 2 * 20_000];
    for i in 0..200 {
        values[2 * i * 100] = i as f32;
        values[2 * i * 100 + 1] = (i * 31 % 200) as f32;
    }
    let source = Dense::new(&values, 2).unwrap();
    let k = distinct(&values, 2);
    for k in [2, 20, k - 1, k] {
        let run = ended(&HierarchicalKMeans::params(k).n_candidates(10), &source);
        assert_eq!(distinct(&run.centers::<f32>(), 2), k);
        assert!(run.cluster_weights().iter().all(|&weight| weight > 0.0), "{k}");
    }
    // More clusters than distinct rows: the rest stays empty.
    let run = ended(&HierarchicalKMeans::params(k + 5).n_candidates(10), &source);
    assert_eq!(run.inertia(), 0.0);
    assert_eq!(run.cluster_weights().iter().filter(|&&weight| weight > 0.0).count(), k);
}

#[test]
fn rows_without_weight_move_no_center() {
    let mut values = rows(4000, 5, 100, 8);
    let weights: Vec<f64> = (0..4000).map(|i| if i % 4 == 0 { 0.0 } else { 1.0 + (i % 3) as f64 }).collect();
    let fit = |values: &[f32]| {
        let source = Weighted::new::<f32>(Dense::new(values, 5).unwrap(), weights.clone()).unwrap();
        ended(&HierarchicalKMeans::params(100).n_candidates(30), &source)
    };
    let run = fit(&values);
    assert!(run.cluster_weights().iter().all(|&weight| weight > 0.0));
    assert!((run.cluster_weights().iter().sum::<f64>() - weights.iter().sum::<f64>()).abs() < 1e-6);
    // The tree draws rows without their weights, so rows of weight 0 may change what it draws, but no mean.
    let lightest = run.inertia();
    values.chunks_mut(5).step_by(4).for_each(|row| row.fill(50.0));
    let moved = fit(&values);
    assert!((moved.inertia() / lightest - 1.0).abs() < 0.1);
    let none = Weighted::new::<f32>(Dense::new(&values, 5).unwrap(), vec![0.0; 4000]);
    assert!(none.is_err());
}

#[test]
fn a_checkpoint_after_any_step_is_resumed_to_the_same_bits() {
    for (metric, m) in [(Metric::Euclidean, 12), (Metric::Cosine, 12), (Metric::Euclidean, 300)] {
        let values = rows(5000, 6, 300, 9);
        let source = Dense::new(&values, 6).unwrap();
        let params = HierarchicalKMeans::params(300).metric(metric).n_candidates(m).branching_factor(8);
        let params = params.tolerance(0.0).max_iter(9);
        let whole = ended(&params, &source);
        let mut run = params.start(&source).unwrap();
        let mut checkpoints = vec![run.checkpoint(&source).unwrap()];
        while run.advance(&source).unwrap().is_some() {
            checkpoints.push(run.checkpoint(&source).unwrap());
            // Labels in between do not change the rest of the fit.
            run.finish(&source).unwrap();
        }
        assert!(checkpoints.len() > 10);
        for checkpoint in checkpoints {
            let mut run = params.resume_fit(&checkpoint, &source).unwrap();
            while run.advance(&source).unwrap().is_some() {}
            run.finish(&source).unwrap();
            assert_eq!(run.centers::<f32>(), whole.centers::<f32>());
            assert_eq!(run.labels(), whole.labels());
            assert_eq!(run.certified(), whole.certified());
            assert_eq!(run.inertia(), whole.inertia());
        }
    }
}

#[test]
fn many_clusters_have_approximate_lists() {
    for (dim, metric) in [(20, Metric::Euclidean), (24, Metric::Cosine)] {
        let values = rows(5000, dim, 300, 12);
        let source = Dense::new(&values, dim).unwrap();
        let params =
            HierarchicalKMeans::params(1200).metric(metric).n_candidates(16).tolerance(0.0).max_iter(7);
        let whole = ended(&params.clone().threads(Some(1)), &source);
        // They prove nothing, and the last pass compares all rows with all centers.
        assert_eq!(whole.certified(), Some(0.0));
        assert_eq!(whole.model().predict(&source).unwrap(), whole.labels());
        assert!(whole.cluster_weights().iter().all(|&weight| weight > 0.0));
        // The first sweeps compare rows with more centers than the others.
        let steps: Vec<u64> = whole.history().iter().map(|step| step.n_distances / 5000).collect();
        let steps = &steps[steps.len() - whole.n_iter() as usize..];
        assert!(
            steps[..3].iter().all(|&each| each >= 8 * 17) && steps[3..].iter().all(|&each| each <= 17),
            "{steps:?}"
        );
        let energies: Vec<f64> = whole.history().iter().map(|step| step.objective).collect();
        assert!(energies.windows(2).all(|two| two[1] <= two[0] * (1.0 + 1e-7)), "{energies:?}");
        let mut run = params.start(&source).unwrap();
        while run.advance(&source).unwrap().is_some() {
            run = params.resume_fit(&run.checkpoint(&source).unwrap(), &source).unwrap();
        }
        run.finish(&source).unwrap();
        assert_eq!((run.centers::<f32>(), run.labels()), (whole.centers::<f32>(), whole.labels()));
    }
}

#[test]
fn a_budget_samples_the_first_level() {
    let values = rows(20_000, 8, 300, 10);
    let source = Dense::new(&values, 8).unwrap();
    let run = ended(&HierarchicalKMeans::params(200).memory_limit(32 * 1000), &source);
    assert_eq!(run.sample_rows(), 1000);
    assert_eq!(run.model().predict(&source).unwrap(), run.labels());
    // 256 rows for each of the 15 children of the root.
    assert_eq!(ended(&HierarchicalKMeans::params(200), &source).sample_rows(), 256 * 15);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn fits_of_any_shape_have_exact_labels_and_distinct_centers(
        n in 1usize..700, dim in 1usize..9, share in 0.0f64..1.0, m in 1usize..40, below in 2u64..400,
        children in prop::option::of(2usize..9), wide in any::<bool>(), scale in -30i32..30, seed in any::<u64>(),
    ) {
        let scale = (scale as f64).exp2();
        let values: Vec<f64> =
            rows(n, dim, below, seed).iter().map(|&x| f64::from(x) * scale).collect();
        let k = 1 + ((n - 1) as f64 * share) as usize;
        let params = HierarchicalKMeans::params(k).n_candidates(m).branching_factor(children).rng_seed(seed);
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        let (run, predicted) = if wide {
            let source = Dense::new(&values, dim).unwrap();
            let run = ended(&params, &source);
            let predicted = run.model().predict(&source).unwrap();
            (run, predicted)
        } else {
            let source = Dense::new(&narrow, dim).unwrap();
            let run = ended(&params, &source);
            let predicted = run.model().predict(&source).unwrap();
            (run, predicted)
        };
        prop_assert_eq!(run.labels(), predicted);
        let centers = run.centers::<f32>();
        prop_assert_eq!(centers.len(), k * dim);
        let kinds = distinct(&narrow, dim);
        prop_assert!(distinct(&centers, dim) >= k.min(kinds) * 9 / 10);
    }
}
