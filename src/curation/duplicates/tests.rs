//! Duplicates against brute force over all pairs.

use proptest::prelude::*;

use super::*;
use crate::data::{Csr, Dense, Weighted, take};
use crate::kernel::sq_dist;
use crate::rng::{Purpose, Rng};

/// Rows whose distances have many ties, with copies and rows of zeros.
fn rows(n: usize, dim: usize, below: u64, seed: u64) -> Vec<f32> {
    let rng = &mut Rng::keyed(seed, Purpose::Seeding, 0);
    let mut values: Vec<f32> = (0..n * dim).map(|_| rng.below(below) as f32).collect();
    for row in 0..n {
        let other = rng.below(4 * n as u64) as usize;
        if other < row {
            values.copy_within(other * dim..(other + 1) * dim, row * dim);
        }
    }
    values
}

/// The pairs within the threshold, by brute force.
fn pairs(how: &Deduplication, values: &[f32], dim: usize) -> Vec<(u32, u32)> {
    let n = values.len() / dim;
    let seen = match how.metric {
        Metric::Euclidean => values.to_vec(),
        Metric::Cosine => {
            let numbers: Vec<u64> = (0..n as u64).collect();
            take::<f32>(&Normalized::new(Dense::new(values, dim).unwrap()), &numbers).unwrap()
        }
    };
    let row = |i: usize| &seen[i * dim..][..dim];
    let apart = |i: usize| how.metric == Metric::Cosine && row(i).iter().all(|&x| x == 0.0);
    let is_pair = |i, j| !apart(i) && !apart(j) && sq_dist(row(i), row(j)) <= how.reach();
    let before = |j| (0..j).filter(move |&i| is_pair(i, j)).map(move |i| (i as u32, j as u32));
    (0..n).flat_map(before).collect()
}

/// The kept row per row, from pairs and the order of the rows.
fn grouped(linkage: Linkage, pairs: &[(u32, u32)], order: &[u32]) -> Vec<u32> {
    let n = order.len();
    let mut rank = vec![0; n];
    (0..).zip(order).for_each(|(r, &row)| rank[row as usize] = r);
    let mut near = vec![Vec::new(); n];
    for &(a, b) in pairs {
        let (a, b): (u32, u32) = (rank[a as usize], rank[b as usize]);
        near[a as usize].push(b);
        near[b as usize].push(a);
    }
    let mut leader: Vec<u32> = (0..n as u32).collect();
    for r in 0..n as u32 {
        let earlier = near[r as usize].iter().copied().filter(|&other| other < r);
        match linkage {
            Linkage::Leader => {
                let kept = earlier.filter(|&other| leader[other as usize] == other).min();
                leader[r as usize] = kept.unwrap_or(r);
            }
            Linkage::SemDeDup => leader[r as usize] = earlier.min().map_or(r, |other| leader[other as usize]),
            Linkage::Components => {
                // Everything that is reachable from a row that has no leader yet.
                let mut open = if leader[r as usize] == r { vec![r] } else { Vec::new() };
                while let Some(next) = open.pop() {
                    for &other in &near[next as usize] {
                        if other != r && leader[other as usize] == other {
                            leader[other as usize] = r;
                            open.push(other);
                        }
                    }
                }
            }
        }
    }
    let mut kept = vec![0; n];
    (0..n).for_each(|r| kept[order[r] as usize] = order[leader[r] as usize]);
    kept
}

const LINKAGES: [Linkage; 3] = [Linkage::Leader, Linkage::Components, Linkage::SemDeDup];

/// The parts of a compressed matrix: starts, columns and values.
type Stored = (Vec<i64>, Vec<i32>, Vec<f32>);

