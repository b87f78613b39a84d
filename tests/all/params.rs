//! Tests that parameters can be set by name: every name has a setter, and an unknown name is an error with a
//! suggestion.

use std::fmt::Debug;
use std::str::FromStr;

use shoal::fit::{StopReason, Value};
use shoal::gmm::{CoresetSize, Covariance, Start, Stopping, TruncatedGaussianMixture};
use shoal::graph::GraphMethod;
use shoal::kmeans::{Bounds, EpochSize, Size, Variant};
use shoal::kmodes::{Collapse, LaplacianKModes, ModeUpdate, Shift};
use shoal::{
    Algorithm, BackwardEuler, Balanced, Breathing, Error, KMeans, Metric, MiniBatch, NestedMiniBatch,
    Seeding, VarianceReduced,
};

/// Values of every type that a parameter may have.
fn values() -> Vec<Value> {
    let texts = [
        "auto",
        "lloyd",
        "cosine",
        "hamerly",
        "vrkm",
        "diag",
        "cells",
        "relative",
        "mean-shift",
        "reduce",
        "ivf",
        "doubling",
        "random",
    ];
    let mut values = vec![Value::None, Value::Bool(false), 3.into(), 0.5.into(), vec![1.0, 2.0].into()];
    values.extend(texts.map(Value::from));
    values
}

/// Tests `set` of one parameter type. The error for the name `misspelt` must suggest `meant`.
macro_rules! check {
    ($params:expr, $misspelt:literal, $meant:literal) => {{
        let (params, names) = ($params, names_of(&$params));
        let shown = format!("{params:?}");
        for name in names {
            assert!(shown.contains(&format!("{name}: ")), "{name} is a field of {shown}");
            let mut accepted = 0;
            for value in values() {
                let (mut params, mut again) = (params.clone(), params.clone());
                match params.set(name, value.clone()) {
                    Ok(()) => {
                        accepted += 1;
                        again.set(name, params.get(name).unwrap()).unwrap();
                        assert_eq!(
                            format!("{again:?}"),
                            format!("{params:?}"),
                            "{name} is read as it was set"
                        );
                    }
                    Err(Error::InvalidParam(wrong)) => {
                        assert_eq!((wrong.len(), wrong[0].name), (1, *name), "{wrong:?}");
                        assert_eq!(wrong[0].got, value.to_string());
                        assert_eq!(format!("{params:?}"), shown, "a refused value changes nothing");
                    }
                    Err(other) => panic!("{name} = {value}: {other:?}"),
                }
            }
            assert!(accepted > 0, "{name} takes some value");
            assert!(accepted < values().len(), "{name} does not take everything");
        }
        let mut params = params;
        for unknown in ["", "color", "n_clusterss_", $misspelt] {
            let refused = params.set(unknown, 1.into()).unwrap_err().to_string();
            assert!(names.iter().all(|name| refused.contains(&format!("{name:?}"))), "{refused}");
            assert!(refused.contains(&format!("got {unknown:?}")), "{refused}");
            assert_eq!(params.get(unknown).unwrap_err().to_string(), refused);
        }
        let refused = params.set($misspelt, 1.into()).unwrap_err().to_string();
        assert!(refused.ends_with(concat!("did you mean \"", $meant, "\"?")), "{refused}");
    }};
}

/// The names of the parameters of the type of `params`.
trait Names {
    fn names(&self) -> &'static [&'static str];
}

macro_rules! names_of {
    ($($params:ty),*) => {$(
        impl Names for $params {
            fn names(&self) -> &'static [&'static str] {
                Self::NAMES
            }
        }
    )*};
}

names_of! {
    shoal::kmeans::KMeansParams, shoal::kmeans::MiniBatchParams, shoal::kmeans::NestedParams,
    shoal::kmeans::BackwardEulerParams, shoal::kmeans::BalancedParams, shoal::kmeans::BreathingParams,
    shoal::kmeans::VarianceReducedParams, shoal::gmm::MixtureParams,
    shoal::kmodes::KModesParams
}

