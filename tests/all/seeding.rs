//! Seeding: properties that every method guarantees.

use shoal::data::{Chunk, Chunks, DataSource, Dense, Weighted};
use shoal::seeding::Seeds;
use shoal::{Executor, KMeans, MiniBatch, Seeding};

use crate::common::unit;

const GREEDY: Seeding = Seeding::PlusPlus { greedy: true };
const PLAIN: Seeding = Seeding::PlusPlus { greedy: false };
const CHAINS: Seeding = Seeding::AfkMc2 { chain: 50 };
const BLIND_CHAINS: Seeding = Seeding::KMc2 { chain: 50 };
const ROUNDS: Seeding = Seeding::Parallel { oversampling: 2.0, rounds: 4 };
const ALL: [Seeding; 7] = [Seeding::Auto, Seeding::Random, GREEDY, PLAIN, CHAINS, BLIND_CHAINS, ROUNDS];

/// `n` rows in 30 clusters of very different sizes.
fn blobs(n: usize) -> Vec<f64> {
    (0..n * 2)
        .map(|at| {
            let blob = (30.0 * unit(1_000_000 + at / 2).powi(3)) as usize;
            100.0 * unit(2_000_000 + 2 * blob + at % 2) + unit(at)
        })
        .collect()
}

fn cx() -> Executor {
    Executor::new(Some(2)).unwrap()
}

fn choose(seeding: &Seeding, data: &dyn DataSource<f64>, k: usize, seed: u64) -> Seeds<f64> {
    seeding.choose(data, k, seed, 0, &cx()).unwrap()
}

/// Weighted sum of squared distances to the nearest of `centers`.
fn cost(rows: &[f64], centers: &[f64]) -> f64 {
    let nearest = |row: &[f64]| {
        centers
            .chunks(2)
            .map(|c| (row[0] - c[0]).powi(2) + (row[1] - c[1]).powi(2))
            .fold(f64::INFINITY, f64::min)
    };
    rows.chunks(2).map(nearest).sum()
}

#[test]
fn seeds_are_distinct_rows() {
    let values = blobs(3000);
    let data = Dense::new(&values, 2).unwrap();
    for seeding in ALL {
        for k in [1, 2, 25, 100] {
            let seeds = choose(&seeding, &data, k, 1);
            let mut rows = seeds.rows.clone();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), k, "{seeding:?}");
            let expected: Vec<f64> =
                seeds.rows.iter().flat_map(|&r| values[r as usize * 2..][..2].to_vec()).collect();
            assert_eq!(seeds.centers, expected, "{seeding:?}");
        }
    }
}

#[test]
fn better_methods_start_with_lower_inertia() {
    let values = blobs(5000);
    let data = Dense::new(&values, 2).unwrap();
    let mean = |seeding: &Seeding| {
        (0..10).map(|seed| cost(&values, &choose(seeding, &data, 30, seed).centers)).sum::<f64>() / 10.0
    };
    let (random, plain, greedy) = (mean(&Seeding::Random), mean(&PLAIN), mean(&GREEDY));
    let (chains, rounds) = (mean(&CHAINS), mean(&ROUNDS));
    assert!(chains < random / 3.0 && rounds < plain, "chains {chains}, rounds {rounds}");
    assert!(greedy < plain && plain < random / 3.0, "greedy {greedy}, plain {plain}, random {random}");
}

#[test]
fn rows_are_drawn_by_weight() {
    let values = blobs(1000);
    let weights: Vec<f64> = (0..1000).map(|i| if i % 10 == 0 { 2.0 } else { 0.0 }).collect();
    let data = Weighted::new(Dense::new(&values, 2).unwrap(), weights).unwrap();
    for seeding in ALL {
        let seeds = choose(&seeding, &data, 50, 4);
        assert!(seeds.rows.iter().all(|row| row % 10 == 0), "{seeding:?}: {:?}", seeds.rows);
    }
}

