//! Runs a fit step by step and stops it by a custom rule: when a step lowers the inertia by less than 1%.
//!
//! A step is one sweep over all rows. The model is valid after every step. `KMeansParams::solve` returns the
//! steps as an iterator.

use shoal::{KMeans, Seeding};

fn main() -> shoal::Result<()> {
    // Points along a curve have no clusters, so the inertia falls slowly for a long time.
    let rows: Vec<[f64; 2]> =
        (0..20_000).map(|i| f64::from(i) / 1000.0).map(|t| [t, (3.0 * t).sin()]).collect();

    let params = KMeans::params(50).seeding(Seeding::Random).rng_seed(3).tolerance(0.0);
    let mut run = params.start(&rows)?;
    let mut last = f64::INFINITY;
    while let Some(step) = run.advance(&rows)? {
        println!("sweep {}: inertia {:.2}, {} rows changed", step.iteration, step.objective, step.n_changed);
        if step.objective > 0.99 * last {
            break;
        }
        last = step.objective;
    }

    // The centers have moved since the last labeling. One more pass computes their labels and inertia.
    let inertia = run.finish(&rows)?;
    let early = run.model();
    println!("stopped after {} sweeps at inertia {inertia:.2}", early.n_iter());

    let whole = params.fit(&rows)?;
    println!("a full fit takes {} sweeps and ends at {:.2}", whole.n_iter(), whole.inertia());
    assert_eq!(early.predict(&rows)?, early.labels());
    assert!(early.n_iter() < whole.n_iter() && inertia <= last && inertia >= whole.inertia());
    Ok(())
}