fn names_of(params: &impl Names) -> &'static [&'static str] {
    params.names()
}

#[test]
fn every_name_can_be_set_and_others_are_refused() {
    check!(KMeans::params(2), "tol", "tolerance");
    check!(MiniBatch::params(2), "batchsize", "batch_size");
    check!(NestedMiniBatch::params(2), "bufer_memory", "buffer_memory");
    check!(BackwardEuler::params(2), "step_decey", "step_decay");
    check!(VarianceReduced::params(2), "learning-rate", "learning_rate");
    check!(Breathing::params(2), "n_clusterz", "n_clusters");
    check!(Balanced::params(2), "sizemax", "size_max");
    check!(TruncatedGaussianMixture::params(2), "covariance_type", "covariance");
    check!(LaplacianKModes::params(2), "Shift", "shift");
}

#[test]
fn a_name_sets_what_its_setter_sets() {
    let mut named = KMeans::params(2);
    for (name, value) in [
        ("n_clusters", 5.into()),
        ("seeding", vec![1.0, 2.0].into()),
        ("rng_seed", u64::MAX.into()),
        ("n_init", 2u64.into()),
        ("max_iter", 7u64.into()),
        ("tolerance", 1.into()),
        ("metric", "cosine".into()),
        ("algorithm", "elkan".into()),
        ("bounds_memory", 9u64.into()),
        ("threads", Some(3usize).into()),
    ] {
        named.set(name, value).unwrap();
    }
    let set = KMeans::params(5).seeding(Seeding::Given(vec![1.0, 2.0])).rng_seed(u64::MAX).n_init(2);
    let set = set.max_iter(7).tolerance(1.0).metric(Metric::Cosine).algorithm(Algorithm::Elkan);
    assert_eq!(format!("{named:?}"), format!("{:?}", set.bounds_memory(9).threads(Some(3))));
    let mut named = VarianceReduced::params(2);
    for (value, size) in [
        (3.into(), "epoch_size: Steps(3)"),
        (0.5.into(), "epoch_size: Share(0.5)"),
        ("doubling".into(), "epoch_size: Doubling"),
    ] {
        named.set("epoch_size", value).unwrap();
        assert!(format!("{named:?}").contains(size), "{named:?}");
    }
    let mut named = TruncatedGaussianMixture::params(2);
    for (value, size) in [
        (3.into(), "coreset_size: Some(Rows(3))"),
        (0.5.into(), "coreset_size: Some(Share(0.5))"),
        (Value::None, "coreset_size: None"),
    ] {
        named.set("coreset_size", value).unwrap();
        assert!(format!("{named:?}").contains(size), "{named:?}");
    }
    let mut named = LaplacianKModes::params(2);
    for (value, shift) in
        [(2.into(), "shift: By(2.0)"), (0.5.into(), "shift: By(0.5)"), ("auto".into(), "shift: Auto")]
    {
        named.set("shift", value).unwrap();
        assert!(format!("{named:?}").contains(shift), "{named:?}");
    }
}

#[test]
fn sizes_are_what_their_texts_say() {
    fn check<T: FromStr<Err = Error> + ToString + PartialEq + Debug>(texts: &[(&str, T)], expected: &str) {
        for (text, size) in texts {
            assert_eq!((&text.parse::<T>().unwrap(), &size.to_string()[..]), (size, *text));
        }
        for unknown in ["", "Auto", "none", "true", "-1", "1 000"] {
            let Err(refused) = unknown.parse::<T>() else { panic!("{unknown:?} is no size") };
            assert!(refused.to_string().contains(expected), "{refused}");
        }
    }
    let epochs =
        [("doubling", EpochSize::Doubling), ("3", EpochSize::Steps(3)), ("1.0", EpochSize::Share(1.0))];
    check(&epochs, "epoch_size must be a number of steps");
    check(&[("250", Size::Rows(250)), ("1.5", Size::TimesMean(1.5))], "size must be a number of rows");
    let coresets = [("900", CoresetSize::Rows(900)), ("0.2", CoresetSize::Share(0.2))];
    check(&coresets, "coreset_size must be a number of rows");
    assert_eq!(
        ["auto", "0.5", "2"].map(|text| text.parse::<Shift>().unwrap()),
        [Shift::Auto, Shift::By(0.5), Shift::By(2.0)]
    );
    assert_eq!([Shift::Auto, Shift::By(2.0)].map(|shift| shift.to_string()), ["auto", "2.0"]);
    let refused = "automatic".parse::<Shift>().unwrap_err().to_string();
    assert_eq!(refused, "shift must be \"auto\", or a finite number of at least 0, got \"automatic\"");
}

