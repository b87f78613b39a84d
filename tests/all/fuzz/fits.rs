//! Checkpoints and states: a resumed fit goes on, or is an error.

use std::path::Path;

use shoal::data::Source;
use shoal::kmodes::LaplacianKModes;
use shoal::persist::{self, Contents};
use shoal::stats::MergeReduce;
use shoal::{
    BackwardEuler, Breathing, Executor, HierarchicalKMeans, KMeans, Metric, MiniBatch, NestedMiniBatch,
    Result, Seeding, TruncatedGaussianMixture, VarianceReduced,
};

use super::damage;
use super::driver::Target;
use super::models::{rows, saved, wide_rows};
use crate::common::Any;

fn run(name: &str, valid: &[Contents], resume: &dyn Fn(&Contents) -> Result<()>) {
    let valid = valid.iter().map(|contents| saved(|path| persist::write(path, contents))).collect();
    let read =
        |path: &Path| persist::read(path).and_then(|contents| resume(&contents)).map_err(|e| e.to_string());
    Target { name, file: "x.safetensors", valid, damage: damage::parts, read: &read }.run();
}

/// A test that resumes damaged checkpoints of a method.
macro_rules! checkpoints {
    ($($name:ident: $rows:expr, $params:expr;)*) => {$(
        #[test]
        fn $name() {
            let (rows, params, cx) = ($rows, $params, Executor::new(Some(1)).unwrap());
            // The other tests have compiled fits of this type.
            let rows = Any(rows.any());
            let mut fit = params.start(&rows).unwrap();
            let mut valid = vec![fit.checkpoint(&rows).unwrap()];
            while valid.len() < 6 && fit.advance_on(&rows, &cx).unwrap().is_some() {
                valid.push(fit.checkpoint(&rows).unwrap());
            }
            run(stringify!($name), &valid, &|checkpoint| {
                let mut fit = params.resume_fit(checkpoint, &rows)?;
                for _ in 0..3 {
                    fit.advance_on(&rows, &cx)?;
                }
                fit.finish_on(&rows, &cx)?;
                drop(fit.model());
                Ok(())
            });
        }
    )*};
}

checkpoints! {
    kmeans_checkpoints: rows(), KMeans::params(4).seeding(Seeding::Random).tolerance(0.0);
    kmeans_checkpoints_of_starts: wide_rows(), KMeans::params(4).n_init(3).max_iter(2);
    kmeans_checkpoints_by_angle: rows(), KMeans::params(4).metric(Metric::Cosine).tolerance(0.0);
    minibatch_checkpoints: rows(), MiniBatch::params(4).batch_size(20).half_life(Some(30.0));
    nested_checkpoints: rows(), NestedMiniBatch::params(4).batch_size(15);
    backward_euler_checkpoints: rows(), BackwardEuler::params(4).batch_size(20).max_iter(4).polish(true);
    variance_reduced_checkpoints: rows(), VarianceReduced::params(4).seeding(Seeding::Random).tolerance(0.0);
    breathing_checkpoints: rows(), Breathing::params(6).m(2).seeding(Seeding::Random);
    hierarchical_checkpoints: rows(), HierarchicalKMeans::params(9).n_candidates(3).tolerance(0.0).max_iter(4);
    mixture_checkpoints: wide_rows(), TruncatedGaussianMixture::params(4).n_active(2).n_init(2).max_iter(3);
    kmodes_checkpoints: rows(), LaplacianKModes::params(3).max_iter(4);
}

/// A test that continues from damaged states of a method for streams.
macro_rules! states {
    ($($name:ident: $params:expr;)*) => {$(
        #[test]
        fn $name() {
            let (rows, params, cx) = (rows(), $params, Executor::new(Some(1)).unwrap());
            let mut stream = params.stream(&Any(rows.any())).unwrap();
            let mut valid = Vec::new();
            for batch in rows.chunks(12) {
                stream.partial_fit_on(&Any(batch.any()), &cx).unwrap();
                valid.push(stream.state());
            }
            let (few, others) = rows.split_at(20);
            run(stringify!($name), &valid, &|state| {
                let mut stream = params.resume(state)?;
                stream.partial_fit_on(&Any(few.any()), &cx)?;
                stream.partial_fit_on(&Any(others.any()), &cx)?;
                drop(stream.model());
                Ok(())
            });
        }
    )*};
}

states! {
    minibatch_states: MiniBatch::params(4).batch_size(20);
    nested_states: NestedMiniBatch::params(4).batch_size(15);
    backward_euler_states: BackwardEuler::params(4).batch_size(20);
}

#[test]
fn coreset_states() {
    let (rows, cx) = (rows(), Executor::new(Some(1)).unwrap());
    let mut coreset = MergeReduce::<f32>::new(5, 1).unwrap();
    let mut valid = Vec::new();
    for batch in rows.chunks(17) {
        coreset.absorb(&batch, &cx).unwrap();
        valid.push(coreset.state());
    }
    run("coreset_states", &valid, &|state| {
        let mut coreset = MergeReduce::<f32>::of_state(state).map_err(shoal::Error::Shape)?;
        coreset.result(&cx)?;
        coreset.absorb(&&rows[..], &cx)?;
        coreset.merge(&coreset.clone(), &cx)?;
        coreset.result(&cx).map(drop)
    });
}