fn stored(values: &[f32], dim: usize) -> Stored {
    let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks_exact(dim) {
        for (column, &x) in (0..).zip(row).filter(|(_, x)| **x != 0.0) {
            columns.push(column);
            kept.push(x);
        }
        starts.push(kept.len() as i64);
    }
    (starts, columns, kept)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn they_are_those_of_brute_force(
        n in 1usize..200, dim in 1usize..6, below in 2u64..9, k in 1usize..40, step in 0usize..8,
        cosine in any::<bool>(), sparse in any::<bool>(), weighted in any::<bool>(), linkage in 0usize..3,
        keep in 0usize..3, memory in prop::sample::select(vec![1, 64, 1 << 30]), seed in any::<u64>(),
    ) {
        let values = rows(n, dim, below, seed);
        let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
        // Squared distances of Euclidean rows are integers: ties at the threshold are exact.
        let threshold = if cosine { 0.02 * step as f64 } else { (step as f64).sqrt() };
        let keep = [Keep::First, Keep::NearestToCenter, Keep::FarthestFromCenter][keep];
        let how = Deduplication::within(threshold)
            .metric(metric)
            .linkage(LINKAGES[linkage])
            .keep(keep)
            .n_clusters(Some(k.min(n)))
            .memory(memory);
        let weights: Vec<f64> = (0..n).map(|i| if weighted && i % 3 == 1 { 0.0 } else { 1.0 }).collect();
        let (starts, columns, kept) = stored(&values, dim);
        let data: Box<dyn DataSource<f32> + '_> = if sparse && !kept.is_empty() {
            let data = Csr::new((n, dim), starts[..].into(), columns[..].into(), &kept).unwrap();
            Box::new(Weighted::new::<f32>(data, &weights).unwrap())
        } else {
            Box::new(Weighted::new::<f32>(Dense::new(&values, dim).unwrap(), &weights).unwrap())
        };
        let normalized = Normalized::new::<f32>(&*data);
        let data: &dyn DataSource<f32> = if cosine { &normalized } else { &*data };
        let cx = Executor::new(Some(2)).unwrap();
        let mut search = Search::start(how.clone(), data, &cx).unwrap();
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_by(|&a, &b| {
            let far = |row: u32| search.distinct.place(row).map_or(0.0, |at| search.cells.sq_dists[at as usize]);
            let key = |row: u32| match keep {
                Keep::First => 0.0,
                Keep::NearestToCenter => far(row),
                Keep::FarthestFromCenter => -far(row),
            };
            let weightless = |row: u32| weights[row as usize] <= 0.0;
            weightless(a).cmp(&weightless(b)).then(key(a).total_cmp(&key(b)))
        });
        while search.advance(data, &cx).unwrap() {}
        let found = search.finish(data, &cx).unwrap();
        let pairs = pairs(&how, &values, dim);
        prop_assert_eq!(found.n_pairs(), pairs.len() as u64);
        prop_assert_eq!(found.representatives(), grouped(LINKAGES[linkage], &pairs, &order));
        prop_assert_eq!(found.recall(), 1.0);
    }

    #[test]
    fn approximate_searches_compare_only_the_nearest_cells(
        n in 50usize..300, k in 2usize..20, probes in 1usize..6, seed in any::<u64>(),
    ) {
        let values = rows(n, 3, 12, seed);
        let how = Deduplication::within(2.0).linkage(Linkage::Components).n_clusters(Some(k)).n_probes(Some(probes));
        let data = Dense::new(&values, 3).unwrap();
        let cx = Executor::new(Some(2)).unwrap();
        let mut search = Search::<f32>::start(how.clone(), &data, &cx).unwrap();
        let place = |row: u32| search.distinct.place(row).unwrap() as usize;
        let centers: Vec<f32> = search.cells.centers().data().to_vec();
        let near = |row: u32| {
            let at = &values[row as usize * 3..][..3];
            let mut cells: Vec<(f64, usize)> =
                centers.chunks_exact(3).enumerate().map(|(j, center)| (sq_dist(at, center), j)).collect();
            cells.sort_by(|a, b| a.partial_cmp(b).unwrap());
            cells.into_iter().take(probes).map(|(_, j)| j).collect::<Vec<_>>()
        };
        let all = pairs(&how, &values, 3);
        let meets = |a: u32, b: u32| place(a) == place(b) || near(a).contains(&near(b)[0]) || near(b).contains(&near(a)[0]);
        let some: Vec<_> = all.iter().copied().filter(|&(a, b)| meets(a, b)).collect();
        while search.advance(&data, &cx).unwrap() {}
        let found = search.finish(&data, &cx).unwrap();
        prop_assert_eq!(found.n_pairs(), some.len() as u64);
        let order: Vec<u32> = (0..n as u32).collect();
        prop_assert_eq!(found.representatives(), grouped(Linkage::Components, &some, &order));
        prop_assert!(found.recall() <= 1.0);
        // Fewer rows than the sample: the recall is exact, but for pairs of identical rows.
        let identical = all.iter().filter(|&&(a, b)| place_of(&values, a) == place_of(&values, b)).count();
        let (all, some) = (all.len() - identical, some.len() - identical);
        prop_assert!(all == 0 || (found.recall() - some as f64 / all as f64).abs() < 1e-12);
    }
}

fn place_of(values: &[f32], row: u32) -> &[f32] {
    &values[row as usize * 3..][..3]
}

#[test]
fn the_result_depends_neither_on_cells_nor_on_threads() {
    let values = rows(5000, 4, 40, 3);
    let data = Dense::new(&values, 4).unwrap();
    let find = |k: Option<usize>, threads| {
        Deduplication::within(3.0).n_clusters(k).threads(Some(threads)).memory(1000).find(&data).unwrap()
    };
    let expected = find(Some(1), 1);
    assert!(expected.n_pairs() > 1000);
    for (k, threads) in [(None, 1), (None, 3), (Some(70), 2), (Some(500), 3), (Some(5000), 2)] {
        let found = find(k, threads);
        assert_eq!(found.representatives(), expected.representatives());
        assert_eq!(found.n_pairs(), expected.n_pairs());
    }
}

