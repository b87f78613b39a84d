//! Passes against slow references, in every order of merging, and their bytes, damaged.

use proptest::prelude::*;

use super::*;
use crate::data::{Chunk, Chunks, Csr, Dense, Source, Weighted};
use crate::fit::{Element, Metric};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::{self, Array, Contents};
use crate::rng::{Purpose, Rng};
use crate::{KMeans, Seeding};

fn cx(threads: usize) -> Executor {
    Executor::new(Some(threads)).unwrap()
}

/// Rows around a few centers.
fn blobs(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n * d).map(|i| rng.unit() + (i / d % 5 * 7) as f64).collect()
}

/// The lengths of `p` partitions of `n` rows, some of them empty.
fn lengths(n: usize, p: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::keyed(seed, Purpose::Batch, 1);
    let mut cuts: Vec<usize> = (1..p).map(|_| rng.below(n as u64 + 1) as usize).collect();
    cuts.extend([0, n]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The partial results of all partitions.
fn parts(task: &KMeansPass, x: &[f64], d: usize, lengths: &[usize], threads: usize) -> Vec<Partial> {
    let mut start = 0;
    let part = |(i, &length): (usize, &usize)| {
        let rows = &x[start * d..(start + length) * d];
        start += length;
        let place = Place::Partition(i as u64);
        if length == 0 {
            return task.absorb_nothing(place);
        }
        task.absorb(&Dense::new(rows, d).unwrap(), place, &cx(threads)).unwrap()
    };
    lengths.iter().enumerate().map(part).collect()
}

/// Merges in a random order and grouping, some of it by way of bytes.
fn merged(mut parts: Vec<Partial>, seed: u64) -> Partial {
    let mut rng = Rng::keyed(seed, Purpose::Permutation, 2);
    while parts.len() > 1 {
        let one = parts.swap_remove(rng.below(parts.len() as u64) as usize);
        let two = rng.below(parts.len() as u64) as usize;
        let mut both = one.merge(&parts[two]).unwrap();
        if rng.below(3) == 0 {
            both = Partial::from_bytes(&both.to_bytes().unwrap()).unwrap();
        }
        parts[two] = both;
    }
    parts.pop().unwrap()
}

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

    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), which in 0usize..4,
    ) {
        let mut bytes = samples()[which].clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let sample = match Partial::from_bytes(&bytes) {
            Ok(part) => part,
            Err(error) => {
                prop_assert!(matches!(error, crate::Error::Format { .. }), "{:?}", error);
                return Ok(());
            }
        };
        let _ = sample.merge(&sample);
        let good = Partial::from_bytes(&samples()[which]).unwrap();
        let _ = good.merge(&sample);
        for task in tasks() {
            let _ = task(&sample);
        }
    }
}

/// Rows for the samples of bytes.
fn small() -> Vec<[f32; 2]> {
    (0..40).map(|i| [(i % 7) as f32, (i * i % 11) as f32]).collect()
}

fn kmeans() -> KMeansPass {
    KMeansPass::new(&[0.0f32, 0.0, 9.0, 9.0, 1e5, 1e5], 2, Metric::Euclidean).unwrap()
}

/// Partial results of four kinds, as bytes.
fn samples() -> Vec<Vec<u8>> {
    let (rows, cx, place) = (small(), cx(1), Place::Partition(0));
    let seed = SeedPass::new(3, 2.0, 2, Metric::Euclidean, 1).unwrap();
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let first = seed.absorb(&rows, place, &cx).unwrap();
    let measured = coreset.absorb(&rows, place, &cx).unwrap();
    let drawing = coreset.commit(&measured).unwrap().0;
    [kmeans().absorb(&rows, place, &cx).unwrap(), first, measured, drawing.absorb(&rows, place, &cx).unwrap()]
        .map(|part| part.to_bytes().unwrap())
        .to_vec()
}

type Commit = Box<dyn Fn(&Partial) -> crate::Result<()>>;

/// Commits of four passes.
fn tasks() -> Vec<Commit> {
    let (rows, cx, place) = (small(), cx(1), Place::Partition(0));
    let seed = SeedPass::new(3, 2.0, 2, Metric::Euclidean, 1).unwrap();
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let drawing = coreset.commit(&coreset.absorb(&rows, place, &cx).unwrap()).unwrap().0;
    vec![
        Box::new(|part| kmeans().commit(part).map(drop)),
        Box::new(move |part| seed.commit(part).map(drop)),
        Box::new(move |part| coreset.commit(part).map(drop)),
        Box::new(move |part| drawing.commit(part).map(drop)),
    ]
}

