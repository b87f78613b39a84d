//! Tests of the tree that the starts of a fit share, and of candidates that serve for several sweeps.

use super::super::choice::{BLOCK_CENTERS, BLOCK_ROWS};
use super::carried::Carried;
use super::shared::Shared;
use crate::data::Dense;
use crate::fit::{Restartable, Solver};
use crate::kernel::PackedCenters;
use crate::kernel::blocks::{Candidates, Narrowing, Skin, narrow};
use crate::kmeans::KMeansRun;
use crate::kmeans::lloyd::params::{Algorithm, KMeans};
use crate::kmeans::lloyd::solver::Lloyd;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

#[test]
fn starts_after_declined_blocks_are_plain() {
    let (n, d) = (BLOCK_ROWS, 14);
    let mut rng = Rng::keyed(7, Purpose::Seeding, 1);
    // Every box of such rows is near most centers.
    let values: Vec<f32> = (0..n * d).map(|_| rng.unit() as f32).collect();
    let data = Dense::new(&values, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    // With more centers, the rows of a branch show it before the first sweep.
    for (k, swept) in [(4 * BLOCK_CENTERS, true), (8 * BLOCK_CENTERS, false)] {
        let params = KMeans::params(k).seeding(Seeding::Random).tolerance(0.0).n_init(2);
        let shared = Shared::default();
        let plan = Lloyd::<f32>::plan(params).sharing(&shared);
        for start in 0..2 {
            let declined = shared.blocks(n, &data, &cx).unwrap().is_none();
            let mut run = plan.begin(start, &data, &cx).unwrap();
            let step = run.step(&data, &cx).unwrap();
            assert_eq!((declined, run.algorithm()), (start == 1, Algorithm::Lloyd), "{k} centers");
            assert_eq!(step.n_distances == (n * k) as u64, start == 1 || !swept, "{k} centers");
        }
    }
}

/// With many clusters and few labels that change, bounds cost much less. They begin only if enough sweeps may follow.
#[test]
fn late_sweeps_leave_blocks_for_bounds() {
    let (n, d, k) = (6000, 8, 1100);
    let mut rng = Rng::keyed(3, Purpose::Seeding, 1);
    let directions: Vec<f64> = (0..3 * d).map(|_| rng.unit() - 0.5).collect();
    let mut values = Vec::new();
    for _ in 0..n {
        let at = [rng.unit(), rng.unit(), rng.unit()];
        values.extend((0..d).map(|t| (0..3).map(|a| at[a] * directions[a * d + t]).sum::<f64>() as f32));
    }
    let data = Dense::new(&values, d).unwrap();
    let algorithms = |most: u64, algorithm: Algorithm| {
        let params =
            KMeans::params(k).seeding(Seeding::Random).tolerance(0.0).max_iter(most).algorithm(algorithm);
        let (mut run, mut used): (KMeansRun, Vec<Algorithm>) = (params.start(&data).unwrap(), Vec::new());
        while run.advance(&data).unwrap().is_some() {
            used.push(run.algorithm());
        }
        (used, run.labels())
    };
    let (used, labels) = algorithms(40, Algorithm::Auto);
    assert!(
        used.starts_with(&[Algorithm::Filtering; 3]) && used.ends_with(&[Algorithm::Yinyang]),
        "{used:?}"
    );
    assert!(labels == algorithms(40, Algorithm::Lloyd).1);
    let (used, _) = algorithms(9, Algorithm::Auto);
    assert!(used.len() == 9 && used.iter().all(|&used| used == Algorithm::Filtering), "{used:?}");
}

/// Carried candidates serve while the root has no others, and neither they nor the shift move farther than they may.
#[test]
fn carried_candidates_serve_until_one_of_them_moves_too_far() {
    // Two centers are near the box, and ten are far away.
    let places: Vec<f32> = (0..12).map(|j| 1e4 + if j < 2 { j as f32 } else { 500.0 + j as f32 }).collect();
    let packed_of = |places: &[f32]| PackedCenters::new(MatRef::new(places, 1));
    let (packed, faces) = (packed_of(&places), [1e4f32 + 0.25, 1e4 + 0.75]);
    let all = Candidates::all(&packed, Some(&places));
    let skin = all.skin(1.0, packed.frame().1, 0.0).unwrap();
    let mut few = Candidates::default();
    assert!(narrow(&packed, &faces, Skin::default(), &all, &mut few, &mut Narrowing::default()));
    assert!(few.ids() == [0, 1] && packed.frame().0 != [0.0]);
    let carried = Carried::of(&packed, &few, skin);
    let serves = |places: &[f32], now: &Candidates<f32>| carried.holds(&packed_of(places), now);
    assert!(serves(&places, &few));
    assert!(!serves(&places, &all), "other candidates");
    let moved = |which: std::ops::Range<usize>, by: f32| {
        let mut places = places.clone();
        places[which].iter_mut().for_each(|place| *place += by);
        places
    };
    let allowed = all.allowed(skin)[0];
    assert!(serves(&moved(1..2, 0.5 * allowed), &few));
    assert!(!serves(&moved(1..2, 2.0 * allowed), &few), "a candidate");
    let far = moved(2..12, 900.0);
    assert_ne!(packed_of(&far).frame().0, packed.frame().0);
    assert!(!serves(&far, &few), "the shift");
}
