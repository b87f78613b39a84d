//! Commits by ranges of clusters, compared with commits of all clusters at once.

use crate::kernel::Compute;
use proptest::prelude::*;

use super::*;
use crate::data::Weighted;
use crate::distributed::commit::Head;
use crate::distributed::message::Message;
use crate::error::Result;
use crate::fit::Step;
use crate::persist::kept::Values;
use crate::rng::Rng;

/// The results of one partition without rows, and of `p` others.
fn results<T: Compute>(task: &KMeansPass, rows: &[T], weights: Option<&[f64]>, p: usize) -> Vec<Partial> {
    let (d, n) = (task.dim(), rows.len() / task.dim());
    let mut parts = vec![task.absorb_nothing(Place::Partition(0))];
    for i in 0..p {
        let (from, to) = (n * i / p, n * (i + 1) / p);
        let (block, place) =
            (Dense::new(&rows[from * d..to * d], d).unwrap(), Place::Partition(i as u64 + 1));
        parts.push(match weights {
            None => task.absorb(&block, place, &cx(1)).unwrap(),
            Some(w) => task.absorb(&Weighted::new::<T>(block, &w[from..to]).unwrap(), place, &cx(1)).unwrap(),
        });
    }
    parts
}

/// The total of some results, merged in a random order, by way of bytes.
fn total(mut parts: Vec<Partial>, rng: &mut Rng) -> Result<Partial> {
    let mut total = Partial::default();
    while !parts.is_empty() {
        let part = parts.swap_remove(rng.below(parts.len() as u64) as usize);
        total = total.merge(&Partial::from_bytes(&part.to_bytes()?)?)?;
    }
    Ok(total)
}

/// The centers of all ranges together.
fn joined(ranges: Vec<Values>) -> Values {
    ranges
        .into_iter()
        .reduce(|mut all, mut next| {
            all.append(&mut next);
            all
        })
        .unwrap()
}

/// What `KMeansPass::commit` returns, computed in `n` ranges.
fn by_ranges(task: &KMeansPass, parts: &[Partial], n: usize, rng: &mut Rng) -> Result<(KMeansPass, Step)> {
    let (k, d) = (task.n_clusters(), task.dim());
    let head = Head::from_bytes(&task.head().to_bytes()?)?;
    let mut ranges = Vec::new();
    for i in 0..n {
        let own = |values: &Values| values.part(k * i / n * d..k * (i + 1) / n * d);
        let total = total(parts.iter().map(|part| part.range(i, n)).collect::<Result<_>>()?, rng)?;
        ranges.push((total, own(&task.centers), task.other_points().map(own)));
    }
    let report = |(total, centers, points): &(Partial, Values, Option<Values>)| {
        head.report(total.clone(), centers, points.as_ref())
    };
    let reports = ranges.iter().map(report).collect::<Result<Vec<_>>>()?;
    let (plan, zeros) = head.decide(&reports, parts.len() as u64)?;
    assert_eq!(zeros, parts.iter().map(Partial::zero_rows).sum::<u64>());
    let whole = total(parts.to_vec(), rng)?;
    assert_eq!((plan.weights.clone(), whole.rows()), (whole.weights(), plan.now.rows()));
    let moves = plan.moves.to_bytes()?;
    let (mut centers, mut moved) = (Vec::new(), Vec::new());
    for (total, own, points) in &ranges {
        let (new, report) = head.moved(total.clone(), own, points.as_ref(), &moves)?;
        centers.push(new);
        moved.push(report);
    }
    let (next, step, keeps_points) = head.end(&plan, &moved)?;
    let points = task.other_points().unwrap_or(&task.centers);
    Ok((next.with(joined(centers), keeps_points.then(|| points.clone()))?, step))
}

/// Compares fits whose every sweep is committed in ranges, and at once. Returns the numbers of sweeps with points of an
/// earlier sweep, and of sweeps with empty clusters.
fn compare<T: Compute>(start: &KMeansPass, rows: &[T], weights: Option<&[f64]>, seed: u64) -> (usize, usize) {
    let mut rng = Rng::keyed(seed, Purpose::Permutation, 7);
    let (mut task, k, mut found) = (start.clone(), start.n_clusters(), (0, 0));
    for _ in 0..12 {
        let parts = results(&task, rows, weights, 1 + rng.below(6) as usize);
        // The number of partitions changes only for this test.
        task.head.before.extent = None;
        let whole = total(parts.clone(), &mut rng).unwrap();
        let (next, step) = task.commit(&whole).unwrap();
        for n in [1, 1 + rng.below(k as u64) as usize, k] {
            let (other, figures) = by_ranges(&task, &parts, n, &mut rng).unwrap();
            assert_eq!((format!("{figures:?}"), &other), (format!("{step:?}"), &next), "{n} ranges");
            assert_eq!(other.variance().to_bits(), next.variance().to_bits());
        }
        found.0 += usize::from(next.points.is_some());
        found.1 += usize::from(whole.weights().contains(&0.0));
        task = next;
        if step.stop_reason.is_some() {
            break;
        }
    }
    found
}

