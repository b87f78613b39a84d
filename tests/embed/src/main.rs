//! Clusters a handful of rows and prints the centers.

use shoal::KMeans;
use shoal::data::Dense;

fn main() -> shoal::Result<()> {
    let rows = [0.0f32, 0.1, 0.2, -0.1, 9.9, 10.0, 10.1, 10.2, -5.0, 5.0, -5.2, 5.1];
    let source = Dense::new(&rows, 2)?;
    let model = KMeans::params(3).rng_seed(7).fit(&source)?;
    for (i, center) in model.centers::<f32>().chunks(2).enumerate() {
        println!("center {i}: {center:?}");
    }
    let labels = model.predict(&source)?;
    println!("labels: {labels:?}");
    assert_eq!(labels[0], labels[1]);
    assert_ne!(labels[0], labels[2]);
    Ok(())
}
