//! Tests of sums: any cuts, moves, squared weights, limits of means.

use super::{ClusterSums, Terms, mean_variance};
use crate::kernel::PackedCenters;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows};

/// Sums of one cluster of one column: the terms of the sum, and the weight.
fn sums(terms: &[f64], weight: f64) -> ClusterSums {
    let parts = [terms, &[weight], &[], &[0.0]];
    ClusterSums::of_parts(1, 1, parts.map(|part| Terms { values: part.to_vec(), places: Vec::new() }))
        .unwrap()
}

#[test]
fn merged_sums_keep_what_is_rounded_away() {
    let tiny = 2f64.powi(-60);
    for (one, other) in [
        (&[1.0, tiny][..], &[2.0][..]),
        (&[1.0], &[2.0, tiny]),
        (&[1.0], &[tiny]),
        (&[tiny], &[1.0]),
        (&[1.0, tiny, tiny * tiny], &[-tiny * tiny]),
    ] {
        let (mut total, mut part) = (sums(one, 1.0), sums(other, 1.0));
        total.merge(&mut part);
        let [(_, sum), (_, weight), ..] = total.parts();
        assert_eq!((sum.values[1], weight.values), (tiny, vec![2.0]), "{one:?} {other:?}");
        // The part is empty now.
        assert!(part.parts().iter().all(|(_, terms)| terms.values.iter().all(|&value| value == 0.0)));
    }
    // A row that enters and leaves again leaves nothing, however much larger the others are.
    let mut total = sums(&[1e16], 1.0);
    for value in [0.25, 2f64.powi(-20), 1e-300, -0.25, -1e-300, -2f64.powi(-20)] {
        total.merge(&mut sums(&[value], 0.0));
    }
    assert_eq!(total.parts()[0].1.values, [1e16]);
    // Rounded sums drop what is rounded away.
    total.merge_rounded(&mut sums(&[0.25], 0.0), Executor::caller());
    assert_eq!(total.parts()[0].1.values, [1e16]);
}

/// Rows and weights by number; the columns have other scales.
fn some_rows(n: usize, dim: usize) -> (Vec<f32>, Vec<f64>, Vec<u32>) {
    let rng = &mut Rng::keyed(4, Purpose::Seeding, 0);
    let value = |i: usize, u: f64| ((u - 0.5) * 10f64.powi((i % dim) as i32 * 3 - 6)) as f32;
    let rows = (0..n * dim).map(|i| if rng.unit() < 0.5 { 0.0 } else { value(i, rng.unit()) }).collect();
    let weights = (0..n).map(|_| rng.unit() * 3.0).collect();
    (rows, weights, (0..n).map(|i| (i * i % 7) as u32).collect())
}

/// All numbers of sums, as bits.
fn bits(sums: &ClusterSums) -> Vec<Vec<u64>> {
    let of = |terms: &Terms| {
        terms.values.iter().map(|term| term.to_bits()).chain(terms.places.iter().copied()).collect()
    };
    sums.parts().iter().map(|(_, terms)| of(terms)).collect()
}