/// Rows around a few centers, whose columns have very different sizes.
fn rows_of<T: Compute>(n: usize, d: usize, seed: u64) -> Vec<T> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    let size = |t: usize| 10f64.powi(9 * (t as i32 % 3) - 9);
    (0..n * d).map(|i| T::from_f64((rng.unit() + (i / d % 5 * 3) as f64 - 4.0) * size(i % d))).collect()
}

fn fits<T: Compute>(seed: u64) -> (usize, usize) {
    let mut found = (0, 0);
    let (n, d, k) = (160, 4, 9);
    let mut rows = rows_of::<T>(n, d, seed);
    // A row of zeros, and the same row several times.
    rows[5 * d..6 * d].fill(T::ZERO);
    let first = rows[..d].to_vec();
    rows[40 * d..][..4 * d].copy_from_slice(&first.repeat(4));
    let mut centers = rows[..k * d].to_vec();
    // Clusters that are empty in the first sweep.
    centers[3 * d] = T::from_f64(1e13);
    centers[8 * d + 1] = T::from_f64(-1e13);
    let weights: Vec<f64> = (0..n).map(|i| [0.0, 0.3, 1.0, 7e11][(i * i + 1) % 4]).collect();
    for metric in [Metric::Euclidean, Metric::Cosine] {
        for weights in [None, Some(&weights[..])] {
            let start = KMeansPass::new(&centers, d, metric).unwrap();
            for start in [start.clone(), start.carrying()] {
                let (carried, empty) = compare(&start, &rows, weights, seed);
                found = (found.0 + carried, found.1 + empty);
            }
        }
    }
    found
}

#[test]
fn ranges_give_the_bits_of_all_clusters() {
    let (mut carried, mut empty) = (0, 0);
    for seed in 0..4 {
        for found in [fits::<f32>(seed), fits::<f64>(seed)] {
            (carried, empty) = (carried + found.0, empty + found.1);
        }
    }
    assert!(carried > 10 && empty > 10, "{carried} sweeps carry errors, {empty} have empty clusters");
}

/// A sweep of three clusters over rows of one column, and its partial results.
fn three() -> (KMeansPass, Vec<Partial>) {
    let task = KMeansPass::new(&[0.0f64, 4.0, 9.0], 1, Metric::Euclidean).unwrap();
    let parts = results(&task, &[1.0f64, 3.0, 8.0, 5.0, 2.0, 0.5], None, 3);
    (task, parts)
}

#[test]
fn ranges_hold_only_their_clusters() {
    let (d, k) = (64, 50);
    let rows = rows_of::<f32>(400, d, 1);
    let task = KMeansPass::new(&rows[..k * d], d, Metric::Euclidean).unwrap();
    let part = task.absorb(&Dense::new(&rows, d).unwrap(), Place::Partition(0), &cx(1)).unwrap();
    let size = |part: &Partial| part.to_bytes().unwrap().len();
    let ranges: Vec<usize> = (0..10).map(|i| size(&part.range(i, 10).unwrap())).collect();
    // The first range has the farthest rows.
    let most = size(&part) / 10 + 2500;
    assert!(ranges[1..].iter().all(|&bytes| bytes < most), "{ranges:?}");
    let again = |i| Partial::from_bytes(&part.range(i, 10).unwrap().to_bytes().unwrap()).unwrap();
    assert!((0..10).all(|i| again(i).rows() == 400));
}