#[test]
fn duplicates_gaps_and_strangers_are_refused() {
    let (x, d) = (blobs(60, 2, 3), 2);
    let task = KMeansPass::new(&x[..6], d, Metric::Euclidean).unwrap();
    let parts = parts(&task, &x, d, &[20, 0, 30, 10], 1);
    let text = |result: crate::Result<Partial>| result.unwrap_err().to_string();
    let some = parts[0].merge(&parts[1]).unwrap();
    assert!(text(some.merge(&parts[1])).starts_with("partition 1 would be counted twice"));
    assert!(text(parts[1].merge(&some)).starts_with("partition 1 would be counted twice"));
    let gap = parts[0].merge(&parts[3]).unwrap();
    let refused = task.commit(&gap).unwrap_err().to_string();
    assert_eq!(refused, "total must hold all partitions, and lacks partitions 1 to 2");
    let all = merged(parts.clone(), 1);
    let (next, _) = task.commit(&all).unwrap();
    assert!(next.commit(&all).is_err(), "another iteration");
    let later: Vec<Partial> = self::parts(&next, &x, d, &[20, 0, 30, 10], 1);
    assert!(text(later[0].merge(&parts[1])).contains("same pass"));
    // Without its last partition, a total looks whole, but has fewer rows than the pass before.
    let short = merged(later[..3].to_vec(), 1);
    assert!(next.commit(&short).unwrap_err().to_string().contains("a partition is missing"));
    assert!(task.commit(&Partial::default()).is_err());
}

#[test]
fn numbered_rows_merge_in_any_order() {
    let (x, d) = (blobs(100, 3, 5), 3);
    let task = KMeansPass::new(&x[..12], d, Metric::Euclidean).unwrap();
    let cuts = [0usize, 13, 50, 51, 100];
    let parts: Vec<Partial> = cuts
        .windows(2)
        .map(|cut| {
            let rows = Dense::new(&x[cut[0] * d..cut[1] * d], d).unwrap();
            task.absorb(&rows, Place::FirstRow(cut[0] as u64), &cx(1)).unwrap()
        })
        .collect();
    let one = merged(parts.clone(), 1).to_bytes().unwrap();
    assert!((2..9).all(|seed| merged(parts.clone(), seed).to_bytes().unwrap() == one));
    let overlap = task.absorb(&Dense::new(&x[..6], d).unwrap(), Place::FirstRow(12), &cx(1)).unwrap();
    let refused = parts[0].merge(&overlap).unwrap_err().to_string();
    assert!(refused.starts_with("rows 12..13 would be counted twice"), "{refused}");
    let mixed = task.absorb(&Dense::new(&x[..6], d).unwrap(), Place::Partition(0), &cx(1)).unwrap();
    assert!(parts[0].merge(&mixed).is_err());
}

#[test]
fn the_state_of_neighbors_is_logarithmic() {
    let (x, d) = (blobs(64, 1, 5), 1);
    let task = KMeansPass::new(&x[..2], d, Metric::Euclidean).unwrap();
    let parts = parts(&task, &x, d, &[1; 64], 1);
    let of = |range: std::ops::Range<usize>| merged(parts[range].to_vec(), 7).pieces.list.len();
    assert_eq!((of(0..64), of(16..32), of(1..64), of(3..11)), (1, 1, 6, 4));
}

