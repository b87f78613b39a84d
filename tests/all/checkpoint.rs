//! Checkpointed fits resume after every step to bit-identical results, for every method. Damaged or
//! mismatched checkpoints raise errors.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use shoal::centers::CenterMethod;
use shoal::data::{AnySource, Chunk, Chunks, Dense, Weighted};
use shoal::fit::{Run, Step};
use shoal::kmeans::{
    BackwardEulerParams, BalancedParams, BreathingParams, KMeansParams, MiniBatchParams, NestedParams, Size,
    VarianceReducedParams,
};
use shoal::persist::{self, Array, Contents};
use shoal::{
    Algorithm, BackwardEuler, Balanced, Breathing, Error, Executor, KMeans, Metric, MiniBatch,
    NestedMiniBatch, Result, Seeding, VarianceReduced,
};

use crate::common::Any;

fn values(n: usize, d: usize) -> Vec<f32> {
    let noise =
        |i: usize| ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1u32 << 24) as f32;
    (0..n * d).map(|at| noise(at) + 1.5 * noise((at / d % 11) * d + at % d + 99_991)).collect()
}

/// Starting and resuming a fit, for every method.
trait Params {
    type Method: CenterMethod;
    fn begin(&self, rows: &Any<'_>) -> Result<Run<Self::Method>>;
    fn resume(&self, checkpoint: &Contents, rows: &Any<'_>) -> Result<Run<Self::Method>>;
}

macro_rules! params {
    ($($params:ty => $method:ty),*) => {$(
        impl Params for $params {
            type Method = $method;
            fn begin(&self, rows: &Any<'_>) -> Result<Run<$method>> {
                self.start(rows)
            }
            fn resume(&self, checkpoint: &Contents, rows: &Any<'_>) -> Result<Run<$method>> {
                self.resume_fit(checkpoint, rows)
            }
        }
    )*};
}
params!(
    KMeansParams => KMeans,
    MiniBatchParams => MiniBatch,
    NestedParams => NestedMiniBatch,
    VarianceReducedParams => VarianceReduced,
    BackwardEulerParams => BackwardEuler,
    BreathingParams => Breathing,
    BalancedParams => Balanced
);

/// Steps without times and distances: a resumed run starts without bounds.
fn without_costs(steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    for step in &mut steps {
        (step.n_distances, step.elapsed) = (0, 0.0);
    }
    steps
}

type Outcome = (Vec<f64>, Vec<u32>, Vec<f64>, u64, u64, u64, Vec<Step>);

/// All results of a finished run.
fn outcome<M: CenterMethod>(run: &Run<M>) -> Outcome {
    let inertia = run.inertia().to_bits();
    let counts = (run.n_iter(), run.n_steps());
    (
        run.centers(),
        run.labels(),
        run.cluster_weights().to_vec(),
        inertia,
        counts.0,
        counts.1,
        without_costs(run.history()),
    )
}

/// Writes a checkpoint after step `after`, or after every step if it is `None`, and resumes from the file.
fn with_breaks<P: Params>(
    params: &P,
    rows: &Any<'_>,
    after: Option<usize>,
    finishes: bool,
) -> Run<P::Method> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = params.begin(rows).unwrap();
    while run.advance_on(rows, &cx).unwrap().is_some() {
        if after.is_none_or(|after| run.history().len() == after) {
            persist::write(&path, &run.checkpoint(rows).unwrap()).unwrap();
            run = params.resume(&persist::read(&path).unwrap(), rows).unwrap();
        }
    }
    if finishes {
        run.finish_on(rows, &cx).unwrap();
    }
    run
}

fn same<P: Params>(name: &str, params: &P, rows: &Any<'_>, finishes: bool) {
    let whole = with_breaks(params, rows, Some(0), finishes);
    let steps = whole.history().len();
    assert!(steps > 2, "{name}: {steps} steps");
    let expected = outcome(&whole);
    for after in (1..=steps).step_by(1 + steps / 12).map(Some).chain([None]) {
        assert_eq!(
            outcome(&with_breaks(params, rows, after, finishes)),
            expected,
            "{name}, after {after:?} of {steps}"
        );
    }
}

/// Checks every method with several passes over the rows.
fn in_passes(name: &str, rows: &Any<'_>, finishes: bool) {
    let exact = KMeans::params(30).seeding(Seeding::Random).rng_seed(5).tolerance(0.0);
    for algorithm in [
        Algorithm::Lloyd,
        Algorithm::Yinyang,
        Algorithm::Elkan,
        Algorithm::Exponion,
        Algorithm::Filtering,
        Algorithm::Sketch,
        Algorithm::Auto,
    ] {
        same(&format!("{name}, {algorithm:?}"), &exact.clone().algorithm(algorithm), rows, finishes);
    }
    same(&format!("{name}, three starts"), &exact.clone().n_init(3).max_iter(7), rows, finishes);
    same(&format!("{name}, cosine"), &exact.clone().metric(Metric::Cosine).tolerance(1e-3), rows, finishes);
    let nested = NestedMiniBatch::params(12).batch_size(100).rng_seed(9).shuffle(false);
    same(&format!("{name}, nested"), &nested, rows, finishes);
    same(&format!("{name}, nested, cosine"), &nested.metric(Metric::Cosine), rows, finishes);
    let reduced = VarianceReduced::params(40).seeding(Seeding::Random).rng_seed(2).max_iter(5).tolerance(0.0);
    same(&format!("{name}, variance-reduced"), &reduced, rows, true);
    same(&format!("{name}, variance-reduced, cosine"), &reduced.metric(Metric::Cosine), rows, true);
    let breathing = Breathing::params(20).m(2).seeding(Seeding::Random).rng_seed(4);
    same(&format!("{name}, breathing"), &breathing, rows, finishes);
    same(&format!("{name}, breathing, cosine"), &breathing.metric(Metric::Cosine), rows, finishes);
    let balanced = Balanced::params(20).size_max(Size::TimesMean(1.1)).seeding(Seeding::Random).rng_seed(4);
    same(&format!("{name}, balanced"), &balanced, rows, finishes);
    same(&format!("{name}, balanced, cosine"), &balanced.metric(Metric::Cosine), rows, finishes);
    let batches = MiniBatch::params(12).batch_size(100).rng_seed(2).max_iter(3).half_life(Some(900.0));
    same(&format!("{name}, batches"), &batches, rows, finishes);
    same(&format!("{name}, batches, cosine"), &batches.metric(Metric::Cosine), rows, finishes);
    let implicit = BackwardEuler::params(12).batch_size(100).n_inner(4).rng_seed(2).max_iter(6);
    same(&format!("{name}, implicit"), &implicit, rows, finishes);
    let cosine = implicit.clone().metric(Metric::Cosine);
    same(&format!("{name}, implicit, cosine"), &cosine, rows, finishes);
    same(&format!("{name}, implicit and polished"), &implicit.max_iter(3).polish(true), rows, finishes);
}

#[test]
fn a_resumed_run_gives_identical_results() {
    let values = values(1500, 3);
    let dense = Dense::new(&values, 3).unwrap();
    in_passes("memory", &Any(AnySource::F32(&dense)), true);
    same(
        "nested",
        &NestedMiniBatch::params(12).batch_size(100).rng_seed(9),
        &Any(AnySource::F32(&dense)),
        true,
    );
    let weights: Vec<f64> = (0..1500).map(|i| f64::from(i % 5) / 3.0).collect();
    let weighted = Weighted::new::<f32>(dense, &weights[..]).unwrap();
    in_passes("weights", &Any(AnySource::F32(&weighted)), true);
    let replay = Chunks::replay(3, || values.chunks(3 * 77).map(|rows| Ok(Chunk::from(rows.to_vec()))));
    in_passes("passes", &Any(AnySource::F32(&replay)), true);
}

#[test]
fn a_first_step_that_is_interrupted_anywhere_resumes() {
    fn broken<P: Params>(name: &str, params: &P) {
        let values = values(1500, 3);
        let cx = Executor::new(Some(2)).unwrap();
        // Interrupted at the chunk with this number, counted over all passes.
        let stream = |at: usize| {
            let (count, values) = (AtomicUsize::new(0), values.clone());
            Chunks::replay(3, move || {
                let chunks: Vec<_> = values
                    .chunks(3 * 500)
                    .map(|rows| {
                        if count.fetch_add(1, Ordering::Relaxed) + 1 == at {
                            Err(Error::Interrupted)
                        } else {
                            Ok(Chunk::from(rows.to_vec()))
                        }
                    })
                    .collect();
                chunks.into_iter()
            })
        };
        let whole = |mut run: Run<P::Method>, rows: &Any<'_>| {
            while run.advance_on(rows, &cx).unwrap().is_some() {}
            outcome(&run)
        };
        let intact = stream(0);
        let intact = Any(AnySource::F32(&intact));
        let expected = whole(params.begin(&intact).unwrap(), &intact);
        let (mut before, mut after) = (0, 0);
        for at in 1..200 {
            let rows = stream(at);
            let rows = Any(AnySource::F32(&rows));
            let Ok(mut run) = params.begin(&rows) else { continue };
            // A pass that needs only the first rows does not reach the chunk.
            if run.advance_on(&rows, &cx).is_ok() {
                continue;
            }
            let checkpoint = run.checkpoint(&intact).unwrap();
            if run.centers::<f32>().is_empty() {
                before += 1;
            } else {
                after += 1;
            }
            assert_eq!(
                whole(params.resume(&checkpoint, &intact).unwrap(), &intact),
                expected,
                "{name}: {at}"
            );
        }
        assert!(before > 0 && after > 0, "{name}: {before} before the centers, {after} after");
    }
    let seeding = Seeding::PlusPlus { greedy: false };
    broken("exact", &KMeans::params(4).seeding(seeding.clone()).rng_seed(2).n_init(2).max_iter(3));
    broken(
        "nested",
        &NestedMiniBatch::params(4).batch_size(600).rng_seed(9).shuffle(false).max_iter(Some(5)),
    );
    broken("reduced", &VarianceReduced::params(4).seeding(seeding.clone()).rng_seed(2).max_iter(3));
    broken("batches", &MiniBatch::params(4).batch_size(100).rng_seed(2).max_iter(2));
    broken("implicit", &BackwardEuler::params(4).seeding(seeding).batch_size(100).rng_seed(2).max_iter(3));
}