#[test]
fn a_heavy_row_is_drawn_first() {
    let values = blobs(1000);
    let mut weights = vec![1e-9; 1000];
    weights[123] = 1e9;
    let data = Weighted::new(Dense::new(&values, 2).unwrap(), weights).unwrap();
    for seeding in [GREEDY, PLAIN, CHAINS, BLIND_CHAINS, ROUNDS] {
        assert_eq!(choose(&seeding, &data, 5, 9).rows[0], 123, "{seeding:?}");
    }
}

#[test]
fn doubled_weights_draw_the_same_rows() {
    // Weights of 1 are treated as no weights and draw other rows, so they are not compared.
    let values = blobs(2000);
    let with = |w: f64| Weighted::new(Dense::new(&values, 2).unwrap(), vec![w; 2000]).unwrap();
    for seeding in ALL {
        assert_eq!(
            choose(&seeding, &with(2.0), 20, 2).rows,
            choose(&seeding, &with(4.0), 20, 2).rows,
            "{seeding:?}"
        );
    }
}

#[test]
fn a_stream_gives_the_same_seeds_as_memory() {
    let values = blobs(9000);
    let weights: Vec<f64> = (0..9000).map(|i| (3.0 * unit(i)).floor()).collect();
    let dense = Dense::new(&values, 2).unwrap();
    let heavy = Weighted::new(dense, &weights[..]).unwrap();
    let chunks = |weighted: bool| {
        let (values, weights) = (&values, &weights);
        move || {
            (0..9000).step_by(731).map(move |at| {
                let end = 9000.min(at + 731);
                let chunk = Chunk::from(values[2 * at..2 * end].to_vec());
                Ok(if weighted { chunk.weighted(weights[at..end].to_vec()) } else { chunk })
            })
        }
    };
    let (stream, heavy_stream) = (Chunks::replay(2, chunks(false)), Chunks::replay(2, chunks(true)));
    for seeding in ALL {
        let pairs: [(&dyn DataSource<f64>, &dyn DataSource<f64>); 2] =
            [(&dense, &stream), (&heavy, &heavy_stream)];
        for (memory, stream) in pairs {
            let (one, other) = (choose(&seeding, memory, 12, 6), choose(&seeding, stream, 12, 6));
            assert_eq!(
                (one.rows, one.centers, one.method),
                (other.rows, other.centers, other.method),
                "{seeding:?}"
            );
        }
    }
}

#[test]
fn another_start_or_seed_draws_other_rows() {
    let values = blobs(2000);
    let data = Dense::new(&values, 2).unwrap();
    for seeding in [Seeding::Random, GREEDY, CHAINS, ROUNDS] {
        let first = choose(&seeding, &data, 10, 1).rows;
        assert_eq!(first, choose(&seeding, &data, 10, 1).rows);
        assert_ne!(first, choose(&seeding, &data, 10, 2).rows);
        assert_ne!(first, seeding.choose(&data as &dyn DataSource<f64>, 10, 1, 1, &cx()).unwrap().rows);
    }
}

#[test]
fn auto_reports_its_method() {
    let values = blobs(70_000);
    let few = Dense::new(&values[..2000], 2).unwrap();
    assert_eq!(choose(&Seeding::Auto, &few, 10, 0).method, "k-means++");
    let many = Dense::new(&values, 2).unwrap();
    let seeds = choose(&Seeding::Auto, &many, 64, 0);
    assert_eq!(seeds.method, "k-means||");
    let model = KMeans::params(64).max_iter(1).fit(&many).unwrap();
    assert_eq!(model.seeded_by(), seeds.method);
    let all = choose(&GREEDY, &many, 64, 0);
    assert!(cost(&values, &seeds.centers) < 1.5 * cost(&values, &all.centers));
}

/// A group of a few rows among many gets a center of its own.
#[test]
fn auto_finds_rare_groups() {
    let mut values = blobs(60_000);
    for group in 0..20 {
        for row in 0..3 {
            let at = 2 * (group * 2_900 + row * 31);
            values[at..at + 2].copy_from_slice(&[1e4 * (1.0 + group as f64), row as f64]);
        }
    }
    let data = Dense::new(&values, 2).unwrap();
    let seeds = choose(&Seeding::Auto, &data, 100, 0);
    for group in 0..20 {
        let near = |center: &[f64]| (center[0] - 1e4 * (1.0 + f64::from(group))).abs() < 1e3;
        assert!(seeds.centers.chunks(2).any(near), "group {group}");
    }
}

