//! speed
use shoal::{Algorithm, Executor, KMeans, Seeding, data};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let rows = data::npy::open(&a[1]).unwrap();
    let k: usize = a[2].parse().unwrap();
    let iters: u64 = a[3].parse().unwrap();
    let threads: usize = a[4].parse().unwrap();
    let cx = Executor::new(Some(threads)).unwrap();
    let mk = |alg| {
        KMeans::params(k)
            .seeding(Seeding::Random)
            .rng_seed(1)
            .max_iter(iters)
            .tolerance(0.0)
            .algorithm(alg)
            .threads(Some(threads))
            .start(&rows)
            .unwrap()
    };
    let (mut x, mut y) = (mk(Algorithm::Lloyd), mk(Algorithm::Yinyang));
    let (mut ta, mut tb) = (0.0, 0.0);
    loop {
        let t = std::time::Instant::now();
        let p = x.advance(&rows, &cx).unwrap();
        let t1 = t.elapsed().as_secs_f64();
        let t = std::time::Instant::now();
        let q = y.advance(&rows, &cx).unwrap();
        let t2 = t.elapsed().as_secs_f64();
        let (Some(p), Some(q)) = (p, q) else { break };
        ta += t1;
        tb += t2;
        let n = x.labels().len() as f64;
        let differ = x.labels().iter().zip(y.labels()).filter(|(a, b)| a != b).count();
        let it = p.iteration;
        if it <= 6
            || it % 5 == 0
            || p.stop_reason.is_some()
            || differ > 0
            || p.objective != q.objective
            || p.center_shift != q.center_shift
        {
            println!(
                "{it:3} lloyd {:7.1} yy {:7.1} ms  share {:.3} changed {:.3} differ {differ} obj {} cum {:.2}",
                t1 * 1e3,
                t2 * 1e3,
                q.n_distances as f64 / p.n_distances as f64,
                p.n_changed as f64 / n,
                p.objective == q.objective,
                ta / tb
            );
        }
    }
    println!("total lloyd {ta:.2} yy {tb:.2} ratio {:.2}", ta / tb);
}
