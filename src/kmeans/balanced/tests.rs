//! Tests of assignments with limits against exact ones, and of whole fits.

use proptest::prelude::*;

use super::ascent::ascend;
use super::assign::{Assigned, BALANCED_ROUNDS, assign};
use super::choices::Choices;
use super::coarse::lengthen;
use super::limits::{Asked, Size, SizeLimits};
use super::lists::CandidateLists;
use super::repair::repair;
use super::solver::Balance;
use super::transport::Transport;
use super::{Balanced, BalancedParams, BalancedRun};
use crate::centers::LabelList;
use crate::data::{AnySource, Chunks, Dense, Source, Weighted};
use crate::fit::{FitSolver, Method, Metric, Solver};
use crate::kernel::{PackedCenters, sq_dist};
use crate::kmeans::KMeans;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n).map(|_| rng.unit() - 0.5).collect()
}

/// Rows in groups of very different sizes.
fn grouped(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let (middles, values) = (noise(9 * d, seed), noise(n * d, seed + 1));
    let group = |i: usize| [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8][i * 7 % 16];
    (0..n * d).map(|i| 3.0 * middles[group(i / d) * d + i % d] + values[i]).collect()
}

fn executor() -> Executor {
    Executor::new(Some(2)).unwrap()
}

#[test]
fn the_better_of_two_searches_has_the_lower_energy_and_the_higher_bound() {
    let of = |(energy, bound): (f64, f64)| Balance::<f64> {
        centers: Vec::new(),
        prices: vec![bound],
        labels: LabelList::Narrow(Vec::new()),
        settled: Vec::new(),
        sizes: vec![energy],
        energy,
        bound,
        current: true,
        sweeps: 0,
    };
    for (one, other, expected) in [
        ((5.0, 3.0), (4.0, 2.0), (4.0, 3.0)),
        ((4.0, 2.0), (5.0, 3.0), (4.0, 3.0)),
        ((4.0, 3.0), (5.0, 2.0), (4.0, 3.0)),
        // Rounding: a bound is never above the energy.
        ((4.5, 4.25), (4.0, 2.0), (4.0, 4.0)),
    ] {
        let better = of(one).or_better(of(other));
        assert_eq!((better.energy, better.bound), expected);
        assert_eq!((better.sizes[0], better.prices[0]), (expected.0, one.1.max(other.1)));
    }
}

/// The least energy of labels of which every cluster has `least` to `most` rows: an assignment of rows, and of rows
/// that cost nothing but may not fill the first `least` places of a cluster, to `most` places per cluster (the
/// Hungarian method).
fn least_energy(costs: &[Vec<f64>], least: usize, most: usize) -> f64 {
    let (n, k) = (costs.len(), costs[0].len());
    let size = k * most;
    let forbidden = 1e9 * (1.0 + costs.iter().flatten().fold(0.0, |a: f64, &b| a.max(b)));
    let cost = |row: usize, place: usize| match costs.get(row) {
        Some(costs) => costs[place / most],
        None if place % most < least => forbidden,
        None => 0.0,
    };
    let (mut u, mut v) = (vec![0.0; size + 1], vec![0.0; size + 1]);
    let mut taken = vec![0; size + 1];
    for row in 1..=size {
        taken[0] = row;
        let mut place = 0;
        let (mut slack, mut from) = (vec![f64::INFINITY; size + 1], vec![0; size + 1]);
        let mut used = vec![false; size + 1];
        while taken[place] != 0 {
            used[place] = true;
            let (mut delta, mut next) = (f64::INFINITY, 0);
            for j in 1..=size {
                if !used[j] {
                    let now = cost(taken[place] - 1, j - 1) - u[taken[place]] - v[j];
                    if now < slack[j] {
                        (slack[j], from[j]) = (now, place);
                    }
                    if slack[j] < delta {
                        (delta, next) = (slack[j], j);
                    }
                }
            }
            for j in 0..=size {
                if used[j] {
                    u[taken[j]] += delta;
                    v[j] -= delta;
                } else {
                    slack[j] -= delta;
                }
            }
            place = next;
        }
        while place != 0 {
            taken[place] = taken[from[place]];
            place = from[place];
        }
    }
    (1..=size).filter(|&j| taken[j] <= n).map(|j| cost(taken[j] - 1, j - 1)).sum()
}