#[test]
fn a_copy_catches_up_with_what_merges_changed() {
    let (n, dim, k) = (400, 5, 7);
    let (x, weights, labels) = some_rows(n, dim);
    let rows = MatRef::new(&x, dim);
    let packed = PackedCenters::for_rows(MatRef::new(&x[..k * dim], dim), false);
    let mut before = ClusterSums::new(k, dim);
    before.absorb(rows, &labels, Some(&weights), &packed);
    // Values that two numbers cannot hold stay beside the sums.
    for tiny in [1e-30, 1e-300] {
        before.merge(&mut ClusterSums::of(dim, vec![tiny; k * dim], vec![1.0; k]));
    }
    assert!(bits(&before)[0].len() > 2 * k * dim);
    let mut now = before.copy(None);
    assert_eq!(now.changed_in(0..k).count(), 0);
    for round in 0..6u32 {
        let mut changed: Vec<usize> = Vec::new();
        for part in 0..2 {
            // Rows of a cluster move to the next one but one.
            let from = (3 * round + part) % k as u32;
            let to = (from + 2) % k as u32;
            let moved: Vec<u32> = labels.iter().map(|&j| if j == from { to } else { j }).collect();
            let mut part = ClusterSums::part(k, dim);
            part.reassign(rows.slice(0, 50), &labels[..50], &moved[..50], &packed);
            now.merge(&mut part);
            if labels[..50].contains(&from) {
                changed.extend([from as usize, to as usize]);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        assert_eq!(now.changed_in(0..k).collect::<Vec<_>>(), changed, "round {round}");
        // `before` is the copy from which `now` was made.
        let copy = now.copy(Some(before));
        assert_eq!(bits(&copy), bits(&now), "round {round}");
        assert_eq!(copy.changed_in(0..k).count(), 0);
        before = std::mem::replace(&mut now, copy);
    }
    let other = now.copy(None);
    let changes: [&dyn Fn(&mut ClusterSums); 5] = [
        &|sums| sums.replace(2, rows.row(0), 1.0),
        &|sums| sums.scale(2.0),
        &|sums| sums.absorb(rows.slice(0, 1), &[1], None, &packed),
        &|sums| sums.reassign(rows.slice(0, 1), &[1], &[2], &packed),
        &|sums| sums.move_row(rows.row(0), 1.0, 1, 2),
    ];
    for change in changes {
        let mut sums = other.clone();
        change(&mut sums);
        assert_eq!(sums.changed_in(0..k).count(), k);
    }
}

/// A batch is rounded once, whether some, all or none of its sparse rows wait.
#[test]
fn collected_parts_do_not_depend_on_their_order() {
    let (n, dim, k) = (400, 50, 4);
    let (x, weights, _) = some_rows(n, dim);
    let labels: Vec<u32> = (0..n).map(|i| (i % k) as u32).collect();
    let packed = PackedCenters::for_rows(MatRef::new(&x[..k * dim], dim), true);
    let csr = to_sparse(MatRef::new(&x, dim));
    let part = |from: usize, to: usize| {
        let mut part = ClusterSums::part(k, dim);
        // Without weights, no sum of these values is rounded.
        part.absorb(csr.rows().slice(from, to), &labels[from..to], Some(&weights[from..to]), &packed);
        part
    };
    assert!(part(0, 3).bytes() < part(3, n).bytes(), "three rows wait, many do not");
    let after = |mut parts: Vec<ClusterSums>| {
        let (mut batch, mut state) = (ClusterSums::part(k, dim), ClusterSums::new(k, dim));
        state.merge_rounded(&mut part(0, n / 3), Executor::caller());
        batch.collect(&mut parts, Executor::caller());
        state.merge_rounded(&mut batch, Executor::caller());
        bits(&state)
    };
    let expected = after(vec![part(0, n)]);
    assert_eq!(after(vec![part(0, 3), part(3, n)]), expected);
    assert_eq!(after(vec![part(3, n), part(0, 3)]), expected);
}

#[test]
fn sums_do_not_depend_on_cuts_moves_or_storage() {
    let (n, dim, k) = (3000, 5, 7);
    let (x, all_weights, labels) = some_rows(n, dim);
    let packed = [false, true].map(|sparse| PackedCenters::for_rows(MatRef::new(&x[..k * dim], dim), sparse));
    let other: Vec<u32> =
        labels.iter().enumerate().map(|(i, &j)| if i % 3 == 0 { 6 - j } else { j }).collect();
    let csr = to_sparse(MatRef::new(&x, dim));
    for weights in [None, Some(&all_weights[..])] {
        let mut whole = ClusterSums::new(k, dim);
        whole.absorb(MatRef::new(&x, dim), &labels, weights, &packed[0]);
        for (trial, cut) in [1, 13, 700, n].into_iter().enumerate() {
            for sparse in [false, true] {
                let mut total = ClusterSums::new(k, dim);
                let mut parts = [ClusterSums::part(k, dim), ClusterSums::part(k, dim)];
                for (i, start) in (0..n).step_by(cut).rev().enumerate() {
                    let these = start..n.min(start + cut);
                    let rows = if sparse {
                        csr.rows().slice(these.start, these.end)
                    } else {
                        Rows::Dense(MatRef::new(&x, dim).slice(these.start, these.end))
                    };
                    let (part, centers) = (&mut parts[i % 2], &packed[usize::from(sparse)]);
                    if weights.is_none() && trial % 2 == 1 {
                        part.absorb(rows, &other[these.clone()], None, centers);
                        part.reassign(rows, &other[these.clone()], &labels[these], centers);
                    } else {
                        part.absorb(rows, &labels[these.clone()], weights.map(|w| &w[these]), centers);
                    }
                }
                parts.iter_mut().rev().for_each(|part| total.merge(part));
                // Squared distances of sparse rows have other roundings.
                let compared = if sparse { 3 } else { 4 };
                assert_eq!(bits(&total)[..compared], bits(&whole)[..compared], "{trial} {cut} {sparse}");
                let terms = total.parts().map(|(_, terms)| terms);
                assert_eq!(bits(&ClusterSums::of_parts(k, dim, terms).unwrap()), bits(&total));
            }
        }
    }
}

/// The nonzero values of rows.
fn to_sparse(rows: MatRef<'_, f32>) -> RowBuf<f32> {
    let mut buffer = RowBuf::new(rows.cols());
    buffer.starts.push(0);
    for row in rows.iter() {
        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            buffer.columns.push(column as i32);
            buffer.values.push(x);
        }
        buffer.starts.push(buffer.values.len());
    }
    buffer
}

#[test]
fn squared_weights_of_plain_rows_are_merged() {
    let centers = PackedCenters::new(MatRef::new(&[0.0f64], 1));
    let (mut total, mut part) = (ClusterSums::new(1, 1), ClusterSums::part(1, 1));
    total.absorb(MatRef::new(&[1.0, 2.0], 1), &[0, 0], Some(&[1.0, 4.0]), &centers);
    part.absorb(MatRef::new(&[1.0, 2.0, 3.0], 1), &[0, 0, 0], None, &centers);
    total.merge(&mut part);
    assert_eq!(total.effective_rows(0), 8.0 * 8.0 / (17.0 + 3.0));
}

#[test]
fn means_must_fit_the_type() {
    assert!(sums(&[1e39], 1.0).check_means::<f32>(Executor::caller()).is_err());
    sums(&[1e39], 100.0).check_means::<f32>(Executor::caller()).unwrap();
    sums(&[1e39], 1.0).check_means::<f64>(Executor::caller()).unwrap();
    assert!(sums(&[f64::INFINITY], 2.0).check_means::<f64>(Executor::caller()).is_err());
    // The sum of a cluster without weight is not used.
    sums(&[1e39], 0.0).check_means::<f32>(Executor::caller()).unwrap();
}

#[test]
fn the_variance_is_about_the_mean() {
    let origin = [10.0f64, 0.0];
    let centers = PackedCenters::new(MatRef::new(&origin, 2));
    let mut all = ClusterSums::new(1, 2);
    all.absorb(MatRef::new(&[1.0, 0.0, 3.0, 4.0], 2), &[0, 0], None, &centers);
    assert_eq!(mean_variance(&all, &origin), f64::midpoint(1.0, 4.0));
}