#[test]
fn numbered_rows_merge_with_neighbors_anywhere() {
    let (x, d) = (blobs(16, 2, 5), 2);
    let task = KMeansPass::new(&x[..8], d, Metric::Euclidean).unwrap();
    // Blocks of different lengths, none of which begins at row 0.
    let mut first = 1 << 40;
    let parts: Vec<Partial> = (0..2000)
        .map(|i| {
            let rows = Dense::new(&x[..(1 + i % 7) * d], d).unwrap();
            let part = task.absorb(&rows, Place::FirstRow(first), &cx(1)).unwrap();
            first += part.rows();
            part
        })
        .collect();
    let bytes = |part: &Partial| part.to_bytes().unwrap().len();
    let one = merged(parts.clone(), 1);
    assert_eq!((one.partitions(), one.rows()), (2000, first - (1 << 40)));
    assert!(bytes(&one) <= 40 * bytes(&parts[0]), "{} bytes of {}", bytes(&one), bytes(&parts[0]));
    assert_eq!(merged(parts.clone(), 2).to_bytes().unwrap(), one.to_bytes().unwrap());
    // In the order of the rows, no partial sum is large either.
    let grows = |total: Partial, part: &Partial| {
        let total = total.merge(part).unwrap();
        assert!(total.pieces.list.len() <= 40);
        total
    };
    let ascending = parts.iter().fold(Partial::default(), grows);
    assert_eq!(ascending.to_bytes().unwrap(), one.to_bytes().unwrap());
    // A gap keeps what is on both sides apart.
    let gap = merged(parts[..900].iter().chain(&parts[901..]).cloned().collect(), 3);
    assert!(gap.pieces.list.len() <= 80);
    assert_eq!(gap.merge(&parts[900]).unwrap().to_bytes().unwrap(), one.to_bytes().unwrap());
}

/// Two partitions of a pass over rows of two columns, of which the second has these names.
fn pair(names: [Option<[&str; 2]>; 2]) -> [Partial; 2] {
    let (task, rows, cx) = (kmeans(), small(), cx(1));
    [0, 1].map(|i| {
        let part = task.absorb(&rows, Place::Partition(i as u64), &cx).unwrap();
        match names[i] {
            Some(names) => part.named(names.map(str::to_owned).to_vec()).unwrap(),
            None => part,
        }
    })
}

#[test]
fn names_of_columns_travel_with_partial_results() {
    let again = |part: &Partial| Partial::from_bytes(&part.to_bytes().unwrap()).unwrap();
    let [one, two] = pair([Some(["a", "b"]); 2]);
    let (next, _) = kmeans().commit(&again(&one).merge(&again(&two)).unwrap()).unwrap();
    let next = KMeansPass::from_bytes(&next.to_bytes().unwrap()).unwrap();
    assert_eq!(next.before.extent.as_ref().unwrap().names.as_deref().unwrap(), ["a", "b"]);
    // A pass expects the names of the pass before.
    let rows = small();
    let [other, rest] = [0, 1].map(|i| {
        let part = next.absorb(&rows, Place::Partition(i), &cx(1)).unwrap();
        part.named(vec!["b".into(), "a".into()]).unwrap()
    });
    let refused = next.commit(&other.merge(&rest).unwrap()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the rows must have the features of the pass before, in the same order, but feature 0 was \"a\" and is \
         \"b\" in partition 0"
    );
    let cases = [
        ([Some(["a", "b"]), Some(["b", "a"])], "feature 0 is \"a\" in partition 0 and \"b\" in partition 1"),
        ([Some(["a", "b"]), Some(["a", "c"])], "feature 1 is \"b\" in partition 0 and \"c\" in partition 1"),
        ([Some(["a", "b"]), None], "got names in partition 0 and none in partition 1"),
        ([None, Some(["a", "b"])], "got names in partition 1 and none in partition 0"),
    ];
    for (names, problem) in cases {
        let [one, two] = pair(names);
        let refused = again(&one).merge(&again(&two)).unwrap_err().to_string();
        assert!(refused.contains(problem), "{refused}");
        // A partition without rows has no columns.
        assert!(one.merge(&kmeans().absorb_nothing(Place::Partition(1))).is_ok());
    }
    let [one, _] = pair([None; 2]);
    assert!(one.named(vec!["a".into()]).is_err());
}

#[test]
fn sparse_rows_beside_dense_ones_are_refused() {
    let (task, rows) = (kmeans(), small());
    let values = rows.concat();
    let (starts, columns): (Vec<i32>, Vec<i32>) =
        ((0..=40).map(|i| 2 * i).collect(), (0..80).map(|i| i % 2).collect());
    let sparse = Csr::new((40, 2), starts[..].into(), columns[..].into(), &values).unwrap();
    let dense = task.absorb(&rows, Place::Partition(0), &cx(1)).unwrap();
    let sparse = task.absorb(&sparse, Place::Partition(1), &cx(1)).unwrap();
    let refused = dense.merge(&Partial::from_bytes(&sparse.to_bytes().unwrap()).unwrap()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "all partitions must be sparse, or all dense: got sparse rows in partition 1 and dense rows in partition 0"
    );
}

