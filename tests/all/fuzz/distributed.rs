//! Passes and partial results as bytes: what is read merges, absorbs rows and is committed, or is an error.

use std::fs;
use std::path::Path;

use shoal::distributed::{CoresetPass, KMeansPass, Partial, Place, SeedPass};
use shoal::{Executor, Metric, Result};

use super::damage;
use super::driver::Target;
use super::models::rows;

fn run(name: &str, valid: Vec<Vec<u8>>, read: &dyn Fn(&[u8]) -> Result<()>) {
    let read = |path: &Path| read(&fs::read(path).unwrap()).map_err(|e| e.to_string());
    Target { name, file: "x.safetensors", valid, damage: damage::parts, read: &read }.run();
}

/// Tests that damage the bytes of a pass, and of its partial results.
macro_rules! passes {
    ($($pass:ident, $name:ident, $parts:ident: $first:expr;)*) => {$(
        /// Passes of several rounds, and the partial results of two partitions for each.
        fn $name() -> (Vec<$pass>, Vec<Partial>) {
            let both = $parts::both;
            let (rows, cx) = (rows(), Executor::new(Some(1)).unwrap());
            let (mut passes, mut parts) = (vec![$first.unwrap()], Vec::new());
            loop {
                let pass: &$pass = passes.last().unwrap();
                let Ok(both) = both(pass, &rows, &cx) else {
                    // The coreset is complete, or the centers are chosen.
                    passes.pop();
                    break;
                };
                let done = pass.commit(&both[0].merge(&both[1]).unwrap()).unwrap();
                parts.extend(both);
                if done.1.stop_reason.is_some() || passes.len() == 4 {
                    break;
                }
                passes.push(done.0);
            }
            (passes, parts)
        }

        mod $parts {
            use super::*;

            /// The partial results of two partitions.
            pub(super) fn both(pass: &$pass, rows: &[[f32; 2]], cx: &Executor) -> Result<[Partial; 2]> {
                let part = |number, rows: &[[f32; 2]]| pass.absorb(&rows, Place::Partition(number), cx);
                Ok([part(0, &rows[..25])?, part(1, &rows[25..])?])
            }

            #[test]
            fn pass() {
                let (rows, cx) = (rows(), Executor::new(Some(1)).unwrap());
                let valid = $name().0.iter().map(|pass| pass.to_bytes().unwrap()).collect();
                run(concat!(stringify!($name), "_passes"), valid, &|bytes| {
                    let pass = $pass::from_bytes(bytes)?;
                    let [one, other] = both(&pass, &rows, &cx)?;
                    let (next, _) = pass.commit(&one.merge(&other)?)?;
                    next.to_bytes().map(drop)
                });
            }

            #[test]
            fn partial() {
                let (passes, parts) = $name();
                let valid = parts.iter().map(|part| part.to_bytes().unwrap()).collect();
                run(concat!(stringify!($name), "_partials"), valid, &|bytes| {
                    let part = Partial::from_bytes(bytes)?;
                    let mut done = Vec::new();
                    // Both orders, with a sound partial result of each round; a pass takes those of its own round.
                    for (pass, others) in passes.iter().zip(parts.chunks(2)) {
                        done.push(pass.commit(&part).map(drop));
                        for other in others {
                            let both = other.merge(&part).and_then(|_| part.merge(other));
                            done.push(both.and_then(|both| pass.commit(&both)).map(drop));
                        }
                    }
                    Partial::from_bytes(&part.to_bytes()?)?;
                    let is_done = done.iter().any(Result::is_ok);
                    if is_done { Ok(()) } else { done.swap_remove(1) }
                });
            }
        }
    )*};
}

passes! {
    KMeansPass, kmeans, of_kmeans: KMeansPass::new(&[0.0f32, 0.0, 5.0, 5.0, 9.0, 9.0], 2, Metric::Euclidean);
    SeedPass, seeds, of_seeds: SeedPass::new(3, 2.0, 2, Metric::Euclidean, 7);
    CoresetPass, coresets, of_coresets: CoresetPass::new(8, Metric::Euclidean, 7);
}