#[test]
fn a_fit_of_a_stream_resumes() {
    let values = values(1500, 3);
    let stream = || Chunks::once(3, values.chunks(3 * 77).map(|rows| Ok(Chunk::from(rows.to_vec()))));
    let params = MiniBatch::params(4).batch_size(60).rng_seed(2);
    let cx = Executor::new(Some(1)).unwrap();
    let whole = |run: &mut Run<MiniBatch>, rows: &Any<'_>| {
        while run.advance_on(rows, &cx).unwrap().is_some() {}
        outcome(run)
    };
    let first = stream();
    let expected =
        whole(&mut params.start(&Any(AnySource::F32(&first))).unwrap(), &Any(AnySource::F32(&first)));
    for steps in 1..expected.5 {
        let broken = stream();
        let mut run = params.start(&Any(AnySource::F32(&broken))).unwrap();
        for _ in 0..steps {
            run.advance_on(&Any(AnySource::F32(&broken)), &cx).unwrap();
        }
        if run.history().last().unwrap().stop_reason.is_some() {
            break;
        }
        let checkpoint = run.checkpoint(&Any(AnySource::F32(&broken))).unwrap();
        let again = stream();
        let mut run = params.resume_fit(&checkpoint, &Any(AnySource::F32(&again))).unwrap();
        assert_eq!(whole(&mut run, &Any(AnySource::F32(&again))), expected, "after {steps} steps");
    }
}

