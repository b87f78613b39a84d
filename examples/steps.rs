//! Runs a fit step by step and stops it by a rule of one's own: when a step has lowered the inertia by less than one percent. A step is one
//! sweep over all rows; after each of them the centers are usable. `fit::StopRules` has the usual rules ready (steps, seconds, a target,
//! patience), and `KMeansParams::solve` gives the steps as an iterator.

use shoal::{KMeans, Seeding};

fn main() -> shoal::Result<()> {
    // Points along a curve have no clusters: the inertia goes down slowly for a long time.
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

    // The centers moved after the last labelling: one more pass makes labels and inertia theirs.
    let inertia = run.finish(&rows)?;
    let early = run.model();
    println!("stopped after {} sweeps at inertia {inertia:.2}", early.n_iter());

    let whole = params.fit(&rows)?;
    println!("the end would have been {} sweeps and {:.2}", whole.n_iter(), whole.inertia());
    assert_eq!(early.predict(&rows)?, early.labels());
    assert!(early.n_iter() < whole.n_iter() && inertia <= last && inertia >= whole.inertia());
    Ok(())
}
