//! The invariants of a fit of hierarchical k-means. `tests/all/hierarchical.rs` compares it with exact k-means.

use std::collections::HashSet;

use proptest::prelude::*;

use super::{HierarchicalKMeans, HierarchicalParams, HierarchicalRun};
use crate::data::{DataSource, Dense, Source, Weighted};
use crate::fit::{Metric, StopReason};
use crate::pass::Large;
use crate::rng::{Purpose, Rng};

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

fn distinct<T: Into<f64> + Copy>(centers: &[T], dim: usize) -> usize {
    centers
        .chunks(dim)
        .map(|c| c.iter().map(|&x| (x.into() + 0.0).to_bits()).collect::<Vec<_>>())
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
fn a_file_larger_than_memory_gives_the_same_bits_and_few_scattered_reads() {
    let n = 9000;
    for (dim, metric, k, m) in [
        (3, Metric::Euclidean, 300, 20),
        (40, Metric::Euclidean, 300, 40),
        (20, Metric::Cosine, 300, 20),
        (20, Metric::Euclidean, 1500, 16),
    ] {
        let values = rows(n, dim, 60, 7);
        let dense = Dense::new(&values, dim).unwrap();
        let weights: Vec<f64> = (0..n).map(|i| 0.1 + (i % 7) as f64 / 3.0).collect();
        let weighted = Weighted::new::<f32>(dense, weights).unwrap();
        let params =
            HierarchicalKMeans::params(k).metric(metric).n_candidates(m).max_iter(6).threads(Some(2));
        let found = |run: &HierarchicalRun| {
            let steps: Vec<_> =
                run.history().iter().map(|s| (s.objective.to_bits(), s.n_distances)).collect();
            (run.centers::<f32>(), run.labels(), run.inertia().to_bits(), run.certified(), steps)
        };
        for rows in [&dense as &dyn DataSource<f32>, &weighted] {
            let whole =
                if rows.weights().is_some() { ended(&params, &weighted) } else { ended(&params, &dense) };
            // Windows of 2,048 rows, of 4,500, and of all rows.
            for share in [100, 2, 1] {
                let memory = 6 * values.len() as u64 * 4 / share;
                let large = Large::new(rows, memory);
                assert!(found(&ended(&params, &large)) == found(&whole), "{dim} {metric} {share}");
                if share == 1 && k == 300 {
                    // Each pass over the groups would be some 9,000 without windows.
                    let runs = large.runs();
                    assert!(runs < 3 * n, "{dim} {metric}: {runs}");
                }
            }
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
        let params = HierarchicalKMeans::params(k).n_candidates(10).compute_labels(false);
        let model = params.fit(&source).unwrap();
        assert!(model.labels().is_empty() && model.inertia().is_nan());
        assert_eq!(distinct(&model.centers::<f32>(), 2), k);
    }
    // More clusters than distinct rows: the rest stays empty.
    let run = ended(&HierarchicalKMeans::params(k + 5).n_candidates(10), &source);
    assert_eq!(run.inertia(), 0.0);
    assert_eq!(run.cluster_weights().iter().filter(|&&weight| weight > 0.0).count(), k);
}

#[test]
fn rows_without_weight_move_no_center() {
    let mut values = rows(4000, 5, 100, 8);
    values.chunks_mut(5).step_by(4).for_each(|row| row.fill(5000.0));
    let weights: Vec<f64> = (0..4000).map(|i| if i % 4 == 0 { 0.0 } else { 1.0 + (i % 3) as f64 }).collect();
    let source = Weighted::new::<f32>(Dense::new(&values, 5).unwrap(), weights.clone()).unwrap();
    for (k, m) in [(1, 1), (100, 30), (700, 30), (2000, 30)] {
        let run = ended(&HierarchicalKMeans::params(k).n_candidates(m), &source);
        assert!(run.centers::<f32>().iter().all(|&x| x < 200.0), "{k}");
        assert!(run.cluster_weights().iter().all(|&weight| weight > 0.0));
        assert!((run.cluster_weights().iter().sum::<f64>() - weights.iter().sum::<f64>()).abs() < 1e-6);
    }
    let none = Weighted::new::<f32>(Dense::new(&values, 5).unwrap(), vec![0.0; 4000]);
    assert!(none.is_err());
}

#[test]
fn certified_labels_are_exact_far_from_the_origin_and_beside_outliers() {
    for dim in [2, 3, 6] {
        for (offset, outlier) in [(0.0f64, 0.0), (1e3, 0.0), (1e5, 0.0), (0.0, 1e6), (-3e3, 1e5)] {
            let mut values: Vec<f64> =
                rows(6000, dim, 500, 6).iter().map(|&x| f64::from(x) + offset).collect();
            if outlier > 0.0 {
                values[..dim].fill(outlier);
                values[7 * dim..8 * dim].fill(-outlier);
            }
            let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
            let params = HierarchicalKMeans::params(300).n_candidates(24).tolerance(0.0).max_iter(4);
            let source = Dense::new(&narrow, dim).unwrap();
            let run = ended(&params, &source);
            assert_eq!(run.model().predict(&source).unwrap(), run.labels());
            let source = Dense::new(&values, dim).unwrap();
            let run = ended(&params, &source);
            assert_eq!(run.model().predict(&source).unwrap(), run.labels());
            assert!(run.certified() > Some(0.1), "{dim} {offset} {outlier}: {:?}", run.certified());
            let centers = run.centers::<f64>();
            let off = 1e-13 * (f64::max(offset.abs(), outlier) + 600.0).powi(2) * dim as f64;
            for (row, &label) in values.chunks(dim).zip(&run.labels()) {
                let sq_dist =
                    |center: &[f64]| -> f64 { row.iter().zip(center).map(|(x, c)| (x - c).powi(2)).sum() };
                let own = sq_dist(&centers[label as usize * dim..][..dim]);
                let least = centers.chunks(dim).map(sq_dist).fold(f64::INFINITY, f64::min);
                assert!(own <= least + off, "{dim} {offset} {outlier}: {own} {least}");
            }
        }
    }
}

#[test]
fn clusters_that_exact_labels_empty_are_filled_by_their_squared_errors() {
    // Few candidates leave rows at centers that are not nearest to them.
    for seed in 0..30 {
        let values = rows(400, 3, 60, seed);
        let source = Dense::new(&values, 3).unwrap();
        let params = HierarchicalKMeans::params(150).n_candidates(1).branching_factor(2).rng_seed(seed);
        let run = ended(&params.max_iter(1), &source);
        assert!(run.cluster_weights().iter().all(|&weight| weight > 0.0), "{seed}");
        assert_eq!(run.model().predict(&source).unwrap(), run.labels());
    }
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
fn many_clusters_are_searched_by_cells() {
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
        let sweeps = &whole.history()[whole.history().len() - whole.n_iter() as usize..];
        assert!(sweeps.iter().all(|step| (5000 * 64..5000 * 400).contains(&step.n_distances)), "{sweeps:?}");
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
        let centers = run.centers::<f64>();
        prop_assert_eq!(centers.len(), k * dim);
        let kinds = distinct(&narrow, dim);
        prop_assert!(distinct(&centers, dim) >= k.min(kinds));
    }
}
