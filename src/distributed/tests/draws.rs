//! Drawn rows: seedings and coresets.

use super::*;
use crate::data::Weighted;
use crate::persist::Array;

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
