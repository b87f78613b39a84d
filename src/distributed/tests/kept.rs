//! Sweeps with state from earlier sweeps, and sums that a fit carries.

use super::*;
use crate::data::{Chunk, Chunks, Csr, Source, Weighted};
use crate::kernel::Compute;
use crate::{KMeans, Seeding};

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
fn kept_fit<T: Compute>(
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
    fn of<T: Compute>((n, d, k): (usize, usize, usize), metric: Metric) {
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
