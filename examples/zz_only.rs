//! one
use shoal::{Algorithm, Executor, KMeans, Seeding, data};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let rows = data::npy::open(&a[1]).unwrap();
    let k: usize = a[2].parse().unwrap();
    let iters: u64 = a[3].parse().unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let alg = Algorithm::named(&a[4]).unwrap();
    let mut x = KMeans::params(k)
        .seeding(Seeding::Random)
        .rng_seed(1)
        .max_iter(iters)
        .tolerance(0.0)
        .algorithm(alg)
        .threads(Some(1))
        .start(&rows)
        .unwrap();
    let t = std::time::Instant::now();
    while let Some(p) = x.advance(&rows, &cx).unwrap() {
        if a.len() > 5 {
            println!("{} {:.3}", p.iteration, p.elapsed);
        }
    }
    println!("{:.3} s, {} sweeps, {}", t.elapsed().as_secs_f64(), x.history().len(), x.inertia());
}