#[test]
fn drawn_rows_have_odds() {
    let (rows, cx, place) = (small(), cx(1), Place::Partition(0));
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let drawing = coreset.commit(&coreset.absorb(&rows, place, &cx).unwrap()).unwrap().0;
    let drawn = drawing.absorb(&rows, place, &cx).unwrap();
    for (odds, shares) in [(0.0, 1.0), (-0.0, 1.0), (5e-324, 1.0), (0.0, 0.0)] {
        let bytes = crafted(&drawn, |_, _, sums| {
            let n = sums.arrays["point_weights"].shape()[0];
            sums.arrays.insert("point_weights".into(), Array::new(&[n], &vec![odds; n]).unwrap());
            sums.arrays.insert("shares".into(), Array::new(&[1], &[shares]).unwrap());
        });
        let failed = Partial::from_bytes(&bytes).and_then(|part| drawing.commit(&part).map(drop));
        assert!(failed.is_err(), "odds {odds:?} of {shares}");
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
fn many_pieces_are_read() {
    // Reading one piece may not look at the others: with 20,000 pieces, that would take minutes.
    let (task, rows) = (KMeansPass::new(&[0.0f32], 1, Metric::Euclidean).unwrap(), [[1.0f32]]);
    let part = |i: u64| task.absorb(&rows, Place::Partition(2 * i), &cx(1)).unwrap();
    let mut parts: Vec<Partial> = (0..20_000).map(part).collect();
    while parts.len() > 1 {
        parts = parts
            .chunks(2)
            .map(|two| two[0].merge(two.get(1).unwrap_or(&Partial::default())).unwrap())
            .collect();
    }
    let bytes = parts[0].to_bytes().unwrap();
    let read = Partial::from_bytes(&bytes).unwrap();
    assert_eq!(read.pieces.list.len(), 20_000);
    assert_eq!(read.to_bytes().unwrap(), bytes);
}

#[test]
fn draws_depend_on_rows_alone() {
    let (x, d) = (blobs(500, 3, 9), 3);
    let lengths = [100, 0, 390, 10];
    let run = |threads: usize, order: u64| {
        let mut task = SeedPass::new(8, 2.0, 3, Metric::Euclidean, 4).unwrap();
        while task.centers::<f64>().is_none() {
            task = SeedPass::from_bytes(&task.to_bytes().unwrap()).unwrap();
            let mut start = 0;
            let mut parts = Vec::new();
            for (i, &length) in lengths.iter().enumerate() {
                let place = Place::Partition(i as u64);
                let rows = Dense::new(&x[start * d..(start + length) * d], d);
                start += length;
                parts.push(match rows {
                    Ok(rows) if length > 0 => task.absorb(&rows, place, &cx(threads)).unwrap(),
                    _ => task.absorb_nothing(place),
                });
            }
            task = task.commit(&merged(parts, order)).unwrap().0;
        }
        task.centers::<f64>().unwrap()
    };
    let one = run(1, 1);
    assert!(one.chunks(d).all(|center| x.chunks(d).any(|row| row == center)));
    assert!((2..6).all(|order| run(3, order) == one));
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

/// A partial result whose contents are changed: the text, then the sums of its first piece.
fn crafted(part: &Partial, change: impl Fn(&mut serde_json::Value, &mut Contents, &mut Contents)) -> Vec<u8> {
    let mut contents = persist::from_bytes("it", &part.to_bytes().unwrap()).unwrap();
    let mut text = serde_json::from_str(&contents.meta["partial"]).unwrap();
    let mut sums = contents.part("0").unwrap();
    change(&mut text, &mut contents, &mut sums);
    contents.meta.insert("partial".into(), text.to_string());
    contents.put("0", sums);
    persist::to_bytes(&contents).unwrap()
}

#[test]
fn contents_that_match_each_other_but_no_rows_are_refused() {
    type Change = fn(&mut serde_json::Value, &mut Contents, &mut Contents);
    fn set<E: persist::Number>(contents: &mut Contents, name: &str, shape: &[usize], values: &[E]) {
        contents.arrays.insert(name.into(), Array::new(shape, values).unwrap());
    }
    fn three_rows(sums: &mut Contents, cols: usize, key: f64) {
        set(sums, "keys", &[3], &[key; 3]);
        set(sums, "partitions", &[3], &[1u64; 3]);
        set(sums, "rows", &[3], &[0u64, 1, 2]);
        set(sums, "row_weights", &[3], &[1.0; 3]);
        set(sums, "labels", &[3], &[0u32; 3]);
        let rows = if cols == 0 { 0 } else { 3 };
        set::<f32>(sums, "values", &[rows, cols], &vec![0.0; rows * cols]);
    }
    let (rows, cx) = (small(), cx(1));
    let seed = SeedPass::new(3, 2.0, 2, Metric::Euclidean, 1).unwrap();
    let coreset = CoresetPass::new(5, Metric::Euclidean, 1).unwrap();
    let place = Place::Partition(0);
    let drawing = coreset.commit(&coreset.absorb(&rows, place, &cx).unwrap()).unwrap().0;
    // A partition with its neighbor, which has rows.
    let pairs = [0, 1].map(Place::Partition).map(|place| {
        [
            seed.absorb(&rows, place, &cx).unwrap(),
            kmeans().absorb(&rows, place, &cx).unwrap(),
            coreset.absorb(&rows, place, &cx).unwrap(),
            drawing.absorb(&rows, place, &cx).unwrap(),
        ]
    });
    let cases: [(&str, usize, Change); 16] = [
        ("rows without columns, of no rows", 0, |text, all, sums| {
            text["about"] = serde_json::Value::Null;
            set(all, "rows", &[1], &[0u64]);
            three_rows(sums, 0, 1.0);
        }),
        ("rows without columns", 0, |text, _, sums| {
            text["about"]["dim"] = 0.into();
            three_rows(sums, 0, 1.0);
        }),
        ("drawn rows of no rows", 0, |text, all, sums| {
            text["about"] = serde_json::Value::Null;
            set(all, "rows", &[1], &[0u64]);
            three_rows(sums, 2, 1.0);
        }),
        ("columns whose product overflows", 0, |text, _, sums| {
            text["about"]["dim"] = (1u64 << 63).into();
            three_rows(sums, 0, 1.0);
        }),
        ("more drawn rows than rows", 0, |_, all, sums| {
            set(all, "rows", &[1], &[2u64]);
            three_rows(sums, 2, 1.0);
        }),
        ("huge rows", 1, |_, all, _| set(all, "rows", &[1], &[u64::MAX])),
        ("rows beyond the limit with others", 1, |_, all, _| set(all, "rows", &[1], &[1u64 << 62])),
        ("huge rows of zeros", 1, |text, _, _| text["about"]["zeros"] = u64::MAX.into()),
        ("more rows of zeros than rows", 1, |text, _, _| text["about"]["zeros"] = 41.into()),
        ("another width than that of the sums", 1, |text, _, _| text["about"]["dim"] = 3.into()),
        ("a huge place", 1, |text, _, _| text["about"]["place"] = u64::MAX.to_string().into()),
        ("a place of another kind", 1, |text, _, _| text["about"]["partition"] = false.into()),
        ("another number of rows in the moments", 2, |_, _, sums| set(sums, "rows", &[1], &[1u64 << 62])),
        ("another width of the moments", 2, |text, _, _| text["about"]["dim"] = 3.into()),
        ("huge blocks", 3, |_, _, sums| set(sums, "blocks", &[2], &[1u64 << 62, 0])),
        ("events without columns", 3, |text, all, sums| {
            text["about"] = serde_json::Value::Null;
            set(all, "rows", &[1], &[0u64]);
            set::<f32>(sums, "points", &[3, 0], &[]);
        }),
    ];
    for (name, which, change) in cases {
        let (one, two) = (&pairs[0][which], &pairs[1][which]);
        assert!(one.merge(two).is_ok());
        let read = Partial::from_bytes(&crafted(one, change));
        let failed = read.and_then(|part| part.merge(two)).map(drop);
        assert!(failed.is_err(), "{name}");
    }
}

#[test]
fn numbers_beyond_the_limit_are_refused() {
    let (task, rows, cx) = (kmeans(), small(), cx(1));
    let refused = |place| task.absorb(&rows, place, &cx).unwrap_err().to_string();
    let most = 1u64 << 62;
    assert_eq!(refused(Place::Partition(most)), format!("partition must be below 2^62, got {most}"));
    assert_eq!(refused(Place::FirstRow(u64::MAX)), format!("first_row must be below 2^62, got {}", u64::MAX));
    assert!(refused(Place::FirstRow(most - 39)).contains("at most 2^62 rows"));
    assert!(task.absorb(&rows, Place::FirstRow(most - 40), &cx).is_ok());
    let (last, first) =
        (task.absorb_nothing(Place::Partition(u64::MAX)), task.absorb_nothing(Place::Partition(0)));
    assert!(first.merge(&last).is_err() && last.merge(&last).is_err() && task.commit(&last).is_err());
}

#[test]
fn all_partitions_have_weights_or_none() {
    let (task, rows, cx) = (kmeans(), small(), cx(1));
    let weighted = |i| {
        let stream = Chunks::once(2, [Ok(Chunk::from(rows.concat()).weighted(vec![2.0; 40]))].into_iter());
        task.absorb(&stream, Place::Partition(i), &cx).unwrap()
    };
    let plain = |i| task.absorb(&rows, Place::Partition(i), &cx).unwrap();
    let refused = |one: Partial, two: Partial| {
        let two = Partial::from_bytes(&two.to_bytes().unwrap()).unwrap();
        one.merge(&two).unwrap_err().to_string()
    };
    let text = |with, without| {
        format!(
            "all partitions must have weights, or none: got weights in partition {with} and none in partition {without}"
        )
    };
    assert_eq!(refused(weighted(0), plain(1)), text(0, 1));
    assert_eq!(refused(plain(0), weighted(1)), text(1, 0));
    // Weights of 1 are ignored, but are weights.
    let known = Weighted::new::<f32>(&rows, vec![1.0; 40]).unwrap();
    let known = task.absorb(&known, Place::Partition(2), &cx).unwrap();
    assert!(weighted(0).merge(&task.absorb_nothing(Place::Partition(1))).unwrap().merge(&known).is_ok());
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

/// Rows around a few centers, some of them equal, and the first ones in order.
fn rows_for_kept<T: Compute>(n: usize, d: usize) -> Vec<T> {
    let rows = blobs(n, d, 5);
    let mut rows: Vec<T> = rows.iter().map(|&v| T::from_f64((v * 64.0).round() / 64.0)).collect();
    let first = rows[..d].to_vec();
    rows[n / 2 * d..][..4 * d].copy_from_slice(&first.repeat(4));
    rows[2 * d..3 * d].fill(T::ZERO);
    rows
}

/// What happens to the state of a partition before a sweep.
type Disturbance = fn(u64, usize, &mut Kept);

/// Fits with state, and compares every partial result with that of a sweep without state.
fn kept_fit<T: Element>(
    (rows, d): (&[T], usize),
    start: &KMeansPass,
    weights: Option<&[f64]>,
    (budget, disturb): (u64, Disturbance),
) {
    let n = rows.len() / d;
    let cuts = [0, n / 3, n / 3 + 1, n];
    let mut kept: Vec<Kept> = (1..cuts.len()).map(|_| Kept::new(300)).collect();
    let mut task = start.clone().carrying();
    let mut sweeps = 0;
    for sweep in 0..60 {
        let mut parts = Vec::new();
        for (i, kept) in kept.iter_mut().enumerate() {
            let (from, to) = (cuts[i], cuts[i + 1]);
            let part = Dense::new(&rows[from * d..to * d], d).unwrap();
            let place = Place::Partition(i as u64);
            disturb(sweep, i, kept);
            let mut both = |part: &dyn Source| {
                let known = task.absorb(part, place, &cx(1)).unwrap();
                let found = task.absorb_keeping(part, place, (kept, budget), &cx(1 + i)).unwrap();
                assert!(
                    found.to_bytes().unwrap() == known.to_bytes().unwrap(),
                    "sweep {sweep}, partition {i}"
                );
                found
            };
            parts.push(match weights {
                None => both(&part),
                Some(weights) => both(&Weighted::new::<T>(part, &weights[from..to]).unwrap()),
            });
            assert!(kept.bytes() <= budget);
        }
        sweeps += 1;
        let (next, step) = task.commit(&merged(parts, sweep)).unwrap();
        task = KMeansPass::from_bytes(&next.to_bytes().unwrap()).unwrap();
        assert_eq!(task, next);
        if step.stop_reason.is_some() {
            break;
        }
    }
    assert!(sweeps > 2, "{sweeps} sweeps");
}

/// Centers and objectives of a fit of one partition whose passes carry sums, or not.
fn course(start: &KMeansPass, rows: &[[f64; 3]]) -> Vec<(Vec<f64>, f64)> {
    let mut task = start.clone();
    let rows = Dense::new(rows.as_flattened(), 3).unwrap();
    let step = |_| {
        let total = task.absorb(&rows, Place::Partition(0), &cx(1)).unwrap();
        let (next, step) = task.commit(&total).unwrap();
        task = next;
        (task.centers::<f64>(), step.objective)
    };
    (0..12).map(step).collect()
}

#[test]
fn passes_that_carry_sums_move_the_same_centers() {
    for offset in [0.0, 1e4] {
        let rows: Vec<[f64; 3]> = rows_for_kept::<f64>(900, 3)
            .chunks(3)
            .map(|row| [row[0] + offset, row[1], row[2] - offset])
            .collect();
        let start = KMeansPass::new(rows[..8].as_flattened(), 3, Metric::Euclidean).unwrap();
        let (plain, carried) = (course(&start, &rows), course(&start.carrying(), &rows));
        for ((centers, objective), (others, converted)) in plain.iter().zip(&carried) {
            assert_eq!(centers, others);
            assert!(
                (objective - converted).abs() <= 1e-12 * (1.0 + offset) * objective,
                "{objective} {converted}"
            );
        }
    }
}

/// Nothing happens.
const UNDISTURBED: Disturbance = |_, _, _| ();

#[test]
fn state_changes_no_bit() {
    fn of<T: Element>((n, d, k): (usize, usize, usize), metric: Metric) {
        let rows = rows_for_kept::<T>(n, d);
        let start = KMeansPass::new(&rows[..k * d], d, metric).unwrap();
        kept_fit((&rows, d), &start, None, (1 << 30, UNDISTURBED));
    }
    of::<f32>((3000, 20, 30), Metric::Euclidean);
    of::<f64>((3000, 20, 30), Metric::Cosine);
    of::<f32>((2000, 170, 40), Metric::Euclidean);
    // Blocks of rows, and sketches where the processor is fast with them.
    of::<f32>((50_000, 2, 20), Metric::Euclidean);
    of::<f32>((2500, 128, 400), Metric::Euclidean);
}

#[test]
fn sweeps_with_state_compute_the_distances_of_a_local_fit() {
    let mut skipped = 0;
    for (n, d, k) in [(3000, 20, 100), (3000, 170, 40), (50_000, 2, 20), (2500, 128, 400)] {
        let rows = rows_for_kept::<f32>(n, d);
        let part = Dense::new(&rows, d).unwrap();
        let seeding = Seeding::Given(rows[..k * d].iter().map(|&v| v.into()).collect());
        let mut local = KMeans::params(k).seeding(seeding).tolerance(0.0).max_iter(12).start(&part).unwrap();
        let mut task = KMeansPass::new(&rows[..k * d], d, Metric::Euclidean).unwrap().carrying();
        let mut kept = Kept::new(12);
        while let Some(step) = local.advance(&part).unwrap() {
            let total =
                task.absorb_keeping(&part, Place::Partition(0), (&mut kept, 1 << 30), &cx(1)).unwrap();
            task = task.commit(&total).unwrap().0;
            assert_eq!(kept.distances(), step.n_distances, "{n} {d} {k}: sweep {}", step.iteration);
            assert_eq!(task.centers::<f32>(), local.centers::<f32>());
            skipped += (n * k) as u64 - step.n_distances.min((n * k) as u64);
        }
    }
    assert!(skipped > 0);
}

#[test]
fn lost_or_late_state_changes_no_bit() {
    let (d, k) = (20, 30);
    let rows = rows_for_kept::<f32>(3000, d);
    let weights: Vec<f64> = (0..3000).map(|i| f64::from((i + 1) % 5)).collect();
    let start = KMeansPass::new(&rows[..k * d], d, Metric::Euclidean).unwrap();
    let lost: Disturbance = |sweep, i, kept| {
        if (sweep + i as u64) % 3 == 2 {
            *kept = Kept::new(300);
        }
    };
    kept_fit((&rows, d), &start, None, (1 << 30, lost));
    kept_fit((&rows, d), &start, Some(&weights), (1 << 30, UNDISTURBED));
    // Nothing fits; labels alone fit; a few bounds fit.
    for budget in [0, 8_000, 60_000, 200_000] {
        kept_fit((&rows, d), &start, None, (budget, UNDISTURBED));
    }
}

#[test]
fn state_of_any_earlier_sweep_serves() {
    let (d, k) = (20, 30);
    let rows = rows_for_kept::<f32>(2000, d);
    let part = Dense::new(&rows, d).unwrap();
    let place = Place::Partition(0);
    // The centers of a fit, in an order in which no sweep follows the one before.
    let mut tasks = vec![KMeansPass::new(&rows[..k * d], d, Metric::Euclidean).unwrap().carrying()];
    for i in 0..9 {
        let total = tasks[i].absorb(&part, place, &cx(1)).unwrap();
        tasks.push(tasks[i].commit(&total).unwrap().0);
    }
    // The same centers, whose squared errors are about other points.
    tasks[9] = KMeansPass { points: None, ..tasks[8].clone() };
    assert!(tasks[8].points.is_some());
    let parts = [8, 9].map(|i| tasks[i].absorb(&part, Place::Partition(i as u64), &cx(1)).unwrap());
    assert!(parts[0].merge(&parts[1]).is_err());
    let mut kept = Kept::new(300);
    for i in [0, 1, 2, 3, 9, 4, 5, 6, 5, 0, 7, 8, 8, 2, 7, 8, 9, 8] {
        let found = tasks[i].absorb_keeping(&part, place, (&mut kept, 1 << 30), &cx(2)).unwrap();
        let known = tasks[i].absorb(&part, place, &cx(1)).unwrap();
        assert!(found.to_bytes().unwrap() == known.to_bytes().unwrap(), "sweep {i}");
        let labels = LabelPass::new(&tasks[i].centers::<f32>(), d, Metric::Euclidean).unwrap();
        let labels = labels.label(&part, &cx(1)).unwrap();
        assert_eq!(kept.labels(&tasks[i].centers::<f32>()), Some(labels));
        assert_eq!(kept.labels(&rows[..k * d]).is_some(), i == 0);
    }
    // Other rows, of another number, and rows of another type.
    let fewer = Dense::new(&rows[..1000 * d], d).unwrap();
    let found = tasks[9].absorb_keeping(&fewer, place, (&mut kept, 1 << 30), &cx(1)).unwrap();
    assert_eq!(
        found.to_bytes().unwrap(),
        tasks[9].absorb(&fewer, place, &cx(1)).unwrap().to_bytes().unwrap()
    );
    // A failed sweep keeps nothing.
    let mut broken = rows[..1000 * d].to_vec();
    broken[777] = f32::NAN;
    let broken = Dense::new(&broken, d).unwrap();
    assert!(tasks[0].absorb_keeping(&broken, place, (&mut kept, 1 << 30), &cx(1)).is_err());
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn nothing_is_kept_of_rows_that_are_read_once_or_sparse() {
    let (task, cx) = (kmeans().carrying(), cx(1));
    let once = || Chunks::once(2, [Ok(Chunk::from(small().concat()))].into_iter());
    let mut kept = Kept::new(300);
    let place = Place::Partition(0);
    let found = task.absorb_keeping(&once(), place, (&mut kept, 1 << 30), &cx).unwrap();
    assert_eq!(found.to_bytes().unwrap(), task.absorb(&once(), place, &cx).unwrap().to_bytes().unwrap());
    assert_eq!((kept.bytes(), kept.distances()), (0, 40 * 3));
    let (starts, columns, values) = ([0i64, 1, 2], [0i32, 1], [2.0f32, 9.0]);
    let sparse = Csr::new((2, 2), starts[..].into(), columns[..].into(), &values).unwrap();
    task.absorb_keeping(&sparse, place, (&mut kept, 1 << 30), &cx).unwrap();
    assert_eq!(kept.bytes(), 0);
    // A stream is counted by the first sweep.
    let again = Chunks::replay(2, || [Ok(Chunk::from(small().concat()))].into_iter());
    let mut kept = Kept::new(300);
    for kept_before in [false, true, true] {
        let found = task.absorb_keeping(&again, place, (&mut kept, 1 << 30), &cx).unwrap();
        assert_eq!(found.to_bytes().unwrap(), task.absorb(&again, place, &cx).unwrap().to_bytes().unwrap());
        assert_eq!(kept.bytes() > 0, kept_before);
    }
}
