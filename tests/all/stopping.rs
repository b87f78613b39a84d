//! Stop rules of runs.

use shoal::fit::{StopReason, StopRules};

/// The bound of the mixture rises: both rules see its first step as its worst, not as its best.
#[test]
fn rules_follow_the_bound_of_a_mixture() {
    let rows: Vec<[f64; 2]> =
        (0..600).map(|i| [f64::from(i % 7 * 10 + i % 3), f64::from(i * i % 31)]).collect();
    let params = shoal::TruncatedGaussianMixture::params(7).tolerance(1e-6).rng_seed(3);
    let run = |(target, patience)| {
        let mut rules = StopRules::default();
        (rules.target, rules.patience) = (target, patience);
        let mut run = params.start(&rows).unwrap().stop(rules);
        while run.advance(&rows).unwrap().is_some() {}
        run.history().to_vec()
    };
    let plain = run((None, None));
    assert!(plain.len() > 4, "{} steps", plain.len());
    let patient = run((None, Some(1)));
    assert_ne!(patient[1].stop_reason, Some(StopReason::Patience), "{patient:?}");
    let ended = run((Some(plain[2].objective), None));
    assert_eq!((ended.len(), ended[2].stop_reason), (3, Some(StopReason::Target)));
}
