//! Hierarchical k-means against exact k-means, its tree as a seeding, and approximate searches among many centers.

use shoal::data::{Access, Chunks, DataSource, Dense, Weighted};
use shoal::seeding::{Seeding, Seeds};
use shoal::{Algorithm, Executor, HierarchicalKMeans, KMeans, Metric, TruncatedGaussianMixture};

use crate::common::unit;

/// Rows in 40 clumps, `below` different values per column.
fn rows(n: usize, dim: usize, below: usize) -> Vec<f32> {
    let whole = |at: usize| (unit(at) * below as f64).floor() as f32;
    let clump = |i: usize| (unit(900_000_000 + i) * 40.0) as usize;
    (0..n * dim).map(|at| whole(500_000_000 + clump(at / dim) * dim + at % dim) + whole(at) / 8.0).collect()
}

#[test]
fn lists_of_all_centers_give_the_sweeps_of_exact_k_means() {
    for dim in [2, 30] {
        let values = rows(3000, dim, 1000);
        let source = Dense::new(&values, dim).unwrap();
        let ended = |params: &shoal::hierarchical::HierarchicalParams| {
            let mut run = params.start(&source).unwrap();
            while run.advance(&source).unwrap().is_some() {}
            run.finish(&source).unwrap();
            run
        };
        let params = HierarchicalKMeans::params(60).n_candidates(59).tolerance(0.0).rng_seed(3);
        let tree = ended(&params.clone().max_iter(0));
        let start = tree.centers::<f64>();
        for sweeps in [1, 2, 5] {
            let run = ended(&params.clone().max_iter(sweeps));
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
fn merges_and_splits_lower_the_inertia_of_a_fixed_point() {
    // Squares of many sizes, denser at one corner.
    let values: Vec<f32> = (0..40_000)
        .map(|i| ([1.0, 3.0, 10.0, 200.0][i / 2 % 4] * unit(i).powi(3)) as f32 + [0.0, 50.0][i / 2 % 2])
        .collect();
    let source = Dense::new(&values, 2).unwrap();
    let model = HierarchicalKMeans::params(300).fit(&source).unwrap();
    // The same tree, then exact sweeps.
    let fixed_point = KMeans::params(300).seeding(Seeding::Hierarchical).fit(&source).unwrap();
    let share = model.inertia() / fixed_point.inertia();
    assert!(share < 0.998, "{share}");
    // A fit that is finished right after merges and splits labels all rows exactly, too.
    let mut run = HierarchicalKMeans::params(300).start(&source).unwrap();
    // The levels of the tree move no centers, the first sweep does, and merges follow it.
    while run.advance(&source).unwrap().unwrap().center_shift == 0.0 {}
    run.finish(&source).unwrap();
    assert_eq!(run.labels(), run.model().predict(&source).unwrap());
}

fn tree<T: shoal::kernel::Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    seed: u64,
    threads: usize,
) -> Seeds<T> {
    Seeding::Hierarchical.choose(data, k, seed, 0, &Executor::new(Some(threads)).unwrap()).unwrap()
}

#[test]
fn the_tree_seeds_better_than_random_rows_and_does_not_depend_on_threads() {
    for (dim, k) in [(2, 300), (20, 700)] {
        let values = rows(8000, dim, 600);
        let source = Dense::new(&values, dim).unwrap();
        let seeds = tree::<f32>(&source, k, 3, 1);
        assert_eq!(seeds.centers, tree::<f32>(&source, k, 3, 4).centers);
        assert_ne!(seeds.centers, tree::<f32>(&source, k, 4, 1).centers);
        assert_eq!((seeds.rows.len(), &seeds.method[..], seeds.centers.len()), (0, "hierarchical", k * dim));
        assert!(seeds.n_distances > 0 && seeds.n_distances < 8000 * k as u64);
        let inertia =
            |seeding: Seeding| KMeans::params(k).seeding(seeding).max_iter(1).fit(&source).unwrap().inertia();
        let random = inertia(Seeding::Random);
        assert!(inertia(Seeding::Hierarchical) < 0.96 * random);
        let model = TruncatedGaussianMixture::params(k).seeding(Seeding::Hierarchical).fit(&source).unwrap();
        assert_eq!(model.seeded_by(), "hierarchical");
    }
}

#[test]
fn the_automatic_seeding_looks_at_all_rows_for_thousands_of_centers() {
    let values = rows(4100, 1, 4000);
    let method = |data: &dyn DataSource<f32>, k: usize| {
        Seeding::Auto.choose(data, k, 0, 0, &Executor::new(Some(2)).unwrap()).unwrap().method
    };
    let source = Dense::new(&values, 1).unwrap();
    assert_eq!(method(&source, 4000), "k-means||");
    assert_eq!(method(&source, 3999), "k-means++");
    let stream = Chunks::replay(1, || values.chunks(300).map(|part| Ok(part.to_vec().into())));
    assert_eq!(method(&stream, 4000), "k-means||");
}

#[test]
fn the_tree_seeds_distinct_centers_by_weight() {
    let mut values = rows(5000, 4, 300);
    values.chunks_mut(4).step_by(5).for_each(|row| row.fill(9000.0));
    let weights: Vec<f64> = (0..5000).map(|i| if i % 5 == 0 { 0.0 } else { 1.0 + (i % 2) as f64 }).collect();
    let source = Weighted::new::<f32>(Dense::new(&values, 4).unwrap(), weights).unwrap();
    for k in [1, 2, 40, 900] {
        let seeds = tree::<f32>(&source, k, 1, 2);
        assert!(seeds.centers.iter().all(|&x| x < 400.0), "{k}");
        let mut centers: Vec<Vec<u32>> =
            seeds.centers.chunks(4).map(|c| c.iter().map(|x| x.to_bits()).collect()).collect();
        centers.sort();
        centers.dedup();
        assert!(centers.len() * 100 >= k * 99, "{k}");
    }
}

#[test]
fn a_stream_cannot_be_seeded_by_a_tree() {
    let values = rows(500, 3, 50);
    let stream = Chunks::replay(3, || values.chunks(300).map(|part| Ok(part.to_vec().into())));
    let error = KMeans::params(9).seeding(Seeding::Hierarchical).fit(&stream).unwrap_err().to_string();
    assert!(error.contains("\"hierarchical\" reads rows one by one") && error.contains("afk-mc2"), "{error}");
}

#[test]
fn approximate_searches_reach_their_recall() {
    for (dim, metric) in [(8, Metric::Euclidean), (32, Metric::Euclidean), (24, Metric::Cosine)] {
        let values = rows(20_000, dim, 400);
        let source = Dense::new(&values, dim).unwrap();
        let params = KMeans::params(3000).seeding(Seeding::Random).metric(metric).max_iter(1);
        for threads in [1, 3] {
            let model = params.clone().fit(&source).unwrap().with_threads(Some(threads));
            for m in [1, 5] {
                let (exact, sq_dists) = model.nearest(&source, m).unwrap();
                for wanted in [0.5, 0.9, 0.99] {
                    let (found, at, search) = model.nearest_approximately(&source, m, wanted).unwrap();
                    let hits = exact.chunks(m).zip(found.chunks(m));
                    let hits: usize = hits.map(|(a, b)| a.iter().filter(|j| b.contains(j)).count()).sum();
                    let recall = hits as f64 / exact.len() as f64;
                    assert!(recall >= wanted - 0.02, "{dim} {m} {wanted}: {recall}");
                    assert!((recall - search.recall).abs() < 0.03, "{recall} {}", search.recall);
                    assert!(search.exact || search.n_probes * 5 <= search.n_cells, "{search:?}");
                    assert!(at.chunks(m).all(<[f64]>::is_sorted));
                    for (slot, &j) in found.iter().enumerate() {
                        // Distances to centers that both searches found are the same.
                        let row = slot / m * m;
                        if let Some(place) = exact[row..row + m].iter().position(|&l| l == j) {
                            assert_eq!(at[slot], sq_dists[row + place]);
                        }
                    }
                }
                let (found, at, search) = model.nearest_approximately(&source, m, 1e-9).unwrap();
                assert_eq!((search.exact, search.n_probes), (false, 1));
                assert!(found.iter().all(|&j| j < 3000) && at.iter().all(|d| d.is_finite()));
            }
        }
    }
}

#[test]
fn an_approximate_search_of_few_centers_is_exact_and_a_stream_an_error() {
    let values = rows(900, 3, 50);
    let source = Dense::new(&values, 3).unwrap();
    let model = KMeans::params(100).max_iter(2).fit(&source).unwrap();
    let (labels, sq_dists, search) = model.nearest_approximately(&source, 2, 0.5).unwrap();
    assert_eq!((labels, sq_dists), model.nearest(&source, 2).unwrap());
    assert!(search.exact && search.recall == 1.0);
    for recall in [0.0, -1.0, 1.5, f64::NAN] {
        let error = model.nearest_approximately(&source, 2, recall).unwrap_err().to_string();
        assert!(error.contains("recall"), "{error}");
    }
    assert!(model.nearest_approximately(&source, 101, 0.5).is_err());
    let stream = Chunks::replay(3, || values.chunks(300).map(|part| Ok(part.to_vec().into())));
    assert_eq!(DataSource::<f32>::access(&stream), Access::Replay);
    assert!(model.nearest_approximately(&stream, 1, 0.9).unwrap_err().to_string().contains(".npy"));
}