#[test]
fn a_search_resumes_from_a_checkpoint() {
    let values = rows(3000, 4, 30, 9);
    let (data, cx) = (Dense::new(&values, 4).unwrap(), Executor::new(Some(2)).unwrap());
    for (linkage, memory) in
        LINKAGES.into_iter().zip([100, 1 << 30, 1 << 30]).chain([(Linkage::Leader, 1 << 30)])
    {
        let how = Deduplication::within(3.0).linkage(linkage).n_clusters(Some(50)).memory(memory);
        let mut whole = Search::<f32>::start(how.clone(), &data, &cx).unwrap();
        whole.per_step = 7;
        let mut steps = 0;
        loop {
            let contents = whole.checkpoint(&cx).unwrap();
            // The seed of the checkpoint counts.
            let mut resumed = Search::<f32>::restore(how.clone().rng_seed(8), &contents, &data, &cx).unwrap();
            while resumed.advance(&data, &cx).unwrap() {}
            let resumed = resumed.finish(&data, &cx).unwrap();
            assert_eq!(resumed, how.find(&data).unwrap());
            steps += 1;
            if !whole.advance(&data, &cx).unwrap() {
                break;
            }
        }
        assert_eq!(steps, 8);
        let contents = whole.checkpoint(&cx).unwrap();
        let refused = |how: Deduplication, values: &[f32]| {
            let data = Dense::new(values, 4).unwrap();
            Search::<f32>::restore(how, &contents, &data, &cx).unwrap_err().to_string()
        };
        assert!(refused(how.clone().keep(Keep::NearestToCenter), &values).contains("keep=nearest-to-center"));
        assert!(refused(how.clone(), &values[4..]).contains("other rows"));
    }
}

#[test]
fn checkpoints_between_spills_change_nothing() {
    // Parts of the file are longer than what is read at a time.
    let values = rows(8000, 2, 100, 7);
    let (data, cx) = (Dense::new(&values, 2).unwrap(), Executor::new(Some(2)).unwrap());
    let how = Deduplication::within(12.0).n_clusters(Some(400)).memory(1);
    let expected = how.find(&data).unwrap();
    let mut search = Search::<f32>::start(how.clone().memory(1 << 30), &data, &cx).unwrap();
    while search.advance(&data, &cx).unwrap() {}
    assert!(search.finish(&data, &cx).unwrap().representatives() == expected.representatives());
    let mut search = Search::<f32>::start(how.clone(), &data, &cx).unwrap();
    search.per_step = 40;
    let mut last = search.checkpoint(&cx).unwrap();
    while search.advance(&data, &cx).unwrap() {
        last = search.checkpoint(&cx).unwrap();
    }
    assert!(matches!(&search.links, Links::Leader(pairs) if pairs.n_parts() > 3));
    assert!(search.finish(&data, &cx).unwrap() == expected);
    let mut resumed = Search::<f32>::restore(how, &last, &data, &cx).unwrap();
    while resumed.advance(&data, &cx).unwrap() {}
    assert!(resumed.finish(&data, &cx).unwrap() == expected);
}

#[test]
fn an_interrupted_step_can_be_repeated() {
    let values = rows(2000, 3, 30, 3);
    let (data, cx) = (Dense::new(&values, 3).unwrap(), Executor::new(Some(2)).unwrap());
    for linkage in LINKAGES {
        let how = Deduplication::within(2.0).linkage(linkage).n_clusters(Some(30));
        let mut search = Search::<f32>::start(how.clone(), &data, &cx).unwrap();
        search.per_step = 10;
        search.advance(&data, &cx).unwrap();
        // As if the step had been interrupted after its pairs were found.
        let (n_pairs, compared) = (search.n_pairs, search.compared);
        search.advance(&data, &cx).unwrap();
        (search.n_pairs, search.compared, search.next) = (n_pairs, compared, 10);
        cx.interrupt().set();
        assert!(matches!(search.advance(&data, &cx), Err(Error::Interrupted)));
        cx.interrupt().clear();
        while search.advance(&data, &cx).unwrap() {}
        assert_eq!(search.finish(&data, &cx).unwrap(), how.find(&data).unwrap());
    }
}

