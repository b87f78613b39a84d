//! A sweep against its definition.

use proptest::prelude::*;

use super::*;
use crate::data::Weighted;

/// Centers, inertia and counts of one sweep by definition. Empty clusters move to the farthest rows.
fn by_definition(x: &[f64], d: usize, centers: &[f64]) -> (Vec<f64>, f64, Vec<f64>) {
    let k = centers.len() / d;
    let sq = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut labels = Vec::new();
    let mut far: Vec<(f64, usize)> = Vec::new();
    for (i, row) in x.chunks(d).enumerate() {
        let dists: Vec<f64> = centers.chunks(d).map(|c| sq(row, c)).collect();
        let best = (0..k).min_by(|&a, &b| dists[a].total_cmp(&dists[b])).unwrap();
        labels.push(best);
        far.push((dists[best], i));
    }
    let inertia = far.iter().map(|(sq, _)| sq).sum();
    far.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let empty: Vec<usize> = (0..k).filter(|j| !labels.contains(j)).collect();
    for (&to, &(_, row)) in empty.iter().zip(&far) {
        labels[row] = to;
    }
    let mut new = vec![0.0; k * d];
    let mut counts = vec![0.0; k];
    for (row, &label) in x.chunks(d).zip(&labels) {
        counts[label] += 1.0;
        new[label * d..(label + 1) * d].iter_mut().zip(row).for_each(|(c, x)| *c += x);
    }
    for (j, &count) in counts.iter().enumerate() {
        let from = j * d..(j + 1) * d;
        if count > 0.0 {
            new[from].iter_mut().for_each(|c| *c /= count);
        } else {
            new[from.clone()].copy_from_slice(&centers[from]);
        }
    }
    (new, inertia, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_sweep_is_that_of_the_definition_in_any_order(
        n in 9usize..400, d in 1usize..6, k in 1usize..9, p in 1usize..20, seed in any::<u64>(), scale in -8i32..8,
    ) {
        let scale = 10f64.powi(scale);
        let x: Vec<f64> = blobs(n, d, seed).iter().map(|v| v * scale).collect();
        // The last center is far away: its cluster is empty.
        let mut centers = x[..k * d].to_vec();
        centers[(k - 1) * d] = 1e3 * scale;
        let task = KMeansPass::new(&centers, d, Metric::Euclidean).unwrap();
        let lengths = lengths(n, p, seed);
        let total = merged(parts(&task, &x, d, &lengths, 1), seed);
        let (next, step) = task.commit(&total).unwrap();
        let (expected, inertia, counts) = by_definition(&x, d, &centers);
        prop_assert_eq!(next.weights(), &counts[..]);
        prop_assert!((step.objective - inertia).abs() <= 1e-9 * inertia, "{} {}", step.objective, inertia);
        for (found, expected) in next.centers::<f64>().iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-9 * 50.0 * scale, "{} {}", found, expected);
        }
        let mean = |t: usize| x.iter().skip(t).step_by(d).sum::<f64>() / n as f64;
        let means: Vec<f64> = (0..d).map(mean).collect();
        let spread: f64 = x.iter().enumerate().map(|(i, v)| (v - means[i % d]).powi(2)).sum();
        let variance = spread / (n * d) as f64;
        prop_assert!((next.variance() - variance).abs() <= 1e-8 * variance, "{} {}", next.variance(), variance);
        // Any other order and number of threads.
        let again = merged(parts(&task, &x, d, &lengths, 3), !seed);
        prop_assert_eq!(task.commit(&again).unwrap().0, next);
        prop_assert_eq!(total.to_bytes().unwrap(), again.to_bytes().unwrap());
    }
}

#[test]
fn a_cluster_that_loses_all_of_its_rows_has_no_weight() {
    let task = KMeansPass::new(&[0.0f64, 100.0, 1e6, -1e6], 1, Metric::Euclidean).unwrap();
    let rows = [[0.0], [0.0], [90.0], [115.0]];
    for weights in [vec![1.0, 1.0, 0.3, 0.6], vec![1.0, 1.0, 0.6, 0.3], vec![1.0, 1.0, 0.2, 1e15]] {
        let rows = Weighted::new::<f64>(&rows, weights).unwrap();
        let total = task.absorb(&rows, Place::Partition(0), &cx(1)).unwrap();
        let next = task.commit(&total).unwrap().0;
        assert_eq!((next.weights()[1], next.centers::<f64>()), (0.0, vec![0.0, 100.0, 115.0, 90.0]));
        assert_eq!(KMeansPass::from_bytes(&next.to_bytes().unwrap()).unwrap().weights(), next.weights());
    }
}