#[test]
fn ranges_of_others_are_refused() {
    let (task, all) = three();
    let mut rng = Rng::keyed(1, Purpose::Batch, 0);
    let text = |error: crate::Error| error.to_string();
    let by = |parts: &[Partial], rng: &mut Rng| by_ranges(&task, parts, 2, rng).map(drop).map_err(text);
    assert_eq!(by(&all, &mut rng), Ok(()));
    // A missing partition, among the others and at the end.
    let gap = [all[0].clone(), all[1].clone(), all[3].clone()];
    assert!(by(&gap, &mut rng).unwrap_err().contains("lacks partition 2"));
    let head = task.head();
    let mut range = |i| total(all.iter().map(|part| part.range(i, 2).unwrap()).collect(), &mut rng).unwrap();
    let totals = [range(0), range(1)];
    let centers = [task.centers.part(0..1), task.centers.part(1..3)];
    let reports = [0, 1].map(|i| head.report(totals[i].clone(), &centers[i], None).unwrap());
    let error = head.decide(&reports, 5).map(drop).map_err(text).unwrap_err();
    assert_eq!(error, "total must hold 5 partitions, got 4");
    // A range is missing, or comes twice, or in another order; another sweep; centers of another range.
    let [one, two] = &reports;
    for some in [vec![one], vec![two], vec![one, one], vec![two, one], vec![one, two, two], vec![]] {
        assert!(head.decide(&some, 4).is_err());
    }
    assert!(head.report(totals[0].clone(), &centers[1], None).is_err());
    let other = KMeansPass::new(&[0.0f64, 4.0, 9.5], 1, Metric::Euclidean).unwrap();
    let others = total(results(&other, &[1.0f64, 9.0, 4.0], None, 3), &mut rng).unwrap();
    let mixed = [one.clone(), head.report(others.range(1, 2).unwrap(), &centers[1], None).unwrap()];
    assert!(head.decide(&mixed, 4).is_err());
    // Ranges merge only with the same range, are not cut again, and are no total.
    assert!(totals[0].merge(&all[1].range(1, 2).unwrap()).is_err());
    assert!(all[2].range(0, 2).unwrap().merge(&all[3].range(1, 2).unwrap()).is_err());
    assert!(all[2].range(0, 2).unwrap().merge(&all[3]).is_err());
    assert!(totals[0].range(0, 1).is_err() && task.commit(&totals[0]).is_err());
    assert!(all[1].range(2, 2).is_err() && all[1].range(0, 4).is_err() && all[1].range(0, 0).is_err());
    let twice = totals[0].merge(&all[1].range(0, 2).unwrap()).unwrap_err();
    assert!(text(twice).starts_with("partition 1 would be counted twice"));
}

#[test]
fn an_overflow_names_the_cluster_of_all() {
    let task = KMeansPass::new(&[0.0f32, 4.0, f32::MAX], 1, Metric::Euclidean).unwrap();
    let rows = [1.0f32, 3.0, f32::MAX, f32::MAX];
    let total = results(&task, &rows, Some(&[1.0, 1.0, 1e300, 1e300]), 1).pop().unwrap();
    let total = total.merge(&task.absorb_nothing(Place::Partition(0))).unwrap();
    let known = task.commit(&total).unwrap_err().to_string();
    assert!(known.starts_with("the mean of cluster 2 overflows"), "{known}");
    let found = task.head().report(total.range(2, 3).unwrap(), &task.centers.part(2..3), None);
    assert_eq!(found.unwrap_err().to_string(), known);
}

proptest! {
    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), which in 0usize..5,
    ) {
        let (task, parts) = three();
        let mut rng = Rng::keyed(3, Purpose::Batch, 0);
        let whole = total(parts, &mut rng).unwrap().range(0, 1).unwrap();
        let (head, centers) = (task.head(), &task.centers);
        let report = head.report(whole.clone(), centers, None).unwrap();
        let plan = head.decide(&[&report], 4).unwrap().0;
        let moves = plan.moves.to_bytes().unwrap();
        let moved = head.moved(whole.clone(), centers, None, &moves).unwrap().1;
        let ranged = total(vec![three().1[1].range(1, 2).unwrap()], &mut rng).unwrap();
        let mut bytes =
            [head.to_bytes().unwrap(), report, moves, moved, ranged.to_bytes().unwrap()][which].clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        match which {
            0 => drop(Head::from_bytes(&bytes).and_then(|head| head.with(centers.clone(), None))),
            1 => drop(head.decide(&[&bytes], 4)),
            2 => drop(head.moved(whole.clone(), centers, None, &bytes)),
            3 => drop(head.end(&plan, &[&bytes])),
            _ => drop(Partial::from_bytes(&bytes).and_then(|part| {
                let _ = part.merge(&ranged);
                head.report(part, &centers.part(1..3), None)
            })),
        }
    }
}