fn counted(labels: &[u32], k: usize) -> Vec<usize> {
    let mut counts = vec![0; k];
    for &j in labels {
        counts[j as usize] += 1;
    }
    counts
}

fn assigned(rows: &[f64], d: usize, centers: &[f64], asked: Asked, prices: &[f64]) -> Assigned {
    let data = Dense::new(rows, d).unwrap();
    let limits = SizeLimits::new::<f64>(asked, centers.len() / d, &data).unwrap();
    assign(MatRef::new(centers, d), prices, &limits, (1 << 30, BALANCED_ROUNDS), &data, &executor()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn few_clusters_are_filled_at_the_least_cost(
        n in 4usize..48, k in 1usize..7, d in 1usize..4, seed in any::<u64>(), ties in any::<bool>(),
        cut in 0usize..100, more in 0usize..100, scale in prop_oneof![Just(1e-6), Just(1.0), Just(1e5)],
    ) {
        prop_assume!(k <= n);
        let (least, most) = (cut * (n / k) / 99, n.div_ceil(k) + more * n / 300);
        let round = |x: f64| if ties { (4.0 * x).round() } else { x } * scale;
        let rows: Vec<f64> = grouped(n, d, seed % 1000).into_iter().map(round).collect();
        let centers: Vec<f64> = grouped(k, d, seed % 1000 + 5).into_iter().map(round).collect();
        let costs: Vec<Vec<f64>> =
            rows.chunks(d).map(|row| centers.chunks(d).map(|c| sq_dist(row, c)).collect()).collect();
        let best = least_energy(&costs, least, most);
        let asked = (Some(Size::Rows(least as u64)), Some(Size::Rows(most as u64)));
        let wild: Vec<f64> = noise(k, seed % 77).into_iter().map(|x| scale * scale * 10.0 * x).collect();
        for prices in [&vec![0.0; k], &wild] {
            let found = assigned(&rows, d, &centers, asked, prices);
            let counts = counted(&found.labels, k);
            prop_assert!(counts.iter().all(|count| (least..=most).contains(count)), "{counts:?}");
            let energy = found.sums.energy();
            let rounding = 1e-9 * (best + costs.iter().flatten().sum::<f64>());
            prop_assert!((energy - best).abs() <= rounding, "{energy} {best}");
            prop_assert!(found.bound <= energy && found.bound >= energy - rounding, "{} {energy}", found.bound);
        }
    }

    #[test]
    fn bounds_are_below_all_feasible_labels(
        n in 40usize..110, k in 17usize..22, d in 1usize..4, seed in 0u64..1000, slack in 0usize..3,
    ) {
        // More clusters than candidates.
        let (rows, centers) = (grouped(n, d, seed), grouped(k, d, seed + 9));
        let most = n.div_ceil(k) + slack;
        let least = (n / k).saturating_sub(slack);
        let asked = (Some(Size::Rows(least as u64)), Some(Size::Rows(most as u64)));
        let costs: Vec<Vec<f64>> =
            rows.chunks(d).map(|row| centers.chunks(d).map(|c| sq_dist(row, c)).collect()).collect();
        let best = least_energy(&costs, least, most);
        let found = assigned(&rows, d, &centers, asked, &vec![0.0; k]);
        prop_assert!(counted(&found.labels, k).iter().all(|count| (least..=most).contains(count)));
        let rounding = 1e-9 * best;
        prop_assert!(found.bound <= best + rounding, "{} {best}", found.bound);
        prop_assert!(found.sums.energy() >= best - rounding);
        let gap = (found.sums.energy() - found.bound) / found.sums.energy();
        prop_assert!(found.sums.energy() - best <= gap * found.sums.energy() + rounding);
        // Any prices give a bound.
        let data = Dense::new(&rows, d).unwrap();
        let limits = SizeLimits::new::<f64>(asked, k, &data).unwrap();
        let cx = executor();
        let lists = CandidateLists::new(MatRef::new(&centers, d), &found.prices, k.min(2), &data, &cx).unwrap();
        for seed in 0..5 {
            let prices: Vec<f64> = noise(k, seed).iter().zip(&found.prices).map(|(x, p)| p + x).collect();
            prop_assert!(Choices::new(&lists, prices, &limits, &cx).unwrap().bound <= best + rounding);
        }
    }

    #[test]
    fn an_ascent_and_paths_from_near_arcs_reach_the_least_cost(
        n in 150usize..250, k in 2usize..7, d in 1usize..4, seed in 0u64..1000, slack in 0usize..9, ties in any::<bool>(),
    ) {
        let round = |x: f64| if ties { (4.0 * x).round() } else { x };
        let rows: Vec<f64> = grouped(n, d, seed).into_iter().map(round).collect();
        let centers: Vec<f64> = grouped(k, d, seed + 9).into_iter().map(round).collect();
        let (least, most) = ((n / k).saturating_sub(slack), n.div_ceil(k) + slack);
        let asked = (Some(Size::Rows(least as u64)), Some(Size::Rows(most as u64)));
        let (data, cx) = (Dense::new(&rows, d).unwrap(), executor());
        let limits = SizeLimits::new::<f64>(asked, k, &data).unwrap();
        let lists = CandidateLists::new(MatRef::new(&centers, d), &vec![0.0; k], k, &data, &cx).unwrap();
        let costs: Vec<Vec<f64>> =
            rows.chunks(d).map(|row| centers.chunks(d).map(|c| sq_dist(row, c)).collect()).collect();
        let best = least_energy(&costs, least, most);
        let rounding = 1e-9 * (best + costs.iter().flatten().sum::<f64>());
        let begin = Choices::new(&lists, vec![0.0; k], &limits, &cx).unwrap();
        let dual = begin.dual;
        let mut highest = f64::NEG_INFINITY;
        let risen = ascend(&lists, begin, &limits, |seen| highest = highest.max(seen.dual), &cx).unwrap();
        prop_assert!(risen.dual >= dual && risen.dual <= best + rounding, "{dual} {} {best}", risen.dual);
        prop_assert!(risen.dual >= highest);
        for reach in [0.0, 0.01, 0.1, 1.0, f64::INFINITY] {
            let mut transport = Transport::new(&lists, &risen, (least as i64, most as i64), &limits.weights, reach);
            let settled = transport.settle(&cx).unwrap();
            prop_assert!(settled == Some(true) || reach.is_finite());
            if settled.is_some() {
                let (prices, labels) = transport.into_prices_and_labels();
                let energy = lists.energy(&labels, &limits);
                prop_assert!((energy - best).abs() <= rounding, "{reach}: {energy} {best}");
                let found = Choices::new(&lists, prices, &limits, &cx).unwrap();
                prop_assert!((found.dual - best).abs() <= rounding, "{reach}: {} {best}", found.dual);
            }
        }
    }

    #[test]
    fn weights_miss_a_limit_by_at_most_one_row(
        n in 20usize..400, k in 2usize..25, seed in 0u64..1000, heavy in 1u32..20, slack in 0usize..30,
    ) {
        prop_assume!(k <= n / 2);
        check_weighted_limits((n, k, seed), heavy, slack);
    }
}

/// Limits of `slack` percent around the mean, for rows of weights up to `heavy`.
fn check_weighted_limits((n, k, seed): (usize, usize, u64), heavy: u32, slack: usize) {
    let rows = grouped(n, 2, seed);
    let weights: Vec<f64> =
        noise(n, seed).iter().map(|x| 0.1 + (f64::from(heavy) * (x + 0.5)).floor()).collect();
    let share = slack as f64 / 100.0;
    let params = Balanced::params(k)
        .size_min(Size::TimesMean(1.0 - share))
        .size_max(Size::TimesMean(1.0 + share))
        .max_iter(3)
        .rng_seed(seed);
    let data = Weighted::new::<f64>(Dense::new(&rows, 2).unwrap(), &weights[..]).unwrap();
    let run = finished(&params, &data);
    let most = weights.iter().copied().fold(0.0, f64::max);
    let mean = weights.iter().sum::<f64>() / k as f64;
    let (low, high) = (mean * (1.0 - share) - most, mean * (1.0 + share) + most);
    assert!(
        run.sizes().iter().all(|&size| size > low - 1e-6 && size < high + 1e-6),
        "{:?} {low} {high}",
        run.sizes()
    );
    assert!(run.gap() >= 0.0 && run.gap() <= 1.0);
}

#[test]
fn heavy_rows_push_no_cluster_far_beyond_a_limit() {
    check_weighted_limits((396, 10, 739), 6, 0);
}

fn finished<S: Source>(params: &BalancedParams, rows: &S) -> BalancedRun {
    let mut run = params.start(rows).unwrap();
    while run.advance(rows).unwrap().is_some() {}
    run.finish(rows).unwrap();
    run
}

/// Centers and prices as bits, labels, inertia and bound as bits, history.
type Outcome = (Vec<u64>, Vec<u64>, Vec<u32>, [u64; 2], Vec<(u64, u64)>);

fn outcome(run: &BalancedRun) -> Outcome {
    let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let history = run.history().iter().map(|step| (step.objective.to_bits(), step.n_changed)).collect();
    let figures = [run.inertia().to_bits(), run.lower_bound().to_bits()];
    (bits(&run.centers::<f64>()), bits(run.prices()), run.labels(), figures, history)
}

#[test]
fn samples_have_limits_in_proportion() {
    let rows = grouped(1000, 2, 1);
    let data = Dense::new(&rows, 2).unwrap();
    let asked = (Some(Size::TimesMean(0.5)), Some(Size::TimesMean(1.2)));
    let limits = SizeLimits::new::<f64>(asked, 10, &data).unwrap();
    assert!(limits.weights.odds().is_none());
    let sample = limits.of_sample(200);
    assert_eq!((sample.in_rows, sample.mean), (Some((10, 24)), 20.0));
    // Equal sizes are kept up to one row.
    let equal = (Some(Size::TimesMean(1.0)), Some(Size::TimesMean(1.0)));
    let limits = SizeLimits::new::<f64>(equal, 10, &data).unwrap();
    assert_eq!(limits.of_sample(47).in_rows, Some((4, 5)));
    let weights: Vec<f64> = (0..1000).map(|row| f64::from(row % 5)).collect();
    let weighted = Weighted::new::<f64>(data, &weights[..]).unwrap();
    let limits = SizeLimits::new::<f64>(asked, 10, &weighted).unwrap();
    assert_eq!(limits.weights.odds().as_deref(), Some(&weights[..]));
    assert_eq!(limits.of_sample(200).in_rows, Some((10, 24)));
}

#[test]
fn longer_moves_end_before_centers_are_farther_from_their_rows() {
    let (before, mut centers) = ([0.0f64, 4.0], [2.0, 3.0]);
    lengthen(&before, &mut centers, Metric::Euclidean);
    assert_eq!(centers, [3.0, 2.5]);
    let mut centers = [2.0f32, f32::MAX];
    lengthen(&[0.0, -f32::MAX], &mut centers, Metric::Euclidean);
    assert_eq!(centers, [3.0, f32::MAX]);
    let mut centers = [0.6f32, 0.8];
    lengthen(&[1.0, 0.0], &mut centers, Metric::Cosine);
    assert_eq!(centers, [0.6, 0.8]);
}

#[test]
fn without_limits_it_is_exact_kmeans() {
    let rows = grouped(3000, 3, 4);
    let data = Dense::new(&rows, 3).unwrap();
    let mut plain = KMeans::params(12).rng_seed(3).n_init(2).start(&data).unwrap();
    while plain.advance(&data).unwrap().is_some() {}
    let run = finished(&Balanced::params(12).rng_seed(3).n_init(2), &data);
    assert_eq!((run.centers::<f64>(), run.labels()), (plain.centers::<f64>(), plain.labels()));
    assert_eq!(run.inertia().to_bits(), plain.inertia().to_bits());
    assert_eq!(run.history().len(), plain.history().len());
    assert_eq!((run.lower_bound(), run.gap()), (run.inertia(), 0.0));
}

#[test]
fn half_of_the_rows_may_be_identical() {
    for (n, k) in [(1000, 10), (1001, 7), (2000, 40), (600, 300)] {
        let mut rows = grouped(n, 2, 8);
        rows[..n].fill(0.25);
        let narrow: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
        let equal = Balanced::params(k).size_min(Size::TimesMean(1.0)).size_max(Size::TimesMean(1.0));
        let run = finished(&equal.max_iter(20), &Dense::new(&narrow, 2).unwrap());
        let counts = counted(&run.labels(), k);
        assert!(counts.iter().all(|&count| count == n / k || count == n.div_ceil(k)), "{n} {k}: {counts:?}");
        assert!(run.gap() >= 0.0 && run.lower_bound() <= run.inertia());
    }
}

#[test]
fn rows_that_candidates_cannot_place_are_placed() {
    // All rows are nearest to the same centers, far more than those may have.
    let rows: Vec<f64> = (0..500).map(|i| f64::from(i) / 1e4).collect();
    let centers: Vec<f64> = (0..100).map(f64::from).collect();
    let asked = (Some(Size::Rows(5)), Some(Size::Rows(5)));
    let found = assigned(&rows, 1, &centers, asked, &[0.0; 100]);
    assert_eq!(counted(&found.labels, 100), [5; 100]);
    assert!(found.bound <= found.sums.energy());
    // A lower limit alone pulls rows to centers that are nobody's candidates.
    let found = assigned(&rows, 1, &centers, (Some(Size::Rows(3)), None), &[0.0; 100]);
    assert!(counted(&found.labels, 100).iter().all(|&count| count >= 3));
}

#[test]
fn a_repair_moves_the_rows_of_least_regret() {
    let rows = [0.0, 0.1, 0.4, 0.3, 5.0, 9.0];
    let data = Dense::new(&rows[..], 1).unwrap();
    let packed = PackedCenters::new(MatRef::new(&[0.0, 1.0, 5.0, 9.0], 1));
    let limits = SizeLimits::new::<f64>((None, Some(Size::Rows(2))), 4, &data).unwrap();
    let mut labels = vec![0, 0, 0, 0, 2, 3];
    repair(&mut labels, &limits, &packed, &data, &executor()).unwrap();
    assert_eq!(labels, [0, 0, 1, 1, 2, 3]);
    let limits = SizeLimits::new::<f64>((Some(Size::Rows(1)), None), 4, &data).unwrap();
    let mut labels = vec![0, 0, 0, 0, 2, 3];
    repair(&mut labels, &limits, &packed, &data, &executor()).unwrap();
    assert_eq!(labels, [0, 0, 1, 0, 2, 3]);
}

#[test]
fn centers_closer_than_their_rounding_keep_limits_too() {
    let rows: Vec<f32> = (0..400).map(|i| 1e6 + (i % 7) as f32).collect();
    let centers: Vec<f32> = (0..20).map(|i| 1e6 + 0.0625 * i as f32).collect();
    let data = Dense::new(&rows, 1).unwrap();
    let asked = (Some(Size::Rows(20)), Some(Size::Rows(20)));
    let limits = SizeLimits::new::<f32>(asked, 20, &data).unwrap();
    let found =
        assign(MatRef::new(&centers, 1), &[0.0; 20], &limits, (1 << 30, BALANCED_ROUNDS), &data, &executor())
            .unwrap();
    assert_eq!(counted(&found.labels, 20), [20; 20]);
    let costs: Vec<Vec<f64>> =
        rows.iter().map(|&x| centers.iter().map(|&c| sq_dist(&[x], &[c])).collect()).collect();
    let best = least_energy(&costs, 20, 20);
    assert!(found.bound <= best * (1.0 + 1e-9) && found.sums.energy() >= best * (1.0 - 1e-9));
}

#[test]
fn the_objective_falls_and_the_limits_hold_after_every_finish() {
    let rows = grouped(4000, 3, 2);
    let data = Dense::new(&rows, 3).unwrap();
    let params = Balanced::params(30)
        .size_min(Size::Rows(100))
        .size_max(Size::TimesMean(1.1))
        .rng_seed(1)
        .tolerance(0.0);
    let mut run = params.start(&data).unwrap();
    let mut energies = Vec::new();
    while let Some(step) = run.advance(&data).unwrap() {
        let with_limits = !run.prices().is_empty() && run.lower_bound().is_finite();
        run.finish(&data).unwrap();
        assert!(run.sizes().iter().all(|size| (100.0..=147.0).contains(size)), "{:?}", run.sizes());
        assert!(run.gap() < 0.005, "{}", run.gap());
        if with_limits {
            energies.push(step.objective);
        }
    }
    assert!(
        energies.len() > 2 && energies.windows(2).all(|two| two[1] <= two[0] * (1.0 + 1e-9)),
        "{energies:?}"
    );
    // A look at the labels between two steps changes nothing.
    assert_eq!(outcome(&run), outcome(&finished(&params, &data)));
}

#[test]
fn threads_and_blocks_change_no_bit() {
    let narrow: Vec<f32> = grouped(9000, 5, 4).into_iter().map(|x| x as f32).collect();
    let params =
        Balanced::params(35).size_min(Size::TimesMean(0.8)).size_max(Size::TimesMean(1.05)).rng_seed(8);
    let params = params.seeding(Seeding::Given(narrow[..35 * 5].iter().map(|&x| f64::from(x)).collect()));
    let data = Dense::new(&narrow, 5).unwrap();
    let of = |threads| outcome(&finished(&params.clone().threads(Some(threads)), &data));
    let one = of(1);
    assert!((2..5).all(|threads| of(threads) == one));
    for rows in [700, 4096] {
        let blocks = || narrow.chunks(rows * 5).map(|block| Ok(block.to_vec().into()));
        let stream = Chunks::<f32>::replay(5, blocks);
        assert_eq!(outcome(&finished(&params, &stream)), one, "blocks of {rows} rows");
    }
}

#[test]
fn equal_weights_are_rows() {
    let rows = grouped(900, 2, 6);
    let data = Dense::new(&rows, 2).unwrap();
    // Seedings draw other rows if there are weights.
    let params = Balanced::params(9).size_max(Size::TimesMean(1.0)).tolerance(0.0);
    let params = params.seeding(Seeding::Given(rows[..2 * 9].to_vec()));
    let plain = finished(&params, &data);
    let doubled = Weighted::new::<f64>(Dense::new(&rows, 2).unwrap(), vec![2.0; 900]).unwrap();
    let doubled = finished(&params, &doubled);
    assert_eq!(doubled.sizes(), [200.0; 9]);
    assert!((doubled.inertia() - 2.0 * plain.inertia()).abs() <= 1e-9 * doubled.inertia());
    assert!(doubled.gap() < 1e-9 && plain.gap() < 1e-9);
    // Rows without weight have labels, but take no room.
    let mut weights = vec![1.0; 900];
    weights.extend([0.0; 300]);
    let more = [rows.clone(), rows[..600].to_vec()].concat();
    let some = Weighted::new::<f64>(Dense::new(&more, 2).unwrap(), weights).unwrap();
    let some = finished(&params, &some);
    assert_eq!((some.sizes(), some.labels().len()), (&[100.0; 9][..], 1200));
}

#[test]
fn limits_that_cannot_be_kept_are_refused() {
    let rows = grouped(100, 2, 1);
    let data = Dense::new(&rows, 2).unwrap();
    let refused = |params: BalancedParams| params.fit(&data).unwrap_err().to_string();
    let base = Balanced::params(7);
    for (params, message) in [
        (
            base.clone().size_max(Size::Rows(14)),
            "`n_clusters` * `size_max` >= 100, the number of rows, got 14, where 7 * 14 = 98",
        ),
        (
            base.clone().size_min(Size::Rows(15)),
            "`n_clusters` * `size_min` <= 100, the number of rows, got 15, where 7 * 15 = 105",
        ),
        (base.clone().size_max(Size::TimesMean(0.9)), "got 0.9, where 7 * 13 = 91"),
        (
            base.clone().size_min(Size::TimesMean(f64::NAN)),
            "size_min must be a finite number of at least 0, got NaN",
        ),
    ] {
        let found = refused(params);
        assert!(found.ends_with(message), "{found}");
    }
    let kept = base.size_min(Size::Rows(14)).size_max(Size::Rows(15)).fit(&data).unwrap();
    assert!(kept.cluster_weights().iter().all(|size| (14.0..=15.0).contains(size)));
    let weighted = Weighted::new::<f64>(data, vec![0.5; 100]).unwrap();
    let found = Balanced::params(2).size_max(Size::Rows(20)).fit(&weighted).unwrap_err().to_string();
    assert!(
        found.ends_with("`n_clusters` * `size_max` >= 50, the sum of the weights, got 20, where 2 * 20 = 40"),
        "{found}"
    );
}

#[test]
fn damaged_checkpoints_are_errors() {
    let rows = grouped(300, 2, 4);
    let data = Dense::new(&rows, 2).unwrap();
    let params = Balanced::params(8).size_max(Size::TimesMean(1.1)).rng_seed(1).tolerance(0.0);
    let mut run = params.start(&data).unwrap();
    while !run.lower_bound().is_finite() {
        run.advance(&data).unwrap();
    }
    let whole = run.checkpoint(&data).unwrap();
    assert!(params.resume_fit(&whole, &data).is_ok());
    for (name, problem) in [
        ("prices", "\"prices\""),
        ("settled", "\"settled\""),
        ("labels", "\"labels\""),
        ("sizes", "\"sizes\""),
        ("centers", "\"centers\""),
    ] {
        let mut damaged = whole.clone();
        damaged.arrays.remove(name);
        let Err(refused) = params.resume_fit(&damaged, &data) else { panic!("{name} is not missed") };
        assert!(refused.to_string().replace('\\', "").contains(problem), "{refused}");
    }
    let Err(refused) = Balanced::params(8).resume_fit(&whole, &data) else { panic!("limits are not missed") };
    assert!(refused.to_string().contains("size_min and size_max are none"), "{refused}");
}

#[test]
fn an_interrupted_sweep_changes_nothing() {
    let rows = grouped(3000, 2, 4);
    let data = Dense::new(&rows, 2).unwrap();
    let params = Balanced::params(20).size_max(Size::TimesMean(1.02)).rng_seed(1);
    let expected = outcome(&finished(&params, &data));
    let cx = executor();
    let mut solver = Balanced::solver::<f64>(&params);
    let mut steps = 0;
    loop {
        cx.interrupt().set();
        assert!(solver.step(&data, &cx).is_err());
        cx.interrupt().clear();
        steps += 1;
        if solver.step(&data, &cx).unwrap().stop_reason.is_some() {
            break;
        }
    }
    assert_eq!(steps, expected.4.len());
    FitSolver::<f64>::finish(&mut solver, &data, &cx).unwrap();
    assert_eq!(solver.snapshot().inertia.to_bits(), expected.3[0]);
    let _: AnySource<'_> = data.any();
}

#[test]
fn prices_that_stop_at_zero_balance_weights() {
    // Groups of very different sizes: many prices begin above 0 and end at 0.
    let (mut rows, n) = (noise(8000, 3), 4000);
    for (i, row) in rows.chunks_exact_mut(2).enumerate() {
        let group = (i * i / n) % 12;
        row[0] = row[0] * (1.0 + group as f64) + (group * group) as f64;
        row[1] += (group % 3) as f64;
    }
    let weights: Vec<f64> = noise(n, 4).iter().map(|x| -(0.5 - x).ln()).collect();
    let data = Weighted::new::<f64>(Dense::new(&rows, 2).unwrap(), &weights[..]).unwrap();
    // With 100 rows per cluster, the heaviest rows leave a wider gap.
    for (k, least, most, gap) in [(20, 0.0, 1.25, 0.02), (20, 1.0, 1.0, 0.02), (40, 0.0, 1.1, 0.05)] {
        let params =
            Balanced::params(k).size_min(Size::TimesMean(least)).size_max(Size::TimesMean(most)).rng_seed(1);
        let run = finished(&params, &data);
        assert!(run.gap() <= gap, "gap {} for {k} clusters, at most {most}", run.gap());
    }
}