#[test]
fn methods_have_names() {
    let values = blobs(100);
    let data = Dense::new(&values, 2).unwrap();
    let given = Seeding::Given(values[..8].to_vec());
    let named = [
        (Seeding::Random, "random"),
        (GREEDY, "k-means++"),
        (PLAIN, "plain-k-means++"),
        (given, "given"),
        (CHAINS, "afk-mc2"),
        (BLIND_CHAINS, "k-mc2"),
        (ROUNDS, "k-means||"),
    ];
    for (seeding, name) in named {
        assert_eq!(choose(&seeding, &data, 4, 0).method, name);
    }
}

#[test]
fn fewer_distinct_rows_than_clusters() {
    let values: Vec<f64> = (0..40).flat_map(|i| [f64::from(i % 3); 2]).collect();
    let data = Dense::new(&values, 2).unwrap();
    for seeding in [Seeding::Auto, GREEDY, PLAIN, CHAINS, BLIND_CHAINS, ROUNDS] {
        let mut kinds: Vec<u64> = choose(&seeding, &data, 6, 3).rows[..3].iter().map(|row| row % 3).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, [0, 1, 2], "each of them comes first, {seeding:?}");
        let model = KMeans::params(6).seeding(seeding).fit(&data).unwrap();
        assert_eq!(model.inertia(), 0.0);
        assert_eq!(model.cluster_weights().iter().filter(|&&w| w == 0.0).count(), 3);
    }
}

#[test]
fn all_parameter_errors_are_reported_at_once() {
    let data = Dense::new(&[1.0f64, 2.0], 1).unwrap();
    let refused =
        |seeding: Seeding| seeding.choose(&data as &dyn DataSource<f64>, 1, 0, 0, &cx()).unwrap_err();
    assert_eq!(refused(Seeding::AfkMc2 { chain: 0 }).to_string(), "chain must be at least 1, got 0");
    assert_eq!(
        refused(Seeding::Parallel { oversampling: f64::NAN, rounds: 0 }).to_string(),
        "oversampling must be finite and above 0, got NaN; rounds must be at least 1, got 0"
    );
}

#[test]
fn several_starts_keep_the_best() {
    let values = blobs(1500);
    let data = Dense::new(&values, 2).unwrap();
    let one =
        |n_init| KMeans::params(12).seeding(Seeding::Random).n_init(n_init).rng_seed(3).fit(&data).unwrap();
    let many: Vec<f64> = (1..=6).map(|n| one(n).inertia()).collect();
    assert!(many.windows(2).all(|two| two[1] <= two[0]), "{many:?}");
    assert!(many[5] < many[0], "{many:?}");
}

/// All starts of both fits end with the same objective, but number the clusters differently.
#[test]
fn the_first_of_equal_starts_is_kept() {
    let rows = [[0.0f64], [1.0], [10.0], [11.0]];
    let pairs = [[0.0f64], [10.0], [10.0]];
    let mut orders = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
    for seed in 0..20 {
        let exact = KMeans::params(2).seeding(Seeding::Random).rng_seed(seed);
        let centers = |n_init| {
            let model = exact.clone().n_init(n_init).fit(&rows).unwrap();
            assert_eq!(model.inertia(), 1.0);
            model.centers::<f64>().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let first = centers(1);
        assert_eq!(centers(5), first, "seed {seed}");
        orders[0].insert(first);

        let batches =
            MiniBatch::params(2).seeding(Seeding::Random).rng_seed(seed).init_size(Some(3)).batch_size(3);
        let fitted = |n_init| batches.clone().n_init(n_init).max_iter(1).fit(&pairs).unwrap();
        let first = fitted(1);
        // Otherwise both seeds were equal rows, and another start is better.
        if first.inertia() == 0.0 {
            let first = first.centers::<f64>().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                fitted(5).centers::<f64>().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                first,
                "seed {seed}"
            );
            orders[1].insert(first);
        }
    }
    assert_eq!(orders.map(|found| found.len()), [2, 2]);
}