#[test]
fn values_of_another_type_are_refused_with_what_is_allowed() {
    let refused =
        |name: &str, value: Value| NestedMiniBatch::params(2).set(name, value).unwrap_err().to_string();
    assert_eq!(
        refused("max_iter", 0.5.into()),
        "max_iter must be an integer of at least 0, or none, got 0.5"
    );
    assert_eq!(refused("batch_size", (-1).into()), "batch_size must be an integer of at least 0, got -1");
    assert_eq!(refused("rho", "much".into()), "rho must be a number, got \"much\"");
    assert_eq!(refused("shuffle", 1.into()), "shuffle must be true or false, got 1");
    assert_eq!(
        refused("bounds", "elken".into()),
        "bounds must be one of \"auto\", \"elkan\", \"yinyang\", \"hamerly\", \"none\", got \"elken\": did you mean \"elkan\"?"
    );
    assert!(refused("seeding", "kmeans++".into()).ends_with("got \"kmeans++\": did you mean \"k-means++\"?"));
}

#[test]
fn options_are_what_their_names_say() {
    fn check<T: FromStr<Err = Error> + ToString>(names: &[&str]) {
        for name in names {
            assert_eq!(name.parse::<T>().map_err(|e| e.to_string()).unwrap().to_string(), *name);
        }
        for unknown in ["", "Auto", "kmeans", " auto"] {
            let Err(refused) = unknown.parse::<T>() else { panic!("{unknown:?} is no name of {names:?}") };
            assert!(names.iter().all(|name| refused.to_string().contains(&format!("{name:?}"))), "{refused}");
        }
    }
    check::<Algorithm>(&["auto", "lloyd", "yinyang", "elkan", "hamerly", "exponion", "filtering", "sketch"]);
    check::<Bounds>(&["auto", "elkan", "yinyang", "hamerly", "none"]);
    check::<Variant>(&["vrkm++", "vrkm"]);
    check::<Stopping>(&["auto", "per-weight", "relative"]);
    check::<Start>(&["cells", "random"]);
    check::<Covariance>(&["tied_spherical", "spherical", "diag", "factor"]);
    check::<GraphMethod>(&["auto", "exact", "kd-tree", "ivf"]);
    check::<Metric>(&["euclidean", "cosine"]);
    check::<ModeUpdate>(&["byproduct", "mean-shift"]);
    check::<Collapse>(&["restore", "reduce"]);
    check::<Seeding>(&["auto", "random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||"]);
    check::<StopReason>(&[
        "labels-stable",
        "tolerance",
        "max-iter",
        "deadline",
        "target",
        "patience",
        "callback",
        "diverged",
        "collapsed",
    ]);
}

#[test]
fn a_fit_stops_when_the_centers_move_by_the_tolerance() {
    // The variance is 1, and the first step moves the center by 1.
    let rows = [[0.0f64], [2.0]];
    let steps = |tolerance: f64| {
        let params = KMeans::params(1).seeding(Seeding::Given(vec![0.0])).tolerance(tolerance);
        let mut run = params.start(&rows).unwrap();
        while run.advance(&rows).unwrap().is_some() {}
        (run.history().len(), run.history().last().unwrap().stop_reason)
    };
    assert_eq!(steps(1.0), (1, Some(StopReason::Tolerance)));
    assert_eq!(steps(0.99), (2, Some(StopReason::LabelsStable)));
}
