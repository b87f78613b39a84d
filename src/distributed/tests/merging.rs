//! What merges, in any order, and what does not.

use super::*;
use crate::data::{Chunk, Chunks, Csr, Weighted};

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
fn a_result_of_any_partitions_has_one_sum() {
    let (x, d) = (blobs(64, 1, 5), 1);
    let task = KMeansPass::new(&x[..2], d, Metric::Euclidean).unwrap();
    let parts = parts(&task, &x, d, &[1; 64], 1);
    let bytes = |part: &Partial| part.to_bytes().unwrap().len();
    for step in 1..4 {
        let some: Vec<Partial> = parts[3..].iter().step_by(step).cloned().collect();
        let (n, total) = (some.len(), merged(some, 7));
        // Three numbers per partition, and longer texts.
        assert!(bytes(&total) <= bytes(&parts[3]) + 24 * n + 500, "{} bytes", bytes(&total));
        assert_eq!(total.weights().iter().sum::<f64>(), n as f64);
    }
}

#[test]
fn numbered_rows_merge_with_neighbors_anywhere() {
    let (x, d) = (blobs(16, 2, 5), 2);
    let task = SeedPass::new(3, 2.0, 2, Metric::Euclidean, 1).unwrap();
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
    assert_eq!(one.pieces.list.len(), 1);
    assert!(bytes(&one) <= 2 * bytes(&parts[0]), "{} bytes of {}", bytes(&one), bytes(&parts[0]));
    assert_eq!(merged(parts.clone(), 2).to_bytes().unwrap(), one.to_bytes().unwrap());
    // In the order of the rows, no partial sum is large either.
    let grows = |total: Partial, part: &Partial| {
        let total = total.merge(part).unwrap();
        assert_eq!(total.pieces.list.len(), 1);
        total
    };
    let ascending = parts.iter().fold(Partial::default(), grows);
    assert_eq!(ascending.to_bytes().unwrap(), one.to_bytes().unwrap());
    // A gap keeps what is on both sides apart.
    let gap = merged(parts[..900].iter().chain(&parts[901..]).cloned().collect(), 3);
    assert_eq!(gap.pieces.list.len(), 2);
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
    assert_eq!(next.head.before.extent.as_ref().unwrap().names.as_deref().unwrap(), ["a", "b"]);
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