/// One checkpoint per method, and the rows of the fits.
fn checkpoints() -> (Vec<f32>, Vec<Contents>) {
    fn one<P: Params>(params: &P, rows: &Any<'_>, cx: &Executor) -> Contents {
        let mut run = params.begin(rows).unwrap();
        for _ in 0..3 {
            run.advance_on(rows, cx).unwrap();
        }
        run.checkpoint(rows).unwrap()
    }
    let values = values(600, 2);
    let (exact, batches, nested, reduced, implicit) = all_params();
    let contents = {
        let dense = Dense::new(&values, 2).unwrap();
        let (rows, cx) = (Any(AnySource::F32(&dense)), Executor::new(Some(1)).unwrap());
        vec![
            one(&exact, &rows, &cx),
            one(&batches, &rows, &cx),
            one(&nested, &rows, &cx),
            one(&reduced, &rows, &cx),
            one(&implicit, &rows, &cx),
        ]
    };
    (values, contents)
}

fn all_params() -> (KMeansParams, MiniBatchParams, NestedParams, VarianceReducedParams, BackwardEulerParams) {
    (
        KMeans::params(6).seeding(Seeding::Random).n_init(2).max_iter(2),
        MiniBatch::params(6).batch_size(50),
        NestedMiniBatch::params(6).batch_size(50),
        VarianceReduced::params(6).tolerance(0.0).learning_rate(Some(0.1)),
        BackwardEuler::params(6).batch_size(50).max_iter(2).polish(true),
    )
}

