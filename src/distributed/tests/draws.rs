//! Drawn rows: seedings and coresets.

use crate::kernel::Compute;
use std::collections::BTreeMap;

use super::pass::Pass;
use super::*;
use crate::data::{Source, Weighted};
use crate::persist::Array;

/// What a round found: its objective, its sums, and the pass that follows, without what depends on the partitions.
type Round = (u64, BTreeMap<String, Array>, BTreeMap<String, Array>);

/// The rounds of a pass over `n` rows and their weights, in partitions of these lengths, or in blocks of numbered rows.
fn rounds<P: Pass, T: Compute>(
    mut task: P,
    (x, weights): (&[T], Option<&[f64]>),
    lengths: &[usize],
    by_row: bool,
    seed: u64,
) -> Vec<Round> {
    let d = x.len() / lengths.iter().sum::<usize>();
    let mut found = Vec::new();
    while !task.facts().is_done {
        task = P::from_bytes(&task.to_bytes().unwrap()).unwrap();
        let (mut start, mut parts) = (0, Vec::new());
        for (i, &length) in lengths.iter().enumerate() {
            let place = if by_row { Place::FirstRow(start as u64) } else { Place::Partition(i as u64) };
            let these = start..start + length;
            start += length;
            if length == 0 {
                parts.push(task.absorb_nothing(place));
                continue;
            }
            let rows = Dense::new(&x[these.start * d..these.end * d], d).unwrap();
            let part = match weights {
                None => task.absorb(rows.any(), place, &cx(2)),
                Some(weights) => {
                    let weighted = Weighted::new::<T>(&rows, &weights[these]).unwrap();
                    task.absorb(weighted.any(), place, &cx(2))
                }
            };
            parts.push(part.unwrap());
        }
        // Workers send them as bytes.
        let parts = parts.iter().map(|part| Partial::from_bytes(&part.to_bytes().unwrap()).unwrap());
        let total = merged(parts.collect(), seed);
        let (next, step) = task.commit(&total).unwrap();
        let mut sums = total.sums.unwrap().to_file().arrays;
        // Events are in the order of merging, and picked rows are named by their places.
        sums.retain(|name, _| {
            !["partitions", "rows", "points", "point_weights", "numbers"].contains(&&name[..])
        });
        let mut after = persist::from_bytes("it", &next.to_bytes().unwrap()).unwrap().arrays;
        after.remove("starts");
        found.push((step.objective.to_bits(), sums, after));
        task = next;
    }
    found
}

/// Checks that rounds do not depend on the cut into partitions; returns them.
fn of_any_cut<P: Pass, T: Compute>(task: &P, x: &[T], d: usize, weights: Option<&[f64]>) -> Vec<Round> {
    let n = x.len() / d;
    let whole = rounds(task.clone(), (x, weights), &[n], false, 0);
    let cuts = [vec![0, n], vec![n - 3, 0, 0, 3]].into_iter();
    for lengths in cuts.chain([1, 2, 3, 7].map(|p| lengths(n, p, p as u64))) {
        for (by_row, seed) in [(false, 1), (false, 2), (true, 3)] {
            let found = rounds(task.clone(), (x, weights), &lengths, by_row, seed);
            assert_eq!(found.len(), whole.len(), "{lengths:?}");
            for (round, (found, whole)) in found.iter().zip(&whole).enumerate() {
                assert_eq!(found, whole, "round {round} of {lengths:?}, by row: {by_row}");
            }
        }
    }
    whole
}

/// [`of_any_cut`] for rows of both types, with and without weights.
fn of_all_kinds<P: Pass>(task: &P, x: &[f64], d: usize) {
    let mut rng = Rng::keyed(8, Purpose::Batch, 2);
    // Sums of such weights depend on the order of addition, unless they are exact.
    let weights: Vec<f64> =
        (0..x.len() / d).map(|i| if i % 9 == 0 { 0.0 } else { rng.unit() / 3.0 }).collect();
    let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    for weights in [None, Some(&weights[..])] {
        of_any_cut(task, x, d, weights);
        of_any_cut(task, &narrow, d, weights);
    }
}

/// Rows of which every fourth appears twice, more than a thousand apart, and some zeros are negative.
fn repeated(n: usize, d: usize) -> Vec<f64> {
    let mut x = blobs(n, d, 9);
    for i in (0..n / 4).map(|i| 4 * i) {
        let from = (i + 1201) % n * d;
        x.copy_within(from..from + d, i * d);
        x[i * d] = if i % 8 == 0 { 0.0 } else { -0.0 };
    }
    x
}

#[test]
fn seeds_do_not_depend_on_the_cut() {
    for metric in [Metric::Euclidean, Metric::Cosine] {
        let task = SeedPass::new(9, 2.0, 3, metric, 4).unwrap();
        of_all_kinds(&task, &repeated(3000, 3), 3);
    }
}

#[test]
fn coresets_do_not_depend_on_the_cut() {
    for (metric, n_samples) in [(Metric::Euclidean, 100), (Metric::Cosine, 100), (Metric::Euclidean, 3000)] {
        let task = CoresetPass::new(n_samples, metric, 4).unwrap();
        of_all_kinds(&task, &repeated(3000, 3), 3);
    }
}

