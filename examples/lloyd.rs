//! Clusters 3,000 points in memory and prints the centers: the shortest complete program.
//!
//! Rows can be a slice of arrays, as here, a flat slice with a number of columns (`data::Dense`), an
//! `ndarray` view or a file. The data are three spirals, and the program checks that each center lies in the
//! middle of a spiral.

use shoal::{KMeans, Seeding};

const MIDDLES: [[f64; 2]; 3] = [[0.0, 0.0], [10.0, 0.0], [5.0, 8.0]];

fn main() -> shoal::Result<()> {
    // A spiral around each of the three points.
    let rows: Vec<[f64; 2]> = (0..3000)
        .map(|i| {
            let ([x, y], turn) = (MIDDLES[i % 3], i as f64);
            [x + turn.sqrt() / 30.0 * turn.cos(), y + turn.sqrt() / 30.0 * turn.sin()]
        })
        .collect();

    let model = KMeans::params(3).seeding(Seeding::PlusPlus { greedy: true }).rng_seed(7).fit(&rows)?;

    println!("{} sweeps, inertia {:.1}", model.n_iter(), model.inertia());
    let centers = model.centers::<f64>();
    for (center, weight) in centers.chunks(model.dim()).zip(model.cluster_weights()) {
        println!("{weight} rows around {center:.2?}");
    }

    for middle in MIDDLES {
        let label = model.predict(&[middle])?[0] as usize;
        let center = &centers[label * 2..][..2];
        assert!((center[0] - middle[0]).hypot(center[1] - middle[1]) < 0.1, "{center:?} is not {middle:?}");
    }
    Ok(())
}