/// Resumes a checkpoint with the method of the given number, and runs a few steps.
fn resume(method: usize, checkpoint: &Contents, values: &[f32], d: usize) -> std::result::Result<(), String> {
    fn by<P: Params>(params: &P, checkpoint: &Contents, rows: &Any<'_>) -> Result<()> {
        let cx = Executor::new(Some(1))?;
        let mut run = params.resume(checkpoint, rows)?;
        for _ in 0..3 {
            run.advance_on(rows, &cx)?;
        }
        run.finish_on(rows, &cx)?;
        assert!(run.centers::<f64>().iter().all(|x| x.is_finite()), "centers must be finite");
        Ok(())
    }
    let dense = Dense::new(values, d).unwrap();
    let rows = Any(AnySource::F32(&dense));
    let (exact, batches, nested, reduced, implicit) = all_params();
    let done = match method {
        0 => by(&exact, checkpoint, &rows),
        1 => by(&batches, checkpoint, &rows),
        2 => by(&nested, checkpoint, &rows),
        3 => by(&reduced, checkpoint, &rows),
        _ => by(&implicit, checkpoint, &rows),
    };
    done.map_err(|error| error.to_string())
}

#[test]
fn resuming_with_other_data_or_parameters_fails() {
    let (values, all) = checkpoints();
    for (method, checkpoint) in all.iter().enumerate() {
        resume(method, checkpoint, &values, 2).unwrap();
        let refused = resume((method + 1) % 5, checkpoint, &values, 2).unwrap_err();
        assert!(refused.contains("not a"), "{refused}");
        let refused = resume(method, checkpoint, &values, 3).unwrap_err();
        assert!(refused.contains("600 x 2") && refused.contains("400 x 3"), "{refused}");
        let refused = resume(method, checkpoint, &values[2..], 2).unwrap_err();
        assert!(refused.contains("600 x 2") && refused.contains("599 x 2"), "{refused}");
        let mut others = values.clone();
        others[0] += 1.0;
        let refused = resume(method, checkpoint, &others, 2).unwrap_err();
        assert!(refused.contains("values"), "{refused}");
        for name in checkpoint.arrays.keys() {
            let mut less = checkpoint.clone();
            less.arrays.remove(name);
            // Some arrays are optional. Without one, resuming succeeds or fails, but must not panic.
            if resume(method, &less, &values, 2).is_ok() {
                assert!(name.contains('_') || name == "given", "nobody misses {name}");
            }
        }
        for name in checkpoint.meta.keys() {
            for text in ["", "[]", "{}", "{\"seed\": -1}"] {
                let mut other = checkpoint.clone();
                other.meta.insert(name.clone(), text.into());
                assert!(resume(method, &other, &values, 2).is_err(), "{name} = {text:?}");
            }
        }
    }
    let cx = Executor::new(Some(1)).unwrap();
    let rows = [[0.0f64], [1.0], [5.0]];
    let mut run = KMeans::params(2).start(&rows).unwrap();
    // Before the seeding there is nothing to store but the rows' fingerprint and an empty history.
    let begun = run.checkpoint(&rows).unwrap();
    assert!(begun.arrays.keys().all(|name| name.starts_with("history")));
    assert_eq!(KMeans::params(2).resume_fit(&begun, &rows).unwrap().history(), []);
    let refused = KMeans::params(2).resume_fit(&begun, &[[0.5f64], [1.0], [5.0]]).err().unwrap().to_string();
    assert!(refused.contains("the values differ"), "{refused}");
    run.advance_on(&rows, &cx).unwrap();
    let checkpoint = run.checkpoint(&rows).unwrap();
    let single = [[0.0f32], [1.0], [5.0]];
    let refused = KMeans::params(2).resume_fit(&checkpoint, &single).err().unwrap().to_string();
    assert!(refused.contains("float64"), "{refused}");
    let refused = KMeans::params(3).resume_fit(&checkpoint, &rows).err().unwrap().to_string();
    assert!(refused.contains("n_clusters=3"), "{refused}");
    // The same values from another kind of source.
    let mut other = checkpoint.clone();
    other.meta.insert("run".into(), checkpoint.meta["run"].replace("\"random\"", "\"replay\""));
    let refused = KMeans::params(2).resume_fit(&other, &rows).err().unwrap().to_string();
    assert!(refused.contains("needs \"replay\" access"), "{refused}");
}