#[test]
fn coresets_far_from_the_origin_measure_the_spread_again() {
    let (d, n) = (2, 2000);
    let x: Vec<f64> = blobs(n, d, 3).iter().map(|x| 1e9 + x).collect();
    let all = of_any_cut(&CoresetPass::new(50, Metric::Euclidean, 1).unwrap(), &x, d, None);
    assert_eq!(all.len(), 3);
    let near = of_any_cut(&CoresetPass::new(50, Metric::Euclidean, 1).unwrap(), &blobs(n, d, 3), d, None);
    assert_eq!(near.len(), 2);
    let mean: Vec<f64> =
        (0..d).map(|t| x.iter().skip(t).step_by(d).map(|x| x - 1e9).sum::<f64>() / n as f64).collect();
    let apart = |row: &[f64]| row.iter().zip(&mean).map(|(x, m)| (x - 1e9 - m).powi(2)).sum::<f64>();
    let spread: f64 = x.chunks(d).map(apart).sum();
    for found in [&all[1].2, &near[0].2] {
        let totals: Vec<f64> = found["totals"].values().unwrap();
        assert!((totals[1] / spread - 1.0).abs() < 1e-6, "{totals:?} {spread}");
    }
    let weights: Vec<f64> = all[2].2["point_weights"].values().unwrap();
    assert!((weights.iter().sum::<f64>() / n as f64 - 1.0).abs() < 0.2);
}

#[test]
fn passes_that_draw_know_the_partitions_of_the_pass_before() {
    let (rows, cx) = (small(), cx(1));
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let parts = [0, 1].map(|i| coreset.absorb(&rows, Place::Partition(i), &cx).unwrap());
    let drawing = coreset.commit(&parts[0].merge(&parts[1]).unwrap()).unwrap().0;
    let refused = drawing.absorb(&rows, Place::Partition(2), &cx).unwrap_err().to_string();
    assert_eq!(refused, "partition must be below 2, the number of partitions of the pass before, got 2");
    let mut contents = persist::from_bytes("it", &drawing.to_bytes().unwrap()).unwrap();
    contents.arrays.remove("starts");
    let refused = CoresetPass::from_bytes(&persist::to_bytes(&contents).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("of an earlier version"), "{refused}");
    // The numbers of drawn rows are those among all rows.
    let [one, two] = [0, 1].map(|i| drawing.absorb(&rows, Place::Partition(i), &cx).unwrap());
    let bytes = crafted(&two, |_, _, sums| {
        let n = sums.arrays["numbers"].shape()[0];
        sums.arrays.insert("numbers".into(), Array::new(&[n], &vec![80u64; n]).unwrap());
    });
    assert!(drawing.commit(&one.merge(&Partial::from_bytes(&bytes).unwrap()).unwrap()).is_err());
    assert!(drawing.commit(&one.merge(&two).unwrap()).is_ok());
}

#[test]
fn drawn_rows_have_odds() {
    let (rows, cx, place) = (small(), cx(1), Place::Partition(0));
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let drawing = coreset.commit(&coreset.absorb(&rows, place, &cx).unwrap()).unwrap().0;
    let drawn = drawing.absorb(&rows, place, &cx).unwrap();
    for odds in [0.0, -0.0, 5e-324] {
        let bytes = crafted(&drawn, |_, _, sums| {
            let n = sums.arrays["point_weights"].shape()[0];
            sums.arrays.insert("point_weights".into(), Array::new(&[n], &vec![odds; n]).unwrap());
        });
        let failed = Partial::from_bytes(&bytes).and_then(|part| drawing.commit(&part).map(drop));
        assert!(failed.is_err(), "odds {odds:?}");
    }
    // A coreset of all rows keeps those without weight.
    let all = CoresetPass::new(40, Metric::Euclidean, 1).unwrap();
    let weighted =
        || Weighted::new::<f32>(&rows, (0..40).map(|i| f64::from(i % 2)).collect::<Vec<_>>()).unwrap();
    let keeping = all.commit(&all.absorb(&weighted(), place, &cx).unwrap()).unwrap().0;
    let part = keeping.absorb(&weighted(), place, &cx).unwrap();
    let part = Partial::from_bytes(&part.to_bytes().unwrap()).unwrap();
    assert_eq!(keeping.commit(&part).unwrap().0.coreset::<f32>().unwrap().weights[..2], [0.0, 1.0]);
}

#[test]
fn fewer_distinct_rows_than_centers() {
    let rows = [[1.0f64], [1.0], [2.0]];
    let mut task = SeedPass::new(3, 2.0, 5, Metric::Euclidean, 4).unwrap();
    while task.centers::<f64>().is_none() {
        let total = task.absorb(&rows, Place::FirstRow(0), &cx(1)).unwrap();
        task = task.commit(&total).unwrap().0;
    }
    let mut found = task.centers::<f64>().unwrap();
    found.dedup();
    found.sort_by(f64::total_cmp);
    assert_eq!((found[0], found[found.len() - 1]), (1.0, 2.0));
}
