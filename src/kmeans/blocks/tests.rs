//! Tests of the tree that the starts of a fit share.

use super::super::choice::{BLOCK_CENTERS, BLOCK_ROWS};
use crate::data::Dense;
use crate::fit::{Restartable, Solver};
use crate::kmeans::lloyd::params::{Algorithm, KMeans};
use crate::kmeans::lloyd::solver::Lloyd;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

#[test]
fn starts_after_declined_blocks_are_plain() {
    let (n, d, k) = (BLOCK_ROWS, 14, 2 * BLOCK_CENTERS);
    let mut rng = Rng::keyed(7, Purpose::Seeding, 1);
    // Every box of such rows is near most centers.
    let values: Vec<f32> = (0..n * d).map(|_| rng.unit() as f32).collect();
    let data = Dense::new(&values, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let plan = Lloyd::<f32>::plan(KMeans::params(k).seeding(Seeding::Random).tolerance(0.0).n_init(2));
    for start in 0..2 {
        let mut run = plan.begin(start, &data, &cx).unwrap();
        let step = run.step(&data, &cx).unwrap();
        assert_eq!(step.n_distances == (n * k) as u64, start == 1);
        assert_eq!(run.algorithm(), Algorithm::Lloyd);
    }
}