/// A start that has ended, but is missing, would end the next start before its first sweep.
#[test]
fn a_last_step_without_its_start_is_refused() {
    let values = values(300, 2);
    let rows = Dense::new(&values, 2).unwrap();
    let params = KMeans::params(4).n_init(3).rng_seed(2);
    let mut run = params.start(rows).unwrap();
    let state = |run: &mut Run<KMeans>| run.checkpoint(rows).unwrap();
    // Between two starts there is none.
    let mut checkpoint = state(&mut run);
    while !checkpoint.arrays.contains_key("best.centers") || checkpoint.arrays.contains_key("current.centers")
    {
        assert!(run.advance(rows).unwrap().is_some(), "a first start ends before the last one");
        checkpoint = state(&mut run);
    }
    params.resume_fit(&checkpoint, rows).unwrap();
    let mut numbers: serde_json::Value = serde_json::from_str(&checkpoint.meta["state"]).unwrap();
    assert!(numbers["ended"].is_null());
    numbers["ended"] = serde_json::json!({
        "counts": [2, 600, 300, 0, 0], "figures": [1f64.to_bits(), 0, 0], "stop_reason": "labels-stable",
    });
    checkpoint.meta.insert("state".into(), numbers.to_string());
    let Err(refused) = params.resume_fit(&checkpoint, rows) else {
        panic!("a damaged checkpoint was resumed")
    };
    let message = "the checkpoint: it holds the last step of a start, but not the start";
    assert_eq!(refused.to_string(), message);
}