#[test]
fn tiny_and_huge_rows_have_the_same_pairs() {
    let values: Vec<f64> = rows(300, 3, 9, 1).iter().map(|&x| f64::from(x)).collect();
    let find = |scale: f64| {
        let scaled: Vec<f64> = values.iter().map(|x| x * scale).collect();
        Deduplication::within(scale).n_clusters(Some(40)).find(Dense::new(&scaled, 3).unwrap()).unwrap()
    };
    let expected = find(1.0);
    assert!(expected.n_pairs() > 100);
    for scale in [2f64.powi(-400), 2f64.powi(-300), 2f64.powi(400)] {
        assert_eq!(find(scale).representatives(), expected.representatives());
    }
}

#[test]
fn damaged_checkpoints_are_errors() {
    let values = rows(300, 4, 9, 9);
    let (data, cx) = (Dense::new(&values, 4).unwrap(), Executor::new(Some(2)).unwrap());
    for (linkage, array) in
        [(Linkage::Leader, "pairs"), (Linkage::Components, "ranks"), (Linkage::SemDeDup, "ranks")]
    {
        let how = Deduplication::within(2.0).linkage(linkage).n_clusters(Some(5));
        let mut search = Search::<f32>::start(how.clone(), &data, &cx).unwrap();
        search.advance(&data, &cx).unwrap();
        let good = search.checkpoint(&cx).unwrap();
        let refused = |change: &dyn Fn(&mut crate::persist::Contents)| {
            let mut contents = good.clone();
            change(&mut contents);
            Search::<f32>::restore(how.clone(), &contents, &data, &cx).is_err()
        };
        assert!(!refused(&|_| ()));
        let large = |contents: &mut crate::persist::Contents| {
            let of = &contents.arrays[array];
            let changed = match of.values::<u64>() {
                Some(pairs) => crate::persist::Array::new(&[pairs.len()], &vec![u64::MAX; pairs.len()]),
                None => crate::persist::Array::new(of.shape(), &vec![u32::MAX; of.shape()[0]]),
            };
            contents.arrays.insert(array.into(), changed.unwrap());
        };
        assert!(refused(&large), "{array}");
        assert!(refused(&|contents| drop(contents.arrays.remove(array))));
        assert!(refused(&|contents| drop(contents.arrays.remove("centers"))));
        assert!(refused(&|contents| contents.meta.clear()));
        assert!(refused(&|contents| contents.kind = "kmeans-model".into()));
    }
}

#[test]
fn most_rows_are_copies() {
    let mut values = rows(3000, 8, 100, 5);
    for row in 30..3000 {
        values.copy_within(row % 30 * 8..(row % 30 + 1) * 8, row * 8);
    }
    let found = Deduplication::within(0.0).find(Dense::new(&values, 8).unwrap()).unwrap();
    assert_eq!((found.kept().len(), found.n_pairs()), (30, 30 * 100 * 99 / 2));
    assert!(found.representatives().iter().zip(0..).all(|(&kept, row)| kept == row % 30));
}

#[test]
fn rows_of_zeros_have_no_direction() {
    let rows = [[0.0f32, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]];
    let within = |metric| Deduplication::within(1.0).metric(metric).find(&rows).unwrap();
    assert_eq!(within(Metric::Cosine).representatives(), [0, 1, 2, 1]);
    assert_eq!(within(Metric::Euclidean).representatives(), [0, 0, 0, 3]);
    let zeros = Deduplication::within(1.0).metric(Metric::Cosine).find([[0.0f64], [0.0]]).unwrap();
    assert_eq!((zeros.kept(), zeros.n_pairs()), (vec![0, 1], 0));
}

#[test]
fn bad_parameters_and_values_are_errors() {
    let rows = [[0.0f32], [1.0]];
    let refused = |how: Deduplication| how.find(&rows).unwrap_err().to_string();
    assert!(refused(Deduplication::within(-1.0)).contains("threshold"));
    assert!(refused(Deduplication::within(f64::NAN)).contains("threshold"));
    assert!(refused(Deduplication::within(1.0).n_clusters(Some(3))).contains("n_clusters"));
    assert!(refused(Deduplication::within(1.0).n_probes(Some(0))).contains("n_probes"));
    let with_nan = Deduplication::within(1.0).find([[0.0f32], [f32::NAN]]).unwrap_err().to_string();
    assert!(with_nan.contains("row 1, column 0"), "{with_nan}");
    let stream = crate::data::Chunks::replay(1, || (0..3).map(|i| Ok(vec![i as f32; 10].into())));
    assert!(matches!(Deduplication::within(1.0).find(&stream), Err(Error::Source(_))));
}

#[test]
fn rows_need_columns() {
    for metric in [Metric::Euclidean, Metric::Cosine] {
        let error = Deduplication::within(0.1).metric(metric).find(&[[0.0f32; 0]; 3]).unwrap_err();
        assert_eq!(error.to_string(), "columns must be at least 1, got 0");
    }
}
