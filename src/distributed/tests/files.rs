//! Bytes of partial results, damaged or crafted.

use proptest::prelude::*;

use super::*;
use crate::persist::Array;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

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

#[test]
fn many_pieces_are_read() {
    let (task, rows) = (SeedPass::new(1, 2.0, 2, Metric::Euclidean, 1).unwrap(), [[1.0f32]]);
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
    let measured = [0, 1].map(|i| coreset.absorb(&rows, Place::Partition(i), &cx).unwrap());
    let drawing = coreset.commit(&measured[0].merge(&measured[1]).unwrap()).unwrap().0;
    // A partition with its neighbor, which has rows.
    let pairs = [0, 1].map(Place::Partition).map(|place| {
        [
            seed.absorb(&rows, place, &cx).unwrap(),
            kmeans().absorb(&rows, place, &cx).unwrap(),
            coreset.absorb(&rows, place, &cx).unwrap(),
            drawing.absorb(&rows, place, &cx).unwrap(),
        ]
    });
    let cases: [(&str, usize, Change); 15] = [
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
        ("another width of the measured sums", 2, |text, _, _| text["about"]["dim"] = 3.into()),
        ("joined partitions", 1, |_, all, _| set(all, "blocks", &[1], &[2u64])),
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