#[test]
fn arrays_of_wrong_sizes_are_refused_at_once() {
    let (values, all) = checkpoints();
    let state = |checkpoint: &Contents, name: &str| {
        serde_json::from_str::<serde_json::Value>(&checkpoint.meta[name]).unwrap()
    };
    let refused = |method: usize, checkpoint: &Contents| {
        let said = resume(method, checkpoint, &values, 2).unwrap_err();
        assert!(said.contains("checkpoint"), "{said}");
    };
    for length in [10, 599, 601] {
        let mut other = all[0].clone();
        for (name, array) in &mut other.arrays {
            if name.ends_with(".labels") {
                *array = Array::new(&[length], &vec![0u32; length]).unwrap();
            }
        }
        refused(0, &other);
    }
    for (name, value) in [("due", 4000u64), ("due", 1 << 60), ("dim", 1), ("dim", 3)] {
        let mut other = all[2].clone();
        let mut numbers = state(&other, "state");
        numbers[name] = value.into();
        other.meta.insert("state".into(), numbers.to_string());
        refused(2, &other);
    }
    for length in [0usize, 10, 601] {
        let mut other = all[2].clone();
        other.arrays.insert("labels".into(), Array::new(&[length], &vec![0u32; length]).unwrap());
        refused(2, &other);
    }
    for (method, n) in [(0, 601u64), (0, 1 << 60), (2, 601), (2, 1 << 60)] {
        let mut other = all[method].clone();
        // Of a start of `KMeans`, or of the only state.
        let of_labels =
            |text: &&String| text.ends_with("state") && (method != 0 || text.len() > "state".len());
        let text = other.meta.keys().find(of_labels).unwrap().clone();
        other.arrays.retain(|name, _| !name.ends_with("labels"));
        let mut numbers = state(&other, &text);
        numbers["unlabeled"] = n.into();
        other.meta.insert(text, numbers.to_string());
        refused(method, &other);
    }
    for (method, checkpoint) in all.iter().enumerate() {
        let mut other = checkpoint.clone();
        other.arrays.insert("history_counts".into(), Array::new(&[0, 5], &[0u64; 0]).unwrap());
        refused(method, &other);
        other.arrays.insert("history_figures".into(), Array::new(&[0, 3], &[0.0f64; 0]).unwrap());
        refused(method, &other);
        let mut other = checkpoint.clone();
        let more = other.arrays["history_counts"].shape()[0] + 1;
        other.arrays.insert("history_counts".into(), Array::new(&[more, 5], &vec![1u64; 5 * more]).unwrap());
        refused(method, &other);
        let mut other = checkpoint.clone();
        other.arrays.insert("zero_row_places".into(), Array::new(&[1], &[0u64]).unwrap());
        other.arrays.insert("zero_row_bits".into(), Array::new(&[0], &[0u64; 0]).unwrap());
        refused(method, &other);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_checkpoint_never_panics(method in 0..5usize, which in any::<u16>(), at in any::<u32>(), to in any::<u8>(), cut in any::<bool>()) {
        let (values, all) = checkpoints();
        let mut checkpoint = all[method].clone();
        let arrays: Vec<String> = checkpoint.arrays.keys().cloned().collect();
        let name = &arrays[usize::from(which) % arrays.len()];
        let array = &checkpoint.arrays[name];
        let (dtype, shape, mut bytes) = (array.dtype(), array.shape().to_vec(), array.bytes().to_vec());
        if !bytes.is_empty() {
            let at = at as usize % bytes.len();
            bytes[at] = to;
            let damaged = if cut && shape.len() == 1 {
                let fewer = shape[0] / 2;
                bytes.truncate(fewer * dtype.size());
                Array::from_bytes(dtype, &[fewer], bytes).unwrap()
            } else {
                Array::from_bytes(dtype, &shape, bytes).unwrap()
            };
            checkpoint.arrays.insert(name.clone(), damaged);
            // Resuming fails, or the fit resumes to finite centers; see `resume`.
            drop(resume(method, &checkpoint, &values, 2));
        }
    }
}
